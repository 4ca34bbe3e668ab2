package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// event is one server-sent event.
type event struct {
	id   int
	name council.EventType
	data string
}

// parse reads a stream of events, which must be whole.
func parse(t *testing.T, stream []byte) []event {
	t.Helper()
	var events []event
	for block := range strings.SplitSeq(string(stream), "\n\n") {
		lines := strings.Split(block, "\n")
		switch {
		case block == "" || block == ":":
		case len(lines) != 3 || !strings.HasPrefix(lines[0], "id: ") || !strings.HasPrefix(lines[1], "event: ") || !strings.HasPrefix(lines[2], "data: "):
			t.Fatalf("no event: %q", block)
		default:
			id, err := strconv.Atoi(lines[0][len("id: "):])
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, event{id, council.EventType(lines[1][len("event: "):]), lines[2][len("data: "):]})
		}
	}
	return events
}

// background starts a session in the background.
func (s *server) background(t *testing.T, body string, headers ...string) string {
	t.Helper()
	resp, data := s.call(t, "POST", "/v1/council", `{"background":true,`+body+`}`, headers...)
	var started council.Summary
	if err := json.Unmarshal(data, &started); err != nil || resp.StatusCode != 202 || started.Status != council.StatusRunning ||
		resp.Header.Get("Location") != "/v1/council/"+started.ID || time.Since(started.Created) > time.Minute {
		t.Fatalf("%d %s: %v", resp.StatusCode, data, err)
	}
	return started.ID
}

