package httpapi_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everyEvent is a Council whose sessions have an event of every type. The seed says
// how a session goes: 0 whole, 1 with a chairman that is lost, 2 without a quorum, 3 with two chairmen that are lost.
type everyEvent struct{ neverConvenes }

func (everyEvent) Check(context.Context, council.Plan) error { return nil }

func (everyEvent) Prepare(r council.Request) (council.Plan, error) {
	return council.Plan{
		SessionID: fmt.Sprintf("session-%d", *r.Seed), Mode: council.ModeCouncil, Seed: *r.Seed, Order: council.OrderShared, Created: time.Now().UTC(),
		Conversation: append(r.Messages, council.Message{Role: council.RoleUser, Content: r.Query}),
	}, nil
}

func (everyEvent) Run(_ context.Context, plan council.Plan, o council.Observer, _ *runlog.Log) (*council.Session, error) {
	text := "<b>\"bold\"</b> &\n\u2028 \\ ü."
	s := plan.Session()
	s.Status, s.Answer, s.Persisted = council.StatusComplete, text, true
	s.AnswerFrom = council.AnswerFrom{Rule: council.RuleWritten, Model: "a", Tied: []string{}}
	s.Metadata.First = &council.FirstAsked{Asked: []string{"a"}, Convened: true, Why: council.FirstFailed}
	s.Metadata.Usage.Total = council.Usage{InputTokens: new(int64(7)), OutputTokens: new(int64(5)), Partial: true}
	s.Stage1 = []council.Answer{
		{Model: "a", Status: council.OutcomeOK, Response: &text},
		{Model: "b", Status: council.OutcomeError, Error: &council.Failure{Code: council.FailTimeout, Message: "late"}},
	}
	s.Stage2 = []council.Review{{Model: "a", Status: council.OutcomeOK, Ranking: &text}}
	s.Stage3 = &council.Synthesis{Model: "a", Response: text, Status: council.OutcomeOK}
	events := []council.Event{
		{Type: council.EventStarted, Data: council.Started{SessionID: plan.SessionID, Models: []string{"a", "b"}, Chairman: "a", Mode: plan.Mode}},
		{Type: council.EventAnswer, Data: s.Stage1[1]},
		{Type: council.EventAnswer, Data: s.Stage1[0]},
		{Type: council.EventFirst, Data: *s.Metadata.First},
		{Type: council.EventStage1, Data: s.Stage1},
		{Type: council.EventBallot, Data: s.Stage2[0]},
		{Type: council.EventStage2, Data: s.Metadata.Tally},
		{Type: council.EventDelta, Data: council.Delta{Text: text[:4]}},
		{Type: council.EventRestart, Data: council.Restart{Model: "a", Reason: council.FailReset}},
		{Type: council.EventDelta, Data: council.Delta{Text: text}},
		{Type: council.EventStage3, Data: *s.Stage3},
		{Type: council.EventDone, Data: s},
	}
	var err error
	switch plan.Seed {
	case 0:
		events = append(events[:8:8], events[9:]...)
	case 2:
		err = &council.Error{
			Code: council.CodeNoQuorum, Detail: "1 of 2", Fields: []council.FieldError{{Field: "b", Message: "late", Fix: "wait"}},
		}
		events = append(events[:5:5], council.Event{Type: council.EventFailed, Data: err})
	case 3:
		events = slices.Insert(events, 9, events[7:9]...)
	}
	for _, e := range events {
		o.Observe(e)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// The bytes of every event, in each form in which a session can be asked for.
func TestWireForm(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Council = everyEvent{} })
	var got bytes.Buffer
	const chat = `{"model":"council","messages":[{"role":"user","content":"x"}]`
	for _, request := range []struct{ path, body string }{
		{"/v1/council", `{"query":"x"`},
		{"/v1/council", `{"query":"x","stream":true`},
		{"/v1/chat/completions", chat},
		{"/v1/chat/completions", chat + `,"stream":true,"stream_options":{"include_usage":true}`},
	} {
		for seed := range 3 {
			body := fmt.Sprintf(`%s,"seed":%d}`, request.body, seed)
			resp, data := s.Call(t, "POST", request.path, body, "X-Request-Id", "an-id")
			fmt.Fprintf(&got, "POST %s %s\n%s %s\n%s\n", request.path, body, resp.Status, resp.Header.Get("Content-Type"), data)
		}
	}
	text := regexp.MustCompile(`"created":(\d+|"[^"]+")`).ReplaceAllString(got.String(), `"created":0`)
	const golden = "testdata/wire.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Error(diff)
	}
}

// lostTwice is everyEvent with two chairmen that are lost.
type lostTwice struct{ everyEvent }

func (lostTwice) Check(context.Context, council.Plan) error { return nil }

func (lostTwice) Prepare(r council.Request) (council.Plan, error) {
	r.Seed = new(int64(3))
	return everyEvent{}.Prepare(r)
}

// A client that comes back for a session gets its whole answer, and nothing of those that were lost.
func TestStreamAgainAfterLostChairmen(t *testing.T) {
	for _, tt := range []struct{ path, body, delta, end string }{
		{
			"/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":"x"}],"stream":true}`, `"delta":{"content":`,
			"data: [DONE]\n\n",
		},
		{"/v1/responses", `{"model":"council","input":"x","stream":true}`, `"type":"response.output_text.delta"`, `"type":"response.completed"`},
	} {
		s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Council = lostTwice{} })
		s.Call(t, "POST", tt.path, tt.body, "Idempotency-Key", "k")
		s.Watch(t, "session-3")
		_, data := s.Call(t, "POST", tt.path, tt.body, "Idempotency-Key", "k")
		if n := strings.Count(string(data), tt.delta); n != 1 {
			t.Errorf("%s: %d pieces of text, want that of the last chairman: %s", tt.path, n, data)
		}
		if !strings.Contains(string(data), tt.end) {
			t.Errorf("%s: the stream ends with %s", tt.path, data[max(0, len(data)-500):])
		}
	}
}
