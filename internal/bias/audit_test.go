package bias

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

var (
	seedThresholds = Thresholds{LengthCorrelation: 0.3, PositionVariance: 0.5}
	// approx compares figures that were worked out on paper.
	approx = cmpopts.EquateApprox(0, 1e-9)
)

// threeMembers is a session in which every member reviews the other two, each
// answer standing once in each position.
func threeMembers() AuditInput {
	return AuditInput{
		Order: council.OrderBalanced, Thresholds: seedThresholds,
		Words: map[string]int{"a": 100, "b": 200, "c": 300},
		Scores: []Score{
			{Reviewer: "a", Candidate: "b", Position: 0, Value: 6},
			{Reviewer: "a", Candidate: "c", Position: 1, Value: 8},
			{Reviewer: "b", Candidate: "c", Position: 0, Value: 9},
			{Reviewer: "b", Candidate: "a", Position: 1, Value: 5},
			{Reviewer: "c", Candidate: "a", Position: 0, Value: 6},
			{Reviewer: "c", Candidate: "b", Position: 1, Value: 7},
		},
	}
}

func TestAuditByHand(t *testing.T) {
	// The mean scores 5.5, 6.5, 8.5 give r^2 = 27/28, so t = sqrt(27) on one
	// degree of freedom. Position means are 7 and 20/3, reviewer means 7, 7, 6.5
	// with median 7 and population deviation sqrt(1/18). The two scores
	// of each answer differ by 1, which leaves squares of 3/2; reviewers at 0, 2/3 and
	// 4/3 leave 1/6. F = (4/3 / 2) / (1/6), and on (2, 1) p = 1 / sqrt(1 + 2F).
	want := council.BiasAudit{
		LengthScoreCorrelation: new(math.Sqrt(27. / 28)),
		LengthScorePValue:      new(1 - 2/math.Pi*math.Atan(math.Sqrt(27))),
		PositionScoreVariance:  new(1. / 36),
		PositionBiasDetected:   new(false),
		ReviewerMeanScores:     map[string]float64{"a": 7, "b": 7, "c": 6.5},
		ReviewerScoreVariance:  map[string]float64{"a": 1, "b": 2, "c": 0.5},
		HarshReviewers:         []string{"c"},
		GenerousReviewers:      []string{},
		ReviewerEffect:         &council.ReviewerEffect{F: 4, DF: []int{2, 1}, PValue: 1. / 3},
		OverallBiasRisk:        "low",
		SampleSizes: council.AuditSamples{
			Answers: 3, Positions: 2, Scores: 6,
			Reviewers: map[string]int{"a": 2, "b": 2, "c": 2},
		},
		IndicatorOnly: true,
	}
	if diff := cmp.Diff(want, Audit(threeMembers()), approx); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

func TestAuditIgnoresOwnReviews(t *testing.T) {
	in := threeMembers()
	in.Scores = append(in.Scores,
		Score{Reviewer: "a", Candidate: "a", Position: 2, Own: true, Value: 10},
		Score{Reviewer: "d", Candidate: "d", Position: 0, Own: true, Value: 10})
	if diff := cmp.Diff(Audit(threeMembers()), Audit(in)); diff != "" {
		t.Errorf("own reviews changed the audit (-without +with):\n%s", diff)
	}
}

func TestAuditPosition(t *testing.T) {
	yes, no := new(true), new(false)
	for _, tc := range []struct {
		name     string
		mutate   func(*AuditInput)
		variance *float64
		detected *bool
		risk     string
	}{
		{"balanced", func(*AuditInput) {}, new(1. / 36), no, "low"},
		{"over the threshold", func(in *AuditInput) { in.Thresholds.PositionVariance = 0.02 }, new(1. / 36), yes, "medium"},
		{"shared order", func(in *AuditInput) { in.Order = council.OrderShared }, nil, nil, "indeterminate"},
		{"independent orders", func(in *AuditInput) { in.Order = council.OrderPerReviewer }, new(1. / 36), nil, "indeterminate"},
		{"one reviewer", func(in *AuditInput) { in.Scores = in.Scores[:2] }, nil, nil, "indeterminate"},
		{"one position", func(in *AuditInput) {
			in.Scores = slices.DeleteFunc(in.Scores, func(s Score) bool { return s.Position == 1 })
		}, nil, nil, "indeterminate"},
		{"a ballot is missing", func(in *AuditInput) { in.Scores = in.Scores[:4] }, new(0.25), nil, "indeterminate"},
		// Each candidate stands in both positions, but a's ballot covers one alone.
		{"reviewers out of balance", func(in *AuditInput) {
			in.Scores[0].Reviewer, in.Scores[1].Reviewer, in.Scores[2].Reviewer = "b", "b", "a"
		}, new(1. / 36), nil, "indeterminate"},
		// Each reviewer covers both positions, but b stands first alone.
		{"candidates out of balance", func(in *AuditInput) { in.Scores[5].Candidate = "a" }, new(1. / 36), nil, "indeterminate"},
		{"two scores per position", func(in *AuditInput) {
			in.Scores = []Score{
				{Reviewer: "x", Candidate: "a", Position: 0, Value: 9},
				{Reviewer: "x", Candidate: "b", Position: 1, Value: 5},
				{Reviewer: "y", Candidate: "b", Position: 0, Value: 9},
				{Reviewer: "y", Candidate: "a", Position: 1, Value: 5},
			}
		}, new(4.), nil, "indeterminate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := threeMembers()
			tc.mutate(&in)
			got := Audit(in)
			want := council.BiasAudit{PositionScoreVariance: tc.variance, PositionBiasDetected: tc.detected, OverallBiasRisk: tc.risk}
			only := council.BiasAudit{
				PositionScoreVariance: got.PositionScoreVariance, PositionBiasDetected: got.PositionBiasDetected,
				OverallBiasRisk: got.OverallBiasRisk,
			}
			if diff := cmp.Diff(want, only, approx); diff != "" {
				t.Errorf("position figures (-want +got):\n%s", diff)
			}
		})
	}
}

