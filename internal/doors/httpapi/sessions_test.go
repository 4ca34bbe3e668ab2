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
	"math"
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
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// parse reads a stream of events. It must be whole, and its numbers must follow the
// number of the last event that was seen.
func parse(t *testing.T, stream []byte, seen int) []client.LoggedEvent {
	t.Helper()
	if len(stream) > 0 && !bytes.HasSuffix(stream, []byte("\n\n")) {
		t.Fatalf("the stream breaks off: %q", stream[max(0, len(stream)-100):])
	}
	var events []client.LoggedEvent
	for e, err := range client.ReadEvents(bytes.NewReader(stream)) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; e.ID != strconv.Itoa(seen) {
			t.Errorf("event %d has the id %s", seen, e.ID)
		}
		events = append(events, e)
	}
	return events
}

// last returns the last event of a stream decoded.
func last(t *testing.T, stream []byte) council.Event {
	t.Helper()
	events := parse(t, stream, 0)
	if len(events) == 0 {
		t.Fatal("there is no event")
	}
	e, err := events[len(events)-1].Decode()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// mustBeCancelled checks that a stream ends because its session was cancelled.
func mustBeCancelled(t *testing.T, stream []byte, id string) {
	t.Helper()
	e, ok := last(t, stream).Data.(*council.Error)
	if !ok {
		t.Fatalf("the session has not failed: %s", stream)
	}
	if e.Code != council.CodeCancelled {
		t.Errorf("the session failed with %s", e.Code)
	}
	if e.SessionID != id {
		t.Errorf("the session's id is %q", e.SessionID)
	}
}

// sessions returns the list of the sessions, the newest first.
func (s *server) sessions(t *testing.T) []council.Summary {
	t.Helper()
	_, data := s.Call(t, "GET", "/v1/council", "")
	var list httpapi.SessionList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list.Sessions
}

// session returns a session as far as it is known.
func (s *server) session(t *testing.T, id string, headers ...string) (session council.Session) {
	t.Helper()
	_, data := s.Call(t, "GET", "/v1/council/"+id, "", headers...)
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return session
}

// background starts a session in the background.
func (s *server) background(t *testing.T, body string, headers ...string) string {
	t.Helper()
	return s.begin(t, body, headers...).ID
}

// begin starts a session in the background and returns the answer. The session may have
// ended by then.
func (s *server) begin(t *testing.T, body string, headers ...string) (started council.Summary) {
	t.Helper()
	resp, data := s.Call(t, "POST", "/v1/council", `{"background":true,`+body+`}`, headers...)
	if err := json.Unmarshal(data, &started); err != nil || resp.StatusCode != 202 ||
		resp.Header.Get("Location") != "/v1/council/"+started.ID || time.Since(started.Created) > time.Minute {
		t.Fatalf("%d %s: %v", resp.StatusCode, data, err)
	}
	return started
}

// The data of each event is the element as it stands in the final body, which is the
// answer to the same request without a stream.
func TestEvents(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil)
	resp, stream := s.Call(t, "POST", "/v1/council", `{"query":"Why?","stream":true}`, "Idempotency-Key", "k")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, stream)
	}
	events := parse(t, stream, 0)
	done := events[len(events)-1]
	var session struct {
		ID       string `json:"session_id"`
		Stage1   []json.RawMessage
		Stage2   []json.RawMessage
		Stage3   json.RawMessage
		Answer   string
		Metadata struct {
			Seed     int64            `json:"seed"`
			Versions council.Versions `json:"versions"`
		}
	}
	if err := json.Unmarshal(done.Data, &session); err != nil {
		t.Fatal(err)
	}
	isOneOf := func(list []json.RawMessage, data json.RawMessage) bool {
		return slices.ContainsFunc(list, func(element json.RawMessage) bool { return bytes.Equal(element, data) })
	}
	var answer strings.Builder
	answers := map[string]string{} // by member
	count := map[council.EventType]int{}
	var names []council.EventType
	for _, e := range events {
		if count[e.Type]++; count[e.Type] == 1 {
			names = append(names, e.Type)
		}
		var ok bool
		switch e.Type {
		case council.EventStarted:
			var started council.Started
			ok = json.Unmarshal(e.Data, &started) == nil && started.SessionID == session.ID &&
				started.Seed == session.Metadata.Seed && started.Versions == session.Metadata.Versions
		case council.EventAnswerDelta:
			var d council.AnswerDelta
			ok = json.Unmarshal(e.Data, &d) == nil
			answers[d.Model] += d.Text
		case council.EventAnswer:
			var a council.Answer
			ok = json.Unmarshal(e.Data, &a) == nil && isOneOf(session.Stage1, e.Data) && *a.Response == answers[a.Model]
		case council.EventStage1:
			ok = bytes.Contains(done.Data, append([]byte(`"stage1":`), e.Data...))
		case council.EventBallot:
			ok = isOneOf(session.Stage2, e.Data)
		case council.EventStage2:
			ok = bytes.Contains(done.Data, e.Data[1:len(e.Data)-1])
		case council.EventDelta:
			var d council.Delta
			ok = json.Unmarshal(e.Data, &d) == nil
			answer.WriteString(d.Text)
		case council.EventStage3:
			ok = bytes.Equal(session.Stage3, e.Data)
		case council.EventDone:
			_, body := s.Call(t, "GET", "/v1/council/"+session.ID, "")
			ok = string(body) == string(e.Data)+"\n"
		default:
			ok = false
		}
		if !ok {
			t.Errorf("%s is not what stands in the session: %s", e.Type, e.Data)
		}
	}
	want := []council.EventType{
		council.EventStarted, council.EventAnswerDelta, council.EventAnswer, council.EventStage1, council.EventBallot, council.EventStage2,
		council.EventDelta, council.EventStage3, council.EventDone,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	for name, n := range map[council.EventType]int{council.EventAnswer: 3, council.EventBallot: 3, council.EventDone: 1} {
		if count[name] != n {
			t.Errorf("%d events %s, want %d", count[name], name, n)
		}
	}
	if count[council.EventDelta] < 3 {
		t.Errorf("%d deltas", count[council.EventDelta])
	}
	if answer.String() != session.Answer || session.Answer == "" {
		t.Errorf("the deltas are %q, the answer is %q", answer.String(), session.Answer)
	}

	// All of it again, in any form, for any watcher.
	if again := s.Watch(t, session.ID); !bytes.Equal(again, stream) {
		t.Error("a watcher sees something else")
	}
	for _, accept := range []string{"", "text/event-stream, */*", "application/json, text/event-stream"} {
		_, again := s.Call(t, "POST", "/v1/council", `{"stream": true, "query": "Why?"}`, "Idempotency-Key", "k", "Accept", accept)
		if !bytes.Equal(again, stream) {
			t.Errorf("Accept: %s gives something else", accept)
		}
	}
	path := "/v1/council/" + session.ID + "/events"
	for i := 1; i < len(events); i++ {
		rest := s.Watch(t, session.ID, "Last-Event-ID", strconv.Itoa(i))
		if !bytes.HasSuffix(stream, rest) {
			t.Errorf("behind event %d comes %.40s", i, rest)
		}
		parse(t, rest, i)
	}
	if resp, _ := s.Call(t, "GET", path, "", "Last-Event-ID", strconv.Itoa(len(events))); resp.StatusCode != 204 {
		t.Errorf("behind the last event comes %d", resp.StatusCode)
	}
	for i := range events { // no id of ours, and the number is the client's
		if rest := s.Watch(t, session.ID, "Last-Event-ID", fmt.Sprintf("%d.%d", i, math.MaxInt)); !bytes.HasSuffix(stream, rest) {
			t.Errorf("far behind event %d comes %.40s", i, rest)
		}
	}
	for _, bad := range []string{strconv.Itoa(len(events) + 1), "-1", "x", "1.x", "1.2.-3", "1..2"} {
		if _, p := s.MustFail(t, 422, council.CodeInvalid, "GET", path, "", "Last-Event-ID", bad); p.Errors[0].Field != "Last-Event-ID" {
			t.Errorf("%s: %+v", bad, p)
		}
	}
	// Without a stream the answer is the body of session.done, and there are no deltas.
	_, body := s.Call(t, "POST", "/v1/council", `{"query":"Why?"}`, "Idempotency-Key", "another")
	var one council.Session
	if err := json.Unmarshal(body, &one); err != nil {
		t.Fatal(err)
	}
	log := parse(t, s.Watch(t, one.ID), 0)
	if data := log[len(log)-1].Data; string(data)+"\n" != string(body) {
		t.Errorf("session.done is %s, the POST answers %s", data, body)
	}
	if slices.ContainsFunc(log, func(e client.LoggedEvent) bool {
		return e.Type == council.EventDelta || e.Type == council.EventAnswerDelta
	}) {
		t.Error("there are deltas that were not asked for")
	}
}

