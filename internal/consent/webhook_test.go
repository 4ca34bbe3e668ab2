package consent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
)

// finished returns the webhook of a session.
func finished(session string) consent.SessionFinished {
	return consent.SessionFinished{
		Type: consent.TypeSessionFinished, Timestamp: time.Now().UTC(),
		Data: consent.FinishedData{SessionID: session, ResponseID: "resp_" + session, Status: council.StatusComplete},
	}
}

// request is one attempt to deliver a webhook.
type request struct {
	at                       time.Time
	id, timestamp, signature string
	body                     []byte
}

// receiver is an http.RoundTripper that stands for the receiver of webhooks, whose answers the test chooses.
type receiver struct {
	takes  time.Duration // how long it takes to answer
	mu     sync.Mutex    // guards all fields below
	answer func(id string) (status int, header http.Header, err error)
	got    []request
	busy   int // requests that wait for their answer
	most   int // the largest value of busy
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	id := req.Header.Get("webhook-id")
	r.got = append(r.got, request{
		time.Now(), id, req.Header.Get("webhook-timestamp"), req.Header.Get("webhook-signature"), body,
	})
	r.busy++
	r.most = max(r.most, r.busy)
	r.mu.Unlock()
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	status, header, err := r.answer(id)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
}

func (r *receiver) set(answer func(id string) (int, http.Header, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
	r.most = 0
}

func (r *receiver) parallel() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func down(string) (int, http.Header, error) { return 0, nil, errors.New("connection refused") }
func ok(string) (int, http.Header, error)   { return http.StatusNoContent, nil, nil }
func answers(status int) func(string) (int, http.Header, error) {
	return func(string) (int, http.Header, error) { return status, http.Header{}, nil }
}

var webhookKeys = [][]byte{[]byte("the new key, of 24 bytes"), []byte("the old key, of 24 bytes")}

// openHooks opens an outbox that sends webhooks to r.
func openHooks(t *testing.T, path string, r *receiver, when func(string, json.RawMessage) consent.When) *consent.Outbox {
	t.Helper()
	s := consent.NewWebhookSink("http://receiver.example/hooks", webhookKeys, nil)
	s.SetTransport(r)
	o, err := consent.OpenOutbox(t.Context(), consent.OutboxOptions{
		Path: path, Sink: s, Log: slog.New(slog.DiscardHandler), Single: true, When: when,
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func addHook(t *testing.T, o *consent.Outbox, session string) {
	t.Helper()
	f := finished(session)
	if err := o.Add(t.Context(), session, f.ID(), f); err != nil {
		t.Fatal(err)
	}
}

// The vector is from the tests of the libraries of Standard Webhooks.
func TestWebhookSignature(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	sign := func(keys ...[]byte) string {
		return consent.Sign(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	}
	if got := sign(key); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	if got := strings.Fields(sign(webhookKeys[0], key)); len(got) != 2 || got[1] != want || got[0] == want {
		t.Errorf("the signatures of two keys are %s", got)
	}
}

// A receiver that is down for an hour gets every webhook after that, by the schedule. Each attempt has a timestamp and
// signatures of its own, and the id stays.
func TestFaultF77ReceiverIsDown(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		r := &receiver{answer: down}
		o := openHooks(t, filepath.Join(t.TempDir(), "webhooks.jsonl"), r, nil)
		begun := time.Now()
		addHook(t, o, "one")
		time.Sleep(10 * time.Minute)
		addHook(t, o, "two")
		time.Sleep(50 * time.Minute)
		if o.Failing() == nil || o.State().Waiting != 2 {
			t.Errorf("while the receiver is down, failing is %v and the state %+v", o.Failing(), o.State())
		}
		r.set(ok)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := o.State(); got != (consent.OutboxState{Sent: 2}) || o.Failing() != nil {
			t.Errorf("afterwards the state is %+v, failing is %v", got, o.Failing())
		}
		attempts := map[string][]time.Duration{}
		for _, got := range r.requests() {
			attempts[got.id] = append(attempts[got.id], got.at.Sub(begun))
			if want := strconv.FormatInt(got.at.Unix(), 10); got.timestamp != want {
				t.Errorf("an attempt at %s has the timestamp %s", want, got.timestamp)
			}
			if want := consent.Sign(webhookKeys, got.id, got.timestamp, got.body); got.signature != want {
				t.Errorf("the signature is %s, want %s", got.signature, want)
			}
			var f consent.SessionFinished
			if err := json.Unmarshal(got.body, &f); err != nil || "msg_"+f.Data.SessionID != got.id || f.Type != "session.finished" {
				t.Errorf("%s has the body %s: %v", got.id, got.body, err)
			}
		}
		want := []time.Duration{0, 5 * time.Second, 5*time.Minute + 5*time.Second, 35*time.Minute + 5*time.Second, 155*time.Minute + 5*time.Second}
		got := attempts["msg_one"]
		if len(got) != len(want) || len(attempts["msg_two"]) < 3 {
			t.Fatalf("attempts at %v, want %v", attempts, want)
		}
		for i, at := range want {
			// The delivery of the other webhook may bring the last attempt forward, because the receiver is back.
			if got[i] < at && i < len(want)-1 || got[i] > at+at/5+6*time.Second {
				t.Errorf("attempt %d after %s, want %s and up to a tenth", i, got[i], at)
			}
		}
		t.Logf("fault F77: down for an hour: 2 webhooks arrived, after %d and %d attempts (promised: each arrives)",
			len(attempts["msg_one"]), len(attempts["msg_two"]))
		closeOutbox(t, o)
	})
}

// A receiver that is down for four days does not get what ended in the first of them, not even after a restart. It gets
// what ended later.
func TestFaultF77ReceiverIsDownForDays(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "webhooks.jsonl")
		r := &receiver{answer: down}
		o := openHooks(t, path, r, nil)
		addHook(t, o, "early")
		time.Sleep(71 * time.Hour)
		addHook(t, o, "late")
		time.Sleep(25 * time.Hour)
		if got := o.State(); got.Waiting != 1 || got.GivenUp != 1 || o.Failing() == nil {
			t.Errorf("after four days the state is %+v, failing is %v", got, o.Failing())
		}
		closeOutbox(t, o)
		r.set(ok)
		tried := len(r.requests())
		o = openHooks(t, path, r, nil)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if after := r.requests()[tried:]; len(after) != 1 || after[0].id != "msg_late" {
			t.Errorf("the receiver that is back got %+v", after)
		}
		if got := outcomes(t, path); got["sent"] != 1 || got["given_up"] != 1 || len(got) != 2 {
			t.Errorf("the outcomes are %v", got)
		}
		t.Logf("fault F77: down for four days: the webhook of the first day was given up, that of the third arrived " +
			"(promised: given up after three days)")
		closeOutbox(t, o)
	})
}

