package bias

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
)

// reasoned gives the answers of each session reasoning of their own, each doubling of which is worth some points. It leaves it out of
// the answers of the members that do not tell.
func reasoned(records []council.BiasMetricRecord, worth float64, silent ...string) []council.BiasMetricRecord {
	rng := rand.New(rand.NewPCG(44, 0))
	tokens := map[[2]string]int64{}
	for k := range records {
		r := &records[k]
		answer := [2]string{r.SessionID, r.ModelID}
		if _, ok := tokens[answer]; !ok {
			tokens[answer] = rng.Int64N(4000)
		}
		if r.ScoreValue != nil {
			r.ScoreValue = new(min(10, max(1, *r.ScoreValue+worth*(math.Log2(float64(1+tokens[answer]))-10.5))))
		}
		if !slices.Contains(silent, r.ModelID) {
			r.ResponseReasoningTokens = new(tokens[answer])
		}
	}
	return records
}

// TestReasoningIsAnAssociation plants what a doubling of the reasoning is worth: the report finds it, as an association and never as a
// favour.
func TestReasoningIsAnAssociation(t *testing.T) {
	for name, tc := range map[string]struct {
		worth  float64
		silent []string
		said   string
	}{
		"more is better":        {0.6, nil, "An answer with twice the reasoning scores 0.6 points higher"},
		"more is worse":         {-0.6, nil, "An answer with twice the reasoning scores 0.5 points lower"},
		"a member does not say": {0.6, []string{"openai/m0"}, "An answer with twice the reasoning scores 0.6 points higher"},
	} {
		t.Run(name, func(t *testing.T) {
			r := collect(unlimited, reasoned(generated(1, 100, council.OrderBalanced, true, biassim.Effects{}), tc.worth, tc.silent...)).Report(t.Context())
			m := byName(r.Metrics)[reasoningName]
			if m.Kind != KindAssociation || !m.Is(VerdictAssociation) || m.Reason != reasonIsMixed || m.PointEstimate == nil ||
				math.Abs(*m.PointEstimate-tc.worth) > 0.2 {
				t.Errorf("reasoning: %+v", m)
			}
			if !slices.ContainsFunc(r.Apart, func(text string) bool { return strings.HasPrefix(text, tc.said) }) ||
				strings.Contains(r.Headline, "Favour found") {
				t.Errorf("headline: %s\napart: %q", r.Headline, r.Apart)
			}
		})
	}
}

// TestReasoningUntold holds that reasoning has no figure where no record, one answer of a session or one model tells it, and says why.
func TestReasoningUntold(t *testing.T) {
	records := generated(1, 60, council.OrderBalanced, true, biassim.Effects{})
	for name, tc := range map[string]struct {
		silent []string
		reason string
	}{
		"nobody":     {[]string{"openai/m0", "openai/m1", "anthropic/m2", "google/m3", "meta/m4"}, noReasoning},
		"one member": {[]string{"openai/m0", "openai/m1", "anthropic/m2", "google/m3"}, notSeparable},
	} {
		t.Run(name, func(t *testing.T) {
			r := collect(unlimited, reasoned(slices.Clone(records), 0, tc.silent...)).Report(t.Context())
			m := byName(r.Metrics)[reasoningName]
			if !m.Is(VerdictNotIdentified) || m.Reason != tc.reason || m.PointEstimate != nil || m.PValue != nil {
				t.Errorf("reasoning: %+v", m)
			}
			if strings.Contains(r.Headline, "reasoning") != (tc.reason == notSeparable) {
				t.Errorf("headline: %s", r.Headline)
			}
			if slices.ContainsFunc(r.NotMeasured, func(n NotMeasured) bool { return n.Name == "reasoning_length" }) {
				t.Errorf("not measured: %+v", r.NotMeasured)
			}
		})
	}
}
