package trial

import (
	"maps"
	"slices"

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
	Answer  string            `json:"answer"`
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
	Answer     string   `json:"answer,omitempty"` // set if the arm writes an answer of its own
	Failed     bool     `json:"failed"`
	Fallback   bool     `json:"fallback"` // true if the chairman failed and a fallback wrote the answer
	Score      *float64 `json:"score"`
	Ungradable bool     `json:"ungradable"`
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

// written returns the arm of a session's final answer. The argument before is the bill of the earlier calls on which
// the answer is based. The result own is the bill of the final answer alone.
func written(s *council.Session, before bill) (arm *Arm, own bill) {
	own = bill{usage: council.NoUsage()}
	arm = &Arm{Failed: s.Stage3 == nil || s.Stage3.Status == council.OutcomeError}
	if s.Stage3 != nil {
		own.add(s.Stage3.Spent)
		arm.Fallback = s.Stage3.Status == council.OutcomeFallback
		arm.Answer = s.Stage3.Response
	}
	all := before.plus(own)
	arm.CostUSD = all.cost()
	arm.Calls = all.calls
	return arm, own
}

// result returns the result of a question from the council and the arms that ran. The result holds no times, so that
// the same outcomes of calls give the same line.
func result(q Question, plan council.Plan, ran []pipeline.ArmResult) Result {
	session := ran[0].Session
	r := Result{
		Record:   "question",
		ID:       q.ID,
		Group:    q.Group,
		Labels:   q.Labels,
		Status:   session.Status,
		Session:  plan.SessionID,
		Answer:   session.Answer,
		Arms:     map[string]*Arm{},
		Members:  []Member{},
		Ballots:  []ranking.Vote{},
		Seed:     plan.Seed,
		Versions: plan.Versions,
	}
	if ran[0].Failure != nil {
		r.Error = string(ran[0].Failure.Code) + ": " + ran[0].Failure.Detail
		r.Answer = ""
	}
	none := bill{usage: council.NoUsage()}
	answers := none
	reviews := none
	var authors []string
	for _, a := range session.Stage1 {
		answers.add(a.Spent)
		one := none
		one.add(a.Spent)
		r.Members = append(r.Members, Member{ID: a.Model, Answer: a.Response})
		if a.Status == council.OutcomeOK {
			authors = append(authors, a.Model)
		}
		r.Arms[armMember+a.Model] = &Arm{Failed: a.Status != council.OutcomeOK, CostUSD: one.cost(), Calls: 1}
	}
	twins := plan.TwinsAmong(authors)
	for _, v := range session.Stage2 {
		reviews.add(v.Spent)
		if v.Repair != nil {
			reviews.calls++
		}
		if v.Status == council.OutcomeOK {
			r.Ballots = append(r.Ballots, pipeline.Vote(v, twins))
		}
	}
	panel := answers.plus(reviews)
	treatment, own := written(session, panel)
	treatment.Failed = treatment.Failed || ran[0].Failure != nil
	treatment.Answer = "" // r.Answer has it.
	total := panel.plus(own)
	r.Arms[ArmCouncil] = treatment
	if q.grader != nil {
		none := !slices.ContainsFunc(r.Members, func(m Member) bool { return m.Answer != nil })
		r.Arms[ArmVote] = &Arm{Failed: none, CostUSD: answers.cost(), Calls: answers.calls}
	}
	r.Arms[ArmRanked] = &Arm{Failed: len(r.Ballots) == 0, CostUSD: panel.cost(), Calls: panel.calls}
	for _, ar := range ran[1:] {
		base := panel // for a placebo
		switch ar.Kind {
		case pipeline.ArmPlacebo:
		case pipeline.ArmSynthesis:
			base = answers
		case pipeline.ArmEnsemble:
			base = none
			for _, a := range ar.Session.Stage1 {
				base.add(a.Spent)
			}
			total = total.plus(base)
		}
		arm, own := written(ar.Session, base)
		arm.Failed = arm.Failed || ar.Failure != nil
		total = total.plus(own)
		r.Arms[string(ar.Kind)] = arm
	}
	r.Usage = total.usage
	return r
}

// grade sets the scores of the members and arms. It does nothing if the question has no right answer.
func (r *Result) grade(q Question, policy council.PartialPolicy) {
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
	for name, arm := range r.Arms {
		switch {
		case name == ArmCouncil:
			arm.Score, arm.Ungradable = score(r.Answer, arm.Failed)
			r.Score = arm.Score
			r.Ungradable = arm.Ungradable
		case name == ArmVote:
			arm.Score = Vote(r.Members)
			arm.Ungradable = arm.Score == nil && !arm.Failed
		case name == ArmRanked:
			arm.Score = first(r.Members, r.Ballots, policy)
			arm.Ungradable = arm.Score == nil && !arm.Failed
		case arm.Answer != "":
			arm.Score, arm.Ungradable = score(arm.Answer, arm.Failed)
		}
	}
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

// first returns the score of the first answer by Borda count. If several answers share the first place, it returns the
// mean of their scores, in which an ungradable answer counts 0. It returns nil if none of them can be graded.
func first(members []Member, votes []ranking.Vote, policy council.PartialPolicy) *float64 {
	o := ranking.Options{Votes: votes, Policy: policy}
	scores := map[string]*float64{}
	for _, m := range members {
		if m.Answer != nil {
			o.Candidates = append(o.Candidates, m.ID)
			scores[m.ID] = m.Score
		}
	}
	var sum, n float64
	gradable := false
	for _, st := range ranking.Tally(o).Standings {
		if st.FinalRank == nil || *st.FinalRank != 1 {
			continue
		}
		n++
		if s := scores[st.Model]; s != nil {
			sum += *s
			gradable = true
		}
	}
	if !gradable {
		return nil
	}
	return new(sum / n)
}
