package worth_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/worth"
)

// is reports whether a figure is a reference value, or undefined as it is.
func is(got, want *float64, tolerance float64) bool {
	if got == nil || want == nil {
		return got == want
	}
	return math.Abs(*got-*want) <= tolerance*max(1, math.Abs(*want))
}

func text(v *float64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

func TestSeatsVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Name     string
			Errors   [][]int
			Expected struct {
				CI          *[2]float64 `json:"n_eff_ci95"`
				Accuracy    []*float64
				Phi         [][]*float64
				MeanPhi     *float64   `json:"mean_phi"`
				Varying     int        `json:"seats_that_vary"`
				Effective   *float64   `json:"n_eff"`
				AllWrong    *float64   `json:"all_wrong"`
				Ceiling     *float64   `json:"ceiling"`
				Majority    *float64   `json:"majority"`
				Independent *float64   `json:"majority_if_independent"`
				Gap         *float64   `json:"gap"`
				Without     []*float64 `json:"majority_without"`
			}
		}
	}
	readVectors(t, "seats.json", &vectors)
	if len(vectors.Cases) != 5 {
		t.Fatalf("%d cases", len(vectors.Cases))
	}
	for _, c := range vectors.Cases {
		var questions []worth.SeatQuestion
		for i, errors := range c.Errors {
			q := worth.SeatQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i)}
			for _, e := range errors {
				q.Wrong = append(q.Wrong, e == 1)
			}
			questions = append(questions, q)
		}
		got, want := worth.Seats(questions, len(c.Errors[0])), c.Expected
		check := func(what string, got, want *float64, tolerance float64) {
			t.Helper()
			if !is(got, want, tolerance) {
				t.Errorf("%s: %s is %s, want %s", c.Name, what, text(got), text(want))
			}
		}
		for i := range got.Seats {
			check("accuracy", got.Seats[i].Accuracy, want.Accuracy[i], 1e-9)
			check("majority without", got.Seats[i].MajorityWithout, want.Without[i], 1e-9)
			for j := range got.Seats {
				check(fmt.Sprintf("phi of %d and %d", i, j), got.Phi[i][j], want.Phi[i][j], 1e-9)
			}
		}
		check("mean phi", got.MeanPhi, want.MeanPhi, 1e-9)
		check("effective seats", got.Effective.Value, want.Effective, 1e-9)
		check("all wrong", got.AllWrong, want.AllWrong, 1e-9)
		check("ceiling", got.Ceiling, want.Ceiling, 1e-9)
		check("majority", got.Majority, want.Majority, 1e-9)
		check("if independent", got.Independent, want.Independent, 1e-9)
		check("gap", got.Gap, want.Gap, 1e-9)
		if want.CI == nil {
			want.CI = new([2]float64)
			if got.Effective.Lower != nil || got.Effective.Upper != nil {
				t.Errorf("%s: there is an interval", c.Name)
			}
		} else { // within what the reference's quantile of t is off by
			check("interval", got.Effective.Lower, &want.CI[0], 1e-8)
			check("interval above", got.Effective.Upper, &want.CI[1], 1e-8)
		}
		if got.Varying != want.Varying {
			t.Errorf("%s: %d seats vary, want %d", c.Name, got.Varying, want.Varying)
		}
	}
}

// A seat that decides votes adds to them, and one that only follows adds nothing.
func TestSeatEffects(t *testing.T) {
	var questions []worth.SeatQuestion
	one, none := 1.0, 0.0
	for i := range 60 {
		q := worth.SeatQuestion{
			ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Wrong: []bool{i%3 == 0, i%2 == 0}, Vote: &one,
			VoteWithout: []*float64{&none, &one}, Ranked: &one, RankedWithout: []*float64{&one, nil},
		}
		if i%2 == 0 {
			q.VoteWithout[0] = &one
		}
		questions = append(questions, q)
	}
	r := worth.Seats(questions, 2)
	if e := r.Seats[0].Vote; e.Estimate != 0.5 || e.PAdjusted > 1e-6 || e.PAdjusted <= e.P {
		t.Errorf("the seat that decides: %+v", e)
	}
	if e := r.Seats[1].Vote; e.Estimate != 0 || e.PAdjusted != 1 {
		t.Errorf("the seat that follows: %+v", e)
	}
	if r.Seats[1].Ranked != nil || r.Seats[0].Ranked == nil || *r.Vote != 1 || *r.Ranked != 1 {
		t.Errorf("without recounts: %+v", r.Seats[1].Ranked)
	}
	if r := worth.Seats(nil, 3); r.MeanPhi != nil || r.Majority != nil || len(r.Seats) != 3 {
		t.Errorf("of no question: %+v", r)
	}
	questions[7].Vote = nil
	if r := worth.Seats(questions, 2); r.Vote != nil || r.Seats[0].Vote != nil {
		t.Error("a vote that was not counted everywhere has a mean")
	}
}
