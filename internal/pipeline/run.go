package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/calls"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/decide"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/spend"
)

// appendTimeout is the longest time that a session waits for its records to be
// written after everything else is done.
const appendTimeout = 10 * time.Second

// run is the state of one session while it runs.
type run struct {
	p       *Pipeline
	plan    council.Plan
	start   time.Time
	account *spend.Account
	calls   *calls.Calls
	session *council.Session
	log     *slog.Logger
	authors []string          // members that answered, in configured order
	answers map[string]string // the text of each answer, keyed by author
	// twins are seats of one model. For a seat, the answers of its twins count as its own answers.
	twins   council.Twins
	votes   map[string]ranking.Vote // the ballots that count, keyed by reviewer
	replies []decide.Reply          // the replies of a stage of KindVotes
	rounds  []council.TaskRound     // the rounds of the plan's task that are over
	block   *string                 // block_id of the records, nil outside a probe
	kept    *runlog.Log             // the log of the run, from which another process can continue it, or nil
	// state is what the run's log held when this process began or continued the run. It is empty if the run has no log.
	state *runlog.State
	// left is closed when a run with a log is cancelled. It is nil if the run has no log.
	left <-chan struct{}

	slate     council.Slate // the canonical order of the answers, nil until it is drawn
	endAppend func()        // waits for the append of the records, nil without records
	sides     []*side
	reviewed  chan struct{} // closed by endYield. Sides that yield to reviewers then continue.
	endYield  func()

	mu       sync.Mutex // serialises the calls of the observers, and guards broken
	observer council.Observer
	broken   *council.Error // set after the panic of an observer, which ends the session
}

// Run carries out a plan and reports each step to the observer, which may be nil. It returns the session even with an
// error, so that the caller can read what was paid for. The error is a *council.Error. Its code is CodeInternal after a
// panic, CodeCancelled if ctx ended first, or the code with which a stage failed, such as CodeNoQuorum, CodeDeadline or
// CodePartialRefused. It is CodeInterrupted in three cases: this process may make no further calls of the run, the
// run's log is damaged, or the cause of ctx is an error with that code. When ctx ends, all calls in flight are
// cancelled.
//
// The argument kept is the log of the run, from which another process can continue the run. It is nil if no process may
// do so. A continued run does not repeat calls whose outcome is in the log, and does not report events again that are
// in the log. The exception is the start: the Observer of the Options gets it again. The times of a continued run
// include those of earlier processes. After the end of ctx, a run with a log reports only its own end.
func (p *Pipeline) Run(
	ctx context.Context, plan council.Plan, observer council.Observer, kept *runlog.Log,
) (*council.Session, error) {
	r := p.newRun(plan, observer)
	failure := r.open(ctx)
	if kept != nil && failure == nil {
		var leave context.CancelCauseFunc
		ctx, leave = context.WithCancelCause(ctx)
		defer leave(nil)
		failure = r.keep(ctx, kept, leave)
	}
	r.log.InfoContext(ctx, "session started",
		"members", len(plan.Members()), "reviewers", len(plan.Reviewers()), "order", plan.Order)
	r.observe(council.EventStarted, council.Started{
		SessionID: plan.SessionID, Models: ids(plan.Members()), Reviewers: ids(plan.Reviewers()),
		Chairman: plan.Chairman(), Mode: plan.Mode, First: plan.Begin(),
		Seed: plan.Seed, Order: plan.Order, Versions: r.session.Metadata.Versions,
	})
	if failure == nil {
		panicked := protect(r.log, func() { failure = r.perform(ctx) })
		failure = cmp.Or(panicked, failure)
	}
	r.stored(ctx)
	r.closeAccount(ctx)
	r.finish(failure)
	r.log.InfoContext(ctx, "session finished",
		"status", r.session.Status, "members", len(plan.Members()), "answers", len(r.authors),
		"ballots", r.session.Metadata.Agreement.Ballots, "persisted", r.session.Persisted,
		"total_ms", r.session.Metadata.Timing.TotalMS)
	if failure != nil {
		failure.SessionID = plan.SessionID
		failure.Paid = r.account.Paid()
		r.observe(council.EventFailed, failure)
		return r.session, failure
	}
	r.observe(council.EventDone, r.session) // From here on, the panic of an observer is only logged.
	return r.session, nil
}

// Open begins the account of a session, or returns why the session must not begin. Run uses an account that is open
// already. A front door calls Open before Run, to refuse a session at once.
func (p *Pipeline) Open(ctx context.Context, plan council.Plan) *council.Error {
	_, failure := p.o.Book.Open(ctx, p.o.Book.Opening(plan))
	return failure
}

