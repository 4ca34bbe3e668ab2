package biassim

import (
	"math"
	"math/rand/v2"

	"github.com/councild/councild/internal/stat"
)

// An embedding is the sum of vectors. These are their numbers of dimensions and their mean lengths.
const (
	styleDimensions = 16
	styleTopic      = 2.5 // the vector of a session, whose answers are all about one question
	styleModel      = 0.6 // the vector of a model, which all its answers share
	styleAnswer     = 0.8 // the vector of an answer
)

// styles has the embeddings of a data set.
type styles struct {
	draws    *rand.Rand
	models   [][]float64 // by member: the vector of its model plus that of its maker
	question [][]float64 // by member: the vectors that a run of sessions shares
}

// direction returns a vector of independent normal numbers. The mean of its squared length is the square of length.
func (s *styles) direction(length float64) []float64 {
	v := make([]float64, styleDimensions)
	for k := range v {
		v[k] = length * s.draws.NormFloat64() / math.Sqrt(styleDimensions)
	}
	return v
}

func newStyles(draws *rand.Rand, makers []string, alikeMaker float64) *styles {
	s := &styles{draws: draws}
	byMaker := map[string][]float64{}
	for _, maker := range makers {
		if byMaker[maker] == nil {
			byMaker[maker] = s.direction(alikeMaker)
		}
		s.models = append(s.models, sum(s.direction(styleModel), byMaker[maker]))
	}
	return s
}

// answers draws the vectors of a session and of its answers, and returns their sums by member.
func (s *styles) answers() [][]float64 {
	topic := s.direction(styleTopic)
	all := make([][]float64, len(s.models))
	for j := range all {
		all[j] = sum(topic, s.direction(styleAnswer))
	}
	return all
}

// similarities returns the cosines between the answers of session n. The arguments merit and length have the merits of
// the answers and the logarithms of their lengths.
func (g *generator) similarities(n int, merit, length []float64) [][]float64 {
	w := g.o.World
	drawn := g.styles.answers()
	if w.Runs > 1 {
		if n%w.Runs == 0 {
			g.styles.question = g.styles.answers()
		}
		for j := range drawn {
			mix(drawn[j], g.styles.question[j], g.shared)
		}
	}
	for j := range drawn {
		drawn[j] = append(sum(drawn[j], g.styles.models[j]), w.AlikeLength*length[j], w.AlikeMerit*merit[j])
	}
	cosines := stat.Matrix(len(drawn), len(drawn), 1.)
	for i, x := range drawn {
		for j, y := range drawn[:i] {
			cosines[i][j] = math.Round(1e4*stat.Cosine(x, y)) / 1e4
			cosines[j][i] = cosines[i][j]
		}
	}
	return cosines
}

// mimicry returns the points that a reviewer gives to each shown answer for its similarity to the reviewer's own
// answer.
func (g *generator) mimicry(cosines []float64, shown []int, own int) []float64 {
	points := make([]float64, len(shown))
	mean := 0.
	others := 0.
	for _, j := range shown {
		if j != own {
			mean += cosines[j]
			others++
		}
	}
	for p, j := range shown {
		if j != own {
			points[p] = 10 * g.o.Effects.Style * (cosines[j] - mean/others)
		}
	}
	return points
}

func sum(x, y []float64) []float64 {
	z := make([]float64, len(x), len(x)+2)
	for k := range z {
		z[k] = x[k] + y[k]
	}
	return z
}
