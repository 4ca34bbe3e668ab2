package worth_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/worth"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// equal returns n questions at which some of three seats gave the same answer. The first of them have a right answer.
func equal(n, right, alike, perCluster int) []worth.SeatQuestion {
	all := make([]worth.SeatQuestion, n)
	for i := range all {
		all[i] = worth.SeatQuestion{
			Cluster: strconv.Itoa(alike) + " " + strconv.Itoa(i/perCluster), Wrong: make([]bool, 3), Alike: alike, AlikeRight: i < right,
		}
	}
	return all
}

// The right answers are counted apart for each number of seats that agree. A group counts as one question.
func TestEqualAnswers(t *testing.T) {
	questions := append(equal(112, 100, 3, 1), equal(60, 60, 2, 2)...)
	questions = append(questions, equal(5, 0, 0, 1)...) // no seat gave an answer that can be compared
	want := []worth.EqualAnswers{
		{Alike: 3, Seats: 3, Questions: 112, Right: 100, Clusters: 112, Effective: 112, Lower: 0.8321903214},
		{Alike: 2, Seats: 3, Questions: 60, Right: 60, Clusters: 30, Effective: 30, Lower: math.Pow(0.05, 1.0/30)},
	}
	got := worth.Seats(questions, 3).EqualAnswers
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-8)); diff != "" {
		t.Error(diff)
	}
	if got[0].Grouped() || !got[1].Grouped() {
		t.Error("the groups are mistaken")
	}
	if none := worth.Seats(equal(5, 0, 0, 1), 3).EqualAnswers; none != nil {
		t.Errorf("nothing can be compared: %v", none)
	}
	for n, want := range map[int][2]bool{28: {false, false}, 29: {true, false}, 58: {true, false}, 59: {true, true}} {
		e := worth.Seats(equal(n, n, 3, 1), 3).EqualAnswers[0]
		if shown := [2]bool{e.Shows(0.10), e.Shows(0.05)}; shown != want || e.Shows(0.10) != (e.Lower > 0.9) || e.Shows(0.05) != (e.Lower > 0.95) {
			t.Errorf("%d questions: %v %v, want %v", n, shown, e.Lower, want)
		}
	}
}

// A report names the arms that the treatment is shown not to beat, but not an arm whose test depends on missing scores.
func TestShort(t *testing.T) {
	var questions []worth.Question
	for i := range 400 {
		right := float64(i % 2)
		q := worth.Question{Cluster: strconv.Itoa(i), Score: map[string]float64{"council": right, "equal": right, "worse": 0, "missing": 1}}
		if right == 0 {
			delete(q.Score, "council")
		} else if i%4 == 1 {
			q.Score["missing"] = 0 // The council beats this arm where it has an answer.
		}
		questions = append(questions, q)
	}
	r := worth.Compare(questions, worth.Design{Treatment: "council", Comparators: []string{"equal", "worse", "missing"}, Margin: 0.05})
	if diff := cmp.Diff([]string{"equal"}, r.Short); diff != "" || r.Verdict != worth.DoesNotPay {
		t.Errorf("%s %s", r.Verdict, diff)
	}
	if c := r.Comparisons[2]; *c.PShortAdjusted >= worth.Level {
		t.Errorf("with missing scores as wrong, the council is not shown to miss the margin: p %v", *c.PShortAdjusted)
	}
	r = worth.Compare(questions, worth.Design{Treatment: "council", Comparators: []string{"worse"}, Members: []string{"worse"}, Margin: 0.05})
	if r.Verdict != worth.Pays || r.Short != nil {
		t.Errorf("%s %v", r.Verdict, r.Short)
	}
	r = worth.Compare(questions[:20], worth.Design{Treatment: "council", Comparators: []string{"equal"}, Margin: 0.05})
	if r.Verdict != worth.Undecided || r.Short != nil {
		t.Errorf("%s %v", r.Verdict, r.Short)
	}
	judged := make([]worth.JudgedQuestion, 200)
	for i := range judged {
		value := float64(i % 2)
		judged[i] = worth.JudgedQuestion{Cluster: strconv.Itoa(i), Against: map[string]worth.JudgedPair{
			"equal": {Verdicts: [][2]*float64{{&value, &value}}}, "better": {Verdicts: [][2]*float64{{new(0.0), new(0.0)}}},
			"unknown": {Verdicts: [][2]*float64{{&value, nil}}},
		}}
	}
	r = worth.CompareJudged(judged, worth.Design{Treatment: "council", Comparators: []string{"equal", "better", "unknown"}, Margin: 0.2})
	if diff := cmp.Diff([]string{"equal", "better"}, r.Short); diff != "" || r.Verdict != worth.DoesNotPay {
		t.Errorf("%s %s", r.Verdict, diff)
	}
}
