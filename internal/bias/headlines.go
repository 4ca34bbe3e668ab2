package bias

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
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
	anchoringName      = "anchoring"
	standardisedSuffix = "_standardised"
)

const (
	points        = "points"
	perDoubling   = "points per doubling of the length"
	leastSquares  = "least squares within sessions; errors by leaving out one question at a time (CV3)"
	noPositions   = "no session tells the position at which each answer was shown"
	sharedOrder   = "the reviewers of each session saw one order, so position cannot be told from quality"
	noOwn         = "own answers were not reviewed in enough sessions: %s says in how many they are"
	noFamily      = "no reviewer scored another model of its provider"
	notTold       = "the records cannot tell it from the other effects"
	oneSession    = "it rests on a single session"
	noVariation   = "every session gives exactly the same figure, so there is no variation to test it against"
	notComparable = "the reviewers cannot be compared: no chain of common candidates links them"
	notReviewers  = "fewer than two reviewers gave scores in enough sessions"
	lengthIsMixed = "longer answers may be better answers, so this is an association and proves no bias"
	notConfirmed  = "the scores standardised within each reviewer do not confirm it"
	noTrend       = "no reviewer took part in enough comparable sessions"
	perfectTrend  = "undefined: relative harshness lies on a line without any scatter to test the line against"
	frozenOrders  = "the answers are frozen and their orders repeat, so chance does not decide which of them stands first"
	sameProducts  = "undefined: the products are the same for every question"
	fewSessions   = "there are fewer sessions than positions"
	scaleUse      = "the scores alone show it, but the second fit does not: how widely the reviewers spread their scores may explain it"
	shrinks       = "no effect shown; the estimate is about a third of a true effect, so none is called negligible"
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
		m.Verdict, m.Reason = new(VerdictInsufficient), m.few(preliminaryFrom, "a test")
	}
}

// few says that what a figure needs so many of is not there: sessions, or questions
// where several sessions asked the same.
func (m *Metric) few(needed int, what string) string {
	if m.Clusters < m.SampleSize {
		return fmt.Sprintf("%d sessions asked the same questions, %d in all: %s takes %d", m.SampleSize, m.Clusters, what, needed)
	}
	return fmt.Sprintf("%d of the %d sessions that %s takes", m.Clusters, needed, what)
}

// set fills in the figure of an effect and its test.
func (m *Metric) set(e stat.Effect) {
	if !(e.SE > tiny) {
		m.missing(noVariation)
		return
	}
	half := e.HalfWidth(0.95)
	m.PointEstimate, m.CILower, m.CIUpper = new(e.Estimate), new(e.Estimate-half), new(e.Estimate+half)
	m.StandardError = new(e.SE)
	if e.CR1 > 0 {
		m.StandardErrorCR1 = new(e.CR1)
	}
	m.Test = &Test{Name: "t", Value: e.Estimate / e.SE, DF: []float64{e.DF}}
	m.PValue = new(stat.StudentP(m.Test.Value, e.DF))
}

// withhold takes back the figure of a metric, for a reason.
func (m *Metric) withhold(reason string) {
	m.PointEstimate, m.CILower, m.CIUpper, m.StandardError, m.StandardErrorCR1 = nil, nil, nil, nil, nil
	m.Test, m.PValue, m.SecondFit = nil, nil, nil
	m.missing(reason)
}

// setSecond gives a metric that has a figure that of the second fit, whose variance
// is greater by what d says. Without one the metric has no figure at all: reviewers
// who spread their scores differently could make the whole of it.
func (m *Metric) setSecond(f *stat.Fit, c []float64, d *discrimination) {
	if m.PointEstimate == nil {
		return
	}
	estimable, robust := f.Estimable(c)
	e := f.Effect(c, min(m.Clusters, f.Clusters))
	e.SE = math.Sqrt(e.SE*e.SE + d.variance(f, c))
	switch {
	case !estimable:
		m.withhold(notTold)
	case !robust:
		m.withhold(oneSession)
	case !(e.SE > tiny):
		m.withhold(noVariation)
	default:
		m.SecondFit = &SecondFit{PointEstimate: e.Estimate, StandardError: e.SE, PValue: stat.StudentP(e.Estimate/e.SE, e.DF)}
	}
}

