package bias

import (
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	// minScoredAnswers is the least number of answers for judging the length correlation of one session. ADR-015
	// requires 10. Five answers are enough to find, at the significance level .01, that scores follow the length
	// exactly.
	minScoredAnswers = 5
	// lengthLevel is the significance level of the test of the length correlation, and positionLevel that of the
	// test of the positions.
	lengthLevel, positionLevel = 0.01, 0.05
)

// Score is the score that one reviewer gave one candidate.
type Score struct {
	Reviewer  string // member id
	Candidate string // member id
	Position  int    // 0-based position in which this reviewer was shown the candidate
	Own       bool   // the reviewer wrote the candidate
	Value     float64
}

// AuditInput holds the reviews of one session.
type AuditInput struct {
	Order      council.Order // how the reviewers' orders were drawn
	Thresholds council.AuditThresholds
	Chars      map[string]int // length of each answer in characters (Unicode code points), by member id
	Scores     []Score        // includes only scores that were given; each is finite
	// Twins are seats of the same model. A seat that does not see its own answer does not see the answers of its
	// twins either.
	Twins council.Twins
	// Shown holds the candidates that each reviewer saw, in the order in which the reviewer saw them. If Shown is
	// nil, each reviewer saw exactly the candidates that it scored.
	Shown map[string][]string
}

// Audit computes ADR-015's indicators of one session. It follows ADR-015 with these decisions:
//
//   - Scores that a reviewer gave to its own answer are never used.
//   - The length of an answer is its number of characters, as in the records. ADR-015 counts words between blanks,
//     but Chinese, Japanese and Thai have none.
//   - Figures are not rounded.
//   - The p of the length correlation is exact (Student t on n-2 degrees of freedom, n answers). Below three
//     answers, or if lengths or scores do not vary, correlation and p are nil. The flag is nil below five answers.
//     The flag is up if |r| is above the threshold and p is below .01. The correlation is only an association,
//     because longer answers may be better.
//   - The 95 % interval of that correlation is Fisher's, from four answers on. ADR-015 has no interval. A bootstrap
//     over so few answers would give intervals that are far too narrow.
//   - With a shared order, or with fewer than two reviewers or positions, a position effect cannot be separated from
//     quality. The position variance and its flag are then nil. Otherwise a randomisation test compares the orders
//     that were shown with the orders that could have been drawn. The flag is up if the variance is above the
//     threshold and the p of the test is at most .05. If there are so few possible orders that p cannot reach .05,
//     the flag is nil.
//   - Harsh and generous reviewers are listed, but never change the risk.
//   - The risk is "medium" if the position flag is up. It is "low" if the position flag is false and the length
//     flag is not nil. Otherwise it is "indeterminate". An association with length alone does not raise the risk.
//     ADR-015's "high" needs three flags and does not occur.
//   - NotJudged gives the reason for each flag that is nil.
func Audit(in AuditInput) council.BiasAudit {
	byReviewer := map[string][]float64{}
	byCandidate := map[string][]float64{}
	byPosition := map[int][]float64{}
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
		IndicatorOnly: true, NotJudged: map[string]string{},
	}
	auditLength(&a, in, byCandidate)
	switch {
	case in.Order == council.OrderShared:
		a.NotJudged[factorPosition] = "all reviewers saw the answers in one order"
	case len(byReviewer) < 2 || len(byPosition) < 2:
		a.NotJudged[factorPosition] = "the test needs two reviewers that scored two answers"
	default:
		auditPosition(&a, in, scores, byPosition)
	}
	auditReviewers(&a, byReviewer)
	a.ReviewerEffect = reviewerEffect(scores)
	a.OverallBiasRisk = risk(a.LengthAssociation, a.PositionBiasDetected)
	return a
}

// The keys of NotJudged.
const factorLength, factorPosition = "length", "position"

// auditLength sets the correlation of length and mean score, its interval, and its flag if there are enough
// answers.
func auditLength(a *council.BiasAudit, in AuditInput, byCandidate map[string][]float64) {
	var lengths, means []float64
	for _, candidate := range slices.Sorted(maps.Keys(byCandidate)) {
		if n, ok := in.Chars[candidate]; ok {
			lengths = append(lengths, float64(n))
			means = append(means, stat.Mean(byCandidate[candidate]))
		}
	}
	a.SampleSizes.Answers = len(lengths)
	r, ok := stat.Pearson(lengths, means)
	switch {
	case len(lengths) < minScoredAnswers:
		a.NotJudged[factorLength] = "fewer than five answers were scored"
	case !ok:
		a.NotJudged[factorLength] = "the lengths or the mean scores do not vary"
	}
	if !ok {
		return
	}
	p := stat.PearsonP(r, len(lengths))
	a.LengthScoreCorrelation = &r
	a.LengthScorePValue = &p
	if len(lengths) > 3 {
		if low, high, ok := stat.FisherInterval(r, len(lengths)); ok {
			a.LengthScoreCILower = &low
			a.LengthScoreCIUpper = &high
		}
	}
	if len(lengths) >= minScoredAnswers {
		a.LengthAssociation = new(math.Abs(r) > in.Thresholds.LengthCorrelation && p < lengthLevel)
	}
}