// Up to maxParallel webhooks are sent at once. After 429, 502 or 504 they are sent one at a time, and after some that
// arrive again more at once.
func TestWebhookThrottle(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				r := &receiver{answer: ok, takes: time.Second}
				o := openHooks(t, filepath.Join(t.TempDir(), "webhooks.jsonl"), r, nil)
				n := 0
				more := func(count int) {
					for range count {
						n++
						addHook(t, o, strconv.Itoa(n))
					}
				}
				more(60)
				time.Sleep(time.Minute)
				if r.parallel() != consent.MaxParallel {
					t.Errorf("%d at once, want %d", r.parallel(), consent.MaxParallel)
				}
				r.set(answers(status))
				more(20)
				time.Sleep(1500 * time.Millisecond) // the deliveries under way fail
				r.set(answers(status))
				time.Sleep(10 * time.Minute)
				if r.parallel() != 1 {
					t.Errorf("after %d there are %d at once, want 1", status, r.parallel())
				}
				r.set(ok)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if got := o.State(); got != (consent.OutboxState{Sent: 80}) || r.parallel() != consent.MaxParallel {
					t.Errorf("at the end the state is %+v, %d at once", got, r.parallel())
				}
				closeOutbox(t, o)
			})
		})
	}
}

// A webhook that the receiver refuses does not delay the others, and is given up at last.
func TestWebhookIsRefused(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		r := &receiver{answer: func(id string) (int, http.Header, error) {
			if id == "msg_bad" {
				return http.StatusInternalServerError, nil, nil
			}
			return http.StatusOK, nil, nil
		}}
		path := filepath.Join(t.TempDir(), "webhooks.jsonl")
		o := openHooks(t, path, r, nil)
		addHook(t, o, "bad")
		const others = 5 * 24
		for n := range others {
			time.Sleep(time.Hour)
			addHook(t, o, strconv.Itoa(n))
			synctest.Wait()
			if sent := o.State().Sent; sent != n+1 {
				t.Fatalf("%d of %d others were sent at once", sent, n+1)
			}
		}
		if got := o.State(); got != (consent.OutboxState{Sent: others, GivenUp: 1}) {
			t.Errorf("the state is %+v", got)
		}
		tried := len(r.requests()) - others
		if tried != 10 {
			t.Errorf("the refused webhook was tried %d times, want 10", tried)
		}
		closeOutbox(t, o)
	})
}

