package worth_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/worth"
)

func TestNetBenefitVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Value       float64 `json:"value_usd"`
			Council     []float64
			Other       []float64
			CouncilCost []float64          `json:"council_cost"`
			OtherCost   []float64          `json:"other_cost"`
			PerCorrect  map[string]float64 `json:"cost_per_correct"`
			Additional  *float64           `json:"cost_per_additional_correct"`
			Net         wantInterval
		}
	}
	readVectors(t, "net_benefit.json", &vectors)
	for _, c := range vectors.Cases {
		var questions []worth.Question
		for i := range c.Council {
			questions = append(questions, worth.Question{
				ID: strconv.Itoa(i), Cluster: strconv.Itoa(i),
				Score:   map[string]float64{"council": c.Council[i], "other": c.Other[i]},
				CostUSD: map[string]float64{"council": c.CouncilCost[i], "other": c.OtherCost[i]},
			})
		}
		r := worth.Compare(questions, worth.Design{Treatment: "council", Comparators: []string{"other"}, ValueUSD: &c.Value})
		checkInterval(t, "net", c.Net, r.Comparisons[0].Interval)
		if !is(r.Comparisons[0].CostPerAdditionalRight, c.Additional, 1e-9) {
			t.Errorf("an additional answer costs %s, want %s", text(r.Comparisons[0].CostPerAdditionalRight), text(c.Additional))
		}
		for _, arm := range r.Arms {
			want := c.PerCorrect[arm.Arm]
			if e := arm.CostPerRight; !is(e.Value, &want, 1e-9) || e.Lower == nil || *e.Lower >= want || *e.Upper <= want {
				t.Errorf("a right answer of %s costs %s, want %v", arm.Arm, text(e.Value), want)
			}
		}
	}
}

// made returns questions at which arms are right with planted probabilities, independently.
func made(n int, seed uint64, accuracy map[string]float64) []worth.Question {
	rng := rand.New(rand.NewPCG(seed, 0))
	var names []string
	for arm := range accuracy {
		names = append(names, arm)
	}
	slices.Sort(names)
	var all []worth.Question
	for i := range n {
		q := worth.Question{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Score: map[string]float64{}, CostUSD: map[string]float64{}}
		for _, arm := range names {
			q.Score[arm], q.CostUSD[arm] = 0, 0.01
			if rng.Float64() < accuracy[arm] {
				q.Score[arm] = 1
			}
		}
		q.CostUSD["council"] = 0.09
		all = append(all, q)
	}
	return all
}

func TestVerdicts(t *testing.T) {
	plan := worth.Design{Treatment: "council", Comparators: []string{"ranked"}, Members: []string{"a", "b"}, Margin: 0.05}
	cheap, dear := 0.1, 10.0
	better := map[string]float64{"council": 0.9, "a": 0.5, "b": 0.6, "ranked": 0.6}
	for _, c := range []struct {
		name    string
		n       int
		truth   map[string]float64
		value   *float64
		verdict worth.Verdict
		reason  worth.UndecidedReason
	}{
		{"far better", 400, better, nil, worth.Pays, ""},
		{"as good as one of them", 400, map[string]float64{"council": 0.6, "a": 0.5, "b": 0.6, "ranked": 0.8}, nil, worth.DoesNotPay, ""},
		{"too few to tell", 60, map[string]float64{"council": 0.65, "a": 0.6, "b": 0.6, "ranked": 0.6}, nil, worth.Undecided, worth.TooFew},
		{"hardly any", 25, map[string]float64{"council": 1, "a": 0, "b": 0, "ranked": 0}, nil, worth.Undecided, worth.Insufficient},
		{"none", 0, map[string]float64{"council": 1}, nil, worth.Undecided, worth.Insufficient},
		{"a right answer is worth more", 400, better, &dear, worth.Pays, ""},
		{"a right answer is worth less", 400, better, &cheap, worth.DoesNotPay, ""},
	} {
		p := plan
		p.ValueUSD = c.value
		r := worth.Compare(made(c.n, 3, c.truth), p)
		if r.Verdict != c.verdict || r.Reason != c.reason || (r.Needed != nil) != (c.reason == worth.TooFew) {
			t.Errorf("%s: %s %s, needed %v, want %s %s", c.name, r.Verdict, r.Reason, r.Needed, c.verdict, c.reason)
		}
	}
}

