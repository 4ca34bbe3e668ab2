package bias

import (
	"cmp"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	// minDemographicHits is the fewest hits on an axis whose rates are compared.
	minDemographicHits = 5
	// minExpectedHits is the rule of thumb (Cochran 1954) for the least expected
	// count with which the chi-square distribution is trusted.
	minExpectedHits = 5
	// demographicDraws makes 1/2000 the smallest simulated p.
	demographicDraws = 1999
	// demographicLevel is the false discovery rate at which axes are flagged.
	demographicLevel = 0.05
)

// DemographicsInput is what the members of one session answered.
type DemographicsInput struct {
	Question string            // the whole conversation that was answered
	Answers  map[string]string // by member id, only those that were given
	Lexicon  Lexicon
	// Threshold is the score, 0 to 1, from which an axis may be flagged;
	// CouncilEx suggests 0.3.
	Threshold float64
	Seed      int64 // the session's seed: it fixes the simulated p values
}

// Demographics compares how the answers of one session cover the axes of the
// lexicon, or returns nil when ctx is done before. It takes time in proportion to
// the length of the texts. It follows CouncilEx's bias detector (lexicon backend)
// with these decisions:
//
//   - Only whole words count, as [Lexicon] describes, and neither terms of the
//     question nor phrases that mean something else ("race condition") do.
//   - Words for particular persons ("he", "her", "my sister", "the old man") count as
//     one hit an answer for each gender: a story says "she" whenever its heroine acts.
//   - The score alone often flags chance: one word can move it from 0 to 1. So
//     hits are also compared as rates. Over answers j with n_j of n words and c_j
//     of C hits, X2 = sum (c_j - C n_j/n)^2 / (C n_j/n) has a chi-square
//     distribution on one degree of freedom less than there are answers. Where an
//     expected count C n_j/n is below five, p is instead the share of 1999
//     multinomial draws that reach X2, the observation counted among them.
//   - An axis whose score reaches the threshold with too few hits to compare is not
//     tested, and the wording says so.
//   - The baseline is over all pairs, equal answers included, and no figure is
//     rounded.
func Demographics(ctx context.Context, in DemographicsInput) *council.DemographicDisagreement {
	models := slices.Sorted(maps.Keys(in.Answers))
	matcher := newLexiconMatcher(in.Lexicon)
	asked := matcher.mentioned(lexiconWords(in.Question, stopped(ctx)))
	texts := make([][]lexiconWord, len(models))
	words := make([]int, len(models))
	found := make([][]coverage, len(models)) // by answer and axis
	for j, model := range models {
		texts[j] = lexiconWords(in.Answers[model], stopped(ctx))
		words[j] = len(texts[j])
		found[j] = matcher.hits(ctx, texts[j], asked)
		if ctx.Err() != nil {
			return nil
		}
	}

	d := &council.DemographicDisagreement{
		Axes:                 make([]council.DemographicAxis, len(matcher.axes)),
		BaselineDisagreement: baselineDisagreement(ctx, texts),
		Wording:              "no difference in coverage was found",
	}
	if ctx.Err() != nil {
		return nil
	}
	random := rand.NewPCG(uint64(in.Seed), 0)
	terms, hits := make([]int, len(models)), make([]int, len(models))
	for i, name := range matcher.axes {
		axis := council.DemographicAxis{Axis: name, Evidence: []council.DemographicEvidence{}}
		for j, model := range models {
			terms[j], hits[j] = len(found[j][i].terms), found[j][i].hits
			axis.Hits += hits[j]
			if terms[j] > 0 {
				axis.Evidence = append(axis.Evidence, council.DemographicEvidence{Model: model, Terms: slices.Sorted(maps.Keys(found[j][i].terms))})
			}
		}
		axis.Score = coverageVariance(terms)
		if axis.Hits >= minDemographicHits {
			axis.X2, axis.PValue = compareRates(hits, words, random)
		}
		d.Axes[i] = axis
	}
	adjustAxes(d.Axes)
	var untested []string
	for i := range d.Axes {
		axis := &d.Axes[i]
		above := axis.Score != nil && *axis.Score >= in.Threshold
		axis.Flagged = above && axis.QValue != nil && *axis.QValue < demographicLevel
		d.Flagged = d.Flagged || axis.Flagged
		if above && axis.QValue == nil && axis.Hits > 0 {
			untested = append(untested, axis.Axis)
		}
	}
	switch {
	case d.Flagged:
		d.Wording = "answers differ in coverage"
	case len(untested) > 0:
		d.Wording = "not tested: too few terms of " + strings.Join(untested, ", ")
	}
	if len(models) > 1 {
		slices.SortStableFunc(d.Axes, func(a, b council.DemographicAxis) int { return cmp.Compare(*b.Score, *a.Score) })
	}
	return d
}