func TestSessionList(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil)
	first, second := s.background(t, `"query":"1"`), s.background(t, `"query":"2"`)
	s.Watch(t, first)
	s.Watch(t, second)
	var ids []string
	for i, summary := range s.sessions(t) {
		ids = append(ids, summary.ID)
		if summary.Status != council.StatusComplete {
			t.Errorf("%s is %s", summary.ID, summary.Status)
		}
		if want := strconv.Itoa(2 - i); summary.Query != want {
			t.Errorf("the question of %s is %q, want %q", summary.ID, summary.Query, want)
		}
		session := s.session(t, summary.ID)
		if session.Query != summary.Query {
			t.Errorf("the question of the session is %q, and %q in the list", session.Query, summary.Query)
		}
		if !session.Created.Equal(summary.Created) || time.Since(session.Created) > time.Minute {
			t.Errorf("the session began %s, and %s in the list", session.Created, summary.Created)
		}
		if summary.CostUSD == nil || *summary.CostUSD <= 0 || *summary.CostUSD != *session.Metadata.Usage.CostUSD {
			t.Errorf("the cost of %s is %v", summary.ID, summary.CostUSD)
		}
	}
	if diff := cmp.Diff([]string{second, first}, ids); diff != "" {
		t.Error(diff)
	}
}

