package bias

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Repeats says which sessions ask a question again, if that is known. Sessions of one question count once in every
// figure.
type Repeats struct {
	Questions int `json:"questions"` // counts the known questions of the window
	// Unknown counts sessions whose question is not known. Each counts as a separate question.
	Unknown int `json:"unknown"`
	// Alike counts sessions with an unknown question that look like an earlier such session. The category, the
	// candidates and the lengths of their answers are the same. Most of these sessions ask a question again.
	Alike int `json:"alike"`
	// SecretMade is when the secret of question keys was last replaced, if the window holds keys of both secrets. A
	// question that was asked both before and after that time counts as two.
	SecretMade *time.Time `json:"secret_made"`
	Note       string     `json:"note,omitempty"` // says what the report cannot tell
}

// repeats returns what the sessions of a window say about their questions.
func (c *Collector) repeats(in []*session) Repeats {
	var r Repeats
	known := map[string]bool{}
	alike := map[string]bool{}
	before := false
	after := false
	for _, s := range in {
		if s.key != "" {
			before = before || s.start.Before(c.o.SecretMade)
			after = after || !s.start.Before(c.o.SecretMade)
		}
		if s.query != "" {
			known[s.query] = true
			continue
		}
		r.Unknown++
		if answers := s.answers(); alike[answers] {
			r.Alike++
		} else if answers != "" {
			alike[answers] = true
		}
	}
	r.Questions = len(known)
	var notes []string
	if r.Alike > 0 {
		notes = append(notes, fmt.Sprintf("Some questions may have been asked again. Of %d sessions without a recorded question, "+
			"%d have answers exactly as long as those of an earlier session. Each counts as a separate question, "+
			"so the standard errors may be too small.", r.Unknown, r.Alike))
	}
	if before && after {
		r.SecretMade = new(c.o.SecretMade)
		notes = append(notes, fmt.Sprintf("The secret for question keys was replaced on %s. The report cannot see whether a question "+
			"was asked both before and after that. Such a question counts as two.", c.o.SecretMade.Format("2 January 2006, 15:04 MST")))
	}
	r.Note = strings.Join(notes, " ")
	return r
}

// answers returns a key that consists of the category, the candidates and the lengths of their answers. It is ""
// for fewer than two candidates. The rows must be sorted by reviewer and candidate.
func (s *session) answers() string {
	lengths := map[int32]int32{}
	text := []byte(s.category)
	for _, r := range s.rows {
		if _, ok := lengths[r.candidate]; !ok {
			lengths[r.candidate] = r.length
		}
	}
	if len(lengths) < 2 {
		return ""
	}
	for _, candidate := range slices.Sorted(maps.Keys(lengths)) {
		text = append(text, ' ')
		text = strconv.AppendInt(text, int64(candidate), 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, int64(lengths[candidate]), 10)
	}
	return string(text)
}
