package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/stage1"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
)

// stageEnd returns how long after its beginning a run has a stage behind it. What a
// stage leaves unused passes on to the next. Stage 3 ends a little before the time
// budget does, so that the fallback answer is still in time.
func stageEnd(stage council.Stage, timeout time.Duration) time.Duration {
	switch stage {
	case council.Stage1:
		return timeout * 2 / 5
	case council.Stage2:
		return timeout * 4 / 5
	default:
		return timeout - min(time.Second, timeout/20)
	}
}

// appendTimeout bounds how long a session waits for its records to be written
// once everything else is done.
const appendTimeout = 10 * time.Second

// maxRetryAfter bounds what a caller is told to wait: providers name dates that
// are years away.
const maxRetryAfter = time.Hour

// run is the state of one session while it runs.
type run struct {
	p       *Pipeline
	plan    council.Plan
	start   time.Time
	meter   *meter
	session *council.Session
	answers map[string]string // member id -> answer, of those that answered
	block   *string           // block_id of the records; nil outside a probe

	mu       sync.Mutex // makes the observers' calls come one at a time; guards broken
	observer council.Observer
	broken   *council.Error // why the session cannot go on: an observer panicked
}

// Run carries out a plan and reports each step to the observer, which may be nil.
// It returns the session, also beside an error: what was paid for stays readable.
// The error is a *council.Error: CodeNoQuorum, CodeDeadline, CodePartialRefused, or
// CodeCancelled when ctx ended first, by which all calls in flight are cancelled, or
// CodeInternal when something panicked.
func (p *Pipeline) Run(ctx context.Context, plan council.Plan, observer council.Observer) (*council.Session, error) {
	r := p.newRun(plan, observer)
	r.log().InfoContext(ctx, "session started", "members", len(plan.Members), "reviewers", len(plan.Reviewers), "order", plan.Order)
	r.observe(council.EventStarted, council.Started{
		SessionID: plan.SessionID, Models: ids(plan.Members), Reviewers: ids(plan.Reviewers),
		Chairman: plan.Chairmen[0].ID, Seed: plan.Seed, Order: plan.Order, Versions: r.session.Metadata.Versions,
	})
	failure := r.guarded(ctx)
	r.finish(failure)
	r.log().InfoContext(ctx, "session finished", "status", r.session.Status, "members", len(plan.Members), "answers", len(r.answers),
		"ballots", r.session.Metadata.Agreement.Ballots, "persisted", r.session.Persisted, "total_ms", r.session.Metadata.Timing.TotalMS)
	if failure != nil {
		failure.SessionID = plan.SessionID
		r.observe(council.EventFailed, failure)
		return r.session, failure
	}
	r.observe(council.EventDone, r.session) // an observer that panics now spoils nothing: it is logged
	return r.session, nil
}

// newRun returns a run that has done nothing yet.
func (p *Pipeline) newRun(plan council.Plan, observer council.Observer) *run {
	session := plan.Session()
	session.Metadata.Versions = council.Versions{
		Councild: p.o.Version, CouncilConfig: p.o.ConfigVersion, Synthesis: stage3.PromptVersion, RecordSchema: council.RecordSchema,
	}
	return &run{
		p: p, plan: plan, start: time.Now(), meter: newMeter(p.o.Completer, plan, p.o.MaxSessionBytes), session: session,
		observer: observer, answers: map[string]string{},
	}
}

// guarded runs the stages. A panic in them ends this session alone.
func (r *run) guarded(ctx context.Context) (failure *council.Error) {
	defer func() {
		if v := recover(); v != nil {
			failure = panicked(r.log(), v)
		}
	}()
	return r.stages(ctx)
}

