package bias

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

const (
	lengthAssociation  = "length_points_per_doubling"
	harshnessName      = "harshness"
	driftName          = "drift"
	positionName       = "position"
	selfName           = "self_preference"
	familyName         = "family_affinity"
	affinityName       = "affinity"
	slopesName         = "length_slope_deviation"
	anchoringName      = "anchoring"
	styleName          = "style_mimicry"
	standardisedSuffix = "_standardised"
)

const (
	points        = "points"
	perDoubling   = "points per doubling of the length"
	perTenth      = "points per 0.1 of similarity"
	thrice        = "and again beside the reviewers' discrimination, without and with a curve for each; "
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
	reasonIsMixed = "longer reasoning may make better answers, so this is an association and proves no bias"
	notConfirmed  = "the scores standardised within each reviewer do not confirm it"
	noTrend       = "no reviewer took part in enough comparable sessions"
	perfectTrend  = "undefined: relative harshness lies on a line without any scatter to test the line against"
	frozenOrders  = "the answers are frozen and their orders repeat, so chance does not decide which of them stands first"
	sameProducts  = "undefined: the products are the same for every question"
	fewSessions   = "there are fewer sessions than positions"
	scaleUse      = "the scores alone show it; beside how the reviewers use the scale it is not certain, or too small to count"
	beyondScale   = "the estimate is larger than the scale: the records cannot tell it from the other effects"
	tooLittle     = "too little data: not even the largest effect on the scale would be found in four of five such windows"
	shrinks       = "no effect shown; the estimate is about a third of a true effect, so none is called negligible"
)

// headline turns a metric into the headline of its members: it takes the figure of
// the one with the smallest p, and that p after Benjamini and Hochberg. Members with
// too few sessions for a verdict do not enter where others have enough. Where no member
// has a figure, the headline has a reason: that of a member with a special one, else
// otherwise.
func (h *findings) headline(m *Metric, members []Metric, otherwise string) {
	m.Members = members
	enough := func(m Metric) bool { return m.PValue != nil && m.Clusters >= h.c.o.MinSessions }
	some := slices.ContainsFunc(members, enough)
	tested := adjust(members, func(m Metric) bool { return !some || enough(m) })
	if len(tested) == 0 {
		if len(members) > 0 {
			m.Clusters = slices.MaxFunc(members, func(a, b Metric) int { return a.Clusters - b.Clusters }).Clusters
		}
		m.missing(withoutMembers(members, otherwise))
		return
	}
	m.showMember(slices.MinFunc(tested, func(a, b *Metric) int { return cmp.Compare(*a.decisive(), *b.decisive()) }), len(tested))
	m.PValue = new(1.)
	for _, member := range tested {
		m.PValue = new(min(*m.PValue, *member.QValue))
	}
}

// findings makes metrics of the models of a window.
type findings struct {
	*models
	c             *Collector
	span          Window
	second, third *adjustedFits // nil where no reviewer's scores follow the answers
	placed        []placed      // what the position headline rests on
}

// placed is the fit of positions in slates of one size.
type placed struct {
	*stat.Fit
	size int
}

// headlines returns the metrics of a window that are tested, with their verdicts,
// followed by those that describe positions under a shared order and discrimination, and
// a summary of the verdicts.
func (c *Collector) headlines(w *window, span Window, fits []stat.TwoWay, split []stretch) (metrics []Metric, text summary) {
	h := findings{models: newModels(w), c: c, span: span}
	var length, reasoning, position, slopes, harshness, affinity, anchoring, drift Metric
	var reasoned bool
	var favours, style, shared []Metric
	runTogether(
		func() {
			if !w.pairwise() {
				h.second, h.third = h.fitAdjusted()
			}
		},
		func() { // what has no further fits
			length, position, harshness, anchoring = h.length(), h.position(), h.harshness(), h.anchoring()
			drift, shared = h.drift(fits, split), h.sharedOrder()
			reasoning, reasoned = h.reasoning()
		},
	)
	runTogether(
		func() { affinity = h.affinity() },
		func() { slopes, favours, style = h.slopes(), h.favours(), h.style() },
	)
	family := slices.Concat([]Metric{length, position, slopes}, favours, style, []Metric{harshness, affinity, anchoring, drift})
	if reasoned { // else the headline does not name it among what was not tested
		family = slices.Insert(family, 1, reasoning)
	} else {
		shared = slices.Insert(shared, 0, reasoning)
	}
	h.judge(family)
	h.askForOwn(family)
	family[len(family)-1].keepAlongside()
	metrics = slices.Concat(family, shared, []Metric{h.discrimination()})
	c.setTiers(metrics)
	return metrics, c.summarise(family, len(w.sessions))
}

