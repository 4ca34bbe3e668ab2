package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/google/go-cmp/cmp"
)

// Three questions with the means 2, 4 and 9 of one score each: the mean of equal clusters
// has the textbook's error, s / sqrt(n).
func TestMeanIntervalByHand(t *testing.T) {
	var s sums
	for cluster, score := range []float64{2, 4, 9} {
		s.add(cluster, score)
		s.add(cluster, score) // scores of one question that say the same twice add nothing
	}
	low, high := s.interval()
	// s = sqrt(13), n = 3, t(0.975, 2) = 4.302653: 5 +- 8.957, within the scale.
	if mean, n := s.mean(); mean != 5 || n != 6 || *low != 1 || *high != 10 {
		t.Errorf("mean %v of %d, %v to %v", mean, n, *low, *high)
	}
	s = nil
	for cluster, score := range []float64{4, 5, 5, 6, 6, 4} {
		s.add(cluster, score)
	}
	low, high = s.interval()
	half := 2.570582 * math.Sqrt(0.8/6) // t(0.975, 5) of Student's table, s^2 = 0.8
	if math.Abs(*low-(5-half)) > 1e-6 || math.Abs(*high-(5+half)) > 1e-6 {
		t.Errorf("%v to %v, want 5 +- %v", *low, *high, half)
	}
	if low, high := s[:1].interval(); low != nil || high != nil {
		t.Errorf("one question has the interval %v to %v", *low, *high)
	}
}

// world is a generator of scores that is none of biassim: questions differ in how hard they
// are, reviewers in how they spread their scores, in how many they give, and by question in
// how harsh they are; scores are whole numbers within the scale.
type world struct {
	name      string
	questions int
	hard      float64   // SD of questions
	harsh     []float64 // mean of each reviewer, on top of 6
	spread    []float64 // of each reviewer's scores
	mood      float64   // SD of a reviewer's harshness between questions
	missing   float64   // share of the scores of the last reviewer that are missing
	repeats   int       // scores of a reviewer on one question
}

func worlds() []world {
	harsh, spread := []float64{-0.9, 0.2, 0.7, 0}, []float64{0.6, 1.4, 1, 1}
	return []world{
		{"twelve questions", 12, 1, harsh, spread, 0.4, 0, 3},
		{"fifty questions", 50, 1, harsh, spread, 0.4, 0, 3},
		{"hard and easy questions", 20, 1.6, harsh, spread, 0.4, 0, 3},
		{"moods", 20, 0.5, harsh, spread, 1.2, 0, 4},
		{"a reviewer that is often missing", 30, 1, harsh, spread, 0.4, 0.6, 3},
		{"two reviewers", 20, 1, harsh[:2], spread[:2], 0.4, 0, 3},
	}
}

// draw returns the scores of each reviewer by question.
func (w world) draw(random *rand.Rand) []sums {
	all := make([]sums, len(w.harsh))
	for q := range w.questions {
		level := 6 + w.hard*random.NormFloat64()
		for i := range w.harsh {
			mood := w.mood * random.NormFloat64()
			for range w.repeats {
				y := level + w.harsh[i] + mood + w.spread[i]*random.NormFloat64()
				if i == len(w.harsh)-1 && random.Float64() < w.missing {
					continue
				}
				all[i].add(q, max(1, min(10, math.Round(y))))
			}
		}
	}
	return all
}

// The intervals of means and of the harshness z hold the truth of worlds that differ from
// ours as often as they say, within what so many windows can tell. The truth is that of
// 40,000 questions.
func TestMeanIntervalsCover(t *testing.T) {
	t.Parallel()
	const windows = 600
	for i, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(5, uint64(i)))
			all := w
			all.questions = 40_000
			var truth, means []float64
			for _, s := range all.draw(random) {
				mean, _ := s.mean()
				means = append(means, mean)
			}
			centre, sd := stat.MeanStdDev(means)
			for _, m := range means {
				truth = append(truth, (m-centre)/sd)
			}
			held, of, zHeld, zOf := 0, 0, 0, 0
			for range windows {
				scores := w.draw(random)
				zLow, zHigh := zIntervals(scores)
				for r, s := range scores {
					if low, high := s.interval(); low != nil {
						of++
						if *low <= means[r] && means[r] <= *high {
							held++
						}
					}
					if zLow[r] != nil {
						zOf++
						if *zLow[r] <= truth[r]+1e-9 && truth[r]-1e-9 <= *zHigh[r] {
							zHeld++
						}
					}
				}
			}
			t.Logf("means %.3f of %d, z %.3f of %d", share(held, of), of, share(zHeld, zOf), zOf)
			// Windows, not intervals, are independent: three standard errors of 95 % in 600.
			least := 0.95 - 3*math.Sqrt(0.95*0.05/windows)
			if of == 0 || share(held, of) < least {
				t.Errorf("the means are held by %.3f of %d intervals", share(held, of), of)
			}
			if zOf > 0 && share(zHeld, zOf) < least {
				t.Errorf("z is held by %.3f of %d intervals", share(zHeld, zOf), zOf)
			}
		})
	}
}

