package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// faulty starts a provider whose model m has one fault.
func faulty(t *testing.T, f simllm.Fault) *simllm.Running {
	t.Helper()
	f.Rate = 1
	return startSim(t, simllm.Options{Models: []simllm.Model{{Name: "m", Faults: []simllm.Fault{f}}}})
}

// listening makes call a streamed one, whose deltas are added to text.
func listening(call council.Call, text *strings.Builder) council.Call {
	call.OnDelta = func(delta string) { text.WriteString(delta) }
	return call
}

// Every fault that the simulated provider can play, against whole replies and
// streams. A request may be repeated after a reply that broke off only if nothing of it
// was passed on, which the number of attempts shows.
func TestFaults(t *testing.T) {
	t.Parallel()
	type outcome struct {
		code     council.FailureCode // "" for a text
		attempts int
	}
	final := func(code council.FailureCode) [2]outcome { return [2]outcome{{code, 1}, {code, 1}} }
	repeated := func(code council.FailureCode) [2]outcome { return [2]outcome{{code, 2}, {code, 2}} }
	onStream := func(code council.FailureCode) [2]outcome { return [2]outcome{{"", 1}, {code, 1}} }
	tests := []struct {
		fault simllm.Fault
		want  [2]outcome // of a whole reply, of a stream
	}{
		{simllm.Fault{Kind: simllm.FaultStatus, Status: 500}, repeated(council.FailUnavailable)},
		{simllm.Fault{Kind: simllm.FaultStatus, Status: 429}, repeated(council.FailRateLimited)},
		{simllm.Fault{Kind: simllm.FaultStatus, Status: 400}, final(council.FailRejected)},
		{simllm.Fault{Kind: simllm.FaultHugeError}, repeated(council.FailUnavailable)},
		{simllm.Fault{Kind: simllm.FaultHTML}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultHalfJSON}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultErrorIn200}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultEmptyObject}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultNull}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultNoChoices}, final(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.FaultHugeBody}, final(council.FailTooLarge)},
		{simllm.Fault{Kind: simllm.FaultNullContent}, final(council.FailEmpty)},
		{simllm.Fault{Kind: simllm.FaultEmptyContent}, final(council.FailEmpty)},
		{simllm.Fault{Kind: simllm.FaultReasoningOnly}, final(council.FailEmpty)},
		{simllm.Fault{Kind: simllm.FaultRefusalField}, final(council.FailRefused)},
		{simllm.Fault{Kind: simllm.FaultRefusal}, final("")},
		{simllm.Fault{Kind: simllm.FaultLength}, final("")},
		{simllm.Fault{Kind: simllm.FaultContentFilter}, final(council.FailContentFilter)},
		{simllm.Fault{Kind: simllm.FaultReset}, repeated(council.FailConnection)},
		{simllm.Fault{Kind: simllm.FaultResetBody}, [2]outcome{{council.FailReset, 2}, {council.FailReset, 1}}},
		{simllm.Fault{Kind: simllm.FaultEOFBody}, [2]outcome{{council.FailTruncated, 2}, {council.FailTruncated, 1}}},
		{simllm.Fault{Kind: simllm.FaultHang}, final(council.FailTimeout)},
		{simllm.Fault{Kind: simllm.FaultSlowBody}, final(council.FailTimeout)},
		{simllm.Fault{Kind: simllm.FaultStall}, final(council.FailTimeout)},
		{simllm.Fault{Kind: simllm.FaultLateEnd, Delay: time.Millisecond}, final("")},
		{simllm.Fault{Kind: simllm.FaultLateEnd}, [2]outcome{{council.FailTimeout, 1}, {"", 1}}},
		{simllm.Fault{Kind: simllm.StreamComments}, onStream("")},
		{simllm.Fault{Kind: simllm.StreamEmptyData, Size: 1000}, onStream("")},
		{simllm.Fault{Kind: simllm.StreamError}, onStream(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.StreamGarbage}, onStream(council.FailBadResponse)},
		{simllm.Fault{Kind: simllm.StreamNoEnd}, onStream(council.FailTruncated)},
		{simllm.Fault{Kind: simllm.StreamHugeLine}, onStream(council.FailTooLarge)},
	}
	for _, tt := range tests {
		for i, want := range tt.want {
			t.Run(fmt.Sprintf("%s %d stream=%v", tt.fault.Kind, tt.fault.Status, i == 1), func(t *testing.T) {
				t.Parallel()
				sim := faulty(t, tt.fault)
				o := options(llm.Provider{BaseURL: sim.URL()})
				o.MaxAttempts = 2
				switch tt.fault.Kind {
				case simllm.FaultHang, simllm.FaultSlowBody:
					o.AttemptTimeout = time.Second
				case simllm.FaultStall, simllm.FaultLateEnd:
					o.IdleTimeout = 300 * time.Millisecond
				default: // comes to an end by itself
				}
				call := question("m")
				var deltas strings.Builder
				if i == 1 {
					call = listening(call, &deltas)
				}
				completion, err := newClient(t, o).Complete(t.Context(), call)
				var got council.FailureCode
				if f := council.AsFailure(err); f != nil {
					got = f.Code
					if f.Message == "" || len(f.Message) > 1<<10 {
						t.Errorf("message of %d bytes: %.100q", len(f.Message), f.Message)
					}
				}
				if got != want.code || completion.Attempts != want.attempts || completion.Attempts != sim.Stats().Models["m"].Requests {
					t.Errorf(
						"%v after %d attempts, want %q after %d; the provider saw %d", err, completion.Attempts, want.code, want.attempts,
						sim.Stats().Models["m"].Requests,
					)
				}
				if (got == "") != (completion.Text != "") || i == 1 && got == "" && deltas.String() != completion.Text {
					t.Errorf("text %q, deltas %q", completion.Text, deltas.String())
				}
			})
		}
	}
}

