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

// levels returns how often sessions agree, and how often they agree or lean.
func levels(o func(*rand.Rand) Options) (agree, lean, unknown float64) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range *agreementSessions {
		var a council.Agreement
		c := newCount(o(random), council.PolicyAvailable)
		a.KendallW = c.kendallW()
		c.chance(&a, int64(i))
		switch a.Level {
		case council.AgreementAgree:
			agree++
			lean++
		case council.AgreementLean:
			lean++
		case council.AgreementUnknown:
			unknown++
		case council.AgreementNone:
		}
	}
	n := float64(*agreementSessions)
	return agree / n, lean / n, unknown / n
}

// The levels are as often false, and as often found, as was computed beforehand: within two points and the error of the
// simulation. Power is that at a mean tau of .2, .41 and .6.
func TestAgreementLevels(t *testing.T) {
	t.Parallel()
	near := func(what string, got, want float64) {
		if tolerance := 0.02 + 3*math.Sqrt(max(want*(1-want), 0.01)/float64(*agreementSessions)); math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f, want %.3f within %.3f", what, got, want, tolerance)
		}
	}
	for _, tt := range []struct {
		n                int
		agree, lean      float64
		low, middle, top float64 // power of "agree", 0 where it was not computed
	}{
		{4, .018, .09, .06, .14, .27},
		{5, .045, .18, .26, .61, .86},
		{6, .047, .19, .42, .83, .96},
		{7, .05, .20, 0, 0, 0},
		{8, .05, .20, .73, .97, .99},
		{9, .05, .20, 0, 0, 0},
		{12, .05, .20, .97, 1, 1},
	} {
		agree, lean, _ := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, 0, 0, false) })
		near(fmt.Sprint(tt.n, " members agree by chance"), agree, tt.agree)
		near(fmt.Sprint(tt.n, " members agree or lean by chance"), lean, tt.lean)
		for tau, want := range map[float64]float64{.2: tt.low, .41: tt.middle, .6: tt.top} {
			if want > 0 {
				agree, _, _ := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, 0, tau, false) })
				near(fmt.Sprintf("%d members at a tau of %g", tt.n, tau), agree, want)
			}
		}
	}
	agree, lean, _ := levels(func(r *rand.Rand) Options { return ballotsOf(r, 6, 0, 0, true) })
	if limit := 3 * math.Sqrt(.05*.95/float64(*agreementSessions)); agree > .051+limit || lean > .2+2*limit {
		t.Errorf("with ties %.3f agree and %.3f lean by chance", agree, lean)
	}
}

// Where no ballots of this form could tell, the level says so.
func TestAgreementUnknown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ n, missing int }{{2, 0}, {3, 0}, {4, 1}} {
		if _, _, unknown := levels(func(r *rand.Rand) Options { return ballotsOf(r, tt.n, tt.missing, .9, false) }); unknown != 1 {
			t.Errorf("%d members, %d without a ballot: %.3f unknown", tt.n, tt.missing, unknown)
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
