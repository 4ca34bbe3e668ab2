package biassim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
	"gonum.org/v1/gonum/stat"
)

// council3 are the options of sessions of three members who see all answers, in
// the same order everywhere.
func council3(sessions int) biassim.Options {
	members := biassim.Council(3)
	slate := make(council.Slate, len(members))
	for j, member := range members {
		slate[j].Member = member
	}
	o := biassim.Options{Seed: 1, Sessions: sessions, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Members: members}
	o.Order = council.OrderShared
	o.Slates = func(int) []council.Slate { return slices.Repeat([]council.Slate{slate}, 4) } // one outside reviewer
	return o
}

// scores returns the scores of the plain world and of another, record by record.
func scores(sessions int, world biassim.World) (plain, other []float64, records []council.BiasMetricRecord) {
	o := council3(sessions)
	for _, r := range biassim.Generate(o) {
		plain = append(plain, *r.ScoreValue)
	}
	o.World = world
	records = biassim.Generate(o)
	for _, r := range records {
		if r.ScoreValue == nil {
			other = append(other, math.NaN())
			continue
		}
		other = append(other, *r.ScoreValue)
	}
	return plain, other, records
}

const cells = 9 // of a session of council3

// cell returns the scores of one reviewer and candidate over the sessions.
func cell(x []float64, k int) []float64 {
	var all []float64
	for ; k < len(x); k += cells {
		all = append(all, x[k])
	}
	return all
}

func TestCouncils(t *testing.T) {
	for n := 1; n <= 12; n++ {
		makers := map[string]int{}
		for _, r := range biassim.Generate(biassim.Options{
			Seed: 1, Sessions: 1, Members: biassim.Council(n),
			Slates: func(int) []council.Slate {
				slates := make([]council.Slate, n)
				for i, member := range biassim.Council(n) {
					slates[i] = council.Slate{{Member: member}}
				}
				return slates
			},
		}) {
			makers[r.Provider.Candidate]++
		}
		if want := max(1, n-1); len(makers) != want {
			t.Errorf("%d members have %d makers, want %d", n, len(makers), want)
		}
	}
}

func TestSpread(t *testing.T) {
	plain, spread, records := scores(4000, biassim.World{Spread: 0.3})
	var factors []float64
	for i := range 3 {
		factors = append(factors, stat.StdDev(cell(spread, 3*i), nil)/stat.StdDev(cell(plain, 3*i), nil))
		if records[3*i].ReviewerID != biassim.Council(3)[i] {
			t.Fatalf("record %d is of %s", 3*i, records[3*i].ReviewerID)
		}
	}
	slices.Sort(factors)
	for k, want := range []float64{0.7, 1, 1.3} {
		if math.Abs(factors[k]-want) > 0.03 {
			t.Errorf("a reviewer spreads its scores %.3f times as far, want %g", factors[k], want)
		}
	}
	dealt := map[string]bool{}
	for seed := range uint64(40) {
		o := council3(40)
		o.Seed, o.World.Spread = seed, 0.9
		widest := ""
		var most float64
		for i := range 3 {
			var given []float64
			for n, r := range biassim.Generate(o) {
				if n%cells/3 == i {
					given = append(given, *r.ScoreValue)
				}
			}
			if sd := stat.StdDev(given, nil); sd > most {
				most, widest = sd, biassim.Council(3)[i]
			}
		}
		dealt[widest] = true
	}
	if len(dealt) != 3 {
		t.Errorf("over 40 data sets only %v spread their scores widest", dealt)
	}
}

func TestConstantReviewer(t *testing.T) {
	plain, other, records := scores(20, biassim.World{Constant: []float64{0, 7}})
	for n, r := range records {
		want := plain[n]
		if r.ReviewerID == biassim.Council(3)[1] {
			want = 7
		}
		if other[n] != want {
			t.Errorf("record %d: score %g, want %g", n, other[n], want)
		}
	}
}

func TestLongerBetter(t *testing.T) {
	for _, c := range []float64{0, 0.6, -0.6} {
		_, scores, records := scores(4000, biassim.World{LongerBetter: c})
		var length, score []float64 // within the first candidate, where only answers vary
		for n, r := range records {
			if n%cells == 0 {
				length = append(length, math.Log(float64(r.ResponseLengthChars)))
				score = append(score, (scores[n]+scores[n+3]+scores[n+6]-scores[n+1]-scores[n+4]-scores[n+7])/3)
			}
		}
		// c times the answer's share of the standard deviations: .25 of the length, and of
		// the difference of two mean scores .8 of sqrt(2 (.8^2 + (.8^2 + 1/12) / 3)).
		want := c * 0.25 / math.Hypot(0.25, 0.4) * 0.8 / math.Sqrt(2*(0.64+(0.64+1./12)/3))
		if got := stat.Correlation(length, score, nil); math.Abs(got-want) > 0.04 {
			t.Errorf("correlation %g planted: length and score of an answer have %.3f, want %.3f", c, got, want)
		}
	}
}