func TestFaultThatPasses(t *testing.T) {
	t.Parallel()
	for _, kind := range []simllm.FaultKind{simllm.FaultStatus, simllm.FaultReset, simllm.FaultResetBody, simllm.FaultEOFBody} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			sim := faulty(t, simllm.Fault{Kind: kind, Status: 529, Times: 1})
			o := options(llm.Provider{BaseURL: sim.URL()})
			o.MaxAttempts = 3
			got, err := newClient(t, o).Complete(t.Context(), question("m"))
			if err != nil || got.Attempts != 2 || got.Text == "" || sim.Stats().Models["m"].Requests != 2 {
				t.Errorf("%v after %d attempts", err, got.Attempts)
			}
		})
	}
}

func TestRetryAfterOverHTTP(t *testing.T) {
	sim := faulty(t, simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "0.3", Times: 1})
	o := options(llm.Provider{BaseURL: sim.URL()})
	o.MaxAttempts = 3
	start := time.Now()
	got, err := newClient(t, o).Complete(t.Context(), question("m"))
	if took := time.Since(start); err != nil || got.Attempts != 2 || took < 300*time.Millisecond || took > 5*550*time.Millisecond {
		t.Errorf("%v after %d attempts and %s", err, got.Attempts, took)
	}
}

// The same model writes the same text whether it streams or not.
func TestStreamOverHTTP(t *testing.T) {
	sim := startSim(
		t,
		simllm.Options{Models: []simllm.Model{{Name: "m", ChunkDelay: 2 * time.Millisecond, Price: simllm.Price{Input: 1, Output: 1}}}},
	)
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
	whole, err := c.Complete(t.Context(), question("m"))
	if err != nil {
		t.Fatal(err)
	}
	var deltas []string
	call := question("m")
	call.OnDelta = func(delta string) { deltas = append(deltas, delta) }
	streamed, err := c.Complete(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	whole.LatencyMS, streamed.LatencyMS = 0, 0
	if diff := cmp.Diff(whole, streamed); diff != "" {
		t.Error(diff)
	}
	if len(deltas) < 2 || strings.Join(deltas, "") != streamed.Text {
		t.Errorf("%d deltas, which are not the text", len(deltas))
	}
}

// F06: a provider that cannot be reached does not use up the time of a call.
func TestUnreachable(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // it accepts, and says nothing to a handshake
	const limit = 200 * time.Millisecond
	o := options(llm.Provider{BaseURL: "https://" + listener.Addr().String()})
	o.DialTimeout, o.MaxAttempts = limit, 3
	start := time.Now()
	completion, f := failed(t, newClient(t, o), question("m"))
	if took := time.Since(start); f.Code != council.FailConnection || completion.Attempts != 1 || took < limit || took > 5*limit {
		t.Errorf("%v after %d attempts and %s", f, completion.Attempts, took)
	}
}

// F07 and F08: a call ends at its limit, and the provider sees the close at once.
func TestLimitsCloseTheConnection(t *testing.T) {
	const limit = 200 * time.Millisecond
	const busy = time.Second // for which a machine may let the process wait; the other limits are far longer
	tests := []struct {
		name   string
		begin  string // what is sent before the silence
		set    func(*llm.Options)
		stream bool
	}{
		{"no headers", "", func(o *llm.Options) { o.AttemptTimeout = limit }, false},
		{"silence in a reply", `{"choices":`, func(o *llm.Options) { o.IdleTimeout = limit }, false},
		{"silence in a stream", ": hi\n\n", func(o *llm.Options) { o.IdleTimeout = limit }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			closed := make(chan time.Time, 1)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then is the client's going noticed
				if tt.begin != "" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, tt.begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
				closed <- time.Now()
			})
			o := options(llm.Provider{BaseURL: url})
			tt.set(&o)
			call := question("m")
			if tt.stream {
				call = listening(call, new(strings.Builder))
			}
			start := time.Now()
			_, f := failed(t, newClient(t, o), call)
			ended := time.Now()
			if took := ended.Sub(start); f.Code != council.FailTimeout || took < limit || took > limit+busy {
				t.Errorf("%v after %s", f, took)
			}
			if seen := (<-closed).Sub(ended); seen > busy {
				t.Errorf("the provider saw the close %s later", seen)
			}
		})
	}
}

