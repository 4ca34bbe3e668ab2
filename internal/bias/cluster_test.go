package bias

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
)

// TestQuestionsInRunsAreOneCluster asks ten questions five times in a row each and
// counts what is found although nothing is planted. The bounds are 5 % and, for
// anomalies, 7 % of the reports, with 3.3 standard errors of the 100 reports. The
// tests of five reviewers in one report are not independent, so theirs are wider.
func TestQuestionsInRunsAreOneCluster(t *testing.T) {
	testkit.Slow(t)
	reports := 100
	drifts, changes, odd := 0, 0, 0
	for seed := range uint64(reports) {
		r := reportOf(t, simulation{sessions: 50, run: 5, hidden: true}, seed)
		for name, m := range byName(r.Metrics) {
			if strings.HasPrefix(name, "drift|") && *m.PValue < 0.05 {
				drifts++
			}
		}
		for _, c := range r.ChangePoints {
			if c.PValue < 0.05 {
				changes++
			}
		}
		odd += min(1, len(r.Anomalies.Found))
	}
	t.Logf("of %d tests each, %d drifts and %d change points have p < 0.05; %d of %d reports hold an anomaly", 5*reports, drifts, changes,
		odd, reports)
	if drifts > 5*reports/10 {
		t.Errorf("%d of %d drifts have p < 0.05", drifts, 5*reports)
	}
	if changes > 5*reports/10 {
		t.Errorf("%d of %d change points have p < 0.05", changes, 5*reports)
	}
	if odd > reports*15/100 {
		t.Errorf("%d of %d reports hold an anomaly", odd, reports)
	}
}

// TestFewQuestionsAreNotTested asks nine questions, far more sessions than a test
// takes.
func TestFewQuestionsAreNotTested(t *testing.T) {
	r := reportOf(t, simulation{sessions: 45, run: 5}, 1)
	for name, m := range byName(r.Metrics) {
		if m.PValue != nil {
			t.Errorf("%s has p = %v", name, *m.PValue)
		}
	}
	if len(r.ChangePoints) > 0 {
		t.Errorf("change points %+v", r.ChangePoints)
	}
	if r.Anomalies.Cells > 0 {
		t.Errorf("%d cells are tested for anomalies", r.Anomalies.Cells)
	}
	drift := byName(r.Metrics)["drift"]
	if *drift.Verdict != VerdictInsufficient || !strings.Contains(drift.Reason, "count as 9") {
		t.Errorf("drift is %s: %s", *drift.Verdict, drift.Reason)
	}
}

// TestFrozenAnswersHaveNoRandomOrders holds that a probe's own records, whose
// orders are one and its reverse by turns, say nothing of anchoring.
func TestFrozenAnswersHaveNoRandomOrders(t *testing.T) {
	w := simulation{sessions: 40, run: 2}
	c := NewCollector(unlimited)
	for _, r := range recordsFrom(w, 1) {
		r.BlockID, r.QueryHash = r.QueryHash, nil
		c.Add(r)
	}
	m := byName(c.Report(t.Context()).Metrics)["anchoring"]
	if *m.Verdict != VerdictNotIdentified || m.PointEstimate != nil || !strings.Contains(m.Reason, "frozen") {
		t.Errorf("anchoring is %s, %v: %s", *m.Verdict, m.PointEstimate, m.Reason)
	}
}

// TestIntervalsCountQuestionsOnce repeats every session ten times. What is repeated
// says nothing new, so no interval may get narrower.
func TestIntervalsCountQuestionsOnce(t *testing.T) {
	once := recordsFrom(simulation{sessions: 30, hidden: true}, 3)
	repeated := NewCollector(unlimited)
	for copies := range 10 {
		for _, r := range once {
			r.SessionID += string(rune('a' + copies))
			repeated.Add(r)
		}
	}
	want, got := collect(unlimited, once), repeated
	before, after := want.Report(t.Context()), got.Report(t.Context())
	metrics := byName(after.Metrics)
	for name, m := range byName(before.Metrics) {
		if name == "pooled_length_score_correlation" || m.CILower == nil || metrics[name].CILower == nil {
			continue // ADR-018's own takes records for independent, and says so
		}
		wide, narrow := *m.CIUpper-*m.CILower, *metrics[name].CIUpper-*metrics[name].CILower
		least := 0.97
		if m.OwnScale != nil {
			least = 0.8 // of more scores the model tells more categories apart
		}
		if narrow < least*wide {
			t.Errorf("%s: the interval of %.3f becomes %.3f", name, wide, narrow)
		}
		if m.Confidence != metrics[name].Confidence {
			t.Errorf("%s: confidence %s becomes %s", name, m.Confidence, metrics[name].Confidence)
		}
	}
	for i, p := range before.Reviewers {
		again := after.Reviewers[i].RelativeHarshness
		if wide, narrow := *p.RelativeHarshness.Upper-*p.RelativeHarshness.Lower, *again.Upper-*again.Lower; narrow < 0.97*wide {
			t.Errorf("relative harshness of %s: the interval of %.3f becomes %.3f", p.ReviewerID, wide, narrow)
		}
	}
	for i, e := range want.Leaderboard(council.PolicyAvailable).Boards[0].Entries {
		again := got.Leaderboard(council.PolicyAvailable).Boards[0].Entries[i]
		if wide, narrow := *e.CIUpper-*e.CILower, *again.CIUpper-*again.CILower; narrow < 0.97*wide {
			t.Errorf("leaderboard, %s: the interval of %.3f becomes %.3f", e.Model, wide, narrow)
		}
	}
	if slices.IndexFunc(after.Reviewers, func(p Profile) bool { return p.RelativeHarshness.Value == nil }) >= 0 {
		t.Error("a reviewer has no relative harshness")
	}
}

// TestPerfectCasesHaveReasonsOfTheirOwn holds what is said of figures without any
// scatter: a reviewer that gets harsher by the same step each session, and answers
// that all get the same score.
func TestPerfectCasesHaveReasonsOfTheirOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		step           float64
		drift, anchors string
	}{
		"a perfect trend": {0.1, perfectTrend, sameProducts},
		"no variation":    {0, perfectTrend, sameProducts},
	} {
		c := NewCollector(unlimited)
		for _, r := range recordsFrom(simulation{sessions: 30, members: 3}, 1) {
			session, _ := strconv.Atoi(strings.TrimPrefix(r.SessionID, "s"))
			*r.ScoreValue = 5
			if r.ReviewerID == "b" {
				*r.ScoreValue += tc.step * float64(session)
			}
			c.Add(r)
		}
		metrics := byName(c.Report(t.Context()).Metrics)
		if m := metrics["drift"]; *m.Verdict != VerdictNotIdentified || m.Reason != tc.drift {
			t.Errorf("%s: drift is %s: %s", name, *m.Verdict, m.Reason)
		}
		if m := metrics["anchoring"]; *m.Verdict != VerdictNotIdentified || m.Reason != tc.anchors {
			t.Errorf("%s: anchoring is %s: %s", name, *m.Verdict, m.Reason)
		}
	}
}
