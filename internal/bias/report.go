package bias

import (
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/stat"
)

// ReportSchema is the schema version of a Report.
const ReportSchema = "1.1.0"

// The limits of ADR-018's tiers, in sessions.
const (
	preliminaryFrom = 10
	moderateFrom    = 20
	highFrom        = 50
)

// Why the Collector itself skips a record.
const (
	reasonFuture    = "future_timestamp"
	reasonScore     = "bad_score"
	reasonDuplicate = "duplicate"
)

// Report is the cross-session bias report of ADR-018. A figure that is undefined
// is null in JSON.
type Report struct {
	SchemaVersion string    `json:"schema_version"`
	GeneratedAt   time.Time `json:"generated_at"`
	Status        Status    `json:"status"`
	Window        Window    `json:"window"`
	// SessionsNeeded is how many sessions are still missing until figures are
	// shown, 0 once they are.
	SessionsNeeded int `json:"sessions_needed"`
	// Headline says what was found in one sentence.
	Headline    string        `json:"headline"`
	Levels      Levels        `json:"levels"`
	NotMeasured []NotMeasured `json:"not_measured"`

	Skipped   []Skipped  `json:"skipped"` // by reason
	Metrics   []Metric   `json:"metrics"`
	Reviewers []Profile  `json:"reviewers"` // by reviewer id; those that gave a score
	Prior     Prior      `json:"prior"`     // of the reviewers' relative harshness
	Positions []Position `json:"positions"` // by position; those that hold a score

	ChangePoints []ChangePoint `json:"change_points"` // by time and reviewer id
	Anomalies    Anomalies     `json:"anomalies"`
	Calibrated   []Calibrated  `json:"calibrated"` // by reviewer and candidate id
}

// Status says whether a Report holds figures.
type Status string

// The states of a Report.
const (
	StatusOK         Status = "ok"
	StatusCollecting Status = "collecting" // under ten sessions: nothing but the count
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

// Window is what a Report was computed from.
type Window struct {
	Start    *time.Time `json:"start"` // of the first session; null without one
	End      *time.Time `json:"end"`   // start of the last session
	Sessions int        `json:"sessions"`
	Records  int        `json:"records"` // with or without a score
}

// Skipped counts records that could not be used. Reason is the store reader's,
// or one of the Collector's own: "future_timestamp", "bad_score", "duplicate".
type Skipped struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// FirstFile is the name of the file, without directories, of the first such record,
	// and FirstLine its line there, 1-based; both are null for the Collector's reasons.
	FirstFile *string `json:"first_file"`
	FirstLine *int64  `json:"first_line"`
}

// Metric is one figure with everything ADR-018 wants beside it.
type Metric struct {
	Name string `json:"metric_name"` // of a member: its headline's, a bar, and the subject
	Unit string `json:"unit"`
	// Subject is who or what the figure is about where the metric has members: of a
	// headline, the member that the figure is taken from; "" where there is none.
	Subject       string     `json:"subject"`
	PointEstimate *float64   `json:"point_estimate"`
	CILower       *float64   `json:"ci_lower"` // of the 95 % interval; of a headline with members, one that holds for all at once
	CIUpper       *float64   `json:"ci_upper"`
	SampleSize    int        `json:"sample_size"` // sessions with a record that entered
	Records       int        `json:"records"`     // records that entered
	WindowStart   *time.Time `json:"window_start"`
	WindowEnd     *time.Time `json:"window_end"`
	Method        string     `json:"method"`
	Confidence    Confidence `json:"statistical_confidence"`
	// Verdict is null for a figure that describes and is not tested, and for a
	// member that has a figure unless its headline is a bias.
	Verdict *Verdict `json:"verdict"`
	Reason  string   `json:"reason"` // for the verdict, or for there being none

	// PValue is that of the metric's own test; of a headline with members, the least
	// of theirs after Benjamini and Hochberg. QValue is p among the headlines, and of
	// a member among the members of its headline. Where there is a second fit, the
	// larger p of both counts, and 1 where their signs differ.
	PValue    *float64   `json:"p_value"`
	QValue    *float64   `json:"q_value"`
	SecondFit *SecondFit `json:"second_fit"` // null where the metric has none
	// MinimumDetectableEffect is the effect that the verdict finds with a probability
	// of 80 %, null where there is no verdict to come. Of a headline with members it is
	// the largest of theirs; of position it is the advantage of the first place over
	// the others.
	MinimumDetectableEffect *float64 `json:"minimum_detectable_effect"`
	Delta                   *float64 `json:"delta"` // the least effect that counts as a bias, in the metric's unit

	Clusters         int      `json:"clusters"` // sessions, those that answered one question counted once
	StandardError    *float64 `json:"standard_error"`
	StandardErrorCR1 *float64 `json:"standard_error_cr1"` // the usual clustered one, for comparison
	Test             *Test    `json:"test"`
	// Members are what a headline is made of, such as its reviewers. By themselves they
	// prove nothing: the text, the CSV form and the page list them only under a flagged
	// headline.
	Members []Metric `json:"members"`
}

