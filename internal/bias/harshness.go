package bias

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/councild/councild/internal/stat"
)

// reportSeed seeds the random numbers of a report, so that the same records always give the same report.
const reportSeed = 18

// jackknifeFrom is the number of reviewers from which the test of a cell uses only what remains of its deviation
// when any one score is left out. With fewer reviewers the test uses the whole deviation, because one score has too
// much weight in a reviewer's harshness.
const jackknifeFrom = 6

// anomalyLimits says in the report which anomalies it may miss.
const anomalyLimits = "with five members or more, a shift of 2.5 points in one session is found about half of the time, " +
	"and less often with fewer members or where sessions differ in how far their scores scatter"

// ChangePoint is where a reviewer's mean relative harshness changed most, among sessions in which the council
// stayed the same.
type ChangePoint struct {
	ReviewerID string `json:"reviewer_id"`
	// SessionID is the session with which the change begins. If several sessions asked the same question, it is the
	// first of these sessions.
	SessionID string    `json:"session_id"`
	Start     time.Time `json:"start"`  // when that session started
	Before    float64   `json:"before"` // mean relative harshness, in points
	After     float64   `json:"after"`
	Statistic float64   `json:"statistic"` // the largest absolute partial sum of deviations, divided by SD sqrt(n)
	PValue    float64   `json:"p_value"`   // by permuting questions
	QValue    float64   `json:"q_value"`   // PValue adjusted among change points (Benjamini and Hochberg)
	// Verdict is VerdictChanged if q is below the false discovery rate for this number of questions, and Before and
	// After differ by at least the least drift that counts. Otherwise it is inconclusive.
	Verdict     Verdict     `json:"verdict"`
	AlsoChanged []Alongside `json:"also_changed"` // what else changed at that time
	Sentence    string      `json:"sentence"`     // says who changed, and when, or is "" without a change
	Sessions    int         `json:"sessions"`     // counts the sessions in which the reviewer took part
	Clusters    int         `json:"clusters"`     // counts these sessions, but sessions of one question count once
	WindowStart time.Time   `json:"window_start"`
	WindowEnd   time.Time   `json:"window_end"`
}

// Anomalies are the cells that do not fit the others. A cell is one reviewer on one question.
type Anomalies struct {
	Cells  int       `json:"cells"` // the number of tested cells; their p values are adjusted together
	Found  []Anomaly `json:"found"` // by time
	Limits string    `json:"limits"`
}

// Anomaly is one cell whose q is below the false discovery rate for its number of questions.
type Anomaly struct {
	SessionID  string    `json:"session_id"` // the first session that asked the question
	Start      time.Time `json:"start"`      // when that session started
	Sessions   int       `json:"sessions"`   // the number of sessions that asked the question
	ReviewerID string    `json:"reviewer_id"`
	// Value is the reviewer's relative harshness in the sessions that asked the question, in points. Usual is the
	// reviewer's mean relative harshness over all questions.
	Value  float64 `json:"value"`
	Usual  float64 `json:"usual"`
	T      float64 `json:"t"` // the externally studentised deviation
	PValue float64 `json:"p_value"`
	QValue float64 `json:"q_value"` // PValue adjusted among the cells (Benjamini and Hochberg)

	questions int // the number of questions compared, this one included
}

// severities returns, for each session, the fit of its scores on candidate and reviewer. Scores of own answers are
// left out. The rows are the members of the window. The effect of a reviewer is its relative harshness: what the
// reviewer adds to the score of an answer, below 0 for a reviewer harsher than the others. If no chain of common
// candidates links all reviewers of a session, they cannot be compared. Then all effects of the session are NaN.
func severities(w window) []stat.TwoWay {
	fits := make([]stat.TwoWay, len(w.sessions))
	for s := range fits {
		x := &w.sessions[s]
		y := stat.Matrix(len(w.names), len(x.candidates), math.NaN())
		for i, row := range x.others() {
			copy(y[x.reviewers[i]], row)
		}
		fits[s] = stat.FitTwoWay(y)
	}
	return fits
}

// question is the mean fit of the sessions that asked one question. A question counts once, however often it was
// asked.
type question struct {
	stat.TwoWay
	first    int     // the index in the window of its first session
	at       float64 // the mean index of its sessions
	sessions int
}