// watch returns all events of a session, at its end.
func (s *server) watch(t *testing.T, id string, headers ...string) []byte {
	t.Helper()
	resp, data := s.call(t, "GET", "/v1/council/"+id+"/events", "", headers...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	return data
}

// Each event's data is the element as it stands in the final body, which is what
// the same request is answered with.
func TestEvents(t *testing.T) {
	s := start(t, nil)
	resp, stream := s.call(t, "POST", "/v1/council", `{"query":"Why?","stream":true}`, "Idempotency-Key", "k")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, stream)
	}
	events := parse(t, stream)
	last := events[len(events)-1]
	var session struct {
		ID       string `json:"session_id"`
		Stage1   []json.RawMessage
		Stage2   []json.RawMessage
		Stage3   json.RawMessage
		Answer   string
		Metadata struct {
			AggregateRankings json.RawMessage  `json:"aggregate_rankings"`
			Seed              int64            `json:"seed"`
			Versions          council.Versions `json:"versions"`
		}
	}
	if err := json.Unmarshal([]byte(last.data), &session); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	count := map[council.EventType]int{}
	var names []council.EventType
	for i, e := range events {
		if e.id != i+1 {
			t.Errorf("event %d has the id %d", i+1, e.id)
		}
		if count[e.name]++; count[e.name] == 1 {
			names = append(names, e.name)
		}
		var ok bool
		switch e.name {
		case council.EventStarted:
			var started council.Started
			ok = json.Unmarshal([]byte(e.data), &started) == nil && started.SessionID == session.ID && started.Seed == session.Metadata.Seed && started.Versions == session.Metadata.Versions
		case council.EventAnswer:
			ok = slices.ContainsFunc(session.Stage1, func(a json.RawMessage) bool { return string(a) == e.data })
		case council.EventStage1:
			ok = strings.Contains(last.data, `"stage1":`+e.data)
		case council.EventBallot:
			ok = slices.ContainsFunc(session.Stage2, func(v json.RawMessage) bool { return string(v) == e.data })
		case council.EventStage2:
			ok = strings.Contains(last.data, e.data[1:len(e.data)-1])
		case council.EventDelta:
			var d council.Delta
			ok = json.Unmarshal([]byte(e.data), &d) == nil
			answer.WriteString(d.Text)
		case council.EventStage3:
			ok = string(session.Stage3) == e.data
		case council.EventDone:
			_, body := s.call(t, "GET", "/v1/council/"+session.ID, "")
			ok = string(body) == e.data+"\n"
		default:
			ok = false
		}
		if !ok {
			t.Errorf("%s is not what stands in the session: %s", e.name, e.data)
		}
	}
	want := []council.EventType{
		council.EventStarted, council.EventAnswer, council.EventStage1, council.EventBallot, council.EventStage2, council.EventDelta, council.EventStage3, council.EventDone,
	}
	if diff := cmp.Diff(want, names); diff != "" || count[council.EventAnswer] != 3 || count[council.EventBallot] != 3 || count[council.EventDelta] < 3 || count[council.EventDone] != 1 {
		t.Errorf("%s %v", diff, count)
	}
	if answer.String() != session.Answer || session.Answer == "" {
		t.Errorf("the deltas are %q, the answer is %q", answer.String(), session.Answer)
	}

	// All of it again, in any form, for any watcher.
	if again := s.watch(t, session.ID); !bytes.Equal(again, stream) {
		t.Error("a watcher sees something else")
	}
	for _, headers := range [][]string{{"Idempotency-Key", "k"}, {"Idempotency-Key", "k", "Accept", "text/event-stream, */*"}, {"Idempotency-Key", "k", "Accept", "application/json, text/event-stream"}} {
		if _, again := s.call(t, "POST", "/v1/council", `{"stream": true, "query": "Why?"}`, headers...); !bytes.Equal(again, stream) {
			t.Errorf("%v gives something else", headers)
		}
	}
	for i := range events {
		if i == 0 {
			continue
		}
		rest := s.watch(t, session.ID, "Last-Event-ID", strconv.Itoa(i))
		if !bytes.HasSuffix(stream, rest) || parse(t, rest)[0].id != i+1 {
			t.Errorf("behind event %d comes %.40s", i, rest)
		}
	}
	if resp, _ := s.call(t, "GET", "/v1/council/"+session.ID+"/events", "", "Last-Event-ID", strconv.Itoa(len(events))); resp.StatusCode != 204 {
		t.Errorf("behind the last event comes %d", resp.StatusCode)
	}
	for _, bad := range []string{strconv.Itoa(len(events) + 1), "-1", "x"} {
		if _, p := s.askForProblem(t, "GET", "/v1/council/"+session.ID+"/events", "", "Last-Event-ID", bad); p.Status != 422 || p.Errors[0].Field != "Last-Event-ID" {
			t.Errorf("%s: %+v", bad, p)
		}
	}
	// Without a stream the answer is the body of session.done.
	_, sync := s.call(t, "POST", "/v1/council", `{"query":"Why?"}`, "Idempotency-Key", "another")
	var one council.Session
	if err := json.Unmarshal(sync, &one); err != nil {
		t.Fatal(err)
	}
	if done := parse(t, s.watch(t, one.ID)); done[len(done)-1].data+"\n" != string(sync) || slices.ContainsFunc(done, func(e event) bool { return e.name == council.EventDelta }) {
		t.Error("session.done is not what the POST answers")
	}
}

func TestSessionList(t *testing.T) {
	s := start(t, nil)
	first, second := s.background(t, `"query":"1"`), s.background(t, `"query":"2"`)
	s.watch(t, first)
	s.watch(t, second)
	_, data := s.call(t, "GET", "/v1/council", "")
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 2 || list.Sessions[0].ID != second || list.Sessions[1].ID != first || list.Sessions[0].Status != council.StatusComplete {
		t.Errorf("got %s", data)
	}
}

// waiting returns a model that answers a question when the test lets it, which it
// must, and what tells that it was asked.
func waiting(t *testing.T) (m simllm.Model, asked chan struct{}, release func()) {
	t.Helper()
	asked = make(chan struct{}, 16)
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	m.Name = "waiting"
	m.Reply = func(task simllm.Task) (string, bool) {
		if task.Kind == simllm.Question {
			asked <- struct{}{}
			<-gate
		}
		return "", false
	}
	return m, asked, release
}

