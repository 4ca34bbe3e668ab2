package bias

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/councild/councild/internal/stat"
)

const (
	// mostPromoted is the largest number of effects that enter the statistical model after its first fit.
	mostPromoted = 3
	// betterBy decides between a fit with effects of pairs and slopes and a fit with the effects of
	// [stat.Graded.Between]. The fit with pairs and slopes is used only if its objective is greater by at least
	// betterBy. In simulations in which no pair had an effect, the difference was at most 4. With planted effects
	// of pairs it was mostly 8 or more.
	betterBy = 5
	// A figure about a pair or about own answers needs at least leastOutside scores that differ from the commonest
	// score of the reviewer. At least two other candidates must have as many such scores from the same reviewer.
	leastOutside = 10
	// An answer counts as a refusal if it is shorter than the usual answer of its author by more than stubDoublings
	// doublings. It is then less than a quarter as long. Each length is measured relative to the median length in
	// its session. Refusals are left out, because they say nothing about favour.
	stubDoublings = 2
	// commonPlaces is the largest number of positions that the statistical model distinguishes. Every later
	// position counts as the last of these.
	commonPlaces = 16
	// If the statistical model distinguishes fewer than fewCategories scores of a reviewer, an effect must also be
	// large enough in points of that reviewer's own scale.
	fewCategories = 4
	// mostFavourScores is the largest number of scores in the statistical model. They come from the newest
	// sessions. A fit of so many scores takes less than a minute.
	mostFavourScores = 500_000
	// mostMembers is the largest number of members in the statistical model. The time of a fit grows with the cube
	// of the number of members.
	mostMembers = 32
)

// favours is the graded-response model of a window, with the effects of favour. The effects are in points, as if
// the scale of each reviewer had no ends. The page docs/statistics.md has the formulas.
type favours struct {
	*models
	oldest  int // the index of the first session in the statistical model
	effects favourEffects
	fit     *stat.GradedFit
	model   *stat.Graded
	outside []int // see [stat.Graded.Outside]
	// marginal holds, for each member in the statistical model, how many points on the member's own scale
	// correspond to one point of an effect.
	marginal []float64
	spread   *stat.GradedFit // the fit that also has the effects of [stat.Graded.Spread], or nil
	reason   string          // says why there is no fit
}

// favourEffects numbers the members and the effects in the statistical model. A field whose name ends in First
// holds the first number of one kind of effect.
type favourEffects struct {
	// members holds the council members that are part of the statistical model, see take.
	members []int
	// number holds, for each member of the council, its index in members. It is -1 for a member that is not in
	// members.
	number []int
	pairs  [][2]int
	places int
	size   int

	ownFirst, firstFirst, place, family, style, slopeFirst, pairFirst int
}

func newFavourEffects(members, number []int, places int, pairs [][2]int) favourEffects {
	e := favourEffects{members: members, number: number, places: max(places, 2), pairs: pairs}
	block := func(n int) int {
		first := e.size
		e.size += n
		return first
	}
	n := len(members)
	e.ownFirst = block(n)
	e.firstFirst = block(n)
	e.place = block(e.places - 2)
	e.family = block(1)
	e.style = block(1)
	e.slopeFirst = block(n)
	e.pairFirst = block(len(pairs))
	return e
}

func (e *favourEffects) takes(member int) bool { return e.number[member] >= 0 }

// own, first and slope return the numbers of a member's effects. The member must be part of the statistical model.
func (e *favourEffects) own(member int) int   { return e.ownFirst + e.number[member] }
func (e *favourEffects) first(member int) int { return e.firstFirst + e.number[member] }
func (e *favourEffects) slope(member int) int { return e.slopeFirst + e.number[member] }

// pair returns the number of the effect of a pair. It returns false if the pair cannot be tested.
func (e *favourEffects) pair(reviewer, candidate int) (effect int, ok bool) {
	compare := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	k, ok := slices.BinarySearchFunc(e.pairs, [2]int{reviewer, candidate}, compare)
	return e.pairFirst + k, ok
}

