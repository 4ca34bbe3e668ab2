package ranking

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/councild/councild/internal/council"
)

const (
	// permutations is how many shuffles of the ballots one session draws.
	permutations = 1999
	// usualPermutations is how many shuffles are drawn once for all sessions whose ballots have the usual form.
	usualPermutations = 19999
	// agreeBelow and leanBelow are the largest p of the levels.
	agreeBelow, leanBelow = 0.05, 0.20
)

// chance fills in the level of an agreement and its p: how often ballots that are shuffled, each within itself, agree at
// least as far. Ties and gaps of the ballots stay where they are, so that what agrees by their form alone is no surprise.
// It is a permutation test of W with Monte Carlo (Phipson and Smyth 2010: the observed order counts as one of the draws).
func (c count) chance(a *council.Agreement, seed int64) {
	a.Level = council.AgreementUnknown
	defer func() { a.Sentence = a.Level.Sentence() }()
	if a.KendallW == nil {
		return
	}
	d := c.deviations()
	observed := d.of(d.places)
	draws := d.draws(seed)
	p := share(draws, observed)
	a.P = &p
	switch least := share(draws, d.of(d.alike())); {
	case least > leanBelow: // not even ballots in one order would say something
		a.P = nil
	case p <= agreeBelow:
		a.Level = council.AgreementAgree
	case p <= leanBelow:
		a.Level = council.AgreementLean
	default:
		a.Level = council.AgreementNone
	}
}

// share returns the p of a value, given sorted draws.
func share(draws []float64, value float64) float64 {
	const slack = 1e-9 // of sums of fractions
	below, _ := slices.BinarySearch(draws, value*(1-slack))
	return float64(1+len(draws)-below) / float64(1+len(draws))
}

// deviations computes of complete ballots what Kendall's W grows with: the squared deviations of the candidates.
type deviations struct {
	n      int       // candidates
	places [][]int   // by ballot and candidate: twice its mean place, or -1
	weight []float64 // by two candidates: 1 over the ballots that compare them
	same   bool      // all weights are the same
}

func (c count) deviations() deviations {
	d := deviations{n: len(c.candidates), weight: make([]float64, len(c.candidates)*len(c.candidates)), same: true}
	for _, b := range c.ballots {
		if b.ranked == b.m {
			d.places = append(d.places, b.twice)
		}
	}
	for i := range d.n {
		for j := range d.n {
			compared := 0
			for _, row := range d.places {
				if row[i] >= 0 && row[j] >= 0 {
					compared++
				}
			}
			if i != j && compared > 0 {
				d.weight[i*d.n+j] = 1 / float64(compared)
				d.same = d.same && d.weight[i*d.n+j] == d.weight[1]
			}
		}
	}
	return d
}

// of returns the sum over candidates of their squared deviations, times a constant.
func (d deviations) of(places [][]int) float64 {
	deviation := make([]float64, d.n)
	for _, row := range places {
		d.add(deviation, row)
	}
	sum := 0.0
	for _, v := range deviation {
		sum += v * v
	}
	return sum
}

// add adds what one ballot says.
func (d deviations) add(deviation []float64, row []int) {
	if d.same { // the others that are behind a candidate, less those before it, follow from its place
		ranked := 0
		for _, p := range row {
			if p >= 0 {
				ranked++
			}
		}
		for i, p := range row {
			if p >= 0 {
				deviation[i] += float64(ranked - 1 - p)
			}
		}
		return
	}
	for i, p := range row {
		for j, q := range row {
			switch {
			case p < 0 || q < 0 || p == q:
			case p < q:
				deviation[i] += d.weight[i*d.n+j]
			default:
				deviation[i] -= d.weight[i*d.n+j]
			}
		}
	}
}

// alike returns the ballots as they would be if all reviewers agreed, as far as their ties let them.
func (d deviations) alike() [][]int {
	rows := make([][]int, len(d.places))
	for i, row := range d.places {
		rows[i] = slices.Clone(row)
		given := slices.Sorted(slices.Values(row))
		given = given[slices.IndexFunc(given, func(p int) bool { return p >= 0 }):]
		for j, p := range row {
			if p >= 0 {
				rows[i][j] = given[0]
				given = given[1:]
			}
		}
	}
	return rows
}

// usual holds, by the number of candidates, the draws for the usual form: no ballot has ties, and each leaves out another
// candidate, the one of its own reviewer.
var usual sync.Map //nolint:gochecknoglobals // drawn once, the same in every process

// draws returns what shuffled ballots give, sorted. The draws for the usual form are made once.
func (d deviations) draws(seed int64) []float64 {
	if !d.usual() {
		return d.permuted(seed, permutations)
	}
	if drawn, ok := usual.Load(d.n); ok {
		return drawn.([]float64) //nolint:forcetypeassert // nothing else is stored
	}
	drawn := usualForm(d.n).permuted(0, usualPermutations)
	usual.Store(d.n, drawn)
	return drawn
}

// usualForm returns ballots of the usual form, so that the draws do not depend on whose session is the first.
func usualForm(candidates int) deviations {
	d := deviations{n: candidates, same: true}
	for left := range candidates {
		row := make([]int, candidates)
		place := 0
		for i := range row {
			row[i] = -1
			if i != left {
				row[i] = place
				place += 2
			}
		}
		d.places = append(d.places, row)
	}
	return d
}

// usual reports whether the ballots have the usual form.
func (d deviations) usual() bool {
	left := make([]bool, d.n)
	for _, row := range d.places {
		gap := slices.Index(row, -1)
		if gap < 0 || left[gap] || len(d.places) != d.n {
			return false
		}
		left[gap] = true
		for i, p := range row {
			if i != gap && (p < 0 || p%2 != 0 || slices.Index(row[i+1:], p) >= 0) {
				return false
			}
		}
	}
	return len(d.places) > 0
}

// permuted shuffles the ballots several times, and returns what they give, sorted.
func (d deviations) permuted(seed int64, times int) []float64 {
	random := rand.NewPCG(uint64(seed), 1)
	given := make([][]int, len(d.places))
	for i, row := range d.places {
		given[i] = slices.DeleteFunc(slices.Clone(row), func(p int) bool { return p < 0 })
	}
	draws := make([]float64, times)
	deviation := make([]float64, d.n)
	shuffled := make([]int, d.n)
	for t := range draws {
		clear(deviation)
		for i, row := range d.places {
			places := given[i]
			for k := len(places) - 1; k > 0; k-- {
				j, _ := bits.Mul64(random.Uint64(), uint64(k+1)) // as good as uniform, see draw
				places[k], places[j] = places[j], places[k]
			}
			next := 0
			for j, p := range row {
				if shuffled[j] = p; p >= 0 {
					shuffled[j] = places[next]
					next++
				}
			}
			d.add(deviation, shuffled)
		}
		for _, v := range deviation {
			draws[t] += v * v
		}
	}
	slices.Sort(draws)
	return draws
}
