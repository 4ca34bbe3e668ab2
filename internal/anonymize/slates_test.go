package anonymize

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

var update = flag.Bool("update", false, "write the golden file")

func TestLabelAt(t *testing.T) {
	for i, want := range map[int]council.Label{
		0: "Response A", 1: "Response B", 25: "Response Z", 26: "Response AA", 27: "Response AB",
		51: "Response AZ", 52: "Response BA", 701: "Response ZZ", 702: "Response AAA",
	} {
		if got := LabelAt(i); got != want {
			t.Errorf("LabelAt(%d) = %q, want %q", i, got, want)
		}
	}
}

// The wanted seeds were computed with Python's hashlib.
func TestSeedFor(t *testing.T) {
	for _, tt := range []struct {
		randomSeed int64
		question   string
		want       int64
	}{
		{0, "", 7636050662030485},
		{42, "What is Go?", 4835665436964676},
		{-7, "Wieviel Uhr ist es in Zürich?", 2267801600351799},
		{4, "2", 7001910814004021},
	} {
		if got := SeedFor(tt.randomSeed, tt.question); got != tt.want {
			t.Errorf("SeedFor(%d, %q) = %d, want %d", tt.randomSeed, tt.question, got, tt.want)
		}
	}
}

func TestShowOwn(t *testing.T) {
	const sessions = 10_000
	for _, rate := range []float64{0, 0.1, 0.5, 1} {
		shown := 0
		for seed := range int64(sessions) {
			if ShowOwn(seed, rate) {
				shown++
			}
		}
		want, bound := rate*sessions, 5*math.Sqrt(rate*(1-rate)*sessions) // five standard errors
		if math.Abs(float64(shown)-want) > bound {
			t.Errorf("own answers are shown in %d of %d sessions at rate %v", shown, sessions, rate)
		}
	}
}

func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return ids
}

func members(s council.Slate) []string {
	ids := make([]string, len(s))
	for i, shown := range s {
		ids[i] = shown.Member
	}
	return ids
}

var orders = []council.Order{council.OrderBalanced, council.OrderPerReviewer, council.OrderShared}

// drawn generates options with any mix of reviewers: authors, members without an
// answer, and models that are no members.
func drawn(t *rapid.T) Options {
	authors := names("author", rapid.IntRange(0, 14).Draw(t, "authors"))
	reviewing := rapid.SliceOfDistinct(rapid.SampledFrom(append(names("outside", 6), authors...)), rapid.ID[string])
	return Options{
		Seed:      rapid.Int64Range(0, council.MaxSeed).Draw(t, "seed"),
		Order:     rapid.SampledFrom(orders).Draw(t, "order"),
		Authors:   authors,
		Reviewers: reviewing.Draw(t, "reviewers"),
		ShowOwn:   rapid.Bool().Draw(t, "own"),
	}
}

func TestDrawShowsEachAnswerOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		slates := Draw(o)
		check := func(s council.Slate, hidden string) {
			for i, shown := range s {
				if shown.Label != LabelAt(i) {
					t.Fatalf("position %d has label %q", i, shown.Label)
				}
			}
			want := slices.DeleteFunc(slices.Clone(o.Authors), func(a string) bool { return a == hidden })
			slices.Sort(want)
			if got := slices.Sorted(slices.Values(members(s))); !slices.Equal(got, want) {
				t.Fatalf("members on the slate: %v, want %v", got, want)
			}
		}
		check(slates.Canonical, "")
		for i, reviewer := range o.Reviewers {
			if o.ShowOwn {
				reviewer = ""
			}
			check(slates.Reviewer[i], reviewer)
		}
	})
}

// Answers of twins are hidden like own ones, by each order, and the other slates stay as they are.
func TestDrawHidesTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		without := Draw(o)
		o.Twins = council.Twins{}
		for _, id := range append(names("outside", 6), o.Authors...) {
			if rapid.Bool().Draw(t, id) {
				o.Twins[id] = "author0"
			}
		}
		slates := Draw(o)
		for i, reviewer := range o.Reviewers {
			want := slices.DeleteFunc(slices.Clone(o.Authors), func(a string) bool { return !o.ShowOwn && o.Twins.Own(reviewer, a) })
			slices.Sort(want)
			if got := slices.Sorted(slices.Values(members(slates.Reviewer[i]))); !slices.Equal(got, want) {
				t.Fatalf("%s sees %v, want %v", reviewer, got, want)
			}
			if slices.Contains(o.Authors, reviewer) && !slices.Equal(slates.Reviewer[i].Labels(), without.Reviewer[i].Labels()[:len(want)]) {
				t.Fatalf("%s reads the labels %v", reviewer, slates.Reviewer[i].Labels())
			}
		}
		if !slices.Equal(slates.Canonical, without.Canonical) {
			t.Fatal("twins change the canonical slate")
		}
	})
}

func TestDrawDependsOnNothingButItsOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		if diff := cmp.Diff(Draw(o), Draw(o)); diff != "" {
			t.Fatalf("two draws differ:\n%s", diff)
		}
	})
}

// A council with other names and the same seed sees the same orders. The shuffle of
// council.OrderPerReviewer depends on the reviewer's name, so there only the authors get
// other names.
func TestDrawIgnoresNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		if o.Order == council.OrderPerReviewer {
			o.Reviewers = slices.DeleteFunc(o.Reviewers, func(r string) bool { return slices.Contains(o.Authors, r) })
		}
		rename := func(ids []string) []string {
			renamed := slices.Clone(ids)
			for i, id := range ids {
				if o.Order != council.OrderPerReviewer || slices.Contains(o.Authors, id) {
					renamed[i] = "another " + id
				}
			}
			return renamed
		}
		renamed := o
		renamed.Authors, renamed.Reviewers = rename(o.Authors), rename(o.Reviewers)
		want, got := Draw(o), Draw(renamed)
		if diff := cmp.Diff(rename(members(want.Canonical)), members(got.Canonical)); diff != "" {
			t.Fatalf("canonical:\n%s", diff)
		}
		for i := range o.Reviewers {
			if diff := cmp.Diff(rename(members(want.Reviewer[i])), members(got.Reviewer[i])); diff != "" {
				t.Fatalf("reviewer %d:\n%s", i, diff)
			}
		}
	})
}

func TestSharedFollowsTheCanonicalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		o.Order = council.OrderShared
		slates := Draw(o)
		for i, s := range slates.Reviewer {
			want := slices.DeleteFunc(members(slates.Canonical), func(m string) bool { return m == o.Reviewers[i] && !o.ShowOwn })
			if diff := cmp.Diff(want, members(s)); diff != "" {
				t.Fatalf("reviewer %s:\n%s", o.Reviewers[i], diff)
			}
		}
	})
}

// counts says how often each candidate stands at each position, and how often each
// one comes directly after each other one.
func counts(slates []council.Slate) (positions map[string][]int, pairs map[[2]string]int) {
	positions, pairs = map[string][]int{}, map[[2]string]int{}
	for _, s := range slates {
		for i, shown := range s {
			if positions[shown.Member] == nil {
				positions[shown.Member] = make([]int, len(s))
			}
			positions[shown.Member][i]++
			if i > 0 {
				pairs[[2]string{s[i-1].Member, shown.Member}]++
			}
		}
	}
	return positions, pairs
}

func TestBalancedWithOwnAnswersHidden(t *testing.T) {
	for n := range 41 {
		authors := names("author", n)
		slates := Draw(Options{Seed: int64(n), Authors: authors, Reviewers: authors})
		positions, pairs := counts(slates.Reviewer)
		for author, at := range positions {
			if diff := cmp.Diff(slices.Repeat([]int{1}, n-1), at); diff != "" {
				t.Errorf("%d answers: %s at each position (-want +got):\n%s", n, author, diff)
			}
		}
		if n > 1 && len(positions) != n {
			t.Errorf("%d answers: %d of them are shown", n, len(positions))
		}
		if n%2 == 1 && n > searchLimit {
			continue
		}
		for pair, k := range pairs {
			if k > 1 {
				t.Errorf("%d answers: %v are neighbours %d times", n, pair, k)
			}
		}
	}
}

