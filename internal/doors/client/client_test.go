package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	question = council.Submission{Request: council.Request{Query: "Which way?"}}
	ignored  = council.ObserverFunc(func(council.Event) {})
)

// connect returns a client of the daemon at a URL.
func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: url, HTTP: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNoURL(t *testing.T) {
	if _, err := client.New(client.Options{URL: "http://["}); err == nil {
		t.Error("http://[ is a URL")
	}
}

// cut is a body of events that breaks off behind one event and a piece of the next.
type cut struct {
	io.ReadCloser
	in    *bufio.Reader
	lines bytes.Buffer
}

func (c *cut) Read(p []byte) (int, error) {
	for c.lines.Len() == 0 {
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		c.lines.Write(line)
		if len(line) > 1 {
			continue
		}
		next, _ := c.in.Peek(20)
		c.lines.Write(next)
		c.in = bufio.NewReader(broken{})
	}
	return c.lines.Read(p)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// throughCuts returns a proxy that breaks every stream of events behind each event.
func throughCuts(t *testing.T, target string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error {
			if resp.Header.Get("Content-Type") == "text/event-stream" {
				resp.Body = &cut{ReadCloser: resp.Body, in: bufio.NewReader(resp.Body)}
			}
			return nil
		},
	})
	t.Cleanup(func() {
		proxy.Close()
		transport.CloseIdleConnections()
	})
	return proxy.URL
}

// However often the connection breaks, every event comes once and in order.
func TestAskThroughCuts(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	var types []council.EventType
	var texts daemontest.Texts
	session, err := connect(t, throughCuts(t, d.URL())).Ask(t.Context(), question, council.ObserverFunc(func(e council.Event) {
		if err := texts.Take(e); err != nil {
			t.Error(err)
		}
		if e.Type != council.EventAnswerDelta && (e.Type != council.EventDelta || types[len(types)-1] != council.EventDelta) {
			types = append(types, e.Type)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []council.EventType{
		council.EventStarted, council.EventAnswer, council.EventAnswer, council.EventStage1, council.EventBallot, council.EventBallot,
		council.EventStage2, council.EventDelta, council.EventStage3, council.EventMap, council.EventDone,
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	if texts.Final != session.Answer || session.Answer == "" || len(texts.Answers) != 2 {
		t.Errorf("the deltas are %q, the answer is %q; %d members wrote", texts.Final, session.Answer, len(texts.Answers))
	}
	if !session.Persisted {
		t.Error("the session is not persisted")
	}
}

// When its caller gives up, the session is cancelled.
func TestAskIsCancelled(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	defer release()
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "API_TOKENS": "a-token-of-sixteen-and-more"})
	d.Token = "a-token-of-sixteen-and-more"
	c, err := client.New(client.Options{URL: d.URL() + "/", Token: d.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	var id string
	_, err = c.Ask(ctx, question, council.ObserverFunc(func(e council.Event) {
		if started, ok := e.Data.(council.Started); ok {
			id = started.SessionID
			<-arrived
			giveUp()
		}
	}))
	if want := fmt.Sprintf("session %s was cancelled", id); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = c.Watch(t.Context(), id, ignored)
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeCancelled {
		t.Errorf("the session goes on: %v", err)
	}
	if deleted, err := c.Delete(t.Context(), id); err != nil || !deleted {
		t.Errorf("deleted: %t, %v", deleted, err)
	}
	if _, err := c.Delete(t.Context(), id); err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("deleted again: %v", err)
	}
}

// A session that ended before its caller gave up is kept: DELETE would delete it.
func TestAskGivesUpAfterTheEnd(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	to, err := url.Parse(d.URL())
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	var path string // of the session
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error {
			if events, ok := strings.CutSuffix(resp.Request.URL.Path, "/events"); ok { // The caller hears of no event.
				path = events
				_, err := io.Copy(io.Discard, resp.Body)
				giveUp()
				return errors.Join(err, io.ErrUnexpectedEOF)
			}
			return nil
		},
	})
	defer proxy.Close()
	_, err = connect(t, proxy.URL).Ask(ctx, question, ignored)
	if err == nil || !strings.Contains(err.Error(), " had ended, with status complete") {
		t.Errorf("got %v", err)
	}
	if status, data := d.Call(t, "GET", path, ""); status != http.StatusOK {
		t.Errorf("the session is not kept: %d %s", status, data)
	}
}

func TestHealthy(t *testing.T) {
	if err := connect(t, daemontest.Start(t, nil).URL()).Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	for body, want := range map[string]string{`{"status":"no"}`: `"no", not ok`, `<html>`: "reading the daemon's answer"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		if err := connect(t, server.URL).Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", body, err)
		}
		server.Close()
	}
}

// A response that is not what was asked for says what is wrong, as far as it is a
// problem document.
func TestErrors(t *testing.T) {
	d := daemontest.Start(t, nil)
	_, err := connect(t, d.URL()).Start(t.Context(), council.Submission{Request: council.Request{Seed: new(int64(-2))}})
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Status != http.StatusUnprocessableEntity || e.What != "the daemon answered 422 Unprocessable Entity" {
		t.Fatalf("got %v", err)
	}
	cause, ok := errors.AsType[*council.Error](err)
	if !ok || cause.Code != council.CodeInvalid || len(cause.Fields) != 2 {
		t.Fatalf("the cause is %+v", cause)
	}
	for _, f := range cause.Fields {
		if line := fmt.Sprintf("\n  %s: %s; %s", f.Field, f.Message, f.Fix); !strings.Contains(err.Error(), line) {
			t.Errorf("%q is missing: %v", line, err)
		}
	}
	_, err = connect(t, d.URL()).Watch(t.Context(), "unknown/session", ignored)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusNotFound {
		t.Errorf("an unknown session: %v", err)
	}
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	_, err = connect(t, proxy.URL).Start(t.Context(), question)
	e, ok = errors.AsType[*client.Error](err)
	if !ok || e.Cause != nil || errors.Unwrap(e) != nil {
		t.Fatalf("no problem document: %v", err)
	}
	if e.Error() != "the daemon answered 404 Not Found" {
		t.Errorf("no problem document: %v", e)
	}
	session, err := connect(t, proxy.URL).Ask(t.Context(), question, ignored)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusNotFound || session != nil {
		t.Errorf("a session that does not start: %v, %v", session, err)
	}
}

// watch watches a session for at most a minute of a bubble's time. The responses to
// the requests for its events are those given, the last one for all further requests.
// It returns the Last-Event-ID of each request, and how long it took.
func watch(t *testing.T, o council.Observer, responses ...http.HandlerFunc) (
	s *council.Session, behind []string, took time.Duration, err error,
) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		l := pipenet.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			respond := responses[min(len(behind), len(responses)-1)]
			behind = append(behind, r.Header.Get("Last-Event-ID"))
			respond(w, r)
		})}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		c, failure := client.New(client.Options{
			URL: "http://daemon", HTTP: &http.Client{Transport: &http.Transport{DialContext: l.DialContext}},
		})
		if failure != nil {
			t.Fatal(failure)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		s, err = c.Watch(ctx, "one", o)
		took = time.Since(began)
	})
	return s, behind, took, err
}

