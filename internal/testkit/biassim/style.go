package biassim

import (
	"math"
	"math/rand/v2"

	"github.com/councild/councild/internal/stat"
)

// The parts of an embedding: their mean lengths.
const (
	styleDimensions = 16
	styleTopic      = 2.5 // of a session: all its answers are about one question
	styleModel      = 0.6 // of a model, over all its answers
	styleAnswer     = 0.8 // of an answer
)

// styles hold the embeddings of a data set.
type styles struct {
	draws    *rand.Rand
	models   [][]float64 // by member: what its answers, and those of its maker, have in common
	question [][]float64 // by member, of the run of sessions
}

// direction returns a vector of independent normal numbers, whose mean square is that of a length.
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

// answers returns what is drawn of the embeddings of a session's answers.
func (s *styles) answers() [][]float64 {
	topic := s.direction(styleTopic)
	all := make([][]float64, len(s.models))
	for j := range all {
		all[j] = sum(topic, s.direction(styleAnswer))
	}
	return all
}

// similarities returns the cosines of the answers of session n, which have these merits, and logarithms of
// the length.
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

// mimicry returns the points that a reviewer gives to each shown answer for being like its own.
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
