package bias

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// The least effects that count as a bias, in points on 1-10.
const (
	deltaEffect    = 0.25 // of an own or a related answer, a reviewer, a doubling of the length
	deltaPosition  = 0.15
	deltaAnchoring = 0.10
	deltaDrift     = 0.5 // over the window
)

// The false discovery rates at which a headline is flagged.
const (
	levelBelowHigh = 0.03
	levelHigh      = 0.05
)

const (
	lengthAssociation  = "length_points_per_doubling"
	standardisedSuffix = "_standardised"
)

const (
	points        = "points"
	perDoubling   = "points per doubling of the length"
	leastSquares  = "least squares within sessions; errors by leaving out one session at a time (CV3)"
	noPositions   = "no session tells the position at which each answer was shown"
	sharedOrder   = "the reviewers of each session saw one order, so position cannot be told from quality"
	noOwn         = "own answers were not reviewed in enough sessions: LLM_COUNCIL_SELF_REVIEW_RATE says in how many they are"
	noFamily      = "no reviewer scored another model of its provider"
	notTold       = "the records cannot tell it from the other effects"
	oneSession    = "it rests on a single session"
	noVariation   = "undefined: nothing is left to vary"
	notComparable = "the reviewers cannot be compared: no chain of common candidates links them"
	notReviewers  = "fewer than two reviewers gave scores in enough sessions"
	lengthIsMixed = "longer answers may be better answers, so this is an association and proves no bias"
	notConfirmed  = "the scores standardised within each reviewer do not confirm it"
	noTrend       = "no reviewer took part in enough comparable sessions"
	fewSessions   = "there are fewer sessions than positions"
)

// level returns the false discovery rate at which a figure of that many sessions is
// flagged.
func level(sessions int) float64 {
	if sessions < highFrom {
		return levelBelowHigh
	}
	return levelHigh
}

// tiny is a standard error, in points, that is nothing but rounding.
const tiny = 1e-10

// effect is an estimate with its standard errors and degrees of freedom.
type effect struct{ estimate, se, cr1, df float64 }

// interval returns the half-width of the two-sided interval of that confidence.
func (e effect) interval(confidence float64) float64 { return e.se * tQuantile(0.5+confidence/2, e.df) }

func tQuantile(p, df float64) float64 { return distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p) }

// metric returns a metric of the window without a figure.
func (c *Collector) metric(name, unit, method string, t tally, w Window) Metric {
	return Metric{
		Name: name, Unit: unit, Method: method, SampleSize: t.sessions, Records: t.records, Clusters: t.clusters,
		WindowStart: w.Start, WindowEnd: w.End, Confidence: c.confidence(t.clusters), Members: []Metric{},
	}
}

// missing says why there is no figure: too few sessions where there is any, else
// the reason.
func (m *Metric) missing(reason string) {
	m.Verdict, m.Reason = new(VerdictNotIdentified), reason
	if m.Clusters > 0 && m.Clusters < preliminaryFrom {
		m.Verdict, m.Reason = new(VerdictInsufficient), fmt.Sprintf("%d of the %d sessions that a test takes", m.Clusters, preliminaryFrom)
	}
}

// set fills in the figure of an effect and its test.
func (m *Metric) set(e effect) {
	if !(e.se > tiny) {
		m.missing(noVariation)
		return
	}
	half := e.interval(0.95)
	m.PointEstimate, m.CILower, m.CIUpper = new(e.estimate), new(e.estimate-half), new(e.estimate+half)
	m.StandardError = new(e.se)
	if e.cr1 > 0 {
		m.StandardErrorCR1 = new(e.cr1)
	}
	m.Test = &Test{Name: "t", Value: e.estimate / e.se, DF: []float64{e.df}}
	m.PValue = new(studentP(m.Test.Value, e.df))
	m.MinimumDetectableEffect = new(half + e.se*tQuantile(0.8, e.df))
}

