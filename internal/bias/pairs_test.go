package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
)

// verdictsOf are the winners of a pair, shown in one order and the reverse: "good", "bad" or "tie".
type verdictsOf [2]string

// judgedPair returns the records of one judge on a pair of answers. In the first order the good one is shown first.
func judgedPair(judge string, block int, truth bool, verdicts verdictsOf) []council.BiasMetricRecord {
	var records []council.BiasMetricRecord
	for order, winner := range verdicts {
		for i, candidate := range []string{"good", "bad"} {
			score := map[string]float64{candidate: 1, "tie": 0.5}[winner]
			r := record(fmt.Sprintf("%d-%d", block, order), now.Add(-time.Duration(block)*time.Minute), judge, candidate, 1)
			r.ScoreValue, r.ScoreScale, r.BlockID = &score, "0-1", new(strconv.Itoa(block))
			r.Position, r.NShown, r.OrderDesign, r.ResponseLengthChars = new(i^order), 2, council.OrderPerReviewer, 100+10*block%70+i
			if truth {
				r.Correct = new(candidate == "good")
			}
			records = append(records, r)
		}
	}
	return records
}

// judgedPairs returns the records of 40 pairs: an accurate judge, one who prefers what it is shown first, one whose
// verdicts are often ties, and one who saw a single order.
func judgedPairs(truth bool) []council.BiasMetricRecord {
	var records []council.BiasMetricRecord
	for block := range 40 {
		add := func(judge string, v verdictsOf) { records = append(records, judgedPair(judge, block, truth, v)...) }
		switch {
		case block < 36:
			add("accurate", verdictsOf{"good", "good"})
		case block < 38:
			add("accurate", verdictsOf{"bad", "bad"})
		case block < 39:
			add("accurate", verdictsOf{"good", "bad"}) // the first one wins
		default:
			add("accurate", verdictsOf{"bad", "good"}) // the last one wins
		}
		if block%2 == 0 {
			add("first", verdictsOf{"good", "bad"})
		} else {
			add("first", verdictsOf{"good", "good"})
		}
		switch block % 4 {
		case 0:
			add("ties", verdictsOf{"tie", "tie"})
		case 1:
			add("ties", verdictsOf{"good", "tie"})
		default:
			add("ties", verdictsOf{"bad", "bad"})
		}
		records = append(records, judgedPair("once", block, truth, verdictsOf{"bad", "bad"})[:2]...)
	}
	return records
}

// TestPairs counts pairs exactly, in both orders, and accuses no accurate judge of favouring the good answer.
func TestPairs(t *testing.T) {
	for _, truth := range []bool{false, true} {
		c := NewCollector(Options{Now: now})
		for _, r := range judgedPairs(truth) {
			c.Add(r)
		}
		r := c.Report(t.Context())
		flat := map[string]Metric{}
		for _, m := range r.Metrics {
			flat[m.Name] = m
			if m.Verdict != nil && *m.Verdict == VerdictFavour && m.Name != "position" {
				t.Errorf("truth %v: %s is %s: %s", truth, m.Name, *m.Verdict, m.Reason)
			}
		}
		for _, name := range []string{"affinity", "length_slope_deviation"} {
			if m := flat[name]; *m.Verdict != VerdictNotIdentified || !strings.Contains(m.Reason, "correct judgement") || m.PointEstimate != nil {
				t.Errorf("truth %v: %s is %s: %s", truth, name, *m.Verdict, m.Reason)
			}
		}
		position := flat["position"]
		if *position.Verdict != VerdictFavour || position.Subject != "first" || math.Abs(*position.PointEstimate-20./42) > 1e-12 || position.Unit != ofPairs {
			t.Errorf("truth %v: position is %+v", truth, position)
		}
		got := map[string][]int{}
		for _, p := range r.Pairs {
			got[p.ReviewerID] = []int{p.Questions, p.Comparisons, p.Agree, p.Primacy, p.Recency, p.PrimacyTies, p.RecencyTies}
			if (p.Accuracy != nil) != truth {
				t.Errorf("truth %v: the accuracy of %s is %+v", truth, p.ReviewerID, p.Accuracy)
			}
		}
		want := map[string][]int{
			"accurate": {40, 40, 38, 1, 1, 0, 0}, "first": {40, 40, 20, 20, 0, 0, 0}, "ties": {40, 40, 30, 0, 0, 10, 0},
		}
		if truth {
			want["once"] = make([]int, 7)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("truth %v (-want +got):\n%s", truth, diff)
		}
		if !truth {
			continue
		}
		for _, p := range r.Pairs {
			a := p.Accuracy
			var shares []float64
			for _, e := range []stat.Estimate{a.Share, a.ShownFirst, a.ShownLast} {
				if e.Value != nil {
					shares = append(shares, *e.Value)
				}
			}
			want := map[string][]float64{
				"accurate": {74. / 80, 37. / 40, 37. / 40}, "first": {60. / 80, 1, 0.5},
				"ties": {25. / 80, 15. / 40, 10. / 40}, "once": {0, 0},
			}[p.ReviewerID]
			if diff := cmp.Diff(want, shares, approx); diff != "" {
				t.Errorf("the accuracy of %s (-want +got):\n%s", p.ReviewerID, diff)
			}
		}
	}
}

