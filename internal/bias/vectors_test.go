package bias

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/store"
)

// readRecords returns the records in a file of testdata, as the store reads them.
func readRecords(t *testing.T, name string) []council.BiasMetricRecord {
	t.Helper()
	var records []council.BiasMetricRecord
	for record, err := range store.ReadFile(t.Context(), filepath.Join("testdata", name)) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records
}

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

// byName returns the metrics of a report and their members.
func byName(metrics []Metric) map[string]Metric {
	all := map[string]Metric{}
	for _, m := range metrics {
		all[m.Name] = m
		for _, member := range m.Members {
			all[member.Name] = member
		}
	}
	return all
}

// change is a drift as the reference values have it, with the ordinary errors of
// least squares.
type change struct {
	Change float64 `json:"change_over_window"`
	SE, P  float64
}

// TestOtherVectors compares ADR-018's own figures, anchoring and drift.
func TestOtherVectors(t *testing.T) {
	for _, name := range []string{"e2e_planted", "e2e_null"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Tol       float64
				Estimates struct {
					Pooled struct {
						R float64
						N int
					} `json:"pooled_length_correlation"`
					Z         map[string]float64 `json:"reviewer_harshness_z"`
					Anchoring struct{ Kappa, T, P, DF float64 }
					Drift     map[string]change
				}
			}
			readVectors(t, name+".expected.json", &want)
			report := collect(unlimited, readRecords(t, name+".jsonl")).Report(t.Context())
			metrics := byName(report.Metrics)
			tolerance := cmpopts.EquateApprox(want.Tol, 0)

			got := want
			m := metrics["pooled_length_score_correlation"]
			got.Estimates.Pooled.R, got.Estimates.Pooled.N = *m.PointEstimate, m.Records
			anchoring := metrics["anchoring"]
			got.Estimates.Anchoring.Kappa, got.Estimates.Anchoring.T = *anchoring.PointEstimate, anchoring.Test.Value
			got.Estimates.Anchoring.P, got.Estimates.Anchoring.DF = *anchoring.PValue, anchoring.Test.DF[0]
			got.Estimates.Drift = map[string]change{}
			for reviewer := range want.Estimates.Drift {
				drift := metrics["drift|"+reviewer]
				got.Estimates.Drift[reviewer] = change{Change: *drift.PointEstimate}
			}
			got.Estimates.Z = map[string]float64{}
			for _, p := range report.Reviewers {
				got.Estimates.Z[p.ReviewerID] = *p.HarshnessZ
			}
			if diff := cmp.Diff(want, got, tolerance, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(change{}, "SE", "P")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if m.SampleSize != 40 {
				t.Errorf("%d sessions, want 40", m.SampleSize)
			}
		})
	}
}

// coefficient is an estimate as the reference values have it.
type coefficient struct {
	Estimate float64
	SE       float64 `json:"se_cv3"`
	T        float64 `json:"t_cv3"`
	DF       float64
	P        float64
	CI       [2]float64 `json:"ci95"`
	CR1      float64    `json:"se_cr1"`
	Clusters int
	Q        *float64 `json:"bh_q"`
}

// TestEstimateVectors compares every coefficient of least squares with what other programs made of
// the same records.
func TestEstimateVectors(t *testing.T) {
	for _, name := range []string{"e2e_planted", "e2e_null"} {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Tol       float64
				Estimates map[string]json.RawMessage
			}
			readVectors(t, name+".expected.json", &want)
			tolerance := cmpopts.EquateApprox(want.Tol, 1e-12)
			metrics := byName(collect(unlimited, readRecords(t, name+".jsonl")).Report(t.Context()).Metrics)
			compared := 0
			for key, raw := range want.Estimates {
				var reference coefficient
				if err := json.Unmarshal(raw, &reference); err != nil || reference.SE == 0 {
					continue // of another shape
				}
				m, ok := metrics[key]
				if !ok || m.Method == graded || m.InCommon {
					continue // of the graded-response model
				}
				compared++
				if m.PointEstimate == nil {
					t.Errorf("%s: no figure (%s)", key, m.Reason)
					continue
				}
				got := coefficient{
					Estimate: *m.PointEstimate, SE: *m.StandardError, T: m.Test.Value, DF: m.Test.DF[0], P: *m.PValue,
					CI: [2]float64{*m.CILower, *m.CIUpper}, CR1: *m.StandardErrorCR1, Clusters: m.Clusters,
				}
				if reference.Q != nil {
					// The reference adjusts the p of the first fit over the members of a kind.
					kind, _, _ := strings.Cut(key, "|")
					var p []float64
					at := 0
					for name, other := range metrics {
						if strings.HasPrefix(name, kind+"|") {
							if name == key {
								at = len(p)
							}
							p = append(p, *other.PValue)
						}
					}
					got.Q = new(stat.BenjaminiHochberg(p)[at])
				}
				// The reference's quantile of t is off by 4e-9 of itself, which is more than
				// the tolerance of a bound that lies near zero.
				for k, bound := range got.CI {
					if wide := got.CI[1] - got.CI[0]; math.Abs(bound-reference.CI[k]) > want.Tol*wide {
						t.Errorf("%s: interval %v, want %v", key, got.CI, reference.CI)
					}
				}
				got.CI = reference.CI
				if diff := cmp.Diff(reference, got, tolerance); diff != "" {
					t.Errorf("%s (-want +got):\n%s", key, diff)
				}
			}
			if compared != 6 {
				t.Errorf("%d coefficients compared, want 6", compared)
			}
		})
	}
}
