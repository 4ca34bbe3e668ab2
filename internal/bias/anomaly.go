package bias

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"
)

// anomalyLimits is what the report says of anomalies that it does not find.
const anomalyLimits = "a shift of 2.5 points in one session is found about every other time from five members on, " +
	"and less often with fewer members or where sessions differ in how far their scores scatter"

// jackknifeFrom is how many reviewers a session takes for its anomalies to hold
// whichever single score is left out. With fewer, one score is too much of a
// reviewer's harshness.
const jackknifeFrom = 6

// Anomalies are the cells, one reviewer on one question, that do not fit the
// others.
type Anomalies struct {
	Cells  int       `json:"cells"` // that were tested, all in one family
	Found  []Anomaly `json:"found"` // by time
	Limits string    `json:"limits"`
}

// Anomaly is one cell whose q lies below the level for its number of questions.
type Anomaly struct {
	SessionID  string    `json:"session_id"` // the first that asked the question
	Start      time.Time `json:"start"`      // of that session
	Sessions   int       `json:"sessions"`   // that asked the question
	ReviewerID string    `json:"reviewer_id"`
	// Value is the reviewer's relative harshness in those sessions, in points, Usual
	// its mean over all questions.
	Value  float64 `json:"value"`
	Usual  float64 `json:"usual"`
	T      float64 `json:"t"` // externally studentised
	PValue float64 `json:"p_value"`
	QValue float64 `json:"q_value"` // after Benjamini and Hochberg among the cells
}

// anomalies returns the anomalies of a report.
func (w *window) anomalies(fits []severity, split []stretch) Anomalies {
	cells := anomalies(w, fits, split)
	all := Anomalies{Cells: len(cells), Found: []Anomaly{}, Limits: anomalyLimits}
	for _, c := range cells {
		if c.q >= level(c.questions) {
			continue
		}
		x := w.sessions[c.session]
		all.Found = append(all.Found, Anomaly{
			SessionID: x.id, Start: x.start, Sessions: c.sessions, ReviewerID: w.names[c.reviewer],
			Value: c.value, Usual: c.usual, T: c.t, PValue: c.p, QValue: c.q,
		})
	}
	slices.SortStableFunc(all.Found, func(a, b Anomaly) int { return a.Start.Compare(b.Start) })
	return all
}

// anomaly is one cell: how harsh one reviewer was on one question, against the
// other questions of its stretch.
type anomaly struct {
	session   int // the first that asked the question
	sessions  int // that asked it
	questions int // that it was compared with, itself among them
	reviewer  int
	value     float64 // relative harshness, in points
	usual     float64 // its mean over the stretch
	t         float64 // externally studentised
	p, q      float64
}

