package spend

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Estimate says, before a session begins, what the session may cost. Upper figures do not include retries. A figure is
// null if it is not known.
type Estimate struct {
	Mode  council.Mode `json:"mode"`
	Calls int          `json:"calls"` // number of calls if nothing fails
	// LeastCalls is the number of calls if the members that begin decide the session. LeastUSD is the most that these
	// calls cost. If all members are asked at once, they equal Calls and Upper.
	LeastCalls int  `json:"least_calls"`
	LeastUSD   *USD `json:"least_usd"`
	// Upper is the most that these calls cost, if answers have at most 8 bytes per token.
	Upper *USD `json:"upper_usd"`
	// Expected adds up, for all calls, the median cost of earlier calls of the same model in the same stage.
	Expected *USD              `json:"expected_usd"`
	ByStage  map[string]Figure `json:"by_stage"`
	ByModel  map[string]Figure `json:"by_model"`
	// ByMode has the figures of the same question in each mode that is valid for it. It is nil if the caller did not
	// ask for it.
	ByMode   map[council.Mode]Figure `json:"by_mode,omitempty"`
	Unpriced []string                `json:"unpriced"` // models whose prices are not known
	Limits   []Limit                 `json:"limits"`   // the limits of the session, the day and the caller's token
	// Fits reports whether a session would begin now.
	Fits bool `json:"fits"`
	// Refusal says which limit keeps a session from beginning now, and what to do. It is null if Fits is true.
	Refusal *string `json:"refusal"`
	// Sentence says how many calls the session makes and what they cost: "9 calls, about $0.32, at most $0.60."
	// UsualSentence says it of any question. RestSentence says it of the calls that follow if the members that begin do
	// not decide the session. It is "" if all members are asked at once.
	Sentence      string `json:"sentence"`
	UsualSentence string `json:"usual_sentence"`
	RestSentence  string `json:"rest_sentence"`
	// BudgetSentence says whether the session fits into the limits. It is "" without a limit.
	BudgetSentence string `json:"budget_sentence"`
	// LimitSentence says what a cost limit of a session does.
	LimitSentence string `json:"limit_sentence"`

	why  string // Refusal for a reader who does not know the names of fields and settings
	rest *USD   // the expected cost of the calls after the members that begin, or nil
}

// Figure is the part of an estimate for one stage or one model.
type Figure struct {
	Calls    int  `json:"calls"`
	Upper    *USD `json:"upper_usd"`
	Expected *USD `json:"expected_usd"`
}

const (
	// bytesPerToken is more than the average in nearly all texts.
	bytesPerToken = 8
	// overhead is an upper bound for the bytes of a request without its texts. promptOverhead is an upper bound for
	// the bytes of a reviewer's or the chairman's prompt without the texts that the prompt quotes.
	overhead, promptOverhead = 512, 16 << 10
	// A schema takes at most schemaCopies times its length in a request. The request holds the schema once as the
	// format. The prompt repeats it as an escaped JSON text, which is at most twice as long.
	schemaCopies = 3
	// endless stands for the length of a reply without a limit. Sums with endless stay negative.
	endless = math.MinInt64 / 8
)

// planned is a call that a session makes if nothing fails.
type planned struct {
	stage council.Stage
	model string
	bytes int64 // the most bytes of its body; negative if that is not known
	limit *int  // the most output tokens, or nil
}

// calls returns the calls of a plan.
func calls(plan council.Plan) []planned {
	text, _ := json.Marshal(plan.Asked()) // texts can always be encoded
	l := callList{plan: plan, question: int64(len(text)) + overhead}
	for _, s := range plan.Stages {
		l.addStage(s)
		if s.Kind == council.KindAnswers || s.Kind == council.KindGiven && plan.Seats(council.KindAnswers) == nil {
			l.addSides()
		}
	}
	return l.all
}

// callList collects the calls of a plan, stage by stage. All lengths are upper bounds, in bytes.
type callList struct {
	plan     council.Plan
	question int64 // the length of a request with the question alone
	answers  int64 // the answers of all earlier stages together
	reviews  int64 // the reviews of all earlier stages together
	all      []planned
}