func TestSessionWhileItRuns(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	id := s.background(t, `"query":"x","seed":5,"models":["waiting","amber","birch"]`)
	<-asked
	for { // the two others answer at any time
		_, data := s.call(t, "GET", "/v1/council/"+id, "")
		var session council.Session
		if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusRunning || session.Metadata.Seed != 5 {
			t.Fatalf("%s: %v", data, err)
		}
		if len(session.Stage1) == 2 {
			if session.Metadata.Versions.Councild != "" || session.Metadata.Versions.RecordSchema == "" || session.Stage3 != nil {
				t.Errorf("got %s", data)
			}
			break
		}
	}
	release()
	events := parse(t, s.watch(t, id))
	if _, data := s.call(t, "GET", "/v1/council/"+id, ""); string(data) != events[len(events)-1].data+"\n" {
		t.Errorf("got %s", data)
	}
}

// A session ends when its client is gone, unless it is in the background or has a
// key.
func TestClientsThatGo(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	begun, answered := make(chan struct{}, 16), make(chan struct{}, 16) // requests for a session
	s := start(t, []simllm.Model{m}, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Middleware = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					begun <- struct{}{}
					defer func() { answered <- struct{}{} }()
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	const question = `"query":"x","models":["waiting","amber","birch"]`
	leave := func(body string, headers ...string) (gone context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/council", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for pair := range slices.Chunk(headers, 2) {
			req.Header.Set(pair[0], pair[1])
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := s.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		return func() { cancel(); <-done }
	}
	newest := func() string {
		_, data := s.call(t, "GET", "/v1/council", "")
		var list httpapi.SessionList
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		return list.Sessions[0].ID
	}
	status := func(id string) council.Status {
		events := parse(t, s.watch(t, id))
		if last := events[len(events)-1]; last.name == council.EventFailed && !strings.Contains(last.data, `"code":"cancelled"`) {
			t.Errorf("got %s", last.data)
		}
		var session council.Session
		if _, data := s.call(t, "GET", "/v1/council/"+id, ""); json.Unmarshal(data, &session) != nil {
			t.Errorf("got %s", data)
		}
		return session.Status
	}
	for _, mode := range []string{`"stream":false,`, `"stream":true,`} {
		gone := leave("{" + mode + question + "}")
		<-asked
		id := newest()
		gone()
		if got := status(id); got != council.StatusCancelled {
			t.Errorf("%s and the client is gone: %s", mode, got)
		}
	}
	for range 2 {
		<-begun
		<-answered
	}
	// With a key the client may come back, and another may have come meanwhile. Neither
	// keeps a connection for the rest of the session.
	gone := leave("{"+question+"}", "Idempotency-Key", "k")
	<-asked
	keyed := newest()
	again := leave("{"+question+"}", "Idempotency-Key", "k")
	for _, leaves := range []func(){gone, again} {
		<-begun
		leaves()
		<-answered
	}
	background := s.background(t, question)
	<-asked
	watcher, cut := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(watcher, "GET", s.URL+"/v1/council/"+background+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cut()
	_ = resp.Body.Close()
	release()
	if got := status(background); got != council.StatusComplete {
		t.Errorf("in the background: %s", got)
	}
	if got := status(keyed); got != council.StatusComplete {
		t.Errorf("with a key: %s", got)
	}
	if _, data := s.call(t, "POST", "/v1/council", "{"+question+"}", "Idempotency-Key", "k"); !strings.Contains(string(data), keyed) {
		t.Errorf("the client that comes back finds %s", data)
	}
	if strings.Contains(s.log.String(), `"ERROR"`) {
		t.Errorf("a client that leaves is logged as an error: %s", s.log)
	}
}

func TestDelete(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	answered := make(chan []byte, 1)
	go func() {
		resp, data := s.call(t, "POST", "/v1/council", `{"query":"x","models":["waiting","amber","birch"]}`)
		answered <- append([]byte(strconv.Itoa(resp.StatusCode)+" "), data...)
	}()
	<-asked
	_, data := s.call(t, "GET", "/v1/council", "")
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	id := list.Sessions[0].ID
	if resp, data := s.call(t, "DELETE", "/v1/council/"+id, ""); resp.StatusCode != 202 || !strings.Contains(string(data), id) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if got := string(<-answered); !strings.HasPrefix(got, "503") || !strings.Contains(got, `"code":"cancelled"`) || !strings.Contains(got, `"session_id":"`+id+`"`) {
		t.Errorf("the client that waits gets %s", got)
	}
	if strings.Contains(s.log.String(), `"ERROR"`) {
		t.Errorf("a session that was cancelled is logged as an error: %s", s.log)
	}
	events := parse(t, s.watch(t, id))
	if last := events[len(events)-1]; last.name != council.EventFailed || !strings.Contains(last.data, `"code":"cancelled"`) || !strings.Contains(last.data, `"session_id":"`+id+`"`) {
		t.Errorf("the last event is %+v", last)
	}
	if _, p := s.askForProblem(t, "DELETE", "/v1/council/"+id, ""); p.Status != 409 || p.Code != "conflict" || p.SessionID != id || !strings.Contains(p.Detail, "cancelled") {
		t.Errorf("got %+v", p)
	}
}

// A session that failed stays readable, and fails again for the same key.
func TestFailedSession(t *testing.T) {
	s := start(t, []simllm.Model{{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}})
	const body = `{"query":"x","models":["down","down","amber"]}`
	_, p := s.askForProblem(t, "POST", "/v1/council", body, "Idempotency-Key", "k")
	if p.Status != 502 || p.SessionID == "" {
		t.Fatalf("got %+v", p)
	}
	_, data := s.call(t, "GET", "/v1/council/"+p.SessionID, "")
	var session council.Session
	if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusFailed || len(session.Stage1) != 3 || session.Stage1[2].Response == nil {
		t.Errorf("%s: %v", data, err)
	}
	_, again := s.askForProblem(t, "POST", "/v1/council", body, "Idempotency-Key", "k")
	again.RequestID = p.RequestID
	if diff := cmp.Diff(p, again); diff != "" {
		t.Error(diff)
	}
	events := parse(t, s.watch(t, p.SessionID))
	var last problem
	if err := json.Unmarshal([]byte(events[len(events)-1].data), &last); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, last); diff != "" {
		t.Error(diff)
	}
	if n := s.sim.Stats().Models["amber"].Requests; n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// A defect ends a session as any failure does.
func TestPanicInASession(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		p.Observer = council.ObserverFunc(func(e council.Event) {
			if e.Type == council.EventStage1 {
				panic("a defect")
			}
		})
		o.MaxSessions = 1
	})
	for range 2 {
		_, p := s.askForProblem(t, "POST", "/v1/council", `{"query":"x"}`)
		if p.Status != 500 || p.Code != "internal" || p.SessionID == "" {
			t.Errorf("got %+v", p)
		}
		_, data := s.call(t, "GET", "/v1/council/"+p.SessionID, "")
		var session council.Session
		if err := json.Unmarshal(data, &session); err != nil || session.Status != council.StatusFailed || len(session.Stage1) != 3 {
			t.Errorf("%s: %v", data, err)
		}
	}
	if !strings.Contains(s.log.String(), "a defect") {
		t.Error("the panic is not in the log")
	}
}

