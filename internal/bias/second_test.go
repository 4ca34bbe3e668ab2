package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/biassim"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/race"
	"github.com/councild/councild/internal/stat"
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
	report := collect(unlimited, records).Report()
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
	want := fmt.Sprintf("meta/m4 scores %.2f points (", -*harsh.PointEstimate)
	if !slices.ContainsFunc(report.Apart, func(text string) bool { return strings.HasPrefix(text, want) }) ||
		!strings.HasPrefix(report.Headline, "Nothing proven. ") {
		t.Errorf("%q and %q lack %q", report.Headline, report.Apart, want)
	}
}

// TestScaleUseIsNoFavour counts reports that call a favour or a slope a bias where
// reviewers spread their scores differently and nobody favours anybody. The bound is
// 5 % and 3.3 standard errors of 40 reports.
func TestScaleUseIsNoFavour(t *testing.T) {
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
	flagged, reports := 0, race.Fewer(40)
	for seed := range uint64(reports) {
		found := verdicts(collect(unlimited, inWorld(seed, sessions, members, seed%2 == 0, world, biassim.Effects{})).Report())
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

// TestDiscriminationIsTold holds that the report describes how widely each reviewer
// spreads its scores, with an interval that holds the truth.
func TestDiscriminationIsTold(t *testing.T) {
	held, all := 0, 0
	for seed := range uint64(20) {
		// Dealt at random, the factors are recovered from the scores' own deviations.
		metrics := byName(collect(unlimited, inWorld(seed, 100, 5, false, biassim.World{Spread: 0.3}, biassim.Effects{})).Report().Metrics)
		if m := metrics["discrimination"]; m.PointEstimate != nil || m.Verdict != nil || len(m.Members) != 5 {
			t.Fatalf("%+v", m)
		}
		var estimates []float64
		var members []Metric
		for _, id := range biassim.Council(5) {
			m := metrics["discrimination|"+id]
			if m.PointEstimate == nil || m.Verdict != nil || m.PValue != nil {
				t.Fatalf("%+v", m)
			}
			estimates, members = append(estimates, *m.PointEstimate), append(members, m)
		}
		order := []int{0, 1, 2, 3, 4}
		slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, estimates[a]-estimates[b])) })
		for rank, k := range order {
			all++
			// The order of factors that lie close may be another; that costs little.
			if factor := 0.7 + 0.15*float64(rank); *members[k].CILower <= factor && factor <= *members[k].CIUpper {
				held++
			}
		}
	}
	if held < 85 {
		t.Errorf("%d of %d intervals hold the truth", held, all)
	}
}

