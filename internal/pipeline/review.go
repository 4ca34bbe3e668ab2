package pipeline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/stage2"
)

// review has the seats of a stage review the answers. It draws the slates, counts and audits the ballots, and starts to
// append the records. A single answer is not reviewed.
func (r *run) review(ctx context.Context, stage council.StagePlan) *council.Error {
	slates := r.draw()
	r.slate = slates.Canonical
	r.rank(ctx, stage.Seats, slates)
	if ctx.Err() == nil { // After the end of ctx, reviews may be missing. Then no records are kept.
		r.persist(ctx)
	}
	return r.stop(ctx)
}

// rank has the reviewers read their slates, counts the ballots, and adds the findings of analyses (sides) that are a
// part of the result of stage 2.
func (r *run) rank(ctx context.Context, reviewers []council.Member, slates anonymize.Slates) {
	meta := &r.session.Metadata
	defer r.stopwatch(council.Stage2, &meta.Timing.Stage2MS)()
	if len(r.authors) >= 2 && !slices.ContainsFunc(slates.Reviewer, func(s council.Slate) bool {
		return !slices.Equal(s, slates.Canonical)
	}) {
		meta.LabelToModel = slates.Canonical.LabelToModel()
	}
	if len(r.authors) >= 2 {
		r.read(ctx, reviewers, slates.Reviewer)
		r.tally()
	} else {
		r.stored(ctx)
		r.beginSides(ctx)
		r.warn(council.WarnReviewSkipped, "there is one answer: nothing to compare, and no ranking")
	}
	r.endTally()
	if tally := r.state.Tally(); tally != nil { // The log's result counts, whatever sides found here.
		meta.Tally = *tally
	}
	r.observe(council.EventStage2, meta.Tally)
}

// draw returns the slates that the reviewers are shown. If members failed and too few ballots would be left, twins
// judge each other. The reviewers stay the same, because the cost limits of the session were checked for these
// reviewers.
func (r *run) draw() anonymize.Slates {
	r.twins = r.plan.Twins
	if r.plan.Mode != council.ModeJudge {
		r.twins = r.plan.TwinsAmong(r.authors)
	}
	slates := anonymize.Draw(anonymize.Options{
		Seed: r.plan.Seed, Order: r.plan.Order, Authors: r.authors, Reviewers: ids(r.readers()), Twins: r.twins,
		ShowOwn: anonymize.ShowOwn(r.plan.Seed, r.plan.Rules.SelfReviewRate),
	})
	if r.plan.Stage(council.KindReviews).Twice {
		slates.Reviewer = append(slates.Reviewer, reversed(slates.Reviewer)...)
	}
	return slates
}

// readers returns each reviewer once, even if it reads the answers twice.
func (r *run) readers() []council.Member {
	stage := r.plan.Stage(council.KindReviews)
	if stage.Twice {
		return stage.Seats[:len(stage.Seats)/2]
	}
	return stage.Seats
}

// ballots returns one vote of each reviewer whose ballot counts.
func (r *run) ballots() []ranking.Vote {
	stage := r.plan.Stage(council.KindReviews)
	if !stage.Twice {
		return slices.Collect(maps.Values(r.votes))
	}
	var votes []ranking.Vote
	for i, reader := range r.readers() {
		first, one := r.votes[reader.ID]
		second, two := r.votes[stage.Seats[len(stage.Seats)/2+i].ID]
		var vote ranking.Vote
		switch {
		case one && two:
			vote, one = ranking.Combine(first, second)
		case two:
			vote = second
			one = len(second.Shown) > 2 // One ballot on two answers may only show the reviewer's favourite place.
		default:
			vote = first
			one = one && len(first.Shown) > 2
		}
		if one {
			vote.Reviewer = reader.ID
			votes = append(votes, vote)
		}
	}
	return votes
}

// read has the reviewers read their slates. It turns the ballots that count into votes, and notes reviewers that failed
// or abstained as degradation.
func (r *run) read(ctx context.Context, reviewers []council.Member, slates []council.Slate) {
	if r.twins == nil && r.plan.Twins.Meet(r.authors, reviewers) {
		w := twinsJudge()
		r.warn(w.Code, w.Message)
	}
	for i, reviewer := range reviewers {
		r.session.Metadata.ReviewerPositionMapping[reviewer.ID] = slates[i].Positions()
	}
	in := stage2.Input{
		Question: r.plan.Question(), Answers: r.answers, Reviewers: reviewers, Slates: slates,
		NewMarkers: r.markers(council.Stage2),
	}
	o := stage2.Options{
		Sampling: r.plan.Rules.ReviewSampling, Repair: r.plan.Rules.BallotRepair,
		Criteria: r.plan.Stage(council.KindReviews).Criteria,
	}
	stage := stage2.Prepare(in, o)
	r.calls.Announce(ctx, stage.Calls)
	// block is nil outside a probe. A probe has already run the sides, once for all its rounds.
	if r.block == nil {
		r.beginSides(ctx)
	}
	stageCtx, delivered, cancel := r.stragglerContext(ctx, council.Stage2, len(reviewers), endOf(r.plan, council.Stage2))
	defer cancel()
	r.session.Stage2 = stage.Ask(stageCtx, r.calls, func(v council.Review) {
		r.observe(council.EventBallot, v)
		r.reviewPaid(false)
		delivered(v.Status)
	})
	r.reviewPaid(true)

	var partial []string
	for _, v := range r.session.Stage2 {
		switch {
		case v.Error != nil:
			r.degrade(council.Stage2, v.Model, v.Error)
		case v.Status == council.OutcomeAbstained:
			reason := cmp.Or(v.ParsedRanking.Reason, "the reviewer gave no reason")
			r.degrade(council.Stage2, v.Model, &council.Failure{Code: council.FailAbstained, Message: reason})
		default:
			r.votes[v.Model] = Vote(v, r.twins)
			if v.ParsedRanking.Partial(len(v.Slate)) {
				partial = append(partial, v.Model)
			}
		}
	}
	if len(partial) > 0 {
		r.warn(council.WarnPartialBallot, "answers are missing from the ballots of "+strings.Join(partial, ", "))
	}
	r.warnOfFastestOnly(council.Stage2)
}