// onOneSlate is a session under a shared order: one reviewer scores n answers,
// each one word and, to begin with, one point better than the one before.
func onOneSlate(n int) AuditInput {
	in := AuditInput{Order: council.OrderShared, Thresholds: seedThresholds, Words: map[string]int{}}
	for j := range n {
		candidate := fmt.Sprintf("m%02d", j)
		in.Words[candidate] = j + 1
		in.Scores = append(in.Scores, Score{Reviewer: "r", Candidate: candidate, Position: j, Value: 1 + float64(j)/2})
	}
	return in
}

func TestAuditLength(t *testing.T) {
	yes, no := new(true), new(false)
	for _, tc := range []struct {
		name     string
		answers  int
		mutate   func(*AuditInput)
		r, p     *float64
		detected *bool
		risk     string
	}{
		{"nothing at all", 0, func(*AuditInput) {}, nil, nil, nil, "indeterminate"},
		{"two answers", 2, func(*AuditInput) {}, nil, nil, nil, "indeterminate"},
		{"three answers", 3, func(*AuditInput) {}, new(1.), new(0.), nil, "indeterminate"},
		{"nine answers", 9, func(*AuditInput) {}, new(1.), new(0.), nil, "indeterminate"},
		{"ten answers", 10, func(*AuditInput) {}, new(1.), new(0.), yes, "medium"},
		{"the longer the worse", 10, func(in *AuditInput) {
			for i := range in.Scores {
				in.Scores[i].Value = 10 - in.Scores[i].Value
			}
		}, new(-1.), new(0.), yes, "medium"},
		{"under the threshold", 10, func(in *AuditInput) { in.Thresholds.LengthCorrelation = 1 }, new(1.), new(0.), no, "low"},
		{"an answer of unknown length", 10, func(in *AuditInput) { delete(in.Words, "m03") }, new(1.), new(0.), nil, "indeterminate"},
		{"an answer without a score", 10, func(in *AuditInput) { in.Scores = in.Scores[1:] }, new(1.), new(0.), nil, "indeterminate"},
		{"equal scores", 10, func(in *AuditInput) {
			for i := range in.Scores {
				in.Scores[i].Value = 7.1
			}
		}, nil, nil, nil, "indeterminate"},
		// The means are equal, but these orders of summing differ in the last bit.
		{"equal means", 3, func(in *AuditInput) {
			in.Scores = nil
			for i, values := range [][]float64{{6.6, 9.5, 6.2}, {9.5, 6.2, 6.6}, {6.6, 9.5, 6.2}} {
				for j, value := range values {
					in.Scores = append(in.Scores, Score{Reviewer: strconv.Itoa(j), Candidate: fmt.Sprintf("m%02d", i), Value: value})
				}
			}
		}, nil, nil, nil, "indeterminate"},
		{"equal lengths", 10, func(in *AuditInput) {
			for candidate := range in.Words {
				in.Words[candidate] = 250
			}
		}, nil, nil, nil, "indeterminate"},
		// Up five points and down again: r = 0.
		{"no correlation", 10, func(in *AuditInput) {
			for i := range in.Scores {
				in.Scores[i].Value = float64(min(i, 9-i))
			}
		}, new(0.), new(1.), no, "low"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := onOneSlate(tc.answers)
			tc.mutate(&in)
			got := Audit(in)
			want := council.BiasAudit{
				LengthScoreCorrelation: tc.r, LengthScorePValue: tc.p, LengthBiasDetected: tc.detected,
				OverallBiasRisk: tc.risk,
			}
			only := council.BiasAudit{
				LengthScoreCorrelation: got.LengthScoreCorrelation, LengthScorePValue: got.LengthScorePValue,
				LengthBiasDetected: got.LengthBiasDetected, OverallBiasRisk: got.OverallBiasRisk,
			}
			if diff := cmp.Diff(want, only, approx); diff != "" {
				t.Errorf("length figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditReviewers(t *testing.T) {
	for _, tc := range []struct {
		name            string
		means           map[string]float64
		harsh, generous []string
	}{
		{"one reviewer", map[string]float64{"a": 1}, []string{}, []string{}},
		// Two means stand exactly one deviation from their median; with these, rounding
		// puts the lower one beyond it.
		{"two reviewers", map[string]float64{"a": 5.8, "b": 8}, []string{}, []string{}},
		// The population deviation is 0.82, with n-1 it would be 1.
		{"population deviation", map[string]float64{"a": 5, "b": 6, "c": 7}, []string{"a"}, []string{"c"}},
		{"alike", map[string]float64{"a": 6, "b": 6, "c": 6}, []string{}, []string{}},
		{"one harsh", map[string]float64{"a": 3, "b": 7, "c": 7}, []string{"a"}, []string{}},
		{"one generous", map[string]float64{"a": 7, "b": 7, "c": 9}, []string{}, []string{"c"}},
		// Median 6, deviation sqrt(34/5).
		{"both, by name", map[string]float64{"e": 3, "d": 3, "c": 6, "b": 7, "a": 9}, []string{"d", "e"}, []string{"a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var in AuditInput
			for reviewer, mean := range tc.means {
				in.Scores = append(in.Scores,
					Score{Reviewer: reviewer, Candidate: "x", Value: mean - 1}, Score{Reviewer: reviewer, Candidate: "y", Value: mean + 1})
			}
			got := Audit(in)
			if diff := cmp.Diff([][]string{tc.harsh, tc.generous}, [][]string{got.HarshReviewers, got.GenerousReviewers}); diff != "" {
				t.Errorf("harsh and generous (-want +got):\n%s", diff)
			}
			if got.OverallBiasRisk != "indeterminate" {
				t.Errorf("risk = %q: calibration must not enter it", got.OverallBiasRisk)
			}
		})
	}
}

func TestAuditJSONHasNoNullCollections(t *testing.T) {
	body, err := json.Marshal(Audit(AuditInput{}))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"length_score_correlation":null,"length_score_ci_lower":null,"length_score_ci_upper":null,"length_score_p_value":null,"length_bias_detected":null,` +
		`"position_score_variance":null,"position_bias_detected":null,"reviewer_mean_scores":{},"reviewer_score_variance":{},` +
		`"harsh_reviewers":[],"generous_reviewers":[],"reviewer_effect":null,"overall_bias_risk":"indeterminate",` +
		`"sample_sizes":{"answers":0,"positions":0,"scores":0,"reviewers":{}},"indicator_only":true}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// TestAuditOrderOfScores holds that nothing depends on which ballot came first.
func TestAuditOrderOfScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := simulated(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), rapid.IntRange(2, 8).Draw(t, "members"))
		in.Scores = in.Scores[:rapid.IntRange(0, len(in.Scores)).Draw(t, "scores")]
		want := Audit(in)
		in.Scores = rapid.Permutation(in.Scores).Draw(t, "order")
		if diff := cmp.Diff(want, Audit(in), approx); diff != "" {
			t.Fatalf("another order, another audit:\n%s", diff)
		}
	})
}