// setContrast fills in a contrast of a fit's coefficients, on as many degrees of
// freedom as there are sessions behind the metric, less one.
func (m *Metric) setContrast(f *fit, c []float64) {
	estimable, robust := f.estimable(c)
	switch {
	case m.Clusters < preliminaryFrom || !estimable:
		m.missing(notTold)
	case !robust:
		m.missing(oneSession)
	default:
		m.set(f.effect(c, m.Clusters))
	}
}

// effect returns a contrast with its standard errors, from that many clusters.
func (f *fit) effect(c []float64, clusters int) effect {
	return effect{dot(c, f.beta), math.Sqrt(quadratic(f.cv3, c)), math.Sqrt(quadratic(f.cr1, c)), float64(clusters - 1)}
}

// adjust sets the q values of the metrics that have a p and belong, as one family,
// and returns those.
func adjust(metrics []Metric, belongs func(Metric) bool) []*Metric {
	var tested []*Metric
	var p []float64
	for i := range metrics {
		if metrics[i].PValue != nil && belongs(metrics[i]) {
			tested, p = append(tested, &metrics[i]), append(p, *metrics[i].PValue)
		}
	}
	for i, q := range benjaminiHochberg(p) {
		tested[i].QValue = new(q)
	}
	return tested
}

func all(Metric) bool { return true }

// headline turns a metric into the headline of its members: it takes the figure of
// the one with the smallest p, and that p after Benjamini and Hochberg. Members with
// too few sessions for a verdict stand back where others have enough.
func (h *findings) headline(m *Metric, members []Metric, otherwise string) {
	m.Members = members
	enough := func(m Metric) bool { return m.PValue != nil && m.Clusters >= h.c.o.MinSessions }
	some := slices.ContainsFunc(members, enough)
	tested := adjust(members, func(m Metric) bool { return !some || enough(m) })
	if len(tested) == 0 {
		m.missing(otherwise)
		return
	}
	best := slices.MinFunc(tested, func(a, b *Metric) int { return cmp.Compare(*a.PValue, *b.PValue) })
	m.take(best, len(tested))
	m.Test, m.Records, m.SampleSize, m.Clusters, m.Confidence = best.Test, best.Records, best.SampleSize, best.Clusters, best.Confidence
	m.PValue, m.MinimumDetectableEffect = best.QValue, best.MinimumDetectableEffect
	for _, member := range tested {
		m.MinimumDetectableEffect = new(max(*m.MinimumDetectableEffect, *member.MinimumDetectableEffect))
	}
}

// take takes over the figure of a member that stands out among so many. Because it
// was picked, the interval is wider than its own: it holds for all of them at once
// (Bonferroni).
func (m *Metric) take(from *Metric, among int) {
	m.Subject, m.PointEstimate, m.StandardError, m.StandardErrorCR1 = from.Subject, from.PointEstimate, from.StandardError, from.StandardErrorCR1
	e := effect{estimate: *from.PointEstimate, se: *from.StandardError, df: from.Test.DF[0]}
	half := e.interval(1 - 0.05/float64(among))
	m.CILower, m.CIUpper = new(e.estimate-half), new(e.estimate+half)
}

// findings makes metrics of the models of a window.
type findings struct {
	*models
	c    *Collector
	span Window
}

// headlines returns the headline family of a window, judged, with what positions
// under a shared order look like, and what it all comes to.
func (c *Collector) headlines(w *window, span Window, fits []severity, split []stretch) (metrics []Metric, text string) {
	h := findings{newModels(w), c, span}
	family := []Metric{h.length(), h.position(), h.slopes()}
	family = append(family, h.favours()...)
	family = append(family, h.harshness(), h.affinity(), h.anchoring(), h.drift(fits, split))
	c.judge(family)
	return append(family, h.sharedOrder()...), summary(family)
}

