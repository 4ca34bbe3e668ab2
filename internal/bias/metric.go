package bias

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/stat"
)

// The limits of ADR-018's tiers, in sessions.
const (
	preliminaryFrom = 10
	moderateFrom    = 20
	highFrom        = 50
)

// Metric is one figure with everything ADR-018 wants beside it.
type Metric struct {
	Name string `json:"metric_name"` // of a member: its headline's, a bar, and the subject
	Unit string `json:"unit"`
	// Subject is who or what the figure is about where the metric has members: of a
	// headline, the member that the figure is taken from; "" where there is none.
	Subject       string   `json:"subject"`
	PointEstimate *float64 `json:"point_estimate"`
	// CILower and CIUpper are the 95 % interval. That of a headline with members holds for all of them at once.
	CILower     *float64   `json:"ci_lower"`
	CIUpper     *float64   `json:"ci_upper"`
	SampleSize  int        `json:"sample_size"` // sessions with a record that entered
	Records     int        `json:"records"`     // records that entered
	WindowStart *time.Time `json:"window_start"`
	WindowEnd   *time.Time `json:"window_end"`
	Method      string     `json:"method"`
	Confidence  Confidence `json:"statistical_confidence"`
	// Kind says what the verdict is about.
	Kind Kind `json:"kind"`
	// Verdict is null for a figure that describes and is not tested, and for a
	// member that has a figure unless something was found at its headline.
	Verdict *Verdict `json:"verdict"`
	Reason  string   `json:"reason"` // for the verdict, or for there being none
	// Topic is what the figure is about, in words.
	Topic string `json:"topic"`
	// Sentence says what was found and, where nothing was, what could have been. It is "" without a verdict.
	Sentence string `json:"sentence"`

	// PValue is that of the metric's own test; of a headline with members, the least
	// of theirs after Benjamini and Hochberg. QValue is p among the headlines, and of
	// a member among the members of its headline. Of a
	// headline some of whose members are what all reviewers have in common, twice that.
	PValue *float64 `json:"p_value"`
	QValue *float64 `json:"q_value"`
	// OwnScale is the effect in points on the reviewers' own scales, which end. The point estimate is in points as if the scales went
	// on. OwnScale is null for figures of least squares.
	OwnScale *float64 `json:"on_own_scale"`
	// MinimumDetectableEffect is the effect that the verdict finds with a probability
	// of 80 %, null where there is no verdict to come. Of a headline with members it is
	// the largest of theirs; of position it is the advantage of the first place over
	// the others.
	MinimumDetectableEffect *float64 `json:"minimum_detectable_effect"`
	// DetectableSingle is the same where one reviewer alone has the effect, whichever it is. Where the verdict rests on
	// all reviewers in common, an effect of one of them has to be several times as large. Null where there is no such effect.
	DetectableSingle *float64 `json:"detectable_single"`
	Delta            *float64 `json:"delta"` // the least effect that counts, in the metric's unit
	// AlsoChanged is, of a change that was found, what else changed then.
	AlsoChanged []Alongside `json:"also_changed,omitempty"`

	Clusters         int      `json:"clusters"` // sessions that tell of the figure, those that answered one question counted once
	StandardError    *float64 `json:"standard_error"`
	StandardErrorCR1 *float64 `json:"standard_error_cr1"` // the usual clustered one, for comparison
	Test             *Test    `json:"test"`
	// Members are what a headline is made of, such as its reviewers. By themselves they
	// prove nothing: the text, the CSV form and the page list them only under a flagged
	// headline.
	Members []Metric `json:"members"`

	// InCommon is true for a member that is what all reviewers have in common.
	InCommon bool `json:"in_common,omitempty"`

	Coarse bool `json:"-"` // is true if a reviewer has few categories. The effect has to count on its own scale too
	Among  int  `json:"-"` // is the number of members that share the level
}