// inside returns the effects that are always in the statistical model. These are all effects that some score has,
// except slopes and pairs.
func (e *favourEffects) inside(scores []stat.Score) (effects []int) {
	occurs := make([]bool, e.size)
	for _, s := range scores {
		for _, t := range s.Terms {
			occurs[t.Effect] = true
		}
	}
	for effect := range e.slopeFirst {
		if occurs[effect] {
			effects = append(effects, effect)
		}
	}
	return effects
}

// newFavours fits the graded-response model. If the scores do not allow a fit, or the context ends, it sets the
// reason instead.
func newFavours(ctx context.Context, m *models) *favours {
	f := &favours{models: m}
	if m.w.pairwise() {
		f.reason = pairsOnly
		return f
	}
	scores := f.scores()
	f.outside = make([]int, f.effects.size)
	if err := f.estimate(ctx, scores); err != nil {
		f.fit = nil
		f.reason = cannotFit(err)
	}
	return f
}

func (f *favours) estimate(ctx context.Context, scores []stat.Score) (err error) {
	if f.model, err = stat.NewGraded(scores, f.effects.size); err != nil {
		return err
	}
	f.outside = f.model.Outside()
	if f.fit, err = f.model.Fit(ctx, f.effects.inside(scores)...); err != nil {
		return err
	}
	f.promote(ctx)
	var spreads []int // one effect for each reviewer whose own effect has a figure
	for k, member := range f.effects.members {
		f.marginal = append(f.marginal, f.fit.Marginal(k))
		if own := f.effects.own(member); f.outside[own] >= leastOutside && f.fit.Effects[own].Estimable {
			spreads = append(spreads, f.model.Spread(k))
		}
	}
	if len(spreads) > 0 {
		if f.spread, err = f.fit.With(ctx, spreads...); err != nil {
			f.spread = nil
		}
	}
	return ctx.Err()
}

// promote adds the most significant omitted effect of a pair or slope to the statistical model. It repeats this as
// long as an effect passes its test. A preference that reviewers share can look like favour for one member of the
// council. [stat.GradedFit.BetweenP] tests for a shared preference. If that test rejects, promote also makes a fit
// with the effects of [stat.Graded.Between] and without the effects that it added before, because a shared
// preference may have caused the added effects. It uses this fit, unless the fit with the added effects is better
// by at least betterBy. If the fit with the added effects is better, and this step added no effect to it, promote
// adds the effects of Between to it.
func (f *favours) promote(ctx context.Context) {
	first := f.fit
	for promoted := []int{}; len(promoted) < mostPromoted; {
		before := f.fit
		unlike := before.BetweenP() < level(f.w.clusters)
		if surest := f.surest(promoted); surest >= 0 {
			with, err := before.With(ctx, surest)
			if err != nil {
				return
			}
			f.fit = with
			promoted = append(promoted, surest)
		}
		if unlike {
			between, err := first.With(ctx, f.model.Between()...)
			switch {
			case err == nil && between.Objective > f.fit.Objective-betterBy:
				f.fit = between
				promoted = nil
			case f.fit == before:
				if between, err = before.With(ctx, f.model.Between()...); err == nil {
					f.fit = between
				}
			}
		}
		if f.fit == before {
			return
		}
	}
}

// cannotFit returns why there are no figures if the fit of the statistical model returned an error.
func cannotFit(err error) string {
	switch {
	case errors.Is(err, stat.ErrFewReviewers):
		return "fewer than two reviewers give different scores"
	case errors.Is(err, stat.ErrFewCandidates):
		return "fewer than two models have scored answers"
	case errors.Is(err, stat.ErrFewQuestions):
		return "fewer than two questions have scored answers"
	default:
		return "the model of favour cannot be fitted to these scores: " + err.Error()
	}
}