// waiting returns a model that answers a question after release, which the test must
// call, and a channel that tells when it was asked.
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
	testkit.Slow(t)
	t.Parallel()
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	started := s.begin(t, `"query":"x","seed":5,"models":["waiting","amber","birch"]`)
	if started.Status != council.StatusRunning {
		t.Errorf("it is started as %s", started.Status)
	}
	id := started.ID
	<-asked
	session := s.session(t, id)
	for len(session.Stage1) < 2 { // The two other models answer at any time.
		session = s.session(t, id)
	}
	if session.Status != council.StatusRunning {
		t.Errorf("the status is %s", session.Status)
	}
	if session.Metadata.Seed != 5 {
		t.Errorf("the seed is %d", session.Metadata.Seed)
	}
	if session.Metadata.Versions.RecordSchema == "" {
		t.Error("the versions are not known")
	}
	if session.Stage3 != nil {
		t.Errorf("stage 3 is %+v", session.Stage3)
	}
	if list := s.sessions(t); len(list) != 1 || list[0].Status != council.StatusRunning || list[0].CostUSD != nil {
		t.Errorf("the list is %+v", list)
	}
	release()
	events := parse(t, s.Watch(t, id), 0)
	if _, data := s.Call(t, "GET", "/v1/council/"+id, ""); string(data) != string(events[len(events)-1].Data)+"\n" {
		t.Errorf("got %s", data)
	}
}

