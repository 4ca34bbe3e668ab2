package bias

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
)

// TestNoiseIsNoPrimacy has a noisy reviewer read 30 questions of five answers in one
// order and the reverse. Many pairs of a question turn together, which must not pass
// for many signs: 5 % of 400 tests, and 3.3 standard errors.
func TestNoiseIsNoPrimacy(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 0))
	found := 0
	for range 400 {
		var records []council.BiasMetricRecord
		for block := range 30 {
			for order, candidates := range [][]string{{"a", "b", "c", "d", "e"}, {"e", "d", "c", "b", "a"}} {
				given := make([]float64, 5)
				for p := range given {
					given[p] = 1 + 9*rng.Float64()
				}
				records = append(records, frozen(strconv.Itoa(block), strconv.Itoa(order), "r", candidates, given...)...)
			}
		}
		if p := Consistency(slices.Values(records))[0].PValue; p != nil && *p < 0.05 {
			found++
		}
	}
	t.Logf("%d of 400 tests find primacy or recency", found)
	if found > 34 {
		t.Errorf("%d of 400 tests find primacy or recency", found)
	}
}

// frozen returns the records of one review of block b: scores of candidates in the
// order in which they were shown, NaN where none was given.
func frozen(block, session, reviewer string, candidates []string, scores ...float64) []council.BiasMetricRecord {
	records := make([]council.BiasMetricRecord, len(candidates))
	for p, candidate := range candidates {
		records[p] = record(session, now, reviewer, candidate, scores[p])
		records[p].Position, records[p].BlockID = &p, &block
		if math.IsNaN(scores[p]) {
			records[p].ScoreValue = nil
		}
	}
	return records
}

