package disagreement

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// clusterRule is the version of the rule by which [Coverage.Cluster] flags.
const clusterRule = "embedding-1"

// Coverage says how the answers of one session cover the axes of a lexicon.
type Coverage struct {
	in     Answered
	ids    []string // the ids of the answers, sorted
	counts [][]int  // the number of distinct terms, by axis and answer
}

// Cover returns how answers cover the axes, or nil if ctx ends first. Its time is proportional to the length of the
// texts.
func Cover(ctx context.Context, in Answered) *Coverage {
	c := &Coverage{
		in:     in,
		ids:    slices.Sorted(maps.Keys(in.Answers)),
		counts: stat.Matrix(len(in.Matcher.axes), len(in.Answers), 0),
	}
	asked := in.Matcher.mentioned(split(in.Question, ctx.Err))
	for j, id := range c.ids {
		for i, found := range in.Matcher.hits(ctx, split(in.Answers[id], ctx.Err), asked) {
			c.counts[i][j] = len(found.terms)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return c
}

// embedded holds the embeddings that a model made of the answers, and the calibration of the model.
type embedded struct {
	model string
	// cosine compares the embeddings of two answers, by their ids. It is nil if there are none.
	cosine  func(a, b string) float64
	missing string // says why there are no embeddings
	usage   council.Usage
	// calibration is the newest calibration of the model, or nil.
	calibration *council.Calibration
}

// Instrument returns the instrument that Cluster uses with an embedding model. Cluster flags only with a calibration
// of this instrument.
func (in Answered) Instrument(model string) council.Calibration {
	return council.Calibration{
		Model:     model,
		Prompt:    clusterRule,
		Lexicon:   in.Matcher.fingerprint(),
		Axes:      in.Matcher.Axes(),
		Threshold: in.Threshold,
	}
}

// Cluster tests for each axis whether answers with similar embeddings cover it alike. Over all pairs of answers it
// correlates two distances (Mantel 1967). One is the difference in the number of distinct terms of the axis. The
// other is one minus the cosine of their embeddings. The argument lexical is what [Detect] found in the same
// answers.
//
// An axis is flagged if Detect flags it and the correlation is positive with a q value of at most .05. q is p
// adjusted over the axes that Detect flags. Both conditions are needed. The correlation alone would flag up to one
// benign session in twenty by chance, and more sessions if the answers differ in length, because long answers have
// more terms. Detect does not use the embeddings, so p stays valid if only the axes that Detect flags are tested.
//
// Cluster flags nothing unless a calibration of this model, rule, lexicon and threshold passed. A calibration is
// needed because benign answers with similar embeddings may use the same terms. How often they do this depends on the
// embedding model and on the texts.
func (c *Coverage) Cluster(lexical council.DemographicDisagreement, e embedded) council.DemographicClustering {
	found := council.DemographicClustering{
		Axes: []council.ClusteredAxis{}, Model: e.model, Rule: clusterRule, Calibration: e.calibration, Usage: e.usage,
	}
	switch {
	case len(c.ids) < minClustered:
		found.Reason = new(fmt.Sprintf("not tested: there are %d answers, and the test needs %d", len(c.ids), minClustered))
	case e.cosine == nil:
		found.Reason = new("not tested: there are no embeddings of the answers: " + e.missing)
	case !c.covers(lexical): // possible after a takeover
		found.Reason = new("not tested: this daemon has another lexicon than the one that compared the terms")
	}
	if found.Reason != nil {
		return found
	}
	found.Axes = c.test(lexical, e.cosine)
	found.Reason = Uncalibrated(e.calibration, c.in.Instrument(e.model), council.BackendEmbedding)
	tested := false
	for i := range found.Axes {
		axis := &found.Axes[i]
		axis.Flagged = found.Reason == nil && reaches(*axis)
		found.Flagged = found.Flagged || axis.Flagged
		tested = tested || axis.Correlation != nil
	}
	if !tested {
		found.Reason = new("not tested: the answers cover every axis alike, or all lie equally far apart")
	}
	return found
}

// covers reports whether Detect compared the same axes by a lexicon of the same version.
func (c *Coverage) covers(lexical council.DemographicDisagreement) bool {
	for _, axis := range lexical.Axes {
		if !slices.Contains(c.in.Matcher.axes, axis.Axis) {
			return false
		}
	}
	return lexical.Lexicon.Version == c.in.Matcher.lexicon.Version
}

// test returns the figures of each axis, in the order of Detect. It flags nothing.
func (c *Coverage) test(lexical council.DemographicDisagreement, cosine func(a, b string) float64) []council.ClusteredAxis {
	n := len(c.ids)
	apart := stat.Matrix(n, n, 0.)
	for j, id := range c.ids {
		for k, other := range c.ids[:j] {
			apart[j][k] = 1 - cosine(id, other)
			apart[k][j] = apart[j][k]
		}
	}
	axes := make([]council.ClusteredAxis, 0, len(lexical.Axes))
	var p []float64
	var adjusted []int
	for i, coverage := range lexical.Axes {
		axis := council.ClusteredAxis{Axis: coverage.Axis, Score: coverage.Score}
		counts := c.counts[slices.Index(c.in.Matcher.axes, coverage.Axis)]
		differ := stat.Matrix(n, n, 0.)
		for j := range differ {
			for k := range differ {
				differ[j][k] = math.Abs(float64(counts[j] - counts[k]))
			}
		}
		r, single, ok := stat.Mantel(differ, apart, uint64(c.in.Seed))
		switch {
		case ok:
			axis.Correlation = &r
			axis.PValue = &single
			if coverage.Flagged {
				p = append(p, single)
				adjusted = append(adjusted, i)
			}
		case slices.Max(counts) == 0:
			axis.Reason = new("not tested: no answer has a term of it")
		default:
			axis.Reason = new("not tested: the answers do not differ in the number of its terms, " +
				"or all lie equally far apart")
		}
		axes = append(axes, axis)
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		axes[adjusted[i]].QValue = &q
	}
	return axes
}

// reaches reports whether an axis would be flagged if the model were calibrated.
func reaches(axis council.ClusteredAxis) bool {
	return axis.QValue != nil && *axis.QValue <= level && *axis.Correlation > 0
}

// ClusterReaches reports whether Cluster would flag if the model were calibrated. A calibration counts the sessions
// that would flag. ok is false if no axis was tested, because a session without a test is no evidence for a low
// rate of flags.
func ClusterReaches(found council.DemographicClustering) (flags, ok bool) {
	for _, axis := range found.Axes {
		flags = flags || reaches(axis)
		ok = ok || axis.Correlation != nil
	}
	return flags, ok
}

// ClusterWording says in words what Cluster found.
func ClusterWording(found council.DemographicClustering) string {
	if found.Reason != nil {
		return *found.Reason
	}
	var flagged []string
	for _, axis := range found.Axes {
		if axis.Flagged {
			flagged = append(flagged, axis.Axis)
		}
	}
	if len(flagged) == 0 {
		return "no axis was found that similar answers cover alike, and unlike the other answers"
	}
	return "similar answers cover these axes alike, and unlike the other answers: " + strings.Join(flagged, ", ")
}
