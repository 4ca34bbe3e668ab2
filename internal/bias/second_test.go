package bias

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// inWorld returns the records of sessions of so many members in a world.
func inWorld(seed uint64, sessions, members int, showOwn bool, world biassim.World, effects biassim.Effects) []council.BiasMetricRecord {
	ids := biassim.Council(members)
	return biassim.Generate(biassim.Options{
		Seed: seed, Sessions: sessions, Start: now.AddDate(0, -6, 0), Members: ids, Order: council.OrderBalanced, Effects: effects,
		World: world,
		Slates: func(session int) []council.Slate {
			return anonymize.Draw(anonymize.Options{
				Seed: int64(seed)<<20 + int64(session), Order: council.OrderBalanced, Authors: ids, Reviewers: ids, ShowOwn: showOwn,
			}).Reviewer
		},
	})
}

// TestMaskedMemberIsFound holds that a reviewer who is harsh by more than delta is
// found beside one whose smaller deviation is far more certain.
func TestMaskedMemberIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	records := generated(11, 100, council.OrderBalanced, false, biassim.Effects{})
	shift := map[string]float64{}
	for k := range records {
		r := &records[k]
		switch r.ReviewerID {
		case "openai/m0": // steady, and a little generous
			r.ScoreValue = new(min(10, *r.ScoreValue+0.13))
		case "meta/m4": // harsh by half a point, and moody
			if _, ok := shift[r.SessionID]; !ok {
				shift[r.SessionID] = -0.65 + 1.7*rng.NormFloat64()
			}
			r.ScoreValue = new(min(10, max(1, *r.ScoreValue+shift[r.SessionID])))
		}
	}
	report := collect(unlimited, records).Report(t.Context())
	metrics := byName(report.Metrics)
	steady, harsh, headline := metrics["harshness|openai/m0"], metrics["harshness|meta/m4"], metrics["harshness"]
	if !(*steady.PValue < *harsh.PValue && math.Abs(*steady.PointEstimate) < deltaEffect && *harsh.QValue < levelHigh &&
		*harsh.PointEstimate < -deltaEffect) {
		t.Fatalf("not the case to be tested: %+.3f (p %.2g) beside %+.3f (p %.2g)", *steady.PointEstimate, *steady.PValue,
			*harsh.PointEstimate, *harsh.PValue)
	}
	if *headline.Verdict != VerdictDiffers || headline.Subject != "meta/m4" || *headline.PointEstimate != *harsh.PointEstimate {
		t.Fatalf("headline about %s: %q, %+.3f", headline.Subject, *headline.Verdict, *headline.PointEstimate)
	}
	if *harsh.Verdict != VerdictDiffers || *steady.Verdict == VerdictDiffers {
		t.Errorf("harsh reviewer %q, steady one %q", *harsh.Verdict, *steady.Verdict)
	}
	want := fmt.Sprintf("meta/m4 scores %.1f points lower than the others on the same answers (", -*harsh.PointEstimate)
	if !slices.ContainsFunc(report.Apart, func(text string) bool { return strings.HasPrefix(text, want) }) ||
		!strings.HasPrefix(report.Headline, "Nothing proven. ") {
		t.Errorf("%q and %q lack %q", report.Headline, report.Apart, want)
	}
}

// TestScaleUseIsNoFavour counts reports that call a favour or a slope a bias where
// reviewers spread their scores differently and nobody favours anybody. The bound is
// 5 % and 3.3 standard errors of 40 reports.
func TestScaleUseIsNoFavour(t *testing.T) {
	testkit.Slow(t)
	for name, world := range map[string]biassim.World{
		"spread by 30 %":                    {Spread: 0.3},
		"spread by 30 %, long answers good": {Spread: 0.3, LongerBetter: 0.6},
		"one always gives 7":                {Constant: []float64{2: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			favoursNobody(t, 60, 4, world)
		})
	}
}

// favoursNobody fails the test where too many reports over so many sessions and members of a world call a favour or a
// slope a bias.
func favoursNobody(t *testing.T, sessions, members int, world biassim.World) {
	t.Helper()
	flagged := 0
	reports := 40
	for seed := range uint64(reports) {
		found := verdicts(collect(unlimited, inWorld(seed, sessions, members, seed%2 == 0, world, biassim.Effects{})).Report(t.Context()))
		for _, headline := range []string{"length_slope_deviation", "self_preference", "family_affinity", "affinity"} {
			if found[headline] == VerdictFavour {
				flagged++
				break
			}
		}
	}
	if flagged > unbiasedFlagged(reports) {
		t.Errorf("%d of %d reports call how the scale is used a bias", flagged, reports)
	}
}

