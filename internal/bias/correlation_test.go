package bias

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
)

// TestLengthCorrelationCovers draws windows in which lengths have nothing to do with scores, although the answers to one question
// have lengths, and worth, of their own: 95 % of the intervals hold 0. Fisher's, over records, held it in some 80 %.
func TestLengthCorrelationCovers(t *testing.T) {
	testkit.Slow(t)
	for _, questions := range []int{20, 50, 100} {
		windows := 600
		hit, fisher := 0, 0
		for seed := range uint64(windows) {
			p := lengths(nullLengths(seed, questions))
			low, high, ok := p.interval()
			r, _ := stat.Pearson(p.x, p.y)
			if !ok {
				t.Fatalf("%d questions: no interval of %v", questions, r)
			}
			if low <= 0 && 0 <= high {
				hit++
			}
			if low, high, _ := stat.FisherInterval(r, len(p.x)); low <= 0 && 0 <= high {
				fisher++
			}
		}
		share := float64(hit) / float64(windows)
		t.Logf("%d questions: %.1f %% hold 0, over records %.1f %%", questions, 100*share, 100*float64(fisher)/float64(windows))
		if low := 0.94 - 4*math.Sqrt(0.95*0.05/float64(windows)); share < low || share > 0.98 {
			t.Errorf("%d questions: %.1f %% of the intervals hold 0", questions, 100*share)
		}
	}
	wide := byName(collect(unlimited, nullLengths(1, 20)).Report(t.Context()).Metrics)["pooled_length_score_correlation"]
	if low, high, _ := lengths(nullLengths(1, 20)).interval(); *wide.CILower != low || *wide.CIUpper != high {
		t.Errorf("the report has the interval %v to %v, want %v to %v", *wide.CILower, *wide.CIUpper, low, high)
	}
	few := byName(collect(unlimited, nullLengths(1, 19)).Report(t.Context()).Metrics)["pooled_length_score_correlation"]
	if few.CILower != nil || few.CIUpper != nil {
		t.Errorf("19 questions have an interval: %+v", few)
	}
}

// lengths returns the lengths and scores of records, which are sorted by session.
func lengths(records []council.BiasMetricRecord) *pairs {
	p, q, last := new(pairs), -1, ""
	for _, r := range records {
		if r.SessionID != last {
			q, last = q+1, r.SessionID
		}
		p.append(q, q, float64(r.ResponseLengthChars), *r.ScoreValue)
	}
	return p
}

// nullLengths returns the records of questions, whose difficulty and usual length are independent, as each answer's are.
func nullLengths(seed uint64, questions int) []council.BiasMetricRecord {
	draws := rand.New(rand.NewPCG(seed, 12))
	const members = 4
	var records []council.BiasMetricRecord
	for q := range questions {
		difficulty, usual := draws.NormFloat64(), draws.NormFloat64()
		for j := range members {
			worth, length := 6+0.6*difficulty+draws.NormFloat64(), int(1000*math.Exp(0.4*usual+0.4*draws.NormFloat64()))
			for i := range members {
				if i == j {
					continue
				}
				records = append(records, council.BiasMetricRecord{
					SchemaVersion: council.RecordSchema, SessionID: "s" + strconv.Itoa(q), Timestamp: now.AddDate(0, 0, -q),
					ReviewerID: "r" + strconv.Itoa(i), ModelID: "r" + strconv.Itoa(j), ResponseLengthChars: length,
					ScoreScale: council.ScoreScale, ScoreValue: new(min(10, max(1, math.Round(worth+0.8*draws.NormFloat64())))),
				})
			}
		}
	}
	return records
}