// SubjectName returns the subject as people read it: places count from 1.
func (m Metric) SubjectName() string {
	first, rest, _ := strings.Cut(m.Subject, " ")
	place, err := strconv.Atoi(first)
	if err != nil || !strings.HasPrefix(m.Name, "position") || m.Unit == ofPairs {
		return m.Subject
	}
	return strings.TrimSpace(fmt.Sprintf("place %d %s", place+1, rest))
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

// Kind is what a metric is about. Metrics of each kind are a family of tests by themselves.
type Kind string

// The kinds.
const (
	KindFavour      Kind = "favour"      // an answer gets better or worse scores than it is worth: this can move a result
	KindLevel       Kind = "level"       // a reviewer scores all answers high or low: ranks do not depend on it
	KindChange      Kind = "change"      // a reviewer scores higher or lower than before
	KindAssociation Kind = "association" // an effect that better answers may explain
	KindDescription Kind = "description" // a figure that describes and is not tested
)

// kindOf returns the kind of a headline.
func kindOf(name string) Kind {
	switch name {
	case harshnessName:
		return KindLevel
	case driftName:
		return KindChange
	case lengthAssociation, reasoningName:
		return KindAssociation
	default:
		return KindFavour
	}
}

// Found returns the verdict of a metric of that kind which is significant, and at least delta.
func (k Kind) Found() Verdict {
	switch k {
	case KindLevel:
		return VerdictDiffers
	case KindChange:
		return VerdictChanged
	case KindAssociation:
		return VerdictAssociation
	case KindFavour, KindDescription:
	}
	return VerdictFavour
}

// none returns the verdict of a metric of that kind whose 90 % interval lies inside +-delta.
func (k Kind) none() Verdict {
	if k == KindLevel {
		return VerdictAlike
	}
	return VerdictNegligible
}

// Verdict is the conclusion about a metric.
type Verdict string

// The verdicts.
const (
	VerdictInsufficient  Verdict = "insufficient"   // too few sessions
	VerdictNotIdentified Verdict = "not_identified" // these records cannot tell
	VerdictFavour        Verdict = "favour"         // significant, and at least delta
	VerdictDiffers       Verdict = "differs"        // the same, of a level
	VerdictChanged       Verdict = "changed"        // the same, of a change
	VerdictAssociation   Verdict = "association"    // the same, where quality may explain it
	VerdictNegligible    Verdict = "negligible"     // the 90 % interval lies inside +-delta
	VerdictAlike         Verdict = "alike"          // the same, of a level
	VerdictInconclusive  Verdict = "inconclusive"   // none of these
)

// Found reports whether the verdict is that there is an effect.
func (v Verdict) Found() bool {
	return v == VerdictFavour || v == VerdictDiffers || v == VerdictChanged || v == VerdictAssociation
}

// Missing reports whether no verdict could be given.
func (v Verdict) Missing() bool {
	return v == VerdictInsufficient || v == VerdictNotIdentified || v == VerdictInconclusive
}

// Is reports whether that is the verdict on a metric.
func (m Metric) Is(v Verdict) bool { return m.Verdict != nil && *m.Verdict == v }

// Found reports whether the verdict on a metric is that there is an effect.
func (m Metric) Found() bool { return m.Verdict != nil && m.Verdict.Found() }

// resampled is the method of an interval by bootstrap.
const resampled = "BCa interval over questions from 20 on, descriptive"

// IntervalsFrom is how many questions an interval by bootstrap needs. With fewer, the
// resamples depend too much on these questions.
const IntervalsFrom = 20

// resample returns the 95 % interval of a statistic of the sums of the terms of
// questions, nil where they are too few or [stat.Bootstrap] has none.
func resample(terms [][]float64, statistic func(sums []float64) float64) (low, high *float64) {
	if len(terms) < IntervalsFrom {
		return nil, nil
	}
	lower, upper, ok := stat.Bootstrap(terms, statistic, reportSeed)
	if !ok {
		return nil, nil
	}
	return &lower, &upper
}

// describe gives a metric that is not tested its reason, and reports whether enough
// sessions hold what it takes for its figure to be shown.
func (c *Collector) describe(m *Metric, what string) bool {
	switch {
	case m.Clusters < preliminaryFrom:
		m.Verdict = new(VerdictInsufficient)
		m.Reason = fmt.Sprintf("%d sessions hold %s: %d are needed", m.Clusters, what, preliminaryFrom)
		if m.Clusters < m.SampleSize {
			m.Reason = fmt.Sprintf("%d sessions that asked %d questions hold %s: %d questions are needed",
				m.SampleSize, m.Clusters, what, preliminaryFrom)
		}
		return false
	case m.Clusters < c.o.MinSessions:
		m.Verdict = new(VerdictInsufficient)
		m.Reason = m.tooFew(c.o.MinSessions, "a verdict")
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

// The least effects that count, in points on 1-10.
const (
	deltaEffect    = 0.25 // of an own or a related answer, a reviewer, a doubling of the length
	deltaPosition  = 0.15
	deltaAnchoring = 0.10
	deltaDrift     = 0.5  // over the window
	deltaStyle     = 0.15 // per tenth of similarity
)

// The false discovery rates at which a headline is flagged.
const (
	levelBelowHigh = 0.03
	levelHigh      = 0.05
)

// level returns the false discovery rate at which a figure of that many sessions is
// flagged.
func level(sessions int) float64 {
	if sessions < highFrom {
		return levelBelowHigh
	}
	return levelHigh
}

// tiny is a standard error, in points, that comes from rounding alone.
const tiny = 1e-10

// metric returns a metric of the window without a figure.
func (c *Collector) metric(name, unit, method string, t tally, w Window) Metric {
	return Metric{
		Name:        name,
		Unit:        unit,
		Method:      method,
		Kind:        KindDescription,
		SampleSize:  t.sessions,
		Records:     t.records,
		Clusters:    t.clusters,
		WindowStart: w.Start,
		WindowEnd:   w.End,
		Confidence:  c.confidence(t.clusters),
		Members:     []Metric{},
	}
}

// missing sets why there is no figure: too few sessions where there are any, else the
// reason.
func (m *Metric) missing(reason string) {
	m.Verdict = new(VerdictNotIdentified)
	m.Reason = reason
	if m.Clusters > 0 && m.Clusters < preliminaryFrom {
		m.Verdict = new(VerdictInsufficient)
		m.Reason = m.tooFew(preliminaryFrom, "a test")
	}
}

// tooFew returns that there are fewer sessions than needed, or how many the sessions count as
// where several asked the same question or tell little of the figure.
func (m *Metric) tooFew(needed int, what string) string {
	if m.Clusters < m.SampleSize {
		return fmt.Sprintf("%d sessions count as %d, for those that asked one question count once, and those that tell little of this do not: "+
			"%s takes %d", m.SampleSize, m.Clusters, what, needed)
	}
	return fmt.Sprintf("%d of the %d sessions that %s takes", m.Clusters, needed, what)
}

// set fills in the figure of an effect and its test.
func (m *Metric) set(e stat.Effect) {
	if !(e.SE > tiny) {
		m.missing(noVariation)
		return
	}
	if m.beyondScale(e.Estimate) {
		m.missing(beyondScale)
		return
	}
	m.PointEstimate = new(e.Estimate)
	m.setInterval(e, 0.95)
	m.StandardError = new(e.SE)
	if e.CR1 > 0 {
		m.StandardErrorCR1 = new(e.CR1)
	}
	m.Test = &Test{Name: "t", Value: e.Estimate / e.SE, DF: []float64{e.DF}}
	m.PValue = new(stat.StudentP(m.Test.Value, e.DF))
}

// most returns the largest effect that the unit of a metric allows: scores are from 1 to 10, and shares at most 1.
func (m *Metric) most() float64 {
	switch {
	case strings.HasPrefix(m.Unit, points):
		return 9
	case m.Unit == ofPairs:
		return 1
	default:
		return math.Inf(1)
	}
}

func (m *Metric) beyondScale(effect float64) bool { return math.Abs(effect) > m.most() }

// setInterval sets the interval of an effect, which the scale bounds too.
func (m *Metric) setInterval(e stat.Effect, confidence float64) {
	half := e.HalfWidth(confidence)
	most := m.most()
	m.CILower = new(max(-most, e.Estimate-half))
	m.CIUpper = new(min(most, e.Estimate+half))
}

// rest makes a metric rest on no more questions than a contrast is told from, and returns its effect on one degree of
// freedom less.
func (m *Metric) rest(of stat.Contrast) stat.Effect {
	if of.Estimable {
		m.Clusters = min(m.Clusters, of.Informative)
	}
	of.DF = float64(m.Clusters - 1)
	return of.Effect
}

// setContrast sets a contrast of a fit's coefficients.
func (m *Metric) setContrast(of stat.Contrast) {
	e := m.rest(of)
	switch {
	case m.Clusters < preliminaryFrom || !of.Estimable:
		m.missing(notSeparable)
	case !of.Robust:
		m.missing(oneSession)
	default:
		m.set(e)
	}
}

// adjust sets the q values of the metrics that have a p and belong, as one family,
// and returns those.
func adjust(metrics []Metric, belongs func(Metric) bool) []*Metric {
	var tested []*Metric
	var p []float64
	for i := range metrics {
		if single := metrics[i].PValue; single != nil && belongs(metrics[i]) {
			tested = append(tested, &metrics[i])
			p = append(p, *single)
		}
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		tested[i].QValue = new(q)
	}
	return tested
}

// withoutMembers returns why no member has a figure: a special reason that some member
// has, else otherwise.
func withoutMembers(members []Metric, otherwise string) string {
	for _, own := range []string{noVariation, nearlyConstant} {
		if slices.ContainsFunc(members, func(m Metric) bool { return m.Reason == own }) {
			return own
		}
	}
	return otherwise
}

// showMember makes a headline show a tested member.
func (m *Metric) showMember(member *Metric) {
	m.takeFigure(member, member.Among)
	m.Test = member.Test
	m.OwnScale = member.OwnScale
	m.Coarse = member.Coarse
	m.AlsoChanged = member.AlsoChanged
	m.Records = member.Records
	m.SampleSize = member.SampleSize
	m.Clusters = member.Clusters
	m.Confidence = member.Confidence
}

// takeFigure takes over the figure of a member that was picked among so many. Because it was
// picked, the interval is wider than its own: it holds for all of them at once
// (Bonferroni).
func (m *Metric) takeFigure(from *Metric, among int) {
	m.Subject = from.Subject
	m.PointEstimate = from.PointEstimate
	m.StandardError = from.StandardError
	m.StandardErrorCR1 = from.StandardErrorCR1
	e := stat.Effect{Estimate: *from.PointEstimate, SE: *from.StandardError, DF: from.Test.DF[0]}
	m.setInterval(e, 1-0.05/float64(among))
}

// pointers returns pointers to metrics.
func pointers(metrics []Metric) []*Metric {
	all := make([]*Metric, len(metrics))
	for i := range metrics {
		all[i] = &metrics[i]
	}
	return all
}

// tested returns the members of a headline that are tested.
func (m *Metric) tested() []*Metric {
	return slices.DeleteFunc(pointers(m.Members), func(member *Metric) bool { return member.QValue == nil })
}

// largest returns the metric with the largest estimate, nil where there is none.
func largest(metrics []*Metric) *Metric {
	var best *Metric
	for _, m := range metrics {
		if m.PointEstimate != nil && (best == nil || math.Abs(*m.PointEstimate) > math.Abs(*best.PointEstimate)) {
			best = m
		}
	}
	return best
}

func (m *Metric) significant() bool { return m.QValue != nil && *m.QValue < level(m.Clusters) }

// passes reports whether a metric is significant, and large enough to count.
func (m *Metric) passes() bool { return m.significant() && m.counts() }

// counts reports whether an effect is at least delta.
func (m *Metric) counts() bool {
	return math.Abs(*m.PointEstimate) >= *m.Delta && !(m.Coarse && math.Abs(*m.OwnScale) < *m.Delta)
}

// setVerdict judges a metric that has a p and a q.
func (c *Collector) setVerdict(m *Metric) {
	if m.Clusters < c.o.MinSessions {
		m.Verdict = new(VerdictInsufficient)
		m.Reason = m.tooFew(c.o.MinSessions, "a verdict")
		return
	}
	var reason string
	verdict := VerdictInconclusive
	switch {
	case m.passes() && m.Kind == KindAssociation:
		verdict = VerdictAssociation
		reason = lengthIsMixed
		if m.Name == reasoningName {
			reason = reasonIsMixed
		}
	case m.passes():
		verdict = m.Kind.Found()
		reason = fmt.Sprintf("q = %.2g, and at least %.2g %s", *m.QValue, *m.Delta, m.Unit)
		if m.Kind == KindLevel {
			reason += "; ranks do not depend on it"
		}
	case m.Name == anchoringName && !m.significant():
		reason = shrinks
	case m.Name != anchoringName && m.negligible():
		verdict = m.Kind.none()
		reason = fmt.Sprintf("the 90 %% interval lies within %.2g %s", *m.Delta, m.Unit)
	case m.significant():
		reason = fmt.Sprintf("significant, but smaller than the %.2g %s that count", *m.Delta, m.Unit)
	case m.MinimumDetectableEffect == nil:
		verdict = VerdictInsufficient
		reason = tooLittle
	default:
		reason = m.notShown()
	}
	m.Verdict = &verdict
	m.Reason = reason
}

// notShown says which effect would have been found.
func (m *Metric) notShown() string {
	if s := m.DetectableSingle; s != nil && *s > *m.MinimumDetectableEffect {
		return fmt.Sprintf("no effect shown; one of %.2f %s that all reviewers share would have been found in four of five such windows, "+
			"and one of %.2f that a single reviewer has", *m.MinimumDetectableEffect, m.Unit, *s)
	}
	return fmt.Sprintf("no effect shown; one of %.2f %s would have been found in four of five such windows",
		*m.MinimumDetectableEffect, m.Unit)
}

// negligible reports whether the 90 % interval lies within delta: of a headline
// that is taken from its members, the interval of each.
func (m *Metric) negligible() bool {
	if len(m.tested()) == 0 {
		return m.inside()
	}
	return !slices.ContainsFunc(pointers(m.Members), func(member *Metric) bool { return !member.inside() })
}

// inside reports whether the 90 % interval lies within +-delta.
func (m *Metric) inside() bool {
	return m.PointEstimate != nil &&
		math.Abs(*m.PointEstimate)+stat.Effect{SE: *m.StandardError, DF: m.Test.DF[0]}.HalfWidth(0.9) <= *m.Delta
}

// findable returns the effect that is significant at a level, and at least delta,
// with a probability of 80 %: max((t_{1-a/2} + t_.80) se, delta + t_.80 se).
func (m *Metric) findable(level float64) float64 {
	se := *m.StandardError
	df := m.Test.DF[0]
	least := *m.Delta
	if m.Coarse {
		least = max(least, least**m.PointEstimate / *m.OwnScale)
	}
	return max(se*stat.StudentQuantile(1-level/2, df), least) + se*stat.StudentQuantile(0.8, df)
}
