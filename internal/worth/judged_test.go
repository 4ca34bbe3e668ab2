package worth_test

import (
	"strconv"
	"testing"

	"github.com/councild/councild/internal/worth"
)

func TestJudgedVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			First    []float64 `json:"order_council_first"`
			Second   []float64 `json:"order_council_second"`
			Ratio    []float64 `json:"log2_length_ratio"`
			D        []float64 `json:"differences"`
			Unstable int
			Raw      wantInterval
			Equal    map[string]float64 `json:"at_equal_length"`
		}
	}
	readVectors(t, "judged.json", &vectors)
	for _, c := range vectors.Cases {
		var questions []worth.JudgedQuestion
		for i := range c.First {
			questions = append(questions, worth.JudgedQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Against: map[string]worth.JudgedPair{
				"other": {Verdicts: [][2]*float64{{&c.First[i], &c.Second[i]}}, LogLength: c.Ratio[i]},
			}})
		}
		r := worth.CompareJudged(questions, worth.Design{Treatment: "council", Comparators: []string{"other"}, Margin: worth.JudgedMargin})
		got := r.Comparisons[0]
		checkInterval(t, "raw", c.Raw, got.Interval)
		if got.Judged.Unstable != c.Unstable {
			t.Errorf("%d unstable, want %d", got.Judged.Unstable, c.Unstable)
		}
		e := got.Judged.EqualLength
		for what, v := range map[string]float64{
			"estimate": e.Estimate, "per_doubling": e.PerDoubling, "se": e.SE,
		} {
			if !near(v, c.Equal[what]) {
				t.Errorf("%s is %v, want %v", what, v, c.Equal[what])
			}
		}
		// Here too the reference's quantile of t is off by up to 5e-9.
		if d := (e.Lower - c.Equal["lower_one_sided"]) / e.SE; d > 1e-8 || d < -1e-8 {
			t.Errorf("lower is %v, want %v", e.Lower, c.Equal["lower_one_sided"])
		}
		if r.Verdict != worth.Undecided {
			t.Errorf("%s: at equal length the council is not better", r.Verdict)
		}
	}
}

// judgedAs returns questions at which the treatment wins, loses and ties so often, with a ratio of
// lengths that varies around a mean.
func judgedAs(wins, losses, ties int, longer float64) []worth.JudgedQuestion {
	var all []worth.JudgedQuestion
	for i := range wins + losses + ties {
		v := 1.0
		if i >= wins {
			v = 0
		}
		if i >= wins+losses {
			v = 0.5
		}
		ratio := 0.0
		if longer != 0 {
			ratio = longer + float64(i%5-2)/4
		}
		all = append(all, worth.JudgedQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Against: map[string]worth.JudgedPair{
			"other": {Verdicts: [][2]*float64{{&v, &v}}, LogLength: ratio},
		}})
	}
	return all
}

func TestJudged(t *testing.T) {
	plan := worth.Design{Treatment: "council", Comparators: []string{"other"}, Margin: worth.JudgedMargin}
	for _, c := range []struct {
		name      string
		questions []worth.JudgedQuestion
		verdict   worth.Verdict
		reason    worth.UndecidedReason
	}{
		{"clearly better", judgedAs(70, 20, 10, 0), worth.Pays, ""},
		{"better at any length", judgedAs(70, 20, 10, 0.2), worth.Pays, ""},
		{"worse", judgedAs(20, 70, 10, 0), worth.DoesNotPay, ""},
		{"the same", judgedAs(40, 40, 20, 0), worth.Undecided, worth.TooFew},
		{"few", judgedAs(20, 5, 0, 0), worth.Undecided, worth.Insufficient},
	} {
		if r := worth.CompareJudged(c.questions, plan); r.Verdict != c.verdict || r.Reason != c.reason {
			t.Errorf("%s: %s %s, want %s %s", c.name, r.Verdict, r.Reason, c.verdict, c.reason)
		}
	}
	// Texts that are all longer by the same ratio cannot tell length from quality.
	same := judgedAs(70, 20, 10, 0)
	for _, q := range same {
		j := q.Against["other"]
		j.LogLength = 1
		q.Against["other"] = j
	}
	if r := worth.CompareJudged(same, plan); r.Verdict != worth.Undecided {
		t.Errorf("always twice as long: %s", r.Verdict)
	}
	// So many replies are no judgement that they could turn the verdict.
	holes := judgedAs(65, 20, 15, 0)
	for i := range 40 {
		holes[i].Against["other"].Verdicts[0] = [2]*float64{}
	}
	r := worth.CompareJudged(append(holes, judgedAs(30, 0, 0, 0)[:0]...), plan)
	if r.Verdict != worth.Undecided || r.Comparisons[0].Judged.Missing != 80 {
		t.Errorf("missing judgements: %s %s, %d missing", r.Verdict, r.Reason, r.Comparisons[0].Judged.Missing)
	}
}