// questions returns the questions of a stretch, ordered by the mean index of their sessions.
func questions(w *window, fits []stat.TwoWay, part stretch) []question {
	sessions := map[int][]int{} // by cluster
	for _, s := range part {
		cluster := w.sessions[s].cluster
		sessions[cluster] = append(sessions[cluster], s)
	}
	all := make([]question, 0, len(sessions))
	for _, group := range sessions {
		q := question{TwoWay: fits[group[0]], first: group[0], at: float64(group[0]), sessions: len(group)}
		if len(group) > 1 {
			q.TwoWay = meanFit(fits, group)
			q.at = 0
			for _, s := range group {
				q.at += float64(s) / float64(len(group))
			}
		}
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b question) int { return cmp.Or(cmp.Compare(a.at, b.at), a.first-b.first) })
	return all
}

// meanFit returns the mean of the fits of some sessions.
func meanFit(fits []stat.TwoWay, sessions []int) stat.TwoWay {
	group := make([]stat.TwoWay, len(sessions))
	for k, s := range sessions {
		group[k] = fits[s]
	}
	return stat.MeanTwoWay(group)
}

// others copies the scores of a session. In the copy, the scores that reviewers gave to their own answers are NaN.
func (x *scores) others() [][]float64 {
	y := stat.Matrix(len(x.reviewers), len(x.candidates), math.NaN())
	for i := range y {
		for j := range y[i] {
			if !x.own[i][j] {
				y[i][j] = x.y[i][j]
			}
		}
	}
	return y
}

// judged returns how many scores a reviewer gave to other members' answers.
func (x *scores) judged(reviewer int) int {
	n := 0
	if i := slices.Index(x.reviewers, reviewer); i >= 0 {
		for j, y := range x.y[i] {
			if !x.own[i][j] && !math.IsNaN(y) {
				n++
			}
		}
	}
	return n
}

// stretch holds sessions in which the council stayed the same, oldest first, as indices in the window.
type stretch []int

// stretches splits sessions, oldest first, into stretches. All sessions of one council_config_version are together,
// even if sessions of other versions come between them. A stretch ends where a member joins or leaves for good,
// because ADR-018 treats the scores before and after that point as scores of two different reviewers. A session
// without a version gets the version of the session before it. If no earlier session has a version, it gets the
// first version that follows.
func stretches(sessions []scores) []stretch {
	version := ""
	for _, x := range slices.Backward(sessions) {
		version = cmp.Or(x.config, version) // after the loop, the version of the oldest session that has one
	}
	var councils []stretch
	number := map[string]int{}
	for s, x := range sessions {
		version = cmp.Or(x.config, version)
		n, ok := number[version]
		if !ok {
			n = len(councils)
			number[version] = n
			councils = append(councils, nil)
		}
		councils[n] = append(councils[n], s)
	}
	split := make([]stretch, 0, len(councils))
	for _, council := range councils {
		split = append(split, council.byMembers(sessions)...)
	}
	return split
}

// byMembers splits the sessions of one version where a member comes or goes for good. A member that joins and
// leaves within fewer sessions than a test needs does not split the stretch.
func (part stretch) byMembers(sessions []scores) []stretch {
	first := map[int]int{}
	last := map[int]int{}
	for k, s := range part {
		for _, levels := range [][]int{sessions[s].reviewers, sessions[s].candidates} {
			for _, member := range levels {
				if _, ok := first[member]; !ok {
					first[member] = k
				}
				last[member] = k
			}
		}
	}
	starts := map[int]bool{0: true}
	for member, from := range first {
		if to := last[member] + 1; to-from >= preliminaryFrom {
			starts[from] = true
			starts[to] = true
		}
	}
	var split []stretch
	for k, s := range part {
		if starts[k] {
			split = append(split, nil)
		}
		split[len(split)-1] = append(split[len(split)-1], s)
	}
	return split
}

// drift is how a reviewer's relative harshness changed within a stretch.
type drift struct {
	stretch
	reviewer  int
	sessions  int // counts the sessions in which the reviewer took part
	questions int // counts the questions of these sessions
	// Effect is the change over the whole stretch, in points. Its standard error is NaN below ten questions, and 0
	// if the harshness lies exactly on a line.
	stat.Effect
}

