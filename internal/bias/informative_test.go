package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// alone returns the records of sessions that only one of two reviewers came back from, and of some that
// both did. Nobody is harsh, and no place counts.
func alone(seed uint64, first, second, both int) []council.BiasMetricRecord {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := first + second + both
	var records []council.BiasMetricRecord
	for s, k := range rng.Perm(n) {
		reviewers := []string{"x/one", "y/two"}
		switch {
		case k < first:
			reviewers = reviewers[:1]
		case k < first+second:
			reviewers = reviewers[1:]
		}
		var worth [4]float64
		for j := range worth {
			worth[j] = 6 + 0.8*rng.NormFloat64()
		}
		for _, reviewer := range reviewers {
			shift := 0.3 * rng.NormFloat64()
			for p, j := range rng.Perm(4) {
				score := math.Round(min(10, max(1, worth[j]+shift+0.8*rng.NormFloat64())))
				r := record(fmt.Sprintf("s%04d", s), now.Add(time.Duration(s-n)*time.Hour), reviewer, fmt.Sprintf("m/%d", j), score)
				r.Position, r.NShown, r.OrderDesign, r.ResponseLengthChars = &p, 4, council.OrderBalanced, 500+rng.IntN(1500)
				records = append(records, r)
			}
		}
	}
	return records
}

// A session with the ballot of one reviewer says nothing of harshness, and nobody favours anybody in these: verdicts of favour are in
// 5 % of the windows, and three standard errors.
func TestSessionsOfOneBallotDoNotCount(t *testing.T) {
	testkit.Slow(t)
	for _, w := range []struct{ first, second, both int }{{95, 0, 5}, {45, 45, 3}, {45, 45, 5}, {90, 0, 10}, {80, 0, 20}} {
		windows := 60
		found := 0
		for seed := range uint64(windows) {
			c := collect(unlimited, alone(seed, w.first, w.second, w.both))
			r := c.Report(t.Context())
			if strings.HasPrefix(r.Headline, "Favour found") {
				found++
			}
			m := byName(r.Metrics)["harshness"]
			if m.PValue != nil && (w.both < preliminaryFrom || m.Clusters > w.both || m.Confidence != c.confidence(m.Clusters)) {
				t.Errorf("%+v: harshness has p = %v of %d questions, %s", w, *m.PValue, m.Clusters, m.Confidence)
			}
		}
		if most := 0.05*float64(windows) + 3*math.Sqrt(0.05*0.95*float64(windows)); float64(found) > most {
			t.Errorf("%+v: bias in %d of %d windows", w, found, windows)
		}
	}
}

// The monitor does not begin before a hundred questions tell of a headline.
func TestMonitorWaitsForTellingSessions(t *testing.T) {
	m := collect(Options{Now: now}, alone(1, 140, 0, 20)).Monitor(t.Context(), nil)
	for _, w := range m.Watched {
		if w.Name == "harshness" && (w.LogE != nil || !strings.Contains(w.Reason, "these 160 count as ")) {
			t.Errorf("%s has log e %v: %s", w.Name, w.LogE, w.Reason)
		}
	}
}

// A reviewer that meets the others in three of a hundred sessions is not judged, although the other sessions
// have a part in the fit: ballots are missing at random, and not all reviewers come to the three.
func TestSeldomMet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	records := generated(5, 100, council.OrderBalanced, false, biassim.Effects{})
	session, last, failed := -1, "", false
	for i, r := range records {
		if i == 0 || r.SessionID != last || r.ReviewerID != records[i-1].ReviewerID {
			failed = rng.IntN(5) == 0
		}
		if r.SessionID != last {
			session, last = session+1, r.SessionID
		}
		// In half of the other sessions it is alone, and in half it is away.
		if first := r.ReviewerID == biassim.Members()[0]; failed || session >= 3 && first == (session%2 == 0) {
			records[i].ScoreValue, records[i].RankValue, records[i].Status = nil, nil, council.BallotError
		}
	}
	metrics := byName(collect(unlimited, records).Report(t.Context()).Metrics)
	m := metrics["harshness|"+biassim.Members()[0]]
	if m.SampleSize < 30 || m.Clusters > 3 || m.Confidence != ConfidenceInsufficient || m.PValue != nil || *m.Verdict != VerdictInsufficient {
		t.Errorf("%d sessions count as %d, %s: %+v", m.SampleSize, m.Clusters, m.Confidence, m)
	}
	if other := metrics["harshness|"+biassim.Members()[1]]; other.PValue == nil {
		t.Errorf("another reviewer is not judged: %s", other.Reason)
	}
}