// anomalies tests every cell of the stretches with at least ten questions, all in
// one family of Benjamini and Hochberg. A question on which everyone gives low
// scores is a hard one and no anomaly.
//
// Harshness varies between questions, and by the chance of few scores, whose
// variance differs between questions too and is known from few residuals. So each
// variance is moderated towards the others (see moderate), every deviation is
// scaled to what the two lead to expect, and compared with the others by its
// externally studentised value (Cook and Weisberg 1982), on the degrees of freedom
// of the moderated variance, at most two less than questions.
//
// From six reviewers on, a deviation counts as far as it holds whichever one of the
// reviewer's scores is left out.
func anomalies(w *window, fits []severity, split []stretch) []anomaly {
	var cells []anomaly
	for _, part := range split {
		asked := questions(w, fits, part)
		chance, df, ok := moderate(asked)
		if !ok {
			continue
		}
		for reviewer := range w.names {
			at, h := seriesOf(asked, reviewer)
			if len(h) < preliminaryFrom || constant(h) {
				continue
			}
			mean, average := stat.Mean(h, nil), 0.0
			for _, q := range at {
				average += chance[q] * asked[q].leverage[reviewer] / float64(len(h))
			}
			between := max(0, stat.Variance(h, nil)-average)
			scaled := make([]float64, len(h))
			for k, q := range at {
				scaled[k] = (h[k] - mean) / math.Sqrt(between+chance[q]*asked[q].leverage[reviewer])
			}
			for k, t := range studentized(scaled) {
				q := asked[at[k]]
				if q.reviewers() >= jackknifeFrom {
					t *= kept(h[k]-mean, q.low[reviewer]-mean, q.high[reviewer]-mean)
				}
				cells = append(cells, anomaly{
					session: q.first, sessions: q.sessions, questions: len(h), reviewer: reviewer, value: h[k], usual: mean,
					t: t, p: studentP(t, min(df[at[k]], float64(len(h)-2))),
				})
			}
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

// kept returns the share of a deviation, 0 to 1, that is left at the least when one
// score is left out, given the range that it then has: 0 where its sign may change.
func kept(deviation, low, high float64) float64 {
	least := low
	if deviation < 0 {
		least = high
	}
	if deviation == 0 {
		return 0
	}
	return max(0, min(1, least/deviation))
}

// reviewers returns how many of them a fit compares.
func (f *severity) reviewers() int {
	n := 0
	for _, h := range f.harshness {
		if !math.IsNaN(h) {
			n++
		}
	}
	return n
}

// moderate returns the variance of a score by chance on each question, with its
// degrees of freedom. The residual variance s^2 of one question, on few degrees of
// freedom d, is drawn towards those of the others,
//
//	(d0 s0^2 + d s^2) / (d0 + d)  on d0 + d degrees of freedom,
//
// where s0^2 and d0 are what the scatter of log s^2 says of the true variances: an
// empirical Bayes estimate by moments (Smyth, Linear Models and Empirical Bayes
// Methods, 2004, section 6.2). D0 is infinite where log s^2 scatters no more than
// chance explains. It reports false where no question has residuals.
func moderate(asked []question) (variance, df []float64, ok bool) {
	var raw, residual []float64
	for _, q := range asked {
		if q.df > 0 {
			raw, residual = append(raw, q.squares/q.df), append(residual, q.df)
		}
	}
	if len(raw) == 0 {
		return nil, nil, false
	}
	// Scores that fit exactly have no logarithm.
	const least = 1e-5 // of the median
	floor := least * median(raw)
	if floor == 0 {
		floor = least
	}
	logs, expected := make([]float64, len(raw)), 0.0
	for k, d := range residual {
		logs[k] = math.Log(max(raw[k], floor)) - mathext.Digamma(d/2) + math.Log(d/2)
		expected += trigamma(d/2) / float64(len(raw))
	}
	prior, usual := math.Inf(1), math.Exp(stat.Mean(logs, nil))
	if excess := stat.Variance(logs, nil) - expected; excess > 0 {
		prior = 2 * trigammaInverse(excess)
		usual *= math.Exp(mathext.Digamma(prior/2) - math.Log(prior/2))
	}
	for _, q := range asked {
		moderated := usual
		if !math.IsInf(prior, 1) {
			moderated = (prior*usual + q.squares) / (prior + q.df)
		}
		variance, df = append(variance, moderated), append(df, prior+q.df)
	}
	return variance, df, true
}

// trigamma returns the second derivative of the logarithm of the gamma function at
// x > 0, which is a Hurwitz zeta function.
func trigamma(x float64) float64 { return mathext.Zeta(2, x) }

// trigammaInverse returns the x > 0 with that trigamma > 0, by Newton's method
// (Smyth 2004, appendix).
func trigammaInverse(y float64) float64 {
	x := 0.5 + 1/y
	for range 50 {
		slope := -2 * mathext.Zeta(3, x)
		step := trigamma(x) * (1 - trigamma(x)/y) / slope
		x += step
		if -step <= 1e-10*x {
			break
		}
	}
	return x
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
