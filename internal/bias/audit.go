package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	// minScoredAnswers is ADR-015's least number of answers for judging the
	// length correlation of one session.
	minScoredAnswers = 10
	// minScoresPerPosition keeps noise from passing the default position
	// threshold: where scores scatter by 0.8 points and are whole numbers, means
	// over two pass it in some 13 % of sessions, means over three in under 5 %.
	minScoresPerPosition = 3
	// significance is ADR-015's level for the length correlation.
	significance = 0.05
)

// Thresholds are ADR-015's limits, above which a figure raises its flag.
type Thresholds struct {
	LengthCorrelation float64 // of |r|, 0 to 1; ADR-015 suggests 0.3
	PositionVariance  float64 // in squared points, 0 or more; ADR-015 suggests 0.5
}

// Score is what one reviewer gave one candidate.
type Score struct {
	Reviewer  string // member id
	Candidate string // member id
	Position  int    // 0-based place at which this reviewer was shown the candidate
	Own       bool   // the reviewer wrote the candidate
	Value     float64
}

// AuditInput is what one session's reviews came to.
type AuditInput struct {
	Order      council.Order // how the reviewers' orders were drawn
	Thresholds Thresholds
	Words      map[string]int // words of each answer, by member id
	Scores     []Score        // only scores that were given, each finite
}

// Audit computes ADR-015's indicators of one session. It follows that record
// with these decisions:
//
//   - Own reviews never enter.
//   - Figures are not rounded.
//   - The p of the length correlation is exact (Student t on n-2 degrees of
//     freedom, n answers); below three answers, or where lengths or scores do
//     not vary, correlation and p are nil. Its flag is nil below ten answers.
//   - Its 95 % interval is Fisher's, from four answers on. ADR-015 has none; a bootstrap
//     over so few answers covers far too little.
//   - The position variance is nil where position cannot be told from quality:
//     under a shared order, and with fewer than two reviewers or positions. Its
//     flag is nil unless the orders are balanced, the scores that came back
//     still are (each reviewer and each candidate equally often in every
//     position), and every position holds at least three: otherwise answers of
//     unequal quality, or noise, raise it too often.
//   - Harsh and generous reviewers are listed, but never enter the risk.
//   - The risk is "low" when no judged flag is up and "medium" when one or two
//     are. ADR-015's "high" takes three, which no longer occur together.
//     Where no flag could be judged the risk is "indeterminate".
func Audit(in AuditInput) council.BiasAudit {
	byReviewer, byCandidate, byPosition := map[string][]float64{}, map[string][]float64{}, map[int][]float64{}
	scores := make([]Score, 0, len(in.Scores))
	for _, s := range in.Scores {
		if s.Own {
			continue
		}
		scores = append(scores, s)
		byReviewer[s.Reviewer] = append(byReviewer[s.Reviewer], s.Value)
		byCandidate[s.Candidate] = append(byCandidate[s.Candidate], s.Value)
		byPosition[s.Position] = append(byPosition[s.Position], s.Value)
	}
	a := council.BiasAudit{
		SampleSizes:   council.AuditSamples{Positions: len(byPosition), Scores: len(scores)},
		IndicatorOnly: true,
	}
	auditLength(&a, in, byCandidate)
	if in.Order != council.OrderShared && len(byReviewer) > 1 && len(byPosition) > 1 {
		auditPosition(&a, in, scores, byPosition)
	}
	auditReviewers(&a, byReviewer)
	a.ReviewerEffect = reviewerEffect(scores)
	a.OverallBiasRisk = risk(a.LengthBiasDetected, a.PositionBiasDetected)
	return a
}

func auditLength(a *council.BiasAudit, in AuditInput, byCandidate map[string][]float64) {
	var words, means []float64
	for _, candidate := range slices.Sorted(maps.Keys(byCandidate)) {
		if n, ok := in.Words[candidate]; ok {
			words = append(words, float64(n))
			means = append(means, stat.Mean(byCandidate[candidate]))
		}
	}
	a.SampleSizes.Answers = len(words)
	r, ok := stat.Pearson(words, means)
	if !ok {
		return
	}
	p := stat.PearsonP(r, len(words))
	a.LengthScoreCorrelation, a.LengthScorePValue = &r, &p
	if len(words) > 3 {
		if low, high, ok := stat.FisherInterval(r, len(words)); ok {
			a.LengthScoreCILower, a.LengthScoreCIUpper = &low, &high
		}
	}
	if len(words) >= minScoredAnswers {
		a.LengthBiasDetected = new(math.Abs(r) > in.Thresholds.LengthCorrelation && p < significance)
	}
}

