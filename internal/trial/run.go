package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/spend"
)

// Council answers the questions of a run. It is implemented by *[pipeline.Pipeline].
type Council interface {
	Panel(
		ctx context.Context, plan council.Plan, arms []pipeline.Arm, b pipeline.QuestionBudget,
	) ([]pipeline.ArmResult, error)
	Judge(
		ctx context.Context, plan council.Plan, arm string, order int, judges []council.Member, answer, other string,
		b pipeline.QuestionBudget,
	) ([]pipeline.Preference, bool)
}

// Options are the input of a run.
type Options struct {
	Council     Council
	Calls       *Calls
	Plan        Plan
	Questions   []Prepared // in the order of the plan
	Out         string     // the name of the results file
	Held        ResultFile // the results that Out holds already, from [Plan.Held]
	MaxCostUSD  float64    // the most that the run may cost, including earlier processes
	Concurrency int        // how many questions are asked at once, 1 or more
	// Over is called for each question that is over, with the id of its session. At that time, the question has no line
	// in the results file yet. If the money for a question did not suffice, the question is asked again. Over is then
	// called only once, at the end of the last attempt. An error of Over ends the run. Over may be nil.
	Over func(session string) error
	// Progress is called for each question that is over. It may be nil.
	Progress func(Progress)
}

// Prepared is a question that is ready to be asked.
type Prepared struct {
	Question
	Session council.Plan // the plan of the session, from [Plan.Of]
	// Bound is the most that the question can cost without retries, in US dollars. It is nil if there is no known bound.
	Bound *float64
}

// Progress says how far a run is.
type Progress struct {
	Done, Questions int
	Usage           council.Usage // the usage of the questions that are over
}

// Outcome says how a run ended.
type Outcome struct {
	Results []Result // the questions that have a line in the file, in the order of the plan
	Over    int      // how many questions have a result, earlier runs included, including questions whose line waits for earlier questions
	CostUSD float64  // the cost that counts against Options.MaxCostUSD
	// Stopped says why not all questions were asked. It is nil if all were asked. The same run can continue.
	Stopped *Stop
	// Left is how much of Options.MaxCostUSD remained at the end, in US dollars.
	Left float64
	// If the run did not begin the next question for lack of money, Next is the most that this question could have
	// cost. Next is nil in all other cases, and if that cost is not known.
	Next *float64
}

// Stop says why a run ended early.
type Stop string

// The reasons.
const (
	StoppedByCap   Stop = "cap"     // The next question may cost more than is left.
	StoppedUnknown Stop = "unknown" // The cost of a question is not known.
	StoppedSignal  Stop = "signal"  // The context of the run ended.
)

// head is the first line of a results file, and tail the last one.
type head struct {
	Record string `json:"record"` // "plan"
	Hash   string `json:"hash"`
	Plan   Plan   `json:"plan"`
}

type tail struct {
	Record    string        `json:"record"` // "end"
	Hash      string        `json:"hash"`
	Questions int           `json:"questions"`
	Failed    int           `json:"failed"`
	Usage     council.Usage `json:"usage"`
}

// ResultFile is the content of a results file.
type ResultFile struct {
	Plan    Plan
	Hash    string
	Results []Result
	Ended   bool

	size int64 // how many bytes the whole lines have
}

// Open reads a results file. It ignores a torn last line. If there is no such file, the error is fs.ErrNotExist.
func Open(name string) (ResultFile, error) {
	var f ResultFile
	data, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	n := 0
	for line := range bytes.Lines(whole) {
		n++
		var kind struct {
			Record string `json:"record"`
		}
		err := json.Unmarshal(line, &kind)
		switch {
		case err != nil:
		case n == 1 && kind.Record == "plan":
			var h head
			err = json.Unmarshal(line, &h)
			f.Plan = h.Plan
			f.Hash = h.Hash
		case n > 1 && kind.Record == "question" && !f.Ended:
			var r Result
			err = json.Unmarshal(line, &r)
			f.Results = append(f.Results, r)
		case n > 1 && kind.Record == "end" && !f.Ended:
			f.Ended = true
		default:
			err = fmt.Errorf("a record %q does not belong there", kind.Record)
		}
		if err != nil {
			return f, fmt.Errorf("%s: line %d: %w: it is not a results file, or it is damaged", name, n, err)
		}
	}
	f.size = int64(len(whole))
	return f, nil
}

