package bias

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestBenjaminiHochbergVectors(t *testing.T) {
	var vectors struct {
		Tol   float64
		Cases []struct {
			P []float64
			Q []float64 `json:"bh_q"`
		}
	}
	readVectors(t, "multiple_testing.json", &vectors)
	if len(vectors.Cases) != 6 {
		t.Fatalf("%d cases in the file", len(vectors.Cases))
	}
	for i, v := range vectors.Cases {
		if diff := cmp.Diff(v.Q, benjaminiHochberg(v.P), cmpopts.EquateApprox(vectors.Tol, 0)); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
	for p := range 1000 { // also where 5p/5 rounds below p
		x := float64(p) / 2000
		if q := benjaminiHochberg([]float64{0, 0, 0, 0, x}); q[4] < x {
			t.Fatalf("q = %v of p = %v", q[4], x)
		}
	}
	if q := benjaminiHochberg(nil); len(q) != 0 {
		t.Errorf("q values of no test: %v", q)
	}
}