// ownEffects returns the estimate of a weighted sum of own effects. It computes the estimate from two fits, with
// and without the effects of [stat.Graded.Spread], and returns the one with the greater p. The second fit is needed
// because a reviewer that separates answers more when its own answer is good looks as if it favoured itself.
func (f *favours) ownEffects(of weights) stat.Contrast {
	own := f.contrast(f.fit, of)
	if f.spread == nil || !own.Estimable {
		return own
	}
	if with := f.contrast(f.spread, of); with.Estimable && studentP(with) > studentP(own) {
		return with
	}
	return own
}

func studentP(c stat.Contrast) float64 { return stat.StudentP(c.Estimate/c.SE, c.DF) }

// surest returns the pair or slope effect with the smallest p. The effect must be significant and large enough to
// count. surest returns -1 if there is no such effect.
func (f *favours) surest(promoted []int) int {
	best := -1
	least := 1.
	var pairs, slopes []int
	for _, member := range f.effects.members {
		if f.lacksSlope(member) == "" {
			slopes = append(slopes, f.effects.slope(member))
		}
	}
	for k, pair := range f.effects.pairs {
		if f.lacksPair(pair[0], pair[1]) == "" {
			pairs = append(pairs, f.effects.pairFirst+k)
		}
	}
	for _, effects := range [][]int{pairs, slopes} {
		var of []int
		var p []float64
		for _, e := range effects {
			if x := f.fit.Effects[e]; x.Estimable && x.SE > tiny {
				of = append(of, e)
				p = append(p, studentP(x))
			}
		}
		for k, q := range stat.BenjaminiHochberg(p) {
			x := f.fit.Effects[of[k]]
			passes := q < level(x.Informative) && math.Abs(x.Estimate) >= deltaEffect
			if passes && p[k] < least && !slices.Contains(promoted, of[k]) {
				best = of[k]
				least = p[k]
			}
		}
	}
	return best
}

// lacksOwn returns the reason why a reviewer has no figure for its own answers. It returns "" if there is a figure.
func (f *favours) lacksOwn(reviewer int) string {
	if reason := f.lacksSlope(reviewer); reason != "" {
		return reason
	}
	if f.outside[f.effects.own(reviewer)] < leastOutside {
		return nearlyConstant
	}
	return ""
}

// lacksPair returns the reason why a pair has no figure. It returns "" if there is a figure.
func (f *favours) lacksPair(reviewer, candidate int) string {
	if f.reason != "" {
		return f.reason
	}
	effect, ok := f.effects.pair(reviewer, candidate)
	switch {
	case !f.effects.takes(reviewer) || !f.effects.takes(candidate):
		return f.notTaken()
	case !ok:
		return notSeparable
	case f.outside[effect] < leastOutside:
		return nearlyConstant
	}
	return f.comparable(reviewer, candidate)
}

// lacksSlope returns the reason why a reviewer has no figure for how it rewards length. It returns "" if there is a
// figure.
func (f *favours) lacksSlope(reviewer int) string {
	switch {
	case f.reason != "":
		return f.reason
	case !f.effects.takes(reviewer):
		return f.notTaken()
	}
	return f.comparable(reviewer, reviewer)
}

func (f *favours) notTaken() string {
	if len(f.effects.members) < mostMembers {
		return notSeparable
	}
	return fmt.Sprintf("the model of favour takes the %d members with the most scores", mostMembers)
}

// comparable checks whether a reviewer's scores of a candidate can be compared with its scores of two other
// candidates. It returns "" if they can, and otherwise the reason why they cannot.
func (f *favours) comparable(reviewer, candidate int) string {
	pairs := 0
	enough := 0
	for _, k := range f.effects.members {
		pair, ok := f.effects.pair(reviewer, k)
		if !ok || k == candidate {
			continue
		}
		pairs++
		if f.outside[pair] >= leastOutside {
			enough++
		}
	}
	switch {
	case pairs < 2:
		return notSeparable
	case enough < 2:
		return nearlyConstant
	}
	return ""
}