func (h *findings) metric(name, unit, method string, t tally, delta float64) Metric {
	m := h.c.metric(name, unit, method, t, h.span)
	m.Delta = &delta
	return m
}

// member returns a member of a headline without its figure.
func (h *findings) member(of Metric, subject string, t tally) Metric {
	m := h.metric(of.Name+"|"+subject, of.Unit, of.Method, t, *of.Delta)
	m.Subject = subject
	return m
}

// each returns one member for each member of the council that the tallies count
// anything of, with the figure of a contrast where there is enough.
func (h *findings) each(of Metric, tallies []tally, f *fit, contrast func(member int) []float64) []Metric {
	var members []Metric
	for member, t := range tallies {
		if t.records == 0 {
			continue
		}
		m := h.member(of, h.w.names[member], t)
		if t.testable() {
			m.setContrast(f, contrast(member))
		} else {
			m.missing(notTold)
		}
		members = append(members, m)
	}
	return members
}

func (h *findings) length() Metric {
	m := h.metric(lengthAssociation, perDoubling,
		"candidate models and positions beside it, every reviewer of a session absorbed (M4); "+leastSquares, h.scored, deltaEffect)
	if !h.scored.testable() {
		m.missing(notTold)
		return m
	}
	f := h.models.length()
	m.setContrast(f, only(f.n, 0))
	return m
}

func (h *findings) slopes() Metric {
	m := h.metric("length_slope_deviation", perDoubling, "every candidate of a session absorbed (M5); "+leastSquares, h.scored, deltaEffect)
	members, level := testable(h.reviewers)
	n := len(members)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	f := h.models.slopes(level, n)
	h.headline(&m, h.each(m, h.reviewers, f, func(member int) []float64 { return contrast(f.n, n-1, only(n, level[member])) }), notTold)
	return m
}

func (h *findings) harshness() Metric {
	m := h.metric("harshness", points, "every candidate of a session absorbed, own reviews left out (M2); "+leastSquares, h.scored, deltaEffect)
	members, level := testable(h.judges)
	n := len(members)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	f := h.models.harshness(level, n)
	h.headline(&m, h.each(m, h.judges, f, func(member int) []float64 { return contrast(f.n, 0, only(n, level[member])) }), notComparable)
	return m
}

// favours returns self-preference, of which each reviewer is a member, and family
// affinity. The first member of both is the same on standardised scores.
func (h *findings) favours() []Metric {
	const method = "every candidate and reviewer of a session absorbed (M3); " + leastSquares
	self := h.metric("self_preference", points, method, h.self, deltaEffect)
	family := h.metric("family_affinity", points, method, h.family, deltaEffect)
	if !h.self.testable() {
		self.missing(noOwn)
		family.missing(noOwn)
		return []Metric{self, family}
	}
	common := make([]int, len(h.w.names))
	raw, standardised := h.favour(common, 1, false), h.favour(common, 1, true)
	for k, m := range []*Metric{&self, &family} {
		again := h.c.metric(m.Name+standardisedSuffix, "standard deviations", m.Method, tally{clusters: m.Clusters, sessions: m.SampleSize, records: m.Records}, h.span)
		m.setContrast(raw, only(raw.n, k))
		again.setContrast(standardised, only(raw.n, k))
		m.Members = append(m.Members, again)
	}
	if h.family.records == 0 {
		family.missing(noFamily)
	}
	owners, level := testable(h.own)
	f := h.favour(level, len(owners), false)
	each := h.each(self, h.own, f, func(member int) []float64 { return only(f.n, level[member]) })
	adjust(each, all)
	self.Members = append(self.Members, each...)
	return []Metric{self, family}
}

