package llm

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// Calls that wait for a place get one in the order in which they came. The wait is no part of a request's own time.
func TestPlacesAreGivenInTurn(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := fakeOptions()
		o.MaxCallsPerProvider, o.AttemptTimeout = 1, 15*time.Second
		cr := newCrowd(t, func(string, int) roundTripper {
			return func(r *http.Request) (*http.Response, error) {
				time.Sleep(10 * time.Second)
				return good()(r)
			}
		})
		cr.c = fakeClient(t, o, cr.c.providers[""].transport.base.(roundTripper))
		for i := range 5 {
			cr.ask(t.Context(), "m", strconv.Itoa(i), func(at time.Duration, _ int, code council.FailureCode) {
				if want := time.Duration(i+1) * 10 * time.Second; code != "" || at != want {
					t.Errorf("call %d: %q after %s, want %s", i, code, at, want)
				}
			})
		}
		cr.wg.Wait()
	})
}

// How long a session would wait is judged by what is in flight, waits and was announced, and by the time that calls take.
func TestExpect(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := fakeOptions()
		o.MaxCallsPerProvider = 2
		o.Providers = append(o.Providers, Provider{Name: "other", BaseURL: "http://other.test"})
		play := roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return good()(r)
		})
		c := fakeClient(t, o, play)
		expect := func(session string, calls int, within time.Duration) string {
			models := []string{"other:m"}
			for range calls {
				models = append(models, "m")
			}
			provider, end, ok := c.Expect(session, models, within)
			return fmt.Sprintf("%s %s %v", provider, end, ok)
		}
		var got []string
		check := func(what string) { got = append(got, what) }

		check(expect("early", 20, time.Second)) // nobody knows yet how long calls take
		c.Forget("early")
		if _, err := c.Complete(t.Context(), aCall()); err != nil {
			t.Fatal(err)
		}
		check(expect("alone", 20, time.Second)) // nothing is in its way
		c.Forget("alone")

		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _, _ = c.Complete(t.Context(), aCall()) })
		}
		synctest.Wait()
		check(expect("first", 3, 30*time.Second))  // behind three: two run, one waits; four have to end before its last
		check(expect("first", 3, 31*time.Second))  // is announced
		check(expect("second", 1, 35*time.Second)) // behind six
		check(expect("second", 1, 36*time.Second))
		c.Forget("second")
		call := aCall()
		call.Session = "first"
		wg.Go(func() { _, _ = c.Complete(t.Context(), call) }) // one of its three, which counts once
		synctest.Wait()
		check(expect("third", 1, 35*time.Second))
		c.Forget("first") // it ended early; one call of it waits
		check(expect("third", 1, 25*time.Second))
		check(expect("third", 1, 26*time.Second))
		wg.Wait()
		c.Forget("third")
		q := c.providers[""].queue
		if len(q.places) != 0 || q.waiting != 0 || q.coming != 0 || len(q.expected) != 0 {
			t.Errorf("left: %d places, %d waiting, %d coming, %v", len(q.places), q.waiting, q.coming, q.expected)
		}
		want := []string{
			" 0s true", " 0s true",
			" 30s false", " 0s true", " 35s false", " 0s true",
			" 35s false", " 25s false", " 0s true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// dials counts connections that are being opened.
type dials struct {
	mu              sync.Mutex
	now, most, sums int
}

func (d *dials) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now += n
	d.most = max(d.most, d.now)
	d.sums += max(n, 0)
}

// However many calls begin at once, few connections are opened at the same time. Those that stall hold up the others for half a
// second at most, and fail within the dial timeout themselves.
func TestConnectionsAreOpenedInTurn(t *testing.T) {
	const calls = 3*maxOpening + 8
	for _, tt := range []struct {
		name, scheme string
		stalled      int // of the connections, the first ones
		most         int
	}{
		{"plain", "http", 0, maxOpening},
		{"stalled", "http", maxOpening, 2 * maxOpening},
		{"a stalled handshake", "https", calls, calls},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				network := pipenet.Listen()
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(time.Minute) // no connection is used twice
					_, _ = w.Write([]byte(goodBody))
				}), ReadHeaderTimeout: time.Minute}
				go func() { _ = server.Serve(network) }()
				defer server.Close()
				d := &dials{}
				o := fakeOptions()
				o.MaxAttempts, o.MaxCallsPerProvider = 1, 1000
				o.Providers = []Provider{{BaseURL: tt.scheme + "://provider.test/v1"}}
				o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					d.add(1)
					d.mu.Lock()
					stalls := d.sums <= tt.stalled
					d.mu.Unlock()
					if stalls && tt.scheme == "https" {
						here, there := net.Pipe()
						context.AfterFunc(ctx, func() {
							d.add(-1)
							_ = there.Close()
						})
						return here, nil
					}
					defer d.add(-1)
					if stalls {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					time.Sleep(100 * time.Millisecond)
					return network.DialContext(ctx, "", "")
				}
				c, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				start := time.Now()
				var wg sync.WaitGroup
				var mu sync.Mutex
				var lost int
				var longest time.Duration
				for range calls {
					wg.Go(func() {
						_, err := c.Complete(t.Context(), aCall())
						mu.Lock()
						defer mu.Unlock()
						if f := council.AsFailure(err); f != nil {
							lost++
							if took := time.Since(start); f.Code != council.FailConnection || took != o.DialTimeout {
								t.Errorf("%v after %s", err, took)
							}
						} else {
							longest = max(longest, time.Since(start)-time.Minute)
						}
					})
				}
				wg.Wait()
				d.mu.Lock()
				defer d.mu.Unlock()
				if lost != tt.stalled || d.most > tt.most || d.sums != calls {
					t.Errorf("%d calls lost, %d of %d connections were opened at the same time", lost, d.most, d.sums)
				}
				if want := time.Duration(calls/maxOpening+1) * o.DialTimeout / openingShare; longest > want {
					t.Errorf("the last connection was open after %s, want %s", longest, want)
				}
			})
		})
	}
}
