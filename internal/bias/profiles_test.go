package bias

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCalibrate(t *testing.T) {
	nan := math.NaN()
	w := window{names: []string{"a", "b", "c", "d"}, sessions: []scores{
		{reviewers: []int{0, 1}, candidates: []int{1, 2}, y: [][]float64{{3, 5}, {7, 7}}},
		{reviewers: []int{0, 1, 3}, candidates: []int{2, 3}, y: [][]float64{{7, nan}, {nan, 7}, {nan, nan}}},
	}}
	// Reviewer a: mean 5, deviation 2. Reviewer b gives 7 to everyone, d nothing.
	want := []Calibrated{
		{ReviewerID: "a", ModelID: "b", Z: new(-1.), Mean: 3, Reviews: 1},
		{ReviewerID: "a", ModelID: "c", Z: new(0.5), Mean: 6, Reviews: 2},
		{ReviewerID: "b", ModelID: "b", Mean: 7, Reviews: 1},
		{ReviewerID: "b", ModelID: "c", Mean: 7, Reviews: 1},
		{ReviewerID: "b", ModelID: "d", Mean: 7, Reviews: 1},
	}
	if diff := cmp.Diff(want, calibrate(&w, [][]float64{{3, 5, 7}, {7, 7, 7}, nil, nil}), approx); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProfileDrift(t *testing.T) {
	for _, tc := range []struct {
		name   string
		scores []float64
		want   *float64
	}{
		{"none", nil, nil},
		{"one", []float64{5}, nil},
		{"constant", []float64{5, 5, 5, 5}, nil},
		{"no drift", []float64{4, 6, 4, 6}, new(0.)},
		{"the middle one counts in the deviation only", []float64{2, 2, 5, 8, 8}, new(6 / 3.)},
		{"downwards", []float64{7, 6, 4, 3}, new(-3 / math.Sqrt(10./3))},
	} {
		if diff := cmp.Diff(tc.want, profileDrift(tc.scores), approx); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