// A session ends when its client is gone, unless it is in the background or has a
// key.
func TestClientsThatGo(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
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
	newest := func() string { return s.sessions(t)[0].ID }
	status := func(id string) council.Status {
		stream := s.Watch(t, id)
		if e := last(t, stream); e.Type == council.EventFailed {
			mustBeCancelled(t, stream, id)
		}
		return s.session(t, id).Status
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
	// With a key the client may come back, and its second request may have come meanwhile.
	// Neither request keeps its connection until the session ends.
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
	if _, data := s.Call(t, "POST", "/v1/council", "{"+question+"}", "Idempotency-Key", "k"); !strings.Contains(string(data), keyed) {
		t.Errorf("the client that comes back finds %s", data)
	}
	if strings.Contains(s.Log.String(), `"ERROR"`) {
		t.Errorf("a client that leaves is logged as an error: %s", s.Log)
	}
}

func TestDelete(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	answered := make(chan []byte, 1)
	go func() {
		resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x","models":["waiting","amber","birch"]}`)
		answered <- append([]byte(strconv.Itoa(resp.StatusCode)+" "), data...)
	}()
	<-asked
	id := s.sessions(t)[0].ID
	for len(s.session(t, id).Stage1) < 2 { // amber and birch answer at any time
		time.Sleep(time.Millisecond)
	}
	if resp, data := s.Call(t, "DELETE", "/v1/council/"+id, ""); resp.StatusCode != 202 || !strings.Contains(string(data), id) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	got := string(<-answered)
	for _, part := range []string{"400 ", `"code":"cancelled"`, "by DELETE after 3 calls were paid", `"paid_calls":3`, `"session_id":"` + id + `"`} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is missing in what the waiting client gets: %s", part, got)
		}
	}
	if strings.Contains(s.Log.String(), `"ERROR"`) {
		t.Errorf("a session that was cancelled is logged as an error: %s", s.Log)
	}
	mustBeCancelled(t, s.Watch(t, id), id)
}

// A session that has ended is deleted with its events and its idempotency key.
func TestDeleteAtTheEnd(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	s := start(t, nil)
	key := []string{"Idempotency-Key", "k"}
	id, other := s.background(t, `"query":"x"`, key...), s.background(t, `"query":"y"`)
	s.Watch(t, id)
	s.Watch(t, other)
	if resp, data := s.Call(t, "DELETE", "/v1/council/"+id, ""); resp.StatusCode != 204 || len(data) != 0 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	for _, request := range []string{"GET /v1/council/" + id, "GET /v1/council/" + id + "/events", "DELETE /v1/council/" + id} {
		method, path, _ := strings.Cut(request, " ")
		s.MustFail(t, 404, council.CodeNotFound, method, path, "")
	}
	if list := s.sessions(t); len(list) != 1 || list[0].ID != other {
		t.Errorf("the list is %+v", list)
	}
	again := s.background(t, `"query":"x"`, key...)
	if again == id {
		t.Error("the key gives the session that was deleted")
	}
	s.Watch(t, again)
}

// A session that failed stays readable, and fails again for the same key.
func TestFailedSession(t *testing.T) {
	s := start(t, []simllm.Model{{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}})
	const body = `{"query":"x","models":["down","down","amber"]}`
	_, p := s.MustFail(t, 502, council.CodeNoQuorum, "POST", "/v1/council", body, "Idempotency-Key", "k")
	session := s.session(t, p.SessionID)
	if session.Status != council.StatusFailed {
		t.Errorf("the status is %s", session.Status)
	}
	if len(session.Stage1) != 3 || session.Stage1[2].Response == nil {
		t.Errorf("the answers are %+v", session.Stage1)
	}
	_, again := s.AskForProblem(t, "POST", "/v1/council", body, "Idempotency-Key", "k")
	again.RequestID = p.RequestID
	if diff := cmp.Diff(p, again); diff != "" {
		t.Error(diff)
	}
	events := parse(t, s.Watch(t, p.SessionID), 0)
	var failed council.Problem
	if err := json.Unmarshal(events[len(events)-1].Data, &failed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, failed); diff != "" {
		t.Error(diff)
	}
	if n := s.Sim.Stats().Models["amber"].Requests; n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// A panic ends a session as any failure does.
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
		_, p := s.MustFail(t, 500, council.CodeInternal, "POST", "/v1/council", `{"query":"x"}`)
		session := s.session(t, p.SessionID)
		if session.Status != council.StatusFailed {
			t.Errorf("the status is %s", session.Status)
		}
		if len(session.Stage1) != 3 {
			t.Errorf("%d answers", len(session.Stage1))
		}
	}
	if !strings.Contains(s.Log.String(), "a defect") {
		t.Error("the panic is not in the log")
	}
}

