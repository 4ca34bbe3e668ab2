package ranking

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
)

var agreementSessions = flag.Int("agreement", 1000, "sessions for each figure of TestAgreementLevels; 20000 make a trial")

// ballotsOf returns the votes of n members that review each other, own answers hidden. Those that are missing did not
// vote. Their mean Kendall's tau is that of normal noise around a common worth of each answer.
func ballotsOf(random *rand.Rand, n, missing int, tau float64, ties bool) Options {
	o := Options{Candidates: names("m", n)}
	shared := math.Sin(tau * math.Pi / 2) // of the variance: tau of two normal variables is 2/pi asin(rho)
	worth := make([]float64, n)
	for i := range worth {
		worth[i] = random.NormFloat64() * math.Sqrt(shared)
	}
	for reviewer := missing; reviewer < n; reviewer++ {
		type given struct {
			id    string
			score float64
		}
		var seen []given
		v := Vote{Reviewer: o.Candidates[reviewer]}
		for i, id := range o.Candidates {
			if i != reviewer {
				seen = append(seen, given{id, worth[i] + random.NormFloat64()*math.Sqrt(1-shared)})
				v.Shown = append(v.Shown, id)
			}
		}
		slices.SortFunc(seen, func(a, b given) int {
			return -strings.Compare(fmt.Sprintf("%+020.9f", a.score+100), fmt.Sprintf("%+020.9f", b.score+100))
		})
		for i, g := range seen {
			if ties && i > 0 && random.IntN(3) == 0 {
				v.Places[len(v.Places)-1] = append(v.Places[len(v.Places)-1], g.id)
			} else {
				v.Places = append(v.Places, []string{g.id})
			}
		}
		o.Votes = append(o.Votes, v)
	}
	return o
}

// outcome is how often sessions have each level, and from which W on.
type outcome struct{ agree, lean, unknown, agreeFrom, leanFrom float64 }

// levels runs sessions. Those that agree count as leaning, too.
func levels(o func(*rand.Rand) Options) outcome {
	random := rand.New(rand.NewPCG(1, 2))
	found := outcome{agreeFrom: 1, leanFrom: 1}
	one := 1 / float64(*agreementSessions)
	for i := range *agreementSessions {
		var a council.Agreement
		c := newCount(o(random), council.PolicyAvailable)
		a.KendallW = c.kendallW()
		c.chance(&a, int64(i))
		switch a.Level {
		case council.AgreementAgree:
			found.agree += one
			found.lean += one
			found.agreeFrom = min(found.agreeFrom, *a.KendallW)
			found.leanFrom = min(found.leanFrom, *a.KendallW)
		case council.AgreementLean:
			found.lean += one
			found.leanFrom = min(found.leanFrom, *a.KendallW)
		case council.AgreementUnknown:
			found.unknown += one
		case council.AgreementNone:
		}
	}
	return found
}

// The levels are as often false, and as often found, as was computed beforehand: within two points and the error of the
// simulation. The log has all figures.
func TestAgreementLevels(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	near := func(what string, got, want float64) {
		t.Logf("%s: %.3f (%.3f)", what, got, want)
		if tolerance := 0.02 + 3*math.Sqrt(max(want*(1-want), 0.01)/float64(*agreementSessions)); math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f, want %.3f within %.3f", what, got, want, tolerance)
		}
	}
	taus := []float64{.2, .41, .54, .6}
	for _, tt := range []struct {
		n                   int
		agree, lean         float64
		agreeFrom, leanFrom float64   // the W from which on
		power               []float64 // of "agree" at these taus; none: it was not computed
	}{
		{4, .018, .09, 1, .8, []float64{.06, .14, .22, .27}},
		{5, .045, .18, .622, .444, []float64{.26, .61, .78, .86}},
		{6, .047, .19, .45, .321, []float64{.42, .83, .94, .96}},
		{7, .05, .20, .351, .251, nil},
		{8, .05, .20, .284, .208, []float64{.73, .97, .99, 1}},
		{9, .05, .20, .241, .176, nil},
		{10, .05, .20, .206, .154, nil},
		{11, .05, .20, .182, .136, nil},
		{12, .05, .20, .161, .122, []float64{.97, 1, 1, 1}},
	} {
		chance := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, 0, 0, false) })
		near(fmt.Sprint(tt.n, " members agree by chance"), chance.agree, tt.agree)
		near(fmt.Sprint(tt.n, " members agree or lean by chance"), chance.lean, tt.lean)
		near(fmt.Sprint(tt.n, " members agree from W"), chance.agreeFrom, tt.agreeFrom)
		near(fmt.Sprint(tt.n, " members lean from W"), chance.leanFrom, tt.leanFrom)
		for i, want := range tt.power {
			found := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, 0, taus[i], false) })
			near(fmt.Sprintf("%d members at a tau of %g", tt.n, taus[i]), found.agree, want)
		}
	}
	ties := levels(func(r *rand.Rand) Options { return ballotsOf(r, 6, 0, 0, true) })
	t.Logf("with ties %.3f agree by chance, and %.3f agree or lean", ties.agree, ties.lean)
	if limit := 3 * math.Sqrt(.05*.95/float64(*agreementSessions)); ties.agree > .051+limit || ties.lean > .2+2*limit {
		t.Errorf("with ties %.3f agree and %.3f lean by chance", ties.agree, ties.lean)
	}
}