func TestConsistencyByHand(t *testing.T) {
	ab, ba, abc := []string{"a", "b"}, []string{"b", "a"}, []string{"a", "b", "c"}
	records := slices.Concat(
		// Block 1: identical in order ab, not in ba; the first one shown wins: primacy.
		frozen("1", "1", "r", ab, 8, 6), frozen("1", "2", "r", ab, 8, 6),
		frozen("1", "3", "r", ba, 8, 6), frozen("1", "4", "r", ba, 7, 7),
		// Block 2: one repeat each, the second one shown wins: recency.
		frozen("2", "1", "r", ab, 3, 6), frozen("2", "2", "r", ba, 3, 6),
		// Block 3: a tie in one order contradicts nothing.
		frozen("3", "1", "r", ab, 5, 5), frozen("3", "2", "r", ba, 3, 6),
		// Block 4: three answers, one of them scored once only, in one order; the third
		// repeat gave nothing at all.
		frozen("4", "1", "r", abc, 2, 4, 9), frozen("4", "2", "r", abc, 4, 2, math.NaN()),
		frozen("4", "3", "r", abc, math.NaN(), math.NaN(), math.NaN()),
		// A duplicate, and a review outside every block, change nothing.
		frozen("1", "1", "r", ab, 1, 1), []council.BiasMetricRecord{record("5", now, "r", "a", 1)},
		frozen("1", "1", "alone", ab, 8, 6),
	)
	conflicts := stat.ClusteredShare([]float64{1, 1, 0}, []int{1, 1, 1})
	// Items: a and b of block 1 in ab: 8 8, 6 6; in ba: b 8 7, a 6 7; of block 4: 2 4, 4 2.
	icc, within := stat.ICC([][]float64{{8, 8}, {6, 6}, {8, 7}, {6, 7}, {2, 4}, {4, 2}})
	want := []SelfConsistency{
		{ReviewerID: "alone", Blocks: 1},
		{
			ReviewerID: "r", Blocks: 4, Repeated: 3, Identical: new(1. / 3), Modal: new((1 + 0.5 + 0.5) / 3),
			ICC: icc, WithinSD: within,
			// 1 in ab of block 1, undefined in ba, -1 in block 4.
			TauB: new(0.0), TauPairs: 2,
			BothOrders: BothOrders{
				Comparisons: 3, Primacy: 1, Recency: 1, ConflictRate: conflicts, PValue: new(1.0),
				RecencyTies: 1, UnstableRate: stat.ClusteredShare([]float64{1, 1, 1}, []int{1, 1, 1}),
			},
		},
	}
	if diff := cmp.Diff(want, Consistency(slices.Values(records)), approx); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConflictIntervalsCover has a reviewer read five to eight answers in one order and its reverse: the pairs of a
// question share its reviews. 95 % of the intervals of conflicts and of unstable pairs hold the true rate, which is that
// of all data sets.
func TestConflictIntervalsCover(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	for _, tt := range []struct {
		answers, questions int
		hashed             bool // two blocks of answers for each question
	}{{5, 8, false}, {5, 30, false}, {6, 12, false}, {8, 10, false}, {8, 30, false}, {5, 20, true}} {
		rng := rand.New(rand.NewPCG(23, uint64(tt.answers)))
		probe := func(questions int) SelfConsistency {
			var records []council.BiasMetricRecord
			for block := range questions {
				records = append(records, unsteady(rng, block, tt.answers)...)
				if tt.hashed { // as much as two questions of their own, if they were independent
					copied := slices.Clone(records[len(records)-2*tt.answers:])
					for i := range copied {
						copied[i].BlockID = new(*copied[i].BlockID + " again")
						copied[i].QueryHash = new(strconv.Itoa(block))
						records[len(records)-2*tt.answers+i].QueryHash = copied[i].QueryHash
					}
					records = append(records, copied...)
				}
			}
			return Consistency(slices.Values(records))[0]
		}
		all := make([]SelfConsistency, max(200, *draws))
		var conflicts, ties, pairs float64
		for i := range all {
			all[i] = probe(tt.questions)
			conflicts += float64(all[i].Primacy + all[i].Recency)
			ties += float64(all[i].PrimacyTies + all[i].RecencyTies)
			pairs += float64(all[i].Comparisons)
		}
		held := func(rate float64, of func(SelfConsistency) stat.Estimate) float64 {
			n := 0
			for _, c := range all {
				if e := of(c); *e.Lower <= rate && rate <= *e.Upper {
					n++
				}
			}
			return share(n, len(all))
		}
		conflict := held(conflicts/pairs, func(c SelfConsistency) stat.Estimate { return c.ConflictRate })
		unstable := held((conflicts+ties)/pairs, func(c SelfConsistency) stat.Estimate { return c.UnstableRate })
		t.Logf("%d answers, %d questions, hashed %v: %.3f of the intervals of conflicts hold, %.3f of those of unstable pairs", tt.answers,
			tt.questions, tt.hashed, conflict, unstable)
		if least := 0.94 - 3*math.Sqrt(0.95*0.05/float64(len(all))); min(conflict, unstable) < least {
			t.Errorf("%d answers, %d questions: under %.3f of the intervals hold", tt.answers, tt.questions, least)
		}
	}
}

var draws = flag.Int("draws", 0, "data sets of TestConflictIntervalsCover, 200 at least")

// unsteady returns what a noisy reviewer makes of answers of one question, in one order and its reverse.
func unsteady(rng *rand.Rand, block, answers int) []council.BiasMetricRecord {
	candidates, worth := make([]string, answers), make([]float64, answers)
	apart := 0.5 + rng.Float64()
	for i := range candidates {
		candidates[i], worth[i] = strconv.Itoa(i), 6+apart*rng.NormFloat64()
	}
	var records []council.BiasMetricRecord
	for order := range 2 {
		given := make([]float64, answers)
		for i := range given {
			given[i] = max(1, min(10, math.Round(worth[i]+0.8*rng.NormFloat64())))
		}
		records = append(records, frozen(strconv.Itoa(block), fmt.Sprint(block, "-", order), "r", candidates, given...)...)
		slices.Reverse(candidates)
		slices.Reverse(worth)
	}
	return records
}

// TestConsistencyFindsWhatIsPlanted simulates verdicts between two frozen answers
// as pairwise judges give them: three repeats in each order, 0 or 1 each.
func TestConsistencyFindsWhatIsPlanted(t *testing.T) {
	const blocks, repeats = 400, 3
	simulate := func(reviewer string, repeat, primacy float64) []council.BiasMetricRecord {
		rng := rand.New(rand.NewPCG(15, 0))
		var records []council.BiasMetricRecord
		for b := range blocks {
			better := rng.IntN(2)
			captured := rng.Float64() < primacy // whatever is shown first wins
			for order, candidates := range [][]string{{"a", "b"}, {"b", "a"}} {
				winner := (better + order) % 2 // place of the better one
				if captured {
					winner = 0
				}
				for r := range repeats {
					verdict := []float64{0, 0}
					if rng.Float64() < repeat {
						verdict[winner] = 1
					} else {
						verdict[1-winner] = 1
					}
					review := frozen(strconv.Itoa(b), fmt.Sprint(order, r), reviewer, candidates, verdict...)
					for i := range review {
						review[i].ScoreScale = "0-1"
					}
					records = append(records, review...)
				}
			}
		}
		return records
	}
	got := Consistency(slices.Values(slices.Concat(simulate("firm", 1, 0), simulate("primacy", 0.97, 0.3), simulate("unsteady", 0.9, 0))))

	firm := got[0]
	if *firm.Identical != 1 || *firm.Modal != 1 || *firm.ICC.Value != 1 || *firm.WithinSD.Value != 0 || *firm.TauB != 1 ||
		*firm.ConflictRate.Value != 0 || firm.PValue != nil {
		t.Errorf("firm reviewer: %+v", firm)
	}
	// 30 % of the blocks are conflicts, all for primacy.
	swayed := got[1]
	if low, high := *swayed.ConflictRate.Lower, *swayed.ConflictRate.Upper; low > 0.3 || high < 0.3 || *swayed.PValue > 1e-6 ||
		swayed.Primacy <= 10*swayed.Recency {
		t.Errorf("primacy: %d of %d for primacy, %d for recency, rate in [%v, %v], p = %v", swayed.Primacy, swayed.Comparisons,
			swayed.Recency, low, high, *swayed.PValue)
	}
	// Verdicts hold with chance .9: all three with .9^3 + .1^3 = .73, the most frequent
	// is given by (3 .73 + 2 .27) / 3, and two agree with .9^2 + .1^2 = .82, so tau is
	// .64 and so is the ICC. A majority is wrong with .028, so 2 .028 .972 conflict.
	unsteady := got[2]
	for name, d := range map[string]float64{
		"identical": *unsteady.Identical - 0.73, "modal": *unsteady.Modal - 0.91, "tau": *unsteady.TauB - 0.64,
		"ICC": *unsteady.ICC.Value - 0.64, "conflicts": *unsteady.ConflictRate.Value - 0.0544,
	} {
		if math.Abs(d) > 0.05 { // over three standard errors, for 800 items
			t.Errorf("unsteady reviewer: %s is off by %v", name, d)
		}
	}
	if *unsteady.PValue < 0.01 {
		t.Errorf("unsteady reviewer: %d for primacy, %d for recency, p = %v", unsteady.Primacy, unsteady.Recency, *unsteady.PValue)
	}
}