// drifts returns the linear trend of relative harshness over the sessions, for each stretch and each reviewer with
// at least ten sessions. The drift is the slope over session numbers times (S-1), where S is the number of sessions
// in the stretch. Only sessions of the same category are compared. The standard error comes from leaving out one
// question at a time. It is then increased, because neighbouring questions are often about one subject (see
// [excesses]). With fewer than ten questions there is no standard error. The test is Student's t on at most one
// degree of freedom less than there are questions.
func drifts(w *window, fits []stat.TwoWay, split []stretch) []drift {
	var all []drift
	for _, part := range split {
		from := len(all)
		span := float64(len(part) - 1)
		var residuals [][]float64
		for reviewer := range w.names {
			at, h := series(len(part), func(s int) float64 { return fits[part[s]].Effect[reviewer] })
			if len(at) < preliminaryFrom {
				continue
			}
			topics := make([]string, len(at))
			ordinals := make([]float64, len(at))
			clusters := make([]int, len(at))
			distinct := map[int]bool{}
			for k, s := range at {
				x := &w.sessions[part[s]]
				topics[k] = x.category
				ordinals[k] = float64(s)
				clusters[k] = x.cluster
				distinct[clusters[k]] = true
			}
			ordinals = within(topics, ordinals)
			h = within(topics, h)
			d := drift{stretch: part, reviewer: reviewer, sessions: len(at), questions: len(distinct)}
			d.SE = math.NaN()
			d.DF = float64(len(distinct) - 1)
			slope, se, ok := stat.Trend(ordinals, h, clusters)
			if ok && d.questions >= preliminaryFrom {
				d.Estimate = slope * span
				d.SE = se * span
			}
			all = append(all, d)
			residuals = append(residuals, detrended(ordinals, h))
		}
		factors, df := excesses(residuals)
		for k := range factors {
			d := &all[from+k]
			d.SE *= math.Sqrt(factors[k])
			d.DF = min(d.DF, df[k])
		}
	}
	return all
}

// detrended returns the residuals of a regression of values on t. Both must have the mean 0.
func detrended(t, values []float64) []float64 {
	slope := stat.Dot(t, values) / stat.Dot(t, t)
	rest := make([]float64, len(values))
	for k, v := range values {
		rest[k] = v - slope*t[k]
	}
	return rest
}

// stepless removes a step at the index k. It subtracts from each value before k the mean of the values before k, and
// from each later value the mean of the later values.
func stepless(values []float64, k int) []float64 {
	before := stat.Mean(values[:k])
	after := stat.Mean(values[k:])
	rest := slices.Clone(values)
	for i := range rest {
		if i < k {
			rest[i] -= before
		} else {
			rest[i] -= after
		}
	}
	return rest
}

// within subtracts from each value the mean of the values with the same topic.
func within(topics []string, values []float64) []float64 {
	sum := map[string]float64{}
	n := map[string]float64{}
	for k, topic := range topics {
		sum[topic] += values[k]
		n[topic]++
	}
	deviations := make([]float64, len(values))
	for k, topic := range topics {
		deviations[k] = values[k] - sum[topic]/n[topic]
	}
	return deviations
}

// excesses takes series in the order of time, without their trends. It returns a factor for each series. The factor
// is the variance of the slow parts of the series, divided by the variance that these parts would have if the
// values were independent. It is at least 1. df holds the degrees of freedom of the factors. The slow parts vary
// more because neighbouring questions are often about one subject, which a reviewer may score higher or lower than
// the rest.
//
// The slow parts are cosines with periods down to some forty questions (equal-weighted cosine estimate of a
// long-run variance: Mueller 2007; Lazarus, Lewis, Stock and Watson 2018). The first cosine is left out, because
// most of it was removed with the trend. Each factor is moved towards the factors of the other series (see
// [stat.ModeratedVariances]), because there are only a few cosines.
func excesses(all [][]float64) (factors, df []float64) {
	const (
		// period is how many questions a series needs for each cosine. A series has at least two cosines.
		period = 20
		// slower is the excess of the variance in runs of ten questions, divided by the excess in these cosines.
		// The two differ because the periods of some cosines are not much longer than such runs.
		slower = 1.25
	)
	squares := make([]float64, len(all))
	known := make([]float64, len(all))
	total := 0.
	for i, x := range all {
		n := float64(len(x))
		variance := stat.Variance(x)
		if !(variance > tiny*tiny) {
			continue
		}
		known[i] = max(2, math.Floor(n/period))
		total += known[i]
		for k := 2.; k < 2+known[i]; k++ {
			sum := 0.
			for t, v := range x {
				sum += v * math.Cos(math.Pi*k*(float64(t)+0.5)/n)
			}
			squares[i] += 2 / n * sum * sum / variance
		}
	}
	factors, df, ok := stat.ModeratedVariances(squares, known)
	if !ok {
		return slices.Repeat([]float64{1}, len(all)), slices.Repeat([]float64{1e9}, len(all))
	}
	for i := range factors {
		factors[i] = max(1, 1+slower*(factors[i]-1))
		// The last reviewer adds no information, because the harshness of all reviewers sums to 0.
		df[i] = min(df[i], max(known[i], total*(1-1/float64(len(all)))))
	}
	return factors, df
}

