package bias

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// Calibrated is the calibrated view of the scores that one reviewer gave one
// candidate (ADR-018): for analytics only, it never enters a vote.
type Calibrated struct {
	ReviewerID string `json:"reviewer_id"`
	ModelID    string `json:"model_id"`
	// Z is the mean of (score - the reviewer's mean) / the reviewer's standard
	// deviation with n-1, both over all its scores; null where these do not differ.
	Z       *float64 `json:"z"`
	Reviews int      `json:"reviews"` // scores given to this candidate
}

// calibrate returns the calibrated view by reviewer and candidate, of those pairs
// that have a score; byReviewer holds all scores of each member.
func calibrate(w *window, byReviewer [][]float64) []Calibrated {
	sums, counts := matrix(len(w.names), len(w.names), 0.), matrix(len(w.names), len(w.names), 0)
	for _, x := range w.sessions {
		for i, reviewer := range x.reviewers {
			for j, candidate := range x.candidates {
				if y := x.y[i][j]; !math.IsNaN(y) {
					sums[reviewer][candidate] += y
					counts[reviewer][candidate]++
				}
			}
		}
	}
	view := []Calibrated{}
	for reviewer, scores := range byReviewer {
		for candidate, n := range counts[reviewer] {
			if n == 0 {
				continue
			}
			c := Calibrated{ReviewerID: w.names[reviewer], ModelID: w.names[candidate], Reviews: n}
			if !constant(scores) {
				mean, std := stat.MeanStdDev(scores, nil)
				c.Z = new((sums[reviewer][candidate]/float64(n) - mean) / std)
			}
			view = append(view, c)
		}
	}
	return view
}

// profileDrift returns how far the mean of a reviewer's later scores lies from that
// of as many earlier ones, in standard deviations (n-1) of all of them: a profile
// counts as stable when this is below 0.5 either way after 20 sessions (ADR-018). It
// is nil for fewer than two scores and where they do not differ.
func profileDrift(scores []float64) *float64 {
	if len(scores) < 2 || constant(scores) {
		return nil
	}
	half := len(scores) / 2
	earlier, later := scores[:half], scores[len(scores)-half:]
	return new((stat.Mean(later, nil) - stat.Mean(earlier, nil)) / stat.StdDev(scores, nil))
}
