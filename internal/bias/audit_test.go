package bias

import (
	"encoding/json"
	"flag"
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
	seedThresholds = council.AuditThresholds{LengthCorrelation: 0.3, PositionVariance: 0.5}
	// approx compares figures that were worked out on paper.
	approx = cmpopts.EquateApprox(0, 1e-9)
)

// threeMembers is a session in which every member reviews the other two, each
// answer standing once in each position.
func threeMembers() AuditInput {
	return AuditInput{
		Order: council.OrderBalanced, Thresholds: seedThresholds,
		Chars: map[string]int{"a": 100, "b": 200, "c": 300},
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
		NotJudged: map[string]string{
			"length": "fewer than five answers were scored",
			"position": "there are too few possible orders of the answers: " +
				"even the most extreme order could not be significant",
		},
		ReviewerMeanScores:    map[string]float64{"a": 7, "b": 7, "c": 6.5},
		ReviewerScoreVariance: map[string]float64{"a": 1, "b": 2, "c": 0.5},
		HarshReviewers:        []string{"c"},
		GenerousReviewers:     []string{},
		ReviewerEffect:        &council.ReviewerEffect{F: 4, DF: []int{2, 1}, PValue: 1. / 3},
		OverallBiasRisk:       "indeterminate",
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
	// That own answers were shown tells which orders could have been drawn.
	orders := cmpopts.IgnoreFields(council.BiasAudit{}, "PositionPValue", "PositionBiasDetected", "NotJudged")
	if diff := cmp.Diff(Audit(threeMembers()), Audit(in), orders); diff != "" {
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
		{"three members", func(*AuditInput) {}, new(1. / 36), nil, "indeterminate"}, // six orders
		{"shared order", func(in *AuditInput) { in.Order = council.OrderShared }, nil, nil, "indeterminate"},
		{"independent orders", func(in *AuditInput) { in.Order = council.OrderPerReviewer }, new(1. / 36), nil, "indeterminate"},
		{"one reviewer", func(in *AuditInput) { in.Scores = in.Scores[:2] }, nil, nil, "indeterminate"},
		{"one position", func(in *AuditInput) {
			in.Scores = slices.DeleteFunc(in.Scores, func(s Score) bool { return s.Position == 1 })
		}, nil, nil, "indeterminate"},
		{"nine members", func(in *AuditInput) { *in = firstPlace(0) }, nil, no, "low"},
		{"nine members, and the first place gets three points", func(in *AuditInput) { *in = firstPlace(3) }, nil, yes, "medium"},
		{"the same under the threshold", func(in *AuditInput) {
			*in = firstPlace(3)
			in.Thresholds.PositionVariance = 10
		}, nil, no, "low"},
		{"the same, and a ballot is missing", func(in *AuditInput) {
			*in = firstPlace(3)
			in.Scores = in.Scores[8:]
		}, nil, yes, "medium"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := threeMembers()
			tc.mutate(&in)
			got := Audit(in)
			if tc.variance == nil && tc.detected != nil { // not worked out on paper
				tc.variance = got.PositionScoreVariance
			}
			if (got.NotJudged[factorPosition] == "") != (tc.detected != nil) || (got.PositionPValue == nil) != (tc.detected == nil) {
				t.Errorf("not judged: %q, p %v", got.NotJudged[factorPosition], got.PositionPValue)
			}
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

// firstPlace is a session of nine members that all see each other's answers, in orders as they are drawn. The first place
// gets points of its own, and each reviewer's scores of equal answers differ a little.
func firstPlace(points float64) AuditInput {
	const n = 9
	in := AuditInput{Order: council.OrderBalanced, Thresholds: seedThresholds, Chars: map[string]int{}, Shown: map[string][]string{}}
	random := rand.New(rand.NewPCG(9, 9))
	for i := range n {
		reviewer := strconv.Itoa(i)
		in.Chars[reviewer] = 100 + 10*(i*i%7)
		for p := range n - 1 {
			candidate := strconv.Itoa((i + 1 + p) % n)
			in.Shown[reviewer] = append(in.Shown[reviewer], candidate)
			value := 6 + 0.3*random.NormFloat64()
			if p == 0 {
				value += points
			}
			in.Scores = append(in.Scores, Score{Reviewer: reviewer, Candidate: candidate, Position: p, Value: value})
		}
	}
	return in
}

// An answer without a score, and two scores at one place, are no reason to fail: records may hold both.
func TestAuditOfGaps(t *testing.T) {
	in := firstPlace(0)
	in.Shown = nil
	unscored := slices.DeleteFunc(slices.Clone(in.Scores), func(s Score) bool { return s.Candidate == "4" || s.Candidate == "5" })
	if a := Audit(AuditInput{Order: in.Order, Thresholds: in.Thresholds, Chars: in.Chars, Scores: unscored}); a.SampleSizes.Scores != 56 {
		t.Errorf("%+v", a.SampleSizes)
	}
	in.Scores[1].Position = in.Scores[0].Position
	in.Scores = append(in.Scores,
		Score{Reviewer: "8", Candidate: "x", Position: 3, Value: 5}, Score{Reviewer: "8", Candidate: "y", Position: 3, Value: 5})
	if a := Audit(in); a.SampleSizes.Scores != 74 {
		t.Errorf("%+v", a.SampleSizes)
	}
}

// onOneSlate is a session under a shared order: one reviewer scores n answers,
// each one word and, to begin with, one point better than the one before.
func onOneSlate(n int) AuditInput {
	in := AuditInput{Order: council.OrderShared, Thresholds: seedThresholds, Chars: map[string]int{}}
	for j := range n {
		candidate := fmt.Sprintf("m%02d", j)
		in.Chars[candidate] = j + 1
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
		{"four answers", 4, func(*AuditInput) {}, new(1.), new(0.), nil, "indeterminate"},
		{"five answers", 5, func(*AuditInput) {}, new(1.), new(0.), yes, "indeterminate"},
		{"the longer the worse", 10, func(in *AuditInput) {
			for i := range in.Scores {
				in.Scores[i].Value = 10 - in.Scores[i].Value
			}
		}, new(-1.), new(0.), yes, "indeterminate"},
		{"under the threshold", 10, func(in *AuditInput) { in.Thresholds.LengthCorrelation = 1 }, new(1.), new(0.), no, "indeterminate"},
		{"an answer of unknown length", 5, func(in *AuditInput) { delete(in.Chars, "m03") }, new(1.), new(0.), nil, "indeterminate"},
		{"an answer without a score", 5, func(in *AuditInput) { in.Scores = in.Scores[1:] }, new(1.), new(0.), nil, "indeterminate"},
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
			for candidate := range in.Chars {
				in.Chars[candidate] = 250
			}
		}, nil, nil, nil, "indeterminate"},
		// Up five points and down again: r = 0.
		{"no correlation", 10, func(in *AuditInput) {
			for i := range in.Scores {
				in.Scores[i].Value = float64(min(i, 9-i))
			}
		}, new(0.), new(1.), no, "indeterminate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := onOneSlate(tc.answers)
			tc.mutate(&in)
			got := Audit(in)
			want := council.BiasAudit{
				LengthScoreCorrelation: tc.r, LengthScorePValue: tc.p, LengthAssociation: tc.detected,
				OverallBiasRisk: tc.risk,
			}
			only := council.BiasAudit{
				LengthScoreCorrelation: got.LengthScoreCorrelation, LengthScorePValue: got.LengthScorePValue,
				LengthAssociation: got.LengthAssociation, OverallBiasRisk: got.OverallBiasRisk,
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
	want := `{"length_score_correlation":null,"length_score_ci_lower":null,"length_score_ci_upper":null,"length_score_p_value":null,"length_association":null,` +
		`"position_score_variance":null,"position_p_value":null,"position_bias_detected":null,"reviewer_mean_scores":{},"reviewer_score_variance":{},` +
		`"harsh_reviewers":[],"generous_reviewers":[],"reviewer_effect":null,"not_judged":{"length":"fewer than five answers were scored",` +
		`"position":"the test needs two reviewers that scored two answers"},"overall_bias_risk":"indeterminate",` +
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
func simulated(rng *rand.Rand, n int) AuditInput { return innocent(rng, n, 0.8) }

// innocent is simulated with another noise.
func innocent(rng *rand.Rand, n int, noise float64) AuditInput {
	in := AuditInput{Order: council.OrderBalanced, Thresholds: seedThresholds, Chars: map[string]int{}}
	quality := make([]float64, n)
	for j := range n {
		quality[j] = 6.5 + rng.NormFloat64()
		in.Chars[strconv.Itoa(j)] = int(math.Exp(6 + 0.4*rng.NormFloat64()))
	}
	for i := range n {
		mood := 0.3 * rng.NormFloat64()
		for p := range n - 1 {
			j := (i + 1 + p) % n
			in.Scores = append(in.Scores, Score{
				Reviewer: strconv.Itoa(i), Candidate: strconv.Itoa(j), Position: p,
				Value: max(1, min(10, math.Round(quality[j]+mood+noise*rng.NormFloat64()))),
			})
		}
	}
	return in
}

var auditSessions = flag.Int("audit", 2000, "sessions for each figure of TestAuditFalsePositives; 20000 make a trial")

// Without any bias each flag is up in at most 6 % of sessions, whatever the noise. Scores that go by length, and four points
// for standing first, are found. The log has all figures.
func TestAuditFalsePositives(t *testing.T) {
	t.Parallel()
	sessions := *auditSessions
	for _, members := range []int{3, 4, 5, 9} {
		for _, noise := range []float64{0.7, 1.0, 1.5} {
			t.Run(fmt.Sprintf("%d members, noise %g", members, noise), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(15, uint64(members)))
				up := func(flag *bool) bool { return flag != nil && *flag }
				var length, position, judged, long, above, found, primacy int
				for k := range sessions {
					in := innocent(rng, members, noise)
					a := Audit(in)
					if up(a.LengthAssociation) {
						length++
					}
					if up(a.PositionBiasDetected) {
						position++
					}
					if a.PositionBiasDetected != nil {
						judged++
					}
					if k%4 > 0 {
						continue
					}
					for i, s := range in.Scores {
						in.Scores[i].Value = 6 + 3*math.Log(float64(in.Chars[s.Candidate])/400) + 0.5*rng.NormFloat64()
					}
					planted := Audit(in)
					if up(planted.LengthAssociation) {
						long++
					}
					if *planted.LengthScoreCorrelation > 0.9 {
						above++
						if up(planted.LengthAssociation) {
							found++
						}
					}
					for i, s := range in.Scores {
						if s.Position == 0 {
							in.Scores[i].Value += 4
						}
					}
					if up(Audit(in).PositionBiasDetected) {
						primacy++
					}
				}
				percent := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
				t.Logf("innocent: length %.1f %%, position %.1f %% (judged in %.1f %%). Planted: length %.1f %%, of %d sessions with r > .9 %.1f %%; "+
					"first place %.1f %%", percent(length, sessions), percent(position, sessions), percent(judged, sessions), percent(long, sessions/4),
					above, percent(found, above), percent(primacy, sessions/4))
				if length > sessions*6/100 || position > sessions*6/100 {
					t.Errorf("of %d sessions without bias, %d have the flag of length and %d that of positions", sessions, length, position)
				}
				if members == 9 && found < above*95/100 {
					t.Errorf("of %d sessions whose scores follow length with r > .9, %d were found", above, found)
				}
				if members == 9 && (long < sessions/4*95/100 || primacy < sessions/4*95/100) {
					t.Errorf("of %d sessions that go by length %d were found, and %d of those that go by place", sessions/4, long, primacy)
				}
			})
		}
	}
}

func TestRisk(t *testing.T) {
	flags := map[string]*bool{"-": nil, "0": new(false), "1": new(true)}
	for pair, want := range map[string]string{
		"- -": "indeterminate", "0 -": "indeterminate", "1 -": "indeterminate", "- 0": "indeterminate", "0 0": "low", "1 0": "low",
		"- 1": "medium", "0 1": "medium", "1 1": "medium",
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
		LengthAssociation: new(false),
	}
	want := council.BiasIndicators{
		PositionVariance: new(0.7), LengthCorrelation: new(0.4), ReviewerAgreement: new(0.5),
		Flags: []string{"POSITION_BIAS_DETECTED"},
	}
	if diff := cmp.Diff(want, Indicators(a, new(0.5))); diff != "" {
		t.Error(diff)
	}
	a.LengthAssociation, a.PositionBiasDetected = new(true), nil
	if got := Indicators(a, nil); got.ReviewerAgreement != nil || !slices.Equal(got.Flags, []string{"LENGTH_ASSOCIATION"}) {
		t.Errorf("%+v", got)
	}
	if got := Indicators(council.BiasAudit{}, nil); got.Flags == nil || len(got.Flags) > 0 {
		t.Errorf("flags of nothing: %v", got.Flags)
	}
}
