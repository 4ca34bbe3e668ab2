package ranking

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPairs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		policy  council.PartialPolicy
		want    Pairwise
	}{
		{
			name: "no candidates", options: ballots(""),
			want: Pairwise{Preferred: [][]int{}, Copeland: []float64{}},
		},
		{
			name: "alone", options: ballots("a"),
			want: Pairwise{Candidates: []string{"a"}, Preferred: [][]int{{0}}, Copeland: []float64{0}},
		},
		{
			// Borda has a first, with 7/5 points to 6/5.
			name:    "Condorcet's winner is not Borda's",
			options: ballots("c a b", "v: c > a > b", "w: a > b > c", "x: c > a > b", "y: a > b > c", "z: c > a > b"),
			want: Pairwise{
				Candidates: []string{"a", "b", "c"},
				Preferred:  [][]int{{0, 5, 2}, {0, 0, 2}, {3, 3, 0}},
				Copeland:   []float64{1, 0, 2}, Condorcet: "c",
			},
		},
		{
			name: "circle", options: ballots("a b c", "x: a > b > c", "y: b > c > a", "z: c > a > b"),
			want: Pairwise{
				Candidates: []string{"a", "b", "c"},
				Preferred:  [][]int{{0, 2, 1}, {1, 0, 2}, {2, 1, 0}},
				Copeland:   []float64{1, 1, 1},
			},
		},
		{
			name: "a draw is no win", options: ballots("a b", "x: a > b", "y: b > a", "z: a = b"),
			want: Pairwise{Candidates: []string{"a", "b"}, Preferred: [][]int{{0, 1}, {1, 0}}, Copeland: []float64{0.5, 0.5}},
		},
		{
			name: "available", options: ballots("a b c", "x: b", "y: b > a"),
			want: Pairwise{Candidates: []string{"a", "b", "c"}, Preferred: [][]int{{0, 0, 0}, {1, 0, 0}, {0, 0, 0}}, Copeland: []float64{0.5, 1.5, 1}},
		},
		{
			name: "tied last", options: ballots("a b c", "x: b", "y: b > a"), policy: council.PolicyTiedLast,
			want: Pairwise{
				Candidates: []string{"a", "b", "c"},
				Preferred:  [][]int{{0, 0, 1}, {2, 0, 2}, {0, 0, 0}},
				Copeland:   []float64{1, 2, 0}, Condorcet: "b",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Policy = tt.policy
			if diff := cmp.Diff(tt.want, Pairs(tt.options)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCopelandScoresAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Pairs(generated(t))
		sum, n := 0.0, len(p.Candidates)
		for _, score := range p.Copeland {
			sum += score
		}
		if sum != float64(n*(n-1))/2 {
			t.Fatalf("the scores of %d candidates add up to %v", n, sum)
		}
		if i := slices.Index(p.Copeland, float64(n-1)); n > 1 && (i >= 0) != (p.Condorcet != "") || p.Condorcet != "" && p.Condorcet != p.Candidates[i] {
			t.Fatalf("Condorcet winner %q with the scores %v", p.Condorcet, p.Copeland)
		}
	})
}

func TestSupport(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    []council.Support
	}{
		{"no ballots", ballots("a b"), []council.Support{}},
		{"one ballot", ballots("a b", "x: b > a"), []council.Support{{Model: "b", Support: 1}, {Model: "a", Support: 0}}},
		{"tie", ballots("c b a", "x: b = c > a"), []council.Support{{Model: "b", Support: 0.5}, {Model: "c", Support: 0.5}, {Model: "a", Support: 0}}},
		{"two ballots", ballots("a b", "x: a > b", "y: b > a"), []council.Support{{Model: "a", Support: 0.5}, {Model: "b", Support: 0.5}}},
		{"three ballots", ballots("a b", "x: a > b", "y: b > a", "z: b > a"), []council.Support{{Model: "b", Support: 20. / 27}, {Model: "a", Support: 7. / 27}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Support(tt.options, 1)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// sequences visits each sequence of as many ballots as there are, one by one.
func (c count) sequences(visit func(sum []mark, weight int64)) {
	sum := make([]mark, len(c.candidates))
	var next func(left int)
	next = func(left int) {
		if left == 0 {
			visit(sum, 1)
			return
		}
		for _, b := range c.ballots {
			add(sum, b, 1)
			next(left - 1)
			add(sum, b, -1)
		}
	}
	next(len(c.ballots))
}

func TestSupportCountsEachResample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		o.Votes = o.Votes[:min(4, len(o.Votes))]
		c := newCount(o, o.Policy)
		if len(c.ballots) == 0 {
			return
		}
		want := make([]*big.Rat, len(c.candidates))
		for j := range want {
			want[j] = new(big.Rat)
		}
		total := int64(math.Pow(float64(len(c.ballots)), float64(len(c.ballots))))
		c.sequences(func(sum []mark, _ int64) {
			first := winners(nil, sum)
			for _, j := range first {
				want[j].Add(want[j], big.NewRat(1, total*int64(len(first))))
			}
		})
		if diff := cmp.Diff(want, c.support(1), exactly); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// With k of 8 votes for b, b has the majority of a resample as often as a binomial
// variable with the chance k/8 is above 4, and half of the times that it is 4.
func TestSupportIsExactForEightBallots(t *testing.T) {
	for k := range int64(9) {
		o := Options{Candidates: []string{"a", "b"}}
		for r := range int64(8) {
			v := Vote{Reviewer: fmt.Sprint("reviewer ", r), Shown: o.Candidates, Places: [][]string{{"a"}, {"b"}}}
			if r < k {
				v.Places = [][]string{{"b"}, {"a"}}
			}
			o.Votes = append(o.Votes, v)
		}
		twice := int64(0)
		for b := int64(4); b <= 8; b++ {
			ways := new(big.Int).Binomial(8, b).Int64() * power(k, b) * power(8-k, 8-b)
			twice += ways * min(b-3, 2)
		}
		want, _ := big.NewRat(twice, 2*power(8, 8)).Float64()
		if diff := cmp.Diff(map[string]float64{"a": 1 - want, "b": want}, shares(Support(o, 1))); diff != "" {
			t.Errorf("%d votes for b (-want +got):\n%s", k, diff)
		}
	}
}

func power(base, exponent int64) int64 {
	p := int64(1)
	for range exponent {
		p *= base
	}
	return p
}

func shares(list []council.Support) map[string]float64 {
	m := map[string]float64{}
	for _, s := range list {
		m[s.Model] = s.Support
	}
	return m
}

func TestSupportAddsUpToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		// Doubled, the votes may be more than are counted exactly.
		if rapid.Bool().Draw(t, "doubled") {
			for _, v := range slices.Clone(o.Votes) {
				o.Votes = append(o.Votes, Vote{Reviewer: "second " + v.Reviewer, Shown: v.Shown, Places: v.Places})
			}
		}
		c := newCount(o, o.Policy)
		sum := new(big.Rat)
		for _, share := range c.support(1) {
			sum.Add(sum, share)
		}
		want := big.NewRat(int64(min(1, len(c.ballots))), 1)
		if sum.Cmp(want) != 0 {
			t.Fatalf("the shares of %d ballots add up to %v", len(c.ballots), sum)
		}
	})
}

// The draws come near the exact shares, which are counted here for more ballots
// than Support would count, and depend on the seed alone.
func TestSupportDrawsBeyondEightBallots(t *testing.T) {
	o := full(9)
	for i := range o.Votes { // agreement on m0 by some
		if i%2 == 1 {
			at := slices.IndexFunc(o.Votes[i].Places, func(place []string) bool { return place[0] == "m0" })
			places := slices.Delete(slices.Clone(o.Votes[i].Places), at, at+1)
			o.Votes[i].Places = slices.Insert(places, 0, []string{"m0"})
		}
	}
	c := newCount(o, council.PolicyAvailable)
	exact := make([]float64, len(c.candidates))
	c.multisets(func(sum []mark, weight int64) {
		first := winners(nil, sum)
		for _, j := range first {
			exact[j] += float64(weight) / float64(len(first)) / math.Pow(9, 9)
		}
	})
	got := Support(o, 1)
	for _, share := range got {
		want := exact[slices.Index(c.candidates, share.Model)]
		if math.Abs(share.Support-want) > 5*0.5/math.Sqrt(resamples) {
			t.Errorf("%s: %v, want about %v", share.Model, share.Support, want)
		}
	}
	if diff := cmp.Diff(got, Support(o, 1)); diff != "" {
		t.Errorf("the same seed:\n%s", diff)
	}
	if cmp.Equal(got, Support(o, 2)) {
		t.Error("another seed draws the same")
	}
}

func TestLeaveOneOut(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    []council.Omission
	}{
		{"no ballots", ballots("a b"), []council.Omission{}},
		{"one ballot", ballots("a b", "x: a > b"), []council.Omission{{Reviewer: "x", Winners: []string{}, Changes: true}}},
		{"firm", ballots("a b", "z: a > b", "x: a > b"), []council.Omission{{Reviewer: "x", Winners: []string{"a"}}, {Reviewer: "z", Winners: []string{"a"}}}},
		{"tie", ballots("b a", "x: a > b", "y: b > a"), []council.Omission{
			{Reviewer: "x", Winners: []string{"b"}, Changes: true},
			{Reviewer: "y", Winners: []string{"a"}, Changes: true},
		}},
		{"broken tie", ballots("b a", "x: a > b", "y: b > a", "z: a > b"), []council.Omission{
			{Reviewer: "x", Winners: []string{"a", "b"}, Changes: true},
			{Reviewer: "y", Winners: []string{"a"}},
			{Reviewer: "z", Winners: []string{"a", "b"}, Changes: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, LeaveOneOut(tt.options)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Leaving a vote out is tallying without it.
func TestLeaveOneOutIsTallyWithoutTheVote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		for _, l := range LeaveOneOut(o) {
			rest := o
			rest.Votes = slices.DeleteFunc(slices.Clone(o.Votes), func(v Vote) bool { return v.Reviewer == l.Reviewer })
			want := []string{}
			for _, s := range Tally(rest).Standings {
				if s.FinalRank == 1 && s.VoteCount > 0 {
					want = append(want, s.Model)
				}
			}
			if diff := cmp.Diff(want, l.Winners); diff != "" {
				t.Fatalf("without %s (-want +got):\n%s", l.Reviewer, diff)
			}
		}
	})
}

func BenchmarkSupport(b *testing.B) {
	for _, n := range []int{4, 8, 12} {
		b.Run(fmt.Sprintf("%dx%d", n, n), func(b *testing.B) {
			o := full(n)
			b.ReportAllocs()
			for b.Loop() {
				Support(o, 1)
			}
		})
	}
}