func TestCeilingAndCoarseScores(t *testing.T) {
	_, high, _ := scores(1000, biassim.World{Base: 9})
	clipped := 0
	for _, y := range high {
		if y == 10 {
			clipped++
		}
	}
	if share := float64(clipped) / float64(len(high)); share < 0.25 || share > 0.5 {
		t.Errorf("around 9, %.2f of the scores are 10", share)
	}
	_, coarse, _ := scores(1000, biassim.World{Step: 2})
	for n, y := range coarse {
		if math.Mod(y, 2) != 0 && y != 1 {
			t.Fatalf("record %d: score %g in steps of 2", n, y)
		}
	}
}

func TestMissingBallots(t *testing.T) {
	plain, other, records := scores(1000, biassim.World{Missing: 0.2})
	failed := 0
	for n, r := range records {
		ballot := other[n-n%3 : n-n%3+3]
		if math.IsNaN(other[n]) {
			failed++
			given := slices.ContainsFunc(ballot, func(y float64) bool { return !math.IsNaN(y) })
			if r.Status != council.BallotError || r.RankValue != nil || given {
				t.Fatalf("record %d of a failed ballot: %+v", n, r)
			}
		} else if other[n] != plain[n] {
			t.Fatalf("record %d: score %g, want %g", n, other[n], plain[n])
		}
	}
	if share := float64(failed) / float64(len(records)); math.Abs(share-0.2) > 0.03 {
		t.Errorf("%.3f of the ballots failed", share)
	}
}

func TestNoise(t *testing.T) {
	// The difference of two reviewers' scores of two answers holds nothing but noise
	// and rounding.
	contrasts := func(x []float64) []float64 {
		var all []float64
		for n := 0; n < len(x); n += cells {
			all = append(all, x[n]-x[n+1]-x[n+3]+x[n+4])
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		world biassim.World
	}{{"heavy tails", biassim.World{HeavyTails: true}}, {"varying noise", biassim.World{NoiseSpread: 0.5}}} {
		plain, other, _ := scores(8000, tt.world)
		a, b := contrasts(plain), contrasts(other)
		if ratio := stat.Variance(b, nil) / stat.Variance(a, nil); ratio < 0.75 || ratio > 1.15 { // the scale's ends cut long tails
			t.Errorf("%s: %.3f times the variance", tt.name, ratio)
		}
		if k := stat.ExKurtosis(a, nil); math.Abs(k) > 0.2 {
			t.Errorf("plain: excess kurtosis %.2f", k)
		}
		if k := stat.ExKurtosis(b, nil); k < 1 {
			t.Errorf("%s: excess kurtosis %.2f", tt.name, k)
		}
	}
}

func TestRuns(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		_, scores, records := scores(4000, biassim.World{Runs: 2, Frozen: frozen})
		var first, second, last []float64 // of the first cell: two sessions of a question, one of the next
		for n := 0; n+2*cells < len(records); n += 2 * cells {
			a, b, c := records[n], records[n+cells], records[n+2*cells]
			same, name := a.QueryHash != nil && *a.QueryHash == *b.QueryHash && *a.QueryHash != *c.QueryHash, "query hash"
			if frozen {
				same, name = a.QueryHash == nil && a.BlockID != nil && *a.BlockID == *b.BlockID && *a.BlockID != *c.BlockID, "block id"
				if a.ResponseLengthChars != b.ResponseLengthChars {
					t.Fatalf("record %d: the frozen answer has %d, then %d characters", n, a.ResponseLengthChars, b.ResponseLengthChars)
				}
			}
			if !same {
				t.Fatalf("record %d: the sessions of a question have no %s of their own", n, name)
			}
			first, second, last = append(first, scores[n]), append(second, scores[n+cells]), append(last, scores[n+2*cells])
		}
		// Variances: difficulty .25, answer .64, shift .09, noise .64, rounding 1/12.
		shared := 0.25 + 0.64/2 + 0.09/2 + 0.64/2
		if frozen {
			shared += 0.64 / 2
		}
		want := shared / (0.25 + 0.64 + 0.09 + 0.64 + 1./12)
		if got := stat.Correlation(first, second, nil); math.Abs(got-want) > 0.05 {
			t.Errorf("frozen %v: scores of one question correlate by %.3f, want %.3f", frozen, got, want)
		}
		if got := stat.Correlation(second, last, nil); math.Abs(got) > 0.1 {
			t.Errorf("frozen %v: scores of two questions correlate by %.3f", frozen, got)
		}
	}
}