// open begins the account of the session, or finds the one that [Pipeline.Open] has begun.
func (r *run) open(ctx context.Context) *council.Error {
	account, failure := r.p.o.Book.Open(ctx, r.p.o.Book.Opening(r.plan))
	if failure != nil {
		return failure
	}
	r.account = account
	r.calls.Account = account
	return nil
}

// Drop ends the account of a session that Open has begun and that Run will not run.
func (p *Pipeline) Drop(ctx context.Context, sessionID string) {
	if account := p.o.Book.Account(sessionID); account != nil {
		account.Close(ctx, false)
	}
}

// closeAccount ends the account of the session. It records the cost even after the client has left and ctx has ended.
func (r *run) closeAccount(ctx context.Context) {
	continues := r.kept != nil && !r.kept.Last && ctx.Err() != nil &&
		r.p.o.HandsOver != nil && r.p.o.HandsOver(context.Cause(ctx))
	warnings := r.account.Close(context.WithoutCancel(ctx), continues)
	r.session.Metadata.Warnings = append(r.session.Metadata.Warnings, warnings...)
}

// newRun returns a run that has done nothing yet.
func (p *Pipeline) newRun(plan council.Plan, observer council.Observer) *run {
	state := &runlog.State{}
	_ = state.Read(plan) // It cannot fail, because the state has no entries.
	reviewed := make(chan struct{})
	return &run{
		p: p, plan: plan, start: time.Now(), account: spend.Nothing(), calls: p.newCalls(plan), session: plan.Session(),
		log: p.o.Log.With("session_id", plan.SessionID), observer: observer,
		answers: map[string]string{}, votes: map[string]ranking.Vote{},
		state: state, reviewed: reviewed, endYield: sync.OnceFunc(func() { close(reviewed) }),
	}
}

// newCalls returns the calls of a plan's session. They have no log, and no account from which they could be paid.
func (p *Pipeline) newCalls(plan council.Plan) *calls.Calls {
	size := int64(len(plan.Question()))
	if plan.Task != nil {
		size += int64(len(plan.Task.Input))
	}
	return &calls.Calls{
		Session: plan.SessionID, Provider: p.o.Completer, Size: p.o.Size, Account: spend.Nothing(), Settings: p.o.Settings,
		Memory: calls.NewMemory(plan.Rules.MaxSessionBytes, size),
	}
}

// costWarnings warns of calls that may have been paid twice, and of limits that could not be enforced in full.
func (r *run) costWarnings() []council.Warning {
	var w []council.Warning
	if repeated := r.calls.Repeated(); repeated != "" {
		w = append(w, council.Warning{
			Code: council.WarnTakenOver,
			Message: fmt.Sprintf(
				"the session was taken over from a daemon that was gone: these calls of %s may have been paid twice: %s",
				r.state.Open(), repeated,
			),
		})
	}
	cost, tokens := r.account.Unknown()
	if r.plan.MaxCostUSD != nil && cost {
		w = append(w, council.Warning{
			Code:    council.WarnCostUnknown,
			Message: "a cost limit is set, but not every provider says what its calls cost: unknown costs count as nothing",
		})
	}
	if r.plan.MaxTotalTokens != nil && tokens {
		w = append(w, council.Warning{
			Code:    council.WarnTokensUnknown,
			Message: "a token limit is set, but not every provider reports its tokens: unknown ones count as nothing",
		})
	}
	return w
}

// protect calls the function work. If the function panics, protect logs the panic and returns an error, so that the
// panic ends one session and not the daemon.
func protect(log *slog.Logger, work func()) (failure *council.Error) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic in a session", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			failure = &council.Error{
				Code: council.CodeInternal, Detail: "internal error; the log says more", Cause: fmt.Errorf("panic: %v", v),
			}
		}
	}()
	work()
	return nil
}

// perform performs the stages of the plan in their order. It returns the error that prevented a result, or nil.
func (r *run) perform(ctx context.Context) (failure *council.Error) {
	defer func() { failure = r.endTask(ctx, failure) }()
	defer r.endSides()   // Sides look at the answers while reviewers and the chairman work.
	defer r.endRecords() // A session that fails leaves records too, because its reviews were paid for.
	for _, stage := range r.plan.Stages {
		if r.decided() {
			break
		}
		failure := r.stop(ctx)
		if failure == nil {
			failure = r.performOne(ctx, stage)
		}
		if name := stage.Kind.Stage(); name != "" {
			r.session.Metadata.Stages = append(r.session.Metadata.Stages, name)
		}
		if failure != nil {
			return failure
		}
	}
	return r.pick(ctx)
}