// panicked logs a panic and returns it as an error.
func panicked(log *slog.Logger, v any) *council.Error {
	log.Error("panic in a session", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return &council.Error{Code: council.CodeInternal, Detail: "internal error; the log says more", Cause: fmt.Errorf("panic: %v", v)}
}

// stages runs the three stages. It returns why there is no result, or nil.
func (r *run) stages(ctx context.Context) *council.Error {
	if failure := r.stop(ctx); failure != nil {
		return failure
	}
	if failure := r.ask(ctx); failure != nil {
		return failure
	}
	if r.plan.Direct {
		r.session.Answer = r.answers[r.first()]
		return nil
	}
	slates := r.review(ctx)
	if ctx.Err() != nil { // half of the reviews may be missing: no records
		return r.stop(ctx)
	}
	wait := r.persist(ctx)
	defer wait() // whatever comes now: the reviews were paid for
	if failure := r.stop(ctx); failure != nil {
		return failure
	}
	return r.synthesise(ctx, slates)
}

// ask runs stage 1 and judges the quorum.
func (r *run) ask(ctx context.Context) *council.Error {
	timing := &r.session.Metadata.Timing
	defer r.clock(&timing.Stage1MS)()
	stageCtx, cancel := r.until(ctx, council.Stage1)
	defer cancel()
	stageCtx, delivered, stop := r.patience(stageCtx, len(r.plan.Members))
	defer stop()
	var completer council.Completer = r.meter
	if r.plan.Direct && r.plan.Deltas {
		completer = streamed{r.meter, func(text string) { r.observe(council.EventDelta, council.Delta{Text: text}) }}
	}
	r.session.Stage1 = stage1.Ask(stageCtx, completer, r.plan.Members, r.plan.Conversation,
		stage1.Options{Temperature: r.p.o.Temperature, MaxOutputTokens: r.p.o.MaxOutputTokens},
		func(a council.Answer) {
			r.observe(council.EventAnswer, a)
			delivered(a.Status)
		})

	var failed []council.FieldError
	var short []string
	for _, a := range r.session.Stage1 {
		if a.Error != nil {
			r.degrade(council.Stage1, a.Model, a.Error)
			failed = append(failed, seatError(a.Model, a.Error))
			continue
		}
		r.answers[a.Model] = *a.Response
		if a.FinishReason != nil && *a.FinishReason == "length" {
			short = append(short, a.Model)
		}
	}
	r.observe(council.EventStage1, r.session.Stage1)
	if len(short) > 0 {
		r.warn(council.WarnAnswerCutShort, "cut off at the token limit: the answers of "+strings.Join(short, ", "))
	}
	if ctx.Err() != nil {
		return r.stop(ctx)
	}
	if quorum := Quorum(r.p.o.Quorum, len(r.plan.Members)); len(r.answers) < quorum {
		e := &council.Error{
			Code: council.CodeNoQuorum, Fields: failed, RetryAfter: r.retryAfter(quorum - len(r.answers)),
			Detail: fmt.Sprintf("%d of %d members answered, the quorum is %d", len(r.answers), len(r.plan.Members), quorum),
		}
		if stageCtx.Err() != nil {
			e.Code = council.CodeDeadline
			e.Detail = "the time for the answers ran out: " + e.Detail
		}
		return e
	}
	r.warnOfHaste(council.Stage1)
	return r.stop(ctx)
}

// retryAfter returns when as many of the members that failed may answer as are
// lacking, at most maxRetryAfter; 0 when too few of their providers say.
func (r *run) retryAfter(lacking int) time.Duration {
	var seconds []float64
	for _, a := range r.session.Stage1 {
		if a.Error != nil && a.Error.RetryAfterS != nil {
			seconds = append(seconds, *a.Error.RetryAfterS)
		}
	}
	if len(seconds) < lacking {
		return 0
	}
	slices.Sort(seconds)
	return time.Duration(min(seconds[lacking-1], maxRetryAfter.Seconds()) * float64(time.Second))
}

// Quorum returns how many of n seats are enough under the given setting, of which
// 0 stands for more than half of them.
func Quorum(setting, n int) int {
	if setting > 0 {
		return min(setting, n)
	}
	return n/2 + 1
}

// review runs stage 2: orders, ballots, standings, audit. With a single answer
// there is nothing to compare.
func (r *run) review(ctx context.Context) anonymize.Slates {
	meta := &r.session.Metadata
	defer r.clock(&meta.Timing.Stage2MS)()
	authors, slates := r.draw()
	meta.LabelToModel = slates.Canonical.LabelToModel()
	demographics := r.demographics(ctx)
	if len(authors) >= 2 {
		r.read(ctx, slates.Reviewer)
		r.tally(slates, authors)
	} else {
		r.warn(council.WarnReviewSkipped, "there is one answer: nothing to compare, and no ranking")
	}
	meta.DemographicDisagreement = demographics()
	r.observe(council.EventStage2, meta.Tally)
	return slates
}

// demographics looks for demographic disagreement beside the reviewers, who take
// longer, and stops when stage 2 has to end. The returned function waits for what was
// found.
func (r *run) demographics(ctx context.Context) (wait func() *council.DemographicDisagreement) {
	if r.p.o.Lexicon == nil {
		return func() *council.DemographicDisagreement { return nil }
	}
	var found *council.DemographicDisagreement
	ended := r.beside(func() {
		ctx, cancel := r.until(ctx, council.Stage2)
		defer cancel()
		found = disagreement.Detect(ctx, disagreement.Input{
			Question: r.plan.Question(), Answers: r.answers, Lexicon: r.p.o.Lexicon, Threshold: r.p.o.LexiconLimit, Seed: r.plan.Seed,
		})
	})
	return func() *council.DemographicDisagreement {
		ended()
		return found
	}
}

// beside does work beside what follows; the returned function waits for its end. A
// panic in the work ends the session.
func (r *run) beside(work func()) (ended func()) {
	var failed *council.Error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				failed = panicked(r.log(), v)
			}
		}()
		work()
	}()
	return func() {
		<-done
		if failed != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.broken = failed
		}
	}
}

