package ranking

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

// ballots makes options from lines such as "a: b > c = d" over the candidates in words.
// Every reviewer is shown all answers but its own.
func ballots(words string, lines ...string) Options {
	o := Options{Candidates: strings.Fields(words), Asked: map[string]int{}}
	for _, line := range lines {
		reviewer, ranking, _ := strings.Cut(line, ":")
		v := Vote{Reviewer: reviewer}
		for _, candidate := range o.Candidates {
			if candidate != reviewer {
				v.Shown = append(v.Shown, candidate)
				o.Asked[candidate]++
			}
		}
		for place := range strings.SplitSeq(ranking, ">") {
			v.Places = append(v.Places, strings.Split(strings.ReplaceAll(place, " ", ""), "="))
		}
		o.Votes = append(o.Votes, v)
	}
	return o
}

func TestRankValues(t *testing.T) {
	for _, tt := range []struct {
		name string
		vote Vote
		want map[string]float64
	}{
		{"empty", Vote{Reviewer: "x", Shown: []string{"a", "b"}}, map[string]float64{}},
		{
			"order",
			Vote{Reviewer: "x", Shown: []string{"a", "b", "c"}, Places: [][]string{{"c"}, {"a"}, {"b"}}},
			map[string]float64{"c": 0, "a": 1, "b": 2},
		},
		{"partial", Vote{Reviewer: "x", Shown: []string{"a", "b", "c"}, Places: [][]string{{"c"}}}, map[string]float64{"c": 0}},
		{
			"ties",
			Vote{Reviewer: "x", Shown: []string{"a", "b", "c", "d"}, Places: [][]string{{"a"}, {"b", "c", "d"}}},
			map[string]float64{"a": 0, "b": 2, "c": 2, "d": 2},
		},
		{
			"own closed up",
			Vote{Reviewer: "a", Shown: []string{"a", "b", "c"}, Places: [][]string{{"a"}, {"b"}, {"c"}}},
			map[string]float64{"b": 0, "c": 1},
		},
		{
			"own in a tie",
			Vote{Reviewer: "a", Shown: []string{"a", "b", "c"}, Places: [][]string{{"a", "b"}, {"c"}}},
			map[string]float64{"b": 0, "c": 1},
		},
		{
			"repeated, not shown",
			Vote{Reviewer: "x", Shown: []string{"a", "b"}, Places: [][]string{{"z"}, {"b"}, {"b", "a"}}},
			map[string]float64{"b": 0, "a": 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, RankValues(tt.vote)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTally(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		policy  council.PartialPolicy
		want    string // model rank score votes wins confidence, by standing
		ballots int
		changes bool // PolicyChangesWinner
	}{
		{
			name: "no candidates", options: ballots(""),
		},
		{
			name: "no ballots", options: ballots("b a"),
			want: "a - - 0 0 low; b - - 0 0 low",
		},
		{
			name: "two members cannot rank each other", options: ballots("a b", "a: b", "b: a"),
			want: "a - - 0 0 low; b - - 0 0 low",
		},
		{
			name: "two members and a judge", options: ballots("a b", "a: b", "b: a", "x: b > a"),
			want: "b 1 1 1 1 low; a 2 0 1 0 low", ballots: 1,
		},
		{
			name: "ranks none but its own", options: ballots("a b c", "a: a", "b: c > a"),
			want: "c 1 2 1 1 low; a 2 0 1 0 low; b - - 0 0 low", ballots: 1,
		},
		{
			name: "ranks none but its own, tied last", options: ballots("a b c", "a: a", "b: c"), policy: council.PolicyTiedLast,
			want: "c 1 2 1 1 low; a 2 0 1 0 low; b - - 0 0 low", ballots: 1,
		},
		{
			name: "ranks 1, 2, 2, 4", options: ballots("a b c d", "x: d > b = c > a", "y: d > c = b > a"),
			want: "d 1 3 2 2 high; b 2 1.5 2 0 high; c 2 1.5 2 0 high; a 4 0 2 0 high", ballots: 2,
		},
		{
			name: "names by code point", options: ballots("b B ä a Z", "x: b = B = ä = a = Z", "y: b = B = ä = a = Z"),
			want: "B 1 2 2 0.4 high; Z 1 2 2 0.4 high; a 1 2 2 0.4 high; b 1 2 2 0.4 high; ä 1 2 2 0.4 high", ballots: 2,
		},
		{
			name: "vote coverage", options: ballots("a b c", "v: a > b > c", "w: a > b > c", "x: a > b > c", "y: a > b", "z: a"),
			want: "a 1 2 5 5 high; b 2 1 4 0 high; c 3 0 3 0 medium", ballots: 5,
		},
		{
			name: "vote coverage at one half", options: ballots("a b c", "v: a", "w: a > b", "x: a", "y: b > a > c"),
			want: "a 1 1.75 4 3 high; b 2 1.5 2 1 medium; c 3 0 1 0 low", ballots: 4,
		},
		{
			name: "partial ballots", options: ballots("a b c", "x: c", "y: a > b > c", "z: a > b > c"),
			want: "a 1 2 2 2 medium; b 2 1 2 0 medium; c 3 0.667 3 1 high", ballots: 3,
		},
		{
			name: "partial ballots that leave out different ones", options: ballots("a b c", "x: a > b > c", "y: b > c", "z: b > a"),
			want: "b 1 1.667 3 2 high; a 2 1.5 2 1 medium; c 3 0.5 2 0 medium", ballots: 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Policy = tt.policy
			got := Tally(tt.options)
			lines := make([]string, 0, len(got.Standings))
			for _, s := range got.Standings {
				rank, score := "-", "-"
				if s.FinalRank != nil {
					rank, score = strconv.Itoa(*s.FinalRank), strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", *s.BordaScore), "0"), ".")
				}
				lines = append(lines, fmt.Sprintf("%s %s %s %d %g %s", s.Model, rank, score, s.VoteCount, s.WinCount, s.VoteCoverage))
			}
			if diff := gocmp.Diff(tt.want, strings.Join(lines, "; ")); diff != "" {
				t.Errorf("standings (-want +got):\n%s", diff)
			}
			if got.PolicyChangesWinner != tt.changes {
				t.Errorf("policy changes winner: %v, want %v", got.PolicyChangesWinner, tt.changes)
			}
			if ballots := Agree(tt.options, 1).Ballots; ballots != tt.ballots {
				t.Errorf("%d ballots counted, want %d", ballots, tt.ballots)
			}
		})
	}
}

// Only under council.PolicyAvailable, a candidate that few ballots rank can win by its mean.
func TestPolicyChangesWinner(t *testing.T) {
	o := ballots("a b c", "x: a > b", "y: a > b", "z: c > a > b")
	for _, tt := range []struct {
		policy council.PartialPolicy
		winner string
	}{{"", "c"}, {council.PolicyAvailable, "c"}, {council.PolicyTiedLast, "a"}} {
		o.Policy = tt.policy
		got := Tally(o)
		if got.Standings[0].Model != tt.winner || !got.PolicyChangesWinner {
			t.Errorf("%q: %+v", tt.policy, got)
		}
	}
}

func kendallW(o Options) *float64 { return newCount(o, council.PolicyAvailable).kendallW() }

func TestKendallW(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options Options
		want    *float64
	}{
		{"no ballots", ballots("a b c"), nil},
		{"one ballot", ballots("a b c", "x: a > b > c"), nil},
		{"one complete ballot", ballots("a b c", "x: a > b > c", "y: a > b"), nil},
		{"every ballot one tie", ballots("a b c", "x: a = b = c", "y: a = b = c"), nil},
		{"one ballot one tie", ballots("a b c", "x: a = b = c", "y: a > b > c"), new(0.5)},
		{"agreement", ballots("a b c", "x: a > b > c", "y: a > b > c"), new(1.0)},
		{"disagreement", ballots("a b", "x: a > b", "y: b > a"), new(0.0)},
		{"agreement of authors", ballots("a b c d", "a: b > c > d", "b: a > c > d", "c: a > b > d", "d: a > b > c"), new(1.0)},
		{"agreement of authors with ties", ballots("a b c d", "a: b > c = d", "b: a > c = d", "c: a > b > d", "d: a > b > c"), new(1.0)},
		{"each of three authors agrees with itself", ballots("a b c", "a: b > c", "b: a > c", "c: a > b"), nil},
		{"circle of three authors", ballots("a b c", "a: b > c", "b: c > a", "c: a > b"), nil},
		{"one of four authors is silent", ballots("a b c d", "a: b > c > d", "b: a > c > d", "c: a > b > d"), nil},
		{"circle", ballots("a b c", "x: a > b > c", "y: b > c > a", "z: c > a > b"), new(0.0)},
		{"two of three authors do not compare a and b", ballots("a b c", "a: b > c", "b: a > c"), nil},
		{"authors and a judge", ballots("a b c", "a: b > c", "b: a > c", "c: a > b", "x: a > b > c"), new(1.0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, kendallW(tt.options)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The coefficient of authors that agree is 1, also with ties.
func TestKendallWOfAgreeingAuthors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 8).Draw(t, "candidates")
		o := Options{Candidates: names("m", n)}
		places := make([][]string, n)
		for _, candidate := range o.Candidates {
			at := rapid.IntRange(0, n-1).Draw(t, candidate)
			places[at] = append(places[at], candidate)
		}
		for _, author := range o.Candidates {
			o.Votes = append(o.Votes, Vote{Reviewer: author, Shown: o.Candidates, Places: places})
		}
		allTie := slices.ContainsFunc(places, func(place []string) bool { return len(place) == n })
		if w := kendallW(o); allTie != (w == nil) || w != nil && *w != 1 {
			t.Fatalf("W = %v", w)
		}
	})
}

// With every author's ballot complete and free of ties, W is Durbin's coefficient,
// computed here from the sums of the ranks.
func TestKendallWIsDurbins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 8).Draw(t, "candidates")
		o := Options{Candidates: names("m", n)}
		ranks := map[string]int{}
		for i, author := range o.Candidates {
			order := rapid.Permutation(slices.Delete(slices.Clone(o.Candidates), i, i+1)).Draw(t, author)
			v := Vote{Reviewer: author, Shown: o.Candidates}
			for p, candidate := range order {
				v.Places = append(v.Places, []string{candidate})
				ranks[candidate] += p + 1
			}
			o.Votes = append(o.Votes, v)
		}
		squares := 0
		for _, r := range ranks {
			squares += 12 * r * r
		}
		// k = r = n-1 candidates on a ballot and ballots on a candidate, each two
		// candidates on n-2 of them.
		want := float64(squares-3*(n-1)*(n-1)*n*n*n) / float64((n-2)*(n-2)*n*(n*n-1))
		if got := kendallW(o); got == nil || math.Abs(*got-want) > 1e-12 {
			t.Fatalf("W = %v, want %v", got, want)
		}
	})
}