// Better than all at thousands of questions, but by less than counts.
func TestShortOfMargin(t *testing.T) {
	var all []worth.Question
	for i := range 4000 {
		q := worth.Question{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Score: map[string]float64{"council": 1, "other": 1}}
		if i%25 == 0 {
			q.Score["other"] = 0
		}
		all = append(all, q)
	}
	plan := worth.Design{Treatment: "council", Comparators: []string{"other"}, Margin: 0.05}
	if r := worth.Compare(all, plan); r.Verdict != worth.DoesNotPay {
		t.Errorf("4 points, and 5 are ruled out: %s %s", r.Verdict, r.Reason)
	}
	if r := worth.Compare(all[:300], plan); r.Verdict != worth.Undecided || r.Reason != worth.ShortOfMargin {
		t.Errorf("4 points of 300 questions: %s %s", r.Verdict, r.Reason)
	}
}

// A verdict that only stands because answers could not be graded is none.
func TestMissing(t *testing.T) {
	questions := made(200, 5, map[string]float64{"council": 0.7, "other": 0.7})
	for i, q := range questions {
		if q.Score["other"] == 1 && q.Score["council"] == 1 && i%3 != 0 {
			delete(q.Score, "other")
		}
	}
	plan := worth.Design{Treatment: "council", Comparators: []string{"other"}, Margin: 0.05}
	r := worth.Compare(questions, plan)
	if r.Verdict != worth.Undecided || r.Reason != worth.DependsOnMissing {
		t.Errorf("%s %s", r.Verdict, r.Reason)
	}
	if r.Arms[0].Arm != "other" || r.Arms[0].Missing == 0 {
		t.Errorf("what is missing is not said: %+v", r.Arms[0])
	}
}

