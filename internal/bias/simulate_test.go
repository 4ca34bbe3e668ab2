package bias

import (
	"math"
	"math/rand/v2"
	"slices"
)

// simulation is what is planted in simulated sessions. The noise is that of the
// project's validation: scores are whole, and so are all their sources but chance.
type simulation struct {
	sessions int
	hidden   bool                          // own answers are not shown
	shared   bool                          // one order for all reviewers
	missing  float64                       // share of scores that are not given
	effect   func(s, reviewer int) float64 // on all scores of a reviewer
	anchor   float64                       // per point that the first answer is better
	noise    func(s, reviewer int) float64 // factor on the noise
}

// window returns sessions of five members with random orders.
func (o simulation) window(rng *rand.Rand) window {
	const members = 5
	w := window{names: []string{"a", "b", "c", "d", "e"}, clusters: o.sessions}
	quality := make([]float64, members)
	for j := range quality {
		quality[j] = 0.6 * rng.NormFloat64()
	}
	for s := range o.sessions {
		x := scores{
			cluster: s, shared: o.shared, reviewers: []int{0, 1, 2, 3, 4}, candidates: []int{0, 1, 2, 3, 4},
			y: matrix(members, members, math.NaN()), length: matrix(members, members, 1000.), position: matrix(members, members, -1),
			own: matrix(members, members, false), family: matrix(members, members, false),
		}
		session := 0.5 * rng.NormFloat64()
		truth := make([]float64, members)
		for j := range truth {
			truth[j] = 6 + quality[j] + session + 0.8*rng.NormFloat64()
		}
		order := rng.Perm(members)
		for i := range members {
			shift := 0.3 * rng.NormFloat64()
			if o.effect != nil {
				shift += o.effect(s, i)
			}
			noise := 0.8
			if o.noise != nil {
				noise *= o.noise(s, i)
			}
			if !o.shared {
				order = rng.Perm(members)
			}
			shown := slices.Clone(order)
			if o.hidden {
				shown = slices.DeleteFunc(shown, func(j int) bool { return j == i })
			}
			mean := 0.0
			for _, j := range shown {
				mean += truth[j] / float64(len(shown))
			}
			for p, j := range shown {
				x.own[i][j], x.position[i][j] = i == j, p
				y := truth[j] + shift + noise*rng.NormFloat64()
				if p > 0 {
					y += o.anchor * (truth[shown[0]] - mean)
				}
				if rng.Float64() >= o.missing {
					x.y[i][j] = min(10, max(1, math.Round(y)))
				}
			}
			x.shown = append(x.shown, len(shown))
		}
		w.sessions = append(w.sessions, x)
	}
	return w
}
