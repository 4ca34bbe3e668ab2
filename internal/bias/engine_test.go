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
	metrics := byName(collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report(t.Context()).Metrics)
	compared := 0
	for model, names := range map[string]map[string]string{
		"length": {"l2": "length_points_per_doubling"},
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
	if compared != 5 {
		t.Errorf("%d coefficients compared", compared)
	}
}

func TestContrast(t *testing.T) {
	if got := contrast(5, 1, []float64{0.5, -0.5, -0.5, 0.5}); !slices.Equal(got, []float64{0, 0, -1, -1, 0}) {
		t.Errorf("as regressors of mean zero: %v", got)
	}
}