// A session with more than two answers makes a council of it, which has no pairs.
func TestPairsTakeTwoAnswers(t *testing.T) {
	c := NewCollector(Options{Now: now})
	for _, r := range judgedPairs(true) {
		c.Add(r)
	}
	c.Add(record("0-0", now, "accurate", "third", 5))
	if r := c.Report(t.Context()); r.Pairs != nil {
		t.Errorf("pairs: %+v", r.Pairs)
	}
}

// TestNoEffectBeyondTheScale reports on small windows that tell little: answers of nearly the same length, few sessions,
// wild scores. Scores are from 1 to 10, so that no effect is larger than 9 points.
func TestNoEffectBeyondTheScale(t *testing.T) {
	testkit.Slow(t)
	rng := rand.New(rand.NewPCG(96, 96))
	number := func(x *float64, most float64) bool { return x != nil && math.Abs(*x) > most+1e-12 }
	var check func(window string, metrics []Metric)
	check = func(window string, metrics []Metric) {
		for _, m := range metrics {
			if !strings.HasPrefix(m.Unit, points) {
				continue
			}
			if number(m.PointEstimate, 9) || number(m.CILower, 9) || number(m.CIUpper, 9) || number(m.MinimumDetectableEffect, 9) {
				t.Errorf("%s: %s %v (%v to %v), finds %v", window, m.Name, *m.PointEstimate, *m.CILower, *m.CIUpper, m.MinimumDetectableEffect)
			}
			check(window, m.Members)
		}
	}
	large := 0
	for window := range 60 {
		sessions, members, apart := 20+rng.IntN(10), 2+window%4, []int{1, 3, 500}[window%3]
		c := NewCollector(Options{Now: now})
		for s := range sessions {
			for i := range members {
				for j := range members {
					r := record(strconv.Itoa(s), now.Add(-time.Duration(s)*time.Hour), fmt.Sprint("m/", i), fmt.Sprint("m/", j), float64(1+rng.IntN(10)))
					r.Position, r.NShown, r.OrderDesign = new((i+j+s)%members), members, council.OrderPerReviewer
					r.ResponseLengthChars, r.Own = 1000+rng.IntN(apart+1), i == j
					c.Add(r)
				}
			}
		}
		r := c.Report(t.Context())
		check(fmt.Sprintf("window %d, %d members", window, members), r.Metrics)
		for _, m := range r.Metrics {
			if m.Reason == tooLittle || m.Reason == beyondScale {
				large++
			}
		}
	}
	if large == 0 {
		t.Error("no window tells too little, so that nothing was tried")
	}
}