func auditPosition(a *council.BiasAudit, in AuditInput, scores []Score, byPosition map[int][]float64) {
	means := make([]float64, 0, len(byPosition))
	for _, position := range slices.Sorted(maps.Keys(byPosition)) {
		means = append(means, stat.Mean(byPosition[position]))
	}
	variance := stat.PopVariance(means)
	a.PositionScoreVariance = &variance
	if in.Order == council.OrderBalanced && len(scores) >= minScoresPerPosition*len(means) &&
		balanced(scores, len(means), func(s Score) string { return s.Candidate }) &&
		balanced(scores, len(means), func(s Score) string { return s.Reviewer }) {
		a.PositionBiasDetected = new(variance > in.Thresholds.PositionVariance)
	}
}

// balanced reports whether each member, as member names them, has equally many scores in
// each of the positions.
func balanced(scores []Score, positions int, member func(Score) string) bool {
	type cell struct {
		member   string
		position int
	}
	cells, totals := map[cell]int{}, map[string]int{}
	for _, s := range scores {
		cells[cell{member(s), s.Position}]++
		totals[member(s)]++
	}
	for c, n := range cells {
		if n*positions != totals[c.member] {
			return false
		}
	}
	return true
}

func auditReviewers(a *council.BiasAudit, byReviewer map[string][]float64) {
	a.ReviewerMeanScores, a.ReviewerScoreVariance = map[string]float64{}, map[string]float64{}
	a.SampleSizes.Reviewers = map[string]int{}
	a.HarshReviewers, a.GenerousReviewers = []string{}, []string{}
	reviewers := slices.Sorted(maps.Keys(byReviewer))
	means := make([]float64, 0, len(reviewers))
	for _, reviewer := range reviewers {
		mean := stat.Mean(byReviewer[reviewer])
		a.ReviewerMeanScores[reviewer], a.ReviewerScoreVariance[reviewer] = mean, math.Sqrt(stat.PopVariance(byReviewer[reviewer]))
		a.SampleSizes.Reviewers[reviewer] = len(byReviewer[reviewer])
		means = append(means, mean)
	}
	if len(means) < 2 {
		return
	}
	// Two reviewers are exactly one deviation away from their median. The slack keeps
	// rounding errors from listing them.
	const slack = 1e-9
	limit := math.Sqrt(stat.PopVariance(means)) + slack
	centre := stat.Median(means)
	for i, reviewer := range reviewers {
		switch {
		case means[i] < centre-limit:
			a.HarshReviewers = append(a.HarshReviewers, reviewer)
		case means[i] > centre+limit:
			a.GenerousReviewers = append(a.GenerousReviewers, reviewer)
		}
	}
}

// reviewerEffect returns the F test of reviewers in the additive two-way table of
// scores and answers (Fisher 1925; for incomplete tables Yates 1934): what reviewers
// explain beyond answers, over the residuals of both. It is nil for fewer than two
// reviewers, where no chain of common answers links them, and without residuals.
func reviewerEffect(given []Score) *council.ReviewerEffect {
	reviewers, candidates := make([]string, 0, len(given)), make([]string, 0, len(given))
	for _, s := range given {
		reviewers, candidates = append(reviewers, s.Reviewer), append(candidates, s.Candidate)
	}
	slices.Sort(reviewers)
	slices.Sort(candidates)
	reviewers, candidates = slices.Compact(reviewers), slices.Compact(candidates)
	y := stat.Matrix(len(reviewers), len(candidates), math.NaN())
	for _, s := range given {
		i, _ := slices.BinarySearch(reviewers, s.Reviewer)
		j, _ := slices.BinarySearch(candidates, s.Candidate)
		y[i][j] = s.Value
	}
	fit := stat.FitTwoWay(y)
	const exact = 1e-9 // what rounding leaves of a table without noise
	if fit.DF < 1 || fit.Squares < exact {
		return nil
	}
	e := council.ReviewerEffect{DF: []int{len(reviewers) - 1, int(fit.DF)}}
	e.F = max(0, fit.ColumnSquares-fit.Squares) / float64(e.DF[0]) / (fit.Squares / fit.DF)
	e.PValue = stat.FisherP(e.F, float64(e.DF[0]), float64(e.DF[1]))
	return &e
}

// Indicators returns ADR-018's summary of an audit and of how far the ballots
// agree, nil where that is undefined.
func Indicators(a council.BiasAudit, agreement *float64) council.BiasIndicators {
	i := council.BiasIndicators{
		PositionVariance: a.PositionScoreVariance, LengthCorrelation: a.LengthScoreCorrelation, ReviewerAgreement: agreement,
		Flags: []string{},
	}
	if a.LengthBiasDetected != nil && *a.LengthBiasDetected {
		i.Flags = append(i.Flags, "LENGTH_BIAS_DETECTED")
	}
	if a.PositionBiasDetected != nil && *a.PositionBiasDetected {
		i.Flags = append(i.Flags, "POSITION_BIAS_DETECTED")
	}
	return i
}

func risk(flags ...*bool) string {
	level := "indeterminate"
	for _, flag := range flags {
		switch {
		case flag == nil:
		case *flag:
			return "medium"
		default:
			level = "low"
		}
	}
	return level
}
