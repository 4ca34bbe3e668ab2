package bias

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// stretch is a run of sessions, from one up to but without another, in which the
// council stayed the same.
type stretch struct{ from, to int }

// stretches splits sessions, oldest first, where council_config_version changes
// and where a member comes or goes for good (ADR-018: scores before and after are
// not those of one reviewer). Members that span fewer sessions than a test takes
// are guests and split nothing, and a version that the records do not tell is no
// change.
func stretches(sessions []scores) []stretch {
	first, last := map[int]int{}, map[int]int{}
	for s, x := range sessions {
		for _, levels := range [][]int{x.reviewers, x.candidates} {
			for _, member := range levels {
				if _, ok := first[member]; !ok {
					first[member] = s
				}
				last[member] = s
			}
		}
	}
	starts := map[int]bool{0: true}
	for member, from := range first {
		if to := last[member] + 1; to-from >= preliminaryFrom {
			starts[from], starts[to] = true, true
		}
	}
	var split []stretch
	config := ""
	for s, x := range sessions {
		if starts[s] || x.config != "" && config != "" && x.config != config {
			split = append(split, stretch{from: s})
		}
		if x.config != "" {
			config = x.config
		}
		split[len(split)-1].to = s + 1
	}
	return split
}

// drift says how a reviewer's relative harshness changed within a stretch.
type drift struct {
	stretch
	reviewer  int
	sessions  int     // that the reviewer took part in
	questions int     // that these asked
	change    float64 // over the whole stretch, in points
	se        float64 // NaN below ten questions; 0 where the harshness does not scatter about the line
}

// drifts returns the linear trend of relative harshness over the sessions'
// ordinals, for each stretch and reviewer with at least ten sessions: the slope and
// its standard error by leaving out one question at a time, both times (S-1) for a
// stretch of S sessions. The test is Student's t with one degree of freedom less
// than questions. Fewer than ten questions have no standard error.
func drifts(w *window, fits []stat.TwoWay, split []stretch) []drift {
	var all []drift
	for _, part := range split {
		span := float64(part.to - part.from - 1)
		for reviewer := range fits[part.from].Effect {
			at, h := series(fits[part.from:part.to], reviewer)
			if len(at) < preliminaryFrom {
				continue
			}
			clusters, distinct := make([]int, len(at)), map[int]bool{}
			for k, s := range at {
				clusters[k] = w.sessions[part.from+int(s)].cluster
				distinct[clusters[k]] = true
			}
			d := drift{stretch: part, reviewer: reviewer, sessions: len(at), questions: len(distinct), se: math.NaN()}
			if slope, se, ok := stat.Trend(at, h, clusters); ok && d.questions >= preliminaryFrom {
				d.change, d.se = slope*span, se*span
			}
			all = append(all, d)
		}
	}
	return all
}

func (d drift) df() float64 { return float64(d.questions - 1) }

// series returns one reviewer's relative harshness and the ordinals of the
// sessions that have it.
func series(fits []stat.TwoWay, reviewer int) (at, h []float64) {
	for s, fit := range fits {
		if v := fit.Effect[reviewer]; !math.IsNaN(v) {
			at, h = append(at, float64(s)), append(h, v)
		}
	}
	return at, h
}

// seriesOf returns one reviewer's relative harshness on the questions, and which of
// them have it.
func seriesOf(asked []question, reviewer int) (at []int, h []float64) {
	for k, q := range asked {
		if v := q.Effect[reviewer]; !math.IsNaN(v) {
			at, h = append(at, k), append(h, v)
		}
	}
	return at, h
}
