package batch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/spend"
)

// Council is what a run asks.
type Council interface {
	Prepare(r council.Request) (council.Plan, error)
	Estimate(plan council.Plan) spend.Estimate
	Panel(ctx context.Context, plan council.Plan, arms []pipeline.Arm, b pipeline.Budget) ([]pipeline.ArmResult, error)
	Judge(
		ctx context.Context, plan council.Plan, arm string, order int, judges []council.Member, answer, other string, b pipeline.Budget,
	) ([]pipeline.Verdict, bool)
}

// Options are what a run works with.
type Options struct {
	Council     Council
	Calls       *Calls
	Plan        Plan
	Questions   []Question // in the order of the plan
	Out         string     // the file of results
	MaxCostUSD  float64    // what the run may cost, what it has cost included
	Concurrency int        // questions at once, 1 or more
	// Progress is told of each question that is over; nil: nobody is.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Done, Questions int
	Usage           council.Usage // of the questions that are over
}

// Outcome says how a run ended.
type Outcome struct {
	Results []Result // in the order of the plan
	Usage   council.Usage
	// Stopped says why not all questions were asked; nil: they were. The same run goes on.
	Stopped *Stop
	// Left is what was left of the limit of cost, in US dollars. Next is the most that the next question could have cost,
	// where it was not begun for that reason; nil: nobody knows, or it was begun.
	Left float64
	Next *float64
}

// Stop is why a run ended early.
type Stop string

// The reasons.
const (
	StoppedByCap   Stop = "cap"     // the next question may cost more than is left
	StoppedUnknown Stop = "unknown" // nobody tells what calls cost
	StoppedSignal  Stop = "signal"
)

// head is the first line of a file of results, and tail the last one.
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

// File is what a file of results holds.
type File struct {
	Plan    Plan
	Hash    string
	Results []Result
	Ended   bool

	size int64 // of the lines that are whole
}

// Open reads a file of results. A torn last line is passed over. Without such a file, the error is fs.ErrNotExist.
func Open(name string) (File, error) {
	var f File
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
			f.Plan, f.Hash = h.Plan, h.Hash
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
			return f, fmt.Errorf("%s: line %d: %w: it is no file of results, or damaged", name, n, err)
		}
	}
	f.size = int64(len(whole))
	return f, nil
}

// run is a run while it runs.
type run struct {
	Options
	arms   []pipeline.Arm
	file   disk.File
	closed bool // the file holds an end

	mu        sync.Mutex
	changed   *sync.Cond
	elsewhere float64        // what questions cost whose calls are not kept any more, in US dollars
	held      float64        // by questions that are asked now
	asked     int            // questions that are asked now
	cut       int            // questions whose room did not suffice, and that wait
	over      int            // questions that are over
	dearest   float64        // of those
	done      map[int]Result // those that wait for their turn in the file
	written   []Result
	usage     council.Usage
	stop      *Stop
	next      *float64 // as in Outcome
	failed    error
}

