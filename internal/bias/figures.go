package bias

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// set gives a metric about these reviewers the figure that the function argument returns. If the graded-response
// model has no fit, or if the argument lacks is not "", set gives the metric the reason for the missing figure
// instead.
func (f *favours) set(m *Metric, lacks string, of func() stat.Contrast, reviewers ...int) {
	if reason := cmp.Or(f.reason, lacks); reason != "" {
		m.missing(reason)
		return
	}
	m.setContrast(of())
	if m.PointEstimate == nil {
		return
	}
	sum := 0.
	for _, i := range reviewers {
		k := f.effects.number[i]
		sum += f.marginal[k]
		m.Coarse = m.Coarse || f.model.Categories(k) < fewCategories
	}
	m.OwnScale = new(*m.PointEstimate * sum / float64(len(reviewers)))
}

// inCommon returns the mean effect of the reviewers that have an estimate, as one member of the given headline. It
// returns false if fewer than two reviewers have an estimate.
func (h *findings) inCommon(of Metric, t tally, effects, reviewers []int) (Metric, bool) {
	if len(effects) < 2 {
		return Metric{}, false
	}
	m := h.member(of, "", t)
	m.Name = of.Name + commonSuffix
	m.InCommon = true
	h.favour.set(&m, "", func() stat.Contrast { return h.favour.ownEffects(mean(effects)) }, reviewers...)
	return m, true
}

// weights holds the weight of each effect in a sum, by the number of the effect.
type weights map[int]float64

// mean returns the weights of the mean of effects.
func mean(effects []int) weights {
	w := weights{}
	for _, e := range effects {
		w[e] = 1 / float64(len(effects))
	}
	return w
}

// contrast returns a weighted sum of effects in a fit.
func (f *favours) contrast(in *stat.GradedFit, of weights) stat.Contrast {
	all := make([]float64, f.effects.size)
	for e, weight := range of {
		all[e] = weight
	}
	return in.Contrast(all)
}

// scorers returns the members that gave scores.
func (m *models) scorers() (members []int) {
	for member, t := range m.reviewers {
		if t.records > 0 {
			members = append(members, member)
		}
	}
	return members
}

// reviewing returns the members whose scores are part of the graded-response model.
func (f *favours) reviewing() []int {
	return slices.DeleteFunc(f.scorers(), func(member int) bool {
		return f.reason != "" || f.model.Categories(f.effects.number[member]) == 0
	})
}

func (h *findings) selfPreference() Metric {
	m := h.metric(selfName, points, h.favour.method(), h.self, deltaEffect)
	if !h.self.testable() {
		m.missing(fmt.Sprintf(noOwn, h.c.o.Settings.Of(council.SettingSelfReviewRate)))
		return m
	}
	var members []Metric
	var estimable, effects []int
	for i, t := range h.own {
		if t.records == 0 {
			continue
		}
		member := h.member(m, h.w.names[i], t)
		h.favour.set(&member, h.favour.lacksOwn(i), func() stat.Contrast {
			return h.favour.ownEffects(weights{h.favour.effects.own(i): 1})
		}, i)
		if member.PointEstimate != nil {
			estimable = append(estimable, i)
			effects = append(effects, h.favour.effects.own(i))
		}
		members = append(members, member)
	}
	if common, ok := h.inCommon(m, h.self, effects, estimable); ok {
		members = slices.Insert(members, 0, common)
	}
	h.headline(&m, members, cmp.Or(h.favour.reason, notSeparable))
	return m
}

func (h *findings) family() Metric {
	m := h.metric(familyName, points, h.favour.method(), h.models.family, deltaEffect)
	if m.Records == 0 {
		m.missing(noFamily)
		return m
	}
	lacks := ""
	if !h.favour.tellsFamily() {
		lacks = notSeparable
	}
	h.favour.set(&m, lacks, func() stat.Contrast {
		return h.favour.fit.Effects[h.favour.effects.family]
	}, h.favour.reviewing()...)
	return m
}

// tellsFamily reports whether the records can separate favour for the family from the quality of the candidates.
// The favour must be estimable in a linear model of who scored whom, with an effect of each reviewer, candidate and
// own answer. Otherwise the graded-response model would estimate the favour from its own curvature alone. For
// example, the favour is not estimable with three members of which two have one provider.
func (f *favours) tellsFamily() bool {
	n := len(f.effects.members)
	if f.reason != "" || n < 2 {
		return false
	}
	family := map[[2]int]bool{}
	for c := range f.w.cells(f.w.byTime()) {
		if f.effects.takes(c.reviewer) && f.effects.takes(c.candidate) {
			family[[2]int{f.effects.number[c.reviewer], f.effects.number[c.candidate]}] = c.family[c.i][c.j]
		}
	}
	r := stat.NewRegression(stat.Design{Columns: true, Regressors: 1 + n - 1 + n})
	for pair, isFamily := range family {
		x := make([]float64, 1+n-1+n+1)
		if isFamily {
			x[0] = 1
		}
		code(x[1:n], pair[0])
		if pair[0] == pair[1] {
			x[n+pair[0]] = 1
		}
		r.Add(pair[0], pair[1], x)
	}
	r.EndBlock(0, n, n)
	fit := r.Fit()
	estimable, _ := fit.Estimable(only(fit.N, 0))
	return estimable
}

