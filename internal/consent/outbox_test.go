package consent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/race"
)

// sink is a Sink whose answers the test chooses.
type sink struct {
	mu    sync.Mutex // guards what follows
	tries []time.Time
	got   []string // ids
	send  func(ids []string) ([]consent.Receipt, error)
}

func (s *sink) Send(_ context.Context, texts []json.RawMessage) ([]consent.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = append(s.tries, time.Now())
	var ids []string
	for _, text := range texts {
		var e consent.Event
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, err
		}
		ids = append(ids, e.EventID)
	}
	receipts, err := s.send(ids)
	if err == nil {
		s.got = append(s.got, ids...)
	}
	return receipts, err
}

func (s *sink) Holds(context.Context, map[string]bool) ([]string, error) { return nil, nil }

func (s *sink) Close() error { return nil }

func (s *sink) set(send func([]string) ([]consent.Receipt, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send = send
}

// tried returns when events were sent.
func (s *sink) tried() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tries)
}

func (s *sink) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func away([]string) ([]consent.Receipt, error)  { return nil, errors.New("away") }
func takes([]string) ([]consent.Receipt, error) { return nil, nil }

func openOutbox(t *testing.T, path string, s consent.Sink) *consent.Outbox {
	t.Helper()
	o, err := consent.OpenOutbox(t.Context(), consent.OutboxOptions{Path: path, Sink: s, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func closeOutbox(t *testing.T, o *consent.Outbox) {
	t.Helper()
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// add adds the event of a session, and returns its id.
func add(t *testing.T, o *consent.Outbox, session string) string {
	t.Helper()
	e := consent.Make(sessionRecords(session), options(2))
	if err := o.Add(t.Context(), session, e.EventID, e); err != nil {
		t.Fatal(err)
	}
	return e.EventID
}

// outcomes returns how many events of an outbox came to each outcome.
func outcomes(t *testing.T, path string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for line, err := range store.DailyLines(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		var l struct {
			Done    []string `json:"done"`
			Outcome string   `json:"outcome"`
		}
		if err := json.Unmarshal(line.Text, &l); err != nil {
			t.Fatal(err)
		}
		if l.Outcome != "" {
			found[l.Outcome] += len(l.Done)
		}
	}
	return found
}

// A sink that is away is tried ten times over three days, with pauses that grow. After that the event is given up.
func TestOutboxGivesUpAfterDays(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path, s := filepath.Join(t.TempDir(), "events.jsonl"), &sink{send: away}
		o := openOutbox(t, path, s)
		begun := time.Now()
		add(t, o, "one")
		time.Sleep(20 * time.Hour)
		if got := o.State(); got != (consent.OutboxState{Waiting: 1, Oldest: 20 * time.Hour}) {
			t.Errorf("while it waits the state is %+v", got)
		}
		time.Sleep(9 * 24 * time.Hour)
		synctest.Wait()
		if got := o.State(); got != (consent.OutboxState{GivenUp: 1}) {
			t.Errorf("after it was given up the state is %+v", got)
		}
		if o.Failing() == nil {
			t.Error("the outbox does not say that the sink is away")
		}
		closeOutbox(t, o)
		want := []time.Duration{0, 5 * time.Second, 5 * time.Minute, 35 * time.Minute, 155 * time.Minute, 455 * time.Minute}
		if len(s.tried()) != 10 {
			t.Fatalf("the sink was tried %d times, want 10", len(s.tried()))
		}
		for i, after := range want {
			if at := s.tried()[i].Sub(begun); at < after || at > after+after/5+6*time.Second {
				t.Errorf("try %d was after %s, want %s and a tenth", i, at, after)
			}
		}
		if last := s.tried()[9].Sub(begun); last < 75*time.Hour || last > 80*time.Hour {
			t.Errorf("the last try was after %s", last)
		}
		if got := outcomes(t, path); got["given_up"] != 1 || len(got) != 1 {
			t.Errorf("the outcomes are %v", got)
		}
	})
}

// A session has one event, as long as the outbox keeps what it was given. After that it is forgotten, also by a
// process that goes on running.
func TestOutboxForgetsOldSessions(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sink{send: takes}
		o := openOutbox(t, filepath.Join(t.TempDir(), "events.jsonl"), s)
		add(t, o, "one")
		for _, step := range []struct{ days, want int }{{29, 1}, {2, 2}} {
			time.Sleep(time.Duration(step.days) * 24 * time.Hour)
			add(t, o, "one")
			synctest.Wait()
			if got := len(s.ids()); got != step.want {
				t.Errorf("%d days later %d events were sent, want %d", step.days, got, step.want)
			}
		}
		closeOutbox(t, o)
	})
}