// A connection that was cut is not used again, and the next call works.
func TestCutConnectionIsNotReused(t *testing.T) {
	sim := faulty(t, simllm.Fault{Kind: simllm.FaultStall, Times: 1})
	o := options(llm.Provider{BaseURL: sim.URL()})
	o.IdleTimeout = 300 * time.Millisecond
	c := newClient(t, o)
	if _, f := failed(t, c, question("m")); f.Code != council.FailTimeout {
		t.Errorf("got %v", f)
	}
	if _, err := c.Complete(t.Context(), question("m")); err != nil || sim.Stats().Connections != 2 {
		t.Errorf("%v over %d connections, want 2", err, sim.Stats().Connections)
	}
}

// F12 and T7: bodies whose end comes late keep their connections.
func TestLateEndsKeepConnections(t *testing.T) {
	const calls, parallel = 1000, 10
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			sim := startSim(t, simllm.Options{Models: []simllm.Model{{
				Name: "m", Reply: func(simllm.Task) (string, bool) { return "Simulated: short.", true },
				Faults: []simllm.Fault{{Kind: simllm.FaultLateEnd, Rate: 1, Delay: time.Millisecond}},
			}}})
			c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
			var wg sync.WaitGroup
			for range parallel {
				wg.Go(func() {
					for range calls / parallel {
						call := question("m")
						if stream {
							call = listening(call, new(strings.Builder))
						}
						if _, err := c.Complete(t.Context(), call); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if stats := sim.Stats(); stats.Models["m"].Requests != calls || stats.Connections > 50 {
				t.Errorf("%d requests over %d connections, want at most 50", stats.Models["m"].Requests, stats.Connections)
			}
		})
	}
}

// F16: a client that leaves ends a stream.
func TestStreamIsCancelled(t *testing.T) {
	sim := faulty(t, simllm.Fault{Kind: simllm.FaultStall})
	c := newClient(t, options(llm.Provider{BaseURL: sim.URL()}))
	ctx, cancel := context.WithCancelCause(t.Context())
	call := question("m")
	call.OnDelta = func(string) { cancel(errors.New("the client is gone")) }
	_, err := c.Complete(ctx, call)
	if f := council.AsFailure(err); f == nil || f.Code != council.FailCancelled || !strings.Contains(f.Message, "the client is gone") {
		t.Errorf("got %v", err)
	}
}