// take returns two lists. members holds the council members that are part of the statistical model. These are the
// members that can be tested. If there are more than mostMembers, take keeps the members with the most scores.
// number holds, for each council member, its index in members. It is -1 for a member that is not in members.
func (f *favours) take() (members, number []int) {
	records := func(member int) int { return f.reviewers[member].records + f.answered[member].records }
	for member := range f.w.names {
		if f.reviewers[member].testable() || f.answered[member].testable() {
			members = append(members, member)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return records(b) - records(a) })
	members = members[:min(len(members), mostMembers)]
	slices.Sort(members)
	number = slices.Repeat([]int{-1}, len(f.w.names))
	for k, member := range members {
		number[member] = k
	}
	return members, number
}

// scores returns the scores of the window for the statistical model. It numbers the effects first, because scores
// refer to them.
func (f *favours) scores() (all []stat.Score) {
	members, number := f.take()
	pairs := slices.DeleteFunc(f.sortedPairs(), func(pair [2]int) bool {
		return number[pair[0]] < 0 || number[pair[1]] < 0 || !f.pairs[pair].testable()
	})
	f.effects = newFavourEffects(members, number, min(f.w.places(), commonPlaces), pairs)
	usual := f.usualLengths()
	var slates []float64
	f.oldest = f.w.newest(mostFavourScores)
	for _, k := range f.w.byTime()[f.oldest:] {
		n := len(all)
		all = f.appendScores(all, k, usual)
		if len(all) > n {
			slates = append(slates, all[n].Slate)
		}
	}
	centre := stat.Mean(slates)
	for k := range all {
		x := &all[k]
		x.Slate -= centre
		x.Terms = append(x.Terms, stat.Term{Effect: f.effects.slopeFirst + x.Reviewer, Value: x.Length + x.Slate})
	}
	return all
}

// places returns the number of positions of the largest slate in the window.
func (w *window) places() int {
	places := 0
	for s := range w.sessions {
		for _, row := range w.sessions[s].position {
			for _, place := range row {
				places = max(places, place+1)
			}
		}
	}
	return places
}

// stubs reports which answers of a session are so short that they count as refusals (stubs). usual holds the usual
// length of each member's answers.
func (x *scores) stubs(length, usual []float64) []bool {
	stubs := make([]bool, len(length))
	middle := median(length)
	for j := range length {
		stubs[j] = length[j]-middle < usual[x.candidates[j]]-stubDoublings
	}
	return stubs
}

// meanLength returns the mean length of the answers that are not stubs. It is 0 if no length is known.
func meanLength(length []float64, stubs []bool) float64 {
	sum := 0.
	n := 0.
	for j := range length {
		if !math.IsNaN(length[j]) && !stubs[j] {
			sum += length[j]
			n++
		}
	}
	return sum / max(n, 1)
}

// appendScores appends the scores of session k. It sets the field Slate of each score to the mean length of the
// answers in session k that are not stubs.
func (f *favours) appendScores(all []stat.Score, k int, usual []float64) []stat.Score {
	s := &f.w.sessions[k]
	length := s.lengths()
	stubs := s.stubs(length, usual)
	mean := meanLength(length, stubs)
	number := f.effects.number
	for i, reviewer := range s.reviewers {
		alike := s.meanStyle(i)
		for j, y := range s.y[i] {
			if math.IsNaN(y) || stubs[j] || number[reviewer] < 0 || number[s.candidates[j]] < 0 {
				continue
			}
			x := stat.Score{
				Session:   k,
				Question:  s.cluster,
				Ballot:    i,
				Answer:    j,
				Reviewer:  number[reviewer],
				Candidate: number[s.candidates[j]],
				Points:    y,
				Slate:     mean,
				Own:       s.own[i][j],
			}
			if !math.IsNaN(length[j]) {
				x.Length = length[j] - mean
			}
			x.Terms = f.effects.terms(s, i, j, alike)
			all = append(all, x)
		}
	}
	return all
}

