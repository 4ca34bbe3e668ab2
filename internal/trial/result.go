package trial

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/ranking"
)

// The arms that need no calls besides the calls of the council. The kinds of all other arms are in pipeline.ArmKind.
const (
	ArmCouncil = "council" // the council itself, which is the treatment
	ArmBest    = "best"    // the best member
	ArmVote    = "vote"    // the most frequent answer of the members, or the mean score if several are equally frequent
	ArmRanked  = "ranked"  // the first answer by Borda count, or the mean score if several share the first place
	armMember  = "member:" // Followed by a member's id, it names the arm of that member alone.
	// Followed by a number n, it names the arm in which n members begin. The others are asked only if the first answers
	// differ.
	armFirst = "first:"
)

// Result is the result of a question. It is a line in the results file.
type Result struct {
	Record  string            `json:"record"` // always "question"
	ID      string            `json:"id"`
	Group   string            `json:"group,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Status  council.Status    `json:"status"`
	Error   string            `json:"error,omitempty"` // why the council has no answer
	Session string            `json:"session_id"`
	Mode    council.Mode      `json:"mode"` // "" in files of older versions
	// First says what the members that began decided. It is nil if all members were asked at once.
	First      *council.FirstAsked `json:"first,omitempty"`
	Answer     string              `json:"answer"`
	AnswerFrom council.AnswerFrom  `json:"answer_from"` // where Answer comes from
	// Score is from 0 to 1. It is null if there is no right answer, or if the answer failed or is ungradable. In a
	// comparison, it is null until the end of the run.
	Score      *float64 `json:"score"`
	Ungradable bool     `json:"ungradable"`
	// Arms has the result of each arm, by name.
	Arms     map[string]*Arm      `json:"arms"`
	Members  []Member             `json:"members"`          // in the order of the plan
	Ballots  []ranking.Vote       `json:"ballots"`          // the ballots that count
	Judged   map[string]Judgement `json:"judged,omitempty"` // by arm, if there are judges
	Usage    council.Usage        `json:"usage"`            // the sum of all calls of the question
	Seed     int64                `json:"seed"`
	Versions council.Versions     `json:"versions"`
}

// Arm is the result of one arm for a question.
type Arm struct {
	Answer string `json:"answer,omitempty"` // set if the arm writes an answer of its own
	// AnswerFrom says which answer an arm without a text of its own takes. With RuleWritten, it is that of the council, and
	// otherwise that of a member. It is nil for the council, the members, and a vote on answers without a form.
	AnswerFrom *council.AnswerFrom `json:"answer_from,omitempty"`
	Failed     bool                `json:"failed"`
	Fallback   bool                `json:"fallback"` // true if the chairman failed and a fallback wrote the answer
	Score      *float64            `json:"score"`
	Ungradable bool                `json:"ungradable"`
	// CostUSD is the cost that the arm would have alone. It is null if the cost is not known.
	CostUSD *float64 `json:"cost_usd"`
	Calls   int      `json:"calls"` // the number of calls that the arm would make alone
}

// Member is the answer of a member.
type Member struct {
	ID         string   `json:"id"`
	Answer     *string  `json:"answer"` // null if the member failed
	Score      *float64 `json:"score"`
	Form       string   `json:"form"` // the answer as the vote counts it, or "" if the vote skips it
	Ungradable bool     `json:"ungradable"`
}

// bill is the number of calls and their usage.
type bill struct {
	usage council.Usage
	calls int
}

func (b *bill) add(s council.Spent) {
	b.usage = b.usage.Plus(s.Usage)
	b.calls++
}

func (b bill) plus(c bill) bill { return bill{b.usage.Plus(c.usage), b.calls + c.calls} }

// cost returns how much the calls cost, in US dollars. It returns nil if the cost of any call is unknown.
func (b bill) cost() *float64 {
	if b.usage.Partial {
		return nil
	}
	return b.usage.CostUSD
}

// answered returns the bill of answers.
func answered(answers []council.Answer) bill {
	b := bill{usage: council.NoUsage()}
	for _, a := range answers {
		b.add(a.Spent)
	}
	return b
}

// written returns the arm of a session's final answer. The argument before is the bill of the earlier calls on which
// the answer is based. The result own is the bill of the final answer alone.
func written(ran pipeline.ArmResult, before bill) (arm *Arm, own bill) {
	s := ran.Session
	own = bill{usage: council.NoUsage()}
	arm = &Arm{Failed: ran.Failure != nil || s.Answer == "", Answer: s.Answer}
	if s.Stage3 != nil {
		own.add(s.Stage3.Spent)
		arm.Fallback = s.Stage3.Status == council.OutcomeFallback
	}
	all := before.plus(own)
	arm.CostUSD = all.cost()
	arm.Calls = all.calls
	return arm, own
}

// sides returns the bill of the session's sides, which look at the answers. Only modes with reviews have sides.
func sides(plan council.Plan, s *council.Session) bill {
	b := bill{usage: council.NoUsage()}
	for _, side := range plan.Sides {
		if usage, ok := s.Metadata.Usage.ByStage[council.Stage(side.Name)]; ok {
			b.usage = b.usage.Plus(usage)
			b.calls += len(side.Seats)
		}
	}
	return b
}

// result returns the result of a question from the council and the arms that ran. The argument arms names all arms of
// the plan. The result holds no times, so that the same outcomes of calls give the same line.
func result(q Question, plan council.Plan, arms []string, ran []pipeline.ArmResult) Result {
	session := ran[0].Session
	r := Result{
		Record:     "question",
		ID:         q.ID,
		Group:      q.Group,
		Labels:     q.Labels,
		Status:     session.Status,
		Session:    plan.SessionID,
		Mode:       plan.Mode,
		First:      session.Metadata.First,
		Answer:     session.Answer,
		AnswerFrom: session.AnswerFrom,
		Arms:       map[string]*Arm{},
		Members:    []Member{},
		Ballots:    []ranking.Vote{},
		Seed:       plan.Seed,
		Versions:   plan.Versions,
	}
	if ran[0].Failure != nil {
		r.Error = string(ran[0].Failure.Code) + ": " + ran[0].Failure.Detail
		r.Answer = ""
	}
	answers := r.addMembers(session.Stage1)
	panel := answers.plus(r.addReviews(plan, session)).plus(sides(plan, session))
	treatment, own := written(ran[0], panel)
	treatment.Answer = "" // r.Answer has it.
	total := panel.plus(own)
	r.Arms[ArmCouncil] = treatment
	if !r.endedAfterFirst() {
		if q.grader != nil {
			r.Arms[ArmVote] = picked(council.ModeVote, plan, session, answers)
		}
		if plan.Mode.Reviews() {
			r.Arms[ArmRanked] = picked(council.ModeRanked, plan, session, panel)
		}
	}
	for _, name := range arms {
		if n, ok := firstOf(name); ok {
			r.Arms[name] = first(n, plan, session, *treatment)
		}
	}
	for _, ar := range ran[1:] {
		base := panel // for a placebo
		switch ar.Kind {
		case pipeline.ArmPlacebo:
		case pipeline.ArmSynthesis:
			base = answers
		case pipeline.ArmEnsemble:
			base = answered(ar.Session.Stage1)
			total = total.plus(base)
		}
		arm, own := written(ar, base)
		total = total.plus(own)
		r.Arms[string(ar.Kind)] = arm
	}
	r.Usage = total.usage
	return r
}

// addMembers adds the members and their arms, and returns the bill of their answers.
func (r *Result) addMembers(answers []council.Answer) bill {
	for i, a := range answers {
		one := answered(answers[i : i+1])
		r.Members = append(r.Members, Member{ID: a.Model, Answer: a.Response})
		r.Arms[armMember+a.Model] = &Arm{Failed: a.Status != council.OutcomeOK, CostUSD: one.cost(), Calls: one.calls}
	}
	return answered(answers)
}

// addReviews adds the ballots that count, and returns the bill of all reviews.
func (r *Result) addReviews(plan council.Plan, s *council.Session) bill {
	b := bill{usage: council.NoUsage()}
	twins := plan.TwinsAmong(authors(s))
	for _, v := range s.Stage2 {
		b.add(v.Spent)
		if v.Repair != nil {
			b.calls++
		}
		if v.Status == council.OutcomeOK {
			r.Ballots = append(r.Ballots, pipeline.Vote(v, twins))
		}
	}
	return b
}

// authors returns the members that answered.
func authors(s *council.Session) (ids []string) {
	for _, a := range s.Stage1 {
		if a.Status == council.OutcomeOK {
			ids = append(ids, a.Model)
		}
	}
	return ids
}

// endedAfterFirst reports whether the session ended with the answer of the members that began.
func (r *Result) endedAfterFirst() bool { return r.First != nil && !r.First.Convened }

// picked returns the arm of a mode without a chairman, with the answer that a session in that mode would give. The
// argument spent is the bill of that session.
func picked(mode council.Mode, plan council.Plan, s *council.Session, spent bill) *Arm {
	arm := &Arm{CostUSD: spent.cost(), Calls: spent.calls}
	arm.Failed = len(authors(s)) < pipeline.Quorum(plan.Rules.Quorum, len(plan.Members()))
	if plan.OnPartial == council.PartialRefuse {
		arm.Failed = arm.Failed || slices.ContainsFunc(s.Degradation, func(d council.Degradation) bool {
			return d.Stage == council.Stage1 || d.Stage == council.Stage2 && mode.Reviews()
		})
	}
	if mode == council.ModeVote && plan.Form == nil { // No session could vote. grade counts the answers that a regex reads.
		return arm
	}
	from := pipeline.Pick(mode, plan, s)
	arm.Failed = arm.Failed || from.Rule == council.RuleNone
	arm.AnswerFrom = &from
	return arm
}

// firstOf returns the number n of the arm "first:n". It returns false for another arm.
func firstOf(arm string) (n int, ok bool) {
	text, ok := strings.CutPrefix(arm, armFirst)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && strconv.Itoa(n) == text
}

// first returns the arm in which n members begin. If their answers decide, the arm has the answer of the first one, and
// only these calls. Otherwise it is the council, whose arm is the argument whole.
func first(n int, plan council.Plan, s *council.Session, whole Arm) *Arm {
	if plan.Form == nil || len(s.Stage1) < n || pipeline.First(plan, s.Stage1[:n]).Convened {
		whole.AnswerFrom = new(s.AnswerFrom)
		return &whole
	}
	begun := answered(s.Stage1[:n])
	return &Arm{
		AnswerFrom: &council.AnswerFrom{Rule: council.RuleFirst, Model: s.Stage1[0].Model, Tied: []string{}},
		CostUSD:    begun.cost(),
		Calls:      begun.calls,
	}
}

// text returns the answer of an arm, or "" if the arm failed.
func (r *Result) text(name string) string {
	arm := r.Arms[name]
	id, isMember := strings.CutPrefix(name, armMember)
	switch {
	case arm == nil || arm.Failed:
		return ""
	case name == ArmCouncil:
		return r.Answer
	case isMember:
	case arm.AnswerFrom == nil:
		return arm.Answer
	case arm.AnswerFrom.Rule == council.RuleWritten:
		return r.Answer
	default:
		id = arm.AnswerFrom.Model
	}
	for _, m := range r.Members {
		if m.ID == id && m.Answer != nil {
			return *m.Answer
		}
	}
	return ""
}

// grade sets the scores of the members and arms. It does nothing if the question has no right answer.
func (r *Result) grade(q Question) {
	if q.grader == nil {
		return
	}
	score := func(text string, failed bool) (*float64, bool) {
		if failed {
			return nil, false
		}
		g := q.grader.Grade(text)
		return g.Score, g.Score == nil
	}
	for i := range r.Members {
		m := &r.Members[i]
		arm := r.Arms[armMember+m.ID]
		if m.Answer != nil {
			m.Score, m.Ungradable = score(*m.Answer, false)
			m.Form = q.grader.form(*m.Answer)
		}
		arm.Score = m.Score
		arm.Ungradable = m.Ungradable
	}
	whole := r.Arms[ArmCouncil]
	whole.Score, whole.Ungradable = score(r.Answer, whole.Failed)
	r.Score = whole.Score
	r.Ungradable = whole.Ungradable
	for name, arm := range r.Arms {
		from := arm.AnswerFrom
		switch {
		case arm.Answer != "":
			arm.Score, arm.Ungradable = score(arm.Answer, arm.Failed)
		case arm.Failed:
		case from != nil && from.Rule == council.RuleWritten:
			arm.Score = whole.Score
			arm.Ungradable = whole.Ungradable
		case from != nil:
			arm.Score = meanScore(r.Members, *from)
			arm.Ungradable = arm.Score == nil
		case name == ArmVote:
			arm.Score = Vote(r.Members)
			arm.Ungradable = arm.Score == nil
		}
	}
}

// meanScore returns the score of a member's answer, or the mean score of this answer and all answers that are tied with
// it. In the mean, an ungradable answer counts 0. meanScore returns nil if none of these answers can be graded.
func meanScore(members []Member, from council.AnswerFrom) *float64 {
	sum := 0.0
	gradable := false
	for _, m := range members {
		if m.Score != nil && (m.ID == from.Model || slices.Contains(from.Tied, m.ID)) {
			sum += *m.Score
			gradable = true
		}
	}
	if !gradable {
		return nil
	}
	return new(sum / float64(1+len(from.Tied)))
}

// Vote returns the score of the members' most frequent answer. Answers with the same Form count as the same answer, and
// answers without a Form do not count. If several answers are equally frequent, Vote returns the mean of their scores.
// It returns nil if no answer has a Form. An answer with a Form must have a score.
func Vote(members []Member) *float64 {
	count := map[string]int{}
	scores := map[string]float64{}
	for _, m := range members {
		if m.Form != "" {
			count[m.Form]++
			scores[m.Form] = *m.Score
		}
	}
	if len(count) == 0 {
		return nil
	}
	most := slices.Max(slices.Collect(maps.Values(count)))
	var sum, forms float64
	for form, n := range count {
		if n == most {
			sum += scores[form]
			forms++
		}
	}
	return new(sum / forms)
}
