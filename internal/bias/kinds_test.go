package bias

import (
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// TestLevelsAreNoFavour draws realistic windows, in which reviewers score at other levels and use more or less of the scale: the
// level differs, and nobody is said to favour anybody.
func TestLevelsAreNoFavour(t *testing.T) {
	testkit.Slow(t)
	windows := 30
	differs, favours := 0, 0
	for seed := range uint64(windows) {
		world := biassim.World{Base: 7.5, Levels: 2, Spread: 0.3}
		r := collect(unlimited, inWorld(seed, 60, 5, seed%2 == 0, world, biassim.Effects{})).Report(t.Context())
		m := byName(r.Metrics)["harshness"]
		if m.Is(VerdictDiffers) && m.Kind == KindLevel {
			differs++
			if !strings.Contains(m.Reason, "ranks do not depend on it") || !slices.ContainsFunc(r.Apart, func(text string) bool {
				return strings.HasPrefix(text, m.Subject+" scores ") && strings.HasSuffix(text, " Ranks do not depend on it.")
			}) {
				t.Errorf("%q: %s", r.Apart, m.Reason)
			}
		}
		if strings.Contains(r.Headline, "on the same answers") || strings.Contains(r.Headline, "level") {
			t.Errorf("headline: %s", r.Headline)
		}
		if slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Is(VerdictFavour) }) {
			favours++
		} else if !strings.HasPrefix(r.Headline, "Nothing proven. ") {
			t.Errorf("headline: %s", r.Headline)
		}
	}
	if differs < windows*9/10 || favours > unbiasedFlagged(windows) {
		t.Errorf("of %d windows the level differs in %d, and %d have a favour", windows, differs, favours)
	}
}

// TestNothingProvenSaysWhatCouldBeFound tells an effect that all reviewers share from one of a single reviewer.
func TestNothingProvenSaysWhatCouldBeFound(t *testing.T) {
	r := collect(unlimited, generated(3, 60, council.OrderBalanced, true, biassim.Effects{})).Report(t.Context())
	if !strings.HasPrefix(r.Headline, "Nothing proven. With 60 sessions ") ||
		!strings.Contains(r.Headline, " that all reviewers share; ") || !strings.Contains(r.Headline, " that only one reviewer has") {
		t.Errorf("headline: %s", r.Headline)
	}
	for name, times := range map[string][2]float64{
		"self_preference": {1.5, 4}, "position": {1.5, 4}, "family_affinity": {1.9, 2.1}, "anchoring": {4.9, 5.1}, "affinity": {1, 1},
	} {
		m := byName(r.Metrics)[name]
		if ratio := *m.DetectableSingle / *m.MinimumDetectableEffect; ratio < times[0] || ratio > times[1] {
			t.Errorf("%s: an effect of one of five reviewers has to be %.2f times that of all", name, ratio)
		}
	}
	if m := byName(r.Metrics)["self_preference"]; !strings.Contains(m.Reason, "that all reviewers share") && m.Is(VerdictInconclusive) {
		t.Errorf("reason: %s", m.Reason)
	}
}

// TestFilterThatLeavesLittle holds that the first sentence says when a filter leaves most figures untested.
func TestFilterThatLeavesLittle(t *testing.T) {
	o := unlimited
	o.Model = "anthropic/m2"
	r := collect(o, generated(3, 60, council.OrderBalanced, false, biassim.Effects{})).Report(t.Context())
	r.Headline, _, _ = strings.Cut(r.Headline, ". ")
	if !strings.HasPrefix(r.Headline, "Nothing proven: the filter (model anthropic/m2) leaves ") {
		t.Errorf("headline: %s", r.Headline)
	}
}
