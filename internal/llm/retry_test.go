package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
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
			want := refusedBy(&exchange{response: response{status: code}}).Code
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
func TestBeginWaits(t *testing.T) {
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
				call.Begin = func(ctx context.Context, _ council.Attempt) (council.Receipt, *council.Failure) {
					if asked++; asked == 1 {
						return nil, nil
					}
					select {
					case <-time.After(tt.wait):
					case <-ctx.Done():
					}
					return nil, tt.answer
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
		noClaims(t, c)
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
		noClaims(t, c)
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

// noClaims checks that no retry waits any more.
func noClaims(t *testing.T, c *Client) {
	t.Helper()
	b := c.providers[""].budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.claims) != 0 || b.granted != 0 || b.timer != nil {
		t.Errorf("%d claims are left, %d granted, timer %v", len(b.claims), b.granted, b.timer)
	}
}

// Whatever calls do, and whoever leaves, retries never exceed the budget. Retries that wait are granted in turn, once there
// is room.
func TestBudgetHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) budgetStep {
			return budgetStep{rapid.IntRange(0, 4).Draw(t, "kind"), rapid.IntRange(0, 5000).Draw(t, "number")}
		}), 1, 200).Draw(rt, "steps")
		var problem error
		race.Bubble(t, func(*testing.T) { problem = playBudget(script) })
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

// budgetStep is a step of TestBudgetHolds. What its number means depends on its kind.
type budgetStep struct{ kind, number int }

// retrying is a call that waits for its retry.
type retrying struct {
	claim  *claim
	cancel context.CancelFunc
	done   chan bool
}

// budgetPlay is a budget with the calls of TestBudgetHolds.
type budgetPlay struct {
	*budget
	first, retries []time.Duration // when they were sent
	waiting        []retrying      // in the order in which they are due
	granted        []*claim
}

// playBudget returns how the budget broke its promise in the steps, or nil.
func playBudget(steps []budgetStep) error {
	start := time.Now()
	p := &budgetPlay{budget: newBudget(func() time.Duration { return time.Since(start) })}
	m := &model{breaker: newBreaker(), attempts: attempts{ended: window{span: breakerSpan}}}
	defer func() {
		for _, w := range p.waiting {
			p.leave(w)
		}
		for _, c := range p.granted {
			p.drop(c)
		}
	}()
	for _, step := range steps {
		switch step.kind {
		case 0:
			time.Sleep(time.Duration(step.number) * time.Millisecond)
		case 1:
			for range step.number % 60 {
				p.spend(firstRequest, nil)
				p.first = append(p.first, p.now())
			}
		case 2:
			c := p.claim(context.Background(), m, time.Duration(step.number)*time.Millisecond)
			behind := func(w retrying) bool { return w.claim.due > c.due }
			at := slices.IndexFunc(append(p.waiting, retrying{claim: &claim{due: math.MaxInt64}}), behind)
			p.waiting = slices.Insert(p.waiting, at, p.wait(c))
		case 3:
			if len(p.granted) == 0 {
				continue
			}
			c := p.granted[0]
			p.granted = p.granted[1:]
			if !p.spend(retry, c) {
				p.waiting = slices.Insert(p.waiting, 0, p.wait(c))
				break
			}
			p.retries = append(p.retries, p.now())
			if n, limit := p.recent(p.retries, budgetSpan), max(budgetFloor, p.recent(p.first, budgetSpan)/budgetShare); n > limit {
				return fmt.Errorf("%d retries in the 10 s up to %s, want at most %d", n, p.now(), limit)
			}
		case 4:
			if len(p.waiting) == 0 {
				continue
			}
			at := step.number % len(p.waiting)
			p.leave(p.waiting[at])
			p.waiting = slices.Delete(p.waiting, at, at+1)
		}
		if err := p.collect(); err != nil {
			return err
		}
	}
	for _, w := range p.waiting {
		p.leave(w)
	}
	for _, c := range p.granted {
		p.drop(c)
	}
	p.waiting, p.granted = nil, nil
	if len(p.claims) != 0 || p.budget.granted != 0 || p.timer != nil {
		return fmt.Errorf("%d claims are left, %d granted, timer %v", len(p.claims), p.budget.granted, p.timer)
	}
	return nil
}

