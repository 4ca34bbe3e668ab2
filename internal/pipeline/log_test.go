package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// upTo returns a tape until behind the n-th event of a type, without what came later.
func upTo(t *testing.T, entries []runlog.Entry, event council.EventType, n int) []runlog.Entry {
	t.Helper()
	for i, e := range entries {
		if e.Type == event {
			if n--; n == 0 {
				return slices.Clone(entries[:i+1])
			}
		}
	}
	t.Fatalf("the tape lacks %d of %s", n, event)
	return nil
}

// A resumed run goes on with its time: deadlines, the grace for stragglers and the times
// of its stages.
func TestResumeClock(t *testing.T) {
	m := members(4)
	for i := range m {
		m[i].Latency.Median = time.Duration(i+1) * 10 * time.Second
	}
	m[3] = with(m[3], simllm.Fault{Kind: simllm.FaultHang})
	tests := []struct {
		name    string
		grace   *time.Duration
		elapsed time.Duration // 0: until the end of the tape, 30 s
		code    council.FailureCode
		left    time.Duration // until the end of stage 1
		asked   int           // how often dune is asked in stage 1 by the second process
	}{
		{"the grace", new(15 * time.Second), 35 * time.Second, council.FailCut, 10 * time.Second, 1},
		{"the grace is over", new(15 * time.Second), 50 * time.Second, council.FailCut, 0, 0},
		{"the deadline", nil, 0, council.FailTimeout, 50 * time.Second, 1},
		{"the deadline is over", nil, 90 * time.Second, council.FailTimeout, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				h := bubble(t, m, nil, func(o *pipeline.Options) { o.StragglerGrace = tt.grace })
				plan := h.plan(t, council.Request{TimeoutSeconds: new(200.0)}) // stage 1 ends after 80 s
				whole := &tape{}
				want, err := h.Run(t.Context(), plan, whole, whole.log(nil))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				before := h.sim.Stats().Models["dune"].Requests
				after := &tape{}
				kept := after.log(upTo(t, whole.entries, council.EventAnswer, 3))
				if tt.elapsed > 0 {
					kept.State.Elapsed = tt.elapsed
				}
				begin := time.Now()
				ended := time.Duration(-1)
				asked := 0
				got, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
					if e.Type == council.EventStage1 {
						ended = time.Since(begin)
						asked = h.sim.Stats().Models["dune"].Requests - before
					}
				}), kept)
				if err != nil {
					t.Fatal(err)
				}
				if got.Stage1[3].Error == nil || got.Stage1[3].Error.Code != tt.code {
					t.Errorf("dune failed with %v", got.Stage1[3].Error)
				}
				if ended != tt.left {
					t.Errorf("stage 1 went on for %v, want %v", ended, tt.left)
				}
				if asked != tt.asked {
					t.Errorf("dune was asked %d times, want %d", asked, tt.asked)
				}
				if ms := float64((kept.State.Elapsed + tt.left) / time.Millisecond); got.Metadata.Timing.Stage1MS != ms {
					t.Errorf("stage 1 took %v ms, want %v", got.Metadata.Timing.Stage1MS, ms)
				}

				after = &tape{}
				got, err = h.Run(t.Context(), plan, after, after.log(upTo(t, whole.entries, council.EventStage2, 1)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.Metadata.Timing, got.Metadata.Timing); diff != "" {
					t.Errorf("the times after stage 2 (-undisturbed +taken over):\n%s", diff)
				}
			})
		})
	}
}

