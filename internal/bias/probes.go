package bias

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// ProbeChange says how one reviewer differs between two probes. It only describes and gives no verdict.
type ProbeChange struct {
	ReviewerID string           `json:"reviewer_id"`
	Earlier    *SelfConsistency `json:"earlier"` // null if it took no part
	Later      *SelfConsistency `json:"later"`
	// HarshnessChange is how many points more the reviewer adds to an answer's score in the later probe than in the
	// earlier one, relative to the other reviewers of the same answers. It has a 95 % interval. It is null if
	// either probe has fewer than two questions.
	HarshnessChange stat.Estimate `json:"harshness_change"`
	// Paired says that both probes ask the same questions, by their keys or hashes. The change is then the mean
	// over the questions. Otherwise the probes count as separate samples.
	Paired bool `json:"paired"`
	// EarlierQuestions and LaterQuestions count questions with a relative harshness.
	EarlierQuestions int `json:"earlier_questions"`
	LaterQuestions   int `json:"later_questions"`
}

// CompareProbes compares two probes, each of one run or of several pooled runs. It returns the reviewers by id. It
// compares how a reviewer scores relative to the other reviewers of the same answers, because the two probes have
// different answers even if the questions are the same. For unpaired questions the interval is Welch's (1947), for
// paired ones Student's.
func CompareProbes(earlier, later iter.Seq[council.BiasMetricRecord]) []ProbeChange {
	before := slices.Collect(earlier)
	after := slices.Collect(later)
	asked := stat.Groups{}
	for _, r := range slices.Concat(before, after) {
		if r.QueryHash != nil && r.QuestionKey != nil {
			asked.Unite(*r.QueryHash, keyMark+*r.QuestionKey)
		}
	}
	changes := map[string]*ProbeChange{}
	of := func(id string) *ProbeChange {
		if changes[id] == nil {
			changes[id] = &ProbeChange{ReviewerID: id}
		}
		return changes[id]
	}
	for _, c := range Consistency(slices.Values(before)) {
		of(c.ReviewerID).Earlier = &c
	}
	for _, c := range Consistency(slices.Values(after)) {
		of(c.ReviewerID).Later = &c
	}
	x := harshnessByQuestion(before, asked)
	y := harshnessByQuestion(after, asked)
	out := make([]ProbeChange, 0, len(changes))
	for _, id := range slices.Sorted(maps.Keys(changes)) {
		c := changes[id]
		c.compare(x[id], y[id])
		out = append(out, *c)
	}
	return out
}

// compare sets the change of the relative harshness between two probes. x holds the relative harshness on each
// question of the earlier probe, and y on each question of the later probe.
func (c *ProbeChange) compare(x, y map[string]float64) {
	var differences []float64
	for _, question := range slices.Sorted(maps.Keys(x)) {
		if later, ok := y[question]; ok {
			differences = append(differences, later-x[question])
		}
	}
	if len(differences) > 1 && len(differences) == len(x) && len(differences) == len(y) {
		c.Paired = true
		c.EarlierQuestions = len(differences)
		c.LaterQuestions = len(differences)
		n := float64(len(differences))
		mean, sd := stat.MeanStdDev(differences)
		c.set(mean, sd/math.Sqrt(n), n-1)
		return
	}
	c.EarlierQuestions = len(x)
	c.LaterQuestions = len(y)
	if len(x) < 2 || len(y) < 2 {
		return
	}
	mean := func(of map[string]float64) (mean, variance, n float64) {
		values := make([]float64, 0, len(of))
		for _, question := range slices.Sorted(maps.Keys(of)) {
			values = append(values, of[question])
		}
		n = float64(len(values))
		return stat.Mean(values), stat.Variance(values) / n, n
	}
	mx, vx, nx := mean(x)
	my, vy, ny := mean(y)
	df := nx + ny - 2
	if vx+vy > 0 {
		df = (vx + vy) * (vx + vy) / (vx*vx/(nx-1) + vy*vy/(ny-1))
	}
	c.set(my-mx, math.Sqrt(vx+vy), df)
}

