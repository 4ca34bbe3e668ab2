package bias

import (
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

// anchoring is the estimate of how the quality of the answer shown first changes the scores of the later answers.
type anchoring struct {
	// Effect is kappa. For each point by which the first answer is better than the slate, the later answers gain
	// kappa points. The standard error is 0 if kappa cannot be tested, for example with fewer than two questions or
	// if all questions give the same value.
	stat.Effect
	// sessions counts the sessions in which the answer that some reviewer was shown first has a lead. questions
	// counts the questions with such a session in which some lead is not 0. The lead of an answer is A_si(f) in the
	// comment of anchor. It says how much better than the slate the other reviewers find the answer.
	questions, sessions int
	// records counts the scores that the estimate was computed from.
	records int
}

// anchor estimates anchoring from the sessions whose reviewers each had a random order. Sessions of a probe are
// left out, because a probe shows its frozen answers in one order and its reverse. The formulas use
//
//	A_si(f)   the mean score of answer f from the reviewers of session s other than i,
//	          minus the mean of these means over the answers that i was shown,
//	r_sij     the score of answer j from reviewer i, minus the means of the candidate
//	          in the session, of the reviewer over the window, and of the position,
//	G_s[i,f]  A_si(f) times the sum of r_sij over j other than f,
//
// U_s is a sum over reviewers. The term of reviewer i is G_s[i,f] of the answer f that i was shown first, minus the
// mean of G_s[i,f] over the answers that i was shown. The test is a t test of the mean of U over questions, where U
// of a question is the sum of U_s over its sessions. This test is valid whatever the scores are, because the
// expectation of U_s is 0 if chance decides which answer stands first. A regression of scores on the quality of the
// first answer would be biased, because that quality is estimated from the same scores.
//
// Kappa is the sum of U_s over the sessions, divided by the sum of W_s. W_s is also a sum over reviewers. The term
// of reviewer i is A_si(f) of the answer shown first, times the sum of the residuals of x_sij over all answers j.
// x_sij is what anchoring adds to a score if kappa is 1: A_si(f) for every answer after the first, and 0 for the
// first. The standard error treats the sum of W_s as known.
func anchor(w window) anchoring {
	var sessions []*scores
	var leads [][][]float64
	for s := range w.sessions {
		if x := &w.sessions[s]; !x.shared && x.block == "" {
			sessions = append(sessions, x)
			leads = append(leads, x.leads())
		}
	}
	left, records := withoutPositions(sessions, len(w.names))
	moved := residuals(sessions, len(w.names), func(s, i, j int) float64 {
		f := slices.Index(sessions[s].position[i], 0)
		if j == f || f < 0 || math.IsNaN(leads[s][i][f]) {
			return 0
		}
		return leads[s][i][f]
	})
	sums := anchorSums{questions: map[int]float64{}}
	for s, x := range sessions {
		sums.add(x, leads[s], left[s], moved[s])
	}
	a := sums.estimate()
	a.records = records
	return a
}

// withoutPositions removes the means of candidates, reviewers and positions from all scores. It returns the
// residual of each score, and the number of scores with a known position.
func withoutPositions(sessions []*scores, members int) (left [][][]float64, records int) {
	raw := residuals(sessions, members, func(s, i, j int) float64 { return sessions[s].y[i][j] })
	// places holds the residuals of the scores by the position of the scored answer.
	places := map[int][]float64{}
	for s, x := range sessions {
		for i, row := range raw[s] {
			for j, r := range row {
				if p := x.position[i][j]; !math.IsNaN(r) {
					places[p] = append(places[p], r)
				}
			}
		}
	}
	effects := map[int]float64{}
	for p, r := range places {
		effects[p] = stat.Mean(r)
		records += len(r)
	}
	left = residuals(sessions, members, func(s, i, j int) float64 {
		return sessions[s].y[i][j] - effects[sessions[s].position[i][j]]
	})
	return left, records
}

// anchorSums holds the sums that kappa is computed from. The comment of anchor has the formulas.
type anchorSums struct {
	questions map[int]float64 // sum of U_s by question
	order     []int           // questions in the order of their first sessions
	sessions  int             // sessions in which a reviewer has a lead
	u, w      float64         // sums of U_s and W_s
}

// add adds a session. left holds the residuals of its scores after the means of positions are removed. moved holds
// the residuals of x_sij, which the comment of anchor defines.
func (a *anchorSums) add(x *scores, leads, left, moved [][]float64) {
	sum := 0.0
	found := false
	varies := false
	for i, lead := range leads {
		f := slices.Index(x.position[i], 0)
		if f < 0 || math.IsNaN(lead[f]) {
			continue
		}
		sum += lessMean(lead, left[i], f)
		a.w += lead[f] * stat.NaNSum(moved[i])
		found = true
		varies = varies || slices.ContainsFunc(lead, func(v float64) bool { return math.Abs(v) > tiny })
	}
	if !found {
		return
	}
	a.sessions++
	// A session whose leads are all 0 does not count for the test, because the order of its answers then makes no
	// difference. This happens, for example, if only one of the answers has a score from another reviewer.
	if !varies {
		return
	}
	if _, ok := a.questions[x.cluster]; !ok {
		a.order = append(a.order, x.cluster)
	}
	a.questions[x.cluster] += sum
	a.u += sum
}

// lessMean returns G of the answer f, minus the mean of G over all answers that the reviewer was shown. The
// reviewer was shown the answer f first. The comment of anchor defines G.
func lessMean(lead, left []float64, f int) float64 {
	all := stat.NaNSum(left)
	mean := 0.0
	shown := 0.0
	g := func(j int) float64 { return lead[j] * (all - stat.NaNSum(left[j:j+1])) }
	for j := range lead {
		if !math.IsNaN(lead[j]) {
			mean += g(j)
			shown++
		}
	}
	return g(f) - mean/shown
}

// estimate returns kappa and its standard error.
func (a *anchorSums) estimate() anchoring {
	n := len(a.order)
	k := anchoring{Effect: stat.Effect{DF: float64(n - 1)}, questions: n, sessions: a.sessions}
	u := make([]float64, n)
	for i, cluster := range a.order {
		u[i] = a.questions[cluster]
	}
	if n < 2 || stat.Constant(u) || a.w == 0 {
		return k
	}
	k.Estimate = a.u / a.w
	k.SE = math.Sqrt(float64(n)) * stat.StdDev(u) / math.Abs(a.w)
	return k
}

// leads returns A_si(f), as the comment of anchor defines it, for each reviewer and answer. If the author of an
// answer scored it, this score counts in the mean over the other reviewers. A lead is NaN if the answer was not
// shown, or if no other reviewer scored it.
func (x *scores) leads() [][]float64 {
	leads := stat.Matrix(len(x.reviewers), len(x.candidates), math.NaN())
	for j := range x.candidates {
		sum := 0.0
		n := 0.0
		for i := range leads {
			if y := x.y[i][j]; !math.IsNaN(y) {
				sum += y
				n++
			}
		}
		for i := range leads {
			if x.position[i][j] < 0 {
				continue
			}
			if y := x.y[i][j]; math.IsNaN(y) {
				leads[i][j] = sum / n
			} else {
				leads[i][j] = (sum - y) / (n - 1)
			}
		}
	}
	for _, lead := range leads {
		shown := slices.DeleteFunc(slices.Clone(lead), math.IsNaN)
		for j := range lead {
			lead[j] -= stat.Mean(shown)
		}
	}
	return leads
}

// residuals returns a residual for each score with a known position, by session, reviewer and answer. It takes the
// result of the function value for the score. It subtracts the mean of the candidate in the session, and then the
// mean of the reviewer over all sessions. All other cells are NaN.
func residuals(sessions []*scores, members int, value func(s, i, j int) float64) [][][]float64 {
	all := make([][][]float64, len(sessions))
	sums := make([]float64, members)
	counts := make([]float64, members)
	for s, x := range sessions {
		r := stat.Matrix(len(x.reviewers), len(x.candidates), math.NaN())
		for i := range r {
			for j := range r[i] {
				if x.position[i][j] >= 0 && !math.IsNaN(x.y[i][j]) {
					r[i][j] = value(s, i, j)
				}
			}
		}
		stat.CentreColumns(r)
		for i, reviewer := range x.reviewers {
			for _, v := range r[i] {
				if !math.IsNaN(v) {
					sums[reviewer] += v
					counts[reviewer]++
				}
			}
		}
		all[s] = r
	}
	for s, x := range sessions {
		for i, reviewer := range x.reviewers {
			for j := range all[s][i] {
				all[s][i][j] -= sums[reviewer] / counts[reviewer]
			}
		}
	}
	return all
}