// simulated returns a session of n members without any bias: each reviews the
// answers of all others in a balanced order. Answers differ in quality by one
// point (standard deviation), the same answer's scores by 0.8 and by the
// reviewer's mood; lengths have nothing to do with quality.
func simulated(rng *rand.Rand, n int) AuditInput {
	in := AuditInput{Order: council.OrderBalanced, Thresholds: seedThresholds, Words: map[string]int{}}
	quality := make([]float64, n)
	for j := range n {
		quality[j] = 6.5 + rng.NormFloat64()
		in.Words[strconv.Itoa(j)] = int(math.Exp(6 + 0.4*rng.NormFloat64()))
	}
	for i := range n {
		mood := 0.3 * rng.NormFloat64()
		for p := range n - 1 {
			j := (i + 1 + p) % n
			in.Scores = append(in.Scores, Score{
				Reviewer: strconv.Itoa(i), Candidate: strconv.Itoa(j), Position: p,
				Value: max(1, min(10, math.Round(quality[j]+mood+0.8*rng.NormFloat64()))),
			})
		}
	}
	return in
}

// TestAuditFalsePositives holds the promise that without any bias at most 5 % of
// sessions are said to carry a risk, and that a large bias is seen.
func TestAuditFalsePositives(t *testing.T) {
	const sessions = 1500
	for _, members := range []int{3, 4, 5, 10} {
		t.Run(fmt.Sprint(members, " members"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(15, uint64(members)))
			var alarms, primacy int
			for range sessions {
				in := simulated(rng, members)
				switch risk := Audit(in).OverallBiasRisk; risk {
				case "low", "indeterminate":
				default:
					alarms++
				}
				for i, s := range in.Scores {
					if s.Position == 0 {
						in.Scores[i].Value += 4
					}
				}
				if detected := Audit(in).PositionBiasDetected; detected != nil && *detected {
					primacy++
				}
			}
			// With ten members the length test has exactly the size 5 %: the margin is
			// three standard errors of the simulation.
			if limit := 0.05 + 3*math.Sqrt(0.05*0.95/sessions); float64(alarms) > limit*sessions {
				t.Errorf("%d of %d sessions without bias are said to carry a risk", alarms, sessions)
			}
			if primacy < sessions*9/10 {
				t.Errorf("four points for standing first were seen in %d of %d sessions", primacy, sessions)
			}
		})
	}
}

