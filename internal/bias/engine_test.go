package bias

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestCrossCheck compares with R: lm, and the standard errors of clubSandwich.
func TestCrossCheck(t *testing.T) {
	type coefficient struct {
		Estimate float64
		CR1      float64 `json:"se_CR1"`
		CR3      float64 `json:"se_CR3"`
	}
	var want struct {
		Planted map[string]json.RawMessage
	}
	readVectors(t, "e2e_planted.R_crosscheck.json", &want)
	metrics := byName(collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report().Metrics)
	compared := 0
	for model, names := range map[string]map[string]string{
		"self_family": {"own": "self_preference", "sf": "family_affinity"},
		"position":    {"pos1": "position_effect|0", "pos2": "position_effect|1", "pos3": "position_effect|2", "pos4": "position_effect|3"},
		"length":      {"l2": "length_points_per_doubling"},
		"harsh": {
			"rev1": "harshness|anthropic/m2", "rev2": "harshness|google/m3", "rev3": "harshness|meta/m4",
			"rev4": "harshness|openai/m0",
		},
	} {
		var coefficients map[string]coefficient
		if err := json.Unmarshal(want.Planted[model], &coefficients); err != nil {
			t.Fatal(err)
		}
		for key, name := range names {
			m := metrics[name]
			// CV3 has the factor (G-1)/G that CR3 has not.
			got := coefficient{*m.PointEstimate, *m.StandardErrorCR1, *m.StandardError * math.Sqrt(40./39)}
			if diff := cmp.Diff(coefficients[key], got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			compared++
		}
	}
	if compared != 11 {
		t.Errorf("%d coefficients compared", compared)
	}
}

func TestShapeWeights(t *testing.T) {
	third := 1. / 3
	for _, tc := range []struct {
		shape string
		size  int
		want  []float64
	}{
		{"primacy", 2, []float64{1, -1}},
		{"primacy", 4, []float64{1, -third, -third, -third}},
		{"recency", 4, []float64{-third, -third, -third, 1}},
		{"ends_minus_middle", 2, nil},
		{"ends_minus_middle", 4, []float64{0.5, -0.5, -0.5, 0.5}},
		{"linear_per_step", 2, []float64{-1, 1}},
		{"linear_per_step", 4, []float64{-0.3, -0.1, 0.1, 0.3}},
	} {
		if diff := cmp.Diff(tc.want, shapeWeights(tc.shape, tc.size), approx); diff != "" {
			t.Errorf("%s of %d (-want +got):\n%s", tc.shape, tc.size, diff)
		}
	}
	if got := contrast(5, 1, []float64{0.5, -0.5, -0.5, 0.5}); !slices.Equal(got, []float64{0, 0, -1, -1, 0}) {
		t.Errorf("as regressors of mean zero: %v", got)
	}
}
