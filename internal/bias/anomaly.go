package bias

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Anomalies are the cells, one reviewer in one session or one session, that do not
// fit the others.
type Anomalies struct {
	Cells int       `json:"cells"` // that were tested, all in one family
	Found []Anomaly `json:"found"` // by time
}

// Anomaly is one cell whose q lies below the level for its number of sessions.
type Anomaly struct {
	SessionID string    `json:"session_id"`
	Start     time.Time `json:"start"` // of the session
	// ReviewerID is null where the session's scores scatter more than usual.
	ReviewerID *string `json:"reviewer_id"`
	// Value is, in points, the reviewer's relative harshness in the session, or the
	// standard deviation of what reviewers and candidates leave of the session's
	// scores. Usual is its mean, of the latter the geometric one.
	Value  float64 `json:"value"`
	Usual  float64 `json:"usual"`
	T      float64 `json:"t"` // externally studentised
	PValue float64 `json:"p_value"`
	QValue float64 `json:"q_value"` // after Benjamini and Hochberg among the cells
}

// anomalies returns the anomalies of a report.
func (w *window) anomalies(fits []severity, split []stretch) Anomalies {
	cells := anomalies(fits, split)
	all := Anomalies{Cells: len(cells), Found: []Anomaly{}}
	for _, c := range cells {
		if c.q >= level(c.sessions) {
			continue
		}
		x := w.sessions[c.session]
		a := Anomaly{SessionID: x.id, Start: x.start, Value: c.value, Usual: c.usual, T: c.t, PValue: c.p, QValue: c.q}
		if c.reviewer >= 0 {
			a.ReviewerID = &w.names[c.reviewer]
		}
		all.Found = append(all.Found, a)
	}
	slices.SortStableFunc(all.Found, func(a, b Anomaly) int { return a.Start.Compare(b.Start) })
	return all
}

// anomaly is one cell that does not fit the rest of its stretch: how harsh one
// reviewer was in one session, or how far the scores of a session scatter.
type anomaly struct {
	session  int
	sessions int     // that it was compared with, itself among them
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
					session: part.from + int(at[k]), sessions: len(h), reviewer: reviewer, value: h[k], usual: mean,
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
				session: at[k], sessions: len(scatter), reviewer: -1, value: math.Exp(scatter[k] / 2), usual: usual,
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
