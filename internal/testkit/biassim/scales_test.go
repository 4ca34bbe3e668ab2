package biassim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/councild/councild/internal/testkit/biassim"
	"gonum.org/v1/gonum/stat"
)

// exact returns the scores of a world to the thousandth, record by record, before cut points and habits. They end at 1 and 10.
func exact(o biassim.Options) []float64 {
	o.World.Step, o.World.CutPoints, o.World.Habits, o.World.Missing = 0.001, 0, nil, 0
	records := biassim.Generate(o)
	all := make([]float64, len(records))
	for n, r := range records {
		all[n] = *r.ScoreValue
	}
	return all
}

// A reviewer has one set of cut points, whatever its level and the worth of the answers. What they stand around is its mode.
func TestCutPoints(t *testing.T) {
	const spread = 0.5
	var logs []float64 // of the distances
	for seed := range uint64(20) {
		type span struct{ low, high float64 }
		seen := [3][11]span{} // by reviewer and score: of the scores before cut points
		for i := range seen {
			for k := range seen[i] {
				seen[i][k] = span{math.Inf(1), math.Inf(-1)}
			}
		}
		for _, world := range []biassim.World{{}, {Levels: 1, Gap: 1.5}} {
			o := council3(300)
			o.Seed, o.World = seed, world
			before := exact(o)
			o.World.CutPoints = spread
			for n, r := range biassim.Generate(o) {
				y, k := before[n], int(*r.ScoreValue)
				if float64(k) != *r.ScoreValue || k < 1 || k > 10 {
					t.Fatalf("record %d has a score of %g", n, *r.ScoreValue)
				}
				if y > 1 && y < 10 {
					s := &seen[n%cells/3][k]
					s.low, s.high = min(s.low, y), max(s.high, y)
				}
				if math.Abs(y-6) < 0.02 && (k < 6 || k > 9) {
					t.Errorf("a score of %.2f becomes %d, which is no mode from 6.5 to 8.5", y, k)
				}
			}
		}
		for i := range seen {
			top, cut := math.Inf(-1), [11]float64{}
			for k, s := range seen[i] {
				if s.low < top-0.001 {
					t.Fatalf("seed %d, reviewer %d: %d is given from %.3f on, and less up to %.3f", seed, i, k, s.low, top)
				}
				cut[k] = (top + s.low) / 2
				top = max(top, s.high)
			}
			for k := 6; k < 9; k++ {
				logs = append(logs, math.Log(cut[k+1]-cut[k]))
			}
		}
	}
	if mean, sd := stat.MeanStdDev(logs, nil); math.Abs(mean) > 0.15 || math.Abs(sd-spread) > 0.1 {
		t.Errorf("the logarithms of distances have a mean of %.2f and a standard deviation of %.2f", mean, sd)
	}
}

func TestHabits(t *testing.T) {
	for _, habit := range biassim.Habits() {
		plain, other, _ := scores(600, biassim.World{Habits: []biassim.Habit{"", habit}})
		var used []float64
		for n, y := range other {
			if n%cells/3 == 1 {
				used = append(used, y)
			} else if y != plain[n] {
				t.Fatalf("%s: record %d of another reviewer has %g, want %g", habit, n, y, plain[n])
			}
		}
		slices.Sort(used)
		if middle := map[biassim.Habit]float64{biassim.HighScores: 8, biassim.LowScores: 3}[habit]; middle > 0 {
			if median := used[len(used)/2]; median != middle {
				t.Errorf("%s: the reviewer has a median of %g", habit, median)
			}
		}
		if got, want := slices.Compact(used), habit.Scores(); habit == biassim.EveryScore {
			for _, y := range got {
				if !slices.Contains(want, y) {
					t.Errorf("all scores: %g", y)
				}
			}
		} else if !slices.Equal(got, want) && !slices.Equal(got, want[1:]) && !slices.Equal(got, want[:len(want)-1]) {
			// The ends of the scale are so seldom used that they may be missing.
			t.Errorf("%s: the reviewer uses %g", habit, got)
		}
	}
}

func TestMixedHabits(t *testing.T) {
	counts := map[biassim.Habit]int{}
	const sets = 80
	for seed := range uint64(sets) {
		o := council3(60)
		o.Seed, o.World.MixedHabits, o.World.Habits = seed, true, []biassim.Habit{biassim.EvenScores}
		used := [3][]float64{}
		for n, r := range biassim.Generate(o) {
			used[n%cells/3] = append(used[n%cells/3], *r.ScoreValue)
		}
		for i, all := range used {
			var fits []biassim.Habit
			for _, habit := range biassim.Habits() {
				if !slices.ContainsFunc(all, func(y float64) bool { return !slices.Contains(habit.Scores(), y) }) {
					fits = append(fits, habit)
				}
			}
			drawn := slices.MinFunc(fits, func(a, b biassim.Habit) int { return len(a.Scores()) - len(b.Scores()) })
			if i == 0 && drawn != biassim.EvenScores {
				t.Errorf("seed %d: the reviewer of even scores gives %v", seed, all)
			}
			if i > 0 {
				counts[drawn]++
			}
		}
	}
	for _, habit := range biassim.Habits() {
		if share := float64(counts[habit]) / (2 * sets); math.Abs(share-1./7) > 0.11 {
			t.Errorf("%q is drawn by %.2f of the reviewers, want 1/7", habit, share)
		}
	}
}

