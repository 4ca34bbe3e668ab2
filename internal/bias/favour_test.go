package bias

import (
	"math"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// only79 is a world of reviewers that give 7, 8 and 9 alone.
func only79() biassim.World {
	near := biassim.NearHighScores
	return biassim.World{Base: 8, Habits: []biassim.Habit{near, near, near, near, near}}
}

// TestVerdictsNameWho holds that an effect of one reviewer is found and named, and that one which all have is not put down to one.
func TestVerdictsNameWho(t *testing.T) {
	one := func(points float64) []float64 { return []float64{0, 0, points} }
	for _, tc := range []struct {
		name     string
		world    biassim.World
		effects  biassim.Effects
		headline string
		subject  string
		said     string
	}{
		{"self of one", biassim.World{}, biassim.Effects{SelfBy: one(1)}, selfName, "anthropic/m2", "anthropic/m2 scores its own answers "},
		{"self of one, 7 to 9", only79(), biassim.Effects{SelfBy: one(1)}, selfName, "anthropic/m2", "anthropic/m2 scores its own answers "},
		{"self of all", biassim.World{}, biassim.Effects{Self: 0.5}, selfName, "", "reviewers score their own answers 0."},
		{
			"first place of one",
			biassim.World{},
			biassim.Effects{FirstBy: one(0.8)},
			positionName, "anthropic/m2",
			"anthropic/m2 scores the answer that it is shown first 0.8 points higher ",
		},
		{"first place of all", biassim.World{}, biassim.Effects{Position: []float64{0.4}}, positionName, "0", "answers at place 1 score 0."},
		{"last place of all", biassim.World{}, biassim.Effects{Position: []float64{4: 0.5}}, positionName, "4", "answers at place 5 score 0."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := collect(unlimited, inWorld(5, 100, 5, true, tc.world, tc.effects)).Report(t.Context())
			m := byName(r.Metrics)[tc.headline]
			if !m.Is(VerdictFavour) || m.Subject != tc.subject || !strings.Contains(r.Headline, tc.said) {
				t.Errorf("%s is about %q: %s", *m.Verdict, m.Subject, r.Headline)
			}
		})
	}
}

// TestSpreadIsNoFavour counts reports that call a favour what is none: reviewers that tell answers apart more when their own is good.
func TestSpreadIsNoFavour(t *testing.T) {
	testkit.Slow(t)
	favoursNobody(t, 50, 4, biassim.World{OwnSpread: 0.3})
}

// TestTasteIsNoFavour counts reports over long windows that call a favour what is none: two reviewers that share a taste.
func TestTasteIsNoFavour(t *testing.T) {
	testkit.Slow(t)
	favoursNobody(t, 300, 4, biassim.World{SharedTaste: []float64{0.6, 0, 0.6}})
}

// TestBothSizes holds that an effect which the end of the scale cuts is said in both sizes.
func TestBothSizes(t *testing.T) {
	r := collect(unlimited, inWorld(1, 100, 5, true, biassim.World{Base: 8}, biassim.Effects{SelfBy: []float64{0, 0, 1.5}})).Report(t.Context())
	m := byName(r.Metrics)[selfName]
	if m.OwnScale == nil || !(0 < *m.OwnScale && *m.OwnScale < *m.PointEstimate-notableDifference) ||
		!strings.Contains(r.Headline, "on the reviewers' own scales") {
		t.Errorf("%+v: %s", m, r.Headline)
	}
	r = collect(unlimited, inWorld(1, 100, 5, true, biassim.World{Base: 5}, biassim.Effects{Self: 0.5})).Report(t.Context())
	if m := byName(r.Metrics)[selfName]; math.Abs(*m.OwnScale-*m.PointEstimate) >= notableDifference || strings.Contains(r.Headline, "that end") {
		t.Errorf("%+v: %s", m, r.Headline)
	}
}

// TestCannotBeTold holds that records which the model cannot use give a reason, and neither a figure nor an error.
func TestCannotBeTold(t *testing.T) {
	all := inWorld(3, 40, 4, true, biassim.World{}, biassim.Effects{})
	change := func(change func(r *council.BiasMetricRecord) bool) []council.BiasMetricRecord {
		var records []council.BiasMetricRecord
		for _, r := range all {
			if change(&r) {
				records = append(records, r)
			}
		}
		return records
	}
	first := all[0].ReviewerID
	for name, tc := range map[string]struct {
		records []council.BiasMetricRecord
		reason  string
	}{
		"one reviewer":  {change(func(r *council.BiasMetricRecord) bool { return r.ReviewerID == first }), "fewer than two reviewers"},
		"one candidate": {change(func(r *council.BiasMetricRecord) bool { return r.ModelID == first }), "fewer than two models"},
		"no scores": {change(func(r *council.BiasMetricRecord) bool {
			r.ScoreValue = nil
			return true
		}), "fewer than two reviewers"},
		"one score": {change(func(r *council.BiasMetricRecord) bool {
			r.ScoreValue = new(8.)
			return true
		}), "fewer than two reviewers"},
		"one question": {change(func(r *council.BiasMetricRecord) bool {
			r.QueryHash = new("the same")
			return true
		}), "count as 1:"},
		"separated: its own answers get a 10, others a 5": {change(func(r *council.BiasMetricRecord) bool {
			r.ScoreValue = new(5.)
			if r.Own {
				r.ScoreValue = new(10.)
			}
			return true
		}), "does not converge"},
	} {
		t.Run(name, func(t *testing.T) {
			metrics := byName(collect(unlimited, tc.records).Report(t.Context()).Metrics)
			m := metrics["affinity"]
			if name == "one candidate" {
				m = metrics[slopesName]
			}
			if m.PointEstimate != nil || m.PValue != nil || !m.Verdict.Missing() || !strings.Contains(m.Reason, tc.reason) {
				t.Errorf("%q: %s, %v", *m.Verdict, m.Reason, m.PointEstimate)
			}
		})
	}
}

// TestStubsStayOut holds that most refusals, which everybody scores low, do not enter the model, and other answers do. A refusal of a model
// that usually writes little, beside other short answers, is not told apart.
func TestStubsStayOut(t *testing.T) {
	w := collect(unlimited, inWorld(2, 200, 5, false, biassim.World{Refusals: 0.1}, biassim.Effects{})).window()
	f := favours{models: newModels(&w)}
	scores, stubs := f.scores(), 0
	for c := range w.cells(w.byTime()) {
		if c.length[c.i][c.j] < 200 {
			stubs++
		}
	}
	if all := f.scored.records; stubs < all/20 || len(scores) < all-stubs || len(scores) > all-stubs/2 {
		t.Errorf("%d of %d scores enter, and %d are of stubs", len(scores), all, stubs)
	}
}

// TestCoarseHeadline holds that a headline is no favour if its member does not count on the scale of its reviewer.
func TestCoarseHeadline(t *testing.T) {
	member := Metric{
		Name: "x|a", Kind: KindFavour, Subject: "a", Unit: points, PointEstimate: new(0.5), StandardError: new(0.05), OwnScale: new(0.2), Coarse: true,
		Clusters: 100, Test: &Test{Name: "t", DF: []float64{99}}, PValue: new(1e-6), Delta: new(0.25),
	}
	h := findings{c: NewCollector(unlimited)}
	m := Metric{Name: "x", Kind: KindFavour, Unit: points, Delta: new(0.25)}
	h.headline(&m, []Metric{member}, notSeparable)
	family := []Metric{m}
	h.judge(family)
	if family[0].Found() {
		t.Errorf("%s, with %.1f points on the reviewer's own scale", *family[0].Verdict, *family[0].OwnScale)
	}
}
