package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/replies"
	"github.com/councild/councild/internal/schema"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/stage3"
)

// Prompts returns the versions of the prompts that this process has.
func Prompts() []string { return []string{stage2.PromptVersion, stage3.PromptVersion, withSchema} }

// withSchema is the version of the chairman's prompt where the caller gave a schema.
const withSchema = stage3.PromptVersion + "+" + schema.PromptVersion

// Needs returns the versions of the prompts of each stage that is not done in a run whose
// log holds past. A process that has them can go on with the run, whatever its settings
// are.
func Needs(plan council.Plan, past []council.Past) (prompts []string) {
	if plan.Direct {
		return nil // the conversation is the prompt
	}
	done := map[council.EventType]bool{}
	for _, entry := range past {
		done[entry.Type] = true
	}
	if !done[council.EventStage2] {
		prompts = append(prompts, plan.Rules.ReviewPrompt)
	}
	if !done[council.EventStage3] {
		prompts = append(prompts, plan.Versions.Synthesis)
	}
	return prompts
}

// past is what a run knows of itself from its log, besides the outcomes of its calls. The
// zero value is that of a run that begins.
type past struct {
	noted map[noted]bool
	done  map[council.Stage]time.Duration // when a stage was done, from the start of the run
	// delivered holds when seats of a stage delivered, from the start of the run, in the
	// order of the log.
	delivered map[council.Stage][]time.Duration
	sides     map[string]bool // the seats of sides whose calls have landed
	tally     *council.Tally
	// text says that watchers may have been shown text that no restart voids and no result
	// confirms. writer is how many calls of stage 3 had ended when it came.
	text   bool
	writer int
}

// noted is an event that a run observes once.
type noted struct {
	event council.EventType
	seat  string // member id; "" for an event of the whole run
}

// readPast reads the entries of a log. After an error it returns what stands before.
func readPast(entries []council.Past) (past, error) {
	p := past{
		noted: map[noted]bool{}, sides: map[string]bool{}, done: map[council.Stage]time.Duration{},
		delivered: map[council.Stage][]time.Duration{},
	}
	stages := map[council.EventType]council.Stage{
		council.EventAnswer: council.Stage1, council.EventStage1: council.Stage1,
		council.EventBallot: council.Stage2, council.EventStage2: council.Stage2, council.EventStage3: council.Stage3,
	}
	ended := 0 // calls of stage 3
	for _, entry := range entries {
		// The members that Answer, Review and Landed have in common, without their texts.
		var outcome struct {
			Model  string          `json:"model"`
			Status council.Outcome `json:"status"`
			Stage  council.Stage   `json:"stage"`
			Seat   string          `json:"seat"`
		}
		var err error
		switch entry.Type {
		case council.EventAnswer, council.EventBallot, council.EventCall:
			err = json.Unmarshal(entry.Data, &outcome)
		case council.EventStage2:
			err = json.Unmarshal(entry.Data, &p.tally)
		default: // the type says enough
		}
		if err != nil {
			return p, fmt.Errorf("reading %s: %w", entry.Type, err)
		}
		stage := stages[entry.Type]
		switch entry.Type {
		case council.EventAnswer, council.EventBallot:
			p.text = false // text before an answer is that of a direct run: the answer confirms it
			p.noted[noted{entry.Type, outcome.Model}] = true
			if outcome.Status == council.OutcomeOK {
				p.delivered[stage] = append(p.delivered[stage], entry.At)
			}
		case council.EventStarted:
			p.noted[noted{event: entry.Type}] = true
		case council.EventStage1, council.EventStage2, council.EventStage3:
			p.text = false
			p.noted[noted{event: entry.Type}] = true
			p.done[stage] = entry.At
		case council.EventCall:
			if outcome.Stage == council.Stage3 {
				ended++
			}
			if outcome.Stage.IsSide() {
				p.sides[outcome.Seat] = true
			}
		case council.EventDelta:
			p.text = true
			p.writer = ended
		case council.EventRestart:
			p.text = false
		default: // the run is not over
		}
	}
	return p, nil
}

// tells reports whether the log holds an event.
func (p past) tells(event council.EventType, data any) bool {
	switch data := data.(type) {
	case council.Answer:
		return p.noted[noted{event, data.Model}]
	case council.Review:
		return p.noted[noted{event, data.Model}]
	case council.AnswerDelta:
		return p.noted[noted{council.EventAnswer, data.Model}]
	case council.AnswerRestart:
		return p.noted[noted{council.EventAnswer, data.Model}]
	case council.Delta, council.Restart:
		return p.noted[noted{event: council.EventStage3}]
	default:
		return p.noted[noted{event: event}]
	}
}

// began returns when a stage began, from the start of the run. It reports false when the
// stage begins in this process.
func (p past) began(stage council.Stage) (time.Duration, bool) {
	switch stage {
	case council.Stage1:
		return 0, p.noted[noted{event: council.EventStarted}]
	case council.Stage2:
		at, ok := p.done[council.Stage1]
		return at, ok
	default:
		at, ok := p.done[council.Stage2]
		return at, ok
	}
}

