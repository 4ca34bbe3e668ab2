package bias

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// anomaly is one cell that does not fit the rest of its stretch: how harsh one
// reviewer was in one session, or how far the scores of a session scatter.
type anomaly struct {
	session  int
	reviewer int     // -1 for the scatter of the session's scores
	value    float64 // relative harshness, or the standard deviation of residuals, in points
	usual    float64 // mean of the former, geometric mean of the latter, over the stretch
	t        float64 // externally studentised
	p, q     float64
}

// anomalies tests every cell of the stretches with at least ten sessions, all in
// one family of Benjamini and Hochberg. Each is compared with the others of its
// kind by its externally studentised deviation, on n-2 degrees of freedom of n
// sessions (Cook and Weisberg, Residuals and Influence in Regression, 1982):
//
//   - each reviewer's relative harshness, two-sided. A session in which everyone
//     gives low scores is a hard one and no anomaly. Where scores are missing,
//     harshness is known less well; deviations are scaled to what each session's
//     number of scores lets expect.
//   - each session's log residual variance, one-sided: only more scatter than usual
//     is of interest, and the lower tail of a logarithm would pass for an anomaly
//     in every fifth window without any.
func anomalies(fits []severity, split []stretch) []anomaly {
	var cells []anomaly
	for _, part := range split {
		all := fits[part.from:part.to]
		squares, df := 0.0, 0
		for _, fit := range all {
			squares += fit.squares
			df += fit.df
		}
		for reviewer := range all[0].harshness {
			at, h := series(all, reviewer)
			if len(h) < preliminaryFrom || constant(h) || df == 0 {
				continue
			}
			mean := stat.Mean(h, nil)
			// Harshness varies between sessions, and by the chance of few scores.
			chance := make([]float64, len(h))
			for k, s := range at {
				chance[k] = squares / float64(df) * all[int(s)].leverage[reviewer]
			}
			between := max(0, stat.Variance(h, nil)-stat.Mean(chance, nil))
			scaled := make([]float64, len(h))
			for k := range h {
				scaled[k] = (h[k] - mean) / math.Sqrt(between+chance[k])
			}
			for k, t := range studentized(scaled) {
				cells = append(cells, anomaly{
					session: part.from + int(at[k]), reviewer: reviewer, value: h[k], usual: mean,
					t: t, p: studentP(t, float64(len(h)-2)),
				})
			}
		}
		var at []int
		var scatter []float64
		for s, fit := range all {
			const exact = 1e-18 // squared points: no scatter but rounding, and no logarithm
			if fit.df > 0 && fit.squares > exact {
				at, scatter = append(at, part.from+s), append(scatter, math.Log(fit.squares/float64(fit.df)))
			}
		}
		if len(scatter) < preliminaryFrom || constant(scatter) {
			continue
		}
		usual := math.Exp(stat.Mean(scatter, nil) / 2)
		for k, t := range studentized(scatter) {
			cells = append(cells, anomaly{
				session: at[k], reviewer: -1, value: math.Exp(scatter[k] / 2), usual: usual,
				t: t, p: distuv.StudentsT{Sigma: 1, Nu: float64(len(scatter) - 2)}.Survival(t),
			})
		}
	}
	p := make([]float64, len(cells))
	for i, c := range cells {
		p[i] = c.p
	}
	for i, q := range benjaminiHochberg(p) {
		cells[i].q = q
	}
	return cells
}

// studentized returns the deviations of at least three values, not all equal, from
// their mean, each over its standard error without that value.
func studentized(x []float64) []float64 {
	n := float64(len(x))
	mean, variance := stat.MeanVariance(x, nil)
	t := make([]float64, len(x))
	for i, v := range x {
		d := v - mean
		// The others may be equal; the floor keeps the quotient finite.
		without := max(1e-12*variance, (n-1)*variance-d*d*n/(n-1))
		t[i] = d / math.Sqrt(without/(n-2)*(1-1/n))
	}
	return t
}
