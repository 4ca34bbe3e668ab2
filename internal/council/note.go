package council

import (
	"fmt"
	"strings"
)

// NoteFor returns the Note of a session at its end. It returns "" if the session is not degraded, if it has fewer than
// two members, or if nothing is missing that a reader must know about. The note begins with "Degraded" if the final
// answer is the answer of one member alone, or if the answers were not ranked. Failed members and reviewers alone do
// not make a note begin with "Degraded", because the answer is then the synthesis of a smaller council.
func NoteFor(s *Session) string {
	if s.Status != StatusDegraded || len(s.Stage1) < 2 {
		return ""
	}
	var parts []string
	answered := 0
	counted := 0
	for _, a := range s.Stage1 {
		if a.Status == OutcomeOK {
			answered++
		}
	}
	for _, v := range s.Stage2 {
		if v.Status == OutcomeOK {
			counted++
		}
	}
	if answered < len(s.Stage1) {
		parts = append(parts, fmt.Sprintf("%d of %d members answered", answered, len(s.Stage1)))
	}
	ranked := s.Metadata.Agreement.Ballots > 0 || s.Mode != "" && !s.Mode.Reviews()
	switch {
	case !ranked:
		parts = append(parts, "the answers were not ranked")
	case counted < len(s.Stage2):
		parts = append(parts, fmt.Sprintf("%d of %d reviews count", counted, len(s.Stage2)))
	}
	alone := false
	if s.Stage3 != nil && s.Stage3.Fallback != nil {
		alone = *s.Stage3.Fallback != FallbackSecondChairman
		text := "written by " + s.Stage3.Model + " in place of the chairman, which failed"
		if alone {
			text = "the chairman failed, so this is the answer of " + s.Stage3.Model + " alone"
		}
		if *s.Stage3.Fallback == FallbackTopRanked {
			text += ", which was ranked first"
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, "; ")
	switch {
	case text == "":
		return ""
	case alone || !ranked:
		return "Degraded: " + text + "."
	default:
		return strings.ToUpper(text[:1]) + text[1:] + "."
	}
}
