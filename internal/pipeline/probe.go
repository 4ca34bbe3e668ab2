package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/councild/councild/internal/council"
)

// Probe measures how much each reviewer agrees with itself when it reads the same answers again (ADR-015, phase 2). It
// asks the members once. The reviewers then read the same answers in several rounds. The argument repeats is the number
// of rounds. The orders of the answers in the first round are drawn as for a session. Each further round reverses the
// orders of the round before. Probe neither counts ballots nor writes a synthesis. It makes one call for each member,
// and one call for each reviewer in each round. It makes more calls if replies are repaired, or if analyses of the
// answers make calls of their own.
//
// Each round is a session of its own. The id of a round is the session id of the plan, followed by "-1", "-2" and so
// on. A round has the whole time and money budget of a session. The plan's analyses of the answers (sides) run only
// once. The records of a round carry the plan's session id as block_id and go to out, never to the pipeline's Recorder.
//
// Probe returns the session of the answers and one session for each round. The error is an error of out, or a
// *council.Error as in Run. With fewer than two answers, its code is CodeNoQuorum.
func (p *Pipeline) Probe(
	ctx context.Context, plan council.Plan, repeats int, out Recorder,
) ([]*council.Session, error) {
	plan.Sides = slices.DeleteFunc(slices.Clone(plan.Sides), func(s council.SidePlan) bool { return !s.Records })
	asked := p.newRun(plan, nil)
	asked.block = &plan.SessionID
	failure := asked.open(ctx)
	if failure == nil {
		failure = asked.ask(ctx, plan.Stages[0])
	}
	if failure == nil {
		asked.beginSides(ctx)
		asked.annotators().wait()
		asked.endSides()
	}
	asked.closeAccount(ctx)
	asked.finish(failure)
	sessions := []*council.Session{asked.session}
	if failure != nil {
		return sessions, failure
	}
	slates := asked.draw()
	if len(asked.authors) < 2 {
		return sessions, &council.Error{Code: council.CodeNoQuorum, Detail: "there is one answer: nothing to compare"}
	}
	for n := range repeats {
		round := plan
		round.SessionID = fmt.Sprintf("%s-%d", plan.SessionID, n+1)
		r := p.newRun(round, nil)
		r.block = &plan.SessionID
		r.session.Stage1 = asked.session.Stage1
		r.authors = asked.authors
		r.answers = asked.answers
		r.twins = asked.twins
		sessions = append(sessions, r.session)
		stop := r.stopwatch(council.Stage2, &r.session.Metadata.Timing.Stage2MS)
		failure := r.open(ctx)
		if failure == nil {
			r.read(ctx, plan.Reviewers(), slates.Reviewer)
			failure = r.stop(ctx)
		}
		stop()
		r.closeAccount(ctx)
		r.finish(failure)
		if failure != nil {
			return sessions, failure
		}
		records, members := r.records()
		asked.annotators().annotate(records, members)
		if err := out.Append(ctx, records); err != nil {
			return sessions, err
		}
		r.session.Persisted = true
		slates.Reviewer = reversed(slates.Reviewer)
	}
	return sessions, nil
}

// reversed returns the slates with their answers in reversed order. The labels keep their order.
func reversed(slates []council.Slate) []council.Slate {
	turned := make([]council.Slate, len(slates))
	for i, slate := range slates {
		turned[i] = make(council.Slate, len(slate))
		for p, shown := range slate {
			turned[i][p] = council.Shown{Label: shown.Label, Member: slate[len(slate)-1-p].Member}
		}
	}
	return turned
}