const (
	first = "id: 1\nevent: stage3.delta\ndata: {\"text\":\"a\"}\n\n"
	last  = "id: 2\nevent: session.done\ndata: {\"session_id\":\"one\"}\n\n"
)

// says returns a response that ends, or breaks, behind a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// A connection that is silent for 45 s counts as broken. Comments are no silence.
func TestSilence(t *testing.T) {
	var text strings.Builder
	s, behind, took, err := watch(t, council.ObserverFunc(func(e council.Event) {
		if delta, ok := e.Data.(council.Delta); ok {
			text.WriteString(delta.Text)
		}
	}), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, first)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(10 * time.Second)
		_, _ = io.WriteString(w, ":\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, says(first+last))
	if err != nil {
		t.Fatal(err)
	}
	if s.ID != "one" {
		t.Errorf("the session is %q", s.ID)
	}
	if took != 55*time.Second {
		t.Errorf("took %s", took)
	}
	if text.String() != "a" {
		t.Errorf("the text is %q", text.String())
	}
	if diff := cmp.Diff([]string{"0", "1"}, behind); diff != "" {
		t.Error(diff)
	}
}

// A path that vanishes costs half a minute over HTTP/2, too, and then the events go on.
func TestSilenceOverHTTP2(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		paths := &pipenet.Paths{Listener: pipenet.Listen()}
		daemon := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, first)
			if _ = http.NewResponseController(w).Flush(); paths.Dialed() > 1 {
				_, _ = io.WriteString(w, last)
				return
			}
			<-r.Context().Done()
		}))
		daemon.Listener, daemon.EnableHTTP2 = paths, true
		daemon.StartTLS()
		defer daemon.Close()
		c, err := client.New(client.Options{URL: "https://daemon"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		client.DialWith(c, paths.DialContext, daemon.Certificate())
		start := time.Now()
		s, err := c.Watch(t.Context(), "one", council.ObserverFunc(func(council.Event) { paths.Vanish() }))
		if err != nil || s == nil {
			t.Fatalf("got %v, %v", s, err)
		}
		if took := time.Since(start); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestWatchGivesUp(t *testing.T) {
	unavailable := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	const half = "id: 1\nevent: stage3.delta\n"
	for _, tt := range []struct {
		name      string
		responses []http.HandlerFunc
		requests  int
		took      time.Duration
		want      string
	}{
		{"no daemon any more", []http.HandlerFunc{unavailable}, 10, 21300 * time.Millisecond, "503 Service Unavailable"},
		{"streams without an end", []http.HandlerFunc{says(half)}, 10, 21300 * time.Millisecond, "unexpected EOF"},
		{"it counts anew behind an event", []http.HandlerFunc{unavailable, says(first), unavailable}, 12, 21400 * time.Millisecond, "503"},
		{
			"a daemon that is silent",
			[]http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
			2,
			time.Minute, "deadline",
		},
		{"an unknown session", []http.HandlerFunc{http.NotFound}, 1, 0, "404 Not Found"},
		{"an event without a number", []http.HandlerFunc{says("id: one\ndata: {}\n\n")}, 10, 21300 * time.Millisecond, "unexpected EOF"},
		{"data that is no JSON", []http.HandlerFunc{says("id: 1\nevent: session.done\ndata: {\n\n")}, 1, 0, "reading session.done"},
		{
			"a failure without a reason",
			[]http.HandlerFunc{says("id: 1\nevent: session.failed\ndata: {}\n\n")},
			1, 0,
			"the session failed: ",
		},
	} {
		_, behind, took, err := watch(t, ignored, tt.responses...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", tt.name, err)
		}
		if took != tt.took {
			t.Errorf("%s: took %s", tt.name, took)
		}
		if len(behind) != tt.requests {
			t.Errorf("%s: %d requests", tt.name, len(behind))
		}
	}
}

// A session whose events come over several connections, with ids of texts under way:
// what comes again is passed over, and the last id is sent back as it came.
func TestWatchInsideAText(t *testing.T) {
	delta := func(id, text string) string {
		return fmt.Sprintf("id: %s\nevent: stage3.delta\ndata: {\"text\":%q}\n\n", id, text)
	}
	var text strings.Builder
	s, behind, _, err := watch(t, council.ObserverFunc(func(e council.Event) {
		if delta, ok := e.Data.(council.Delta); ok {
			text.WriteString(delta.Text)
		}
	}),
		says(delta("9", "a")+delta("9.1", "b")+delta("9.2", "c")+delta("9.10", "d")),
		says(delta("9.2", "c")+delta("9.10", "d")+delta("", "none")+delta("x.1", "none")+delta("9.x", "none")+delta("9.011", "e")),
		says(delta("9.12", "f")+delta("10", "g")+delta("9.13", "late")+delta("9", "a")),
		says(delta("10", "g")+delta("10.1", "h")+"id: 11\nevent: session.done\ndata: {\"session_id\":\"one\"}\n\n"),
	)
	if err != nil || s.ID != "one" {
		t.Fatalf("got %+v, %v", s, err)
	}
	if text.String() != "abcdefgh" {
		t.Errorf("the text is %q", text.String())
	}
	if diff := cmp.Diff([]string{"0", "9.10", "9.011", "10"}, behind); diff != "" {
		t.Error(diff)
	}
}

// Whatever is read, every event has data of one line, and reading it again gives the
// same events.
func FuzzReadEvents(f *testing.F) {
	for _, stream := range []string{
		first + last, ":\n\n" + first, ": a comment\n\nid: 7\n\n", "id: x\n\n", "data: a\r\n\r\n", "data: \r\r\n\n",
		"event: a\ndata: b\ndata: c\n\nid",
	} {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		var again strings.Builder
		var events []client.LoggedEvent
		for e, err := range client.ReadEvents(strings.NewReader(stream)) {
			if err != nil {
				break
			}
			if bytes.ContainsAny(e.Data, "\n") {
				t.Errorf("the data is %q", e.Data)
			}
			events = append(events, e)
			fmt.Fprintf(&again, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, e.Data)
		}
		for e, err := range client.ReadEvents(strings.NewReader(again.String())) {
			if err != nil || len(events) == 0 {
				t.Fatalf("read again: %v, %v", e, err)
			}
			if diff := cmp.Diff(events[0], e); diff != "" {
				t.Error(diff)
			}
			events = events[1:]
		}
		if len(events) > 0 {
			t.Errorf("not read again: %v", events)
		}
	})
}
