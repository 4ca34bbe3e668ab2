// Package disagreement compares the texts of the answers of one session. Package bias compares their scores.
//
// [Detect] finds demographic axes (gender, age, ...) that some answers cover and others do not, by the terms of a
// [Lexicon]. [Coverage.Cluster] says whether answers with similar embeddings cover such an axis alike. [Rater] asks
// a model whether the answers differ in how they treat people. Cluster and Rater flag nothing without a calibration
// of their model, which [Calibrate] makes.
//
// The package takes texts and returns values of package council. Its callers decide when to compare answers, which
// lexicon file to read, and what to do with the result.
package disagreement

import (
	"cmp"
	"context"
	"maps"
	"math"
	mathbits "math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	// minHits is the least number of hits on an axis for comparing rates.
	minHits = 5
	// minExpected is the least expected count for which the chi-square distribution is used (a rule of thumb,
	// Cochran 1954).
	minExpected = 5
	// draws is the number of draws in a simulation. So the smallest simulated p is 1/2000.
	draws = 1999
	// level is the false discovery rate at which axes are flagged.
	level = 0.05
	// When this many draws have reached the observed statistic, the drawing stops. Then p is above level, so the
	// axis is not flagged (Besag and Clifford 1991).
	enough = level * (draws + 1)
)

// Answered holds the question of one session, its answers, and how to compare them.
type Answered struct {
	Question string // the whole conversation that the members answered
	// Answers holds the answers that were given, by member id.
	Answers map[string]string
	Matcher *Matcher
	// Threshold is the score, 0 to 1, from which an axis may be flagged. CouncilEx suggests 0.3.
	Threshold float64
	Seed      int64 // the session's seed, which fixes the simulated p values
}

// Detect compares how the answers of one session cover the axes of the lexicon. It returns nil if ctx ends first.
// Its time is proportional to the length of the texts. It follows CouncilEx's bias detector (lexicon backend) with
// these decisions:
//
//   - Only whole words count, as [Lexicon] describes. Terms of the question do not count. Phrases that mean
//     something else ("race condition") do not count either.
//   - Words for particular persons ("he", "her", "my sister", "the old man") count as one hit for each gender and
//     answer, because a story says "she" whenever its heroine acts.
//   - The score alone often flags chance, because one word can move it from 0 to 1. So the rates of hits are
//     compared too. For answers j with n_j of n words and c_j of C hits, X2 = sum (c_j - C n_j/n)^2 / (C n_j/n). It
//     has a chi-square distribution on one degree of freedom less than there are answers. If an expected count C
//     n_j/n is below five, p is instead the share of 1999 multinomial draws that reach X2, the observation
//     included. The drawing stops when 100 of them have reached it, and p is then the share of the draws so far.
//   - An axis whose score reaches the threshold with too few hits is not tested, and the wording says so.
//   - The baseline is over all pairs, equal answers included, and no figure is rounded.
func Detect(ctx context.Context, in Answered) *council.DemographicDisagreement {
	models := slices.Sorted(maps.Keys(in.Answers))
	m := in.Matcher
	asked := m.mentioned(split(in.Question, ctx.Err))
	texts := make([][]word, len(models))
	lengths := make([]int, len(models))      // in words
	found := make([][]coverage, len(models)) // by answer and axis
	for j, model := range models {
		texts[j] = split(in.Answers[model], ctx.Err)
		lengths[j] = len(texts[j])
		found[j] = m.hits(ctx, texts[j], asked)
		if ctx.Err() != nil {
			return nil
		}
	}
	d := &council.DemographicDisagreement{
		Axes:                 make([]council.DemographicAxis, len(m.axes)),
		BaselineDisagreement: baseline(ctx, texts),
		Lexicon:              m.lexicon,
		Wording:              "no difference in coverage was found",
	}
	if ctx.Err() != nil {
		return nil
	}
	draw := newUrn(lengths)
	hits := make([]int, len(models))
	for i, name := range m.axes {
		axis := newAxis(name, models, func(j int) coverage { return found[j][i] })
		if axis.Hits >= minHits {
			for j := range models {
				hits[j] = found[j][i].hits
			}
			axis.X2, axis.PValue = compareRates(hits, lengths, draw, rand.NewPCG(uint64(in.Seed), uint64(i)))
		}
		d.Axes[i] = axis
	}
	adjust(d.Axes)
	flag(d, in.Threshold)
	if len(models) > 1 {
		slices.SortStableFunc(d.Axes, func(a, b council.DemographicAxis) int { return cmp.Compare(*b.Score, *a.Score) })
	}
	return d
}