// coverageVariance returns CouncilEx's score of the answers' numbers of terms, or
// nil for fewer than two answers. It adds whole numbers, so that a score that
// equals the threshold reaches it.
func coverageVariance(terms []int) *float64 {
	k := len(terms)
	if k < 2 {
		return nil
	}
	sum, squares := 0, 0
	for _, n := range terms {
		sum += n
		squares += n * n
	}
	scale := k * max(1, slices.Max(terms))
	return new(float64(4*(k*squares-sum*sum)) / float64(scale*scale))
}

// compareRates returns X2 and its p for hits, at least one in all, among so many
// words, or nil where fewer than two answers hold words.
func compareRates(hits, words []int, random *rand.PCG) (x2, p *float64) {
	var observed, lengths []int // of the answers that hold words
	var total, length int
	for j, n := range words {
		if n > 0 {
			observed, lengths = append(observed, hits[j]), append(lengths, n)
			total += hits[j]
			length += n
		}
	}
	if len(lengths) < 2 {
		return nil, nil
	}
	expected := make([]float64, len(lengths))
	for j, n := range lengths {
		expected[j] = float64(total) * float64(n) / float64(length)
	}
	statistic := func(counts []int) (sum float64) {
		for j, e := range expected {
			sum += (float64(counts[j]) - e) * (float64(counts[j]) - e) / e
		}
		return sum
	}
	x2 = new(statistic(observed))
	if slices.Min(expected) >= minExpectedHits {
		return x2, new(stat.ChiSquaredP(*x2, float64(len(lengths)-1)))
	}
	reached := 1
	draw := hitDraws(total, lengths, random)
	for range demographicDraws {
		// Draws that differ from the observation by rounding equal it.
		if statistic(draw()) >= *x2*(1-1e-9) {
			reached++
		}
	}
	return x2, new(float64(reached) / (demographicDraws + 1))
}

// hitDraws returns a function that spreads hits over answers at random, each hit
// falling on every word with the same chance. Its result is good until the next
// call.
func hitDraws(hits int, lengths []int, random *rand.PCG) func() []int {
	counts := make([]int, len(lengths))
	// A long answer may repeat a term without end. From some number of hits on, one
	// binomial variate per answer, whose cost does not grow with them, is faster.
	const many = 64
	if hits > many {
		return func() []int {
			left, words := hits, 0
			for _, n := range lengths {
				words += n
			}
			last := len(lengths) - 1
			for j, n := range lengths[:last] {
				counts[j] = stat.Binomial(left, float64(n)/float64(words), random)
				left -= counts[j]
				words -= n
			}
			counts[last] = left
			return counts
		}
	}
	var owner []int32 // by word, the answer
	for j, n := range lengths {
		owner = append(owner, slices.Repeat([]int32{int32(j)}, n)...)
	}
	return func() []int {
		clear(counts)
		var bits uint64
		for i := range hits {
			// Half of the generator's bits choose a word; chances are equal to 1 in 2^32.
			if bits >>= 32; i%2 == 0 {
				bits = random.Uint64()
			}
			counts[owner[bits&math.MaxUint32*uint64(len(owner))>>32]]++
		}
		return counts
	}
}

// pause is how many steps were made since the last look at whether to stop.
type pause int

// ended reports whether to stop. It looks at the first step and every thousandth.
func (p *pause) ended(stop func() bool) bool {
	const often = 1000
	look := *p == 0
	*p = (*p + 1) % often
	return look && stop != nil && stop()
}

func stopped(ctx context.Context) func() bool { return func() bool { return ctx.Err() != nil } }

// baselineDisagreement returns one less the mean Jaccard similarity of the texts'
// vocabularies, or nil for fewer than two texts. Two texts without words are
// alike.
func baselineDisagreement(ctx context.Context, texts [][]lexiconWord) *float64 {
	if len(texts) < 2 {
		return nil
	}
	var since pause
	vocabularies := make([]map[string]bool, len(texts))
	for j, words := range texts {
		vocabularies[j] = make(map[string]bool, len(words))
		for _, w := range words {
			if since.ended(stopped(ctx)) {
				return nil
			}
			vocabularies[j][w.text] = true
		}
	}
	distance, pairs := 0.0, 0
	for i, a := range vocabularies {
		for _, b := range vocabularies[:i] {
			shared := 0
			for w := range a {
				if since.ended(stopped(ctx)) {
					return nil
				}
				if b[w] {
					shared++
				}
			}
			if union := len(a) + len(b) - shared; union > 0 {
				distance += float64(union-shared) / float64(union)
			}
			pairs++
		}
	}
	return new(distance / float64(pairs))
}

// adjustAxes sets the q values of the axes that have a p.
func adjustAxes(axes []council.DemographicAxis) {
	var p []float64
	for _, axis := range axes {
		if axis.PValue != nil {
			p = append(p, *axis.PValue)
		}
	}
	q := stat.BenjaminiHochberg(p)
	for i := range axes {
		if axes[i].PValue != nil {
			axes[i].QValue, q = &q[0], q[1:]
		}
	}
}