func TestSessionsOfOtherTokens(t *testing.T) {
	const other = "another-token-of-sixteen"
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = []string{secret, other} })
	mine, theirs := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	id := s.background(t, `"query":"x"`, append([]string{"Idempotency-Key", "k"}, mine...)...)
	s.watch(t, id, mine...)
	for _, request := range []string{"GET /v1/council/" + id, "GET /v1/council/" + id + "/events", "DELETE /v1/council/" + id} {
		method, path, _ := strings.Cut(request, " ")
		_, p := s.askForProblem(t, method, path, "", theirs...)
		_, unknown := s.askForProblem(t, method, strings.Replace(path, id, "x", 1), "", mine...)
		if p.Status != 404 || strings.Replace(p.Detail, id, "x", 1) != unknown.Detail {
			t.Errorf("%s: %+v", request, p)
		}
	}
	if _, data := s.call(t, "GET", "/v1/council", "", theirs...); strings.TrimSpace(string(data)) != `{"sessions":[]}` {
		t.Errorf("the list of another token: %s", data)
	}
	if again := s.background(t, `"query":"x"`, append([]string{"Idempotency-Key", "k"}, theirs...)...); again == id {
		t.Error("a key reaches into the sessions of another token")
	} else {
		s.watch(t, again, theirs...)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := start(t, nil)
	key := []string{"Idempotency-Key", "k"}
	_, first := s.call(t, "POST", "/v1/council", `{"query":"x","seed":1}`, key...)
	_, again := s.call(t, "POST", "/v1/council", ` {"seed": 1, "query": "x"}`, key...)
	if !bytes.Equal(first, again) {
		t.Error("the same request gives another session")
	}
	_, p := s.askForProblem(t, "POST", "/v1/council", `{"query":"x","seed":2}`, key...)
	if p.Status != 409 || p.Code != "conflict" || p.SessionID == "" || !strings.Contains(string(first), p.SessionID) {
		t.Errorf("got %+v", p)
	}
	// A request that began no session has not used its key.
	key[1] = "another"
	if _, p := s.askForProblem(t, "POST", "/v1/council", `{"query":""}`, key...); p.Status != 422 {
		t.Errorf("got %+v", p)
	}
	if resp, data := s.call(t, "POST", "/v1/council", `{"query":"x","seed":2}`, key...); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if n := s.sim.Stats().Models["amber"].Requests; n != 6 {
		t.Errorf("%d calls of amber, want 6 for two sessions", n)
	}
}