func TestBalancedWithOwnAnswersShown(t *testing.T) {
	for n := 1; n <= 40; n++ {
		authors := names("author", n)
		slates := Draw(Options{Seed: int64(n), Authors: authors, Reviewers: authors, ShowOwn: true})
		positions, pairs := counts(slates.Reviewer)
		for author, at := range positions {
			if diff := cmp.Diff(slices.Repeat([]int{1}, n), at); diff != "" {
				t.Errorf("%d answers: %s at each position (-want +got):\n%s", n, author, diff)
			}
		}
		for pair, k := range pairs {
			if n%2 == 0 && k != 1 || k > 2 {
				t.Errorf("%d answers: %v are neighbours %d times", n, pair, k)
			}
		}
		if n%2 == 0 && len(pairs) != n*(n-1) {
			t.Errorf("%d answers: %d pairs of neighbours of %d", n, len(pairs), n*(n-1))
		}
	}
}

// For any reviewers, a candidate takes each two positions equally often within each
// design, or one of them once more.
func TestBalancedForAnyReviewers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawn(t)
		o.Order = council.OrderBalanced
		var hidden, shown []council.Slate
		for i, s := range Draw(o).Reviewer {
			if slices.Contains(o.Authors, o.Reviewers[i]) && !o.ShowOwn {
				hidden = append(hidden, s)
			} else {
				shown = append(shown, s)
			}
		}
		for _, design := range [][]council.Slate{hidden, shown} {
			positions, _ := counts(design)
			for _, author := range slices.Sorted(maps.Keys(positions)) {
				if at := positions[author]; slices.Max(at)-slices.Min(at) > 1 {
					t.Fatalf("%s at each position: %v", author, at)
				}
			}
		}
	})
}

// Over the sessions every reviewer sees every permutation equally often, and every answer
// stands at every place.
func TestOrdersAreUniformOverSeeds(t *testing.T) {
	const sessions = 6000
	authors := names("author", 3)
	for _, order := range orders {
		for _, own := range []bool{false, true} {
			seen := map[string]int{}
			for seed := range int64(sessions) {
				slates := Draw(Options{Seed: seed, Order: order, Authors: authors, Reviewers: []string{"author1", "outside"}, ShowOwn: own})
				seen["canonical "+strings.Join(members(slates.Canonical), " ")]++
				seen["author1 "+strings.Join(members(slates.Reviewer[0]), " ")]++
				seen["outside "+strings.Join(members(slates.Reviewer[1]), " ")]++
			}
			permutations := 6 + 6 + 2
			if own {
				permutations = 6 + 6 + 6
			}
			if len(seen) != permutations {
				t.Errorf("%s, own %v: %d permutations, want %d", order, own, len(seen), permutations)
			}
			for permutation, k := range seen {
				want := sessions / 6
				if strings.HasPrefix(permutation, "author1") && !own {
					want = sessions / 2
				}
				if k < want*85/100 || k > want*115/100 { // more than five standard errors
					t.Errorf("%s, own %v: %q in %d of %d sessions, want about %d", order, own, permutation, k, sessions, want)
				}
			}
		}
	}
}

func TestPerReviewerOrdersDiffer(t *testing.T) {
	authors := names("author", 12)
	slates := Draw(Options{Seed: 1, Order: council.OrderPerReviewer, Authors: authors, Reviewers: names("outside", 12)})
	distinct := map[string]bool{strings.Join(members(slates.Canonical), " "): true}
	for _, s := range slates.Reviewer {
		distinct[strings.Join(members(s), " ")] = true
	}
	if len(distinct) != 13 {
		t.Errorf("%d distinct orders of 13", len(distinct))
	}
}

func TestDesignsMatchReferenceValues(t *testing.T) {
	data, err := os.ReadFile("testdata/order_designs.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Sequences []struct {
			N      int
			Shown  []int `json:"self_shown_z"`
			Hidden []int `json:"self_hidden_s"`
		}
		Examples []struct {
			N            int
			Phi          []int
			HiddenOrders [][]int `json:"self_hidden_orders"`
			ShownOrders  [][]int `json:"self_shown_orders"`
		}
	}
	if err := json.Unmarshal(data, &reference); err != nil {
		t.Fatal(err)
	}
	if len(reference.Sequences) != 15 || len(reference.Examples) != 2 {
		t.Fatalf("%d sequences and %d examples", len(reference.Sequences), len(reference.Examples))
	}
	for _, want := range reference.Sequences {
		if diff := cmp.Diff(want.Shown, zigzag(want.N)); diff != "" {
			t.Errorf("own answer shown, %d answers (-want +got):\n%s", want.N, diff)
		}
		if diff := cmp.Diff(want.Hidden, hiddenSteps(want.N)); diff != "" {
			t.Errorf("own answer hidden, %d answers (-want +got):\n%s", want.N, diff)
		}
	}
	for _, want := range reference.Examples {
		columns := make([]string, want.N)
		for i, a := range want.Phi {
			columns[i] = strconv.Itoa(a)
		}
		for e := range want.N {
			for _, c := range []struct {
				want []int
				got  []string
			}{
				{want.HiddenOrders[e], row(columns, e, hiddenSteps(want.N))},
				{want.ShownOrders[e], row(columns, e, zigzag(want.N))},
			} {
				if got := "[" + strings.Join(c.got, " ") + "]"; got != fmt.Sprint(c.want) {
					t.Errorf("%d answers, row %d: %s, want %v", want.N, e, got, c.want)
				}
			}
		}
	}
}

