package pipeline

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage3"
)

// synthesise has the chairman write the final answer. The chairman reads the answers in the order of the canonical
// slate.
func (r *run) synthesise(ctx context.Context) *council.Error {
	if r.slate == nil { // The plan has no review.
		r.slate = r.draw().Canonical
	}
	meta := &r.session.Metadata
	defer r.stopwatch(council.Stage3, &meta.Timing.Stage3MS)()
	stageCtx, cancel := r.until(ctx, council.Stage3)
	defer cancel()
	standings := meta.AggregateRankings
	if meta.Agreement.Ballots == 0 {
		standings = nil
	}
	o := stage3.Options{Sampling: r.plan.Rules.Sampling, JSON: r.plan.Output != nil}
	chairmen := r.chairmen(standings)
	if r.plan.Deltas {
		r.voidText(chairmen)
		o.Observe = func(t council.EventType, data any) {
			if ctx.Err() == nil { // A cancelled run has no fallback to report.
				r.observe(t, data)
			}
		}
	}
	counted := slices.DeleteFunc(slices.Clone(r.session.Stage2), func(v council.Review) bool {
		return v.Status != council.OutcomeOK
	})
	writers, failure := r.writers(ctx)
	if failure != nil {
		return failure
	}
	synthesis, failed := stage3.Write(stageCtx, writers, stage3.Input{
		Question: r.plan.Question(), Slate: r.slate, Answers: r.answers, Standings: standings, Reviews: counted,
		NewMarkers: r.markers(council.Stage3), Chairmen: chairmen, First: r.authors[0], Map: r.plan.Map,
	}, o)
	if failure := r.stop(ctx); failure != nil && failure.Code != council.CodePartialRefused {
		return failure
	}
	r.session.Degradation = append(r.session.Degradation, failed...)
	if synthesis.Status == council.OutcomeError {
		return r.noValidOutput(failed)
	}
	r.session.Stage3 = &synthesis
	r.session.Answer = synthesis.Response
	r.session.AnswerFrom = council.AnswerFrom{Rule: ruleOf(synthesis.Fallback), Model: synthesis.Model, Tied: []string{}}
	if slices.ContainsFunc(failed, func(d council.Degradation) bool { return d.Code == council.FailInterrupted }) {
		r.warn(council.WarnTakenOver, "no daemon could go on with the session: an answer takes the place of the synthesis")
	}
	if r.plan.Map {
		r.session.Metadata.Map = new(r.readMap(synthesis))
	}
	r.observe(council.EventStage3, synthesis)
	if r.plan.Map { // The log usually stores both events at once.
		r.observe(council.EventMap, *r.session.Metadata.Map)
	}
	return r.stop(ctx)
}

// readMap reads the map that the chairman wrote after the answer.
func (r *run) readMap(synthesis council.Synthesis) council.Map {
	models := council.TwinsOf(r.plan.Members(), nil) // Plan.Twins is nil if seats of one model judge each other.
	return stage3.ReadMap(
		synthesis.Tail, synthesis.FinishReason != nil && *synthesis.FinishReason == "length", stage3.Quoted{
			Slate: r.slate, Answers: r.answers, Same: func(member, other string) bool {
				return models.Own(member, other) || r.plan.Twins.Own(member, other)
			},
		},
	)
}

// ruleOf returns the rule of an answer that a chairman wrote, or that took the place of such an answer.
func ruleOf(fallback *council.Fallback) council.AnswerRule {
	switch {
	case fallback == nil || *fallback == council.FallbackSecondChairman:
		return council.RuleWritten
	case *fallback == council.FallbackTopRanked:
		return council.RuleTop
	default:
		return council.RuleFirst
	}
}

// writers returns the Completer for the seats that write the final answer. If the caller gave a schema, that Completer
// validates the replies. The error says that the schema cannot be used.
func (r *run) writers(ctx context.Context) (council.Completer, *council.Error) {
	if r.plan.Output == nil {
		return r.calls, nil
	}
	// Another version of councild may have accepted the schema. The end of ctx is no error here: the calls report it.
	if failure, ok := errors.AsType[*council.Error](r.p.Check(ctx, r.plan)); ok && failure.Code == council.CodeInvalid {
		return nil, failure
	}
	return &calls.SchemaCompleter{
		Next: r.calls, Format: r.plan.Output, NewMarkers: anonymize.NewMarkers, Places: r.p.o.Validations.replies,
	}, nil
}

// noValidOutput returns the error of a session in which no answer fits the schema. Its fields say why each writer
// failed.
func (r *run) noValidOutput(failed []council.Degradation) *council.Error {
	e := &council.Error{
		Code:   council.CodeNoValidOutput,
		Detail: "no model wrote an answer that fits the schema; the answers and reviews are kept in the session",
	}
	for _, d := range failed {
		e.Fields = append(e.Fields, seatError(d.Model, &council.Failure{Code: d.Code, Message: d.Message}, r.p.o.Settings))
	}
	return e
}

// chairmen returns the members that may write the final answer, in the order in which they are tried. The chairman is
// the first. The configured fallbacks follow. Without fallbacks, the other members that answered follow by rank, or in
// configured order if there is no ranking.
func (r *run) chairmen(standings []council.Standing) []council.Member {
	chairmen := slices.Clone(r.plan.Chairmen())
	if len(chairmen) > 1 {
		return chairmen
	}
	others := slices.DeleteFunc(slices.Clone(r.plan.Members()), func(m council.Member) bool {
		return r.answers[m.ID] == ""
	})
	rank := func(m council.Member) int {
		return slices.IndexFunc(standings, func(s council.Standing) bool { return s.Model == m.ID })
	}
	slices.SortStableFunc(others, func(a, b council.Member) int { return cmp.Compare(rank(a), rank(b)) })
	for _, m := range others {
		if !slices.ContainsFunc(chairmen, func(c council.Member) bool {
			return council.ModelOf(c.ID) == council.ModelOf(m.ID)
		}) {
			chairmen = append(chairmen, m)
		}
	}
	return chairmen
}