func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, i)
	}
	return ids
}

// generated returns any mix of authors and judges. Their ballots may be partial, hold
// ties, repetitions and unknown names, and rank the own answer or not.
func generated(t *rapid.T) Options {
	o := Options{
		Candidates: names("m", rapid.IntRange(0, 7).Draw(t, "candidates")),
		Asked:      map[string]int{},
		Policy:     rapid.SampledFrom([]council.PartialPolicy{"", council.PolicyAvailable, council.PolicyTiedLast}).Draw(t, "policy"),
	}
	reviewers := rapid.SliceOfNDistinct(
		rapid.SampledFrom(append(names("judge", 3), o.Candidates...)), 0, 7, rapid.ID[string],
	).Draw(t, "reviewers")
	for _, reviewer := range reviewers {
		v := Vote{Reviewer: reviewer}
		ownShown := rapid.Bool().Draw(t, "own shown")
		for _, candidate := range o.Candidates {
			if candidate != reviewer {
				o.Asked[candidate]++
			}
			if candidate != reviewer || ownShown {
				v.Shown = append(v.Shown, candidate)
			}
		}
		known := append([]string{"unknown"}, o.Candidates...)
		v.Places = rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(known), 0, 3), 0, 6).Draw(t, "places")
		o.Votes = append(o.Votes, v)
	}
	return o
}