func TestRiskCountsFlags(t *testing.T) {
	flags := map[string]*bool{"-": nil, "0": new(false), "1": new(true)}
	for pair, want := range map[string]string{
		"- -": "indeterminate", "0 -": "low", "- 0": "low", "0 0": "low",
		"1 -": "medium", "- 1": "medium", "1 0": "medium", "0 1": "medium", "1 1": "medium",
	} {
		length, position, _ := strings.Cut(pair, " ")
		if got := risk(flags[length], flags[position]); got != want {
			t.Errorf("risk with flags %s = %q, want %q", pair, got, want)
		}
	}
}

func BenchmarkAudit(b *testing.B) {
	in := simulated(rand.New(rand.NewPCG(1, 1)), 5)
	b.ReportAllocs()
	for b.Loop() {
		Audit(in)
	}
}

// The references are exact least squares in fractions, with p by numerical
// integration of the beta density.
func TestReviewerEffect(t *testing.T) {
	table := func(cells string) []Score {
		var scores []Score
		for cell := range strings.FieldsSeq(cells) {
			value, err := strconv.ParseFloat(cell[2:], 64)
			if err != nil {
				t.Fatal(err)
			}
			scores = append(scores, Score{Reviewer: cell[:1], Candidate: cell[1:2], Value: value})
		}
		return scores
	}
	tests := []struct {
		name, cells string
		want        *council.ReviewerEffect
	}{
		{
			"own answers hidden", "ab7 ac5 ad9 ba6 bc4 bd7 ca8 cb6 cd9 da5 db5 dc2",
			&council.ReviewerEffect{F: 725. / 69, DF: []int{3, 5}, PValue: 0.013417587792959885},
		},
		{
			"a score is missing", "xa8 xb6 xc7 ya7 yb6 yc4 za5 zb3",
			&council.ReviewerEffect{F: 459. / 58, DF: []int{2, 3}, PValue: 0.06360480344422074},
		},
		{"a complete table", "xa1 xb2 xc3 ya2 yb2 yc5", &council.ReviewerEffect{F: 3, DF: []int{1, 2}, PValue: 0.22540333075852326}},
		{"one reviewer", "xa1 xb2 xc3", nil},
		{"no answer in common", "xa1 xb2 yc3 yd5", nil},
		{"nothing is left to compare with", "xa1 ya2", nil},
		{"no noise", "xa1 xb2 xc3 ya2 yb3 yc4", nil},
		{"no scores", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scores := append(table(tt.cells), Score{Reviewer: "x", Candidate: "x", Own: true, Value: 1})
			got := Audit(AuditInput{Order: council.OrderBalanced, Scores: scores}).ReviewerEffect
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(1e-8, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIndicators(t *testing.T) {
	a := council.BiasAudit{
		PositionScoreVariance: new(0.7), LengthScoreCorrelation: new(0.4), PositionBiasDetected: new(true),
		LengthBiasDetected: new(false),
	}
	want := council.BiasIndicators{
		PositionVariance: new(0.7), LengthCorrelation: new(0.4), ReviewerAgreement: new(0.5),
		Flags: []string{"POSITION_BIAS_DETECTED"},
	}
	if diff := cmp.Diff(want, Indicators(a, new(0.5))); diff != "" {
		t.Error(diff)
	}
	a.LengthBiasDetected, a.PositionBiasDetected = new(true), nil
	if got := Indicators(a, nil); got.ReviewerAgreement != nil || !slices.Equal(got.Flags, []string{"LENGTH_BIAS_DETECTED"}) {
		t.Errorf("%+v", got)
	}
	if got := Indicators(council.BiasAudit{}, nil); got.Flags == nil || len(got.Flags) > 0 {
		t.Errorf("flags of nothing: %v", got.Flags)
	}
}