// A full daemon still answers who comes back for what runs.
func TestSameKeyWhenFull(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m}, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions = 1 })
	const body = `{"query":"x","models":["waiting","amber","birch"]}`
	answers := make(chan []byte, 2)
	ask := func() {
		_, data := s.call(t, "POST", "/v1/council", body, "Idempotency-Key", "k")
		answers <- data
	}
	go ask()
	<-asked
	if _, p := s.askForProblem(t, "POST", "/v1/council", body, "Idempotency-Key", "l"); p.Status != 503 {
		t.Errorf("got %+v", p)
	}
	go ask()
	release()
	if one, two := <-answers, <-answers; !bytes.Equal(one, two) || !strings.Contains(string(one), `"status":"complete"`) {
		t.Errorf("got %s and %s", one, two)
	}
}

// flaky is a proxy that passes on only so many bytes of a stream of events, up to
// the end of an event or to the middle of the next, and then drops the connection.
type flaky struct {
	target string
	events int // per connection
	middle bool
}

// ServeHTTP implements http.Handler.
func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, f.target+r.URL.Path, r.Body)
	if err != nil {
		panic(err)
	}
	req.Header = r.Header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	in := bufio.NewReader(resp.Body)
	for n := 0; n < f.events; {
		line, err := in.ReadBytes('\n')
		_, _ = w.Write(line)
		if err != nil {
			return
		}
		if len(line) == 1 {
			n++
		}
	}
	if f.middle {
		piece, _ := in.Peek(10)
		_, _ = w.Write(piece)
	}
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// A stream that is cut at every place where it can be, and resumed each time, is
// the whole one, byte by byte.
func TestFlakyProxy(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	for _, middle := range []bool{false, true} {
		proxy := httptest.NewServer(&flaky{target: s.URL, events: 1, middle: middle})
		id := s.background(t, `"query":"x","models":["amber","waiting","birch"]`)
		<-asked
		release() // the session runs while it is watched
		var got []byte
		cuts := 0
		for last := 0; ; cuts++ {
			req, err := http.NewRequestWithContext(t.Context(), "GET", proxy.URL+"/v1/council/"+id+"/events", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if last > 0 {
				req.Header.Set("Last-Event-ID", strconv.Itoa(last))
			}
			resp, err := proxy.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(resp.Body) // it was cut
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusNoContent {
				break
			}
			data = data[:bytes.LastIndex(data, []byte("\n\n"))+2] // what is not whole is lost
			if events := parse(t, data); len(events) != 1 {
				t.Fatalf("%d events before the cut", len(events))
			} else {
				last = events[0].id
			}
			got = append(got, data...)
		}
		whole := s.watch(t, id)
		if !bytes.Equal(got, whole) || cuts != len(parse(t, whole)) {
			t.Errorf("%d cuts: %d bytes, and not the %d of the whole", cuts, len(got), len(whole))
		}
		proxy.Close()
	}
}

// scripted is a Council whose sessions do what the test says.
type scripted struct {
	run func(ctx context.Context, o council.Observer)
}

func (scripted) Prepare(r council.Request) (council.Plan, error) {
	return council.Plan{SessionID: r.Query}, nil
}

func (c scripted) Run(ctx context.Context, plan council.Plan, o council.Observer) (*council.Session, error) {
	c.run(ctx, o)
	s := plan.Session()
	s.Status = council.StatusComplete
	return s, nil
}

// pipes is a listener whose connections are pipes: time stands still while bytes
// are on their way, and nothing is buffered.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inBubble serves a council to connections that dial makes. It is to be called in
// a synctest bubble.
func inBubble(t *testing.T, run func(ctx context.Context, o council.Observer)) (dial func() net.Conn, stop func()) {
	t.Helper()
	s := &server{}
	o := httpapi.Options{
		Council: scripted{run}, Daemon: &fakeDaemon{}, MaxSessions: 4, MaxBodyBytes: 1 << 20, MaxMessages: 1000, BodyTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		Kept: sessions.Options{Retention: time.Hour, Kept: 100, KeptBytes: 1 << 30},
	}
	var err error
	if s.api, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	listener := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: s.api}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() net.Conn {
			client, conn := net.Pipe()
			listener.accept <- conn
			return client
		}, func() {
			if err := s.api.Idle(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			_ = server.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
}

// request sends a request on a connection.
func request(t *testing.T, c net.Conn, method, path, body string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body); err != nil {
		t.Fatal(err)
	}
}

// respond reads a response with its body.
func respond(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, stop := inBubble(t, func(_ context.Context, o council.Observer) {
			for _, pause := range []time.Duration{10 * time.Second, 50 * time.Second} {
				time.Sleep(pause)
				o.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: "a"}})
			}
		})
		c := dial()
		defer c.Close()
		request(t, c, "POST", "/v1/council", `{"query":"one","stream":true}`)
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got []string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if name, isEvent := strings.CutPrefix(lines.Text(), "event: "); isEvent || lines.Text() == ":" {
				got = append(got, time.Since(began).String()+" "+name)
			}
		}
		want := []string{"10s stage3.delta", "25s :", "40s :", "55s :", "1m0s stage3.delta", "1m0s session.done"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A reader that never reads is cut off. Nobody else notices, nothing is kept for it.
func TestFaultF17(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan struct{})
		dial, stop := inBubble(t, func(_ context.Context, o council.Observer) {
			for i := range 100 {
				o.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: strconv.Itoa(i) + strings.Repeat("x", 10_000)}})
			}
			<-next
		})
		starter, mute, reader, other := dial(), dial(), dial(), dial()
		request(t, starter, "POST", "/v1/council", `{"query":"one","background":true}`)
		if status, body := respond(t, starter); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		request(t, mute, "GET", "/v1/council/one/events", "")
		began := time.Now()
		whole := make(chan string, 1)
		go func() {
			request(t, reader, "GET", "/v1/council/one/events", "")
			_, body := respond(t, reader)
			whole <- body
		}()
		synctest.Wait()
		if _, err := mute.Read(make([]byte, 1)); err != nil {
			t.Fatal(err) // it is served: now it stops reading
		}
		go func() { time.Sleep(time.Minute); close(next) }()
		request(t, other, "POST", "/v1/council", `{"query":"two"}`)
		if status, _ := respond(t, other); status != 200 {
			t.Errorf("another session: %d", status)
		}
		body := <-whole
		if took := time.Since(began); took != time.Minute || len(parse(t, []byte(body))) != 101 {
			t.Errorf("the other watcher read %d bytes in %s", len(body), took)
		}
		read, err := io.Copy(io.Discard, mute)
		if err != nil || read > 8<<10 {
			t.Errorf("the mute reader finds %d bytes, then %v", read, err)
		}
		t.Logf("fault F17: cut off with %d bytes buffered; the other watcher and session 0 s late (promised: bounded, cut, others unaffected)", read)
		for _, c := range []net.Conn{starter, mute, reader, other} {
			_ = c.Close()
		}
		stop()
	})
}

