package bias

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	lengthAssociation = "length_points_per_doubling"
	harshnessName     = "harshness"
	driftName         = "drift"
	positionName      = "position"
	selfName          = "self_preference"
	familyName        = "family_affinity"
	affinityName      = "affinity"
	slopesName        = "length_slope_deviation"
	anchoringName     = "anchoring"
	styleName         = "style_mimicry"
	commonSuffix      = "_in_common"
)

const (
	points      = "points"
	perDoubling = "points per doubling of the length"
	perTenth    = "points per 0.1 of similarity"
	graded      = "one graded-response model for all scores (M1): it estimates how each reviewer uses the scale, how good " +
		"the answers are, and the effects of favour, in points on a scale without ends and steps; errors by " +
		"leaving out one question at a time (CR3)"
	leastSquares   = "least squares within sessions; errors by leaving out one question at a time (CV3)"
	noPositions    = "no session records the place at which each answer was shown"
	sharedOrder    = "all reviewers of a session saw the same order, so the records cannot separate place from quality"
	noOwn          = "own answers were reviewed in too few sessions (%s sets in how many)"
	noFamily       = "no reviewer scored another model of its family"
	notSeparable   = "the records cannot separate it from the other effects"
	oneSession     = "it rests on a single session"
	noVariation    = "every session gives exactly the same figure, so there is no variation to test it against"
	notComparable  = "the reviewers cannot be compared: no chain of common candidates links them"
	notReviewers   = "fewer than two reviewers gave scores in enough sessions"
	lengthIsMixed  = "longer answers may be better answers, so this is an association and proves no bias"
	reasonIsMixed  = "longer reasoning may make better answers, so this is an association and proves no bias"
	noTrend        = "no reviewer took part in enough comparable sessions"
	perfectTrend   = "undefined: the level lies on a line without any scatter to test the line against"
	frozenOrders   = "the answers are frozen and their orders repeat, so chance does not decide which of them stands first"
	sameProducts   = "undefined: the products are the same for every question"
	fewSessions    = "there are fewer sessions than places"
	nearlyConstant = "the reviewer gives nearly always the same score here"
	beyondScale    = "the estimate is larger than the scale: the records cannot separate it from the other effects"
	tooLittle      = "too little data to find even the largest effect on the scale with a probability of 80 %"
	neverRuledOut  = "this test can show an effect, but never rule one out: its estimate is about a third of the true effect"
	shrinks        = noEffect + "; " + neverRuledOut
)

// headline turns a metric into the headline of its members. There are two kinds of members: about what all
// reviewers have in common, and about single reviewers. The q of a member is its p, adjusted among the members of
// its kind (Benjamini and Hochberg). If there are members of both kinds, each q is doubled. The headline shows the
// member with the smallest q. If some members have enough sessions for a verdict, members with fewer sessions do
// not count. If no member has a figure, the headline gets the reason that withoutMembers returns.
func (h *findings) headline(m *Metric, members []Metric, otherwise string) {
	m.Members = members
	enough := func(m Metric) bool { return m.PValue != nil && m.Clusters >= h.c.o.MinSessions }
	some := slices.ContainsFunc(members, enough)
	var kinds [][]*Metric
	for _, inCommon := range []bool{true, false} {
		kind := adjust(members, func(m Metric) bool { return m.InCommon == inCommon && (!some || enough(m)) })
		if len(kind) > 0 {
			kinds = append(kinds, kind)
		}
	}
	tested := slices.Concat(kinds...)
	if len(tested) == 0 {
		if len(members) > 0 {
			m.Clusters = slices.MaxFunc(members, func(a, b Metric) int { return a.Clusters - b.Clusters }).Clusters
		}
		m.missing(withoutMembers(members, otherwise))
		return
	}
	for _, kind := range kinds {
		for _, member := range kind {
			member.Among = len(kinds) * len(kind)
			member.QValue = new(min(1, float64(len(kinds))**member.QValue))
		}
	}
	least := slices.MinFunc(tested, func(a, b *Metric) int {
		return cmp.Or(cmp.Compare(*a.QValue, *b.QValue), cmp.Compare(*a.PValue, *b.PValue))
	})
	m.showMember(least)
	m.PValue = new(*least.QValue)
}

// findings computes the metrics from the linear models and the graded-response model of a window.
type findings struct {
	*models
	c      *Collector
	span   Window
	favour *favours
}