func TestCosts(t *testing.T) {
	questions := made(300, 7, map[string]float64{"council": 0.6, "good": 0.85, "bad": 0.2})
	for _, q := range questions {
		q.CostUSD["good"] = 0.02
	}
	plan := worth.Design{Treatment: "council", Comparators: []string{"good", "bad"}, Margin: 0.05}
	arms := worth.Compare(questions, plan).Arms
	var order []string
	for _, arm := range arms {
		order = append(order, fmt.Sprint(arm.Arm, *arm.Frontier, arm.DominatedBy))
	}
	if want := []string{"badtrue", "goodtrue", "councilfalsegood"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	// A placebo is no choice, however good and cheap.
	placebo := plan
	placebo.Described = []string{"placebo"}
	for _, q := range questions {
		q.Score["placebo"], q.CostUSD["placebo"] = 1, 0.0001
	}
	for _, arm := range worth.Compare(questions, placebo).Arms {
		if isPlacebo := arm.Arm == "placebo"; isPlacebo != (arm.Frontier == nil) || arm.DominatedBy == "placebo" {
			t.Errorf("beside a placebo: %+v", arm)
		}
	}
	delete(questions[11].CostUSD, "good")
	value := 1.0
	plan.ValueUSD = &value
	r := worth.Compare(questions, plan)
	last := r.Arms[2]
	if r.Verdict != worth.Undecided || r.Reason != worth.CostUnknown || last.Arm != "good" || last.CostUSD != nil || last.Frontier != nil {
		t.Errorf("with a cost that nobody knows: %s %s, %+v", r.Verdict, r.Reason, r.Arms)
	}
	for _, c := range r.Comparisons {
		if (c.CostPerAdditionalRight == nil) != (c.Arm == "good") {
			t.Errorf("an additional right answer over %s costs %s", c.Arm, text(c.CostPerAdditionalRight))
		}
	}
}

// A cost that nobody knows is not 0: no difference in money rests on it. A difference that does not take it stands, and
// what is only described takes no verdict away.
func TestUnknownCosts(t *testing.T) {
	value := 1.0
	plan := worth.Design{
		Treatment: "council", Comparators: []string{"vote"}, Members: []string{"small", "large"}, Described: []string{"placebo"},
		ValueUSD: &value,
	}
	for _, c := range []struct {
		arm                          string
		reason                       worth.UndecidedReason
		vote, small, size, described bool // have a difference
	}{
		{"", "", true, true, true, true},
		{"vote", worth.CostUnknown, false, true, true, true},
		{"large", worth.CostUnknown, true, true, false, true},
		{"council", worth.CostUnknown, false, false, false, false},
		{"placebo", "", true, true, true, false},
	} {
		questions := made(60, 5, map[string]float64{"council": 1, "vote": 0.4, "small": 0.4, "large": 0.3, "placebo": 1})
		delete(questions[11].CostUSD, c.arm)
		r := worth.Compare(questions, plan)
		if r.Reason != c.reason || (r.Verdict == worth.Pays) != (c.reason == "") {
			t.Errorf("a cost of %q is unknown: %s %s, want %s", c.arm, r.Verdict, r.Reason, c.reason)
		}
		for _, one := range []struct {
			what string
			has  bool
			want bool
		}{
			{"vote", r.Comparisons[0].Interval != nil, c.vote},
			{"a p of vote", r.Comparisons[0].P != nil || r.Comparisons[0].PShort != nil, c.vote},
			{"small", r.Best.Members[0].Interval != nil, c.small},
			{"the best", r.Best.Size != nil, c.size},
			{"members that were picked", len(r.Best.Picked) > 0, c.size},
			{"placebo", r.Described[0].Interval != nil, c.described},
		} {
			if one.has != one.want {
				t.Errorf("a cost of %q is unknown, and there is a figure of %s: %t, want %t", c.arm, one.what, one.has, one.want)
			}
		}
	}
}

// In worlds where the council is no better than its best member it seldom pays: at most 5 % of them,
// and three standard errors. lab/validate prints the table of many more.
func TestNullVerdicts(t *testing.T) {
	testkit.Slow(t)
	sets := 200
	plan := worth.Design{Treatment: "council", Members: []string{"a", "b", "c", "d"}, Comparators: []string{"ranked"}, Margin: 0.05}
	pays := 0
	for n := range sets {
		truth := map[string]float64{"council": 0.7, "a": 0.7, "b": 0.7, "c": 0.7, "d": 0.7, "ranked": 0.7}
		if worth.Compare(made(100, uint64(n), truth), plan).Verdict == worth.Pays {
			pays++
		}
	}
	if most := 0.05*float64(sets) + 3*math.Sqrt(0.05*0.95*float64(sets)); float64(pays) > most {
		t.Errorf("%d of %d councils that are no better pay", pays, sets)
	}
}

// Whatever the order of the questions, the report is the same but for rounding.
func TestFoldsDoNotDependOnOrder(t *testing.T) {
	plan := worth.Design{Treatment: "council", Members: []string{"a", "b"}, Margin: 0.05, Seed: 9}
	questions := made(90, 1, map[string]float64{"council": 0.7, "a": 0.5, "b": 0.5})
	first := worth.Compare(questions, plan)
	slices.Reverse(questions)
	second := worth.Compare(questions, plan)
	if !near(first.Best.Size.Estimate, second.Best.Size.Estimate) || !near(first.Best.Size.SE, second.Best.Size.SE) {
		t.Errorf("%+v and %+v", first.Best.Size, second.Best.Size)
	}
}
