package spend

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Estimate is what a session may cost, before it begins. Upper figures are without retries. A
// figure is null where nobody knows it.
type Estimate struct {
	Calls    int               `json:"calls"`        // when nothing fails
	Upper    *USD              `json:"upper_usd"`    // the most that they cost, with answers of 8 bytes a token
	Expected *USD              `json:"expected_usd"` // the median of earlier calls of each model in each stage
	ByStage  map[string]Figure `json:"by_stage"`
	ByModel  map[string]Figure `json:"by_model"`
	Unpriced []string          `json:"unpriced"` // models of which nobody knows what they cost
	Limits   []Limit           `json:"limits"`   // of the session, the day and the caller's token, where there are any
	// Fits reports whether a session would begin now.
	Fits bool `json:"fits"`
	// Refusal says which limit a session would not begin under, and what to do. It is null where it fits.
	Refusal *string `json:"refusal"`
}

// Figure is the part of an estimate that belongs to a stage or a model.
type Figure struct {
	Calls    int  `json:"calls"`
	Upper    *USD `json:"upper_usd"`
	Expected *USD `json:"expected_usd"`
}

const (
	// bytesPerToken is more than nearly all texts have.
	bytesPerToken = 8
	// overhead is more than a request has besides its texts, and promptOverhead more than the
	// prompts of the reviewers and the chairman have besides what they quote.
	overhead, promptOverhead = 512, 16 << 10
	// schemaCopies is how many times its length a schema takes at most: once as the format, and twice
	// in the prompt, as JSON in a JSON text.
	schemaCopies = 3
	// endless is the length of a reply without a limit. Sums with it stay negative.
	endless = math.MinInt64 / 8
)

// planned is a call that a session makes when nothing fails.
type planned struct {
	stage council.Stage
	model string
	bytes int64 // of its body, at most; negative: nobody knows
	limit *int  // of its output
}

// calls returns the calls of a plan.
func calls(plan council.Plan) []planned {
	text, _ := json.Marshal(plan.Conversation) // texts can be encoded
	l := callList{plan: plan, question: int64(len(text)) + overhead}
	for _, s := range plan.Stages {
		l.addStage(s)
		if s.Kind == council.KindAnswers || s.Kind == council.KindGiven {
			l.addSides()
		}
	}
	return l.all
}

// callList collects the calls of a plan, stage by stage. All lengths are in bytes, at most.
type callList struct {
	plan     council.Plan
	question int64 // the length of a request with the question alone
	answers  int64 // the length of all answers of the stages before
	reviews  int64 // the length of all reviews of the stages before
	all      []planned
}

func (l *callList) addStage(s council.StagePlan) {
	rules := l.plan.Rules
	prompt := l.question + promptOverhead + l.answers
	switch s.Kind {
	case council.KindAnswers:
		for _, m := range s.Seats {
			if l.plan.Direct() {
				l.addFinal(council.Stage1, m, l.question)
			} else {
				l.add(council.Stage1, m, l.question, rules.Sampling)
			}
		}
		l.answers = replySize(s.Seats, rules.Sampling)
	case council.KindGiven:
		l.answers = textSize(s.Given)
	case council.KindReviews:
		for _, m := range s.Seats {
			l.add(council.Stage2, m, prompt, rules.ReviewSampling)
			if rules.BallotRepair {
				review := replySize([]council.Member{m}, rules.ReviewSampling)
				l.add(council.Stage2, m, prompt+review, rules.ReviewSampling)
			}
		}
		l.reviews = replySize(s.Seats, rules.ReviewSampling)
	case council.KindComparison:
		for _, m := range s.Seats {
			l.add(council.StageShadow, m, prompt+textSize(s.Given), rules.ReviewSampling)
		}
	case council.KindSynthesis:
		if len(s.Seats) > 0 {
			l.addFinal(council.Stage3, s.Seats[0], prompt+l.reviews)
		}
	}
}

// addSides adds the calls of the sides, which look at the answers.
func (l *callList) addSides() {
	for _, side := range l.plan.Sides {
		stage := council.Stage(side.Name)
		for range side.Seats {
			if side.EmbedBytes > 0 {
				bytes := overhead + side.EmbedBytes + int64(len(side.Member.Model))
				l.all = append(l.all, planned{stage, side.Member.Model, bytes, new(int)})
			} else {
				l.add(stage, side.Member, l.question+promptOverhead+l.answers, l.plan.Rules.ReviewSampling)
			}
		}
	}
}

// addFinal adds the call for the final answer, and where that has a schema, its repair.
func (l *callList) addFinal(stage council.Stage, m council.Member, bytes int64) {
	sampling := l.plan.Rules.Sampling
	if l.plan.Output == nil {
		l.add(stage, m, bytes, sampling)
		return
	}
	bytes += promptOverhead + schemaCopies*int64(len(l.plan.Output.Schema))
	l.add(stage, m, bytes, sampling)
	l.add(stage, m, bytes+replySize([]council.Member{m}, sampling), sampling)
}

