package biassim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
	"gonum.org/v1/gonum/stat"
)

func TestReplacedInMidWindow(t *testing.T) {
	const sessions = 40
	o := council3(sessions)
	before, plain := biassim.Generate(o), exact(o)
	o.World = biassim.World{Replaced: []float64{0, 0.5}, Lengthened: []float64{0, 1}}
	after := exact(o)
	for n, r := range biassim.Generate(o) {
		merit, doublings := 0., 0.
		if n%3 == 1 && n/cells >= sessions/2 {
			merit, doublings = 0.5, 1
		}
		if got := after[n] - plain[n]; math.Abs(got-merit) > 0.002 && after[n] < 10 {
			t.Errorf("record %d rises by %.3f, want %g", n, got, merit)
		}
		if got := math.Log2(float64(r.ResponseLengthChars) / float64(before[n].ResponseLengthChars)); math.Abs(got-doublings) > 0.01 {
			t.Errorf("record %d is longer by %.3f doublings, want %g", n, got, doublings)
		}
	}
}

func TestLate(t *testing.T) {
	const joins = 10
	o := council3(20)
	all := biassim.Generate(o)
	o.Slates = biassim.Late(o.Slates, 1, o.Members[1], joins)
	late := biassim.Generate(o)
	want := slices.DeleteFunc(slices.Clone(all), func(r council.BiasMetricRecord) bool {
		return r.SessionID < "s00010" && (r.ReviewerID == o.Members[1] || r.ModelID == o.Members[1])
	})
	if len(late) != len(want) || len(late) == len(all) {
		t.Fatalf("%d records, want %d", len(late), len(want))
	}
	for n, r := range late {
		if r.ReviewerID != want[n].ReviewerID || r.ModelID != want[n].ModelID || *r.ScoreValue != *want[n].ScoreValue {
			t.Errorf("record %d: %+v, want %+v", n, r, want[n])
		}
		if shown := 3; r.SessionID < "s00010" {
			if shown--; r.NShown != shown || *r.Position >= shown {
				t.Errorf("record %d before the member joins: place %d of %d", n, *r.Position, r.NShown)
			}
		}
	}
}

// Scores lose with the square of the length's distance from 1100 characters, or gain with the length, whoever reviews.
func TestLengthAndWorth(t *testing.T) {
	const points = 0.3
	records := biassim.Generate(council3(300))
	for _, tt := range []struct {
		name  string
		world biassim.World
		want  func(doublings float64) float64
	}{
		{"hump", biassim.World{Hump: points}, func(d float64) float64 { return -points * d * d }},
		{"reward", biassim.World{LengthReward: points}, func(d float64) float64 { return points * d }},
	} {
		plain, changes := change(300, tt.world)
		for n, r := range records {
			want := tt.want(math.Log2(float64(r.ResponseLengthChars) / 1100))
			want = min(max(want, 1-plain[n]), 10-plain[n])
			if math.Abs(changes[n]-want) > 0.002 {
				t.Errorf("%s: record %d of %d characters changes by %.3f, want %.3f", tt.name, n, r.ResponseLengthChars, changes[n], want)
			}
		}
	}
}

// thirds returns the share of hits in the hardest and in the easiest third of the sessions. The plain world's scores show how hard
// they are.
func thirds(plain []float64, hit func(record int) bool) (hard, easy float64) {
	type session struct{ mean, hits float64 }
	all := make([]session, len(plain)/cells)
	for n, y := range plain {
		all[n/cells].mean += y
		if hit(n) {
			all[n/cells].hits += 1. / cells
		}
	}
	slices.SortFunc(all, func(a, b session) int { return int(math.Copysign(1, a.mean-b.mean)) })
	third := len(all) / 3
	for k := range third {
		hard += all[k].hits / float64(third)
		easy += all[len(all)-1-k].hits / float64(third)
	}
	return hard, easy
}

func TestRefusals(t *testing.T) {
	const share = 0.05
	_, given, records := scores(4000, biassim.World{Refusals: share})
	plain, _ := change(4000, biassim.World{})
	refused, sum := 0., 0.
	before := biassim.Generate(council3(4000))
	stub := func(n int) bool { return records[n].ResponseLengthChars != before[n].ResponseLengthChars }
	for n, y := range given {
		switch {
		case stub(n):
			refused, sum = refused+1, sum+y
			if chars, first := records[n].ResponseLengthChars, records[n-n%cells+n%3].ResponseLengthChars; chars > 600 || chars != first {
				t.Fatalf("record %d of a refusal has %d characters, and %d for the first reviewer", n, chars, first)
			}
		case y != *before[n].ScoreValue:
			t.Fatalf("record %d: the refusal of another answer changed it", n)
		}
	}
	if got := refused / float64(len(given)); math.Abs(got-share) > 0.01 {
		t.Errorf("%.4f of the answers are refusals, want %g", got, share)
	}
	if mean := sum / refused; mean > 2.8 {
		t.Errorf("refusals have a mean score of %.2f", mean)
	}
	if hard, easy := thirds(plain, stub); hard < 1.5*easy {
		t.Errorf("%.3f of the answers to hard questions are refusals, and %.3f to easy ones", hard, easy)
	}
}

