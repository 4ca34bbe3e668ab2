package stat

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
)

// approx compares figures that were worked out on paper.
var approx = cmpopts.EquateApprox(0, 1e-9)

// readVectors reads reference values from a file of testdata.
func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		x    []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{7, 1, 4, 3}, 3.5},
	} {
		if got := Median(tc.x); got != tc.want {
			t.Errorf("Median(%v) = %v, want %v", tc.x, got, tc.want)
		}
	}
}

// estimate is an Estimate for comparing.
func estimate(value, lower, upper float64) Estimate {
	return Estimate{Value: &value, Lower: &lower, Upper: &upper}
}

// TestStudentized compares with what externally studentised means: how far a value
// lies from the mean of the others, over the standard error of that difference.
func TestStudentized(t *testing.T) {
	x := []float64{0.3, -1.2, 0.5, 2.4, -0.1, 0.3}
	for i, got := range Studentized(x) {
		others := slices.Delete(slices.Clone(x), i, i+1)
		mean, sd := MeanStdDev(others)
		if want := (x[i] - mean) / (sd * math.Sqrt(1+1./5)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: t = %v, want %v", x[i], got, want)
		}
	}
	if got := Studentized([]float64{1, 1, 1, 2})[3]; got < 1e3 || math.IsInf(got, 0) {
		t.Errorf("among equal values t = %v", got)
	}
}

func TestSummaries(t *testing.T) {
	x := []float64{2, 4, 4, 4, 5, 5, 7, 9} // the squared deviations from 5 sum to 32
	mean, sd := MeanStdDev(x)
	for name, pair := range map[string][2]float64{
		"Mean": {Mean(x), 5}, "MeanStdDev, mean": {mean, 5}, "MeanStdDev, deviation": {sd, math.Sqrt(32. / 7)},
		"StdDev": {StdDev(x), math.Sqrt(32. / 7)}, "Variance": {Variance(x), 32. / 7}, "PopVariance": {PopVariance(x), 4},
		"upper quantile": {quantile([]float64{1, 3}, 1), 3}, "middle quantile": {quantile([]float64{1, 3}, 0.5), 2},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestPlaceOf(t *testing.T) {
	x := []float64{5, 8, math.NaN(), 5, 1}
	for k, want := range map[int]float64{0: 1.5, 1: 0, 3: 1.5, 4: 3} {
		if got := PlaceOf(x, k); got != want {
			t.Errorf("value %d is at place %v, want %v", k, got, want)
		}
	}
}
