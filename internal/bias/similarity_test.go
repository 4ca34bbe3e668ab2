package bias_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
)

// similarity returns the likeness of ballots in a report, and by pair of reviewers.
func similarity(t *testing.T, records []council.BiasMetricRecord) (bias.Metric, map[string]bias.Metric) {
	t.Helper()
	c := bias.NewCollector(bias.Options{Now: today})
	for _, r := range records {
		c.Add(r)
	}
	metrics := c.Report(t.Context()).Metrics
	i := slices.IndexFunc(metrics, func(m bias.Metric) bool { return m.Name == "ballot_similarity" })
	if i < 0 {
		t.Fatal("the report has no ballot_similarity")
	}
	pairs := map[string]bias.Metric{}
	for _, m := range metrics[i].Members {
		pairs[m.Subject] = m
	}
	return metrics[i], pairs
}

func places(names ...string) [][]string {
	all := make([][]string, len(names))
	for i, name := range names {
		all[i] = []string{name}
	}
	return all
}

func TestBallotSimilarityByHand(t *testing.T) {
	var records []council.BiasMetricRecord
	for s := range 20 {
		add := func(reviewer string, shown []string, order [][]string) {
			records = append(records, ballot(fmt.Sprint("s", s), "", today.Add(time.Duration(s-30)*time.Hour), ranking.Vote{
				Reviewer: reviewer, Shown: shown, Places: order,
			})...)
		}
		all := []string{"a", "b", "c", "d"}
		add("x", all, places("a", "b", "c", "d"))
		add("y", all, places("d", "c", "b", "a"))
		add("z", all, [][]string{{"a", "b"}, {"c"}, {"d"}}) // with x: 5 of 6 pairs, one tied: 5 / sqrt(5 * 6)
		add("a", all, places("a", "b", "c", "d"))           // without its own answer, as x
		add("v", all, [][]string{{"a", "b", "c", "d"}})     // nothing can be told
		add("w", all, places("b"))                          // nor of one answer
		if s < 5 {
			add("u", all, places("a", "b", "c", "d"))
		}
	}
	m, pairs := similarity(t, records)
	z := 5 / math.Sqrt(30)
	for pair, want := range map[string]float64{"x and y": -1, "x and z": z, "y and z": -z, "a and x": 1, "a and y": -1, "a and z": 1} {
		got, ok := pairs[pair]
		if !ok || math.Abs(*got.PointEstimate-want) > 1e-12 || got.SampleSize != 20 || got.Clusters != 20 {
			t.Errorf("%s: %+v, want %v", pair, got, want)
		}
	}
	if got := pairs["a and x"]; got.Records != 20*6 { // three answers on each of two ballots
		t.Errorf("a and x: %d records", got.Records)
	}
	if got := pairs["u and x"]; got.PointEstimate != nil || *got.Verdict != bias.VerdictInsufficient || got.SampleSize != 5 {
		t.Errorf("five sessions of u: %+v", got)
	}
	if len(pairs) != 10 {
		t.Errorf("%d pairs, want those of a, u, x, y, z", len(pairs))
	}
	// The six pairs of each session add up to 0, those of u in five sessions to 1 - 1 + z + 1.
	want := 5 * (1 + z) / (20*6 + 5*4)
	if math.Abs(*m.PointEstimate-want) > 1e-12 || m.Verdict != nil || m.Delta != nil || m.Records != 20*(4+4+4+3)+5*4 {
		t.Errorf("%v over %d records, want %v: %+v", *m.PointEstimate, m.Records, want, m)
	}
}

// Records of a schema without ranks are ranked by their scores, as on the leaderboard.
func TestBallotSimilarityOfEarlyRecords(t *testing.T) {
	var records []council.BiasMetricRecord
	for s := range 20 {
		for reviewer, scores := range map[string][]float64{"x": {9, 7, 5}, "y": {8, 3, 4}} {
			for i, score := range scores {
				records = append(records, council.BiasMetricRecord{
					SchemaVersion: "1.1.0", SessionID: fmt.Sprint("s", s), Timestamp: today.Add(time.Duration(s-30) * time.Hour),
					ReviewerID: reviewer, ModelID: string(rune('a' + i)), ScoreValue: &score, ScoreScale: council.ScoreScale,
				})
			}
		}
	}
	if m, _ := similarity(t, records); m.PointEstimate == nil || math.Abs(*m.PointEstimate-1./3) > 1e-12 {
		t.Errorf("%+v, want 1/3", m)
	}
}