func TestGoldenSlates(t *testing.T) {
	var b strings.Builder
	for _, seed := range []int64{0, 1, council.MaxSeed} {
		for _, order := range orders {
			for _, n := range []int{1, 2, 4, 5, 12} {
				for _, own := range []bool{false, true} {
					o := Options{Seed: seed, Order: order, Authors: names("m", n), ShowOwn: own}
					o.Reviewers = append(slices.Clone(o.Authors), "outside", "silent member")
					slates := Draw(o)
					fmt.Fprintf(&b, "seed %d, %s, %d answers, own shown: %v\n", seed, order, n, own)
					fmt.Fprintf(&b, "  canonical: %s\n", strings.Join(members(slates.Canonical), " "))
					for i, s := range slates.Reviewer {
						fmt.Fprintf(&b, "  %s:%s\n", o.Reviewers[i], strings.TrimRight(" "+strings.Join(members(s), " "), " "))
					}
				}
			}
		}
	}
	const file = "testdata/slates.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("slates changed (-want +got):\n%s", diff)
	}
}

func BenchmarkDraw(b *testing.B) {
	for _, n := range []int{4, 12} {
		authors := names("author", n)
		b.Run(fmt.Sprintf("%dx%d", n, n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Draw(Options{Seed: 1, Order: council.OrderBalanced, Authors: authors, Reviewers: authors})
			}
		})
	}
}

// The draws of a session are of the shares that were asked for, and do not depend on each other.
func TestShares(t *testing.T) {
	const seeds = 20000
	both, shadowed, wanted, first := 0, 0, 0, 0
	for seed := range int64(seeds) {
		s, w := Shadowed(seed, 0.25), LabelWanted(seed, 0.1)
		for count, drawn := range map[*int]bool{&both: s && w, &shadowed: s, &wanted: w, &first: SynthesisFirst(seed)} {
			if drawn {
				*count++
			}
		}
	}
	for _, c := range []struct {
		name  string
		count int
		share float64
	}{{"shadowed", shadowed, 0.25}, {"wanted", wanted, 0.1}, {"both", both, 0.025}, {"synthesis first", first, 0.5}} {
		if off := math.Abs(float64(c.count) - seeds*c.share); off > 4*math.Sqrt(seeds*c.share*(1-c.share)) {
			t.Errorf("%s: %d of %d seeds, want a share of %v", c.name, c.count, seeds, c.share)
		}
	}
	if Shadowed(1, 0) || !Shadowed(1, 1) {
		t.Error("shares of 0 and 1 are none and all")
	}
}

// A tie for the first place is drawn, each with the same probability, whatever the order of the standings.
func TestTop(t *testing.T) {
	standings := []council.Standing{{Model: "a", FinalRank: new(1)}, {Model: "b", FinalRank: new(1)}, {Model: "c", FinalRank: new(3)}}
	turned := []council.Standing{standings[2], standings[1], standings[0]}
	count := map[string]int{}
	for seed := range int64(2000) {
		top := Top(seed, standings)
		count[top]++
		if other := Top(seed, turned); other != top {
			t.Fatalf("seed %d: %s, and in another order %s", seed, top, other)
		}
	}
	if count["a"]+count["b"] != 2000 || count["a"] < 900 || count["b"] < 900 {
		t.Errorf("%v, want a and b as often", count)
	}
	if top := Top(1, nil); top != "" {
		t.Errorf("without standings %q is first", top)
	}
}
