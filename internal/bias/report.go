package bias

import (
	"context"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// ReportSchema is the schema version of a Report.
const ReportSchema = "2.0.0"

// The reasons for which the Collector itself skips a record.
const (
	reasonFuture    = "future_timestamp"
	reasonScore     = "bad_score"
	reasonDuplicate = "duplicate"
)

// Report is the cross-session bias report of ADR-018. An undefined figure is null in JSON.
type Report struct {
	SchemaVersion string    `json:"schema_version"`
	GeneratedAt   time.Time `json:"generated_at"`
	Status        Status    `json:"status"`
	Window        Window    `json:"window"`
	// Repeats says which sessions ask a question again, if that is known.
	Repeats Repeats `json:"repeats"`
	// Filters lists the filters that name members by the beginning of an id, or that match nothing. If there are
	// too few sessions, it also says what the other filters left out.
	Filters []Filter `json:"filters,omitempty"`
	// Versions says, in the order of time, when a provider began to serve another version of a member's model.
	Versions []VersionChange `json:"versions"`
	// SessionsNeeded is how many sessions are still missing before figures are shown. It is 0 if there are figures.
	SessionsNeeded int `json:"sessions_needed"`
	// Summary and Questions say what the figures mean, in sentences. Every form of the report prints the same ones.
	// Questions is empty if there are no figures.
	Summary   Summary    `json:"summary"`
	Questions []Question `json:"questions"`
	// Headline names the favours that were found. If none was, it says which effects could have been found.
	Headline string `json:"headline"`
	// Apart says what else was found, in one sentence each: levels, changes, and associations with length and
	// reasoning. None of it is a favour.
	Apart       []string      `json:"apart"`
	Levels      Levels        `json:"levels"`
	NotMeasured []NotMeasured `json:"not_measured"`

	Skipped   []Skipped  `json:"skipped"` // by reason
	Metrics   []Metric   `json:"metrics"`
	Reviewers []Profile  `json:"reviewers"` // by reviewer id, only those that gave a score
	Prior     Prior      `json:"prior"`     // the prior of the reviewers' relative harshness
	Positions []Position `json:"positions"` // by position, only those with a score
	// ModelPositions are sorted by model id and position. They leave out own answers.
	ModelPositions []ModelPosition `json:"model_positions"`
	Series         []SeriesPoint   `json:"series"`           // by time, none below twenty sessions
	Splits         []Split         `json:"splits,omitempty"` // by value, only if the query asks for them

	// Pairs says how each reviewer judged pairs of answers, by reviewer id. It is empty if some session has more
	// than two answers.
	Pairs []PairJudge `json:"pairs,omitempty"`

	ChangePoints []ChangePoint `json:"change_points"` // by time and reviewer id
	Anomalies    Anomalies     `json:"anomalies"`
	Calibrated   []Calibrated  `json:"calibrated"` // by reviewer and candidate id
}

// Status says whether a Report holds figures.
type Status string

// The states of a Report.
const (
	StatusOK         Status = "ok"
	StatusCollecting Status = "collecting" // under ten sessions, so there are no figures
)

// Levels are the false discovery rates at which a headline is flagged.
type Levels struct {
	BelowHigh float64 `json:"below_50_sessions"`
	High      float64 `json:"from_50_sessions"`
}

// NotMeasured names a bias that the report does not look for, and why.
type NotMeasured struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Window is the set of sessions that a Report was computed from.
type Window struct {
	Start    *time.Time `json:"start"` // when the first session started, or null
	End      *time.Time `json:"end"`   // when the last session started
	Sessions int        `json:"sessions"`
	Records  int        `json:"records"` // counts records with or without a score
	// Days and Newest are the limits of the window, or 0 for no limit. Sessions enter if they started within Days
	// times 24 h before the report. If there are more than Newest such sessions, only the newest ones enter.
	Days   int `json:"limit_days,omitempty"`
	Newest int `json:"limit_sessions,omitempty"`
}

// Skipped counts records that could not be used. Reason is one that the reader of the store gave, or one of the
// Collector's own: "future_timestamp", "bad_score", "bad_rank" or "duplicate".
type Skipped struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// FirstFile is the name, without directories, of the file with the first such record. FirstLine is the number
	// of its line, from 1. Both are null for the Collector's own reasons.
	FirstFile *string `json:"first_file"`
	FirstLine *int64  `json:"first_line"`
}