// newAxis returns an axis with its score and evidence. The argument of returns how the answer of the j-th model
// covers the axis.
func newAxis(name string, models []string, of func(j int) coverage) council.DemographicAxis {
	axis := council.DemographicAxis{Axis: name, Evidence: []council.DemographicEvidence{}}
	terms := make([]int, len(models))
	for j, model := range models {
		covered := of(j)
		terms[j] = len(covered.terms)
		axis.Hits += covered.hits
		if len(covered.terms) > 0 {
			evidence := council.DemographicEvidence{Model: model, Terms: slices.Sorted(maps.Keys(covered.terms))}
			axis.Evidence = append(axis.Evidence, evidence)
		}
	}
	axis.Score = score(terms)
	return axis
}

// flag flags the axes that reach the threshold and pass their test, and sets the wording.
func flag(d *council.DemographicDisagreement, threshold float64) {
	var untested []string
	for i := range d.Axes {
		axis := &d.Axes[i]
		above := axis.Score != nil && *axis.Score >= threshold
		axis.Flagged = above && axis.QValue != nil && *axis.QValue < level
		d.Flagged = d.Flagged || axis.Flagged
		if above && axis.QValue == nil && axis.Hits > 0 {
			untested = append(untested, axis.Axis)
		}
	}
	if d.Flagged {
		d.Wording = "answers differ in coverage"
	} else if len(untested) > 0 {
		d.Wording = "not tested: too few terms of " + strings.Join(untested, ", ")
	}
}

// score returns CouncilEx's score of an axis. The argument terms has the number of distinct terms of the axis in
// each answer. The score is four times the variance of these numbers, divided by the square of the largest. It is
// nil for fewer than two answers. score adds whole numbers, so rounding never puts a score below a threshold that
// it equals.
func score(terms []int) *float64 {
	k := len(terms)
	if k < 2 {
		return nil
	}
	sum := 0
	squares := 0
	for _, n := range terms {
		sum += n
		squares += n * n
	}
	scale := k * max(1, slices.Max(terms))
	return new(float64(4*(k*squares-sum*sum)) / float64(scale*scale))
}

// compareRates returns X2 and its p. The arguments hits and lengths have the number of hits and of words in each
// answer. There must be at least one hit. The results are nil if fewer than two answers have words.
func compareRates(hits, lengths []int, urn *urn, random *rand.PCG) (x2, p *float64) {
	total := 0
	filled := 0
	for j, n := range lengths {
		total += hits[j]
		filled += min(n, 1)
	}
	if filled < 2 {
		return nil, nil
	}
	expected := make([]float64, len(lengths))
	least := math.Inf(1) // the least expected count of an answer that has words
	for j, n := range lengths {
		expected[j] = float64(total) * float64(n) / float64(urn.words)
		if n > 0 {
			least = min(least, expected[j])
		}
	}
	statistic := func(counts []int) (sum float64) {
		for j, e := range expected {
			if e > 0 {
				sum += (float64(counts[j]) - e) * (float64(counts[j]) - e) / e
			}
		}
		return sum
	}
	x2 = new(statistic(hits))
	if least >= minExpected {
		return x2, new(stat.ChiSquaredP(*x2, float64(filled-1)))
	}
	reached := 0
	for drawn := 1; drawn <= draws; drawn++ {
		// Draws that differ from the observation only by rounding count as equal to it.
		if statistic(urn.draw(total, random)) >= *x2*(1-1e-9) {
			if reached++; reached == enough {
				return x2, new(enough / float64(drawn))
			}
		}
	}
	return x2, new(float64(reached+1) / (draws + 1))
}