// unwritable is a Council whose sessions end with a figure that JSON cannot hold.
type unwritable struct{ scripted }

func (c unwritable) Run(ctx context.Context, plan council.Plan, o council.Observer, kept *runlog.Log) (*council.Session, error) {
	s, err := c.scripted.Run(ctx, plan, o, kept)
	s.Metadata.Timing.OverheadMS = math.NaN()
	return s, err
}

// A session that cannot be encoded ends as failed, for its client and for whoever
// comes later, and gives its place back.
func TestSessionThatCannotBeEncoded(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Council, o.MaxSessions = unwritable{scripted{run: func(_ context.Context, o council.Observer) {
			o.Observe(council.Event{Type: council.EventDelta, Data: council.Delta{Text: "a piece"}})
		}}}, 1
	})
	for _, id := range []string{"first", "second"} {
		_, p := s.MustFail(t, 500, council.CodeInternal, "POST", "/v1/council", `{"query":"`+id+`"}`)
		if p.SessionID != id {
			t.Errorf("the problem is about session %q", p.SessionID)
		}
		if session := s.session(t, id); session.Status != council.StatusFailed {
			t.Errorf("the status is %s", session.Status)
		}
		if e := last(t, s.Watch(t, id)); e.Type != council.EventFailed {
			t.Errorf("the session ends with %s", e.Type)
		}
	}
	if !strings.Contains(s.Log.String(), "unsupported value: NaN") {
		t.Errorf("the log does not say why: %s", s.Log)
	}
}

func TestSessionsOfOtherTokens(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	const other = "another-token-of-sixteen"
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = doortest.Tokens(secret, other) })
	mine, theirs := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	id := s.background(t, `"query":"x"`, append([]string{"Idempotency-Key", "k"}, mine...)...)
	s.Watch(t, id, mine...)
	for _, request := range []string{"GET /v1/council/" + id, "GET /v1/council/" + id + "/events", "DELETE /v1/council/" + id} {
		method, path, _ := strings.Cut(request, " ")
		_, p := s.AskForProblem(t, method, path, "", theirs...)
		_, unknown := s.AskForProblem(t, method, strings.Replace(path, id, "x", 1), "", mine...)
		if p.Status != 404 || strings.Replace(p.Detail, id, "x", 1) != unknown.Detail {
			t.Errorf("%s: %+v", request, p)
		}
	}
	if _, data := s.Call(t, "GET", "/v1/council", "", theirs...); strings.TrimSpace(string(data)) != `{"sessions":[],"more":false}` {
		t.Errorf("the list of another token: %s", data)
	}
	if again := s.background(t, `"query":"x"`, append([]string{"Idempotency-Key", "k"}, theirs...)...); again == id {
		t.Error("a key reaches into the sessions of another token")
	} else {
		s.Watch(t, again, theirs...)
	}
}