// Profile describes the scores that one reviewer gave, including those of its own answers.
type Profile struct {
	ReviewerID string  `json:"reviewer_id"`
	Mean       float64 `json:"mean"` // 1 to 10
	// MeanLower and MeanUpper are the 95 % interval of the mean over questions. The interval says how far Mean may
	// lie from the mean over all questions of this kind. MeanLower and MeanUpper are null below two questions.
	MeanLower *float64 `json:"mean_ci_lower"`
	MeanUpper *float64 `json:"mean_ci_upper"`
	Std       *float64 `json:"std"` // with n-1; null for a single score
	// HarshnessZ is (Mean - mean of all reviewers' means) / their standard deviation with n-1 (ADR-018). It is
	// below 0 for a reviewer harsher than the others. It is null for a single reviewer and if the means do not
	// differ.
	HarshnessZ *float64 `json:"harshness_z"`
	// HarshnessZLower and HarshnessZUpper are the 95 % interval of HarshnessZ over questions. They are null if the
	// interval would include every possible z.
	HarshnessZLower *float64 `json:"harshness_z_ci_lower"`
	HarshnessZUpper *float64 `json:"harshness_z_ci_upper"`
	Reviews         int      `json:"reviews"` // counts scores
	// Confidence is ADR-018's tier for the number of questions that the reviewer scored.
	Confidence Confidence `json:"statistical_confidence"`
	// RelativeHarshness is what the reviewer adds to the score of an answer, in points. It is the posterior mean
	// over questions under the prior of the report, with its 95 % credible interval. It is null for a reviewer that
	// was never compared with others.
	RelativeHarshness stat.Estimate `json:"relative_harshness"`
	// DriftSD is the mean of the later half of the scores minus that of the earlier half, in standard deviations.
	// ADR-018 calls a profile stable if the absolute value is below 0.5.
	DriftSD *float64 `json:"drift_sd"`
}

// Position describes the scores that answers got in one position (ADR-017).
type Position struct {
	Position int     `json:"position"` // 0 is shown first
	Mean     float64 `json:"mean"`     // 1 to 10
	// CILower and CIUpper are the 95 % interval of the mean over questions. They are null below two questions.
	CILower *float64 `json:"ci_lower"`
	CIUpper *float64 `json:"ci_upper"`
	Count   int      `json:"count"`
}

// pairs holds the values that a correlation is computed from.
type pairs struct {
	tally
	x, y    []float64
	moments [][]float64 // by cluster: n and the sums of x, y, x^2, y^2 and xy
}

func (p *pairs) append(cluster, session int, x, y float64) {
	p.add(cluster, session)
	p.x = append(p.x, x)
	p.y = append(p.y, y)
	if len(p.moments) < p.clusters {
		p.moments = append(p.moments, make([]float64, 6))
	}
	for k, v := range [...]float64{1, x, y, x * x, y * y, x * y} {
		p.moments[len(p.moments)-1][k] += v
	}
}