// SecondFit is a figure with differences in the reviewers' discrimination taken out
// of the scores. Its error includes that of the discriminations.
type SecondFit struct {
	PointEstimate float64 `json:"point_estimate"`
	StandardError float64 `json:"standard_error"`
	PValue        float64 `json:"p_value"`
}

// Test is a test statistic: "t" with its degrees of freedom, "F" with both, or "z"
// without any.
type Test struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	DF    []float64 `json:"df"`
}

// Confidence is ADR-018's tier of a metric, by the sessions behind it.
type Confidence string

// The tiers. Below the minimum number of sessions for a verdict, the tier is
// preliminary at most.
const (
	ConfidenceInsufficient Confidence = "insufficient" // under 10 sessions: no figure
	ConfidencePreliminary  Confidence = "preliminary"  // 10 to 19
	ConfidenceModerate     Confidence = "moderate"     // 20 to 49
	ConfidenceHigh         Confidence = "high"         // 50 and more
)

// Verdict is what a metric says about bias.
type Verdict string

// The verdicts.
const (
	VerdictInsufficient  Verdict = "insufficient"   // too few sessions
	VerdictNotIdentified Verdict = "not_identified" // these records cannot tell
	VerdictBias          Verdict = "bias"           // significant, and at least delta
	VerdictAssociation   Verdict = "association"    // as bias, where quality may explain it
	VerdictNegligible    Verdict = "negligible"     // the 90 % interval lies inside +-delta
	VerdictInconclusive  Verdict = "inconclusive"   // none of these
)

// Profile describes the scores that one reviewer gave, own reviews included.
type Profile struct {
	ReviewerID string   `json:"reviewer_id"`
	Mean       float64  `json:"mean"` // 1 to 10
	Std        *float64 `json:"std"`  // with n-1; null for a single score
	// HarshnessZ is (this mean - mean of all reviewers' means) / their standard
	// deviation with n-1 (ADR-018): below 0 for a reviewer harsher than the others.
	// It is null for a single reviewer and where the means do not differ.
	HarshnessZ *float64 `json:"harshness_z"`
	Reviews    int      `json:"reviews"` // scores given
	// RelativeHarshness is what the reviewer adds to an answer's score, in points: the
	// posterior mean over sessions, those of one question counted once, with its 95 % credible interval, under the prior
	// that the report states. It is null for one never compared with others.
	RelativeHarshness stat.Estimate `json:"relative_harshness"`
	// DriftSD is how far the later half of the scores lies from the earlier one in
	// mean, in standard deviations; ADR-018 calls a profile stable below 0.5.
	DriftSD *float64 `json:"drift_sd"`
}

// Position describes the scores that answers got at one place (ADR-017).
type Position struct {
	Position int     `json:"position"` // 0 is shown first
	Mean     float64 `json:"mean"`     // 1 to 10
	Count    int     `json:"count"`
}

// resampled is the method of an interval by bootstrap.
const resampled = "BCa interval over questions from 20 on, descriptive"

