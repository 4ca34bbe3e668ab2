package worth_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/worth"
)

func TestPPIVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Name     string
			Labels   []float64
			Judged   []float64 `json:"judge_on_labelled"`
			Others   []float64 `json:"judge_on_unlabelled"`
			Expected struct {
				Lambda float64 `json:"lambda_"`
				Estimate,
				SE, Gain float64
				CI95 [2]float64 `json:"t_ci95"`
			}
		}
	}
	readVectors(t, "ppi.json", &vectors)
	if len(vectors.Cases) == 0 {
		t.Fatal("there are no cases")
	}
	for _, c := range vectors.Cases {
		want, got := c.Expected, worth.PredictionPowered(c.Labels, c.Judged, c.Others)
		for _, v := range []struct {
			name      string
			got, want float64
		}{
			{"lambda", got.Lambda, want.Lambda},
			{"the estimate", got.Estimate, want.Estimate},
			{"the error", got.SE, want.SE},
			{"the gain", got.Gain, want.Gain},
		} {
			if !near(v.got, v.want) {
				t.Errorf("%s: %s is %v, want %v", c.Name, v.name, v.got, v.want)
			}
		}
		for i, limit := range got.CI95 { // by its tail: quantiles of t are less exact
			tail := stat.StudentAbove(math.Abs(want.CI95[i]-got.Estimate)/got.SE, float64(len(c.Labels)-1))
			if math.Abs(tail-0.025) > 1e-9 || math.Abs(limit-want.CI95[i]) > 1e-8 {
				t.Errorf("%s: limit %d is %v, want %v", c.Name, i, limit, want.CI95[i])
			}
		}
	}
}

func TestPPIUndefined(t *testing.T) {
	if p := worth.PredictionPowered([]float64{1}, []float64{1}, []float64{0, 1}); p != nil {
		t.Errorf("one label: %+v", p)
	}
	if p := worth.PredictionPowered([]float64{1, 1, 1}, []float64{0, 1, 0}, nil); p != nil {
		t.Errorf("labels that do not vary: %+v", p)
	}
	alone := worth.PredictionPowered([]float64{1, 0, 1, 0}, []float64{1, 0, 1, 1}, nil)
	if alone == nil || alone.Lambda != 0 || alone.Estimate != 0.5 || alone.Gain != 1 {
		t.Errorf("nobody but people: %+v", alone)
	}
}

// The interval holds the truth in some 95 % of worlds, whatever the judge gets wrong. With 50 labels it is
// a little short where the judge errs to one side only.
func TestPPICoverage(t *testing.T) {
	const worlds, truth = 1500, 0.6
	for _, c := range []struct {
		name                  string
		labels                int
		wrongUp, wrongDown    float64 // how often the judge sees the other side
		reviewers             int
		leastShare, mostShare float64
	}{
		{"a judge that errs to both sides", 50, 0.3, 0.3, 1, 0.925, 0.965},
		{"three reviewers", 50, 0.3, 0.1, 3, 0.925, 0.965},
		{"a judge that errs to one side", 50, 0.3, 0, 1, 0.90, 0.95},
		{"a judge that errs to one side", 100, 0.3, 0, 1, 0.92, 0.965},
		{"a coin", 50, 0.5, 0.5, 1, 0.925, 0.97},
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		session := func() (label, judge float64) {
			if rng.Float64() < truth {
				label = 1
			}
			for range c.reviewers {
				seen := label
				if wrong := rng.Float64(); label == 0 && wrong < c.wrongUp || label == 1 && wrong < c.wrongDown {
					seen = 1 - label
				}
				judge += seen / float64(c.reviewers)
			}
			return label, judge
		}
		held := 0
		for range worlds {
			var labels, judged, others []float64
			for range c.labels {
				y, f := session()
				labels, judged = append(labels, y), append(judged, f)
			}
			for range 300 {
				_, f := session()
				others = append(others, f)
			}
			if p := worth.PredictionPowered(labels, judged, others); p.CI95[0] <= truth && truth <= p.CI95[1] {
				held++
			}
		}
		if share := float64(held) / worlds; share < c.leastShare || share > c.mostShare {
			t.Errorf("%s, %d labels: the interval holds the truth in %.3f of the worlds, want %v to %v", c.name, c.labels, share,
				c.leastShare, c.mostShare)
		}
	}
}
