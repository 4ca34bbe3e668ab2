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
	// usualPermutations is how many shuffles are drawn for ballots of the usual form. All sessions share them.
	usualPermutations = 19999
	// agreeBelow and leanBelow are the largest p for the levels "agree" and "lean".
	agreeBelow, leanBelow = 0.05, 0.20
)

// chance fills in the level of an agreement and its p. p is the share of random shuffles after which the ballots
// agree at least as much. A shuffle exchanges the places of the candidates within one ballot. The ballot keeps its
// ties and the candidates that it leaves out, so agreement that comes only from ties and omissions is not surprising.
// This is a permutation test of W with Monte Carlo. The ballots as the reviewers gave them count as one of the draws
// (Phipson and Smyth 2010).
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
	case least > leanBelow: // not even identical ballots would be surprising
		a.P = nil
	case p <= agreeBelow:
		a.Level = council.AgreementAgree
	case p <= leanBelow:
		a.Level = council.AgreementLean
	default:
		a.Level = council.AgreementNone
	}
}

// share returns the p of a value: the share of draws that are at least as large, where the value itself counts as one
// more draw. The draws must be sorted.
func share(draws []float64, value float64) float64 {
	const slack = 1e-9 // covers rounding errors in sums of fractions
	below, _ := slices.BinarySearch(draws, value*(1-slack))
	return float64(1+len(draws)-below) / float64(1+len(draws))
}

// deviations computes the sum of the squared deviations of the candidates, from complete ballots. The permutation
// test uses this sum in place of Kendall's W, because the two increase together.
type deviations struct {
	n      int     // the number of candidates
	places [][]int // by ballot and candidate: twice its mean place, or -1
	// For each two candidates, this is 1 divided by the number of ballots that compare them.
	weight []float64
	same   bool // all weights are equal
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

// of adds up the squared deviations of all candidates. It returns this sum multiplied by a constant.
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

// add adds the deviations of one ballot.
func (d deviations) add(deviation []float64, row []int) {
	// With equal weights, the term of a ballot for a candidate is the number of candidates that the ballot ranks
	// below it, minus the number that the ballot ranks above it.
	if d.same {
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

// alike returns the ballots as they would be if all reviewers agreed as much as possible. Each ballot keeps its ties,
// and the candidates that it leaves out.
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

// usual holds the draws for the usual form, by the number of candidates. In the usual form no ballot has ties, and
// each leaves out exactly one candidate, a different one on each ballot: the answer of its own reviewer.
var usual sync.Map //nolint:gochecknoglobals // drawn once, the same in every process

// draws returns the values of shuffled ballots, sorted. The draws for the usual form are made once.
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

// usualForm returns ballots of the usual form. All sessions share the draws from these ballots, so the draws must not
// depend on the ballots of the first session.
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

// permuted shuffles the ballots as many times as the argument times says. It returns the value of the ballots after
// each shuffle, sorted.
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