// bootstrapFrom is how many questions an interval by bootstrap takes: below, resamples
// say more about the few questions than about others.
const bootstrapFrom = 20

// resample sets the interval of a metric that is a statistic of the sums of the terms
// of clusters, where there are enough of them (see [stat.Bootstrap]).
func (m *Metric) resample(terms [][]float64, statistic func(sums []float64) float64) {
	if len(terms) < bootstrapFrom {
		return
	}
	if low, high, ok := stat.Bootstrap(terms, statistic, reportSeed); ok {
		m.CILower, m.CIUpper = &low, &high
	}
}

// pairs are the values behind a correlation.
type pairs struct {
	tally
	x, y    []float64
	moments [][]float64 // by cluster: n and the sums of x, y, x^2, y^2 and xy
}

func (p *pairs) append(cluster, session int, x, y float64) {
	p.add(cluster, session)
	p.x, p.y = append(p.x, x), append(p.y, y)
	if len(p.moments) < p.clusters {
		p.moments = append(p.moments, make([]float64, 6))
	}
	for k, v := range [...]float64{1, x, y, x * x, y * y, x * y} {
		p.moments[len(p.moments)-1][k] += v
	}
}

// Report computes the report over what was added so far. More may be added, and
// Report called again, afterwards.
func (c *Collector) Report() Report {
	w := c.window()
	r := Report{
		SchemaVersion: ReportSchema, GeneratedAt: c.o.Now.UTC(), Status: StatusOK,
		Window:         Window{Sessions: len(w.sessions), Records: w.records},
		SessionsNeeded: max(0, preliminaryFrom-len(w.sessions)),
		Levels:         Levels{BelowHigh: levelBelowHigh, High: levelHigh},
		NotMeasured: []NotMeasured{
			{"style_mimicry", "it takes embeddings of the answers, and no text is recorded (ADR-018)"},
			{"reasoning_length", "most providers do not return it"},
		},
		Metrics: []Metric{}, Reviewers: []Profile{}, Prior: weakPrior(), Positions: []Position{},
		ChangePoints: []ChangePoint{}, Anomalies: Anomalies{Found: []Anomaly{}, Limits: anomalyLimits}, Calibrated: []Calibrated{},
	}
	if n := len(w.sessions); n > 0 {
		r.Window.Start, r.Window.End = new(w.sessions[0].start), new(w.sessions[n-1].start)
	}

	var length, position pairs
	byPosition := map[int][]float64{}
	for _, k := range w.byCluster() {
		s := &w.sessions[k]
		for i := range s.reviewers {
			for j, y := range s.y[i] {
				if math.IsNaN(y) {
					continue
				}
				length.append(s.cluster, k, s.length[i][j], y)
				if p := s.position[i][j]; p >= 0 {
					position.append(s.cluster, k, float64(p), y)
					byPosition[p] = append(byPosition[p], y)
				}
			}
		}
	}
	r.Skipped = c.skips(w.duplicates)
	if r.SessionsNeeded > 0 {
		r.Status = StatusCollecting
		r.Headline = fmt.Sprintf("Collecting data (%d of %d sessions)", r.Window.Sessions, preliminaryFrom)
		return r
	}
	fits, split, given := severities(w), stretches(w.sessions), w.given()
	var described, tested []Metric
	var beside parts // they only read the window
	beside.run(func() { tested, r.Headline = c.headlines(&w, r.Window, fits, split) })
	beside.run(func() { r.ChangePoints, r.Anomalies = w.changePoints(fits, split), w.anomalies(fits, split) })
	beside.run(func() {
		described = []Metric{
			c.correlation("pooled_length_score_correlation", "length", length, r.Window),
			c.positionCorrelation(position, r.Window, w.early),
			c.agreement(&w, r.Window),
		}
	})
	beside.wait()
	r.Metrics = slices.Concat(described, tested)
	r.Reviewers = profiles(&w, given, fits)
	r.Calibrated = calibrate(&w, given)
	for _, p := range slices.Sorted(maps.Keys(byPosition)) {
		scores := byPosition[p]
		r.Positions = append(r.Positions, Position{Position: p, Mean: stat.Mean(scores), Count: len(scores)})
	}
	return r
}