// draw returns the members that answered and what the reviewers are shown.
func (r *run) draw() (authors []string, slates anonymize.Slates) {
	authors = []string{}
	for _, m := range r.plan.Members {
		if _, ok := r.answers[m.ID]; ok {
			authors = append(authors, m.ID)
		}
	}
	return authors, anonymize.Draw(anonymize.Options{
		Seed: r.plan.Seed, Order: r.plan.Order, Authors: authors, Reviewers: ids(r.plan.Reviewers),
		ShowOwn: anonymize.ShowOwn(r.plan.Seed, r.p.o.SelfReviewRate),
	})
}

// read has the reviewers read their slates, and says what is missing.
func (r *run) read(ctx context.Context, slates []council.Slate) {
	for i, reviewer := range r.plan.Reviewers {
		r.session.Metadata.ReviewerPositionMapping[reviewer.ID] = slates[i].Positions()
	}
	stageCtx, cancel := r.until(ctx, council.Stage2)
	defer cancel()
	stageCtx, delivered, stop := r.patience(stageCtx, len(r.plan.Reviewers))
	defer stop()
	r.session.Stage2 = stage2.Ask(stageCtx, r.meter, stage2.Input{
		Question: r.plan.Question(), Answers: r.answers, Reviewers: r.plan.Reviewers, Slates: slates,
		NewMarkers: anonymize.NewMarkers,
	}, stage2.Options{Temperature: r.p.o.ReviewTemperature, MaxOutputTokens: r.p.o.MaxOutputTokens, Repair: r.p.o.BallotRepair},
		func(v council.Review) {
			r.observe(council.EventBallot, v)
			delivered(v.Status)
		})

	var partial []string
	for _, v := range r.session.Stage2 {
		switch {
		case v.Error != nil:
			r.degrade(council.Stage2, v.Model, v.Error)
		case v.Status == council.OutcomeAbstained:
			r.degrade(council.Stage2, v.Model, &council.Failure{Code: council.FailAbstained, Message: cmp.Or(v.ParsedRanking.Reason, "the reviewer gave no reason")})
		case stage2.Partial(*v.ParsedRanking, v.Slate.Labels()):
			partial = append(partial, v.Model)
		}
	}
	if len(partial) > 0 {
		r.warn(council.WarnPartialBallot, "answers are missing from the ballots of "+strings.Join(partial, ", "))
	}
	r.warnOfHaste(council.Stage2)
}