// A token's name owns its sessions. The header holds the token alone.
func TestNamedTokens(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	const other = "another-token-of-sixteen"
	named := func(one, two string) *server {
		return start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
			o.Tokens = []httpapi.Token{{Name: one, Secret: secret}, {Name: two, Secret: other}}
		})
	}
	mine, theirs := []string{"Authorization", "Bearer " + secret}, []string{"Authorization", "Bearer " + other}
	apart, same := named("ada", "bob"), named("ada", "ada")
	for s, want := range map[*server]int{apart: 404, same: 200} {
		id := s.background(t, `"query":"x"`, mine...)
		s.Watch(t, id, mine...)
		if resp, data := s.Call(t, "GET", "/v1/council/"+id, "", theirs...); resp.StatusCode != want {
			t.Errorf("%d %s, want %d", resp.StatusCode, data, want)
		}
	}
	if resp, _ := apart.Call(t, "GET", "/v1/council", "", "Authorization", "Bearer bob:"+secret); resp.StatusCode != 401 {
		t.Errorf("the token with the name of another: %d", resp.StatusCode)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := start(t, nil)
	key := []string{"Idempotency-Key", "k"}
	_, first := s.Call(t, "POST", "/v1/council", `{"query":"x","seed":1}`, key...)
	_, again := s.Call(t, "POST", "/v1/council", ` {"seed": 1, "query": "x"}`, key...)
	if !bytes.Equal(first, again) {
		t.Error("the same request gives another session")
	}
	_, p := s.AskForProblem(t, "POST", "/v1/council", `{"query":"x","seed":2}`, key...)
	if p.Status != 409 || p.Code != "conflict" || p.SessionID == "" || !strings.Contains(string(first), p.SessionID) {
		t.Errorf("got %+v", p)
	}
	// A request that began no session has not used its key.
	key[1] = "another"
	if _, p := s.AskForProblem(t, "POST", "/v1/council", `{"query":""}`, key...); p.Status != 422 {
		t.Errorf("got %+v", p)
	}
	if resp, data := s.Call(t, "POST", "/v1/council", `{"query":"x","seed":2}`, key...); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if n := s.Sim.Stats().Models["amber"].Requests; n != 6 {
		t.Errorf("%d calls of amber, want 6 for two sessions", n)
	}
}

// A full daemon still answers a client that comes back for its session.
func TestSameKeyWhenFull(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m}, func(o *httpapi.Options, _ *pipeline.Options) { o.MaxSessions = 1 })
	const body = `{"query":"x","models":["waiting","amber","birch"]}`
	answers := make(chan []byte, 2)
	ask := func() {
		_, data := s.Call(t, "POST", "/v1/council", body, "Idempotency-Key", "k")
		answers <- data
	}
	go ask()
	<-asked
	if _, p := s.AskForProblem(t, "POST", "/v1/council", body, "Idempotency-Key", "l"); p.Status != 503 {
		t.Errorf("got %+v", p)
	}
	go ask()
	release()
	if one, two := <-answers, <-answers; !bytes.Equal(one, two) || !strings.Contains(string(one), `"status":"complete"`) {
		t.Errorf("got %s and %s", one, two)
	}
}

// flaky is a proxy that passes on some events of a stream, or these and a piece of the
// next event, and then drops the connection.
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