// headlines returns the tested metrics of a window with their verdicts, then metrics that are not tested, and a
// summary of the verdicts. The results must not be used if the context has ended.
func (c *Collector) headlines(ctx context.Context, w *window, span Window, fits []stat.TwoWay, split []stretch) (metrics []Metric, text summary) {
	h := findings{models: newModels(w), c: c, span: span}
	var length, reasoning, harshness, anchoring, drift Metric
	var reasoned bool
	var shared []Metric
	runTogether(
		func() { h.favour = newFavours(ctx, h.models) },
		func() { // compute what needs no graded-response model
			length = h.length()
			harshness = h.harshness()
			anchoring = h.anchoring()
			drift = h.drift(fits, split)
			shared = h.sharedOrder()
			reasoning, reasoned = h.reasoning()
		},
	)
	family := slices.Concat([]Metric{length, h.position(), h.slopes(), h.selfPreference(), h.family()}, h.style(),
		[]Metric{harshness, h.affinity(), anchoring, drift})
	if reasoned { // if no record has reasoning tokens, the headline must not list reasoning as untested
		family = slices.Insert(family, 1, reasoning)
	} else {
		shared = slices.Insert(shared, 0, reasoning)
	}
	h.judge(family)
	h.askForOwn(family)
	family[len(family)-1].keepAlongside()
	metrics = slices.Concat(family, shared)
	c.setTiers(metrics)
	return metrics, c.summarise(family, len(w.sessions))
}

// setTiers sets the tiers of metrics and their members from their numbers of questions.
func (c *Collector) setTiers(metrics []Metric) {
	for i := range metrics {
		metrics[i].Confidence = c.confidence(metrics[i].Clusters)
		c.setTiers(metrics[i].Members)
	}
}

func (h *findings) metric(name, unit, method string, t tally, delta float64) Metric {
	m := h.c.metric(name, unit, method, t, h.span)
	m.Delta = &delta
	m.Kind = kindOf(name)
	return m
}

// member returns a new member of the given headline. The member has no figure yet.
func (h *findings) member(of Metric, subject string, t tally) Metric {
	m := h.metric(of.Name+"|"+subject, of.Unit, of.Method, t, *of.Delta)
	m.Subject = subject
	m.Kind = of.Kind
	return m
}

// each returns one metric for each member of the council that has records in the tallies. If a member has enough
// questions, its metric has the figure of its contrast.
func (h *findings) each(of Metric, tallies []tally, f *stat.Fit, contrast func(member int) []float64) []Metric {
	var members []Metric
	for member, t := range tallies {
		if t.records == 0 {
			continue
		}
		m := h.member(of, h.w.names[member], t)
		if t.testable() {
			m.setContrast(f.Contrast(contrast(member)))
		} else {
			m.missing(notSeparable)
		}
		members = append(members, m)
	}
	return members
}

func (h *findings) length() Metric {
	m := h.metric(lengthAssociation, perDoubling,
		"candidate models and positions beside it, every reviewer of a session absorbed (M3); "+leastSquares, h.scored, deltaEffect)
	level, n := repeated(h.answered)
	if n < 2 {
		m.missing(notSeparable)
		return m
	}
	f := h.w.fit(h.lengthModel(level, n))
	m.setContrast(f.Contrast(only(f.N, 0)))
	return m
}

func (h *findings) harshness() Metric {
	m := h.metric(harshnessName, points, "every candidate of a session absorbed, own reviews left out (M2); "+leastSquares,
		h.scored, deltaEffect)
	level, n := testable(h.judges)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	f := h.w.fit(h.harshnessModel(level, n))
	h.headline(&m, h.each(m, h.judges, f, func(member int) []float64 {
		return contrast(f.N, 0, only(n, level[member]))
	}), notComparable)
	return m
}

// askForOwn extends the reason of self-preference if this headline has too few sessions for a verdict. The reason
// then says how many sessions show own answers, and which setting shows them more often.
func (h *findings) askForOwn(family []Metric) {
	for i := range family {
		if m := &family[i]; m.Name == selfName && m.Is(VerdictInsufficient) {
			m.Reason += fmt.Sprintf("; reviewers saw their own answers in %d of %d sessions: raise %s, or choose a longer window",
				h.self.sessions, len(h.w.sessions), h.c.o.Settings.Of(council.SettingSelfReviewRate))
		}
	}
}

// placed is the fit of positions in slates of one size.
type placed struct {
	*stat.Fit
	size int
}

