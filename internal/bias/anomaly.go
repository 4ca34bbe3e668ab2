package bias

import (
	"math"
	"slices"
	"time"

	"github.com/councild/councild/internal/stat"
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
func (w *window) anomalies(fits []stat.TwoWay, split []stretch) Anomalies {
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
// variance is moderated towards the others (see [stat.ModeratedVariances]), every deviation is
// scaled to what the two lead to expect, and compared with the others by its
// externally studentised value (Cook and Weisberg 1982), on the degrees of freedom
// of the moderated variance, at most two less than questions.
//
// From six reviewers on, a deviation counts as far as it holds whichever one of the
// reviewer's scores is left out.
func anomalies(w *window, fits []stat.TwoWay, split []stretch) []anomaly {
	var cells []anomaly
	for _, part := range split {
		asked := questions(w, fits, part)
		squares, residual := make([]float64, len(asked)), make([]float64, len(asked))
		for k, q := range asked {
			squares[k], residual[k] = q.Squares, q.DF
		}
		chance, df, ok := stat.ModeratedVariances(squares, residual)
		if !ok {
			continue
		}
		for reviewer := range w.names {
			at, h := seriesOf(asked, reviewer)
			if len(h) < preliminaryFrom || stat.Constant(h) {
				continue
			}
			mean, average := stat.Mean(h), 0.0
			for _, q := range at {
				average += chance[q] * asked[q].Leverage[reviewer] / float64(len(h))
			}
			between := max(0, stat.Variance(h)-average)
			scaled := make([]float64, len(h))
			for k, q := range at {
				scaled[k] = (h[k] - mean) / math.Sqrt(between+chance[q]*asked[q].Leverage[reviewer])
			}
			for k, t := range stat.Studentized(scaled) {
				q := asked[at[k]]
				if compared(q.Effect) >= jackknifeFrom {
					t *= kept(h[k]-mean, q.Low[reviewer]-mean, q.High[reviewer]-mean)
				}
				cells = append(cells, anomaly{
					session: q.first, sessions: q.sessions, questions: len(h), reviewer: reviewer, value: h[k], usual: mean,
					t: t, p: stat.StudentP(t, min(df[at[k]], float64(len(h)-2))),
				})
			}
		}
	}
	p := make([]float64, len(cells))
	for i, c := range cells {
		p[i] = c.p
	}
	for i, q := range stat.BenjaminiHochberg(p) {
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

// compared returns how many reviewers have a relative harshness.
func compared(harshness []float64) int {
	n := 0
	for _, h := range harshness {
		if !math.IsNaN(h) {
			n++
		}
	}
	return n
}
