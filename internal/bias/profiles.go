package bias

import (
	"math"

	"github.com/councild/councild/internal/stat"
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

// Prior is what is assumed about every reviewer before any session: relative
// harshness varies between sessions normally, with a mean that is itself normal
// about Mean with the weight of Sessions observations, and a variance that is
// inverse gamma with Shape and Scale.
type Prior struct {
	Mean     float64 `json:"mean"`     // points
	Sessions float64 `json:"sessions"` // the prior mean weighs as much as these
	Shape    float64 `json:"shape"`
	Scale    float64 `json:"scale"` // squared points
}

// weakPrior weighs one session for the mean, and two with a standard deviation of
// one point for the variance.
func weakPrior() Prior { return Prior{Mean: 0, Sessions: 1, Shape: 1, Scale: 1} }

// given returns the scores that each member gave, own reviews included, by session.
func (w *window) given() [][]float64 {
	all := make([][]float64, len(w.names))
	for _, x := range w.sessions {
		for i, reviewer := range x.reviewers {
			for _, y := range x.y[i] {
				if !math.IsNaN(y) {
					all[reviewer] = append(all[reviewer], y)
				}
			}
		}
	}
	return all
}

// profiles returns the profile of each member that gave a score.
func profiles(w *window, given [][]float64, fits []stat.TwoWay) []Profile {
	asked := questions(w, fits, stretch{to: len(fits)})
	profiles, prior := []Profile{}, weakPrior()
	var means []float64
	for i, id := range w.names {
		scores := given[i]
		if len(scores) == 0 {
			continue
		}
		p := Profile{ReviewerID: id, Mean: stat.Mean(scores), Reviews: len(scores), DriftSD: profileDrift(scores)}
		if len(scores) > 1 {
			p.Std = new(stat.StdDev(scores))
		}
		if _, h := seriesOf(asked, i); len(h) > 0 {
			p.RelativeHarshness = stat.PosteriorMean(h, prior.Mean, prior.Sessions, prior.Shape, prior.Scale)
		}
		profiles, means = append(profiles, p), append(means, p.Mean)
	}
	if len(means) < 2 || stat.Constant(means) {
		return profiles
	}
	centre, std := stat.MeanStdDev(means)
	for i := range profiles {
		profiles[i].HarshnessZ = new((profiles[i].Mean - centre) / std)
	}
	return profiles
}

// calibrate returns the calibrated view by reviewer and candidate, of those pairs
// that have a score, from all scores that each member gave.
func calibrate(w *window, given [][]float64) []Calibrated {
	sums, counts := stat.Matrix(len(w.names), len(w.names), 0.), stat.Matrix(len(w.names), len(w.names), 0)
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
	for reviewer, scores := range given {
		for candidate, n := range counts[reviewer] {
			if n == 0 {
				continue
			}
			c := Calibrated{ReviewerID: w.names[reviewer], ModelID: w.names[candidate], Reviews: n}
			if !stat.Constant(scores) {
				mean, std := stat.MeanStdDev(scores)
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
	if len(scores) < 2 || stat.Constant(scores) {
		return nil
	}
	half := len(scores) / 2
	earlier, later := scores[:half], scores[len(scores)-half:]
	return new((stat.Mean(later) - stat.Mean(earlier)) / stat.StdDev(scores))
}