// Outside reviewers review and do not answer, and who has an empty slate does not
// change the scores of the others.
func TestWhoTakesPart(t *testing.T) {
	o := council3(10)
	plain := biassim.Generate(o)
	o.Outside = []string{"other/x"}
	outside := 0
	for _, r := range biassim.Generate(o) {
		if r.ReviewerID == "other/x" {
			outside++
			if r.Own || r.Provider.Reviewer != "other" || r.RankValue == nil {
				t.Errorf("of an outside reviewer: %+v", r)
			}
		}
		if r.ModelID == "other/x" {
			t.Errorf("an outside reviewer answered: %+v", r)
		}
	}
	if outside != 30 {
		t.Errorf("%d records of the outside reviewer, want 30", outside)
	}

	o = council3(10)
	all := o.Slates
	o.Slates = func(s int) []council.Slate {
		slates := all(s)
		if s == 4 {
			slates[1] = council.Slate{}
		}
		return slates
	}
	left := slices.DeleteFunc(plain, func(r council.BiasMetricRecord) bool {
		return r.SessionID == "s00004" && r.ReviewerID == biassim.Council(3)[1]
	})
	for n, r := range biassim.Generate(o) {
		if r.ReviewerID != left[n].ReviewerID || *r.ScoreValue != *left[n].ScoreValue {
			t.Errorf("record %d: %+v, want %+v", n, r, left[n])
		}
	}
}

// means returns the mean scores of the three reviewers of council3 and of their candidates, sorted.
func means(x []float64) (reviewers, candidates []float64) {
	reviewers, candidates = make([]float64, 3), make([]float64, 3)
	for k, y := range x {
		reviewers[k%cells/3] += y / float64(len(x)/3)
		candidates[k%3] += y / float64(len(x)/3)
	}
	slices.Sort(reviewers)
	slices.Sort(candidates)
	return reviewers, candidates
}

func TestGapAndLevels(t *testing.T) {
	plain, wide, _ := scores(2000, biassim.World{Gap: 1.2})
	_, before := means(plain)
	_, after := means(wide)
	for k := range before {
		// The mean of the qualities is not 0, so only their distances are as many times as large.
		if k > 0 && math.Abs((after[k]-after[0])-2*(before[k]-before[0])) > 0.1 {
			t.Errorf("candidates have means of %.2f, and with twice the gap of %.2f", before, after)
		}
	}
	_, levels, _ := scores(2000, biassim.World{Levels: 1})
	reviewers, _ := means(levels)
	for k, want := range []float64{-1, 0, 1} {
		if got := reviewers[k] - reviewers[1]; math.Abs(got-want) > 0.1 {
			t.Errorf("level %d lies at %.2f, want %g", k, got, want)
		}
	}
}

func TestCurve(t *testing.T) {
	plain, curved, _ := scores(2000, biassim.World{Curve: 1})
	before, _ := means(plain)
	after, _ := means(curved)
	// A score of 6 becomes 1 + 9 (5/9)^c, with c of 2, 1 and 1/2.
	for k, want := range []float64{3.8, 6, 7.7} {
		if got := after[k] - before[1] + 6; math.Abs(got-want) > 0.35 {
			t.Errorf("reviewer %d has a mean of %.2f, want %g", k, got, want)
		}
	}
}

func TestSCurve(t *testing.T) {
	plain, curved, _ := scores(2000, biassim.World{SCurve: 1})
	widths := func(x []float64) []float64 { // by reviewer, ascending: how far apart its scores lie
		all := make([]float64, 3)
		for i := range all {
			_, all[i] = stat.MeanStdDev(slices.Concat(cell(x, 3*i), cell(x, 3*i+1), cell(x, 3*i+2)), nil)
		}
		slices.Sort(all)
		return all
	}
	// About a middle of 5.5 they would lie 0, 1 and 2 times as far apart, were they all close to it.
	before, after := widths(plain), widths(curved)
	for k, want := range [][2]float64{{0.2, 0.6}, {0.9, 1.1}, {1.3, 1.8}} {
		if got := after[k] / before[1]; got < want[0] || got > want[1] {
			t.Errorf("scores lie %.2f times as far apart, want %v", got, want)
		}
	}
}