// setTiers sets the tiers of metrics and their members by what these turned out to rest on.
func (c *Collector) setTiers(metrics []Metric) {
	for i := range metrics {
		metrics[i].Confidence = c.confidence(metrics[i].Clusters)
		c.setTiers(metrics[i].Members)
	}
}

func (h *findings) metric(name, unit, method string, t tally, delta float64) Metric {
	m := h.c.metric(name, unit, method, t, h.span)
	m.Delta, m.Kind = &delta, kindOf(name)
	return m
}

// member returns a member of a headline without its figure.
func (h *findings) member(of Metric, subject string, t tally) Metric {
	m := h.metric(of.Name+"|"+subject, of.Unit, of.Method, t, *of.Delta)
	m.Subject, m.Kind = subject, of.Kind
	return m
}

// each returns one metric for each member of the council that has records in the
// tallies, with the figure of a contrast where there are enough.
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
			m.missing(notTold)
		}
		members = append(members, m)
	}
	return members
}

func (h *findings) length() Metric {
	m := h.metric(lengthAssociation, perDoubling,
		"candidate models and positions beside it, every reviewer of a session absorbed (M4); "+leastSquares, h.scored, deltaEffect)
	level, n := repeated(h.answered)
	if n < 2 {
		m.missing(notTold)
		return m
	}
	f := h.w.fit(h.w.plain(), h.lengthModel(level, n))
	m.setContrast(f.Contrast(only(f.N, 0)))
	return m
}

func (h *findings) slopes() Metric {
	m := h.metric(slopesName, perDoubling,
		"every candidate of a session absorbed (M5), "+thrice+leastSquares, h.scored, deltaEffect)
	level, n := testable(h.reviewers)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	if h.w.pairwise() {
		m.missing(pairsOnly)
		return m
	}
	slopes := h.w.fit(h.w.plain(), h.slopeModel(level, n))
	each := h.each(m, h.reviewers, slopes, func(member int) []float64 { return contrast(slopes.N, n-1, only(n, level[member])) })
	h.setFurther(each, func(int) pull { return 0 }, func(of *adjustedFits, member int) stat.Contrast {
		f, strong := of.slopes, len(h.spread.strong)
		return f.Contrast(contrast(f.N, strong-1, only(strong, h.spread.place[member])))
	})
	h.headline(&m, each, notTold)
	return m
}

// setFurther gives members, each named after a member of the council, the figures of
// the further fits. Pulls says how an end moves the scores that they come from.
func (h *findings) setFurther(each []Metric, pulls func(member int) pull, figure func(of *adjustedFits, member int) stat.Contrast) {
	for k := range each {
		m := &each[k]
		member, ok := slices.BinarySearch(h.w.names, m.Subject)
		switch {
		case !ok || m.PointEstimate == nil:
		case h.spread.noSecondFit(member) != "":
			m.withhold(h.spread.noSecondFit(member))
		default:
			m.setFurther(figure(h.second, member), figure(h.third, member), h.spread, pulls(member))
		}
	}
}

func (h *findings) harshness() Metric {
	m := h.metric(harshnessName, points, "every candidate of a session absorbed, own reviews left out (M2); "+leastSquares,
		h.scored, deltaEffect)
	level, n := testable(h.judges)
	if n < 2 {
		m.missing(notReviewers)
		return m
	}
	f := h.w.fit(h.w.plain(), h.harshnessModel(level, n))
	h.headline(&m, h.each(m, h.judges, f, func(member int) []float64 { return contrast(f.N, 0, only(n, level[member])) }), notComparable)
	return m
}

