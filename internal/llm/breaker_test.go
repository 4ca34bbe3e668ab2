package llm

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// once are options with which a call is one request.
func once() Options {
	o := fakeOptions()
	o.MaxAttempts = 1
	return o
}

// code calls the model and returns how that ended, "" for a text.
func code(ctx context.Context, c *Client, model string) council.FailureCode {
	call := aCall()
	call.Model = model
	_, err := c.Complete(ctx, call)
	if err == nil {
		return ""
	}
	return council.AsFailure(err).Code
}

func TestBreakerOpensOn(t *testing.T) {
	tests := []struct {
		name  string
		play  roundTripper
		opens bool
	}{
		{"an error of the provider", status(500), true},
		{"no connection", refuses(), true},
		{"a reset", broke(syscall.ECONNRESET), true},
		{"a reply cut off", eventStream(""), true},
		{"no reply in time", hangs, true},
		{"silence", slowly("application/json", time.Hour, "{"), true},
		{"a rate limit", status(429), false},
		{"a refused request", status(400), false},
		{"a bad response", reply(200, "<html>"), false},
		{"an empty reply", reply(200, `{"choices":[{"message":{"content":""}}]}`), false},
		{"a text", good(), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				c := fakeClient(t, once(), tt.play)
				call := aCall()
				call.OnDelta = func(string) {}
				var wg sync.WaitGroup
				for range breakerRequests {
					wg.Go(func() { _, _ = c.Complete(t.Context(), call) })
				}
				wg.Wait()
				want := council.BreakerClosed
				if tt.opens {
					want = council.BreakerOpen
				}
				if got := c.Breakers()[0].State; got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// What the caller does says nothing about the model's health.
func TestBreakerMindsNoCaller(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		c := fakeClient(t, once(), hangs)
		var wg sync.WaitGroup
		for range breakerRequests {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if got := code(ctx, c, "m"); got != council.FailTimeout {
					t.Errorf("got %s", got)
				}
			})
		}
		wg.Wait()
		if got := c.Breakers()[0].State; got != council.BreakerClosed {
			t.Errorf("it is %s", got)
		}
	})
}

func TestBreakerThresholds(t *testing.T) {
	tests := []struct {
		name       string
		good, bad  int
		pause      time.Duration // before the last failure
		wantOpened bool
	}{
		{"nine failures", 0, 9, 0, false},
		{"ten failures", 0, 10, 0, true},
		{"less than half", 6, 5, 0, false},
		{"half", 6, 6, 0, true},
		{"half, but the old ones are forgotten", 6, 6, breakerSpan, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				play := good()
				c := fakeClient(t, once(), func(r *http.Request) (*http.Response, error) { return play(r) })
				for range tt.good {
					code(t.Context(), c, "m")
				}
				play = status(503)
				for range tt.bad - 1 {
					code(t.Context(), c, "m")
				}
				time.Sleep(tt.pause)
				code(t.Context(), c, "m")
				if got := c.Breakers()[0].State == council.BreakerOpen; got != tt.wantOpened {
					t.Errorf("open: %v, want %v", got, tt.wantOpened)
				}
			})
		})
	}
}

// F04: the model fails for ever, then recovers.
func TestBreakerCycle(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		requests := 0
		play := status(500)
		c := fakeClient(t, once(), func(r *http.Request) (*http.Response, error) {
			requests++
			return play(r)
		})
		breaker := func() council.Breaker { return c.Breakers()[0] }
		for range breakerRequests {
			code(t.Context(), c, "m")
		}
		time.Sleep(4 * time.Second)
		if diff := cmp.Diff(
			[]council.Breaker{{Model: "m", State: council.BreakerOpen, RetryAfter: 6 * time.Second}}, c.Breakers(),
		); diff != "" {
			t.Error(diff)
		}
		start := time.Now()
		completion, err := c.Complete(t.Context(), aCall())
		want := &council.Failure{
			Code: council.FailBreakerOpen, Message: "not called: the model failed too often " +
				"recently", RetryAfterS: new(6.0),
		}
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Error(diff)
		}
		if requests != breakerRequests || completion.Attempts != 0 || !cmp.Equal(completion.Usage, council.NoUsage()) ||
			time.Since(start) != 0 {
			t.Errorf("%d requests, %+v after %s", requests, completion, time.Since(start))
		}

		// Half open, it lets one request through at a time.
		time.Sleep(6 * time.Second)
		if got := breaker(); got != (council.Breaker{Model: "m", State: council.BreakerHalfOpen}) {
			t.Errorf("it is %+v", got)
		}
		release := make(chan struct{})
		play = func(r *http.Request) (*http.Response, error) {
			<-release
			return status(500)(r)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := code(t.Context(), c, "m"); got != council.FailUnavailable {
				t.Errorf("the probe got %s", got)
			}
		})
		synctest.Wait()
		for range 5 {
			_, err := c.Complete(t.Context(), aCall())
			if f := council.AsFailure(err); f == nil || f.Code != council.FailBreakerOpen || f.RetryAfterS != nil {
				t.Errorf("beside the probe: got %v", err)
			}
		}
		close(release)
		wg.Wait()
		if got := breaker(); got.State != council.BreakerOpen || got.RetryAfter != breakerPause || requests != breakerRequests+1 {
			t.Errorf("after a probe in vain it is %+v, %d requests", got, requests)
		}

		// After a probe with an unclear result, the next request is the probe.
		time.Sleep(breakerPause)
		play = status(429)
		code(t.Context(), c, "m")
		if got := breaker(); got.State != council.BreakerHalfOpen {
			t.Errorf("after an unclear probe it is %+v", got)
		}
		play = good()
		if got := code(t.Context(), c, "m"); got != "" {
			t.Errorf("the next probe got %s", got)
		}
		if got := breaker(); got != (council.Breaker{Model: "m", State: council.BreakerClosed}) {
			t.Errorf("after a good probe it is %+v", got)
		}
		// The failures from before do not count any more.
		play = status(500)
		for range breakerRequests - 1 {
			code(t.Context(), c, "m")
		}
		if got := breaker(); got.State != council.BreakerClosed {
			t.Errorf("after %d failures it is %+v", breakerRequests-1, got)
		}
	})
}