// series returns the results of the function argument for 0 to n-1. It leaves out results that are NaN. at holds
// the indices of the results that are left.
func series(n int, value func(k int) float64) (at []int, known []float64) {
	for k := range n {
		if v := value(k); !math.IsNaN(v) {
			at = append(at, k)
			known = append(known, v)
		}
	}
	return at, known
}

// seriesOf returns one reviewer's relative harshness on the questions where it is known, and the indices of these
// questions.
func seriesOf(asked []question, reviewer int) (at []int, h []float64) {
	return series(len(asked), func(k int) float64 { return asked[k].Effect[reviewer] })
}

// changePoints returns the change point of each stretch and each reviewer with at least ten questions, from the
// mean relative harshness on each question. The p value is the share of random orders of the questions, the real
// order included, whose statistic is at least as large (Good, Permutation Tests, 2000). The test reorders questions
// and not sessions, because questions are exchangeable while the council stays the same, but sessions of one
// question are not. With more than 256 questions, runs of neighbouring questions are moved together.
func (w *window) changePoints(fits []stat.TwoWay, split []stretch) []ChangePoint {
	random := rand.NewPCG(reportSeed, 0)
	points := []ChangePoint{}
	p := make([]float64, 0, len(w.names))
	var of []stretch // the stretch of each change point
	for _, part := range split {
		asked := questions(w, fits, part)
		deviations := stat.Matrix(len(asked), len(w.names), 0.) // stays 0 where a reviewer took no part
		var residuals [][]float64
		for reviewer, id := range w.names {
			at, h := seriesOf(asked, reviewer)
			if len(h) < preliminaryFrom || stat.Constant(h) {
				continue
			}
			topics := make([]string, len(at))
			ordinals := make([]float64, len(at))
			for i, q := range at {
				topics[i] = w.sessions[asked[q].first].category
				ordinals[i] = float64(q)
			}
			compared := within(topics, h)
			if stat.Constant(compared) {
				continue
			}
			statistic, k := stat.CUSUM(compared)
			for i, q := range at {
				// The first len(p) points belong to earlier stretches.
				deviations[q][len(points)-len(p)] = compared[i]
			}
			// Remove a trend or a step, whichever fits better. Otherwise a real change would inflate the excess and
			// hide itself.
			trend := detrended(within(topics, ordinals), compared)
			step := stepless(compared, k)
			if stat.Dot(step, step) < stat.Dot(trend, trend) {
				trend = step
			}
			residuals = append(residuals, trend)
			_, sessions := series(len(part), func(s int) float64 { return fits[part[s]].Effect[reviewer] })
			first := w.sessions[asked[at[k]].first]
			of = append(of, part)
			points = append(points, ChangePoint{
				Verdict:     VerdictInconclusive,
				AlsoChanged: []Alongside{},
				ReviewerID:  id,
				SessionID:   first.id,
				Start:       first.start,
				Before:      stat.Mean(h[:k]),
				After:       stat.Mean(h[k:]),
				Statistic:   statistic,
				Sessions:    len(sessions),
				Clusters:    len(h),
				WindowStart: w.sessions[part[0]].start,
				WindowEnd:   w.sessions[part[len(part)-1]].start,
			})
		}
		factors, df := excesses(residuals)
		// Increase each factor, because its estimate is uncertain on few degrees of freedom.
		for i := range factors {
			wider := stat.StudentQuantile(0.975, df[i]) / stat.NormalQuantile(0.975)
			factors[i] *= wider * wider
		}
		p = append(p, stat.PermuteCUSUM(deviations, factors, random)...)
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		c := &points[i]
		c.PValue = p[i]
		c.QValue = q
		if q < level(c.Clusters) && math.Abs(c.After-c.Before) >= deltaDrift {
			c.Verdict = VerdictChanged
			c.AlsoChanged = w.alongside(of[i].around(w, c.Start))
		}
	}
	return points
}

