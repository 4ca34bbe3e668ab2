package stat

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestEBHVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			E        []float64
			Alpha    float64
			Rejected []int
		}
	}
	readVectors(t, "ebh.json", &vectors)
	if len(vectors.Cases) != 6 || len(EBH(nil, 0.05)) != 0 {
		t.Errorf("%d cases in the file; of no hypothesis %v", len(vectors.Cases), EBH(nil, 0.05))
	}
	for i, v := range vectors.Cases {
		rejected := []int{}
		for k, stands := range EBH(v.E, v.Alpha) {
			if stands {
				rejected = append(rejected, k)
			}
		}
		if diff := cmp.Diff(v.Rejected, rejected); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
	if !EBH([]float64{math.Inf(1), 0}, 0.05)[0] {
		t.Error("an e value beyond all numbers does not stand")
	}
}

func TestMixtureVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Sessions, Estimate, SE, Alpha float64
			Expected                      struct {
				Rho2, Factor float64
				Interval     [2]float64
				LogE         float64 `json:"log_e"`
			}
		}
	}
	readVectors(t, "monitor.json", &vectors)
	if len(vectors.Cases) != 7 {
		t.Errorf("%d cases in the file", len(vectors.Cases))
	}
	for _, v := range vectors.Cases {
		m := TunedMixture(v.Alpha, 500)
		factor := m.Factor(v.Sessions, v.Alpha)
		want := []float64{v.Expected.Rho2, v.Expected.Factor, v.Expected.Interval[0], v.Expected.Interval[1], v.Expected.LogE}
		got := []float64{
			float64(m), factor, v.Estimate - factor*v.SE, v.Estimate + factor*v.SE, m.LogE(v.Sessions, v.Estimate/v.SE),
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("%v after %v (-want +got):\n%s", v.Estimate, v.Sessions, diff)
		}
	}
}

func TestBettingVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			Name     string
			Alpha    float64
			X        []float64
			Bets     []float64 `json:"lambda_first5"`
			Expected []struct {
				T       int
				Betting [2]float64
				LogE    float64 `json:"log_e_half"`
			}
		}
	}
	readVectors(t, "betting.json", &vectors)
	if len(vectors.Cases) != 5 {
		t.Errorf("%d cases in the file", len(vectors.Cases))
	}
	approximately := cmpopts.EquateApprox(vectors.Tol, 1e-10)
	for _, v := range vectors.Cases {
		if diff := cmp.Diff(v.Bets, NewBetting(v.X, v.Alpha).bets[:5], approximately); diff != "" {
			t.Errorf("%s, the first bets (-want +got):\n%s", v.Name, diff)
		}
		for _, want := range v.Expected {
			b := NewBetting(v.X[:want.T], v.Alpha)
			low, high := b.Interval()
			expected, got := []float64{want.Betting[0], want.Betting[1], want.LogE}, []float64{low, high, b.LogE(0.5)}
			if diff := cmp.Diff(expected, got, approximately); diff != "" {
				t.Errorf("%s, after %d (-want +got):\n%s", v.Name, want.T, diff)
			}
		}
	}
}

// Whatever the distribution, the interval leaves out the mean at some time in at most 5 % of
// streams, and the e value reaches 20 there. Without a value nothing is known.
func TestBettingHoldsAtAnyTime(t *testing.T) {
	if low, high := NewBetting(nil, 0.05).Interval(); low != 0 || high != 1 {
		t.Errorf("without a value from %v to %v", low, high)
	}
	random := rand.New(rand.NewPCG(7, 7))
	for name, draw := range map[string]func() float64{
		"seldom 1": func() float64 { return float64(min(1, max(0, int(random.Float64()*50)-48))) },
		"halves":   func() float64 { return float64(random.IntN(3)) / 2 },
		"coin":     func() float64 { return float64(random.IntN(2)) },
		"narrow":   func() float64 { return 0.45 + 0.1*random.Float64() },
	} {
		mean := 0.5
		if name == "seldom 1" {
			mean = 0.02
		}
		const streams = 200
		left, reached := 0, 0
		for range streams {
			x := make([]float64, 400)
			for i := range x {
				x[i] = draw()
			}
			outside, sure := false, false // the interval leaves out the mean where a capital reaches 40
			for n := 1; n <= len(x); n += 7 {
				b := NewBetting(x[:n], 0.05)
				above, below := b.logCapital(mean)
				outside = outside || max(above, below) >= math.Log(40)
				sure = sure || b.LogE(mean) >= math.Log(20)
			}
			if outside {
				left++
			}
			if sure {
				reached++
			}
		}
		const most = 0.05*streams + 3*3.1 // three binomial standard errors more
		if float64(left) > most || float64(reached) > most {
			t.Errorf("%s: of %d streams %d leave the interval, in %d e reaches 20", name, streams, left, reached)
		}
	}
}

func TestLogMean(t *testing.T) {
	for _, tc := range []struct {
		logs []float64
		want float64
	}{
		{[]float64{math.Log(3)}, math.Log(3)},
		{[]float64{math.Log(1), math.Log(3), math.Log(8)}, math.Log(4)},
		{[]float64{2000, -2000}, 2000 - math.Ln2},
	} {
		if got := LogMean(tc.logs); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("LogMean(%v) = %v, want %v", tc.logs, got, tc.want)
		}
	}
}
