package pipeline

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
)

// Convene returns the plan of a new session in which the whole council answers the question of an earlier session. The
// arguments are the plan and the result of the earlier session, which ended with the answer of the members that began.
// Their answers are given, so no member is asked twice. The error is a *council.Error with CodeConflict, and says why
// the council cannot be convened.
func (p *Pipeline) Convene(plan council.Plan, session *council.Session) (council.Plan, error) {
	first := session.Metadata.First
	refuse := func(why string) (council.Plan, error) {
		return council.Plan{}, &council.Error{Code: council.CodeConflict, SessionID: plan.SessionID, Detail: why}
	}
	switch {
	case session.Status == council.StatusRunning:
		return refuse("the session still runs: wait for its end")
	case session.Status == council.StatusFailed || session.Status == council.StatusCancelled:
		return refuse("the session failed or was cancelled: ask the question again")
	case first == nil:
		return refuse("the session asked its members at once, so no member is left to ask: ask the question again")
	case first.Convened:
		return refuse("the session has asked the whole council already: read its answer")
	}
	answers := plan.Stage(council.KindAnswers)
	given := council.StagePlan{Kind: council.KindGiven, Seats: answers.Seats[:len(first.Asked)], Given: map[string]string{}}
	for _, a := range session.Stage1 {
		given.Given[a.Model] = *a.Response
	}
	answers.Seats = answers.Seats[len(first.Asked):]
	plan.Stages = slices.Concat([]council.StagePlan{given, answers}, plan.Stages[1:])
	plan.First = 0
	plan.GivenFrom = plan.SessionID
	plan.SessionID = p.o.NewID()
	if plan.Map {
		plan.MarkerKey = rand.Text()
	}
	plan.Created = time.Now().UTC()
	return plan, nil
}