// decisive returns the p that counts, nil for none: where there is a second fit, the
// larger of both, and 1 where the signs differ.
func (m *Metric) decisive() *float64 {
	if m.PValue == nil || m.SecondFit == nil {
		return m.PValue
	}
	if math.Signbit(*m.PointEstimate) != math.Signbit(m.SecondFit.PointEstimate) {
		return new(1.)
	}
	return new(max(*m.PValue, m.SecondFit.PValue))
}

// setContrast fills in a contrast of a fit's coefficients, on as many degrees of
// freedom as there are sessions behind the metric, less one.
func (m *Metric) setContrast(f *stat.Fit, c []float64) {
	estimable, robust := f.Estimable(c)
	switch {
	case m.Clusters < preliminaryFrom || !estimable:
		m.missing(notTold)
	case !robust:
		m.missing(oneSession)
	default:
		m.set(f.Effect(c, m.Clusters))
	}
}

// adjust sets the q values of the metrics that have a p and belong, as one family,
// and returns those.
func adjust(metrics []Metric, belongs func(Metric) bool) []*Metric {
	var tested []*Metric
	var p []float64
	for i := range metrics {
		if single := metrics[i].decisive(); single != nil && belongs(metrics[i]) {
			tested, p = append(tested, &metrics[i]), append(p, *single)
		}
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		tested[i].QValue = new(q)
	}
	return tested
}

func all(Metric) bool { return true }

// headline turns a metric into the headline of its members: it takes the figure of
// the one with the smallest p, and that p after Benjamini and Hochberg. Members with
// too few sessions for a verdict stand back where others have enough. Without a
// figure of any member it says why, in the words of a member that has some of its
// own.
func (h *findings) headline(m *Metric, members []Metric, otherwise string) {
	m.Members = members
	enough := func(m Metric) bool { return m.PValue != nil && m.Clusters >= h.c.o.MinSessions }
	some := slices.ContainsFunc(members, enough)
	tested := adjust(members, func(m Metric) bool { return !some || enough(m) })
	if len(tested) == 0 {
		m.missing(withoutMembers(members, otherwise))
		return
	}
	m.show(slices.MinFunc(tested, func(a, b *Metric) int { return cmp.Compare(*a.decisive(), *b.decisive()) }), len(tested))
	m.PValue = new(1.)
	for _, member := range tested {
		m.PValue = new(min(*m.PValue, *member.QValue))
	}
}

// withoutMembers says why no member has a figure: in the words of those that have a
// reason of their own, else as the headline would.
func withoutMembers(members []Metric, otherwise string) string {
	for _, own := range []string{noVariation, scaleUnknown, hardlyFollows} {
		if slices.ContainsFunc(members, func(m Metric) bool { return m.Reason == own }) {
			return strings.Replace(own, hardlyFollows, noneFollow, 1)
		}
	}
	return otherwise
}

// show makes a headline show one of so many tested members.
func (m *Metric) show(member *Metric, among int) {
	m.take(member, among)
	m.Test, m.SecondFit = member.Test, member.SecondFit
	m.Records, m.SampleSize, m.Clusters, m.Confidence = member.Records, member.SampleSize, member.Clusters, member.Confidence
}

// take takes over the figure of a member that stands out among so many. Because it
// was picked, the interval is wider than its own: it holds for all of them at once
// (Bonferroni).
func (m *Metric) take(from *Metric, among int) {
	m.Subject, m.PointEstimate, m.StandardError, m.StandardErrorCR1 = from.Subject, from.PointEstimate, from.StandardError, from.StandardErrorCR1
	e := stat.Effect{Estimate: *from.PointEstimate, SE: *from.StandardError, DF: from.Test.DF[0]}
	half := e.HalfWidth(1 - 0.05/float64(among))
	m.CILower, m.CIUpper = new(e.Estimate-half), new(e.Estimate+half)
}