// performOne performs one stage. It returns the error that ends the run, or nil.
func (r *run) performOne(ctx context.Context, stage council.StagePlan) *council.Error {
	switch stage.Kind {
	case council.KindAnswers:
		return r.ask(ctx, stage)
	case council.KindGiven:
		return r.take(stage)
	case council.KindReviews:
		return r.review(ctx, stage)
	case council.KindSynthesis:
		return r.synthesise(ctx)
	case council.KindVotes:
		return r.vote(ctx, stage)
	case council.KindTask1, council.KindTask2:
		return r.round(ctx, stage)
	default:
		return &council.Error{Code: council.CodeInternal, Detail: "a session has no stage of the kind " + string(stage.Kind)}
	}
}

// stop returns why the run must not continue, or nil. The reasons are a panic, a caller that has left, an interruption
// of a run with a log, and a degraded result that the request refuses.
func (r *run) stop(ctx context.Context) *council.Error {
	r.mu.Lock()
	broken := r.broken
	r.mu.Unlock()
	if broken != nil {
		return broken
	}
	if ctx.Err() != nil {
		if e, ok := errors.AsType[*council.Error](context.Cause(ctx)); ok && e.Code == council.CodeInterrupted {
			return new(*e)
		}
		return &council.Error{Code: council.CodeCancelled, Detail: "the session was cancelled", Cause: context.Cause(ctx)}
	}
	if r.plan.OnPartial == council.PartialRefuse && len(r.session.Degradation) > 0 {
		e := &council.Error{
			Code:   council.CodePartialRefused,
			Detail: "part of the council is missing, and the request refuses a degraded result",
		}
		for _, d := range r.session.Degradation {
			e.Fields = append(e.Fields, council.FieldError{
				Field: string(d.Stage) + " " + d.Model, Message: string(d.Code), Fix: advice(d.Code, r.p.o.Settings),
			})
		}
		return e
	}
	return nil
}

// finish sets the status, the note, the warnings, the usage and the times of the whole run.
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
	if r.plan.Rules.DegradedNote && r.plan.Output == nil {
		s.Note = council.NoteFor(s)
	}
	r.warnOfOptionsLeftOut()
	r.warnOfCutPrompts()
	for _, w := range r.costWarnings() {
		known := func(other council.Warning) bool { return other.Code == w.Code }
		if !slices.ContainsFunc(s.Metadata.Warnings, known) {
			s.Metadata.Warnings = append(s.Metadata.Warnings, w)
		}
	}
	s.Metadata.Usage = r.account.Usage()
	t := &s.Metadata.Timing
	t.TotalMS = milliseconds(time.Since(r.start))
	t.OverheadMS = max(0, t.TotalMS-r.slowest())
}

// slowest returns the time that the session had to wait for models, in milliseconds. It adds up the time of the slowest
// call of each stage.
func (r *run) slowest() float64 {
	s := r.session
	var one, two, three, votes float64
	for _, a := range s.Stage1 {
		one = max(one, a.LatencyMS)
	}
	for _, v := range s.Stage2 {
		two = max(two, v.LatencyMS)
	}
	for _, v := range r.replies {
		votes = max(votes, v.LatencyMS)
	}
	if s.Stage3 != nil {
		three = s.Stage3.LatencyMS
	}
	return one + two + three + votes
}

// observe reports an event to two observers: first to the Observer of the Options, then to the observer of the run. If
// the log already holds the event, only the first observer gets it, and only if it is EventStarted. If one observer
// panics, the session ends, but the other still gets the event.
//
// After a run with a log is cancelled, observe reports only the end of the run. Model calls that fail because of the
// cancellation are not reported, because another process can repeat them.
func (r *run) observe(t council.EventType, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t != council.EventDone && t != council.EventFailed {
		select {
		case <-r.left:
			return
		default:
		}
	}
	observers := [...]council.Observer{r.p.o.Observer, r.observer}
	if r.state.Tells(t, data) {
		observers[1] = nil
		if t != council.EventStarted {
			return
		}
	}
	for _, o := range observers {
		if o == nil {
			continue
		}
		failure := protect(r.log, func() { o.Observe(council.Event{Type: t, SessionID: r.plan.SessionID, Data: data}) })
		r.broken = cmp.Or(failure, r.broken)
	}
}

func (r *run) degrade(stage council.Stage, member string, f *council.Failure) {
	r.session.Degradation = append(
		r.session.Degradation, council.Degradation{Stage: stage, Model: member, Code: f.Code, Message: f.Message},
	)
}