// anomalies returns the anomalies of a report.
func (w *window) anomalies(fits []stat.TwoWay, split []stretch) Anomalies {
	cells := w.testedCells(fits, split)
	found := slices.DeleteFunc(slices.Clone(cells), func(a Anomaly) bool { return a.QValue >= level(a.questions) })
	slices.SortStableFunc(found, func(a, b Anomaly) int { return a.Start.Compare(b.Start) })
	return Anomalies{Cells: len(cells), Found: append([]Anomaly{}, found...), Limits: anomalyLimits}
}

// testedCells tests every cell of the stretches with at least ten questions. The p values of all cells are adjusted
// together (Benjamini and Hochberg). A question on which everyone gives low scores is a hard question and no
// anomaly.
//
// The measured harshness of a reviewer has two variances: between questions, and by chance, because each question
// has few scores. testedCells moves the variance by chance of each question towards that of the other questions
// (see [stat.ModeratedVariances]), because few residuals estimate it. It divides every deviation by the standard
// deviation that both variances predict. The statistic of the test is the externally studentised value of the
// result. Its degrees of freedom are those of the moved variance, and at most the number of questions minus two.
//
// If at least six reviewers can be compared, a deviation is reduced to what remains when any one of the reviewer's
// scores is left out.
func (w *window) testedCells(fits []stat.TwoWay, split []stretch) []Anomaly {
	var cells []Anomaly
	var p []float64
	for _, part := range split {
		asked := questions(w, fits, part)
		squares := make([]float64, len(asked))
		residual := make([]float64, len(asked))
		compared := make([]int, len(asked))
		for k, q := range asked {
			squares[k] = q.Squares
			residual[k] = q.DF
			compared[k] = len(slices.DeleteFunc(slices.Clone(q.Effect), math.IsNaN))
		}
		chance, df, ok := stat.ModeratedVariances(squares, residual)
		if !ok {
			continue
		}
		for reviewer, id := range w.names {
			at, h := seriesOf(asked, reviewer)
			if len(h) < preliminaryFrom || stat.Constant(h) {
				continue
			}
			mean := stat.Mean(h)
			average := 0.0
			for _, q := range at {
				average += chance[q] * asked[q].Leverage[reviewer] / float64(len(h))
			}
			between := max(0, stat.Variance(h)-average)
			scaled := make([]float64, len(h))
			for k, q := range at {
				scaled[k] = (h[k] - mean) / math.Sqrt(between+chance[q]*asked[q].Leverage[reviewer])
			}
			for k, t := range stat.Studentized(scaled) {
				q := asked[at[k]]
				if compared[at[k]] >= jackknifeFrom {
					t *= shareKept(h[k]-mean, q.Low[reviewer]-mean, q.High[reviewer]-mean)
				}
				first := w.sessions[q.first]
				p = append(p, stat.StudentP(t, min(df[at[k]], float64(len(h)-2))))
				cells = append(cells, Anomaly{
					SessionID: first.id, Start: first.start, Sessions: q.sessions, ReviewerID: id,
					Value: h[k], Usual: mean, T: t, PValue: p[len(p)-1], questions: len(h),
				})
			}
		}
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		cells[i].QValue = q
	}
	return cells
}

// shareKept returns the least share of a deviation, 0 to 1, that remains when one score is left out. low and high
// are the least and the greatest deviation with one score left out. The share is 0 if leaving out a score may
// change the sign.
func shareKept(deviation, low, high float64) float64 {
	switch {
	case deviation > 0:
		return max(0, min(1, low/deviation))
	case deviation < 0:
		return max(0, min(1, high/deviation))
	default:
		return 0
	}
}
