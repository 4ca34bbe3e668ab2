package worth

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Folds are given in the reference values, so that no hash has to agree.
func TestBestMemberVectors(t *testing.T) {
	type interval struct {
		Estimate, Centre, SE float64
		Greater              float64 `json:"p_greater"`
	}
	var vectors struct {
		Cases []struct {
			Name     string
			Members  [][]float64
			Council  []float64
			Fold     []int
			Delta    float64
			Expected struct {
				Picked      [][]int  `json:"picked_by_fold"`
				CrossFitted interval `json:"cross_fitted"`
				Members     []interval
				Pays        float64   `json:"p_pays"`
				Short       []float64 `json:"p_not_delta"`
				ShortHolm   []float64 `json:"p_not_delta_holm"`
				Verdict     Verdict
			}
		}
	}
	body, err := os.ReadFile("testdata/best_member.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Cases) != 4 {
		t.Fatalf("%d cases", len(vectors.Cases))
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want)+1e-12 }
	for _, c := range vectors.Cases {
		plan := Design{Treatment: "council", Margin: c.Delta}
		for i := range c.Members[0] {
			plan.Members = append(plan.Members, fmt.Sprintf("m%d", i))
		}
		fold := map[string]int{}
		questions := make([]Question, len(c.Council))
		for n := range questions {
			q := Question{ID: strconv.Itoa(n), Cluster: strconv.Itoa(n), Score: map[string]float64{"council": c.Council[n]}}
			for i, arm := range plan.Members {
				q.Score[arm] = c.Members[n][i]
			}
			fold[q.Cluster] = c.Fold[n]
			questions[n] = q
		}
		picked, size := crossFit(questions, plan, everything, fold)
		for part, want := range c.Expected.Picked {
			var names []string
			for _, i := range want {
				names = append(names, plan.Members[i])
			}
			if !slices.Equal(picked[part], names) {
				t.Errorf("%s: fold %d picks %v, want %v", c.Name, part, picked[part], names)
			}
		}
		r := Compare(questions, plan)
		all := []*Interval{size}
		for i := range r.Best.Members {
			all = append(all, r.Best.Members[i].Interval)
		}
		most := 0.0
		for i, want := range append([]interval{c.Expected.CrossFitted}, c.Expected.Members...) {
			got := all[i]
			if !near(got.Estimate, want.Estimate) || !near(got.Centre, want.Centre) || !near(got.SE, want.SE) || !near(got.Above(0), want.Greater) {
				t.Errorf("%s: %d is %+v, want %+v", c.Name, i, got, want)
			}
			if i > 0 {
				most = max(most, got.Above(0))
				m := r.Best.Members[i-1]
				if !near(*m.PShort, c.Expected.Short[i-1]) || !near(*m.PShortAdjusted, c.Expected.ShortHolm[i-1]) {
					t.Errorf("%s: %s is short with p %v, %v, want %v, %v", c.Name, m.Arm, *m.PShort, *m.PShortAdjusted,
						c.Expected.Short[i-1], c.Expected.ShortHolm[i-1])
				}
			}
		}
		if !near(most, c.Expected.Pays) || r.Verdict != c.Expected.Verdict {
			t.Errorf("%s: %s with p %v, want %s with %v", c.Name, r.Verdict, most, c.Expected.Verdict, c.Expected.Pays)
		}
	}
}
