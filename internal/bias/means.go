package bias

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/councild/councild/internal/stat"
)

// questionSum holds the number and the sum of the scores on one question that enter one mean.
type questionSum struct {
	cluster  int
	n, total float64
}

// sums holds the scores that a mean is computed from, by question. Scores on one question are added up, because
// they share its answers and so are not independent.
type sums []questionSum

// add adds a score. The caller adds all scores of one question before those of the next.
func (s *sums) add(cluster int, score float64) {
	if k := len(*s) - 1; k < 0 || (*s)[k].cluster != cluster {
		*s = append(*s, questionSum{cluster: cluster})
	}
	q := &(*s)[len(*s)-1]
	q.n++
	q.total += score
}

func (s sums) all() (n, total float64) {
	for _, q := range s {
		n += q.n
		total += q.total
	}
	return n, total
}

// mean returns the mean of the scores, and their number. There must be at least one score.
func (s sums) mean() (mean float64, n int) {
	count, total := s.all()
	return total / count, int(count)
}

// interval returns the 95 % interval of the mean, for scores from 1 to 10.
func (s sums) interval() (low, high *float64) { return s.within(1, 10) }

// within returns the 95 % interval of the mean, for values from lowest to highest. It uses Student's t on one
// degree of freedom less than there are questions. The standard error comes from leaving out one question at a time
// (CV3, MacKinnon, Nielsen and Webb 2023). The interval is nil below two questions.
func (s sums) within(lowest, highest float64) (low, high *float64) {
	if len(s) < 2 {
		return nil, nil
	}
	n, total := s.all()
	squares := 0.0
	for _, q := range s {
		d := (total-q.total)/(n-q.n) - total/n
		squares += d * d
	}
	g := float64(len(s))
	half := math.Sqrt((g-1)/g*squares) * stat.StudentQuantile(0.975, g-1)
	return new(max(lowest, total/n-half)), new(min(highest, total/n+half))
}

// zIntervals returns the 95 % interval of each reviewer's harshness z, by leaving out one question at a time. An
// interval is nil below three questions. It is nil if z is undefined when some question is left out. It is also nil
// if it would include every possible z. z is undefined if the means do not differ, and varies without bounds if
// they differ very little. For R reviewers, |z| is at most (R-1)/sqrt(R). With two reviewers |z| always has this
// value, so there is no interval.
func zIntervals(reviewers []sums) (low, high []*float64) {
	low = make([]*float64, len(reviewers))
	high = make([]*float64, len(reviewers))
	n := make([]float64, len(reviewers))
	total := make([]float64, len(reviewers))
	means := make([]float64, len(reviewers))
	for i, s := range reviewers {
		n[i], total[i] = s.all()
		means[i] = total[i] / n[i]
	}
	whole, ok := zScores(means)
	if !ok || len(reviewers) < 3 {
		return low, high
	}
	squares := make([]float64, len(reviewers))
	left := make([]float64, len(reviewers))
	questions := 0
	for question := range byQuestion(reviewers) {
		questions++
		for i, q := range question {
			if q.n > 0 && q.n == n[i] {
				return low, high
			}
			left[i] = (total[i] - q.total) / (n[i] - q.n)
		}
		without, ok := zScores(left)
		if !ok {
			return low, high
		}
		for i := range without {
			d := without[i] - whole[i]
			squares[i] += d * d
		}
	}
	if questions < 3 {
		return low, high
	}
	g := float64(questions)
	r := float64(len(reviewers))
	most := (r - 1) / math.Sqrt(r)
	t := stat.StudentQuantile(0.975, g-1)
	for i := range whole {
		half := math.Sqrt((g-1)/g*squares[i]) * t
		if l, h := max(-most, whole[i]-half), min(most, whole[i]+half); l > -most || h < most {
			low[i] = &l
			high[i] = &h
		}
	}
	return low, high
}

// zScores replaces each mean by how many standard deviations it lies from the centre of all means. It returns false
// if the means do not differ.
func zScores(means []float64) ([]float64, bool) {
	if len(means) < 2 || stat.Constant(means) {
		return nil, false
	}
	centre, sd := stat.MeanStdDev(means)
	for i := range means {
		means[i] = (means[i] - centre) / sd
	}
	return means, true
}

