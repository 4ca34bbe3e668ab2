package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// Labels keeps what people say about sessions.
type Labels interface {
	// Keep writes a record. When Keep returns nil, the record is stored as durably as BIAS_FSYNC promises.
	Keep(ctx context.Context, record council.LabelRecord) error
	// Key returns the key of a hash. The record holds this hash instead of the person's name. If the key is "", no
	// feedback can be kept.
	Key() string
}

// feedback is POST /v1/council/{id}/feedback. It keeps what a person says about a session that has ended.
func (a *API) feedback(w http.ResponseWriter, r *http.Request) error {
	if a.o.Labels == nil {
		return nothing(r, "to keep feedback, turn on bias records ("+a.o.Settings.Of(council.SettingBiasPersistence)+
			") and set "+a.o.Settings.Of(council.SettingDataDir)+" to a directory")
	}
	s, err := a.find(r)
	if err != nil {
		return err
	}
	if s.Summary().Status == council.StatusRunning {
		return &council.Error{
			Code:      council.CodeConflict,
			SessionID: s.ID,
			Detail:    "the session still runs; send the feedback when it has ended",
		}
	}
	var f council.Feedback
	p, err := a.decode(w, r, &f, false)
	if err != nil {
		return err
	}
	session, err := snapshot(s)
	if err != nil {
		return err
	}
	key := a.o.Labels.Key()
	if key == "" {
		p.Add("by", "the daemon stores persons only as a keyed hash, and has no key",
			"set "+a.o.Settings.Of(council.SettingHashSecret))
	}
	checkFeedback(p, f, session)
	if err := p.err("the feedback is not valid"); err != nil {
		return err
	}
	reservation := a.callerOf(r).labels.Reserve()
	if wait := reservation.Delay(); wait > 0 {
		reservation.Cancel()
		return &council.Error{
			Code: council.CodeOverLimit, SessionID: s.ID, RetryAfter: wait,
			Detail: fmt.Sprintf("this token has sent too much feedback, at most %d at once and %d a day; send it "+
				"again later",
				labelsAtOnce, labelsPerDay),
		}
	}
	record := label(f, session)
	request := s.Request()
	for value, to := range map[string]**string{
		request.Category: &record.QueryMetadata.Category, request.Language: &record.QueryMetadata.Language,
	} {
		if value != "" {
			*to = &value
		}
	}
	record.Labelled = time.Now().UTC()
	record.By = anonymize.KeyedHash(key, cmp.Or(f.By, a.label(r)))
	if err := a.o.Labels.Keep(r.Context(), record); err != nil {
		return &council.Error{
			Code: council.CodeUnavailable, SessionID: s.ID, RetryAfter: 5 * time.Second, Cause: err,
			Detail: "the feedback cannot be written now; the log says why; send it again later",
		}
	}
	return WriteJSON(w, http.StatusCreated, record.Kept)
}

// saw returns the names that feedback can use for the answers of a session. These are the members that answered, and
// council.ChoiceSynthesis if there is a synthesis.
func saw(s *council.Session) []string {
	var words []string
	for _, answer := range s.Stage1 {
		if answer.Status == council.OutcomeOK {
			words = append(words, answer.Model)
		}
	}
	if s.Stage3 != nil {
		words = append(words, string(council.ChoiceSynthesis))
	}
	return words
}

// checkFeedback adds all problems of the feedback on a session to p.
func checkFeedback(p *Problems, f council.Feedback, s *council.Session) {
	known := saw(s)
	unknown := func(field, word string) bool {
		if slices.Contains(known, word) {
			return false
		}
		p.Add(field, fmt.Sprintf("%.64q is not an answer of this session", word), "use "+strings.Join(known, ", "))
		return true
	}
	wrong := false
	for i, word := range f.Over {
		wrong = unknown("over["+strconv.Itoa(i)+"]", word) || wrong
	}
	if f.Rating != nil && !p.About("rating") && (*f.Rating < 1 || *f.Rating > 5) {
		p.Add("rating", "the rating is out of range", "give a whole number from 1 to 5")
	}
	if f.Preferred == "" {
		checkRated(p, f, s)
		return
	}
	switch tie := f.Preferred == string(council.ChoiceTie); {
	case !tie && unknown("preferred", f.Preferred), wrong || p.About("over"):
	case tie && len(others(f)) < 2, len(others(f)) < 1:
		p.Add("over", "a preference needs two or more answers", "name all answers that the person saw")
	}
}

// checkRated adds the problems of feedback that prefers no answer.
func checkRated(p *Problems, f council.Feedback, s *council.Session) {
	switch {
	case f.Rating != nil:
		if s.Answer == "" {
			p.Add("rating", "the session has no answer", "rate one that has")
		}
	case !p.About("rating") && !p.About("preferred"):
		p.Add("preferred", "the feedback has neither a preference nor a rating",
			"give preferred with over, or rating, or all of them")
	}
}

// others returns the answers that the person saw and did not prefer, sorted.
func others(f council.Feedback) []string {
	over := slices.DeleteFunc(slices.Clone(f.Over), func(word string) bool { return word == f.Preferred })
	slices.Sort(over)
	return append([]string{}, slices.Compact(over)...)
}

// label returns a record with the feedback. The caller adds the time, the person, the category and the language.
func label(f council.Feedback, s *council.Session) council.LabelRecord {
	meta := s.Metadata
	record := council.LabelRecord{
		SchemaVersion: council.LabelSchema,
		Timestamp:     s.Created,
		Wanted:        meta.LabelWanted,
		CouncilConfig: meta.Versions.CouncilConfig,
		Kept:          council.Kept{SessionID: s.ID, Over: others(f), Rating: f.Rating},
		Borda:         map[string]float64{},
		Ballots:       []council.LabelBallot{},
	}
	if f.Preferred != "" {
		record.Preferred = &f.Preferred
	}
	if s.Stage3 != nil && s.Stage3.Status == council.OutcomeOK {
		record.Chairman = &s.Stage3.Model
	}
	if top := anonymize.Top(meta.Seed, meta.AggregateRankings); meta.Agreement.Ballots > 0 && top != "" {
		record.TopModel = &top
	}
	seen := append(slices.Clone(record.Over), f.Preferred)
	for _, standing := range meta.AggregateRankings {
		if slices.Contains(seen, standing.Model) && standing.BordaScore != nil {
			record.Borda[standing.Model] = *standing.BordaScore
		}
	}
	for _, review := range s.Stage2 {
		if review.Status != council.OutcomeOK || review.ParsedRanking == nil {
			continue
		}
		if places := placesOf(review, seen); len(places) > 1 {
			record.Ballots = append(record.Ballots, council.LabelBallot{ID: review.Model, Places: places})
		}
	}
	return record
}

// placesOf returns the places that a review gives to these models. The best place is 0.
func placesOf(review council.Review, models []string) map[string]int {
	places := map[string]int{}
	for place, group := range review.ParsedRanking.Groups() {
		for _, l := range group {
			if member := review.LabelToModel[l].Model; slices.Contains(models, member) {
				places[member] = place
			}
		}
	}
	return places
}
