package council_test

import (
	"testing"

	"github.com/councild/councild/internal/council"
)

func TestNoteFor(t *testing.T) {
	const ok, lost, fallback = council.OutcomeOK, council.OutcomeError, council.OutcomeFallback
	for _, tt := range []struct {
		status   council.Status
		answers  []council.Outcome
		reviews  []council.Outcome
		ballots  int
		fallback council.Fallback
		want     string
	}{
		{council.StatusComplete, []council.Outcome{ok, ok}, []council.Outcome{ok, ok}, 2, "", ""},
		{council.StatusDegraded, []council.Outcome{ok}, nil, 0, "", ""}, // one model was asked
		{council.StatusDegraded, []council.Outcome{ok, ok, lost}, []council.Outcome{ok, ok, ok}, 3, "", "2 of 3 members answered."},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, ok, ok},
			[]council.Outcome{ok, council.OutcomeAbstained, ok},
			2, "",
			"2 of 3 reviews count.",
		},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, ok, lost},
			[]council.Outcome{ok, ok, lost},
			2, council.FallbackSecondChairman,
			"2 of 3 members answered; 2 of 3 reviews count; written by x in place of the chairman, which failed.",
		},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, ok},
			[]council.Outcome{ok, ok},
			2, council.FallbackSecondChairman,
			"Written by x in place of the chairman, which failed.",
		},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, ok},
			[]council.Outcome{lost, council.OutcomeInvalid},
			0, "",
			"Degraded: the answers were not ranked.",
		},
		{council.StatusDegraded, []council.Outcome{ok, lost}, nil, 0, "", "Degraded: 1 of 2 members answered; the answers were not ranked."},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, lost},
			nil, 0, council.FallbackFirstAnswer,
			"Degraded: 1 of 2 members answered; the answers were not ranked; the chairman failed, so this is the answer of x alone.",
		},
		{
			council.StatusDegraded,
			[]council.Outcome{ok, ok, ok, lost},
			[]council.Outcome{ok, ok, ok, ok},
			4, council.FallbackTopRanked,
			"Degraded: 3 of 4 members answered; the chairman failed, so this is the answer of x alone, which was ranked first.",
		},
		{council.StatusDegraded, []council.Outcome{ok, ok}, []council.Outcome{ok, ok}, 2, "", ""},
	} {
		s := &council.Session{Status: tt.status}
		for _, outcome := range tt.answers {
			s.Stage1 = append(s.Stage1, council.Answer{Status: outcome})
		}
		for _, outcome := range tt.reviews {
			s.Stage2 = append(s.Stage2, council.Review{Status: outcome})
		}
		s.Metadata.Agreement.Ballots = tt.ballots
		s.Stage3 = &council.Synthesis{Model: "x", Status: ok}
		if tt.fallback != "" {
			s.Stage3.Status, s.Stage3.Fallback = fallback, &tt.fallback
		}
		if got := council.NoteFor(s); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt, got, tt.want)
		}
	}
}
