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

// The least number of sessions for each tier of ADR-018.
const (
	preliminaryFrom = 10
	moderateFrom    = 20
	highFrom        = 50
)

// Metric is one figure with everything that ADR-018 requires for it.
type Metric struct {
	// The name of a member is the name of its headline, a vertical bar, and the subject.
	Name string `json:"metric_name"`
	Unit string `json:"unit"`
	// Subject says who or what a member's figure is about. For a headline, it is the subject of the member whose
	// figure the headline shows, or "" if there are no members.
	Subject       string   `json:"subject"`
	PointEstimate *float64 `json:"point_estimate"`
	// CILower and CIUpper are the 95 % interval. The interval of a headline with members holds for all members at
	// once.
	CILower     *float64   `json:"ci_lower"`
	CIUpper     *float64   `json:"ci_upper"`
	SampleSize  int        `json:"sample_size"` // counts sessions with a record that entered
	Records     int        `json:"records"`     // counts records that entered
	WindowStart *time.Time `json:"window_start"`
	WindowEnd   *time.Time `json:"window_end"`
	Method      string     `json:"method"`
	Confidence  Confidence `json:"statistical_confidence"`
	// Kind says which verdict can be found, and which headlines are tested together.
	Kind Kind `json:"kind"`
	// Verdict is null for a descriptive figure that has enough data, because such a figure is not tested. It is
	// also null for a tested member if its headline found nothing, or if the headline is an association.
	Verdict *Verdict `json:"verdict"`
	Reason  string   `json:"reason"` // for the verdict, or why there is none
	// Topic says in words what the figure is about.
	Topic string `json:"topic"`
	// Sentence says what was found or, if nothing was, what could have been found. It is "" without a verdict.
	Sentence string `json:"sentence"`

	// PValue is the p value of the metric's own test. For a headline with members it is the least q of its members.
	// QValue is PValue, adjusted by Benjamini and Hochberg. A headline is adjusted among the headlines of its kind.
	// A member is adjusted among the members of its headline. Members that show what all reviewers have in common
	// and members about single reviewers are adjusted separately. If a headline has both, the q of each member is
	// doubled.
	PValue *float64 `json:"p_value"`
	QValue *float64 `json:"q_value"`
	// OwnScale is the effect in points on the reviewers' own scales, which have ends. The point estimate is in
	// points as if the scales had no ends. OwnScale is null for figures that come from least squares.
	OwnScale *float64 `json:"on_own_scale"`
	// MinimumDetectableEffect is the effect that the verdict finds with a probability of 80 %. It is null if no
	// verdict is possible. For a headline with members it is the largest such effect of a member. If there are
	// members in common, only these count. For position it is the advantage of the first position over the others.
	MinimumDetectableEffect *float64 `json:"minimum_detectable_effect"`
	// DetectableSingle is the effect that the verdict finds with a probability of 80 % if only one reviewer has it,
	// whichever reviewer that is. If the verdict rests on the mean of all reviewers, the effect must be several
	// times as large as MinimumDetectableEffect. DetectableSingle is null if no effect of one reviewer would be
	// found.
	DetectableSingle *float64 `json:"detectable_single"`
	Delta            *float64 `json:"delta"` // the least effect that counts, in Unit
	// AlsoChanged says what else changed at the time of a change that was found.
	AlsoChanged []Alongside `json:"also_changed,omitempty"`

	// Clusters counts the sessions that the figure is computed from. Sessions of one question count once.
	Clusters         int      `json:"clusters"`
	StandardError    *float64 `json:"standard_error"`
	StandardErrorCR1 *float64 `json:"standard_error_cr1"` // the usual clustered error, for comparison
	Test             *Test    `json:"test"`
	// Members are the figures that a headline is computed from, such as one for each reviewer. A member alone
	// proves nothing. The text, the CSV form and the page list members only if something was found at the headline,
	// or if the metric is not tested.
	Members []Metric `json:"members"`

	// InCommon is true for a member that shows what all reviewers have in common.
	InCommon bool `json:"in_common,omitempty"`

	// Coarse is true if the graded-response model distinguishes only few scores of a reviewer. The effect must then
	// also be at least Delta on the reviewer's own scale.
	Coarse bool `json:"-"`
	// Among is the number of tested members of the same kind, times the number of kinds. The significance level of a
	// member is divided by this number.
	Among int `json:"-"`
}

// SubjectName returns the subject as people read it. It counts positions, which people know as places, from 1.
func (m Metric) SubjectName() string {
	first, rest, _ := strings.Cut(m.Subject, " ")
	place, err := strconv.Atoi(first)
	if err != nil || !strings.HasPrefix(m.Name, "position") || m.Unit == ofPairs {
		return m.Subject
	}
	return strings.TrimSpace(fmt.Sprintf("place %d %s", place+1, rest))
}