// What an outbox was given is deleted in time also where nothing is added any more.
func TestOutboxForgetsWhenIdle(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		o := openOutbox(t, filepath.Join(dir, "events.jsonl"), &sink{send: takes})
		add(t, o, "one")
		today := time.Now().UTC().Format(time.DateOnly)
		for _, step := range []struct{ days, want int }{{30, 1}, {2, 0}} {
			time.Sleep(time.Duration(step.days) * 24 * time.Hour)
			synctest.Wait()
			files, err := filepath.Glob(filepath.Join(dir, "events-"+today+".jsonl"))
			if err != nil || len(files) != step.want {
				t.Errorf("%d days later there are %q, want %d files: %v", step.days, files, step.want, err)
			}
		}
		closeOutbox(t, o)
	})
}

// What waits goes out as soon as the sink takes the first event again, and each event once.
func TestOutboxGoesOnWhenTheSinkIsBack(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path, s := filepath.Join(t.TempDir(), "events.jsonl"), &sink{send: away}
		o := openOutbox(t, path, s)
		var want []string
		for _, session := range []string{"one", "two", "three"} {
			want = append(want, add(t, o, session))
		}
		time.Sleep(12 * time.Hour)
		s.set(takes)
		want = append(want, add(t, o, "four"))
		time.Sleep(10 * time.Second)
		got := s.ids()
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%v arrived, want %v", got, want)
		}
		if o.Failing() != nil {
			t.Error(o.Failing())
		}
		if got := o.State(); got != (consent.OutboxState{Sent: 4}) {
			t.Errorf("the state is %+v", got)
		}
		closeOutbox(t, o)
		if got := outcomes(t, path); got["sent"] != 4 || len(got) != 1 {
			t.Errorf("the outcomes are %v", got)
		}
	})
}

// The next process sends what waits, knows what was sent, and takes no second event of a session.
func TestOutboxAfterRestart(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path, s := filepath.Join(t.TempDir(), "events.jsonl"), &sink{send: takes}
		o := openOutbox(t, path, s)
		add(t, o, "sent")
		synctest.Wait()
		s.set(away)
		waits := add(t, o, "waits")
		synctest.Wait()
		closeOutbox(t, o)

		next := &sink{send: takes}
		o = openOutbox(t, path, next)
		add(t, o, "waits") // its session goes on, and ends once more
		add(t, o, "sent")
		time.Sleep(time.Minute)
		closeOutbox(t, o)
		if got := next.ids(); !slices.Equal(got, []string{waits}) {
			t.Errorf("after the restart %v arrived, want %s alone", got, waits)
		}
	})
}