// Run asks the questions that the file of results does not hold yet, and appends them in the order of the plan. It goes
// on where an earlier run stopped, and asks nothing where one ended. With a plan that is not that of the file, it returns an error and asks nothing.
func Run(ctx context.Context, o Options) (_ Outcome, err error) {
	r := &run{Options: o, arms: o.Plan.Panel(), done: map[int]Result{}, usage: council.NoUsage()}
	r.changed = sync.NewCond(&r.mu)
	earlier, err := r.open()
	if err != nil {
		return Outcome{}, err
	}
	defer func() { err = errors.Join(err, r.file.Close()) }()
	for _, result := range earlier {
		if cost := result.Usage.CostUSD; cost != nil {
			r.dearest = max(r.dearest, *cost)
			if len(r.Calls.Landed(result.Session)) == 0 {
				r.elsewhere += *cost
			}
		}
		r.usage = r.usage.Plus(result.Usage)
	}
	r.over, r.written = len(earlier), earlier
	plans := make([]council.Plan, len(o.Questions))
	for i := range o.Questions[len(earlier):] {
		q := o.Questions[len(earlier)+i]
		plan, err := o.Council.Prepare(q.Request())
		if err != nil {
			return Outcome{}, fmt.Errorf("question %.64q: %w", q.ID, err)
		}
		plans[len(earlier)+i] = o.Plan.Of(q.ID, plan)
	}
	if r.closed {
		return Outcome{Results: earlier, Usage: r.usage}, nil
	}
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
	for i := len(earlier); i < len(o.Questions); i++ {
		room, ok := r.admit(ctx, Bound(o.Council, plans[i], o.Plan))
		if !ok {
			break
		}
		wg.Go(func() { r.ask(ctx, i, plans[i], room) })
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Outcome{Results: r.written, Usage: r.usage, Stopped: r.stop, Left: r.leftLocked(), Next: r.next}
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

// open opens the file of results, and returns what it holds.
func (r *run) open() ([]Result, error) {
	if err := r.Plan.Matches(r.Out); err != nil {
		return nil, err
	}
	held, err := Open(r.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(held.Results) > len(r.Questions) {
		return nil, fmt.Errorf("%s holds more questions than the plan has: it is damaged", r.Out)
	}
	for i, result := range held.Results {
		if result.ID != r.Questions[i].ID {
			return nil, fmt.Errorf("%s: question %d is %.64q and not %.64q: it is damaged", r.Out, i+1, result.ID, r.Questions[i].ID)
		}
	}
	r.closed = held.Ended
	if r.file, err = (disk.OS{}).OpenFile(r.Out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	err = r.file.Truncate(held.size)
	if err == nil && held.size == 0 {
		err = appendLine(r.file, head{"plan", r.Plan.Hash(), r.Plan})
	}
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	return held.Results, nil
}

func appendLine(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if _, err = w.Write(append(line, '\n')); err != nil {
		return err
	}
	if f, ok := w.(disk.File); ok {
		return f.Sync()
	}
	return nil
}

// Bound returns the most that a question can cost under a plan, in US dollars, without calls that are tried again; nil:
// nobody knows.
func Bound(c Council, session council.Plan, p Plan) *float64 {
	e := c.Estimate(session)
	if e.Upper == nil {
		return nil
	}
	parts := []*spend.USD{e.Upper}
	for _, arm := range p.Panel() {
		if arm.Kind != pipeline.ArmEnsemble {
			parts = append(parts, e.ByStage[string(council.Stage3)].Upper)
			continue
		}
		ensemble := session
		ensemble.Members, ensemble.Reviewers = slices.Repeat([]council.Member{arm.Model}, arm.Samples), nil
		parts = append(parts, c.Estimate(ensemble).Upper)
	}
	if pairs := p.judged(); len(pairs) > 0 {
		judged := session
		judged.Members, judged.Reviewers, judged.Chairmen, judged.Rules.BallotRepair = nil, p.Judges, nil, false
		if most := p.Rules.Sampling.MaxOutputTokens; most != nil { // both answers are in the prompt, of 8 bytes a token at most
			judged.Conversation = append(slices.Clone(session.Conversation),
				council.Message{Role: council.RoleUser, Content: strings.Repeat(" ", 2*8**most)})
		}
		upper := c.Estimate(judged).Upper
		for range 2 * len(pairs) {
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

// leftLocked returns what the run may still cost beside the questions that are asked now.
func (r *run) leftLocked() float64 { return r.MaxCostUSD - r.elsewhere - r.Calls.Cost() - r.held }

// admit waits until the next question may be asked, and returns what it may cost at most. It reports false where it
// must not be asked.
func (r *run) admit(ctx context.Context, bound *float64) (room float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if ctx.Err() != nil || r.stop != nil || r.failed != nil {
			return 0, false
		}
		left := r.leftLocked()
		switch {
		case r.asked >= r.Concurrency || r.cut > 0:
		case bound != nil && *bound <= left:
			return r.holdLocked(*bound), true
		case r.over > 0 && r.dearest <= left && left > 0:
			return r.holdLocked(max(r.dearest, left/float64(r.Concurrency))), true
		case r.over == 0 && bound == nil && r.asked == 0 && left > 0:
			return r.holdLocked(left), true
		case r.asked == 0:
			r.stop, r.next = new(StoppedByCap), bound
			return 0, false
		}
		r.changed.Wait()
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

// ask asks a question. One that its room does not suffice for is asked once more, with all that is left, when no other
// is asked: what it has paid for is kept.
func (r *run) ask(ctx context.Context, i int, plan council.Plan, room float64) {
	for attempt := 1; ; attempt++ {
		all := r.sessions(plan.SessionID)
		before := r.Calls.Cost(all...)
		b := pipeline.Budget{Landed: r.Calls.Landed, Limit: func(session string) float64 {
			answered := r.Calls.usage(session).CostUSD // is answered again for nothing, and counts
			return room - (r.Calls.Cost(all...) - before) + *cmp.Or(answered, new(float64))
		}}
		ran, err := r.Council.Panel(ctx, plan, r.arms, b)
		short := err == nil && isCut(ran)
		if err == nil && !short {
			done := result(r.Questions[i], plan, ran)
			if short = r.judge(ctx, plan, &done, b); !short && ctx.Err() == nil && r.Calls.err() == nil {
				r.end(i, done)
			}
		}
		r.release(room)
		if !short {
			return
		}
		r.Calls.forget(all...)
		var ok bool
		if room, ok = r.again(ctx, attempt); !ok {
			return
		}
	}
}

// again waits until no question is asked, and returns all that is left for one whose room did not suffice.
func (r *run) again(ctx context.Context, attempt int) (room float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut++
	defer func() { r.cut-- }()
	for r.asked > 0 && ctx.Err() == nil {
		r.changed.Wait()
	}
	if room = r.leftLocked(); attempt > 1 || room <= 0 { // it has had all that was left
		r.stop = new(StoppedByCap)
	}
	if ctx.Err() != nil || r.stop != nil || r.failed != nil {
		r.changed.Broadcast()
		return 0, false
	}
	return r.holdLocked(room), true
}

// isCut reports whether a limit of cost kept the council or an arm from a call.
func isCut(ran []pipeline.ArmResult) bool {
	return slices.ContainsFunc(ran, func(a pipeline.ArmResult) bool {
		if f := a.Failure; f != nil && (f.Code == council.CodeOverBudget || f.Code == council.CodeInvalid || f.Code == council.CodeUnpriced) {
			return true
		}
		return slices.ContainsFunc(a.Session.Degradation, func(d council.Degradation) bool { return d.Code == council.FailBudget })
	})
}

// sessions returns the ids of the sessions of a question.
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

// end notes what came of a question, and appends all lines whose turn it is.
func (r *run) end(i int, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[i] = result
	r.over++
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
		if len(r.Plan.Arms) == 0 { // in a comparison nothing is scored before its end
			next.grade(r.Questions[len(r.written)], r.Plan.Rules.PartialBallots)
		}
		if r.failed = appendLine(r.file, next); r.failed == nil {
			r.written = append(r.written, next)
			r.usage = r.usage.Plus(next.Usage)
		}
	}
	if r.Progress != nil {
		r.Progress(Progress{Done: r.over, Questions: len(r.Questions), Usage: r.usage})
	}
}