func (l *callList) addStage(s council.StagePlan) {
	rules := l.plan.Rules
	prompt := l.question + promptOverhead + l.answers
	switch s.Kind {
	case council.KindAnswers:
		for _, m := range s.Seats {
			if l.plan.Mode == council.ModeSingle {
				l.addFinal(council.Stage1, m, l.question)
			} else {
				l.add(council.Stage1, m, l.question, rules.Sampling)
			}
		}
		l.answers += replySize(s.Seats, rules.Sampling)
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
	case council.KindVotes:
		questions, _ := json.Marshal(s.Questions) // texts can always be encoded
		for _, m := range s.Seats {
			l.add(council.StageVotes, m, prompt+schemaCopies*int64(len(questions)), rules.ReviewSampling)
		}
	case council.KindTask1, council.KindTask2:
		l.addRound(s)
	case council.KindSynthesis:
		if len(s.Seats) > 0 {
			l.addFinal(council.Stage3, s.Seats[0], prompt+l.reviews)
		}
	}
}

// addRound adds the calls of one round of a Task. Each prompt has the input and the replies of the round before.
func (l *callList) addRound(s council.StagePlan) {
	task := l.plan.Task
	if task == nil || task.Idle {
		return
	}
	sampling := l.plan.Rules.Sampling
	if s.Kind == council.KindTask2 {
		sampling = l.plan.Rules.ReviewSampling
	}
	for _, m := range s.Seats {
		l.add(s.Kind.Stage(), m, l.question+promptOverhead+int64(len(task.Input))+l.answers, sampling)
	}
	l.answers += replySize(s.Seats, sampling)
}

// addSides adds the calls of the additional analyses (council.Side), which read the answers.
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

// addFinal adds the call for the final answer. If the answer must fit a schema, addFinal also adds the call that
// repairs the answer.
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

// replySize returns the most bytes that the replies of members have together.
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

// textSize returns the most bytes that texts have together as JSON.
func textSize(texts map[string]string) (bytes int64) {
	for _, text := range texts {
		data, _ := json.Marshal(text) // texts can always be encoded
		bytes += int64(len(data))
	}
	return bytes
}

// upper returns the most that the calls can cost together. It is nil if the most that a call can cost is not known.
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

// expected returns the expected cost of all calls together. The expected cost of a call is the median cost of earlier
// calls of the same model in the same stage. The result is nil if a model has had too few calls in a stage.
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

// Opening returns the Opening for the session of a plan.
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
		return o // only hard or daily limits need the rest
	}
	all := calls(plan)
	o.Upper = b.upper(all)
	begins := plan.FirstStage().Kind.Stage()
	o.First = b.upper(slices.DeleteFunc(all, func(c planned) bool { return c.stage != begins }))
	return o
}

// EstimateModes estimates the session of a request in each mode in which the request is valid. The result is the value
// of Estimate.ByMode.
func EstimateModes(
	r council.Request, prepare func(council.Request) (council.Plan, error), estimate func(council.Plan) Estimate,
) map[council.Mode]Figure {
	figures := map[council.Mode]Figure{}
	for _, mode := range council.Modes() {
		r.Mode = mode
		if plan, err := prepare(r); err == nil {
			e := estimate(plan)
			figures[mode] = Figure{Calls: e.Calls, Upper: e.Upper, Expected: e.Expected}
		}
	}
	return figures
}

// Estimate estimates what the session of a plan costs, and whether it would begin now.
func (b *Book) Estimate(plan council.Plan) Estimate {
	all := calls(plan)
	o := b.Opening(plan)
	least := all
	if n := plan.Begin(); n > 0 {
		least = all[:n] // Answers come first.
	}
	e := Estimate{
		Mode:  plan.Mode,
		Calls: len(all),
		Upper: b.upper(all),

		LeastCalls: len(least),
		LeastUSD:   b.upper(least),
		Expected:   b.expected(all),
		ByStage:    map[string]Figure{},
		ByModel:    map[string]Figure{},
		Unpriced:   append([]string{}, b.unpriced(o.Models)...),
		Limits:     b.Limits(plan.Token),
		rest:       b.expected(all[len(least):]),

		LimitSentence: LimitRule(b.o.Hard, "this"),
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
		e.why = b.why(e, s, failure)
	}
	e.Fits = e.Refusal == nil
	if s.Limit != nil {
		own := Limit{Scope: ScopeSession, Limit: *s.Limit, Left: *s.Limit, Hard: b.o.Hard}
		own.say()
		e.Limits = append([]Limit{own}, e.Limits...)
	}
	e.say()
	return e
}