// Report computes the report from all records added so far. The caller may add records afterwards and call Report
// again. If the context has ended, the report must not be used.
func (c *Collector) Report(ctx context.Context) Report {
	w := c.window()
	r := Report{
		SchemaVersion:  ReportSchema,
		GeneratedAt:    c.o.Now.UTC(),
		Status:         StatusOK,
		Window:         c.span(&w),
		Filters:        w.filters,
		Repeats:        w.repeats,
		Versions:       w.versionChanges(),
		SessionsNeeded: max(0, preliminaryFrom-len(w.sessions)),
		Levels:         Levels{BelowHigh: levelBelowHigh, High: levelHigh},
		NotMeasured: []NotMeasured{
			{styleName, "it needs embeddings of the answers: " + c.o.Settings.Of(council.SettingEmbeddingModel) +
				" names a model for them, and only their cosines are recorded (ADR-018)"},
		},
		Questions:      []Question{},
		Apart:          []string{},
		Metrics:        []Metric{},
		Reviewers:      []Profile{},
		Prior:          weakPrior(),
		Positions:      []Position{},
		ModelPositions: []ModelPosition{},
		Series:         []SeriesPoint{},
		ChangePoints:   []ChangePoint{},
		Anomalies:      Anomalies{Found: []Anomaly{}, Limits: anomalyLimits},
		Calibrated:     []Calibrated{},
	}
	if w.embedder != "" {
		r.NotMeasured = r.NotMeasured[1:]
	}
	var length, position pairs
	for cell := range w.cells(w.byCluster()) {
		length.append(cell.cluster, cell.session, cell.length[cell.i][cell.j], cell.score)
		if p := cell.position[cell.i][cell.j]; p >= 0 {
			position.append(cell.cluster, cell.session, float64(p), cell.score)
		}
	}
	r.Skipped = c.skips(Skipped{Reason: reasonDuplicate, Count: w.duplicates})
	if r.SessionsNeeded > 0 {
		r.Filters = append(r.Filters, c.leftOut()...)
		r.Status = StatusCollecting
		r.Headline = fmt.Sprintf("Collecting data (%d of %d sessions)", r.Window.Sessions, preliminaryFrom)
		r.Summary = c.brief(&w, &r, summary{})
		return r
	}
	fits := severities(w)
	split := stretches(w.sessions)
	given := w.given()
	var described, tested []Metric
	var found summary
	runTogether( // the parts only read the window
		func() { tested, found = c.headlines(ctx, &w, r.Window, fits, split) },
		func() {
			r.ChangePoints = w.changePoints(fits, split)
			r.Anomalies = w.anomalies(fits, split)
		},
		func() {
			described = []Metric{
				c.correlation("pooled_length_score_correlation", "length", length, r.Window),
				c.positionCorrelation(position, r.Window, w.early),
				c.agreement(&w, r.Window),
				c.ballotSimilarity(&w, r.Window),
			}
		},
	)
	r.Metrics = slices.Concat(described, tested)
	speak(r.Metrics)
	r.Headline = found.headline
	r.Apart = append(r.Apart, found.apart...)
	for i := range r.ChangePoints {
		if change := &r.ChangePoints[i]; change.Found() {
			change.Sentence = change.says()
			r.Apart = append(r.Apart, change.Sentence)
		}
	}
	sums := w.sums(c.o.Split)
	r.Reviewers = c.profiles(&w, given, sums.reviewers, fits)
	r.Calibrated = calibrate(&w, given)
	r.Series = w.series(fits)
	r.Pairs = w.pairs()
	sums.describe(&r, w.names, c.o.Split)
	r.Questions = c.questions(&r)
	r.Summary = c.brief(&w, &r, found)
	return r
}

// skips returns the skipped records by reason: the given ones, and those that the Collector counted.
func (c *Collector) skips(besides ...Skipped) []Skipped {
	skipped := slices.AppendSeq(besides, maps.Values(c.skipped))
	skipped = slices.DeleteFunc(skipped, func(s Skipped) bool { return s.Count == 0 })
	slices.SortFunc(skipped, func(a, b Skipped) int { return strings.Compare(a.Reason, b.Reason) })
	return skipped
}

const pearsonMethod = "Pearson r over records; interval by leaving out one question at a time on Fisher's scale, " +
	"from 20 questions on, descriptive"

// correlation returns the metric of Pearson's r of the pairs. x names the first value of each pair. The interval is
// over questions. ADR-018 has Fisher's interval over records, but that is too narrow, because records of one
// question are not independent.
func (c *Collector) correlation(name, x string, p pairs, w Window) Metric {
	m := c.metric(name, "correlation", pearsonMethod, p.tally, w)
	if !c.describe(&m, "a score and a "+x) {
		return m
	}
	r, ok := stat.Pearson(p.x, p.y)
	if !ok {
		m.Reason = fmt.Sprintf("undefined: the scores do not vary, or the %ss do not", x)
		return m
	}
	m.PointEstimate = &r
	if low, high, ok := p.interval(); ok {
		m.CILower = &low
		m.CIUpper = &high
	}
	return m
}