func (r *run) warn(code council.WarningCode, message string) {
	r.session.Metadata.Warnings = append(r.session.Metadata.Warnings, council.Warning{Code: code, Message: message})
}

// eachSeat calls the function visit for each seat of the session, in the order of the stages.
func (r *run) eachSeat(visit func(seat string, spent council.Spent)) {
	for _, a := range r.session.Stage1 {
		visit(a.Model, a.Spent)
	}
	for _, v := range r.session.Stage2 {
		visit(v.Model, v.Spent)
	}
	for _, v := range r.replies {
		visit(v.Seat, v.Spent)
	}
	if s := r.session.Stage3; s != nil {
		visit(s.Model, s.Spent)
	}
}

// warnOfOptionsLeftOut warns of options that are set, but that some models do not take.
func (r *run) warnOfOptionsLeftOut() {
	var seats map[string][]string // by option
	add := func(seat string, spent council.Spent) {
		for _, option := range spent.LeftOut {
			if seats == nil {
				seats = map[string][]string{}
			}
			if !slices.Contains(seats[option], seat) {
				seats[option] = append(seats[option], seat)
			}
		}
	}
	r.eachSeat(add)
	if len(seats) == 0 {
		return
	}
	for _, option := range slices.Sorted(maps.Keys(seats)) {
		r.warn(council.WarnOptionLeftOut, option+" is set, and these models do not take it: they were asked without it: "+
			strings.Join(seats[option], ", "))
	}
}

// warnOfCutPrompts warns of models whose prompts were cut.
func (r *run) warnOfCutPrompts() {
	var cut []string
	add := func(seat string, spent council.Spent) {
		if spent.PromptCut && !slices.Contains(cut, seat) {
			cut = append(cut, seat)
		}
	}
	r.eachSeat(add)
	if len(cut) > 0 {
		r.warn(council.WarnPromptCut,
			"the servers of these models read only a part of their prompts, and ballots on such prompts do not count: "+
				strings.Join(cut, ", ")+"; raise the context length of the server")
	}
}

// warnOfFastestOnly warns if models that were too slow are missing from a stage.
func (r *run) warnOfFastestOnly(stage council.Stage) {
	var slow []string
	for _, d := range r.session.Degradation {
		if d.Stage == stage && (d.Code == council.FailCut || d.Code == council.FailTimeout) {
			slow = append(slow, d.Model)
		}
	}
	if len(slow) > 0 {
		r.warn(council.WarnFastestOnly,
			fmt.Sprintf(
				"%s was decided by the fastest models: these had not answered when it ended: %s", stage, strings.Join(slow, ", "),
			))
	}
}

func ids(members []council.Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.ID
	}
	return out
}

// seatError says why a seat failed, in the provider's own words if it gave any. The provider's words have at most 1
// KiB, hold no key, and are not logged. seatError leaves out the words with which a model refuses, because these words
// are an answer. They stay in the session.
func seatError(member string, f *council.Failure, names council.SettingNames) council.FieldError {
	message := f.Error()
	if f.Code == council.FailRefused {
		message = string(f.Code)
	}
	return council.FieldError{Field: member, Message: message, Fix: advice(f.Code, names)}
}

// advice tells the caller what to do about a failure.
func advice(code council.FailureCode, names council.SettingNames) string {
	return cmp.Or(map[council.FailureCode]string{
		council.FailTimeout: fmt.Sprintf("allow more time (timeout_seconds, %s), or use a faster model",
			names.Of(council.SettingAttemptTimeout)),
		council.FailRateLimited:     "wait, or ask the provider for a higher limit",
		council.FailOutOfQuota:      "add credit or raise the quota at the provider, or use another model",
		council.FailUnauthorized:    "check the provider's API key",
		council.FailRejected:        "change what the provider refuses, because it will refuse the same request again",
		council.FailContentFilter:   "change the question, or use a model of another provider",
		council.FailUnknownModel:    "check the model's name and " + names.Of(council.SettingProviders),
		council.FailUnknownProvider: "check the model's name and " + names.Of(council.SettingProviders),
		council.FailConnection:      "check that the provider runs, its address, its certificate, and time limits of proxies",
		council.FailTooLarge:        "ask for shorter texts, lower " + names.Of(council.SettingMaxOutputTokens) + ", or ask fewer members",
		council.FailPromptCut:       "raise the context length of the model's server",
		council.FailLength:          "raise " + names.Of(council.SettingMaxOutputTokens),
		council.FailInvalidOutput:   "simplify the schema, or use a chairman that supports response_format",
		council.FailBudget:          "raise the cost or token limit",
	}[code], "try again; if it persists, replace the model")
}
