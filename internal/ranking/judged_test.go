package ranking

import (
	"math"
	"testing"

	"github.com/councild/councild/internal/council"
)

// The value for ties is that of scipy.stats.kendalltau, in its own documentation.
func TestTauB(t *testing.T) {
	of := func(values ...float64) map[string]float64 {
		m := map[string]float64{}
		for i, v := range values {
			m[string(rune('a'+i))] = v
		}
		return m
	}
	for name, tt := range map[string]struct {
		a, b map[string]float64
		want float64
	}{
		"equal": {of(0, 1, 2), of(0, 1, 2), 1}, "reversed": {of(0, 1, 2), of(2, 1, 0), -1},
		"one swap": {of(0, 1, 2), of(1, 0, 2), 1. / 3}, "ties": {of(12, 2, 1, 12, 2), of(1, 4, 7, 1, 0), -0.47140452079103173},
		"a candidate in one of them": {of(0, 1, 2), of(0, 1), 1},
	} {
		if got := tauB(tt.a, tt.b); got == nil || math.Abs(*got-tt.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := tauB(of(1, 1, 1), of(0, 1, 2)); got != nil {
		t.Errorf("one of them ties all: %v", *got)
	}
}

// A session without ballots, and one that runs, have a result that says so.
func TestJudgedWithoutBallots(t *testing.T) {
	s := council.Session{Status: council.StatusDegraded, Stage1: []council.Answer{{Model: "a"}, {Model: "b"}}, Stage2: []council.Review{
		{Model: "x", Status: council.OutcomeError}, {Model: "x#2", Status: council.OutcomeError},
	}}
	j := Judged(&s)
	if v := j.Verdict; v.Winner != nil || v.Abstained != 1 || v.SignTestP != 1 || len(j.Ballots) != 1 || *j.Ballots[0].Why != council.NoVoteMissing {
		t.Errorf("%+v", j)
	}
	s.Status = council.StatusRunning
	s.Stage2 = s.Stage2[1:]
	if j := Judged(&s); j.Verdict != nil || j.Ranking == nil || len(j.Ballots) != 1 || j.Ballots[0].Judge != "x" {
		t.Errorf("%+v", j)
	}
}