// favours returns self-preference and family affinity. The first member of both is the
// same figure on standardised scores; further members of self-preference are the
// reviewers.
func (h *findings) favours() []Metric {
	const method = "every candidate and reviewer of a session absorbed (M3), " + thrice + leastSquares
	self := h.metric(selfName, points, method, h.self, deltaEffect)
	family := h.metric(familyName, points, method, h.family, deltaEffect)
	if !h.self.testable() {
		self.missing(fmt.Sprintf(noOwn, h.c.o.Settings.Of(council.SettingSelfReviewRate)))
	}
	if h.family.records == 0 {
		family.missing(noFamily)
	}
	if h.w.pairwise() {
		for _, m := range []*Metric{&self, &family} {
			if m.Verdict == nil {
				m.missing(pairsOnly)
			}
		}
		return []Metric{self, family}
	}
	level, levels := h.oneOwner()
	model := h.favourModel(level, levels)
	raw, standardised := h.w.fit(h.w.plain(), model), h.w.fit(h.standardised(), model)
	var pulls [2]pull // on own answers and on those of the family, as far as they enter
	for c := range h.w.cells(h.w.byTime()) {
		switch p := h.spread.ends.pull(c.reviewer, c.candidate); {
		case p.explains(1):
		case c.own[c.i][c.j]:
			pulls[0] |= p
		case c.family[c.i][c.j]:
			pulls[1] |= p
		}
	}
	for k, m := range []*Metric{&self, &family} {
		if m.Verdict != nil {
			continue
		}
		figure := func(f *stat.Fit) stat.Contrast { return f.Contrast(only(f.N, levels-1+k)) }
		alike := h.c.metric(m.Name+standardisedSuffix, "standard deviations", m.Method,
			tally{clusters: m.Clusters, sessions: m.SampleSize, records: m.Records}, h.span)
		alike.Kind = m.Kind
		m.setContrast(figure(raw))
		alike.setContrast(figure(standardised))
		switch {
		case m.PointEstimate == nil:
		case h.second == nil:
			m.withhold(h.noSecond())
		default:
			m.setFurther(figure(h.second.favour), figure(h.third.favour), h.spread, pulls[k])
			if m.untested() {
				m.Verdict = new(VerdictNotIdentified)
			}
		}
		m.Members = append(m.Members, alike)
	}
	if !h.self.testable() {
		return []Metric{self, family}
	}
	level, levels = testable(h.own)
	f := h.w.fit(h.w.plain(), h.favourModel(level, levels))
	each := h.each(self, h.own, f, func(member int) []float64 { return only(f.N, level[member]) })
	h.setFurther(each, func(member int) pull { return h.spread.ends.pull(member, member) }, func(of *adjustedFits, member int) stat.Contrast {
		return of.favourByOwn.Contrast(only(of.favourByOwn.N, level[member]))
	})
	adjust(each, all)
	self.Members = append(self.Members, each...)
	return []Metric{self, family}
}

// askForOwn says, where self-preference has too few sessions for a verdict, how many have own answers and what brings more.
func (h *findings) askForOwn(family []Metric) {
	for i := range family {
		if m := &family[i]; m.Name == selfName && m.Is(VerdictInsufficient) {
			m.Reason += fmt.Sprintf("; own answers are on slates in %d of %d sessions: raise %s, or widen the window", h.self.sessions,
				len(h.w.sessions), h.c.o.Settings.Of(council.SettingSelfReviewRate))
		}
	}
}

// style returns style mimicry, none where no record says how alike answers are.
func (h *findings) style() []Metric {
	if h.w.embedder == "" {
		return nil
	}
	m := h.metric(styleName, perTenth, "every candidate and reviewer of a session absorbed, own answers left out, family and each reviewer's "+
		"slope of length beside it (M7), "+thrice+"similarity by "+
		h.w.embedder+", to which the same substance is alike too; "+leastSquares, h.alike, deltaStyle)
	if h.w.pairwise() {
		m.missing(pairsOnly)
		return []Metric{m}
	}
	level, levels := testable(h.reviewers)
	if !h.alike.testable() || levels < 2 {
		m.missing(notTold)
		return []Metric{m}
	}
	f := h.w.fit(h.w.plain(), h.styleModel(level, levels))
	figure := func(f *stat.Fit) stat.Contrast { return f.Contrast(only(f.N, 0)) }
	m.setContrast(figure(f))
	switch {
	case m.PointEstimate == nil:
	case h.second == nil:
		m.withhold(h.noSecond())
	default:
		m.setFurther(figure(h.second.style), figure(h.third.style), h.spread, 0)
	}
	return []Metric{m}
}

// noSecond returns why there is no second fit of any reviewer.
func (h *findings) noSecond() string {
	for member, t := range h.reviewers {
		if t.records > 0 && h.spread.noSecondFit(member) == scaleUnknown {
			return scaleUnknown
		}
	}
	return noneFollow
}