// A rejected event is not sent again, and a sink that is gone is not asked again.
func TestOutboxIsRefused(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		path, s := filepath.Join(t.TempDir(), "events.jsonl"), &sink{}
		s.set(func(ids []string) (receipts []consent.Receipt, _ error) {
			for _, id := range ids {
				receipts = append(receipts, consent.Receipt{EventID: id, Status: consent.Rejected, Reason: "no"})
			}
			return receipts, nil
		})
		o := openOutbox(t, path, s)
		add(t, o, "rejected")
		time.Sleep(time.Hour)
		if len(s.tried()) != 1 {
			t.Errorf("a rejected event was sent %d times", len(s.tried()))
		}
		if got := o.State(); got != (consent.OutboxState{Rejected: 1}) {
			t.Errorf("the state is %+v", got)
		}
		s.set(func([]string) ([]consent.Receipt, error) { return nil, &consent.Refusal{StatusCode: http.StatusGone} })
		add(t, o, "gone")
		add(t, o, "after")
		time.Sleep(100 * time.Hour)
		closeOutbox(t, o)
		if len(s.tried()) > 3 {
			t.Errorf("a sink that is gone was asked %d times", len(s.tried())-1)
		}
		if got := outcomes(t, path); got["rejected"] != 1 || len(got) != 1 {
			t.Errorf("the outcomes are %v: what a sink that is gone was not given waits for the next start", got)
		}
	})
}

// Retry-After puts off the next try.
func TestOutboxHeedsRetryAfter(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := &sink{send: func([]string) ([]consent.Receipt, error) {
			return nil, &consent.Refusal{StatusCode: http.StatusTooManyRequests, RetryAfter: time.Hour}
		}}
		o := openOutbox(t, filepath.Join(t.TempDir(), "events.jsonl"), s)
		add(t, o, "one")
		time.Sleep(59 * time.Minute)
		add(t, o, "two")
		synctest.Wait()
		if len(s.tried()) != 1 {
			t.Errorf("the sink was asked %d times in the hour for which it wants to be left alone", len(s.tried()))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(s.tried()) != 2 {
			t.Errorf("the sink was asked %d times in 61 minutes, want 2", len(s.tried()))
		}
		closeOutbox(t, o)
	})
}

// A crash between the file of the sink and the outbox's note of it repeats no event.
func TestFileSink(t *testing.T) {
	dir := t.TempDir()
	waiting, file := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "sent.jsonl")
	first := &sink{send: away}
	o := openOutbox(t, waiting, first)
	id := add(t, o, "one")
	other := add(t, o, "two")
	closeOutbox(t, o)
	open := func() *consent.FileSink {
		f, err := consent.OpenFileSink(file, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if _, err := f.Send(t.Context(), []json.RawMessage{json.RawMessage(`{"event_id":"` + id + `"}`)}); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	f = open()
	o = openOutbox(t, waiting, f)
	lines := func() (all []string) {
		for line, err := range store.PlainLines(t.Context(), file) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(line))
		}
		return all
	}
	for deadline := time.Now().Add(10 * time.Second); len(lines()) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	closeOutbox(t, o)
	if got := lines(); len(got) != 2 || !strings.Contains(got[0], id) || !strings.Contains(got[1], other) {
		t.Errorf("the file holds %q", got)
	}
}

func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "172.16.0.1": false,
		"192.168.1.1": false, "169.254.169.254": false, "fe80::1": false, "fd00::1": false, "100.64.0.1": false, "192.0.2.1": false,
		"198.18.0.1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001:db8::1": false, "::7f00:1": false,
	} {
		if got := consent.IsPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public is %t", text, got)
		}
	}
}

// What a name leads to when the connection is made decides, and no redirect leads elsewhere.
func TestHTTPSinkRefuses(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "http://127.0.0.1:9/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	event := []json.RawMessage{json.RawMessage(`{}`)}
	byName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{server.URL, byName} {
		if _, err := consent.NewHTTPSink(url, "", nil).Send(t.Context(), event); err == nil || !strings.Contains(err.Error(), "not a public address") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if asked > 0 {
		t.Errorf("the sink was reached %d times at an address that is not public", asked)
	}
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	_, err := consent.NewHTTPSink(server.URL, "", allow).Send(t.Context(), event)
	if refusal, ok := errors.AsType[*consent.Refusal](err); !ok || refusal.StatusCode != http.StatusTemporaryRedirect || asked != 1 {
		t.Errorf("a redirect: %v, asked %d times", err, asked)
	}
}
