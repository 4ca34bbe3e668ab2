package llm

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/race"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWhatIsRetried(t *testing.T) {
	plain := func(content string) roundTripper { return reply(200, `{"choices":[{"message":`+content+`]}`) }
	type retryTest struct {
		name     string
		play     roundTripper
		want     council.FailureCode
		attempts int
	}
	tests := []retryTest{
		{"dialing in vain", refuses(), council.FailConnection, 3},
		{
			"a reset before the reply", func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET },
			council.FailConnection, 3,
		},
		{"a reset in the reply", broke(syscall.ECONNRESET), council.FailReset, 3},
		{"a reply cut off", broke(io.ErrUnexpectedEOF), council.FailTruncated, 3},
		{"an error cut off", func(r *http.Request) (*http.Response, error) {
			resp, err := broke(io.ErrUnexpectedEOF)(r)
			resp.StatusCode = 503
			return resp, err
		}, council.FailUnavailable, 3},
		{"no connection in time", func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}, council.FailConnection, 1},
		{"no time left", hangs, council.FailTimeout, 1},
		{"silence", slowly("application/json", time.Hour, "{"), council.FailTimeout, 1},
		{"no JSON", reply(200, "<html>"), council.FailBadResponse, 1},
		{"an error behind 200", status(200), council.FailBadResponse, 1},
		{"a part with an error", plain(`{"content":"x"},"finish_reason":"error"}`), council.FailBadResponse, 1},
		{"a huge reply", reply(200, string(make([]byte, 1<<20+1))), council.FailTooLarge, 1},
		{"a filtered reply", plain(`{"content":"x"},"finish_reason":"content_filter"}`), council.FailContentFilter, 1},
		{"a refusal", plain(`{"refusal":"x"}}`), council.FailRefused, 1},
		{"an empty reply", plain(`{"content":" "}}`), council.FailEmpty, 1},
		{"a reply without room", plain(`{"content":""},"finish_reason":"length"}`), council.FailLength, 1},
	}
	for attempts, codes := range map[int][]int{
		3: {408, 409, 425, 429, 500, 502, 503, 504, 529},
		1: {301, 400, 401, 403, 404, 413, 422},
	} {
		for _, code := range codes {
			want := refusedBy(&exchange{status: code}).Code
			tests = append(tests, retryTest{strconv.Itoa(code), status(code), want, attempts})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				s := &sequence{plays: []roundTripper{tt.play}}
				completion, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), aCall())
				if f := council.AsFailure(err); f == nil || f.Code != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				if len(s.times) != tt.attempts || completion.Attempts != tt.attempts {
					t.Errorf("%d requests, %d attempts told, want %d", len(s.times), completion.Attempts, tt.attempts)
				}
				for i := 1; i < len(s.times); i++ {
					if wait, limit := s.times[i]-s.times[i-1], 500*time.Millisecond<<(i-1); wait < 0 || wait >= limit {
						t.Errorf("waited %s before retry %d, want less than %s", wait, i, limit)
					}
				}
			})
		})
	}
}

func TestRetryAfterIsWaitedOut(t *testing.T) {
	for _, header := range [][]string{
		{"Retry-After", "2"},
		{"Retry-After-Ms", "2000"},
		{"Retry-After", time.Date(2000, 1, 1, 0, 0, 2, 0, time.UTC).Format(http.TimeFormat)}, // the fake clock's first day
	} {
		race.Bubble(t, func(t *testing.T) {
			s := &sequence{plays: []roundTripper{status(429, header...), good()}}
			completion, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), aCall())
			if err != nil || len(s.times) != 2 || s.times[1] < 2*time.Second || s.times[1] > 2500*time.Millisecond {
				t.Errorf("%v: %v, requests at %v", header, err, s.times)
			}
			if completion.Attempts != 2 || completion.LatencyMS < 2000 || completion.Text != "text" {
				t.Errorf("got %+v", completion)
			}
		})
	}
}