// effects returns a member for each position in the slates of these fits.
func (h *findings) effects(of Metric, name string, tallies []tally, fits []placed) []Metric {
	var effects []Metric
	for _, f := range fits {
		for p := range f.size {
			m := h.metric(name, of.Unit, of.Method, tallies[f.size], *of.Delta)
			m.Subject = strconv.Itoa(p)
			if len(fits) > 1 {
				m.Subject = fmt.Sprintf("%d of %d", p, f.size)
			}
			m.Name += "|" + m.Subject
			if f.Clusters < f.size {
				m.missing(fewSessions)
			} else {
				m.setContrast(f.Contrast(contrast(f.N, 0, only(f.size, p))))
			}
			effects = append(effects, m)
		}
	}
	return effects
}

func (h *findings) anchoring() Metric {
	m := h.metric(anchoringName, "points per point that the first answer is better",
		"products of the first answer's score by others and the scores behind it, against those of the other answers; "+
			"t test between questions", h.ordered, deltaAnchoring)
	a := anchor(*h.w)
	m.SampleSize = a.sessions
	m.Clusters = a.questions
	m.Records = a.records
	m.Confidence = h.c.confidence(a.questions)
	switch frozen := func(x scores) bool { return x.block != "" && !x.shared }; {
	case a.sessions == 0 && slices.ContainsFunc(h.w.sessions, frozen):
		m.missing(frozenOrders)
	case a.sessions == 0:
		m.missing(h.withoutOrders())
	case a.SE == 0 || a.questions < preliminaryFrom:
		m.missing(sameProducts)
	default:
		m.set(a.Effect)
	}
	return m
}

// withoutOrders returns why there is no figure that needs a separate order for each reviewer.
func (h *findings) withoutOrders() string {
	switch {
	case h.ordered.records > 0:
		return notSeparable
	case slices.ContainsFunc(h.shared[:], func(t tally) bool { return t.records > 0 }):
		return sharedOrder
	case h.w.early:
		return earlyPositions
	default:
		return noPositions
	}
}

// drift returns the trends of the reviewers' relative harshness within each stretch.
func (h *findings) drift(fits []stat.TwoWay, split []stretch) Metric {
	m := h.metric(driftName, "points over the window",
		"trend of relative harshness over sessions, by least squares; errors by leaving out one question at a time (CV3)", h.scored,
		deltaDrift)
	trends := drifts(h.w, fits, split)
	several := slices.ContainsFunc(trends, func(d drift) bool { return d.stretch[0] != trends[0].stretch[0] })
	members := make([]Metric, 0, len(trends))
	for _, d := range trends {
		subject := h.w.names[d.reviewer]
		from := h.w.sessions[d.stretch[0]].start
		to := h.w.sessions[d.stretch[len(d.stretch)-1]].start
		if several {
			subject += " from " + from.Format(time.RFC3339)
		}
		t := tally{sessions: d.sessions, clusters: d.questions}
		for _, s := range d.stretch {
			if !math.IsNaN(fits[s].Effect[d.reviewer]) {
				t.records += h.w.sessions[s].judged(d.reviewer)
			}
		}
		member := h.member(m, subject, t)
		member.WindowStart = &from
		member.WindowEnd = &to
		member.AlsoChanged = h.w.alongside(d.thirds())
		if d.SE > tiny {
			member.set(d.Effect)
		} else {
			member.missing(perfectTrend)
		}
		members = append(members, member)
	}
	h.headline(&m, members, noTrend)
	if len(members) > 0 && m.PValue == nil {
		m.Verdict = members[0].Verdict
		m.Reason = members[0].Reason
	}
	return m
}

// sharedOrder returns the position effects of sessions whose reviewers all saw the same order. They are not tested,
// because the quality of the answers may explain them.
func (h *findings) sharedOrder() []Metric {
	var fits []placed
	var all tally
	level, levels := repeated(h.answered)
	if levels < 2 {
		return nil
	}
	for size, t := range h.shared {
		if t.testable() {
			fits = append(fits, placed{h.w.fit(h.sharedPositionModel(size, level, levels)), size})
			all.clusters += t.clusters
			all.sessions += t.sessions
			all.records += t.records
		}
	}
	if len(fits) == 0 {
		return nil
	}
	m := h.metric("position_under_shared_order", points,
		"largest position effect, candidate models beside it, every reviewer of a session absorbed; "+leastSquares,
		all, deltaPosition)
	m.Members = h.effects(m, m.Name, h.shared[:], fits)
	m.Delta = nil
	m.Kind = KindDescription
	m.Reason = sharedOrder
	if best := largest(pointers(m.Members)); best != nil {
		m.takeFigure(best, len(m.Members))
	}
	for i := range m.Members {
		effect := &m.Members[i]
		effect.PValue = nil
		effect.Test = nil
		effect.Delta = nil
		effect.Kind = KindDescription
		if effect.PointEstimate != nil {
			effect.Reason = sharedOrder
		}
	}
	return []Metric{m}
}