// The answers of a frozen run are refused in all its sessions or in none.
func TestFrozenRefusals(t *testing.T) {
	const run = 4
	_, _, records := scores(400, biassim.World{Refusals: 0.2, Runs: run, Frozen: true})
	stubs := 0
	for n, r := range records {
		if first := n/(run*cells)*run*cells + n%cells; r.ResponseLengthChars != records[first].ResponseLengthChars {
			t.Fatalf("record %d: the frozen answer has %d characters, and %d at first", n, r.ResponseLengthChars, records[first].ResponseLengthChars)
		}
		if r.ResponseLengthChars < 300 {
			stubs++
		}
	}
	if stubs == 0 {
		t.Error("nothing is refused")
	}
}

func TestBallotsLostOnHardQuestions(t *testing.T) {
	plain, lost, _ := scores(6000, biassim.World{Missing: 0.05, MissingHard: 1})
	failed := 0.
	for n, y := range lost {
		if math.IsNaN(y) {
			failed += 1 / float64(len(lost))
		} else if y != plain[n] {
			t.Fatalf("record %d: score %g, want %g", n, y, plain[n])
		}
	}
	if math.Abs(failed-0.05) > 0.01 {
		t.Errorf("%.3f of the ballots are lost, want .05", failed)
	}
	if hard, easy := thirds(plain, func(n int) bool { return math.IsNaN(lost[n]) }); hard < 1.5*easy {
		t.Errorf("%.3f of the ballots on hard questions are lost, and %.3f on easy ones", hard, easy)
	}
}

// Of four reviewers, the noise of the second and third is alike.
func TestSharedTaste(t *testing.T) {
	o := council3(4000)
	o.Outside = []string{"other/x"}
	const records = 12 // of a session
	for _, share := range []float64{0, 0.6} {
		o.World.SharedTaste = []float64{0, share, share}
		y := exact(o)
		var first, second, fourth []float64 // differences of two answers, less the first reviewer's
		for n := 0; n < len(y); n += records {
			difference := func(i int) float64 { return y[n+3*i] - y[n+3*i+1] }
			first = append(first, difference(1)-difference(0))
			second = append(second, difference(2)-difference(3))
			fourth = append(fourth, difference(3)-difference(0))
		}
		if got := stat.Correlation(first, second, nil); math.Abs(got-share/2) > 0.06 {
			t.Errorf("a common taste of %g: the two correlate by %.3f, want %.3f", share, got, share/2)
		}
		if got := stat.Correlation(second, fourth, nil); math.Abs(got+0.5) > 0.06 {
			t.Errorf("a common taste of %g: the others correlate by %.3f, want -.5", share, got)
		}
		if got := stat.Variance(first, nil); math.Abs(got-4*0.64) > 0.2 {
			t.Errorf("a common taste of %g: the variance is %.3f, want 2.56", share, got)
		}
	}
}

// The reviewers see one second merit of each answer, and weigh it unlike.
func TestSecondMerit(t *testing.T) {
	plain, changes := change(4000, biassim.World{Second: 0.8})
	sds := byReviewer(changes, func(x []float64) float64 { return stat.StdDev(x, nil) })
	for k, want := range []float64{0, 0.4, 0.8} {
		if math.Abs(sds[k]-want) > 0.03 {
			t.Errorf("scores change by %.3f, want %g", sds[k], want)
		}
	}
	for k := range cells {
		if mean := stat.Mean(cell(changes, k), nil); math.Abs(mean) > 0.06 {
			t.Errorf("a reviewer gives a candidate %.3f points more on average", mean)
		}
		if r := stat.Correlation(cell(changes, k), cell(plain, k), nil); stat.StdDev(cell(changes, k), nil) > 0.1 && math.Abs(r) > 0.08 {
			t.Errorf("the second merit correlates by %.3f with the first", r)
		}
	}
	for n := 0; n < len(changes); n += cells {
		for j := range 3 {
			x := []float64{changes[n+j], changes[n+3+j], changes[n+6+j]}
			slices.SortFunc(x, func(a, b float64) int { return int(math.Copysign(1, math.Abs(a)-math.Abs(b))) })
			inside := slices.Min([]float64{plain[n+j], plain[n+3+j], plain[n+6+j]}) > 4 && slices.Max([]float64{plain[n+j], plain[n+3+j], plain[n+6+j]}) < 7
			if inside && math.Abs(x[2]-2*x[1]) > 0.003 {
				t.Errorf("session %d: the scores of an answer change by %.3f", n/cells, x)
			}
		}
	}
}