// open returns the stage that had begun and was not done, "" for none. Its calls without
// an outcome may have been in flight.
func (p past) open() council.Stage {
	for _, stage := range []council.Stage{council.Stage1, council.Stage2, council.Stage3} {
		_, began := p.began(stage)
		if _, done := p.done[stage]; began && !done {
			return stage
		}
	}
	return ""
}

// lost returns how many seats of the open stage have no result: each may have had a call in flight. So may the seats of
// sides, which look at the answers during stages 2 and 3.
func (p past) lost(plan council.Plan) int {
	var seats []council.Member
	var result council.EventType
	without := 0
	if open := p.open(); open == council.Stage2 || open == council.Stage3 {
		for _, side := range plan.Sides {
			for _, seat := range side.Seats {
				if !p.sides[seat] {
					without++
				}
			}
		}
	}
	switch p.open() {
	case council.Stage1:
		seats = plan.Members
		result = council.EventAnswer
	case council.Stage2:
		seats = plan.Reviewers
		result = council.EventBallot
	case council.Stage3: // one call at a time
		return without + 1
	default:
		return 0
	}
	for _, seat := range seats {
		if !p.noted[noted{result, seat.ID}] {
			without++
		}
	}
	return without
}

// keep connects the run to its log. leave ends the run's context.
func (r *run) keep(ctx context.Context, kept *council.Log, leave context.CancelCauseFunc) *council.Error {
	r.kept = kept
	r.left = ctx.Done()
	last := kept.Last
	for _, prompt := range Needs(r.plan, kept.Past) {
		if !slices.Contains(Prompts(), prompt) {
			r.log.WarnContext(ctx, "the session cannot be gone on with by this version: it ends with what landed", "prompt", prompt)
			last = true
		}
	}
	r.start = r.start.Add(-kept.Elapsed)
	interrupt := func(cause error) *council.Failure {
		leave(&council.Error{
			Code: council.CodeInterrupted, Cause: cause,
			Detail: "the daemon that ran the session is gone, and no other could finish it; what landed can be read",
		})
		return &council.Failure{Code: council.FailInterrupted, Message: "not called: the session was interrupted"}
	}
	r.meter.mayCall = func(ctx context.Context, call council.Call) *council.Failure {
		switch {
		case call.Stage.IsSide(): // the session does without it
			if last || kept.MayCall(ctx) != nil {
				return &council.Failure{Code: council.FailInterrupted, Message: "not called: this daemon may begin no call of the session"}
			}
			return nil
		case last && call.Stage == council.Stage3: // the best answer can take the place of the synthesis
			return &council.Failure{Code: council.FailInterrupted, Message: "not called: no daemon can go on with the session"}
		case last:
			return interrupt(errors.New("the run may begin no call"))
		default:
			if err := kept.MayCall(ctx); err != nil {
				return interrupt(err)
			}
			return nil
		}
	}
	answers, err := replies.New(kept.Past, replies.Options{
		ModelOf: r.plan.ModelOf,
		Next:    calling{r.calls, kept}, Stored: kept.Stored, Observe: func(l council.Landed) { r.observe(council.EventCall, l) },
	})
	if err == nil {
		r.past, err = readPast(kept.Past)
	}
	if err != nil {
		return &council.Error{Code: council.CodeInterrupted, Detail: "the log of the session is damaged", Cause: err}
	}
	r.calls = answers
	r.meter.open = r.past.open()
	writing := r.meter.open == council.Stage3 ||
		r.plan.Direct && r.meter.open == council.Stage1 && !r.past.noted[noted{council.EventAnswer, r.plan.Members[0].ID}]
	if writing && r.plan.Deltas {
		r.past.text = true // the last of it is shown before it is stored
	}
	for landed := range answers.Landed() {
		r.meter.hold(int64(len(landed.Completion.Text) + len(landed.Completion.Reasoning)))
		r.meter.add(landed.Stage, landed.Model, landed.Completion.Usage)
	}
	if r.p.o.Accounts != nil {
		r.p.o.Accounts.Add(r.plan.SessionID, slices.Collect(answers.Landed()), r.past.lost(r.plan))
	}
	return nil
}

// calling tells the log of a run which calls are under way.
type calling struct {
	council.Completer
	log *council.Log
}

// Complete implements council.Completer.
func (c calling) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	if c.log.Calling != nil {
		defer c.log.Calling()()
	}
	return c.Completer.Complete(ctx, call)
}

// stored waits until everything that the run has observed is stored.
func (r *run) stored(ctx context.Context) {
	if r.kept != nil {
		r.kept.Stored(ctx)
	}
}

// voidText voids the text that an earlier process left unfinished, before a writer
// begins again.
func (r *run) voidText(writers []council.Member) {
	if r.past.text {
		writer := writers[min(r.past.writer, len(writers)-1)]
		r.observe(council.EventRestart, council.Restart{Model: writer.ID, Reason: council.FailInterrupted})
	}
}

// voidAnswers is voidText for the members whose answers did not land: what an earlier
// process has shown of them may not be stored, so the log cannot say who wrote.
func (r *run) voidAnswers() {
	if r.kept == nil || r.meter.open != council.Stage1 {
		return
	}
	for _, m := range r.plan.Members { // the log holds the answers of the others: observe leaves these out
		r.observe(council.EventAnswerRestart, council.AnswerRestart{Model: m.ID, Reason: council.FailInterrupted})
	}
}