// A stream that breaks behind or inside every event, and is resumed each time, has the
// same bytes as the whole stream.
func TestFlakyProxy(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
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
		for seen := 0; ; cuts++ {
			req, err := http.NewRequestWithContext(t.Context(), "GET", proxy.URL+"/v1/council/"+id+"/events", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if seen > 0 {
				req.Header.Set("Last-Event-ID", strconv.Itoa(seen))
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
			data = data[:bytes.LastIndex(data, []byte("\n\n"))+2] // What is not whole is lost.
			if events := parse(t, data, seen); len(events) != 1 {
				t.Fatalf("%d events before the cut", len(events))
			}
			seen++
			got = append(got, data...)
		}
		whole := s.Watch(t, id)
		if !bytes.Equal(got, whole) || cuts != len(parse(t, whole, 0)) {
			t.Errorf("%d cuts: %d bytes, and not the %d of the whole", cuts, len(got), len(whole))
		}
		proxy.Close()
	}
}

// scripted is a Council whose sessions do what the test says.
type scripted struct {
	neverConvenes
	run func(ctx context.Context, o council.Observer)
}

func (scripted) Check(context.Context, council.Plan) error { return nil }

func (scripted) Prepare(r council.Request) (council.Plan, error) {
	return council.Plan{SessionID: r.Query}, nil
}

func (c scripted) Run(ctx context.Context, plan council.Plan, o council.Observer, _ *runlog.Log) (*council.Session, error) {
	c.run(ctx, o)
	s := plan.Session()
	s.Status = council.StatusComplete
	return s, nil
}

// inBubble serves a council to connections that dial makes. A test calls it in a
// synctest bubble.
func inBubble(t *testing.T, run func(ctx context.Context, o council.Observer)) (dial func() net.Conn, stop func()) {
	t.Helper()
	s := &doortest.Server{}
	o := httpapi.Options{
		Council: scripted{run: run}, Daemon: &doortest.Daemon{}, Spend: &doortest.Daemon{}, Comparer: &doortest.Daemon{}, MaxSessions: 4, Kept: doortest.Generous(),
		MaxBodyBytes: 1 << 20,
		BodyTimeout:  time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	var err error
	if s.API, err = httpapi.New(o); err != nil {
		t.Fatal(err)
	}
	listener := pipenet.Listen()
	server := &http.Server{Handler: s.API}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() net.Conn {
			conn, err := listener.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}, func() {
			if err := s.API.Idle(context.WithoutCancel(t.Context())); err != nil {
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
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	if err != nil {
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
	race.Bubble(t, func(t *testing.T) {
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

// The connection of a reader that never reads is closed. Nothing is kept for it, and
// other readers do not notice.
func TestFaultF17(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
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
			t.Fatal(err) // After this byte it stops reading.
		}
		go func() { time.Sleep(time.Minute); close(next) }()
		request(t, other, "POST", "/v1/council", `{"query":"two"}`)
		if status, _ := respond(t, other); status != 200 {
			t.Errorf("another session: %d", status)
		}
		body := <-whole
		if took := time.Since(began); took != time.Minute || len(parse(t, []byte(body), 0)) != 101 {
			t.Errorf("the other watcher read %d bytes in %s", len(body), took)
		}
		read, err := io.Copy(io.Discard, mute)
		if err != nil || read > 8<<10 {
			t.Errorf("the mute reader finds %d bytes, then %v", read, err)
		}
		t.Logf(
			"fault F17: cut off with %d bytes buffered; the other watcher and session 0 s late (promised: bounded, cut, others unaffected)",
			read,
		)
		for _, c := range []net.Conn{starter, mute, reader, other} {
			_ = c.Close()
		}
		stop()
	})
}

// A reader that does not even read the headers of a silent session is cut off in time.
func TestMuteReaderOfASilentSession(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		next := make(chan struct{})
		dial, stop := inBubble(t, func(context.Context, council.Observer) { <-next })
		starter, mute := dial(), dial()
		request(t, starter, "POST", "/v1/council", `{"query":"one","background":true}`)
		if status, body := respond(t, starter); status != 202 {
			t.Fatalf("%d %s", status, body)
		}
		request(t, mute, "GET", "/v1/council/one/events", "")
		time.Sleep(31 * time.Second)
		read, err := io.Copy(io.Discard, mute)
		if err != nil || read > 0 {
			t.Errorf("the mute reader finds %d bytes, then %v", read, err)
		}
		close(next)
		_ = starter.Close()
		_ = mute.Close()
		stop()
	})
}

// A slow reader keeps its connection while it takes each piece in time.
func TestSlowReader(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
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
		if err != nil || len(parse(t, data, 0)) != 2 || time.Since(began) < 2*time.Minute {
			t.Errorf("%d bytes in %s: %v", len(data), time.Since(began), err)
		}
		_ = resp.Body.Close()
		_ = c.Close()
		_ = reader.Close()
		time.Sleep(time.Minute) // Meanwhile the goroutine that reads the connection ends.
		stop()
	})
}

// A thousand watchers of one session share its log, and read the same bytes.
func TestThousandWatchers(t *testing.T) {
	testkit.Slow(t)
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
	want := sha256.Sum256(s.Watch(t, id))
	for i, got := range sums {
		if got != want {
			t.Fatalf("watcher %d read something else", i)
		}
	}
	if each > size*3/2 { // A watcher holds its connection, and no copy of the log.
		t.Errorf("a watcher costs %d bytes", each)
	}
	t.Logf("a watcher costs %d bytes, the connection on both sides", each)
}