// judge sets the q values, the detectable effects and the verdicts of the headlines. If something is found at a
// headline, judge sets the verdicts of its members too, except for an association. The p of a headline is adjusted
// only among headlines of the same kind. For example, a difference in harshness does not make it easier to find
// favour.
func (h *findings) judge(family []Metric) {
	for _, kind := range []Kind{KindFavour, KindLevel, KindChange, KindAssociation} {
		headlines := adjust(family, func(m Metric) bool { return m.Kind == kind })
		for _, m := range headlines {
			h.setFindable(m, float64(len(headlines)))
			h.judgeOne(m)
		}
	}
}

func (h *findings) judgeOne(m *Metric) {
	tested := m.tested()
	passing := slices.DeleteFunc(slices.Clone(tested), func(member *Metric) bool {
		return !member.passes() || *m.QValue >= level(member.Clusters)
	})
	// Show the passing member with the largest effect, unless a member in common passes with the least q. The
	// member that the headline shows so far may have an effect that is too small to count, or too few sessions for
	// its level.
	inCommon := slices.ContainsFunc(passing, func(member *Metric) bool {
		return member.InCommon && *member.QValue <= *m.PValue
	})
	if len(passing) > 0 && !inCommon {
		m.showMember(largest(passing))
	}
	h.c.setVerdict(m)
	if !m.Found() || m.Kind == KindAssociation {
		return
	}
	for _, member := range tested {
		h.c.setVerdict(member)
	}
}

// setFindable sets the effect that the verdict of a headline finds with a probability of 80 %, and does the same
// for each member. The argument headlines is the number of headlines that are adjusted together. If there are too
// few sessions for a verdict, setFindable sets nothing.
func (h *findings) setFindable(m *Metric, headlines float64) {
	if m.Clusters < h.c.o.MinSessions {
		return
	}
	level := level(m.Clusters) / headlines
	tested := m.tested()
	if len(tested) == 0 {
		m.setDetectable(m.findable(level))
		m.setSingle(h.leastShare(m.Name))
		return
	}
	largest := map[bool]float64{} // the largest effect of members in common (true) and of single reviewers (false)
	for _, member := range tested {
		effect := member.findable(level / float64(member.Among))
		member.setDetectable(effect)
		largest[member.InCommon] = max(largest[member.InCommon], effect)
	}
	if single := largest[false]; single > 0 && !m.beyondScale(single) {
		m.DetectableSingle = &single
	}
	m.setDetectable(cmp.Or(largest[true], largest[false]))
}

// setDetectable sets the effect that the verdict finds with a probability of 80 %, unless it is larger than the
// scale allows.
func (m *Metric) setDetectable(effect float64) {
	if !m.beyondScale(effect) {
		m.MinimumDetectableEffect = &effect
	}
}

// setSingle sets the effect that a single reviewer must have so that the test of the mean of all reviewers finds
// it. The argument share is the least weight that a reviewer has in the mean. If share is 0, no effect of a single
// reviewer is found, however large it is.
func (m *Metric) setSingle(share float64) {
	if m.MinimumDetectableEffect == nil || share <= 0 {
		return
	}
	if effect := *m.MinimumDetectableEffect / share; !m.beyondScale(effect) {
		m.DetectableSingle = &effect
	}
}

// leastShare compares the reviewers by their share of the records of a headline, and returns the least share. It
// leaves out reviewers with too few questions for a figure of their own.
func (h *findings) leastShare(headline string) float64 {
	enters := map[string]func(cell) bool{
		anchoringName: func(c cell) bool { return c.position[c.i][c.j] >= 0 },
		familyName:    func(c cell) bool { return c.family[c.i][c.j] },
		styleName:     func(c cell) bool { return !math.IsNaN(c.style[c.i][c.j]) },
	}[headline]
	if enters == nil {
		return 0
	}
	tallies := make([]tally, len(h.w.names))
	for c := range h.w.cells(h.w.byCluster()) {
		if enters(c) {
			tallies[c.reviewer].add(c.cluster, c.session)
		}
	}
	sum := 0
	least := 0
	for _, t := range tallies {
		if !t.testable() {
			continue
		}
		sum += t.records
		if least == 0 || t.records < least {
			least = t.records
		}
	}
	return float64(least) / float64(max(1, sum))
}