// tally counts the ballots and audits them.
func (r *run) tally(slates anonymize.Slates, authors []string) {
	meta := &r.session.Metadata
	o := ranking.Options{Candidates: authors, Votes: r.votes(), Asked: r.asked(), Policy: r.p.o.PartialBallots}
	result := ranking.Tally(o)
	meta.AggregateRankings = result.Standings
	meta.Agreement = agreement(meta.Agreement, o, result, r.plan.Seed)
	if result.Ballots == 0 {
		r.warn(council.WarnNoRanking, "no ballot could be counted: there is no ranking")
	}
	if result.PolicyChangesWinner {
		r.warn(council.WarnPartialPolicy, "some ballots leave out answers, and how they are counted decides who wins: see LLM_COUNCIL_PARTIAL_BALLOTS")
	}
	for _, slate := range slates.Reviewer {
		if len(slate) == 1 {
			r.warn(council.WarnOneCandidate, "a reviewer that has one answer to read cannot rank: two members cannot rank each other")
			break
		}
	}
	if r.p.o.Audit != nil {
		meta.BiasAudit = new(bias.Audit(r.auditInput()))
		meta.BiasIndicators = new(bias.Indicators(*meta.BiasAudit, meta.Agreement.KendallW))
	}
}

// agreement fills in a, the agreement of no ballots: how far the ballots agree and
// how firm the ranking is.
func agreement(a council.Agreement, o ranking.Options, result ranking.Result, seed int64) council.Agreement {
	if result.Ballots == 0 {
		return a
	}
	a.KendallW, a.Ballots = result.KendallW, result.Ballots
	pairs := ranking.Pairs(o)
	a.CondorcetWinner = optional(pairs.Condorcet)
	for i, model := range pairs.Candidates {
		a.Copeland[model] = pairs.Copeland[i]
		a.Pairwise[model] = map[string]int{}
		for j, other := range pairs.Candidates {
			if i != j {
				a.Pairwise[model][other] = pairs.Preferred[i][j]
			}
		}
	}
	for _, share := range ranking.Support(o, seed) {
		a.WinnerSupport = append(a.WinnerSupport, council.Support(share))
	}
	for _, omission := range ranking.LeaveOneOut(o) {
		omission.Winners = append([]string{}, omission.Winners...) // none is [], not null
		a.LeaveOneOut = append(a.LeaveOneOut, council.Omission(omission))
	}
	return a
}

// synthesise runs stage 3.
func (r *run) synthesise(ctx context.Context, slates anonymize.Slates) *council.Error {
	meta := &r.session.Metadata
	defer r.clock(&meta.Timing.Stage3MS)()
	stageCtx, cancel := r.until(ctx, council.Stage3)
	defer cancel()
	standings := meta.AggregateRankings
	if meta.Agreement.Ballots == 0 {
		standings = nil
	}
	var reviews []council.Review
	for _, v := range r.session.Stage2 {
		if v.Status == council.OutcomeOK {
			reviews = append(reviews, v)
		}
	}
	o := stage3.Options{Temperature: r.p.o.Temperature, MaxOutputTokens: r.p.o.MaxOutputTokens}
	if r.plan.Deltas {
		o.Observe = func(t council.EventType, data any) {
			if ctx.Err() == nil { // a cancelled run has no fallback
				r.observe(t, data)
			}
		}
	}
	synthesis, failed := stage3.Write(stageCtx, r.meter, stage3.Input{
		Question: r.plan.Question(), Slate: slates.Canonical, Answers: r.answers, Standings: standings, Reviews: reviews,
		NewMarkers: anonymize.NewMarkers, Chairmen: r.chairmen(standings), First: r.first(),
	}, o)
	if failure := r.stop(ctx); failure != nil && failure.Code != council.CodePartialRefused {
		return failure
	}
	r.session.Stage3, r.session.Answer = &synthesis, synthesis.Response
	r.session.Degradation = append(r.session.Degradation, failed...)
	r.observe(council.EventStage3, synthesis)
	return r.stop(ctx)
}