// byReviewer returns what f makes of the scores of each reviewer of council3, ascending.
func byReviewer(x []float64, f func(own []float64) float64) []float64 {
	all := make([]float64, 3)
	for i := range all {
		all[i] = f(slices.Concat(cell(x, 3*i), cell(x, 3*i+1), cell(x, 3*i+2)))
	}
	slices.Sort(all)
	return all
}

// sub returns the differences of two lists.
func sub(x, y []float64) []float64 {
	z := make([]float64, len(x))
	for n := range z {
		z[n] = x[n] - y[n]
	}
	return z
}

// change returns the exact scores of the plain world and how far those of another are from them.
func change(sessions int, world biassim.World) (plain, change []float64) {
	o := council3(sessions)
	plain = exact(o)
	o.World = world
	return plain, sub(exact(o), plain)
}

func TestUnlikeNoise(t *testing.T) {
	plain, changes := change(3000, biassim.World{UnlikeNoise: 0.5})
	sds := byReviewer(changes, func(x []float64) float64 { return stat.StdDev(x, nil) })
	for k, want := range []float64{0, 0.4, 0.4} {
		if math.Abs(sds[k]-want) > 0.02 {
			t.Errorf("scores change by %.3f on average, want %g", sds[k], want)
		}
	}
	// The changes are the noise of .8, times -1/2, 0 and 1/2: it goes into the scores with that covariance.
	covariances := make([]float64, 3)
	for i := range covariances {
		covariances[i] = stat.Covariance(cell(changes, 3*i), cell(plain, 3*i), nil)
	}
	slices.Sort(covariances)
	for k, want := range []float64{-0.32, 0, 0.32} {
		if math.Abs(covariances[k]-want) > 0.06 {
			t.Errorf("changes and scores have a covariance of %.3f, want %g", covariances[k], want)
		}
	}
}

// A reviewer's level, noise or spread goes with the worth of its own answer, alike for all that it is shown.
func TestOwnWorth(t *testing.T) {
	const v, tiny = 0.3, 0.02 // tiny: scores are rounded to the thousandth
	plain, level := change(3000, biassim.World{OwnLevel: v})
	_, spread := change(3000, biassim.World{OwnSpread: v})
	_, more := change(3000, biassim.World{OwnNoise: v})
	_, less := change(3000, biassim.World{OwnNoise: -v})
	var worths, judged []float64
	for n := 0; n < len(plain); n += 3 {
		if ballot := plain[n : n+3]; slices.Min(ballot) < 3 || slices.Max(ballot) > 8 {
			continue // the ends of the scale may cut changes
		}
		worth, own := level[n]/v, n%cells/3
		up, down := math.Exp(v*worth-v*v)-1, math.Exp(-v*worth-v*v)-1 // what the noise and the factor change by
		for k := n; k < n+3; k++ {
			if math.Abs(level[k]-v*worth) > tiny {
				t.Errorf("record %d rises by %.3f, and another of the ballot by %.3f", k, level[k], v*worth)
			}
			if want := min(max(up*(plain[k]-6), 1-plain[k]), 10-plain[k]); math.Abs(spread[k]-want) > tiny {
				t.Errorf("record %d of %.3f changes by %.3f with the spread, want %.3f", k, plain[k], spread[k], want)
			}
			if math.Abs(more[k]*down-less[k]*up) > tiny {
				t.Errorf("record %d changes by %.3f with more noise and %.3f with less, want %.3f to %.3f", k, more[k], less[k], up, down)
			}
		}
		other := n - n%cells + 3*((own+1)%3) // the first record of another reviewer
		worths = append(worths, worth)
		judged = append(judged, 3*plain[other+own]-plain[other]-plain[other+1]-plain[other+2])
	}
	if sd := stat.StdDev(worths, nil); math.Abs(sd-1) > 0.2 {
		t.Errorf("the worth of own answers has a standard deviation of %.2f", sd)
	}
	if r := stat.Correlation(worths, judged, nil); r < 0.35 {
		t.Errorf("it correlates by %.2f with what another says of the own answers", r)
	}
}
