package trial

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
)

// slowDisk is a file whose Sync ends when released is closed.
type slowDisk struct {
	disk.File
	syncing, released chan struct{}
}

func (s slowDisk) Sync() error {
	close(s.syncing)
	<-s.released
	return s.File.Sync()
}

type answer string

func (a answer) Complete(context.Context, council.Call) (council.Completion, error) {
	return council.Completion{Text: string(a)}, nil
}

func openCalls(t *testing.T, name string) *Calls {
	t.Helper()
	calls, err := OpenCalls(name, "plan")
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// A reply is not kept before what its request cost is known, so that must not wait for a disk.
func TestSettleDoesNotWaitForTheDisk(t *testing.T) {
	calls := openCalls(t, filepath.Join(t.TempDir(), "out.calls"))
	finish, err := calls.Hold("s", 0.5)
	if err != nil {
		t.Fatal(err)
	}
	slow := slowDisk{calls.file, make(chan struct{}), make(chan struct{})}
	calls.file = slow
	call := council.Call{Session: "s", Stage: council.Stage1, Seat: "amber"}
	kept := make(chan error)
	go func() {
		_, err := calls.Completer(answer("yes")).Complete(t.Context(), call)
		kept <- err
	}()
	<-slow.syncing
	billed := make(chan float64)
	go func() {
		finish(0.25)
		billed <- calls.Cost("s")
	}()
	select {
	case cost := <-billed:
		if cost != 0.25 || len(calls.Landed("s")) != 0 {
			t.Errorf("cost %v, %d calls landed before they are on the disk", cost, len(calls.Landed("s")))
		}
	case <-time.After(20 * time.Second):
		t.Error("settling waits for the disk")
	}
	close(slow.released)
	if err := <-kept; err != nil || len(calls.Landed("s")) != 1 {
		t.Errorf("%v, %d calls landed", err, len(calls.Landed("s")))
	}
	if err := calls.Close(); err != nil {
		t.Error(err)
	}
}

// billed makes requests that can cost 1 US dollar each, and cost what it says.
type billed struct {
	*Calls
	costs   []float64
	failure error
	before  func() // the end of the last one
}

func (b billed) Complete(_ context.Context, call council.Call) (council.Completion, error) {
	for i, cost := range b.costs {
		finish, err := b.Hold(call.Session, 1)
		if err != nil {
			return council.Completion{}, err
		}
		if b.before != nil && i == len(b.costs)-1 {
			b.before()
		}
		finish(cost)
	}
	return council.Completion{}, b.failure
}

// What requests cost or can have cost counts after a restart too, also where they came to nothing or were under way.
func TestCallsKeepTheCost(t *testing.T) {
	for name, tt := range map[string]struct {
		next      billed
		cost, now float64 // when the process ends, and in the next one
	}{
		"a reply":                   {next: billed{costs: []float64{0.25}}, cost: 0.25, now: 0.25},
		"a reply, at the second go": {next: billed{costs: []float64{1, 0.25}}, cost: 1.25, now: 1.25},
		"a failure":                 {next: billed{costs: []float64{1}, failure: &council.Failure{Code: council.FailTimeout}}, cost: 1, now: 1},
		"cancelled":                 {next: billed{costs: []float64{1}, failure: &council.Failure{Code: council.FailCancelled}}, cost: 1, now: 1},
		"never reached":             {next: billed{costs: []float64{0}, failure: &council.Failure{Code: council.FailCancelled}}},
		"killed while under way":    {next: billed{costs: []float64{1, 0.25}, before: func() { panic("kill -9") }}, cost: 1, now: 2},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.calls")
			calls := openCalls(t, file)
			tt.next.Calls = calls
			func() {
				defer func() { _ = recover() }()
				_, _ = calls.Completer(tt.next).Complete(t.Context(), council.Call{Session: "s", Stage: council.Stage1, Seat: "amber"})
			}()
			if got := calls.Cost("s"); got != tt.cost {
				t.Errorf("the cost is %v, want %v", got, tt.cost)
			}
			if err := calls.Close(); err != nil {
				t.Fatal(err)
			}
			calls = openCalls(t, file)
			defer calls.Close()
			if got := calls.Cost("s"); got != tt.now {
				t.Errorf("after a restart the cost is %v, want %v", got, tt.now)
			}
			calls.forget("s")
			if got := calls.Cost("s"); got != tt.now || len(calls.Landed("s")) > 0 {
				t.Errorf("when its calls are forgotten the cost is %v, want %v, and %d calls are there", got, tt.now, len(calls.Landed("s")))
			}
		})
	}
}

// replies are the replies to the calls that come, in their order. Those beyond them have no room.
type replies []string

func (r *replies) Complete(context.Context, council.Call) (council.Completion, error) {
	if len(*r) == 0 {
		return council.Completion{}, &council.Failure{Code: council.FailBudget}
	}
	text := (*r)[0]
	*r = (*r)[1:]
	return council.Completion{Text: text}, nil
}

// call is a call of a seat of a session with a prompt.
func call(stage council.Stage, seat, prompt string) council.Call {
	return council.Call{
		Session: "s", Stage: stage, Seat: seat, Model: seat, Messages: []council.Message{{Role: council.RoleUser, Content: prompt}},
	}
}

// A question that is asked once more gets the replies that were kept, but only to the same prompts.
func TestCallsKnowThePrompt(t *testing.T) {
	calls := openCalls(t, filepath.Join(t.TempDir(), "out.calls"))
	defer calls.Close()
	c := calls.Completer(&replies{"one", "two"})
	for _, tt := range []struct{ prompt, want string }{{"a review", "one"}, {"a review", "one"}, {"two reviews", "two"}, {"two reviews", "two"}} {
		got, err := c.Complete(t.Context(), call(council.Stage3, "amber", tt.prompt))
		if err != nil || got.Text != tt.want {
			t.Errorf("with %s: %q, %v, want %q", tt.prompt, got.Text, err, tt.want)
		}
		calls.again("s")
	}
	if landed := calls.Landed("s"); len(landed) != 1 || landed[0].Completion.Text != "two" {
		t.Errorf("landed are %+v, want the second reply alone", landed)
	}
}

// Behind a call that had no room, nothing is paid for that would be asked again.
func TestCallsStopBehindAShortStage(t *testing.T) {
	calls := openCalls(t, filepath.Join(t.TempDir(), "out.calls"))
	defer calls.Close()
	left := &replies{"an answer"}
	c := calls.Completer(left)
	for _, tt := range []struct {
		name string
		call council.Call
		more string // room for one more call
		want string // "" where it is refused
	}{
		{"a member", call(council.Stage1, "amber", "what?"), "", "an answer"},
		{"a reviewer without room", call(council.Stage2, "amber", "which?"), "", ""},
		{"another reviewer", call(council.Stage2, "birch", "which?"), "a ballot", "a ballot"},
		{"the chairman", call(council.Stage3, "amber", "one ballot"), "an end", ""},
	} {
		if tt.more != "" {
			*left = append(*left, tt.more)
		}
		got, err := c.Complete(t.Context(), tt.call)
		if refused := err != nil; refused != (tt.want == "") || got.Text != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, got.Text, err, tt.want)
		}
	}
	calls.again("s")
	if got, err := c.Complete(t.Context(), call(council.Stage3, "amber", "two ballots")); err != nil || got.Text != "an end" {
		t.Errorf("the chairman, once more: %q, %v", got.Text, err)
	}
}