func (c *Collector) skips(duplicates int) []Skipped {
	skipped := slices.AppendSeq([]Skipped{}, maps.Values(c.skipped))
	if duplicates > 0 {
		skipped = append(skipped, Skipped{Reason: reasonDuplicate, Count: duplicates})
	}
	slices.SortFunc(skipped, func(a, b Skipped) int { return strings.Compare(a.Reason, b.Reason) })
	return skipped
}

// correlation returns Pearson's r of the pairs, named after what x is, with
// Fisher's interval as ADR-018 has it.
func (c *Collector) correlation(name, x string, p pairs, w Window) Metric {
	m := c.metric(name, "correlation", "Pearson r over records with a Fisher z interval, descriptive", p.tally, w)
	if !c.describe(&m, "a score and a "+x) {
		return m
	}
	r, ok := stat.Pearson(p.x, p.y)
	if !ok {
		m.Reason = fmt.Sprintf("undefined: the scores do not vary, or the %ss do not", x)
		return m
	}
	m.PointEstimate = &r
	if low, high, ok := stat.FisherInterval(r, len(p.x)); ok {
		m.CILower, m.CIUpper = &low, &high
	}
	return m
}

// positionCorrelation returns the correlation of score and position (ADR-017), with
// an interval by resampling sessions. Early says that positions of an early schema
// were left out.
func (c *Collector) positionCorrelation(p pairs, w Window, early bool) Metric {
	m := c.correlation("position_score_correlation", "position", p, w)
	m.Method, m.CILower, m.CIUpper = "Pearson r over records, "+resampled, nil, nil
	if early && p.clusters == 0 {
		m.Reason = earlyPositions
	}
	if m.PointEstimate != nil {
		m.resample(p.moments, func(sums []float64) float64 {
			n, x, y := sums[0], sums[1], sums[2]
			return (n*sums[5] - x*y) / math.Sqrt((n*sums[3]-x*x)*(n*sums[4]-y*y))
		})
	}
	return m
}

// describe gives a metric that is not tested its reason, and reports whether enough
// sessions hold what it takes for its figure to be shown.
func (c *Collector) describe(m *Metric, what string) bool {
	switch {
	case m.Clusters < preliminaryFrom:
		m.Verdict = new(VerdictInsufficient)
		m.Reason = fmt.Sprintf("%d sessions hold %s: %d are needed", m.Clusters, what, preliminaryFrom)
		if m.Clusters < m.SampleSize {
			m.Reason = fmt.Sprintf("%d sessions that asked %d questions hold %s: %d questions are needed", m.SampleSize, m.Clusters, what, preliminaryFrom)
		}
		return false
	case m.Clusters < c.o.MinSessions:
		m.Verdict = new(VerdictInsufficient)
		m.Reason = m.few(c.o.MinSessions, "a verdict")
	default:
		m.Reason = "descriptive: records of a session are not independent, so no test is made"
	}
	return true
}

func (c *Collector) confidence(sessions int) Confidence {
	switch {
	case sessions < preliminaryFrom:
		return ConfidenceInsufficient
	case sessions < moderateFrom || sessions < c.o.MinSessions:
		return ConfidencePreliminary
	case sessions < highFrom:
		return ConfidenceModerate
	default:
		return ConfidenceHigh
	}
}

// parts are pieces of work that run beside each other. A panic in one of them
// would end the process: it is raised again by wait, where the caller can recover
// from it.
type parts struct {
	group sync.WaitGroup

	mu       sync.Mutex // guards panicked
	panicked any
}

func (p *parts) run(part func()) {
	p.group.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.panicked = fmt.Sprintf("%v, in a part of a report:\n%s", v, debug.Stack())
			}
		}()
		part()
	})
}

func (p *parts) wait() {
	p.group.Wait()
	if p.panicked != nil {
		panic(p.panicked)
	}
}