// Each request waits until it may be sent. One that may not is not sent.
func TestMayBegin(t *testing.T) {
	interrupted := &council.Failure{Code: council.FailInterrupted}
	for _, tt := range []struct {
		name     string
		wait     time.Duration // before the second request
		answer   *council.Failure
		deadline time.Duration
		requests int
		want     council.FailureCode // "": none
	}{
		{"it may", time.Minute, nil, time.Hour, 2, ""},
		{"it may not", time.Minute, interrupted, time.Hour, 1, council.FailInterrupted},
		{"the time ends first", time.Hour, nil, time.Minute, 1, council.FailTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				s := &sequence{plays: []roundTripper{status(500), good()}}
				o := fakeOptions()
				o.MaxCallsPerProvider = 1
				c := fakeClient(t, o, s.RoundTrip)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				call, asked := aCall(), 0
				call.MayBegin = func(ctx context.Context) *council.Failure {
					if asked++; asked == 1 {
						return nil
					}
					select {
					case <-time.After(tt.wait):
					case <-ctx.Done():
					}
					return tt.answer
				}
				completion, err := c.Complete(ctx, call)
				code := council.FailureCode("")
				if err != nil {
					code = council.AsFailure(err).Code
				}
				if code != tt.want || len(s.times) != tt.requests || completion.Attempts != tt.requests {
					t.Errorf("%q after requests at %v, %d attempts", code, s.times, completion.Attempts)
				}
				if tt.requests == 2 && s.times[1] < tt.wait {
					t.Errorf("requests at %v", s.times)
				}
				// What the call held is free again.
				if _, err := c.Complete(t.Context(), aCall()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWaitThatDoesNotFitIsNotBegun(t *testing.T) {
	tests := []struct {
		name    string
		limit   time.Duration // 0: none
		headers []string
	}{
		{"the deadline is before", 2 * time.Second, []string{"Retry-After", "2"}},
		{"a far date", 0, []string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}},
		{"a huge number", 0, []string{"Retry-After", "1e300"}},
		{"longer than an attempt", 0, []string{"Retry-After", "181"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				s := &sequence{plays: []roundTripper{status(429, tt.headers...)}}
				start := time.Now()
				_, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(ctx, aCall())
				f := council.AsFailure(err)
				if f == nil || f.Code != council.FailRateLimited || f.RetryAfterS == nil || len(s.times) != 1 || time.Since(start) != 0 {
					t.Errorf("got %v after %s and %d requests", err, time.Since(start), len(s.times))
				}
			})
		})
	}
}

func TestCancelWhileWaiting(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &sequence{plays: []roundTripper{status(429, "Retry-After", "60")}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		time.AfterFunc(time.Second, func() { cancel(errors.New("the client is gone")) })
		start := time.Now()
		completion, err := c.Complete(ctx, aCall())
		if f := council.AsFailure(err); f == nil || f.Code != council.FailCancelled || time.Since(start) != time.Second ||
			completion.Attempts != 1 {
			t.Errorf("got %v after %s and %d attempts", err, time.Since(start), completion.Attempts)
		}
		if n := c.providers[""].budget.reserved; n != 0 {
			t.Errorf("%d reservations are left", n)
		}
	})
}

// While a call waits for its retry, another call uses its slot. If no slot is free after
// the wait, the call reports the failure that it has.
func TestWaitingCallsHoldNoSlot(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := fakeOptions()
		o.MaxCallsPerProvider = 1
		s := &sequence{plays: []roundTripper{status(429, "Retry-After", "10"), hangs}}
		c := fakeClient(t, o, s.RoundTrip)
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			completion, err := c.Complete(ctx, aCall())
			if f := council.AsFailure(err); f == nil || f.Code != council.FailRateLimited || completion.Attempts != 1 {
				t.Errorf("got %v after %d attempts", err, completion.Attempts)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			completion, err := c.Complete(ctx, aCall())
			if f := council.AsFailure(err); f == nil || f.Code != council.FailTimeout || completion.Attempts != 1 {
				t.Errorf("got %v after %d attempts", err, completion.Attempts)
			}
		})
		wg.Wait()
		if diff := cmp.Diff([]time.Duration{0, 0}, s.times); diff != "" {
			t.Error(diff)
		}
		if n := c.providers[""].budget.reserved; n != 0 {
			t.Errorf("%d reservations are left", n)
		}
	})
}

func TestUsageIsSummed(t *testing.T) {
	known := council.Usage{InputTokens: new(int64(3)), OutputTokens: new(int64(2)), CostUSD: new(0.5)}
	part := known
	part.Partial = true
	tests := []struct {
		name string
		play roundTripper
		want council.Usage
	}{
		{"a refusal costs nothing", status(429), known},
		{"so does no connection", refuses(), known},
		{"an error of the provider may cost something", status(500), part},
		{"a broken reply may cost something", broke(syscall.ECONNRESET), part},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				s := &sequence{plays: []roundTripper{tt.play, good()}}
				got, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), aCall())
				if err != nil || got.Attempts != 2 {
					t.Fatalf("%v after %d attempts", err, got.Attempts)
				}
				if diff := cmp.Diff(tt.want, got.Usage); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The request without the reply format is no retry: the call has as many retries as any