// interval returns the 95 % interval of the correlation, by the jackknife over questions on Fisher's scale (CV3,
// Student's t on one degree of freedom less than there are questions). It returns false below 20 questions, and if
// the interval is undefined.
func (p *pairs) interval() (low, high float64, ok bool) {
	all := make([]float64, 6)
	for _, sums := range p.moments {
		add(all, sums, 1)
	}
	z := func(sums []float64) float64 {
		n := sums[0]
		x := sums[1]
		y := sums[2]
		return math.Atanh((n*sums[5] - x*y) / math.Sqrt((n*sums[3]-x*x)*(n*sums[4]-y*y)))
	}
	g := float64(len(p.moments))
	whole := z(all)
	squares := 0.
	for _, sums := range p.moments {
		add(all, sums, -1)
		d := z(all) - whole
		squares += d * d
		add(all, sums, 1)
	}
	half := math.Sqrt((g-1)/g*squares) * stat.StudentQuantile(0.975, g-1)
	return math.Tanh(whole - half), math.Tanh(whole + half), g >= IntervalsFrom && half > 0 && !math.IsInf(half, 0)
}

// add adds terms, multiplied by times, to sums.
func add(sums, terms []float64, times float64) {
	for k, v := range terms {
		sums[k] += times * v
	}
}

// positionCorrelation returns the correlation of score and position (ADR-017). early says that positions of an
// early schema were left out.
func (c *Collector) positionCorrelation(p pairs, w Window, early bool) Metric {
	m := c.correlation("position_score_correlation", "place", p, w)
	if early && p.clusters == 0 {
		m.Reason = earlyPositions
	}
	return m
}

// runTogether runs the parts of a report concurrently. If a part panics, runTogether recovers the panic, waits
// until all parts have ended, and panics itself. The caller of the report can recover from that panic. Without
// this, a panic in one of the goroutines would end the process.
func runTogether(parts ...func()) {
	var group sync.WaitGroup
	panics := make([]any, len(parts))
	for i, part := range parts {
		group.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics[i] = fmt.Sprintf("%v, in a part of a report:\n%s", v, debug.Stack())
				}
			}()
			part()
		})
	}
	group.Wait()
	for _, v := range panics {
		if v != nil {
			panic(v)
		}
	}
}

// Calibrated is the calibrated view of the scores that one reviewer gave one candidate (ADR-018). It is for
// analysis only and never enters a vote.
type Calibrated struct {
	ReviewerID string `json:"reviewer_id"`
	ModelID    string `json:"model_id"`
	// Z is the mean of (score - the reviewer's mean) / the reviewer's standard deviation with n-1. Mean and
	// deviation are over all of the reviewer's scores. Z is null if these do not differ.
	Z *float64 `json:"z"`
	// Mean is the raw mean of the same scores, 1 to 10.
	Mean    float64 `json:"mean"`
	Reviews int     `json:"reviews"` // scores given to this candidate
}

// Prior is what the report assumes about every reviewer before any session. The relative harshness of a reviewer is
// normally distributed over questions. The prior of its mean is normal about Mean, and weighs as much as Sessions
// observations. The prior of its variance is inverse gamma with Shape and Scale.
type Prior struct {
	Mean     float64 `json:"mean"`     // points
	Sessions float64 `json:"sessions"` // the number of observations that the prior mean weighs as much as
	Shape    float64 `json:"shape"`
	Scale    float64 `json:"scale"` // squared points
}

// weakPrior returns a prior with little weight. For the mean it weighs as much as one observation. For the variance
// it weighs as much as two observations with a standard deviation of one point.
func weakPrior() Prior { return Prior{Mean: 0, Sessions: 1, Shape: 1, Scale: 1} }

// given returns the scores that each member gave, in the order of the sessions, including those of its own answers.
func (w *window) given() [][]float64 {
	all := make([][]float64, len(w.names))
	for c := range w.cells(w.byTime()) {
		all[c.reviewer] = append(all[c.reviewer], c.score)
	}
	return all
}