// chairmen returns who may write, in the order in which they are tried: the
// chairman, then the configured fallbacks, or else the other members that
// answered, by rank, or in configured order where there is no ranking.
func (r *run) chairmen(standings []council.Standing) []council.Member {
	chairmen := slices.Clone(r.plan.Chairmen)
	if len(chairmen) > 1 {
		return chairmen
	}
	others := slices.DeleteFunc(slices.Clone(r.plan.Members), func(m council.Member) bool { return r.answers[m.ID] == "" })
	rank := map[string]int{}
	for i, st := range standings {
		rank[st.Model] = i
	}
	slices.SortStableFunc(others, func(a, b council.Member) int { return cmp.Compare(rank[a.ID], rank[b.ID]) })
	for _, m := range others {
		if !slices.ContainsFunc(chairmen, func(c council.Member) bool { return c.Model == m.Model }) {
			chairmen = append(chairmen, m)
		}
	}
	return chairmen
}

// first returns the first member in configured order that answered.
func (r *run) first() string {
	for _, m := range r.plan.Members {
		if _, ok := r.answers[m.ID]; ok {
			return m.ID
		}
	}
	return ""
}

// stop returns why the run must not go on, or nil: an observer panicked, the caller
// is gone, or the result is degraded and the request refuses that.
func (r *run) stop(ctx context.Context) *council.Error {
	r.mu.Lock()
	broken := r.broken
	r.mu.Unlock()
	if broken != nil {
		return broken
	}
	if ctx.Err() != nil {
		return &council.Error{Code: council.CodeCancelled, Detail: "the session was cancelled", Cause: context.Cause(ctx)}
	}
	if r.plan.OnPartial == council.PartialRefuse && len(r.session.Degradation) > 0 {
		e := &council.Error{Code: council.CodePartialRefused, Detail: "part of the council is missing, and the request refuses a degraded result"}
		for _, d := range r.session.Degradation {
			e.Fields = append(e.Fields, council.FieldError{Field: string(d.Stage) + " " + d.Model, Message: string(d.Code), Fix: advice(d.Code)})
		}
		return e
	}
	return nil
}

// finish settles the status and the figures over the whole run.
func (r *run) finish(failure *council.Error) {
	s := r.session
	switch {
	case failure != nil && failure.Code == council.CodeCancelled:
		s.Status = council.StatusCancelled
	case failure != nil:
		s.Status = council.StatusFailed
	case len(s.Degradation) > 0:
		s.Status = council.StatusDegraded
	default:
		s.Status = council.StatusComplete
	}
	s.Metadata.Warnings = append(s.Metadata.Warnings, r.meter.warnings()...)
	s.Metadata.Usage = r.meter.total()
	t := &s.Metadata.Timing
	t.TotalMS = milliseconds(time.Since(r.start))
	t.OverheadMS = max(0, t.TotalMS-slowest(s))
}

// slowest returns the time that the models took on the critical path: the
// slowest call of each stage, in milliseconds.
func slowest(s *council.Session) float64 {
	var one, two, three float64
	for _, a := range s.Stage1 {
		one = max(one, a.LatencyMS)
	}
	for _, v := range s.Stage2 {
		two = max(two, v.LatencyMS)
	}
	if s.Stage3 != nil {
		three = s.Stage3.LatencyMS
	}
	return one + two + three
}

// streamed is a Completer that tells of each reply as it arrives.
type streamed struct {
	council.Completer
	onDelta func(text string)
}

// Complete implements council.Completer.
func (s streamed) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	call.OnDelta = s.onDelta
	return s.Completer.Complete(ctx, call)
}

// until returns a context that ends with the stage's time. A run with one stage has
// all of it.
func (r *run) until(ctx context.Context, stage council.Stage) (context.Context, context.CancelFunc) {
	end := stageEnd(stage, r.plan.Timeout)
	if r.plan.Direct {
		end = stageEnd(council.Stage3, r.plan.Timeout)
	}
	return context.WithDeadlineCause(ctx, r.start.Add(end), errors.New("the time for "+string(stage)+" ran out"))
}