func TestNothingDependsOnTheOrderOfArrival(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		other := o
		other.Votes = rapid.Permutation(o.Votes).Draw(t, "votes")
		other.Candidates = rapid.Permutation(o.Candidates).Draw(t, "order of candidates")
		for name, diff := range map[string]string{
			"Tally": gocmp.Diff(Tally(o), Tally(other)),
			"Agree": gocmp.Diff(Agree(o, 1), Agree(other, 1)),
		} {
			if diff != "" {
				t.Fatalf("%s:\n%s", name, diff)
			}
		}
	})
}

// With other names, in another alphabetical order, only the names change in the result,
// and the order of candidates that share a rank.
func TestNamesChangeNothingButNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		name := map[string]string{}
		for i, other := range rapid.Permutation(names("other", len(o.Candidates))).Draw(t, "names") {
			name[o.Candidates[i]] = other
		}
		rename := func(member string) string { return cmp.Or(name[member], member) }
		renamed := Options{Asked: map[string]int{}, Policy: o.Policy}
		for _, candidate := range o.Candidates {
			renamed.Candidates = append(renamed.Candidates, rename(candidate))
			renamed.Asked[rename(candidate)] = o.Asked[candidate]
		}
		for _, v := range o.Votes {
			r := Vote{Reviewer: rename(v.Reviewer)}
			for _, candidate := range v.Shown {
				r.Shown = append(r.Shown, rename(candidate))
			}
			for _, place := range v.Places {
				tied := make([]string, 0, len(place))
				for _, candidate := range place {
					tied = append(tied, rename(candidate))
				}
				r.Places = append(r.Places, tied)
			}
			renamed.Votes = append(renamed.Votes, r)
		}
		if diff := gocmp.Diff(kendallW(o), kendallW(renamed)); diff != "" {
			t.Fatalf("W (-want +got):\n%s", diff)
		}
		want, got := Tally(o), Tally(renamed)
		standings := map[string]council.Standing{}
		for _, s := range got.Standings {
			standings[s.Model] = s
		}
		for _, s := range want.Standings {
			s.Model = rename(s.Model)
			if diff := gocmp.Diff(s, standings[s.Model]); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
		want.Standings, got.Standings = nil, nil
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		renamedShare := shares(support(renamed, 1))
		for _, s := range support(o, 1) {
			if renamedShare[rename(s.Model)] != s.Support {
				t.Fatalf("support of %s: %v, want %v", s.Model, renamedShare[rename(s.Model)], s.Support)
			}
		}
	})
}