// profiles returns the profile of each member that gave a score.
func (c *Collector) profiles(w *window, given [][]float64, by []sums, fits []stat.TwoWay) []Profile {
	asked := questions(w, fits, w.byTime())
	profiles := []Profile{}
	prior := weakPrior()
	var means []float64
	var known []sums
	for i, id := range w.names {
		scores := given[i]
		if len(scores) == 0 {
			continue
		}
		p := Profile{
			ReviewerID: id,
			Mean:       stat.Mean(scores),
			Reviews:    len(scores),
			DriftSD:    profileDrift(scores),
			Confidence: c.confidence(len(by[i])),
		}
		p.MeanLower, p.MeanUpper = by[i].interval()
		known = append(known, by[i])
		if len(scores) > 1 {
			p.Std = new(stat.StdDev(scores))
		}
		if _, h := seriesOf(asked, i); len(h) > 0 {
			p.RelativeHarshness = stat.PosteriorMean(h, prior.Mean, prior.Sessions, prior.Shape, prior.Scale)
		}
		profiles = append(profiles, p)
		means = append(means, p.Mean)
	}
	if len(means) < 2 || stat.Constant(means) {
		return profiles
	}
	centre, std := stat.MeanStdDev(means)
	low, high := zIntervals(known)
	for i := range profiles {
		profiles[i].HarshnessZ = new((profiles[i].Mean - centre) / std)
		profiles[i].HarshnessZLower = low[i]
		profiles[i].HarshnessZUpper = high[i]
	}
	return profiles
}

// calibrate returns the calibrated view of each reviewer and candidate that have a score. given holds all scores
// that each member gave.
func calibrate(w *window, given [][]float64) []Calibrated {
	sums := stat.Matrix(len(w.names), len(w.names), 0.)
	counts := stat.Matrix(len(w.names), len(w.names), 0)
	for c := range w.cells(w.byTime()) {
		sums[c.reviewer][c.candidate] += c.score
		counts[c.reviewer][c.candidate]++
	}
	view := []Calibrated{}
	for reviewer, scores := range given {
		for candidate, n := range counts[reviewer] {
			if n == 0 {
				continue
			}
			c := Calibrated{
				ReviewerID: w.names[reviewer],
				ModelID:    w.names[candidate],
				Reviews:    n,
				Mean:       sums[reviewer][candidate] / float64(n),
			}
			if !stat.Constant(scores) {
				mean, std := stat.MeanStdDev(scores)
				c.Z = new((c.Mean - mean) / std)
			}
			view = append(view, c)
		}
	}
	return view
}

// profileDrift returns how far the mean of the later half of a reviewer's scores lies from that of the earlier
// half, in standard deviations (n-1) of all scores. ADR-018 calls a profile stable if the absolute value is below
// 0.5 after 20 sessions. It is nil for fewer than two scores and if the scores do not differ.
func profileDrift(scores []float64) *float64 {
	if len(scores) < 2 || stat.Constant(scores) {
		return nil
	}
	half := len(scores) / 2
	earlier := scores[:half]
	later := scores[len(scores)-half:]
	return new((stat.Mean(later) - stat.Mean(earlier)) / stat.StdDev(scores))
}

// agreement returns the metric of Kendall's W. It is the mean of W over sessions. W leaves out the scores of own
// answers.
func (c *Collector) agreement(w *window, span Window) Metric {
	var t tally
	// terms holds, for each cluster, the sum of W and the number of its sessions.
	var terms [][]float64
	sum := 0.0
	records := 0
	for _, k := range w.byCluster() {
		x := &w.sessions[k]
		y := x.others()
		agreed, ok := stat.KendallW(y)
		if !ok {
			continue
		}
		t.add(x.cluster, k)
		if len(terms) < t.clusters {
			terms = append(terms, make([]float64, 2))
		}
		terms[len(terms)-1][0] += agreed
		terms[len(terms)-1][1]++
		sum += agreed
		for _, row := range y {
			for _, v := range row {
				if !math.IsNaN(v) {
					records++
				}
			}
		}
	}
	m := c.metric("agreement", "Kendall's W", "mean over sessions of Kendall's W of the scores, own answers left out, "+resampled, t, span)
	m.Records = records
	if c.describe(&m, "scores that agreement can be told from") {
		m.PointEstimate = new(sum / float64(t.sessions))
		m.CILower, m.CIUpper = resample(terms, ratio)
	}
	return m
}

// ratio returns the first of two sums divided by the second.
func ratio(sums []float64) float64 { return sums[0] / sums[1] }