// urn spreads hits over answers at random. Each hit falls on every word with the same chance.
type urn struct {
	lengths []int // in words, by answer
	words   int   // in all answers
	// For each word of all answers, the index of its answer. It is nil until a draw needs it.
	owner  []int32
	counts []int
}

func newUrn(lengths []int) *urn {
	u := &urn{lengths: lengths, counts: make([]int, len(lengths))}
	for _, n := range lengths {
		u.words += n
	}
	return u
}

// draw returns how many of the hits fall on each answer. The result is valid until the next call.
func (u *urn) draw(hits int, random *rand.PCG) []int {
	// A long answer may repeat a term very often. From this many hits on, one binomial variate for each answer is
	// faster than a draw for each hit.
	const many = 64
	if hits > many {
		left := hits
		words := u.words
		for j, n := range u.lengths {
			u.counts[j] = left
			if n < words {
				u.counts[j] = stat.Binomial(left, float64(n)/float64(words), random)
			}
			left -= u.counts[j]
			words -= n
		}
		return u.counts
	}
	if u.owner == nil {
		u.owner = make([]int32, 0, u.words)
		for j, n := range u.lengths {
			u.owner = append(u.owner, slices.Repeat([]int32{int32(j)}, n)...)
		}
	}
	clear(u.counts)
	var bits uint64
	for i := range hits {
		// Half of the generator's bits choose a word. The chances of two words differ by at most 1 in 2^32.
		if bits >>= 32; i%2 == 0 {
			bits = random.Uint64()
		}
		u.counts[u.owner[bits&math.MaxUint32*uint64(len(u.owner))>>32]]++
	}
	return u.counts
}

// steps counts the steps of a long loop.
type steps int

// look reports whether a context has ended. The argument ended is the Err method of the context, or nil for no
// context. look calls ended only at the first step and at every thousandth step after it. At other steps it returns
// false.
func (n *steps) look(ended func() error) bool {
	*n++
	return *n%1000 == 1 && ended != nil && ended() != nil
}

// baseline returns one minus the mean Jaccard similarity of the texts' vocabularies. It returns nil for fewer than
// two texts, and if ctx ends first. Two texts without words are alike.
func baseline(ctx context.Context, texts [][]word) *float64 {
	if len(texts) < 2 {
		return nil
	}
	var n steps
	ids := make(map[string]int) // by word
	vocabularies := make([]bits, len(texts))
	for j, words := range texts {
		for _, w := range words {
			if n.look(ctx.Err) {
				return nil
			}
			id, ok := ids[w.text]
			if !ok {
				id = len(ids)
				ids[w.text] = id
			}
			vocabularies[j].set(id)
		}
	}
	distance := 0.0
	pairs := 0
	for i, a := range vocabularies {
		for _, b := range vocabularies[:i] {
			if ctx.Err() != nil {
				return nil
			}
			if shared, union := a.compare(b); union > 0 {
				distance += float64(union-shared) / float64(union)
			}
			pairs++
		}
	}
	return new(distance / float64(pairs))
}

// bits is a set of small numbers.
type bits []uint64

func (b *bits) set(n int) {
	for len(*b) <= n/64 {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

// compare returns the size of the intersection of two sets, and the size of their union.
func (b bits) compare(other bits) (shared, union int) {
	for k := range max(len(b), len(other)) {
		x := b.at(k)
		y := other.at(k)
		shared += mathbits.OnesCount64(x & y)
		union += mathbits.OnesCount64(x | y)
	}
	return shared, union
}

// at returns the element k of b, which stands for the numbers from 64*k to 64*k+63. It returns 0 beyond the end of b.
func (b bits) at(k int) uint64 {
	if k < len(b) {
		return b[k]
	}
	return 0
}

// adjust sets the q values of the axes that have a p.
func adjust(axes []council.DemographicAxis) {
	var tested []*council.DemographicAxis
	var p []float64
	for i := range axes {
		if axes[i].PValue != nil {
			tested = append(tested, &axes[i])
			p = append(p, *axes[i].PValue)
		}
	}
	for k, q := range stat.BenjaminiHochberg(p) {
		tested[k].QValue = &q
	}
}