func (h *findings) affinity() Metric {
	m := h.metric("affinity", points, "one fit per reviewer and candidate, every candidate and reviewer of a session absorbed (M6); "+leastSquares, h.scored, deltaEffect)
	var tested [][2]int
	pairs := slices.SortedFunc(maps.Keys(h.pairs), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for _, pair := range pairs {
		if h.pairs[pair].testable() {
			tested = append(tested, pair)
		}
	}
	sums := h.affinities(tested)
	members := make([]Metric, 0, len(pairs))
	for _, pair := range pairs {
		member := h.member(m, h.w.names[pair[0]]+">"+h.w.names[pair[1]], *h.pairs[pair])
		member.Name = "pair|" + member.Subject
		if len(tested) > 0 && tested[0] == pair {
			f := sums.fit(sums.solos - len(tested))
			member.setContrast(f, only(f.n, f.n-1))
			tested = tested[1:]
		} else {
			member.missing(notTold)
		}
		members = append(members, member)
	}
	h.headline(&m, members, notTold)
	return m
}

// position returns the position effects, of which those of each place and their
// shapes are the members.
func (h *findings) position() Metric {
	m := h.metric("position", points, "largest position effect, Wald test of all, every candidate and reviewer of a session absorbed (M1); "+leastSquares, h.ordered, deltaPosition)
	var fits, solid []*fit
	var sizes, solidSizes []int
	for size, t := range h.randomised {
		if !t.testable() {
			continue
		}
		f := h.positions(size)
		fits, sizes = append(fits, f), append(sizes, size)
		if f.solid() {
			solid, solidSizes = append(solid, f), append(solidSizes, size)
		}
	}
	if len(sizes) == 0 {
		m.missing(h.withoutOrders())
		return m
	}
	// A size that tells nothing, such as one that few reviewers were shown, is left to
	// the others.
	if len(solid) > 0 {
		fits, sizes = solid, solidSizes
	}
	m.Members = h.effects(m, "position_effect", h.randomised[:], sizes, fits)
	if len(solid) == 0 {
		unknown := slices.IndexFunc(m.Members, func(effect Metric) bool { return effect.PointEstimate == nil })
		m.missing(m.Members[unknown].Reason)
		return m
	}
	m.take(largest(m.Members), len(m.Members))
	m.MinimumDetectableEffect = new(0.)
	for _, effect := range m.Members {
		m.MinimumDetectableEffect = new(max(*m.MinimumDetectableEffect, *effect.MinimumDetectableEffect))
	}
	m.Test, m.PValue = omnibus(fits)
	m.Members = append(m.Members, h.shapes(m, sizes, fits)...)
	return m
}

// effects returns a member for each position in slates of those sizes.
func (h *findings) effects(of Metric, name string, tallies []tally, sizes []int, fits []*fit) []Metric {
	var effects []Metric
	for k, size := range sizes {
		for p := range size {
			m := h.metric(name, of.Unit, of.Method, tallies[size], *of.Delta)
			m.Subject = strconv.Itoa(p)
			if len(sizes) > 1 {
				m.Subject = fmt.Sprintf("%d of %d", p, size)
			}
			m.Name += "|" + m.Subject
			if f := fits[k]; f.clusters < size {
				m.missing(fewSessions)
			} else {
				m.setContrast(f, contrast(f.n, 0, only(size, p)))
			}
			effects = append(effects, m)
		}
	}
	return effects
}

// solid reports whether every coefficient of a fit is determined, with a standard
// error, and all of them can be tested at once.
func (f *fit) solid() bool {
	for k := range f.n {
		estimable, robust := f.estimable(only(f.n, k))
		if !estimable || !robust || !(f.cv3[k*f.n+k] > tiny*tiny) {
			return false
		}
	}
	return f.clusters > f.n
}

// omnibus returns the Wald test of all position effects and its p. Those of several
// sizes of slate are combined by Stouffer's method, weighted by the square root of
// the sessions.
func omnibus(fits []*fit) (test *Test, p *float64) {
	var sum, squares float64
	for _, f := range fits {
		contrasts := make([][]float64, f.n)
		for k := range contrasts {
			contrasts[k] = only(f.n, k)
		}
		t, single := f.wald(contrasts)
		if len(fits) == 1 {
			return &t, &single
		}
		const tail = 1e-15 // beyond, a p that rounding makes 0 or 1 would be infinite
		sum -= math.Sqrt(float64(f.clusters)) * distuv.UnitNormal.Quantile(max(tail, min(single, 1-tail)))
		squares += float64(f.clusters)
	}
	z := sum / math.Sqrt(squares)
	return &Test{Name: "z", Value: z, DF: []float64{}}, new(distuv.UnitNormal.CDF(-z))
}

// shapes returns what the position effects look like, slates of several sizes
// combined by inverse variance.
func (h *findings) shapes(of Metric, sizes []int, fits []*fit) []Metric {
	var shapes []Metric
	for _, shape := range []string{"primacy", "recency", "ends_minus_middle", "linear_per_step"} {
		var e effect
		var weight float64
		for k, size := range sizes {
			weights := shapeWeights(shape, size)
			if weights == nil {
				continue
			}
			f := fits[k]
			part := f.effect(contrast(f.n, 0, weights), f.clusters)
			w := 1 / (part.se * part.se)
			weight += w
			e.estimate += w * part.estimate
			e.cr1 += w * w * part.cr1 * part.cr1
			e.df += part.df
		}
		if weight == 0 {
			continue
		}
		e.estimate, e.se, e.cr1 = e.estimate/weight, 1/math.Sqrt(weight), math.Sqrt(e.cr1)/weight
		m := h.metric(shape, of.Unit, of.Method, h.ordered, *of.Delta)
		if shape == "linear_per_step" {
			m.Unit = "points per position"
		}
		m.set(e)
		shapes = append(shapes, m)
	}
	return shapes
}

// shapeWeights returns the weights of the positions of a slate in a shape, nil
// where the slate is too small for it.
func shapeWeights(shape string, size int) []float64 {
	weights := make([]float64, size)
	switch shape {
	case "primacy", "recency":
		for p := range weights {
			weights[p] = -1 / float64(size-1)
		}
		if shape == "primacy" {
			weights[0] = 1
		} else {
			weights[size-1] = 1
		}
	case "ends_minus_middle":
		if size < 3 {
			return nil
		}
		for p := range weights {
			weights[p] = -1 / float64(size-2)
		}
		weights[0], weights[size-1] = 0.5, 0.5
	default: // linear_per_step
		squares := 0.
		for p := range weights {
			weights[p] = float64(p) - float64(size-1)/2
			squares += weights[p] * weights[p]
		}
		for p := range weights {
			weights[p] /= squares
		}
	}
	return weights
}

func (h *findings) anchoring() Metric {
	m := h.metric("anchoring", "points per point that the first answer is better",
		"products of the first answer's score by others and the scores behind it, against those of the other answers; t test between sessions", h.ordered, deltaAnchoring)
	a, ok := anchor(*h.w)
	m.SampleSize, m.Clusters, m.Records, m.Confidence = a.sessions, a.sessions, a.records, h.c.confidence(a.sessions)
	if ok && m.Clusters >= preliminaryFrom {
		m.set(effect{estimate: a.kappa, se: a.se, df: float64(a.sessions - 1)})
	} else {
		m.missing(h.withoutOrders())
	}
	return m
}

// withoutOrders says why there is no figure that takes orders of each reviewer's
// own.
func (h *findings) withoutOrders() string {
	switch {
	case h.ordered.records > 0:
		return notTold
	case slices.ContainsFunc(h.shared[:], func(t tally) bool { return t.records > 0 }):
		return sharedOrder
	case h.w.early:
		return earlyPositions
	default:
		return noPositions
	}
}

// drift returns the trends of the reviewers' relative harshness, within each
// stretch in which the council stayed the same.
func (h *findings) drift(fits []severity, split []stretch) Metric {
	m := h.metric("drift", "points over the window", "trend of relative harshness over sessions, by least squares; t test with two degrees of freedom less than sessions", h.scored, deltaDrift)
	trends := drifts(fits, split)
	several := slices.ContainsFunc(trends, func(d drift) bool { return d.stretch != trends[0].stretch })
	members := make([]Metric, 0, len(trends))
	for _, d := range trends {
		subject := h.w.names[d.reviewer]
		from, to := h.w.sessions[d.from].start, h.w.sessions[d.to-1].start
		if several {
			subject += " from " + from.Format(time.RFC3339)
		}
		t := tally{sessions: d.sessions, clusters: d.sessions}
		for s := d.from; s < d.to; s++ {
			if !math.IsNaN(fits[s].harshness[d.reviewer]) {
				t.records += h.w.sessions[s].judged(d.reviewer)
			}
		}
		member := h.member(m, subject, t)
		member.WindowStart, member.WindowEnd = &from, &to
		member.set(effect{estimate: d.change, se: d.se, df: d.df()})
		members = append(members, member)
	}
	h.headline(&m, members, noTrend)
	return m
}

// sharedOrder returns what the positions of sessions look like whose reviewers saw
// one order: a description, because quality may stand in it.
func (h *findings) sharedOrder() []Metric {
	var fits []*fit
	var sizes []int
	var all tally
	for size, t := range h.shared {
		if t.testable() {
			fits, sizes = append(fits, h.sharedPositions(size)), append(sizes, size)
			all = tally{clusters: all.clusters + t.clusters, sessions: all.sessions + t.sessions, records: all.records + t.records}
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	m := h.metric("position_under_shared_order", points, "largest position effect, candidate models beside it, every reviewer of a session absorbed; "+leastSquares, all, deltaPosition)
	m.Members = h.effects(m, m.Name, h.shared[:], sizes, fits)
	m.Delta, m.Reason = nil, sharedOrder
	if best := largest(m.Members); best != nil {
		m.take(best, len(m.Members))
	}
	for i := range m.Members {
		effect := &m.Members[i]
		effect.PValue, effect.Test, effect.MinimumDetectableEffect, effect.Delta = nil, nil, nil, nil
		if effect.PointEstimate != nil {
			effect.Reason = sharedOrder
		}
	}
	return []Metric{m}
}

// largest returns the metric with the largest estimate, nil where there is none.
func largest(metrics []Metric) *Metric {
	var best *Metric
	for i := range metrics {
		if m := &metrics[i]; m.PointEstimate != nil && (best == nil || math.Abs(*m.PointEstimate) > math.Abs(*best.PointEstimate)) {
			best = m
		}
	}
	return best
}

// judge gives the headline family its q values and verdicts, and the members of a
// flagged headline theirs.
func (c *Collector) judge(family []Metric) {
	for _, m := range adjust(family, all) {
		c.setVerdict(m)
		if *m.Verdict != VerdictBias {
			continue
		}
		for i := range m.Members {
			if member := &m.Members[i]; member.QValue != nil {
				c.setVerdict(member)
			}
		}
	}
}

// setVerdict judges a metric that has a p and a q.
func (c *Collector) setVerdict(m *Metric) {
	level := level(m.Clusters)
	significant, large := *m.QValue < level, math.Abs(*m.PointEstimate) >= *m.Delta
	verdict, reason := VerdictInconclusive, fmt.Sprintf("no effect shown; one of %.2f %s would have been seen", *m.MinimumDetectableEffect, m.Unit)
	switch {
	case m.Clusters < c.o.MinSessions:
		verdict, reason = VerdictInsufficient, fmt.Sprintf("%d of the %d sessions that a verdict takes", m.Clusters, c.o.MinSessions)
	case significant && large && !m.confirmed(level):
		reason = notConfirmed
	case significant && large && m.Name == lengthAssociation:
		verdict, reason = VerdictAssociation, lengthIsMixed
	case significant && large:
		verdict, reason = VerdictBias, fmt.Sprintf("q = %.2g, and at least %.2g %s", *m.QValue, *m.Delta, m.Unit)
	case m.negligible():
		verdict, reason = VerdictNegligible, fmt.Sprintf("the 90 %% interval lies within %.2g %s", *m.Delta, m.Unit)
	case significant:
		reason = fmt.Sprintf("significant, but smaller than the %.2g %s that count", *m.Delta, m.Unit)
	}
	m.Verdict, m.Reason = &verdict, reason
}

// confirmed reports whether the figure on standardised scores, where there is one,
// agrees in sign and significance.
func (m *Metric) confirmed(level float64) bool {
	for _, again := range m.Members {
		if again.Name == m.Name+standardisedSuffix {
			return again.PValue != nil && *again.PValue < level && math.Signbit(*again.PointEstimate) == math.Signbit(*m.PointEstimate)
		}
	}
	return true
}

// negligible reports whether the 90 % interval lies within delta: of a headline
// that is taken from its members, the interval of each.
func (m *Metric) negligible() bool {
	if m.Subject == "" || len(m.Members) == 0 {
		return m.inside()
	}
	for i := range m.Members {
		if member := &m.Members[i]; member.Subject != "" && !member.inside() {
			return false
		}
	}
	return true
}

// inside reports whether the 90 % interval lies within +-delta.
func (m *Metric) inside() bool {
	if m.PointEstimate == nil {
		return false
	}
	e := effect{estimate: *m.PointEstimate, se: *m.StandardError, df: m.Test.DF[0]}
	return math.Abs(e.estimate)+e.interval(0.9) <= *m.Delta
}

// summary says in one sentence what the judged headlines come to.
func summary(family []Metric) string {
	var found, untested []string
	var sessions int
	var finest, coarsest *Metric
	short, association := "", ""
	for i := range family {
		m := &family[i]
		name := strings.ReplaceAll(m.Name, "_", " ")
		if m.Subject != "" {
			name += " (" + m.Subject + ")"
		}
		switch *m.Verdict {
		case VerdictBias:
			found = append(found, fmt.Sprintf("%s %+.2f %s", name, *m.PointEstimate, m.Unit))
		case VerdictInsufficient:
			short = cmp.Or(short, m.Reason)
			untested = append(untested, name)
		case VerdictNotIdentified:
			untested = append(untested, name)
		case VerdictAssociation:
			association = fmt.Sprintf("; %+.2f %s, which better answers may explain", *m.PointEstimate, m.Unit)
		default:
			if m.Name == lengthAssociation {
				continue // it could not have been called a bias
			}
			sessions = max(sessions, m.Clusters)
			if m.Unit != points {
				continue
			}
			if finest == nil || *m.MinimumDetectableEffect < *finest.MinimumDetectableEffect {
				finest = m
			}
			if coarsest == nil || *m.MinimumDetectableEffect > *coarsest.MinimumDetectableEffect {
				coarsest = m
			}
		}
	}
	text := "No verdict yet: " + short
	switch {
	case len(found) > 0:
		return "Bias found: " + strings.Join(found, ", ") + association
	case sessions > 0:
		text = "No bias found"
		if finest != nil {
			text += fmt.Sprintf("; with %d sessions an effect of %.2f points", sessions, *finest.MinimumDetectableEffect)
			if finest != coarsest {
				text += fmt.Sprintf(" (%s) to %.2f points (%s)", finest.Name, *coarsest.MinimumDetectableEffect, coarsest.Name)
			}
			text += " would have been seen"
		}
	case short == "":
		text = "These records cannot tell any bias"
	}
	text += association
	if len(untested) > 0 && (sessions > 0 || short == "") {
		text += "; not tested: " + strings.Join(untested, ", ")
	}
	return text
}