// Ballots of four reviewers that see the same worth, each through noise of its own, in questions that are easy or
// hard and are asked twice: the interval of their likeness holds the mean over all questions of this kind, found over
// many of them, in about 95 % of windows.
func TestBallotSimilarityCovers(t *testing.T) {
	const windows, questions, members = 400, 30, 4
	random := rand.New(rand.NewPCG(7, 11))
	draw := func(questions int) *window {
		w := &window{names: []string{"a", "b", "c", "d"}, clusters: questions}
		for session := range 2 * questions {
			x := scores{cluster: session / 2, reviewers: []int{0, 1, 2, 3}, candidates: []int{0, 1, 2, 3}}
			easy := float64(x.cluster%3) / 2
			worth := make([]float64, members)
			for j := range worth {
				worth[j] = easy * random.NormFloat64()
			}
			for reviewer := range members {
				place := make([]float64, members) // sorts as a place does
				for j := range place {
					place[j] = worth[j] + random.NormFloat64()
				}
				place[reviewer] = math.NaN()
				x.place = append(x.place, place)
			}
			w.sessions = append(w.sessions, x)
		}
		return w
	}
	c := NewCollector(Options{Now: now})
	truth := *c.ballotSimilarity(draw(30000), Window{}).PointEstimate
	held := 0
	for range windows {
		m := c.ballotSimilarity(draw(questions), Window{})
		if m.Clusters != questions || m.SampleSize > 2*questions {
			t.Fatalf("%d questions of %d sessions", m.Clusters, m.SampleSize)
		}
		if *m.CILower <= truth && truth <= *m.CIUpper {
			held++
		}
	}
	t.Logf("the intervals hold %.3f in %.1f %%", truth, 100*share(held, windows))
	if got := share(held, windows); got < 0.92 || got > 0.98 {
		t.Errorf("the intervals hold %.3f in %.1f %%", truth, 100*got)
	}
}

func share(n, of int) float64 { return float64(n) / float64(of) }

// Where z is not defined, or the questions leave it open, there is no interval.
func TestZIntervalsUndefined(t *testing.T) {
	same := func(score float64, questions int) (s sums) {
		for q := range questions {
			s.add(q, score)
		}
		return s
	}
	for name, reviewers := range map[string][]sums{
		"one reviewer":    {same(5, 9)},
		"equal means":     {same(5, 9), same(5, 9)},
		"two questions":   {same(5, 2), same(6, 2)},
		"only one score":  {same(5, 9), same(6, 1)},
		"nothing at all":  {},
		"two of the same": {same(5, 9), same(5, 9), same(5, 9)},
	} {
		low, high := zIntervals(reviewers)
		for i := range low {
			if low[i] != nil || high[i] != nil {
				t.Errorf("%s: reviewer %d has an interval", name, i)
			}
		}
	}
}

// A bootstrap of the correlation over a handful of answers covers far too little, which is
// why the audit has Fisher's interval. The worlds: lengths that are skewed, scores that are
// means of a few whole numbers, correlated with the length or not.
func TestLengthIntervalCovers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	draw := func(n int, slope float64) (x, y []float64) {
		for range n {
			z := random.NormFloat64()
			mean := 0.0
			for range 3 {
				mean += max(1, min(10, math.Round(6+slope*z+1.2*random.NormFloat64()))) / 3
			}
			x, y = append(x, math.Round(300*math.Exp(0.4*z))), append(y, mean)
		}
		return x, y
	}
	for _, slope := range []float64{0, 0.6} {
		truth, _ := stat.Pearson(draw(30_000, slope))
		for _, n := range []int{4, 5, 7, 12} {
			const sessions = 1000
			held, of, resampled := 0, 0, 0
			for range sessions {
				x, y := draw(n, slope)
				r, ok := stat.Pearson(x, y)
				if !ok {
					continue
				}
				low, high, ok := stat.FisherInterval(r, n)
				if !ok {
					continue
				}
				of++
				if low <= truth && truth <= high {
					held++
				}
				if n < 8 && of <= 300 {
					if low, high := percentile(random, x, y); low <= truth && truth <= high {
						resampled++
					}
				}
			}
			t.Logf("slope %.1f, %d answers: Fisher %.3f", slope, n, share(held, of))
			if n < 8 {
				t.Logf("a bootstrap %.3f", share(resampled, min(of, 300)))
			}
			if share(held, of) < 0.90 {
				t.Errorf("slope %.1f: the interval over %d answers holds %.3f in %.3f of sessions", slope, n, truth, share(held, of))
			}
		}
	}
}