// TestConstantReviewerHasNoFavour holds that a reviewer who gives every answer the
// same score is called harsh if it is, and nothing else is said of it.
func TestConstantReviewerHasNoFavour(t *testing.T) {
	metrics := byName(collect(unlimited, inWorld(3, 60, 5, true, biassim.World{Constant: []float64{2: 7}},
		biassim.Effects{})).Report().Metrics)
	for _, name := range []string{"length_slope_deviation|anthropic/m2", "self_preference|anthropic/m2", "pair|anthropic/m2>meta/m4"} {
		if m := metrics[name]; m.PointEstimate != nil || m.PValue != nil || *m.Verdict != VerdictNotIdentified ||
			m.Reason != hardlyFollows {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := metrics["discrimination|anthropic/m2"]; *m.PointEstimate != 0 || m.Reason != hardlyFollows {
		t.Errorf("discrimination: %+v", m)
	}
	for _, name := range []string{
		"length_slope_deviation|meta/m4", "self_preference|meta/m4", "self_preference",
		"pair|meta/m4>anthropic/m2", "family_affinity",
	} {
		if m := metrics[name]; m.PValue == nil || m.SecondFit == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestThreeMembersHidden holds that what could be scale use is not told where the
// discriminations are not: three reviewers never score two of the same answers.
func TestThreeMembersHidden(t *testing.T) {
	metrics := byName(collect(unlimited, inWorld(4, 60, 3, false, biassim.World{}, biassim.Effects{})).Report().Metrics)
	for _, name := range []string{"affinity", "pair|openai/m0>openai/m1", "length_slope_deviation", "discrimination|openai/m0"} {
		if m := metrics[name]; m.PointEstimate != nil || *m.Verdict != VerdictNotIdentified || m.Reason != scaleUnknown {
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
	const planted = 0.5
	var sum float64
	held := 0
	for seed := range uint64(30) {
		m := byName(collect(unlimited, generated(seed, 60, council.OrderBalanced, false,
			biassim.Effects{Family: planted})).Report().Metrics)["family_affinity"]
		if m.PointEstimate == nil || m.SecondFit == nil {
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
	report := collect(unlimited, generated(1, 100, council.OrderBalanced, false, biassim.Effects{Family: 0.9})).Report()
	if got := verdicts(report)["family_affinity"]; got != VerdictFavour {
		t.Errorf("a large favour for the family is %q", got)
	}
}

// TestDetectableIsDetected plants the effect that a report without any prints as
// detectable and counts the verdicts: 80 %, less 3.3 standard errors.
func TestDetectableIsDetected(t *testing.T) {
	reports := race.Fewer(60)
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
					biassim.Effects{})).Report().Metrics)[tc.headline]
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
					effects)).Report())[tc.headline].Found() {
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
	if m := byName(collect(unlimited, records).Report().Metrics)["harshness"]; m.PointEstimate != nil ||
		*m.Verdict != VerdictNotIdentified || m.Reason != noVariation {
		t.Errorf("%q, %s", *m.Verdict, m.Reason)
	}
}

// TestCurvesAreNoFavour does so over so many sessions that what is left of a curve is certain. Without the third fit, 15 of 40
// reports call it a favour.
func TestCurvesAreNoFavour(t *testing.T) {
	favoursNobody(t, 800, 5, biassim.World{Gap: 1.5, Curve: 1})
}

// The third fit is least squares with a column for each effect: the pair, each reviewer's curve beside the others, the
// places, each answer, and each reviewer of a session.
func TestThirdFitByDenseLeastSquares(t *testing.T) {
	const n, sessions = 5, 30
	w := collect(unlimited, inWorld(5, sessions, n, false, biassim.World{Spread: 0.3, Curve: 1}, biassim.Effects{})).window()
	d := w.discriminations()
	var rows [][]float64
	var y []float64
	for k := range w.sessions {
		s := &w.sessions[k]
		adjusted, scored := d.adjust(k)[0], d.ends.scores(s)
		for i := range n {
			worth, squares := make([]float64, n), 0.
			for j := range n {
				if i != j {
					worth[j] = (scored[i][j] - adjusted[i][j]) / (d.b[i] - 1)
					squares += worth[j] * worth[j] / (n - 1)
				}
			}
			for j := range n {
				if i == j {
					continue
				}
				if d.ends.pull(i, j) > 0 {
					t.Fatal("not the case to be tested: an end moves a pair")
				}
				x := make([]float64, 1+(n-1)+(n-2)+(2*n-1)*sessions)
				if i == 0 && j == 3 {
					x[0] = 1
				}
				code(x[1:n], i, worth[j]*worth[j]-squares)
				code(x[n:2*n-2], s.position[i][j], 1)
				session := x[2*n-2+(2*n-1)*k:]
				session[j] = 1
				if i > 0 {
					session[n+i-1] = 1
				}
				rows, y = append(rows, x), append(y, adjusted[i][j])
			}
		}
	}
	m := newModels(&w)
	_, third := m.fitAdjusted()
	pair := slices.Index(m.sortedPairs(), [2]int{0, 3})
	if got, want := third.affinities[pair].Estimate, denseFit(t, rows, y); math.Abs(got-want) > 1e-7 {
		t.Errorf("the estimate is %v, want %v", got, want)
	}
}

// TestFurtherFits holds that the fit which says least counts.
func TestFurtherFits(t *testing.T) {
	figure := func(estimate, se, p float64) *ScaleFit {
		return &ScaleFit{PointEstimate: estimate, StandardError: se, PValue: p}
	}
	for _, tc := range []struct {
		name          string
		second, third *ScaleFit
		p             float64
		isInside      bool
	}{
		{"no further fits", nil, nil, 0.01, true},
		{"the second says less", figure(0.1, 0.02, 0.04), figure(0.1, 0.02, 0.02), 0.04, true},
		{"the third says less", figure(0.1, 0.02, 0.02), figure(0.1, 0.02, 0.04), 0.04, true},
		{"the first says least", figure(0.1, 0.02, 0.001), figure(0.1, 0.02, 0.002), 0.01, true},
		{"the second has another sign", figure(-0.1, 0.02, 0.001), figure(0.1, 0.02, 0.002), 1, true},
		{"the third has another sign", figure(0.1, 0.02, 0.001), figure(-0.1, 0.02, 0.002), 1, true},
		{"the second may be large", figure(0.1, 0.2, 0.5), figure(0.1, 0.02, 0.04), 0.5, false},
		{"the third may be large", figure(0.1, 0.02, 0.04), figure(0.1, 0.2, 0.5), 0.5, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := Metric{
				PointEstimate: new(0.1), StandardError: new(0.02), PValue: new(0.01), SecondFit: tc.second, ThirdFit: tc.third,
				Test: &Test{DF: []float64{99}}, Delta: new(0.25),
			}
			if got := *m.decisive(); got != tc.p {
				t.Errorf("p = %v, want %v", got, tc.p)
			}
			if got := m.inside(); got != tc.isInside {
				t.Errorf("negligible is %v", got)
			}
			likely := 0.02
			if !tc.isInside {
				likely = 0.2
			}
			power := 0.85
			if tc.second == nil {
				power = 0.8
			}
			want := max(likely*stat.StudentQuantile(0.975, 99), 0.25) + likely*stat.StudentQuantile(power, 99)
			if got := m.findable(0.05); math.Abs(got-want) > 1e-9 {
				t.Errorf("finds %v, want %v", got, want)
			}
		})
	}
}

// TestCounts holds that an effect has to reach delta in every fit.
func TestCounts(t *testing.T) {
	for _, tc := range []struct {
		first, second, third float64
		want                 bool
	}{{0.3, 0.3, 0.3, true}, {0.2, 0.3, 0.3, false}, {0.3, 0.2, 0.3, false}, {-0.3, -0.3, -0.2, false}, {-0.3, -0.25, -0.25, true}} {
		m := Metric{
			PointEstimate: &tc.first, Delta: new(0.25), SecondFit: &ScaleFit{PointEstimate: tc.second}, ThirdFit: &ScaleFit{PointEstimate: tc.third},
		}
		if got := m.counts(); got != tc.want {
			t.Errorf("%+v counts: %v", tc, got)
		}
	}
}
