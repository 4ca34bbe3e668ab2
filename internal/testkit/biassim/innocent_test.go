package biassim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
	"gonum.org/v1/gonum/stat"
)

// contrasts returns, for each session in which all ballots came back, what each reviewer gives to each candidate beyond its own mean
// and that of the candidate. Own answers are shown.
func contrasts(records []council.BiasMetricRecord, members int) (sessions [][]float64) {
	size := members * members
	for ; len(records) > 0; records = records[size:] {
		y := make([]float64, size) // by reviewer and candidate, both in the order of the members
		complete := true
		for n, r := range records[:size] {
			if r.ScoreValue == nil {
				complete = false
				break
			}
			y[n/members*members+slices.Index(biassim.Members(), r.ModelID)] = *r.ScoreValue
		}
		if !complete {
			continue
		}
		of := func(keep func(n int) bool) (mean float64) {
			count := 0.
			for n, score := range y {
				if keep(n) {
					mean, count = mean+score, count+1
				}
			}
			return mean / count
		}
		rows, columns, all := make([]float64, members), make([]float64, members), of(func(int) bool { return true })
		for k := range members {
			rows[k], columns[k] = of(func(n int) bool { return n/members == k }), of(func(n int) bool { return n%members == k })
		}
		for n := range y {
			y[n] -= rows[n/members] + columns[n%members] - all
		}
		sessions = append(sessions, y)
	}
	return sessions
}

// z returns how many standard errors the mean of x is away from 0.
func z(x []float64) float64 {
	mean, sd := stat.MeanStdDev(x, nil)
	return mean / (sd / math.Sqrt(float64(len(x))))
}

// In worlds that only add to scores, no reviewer has more for any candidate than the others have.
func TestNobodyIsFavoured(t *testing.T) {
	for name, world := range map[string]biassim.World{
		"plain":        {},
		"unlike noise": {UnlikeNoise: 0.5},
		"own level":    {OwnLevel: 0.4},
		"own noise":    {OwnNoise: 0.3},
		"replaced":     {Replaced: []float64{0, 1}, Lengthened: []float64{0, 1}},
		"hump":         {Hump: 0.3},
		"reward":       {LengthReward: 0.3},
		"refusals":     {Refusals: 0.1},
		"lost ballots": {Missing: 0.1, MissingHard: 1},
		"shared taste": {SharedTaste: []float64{0, 0.6, 0.6}},
		"second merit": {Second: 0.8},
		"cycle":        {Cycle: 0.5},
		"twin":         {Twin: 0.7},
	} {
		if cells := favoured(world, biassim.Effects{}); len(cells) > 0 {
			t.Errorf("%s: reviewers and candidates %v stand out", name, cells)
		}
	}
	if cells := favoured(biassim.World{}, biassim.Effects{SelfBy: []float64{2: 0.3}}); !slices.Contains(cells, [2]int{2, 2}) {
		t.Errorf("one reviewer favours itself, and reviewers and candidates %v stand out", cells)
	}
}

// favoured returns the reviewers and candidates whose scores stand out over 2000 sessions. Of 60,000 pairs one does by chance.
func favoured(world biassim.World, effects biassim.Effects) (cells [][2]int) {
	o := options(2000, true)
	o.World, o.Effects = world, effects
	o.World.Base, o.World.Step = 5.5, 0.01 // the ends of the scale are far
	sessions := contrasts(biassim.Generate(o), 5)
	for n := range 25 {
		x := make([]float64, len(sessions))
		for s := range x {
			x[s] = sessions[s][n]
		}
		if math.Abs(z(x)) > 4.3 {
			cells = append(cells, [2]int{n / 5, n % 5})
		}
	}
	return cells
}

// Where reviewers bend the scale, a data set's reviewers are unlike in what they give to good answers, but the own answer and the
// maker have nothing to do with it: over many data sets, in which scales and worth are dealt anew, neither has more.
func TestNoScaleFavours(t *testing.T) {
	for name, world := range map[string]biassim.World{
		"cut points":                   {CutPoints: 0.5},
		"cut points, levels and worth": {CutPoints: 0.5, Levels: 1, Gap: 1.5},
		"habits":                       {MixedHabits: true},
		"high scores":                  {Habits: slices.Repeat([]biassim.Habit{biassim.HighScores}, 5), Levels: 1},
		"one of low scores":            {Habits: []biassim.Habit{biassim.LowScores}},
		"realistic":                    biassim.Realistic(),
	} {
		var self, family []float64 // by data set
		for seed := range uint64(150) {
			o := options(20, true)
			o.Seed, o.World = seed, world
			var own, makers []float64
			for _, y := range contrasts(biassim.Generate(o), 5) {
				own = append(own, (y[0]+y[6]+y[12]+y[18]+y[24])/5)
				makers = append(makers, (y[1]+y[5])/2)
			}
			self, family = append(self, stat.Mean(own, nil)), append(family, stat.Mean(makers, nil))
		}
		for what, x := range map[string][]float64{"own answers": self, "answers of the same maker": family} {
			if z := z(x); math.Abs(z) > 4 {
				t.Errorf("%s: %s have %.3f points more, %.1f standard errors", name, what, stat.Mean(x, nil), z)
			}
		}
	}
}

// The realistic world has all of its parts at once.
func TestRealistic(t *testing.T) {
	const sessions = 1500
	o := options(sessions, true)
	o.World = biassim.Realistic()
	world := biassim.Generate(o)
	o.World = biassim.World{Twin: o.World.Twin}
	plain := biassim.Generate(o)
	lost, refused := 0., 0.
	used, doublings, points := [5]map[float64]float64{}, make([]float64, 0, len(world)), make([]float64, 0, len(world))
	for i := range used {
		used[i] = map[float64]float64{}
	}
	for n, r := range world {
		if r.QueryMetadata.Category == nil {
			t.Fatalf("record %d has no category", n)
		}
		if r.ResponseLengthChars != plain[n].ResponseLengthChars {
			refused++
		}
		if r.ScoreValue == nil {
			lost++
			continue
		}
		used[n%25/5][*r.ScoreValue]++
		if r.ResponseLengthChars == plain[n].ResponseLengthChars {
			doublings, points = append(doublings, math.Log2(float64(r.ResponseLengthChars)/1100)), append(points, *r.ScoreValue)
		}
	}
	if share := lost / float64(len(world)); math.Abs(share-0.04) > 0.01 {
		t.Errorf("%.3f of the ballots are lost", share)
	}
	if share := refused / float64(len(world)); math.Abs(share-0.015) > 0.005 {
		t.Errorf("%.4f of the answers are refused", share)
	}
	if _, slope := stat.LinearRegression(doublings, points, nil, false); slope < 0.15 || slope > 0.45 {
		t.Errorf("a doubling of the length is worth %.3f points", slope)
	}
	for i := range used {
		for j := range i {
			apart := 0. // in how many scores the two differ
			for score := 1.; score <= 10; score++ {
				apart += math.Abs(used[i][score]-used[j][score]) / (2 * 5 * sessions)
			}
			if apart < 0.03 {
				t.Errorf("reviewers %d and %d use the scale alike: %v, %v", i, j, used[i], used[j])
			}
		}
	}
}