// percentile returns the percentile bootstrap interval of Pearson's r.
func percentile(random *rand.Rand, x, y []float64) (low, high float64) {
	var all []float64
	for range 200 {
		var a, b []float64
		for range x {
			k := random.IntN(len(x))
			a, b = append(a, x[k]), append(b, y[k])
		}
		if r, ok := stat.Pearson(a, b); ok {
			all = append(all, r)
		}
	}
	return quantile(all, 0.025), quantile(all, 0.975)
}

func quantile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[int(p*float64(len(values)-1)+0.5)]
}

// Splits, the table of models and positions, and the series describe the records that were
// put in.
func TestDescribed(t *testing.T) {
	var records []council.BiasMetricRecord
	for s := range 40 {
		for i, reviewer := range []string{"a", "b"} {
			r := record(fmt.Sprint("s", s), now.Add(time.Duration(s)*time.Minute-time.Hour), reviewer, "c", float64(4+2*i+s%2))
			r.Position = new(i)
			if s%4 == 0 {
				r.QueryMetadata.Category = new("math")
			}
			if s%2 == 0 {
				r.QueryMetadata.Language = new("de")
			}
			records = append(records, r)
		}
	}
	options := unlimited
	options.Split = "category"
	r := collect(options, records).Report(t.Context())
	if len(r.Splits) != 2 || *r.Splits[0].Value != "math" || r.Splits[1].Value != nil || r.Splits[0].Sessions != 10 || r.Splits[1].Records != 60 {
		t.Fatalf("the splits are %+v", r.Splits)
	}
	// Of math: sessions 0, 4, ...: a gives 4 and b gives 6, each time.
	if m := r.Splits[0].Models[0]; m.ModelID != "c" || m.Mean != 5 || m.Count != 20 || *m.CILower != 5 || *m.CIUpper != 5 {
		t.Errorf("math: %+v", m)
	}
	want := []ModelPosition{{ModelID: "c", Position: 0, Mean: 4.5, Count: 40}, {ModelID: "c", Position: 1, Mean: 6.5, Count: 40}}
	for i := range r.ModelPositions {
		p := &r.ModelPositions[i]
		if *p.CILower >= p.Mean || *p.CIUpper <= p.Mean {
			t.Errorf("%+v", *p)
		}
		p.CILower, p.CIUpper = nil, nil
	}
	if diff := cmp.Diff(want, r.ModelPositions); diff != "" {
		t.Error(diff)
	}
	if len(r.Series) != 3 || r.Series[0].Sessions != 20 || r.Series[2].Sessions != 20 || *r.Series[1].MeanScore != 5.5 {
		t.Fatalf("the series is %+v", r.Series)
	}
	for _, p := range r.Series {
		if len(p.Reviewers) != 2 || p.Reviewers[0].RelativeHarshness != -1 || p.Reviewers[1].RelativeHarshness != 1 || p.Reviewers[0].Sessions != 20 {
			t.Errorf("%+v", p)
		}
	}
	options.Split = "language"
	if s := collect(options, records).Report(t.Context()).Splits; len(s) != 2 || *s[0].Value != "de" || s[0].Sessions != 20 {
		t.Errorf("by language: %+v", s)
	}
	absurd := records[0]
	absurd.SessionID, absurd.Position = "absurd", new(1<<40)
	if p := collect(unlimited, append(records, absurd)).Report(t.Context()).ModelPositions; len(p) != 2 {
		t.Errorf("an absurd place is in the table: %+v", p)
	}
	if s := collect(unlimited, records).Report(t.Context()).Splits; s != nil {
		t.Errorf("nobody asked for %+v", s)
	}
	if s := collect(unlimited, records[:38]).Report(t.Context()).Series; len(s) != 0 {
		t.Errorf("nineteen sessions have the series %+v", s)
	}
}
