package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage1"
)

// Pick says which member's answer a mode without a chairman takes from the answers and reviews of a session. Of equal
// answers, the seed of the plan draws one. Pick returns council.RuleNone if no member has an answer that the mode can
// take.
func Pick(mode council.Mode, plan council.Plan, s *council.Session) council.AnswerFrom {
	rule := council.RuleOnly
	votes := 0
	var best []string
	switch mode {
	case council.ModeRanked:
		rule = council.RuleTop
		for _, st := range s.Metadata.AggregateRankings {
			if st.FinalRank != nil && *st.FinalRank == 1 {
				best = append(best, st.Model)
			}
		}
	case council.ModeVote:
		rule = council.RuleCommonest
		best, votes = commonest(plan.Form, s.Stage1)
	case council.ModeCouncil, council.ModeSynthesis, council.ModeSingle, council.ModeJudge, council.ModeTask:
	}
	if best == nil && mode != council.ModeVote {
		if mode == council.ModeRanked {
			rule = council.RuleFirst
		}
		for _, a := range s.Stage1 {
			if a.Status == council.OutcomeOK && best == nil {
				best = []string{a.Model}
			}
		}
	}
	if best == nil {
		return council.AnswerFrom{Rule: council.RuleNone, Tied: []string{}}
	}
	from := council.AnswerFrom{Rule: rule, Model: anonymize.One(plan.Seed, best), Tied: []string{}, Votes: votes}
	for _, member := range best {
		if member != from.Model {
			from.Tied = append(from.Tied, member)
		}
	}
	return from
}

// commonest returns, for each of the most frequent answers, the first member that gave it. The result votes is how many
// members gave each of these answers.
func commonest(spec *council.AnswerForm, answers []council.Answer) (members []string, votes int) {
	count := map[string]int{}
	forms := formsOf(spec, answers)
	for _, form := range forms {
		if form != "" {
			count[form]++
			votes = max(votes, count[form])
		}
	}
	for i, form := range forms {
		if form != "" && count[form] == votes && slices.Index(forms, form) == i {
			members = append(members, answers[i].Model)
		}
	}
	return members, votes
}

// formsOf returns what each answer says in the form, or "" for an answer that failed or cannot be read.
func formsOf(spec *council.AnswerForm, answers []council.Answer) []string {
	forms := make([]string, len(answers))
	if spec == nil {
		return forms
	}
	form, err := stage1.NewForm(*spec)
	if err != nil { // Prepare accepts only valid forms.
		return forms
	}
	for i, a := range answers {
		if a.Status == council.OutcomeOK {
			forms[i], _ = form.Read(*a.Response)
		}
	}
	return forms
}

// First says whether the answers of the members that began decide a session. The argument answers has their answers in
// the order of the members.
func First(plan council.Plan, answers []council.Answer) council.FirstAsked {
	first := council.FirstAsked{Asked: []string{}, Why: council.FirstSame}
	forms := formsOf(plan.Form, answers)
	failed := false
	for _, a := range answers {
		first.Asked = append(first.Asked, a.Model)
		failed = failed || a.Status != council.OutcomeOK
	}
	switch {
	case failed:
		first.Why = council.FirstFailed
	case len(answers) == 1:
		first.Why = council.FirstAlone
	case slices.Contains(forms, ""):
		first.Why = council.FirstUnreadable
	default:
		first.Same = new(len(slices.Compact(forms)) == 1)
		if !*first.Same {
			first.Why = council.FirstDifferent
		}
	}
	first.Convened = first.Why != council.FirstSame && first.Why != council.FirstAlone
	return first
}

// pick makes the answer of a member the answer of the session, if no chairman has written it.
func (r *run) pick(ctx context.Context) *council.Error {
	s := r.session
	switch {
	case s.AnswerFrom.Rule != council.RuleNone, r.plan.Mode == council.ModeJudge,
		r.plan.Seats(council.KindVotes) != nil, r.plan.Task != nil: // Judges, votes and tasks give no answer.
		return nil
	case r.decided():
		s.AnswerFrom = council.AnswerFrom{Rule: council.RuleFirst, Model: r.authors[0], Tied: []string{}}
	default:
		s.AnswerFrom = Pick(r.plan.Mode, r.plan, s)
		if r.plan.Mode == council.ModeRanked && s.AnswerFrom.Rule == council.RuleFirst && len(s.Degradation) == 0 {
			r.degrade(council.Stage2, s.AnswerFrom.Model, &council.Failure{
				Code: council.FailInvalidBallot, Message: "no ballot can be counted, so its answer was not compared",
			})
		}
	}
	if s.AnswerFrom.Rule == council.RuleNone {
		return &council.Error{
			Code: council.CodeNoValidOutput, Detail: fmt.Sprintf(
				"no answer has the form %s, so nothing can be counted: ask for another form, or in another mode; the session has the answers", r.plan.Form.Type,
			),
		}
	}
	if len(s.AnswerFrom.Tied) > 0 && s.AnswerFrom.Rule == council.RuleCommonest {
		r.warn(council.WarnVoteTied, "several answers are equally frequent, and the seed drew that of "+s.AnswerFrom.Model+
			"; the others are those of "+strings.Join(s.AnswerFrom.Tied, ", "))
	}
	s.Answer = r.answers[s.AnswerFrom.Model]
	if r.plan.Deltas && r.plan.Mode != council.ModeSingle { // A single answer was shown as it arrived.
		if len(r.state.Entries) > 0 { // An earlier process may have shown the answer.
			r.observe(council.EventRestart, council.Restart{Model: s.AnswerFrom.Model, Reason: council.FailInterrupted})
		}
		r.observe(council.EventDelta, council.Delta{Text: s.Answer})
	}
	return r.stop(ctx)
}

// decided reports whether the members that began have decided the session, so that no other stage runs.
func (r *run) decided() bool {
	first := r.session.Metadata.First
	return first != nil && !first.Convened
}