// other.
func TestFormatAndRetries(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sequence{plays: []roundTripper{status(503), status(400), status(503), good()}}
		c := fakeClient(t, fakeOptions(), s.RoundTrip)
		call := aCall()
		call.Stage, call.Format = council.Stage2, &council.Format{Name: "ballot", Strict: true, Schema: []byte(`{"type":"object"}`)}
		got, err := c.Complete(t.Context(), call)
		if err != nil || got.Attempts != 4 || s.times[2] != s.times[1] {
			t.Errorf("%v after %d attempts, requests at %v", err, got.Attempts, s.times)
		}
		if got, err = c.Complete(t.Context(), call); err != nil || got.Attempts != 1 || len(c.providers[""].model("m").refuses.known) == 0 {
			t.Errorf("the format was tried again: %v after %d attempts", err, got.Attempts)
		}
	})
}

// A request that the library refuses is not repeated.
func TestRequestThatCannotBeMade(t *testing.T) {
	call := aCall()
	call.Model = "text-davinci-003" // go-openai knows that it does not chat
	s := &sequence{plays: []roundTripper{good()}}
	completion, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call)
	if f := council.AsFailure(err); f == nil || f.Code != council.FailRejected || len(s.times) != 0 ||
		!cmp.Equal(completion.Usage, council.NoUsage()) {
		t.Errorf("got %v, %d requests, usage %+v", err, len(s.times), completion.Usage)
	}
}

// A provider that refuses everything gets few more requests because of that.
func TestRetryBudget(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex // guards all
		var all []time.Duration
		start := time.Now()
		o := fakeOptions()
		o.MaxCallsPerProvider = 1000
		c := fakeClient(t, o, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, time.Since(start))
			return status(429, "Retry-After", "1")(r)
		})
		const perSecond, seconds = 40, 60
		var wg sync.WaitGroup
		for second := range seconds {
			for range perSecond {
				wg.Go(func() {
					begun := time.Now()
					completion, err := c.Complete(t.Context(), aCall())
					if f := council.AsFailure(err); f == nil || f.Code != council.FailRateLimited {
						t.Errorf("got %v", err)
					}
					if completion.Attempts == 1 && time.Since(begun) != 0 {
						t.Errorf("a call without a retry lasted %s", time.Since(begun))
					}
				})
			}
			synctest.Wait()
			if second == 0 && len(all) != perSecond {
				t.Errorf("%d requests at once, want %d", len(all), perSecond)
			}
			time.Sleep(time.Second)
		}
		wg.Wait()
		for i, from := range all {
			n := 0
			for _, at := range all[i:] {
				if at < from+10*time.Second {
					n++
				}
			}
			if first := 10 * perSecond; n > first+first/10+10 {
				t.Fatalf("%d requests in the 10 s from %s", n, from)
			}
		}
		if extra := len(all) - perSecond*seconds; extra < seconds*perSecond/20 {
			t.Errorf("%d retries: there is budget for about %d", extra, seconds*perSecond/10)
		}
	})
}

func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBudget()
		var now time.Duration
		var first, retries []time.Duration
		recent := func(times []time.Duration) int {
			n := 0
			for _, at := range times {
				if at > now-budgetSpan {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				now += time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause"))
			case 1:
				for range rapid.IntRange(1, 60).Draw(t, "first requests") {
					b.spend(now, firstRequest)
					first = append(first, now)
				}
			case 2:
				used := recent(retries)
				spent := len(retries) > 0 && retries[len(retries)-1] > now-budgetSpan*(windowSlots+1)/windowSlots
				reserved := b.reserve(now)
				if reserved && used >= max(budgetFloor, recent(first)/budgetShare) {
					t.Fatalf("a reservation at %s beyond the budget", now)
				}
				if !reserved && b.reserved < budgetFloor && !spent {
					t.Fatalf("no reservation at %s, with nothing spent", now)
				}
			case 3:
				if b.reserved == 0 {
					continue
				}
				sent := b.spend(now, retry)
				b.release()
				if !sent {
					continue
				}
				retries = append(retries, now)
				if n, limit := recent(retries), max(budgetFloor, recent(first)/budgetShare); n > limit {
					t.Fatalf("%d retries in the 10 s up to %s, want at most %d", n, now, limit)
				}
			}
		}
	})
}
