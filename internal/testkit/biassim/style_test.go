package biassim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/google/go-cmp/cmp"
)

// similarities returns those of the records, of own answers left out.
func similarities(records []council.BiasMetricRecord) (all []float64) {
	for _, r := range records {
		if !r.Own && r.StyleSimilarity != nil {
			all = append(all, *r.StyleSimilarity)
		}
	}
	return all
}

// Saying how alike answers are changes nothing else, and planted mimicry changes each score by what it says.
func TestStyle(t *testing.T) {
	o := options(30, true)
	o.Outside = []string{"other/x"}
	o.Slates = func(session int) []council.Slate {
		return anonymize.Draw(anonymize.Options{
			Seed: int64(session), Order: council.OrderBalanced, Authors: biassim.Members(),
			Reviewers: append(biassim.Members(), "other/x"), ShowOwn: true,
		}).Reviewer
	}
	o.World.Step = 1e-6
	plain := biassim.Generate(o)
	o.World.Embedded = true
	null := biassim.Generate(o)
	for n := range null {
		r := null[n]
		if (r.StyleSimilarity == nil) != (r.ReviewerID == "other/x") || r.Own && *r.StyleSimilarity != 1 {
			t.Fatalf("record %d of %s on %s has the similarity %v", n, r.ReviewerID, r.ModelID, r.StyleSimilarity)
		}
		r.StyleSimilarity, r.EmbeddingModel = nil, ""
		if diff := cmp.Diff(plain[n], r); diff != "" {
			t.Fatalf("record %d: %s", n, diff)
		}
	}
	o.Effects.Style = 0.2
	planted := biassim.Generate(o)
	for n := 0; n < len(null); n += 5 { // a slate
		mean := 0.
		for _, r := range null[n : n+5] {
			if !r.Own && r.StyleSimilarity != nil {
				mean += *r.StyleSimilarity / 4
			}
		}
		for k := range 5 {
			a, b, want := null[n+k], planted[n+k], 0.
			if !a.Own && a.StyleSimilarity != nil {
				want = 10 * 0.2 * (*a.StyleSimilarity - mean)
			}
			if got := *b.ScoreValue - *a.ScoreValue; math.Abs(got-want) > 2e-6 && *b.ScoreValue > 1 && *b.ScoreValue < 10 {
				t.Errorf("record %d: the score changed by %v, want %v", n+k, got, want)
			}
		}
	}
}

// The similarities are spread as the package comment says, and follow what a world makes alike.
func TestSimilarities(t *testing.T) {
	o := options(400, false)
	o.World.Embedded = true
	sum, variance, width, slates := 0., 0., 0., 0.
	all := similarities(biassim.Generate(o))
	for slate := range slices.Chunk(all, 4) {
		mean, sd := stat.MeanStdDev(slate)
		sum, variance, slates = sum+mean, variance+sd*sd, slates+1
		width += slices.Max(slate) - slices.Min(slate)
	}
	mean, sd, spread := sum/slates, math.Sqrt(variance/slates), width/slates
	if math.Abs(mean-0.86) > 0.01 || math.Abs(sd-0.05) > 0.01 || math.Abs(spread-0.1) > 0.02 {
		t.Errorf("similarities have the mean %.3f, and within a slate the standard deviation %.3f and the range %.3f", mean, sd, spread)
	}
	byMaker := func(w biassim.World) (same, other float64) {
		o.World = w
		var n [2]float64
		var sums [2]float64
		for _, r := range biassim.Generate(o) {
			k := 0
			if r.Provider.Reviewer == r.Provider.Candidate {
				k = 1
			}
			sums[k], n[k] = sums[k]+*r.StyleSimilarity, n[k]+1
		}
		return sums[1] / n[1], sums[0] / n[0]
	}
	same, other := byMaker(biassim.World{Embedded: true, AlikeMaker: 1})
	if same < other+0.05 {
		t.Errorf("answers of one maker have the similarity %.3f, and others %.3f", same, other)
	}
	o.World = biassim.World{Embedded: true, AlikeLength: 2, AlikeMerit: 1}
	lengths := map[[2]string]float64{}
	records := biassim.Generate(o)
	for _, r := range records {
		lengths[[2]string{r.SessionID, r.ModelID}] = math.Log(float64(r.ResponseLengthChars))
	}
	var near, far, nears, fars float64
	for _, r := range records {
		if math.Abs(lengths[[2]string{r.SessionID, r.ReviewerID}]-lengths[[2]string{r.SessionID, r.ModelID}]) < 0.2 {
			near, nears = near+*r.StyleSimilarity, nears+1
		} else {
			far, fars = far+*r.StyleSimilarity, fars+1
		}
	}
	if near/nears < far/fars+0.01 {
		t.Errorf("answers of like length have the similarity %.3f, and others %.3f", near/nears, far/fars)
	}
}

// The sessions of a probe show the same answers, so the same similarities.
func TestFrozenSimilarities(t *testing.T) {
	o := options(10, false)
	o.World = biassim.World{Embedded: true, Runs: 5, Frozen: true}
	first := map[[2]string]float64{}
	changed := 0
	for n, r := range biassim.Generate(o) {
		if n%100 == 0 {
			clear(first)
		}
		pair := [2]string{r.ReviewerID, r.ModelID}
		if seen, ok := first[pair]; ok && seen != *r.StyleSimilarity {
			changed++
		}
		first[pair] = *r.StyleSimilarity
	}
	if changed > 0 {
		t.Errorf("%d similarities of frozen answers changed", changed)
	}
}
