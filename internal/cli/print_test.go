package cli

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// The sense of a session comes before its figures.
func TestPrintSession(t *testing.T) {
	standing := func(model string, rank int) council.Standing {
		st := council.Standing{Model: model, VoteCoverage: "high"}
		if rank > 0 {
			st.FinalRank = &rank
			st.BordaNormalized = new(0.5)
		}
		return st
	}
	s := &council.Session{
		ID: "01a2", Status: council.StatusDegraded, Answer: "Yes.", Stage2: make([]council.Review, 2),
		AnswerFrom: council.AnswerFrom{Rule: council.RuleWritten, Model: "gpt"},
		Degradation: []council.Degradation{
			{Stage: council.Stage2, Model: "down", Code: council.FailUnavailable, Message: "connection refused"},
		},
	}
	s.Metadata.Agreement.Sentence = "The reviewers lean to one order."
	s.Metadata.Map = &council.Map{Open: []string{"how many writes?"}}
	s.Metadata.AggregateRankings = []council.Standing{
		standing("gpt", 1), standing("claude", 2), standing("gemini", 2), standing("down", 0), standing("late", 0),
	}
	s.Metadata.Warnings = []council.Warning{{Code: council.WarnCostUnknown, Message: "no price for gpt"}}
	s.Metadata.Timing.TotalMS = 192_400
	const want = `Yes.

The reviewers lean to one order.
Open       how many writes? (not checked)

Answer     the synthesis of gpt
Ranking    1. gpt, 2. claude and gemini, not ranked down and late
Missing    the review of down: connection refused (unavailable)
Warning    no price for gpt (cost_unknown)
FIGURES3 min 12 s · $0.31 · session 01a2: degraded
`
	const figures = `
RANK  MODEL   BORDA       WINS  VOTES  VOTE COVERAGE
1     gpt     0.50        0     0      high
2     claude  0.50        0     0      high
2     gemini  0.50        0     0      high
-     down    not ranked        0      high
-     late    not ranked        0      high

`
	for _, more := range []printed{{bill: spend.SessionCost{Cost: "$0.31"}}, {bill: spend.SessionCost{Cost: "$0.31"}, figures: true}} {
		var b strings.Builder
		if err := printAnswer(&b, s, more); err != nil {
			t.Fatal(err)
		}
		table := ""
		if more.figures {
			table = figures
		}
		if diff := cmp.Diff(strings.Replace(want, "FIGURES", table, 1), b.String()); diff != "" {
			t.Error(diff)
		}
	}
}