// Shown in pairs, three answers of three kinds beat each other in a circle, for two reviewers in opposite directions.
func TestCycle(t *testing.T) {
	const points, sessions = 0.5, 900
	won := [3][]float64{} // by pair, for each session and reviewer: how much more the first of the two gains
	for pair, members := range [][2]int{{0, 1}, {1, 2}, {2, 0}} {
		o := council3(sessions)
		slate := council.Slate{{Member: o.Members[members[0]]}, {Member: o.Members[members[1]]}}
		o.Slates = func(int) []council.Slate { return slices.Repeat([]council.Slate{slate}, 3) }
		plain := exact(o)
		o.World.Cycle = points
		changes := sub(exact(o), plain)
		for n := 0; n < len(changes); n += 2 {
			won[pair] = append(won[pair], changes[n]-changes[n+1])
		}
	}
	circles, opposite := 0., 0.
	for n := range won[0] {
		a, b, c := won[0][n], won[1][n], won[2][n]
		if min(math.Abs(a), math.Abs(b), math.Abs(c)) > 0.1 && a*b > 0 && b*c > 0 {
			circles++
			if math.Abs(math.Abs(a)-2*points) > 0.01 && math.Abs(math.Abs(b)-2*points) > 0.01 {
				t.Errorf("an answer beats another by %.3f points, want %g", math.Abs(a), 2*points)
			}
		}
		if session := won[0][n-n%3 : n-n%3+3]; math.Abs(session[0]+session[1]+session[2]) > 0.01 {
			opposite++
		}
	}
	// Three answers are of three kinds in 6 of 27 cases, and one of the reviewers has a weight of 0.
	if share := circles / (3 * sessions); math.Abs(share-2*6/81.) > 0.03 {
		t.Errorf("%.3f of the reviewers and sessions prefer in a circle, want %.3f", share, 2*6/81.)
	}
	if share := opposite / (3 * sessions); share > 0.02 { // the ends of the scale may cut changes
		t.Errorf("in %.3f of the sessions, what one reviewer prefers is not what another rejects", share)
	}
}

func TestTwin(t *testing.T) {
	// Variances: quality .36, difficulty .25, answer .64, shift .09, noise .64. Of lengths: model .09, session .16, answer .0625.
	const alike, all, lengths = 0.7, 0.36 + 0.25 + 0.64 + 0.09 + 0.64, 0.09 + 0.16 + 0.0625
	for _, tt := range []struct{ twin, answers, reviews, lengths float64 }{
		{0, (0.25 + 0.09) / all, (0.36 + 0.25 + 0.64) / all, 0.16 / lengths},
		{
			alike, (0.25 + 0.09 + alike*(0.36+0.64+0.64)) / all, (0.36 + 0.25 + 0.64 + alike*(0.09+0.64)) / all,
			(0.16 + alike*(0.09+0.0625)) / lengths,
		},
	} {
		var y, chars []float64 // of one session in each of many data sets, because a member has one quality in a data set
		for seed := range uint64(4000) {
			o := council3(1)
			o.Seed, o.World.Twin = seed, tt.twin
			y = append(y, exact(o)...)
			for _, r := range biassim.Generate(o) {
				chars = append(chars, math.Log(float64(r.ResponseLengthChars)))
			}
		}
		for _, figure := range []struct {
			name      string
			got, want float64
		}{
			{"the correlation of answers", stat.Correlation(cell(y, 6), cell(y, 7), nil), tt.answers},
			{"the correlation of reviews", stat.Correlation(cell(y, 2), cell(y, 5), nil), tt.reviews},
			{"the correlation of lengths", stat.Correlation(cell(chars, 0), cell(chars, 1), nil), tt.lengths},
			{"the variance of the second's reviews", stat.Variance(cell(y, 5), nil) / all, 1},
			{"the variance of the second's scores", stat.Variance(cell(y, 7), nil) / all, 1},
		} {
			if math.Abs(figure.got-figure.want) > 0.06 {
				t.Errorf("twin %g: %s is %.3f, want %.3f", tt.twin, figure.name, figure.got, figure.want)
			}
		}
	}
}