// The place at which a reviewer ranks its own answer does not change the result.
func TestOwnAnswerCannotBeHelped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		moved := o
		moved.Votes = nil
		for _, v := range o.Votes {
			var places [][]string
			for _, place := range v.Places {
				places = append(places, slices.DeleteFunc(slices.Clone(place), func(c string) bool { return c == v.Reviewer }))
			}
			at := rapid.IntRange(0, len(places)).Draw(t, "own place")
			if at < len(places) && rapid.Bool().Draw(t, "tied") {
				places[at] = append(places[at], v.Reviewer)
			} else {
				places = slices.Insert(places, at, []string{v.Reviewer})
			}
			moved.Votes = append(moved.Votes, Vote{Reviewer: v.Reviewer, Shown: v.Shown, Places: places})
		}
		for i := range o.Votes {
			if diff := gocmp.Diff(RankValues(o.Votes[i]), RankValues(moved.Votes[i])); diff != "" &&
				slices.Contains(o.Candidates, o.Votes[i].Reviewer) {
				t.Fatalf("rank values (-want +got):\n%s", diff)
			}
		}
		if diff := gocmp.Diff(Tally(o), Tally(moved)); diff != "" {
			t.Fatalf("Tally (-want +got):\n%s", diff)
		}
		if diff := gocmp.Diff(Agree(o, 1), Agree(moved, 1)); diff != "" {
			t.Fatalf("Agree (-want +got):\n%s", diff)
		}
	})
}

