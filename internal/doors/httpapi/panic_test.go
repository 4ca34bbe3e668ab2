package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
)

// failing is a ResponseWriter with a defect.
type failing struct{ http.ResponseWriter }

// Write implements io.Writer.
func (w failing) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte("stage1.answer")) {
		panic("a defect with a secret")
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (w failing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unencodable panics when it is encoded.
type unencodable struct{}

// MarshalJSON implements json.Marshaler.
func (unencodable) MarshalJSON() ([]byte, error) { panic("a defect with a secret") }

// A panic in a handler, in a session in the background or in a stream of events is an
// error of that request. Nothing stays counted as running: there are more panics here
// than places.
func TestFaultF40Requests(t *testing.T) {
	const rounds = 3
	defects := scripted{run: func(ctx context.Context, o council.Observer) {
		o.Observe(council.Event{Type: council.EventAnswer, Data: council.Answer{Model: "a"}})
		switch council.RequestID(ctx) {
		case "run":
			panic("a defect with a secret")
		case "event":
			o.Observe(council.Event{Type: council.EventDelta, Data: unencodable{}})
		case "write":
			<-ctx.Done() // the watcher's defect ends it
		}
	}}
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Council = defects
		o.Tokens = limited(httpapi.Limits{Sessions: new(1)}, secret)
		o.MaxSessions = 1
		o.Middleware = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Request-Id") == "write" {
					w = failing{w}
				}
				next.ServeHTTP(w, r)
			})
		}
	})
	s.Daemon.Reports = func(bias.Query) (bias.Report, error) { panic("a defect with a secret") }
	with := func(id string) []string { return []string{"Authorization", "Bearer " + secret, "X-Request-Id", id} }
	for i := range rounds {
		round := string(rune('a' + i))
		_, p := s.MustFail(t, 500, council.CodeInternal, "POST", "/v1/council", `{"query":"run`+round+`"}`, with("run")...)
		if p.SessionID == "" {
			t.Error("in a run: there is no session id")
		}
		// The session may have failed before the request is answered.
		resp, data := s.Call(t, "POST", "/v1/council", `{"background":true,"query":"background`+round+`"}`, with("run")...)
		if resp.StatusCode != 202 {
			t.Errorf("in the background: %d %s", resp.StatusCode, data)
		}
		if log := s.Watch(t, "background"+round, with("watch")...); !strings.Contains(string(log), "session.failed") {
			t.Errorf("in the background: %s", log)
		}
		resp, data = s.Call(t, "POST", "/v1/council", `{"query":"event`+round+`"}`, with("event")...)
		if resp.StatusCode != 200 {
			t.Errorf("in an event: %d %s", resp.StatusCode, data)
		}
		if e := last(t, s.Watch(t, "event"+round, with("watch")...)); e.Type != council.EventDone {
			t.Errorf("in an event: the session ends with %s", e.Type)
		}
		req, err := http.NewRequestWithContext(
			t.Context(), "POST", s.URL+"/v1/council", strings.NewReader(`{"query":"write`+round+`","stream":true}`),
		)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		req.Header.Set("X-Request-Id", "write")
		if resp, err = s.Client().Do(req); err == nil {
			data, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil || bytes.Contains(data, []byte("problem")) {
			t.Errorf("in a stream that has begun: %v, %s", err, data)
		}
		if e := last(t, s.Watch(t, "write"+round, with("watch")...)); e.Type != council.EventDone {
			t.Errorf("in a stream: the session ends with %s", e.Type)
		}
		for range 9 {
			s.MustFail(t, 500, council.CodeInternal, "GET", "/v1/bias-report", "", with("report")...)
		}
	}
	t.Logf("fault F40: %d panics in sessions, events, streams and reports are errors of their requests; the one place is free each time "+
		"(promised: nothing stays counted as running)", rounds*13)
}