// newest returns the index of the first session that enters the statistical model. The sessions from this one on
// have together at most as many scores as the argument most says.
func (w *window) newest(most int) int {
	scores := 0
	for k, s := range slices.Backward(w.sessions) {
		for _, row := range s.y {
			scores += len(row)
		}
		if scores > most {
			return k + 1
		}
	}
	return 0
}

// method describes the statistical model in the field Method of a metric.
func (f *favours) method() string {
	if f.oldest == 0 {
		return graded
	}
	return fmt.Sprintf("%s; of the newest %d sessions, because it takes %d scores at most",
		graded, len(f.w.sessions)-f.oldest, mostFavourScores)
}

// terms returns all effects on a score except the effect of the length. The argument mean is the mean similarity of
// the other answers on the ballot to the reviewer's own answer.
func (e *favourEffects) terms(s *scores, i, j int, mean float64) (terms []stat.Term) {
	reviewer := s.reviewers[i]
	candidate := s.candidates[j]
	if s.own[i][j] {
		terms = append(terms, stat.Term{Effect: e.own(reviewer), Value: 1})
	} else {
		if pair, ok := e.pair(reviewer, candidate); ok {
			terms = append(terms, stat.Term{Effect: pair, Value: 1})
		}
		if similarity := s.style[i][j] - mean; !math.IsNaN(similarity) {
			terms = append(terms, stat.Term{Effect: e.style, Value: 10 * similarity})
		}
	}
	if s.family[i][j] {
		terms = append(terms, stat.Term{Effect: e.family, Value: 1})
	}
	if _, ok := s.slate(i, j); ok && !s.shared {
		switch place := min(s.position[i][j], e.places-1); {
		case place == 0:
			terms = append(terms, stat.Term{Effect: e.first(reviewer), Value: 1})
		case place < e.places-1:
			terms = append(terms, stat.Term{Effect: e.place + place - 1, Value: 1})
		}
	}
	return terms
}

// meanStyle returns the mean similarity to a reviewer's own answer, over the answers of other members that the
// reviewer scored. It is NaN if no similarity is known.
func (x *scores) meanStyle(i int) float64 {
	var known []float64
	for j, similarity := range x.style[i] {
		if !x.own[i][j] && !math.IsNaN(similarity) && !math.IsNaN(x.y[i][j]) {
			known = append(known, similarity)
		}
	}
	return stat.Mean(known)
}

// lengths returns the binary logarithm of each answer's length in a session. It is NaN if no record has the length.
func (x *scores) lengths() []float64 {
	lengths := slices.Repeat([]float64{math.NaN()}, len(x.candidates))
	for i := range x.reviewers {
		for j, length := range x.length[i] {
			if !math.IsNaN(length) {
				lengths[j] = x.doublings(i, j)
			}
		}
	}
	return lengths
}

// usualLengths returns the usual length of each member's answers. The length of an answer is in doublings, relative
// to the median of its session. The usual length is the median over the member's answers.
func (f *favours) usualLengths() []float64 {
	lengths := make([][]float64, len(f.w.names))
	for k := range f.w.sessions {
		s := &f.w.sessions[k]
		all := s.lengths()
		middle := median(all)
		for j, length := range all {
			if !math.IsNaN(length) {
				lengths[s.candidates[j]] = append(lengths[s.candidates[j]], length-middle)
			}
		}
	}
	usual := make([]float64, len(lengths))
	for member, of := range lengths {
		usual[member] = median(of)
	}
	return usual
}

// median returns the median of the values that are not NaN. It is NaN if all are NaN.
func median(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	return stat.Median(known)
}