func (h *findings) affinity() Metric {
	m := h.metric(affinityName, points,
		"one fit per reviewer and candidate, every candidate and reviewer of a session absorbed (M6), "+thrice+leastSquares,
		h.scored, deltaEffect)
	if h.w.pairwise() {
		m.missing(pairsOnly)
		return m
	}
	plain := h.w.regress(h.w.plain(), h.affinityModel())[0].FitSolos()
	pairs := h.sortedPairs()
	members, solo := make([]Metric, 0, len(pairs)), 0
	var alone []int // pairs that an end moves too often, whose further fits are their own
	for k, pair := range pairs {
		member := h.member(m, h.w.names[pair[0]]+">"+h.w.names[pair[1]], *h.pairs[pair])
		member.Name = "pair|" + member.Subject
		if h.pairs[pair].testable() {
			member.setContrast(plain[solo])
			reason, at := h.spread.noSecondFit(pair[0]), h.spread.ends.pull(pair[0], pair[1])
			switch {
			case member.PointEstimate == nil:
			case reason != "":
				member.withhold(reason)
			case at.explains(*member.PointEstimate):
				member.Reason = atEnd
			case at > 0:
				alone = append(alone, k)
			default:
				member.setFurther(h.second.affinities[solo], h.third.affinities[solo], h.spread, 0)
			}
			solo++
		} else {
			member.missing(notTold)
		}
		members = append(members, member)
	}
	const atOnce = 8 // regressions, each of which holds sums of every question
	for some := range slices.Chunk(alone, atOnce) {
		designs := make([]design, len(some))
		for q, k := range some {
			designs[q] = h.spread.bent(h.pairModel(pairs[k]))
		}
		for q, r := range h.w.regress(h.spread.adjusted(), designs...) {
			pair := pairs[some[q]]
			members[some[q]].setFurther(r.FitSolos()[0], r.Whole().FitSolos()[0], h.spread, h.spread.ends.pull(pair[0], pair[1]))
		}
	}
	h.headline(&m, members, notTold)
	return m
}

// position returns the position effects. Their members are the effect of each place, and
// the shapes.
func (h *findings) position() Metric {
	m := h.metric(positionName, points,
		"largest position effect, Wald test of all, every candidate and reviewer of a session absorbed (M1); "+leastSquares, h.ordered,
		deltaPosition)
	if h.pairPosition(&m) {
		return m
	}
	var all []placed
	for size, t := range h.randomised {
		if t.testable() {
			all = append(all, placed{h.w.fit(h.w.plain(), h.positionModel(size)), size})
		}
	}
	if len(all) == 0 {
		m.missing(h.withoutOrders())
		return m
	}
	// A size that cannot be tested, such as one that few reviewers were shown, is left
	// out where others can.
	h.placed = slices.DeleteFunc(slices.Clone(all), func(f placed) bool { return !testableAtOnce(f.Fit) })
	if len(h.placed) == 0 {
		m.Members = h.effects(m, "position_effect", h.randomised[:], all)
		reason := fewSessions
		if k := slices.IndexFunc(m.Members, func(effect Metric) bool { return effect.PointEstimate == nil }); k >= 0 {
			reason, m.Clusters = m.Members[k].Reason, m.Members[k].Clusters
		}
		m.missing(reason)
		return m
	}
	told := 0
	for _, f := range h.placed {
		told += f.LeastInformative()
	}
	m.Clusters = min(m.Clusters, told)
	m.Members = h.effects(m, "position_effect", h.randomised[:], h.placed)
	m.takeFigure(largest(pointers(m.Members)), len(m.Members))
	m.Test, m.PValue = omnibus(h.placed)
	m.Members = append(m.Members, h.shapes(m)...)
	return m
}

// effects returns a member for each position in the slates of those fits.
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

// testableAtOnce reports whether every coefficient of a fit is determined by enough questions, with
// a standard error, and all of them can be tested at once.
func testableAtOnce(f *stat.Fit) bool {
	for k := range f.N {
		estimable, robust := f.Estimable(only(f.N, k))
		if !estimable || !robust || !(f.CV3[k*f.N+k] > tiny*tiny) {
			return false
		}
	}
	return f.LeastInformative() >= max(preliminaryFrom, f.N+1)
}

// omnibus returns the Wald test of all position effects and its p. Those of several
// sizes of slate are combined by Stouffer's method, weighted by the square root of
// the sessions.
func omnibus(fits []placed) (test *Test, p *float64) {
	var sum, squares float64
	for _, f := range fits {
		statistic, df, single := f.Wald()
		if len(fits) == 1 {
			return &Test{Name: "F", Value: statistic, DF: df[:]}, &single
		}
		const tail = 1e-15 // beyond, a p that rounding makes 0 or 1 would be infinite
		sum -= math.Sqrt(df[0]+df[1]) * stat.NormalQuantile(max(tail, min(single, 1-tail)))
		squares += df[0] + df[1]
	}
	z := sum / math.Sqrt(squares)
	return &Test{Name: "z", Value: z, DF: []float64{}}, new(stat.NormalCDF(-z))
}

