package bias

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/stat"
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
	members  int                           // 0 stands for 5
	run      int                           // sessions in a row that ask one question; 0 stands for 1
	worth    float64                       // mean worth of an answer; 0 stands for 6
	heavy    bool                          // noise follows t with three degrees of freedom, of the same standard deviation
}

// window returns sessions with random orders. Sessions of one question have its
// answers, and each reviewer is as harsh on them every time.
func (o simulation) window(rng *rand.Rand) window {
	members, run, worth := cmp.Or(o.members, 5), cmp.Or(o.run, 1), cmp.Or(o.worth, 6)
	var w window
	indices, quality := make([]int, members), make([]float64, members)
	for j := range quality {
		w.names = append(w.names, string(rune('a'+j)))
		indices[j], quality[j] = j, 0.6*rng.NormFloat64()
	}
	noise := rng.NormFloat64
	if o.heavy {
		noise = func() float64 {
			a, b, c := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
			return rng.NormFloat64() / math.Sqrt(a*a+b*b+c*c)
		}
	}
	var asked, moods []float64
	for s := range o.sessions {
		w.clusters = s/run + 1
		x := scores{
			id: strconv.Itoa(s), cluster: s / run, shared: o.shared, reviewers: indices, candidates: indices,
			y: stat.Matrix(members, members, math.NaN()), length: stat.Matrix(members, members, 1000.),
			position: stat.Matrix(members, members, -1),
			own:      stat.Matrix(members, members, false), family: stat.Matrix(members, members, false),
			place: stat.Matrix(members, members, math.NaN()), style: stat.Matrix(members, members, math.NaN()),
			reasoning: stat.Matrix(members, members, math.NaN()),
			correct:   stat.Matrix(members, members, int8(-1)),
		}
		session := 0.5 * rng.NormFloat64()
		truth := make([]float64, members)
		for j := range truth {
			truth[j] = worth + quality[j] + session + 0.8*rng.NormFloat64()
		}
		first := s%run == 0
		if first {
			asked, moods = truth, make([]float64, members)
		}
		truth = asked
		order := rng.Perm(members)
		for i := range members {
			if mood := 0.3 * rng.NormFloat64(); first {
				moods[i] = mood
			}
			shift := moods[i]
			if o.effect != nil {
				shift += o.effect(s, i)
			}
			sd := 0.8
			if o.noise != nil {
				sd *= o.noise(s, i)
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
				y := truth[j] + shift + sd*noise()
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
