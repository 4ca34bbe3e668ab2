package bias

import (
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/biassim"
)

func TestStyleMimicry(t *testing.T) {
	embedded := biassim.World{Embedded: true}
	named := func(r Report) bool {
		return slices.ContainsFunc(r.NotMeasured, func(n NotMeasured) bool { return n.Name == styleName })
	}
	planted := inWorld(2, 150, 5, false, embedded, biassim.Effects{Style: 0.4})
	r := collect(unlimited, planted).Report(t.Context())
	if m := byName(r.Metrics)[styleName]; *m.Verdict != VerdictFavour || *m.CILower > 0.4 || *m.CIUpper < 0.4 || named(r) ||
		!strings.Contains(m.Method, "biassim") || !strings.Contains(r.Headline, "an answer that is closer to the reviewer's own by 0.1 of similarity scores 0.4 points higher (") {
		t.Errorf("planted: %s, %v, not measured %v", *m.Verdict, *m.PointEstimate, named(r))
	}
	r = collect(unlimited, inWorld(2, 150, 5, false, biassim.World{}, biassim.Effects{})).Report(t.Context())
	if _, ok := byName(r.Metrics)[styleName]; ok || !named(r) {
		t.Errorf("without similarities: a metric %v, not measured %v", ok, named(r))
	}
	few := slices.Clone(planted)
	for k := range few[9*20:] {
		few[9*20+k].StyleSimilarity, few[9*20+k].EmbeddingModel = nil, ""
	}
	r = collect(unlimited, few).Report(t.Context())
	if m := byName(r.Metrics)[styleName]; *m.Verdict != VerdictInsufficient || m.SampleSize != 9 || named(r) {
		t.Errorf("nine sessions with similarities: %s of %d, not measured %v", *m.Verdict, m.SampleSize, named(r))
	}
}

// Cosines of two models are on two scales: those of the latest session's model count.
func TestStyleOfTheLatestModel(t *testing.T) {
	records := inWorld(3, 60, 5, true, biassim.World{Embedded: true}, biassim.Effects{Style: 0.2})
	half := len(records) / 2
	for k := range records[:half] {
		records[k].EmbeddingModel = "older"
		records[k].StyleSimilarity = new(-*records[k].StyleSimilarity)
	}
	mixed := byName(collect(unlimited, records).Report(t.Context()).Metrics)[styleName]
	for k := range records[:half] {
		records[k].EmbeddingModel, records[k].StyleSimilarity = "", nil
	}
	alone := byName(collect(unlimited, records).Report(t.Context()).Metrics)[styleName]
	if *mixed.PointEstimate != *alone.PointEstimate || mixed.SampleSize != 30 || alone.SampleSize != 30 {
		t.Errorf("%v of %d sessions, and without the older model %v of %d", *mixed.PointEstimate, mixed.SampleSize, *alone.PointEstimate,
			alone.SampleSize)
	}
}