// Test is a test statistic. DF holds the degrees of freedom: one for "t", two for "F", none for "z".
type Test struct {
	Name  string    `json:"name"`
	Value float64   `json:"value"`
	DF    []float64 `json:"df"`
}

// Confidence is ADR-018's tier of a metric. It follows from the number of sessions.
type Confidence string

// The tiers. With fewer sessions than a verdict needs, the tier is at most preliminary.
const (
	ConfidenceInsufficient Confidence = "insufficient" // under 10 sessions: no figure
	ConfidencePreliminary  Confidence = "preliminary"  // 10 to 19
	ConfidenceModerate     Confidence = "moderate"     // 20 to 49
	ConfidenceHigh         Confidence = "high"         // 50 and more
)

// Kind says what a metric is about. The metrics of each kind are tested as a family of their own.
type Kind string

// The kinds.
const (
	// KindFavour is about answers that get better or worse scores than they are worth. This can change a result.
	KindFavour Kind = "favour"
	// KindLevel is about reviewers that score all answers high or low. Ranks do not depend on it.
	KindLevel       Kind = "level"
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

// Found returns the verdict for a metric of kind k whose effect is significant and at least delta.
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

// none is the counterpart of Found. It returns the verdict for a metric of kind k whose 90 % interval lies inside
// +-delta.
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
	VerdictDiffers       Verdict = "differs"        // like favour, for a level
	VerdictChanged       Verdict = "changed"        // like favour, for a change
	VerdictAssociation   Verdict = "association"    // like favour, but quality may explain it
	VerdictNegligible    Verdict = "negligible"     // the 90 % interval lies inside +-delta
	VerdictAlike         Verdict = "alike"          // like negligible, for a level
	VerdictInconclusive  Verdict = "inconclusive"   // none of the others
)

// Found reports whether the verdict is that there is an effect.
func (v Verdict) Found() bool {
	return v == VerdictFavour || v == VerdictDiffers || v == VerdictChanged || v == VerdictAssociation
}

// Missing reports whether the verdict leaves open whether there is an effect.
func (v Verdict) Missing() bool {
	return v == VerdictInsufficient || v == VerdictNotIdentified || v == VerdictInconclusive
}

// Is reports whether the verdict on a metric is v.
func (m Metric) Is(v Verdict) bool { return m.Verdict != nil && *m.Verdict == v }

// Found reports whether the verdict on a metric is that there is an effect.
func (m Metric) Found() bool { return m.Verdict != nil && m.Verdict.Found() }

// resampled describes an interval by bootstrap, in the field Method of a metric.
const resampled = "BCa interval over questions from 20 on, descriptive"

// IntervalsFrom is how many questions an interval by bootstrap needs. With fewer, the resamples depend too much on
// the particular questions.
const IntervalsFrom = 20

// resample returns the 95 % interval of a statistic that is computed from sums over questions. Each element of
// terms holds what one question adds to the sums. The interval is nil if there are too few questions or if
// [stat.Bootstrap] has none.
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

