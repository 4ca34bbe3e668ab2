package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/spend"
)

// Spend reports the cost of past sessions, and estimates the cost of future sessions.
type Spend interface {
	// Spend reads a report from the ledger.
	Spend(ctx context.Context, q spend.Query) (spend.Costs, error)
	// Estimate returns what the session with this plan is expected to cost, and the most that it can cost.
	Estimate(plan council.Plan) spend.Estimate
}

// spendDays is how many days GET /v1/spend looks back by default.
const spendDays = 30

// spend is GET /v1/spend. A token sees the cost of its own sessions. A token with the right council.MayAdmin sees the
// cost of all sessions.
func (a *API) spend(w http.ResponseWriter, r *http.Request) error {
	p := newParameters(r)
	q := spend.Query{
		Days: spendDays,
		By:   spend.By(p.choice("by", "use one of", []string{"day", "token", "user", "council", "model"})),
	}
	if days := p.count("days"); days != nil {
		q.Days = *days
	}
	if c := a.callerOf(r); c.token != nil && !c.may(council.MayAdmin) {
		q.Token = new(a.label(r))
	}
	format := p.format("json", "text", "csv")
	if err := p.err(); err != nil {
		return err
	}
	report, err := a.o.Spend.Spend(r.Context(), q)
	if err != nil {
		return err
	}
	switch format {
	case "text":
		return sendForm(w, format, render.Spend(report))
	case "csv":
		return sendForm(w, format, render.SpendCSV(report))
	default:
		return WriteJSON(w, http.StatusOK, report)
	}
}

// estimate is POST /v1/council/estimate. It returns what a session with the same body would cost at POST /v1/council.
// It treats a body with answers as one for POST /v1/judge, and a body with a diff as one for POST /v1/gate. It takes a
// place for a report, because checking a schema takes much work.
func (a *API) estimate(w http.ResponseWriter, r *http.Request) error {
	var asked council.Submission
	var judged *council.JudgeSubmission
	var reviewed *gate.Submission
	problems, err := a.decodeAs(w, r, func(body []byte) any {
		var given struct{ Answers, Diff json.RawMessage }
		switch {
		case json.Unmarshal(body, &given) != nil:
		case given.Answers != nil:
			judged = &council.JudgeSubmission{}
			return judged
		case given.Diff != nil:
			reviewed = &gate.Submission{}
			return reviewed
		}
		return &asked
	}, false)
	if err != nil {
		return err
	}
	release, err := a.placeForReport(r)
	if err != nil {
		return err
	}
	defer release()
	if judged != nil {
		return a.estimateJudge(w, r, problems, judged.JudgeRequest)
	}
	if reviewed != nil {
		return a.estimateGate(w, r, problems, reviewed.Request)
	}
	if err := a.refusal(r, problems, asked.Request); err != nil {
		return err
	}
	asked.Token = a.label(r)
	plan, err := a.prepare(r, asked.Request)
	if err != nil {
		return err
	}
	plan.Token = a.label(r)
	e := a.estimateOf(plan)
	e.ByMode = spend.EstimateModes(asked.Request, a.o.Council.Prepare, a.o.Spend.Estimate)
	return WriteJSON(w, http.StatusOK, e)
}

// estimateJudge is estimate for a request to judge answers.
func (a *API) estimateJudge(w http.ResponseWriter, r *http.Request, p *Problems, request council.JudgeRequest) error {
	if err := a.judgeRefusal(r, p, request); err != nil {
		return err
	}
	request.Token = a.label(r)
	plan, err := a.o.Council.PrepareJudge(request)
	if err != nil {
		return err
	}
	plan.Token = a.label(r)
	return WriteJSON(w, http.StatusOK, a.estimateOf(plan))
}

// estimateGate is estimate for a request to review a change.
func (a *API) estimateGate(w http.ResponseWriter, r *http.Request, p *Problems, request gate.Request) error {
	if err := a.gateRefusal(r, p, request); err != nil {
		return err
	}
	plan, err := a.prepareGate(r, request)
	if err != nil {
		return err
	}
	plan.Token = a.label(r)
	return WriteJSON(w, http.StatusOK, a.estimateOf(plan))
}

// estimateOf returns the estimate of a plan.
func (a *API) estimateOf(plan council.Plan) spend.Estimate {
	e := a.o.Spend.Estimate(plan)
	if e.Expected == nil {
		expect(&e, lately(a.sessions.Lately(plan.Council(), maxLately)))
	}
	return e
}

// expect completes an estimate. If the models have made too few calls to say what the session costs, the session is
// expected to cost as much as the newest sessions of the same council.
func expect(e *spend.Estimate, l *Lately) {
	if l != nil && l.MedianCostUSD != nil {
		e.Expect(new(spend.FromFloat(*l.MedianCostUSD)))
	}
}

// cost is GET /v1/council/{id}/cost.
func (a *API) cost(w http.ResponseWriter, r *http.Request) error {
	s, err := a.find(r)
	if err != nil {
		return err
	}
	session, err := snapshot(s)
	if err != nil {
		return err
	}
	q := spend.Query{Days: 1}
	if a.callerOf(r).token != nil {
		q.Token = new(a.label(r))
	}
	var today []spend.Limit
	if report, err := a.o.Spend.Spend(r.Context(), q); err == nil { // The cost is known without the limits.
		today = report.Limits
	}
	return WriteJSON(w, http.StatusOK, spend.CostOf(session, s.Request().MaxCostUSD, today))
}