func auditPosition(a *council.BiasAudit, in AuditInput, scores []Score, byPosition map[int][]float64) {
	means := make([]float64, 0, len(byPosition))
	for _, position := range slices.Sorted(maps.Keys(byPosition)) {
		means = append(means, stat.Mean(byPosition[position]))
	}
	variance := stat.PopVariance(means)
	a.PositionScoreVariance = &variance
	p, least := newOrders(in, scores).test()
	if least > positionLevel {
		a.NotJudged[factorPosition] = "there are too few possible orders of the answers: " +
			"even the most extreme order could not be significant"
		return
	}
	a.PositionPValue = &p
	a.PositionBiasDetected = new(variance > in.Thresholds.PositionVariance && p <= positionLevel)
}

func auditReviewers(a *council.BiasAudit, byReviewer map[string][]float64) {
	a.ReviewerMeanScores = map[string]float64{}
	a.ReviewerScoreVariance = map[string]float64{}
	a.SampleSizes.Reviewers = map[string]int{}
	a.HarshReviewers = []string{}
	a.GenerousReviewers = []string{}
	reviewers := slices.Sorted(maps.Keys(byReviewer))
	means := make([]float64, 0, len(reviewers))
	for _, reviewer := range reviewers {
		mean := stat.Mean(byReviewer[reviewer])
		a.ReviewerMeanScores[reviewer] = mean
		a.ReviewerScoreVariance[reviewer] = math.Sqrt(stat.PopVariance(byReviewer[reviewer]))
		a.SampleSizes.Reviewers[reviewer] = len(byReviewer[reviewer])
		means = append(means, mean)
	}
	if len(means) < 2 {
		return
	}
	// slack keeps rounding errors from listing a reviewer that is exactly at the limit. This is always so with two
	// reviewers, because each is exactly one standard deviation away from the median.
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

// reviewerEffect returns the F test of reviewers in the additive two-way table of scores and answers (Fisher 1925;
// for incomplete tables Yates 1934). The test compares two parts of the variation: the part that reviewers explain
// in addition to answers, and the residuals of the fit. The result is nil if there are fewer than two reviewers, if
// no chain of common answers links them, or if the fit has no residuals.
func reviewerEffect(given []Score) *council.ReviewerEffect {
	reviewers := make([]string, 0, len(given))
	candidates := make([]string, 0, len(given))
	for _, s := range given {
		reviewers = append(reviewers, s.Reviewer)
		candidates = append(candidates, s.Candidate)
	}
	slices.Sort(reviewers)
	slices.Sort(candidates)
	reviewers = slices.Compact(reviewers)
	candidates = slices.Compact(candidates)
	y := stat.Matrix(len(reviewers), len(candidates), math.NaN())
	for _, s := range given {
		i, _ := slices.BinarySearch(reviewers, s.Reviewer)
		j, _ := slices.BinarySearch(candidates, s.Candidate)
		y[i][j] = s.Value
	}
	fit := stat.FitTwoWay(y)
	const exact = 1e-9 // rounding leaves less than this in a table without noise
	if fit.DF < 1 || fit.Squares < exact {
		return nil
	}
	e := council.ReviewerEffect{DF: []int{len(reviewers) - 1, int(fit.DF)}}
	e.F = max(0, fit.ColumnSquares-fit.Squares) / float64(e.DF[0]) / (fit.Squares / fit.DF)
	e.PValue = stat.FisherP(e.F, float64(e.DF[0]), float64(e.DF[1]))
	return &e
}

// Indicators returns ADR-018's summary of an audit. The agreement of the ballots is nil if it is undefined.
func Indicators(a council.BiasAudit, agreement *float64) council.BiasIndicators {
	i := council.BiasIndicators{
		PositionVariance:  a.PositionScoreVariance,
		LengthCorrelation: a.LengthScoreCorrelation,
		ReviewerAgreement: agreement,
		Flags:             []string{},
	}
	if a.LengthAssociation != nil && *a.LengthAssociation {
		i.Flags = append(i.Flags, "LENGTH_ASSOCIATION")
	}
	if a.PositionBiasDetected != nil && *a.PositionBiasDetected {
		i.Flags = append(i.Flags, "POSITION_BIAS_DETECTED")
	}
	return i
}

// risk returns the risk that follows from the two flags. A flag is nil if it could not be judged.
func risk(length, position *bool) string {
	switch {
	case position != nil && *position:
		return "medium"
	case position != nil && length != nil:
		return "low"
	}
	return "indeterminate"
}