func (p *budgetPlay) wait(c *claim) retrying {
	ctx, cancel := context.WithCancel(context.Background())
	w := retrying{c, cancel, make(chan bool, 1)}
	go func() { w.done <- p.await(ctx, c) }()
	return w
}

func (p *budgetPlay) leave(w retrying) {
	w.cancel()
	<-w.done
	p.drop(w.claim)
}

// recent returns how many times lie within the latest span.
func (p *budgetPlay) recent(times []time.Duration, span time.Duration) int {
	n := 0
	for _, at := range times {
		if at > p.now()-span {
			n++
		}
	}
	return n
}

// collect takes over the retries that were granted.
func (p *budgetPlay) collect() error {
	synctest.Wait()
	var still []retrying
	for _, w := range p.waiting {
		select {
		case ok := <-w.done:
			w.cancel()
			if !ok {
				return fmt.Errorf("the retry that was due at %s was refused", w.claim.due)
			}
			if len(still) > 0 && still[0].claim.due < w.claim.due {
				return fmt.Errorf("the retry that was due at %s was granted before one that was due at %s", w.claim.due, still[0].claim.due)
			}
			p.granted = append(p.granted, w.claim)
		default:
			still = append(still, w)
		}
	}
	p.waiting = still
	// The budget may count first requests for 9 s only, and retries for 11 s.
	size := max(budgetFloor, p.recent(p.first, budgetSpan*9/10)/budgetShare)
	if len(still) > 0 && still[0].claim.due <= p.now() && p.recent(p.retries, budgetSpan*11/10)+len(p.granted) < size {
		return fmt.Errorf("at %s there is room for the retry that was due at %s", p.now(), still[0].claim.due)
	}
	return nil
}

// crowd is calls to one provider that begin at the same time.
type crowd struct {
	t     *testing.T
	c     *Client
	start time.Time
	mu    sync.Mutex
	sent  map[string][]time.Duration // when the requests of each call arrived, by its question
	wg    sync.WaitGroup
}

// newCrowd returns a crowd without calls. play answers the nth request of a call, counted from 1.
func newCrowd(t *testing.T, play func(question string, n int) roundTripper) *crowd {
	t.Helper()
	cr := &crowd{t: t, start: time.Now(), sent: map[string][]time.Duration{}}
	cr.c = fakeClient(t, fakeOptions(), func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		question := questionIn.FindStringSubmatch(string(body))[1]
		cr.mu.Lock()
		cr.sent[question] = append(cr.sent[question], time.Since(cr.start))
		n := len(cr.sent[question])
		cr.mu.Unlock()
		return play(question, n)(r)
	})
	return cr
}

var questionIn = regexp.MustCompile(`"content":"([^"]*)"`)

// ask begins a call, and hands its end to ended.
func (cr *crowd) ask(ctx context.Context, model, question string, ended func(at time.Duration, attempts int, code council.FailureCode)) {
	call := council.Call{Model: model, Messages: []council.Message{{Role: council.RoleUser, Content: question}}}
	cr.wg.Go(func() {
		completion, err := cr.c.Complete(ctx, call)
		code := council.FailureCode("")
		if err != nil {
			code = council.AsFailure(err).Code
		}
		ended(time.Since(cr.start), completion.Attempts, code)
	})
	synctest.Wait() // the next call comes after this one
}

// A retry for which the budget has no room waits, in turn, until there is room.
func TestRetriesWaitForTheBudget(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		cr := newCrowd(t, func(_ string, n int) roundTripper {
			if n == 1 {
				return status(429, "Retry-After", "2")
			}
			return good()
		})
		const calls = 25
		for i := range calls {
			cr.ask(t.Context(), fmt.Sprint("m", i%5), strconv.Itoa(i), func(at time.Duration, attempts int, code council.FailureCode) {
				if code != "" || attempts != 2 {
					t.Errorf("call %d: %s after %d attempts and %s", i, code, attempts, at)
				}
			})
		}
		cr.wg.Wait()
		// Ten retries come after their own wait of 2 to 2.25 s, ten when those are forgotten, five when these are.
		waves := map[time.Duration]int{}
		for question, sent := range cr.sent {
			if len(sent) != 2 {
				t.Fatalf("call %s: requests at %v", question, sent)
			}
			at := sent[1]
			if at >= 2*time.Second && at <= 2250*time.Millisecond {
				at = 2 * time.Second
			}
			waves[at]++
		}
		if diff := cmp.Diff(map[time.Duration]int{2 * time.Second: 10, 13 * time.Second: 10, 24 * time.Second: 5}, waves); diff != "" {
			t.Error(diff)
		}
		noClaims(t, cr.c)
	})
}