// shapes returns summaries of the position effects, slates of several sizes combined by
// inverse variance.
func (h *findings) shapes(of Metric) []Metric {
	var shapes []Metric
	for _, shape := range []string{"primacy", "recency", "ends_minus_middle", "linear_per_step"} {
		var e stat.Effect
		var weight float64
		for _, f := range h.placed {
			weights := shapeWeights(shape, f.size)
			if weights == nil {
				continue
			}
			part := f.Effect(contrast(f.N, 0, weights), f.LeastInformative())
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
		m.Clusters = of.Clusters
		if shape == "linear_per_step" {
			m.Unit = "points per position"
		}
		m.set(e)
		shapes = append(shapes, m)
	}
	return shapes
}

// shapeWeights returns the weights of the positions of a slate, two or more, in a shape:
// the mean of some positions less the mean of the others, or the slope over all. It is
// nil where the slate is too small for the shape.
func shapeWeights(shape string, size int) []float64 {
	some := map[string][]int{"primacy": {0}, "recency": {size - 1}, "ends_minus_middle": {0, size - 1}}[shape]
	if len(some) == size {
		return nil
	}
	weights := slices.Repeat([]float64{-1 / float64(size-len(some))}, size)
	for _, p := range some {
		weights[p] = 1 / float64(len(some))
	}
	if some != nil {
		return weights
	}
	squares := 0. // linear_per_step
	for p := range weights {
		weights[p] = float64(p) - float64(size-1)/2
		squares += weights[p] * weights[p]
	}
	for p := range weights {
		weights[p] /= squares
	}
	return weights
}

func (h *findings) anchoring() Metric {
	m := h.metric(anchoringName, "points per point that the first answer is better",
		"products of the first answer's score by others and the scores behind it, against those of the other answers; "+
			"t test between questions", h.ordered, deltaAnchoring)
	a := anchor(*h.w)
	m.SampleSize, m.Clusters, m.Records, m.Confidence = a.sessions, a.questions, a.records, h.c.confidence(a.questions)
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

// withoutOrders returns why there is no figure of those that need an order for each
// reviewer.
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
	m := h.metric(driftName, "points over the window",
		"trend of relative harshness over sessions, by least squares; errors by leaving out one question at a time (CV3)", h.scored,
		deltaDrift)
	trends := drifts(h.w, fits, split)
	several := slices.ContainsFunc(trends, func(d drift) bool { return d.stretch[0] != trends[0].stretch[0] })
	members := make([]Metric, 0, len(trends))
	for _, d := range trends {
		subject := h.w.names[d.reviewer]
		from, to := h.w.sessions[d.stretch[0]].start, h.w.sessions[d.stretch[len(d.stretch)-1]].start
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
		member.WindowStart, member.WindowEnd = &from, &to
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
		m.Verdict, m.Reason = members[0].Verdict, members[0].Reason
	}
	return m
}

// sharedOrder returns the position effects of sessions whose reviewers saw one order. It
// describes, because the quality of the answers may explain them.
func (h *findings) sharedOrder() []Metric {
	var fits []placed
	var all tally
	level, levels := repeated(h.answered)
	if levels < 2 {
		return nil
	}
	for size, t := range h.shared {
		if t.testable() {
			fits = append(fits, placed{h.w.fit(h.w.plain(), h.sharedPositionModel(size, level, levels)), size})
			all = tally{clusters: all.clusters + t.clusters, sessions: all.sessions + t.sessions, records: all.records + t.records}
		}
	}
	if len(fits) == 0 {
		return nil
	}
	m := h.metric("position_under_shared_order", points,
		"largest position effect, candidate models beside it, every reviewer of a session absorbed; "+leastSquares,
		all, deltaPosition)
	m.Members = h.effects(m, m.Name, h.shared[:], fits)
	m.Delta, m.Kind, m.Reason = nil, KindDescription, sharedOrder
	if best := largest(pointers(m.Members)); best != nil {
		m.takeFigure(best, len(m.Members))
	}
	for i := range m.Members {
		effect := &m.Members[i]
		effect.PValue, effect.Test, effect.Delta, effect.Kind = nil, nil, nil, KindDescription
		if effect.PointEstimate != nil {
			effect.Reason = sharedOrder
		}
	}
	return []Metric{m}
}

// judge sets the q values of the headlines, the effects that would have been found, and
// the verdicts; and the verdicts of the members of a headline at which something was found. Headlines of one
// kind are adjusted among each other: that every reviewer scores at another level makes no favour more likely.
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
	// The member of the least p may be too small to count where another is not, or have
	// too few sessions for the level at which another counts.
	if m.Subject != "" && len(passing) > 0 {
		m.showMember(largest(passing), len(tested))
	}
	h.c.setVerdict(m)
	if !m.Found() || m.Kind == KindAssociation {
		return
	}
	for _, member := range tested {
		h.c.setVerdict(member)
	}
}