// findings makes metrics of the models of a window.
type findings struct {
	*models
	c        *Collector
	span     Window
	adjusted *adjustedFits // nil where no reviewer's scores follow the answers
	placed   []placed      // what the position headline rests on
}

// placed is the fit of positions in slates of one size.
type placed struct {
	*stat.Fit
	size int
}

// headlines returns the headline family of a window, judged, with what positions
// under a shared order look like, and what it all comes to.
func (c *Collector) headlines(w *window, span Window, fits []stat.TwoWay, split []stretch) (metrics []Metric, text string) {
	h := findings{models: newModels(w), c: c, span: span}
	h.adjusted = h.fitAdjusted()
	family := slices.Concat([]Metric{h.length(), h.position(), h.slopes()}, h.favours(),
		[]Metric{h.harshness(), h.affinity(), h.anchoring(), h.drift(fits, split)})
	h.judge(family)
	return slices.Concat(family, h.sharedOrder(), []Metric{h.discrimination()}), summary(family)
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
func (h *findings) each(of Metric, tallies []tally, f *stat.Fit, contrast func(member int) []float64) []Metric {
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
	f := h.w.fit(h.w.plain(), h.lengthModel())
	m.setContrast(f, only(f.N, 0))
	return m
}

func (h *findings) slopes() Metric {
	m := h.metric("length_slope_deviation", perDoubling,
		"every candidate of a session absorbed (M5), and again beside the reviewers' discrimination; "+leastSquares, h.scored, deltaEffect)
	members, level := testable(h.reviewers)
	n := len(members)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	slopes := h.w.fit(h.w.plain(), h.slopeModel(level, n))
	each := h.each(m, h.reviewers, slopes, func(member int) []float64 { return contrast(slopes.N, n-1, only(n, level[member])) })
	h.setSecond(each, func(member int) (*stat.Fit, []float64) {
		f, strong := h.adjusted.slopes, len(h.spread.strong)
		return f, contrast(f.N, strong-1, only(strong, h.spread.place[member]))
	})
	h.headline(&m, each, notTold)
	return m
}

// setSecond gives members, each named after a member of the council, the figures of
// the second fit.
func (h *findings) setSecond(each []Metric, second func(member int) (*stat.Fit, []float64)) {
	for k := range each {
		m := &each[k]
		member, ok := slices.BinarySearch(h.w.names, m.Subject)
		switch {
		case !ok || m.PointEstimate == nil:
		case h.spread.unknown(member) != "":
			m.withhold(h.spread.unknown(member))
		default:
			f, c := second(member)
			m.setSecond(f, c, h.spread)
		}
	}
}

func (h *findings) harshness() Metric {
	m := h.metric("harshness", points, "every candidate of a session absorbed, own reviews left out (M2); "+leastSquares, h.scored, deltaEffect)
	members, level := testable(h.judges)
	n := len(members)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	f := h.w.fit(h.w.plain(), h.harshnessModel(level, n))
	h.headline(&m, h.each(m, h.judges, f, func(member int) []float64 { return contrast(f.N, 0, only(n, level[member])) }), notComparable)
	return m
}

// favours returns self-preference, of which each reviewer is a member, and family
// affinity. The first member of both is the same on standardised scores.
func (h *findings) favours() []Metric {
	const method = "every candidate and reviewer of a session absorbed (M3), and again beside the reviewers' discrimination; " + leastSquares
	self := h.metric("self_preference", points, method, h.self, deltaEffect)
	family := h.metric("family_affinity", points, method, h.family, deltaEffect)
	if !h.self.testable() {
		self.missing(fmt.Sprintf(noOwn, h.c.o.Settings.Of(council.SettingSelfReviewRate)))
	}
	if h.family.records == 0 {
		family.missing(noFamily)
	}
	level, levels := h.oneOwner()
	model := h.favourModel(level, levels)
	raw, standardised := h.w.fit(h.w.plain(), model), h.w.fit(h.standardised(), model)
	for k, m := range []*Metric{&self, &family} {
		if m.Verdict != nil {
			continue
		}
		c := only(raw.N, levels-1+k)
		alike := h.c.metric(m.Name+standardisedSuffix, "standard deviations", m.Method, tally{clusters: m.Clusters, sessions: m.SampleSize, records: m.Records}, h.span)
		m.setContrast(raw, c)
		alike.setContrast(standardised, c)
		switch {
		case m.PointEstimate == nil:
		case h.adjusted == nil:
			m.withhold(h.noSecond())
		default:
			m.setSecond(h.adjusted.favour, c, h.spread)
		}
		m.Members = append(m.Members, alike)
	}
	if !h.self.testable() {
		return []Metric{self, family}
	}
	owners, level := testable(h.own)
	f := h.w.fit(h.w.plain(), h.favourModel(level, len(owners)))
	each := h.each(self, h.own, f, func(member int) []float64 { return only(f.N, level[member]) })
	h.setSecond(each, func(member int) (*stat.Fit, []float64) { return h.adjusted.favourByOwn, only(f.N, level[member]) })
	adjust(each, all)
	self.Members = append(self.Members, each...)
	return []Metric{self, family}
}

// noSecond says why there is no second fit of any reviewer.
func (h *findings) noSecond() string {
	for member, t := range h.reviewers {
		if t.records > 0 && h.spread.unknown(member) == scaleUnknown {
			return scaleUnknown
		}
	}
	return noneFollow
}

func (h *findings) affinity() Metric {
	m := h.metric("affinity", points,
		"one fit per reviewer and candidate, every candidate and reviewer of a session absorbed (M6), and again beside the reviewers' discrimination; "+leastSquares, h.scored, deltaEffect)
	plain := h.w.regress(h.w.plain(), h.affinityModel())[0]
	pairs := h.sortedPairs()
	members, solo := make([]Metric, 0, len(pairs)), 0
	for _, pair := range pairs {
		member := h.member(m, h.w.names[pair[0]]+">"+h.w.names[pair[1]], *h.pairs[pair])
		member.Name = "pair|" + member.Subject
		if h.pairs[pair].testable() {
			f := plain.Fit(solo)
			c := only(f.N, f.N-1)
			member.setContrast(f, c)
			if reason := h.spread.unknown(pair[0]); member.PointEstimate != nil && reason != "" {
				member.withhold(reason)
			} else if member.PointEstimate != nil {
				member.setSecond(h.adjusted.affinities.Fit(solo), c, h.spread)
			}
			solo++
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
	var fits, solid []*stat.Fit
	var sizes, solidSizes []int
	for size, t := range h.randomised {
		if !t.testable() {
			continue
		}
		f := h.w.fit(h.w.plain(), h.positionModel(size))
		fits, sizes = append(fits, f), append(sizes, size)
		if testableAtOnce(f) {
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
	m.Test, m.PValue = omnibus(fits)
	for k, f := range fits {
		h.placed = append(h.placed, placed{f, sizes[k]})
	}
	m.Members = append(m.Members, h.shapes(m, sizes, fits)...)
	return m
}

// effects returns a member for each position in slates of those sizes.
func (h *findings) effects(of Metric, name string, tallies []tally, sizes []int, fits []*stat.Fit) []Metric {
	var effects []Metric
	for k, size := range sizes {
		for p := range size {
			m := h.metric(name, of.Unit, of.Method, tallies[size], *of.Delta)
			m.Subject = strconv.Itoa(p)
			if len(sizes) > 1 {
				m.Subject = fmt.Sprintf("%d of %d", p, size)
			}
			m.Name += "|" + m.Subject
			if f := fits[k]; f.Clusters < size {
				m.missing(fewSessions)
			} else {
				m.setContrast(f, contrast(f.N, 0, only(size, p)))
			}
			effects = append(effects, m)
		}
	}
	return effects
}

// testableAtOnce reports whether every coefficient of a fit is determined, with a standard
// error, and all of them can be tested at once.
func testableAtOnce(f *stat.Fit) bool {
	for k := range f.N {
		estimable, robust := f.Estimable(only(f.N, k))
		if !estimable || !robust || !(f.CV3[k*f.N+k] > tiny*tiny) {
			return false
		}
	}
	return f.Clusters > f.N
}

// omnibus returns the Wald test of all position effects and its p. Those of several
// sizes of slate are combined by Stouffer's method, weighted by the square root of
// the sessions.
func omnibus(fits []*stat.Fit) (test *Test, p *float64) {
	var sum, squares float64
	for _, f := range fits {
		contrasts := make([][]float64, f.N)
		for k := range contrasts {
			contrasts[k] = only(f.N, k)
		}
		statistic, df, single := f.Wald(contrasts)
		if len(fits) == 1 {
			return &Test{Name: "F", Value: statistic, DF: df[:]}, &single
		}
		const tail = 1e-15 // beyond, a p that rounding makes 0 or 1 would be infinite
		sum -= math.Sqrt(float64(f.Clusters)) * stat.NormalQuantile(max(tail, min(single, 1-tail)))
		squares += float64(f.Clusters)
	}
	z := sum / math.Sqrt(squares)
	return &Test{Name: "z", Value: z, DF: []float64{}}, new(stat.NormalCDF(-z))
}

// shapes returns what the position effects look like, slates of several sizes
// combined by inverse variance.
func (h *findings) shapes(of Metric, sizes []int, fits []*stat.Fit) []Metric {
	var shapes []Metric
	for _, shape := range []string{"primacy", "recency", "ends_minus_middle", "linear_per_step"} {
		var e stat.Effect
		var weight float64
		for k, size := range sizes {
			weights := shapeWeights(shape, size)
			if weights == nil {
				continue
			}
			f := fits[k]
			part := f.Effect(contrast(f.N, 0, weights), f.Clusters)
			w := 1 / (part.SE * part.SE)
			weight += w
			e.Estimate += w * part.Estimate
			e.CR1 += w * w * part.CR1 * part.CR1
			e.DF += part.DF
		}
		if weight == 0 {
			continue
		}
		e.Estimate, e.SE, e.CR1 = e.Estimate/weight, 1/math.Sqrt(weight), math.Sqrt(e.CR1)/weight
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
	m := h.metric(anchoringName, "points per point that the first answer is better",
		"products of the first answer's score by others and the scores behind it, against those of the other answers; t test between questions", h.ordered, deltaAnchoring)
	a := anchor(*h.w)
	m.SampleSize, m.Clusters, m.Records, m.Confidence = a.sessions, a.questions, a.records, h.c.confidence(a.questions)
	switch frozen := func(x scores) bool { return x.frozen && !x.shared }; {
	case a.sessions == 0 && slices.ContainsFunc(h.w.sessions, frozen):
		m.missing(frozenOrders)
	case a.sessions == 0:
		m.missing(h.withoutOrders())
	case a.se == 0 || a.questions < preliminaryFrom:
		m.missing(sameProducts)
	default:
		m.set(stat.Effect{Estimate: a.kappa, SE: a.se, DF: float64(a.questions - 1)})
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
func (h *findings) drift(fits []stat.TwoWay, split []stretch) Metric {
	m := h.metric("drift", "points over the window", "trend of relative harshness over sessions, by least squares; errors by leaving out one question at a time (CV3)", h.scored, deltaDrift)
	trends := drifts(h.w, fits, split)
	several := slices.ContainsFunc(trends, func(d drift) bool { return d.stretch != trends[0].stretch })
	members := make([]Metric, 0, len(trends))
	for _, d := range trends {
		subject := h.w.names[d.reviewer]
		from, to := h.w.sessions[d.from].start, h.w.sessions[d.to-1].start
		if several {
			subject += " from " + from.Format(time.RFC3339)
		}
		t := tally{sessions: d.sessions, clusters: d.questions}
		for s := d.from; s < d.to; s++ {
			if !math.IsNaN(fits[s].Effect[d.reviewer]) {
				t.records += h.w.sessions[s].judged(d.reviewer)
			}
		}
		member := h.member(m, subject, t)
		member.WindowStart, member.WindowEnd = &from, &to
		if d.se > tiny {
			member.set(stat.Effect{Estimate: d.change, SE: d.se, DF: d.df()})
		} else {
			member.missing(perfectTrend)
		}
		members = append(members, member)
	}
	h.headline(&m, members, noTrend)
	if len(members) > 0 && m.PValue == nil {
		m.Verdict, m.Reason = members[0].Verdict, members[0].Reason
	}
	return m
}

// sharedOrder returns what the positions of sessions look like whose reviewers saw
// one order: a description, because quality may stand in it.
func (h *findings) sharedOrder() []Metric {
	var fits []*stat.Fit
	var sizes []int
	var all tally
	for size, t := range h.shared {
		if t.testable() {
			fits, sizes = append(fits, h.w.fit(h.w.plain(), h.sharedPositionModel(size))), append(sizes, size)
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
		effect.PValue, effect.Test, effect.Delta = nil, nil, nil
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

// judge gives the headline family its q values, what would have been found, and
// verdicts, and the members of a flagged headline theirs.
func (h *findings) judge(family []Metric) {
	tested := adjust(family, all)
	for _, m := range tested {
		h.setFindable(m, float64(len(tested)))
		var members, passing []Metric
		for _, member := range m.Members {
			if member.QValue != nil {
				members = append(members, member)
			}
			if member.passes() && *m.QValue < level(member.Clusters) {
				passing = append(passing, member)
			}
		}
		// The member of the least p may be too small to count where another is not, or have
		// too few sessions for the level at which another counts.
		if m.Subject != "" && len(passing) > 0 {
			m.show(largest(passing), len(members))
		}
		h.c.setVerdict(m)
		if *m.Verdict != VerdictBias {
			continue
		}
		for i := range m.Members {
			if member := &m.Members[i]; member.QValue != nil {
				h.c.setVerdict(member)
			}
		}
	}
}

func (m *Metric) significant() bool { return m.QValue != nil && *m.QValue < level(m.Clusters) }

// passes reports whether a metric is significant, and large enough to count.
func (m *Metric) passes() bool { return m.significant() && math.Abs(*m.PointEstimate) >= *m.Delta }

// setVerdict judges a metric that has a p and a q.
func (c *Collector) setVerdict(m *Metric) {
	if m.Clusters < c.o.MinSessions {
		m.Verdict, m.Reason = new(VerdictInsufficient), m.few(c.o.MinSessions, "a verdict")
		return
	}
	verdict, reason := VerdictInconclusive, fmt.Sprintf("no effect shown; one of %.2f %s would have been found in four of five such windows", *m.MinimumDetectableEffect, m.Unit)
	switch {
	case m.passes() && !m.confirmed(level(m.Clusters)):
		reason = notConfirmed
	case m.passes() && m.Name == lengthAssociation:
		verdict, reason = VerdictAssociation, lengthIsMixed
	case m.passes():
		verdict, reason = VerdictBias, fmt.Sprintf("q = %.2g, and at least %.2g %s", *m.QValue, *m.Delta, m.Unit)
	case m.Name == anchoringName && !m.significant():
		reason = shrinks
	case m.Name != anchoringName && m.negligible():
		verdict, reason = VerdictNegligible, fmt.Sprintf("the 90 %% interval lies within %.2g %s", *m.Delta, m.Unit)
	case m.significant():
		reason = fmt.Sprintf("significant, but smaller than the %.2g %s that count", *m.Delta, m.Unit)
	case m.explained():
		reason = scaleUse
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

// explained reports whether the figure of the scores alone, of a headline with
// members that of any, stands out and only the second fit does not.
func (m *Metric) explained() bool {
	figures := m.Members
	if m.Subject == "" {
		figures = []Metric{*m}
	}
	figures = slices.DeleteFunc(slices.Clone(figures), func(figure Metric) bool { return figure.QValue == nil || figure.SecondFit == nil })
	p := make([]float64, len(figures))
	for i, figure := range figures {
		p[i] = *figure.PValue
	}
	for i, q := range stat.BenjaminiHochberg(p) {
		if q < level(figures[i].Clusters) && math.Abs(*figures[i].PointEstimate) >= *figures[i].Delta {
			return true
		}
	}
	return false
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

// inside reports whether the 90 % interval lies within +-delta, in both fits where
// there are two.
func (m *Metric) inside() bool {
	if m.PointEstimate == nil {
		return false
	}
	within := func(estimate, se float64) bool {
		return math.Abs(estimate)+stat.Effect{SE: se, DF: m.Test.DF[0]}.HalfWidth(0.9) <= *m.Delta
	}
	return within(*m.PointEstimate, *m.StandardError) && (m.SecondFit == nil || within(m.SecondFit.PointEstimate, m.SecondFit.StandardError))
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
			text += " would have been found in four of five such windows"
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

// setFindable sets what the verdict of a headline that is tested beside others finds
// with a probability of 80 %, and what it finds in each member. Where there are too few
// sessions for a verdict, it finds nothing.
func (h *findings) setFindable(m *Metric, headlines float64) {
	if m.Clusters < h.c.o.MinSessions {
		return
	}
	level := level(m.Clusters) / headlines
	if m.Name == "position" {
		m.MinimumDetectableEffect = new(h.findablePosition(*m, level))
		return
	}
	members := 0.
	for _, member := range m.Members {
		if member.QValue != nil {
			members++
		}
	}
	if m.Subject == "" {
		m.MinimumDetectableEffect = new(m.findable(level))
	}
	for i := range m.Members {
		member := &m.Members[i]
		if member.QValue == nil {
			continue
		}
		member.MinimumDetectableEffect = new(member.findable(level / members))
		if m.Subject != "" && (m.MinimumDetectableEffect == nil || *m.MinimumDetectableEffect < *member.MinimumDetectableEffect) {
			m.MinimumDetectableEffect = member.MinimumDetectableEffect
		}
	}
}

// findable returns the effect that is significant at a level, and at least delta,
// with a probability of 80 %: max((t_{1-a/2} + t_.80) se, delta + t_.80 se), with the
// larger se where there are two fits.
func (m *Metric) findable(level float64) float64 {
	se, df := *m.StandardError, m.Test.DF[0]
	if m.SecondFit != nil {
		se = max(se, m.SecondFit.StandardError)
	}
	likely := se * stat.StudentQuantile(0.8, df)
	return max(se*stat.StudentQuantile(1-level/2, df), *m.Delta) + likely
}

// findablePosition returns the advantage of the first place over the others that
// the test of all places finds with a probability of 80 %, and whose largest effect
// is at least delta. Slates of several sizes count as one test on the places of the
// largest.
func (h *findings) findablePosition(m Metric, level float64) float64 {
	smallest, q, rest := math.Inf(1), 0., 0.
	for _, p := range h.placed {
		smallest, q, rest = min(smallest, float64(p.size)), max(q, float64(p.N)), rest+float64(p.Clusters-p.N)
	}
	primacy := m.Members[slices.IndexFunc(m.Members, func(shape Metric) bool { return shape.Name == "primacy" })]
	se := *primacy.StandardError
	likely := se * stat.StudentQuantile(0.8, primacy.Test.DF[0])
	return max(math.Sqrt(stat.Noncentrality(level, 0.8, q, rest))*se, (*m.Delta+likely)/(1-1/smallest))
}