// Where all authors agree on one order, or any number of judges do, the k-th of N
// gets N-k, as if the own answers had been ranked too.
func TestAgreementGivesAllPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 12).Draw(t, "candidates")
		o := Options{Candidates: names("m", n)}
		reviewers := o.Candidates
		if rapid.Bool().Draw(t, "judges") {
			reviewers = names("judge", rapid.IntRange(1, 4).Draw(t, "reviewers"))
		}
		order := rapid.Permutation(o.Candidates).Draw(t, "order")
		for _, reviewer := range reviewers {
			v := Vote{Reviewer: reviewer, Shown: o.Candidates}
			for _, candidate := range order {
				v.Places = append(v.Places, []string{candidate})
			}
			o.Votes = append(o.Votes, v)
		}
		got := Tally(o)
		for i, s := range got.Standings {
			if s.Model != order[i] || *s.FinalRank != i+1 || *s.BordaScore != float64(n-i-1) ||
				*s.BordaNormalized != float64(n-i-1)/float64(n-1) {
				t.Fatalf("place %d: %+v", i, s)
			}
		}
		compared := len(reviewers) // ballots that compare two answers: authors of either do not
		if reviewers[0] == "m0" {
			compared -= 2
		}
		if w := kendallW(o); compared > 1 && (w == nil || *w != 1) {
			t.Fatalf("W = %v", w)
		}
		if got.PolicyChangesWinner {
			t.Fatal("the policy cannot matter")
		}
	})
}

// The points of every counted ballot add up to the same sum, and its wins to one.
func TestPointsAndWinsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := generated(t)
		for _, policy := range []council.PartialPolicy{council.PolicyAvailable, council.PolicyTiedLast} {
			c := newCount(o, policy)
			for _, b := range c.ballots {
				points, wins := int64(0), int64(0)
				for _, m := range b.marks {
					points += m.points
					wins += m.wins
				}
				if wins != c.winUnit {
					t.Fatalf("%s gives %d/%d wins", b.reviewer, wins, c.winUnit)
				}
				// The mean place of m candidates is (m-1)/2, so m of them get m/2.
				if b.ranked == b.m && 2*points != int64(b.m)*c.unit {
					t.Fatalf("%s gives %d/%d points over %d candidates", b.reviewer, points, c.unit, b.m)
				}
			}
		}
	})
}

func TestKendallWIsAShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if w := kendallW(generated(t)); w != nil && (*w < 0 || *w > 1) {
			t.Fatalf("W = %v", *w)
		}
	})
}

func BenchmarkTally(b *testing.B) {
	for _, n := range []int{4, 12} {
		b.Run(fmt.Sprintf("%dx%d", n, n), func(b *testing.B) {
			o := full(n)
			b.ReportAllocs()
			for b.Loop() {
				Tally(o)
			}
		})
	}
}

// full returns a session in which n authors rank all answers but their own.
func full(n int) Options {
	o := Options{Candidates: names("m", n), Asked: map[string]int{}}
	for i, author := range o.Candidates {
		v := Vote{Reviewer: author}
		for k := range n - 1 {
			candidate := o.Candidates[(i+1+k)%n]
			v.Shown = append(v.Shown, candidate)
			v.Places = append(v.Places, []string{candidate})
			o.Asked[candidate]++
		}
		o.Votes = append(o.Votes, v)
	}
	return o
}