// A run that may begin no call ends with the best that landed.
func TestLast(t *testing.T) {
	r := newRelay(t, members(4))
	plan, err := r.first.Prepare(council.Request{Query: "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	whole := &tape{}
	want, err := r.first.Run(t.Context(), plan, whole, whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.calls.made()
	ended := func(event council.EventType, n int) (*council.Session, *tape, error) {
		after := &tape{}
		kept := after.log(upTo(t, whole.entries, event, n))
		kept.Last = true
		got, err := r.second.Run(t.Context(), plan, after, kept)
		if made := r.calls.made(); len(made) > 0 {
			t.Errorf("after %d of %s: calls %v", n, event, made)
		}
		return got, after, err
	}
	for _, tt := range []struct {
		event            council.EventType
		n                int
		answers, ballots int
	}{
		{council.EventStarted, 1, 0, 0},
		{council.EventAnswer, 2, 2, 0},
		{council.EventStage1, 1, 4, 0},
		{council.EventBallot, 3, 4, 3},
	} {
		got, after, err := ended(tt.event, tt.n)
		if code(err) != council.CodeInterrupted || got.Status != council.StatusFailed {
			t.Errorf("after %d of %s: %s, %v", tt.n, tt.event, got.Status, err)
		}
		if len(after.entries) > 0 && after.entries[0].Type != council.EventStage1 {
			t.Errorf("after %d of %s: observed %v", tt.n, tt.event, after.entries[0].Type)
		}
		answers, ballots := 0, 0
		for _, a := range got.Stage1 {
			if a.Status == council.OutcomeOK {
				answers++
			}
		}
		for _, v := range got.Stage2 {
			if v.Status == council.OutcomeOK {
				ballots++
			}
		}
		if answers != tt.answers || ballots != tt.ballots {
			t.Errorf("after %d of %s: %d answers and %d ballots can be read", tt.n, tt.event, answers, ballots)
		}
	}
	for _, event := range []council.EventType{council.EventBallot, council.EventStage2} {
		got, _, err := ended(event, map[council.EventType]int{council.EventBallot: 4, council.EventStage2: 1}[event])
		if err != nil || got.Status != council.StatusDegraded || !warned(got, council.WarnTakenOver) {
			t.Errorf("after %s: %s, %v, warnings %v", event, got.Status, err, got.Metadata.Warnings)
		}
		if best := want.Metadata.AggregateRankings[0].Model; got.Stage3.Model != best || *got.Stage3.Fallback != council.FallbackTopRanked {
			t.Errorf("after %s: the answer is that of %s, the best is %s", event, got.Stage3.Model, best)
		}
		if diff := cmp.Diff([]string{"stage3 amber interrupted"}, missing(got)); diff != "" {
			t.Errorf("after %s: %s", event, diff)
		}
	}
	if got, _, err := ended(council.EventStage3, 1); err != nil || got.Answer != want.Answer || got.Status != council.StatusComplete {
		t.Errorf("after stage 3: %s, %v", got.Status, err)
	}
}

// After the first refusal no call begins, and nothing is observed but the end.
func TestMayCall(t *testing.T) {
	r := newRelay(t, members(3))
	plan, err := r.first.Prepare(council.Request{Query: "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := 0
	lost := errors.New("the lease is lost")
	log := &tape{}
	kept := log.log(nil)
	kept.MayCall = func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked > 2*3 { // each call asks, and each request
			return lost
		}
		return nil
	}
	got, err := r.first.Run(t.Context(), plan, log, kept)
	if code(err) != council.CodeInterrupted || !errors.Is(err, lost) || got.Status != council.StatusFailed || len(got.Stage1) != 3 {
		t.Errorf("%s, %v", got.Status, err)
	}
	if last := log.entries[len(log.entries)-1].Type; last != council.EventBegun {
		t.Errorf("the last event is %s", last)
	}
	if made := r.calls.made(); len(made) != 3 {
		t.Errorf("calls %v", made)
	}
	// What is in the log can be gone on with.
	after := &tape{}
	if got, err = r.second.Run(t.Context(), plan, after, after.log(log.entries)); err != nil || got.Status != council.StatusComplete {
		t.Errorf("%s, %v", got.Status, err)
	}
	// A caller that ends a run says why.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&council.Error{Code: council.CodeInterrupted, Detail: "released"})
	if _, err := r.first.Run(ctx, plan, nil, (&tape{}).log(nil)); code(err) != council.CodeInterrupted {
		t.Errorf("got %v", err)
	}
}

// Before each stage, before the second call of a seat and before its end, a run waits
// until all that it has observed is stored.
func TestStored(t *testing.T) {
	m := members(3)
	m[1] = prose(m[1])
	h := build(t, m, func(o *pipeline.Options) { o.BallotRepair = true })
	log := &tape{}
	kept := log.log(nil)
	var mu sync.Mutex
	var got []string
	mark := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, text)
	}
	kept.Stored = func(context.Context) { mark("stored") }
	kept.MayCall = func(context.Context) error { mark("call"); return nil }
	observer := council.ObserverFunc(func(e council.Event) { mark(string(e.Type)) })
	if _, err := h.Run(t.Context(), h.plan(t, council.Request{}), observer, kept); err != nil {
		t.Fatal(err)
	}
	sequence := " " + strings.Join(got, " ") + " "
	for _, want := range []string{
		" session.started calls.begun stored call ", " stage1.done calls.begun stored call ", " stage2.done call calls.begun stored call ", " stage3.done stored session.done ",
	} {
		if !strings.Contains(sequence, want) {
			t.Errorf("%q is not in %s", want, sequence)
		}
	}
	first := strings.Index(sequence, " call.landed ")
	if first < 0 {
		t.Fatalf("the first call of the repair is not observed: %s", sequence)
	}
	between, _, ok := strings.Cut(sequence[first+len(" call.landed"):], "call.landed")
	_, after, stored := strings.Cut(between, " stored") // what another seat does may come between
	if !ok || !stored || !strings.Contains(after, " call ") {
		t.Errorf("the repair does not wait until the first call is stored: %s", sequence)
	}
}

// Tokens of calls that were lost count against the limit with the most that they can have
// been, but do not stop the calls that repeat them.
func TestLostTokens(t *testing.T) {
	const limit, output = 5000, 1500
	r := newRelay(t, members(4), func(o *pipeline.Options) {
		o.MaxTotalTokens, o.Sampling.MaxOutputTokens = new(int64(limit)), new(output)
	})
	plan, err := r.first.Prepare(council.Request{Query: "How do I split a monolith?"})
	if err != nil {
		t.Fatal(err)
	}
	whole := &tape{}
	want, err := r.first.Run(t.Context(), plan, whole, whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	asked := want.Metadata.Usage.ByStage[council.Stage1].Tokens()
	reviewed := slices.ContainsFunc(want.Stage2, func(v council.Review) bool { return v.Status == council.OutcomeOK })
	if 4*output < limit || asked >= limit || !reviewed {
		t.Fatalf("the limit does not tell: %d tokens in stage 1", asked)
	}
	after := &tape{}
	got, _ := r.second.Run(t.Context(), plan, after, after.log(upTo(t, whole.entries, council.EventBegun, 1)))
	for i, a := range got.Stage1 {
		if a.Status != council.OutcomeOK {
			t.Errorf("%s is not asked again: %v", a.Model, a.Error)
		}
		if e := got.Stage2[i].Error; e == nil || e.Code != council.FailBudget {
			t.Errorf("the review of %s is %s", a.Model, got.Stage2[i].Status)
		}
	}
	if !got.Metadata.Usage.Total.Partial || warned(got, council.WarnTokensUnknown) {
		t.Errorf("usage %+v, warnings %v", got.Metadata.Usage.Total, got.Metadata.Warnings)
	}
}

func TestNeeds(t *testing.T) {
	h := build(t, members(3))
	plan := h.plan(t, council.Request{})
	all := []council.Stage{council.Stage1, council.Stage2, council.Stage3}
	for _, tt := range []struct {
		left []council.Stage
		want []string
	}{
		{all, []string{"review-0", "synthesis-0"}},
		{all[1:], []string{"review-0", "synthesis-0"}},
		{all[2:], []string{"synthesis-0"}},
		{nil, nil},
	} {
		plan.Stages[1].Prompt, plan.Stages[2].Prompt = "review-0", "synthesis-0"
		if got := pipeline.Needs(plan, tt.left); !slices.Equal(got, tt.want) {
			t.Errorf("with %v left %q are needed, want %q", tt.left, got, tt.want)
		}
	}
	plan.Stages = plan.Stages[:1]
	if got := pipeline.Needs(plan, all); got != nil {
		t.Errorf("a direct run needs the prompts %q", got)
	}
	for _, schema := range []string{"", `{}`} {
		begun := h.plan(t, council.Request{OutputSchema: []byte(schema)})
		for _, prompt := range pipeline.Needs(begun, all) {
			if !slices.Contains(pipeline.Prompts(nil), prompt) {
				t.Errorf("a run that begins here needs %q, this process has %q", prompt, pipeline.Prompts(nil))
			}
		}
	}
}

// A log that cannot be read ends the session. Nothing is asked.
func TestDamagedLog(t *testing.T) {
	r := newRelay(t, members(3))
	plan, err := r.first.Prepare(council.Request{Query: "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []council.EventType{council.EventAnswer, council.EventCall, council.EventStage2} {
		past := []runlog.Entry{{Entry: council.Entry{Type: event, Data: json.RawMessage(`{"model":1,"aggregate_rankings":1`)}}}
		after := &tape{}
		if _, err := r.second.Run(t.Context(), plan, after, after.log(past)); code(err) != council.CodeInterrupted {
			t.Errorf("%s: got %v", event, err)
		}
	}
	if made := r.calls.made(); len(made) > 0 {
		t.Errorf("calls %v", made)
	}
}

// Records that may be there already are not appended, and a process without the secret
// of another one keeps no hash of the question.
func TestResumedRecords(t *testing.T) {
	r := newRelay(t, members(3), func(o *pipeline.Options) { o.Consent, o.HashSecret = 4, "one" })
	plan, err := r.first.Prepare(council.Request{Query: "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	whole := &tape{}
	if _, err := r.first.Run(t.Context(), plan, whole, whole.log(nil)); err != nil {
		t.Fatal(err)
	}
	past := upTo(t, whole.entries, council.EventStage2, 1)
	r.notes.batches = nil
	h := build(t, members(3), func(o *pipeline.Options) {
		o.Recorder, o.Completer = r.notes, r.calls
		o.Holds = func(context.Context, string, time.Time) (bool, error) { return false, nil }
	})
	after := &tape{}
	got, err := h.Run(t.Context(), plan, after, after.log(past))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Persisted || len(r.notes.batches) != 1 {
		t.Errorf("persisted %v, %d batches, warnings %v", got.Persisted, len(r.notes.batches), got.Metadata.Warnings)
	}
	for _, batch := range r.notes.batches {
		if batch[0].QueryHash != nil || batch[0].ConsentLevel != 4 || !batch[0].Timestamp.Equal(plan.Created) {
			t.Errorf("record %+v", batch[0])
		}
	}
}

// While it cannot be told whether the records are there already, they wait: they are neither
// lost nor written twice. The session waits no longer than for a slow disk.
func TestRecordsThatMayBeThere(t *testing.T) {
	const waits = "it cannot be told whether an earlier daemon has written them"
	damage := errors.New("too many open files")
	for _, tt := range []struct {
		name      string
		after     time.Duration // until then the store cannot be read
		held      bool          // what it says then
		err       error
		persisted bool
		warning   council.WarningCode
		batches   int
		logged    []string
	}{
		{"soon", time.Second, false, nil, true, "", 1, []string{waits}},
		{"soon, and they are there", time.Second, true, nil, true, "", 0, []string{waits}},
		{"late", time.Hour, false, nil, false, council.WarnNotYetWritten, 1, []string{waits, "were written after it had ended"}},
		{"never", time.Hour, false, fs.ErrClosed, false, council.WarnNotYetWritten, 0, []string{waits, "were not written"}},
		{"closed at once", 0, false, fs.ErrClosed, false, council.WarnNotPersisted, 0, []string{"were not written"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				log, notes, readable := &journal{}, &notebook{}, time.Now()
				h := bubble(t, members(3), nil, func(o *pipeline.Options) {
					o.Recorder, o.Log = notes, slog.New(slog.NewTextHandler(log, nil))
					o.Holds = func(context.Context, string, time.Time) (bool, error) {
						if time.Now().Before(readable) {
							return false, damage
						}
						return tt.held, tt.err
					}
				})
				plan, whole, after := h.plan(t, council.Request{}), &tape{}, &tape{}
				if _, err := h.Run(t.Context(), plan, whole, whole.log(nil)); err != nil {
					t.Fatal(err)
				}
				notes.batches = nil
				begun := time.Now()
				readable = begun.Add(tt.after)
				got, err := h.Run(t.Context(), plan, after, after.log(upTo(t, whole.entries, council.EventStage3, 1)))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took > 11*time.Second {
					t.Errorf("the session waited for %s", took)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if got.Persisted != tt.persisted {
					t.Errorf("persisted is %v", got.Persisted)
				}
				for _, code := range []council.WarningCode{council.WarnNotPersisted, council.WarnNotYetWritten} {
					if warned(got, code) != (code == tt.warning) {
						t.Errorf("warnings %v, want %q", got.Metadata.Warnings, tt.warning)
					}
				}
				if len(notes.batches) != tt.batches {
					t.Errorf("%d batches, want %d", len(notes.batches), tt.batches)
				}
				for _, message := range tt.logged {
					if !log.has(message) {
						t.Errorf("the log does not say %q", message)
					}
				}
			})
		})
	}
}

// What stage 2 added up to stays as it was, also in a process with another lexicon.
func TestTallyStays(t *testing.T) {
	r := newRelay(t, members(3), func(o *pipeline.Options) {
		o.Sides = []council.Side{disagreement.Terms{Matcher: disagreement.NewMatcher(disagreement.DefaultLexicon()), Threshold: 0.5}}
	})
	plan, err := r.first.Prepare(council.Request{Query: "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	whole := &tape{}
	want, err := r.first.Run(t.Context(), plan, whole, whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	after := &tape{}
	got, err := r.second.Run(t.Context(), plan, after, after.log(upTo(t, whole.entries, council.EventStage2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if want.Metadata.DemographicDisagreement == nil {
		t.Error("the lexicon is not used")
	}
	if diff := cmp.Diff(want.Metadata.Tally, got.Metadata.Tally); diff != "" {
		t.Error(diff)
	}
}
