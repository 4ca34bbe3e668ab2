package bias

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

// reportOf returns the report of what a simulation gives, from its records. They
// tell the question that each session asked.
func reportOf(t *testing.T, o simulation, seed uint64) Report {
	t.Helper()
	return collect(unlimited, recordsFrom(o, seed)).Report(t.Context())
}

// recordsFrom returns the records of what a simulation gives, with the place of
// each answer by its score on the ballot.
func recordsFrom(o simulation, seed uint64) []council.BiasMetricRecord {
	w := o.window(rand.New(rand.NewPCG(seed, 0)))
	var records []council.BiasMetricRecord
	for s, x := range w.sessions {
		for i, reviewer := range x.reviewers {
			for j, candidate := range x.candidates {
				if x.position[i][j] < 0 {
					continue
				}
				r := record("s"+strconv.Itoa(s), now.Add(time.Duration(s-o.sessions)*time.Hour), w.names[reviewer], w.names[candidate],
					x.y[i][j])
				r.Position, r.Own, r.OrderDesign = &x.position[i][j], x.own[i][j], council.OrderPerReviewer
				r.QueryHash = new("question " + strconv.Itoa(x.cluster))
				if math.IsNaN(x.y[i][j]) {
					r.ScoreValue = nil
				} else if !r.Own {
					r.RankValue = new(placeOf(x.y[i], j, i))
				}
				records = append(records, r)
			}
		}
	}
	return records
}

// placeOf returns the mean place of an answer by its score, among those of others.
func placeOf(scores []float64, answer, own int) float64 {
	place := 0.0
	for j, y := range scores {
		switch {
		case j == own || j == answer:
		case y > scores[answer]:
			place++
		case y == scores[answer]:
			place += 0.5
		}
	}
	return place
}

func TestReportFindsAChangeAndAnAnomaly(t *testing.T) {
	o := simulation{sessions: 80, hidden: true, effect: func(s, reviewer int) float64 {
		switch {
		case reviewer == 2 && s >= 50:
			return -1.5
		case reviewer == 4 && s == 20:
			return -5
		default:
			return 0
		}
	}}
	r := reportOf(t, o, 1)
	flagged := 0
	for _, c := range r.ChangePoints {
		if c.Verdict != VerdictChanged {
			continue
		}
		flagged++
		// All others seem to become more generous by a quarter of what one loses.
		if c.ReviewerID == "c" && (c.SessionID != "s50" || !c.Start.Equal(now.Add(-30*time.Hour)) || c.After-c.Before > -0.8 ||
			c.QValue > 0.01 || c.Sessions != 80) {
			t.Errorf("change point %+v", c)
		}
		if c.ReviewerID != "c" && c.After-c.Before < 0 {
			t.Errorf("change point %+v", c)
		}
	}
	if flagged == 0 || len(r.ChangePoints) != 5 {
		t.Errorf("change points %+v", r.ChangePoints)
	}
	if r.Anomalies.Cells != 5*80 || len(r.Anomalies.Found) == 0 {
		t.Fatalf("anomalies %+v", r.Anomalies)
	}
	if a := r.Anomalies.Found[0]; a.SessionID != "s20" || a.ReviewerID != "e" || a.Value > -2 || a.T > -5 ||
		!a.Start.Equal(now.Add(-60*time.Hour)) {
		t.Errorf("anomaly %+v", a)
	}
	if p := r.Reviewers[2]; *p.DriftSD > -0.3 || *p.RelativeHarshness.Upper > -0.1 || *p.RelativeHarshness.Lower < -1.2 {
		t.Errorf("profile %+v", p)
	}
	if len(r.Calibrated) != 20 {
		t.Errorf("%d calibrated scores", len(r.Calibrated))
	}
}

func TestAgreement(t *testing.T) {
	noisy := simulation{sessions: 60, hidden: true, noise: func(int, int) float64 { return 3 }}
	plain := simulation{sessions: 60, hidden: true, noise: func(int, int) float64 { return 0.2 }}
	var w []float64
	for _, o := range []simulation{noisy, plain} {
		m := reportOf(t, o, 2).Metrics[2]
		if m.Name != "agreement" || m.SampleSize != 60 || m.Records != 1200 || m.Verdict != nil ||
			!(*m.CILower < *m.PointEstimate && *m.PointEstimate < *m.CIUpper) {
			t.Errorf("metric %+v", m)
		}
		w = append(w, *m.PointEstimate)
	}
	if w[0] > 0.6 || w[1] < 0.8 {
		t.Errorf("agreement %v", w)
	}
}