func (l *callList) add(stage council.Stage, m council.Member, bytes int64, sampling council.Sampling) {
	if p := m.Profile; p != nil {
		body, _ := json.Marshal(p) // it holds JSON
		bytes += int64(len(body))
	}
	l.all = append(l.all, planned{stage, m.Model, bytes + int64(len(m.Model)), m.Sampling(sampling).MaxOutputTokens})
}

// replySize returns how long the replies of members are together, at most.
func replySize(members []council.Member, sampling council.Sampling) (bytes int64) {
	for _, m := range members {
		limit := m.Sampling(sampling).MaxOutputTokens
		if limit == nil {
			return endless
		}
		bytes += bytesPerToken * int64(*limit)
	}
	return bytes
}

// textSize returns how long texts are as JSON, at most.
func textSize(texts map[string]string) (bytes int64) {
	for _, text := range texts {
		data, _ := json.Marshal(text) // texts can be encoded
		bytes += int64(len(data))
	}
	return bytes
}

// upper returns the most that the calls cost together, nil where that is not known of one.
func (b *Book) upper(all []planned) *USD {
	var sum USD
	for _, c := range all {
		tariff, ok := b.o.Tariff(c.model)
		if !ok || c.limit == nil || c.bytes < 0 {
			return nil
		}
		b.mu.Lock()
		over := b.over[c.model]
		b.mu.Unlock()
		sum = sum.Plus(over.raise(tariff.Bound(c.bytes, int64(*c.limit))))
	}
	return &sum
}

// expected returns what the calls cost together, as earlier ones did, nil where too few are known.
func (b *Book) expected(all []planned) *USD {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum USD
	for _, c := range all {
		median, ok := b.costsLocked(c.model, string(c.stage)).median()
		if !ok {
			return nil
		}
		sum = sum.Plus(median)
	}
	return &sum
}

// Opening returns what is known of the session of a plan before its first call.
func (b *Book) Opening(plan council.Plan) Opening {
	o := Opening{
		Session:   plan.SessionID,
		Token:     plan.Token,
		User:      plan.User,
		Council:   plan.CouncilLabel(),
		MaxTokens: plan.MaxTotalTokens,
		Shares:    map[council.Stage]int64{},
	}
	share := func(stage council.Stage, end float64) { o.Shares[stage] = int64(math.Round(100 * end)) } //nolint:mnd // percent
	var seats []council.Member
	for _, s := range plan.Stages {
		if s.Kind.Stage() != "" {
			share(s.Kind.Stage(), s.MoneyEnd)
			seats = append(seats, s.Seats...)
		}
	}
	for _, side := range plan.Sides {
		share(council.Stage(side.Name), side.MoneyEnd)
		if len(side.Seats) > 0 {
			seats = append(seats, side.Member)
		}
	}
	if plan.MaxCostUSD != nil {
		o.Limit = new(FromFloat(*plan.MaxCostUSD))
	}
	for _, m := range seats {
		if !slices.Contains(o.Models, m.Model) {
			o.Models = append(o.Models, m.Model)
		}
	}
	if !b.o.Hard && !b.HasDayLimit() {
		return o // nobody needs the rest
	}
	all := calls(plan)
	o.Upper = b.upper(all)
	o.First = b.upper(slices.DeleteFunc(all, func(c planned) bool { return c.stage != council.Stage1 }))
	return o
}

// Estimate returns what the session of a plan may cost.
func (b *Book) Estimate(plan council.Plan) Estimate {
	all := calls(plan)
	o := b.Opening(plan)
	e := Estimate{
		Calls:    len(all),
		Upper:    b.upper(all),
		Expected: b.expected(all),
		ByStage:  map[string]Figure{},
		ByModel:  map[string]Figure{},
		Unpriced: append([]string{}, b.unpriced(o.Models)...),
		Limits:   b.Limits(plan.Token),
	}
	part := func(is func(planned) bool) Figure {
		some := slices.DeleteFunc(slices.Clone(all), func(c planned) bool { return !is(c) })
		return Figure{Calls: len(some), Upper: b.upper(some), Expected: b.expected(some)}
	}
	for _, c := range all {
		e.ByStage[string(c.stage)] = part(func(d planned) bool { return d.stage == c.stage })
		e.ByModel[c.model] = part(func(d planned) bool { return d.model == c.model })
	}
	s := &Account{Opening: o, day: b.today()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if failure := b.refusalLocked(b.limited(s)); failure != nil {
		e.Refusal = new(failure.Explain())
	}
	e.Fits = e.Refusal == nil
	if s.Limit != nil {
		e.Limits = append([]Limit{{Scope: ScopeSession, Limit: *s.Limit, Left: *s.Limit}}, e.Limits...)
	}
	return e
}