// setFindable sets the effect that the verdict of a headline, tested among so many
// headlines, finds with a probability of 80 %, and the same for each member. Where there
// are too few sessions for a verdict, there is none.
func (h *findings) setFindable(m *Metric, headlines float64) {
	if m.Clusters < h.c.o.MinSessions {
		return
	}
	level := level(m.Clusters) / headlines
	if len(h.placed) > 0 && m.Name == positionName {
		m.setDetectable(h.findablePosition(*m, level))
		m.setSingle(h.leastShare(m.Name))
		return
	}
	if m.Subject == "" {
		m.setDetectable(m.findable(level))
		m.setSingle(cmp.Or(m.leastWeight(), h.leastShare(m.Name)))
	}
	tested, largest := m.tested(), 0.0
	for _, member := range tested {
		effect := member.findable(level / float64(len(tested)))
		member.setDetectable(effect)
		largest = max(largest, effect)
	}
	if m.Subject != "" {
		m.setDetectable(largest)
		m.DetectableSingle = m.MinimumDetectableEffect
	}
}

// setDetectable sets the effect that the verdict finds with a probability of 80 %, unless it is larger than the scale
// allows.
func (m *Metric) setDetectable(effect float64) {
	if !m.beyondScale(effect) {
		m.MinimumDetectableEffect = &effect
	}
}

// setSingle sets the effect of a single reviewer that is found through the mean of all, where each has at least that share
// in it. 0 stands for an effect that no single reviewer has.
func (m *Metric) setSingle(share float64) {
	if m.MinimumDetectableEffect == nil || share <= 0 {
		return
	}
	if effect := *m.MinimumDetectableEffect / share; !m.beyondScale(effect) {
		m.DetectableSingle = &effect
	}
}

// leastWeight returns the least weight of a reviewer in the mean of all, by the errors of the reviewers' own figures. It is 0
// where they have none.
func (m *Metric) leastWeight() float64 {
	sum, least := 0., 0.
	for _, member := range m.Members {
		if member.Subject == "" || member.StandardError == nil {
			continue
		}
		weight := 1 / (*member.StandardError * *member.StandardError)
		sum += weight
		if least == 0 || weight < least {
			least = weight
		}
	}
	if sum == 0 {
		return 0
	}
	return least / sum
}

// leastShare returns the least share of a reviewer in the records that a headline rests on. Reviewers with too few sessions
// for a figure of their own are left out.
func (h *findings) leastShare(headline string) float64 {
	enters := map[string]func(cell) bool{
		positionName:  func(c cell) bool { return c.position[c.i][c.j] >= 0 },
		anchoringName: func(c cell) bool { return c.position[c.i][c.j] >= 0 },
		selfName:      func(c cell) bool { return c.own[c.i][c.j] },
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
	sum, least := 0, 0
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

// findablePosition returns the advantage of the first place over the others that
// the test of all places finds with a probability of 80 %, and whose largest effect
// is at least delta. Slates of several sizes count as one test on the places of the
// largest.
func (h *findings) findablePosition(m Metric, level float64) float64 {
	smallest, q, rest := math.Inf(1), 0., 0.
	for _, p := range h.placed {
		smallest, q, rest = min(smallest, float64(p.size)), max(q, float64(p.N)), rest+float64(p.LeastInformative()-p.N)
	}
	primacy := m.Members[slices.IndexFunc(m.Members, func(shape Metric) bool { return shape.Name == "primacy" })]
	se := *primacy.StandardError
	likely := se * stat.StudentQuantile(0.8, primacy.Test.DF[0])
	return max(math.Sqrt(stat.Noncentrality(level, 0.8, q, rest))*se, (*m.Delta+likely)/(1-1/smallest))
}