// byQuestion yields, for each question, the sum of each reviewer's scores of it. Each slice is valid only until the
// next one is yielded.
func byQuestion(reviewers []sums) iter.Seq[[]questionSum] {
	return func(yield func([]questionSum) bool) {
		at := make([]int, len(reviewers))
		question := make([]questionSum, len(reviewers))
		for {
			// The loop below sets cluster to the next question. This is the first question that some reviewer
			// scored and that was not yet yielded.
			cluster := math.MaxInt
			for i, s := range reviewers {
				if at[i] < len(s) {
					cluster = min(cluster, s[at[i]].cluster)
				}
			}
			if cluster == math.MaxInt {
				return
			}
			for i, s := range reviewers {
				question[i] = questionSum{cluster: cluster}
				if at[i] < len(s) && s[at[i]].cluster == cluster {
					question[i] = s[at[i]]
					at[i]++
				}
			}
			if !yield(question) {
				return
			}
		}
	}
}

// ModelPosition describes the scores that the answers of one model got in one position (ADR-017).
type ModelPosition struct {
	ModelID  string  `json:"model_id"`
	Position int     `json:"position"` // 0 is shown first
	Mean     float64 `json:"mean"`     // 1 to 10
	// CILower and CIUpper are the 95 % interval of the mean over questions. They are null below two questions.
	CILower *float64 `json:"ci_lower"`
	CIUpper *float64 `json:"ci_upper"`
	Count   int      `json:"count"`
}

// Split describes the sessions of one category or language. No figure of a Split is tested, because among so many
// figures some are large by chance.
type Split struct {
	By       string      `json:"by"`    // "category" or "language"
	Value    *string     `json:"value"` // null for sessions whose caller named none
	Sessions int         `json:"sessions"`
	Records  int         `json:"records"` // counts records with a score
	Models   []SplitMean `json:"models"`  // are sorted by model id and leave out own answers
}

// SplitMean is the mean score of one model in a Split.
type SplitMean struct {
	ModelID string  `json:"model_id"`
	Mean    float64 `json:"mean"` // 1 to 10
	// CILower and CIUpper are the 95 % interval of the mean over questions. They are null below two questions.
	CILower *float64 `json:"ci_lower"`
	CIUpper *float64 `json:"ci_upper"`
	Count   int      `json:"count"`
}

// totals holds the scores of the window in the groups that a report describes.
type totals struct {
	reviewers []sums           // by member, own reviews included
	positions map[int]*sums    // by position
	models    [][]sums         // by candidate and position
	splits    map[string]*part // by the category or language that callers named
}

// part holds the scores of one category or language.
type part struct {
	sessions map[int]bool
	models   []sums // by candidate
	records  int
}

// sums adds up the scores of the window in one pass.
func (w *window) sums(split string) totals {
	g := totals{
		reviewers: make([]sums, len(w.names)), positions: map[int]*sums{}, models: make([][]sums, len(w.names)),
		splits: map[string]*part{},
	}
	for c := range w.cells(w.byCluster()) {
		g.reviewers[c.reviewer].add(c.cluster, c.score)
		if p := c.position[c.i][c.j]; p >= 0 {
			if g.positions[p] == nil {
				g.positions[p] = new(sums)
			}
			g.positions[p].add(c.cluster, c.score)
			if p < maxSlate && !c.own[c.i][c.j] {
				addAt(&g.models[c.candidate], p, c)
			}
		}
		if split == "" || c.own[c.i][c.j] {
			continue
		}
		value := c.category
		if split == "language" {
			value = c.language
		}
		if g.splits[value] == nil {
			g.splits[value] = &part{sessions: map[int]bool{}, models: make([]sums, len(w.names))}
		}
		s := g.splits[value]
		s.sessions[c.session] = true
		s.records++
		s.models[c.candidate].add(c.cluster, c.score)
	}
	return g
}

// addAt adds a score to the sums of a position.
func addAt(places *[]sums, place int, c cell) {
	for len(*places) <= place {
		*places = append(*places, nil)
	}
	(*places)[place].add(c.cluster, c.score)
}

