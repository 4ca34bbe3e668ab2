package bias

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/councild/councild/internal/stat"
)

// reportSeed seeds what a report draws, so that it can be repeated.
const reportSeed = 18

// ChangePoint is where a reviewer's relative harshness departs furthest from its
// mean, over sessions in which the council stayed the same.
type ChangePoint struct {
	ReviewerID string    `json:"reviewer_id"`
	SessionID  string    `json:"session_id"` // the first that asked the question with which the new level begins
	Start      time.Time `json:"start"`      // of that session
	Before     float64   `json:"before"`     // mean relative harshness, in points
	After      float64   `json:"after"`
	Statistic  float64   `json:"statistic"` // largest absolute partial sum of deviations, over SD sqrt(n)
	PValue     float64   `json:"p_value"`   // by permuting questions
	QValue     float64   `json:"q_value"`   // after Benjamini and Hochberg among change points
	// Flagged means that q lies below the level for this number of questions, and that
	// the levels are at least as far apart as the drift that counts.
	Flagged     bool      `json:"flagged"`
	Sessions    int       `json:"sessions"` // that the reviewer took part in
	Clusters    int       `json:"clusters"` // sessions, those that answered one question counted once
	WindowStart time.Time `json:"window_start"`
	WindowEnd   time.Time `json:"window_end"`
}

// changePoint is a ChangePoint by indices into the window.
type changePoint struct {
	stretch
	reviewer      int
	sessions      int     // that the reviewer took part in
	questions     int     // that these asked
	at            int     // session with which the new level begins
	before, after float64 // mean relative harshness, in points
	statistic     float64 // see cusum
	p             float64
}

// changePoints returns the change points of a report.
func (w *window) changePoints(fits []stat.TwoWay, split []stretch) []ChangePoint {
	found := changePoints(w, fits, split)
	points, p := make([]ChangePoint, len(found)), make([]float64, len(found))
	for i, c := range found {
		at := w.sessions[c.at]
		points[i] = ChangePoint{
			ReviewerID: w.names[c.reviewer], SessionID: at.id, Start: at.start, Before: c.before, After: c.after,
			Statistic: c.statistic, PValue: c.p, Sessions: c.sessions, Clusters: c.questions,
			WindowStart: w.sessions[c.from].start, WindowEnd: w.sessions[c.to-1].start,
		}
		p[i] = c.p
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		c := &points[i]
		c.QValue = q
		c.Flagged = q < level(c.Clusters) && math.Abs(c.After-c.Before) >= deltaDrift
	}
	return points
}

// changePoints returns the change point of each stretch and reviewer with at least
// ten questions, from the mean relative harshness on each question. The p value is
// the share of random orders of the questions, the given one among them, whose
// statistic is as large (Good, Permutation Tests, 2000): questions on which the
// council stayed the same are exchangeable, the sessions that asked one of them are
// not. Beyond 256 questions, runs of neighbours are moved together.
func changePoints(w *window, fits []stat.TwoWay, split []stretch) []changePoint {
	random := rand.NewPCG(reportSeed, 0)
	var all []changePoint
	for _, part := range split {
		asked := questions(w, fits, part)
		from := len(all)
		deviations := stat.Matrix(len(asked), len(w.names), 0.) // 0 where not taken part
		for reviewer := range w.names {
			at, h := seriesOf(asked, reviewer)
			if len(h) < preliminaryFrom || stat.Constant(h) {
				continue
			}
			statistic, k := stat.CUSUM(h)
			mean := stat.Mean(h)
			for i, q := range at {
				deviations[q][len(all)-from] = h[i] - mean
			}
			_, sessions := series(fits[part.from:part.to], reviewer)
			all = append(all, changePoint{
				stretch: part, reviewer: reviewer, sessions: len(sessions), questions: len(h), at: asked[at[k]].first,
				before: stat.Mean(h[:k]), after: stat.Mean(h[k:]), statistic: statistic,
			})
		}
		for i, p := range stat.PermuteCUSUM(deviations, len(all)-from, random) {
			all[from+i].p = p
		}
	}
	return all
}