// Vote returns the ballot of a review as a vote on members. It leaves out the answers of the reviewer's twins.
func Vote(v council.Review, twins council.Twins) ranking.Vote {
	groups := v.ParsedRanking.Groups()
	vote := ranking.Vote{
		Reviewer: v.Model, Shown: make([]string, 0, len(v.Slate)), Places: make([][]string, 0, len(groups)),
	}
	for _, shown := range v.Slate {
		if shown.Member == v.Model || !twins.Own(v.Model, shown.Member) {
			vote.Shown = append(vote.Shown, shown.Member)
		}
	}
	ranked := make([]string, 0, len(v.ParsedRanking.Ranking)) // Each element of Places is a subslice of it.
	for _, group := range groups {
		for _, label := range group {
			ranked = append(ranked, v.LabelToModel[label].Model)
		}
		vote.Places = append(vote.Places, slices.Clip(ranked[len(ranked)-len(group):]))
	}
	return vote
}

// tally counts the ballots and audits them.
func (r *run) tally() {
	meta := &r.session.Metadata
	o := ranking.Options{
		Candidates: r.authors, Votes: r.ballots(), Asked: r.asked(),
		Policy: r.plan.Rules.PartialBallots,
	}
	result := ranking.Tally(o)
	meta.AggregateRankings = result.Standings
	meta.Agreement = ranking.Agree(o, r.plan.Seed)
	if meta.Agreement.Ballots == 0 {
		r.warn(council.WarnNoRanking, "no ballot could be counted: there is no ranking")
	}
	if result.PolicyChangesWinner {
		r.warn(council.WarnPartialPolicy, "some ballots leave out answers, and how these ballots are counted decides who wins: see "+
			r.p.o.Settings.Of(council.SettingPartialBallots))
	}
	if slices.ContainsFunc(r.session.Stage2, func(v council.Review) bool { return len(v.Slate) == 1 }) {
		r.warn(council.WarnOneCandidate,
			"a reviewer that has one answer to read cannot rank: two members cannot rank each other")
	}
	if r.plan.Rules.Audit != nil {
		meta.BiasAudit = new(bias.Audit(r.auditInput()))
		meta.BiasIndicators = new(bias.Indicators(*meta.BiasAudit, meta.Agreement.KendallW))
	}
}

// asked returns how many reviewers were asked to review each candidate. It does not count reviewers of the candidate's
// own model.
func (r *run) asked() map[string]int {
	asked := map[string]int{}
	for _, v := range r.session.Stage2[:len(r.readers())] {
		for _, s := range v.Slate {
			if !r.twins.Own(v.Model, s.Member) {
				asked[s.Member]++
			}
		}
	}
	return asked
}

// auditInput returns the scores of the session in the form that the audit takes.
func (r *run) auditInput() bias.AuditInput {
	in := bias.AuditInput{
		Order: r.plan.Order, Twins: r.twins, Thresholds: *r.plan.Rules.Audit, Chars: r.lengths(),
	}
	in.Scores = make([]bias.Score, 0, shown(r.session.Stage2))
	in.Shown = make(map[string][]string, len(r.session.Stage2))
	for _, v := range r.session.Stage2 {
		scores := scoresOf(v)
		for position, shown := range v.Slate {
			in.Shown[v.Model] = append(in.Shown[v.Model], shown.Member)
			if score, ok := scores[shown.Label]; ok {
				in.Scores = append(in.Scores, bias.Score{
					Reviewer: v.Model, Candidate: shown.Member, Position: position,
					Own: r.twins.Own(v.Model, shown.Member), Value: score,
				})
			}
		}
	}
	return in
}

// shown returns how many answers all slates have together.
func shown(reviews []council.Review) (n int) {
	for _, v := range reviews {
		n += len(v.Slate)
	}
	return n
}

// scoresOf returns the scores of a review. A review without a ballot that counts has none.
func scoresOf(v council.Review) map[council.Label]float64 {
	return cmp.Or(v.ParsedRanking, &council.Ballot{}).Scores
}

// markers returns a function that makes the markers in the prompts of a stage. It makes other markers for each seat.
func (r *run) markers(stage council.Stage) func(seat string) anonymize.Markers {
	key := r.plan.MarkerKey
	if key != "" {
		key += " " + string(stage)
	}
	return anonymize.MarkersFrom(key)
}