// A request that was sent before the breaker opened does not count as its probe.
func TestBreakerIgnoresLateResults(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		late := make(chan struct{})
		first := true
		c := fakeClient(t, once(), func(r *http.Request) (*http.Response, error) {
			if first {
				first = false
				<-late
				return good()(r)
			}
			return status(500)(r)
		})
		var wg sync.WaitGroup
		wg.Go(func() { code(t.Context(), c, "m") })
		synctest.Wait()
		for range breakerRequests {
			code(t.Context(), c, "m")
		}
		time.Sleep(breakerPause)
		close(late)
		wg.Wait()
		if got := c.Breakers()[0].State; got != council.BreakerHalfOpen {
			t.Errorf("it is %s", got)
		}
	})
}

// The retries of a call end when its model's breaker opens. The call reports the error of
// the provider.
func TestBreakerEndsRetries(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{status(500)}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		for range breakerRequests {
			if got := code(t.Context(), c, "m"); got != council.FailUnavailable && len(s.times) < breakerRequests {
				t.Errorf("got %s after %d requests", got, len(s.times))
			}
		}
		if len(s.times) != breakerRequests {
			t.Errorf("%d requests, want %d", len(s.times), breakerRequests)
		}
	})
}

// A call that waits for a slot while the breaker opens is not sent.
func TestBreakerOpensWhileCallsWait(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := once()
		o.MaxCallsPerProvider = 1
		s := &sequence{plays: []roundTripper{func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			return status(500)(r)
		}}}
		c := fakeClient(t, o, s.RoundTrip)
		var wg sync.WaitGroup
		for range 3 * breakerRequests {
			wg.Go(func() { code(t.Context(), c, "m") })
		}
		wg.Wait()
		if len(s.times) != breakerRequests {
			t.Errorf("%d requests, want %d", len(s.times), breakerRequests)
		}
	})
}

func TestBreakersAreListed(t *testing.T) {
	o := once()
	o.Providers = append(o.Providers, Provider{Name: "other", BaseURL: "http://other.test"})
	c := fakeClient(t, o, good())
	c.providers["other"].transport.base = good()
	for _, model := range []string{"other:z", "b", "other:a", "llama3:8b"} {
		if got := code(t.Context(), c, model); got != "" {
			t.Errorf("%s: %s", model, got)
		}
	}
	want := []council.Breaker{
		{Model: "b", State: council.BreakerClosed},
		{Model: "llama3:8b", State: council.BreakerClosed},
		{Provider: "other", Model: "a", State: council.BreakerClosed},
		{Provider: "other", Model: "z", State: council.BreakerClosed},
	}
	if diff := cmp.Diff(want, c.Breakers()); diff != "" {
		t.Error(diff)
	}
}

// After a panic of OnDelta, the slot and the ticket are given back.
func TestPanicGivesBack(t *testing.T) {
	o := once()
	o.MaxCallsPerProvider = 1
	c := fakeClient(t, o, eventStream(chunks("a", "b")))
	call := aCall()
	call.OnDelta = func(string) { panic(errors.New("a defect")) }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = c.Complete(t.Context(), call)
	}()
	if n := len(c.providers[""].queue.places); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