// Calls leave the queue at once when waiting became pointless, and give their place back.
func TestRetriesThatDoNotWait(t *testing.T) {
	// Ten calls use up the budget for 11 s. Their models are not asked again.
	usedUp := func(t *testing.T, play func(question string, n int) roundTripper) *crowd {
		t.Helper()
		cr := newCrowd(t, func(question string, n int) roundTripper {
			if strings.HasPrefix(question, "before") {
				return []roundTripper{status(503), good()}[min(n, 2)-1]
			}
			return play(question, n)
		})
		for i := range budgetFloor {
			cr.ask(t.Context(), fmt.Sprint("n", i/5), fmt.Sprint("before ", i), func(time.Duration, int, council.FailureCode) {})
		}
		time.Sleep(time.Second - time.Nanosecond) // all are over
		cr.wg.Wait()
		cr.start = time.Now()
		return cr
	}
	// The retries before came in the first second, and are forgotten at its end and 10 s later.
	const room = 10*time.Second + time.Nanosecond
	fails := func(string, int) roundTripper { return status(503) }
	once := func(_ string, n int) roundTripper { return []roundTripper{status(503), good()}[min(n, 2)-1] }

	t.Run("the deadline comes first", func(t *testing.T) {
		race.Bubble(t, func(t *testing.T) {
			cr := usedUp(t, once)
			for limit, want := range map[time.Duration]council.FailureCode{room: council.FailUnavailable, room + 1: ""} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				cr.ask(ctx, "m", limit.String(), func(at time.Duration, attempts int, code council.FailureCode) {
					if code != want || want != "" && (at != 0 || attempts != 1) {
						t.Errorf("limit %s: %q after %s and %d attempts", limit, code, at, attempts)
					}
				})
			}
			cr.wg.Wait()
			noClaims(t, cr.c)
		})
	})
	t.Run("one leaves", func(t *testing.T) {
		race.Bubble(t, func(t *testing.T) {
			cr := usedUp(t, once)
			ctx, cancel := context.WithCancel(t.Context())
			for i := range budgetFloor {
				cr.ask(ctx, fmt.Sprint("m", i), strconv.Itoa(i), func(at time.Duration, attempts int, code council.FailureCode) {
					if code != council.FailCancelled || at != time.Second || attempts != 1 {
						t.Errorf("%q after %s and %d attempts", code, at, attempts)
					}
				})
			}
			cr.ask(t.Context(), "m", "last", func(at time.Duration, _ int, code council.FailureCode) {
				if code != "" || at != room {
					t.Errorf("%q after %s, want its turn after %s", code, at, room)
				}
			})
			time.Sleep(time.Second)
			cancel()
			cr.wg.Wait()
			noClaims(t, cr.c)
		})
	})
	for name, play := range map[string]func(string, int) roundTripper{
		"the breaker opens":          fails,
		"a model refuses every call": func(string, int) roundTripper { return status(429) },
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				cr := usedUp(t, play)
				for i := range breakerRequests {
					if i == breakerRequests-1 {
						time.Sleep(time.Second)
					}
					cr.ask(t.Context(), "m", strconv.Itoa(i), func(at time.Duration, attempts int, code council.FailureCode) {
						if code == "" || at != time.Second || attempts != 1 {
							t.Errorf("call %d: %q after %s and %d attempts", i, code, at, attempts)
						}
					})
				}
				cr.wg.Wait()
				noClaims(t, cr.c)
			})
		})
	}
}