// run is the state of a run.
type run struct {
	Options
	arms []pipeline.Arm
	file disk.File

	mu        sync.Mutex
	changed   *sync.Cond
	elsewhere float64        // the cost of questions that are in the results file, but not in Calls, in US dollars
	held      float64        // the money that is reserved for the questions in flight, in US dollars
	asked     int            // how many questions are in flight
	cut       int            // how many questions wait to be asked again because their money did not suffice
	over      int            // how many questions have a result, earlier runs included
	dearest   float64        // the highest cost of a question with a result, in US dollars
	done      map[int]Result // the questions that wait for their turn in the file, by index
	written   []Result
	usage     council.Usage
	stop      *Stop
	next      *float64 // as in Outcome
	failed    error
}

// Run asks the questions that the results file does not hold yet, and appends their results in the order of the plan.
// It continues a run that stopped early. If an earlier process has ended the run, Run asks no question.
func Run(ctx context.Context, o Options) (_ Outcome, err error) {
	r := &run{Options: o, arms: o.Plan.Panel(), done: map[int]Result{}, usage: council.NoUsage()}
	r.changed = sync.NewCond(&r.mu)
	for _, result := range o.Held.Results {
		if cost := result.Usage.CostUSD; cost != nil {
			r.dearest = max(r.dearest, *cost)
			if len(r.Calls.Landed(result.Session)) == 0 {
				r.elsewhere = council.AddUSD(r.elsewhere, *cost)
			}
		}
		r.Calls.forget(r.sessions(result.Session)...)
		r.usage = r.usage.Plus(result.Usage)
	}
	r.over = len(o.Held.Results)
	r.written = o.Held.Results
	if o.Held.Ended {
		return Outcome{Results: r.written, Over: r.over}, nil
	}
	if err := r.open(); err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, r.file.Close()) }()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	r.Calls.leave = func(cause error) { leave(cause) }
	waking := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer waking()
	var wg sync.WaitGroup
	for i := r.over; i < len(o.Questions); i++ {
		room, ok := r.admit(ctx, o.Questions[i].Bound)
		if !ok {
			break
		}
		wg.Go(func() { r.ask(ctx, i, o.Questions[i].Session, room) })
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Outcome{
		Results: r.written,
		Over:    r.over,
		CostUSD: r.costLocked(),
		Stopped: r.stop,
		Left:    r.leftLocked(),
		Next:    r.next,
	}
	switch {
	case r.failed != nil:
		return out, r.failed
	case r.Calls.err() != nil:
		return out, r.Calls.err()
	case len(r.written) < len(o.Questions) && out.Stopped == nil:
		out.Stopped = new(StoppedSignal)
	}
	return out, nil
}