// describe sets the reason of a metric that is not tested. It reports whether enough questions hold the data for
// the figure, so that the figure can be shown. The argument what names the data.
func (c *Collector) describe(m *Metric, what string) bool {
	switch {
	case m.Clusters < preliminaryFrom:
		m.Verdict = new(VerdictInsufficient)
		m.Reason = fmt.Sprintf("%d sessions have %s, and %d are needed", m.Clusters, what, preliminaryFrom)
		if m.Clusters < m.SampleSize {
			m.Reason = fmt.Sprintf("%d sessions with %d different questions have %s, and %d questions are needed",
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
	// deltaEffect is for favour of own and related answers, for differences between reviewers, and for a doubling
	// of the length.
	deltaEffect    = 0.25
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

// level returns the false discovery rate for a figure with that number of sessions.
func level(sessions int) float64 {
	if sessions < highFrom {
		return levelBelowHigh
	}
	return levelHigh
}

// tiny is the largest standard error, in points, that may come from rounding alone.
const tiny = 1e-10

// metric returns a metric without a figure, for the window w.
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

// missing sets the reason why there is no figure. If there are some sessions but too few, that is the reason.
// Otherwise the reason is the argument.
func (m *Metric) missing(reason string) {
	m.Verdict = new(VerdictNotIdentified)
	m.Reason = reason
	if m.Clusters > 0 && m.Clusters < preliminaryFrom {
		m.Verdict = new(VerdictInsufficient)
		m.Reason = m.tooFew(preliminaryFrom, "a test")
	}
}

// tooFew returns a reason that says how many sessions there are and how many are needed. If several sessions asked
// the same question or tell little about the figure, the reason also says how many sessions count.
func (m *Metric) tooFew(needed int, what string) string {
	if m.Clusters < m.SampleSize {
		return fmt.Sprintf("%s needs %d sessions, and these %d count as %d: sessions that asked the same question count once, "+
			"and sessions that tell little about this do not count", what, needed, m.SampleSize, m.Clusters)
	}
	return fmt.Sprintf("%s needs %d sessions, and there are %d", what, needed, m.Clusters)
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

// most returns the largest effect that the unit of a metric allows. Scores are from 1 to 10, and shares are at most
// 1.
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

// setInterval sets the interval of an effect. The interval does not exceed the largest effect that the unit allows.
func (m *Metric) setInterval(e stat.Effect, confidence float64) {
	half := e.HalfWidth(confidence)
	most := m.most()
	m.CILower = new(max(-most, e.Estimate-half))
	m.CIUpper = new(min(most, e.Estimate+half))
}

// rest lowers m.Clusters to the number of questions that are informative for a contrast. It returns the effect of
// the contrast, on one degree of freedom less than m.Clusters.
func (m *Metric) rest(of stat.Contrast) stat.Effect {
	if of.Estimable {
		m.Clusters = min(m.Clusters, of.Informative)
	}
	of.DF = float64(m.Clusters - 1)
	return of.Effect
}

// setContrast gives a metric the figure of a contrast, or the reason why there is none.
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

// adjust selects the metrics that have a p and for which the function belongs returns true. It adjusts their p
// values together, sets their q values, and returns the selected metrics.
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

// withoutMembers returns the reason why no member has a figure. If a member has the reason that its scores do not
// vary enough, withoutMembers returns this reason. If no member has it, withoutMembers returns its last argument.
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

// takeFigure copies the figure of a member. The argument among is the number of members that it was chosen from.
// takeFigure makes the interval wider, so that it holds for all of these members at once (Bonferroni).
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

// largest returns the metric with the largest absolute estimate, or nil if none has an estimate.
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

// counts reports whether an effect is at least delta. For a coarse scale, the effect must also be at least delta on
// the reviewer's own scale.
func (m *Metric) counts() bool {
	return math.Abs(*m.PointEstimate) >= *m.Delta && !(m.Coarse && math.Abs(*m.OwnScale) < *m.Delta)
}

// setVerdict sets the verdict and the reason of a metric that has a p and a q.
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
		reason = fmt.Sprintf("q = %.2g, and the effect is at least %.2g %s", *m.QValue, *m.Delta, m.Unit)
		if m.Kind == KindLevel {
			reason += "; ranks do not depend on it"
		}
	case m.Name == anchoringName && !m.significant():
		reason = shrinks
	case m.Name != anchoringName && m.negligible():
		verdict = m.Kind.none()
		reason = fmt.Sprintf("the 90 %% interval lies within %.2g %s", *m.Delta, m.Unit)
	case m.significant():
		reason = fmt.Sprintf("the interval excludes 0, but the estimate is smaller than %.2g %s, the smallest effect that counts", *m.Delta, m.Unit)
	case m.MinimumDetectableEffect == nil:
		verdict = VerdictInsufficient
		reason = tooLittle
	default:
		reason = m.notShown()
	}
	m.Verdict = &verdict
	m.Reason = reason
}

// notShown returns the reason of a metric without a shown effect. It says which effect would have been found.
func (m *Metric) notShown() string {
	if s := m.DetectableSingle; s != nil && *s > *m.MinimumDetectableEffect {
		return fmt.Sprintf("no effect shown; one of %.2f %s that all reviewers share would have been found with a probability of 80 %%, "+
			"and one of %.2f that a single reviewer has", *m.MinimumDetectableEffect, m.Unit, *s)
	}
	return fmt.Sprintf("no effect shown; one of %.2f %s would have been found with a probability of 80 %%",
		*m.MinimumDetectableEffect, m.Unit)
}

// negligible reports whether the 90 % interval lies within +-delta. If a headline has tested members, the interval
// of every member must lie within +-delta, and every member must have one.
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

// findable returns the least effect that is both significant at that level and at least delta with a probability of
// 80 %. This is max(t_{1-a/2} se, delta) + t_.80 se.
func (m *Metric) findable(level float64) float64 {
	se := *m.StandardError
	df := m.Test.DF[0]
	least := *m.Delta
	if m.Coarse {
		least = max(least, least**m.PointEstimate / *m.OwnScale)
	}
	return max(se*stat.StudentQuantile(1-level/2, df), least) + se*stat.StudentQuantile(0.8, df)
}
