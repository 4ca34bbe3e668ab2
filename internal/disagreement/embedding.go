package disagreement

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// minClustered is the fewest answers of which it is asked whether those that lie together treat an axis
// alike: of four, p would be 1/24 at least.
const minClustered = 5

// Clustered says whether the answers whose embeddings lie together cover an axis alike.
type Clustered struct {
	Axis string
	// Correlation is that of two distances between answers: how many distinct terms of the axis one has more
	// than the other, and one less the cosine of their embeddings. PValue is that of no positive correlation, by
	// permutation (Mantel 1967), and QValue is p adjusted over the axes (Benjamini and Hochberg 1995). All are
	// nil with fewer than five answers, and where one of the distances does not vary.
	Correlation, PValue, QValue *float64
}

// Cluster compares how the answers cover each axis with how alike they are as a whole, which cosine says by
// pairs of member ids. It returns the axes in the order of their names, nil when ctx ends before. It
// describes and flags nothing: answers that differ in what they are about lie apart and use other terms, and how
// often that happens on harmless texts depends on the model that embeds.
func Cluster(ctx context.Context, in Input, cosine func(a, b string) float64) []Clustered {
	models := slices.Sorted(maps.Keys(in.Answers))
	asked := in.Matcher.mentioned(split(in.Question, ctx.Err))
	found := make([][]coverage, len(models))
	apart := stat.Matrix(len(models), len(models), 0.)
	for j, model := range models {
		found[j] = in.Matcher.hits(ctx, split(in.Answers[model], ctx.Err), asked)
		for k, other := range models[:j] {
			apart[j][k] = 1 - cosine(model, other)
			apart[k][j] = apart[j][k]
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	axes := make([]Clustered, len(in.Matcher.axes))
	var p []float64
	var tested []*Clustered
	for i, name := range in.Matcher.axes {
		axes[i].Axis = name
		differ := stat.Matrix(len(models), len(models), 0.)
		for j := range differ {
			for k := range differ {
				differ[j][k] = math.Abs(float64(len(found[j][i].terms) - len(found[k][i].terms)))
			}
		}
		if len(models) < minClustered {
			continue
		}
		if r, single, ok := stat.Mantel(differ, apart, uint64(in.Seed)); ok {
			axes[i].Correlation, axes[i].PValue = &r, &single
			p, tested = append(p, single), append(tested, &axes[i])
		}
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		tested[i].QValue = &q
	}
	return axes
}