// open opens the results file, and cuts off a torn last line. It begins an empty file with the plan.
func (r *run) open() (err error) {
	if r.file, err = (disk.OS{}).OpenFile(r.Out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	err = r.file.Truncate(r.Held.size)
	if err == nil && r.Held.size == 0 {
		err = appendLine(r.file, head{"plan", r.Plan.Hash(), r.Plan})
	}
	if err != nil {
		return errors.Join(err, r.file.Close())
	}
	return nil
}

// appendLine appends a value as a line of JSON, and returns when the line is on disk.
func appendLine(f disk.File, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

// Bound returns the most that a question can cost under a plan, in US dollars. It does not count retries. It returns
// nil if there is no known bound.
func Bound(estimate func(council.Plan) spend.Estimate, session council.Plan, p Plan) *float64 {
	e := estimate(session)
	parts := []*spend.USD{e.Upper}
	for _, arm := range p.Panel() {
		if arm.Kind != pipeline.ArmEnsemble {
			parts = append(parts, e.ByStage[string(council.Stage3)].Upper)
			continue
		}
		ensemble := session
		ensemble.Mode = council.ModeSynthesis
		seats := slices.Repeat([]council.Member{arm.Model}, arm.Samples)
		ensemble.Stages = council.Stages(ensemble.Mode, seats, nil, session.Chairmen())
		parts = append(parts, estimate(ensemble).Upper)
	}
	if arms := p.judged(); len(arms) > 0 {
		upper := judges(estimate, session, p)
		for range 2 * len(arms) {
			parts = append(parts, upper)
		}
	}
	var sum spend.USD
	for _, part := range parts {
		if part == nil {
			return nil
		}
		sum = sum.Plus(*part)
	}
	return new(sum.Float64())
}

// judges returns the most that one comparison by all judges of a plan can cost, or nil if there is no known bound. It
// assumes two answers of the longest length that any seat may write.
func judges(estimate func(council.Plan) spend.Estimate, session council.Plan, p Plan) *spend.USD {
	seats := slices.Concat(session.Members(), session.Chairmen())
	if p.Samples > 0 {
		seats = append(seats, p.Ensemble)
	}
	limit := func(m council.Member) int {
		return *cmp.Or(m.Sampling(session.Rules.Sampling).MaxOutputTokens, new(math.MaxInt))
	}
	longest := slices.MaxFunc(seats, func(a, b council.Member) int { return cmp.Compare(limit(a), limit(b)) })
	if limit(longest) == math.MaxInt {
		return nil
	}
	session.Stages = council.Stages(council.ModeRanked, []council.Member{longest, longest}, p.Judges, nil)
	session.Rules.BallotRepair = false
	return estimate(session).ByStage[string(council.Stage2)].Upper
}

// costLocked returns the most that the run can have cost so far, in US dollars. The caller holds mu.
func (r *run) costLocked() float64 { return council.AddUSD(r.elsewhere, r.Calls.Cost()) }

// leftLocked returns how much further questions may cost, in US dollars. The money that is held for questions in flight
// is not part of it.
func (r *run) leftLocked() float64 { return r.MaxCostUSD - r.costLocked() - r.held }

// admit waits until the next question may be asked, and holds the money for it. The result room is the most that the
// question may cost. It reports false if the question must not be asked.
func (r *run) admit(ctx context.Context, bound *float64) (room float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if ctx.Err() != nil || r.stop != nil || r.failed != nil {
			return 0, false
		}
		hold, fits := r.offerLocked(bound)
		switch {
		case r.asked >= r.Concurrency || r.cut > 0:
		case fits:
			return r.holdLocked(hold), true
		case r.asked == 0:
			r.stop = new(StoppedByCap)
			r.next = bound
			return 0, false
		}
		r.changed.Wait()
	}
}

// offerLocked returns how much money may be held for a question. The argument bound is the most that the question can
// cost, or nil if that is not known. If the bound is unknown or above the money that is left, offerLocked uses the
// highest cost of a question so far instead of the bound. Before any question is over, a question without a known bound
// may hold all the money, if no other question is in flight. offerLocked reports false if too little money is left.
func (r *run) offerLocked(bound *float64) (hold float64, ok bool) {
	left := r.leftLocked()
	switch {
	case bound != nil && *bound <= left:
		return *bound, true
	case r.over > 0 && r.dearest <= left && left > 0:
		return max(r.dearest, left/float64(r.Concurrency)), true
	case r.over == 0 && bound == nil && r.asked == 0 && left > 0:
		return left, true
	default:
		return 0, false
	}
}

func (r *run) holdLocked(room float64) float64 {
	r.asked++
	r.held += room
	return room
}

func (r *run) release(room float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked--
	r.held -= room
	r.changed.Broadcast()
}

// ask asks a question. The question may cost as much as the argument room. If that is not enough, ask waits until no
// other question is in flight. It then asks the question once more, with all the money that is left. It does not pay
// again for calls that have an outcome.
func (r *run) ask(ctx context.Context, i int, plan council.Plan, room float64) {
	for attempt := 1; ; attempt++ {
		all := r.sessions(plan.SessionID)
		before := r.Calls.Cost(all...)
		b := pipeline.QuestionBudget{Landed: r.Calls.Landed, Limit: func(session string) float64 {
			// Kept calls are not paid for again, but count against the limit of the session.
			answered := r.Calls.usage(session).CostUSD
			return room - (r.Calls.Cost(all...) - before) + *cmp.Or(answered, new(float64))
		}}
		ran, err := r.Council.Panel(ctx, plan, r.arms, b)
		short := err == nil && isCut(ran)
		if err == nil && !short {
			done := result(r.Questions[i].Question, plan, r.Plan.Arms, ran)
			if short = r.judge(ctx, plan, &done, b); !short && ctx.Err() == nil && r.Calls.err() == nil {
				r.end(i, done, r.onOver(plan.SessionID))
				r.Calls.forget(all...)
			}
		}
		r.release(room)
		if !short {
			return
		}
		r.Calls.again(all...)
		var ok bool
		if room, ok = r.again(ctx, attempt); !ok {
			return
		}
	}
}

// again is called for a question whose money was not enough. It waits until no other question is in flight, and holds
// all the money that is left for the question. It reports false if the question must not be asked again.
func (r *run) again(ctx context.Context, attempt int) (room float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut++
	defer func() { r.cut-- }()
	for r.asked > 0 && ctx.Err() == nil {
		r.changed.Wait()
	}
	if room = r.leftLocked(); attempt > 1 || room <= 0 { // The second attempt already had all that was left.
		r.stop = new(StoppedByCap)
	}
	if ctx.Err() != nil || r.stop != nil || r.failed != nil {
		r.changed.Broadcast()
		return 0, false
	}
	return r.holdLocked(room), true
}

// isCut reports whether a cost limit prevented a call of the council or of an arm.
func isCut(ran []pipeline.ArmResult) bool {
	return slices.ContainsFunc(ran, func(a pipeline.ArmResult) bool {
		if f := a.Failure; f != nil &&
			(f.Code == council.CodeOverBudget || f.Code == council.CodeInvalid || f.Code == council.CodeUnpriced) {
			return true
		}
		return slices.ContainsFunc(a.Session.Degradation, func(d council.Degradation) bool {
			return d.Code == council.FailBudget
		})
	})
}

// sessions returns the ids of the sessions that the council, the arms and the judges have for a question.
func (r *run) sessions(id string) []string {
	ids := append(make([]string, 0, 1+len(r.arms)), id)
	for _, arm := range r.arms {
		ids = append(ids, arm.Session(id))
	}
	for _, arm := range r.Plan.judged() {
		ids = append(ids, pipeline.JudgeSession(id, arm, 0), pipeline.JudgeSession(id, arm, 1))
	}
	return ids
}

func (r *run) onOver(session string) error {
	if r.Over == nil {
		return nil
	}
	return r.Over(session)
}

// end notes the result of a question, and appends all lines whose turn it is. The argument err is the error of
// Options.Over. If it is not nil, the run fails, and appends no more lines.
func (r *run) end(i int, result Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = cmp.Or(r.failed, err)
		return
	}
	r.done[i] = result
	r.over++
	r.usage = r.usage.Plus(result.Usage)
	answered := slices.ContainsFunc(result.Members, func(m Member) bool { return m.Answer != nil })
	switch cost := result.Usage.CostUSD; {
	case cost != nil:
		r.dearest = max(r.dearest, *cost)
	case answered && r.stop == nil:
		r.stop = new(StoppedUnknown)
	}
	for r.failed == nil {
		next, ok := r.done[len(r.written)]
		if !ok {
			break
		}
		delete(r.done, len(r.written))
		if len(r.Plan.Arms) == 0 { // A comparison grades only at its end.
			next.grade(r.Questions[len(r.written)].Question)
		}
		if r.failed = appendLine(r.file, next); r.failed == nil {
			r.written = append(r.written, next)
		}
	}
	if r.Progress != nil {
		r.Progress(Progress{Done: r.over, Questions: len(r.Questions), Usage: r.usage})
	}
}
