package ranking

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestPairwise(t *testing.T) {
	for _, tt := range []struct {
		name      string
		options   Options
		policy    council.PartialPolicy
		preferred string // the numbers of ballots that rank the first above the second
		copeland  map[string]float64
		condorcet *string
	}{
		{name: "no candidates", options: ballots("")},
		{name: "alone", options: ballots("a")},
		{name: "no ballots", options: ballots("a b")},
		{
			// Borda has a first, with 7/5 points to 6/5.
			name:      "Condorcet's winner is not Borda's",
			options:   ballots("c a b", "v: c > a > b", "w: a > b > c", "x: c > a > b", "y: a > b > c", "z: c > a > b"),
			preferred: "a>b 5, a>c 2, b>a 0, b>c 2, c>a 3, c>b 3",
			copeland:  map[string]float64{"a": 1, "b": 0, "c": 2}, condorcet: new("c"),
		},
		{
			name: "circle", options: ballots("a b c", "x: a > b > c", "y: b > c > a", "z: c > a > b"),
			preferred: "a>b 2, a>c 1, b>a 1, b>c 2, c>a 2, c>b 1",
			copeland:  map[string]float64{"a": 1, "b": 1, "c": 1},
		},
		{
			name: "a draw is no win", options: ballots("a b", "x: a > b", "y: b > a", "z: a = b"),
			preferred: "a>b 1, b>a 1",
			copeland:  map[string]float64{"a": 0.5, "b": 0.5},
		},
		{
			name: "available", options: ballots("a b c", "x: b", "y: b > a"),
			preferred: "a>b 0, a>c 0, b>a 1, b>c 0, c>a 0, c>b 0",
			copeland:  map[string]float64{"a": 0.5, "b": 1.5, "c": 1},
		},
		{
			name: "tied last", options: ballots("a b c", "x: b", "y: b > a"), policy: council.PolicyTiedLast,
			preferred: "a>b 0, a>c 1, b>a 2, b>c 2, c>a 0, c>b 0",
			copeland:  map[string]float64{"a": 1, "b": 2, "c": 0}, condorcet: new("b"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Policy = tt.policy
			got := Agree(tt.options, 1)
			var preferred []string
			for _, first := range slices.Sorted(maps.Keys(got.Pairwise)) {
				for _, second := range slices.Sorted(maps.Keys(got.Pairwise[first])) {
					preferred = append(preferred, fmt.Sprintf("%s>%s %d", first, second, got.Pairwise[first][second]))
				}
			}
			if diff := cmp.Diff(tt.preferred, strings.Join(preferred, ", ")); diff != "" {
				t.Errorf("ballots by pair (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.copeland, got.Copeland, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Copeland scores (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.condorcet, got.CondorcetWinner); diff != "" {
				t.Errorf("Condorcet winner (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCopelandScoresAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Agree(generated(t), 1)
		sum, n := 0.0, len(a.Copeland)
		var ahead []string // of all others
		for candidate, score := range a.Copeland {
			sum += score
			if score == float64(n-1) {
				ahead = append(ahead, candidate)
			}
		}
		if sum != float64(n*(n-1))/2 {
			t.Fatalf("the scores of %d candidates add up to %v", n, sum)
		}
		var winner []string
		if a.CondorcetWinner != nil {
			winner = []string{*a.CondorcetWinner}
		}
		if diff := cmp.Diff(ahead, winner); diff != "" {
			t.Fatalf("Condorcet winner with the scores %v (-want +got):\n%s", a.Copeland, diff)
		}
	})
}

func support(o Options, seed int64) []council.Support {
	return newCount(o, o.Policy).winnerSupport(seed)
}

func TestSupport(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    []council.Support
	}{
		{"no ballots", ballots("a b"), []council.Support{}},
		{"one ballot", ballots("a b", "x: b > a"), []council.Support{{Model: "b", Support: 1}, {Model: "a", Support: 0}}},
		{
			"tie", ballots("c b a", "x: b = c > a"),
			[]council.Support{{Model: "b", Support: 0.5}, {Model: "c", Support: 0.5}, {Model: "a", Support: 0}},
		},
		{"two ballots", ballots("a b", "x: a > b", "y: b > a"), []council.Support{{Model: "a", Support: 0.5}, {Model: "b", Support: 0.5}}},
		{
			"three ballots", ballots("a b", "x: a > b", "y: b > a", "z: b > a"),
			[]council.Support{{Model: "b", Support: 20. / 27}, {Model: "a", Support: 7. / 27}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, support(tt.options, 1)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// sequences visits each sequence of ballots that is as long as there are ballots.
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
		if diff := cmp.Diff(want, c.exactSupport(1), exactly); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// With k of 8 votes for b, the share of b is the probability that a binomial variable of
// 8 trials with probability k/8 is above 4, and half of the probability that it is 4.
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
		if diff := cmp.Diff(map[string]float64{"a": 1 - want, "b": want}, shares(support(o, 1))); diff != "" {
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
		for _, share := range c.exactSupport(1) {
			sum.Add(sum, share)
		}
		want := big.NewRat(int64(min(1, len(c.ballots))), 1)
		if sum.Cmp(want) != 0 {
			t.Fatalf("the shares of %d ballots add up to %v", len(c.ballots), sum)
		}
	})
}

// Here up to 71 candidates tie, and the least common multiple of the sizes of the ties is larger than 64 bits
// hold. Each reviewer has favourites of its own, so that those of one reviewer have the same share.
func TestSupportOfManyTies(t *testing.T) {
	var o Options
	sizes := []int{71, 67, 61, 59, 53, 47, 43, 41, 37, 31, 29, 23, 19, 17}
	for r, size := range sizes {
		v := Vote{Reviewer: fmt.Sprint("reviewer ", r), Places: [][]string{nil, nil}}
		for k := range size {
			v.Places[0] = append(v.Places[0], fmt.Sprintf("%d favourite %d", r, k))
		}
		o.Candidates = append(o.Candidates, v.Places[0]...)
		o.Votes = append(o.Votes, v)
	}
	for r := range o.Votes {
		v := &o.Votes[r]
		v.Shown = o.Candidates
		v.Places[1] = slices.DeleteFunc(slices.Clone(o.Candidates), func(c string) bool { return slices.Contains(v.Places[0], c) })
	}
	c := newCount(o, o.Policy)
	sum := new(big.Rat)
	for _, share := range c.exactSupport(1) {
		if share.Sign() <= 0 {
			t.Fatalf("a share is %v", share)
		}
		sum.Add(sum, share)
	}
	if sum.Cmp(big.NewRat(1, 1)) != 0 {
		t.Errorf("the shares add up to %v", sum)
	}
}

// The drawn shares are close to the exact ones, which are counted here for more ballots
// than winnerSupport counts. They depend only on the seed.
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
	got := support(o, 1)
	for _, share := range got {
		want := exact[slices.Index(c.candidates, share.Model)]
		if math.Abs(share.Support-want) > 5*0.5/math.Sqrt(resamples) {
			t.Errorf("%s: %v, want about %v", share.Model, share.Support, want)
		}
	}
	if diff := cmp.Diff(got, support(o, 1)); diff != "" {
		t.Errorf("the same seed:\n%s", diff)
	}
	if cmp.Equal(got, support(o, 2)) {
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
		{
			"firm", ballots("a b", "z: a > b", "x: a > b"),
			[]council.Omission{{Reviewer: "x", Winners: []string{"a"}}, {Reviewer: "z", Winners: []string{"a"}}},
		},
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
			if diff := cmp.Diff(tt.want, newCount(tt.options, tt.options.Policy).leaveOneOut()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The winners without a vote are those of a tally without it.
func TestLeaveOneOutIsTallyWithoutTheVote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		for _, l := range newCount(o, o.Policy).leaveOneOut() {
			rest := o
			rest.Votes = slices.DeleteFunc(slices.Clone(o.Votes), func(v Vote) bool { return v.Reviewer == l.Reviewer })
			want := []string{}
			for _, s := range Tally(rest).Standings {
				if s.FinalRank != nil && *s.FinalRank == 1 {
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
				support(o, 1)
			}
		})
	}
}