// Where no ballots of this form could tell, the level says so.
func TestAgreementUnknown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ n, missing int }{{2, 0}, {3, 0}, {4, 1}} {
		if found := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, tt.missing, .9, false) }); found.unknown < .9999 {
			t.Errorf("%d members, %d without a ballot: %.3f unknown", tt.n, tt.missing, found.unknown)
		}
	}
}

// p is the share of all orders of four members' ballots that agree as far, counted.
func TestAgreementPIsExact(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	var orders [][]int
	for a := range 3 {
		for b := range 3 {
			if a != b {
				orders = append(orders, []int{2 * a, 2 * b, 2 * (3 - a - b)})
			}
		}
	}
	var all []float64
	squares := func(d deviations, chosen [4]int) float64 {
		rows := make([][]int, 4)
		for i := range rows {
			rows[i] = slices.Insert(slices.Clone(orders[chosen[i]]), i, -1)
		}
		return d.of(rows)
	}
	d := newCount(ballotsOf(random, 4, 0, 0, false), council.PolicyAvailable).deviations()
	for i := range 6 * 6 * 6 * 6 {
		all = append(all, squares(d, [4]int{i % 6, i / 6 % 6, i / 36 % 6, i / 216}))
	}
	for range 50 {
		c := newCount(ballotsOf(random, 4, 0, .3, false), council.PolicyAvailable)
		var a council.Agreement
		a.KendallW = c.kendallW()
		c.chance(&a, 7)
		d := c.deviations()
		observed, above := d.of(d.places), 0.0
		for _, s := range all {
			if s >= observed-1e-9 {
				above++
			}
		}
		want := above / float64(len(all))
		if math.Abs(*a.P-want) > 4*math.Sqrt(want*(1-want)/permutations)+1e-3 {
			t.Errorf("p = %.4f, counted %.4f", *a.P, want)
		}
	}
}

// What is compared is W: the shuffled ballots that agree further have the greater one.
func TestDeviationsGrowWithW(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for _, missing := range []int{0, 1, 2} {
		ratio := 0.0
		for range 200 {
			c := newCount(ballotsOf(random, 6, missing, .3, false), council.PolicyAvailable)
			d, w := c.deviations(), *c.kendallW()
			if w == 0 || w == 1 {
				continue
			}
			if got := d.of(d.places) / w; ratio != 0 && math.Abs(got/ratio-1) > 1e-9 {
				t.Fatalf("%d missing: %g per W, and %g", missing, got, ratio)
			} else {
				ratio = got
			}
		}
	}
}

// TestUsualDrawsAreTheSame holds that p does not depend on whose session of a process came first.
func TestUsualDrawsAreTheSame(t *testing.T) {
	first := deviations{n: 4, same: true, places: [][]int{{-1, 0, 2, 4}, {4, -1, 0, 2}, {2, 4, -1, 0}, {0, 2, 4, -1}}}
	second := deviations{n: 4, same: true, places: [][]int{{2, 0, -1, 4}, {-1, 2, 0, 4}, {0, 4, 2, -1}, {0, -1, 2, 4}}}
	var drawn [][]float64
	for _, d := range []deviations{first, second} {
		if !d.usual() {
			t.Fatal("not the usual form")
		}
		usual.Clear()
		drawn = append(drawn, d.draws(1))
	}
	if !slices.Equal(drawn[0], drawn[1]) {
		t.Error("the draws depend on the first session")
	}
}
