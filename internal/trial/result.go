package trial

import (
	"maps"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/ranking"
)

// The arms of a comparison that make no calls of their own beside the members and the reviewers; the others are those
// of pipeline.ArmKind, and "member:" with the id of a member.
const (
	ArmCouncil = "council" // the treatment, as in a session
	ArmBest    = "best"    // whichever member is the best
	ArmVote    = "vote"    // the commonest answer of the members; where several are, they share its score
	ArmRanked  = "ranked"  // the first by Borda; where several are, they share its score
	armMember  = "member:"
)

// Result is what came of a question: a line of the file of results.
type Result struct {
	Record  string            `json:"record"` // "question"
	ID      string            `json:"id"`
	Group   string            `json:"group,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Status  council.Status    `json:"status"`
	Error   string            `json:"error,omitempty"` // why the council has no answer
	Session string            `json:"session_id"`
	Answer  string            `json:"answer"`
	// Score is from 0 to 1, null where there is no right answer, or the answer failed or is ungradable. In a
	// comparison nothing is scored before its end.
	Score      *float64 `json:"score"`
	Ungradable bool     `json:"ungradable"`
	// Arms are what each way to answer the question came to, by name.
	Arms     map[string]*Arm      `json:"arms"`
	Members  []Member             `json:"members"`          // in the order of the plan
	Ballots  []ranking.Vote       `json:"ballots"`          // of reviewers whose ballots count
	Judged   map[string]Judgement `json:"judged,omitempty"` // by arm, where there are judges
	Usage    council.Usage        `json:"usage"`            // of all calls of the question
	Seed     int64                `json:"seed"`
	Versions council.Versions     `json:"versions"`
}

// Arm is what one way to answer a question came to.
type Arm struct {
	Answer     string   `json:"answer,omitempty"` // where the arm writes one of its own
	Failed     bool     `json:"failed"`
	Fallback   bool     `json:"fallback"` // the answer stands in for that of a chairman that failed
	Score      *float64 `json:"score"`
	Ungradable bool     `json:"ungradable"`
	CostUSD    *float64 `json:"cost_usd"` // of the arm alone; null: unknown
	Calls      int      `json:"calls"`    // likewise
}

// Member is the answer of a member.
type Member struct {
	ID         string   `json:"id"`
	Answer     *string  `json:"answer"` // null: it failed
	Score      *float64 `json:"score"`
	Form       string   `json:"form"` // the answer as it is counted; "": it has none
	Ungradable bool     `json:"ungradable"`
}

// bill is what calls came to.
type bill struct {
	usage council.Usage
	calls int
}

func (b *bill) add(s council.Spent) {
	b.usage = b.usage.Plus(s.Usage)
	b.calls++
}

func (b bill) plus(c bill) bill { return bill{b.usage.Plus(c.usage), b.calls + c.calls} }

// cost returns what calls cost, null where that is not known of each.
func (b bill) cost() *float64 {
	if b.usage.Partial {
		return nil
	}
	return b.usage.CostUSD
}

// written returns the arm of a final answer, which stands on calls that were made before, and what the answer itself took.
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

// result returns the line of a question. It is the same whenever the same calls came to the same: it holds no times.
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
	treatment.Answer = "" // it stands above
	total := panel.plus(own)
	r.Arms[ArmCouncil] = treatment
	if q.grader != nil {
		none := !slices.ContainsFunc(r.Members, func(m Member) bool { return m.Answer != nil })
		r.Arms[ArmVote] = &Arm{Failed: none, CostUSD: answers.cost(), Calls: answers.calls}
	}
	r.Arms[ArmRanked] = &Arm{Failed: len(r.Ballots) == 0, CostUSD: panel.cost(), Calls: panel.calls}
	for _, ar := range ran[1:] {
		base := panel // of a placebo
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

// grade grades what came of a question. Without a right answer it does nothing.
func (r *Result) grade(q Question, policy council.PartialPolicy) {
	if q.grader == nil {
		return
	}
	score := func(text string, failed bool) (*float64, string, bool) {
		if failed {
			return nil, "", false
		}
		g := q.grader.Grade(text)
		return g.Score, g.Form, g.Score == nil
	}
	for i := range r.Members {
		m := &r.Members[i]
		arm := r.Arms[armMember+m.ID]
		if m.Answer != nil {
			m.Score, m.Form, m.Ungradable = score(*m.Answer, false)
		}
		arm.Score = m.Score
		arm.Ungradable = m.Ungradable
	}
	for name, arm := range r.Arms {
		switch {
		case name == ArmCouncil:
			arm.Score, _, arm.Ungradable = score(r.Answer, arm.Failed)
			r.Score = arm.Score
			r.Ungradable = arm.Ungradable
		case name == ArmVote:
			arm.Score = Vote(r.Members)
			arm.Ungradable = arm.Score == nil && !arm.Failed
		case name == ArmRanked:
			arm.Score = first(r.Members, r.Ballots, policy)
			arm.Ungradable = arm.Score == nil && !arm.Failed
		case arm.Answer != "":
			arm.Score, _, arm.Ungradable = score(arm.Answer, arm.Failed)
		}
	}
}

// Vote returns the score of the commonest answer of members, or the mean of those that are as common; nil where no
// answer can be graded.
func Vote(members []Member) *float64 {
	count := map[string]int{}
	scores := map[string]float64{}
	for _, m := range members {
		if m.Score != nil {
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

// first returns the score of the first by Borda, or the mean of those that share the place, in which an answer that
// cannot be graded is wrong; nil where none of them can be graded.
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