// TestConstantReviewerHasNoFavour holds that a reviewer who gives every answer the
// same score is called harsh if it is, and nothing else is said of it.
func TestConstantReviewerHasNoFavour(t *testing.T) {
	metrics := byName(collect(unlimited, inWorld(3, 60, 5, true, biassim.World{Constant: []float64{2: 7}},
		biassim.Effects{})).Report(t.Context()).Metrics)
	for _, name := range []string{"length_slope_deviation|anthropic/m2", "self_preference|anthropic/m2", "pair|anthropic/m2>meta/m4"} {
		if m := metrics[name]; m.PointEstimate != nil || m.PValue != nil || *m.Verdict != VerdictNotIdentified ||
			m.Reason != nearlyConstant {
			t.Errorf("%s: %+v", name, m)
		}
	}
	for _, name := range []string{
		"length_slope_deviation|meta/m4", "self_preference|meta/m4", "self_preference",
		"pair|meta/m4>anthropic/m2", "family_affinity",
	} {
		if m := metrics[name]; m.PValue == nil || m.OwnScale == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestThreeMembersHidden holds that favour for one of two answers is not told from judging right.
func TestThreeMembersHidden(t *testing.T) {
	metrics := byName(collect(unlimited, inWorld(4, 60, 3, false, biassim.World{}, biassim.Effects{})).Report(t.Context()).Metrics)
	for _, name := range []string{"affinity", "pair|openai/m0>openai/m1", "family_affinity"} {
		if m := metrics[name]; m.PointEstimate != nil || *m.Verdict != VerdictNotIdentified || m.Reason != notSeparable {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := metrics["harshness"]; m.PValue == nil {
		t.Errorf("harshness: %+v", m)
	}
}

// TestFamilyWithOwnHidden holds that favour for the maker's other models is told
// where own answers are hidden, because some pairs share a maker and others do not.
func TestFamilyWithOwnHidden(t *testing.T) {
	testkit.Slow(t)
	const planted = 0.5
	var sum float64
	held := 0
	for seed := range uint64(30) {
		m := byName(collect(unlimited, generated(seed, 60, council.OrderBalanced, false,
			biassim.Effects{Family: planted})).Report(t.Context()).Metrics)["family_affinity"]
		if m.PointEstimate == nil || m.OwnScale == nil {
			t.Fatalf("%+v", m)
		}
		sum += *m.PointEstimate
		if *m.CILower <= planted && planted <= *m.CIUpper {
			held++
		}
	}
	if mean := sum / 30; math.Abs(mean-planted) > 0.1 {
		t.Errorf("planted %v, the mean estimate is %v", planted, mean)
	}
	if held < 24 { // 95 % less 3.8 standard errors
		t.Errorf("%d of 30 intervals hold the truth", held)
	}
	report := collect(unlimited, generated(1, 100, council.OrderBalanced, false, biassim.Effects{Family: 0.9})).Report(t.Context())
	if got := verdicts(report)["family_affinity"]; got != VerdictFavour {
		t.Errorf("a large favour for the family is %q", got)
	}
}

// TestDetectableIsDetected plants the effect that a report without any prints as
// detectable and counts the verdicts: 80 %, less 3.3 standard errors.
func TestDetectableIsDetected(t *testing.T) {
	testkit.Slow(t)
	reports := 40
	least := 0.8*float64(reports) - 3.3*math.Sqrt(0.8*0.2*float64(reports))
	for _, tc := range []struct {
		name, headline string
		single         bool
		effects        func(points float64) biassim.Effects
	}{
		{"position", "position", false, func(x float64) biassim.Effects { return biassim.Effects{Position: []float64{x}} }},
		{"self", "self_preference", false, func(x float64) biassim.Effects { return biassim.Effects{Self: x} }},
		{"self of one", "self_preference", true, func(x float64) biassim.Effects {
			return biassim.Effects{Pair: map[[2]int]float64{{3, 3}: x}}
		}},
		{"harshness", "harshness", true, func(x float64) biassim.Effects {
			return biassim.Effects{Harshness: []float64{-x, x / 4, x / 4, x / 4, x / 4}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			size := 0.
			for seed := range uint64(5) {
				m := byName(collect(unlimited, generated(seed, 50, council.OrderBalanced, true,
					biassim.Effects{})).Report(t.Context()).Metrics)[tc.headline]
				if tc.single {
					size += *m.DetectableSingle / 5
				} else {
					size += *m.MinimumDetectableEffect / 5
				}
			}
			effects := tc.effects(size)
			found := 0
			for seed := range uint64(reports) {
				if verdicts(collect(unlimited, generated(100+seed, 50, council.OrderBalanced, true,
					effects)).Report(t.Context()))[tc.headline].Found() {
					found++
				}
			}
			if float64(found) < least {
				t.Errorf("an effect of %.2f is found in %d of %d reports", size, found, reports)
			}
		})
	}
}

// TestGapWithoutVariation holds that a difference which is the same in every session
// is not taken for reviewers that cannot be compared.
func TestGapWithoutVariation(t *testing.T) {
	var records []council.BiasMetricRecord
	for s := range 30 {
		for j, model := range []string{"x/a", "x/b", "x/c"} {
			for i, reviewer := range []string{"judge/one", "judge/two"} {
				records = append(records, record(fmt.Sprintf("s%02d", s), now, reviewer, model, float64(3+(s+j)%4+i)))
			}
		}
	}
	if m := byName(collect(unlimited, records).Report(t.Context()).Metrics)["harshness"]; m.PointEstimate != nil ||
		*m.Verdict != VerdictNotIdentified || m.Reason != noVariation {
		t.Errorf("%q, %s", *m.Verdict, m.Reason)
	}
}

// TestCurvesAreNoFavour does so over so many sessions that what is left of a curve would be certain.
func TestCurvesAreNoFavour(t *testing.T) {
	testkit.Slow(t)
	favoursNobody(t, 300, 5, biassim.World{Gap: 1.5, Curve: 1})
}

// TestOwnScale holds that an effect has to reach delta on the reviewer's own scale too, where this scale has few categories.
func TestOwnScale(t *testing.T) {
	for _, tc := range []struct {
		name           string
		estimate, own  float64
		coarse, inside bool
		counts         bool
		least          float64
	}{
		{"as if it went on", 0.3, 0.2, false, false, true, 0.25},
		{"of few categories", 0.3, 0.2, true, false, false, 0.375},
		{"large on both", -0.5, -0.3, true, false, true, 0.25 / 0.6},
		{"small", 0.1, 0.05, true, true, false, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := Metric{
				PointEstimate: &tc.estimate, StandardError: new(0.02), OwnScale: &tc.own, Coarse: tc.coarse,
				Test: &Test{DF: []float64{99}}, Delta: new(0.25),
			}
			if m.counts() != tc.counts || m.inside() != tc.inside {
				t.Errorf("it counts: %v; negligible: %v", m.counts(), m.inside())
			}
			want := max(0.02*stat.StudentQuantile(0.975, 99), tc.least) + 0.02*stat.StudentQuantile(0.8, 99)
			if got := m.findable(0.05); math.Abs(got-want) > 1e-9 {
				t.Errorf("finds %v, want %v", got, want)
			}
		})
	}
}

// TestNewestSessions holds that a window with too many scores is cut to its newest sessions.
func TestNewestSessions(t *testing.T) {
	w := collect(unlimited, generated(1, 12, council.OrderBalanced, false, biassim.Effects{})).window() // 25 cells a session
	for most, want := range map[int]int{1000: 0, 300: 0, 299: 1, 50: 10, 10: 12} {
		if got := w.newest(most); got != want {
			t.Errorf("of %d scores at most: from session %d on, want %d", most, got, want)
		}
	}
}

// TestReportThatIsCancelled holds that a report ends soon after its context.
func TestReportThatIsCancelled(t *testing.T) {
	c := collect(unlimited, inWorld(1, 400, 5, true, biassim.World{}, biassim.Effects{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := byName(c.Report(ctx).Metrics)["affinity"]
	if m.PointEstimate != nil || !strings.Contains(m.Reason, context.Canceled.Error()) {
		t.Errorf("%+v", m)
	}
}