// 410 ends the deliveries until the next start, and Retry-After puts them off.
func TestWebhookReceiverSaysWhen(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "webhooks.jsonl")
		r := &receiver{answer: answers(http.StatusGone)}
		o := openHooks(t, path, r, nil)
		addHook(t, o, "one")
		time.Sleep(time.Minute)
		addHook(t, o, "two")
		time.Sleep(30 * time.Hour)
		if got := len(r.requests()); got != 1 || o.Failing() == nil {
			t.Errorf("a receiver that is gone got %d requests", got)
		}
		closeOutbox(t, o)
		r.set(func(string) (int, http.Header, error) {
			return http.StatusServiceUnavailable, http.Header{"Retry-After": {"7200"}}, nil
		})
		o = openHooks(t, path, r, nil)
		time.Sleep(119 * time.Minute)
		if got := len(r.requests()); got != 2 {
			t.Errorf("within the time of Retry-After there were %d requests, want 1", got-1)
		}
		r.set(ok)
		time.Sleep(20 * time.Hour)
		synctest.Wait()
		if got := o.State(); got != (consent.OutboxState{Sent: 2}) {
			t.Errorf("the state is %+v", got)
		}
		closeOutbox(t, o)
	})
}

// A webhook waits until its session has ended, also after a restart. If the session ends again, the new webhook replaces
// the one that waits. A webhook that is not true any more is dropped.
func TestWebhookWaitsForTheEnd(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "webhooks.jsonl")
		r := &receiver{answer: ok}
		var when atomic.Int64
		when.Store(int64(consent.Later))
		ask := func(string, json.RawMessage) consent.When { return consent.When(when.Load()) }
		o := openHooks(t, path, r, ask)
		addHook(t, o, "one")
		time.Sleep(time.Hour)
		closeOutbox(t, o)
		o = openHooks(t, path, r, ask)
		time.Sleep(time.Hour)
		again := finished("one")
		again.Data.Status = council.StatusDegraded
		if err := o.Add(t.Context(), "one", again.ID(), again); err != nil {
			t.Fatal(err)
		}
		closeOutbox(t, o)
		if got := len(r.requests()); got != 0 {
			t.Errorf("%d requests before the end of the session", got)
		}
		o = openHooks(t, path, r, ask)
		when.Store(int64(consent.Now))
		time.Sleep(time.Hour)
		addHook(t, o, "one") // too late
		time.Sleep(time.Hour)
		got := r.requests()
		if len(got) != 1 || !strings.Contains(string(got[0].body), `"degraded"`) {
			t.Errorf("%d webhooks arrived: %+v", len(got), got)
		}
		when.Store(int64(consent.Never))
		addHook(t, o, "two")
		time.Sleep(time.Hour)
		closeOutbox(t, o)
		when.Store(int64(consent.Now))
		o = openHooks(t, path, r, ask)
		time.Sleep(time.Hour)
		closeOutbox(t, o)
		if got := len(r.requests()); got != 1 {
			t.Errorf("%d webhooks arrived, want 1", got)
		}
		if got := outcomes(t, path); got["sent"] != 1 || got["dropped"] != 1 || len(got) != 2 {
			t.Errorf("the outcomes are %v", got)
		}
	})
}

// What a name leads to when the connection is made decides, and no redirect leads elsewhere.
func TestWebhookSinkRefuses(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "http://127.0.0.1:9/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	text, err := json.Marshal(finished("one"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(allow ...netip.Prefix) error {
		_, err := consent.NewWebhookSink(server.URL, webhookKeys, allow).Send(context.Background(), []json.RawMessage{text})
		return err
	}
	if err := send(); err == nil || !strings.Contains(err.Error(), "not a public address") || asked > 0 {
		t.Errorf("an address that is not public, asked %d times: %v", asked, err)
	}
	refusal, refused := errors.AsType[*consent.Refusal](send(netip.MustParsePrefix("127.0.0.0/8")))
	if !refused || refusal.StatusCode != http.StatusTemporaryRedirect || asked != 1 {
		t.Errorf("a redirect: %v, asked %d times", refusal, asked)
	}
}