// style returns the metric of style mimicry. It returns nil if no record says how similar answers are.
func (h *findings) style() []Metric {
	if h.w.embedder == "" {
		return nil
	}
	method := h.favour.method() + "; similarity by " + h.w.embedder + ", to which the same substance is alike too"
	m := h.metric(styleName, perTenth, method, h.alike, deltaStyle)
	if !h.alike.testable() {
		m.missing(notSeparable)
		return []Metric{m}
	}
	h.favour.set(&m, "", func() stat.Contrast {
		return h.favour.fit.Effects[h.favour.effects.style]
	}, h.favour.reviewing()...)
	return []Metric{m}
}

func (h *findings) slopes() Metric {
	m := h.metric(slopesName, perDoubling, h.favour.method(), h.scored, deltaEffect)
	scorers := h.scorers()
	members := make([]Metric, 0, len(scorers))
	for _, i := range scorers {
		member := h.member(m, h.w.names[i], h.reviewers[i])
		h.favour.set(&member, h.favour.lacksSlope(i), func() stat.Contrast {
			return h.favour.fit.Effects[h.favour.effects.slope(i)]
		}, i)
		members = append(members, member)
	}
	h.headline(&m, members, cmp.Or(h.favour.reason, notSeparable))
	return m
}

func (h *findings) affinity() Metric {
	m := h.metric(affinityName, points, h.favour.method(), h.scored, deltaEffect)
	pairs := h.sortedPairs()
	members := make([]Metric, 0, len(pairs))
	for _, pair := range pairs {
		member := h.member(m, h.w.names[pair[0]]+">"+h.w.names[pair[1]], *h.pairs[pair])
		member.Name = "pair|" + member.Subject
		h.favour.set(&member, h.favour.lacksPair(pair[0], pair[1]), func() stat.Contrast {
			effect, _ := h.favour.effects.pair(pair[0], pair[1])
			return h.favour.fit.Effects[effect]
		}, pair[0])
		members = append(members, member)
	}
	h.headline(&m, members, cmp.Or(h.favour.reason, notSeparable))
	return m
}

// position returns the position effects. Each position has an effect that is the same for all reviewers. The first
// position also has a further effect for each reviewer. Every effect that is returned is relative to the mean of
// the other positions.
func (h *findings) position() Metric {
	m := h.metric(positionName, points, "a place less the mean of the others; "+h.favour.method(), h.ordered, deltaPosition)
	if h.pairPosition(&m) {
		return m
	}
	if !h.ordered.testable() {
		m.missing(h.withoutOrders())
		return m
	}
	e := &h.favour.effects
	var estimable, firsts []int
	for _, i := range h.favour.reviewing() {
		if h.placed[i].testable() && h.favour.fit.Effects[e.first(i)].Estimable {
			estimable = append(estimable, i)
			firsts = append(firsts, e.first(i))
		}
	}
	// at returns the weights of a position. The last position has no effect, because the effects of the others are
	// relative to it.
	at := func(place int, firsts []int) weights {
		switch {
		case place == 0:
			return mean(firsts)
		case place < e.places-1:
			return weights{e.place + place - 1: 1}
		default:
			return weights{}
		}
	}
	lessOthers := func(place int, firsts []int) weights {
		all := weights{}
		for p := range e.places {
			share := -1 / float64(e.places-1)
			if p == place {
				share = 1
			}
			for effect, weight := range at(p, firsts) {
				all[effect] += share * weight
			}
		}
		return all
	}
	var members []Metric
	if len(estimable) > 0 {
		for p := range e.places {
			member := h.metric("position_effect|"+strconv.Itoa(p), points, m.Method, h.ordered, deltaPosition)
			member.Subject = strconv.Itoa(p)
			member.InCommon = true
			h.favour.set(&member, "", func() stat.Contrast {
				return h.favour.contrast(h.favour.fit, lessOthers(p, firsts))
			}, estimable...)
			members = append(members, member)
		}
	}
	for k, i := range estimable {
		member := h.member(m, h.w.names[i], h.placed[i])
		h.favour.set(&member, "", func() stat.Contrast {
			return h.favour.contrast(h.favour.fit, lessOthers(0, firsts[k:k+1]))
		}, i)
		members = append(members, member)
	}
	h.headline(&m, members, cmp.Or(h.favour.reason, notSeparable))
	return m
}