// A reader that takes what is sent, however slowly, is not cut off within its time.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 20
		dial, stop := inBubble(t, func(_ context.Context, o council.Observer) {
			o.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: strings.Repeat("x", pieces*64<<10)}})
		})
		c := dial()
		request(t, c, "POST", "/v1/council", `{"query":"one","stream":true}`)
		reader, writer := io.Pipe()
		go func() {
			buf := make([]byte, 8<<10)
			for {
				n, err := c.Read(buf)
				if _, werr := writer.Write(buf[:n]); err != nil || werr != nil {
					_ = writer.CloseWithError(errors.Join(err, werr))
					return
				}
				time.Sleep(2 * time.Second) // 4 KiB/s
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(reader), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		data, err := io.ReadAll(resp.Body)
		if err != nil || len(parse(t, data)) != 2 || time.Since(began) < 2*time.Minute {
			t.Errorf("%d bytes in %s: %v", len(data), time.Since(began), err)
		}
		_ = resp.Body.Close()
		_ = c.Close()
		_ = reader.Close()
		time.Sleep(time.Minute) // for who reads the connection
		stop()
	})
}

// A thousand watchers of one session cost one session, and read the same.
func TestThousandWatchers(t *testing.T) {
	const watchers, size = 1000, 96 << 10
	m, asked, release := waiting(t)
	defer release()
	large := simllm.Model{Name: "large", Reply: func(task simllm.Task) (string, bool) {
		return strings.Repeat("x", size), task.Kind == simllm.Question
	}}
	s := start(t, []simllm.Model{m, large})
	id := s.background(t, `"query":"x","models":["waiting","large"]`)
	<-asked
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc + stats.StackInuse
	}
	before := heap()
	transport := &http.Transport{MaxIdleConnsPerHost: -1}
	var attached, read sync.WaitGroup
	sums := make([][sha256.Size]byte, watchers)
	for i := range watchers {
		attached.Add(1)
		read.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/council/"+id+"/events", http.NoBody)
			if err != nil {
				t.Error(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				attached.Done()
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			sum := sha256.New()
			_, err = io.CopyN(sum, resp.Body, size) // the large answer
			attached.Done()
			if err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(sum, resp.Body); err != nil {
				t.Error(err)
			}
			sum.Sum(sums[i][:0])
		})
	}
	attached.Wait()
	each := (int64(heap()) - int64(before)) / watchers // client and server side
	release()
	read.Wait()
	want := sha256.Sum256(s.watch(t, id))
	for i, got := range sums {
		if got != want {
			t.Fatalf("watcher %d read something else", i)
		}
	}
	if each > size*3/2 { // of its own, and not a copy of the log too
		t.Errorf("a watcher costs %d bytes", each)
	}
	t.Logf("a watcher costs %d bytes, the connection on both sides", each)
}