// patience returns a context that ends, with ErrCut, when the stragglers among n
// seats have had their grace, which begins when delivered has been told of a quorum
// that is ok.
func (r *run) patience(ctx context.Context, n int) (_ context.Context, delivered func(council.Outcome), stop func()) {
	if r.p.o.StragglerGrace == nil {
		return ctx, func(council.Outcome) {}, func() {}
	}
	ctx, cut := context.WithCancelCause(ctx)
	timer := time.AfterFunc(r.plan.Timeout, func() { cut(council.ErrCut) }) // the stage is over by then
	var ok atomic.Int64
	delivered = func(o council.Outcome) {
		if o == council.OutcomeOK && ok.Add(1) == int64(Quorum(r.p.o.Quorum, n)) {
			timer.Reset(*r.p.o.StragglerGrace)
		}
	}
	return ctx, delivered, func() {
		timer.Stop()
		cut(nil)
	}
}

// clock starts a stop watch; the returned function writes the milliseconds.
func (r *run) clock(ms *float64) func() {
	start := time.Now()
	return func() { *ms = milliseconds(time.Since(start)) }
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *run) observe(t council.EventType, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range []council.Observer{r.p.o.Observer, r.observer} {
		if o != nil {
			r.tellLocked(o, council.Event{Type: t, SessionID: r.plan.SessionID, Data: data})
		}
	}
}

// tellLocked tells one observer. One that panics ends the session, but keeps
// neither the other observers from the event nor the daemon from running.
func (r *run) tellLocked(o council.Observer, e council.Event) {
	defer func() {
		if v := recover(); v != nil {
			r.broken = panicked(r.log(), v)
		}
	}()
	o.Observe(e)
}

func (r *run) degrade(stage council.Stage, member string, f *council.Failure) {
	r.session.Degradation = append(r.session.Degradation, council.Degradation{Stage: stage, Model: member, Code: f.Code, Message: f.Message})
}

func (r *run) warn(code council.WarningCode, message string) {
	r.session.Metadata.Warnings = append(r.session.Metadata.Warnings, council.Warning{Code: code, Message: message})
}

// warnOfHaste says when the models that were too slow are missing from a stage.
func (r *run) warnOfHaste(stage council.Stage) {
	var slow []string
	for _, d := range r.session.Degradation {
		if d.Stage == stage && (d.Code == council.FailCut || d.Code == council.FailTimeout) {
			slow = append(slow, d.Model)
		}
	}
	if len(slow) > 0 {
		r.warn(council.WarnFastestOnly, fmt.Sprintf("%s was decided by the models that are fastest: too slow, or not waited for, were %s", stage, strings.Join(slow, ", ")))
	}
}

func (r *run) log() *slog.Logger { return r.p.o.Log.With("session_id", r.plan.SessionID) }

func ids(members []council.Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.ID
	}
	return out
}

// seatError says why a seat failed, in the provider's own words where it gave some:
// they are of at most 1 KiB, hold no key, and are not logged. A model's words are an
// answer, and stay in the session.
func seatError(member string, f *council.Failure) council.FieldError {
	message := f.Error()
	if f.Code == council.FailRefused {
		message = string(f.Code)
	}
	return council.FieldError{Field: member, Message: message, Fix: advice(f.Code)}
}

// advice says what to do about a failure.
func advice(code council.FailureCode) string {
	switch code {
	case council.FailTimeout:
		return "allow more time (timeout_seconds, LLM_COUNCIL_ATTEMPT_TIMEOUT), or use a faster model"
	case council.FailRateLimited:
		return "wait, or ask the provider for a higher limit"
	case council.FailUnauthorized:
		return "check the provider's API key"
	case council.FailUnknownModel, council.FailUnknownProvider:
		return "check the model's name and LLM_COUNCIL_PROVIDERS"
	case council.FailConnection:
		return "check the provider's address and its certificate, and that it is running"
	case council.FailTooLarge:
		return "raise LLM_COUNCIL_MAX_UPSTREAM_BYTES, the limit of a reply, or LLM_COUNCIL_MAX_SESSION_BYTES, that of a session"
	case council.FailLength:
		return "raise LLM_COUNCIL_MAX_OUTPUT_TOKENS"
	case council.FailBudget:
		return "raise the budget"
	default:
		return "try again; if it persists, replace the model"
	}
}