func (c *ProbeChange) set(change, se, df float64) {
	half := se * stat.StudentQuantile(0.975, df)
	c.HarshnessChange = stat.Estimate{Value: &change, Lower: new(change - half), Upper: new(change + half)}
}

// harshnessByQuestion returns the relative harshness of each reviewer on each question. This is what the reviewer
// adds to the mean scores of the same frozen answers, without own answers. Blocks whose keys or hashes belong to
// one question count once. Each group in asked holds the keys and hashes of one question.
func harshnessByQuestion(records []council.BiasMetricRecord, asked stat.Groups) map[string]map[string]float64 {
	blocks := map[string]*scoredBlock{}
	for i := range records {
		r := &records[i]
		if r.BlockID == nil || r.ScoreValue == nil || r.Own {
			continue
		}
		score, ok := rescale(*r.ScoreValue, r.ScoreScale)
		if !ok {
			continue
		}
		if blocks[*r.BlockID] == nil {
			blocks[*r.BlockID] = &scoredBlock{question: *r.BlockID, scores: map[string]meanByKey{}}
		}
		blocks[*r.BlockID].add(r, score, asked)
	}
	sums := map[string]meanByKey{} // by reviewer, then question
	for _, id := range slices.Sorted(maps.Keys(blocks)) {
		b := blocks[id]
		for reviewer, effect := range b.effects() {
			if sums[reviewer] == nil {
				sums[reviewer] = meanByKey{}
			}
			sums[reviewer].add(b.question, effect)
		}
	}
	harshness := map[string]map[string]float64{}
	for reviewer, of := range sums {
		harshness[reviewer] = map[string]float64{}
		for question, at := range of {
			harshness[reviewer][question] = at.mean()
		}
	}
	return harshness
}

// runningMean is a mean to which values are added.
type runningMean struct{ n, total float64 }

func (m runningMean) mean() float64 { return m.total / m.n }

// meanByKey holds a mean for each key.
type meanByKey map[string]runningMean

func (m meanByKey) add(key string, value float64) {
	at := m[key]
	m[key] = runningMean{at.n + 1, at.total + value}
}

// scoredBlock holds the scores of one block of frozen answers.
type scoredBlock struct {
	question string
	scores   map[string]meanByKey // by reviewer, then candidate: the mean over the rounds
}

// add adds a record with its score from 1 to 10.
func (b *scoredBlock) add(r *council.BiasMetricRecord, score float64, asked stat.Groups) {
	switch {
	case r.QueryHash != nil:
		b.question = asked.Of(*r.QueryHash)
	case r.QuestionKey != nil:
		b.question = asked.Of(keyMark + *r.QuestionKey)
	}
	if b.scores[r.ReviewerID] == nil {
		b.scores[r.ReviewerID] = meanByKey{}
	}
	b.scores[r.ReviewerID].add(r.ModelID, score)
}

// effects returns the relative harshness of each reviewer in the block. It omits a reviewer that cannot be
// compared.
func (b *scoredBlock) effects() map[string]float64 {
	reviewers := slices.Sorted(maps.Keys(b.scores))
	present := map[string]bool{}
	for _, of := range b.scores {
		for candidate := range of {
			present[candidate] = true
		}
	}
	candidates := slices.Sorted(maps.Keys(present))
	y := stat.Matrix(len(reviewers), len(candidates), math.NaN())
	for i, reviewer := range reviewers {
		for j, candidate := range candidates {
			if at, ok := b.scores[reviewer][candidate]; ok {
				y[i][j] = at.mean()
			}
		}
	}
	effects := map[string]float64{}
	for i, effect := range stat.FitTwoWay(y).Effect {
		if !math.IsNaN(effect) {
			effects[reviewers[i]] = effect
		}
	}
	return effects
}
