package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// recordsGrace is how long a session waits at most for sides that annotate its records, after everything else is done.
const recordsGrace = 2 * time.Second

// errSideCut is the cause with which a session ends a side that it no longer waits for.
var errSideCut = fmt.Errorf("%w: the session was done before", council.ErrCut)

// side is one council.Side while it looks at the answers of a run, in a goroutine of its own.
type side struct {
	plan    council.SidePlan
	cut     context.CancelCauseFunc
	done    chan struct{}   // closed when finding is set
	finding council.Finding // nil if the side found nothing
}

// plannedSides asks every side of this process what the side will do in the session of a plan.
func (p *Pipeline) plannedSides(plan council.Plan) (planned []council.SidePlan) {
	for _, s := range p.o.Sides {
		if side := s.Plan(plan); side != nil {
			planned = append(planned, *side)
		}
	}
	return planned
}

// beginSides starts a goroutine for each side of the plan, in which the side looks at the answers. A side is cut off at
// the deadline of the stage that waits for it, and when ctx ends. If the log already holds the result of stage 2, the
// sides that are a part of that result do not look again.
func (r *run) beginSides(ctx context.Context) {
	for _, planned := range r.plan.Sides {
		i := slices.IndexFunc(r.p.o.Sides, func(s council.Side) bool { return s.Name() == planned.Name })
		if i < 0 || planned.Tally && r.state.Tally() != nil {
			continue
		}
		planned.Records = planned.Records && (r.keepsRecords() || r.block != nil)
		stage := council.Stage3
		if planned.Tally {
			stage = council.Stage2
		}
		ctx, release := r.until(ctx, stage)
		ctx, cut := context.WithCancelCause(ctx)
		s := &side{plan: planned, cut: cut, done: make(chan struct{})}
		r.sides = append(r.sides, s)
		go func() { // It ends when Look returns, at the latest soon after the end of ctx.
			defer close(s.done)
			defer release()
			s.finding = r.look(ctx, r.p.o.Sides[i], planned)
		}()
	}
}

// look has one side look at the answers. If the side panics, look logs the panic, and only the finding of this side is
// missing.
func (r *run) look(ctx context.Context, s council.Side, planned council.SidePlan) (finding council.Finding) {
	seen := council.Seen{Plan: r.plan, Side: planned, Authors: r.authors, Answers: r.answers, Yield: r.yield}
	if protect(r.log, func() { finding = s.Look(ctx, seen, r.calls) }) != nil {
		finding = s.Missing(planned, "a defect; the log says more")
	}
	return finding
}

// reviewPaid notes that one review is paid for, or all reviews if the argument all is true. If no limit of cost or
// tokens could stop a review, sides that yield to reviewers continue after the first review. Otherwise these sides wait
// for the last review.
func (r *run) reviewPaid(all bool) {
	if all || r.plan.MaxCostUSD == nil && r.plan.MaxTotalTokens == nil {
		r.endYield()
	}
}

// yield is the council.Seen.Yield of the run: a side calls it before it spends money that reviews may need. If the
// session has a limit of cost or tokens, yield waits until all reviews are paid for. Without such a limit, it waits for
// the first review only. It returns an error if at least half of a limit is spent, or if ctx ends.
func (r *run) yield(ctx context.Context) error {
	select {
	case <-r.reviewed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.account.HalfSpent() {
		return errors.New("at least half of the session's limit of cost or tokens is spent, and the rest is for the council")
	}
	return nil
}

// endTally waits for the sides that belong to the tally, and adds their findings to the session.
func (r *run) endTally() {
	for _, s := range r.sides {
		if s.plan.Tally {
			<-s.done
			r.add(s)
		}
	}
}

// awaitAnnotations waits for the sides that annotate the records. After recordsGrace it cuts them off.
func (r *run) awaitAnnotations() {
	timer := time.AfterFunc(recordsGrace, func() {
		for _, s := range r.annotators() {
			s.cut(errSideCut)
		}
	})
	defer timer.Stop()
	r.annotators().wait()
}

// endSides cuts off the sides that still look at the answers. It adds the findings that are not a part of the tally,
// because endTally adds the others.
func (r *run) endSides() {
	for _, s := range r.sides {
		s.cut(errSideCut)
		<-s.done
		if !s.plan.Tally {
			r.add(s)
		}
	}
}

// add puts a finding into the session.
func (r *run) add(s *side) {
	if s.finding != nil {
		s.finding.AddTo(r.session)
	}
}

// annotators are the sides that annotate records. They do not refer to their run, so that the run can be freed while
// they still work.
type annotators []*side

// annotators returns the sides that annotate the records.
func (r *run) annotators() (some annotators) {
	for _, s := range r.sides {
		if s.plan.Records {
			some = append(some, s)
		}
	}
	return some
}

// wait waits for the sides.
func (a annotators) wait() {
	for _, s := range a {
		<-s.done
	}
}

// annotate waits for the sides, and has each finding complete the records. The argument members has the ids of the
// reviewer and the candidate of each record.
func (a annotators) annotate(records []council.BiasMetricRecord, members [][2]string) {
	a.wait()
	for _, s := range a {
		finding, ok := s.finding.(council.Annotator)
		if !ok {
			continue
		}
		for i, pair := range members {
			finding.Annotate(&records[i], pair[0], pair[1])
		}
	}
}

// Look has a side look at answers that belong to no session, within the time and cost limits of a session. The keys of
// the map answers are ids of answers. The costs are charged to the token. The error says why the side could not begin
// or finish: a cost limit, a model without a price, or the end of ctx. The finding is nil if the side does not plan to
// look.
func (p *Pipeline) Look(
	ctx context.Context, token string, s council.Side, question string, answers map[string]string,
) (finding council.Finding, failure *council.Error) {
	rules := p.rules
	rules.Consent = 0
	plan := council.Plan{
		SessionID: p.o.NewID(), Created: time.Now().UTC(), Limits: p.o.Limits, Rules: rules, Versions: p.made,
		Conversation: []council.Message{{Role: council.RoleUser, Content: question}}, Seed: anonymize.SeedFor(0, question),
		Lineup: council.Lineup{CouncilName: p.o.Council}, Token: token,
	}
	seen := council.Seen{Plan: plan, Authors: slices.Sorted(maps.Keys(answers)), Answers: answers}
	given := council.StagePlan{Kind: council.KindGiven, Given: answers}
	for _, id := range seen.Authors {
		given.Seats = append(given.Seats, council.Member{ID: id})
	}
	plan.Stages = []council.StagePlan{given}
	seen.Plan = plan
	planned := s.Plan(seen.Plan)
	if planned == nil {
		return nil, nil
	}
	seen.Side = *planned
	planned.MoneyEnd = 1 // The side may use the whole money budget.
	plan.Sides = []council.SidePlan{*planned}
	account, failure := p.o.Book.Open(ctx, p.o.Book.Opening(plan))
	if failure != nil {
		return nil, failure
	}
	defer account.Close(context.WithoutCancel(ctx), false)
	calls := p.newCalls(plan)
	calls.Account = account
	bounded, cancel := context.WithTimeoutCause(ctx, plan.Timeout, errors.New("the time to compare the answers ran out"))
	defer cancel()
	finding = s.Look(bounded, seen, calls)
	if ctx.Err() != nil {
		return nil, &council.Error{
			Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx),
		}
	}
	return finding, nil
}
