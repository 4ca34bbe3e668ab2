package bias

import (
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

const (
	// censoredShare is the most of a reviewer's scores of a candidate that may lie at one end of its range. Where
	// more do, what they would be without the end rests too much on the shape of a tail.
	censoredShare = 0.25
	// outlierIn says how many outliers a reviewer's range leaves out at each end: one in so many of its scores.
	outlierIn = 200
)

// pull is how an end of a reviewer's range moves its scores of a candidate.
type pull int

// The directions, each a bit.
const (
	pulledDown pull = 1 << iota
	pulledUp
)

// explains reports whether the end alone may explain an effect of that sign. It may understate one of
// the other sign, but not feign it.
func (p pull) explains(effect float64) bool {
	return p&pulledDown > 0 && effect < 0 || p&pulledUp > 0 && effect > 0
}

// ends say what scores at the ends of the reviewers' ranges would be if the scale went on. Such a score is
// censored: it stands for any that is so high or higher (Tobin 1958). A reviewer that runs into an end where
// others do not looks as if it favoured the candidates that are farther from it.
type ends struct {
	low, high []float64            // of the range, by reviewer; NaN where it has no ends
	pairs     map[[2]int]*censored // by reviewer and candidate
}

// censored are a reviewer's scores of a candidate.
type censored struct {
	n, sum, squares float64 // of those between the ends
	low, high       float64 // how many are at the ends
	mean            float64 // of all, if the scale went on
	atLow, atHigh   float64 // of those at the ends, if the scale went on
	pull            pull
}

func (p *censored) all() float64 { return p.n + p.low + p.high }

// ends estimates what scores at the ends would be. A reviewer's range is from the lowest to the highest score that
// it gave, without one outlier in [outlierIn] scores at each end. A range without a score in between has no ends.
func (w *window) ends() *ends {
	n := len(w.names)
	e := &ends{low: slices.Repeat([]float64{math.NaN()}, n), high: slices.Repeat([]float64{math.NaN()}, n), pairs: map[[2]int]*censored{}}
	given, pairs := make([][]float64, n), make([][]*censored, n)
	for c := range w.cells(w.byTime()) {
		given[c.reviewer] = append(given[c.reviewer], c.score)
	}
	cuts := make([][2]float64, n) // halfway from the ends to the next scores
	for i, scores := range given {
		slices.Sort(scores)
		outliers := len(scores) / outlierIn
		scores = slices.Compact(scores[outliers : len(scores)-outliers])
		if last := len(scores) - 1; last > 1 {
			e.low[i], e.high[i] = scores[0], scores[last]
			cuts[i] = [2]float64{(scores[0] + scores[1]) / 2, (scores[last-1] + scores[last]) / 2}
		}
	}
	for c := range w.cells(w.byTime()) {
		pair := [2]int{c.reviewer, c.candidate}
		p := e.pairs[pair]
		if p == nil {
			p = &censored{}
			e.pairs[pair], pairs[c.reviewer] = p, append(pairs[c.reviewer], p)
		}
		switch {
		case c.score <= e.low[c.reviewer]:
			p.low++
		case c.score >= e.high[c.reviewer]:
			p.high++
		default:
			p.n, p.sum, p.squares = p.n+1, p.sum+c.score, p.squares+c.score*c.score
		}
	}
	for i := range pairs {
		if e.low[i] < e.high[i] {
			uncensor(pairs[i], cuts[i][0], cuts[i][1])
		}
	}
	return e
}

// uncensor sets the means of a reviewer's pairs by maximum likelihood: scores are normal about the mean of their
// pair, with one standard deviation, and those beyond the cuts are known to lie there (Tobin 1958; by EM, Dempster,
// Laird and Rubin 1977).
func uncensor(pairs []*censored, low, high float64) {
	const rounds, tolerance = 200, 1e-4
	for _, p := range pairs {
		p.mean = (p.sum + p.low*low + p.high*high) / p.all()
	}
	sd := (high - low) / 2
	for range rounds {
		change := 0.
		var squares, all float64
		for _, p := range pairs {
			below, above := sd*meanAbove((p.mean-low)/sd), sd*meanAbove((high-p.mean)/sd)
			p.atLow, p.atHigh = p.mean-below, p.mean+above
			mean := (p.sum + p.low*p.atLow + p.high*p.atHigh) / p.all()
			around := p.mean*p.mean + sd*sd
			squares += p.squares + p.low*(around-below*(low+p.mean)) + p.high*(around+above*(high+p.mean)) - p.all()*mean*mean
			all += p.all()
			change = max(change, math.Abs(mean-p.mean))
			p.mean = mean
		}
		if sd = math.Sqrt(max(squares/all, tolerance)); change <= tolerance {
			break
		}
	}
	for _, p := range pairs {
		if p.high > censoredShare*p.all() {
			p.pull |= pulledDown
		}
		if p.low > censoredShare*p.all() {
			p.pull |= pulledUp
		}
	}
}

// meanAbove returns the mean of a standard normal deviate that is known to be above x.
func meanAbove(x float64) float64 {
	const far = 10
	if x > far { // the density and what lies above it are hardly above 0
		return x + 1/x
	}
	return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) / stat.NormalCDF(-x)
}

// scores returns the scores of a session as they would be in the mean if the scale went on.
func (e *ends) scores(s *scores) [][]float64 {
	y := stat.Matrix(len(s.reviewers), len(s.candidates), math.NaN())
	for i, reviewer := range s.reviewers {
		copy(y[i], s.y[i])
		for j, score := range s.y[i] {
			if score <= e.low[reviewer] {
				y[i][j] = e.pairs[[2]int{reviewer, s.candidates[j]}].atLow
			} else if score >= e.high[reviewer] {
				y[i][j] = e.pairs[[2]int{reviewer, s.candidates[j]}].atHigh
			}
		}
	}
	return y
}

// pull returns in which direction an end moves too many of a reviewer's scores of a candidate, 0 for none.
func (e *ends) pull(reviewer, candidate int) pull {
	if p := e.pairs[[2]int{reviewer, candidate}]; p != nil {
		return p.pull
	}
	return 0
}

// within restricts a design to cells that no end moves too often, and to those to keep nevertheless; nil keeps none.
func (e *ends) within(of design, keep func(s *scores, i, j int) bool) design {
	row := of.row
	of.row = func(s *scores, i, j int, x []float64) bool {
		isMoved := e.pull(s.reviewers[i], s.candidates[j]) > 0
		return (!isMoved || keep != nil && keep(s, i, j)) && row(s, i, j, x)
	}
	return of
}