// describe fills in the parts of a report that are means of scores. None of these is tested.
func (g totals) describe(r *Report, names []string, split string) {
	for p, s := range g.positions {
		at := Position{Position: p}
		at.Mean, at.Count = s.mean()
		at.CILower, at.CIUpper = s.interval()
		r.Positions = append(r.Positions, at)
	}
	slices.SortFunc(r.Positions, func(a, b Position) int { return a.Position - b.Position })
	for i, places := range g.models {
		for p, s := range places {
			if len(s) == 0 {
				continue
			}
			at := ModelPosition{ModelID: names[i], Position: p}
			at.Mean, at.Count = s.mean()
			at.CILower, at.CIUpper = s.interval()
			r.ModelPositions = append(r.ModelPositions, at)
		}
	}
	for value, p := range g.splits {
		s := Split{By: split, Sessions: len(p.sessions), Records: p.records, Models: []SplitMean{}}
		if value != "" {
			s.Value = &value
		}
		for i, of := range p.models {
			if len(of) == 0 {
				continue
			}
			m := SplitMean{ModelID: names[i]}
			m.Mean, m.Count = of.mean()
			m.CILower, m.CIUpper = of.interval()
			s.Models = append(s.Models, m)
		}
		r.Splits = append(r.Splits, s)
	}
	slices.SortFunc(r.Splits, func(a, b Split) int { return cmp.Compare(value(a.Value), value(b.Value)) })
}

// value returns a sort key for the value of a Split. Sessions without a value are sorted last.
func value(name *string) string {
	if name == nil {
		return "\xff"
	}
	return *name
}

// SeriesPoint describes the sessions of one rolling window (ADR-018). Its figures only show where to look. They are
// not tested, because neighbouring windows share half of their sessions and so are not independent. The report
// tests drift and change points instead.
type SeriesPoint struct {
	Start     time.Time     `json:"start"` // when its first session started
	End       time.Time     `json:"end"`   // when its last session started
	Sessions  int           `json:"sessions"`
	MeanScore *float64      `json:"mean_score"` // includes own reviews; null without a score
	Reviewers []SeriesValue `json:"reviewers"`  // by id, only those with a figure
}

// SeriesValue is the mean relative harshness of one reviewer over a rolling window, in points. A question that was
// asked several times counts once.
type SeriesValue struct {
	ReviewerID        string  `json:"reviewer_id"`
	RelativeHarshness float64 `json:"relative_harshness"`
	Sessions          int     `json:"sessions"` // counts the sessions that the mean was computed from
}

const (
	seriesWindow = moderateFrom // the least number of sessions in a rolling window
	seriesPoints = 25           // the largest number of windows; with more sessions they get longer
)

// series returns the rolling windows, oldest first. Each has twenty sessions or more and begins in the middle of
// the window before it. With fewer than twenty sessions there is no window.
func (w *window) series(fits []stat.TwoWay) []SeriesPoint {
	n := len(w.sessions)
	step := max(seriesWindow/2, (n+seriesPoints)/(seriesPoints+1))
	points := []SeriesPoint{}
	for from := 0; from+2*step <= n; from += step {
		to := from + 2*step
		if n-to < step {
			to = n // the last window takes the remaining sessions
		}
		p := SeriesPoint{
			Start:     w.sessions[from].start,
			End:       w.sessions[to-1].start,
			Sessions:  to - from,
			Reviewers: []SeriesValue{},
		}
		var count, total float64
		for s := from; s < to; s++ {
			for _, row := range w.sessions[s].y {
				for _, y := range row {
					if !math.IsNaN(y) {
						count++
						total += y
					}
				}
			}
		}
		if count > 0 {
			p.MeanScore = new(total / count)
		}
		asked := questions(w, fits, w.byTime()[from:to])
		for i, id := range w.names {
			at, h := seriesOf(asked, i)
			if len(h) == 0 {
				continue
			}
			v := SeriesValue{ReviewerID: id, RelativeHarshness: stat.Mean(h)}
			for _, k := range at {
				v.Sessions += asked[k].sessions
			}
			p.Reviewers = append(p.Reviewers, v)
		}
		points = append(points, p)
		if to == n {
			break
		}
	}
	return points
}
