package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
)

// requests returns how many requests the provider had.
func (s *server) requests() (n int) {
	for _, m := range s.Sim.Stats().Models {
		n += m.Requests
	}
	return n
}

// doors are bodies with a question for each of OpenAI's doors. Each has places for the model, the question and
// further fields.
var doors = map[string]string{
	"/v1/chat/completions": `{"model":%q,"messages":[{"role":"user","content":%q}]%s}`,
	"/v1/responses":        `{"model":%q,"input":%q%s}`,
}

// However often a client repeats a request whose session failed, and whichever way it asks, it is paid once.
func TestFailureIsPaidOnce(t *testing.T) { //nolint:tparallel // its subtests share a server
	testkit.Slow(t)
	t.Parallel()
	always := func(f simllm.Fault) []simllm.Fault { f.Rate = 1; return []simllm.Fault{f} }
	var models []simllm.Model
	for name, fault := range map[string]simllm.Fault{
		"broken":   {Kind: simllm.FaultErrorIn200},
		"refusing": {Kind: simllm.FaultStatus, Status: 429, RetryAfter: "7"}, "hanging": {Kind: simllm.FaultHang},
	} {
		models = append(models, simllm.Model{Name: name, Faults: always(fault)})
	}
	patient := start(t, models, func(_ *httpapi.Options, p *pipeline.Options) { p.Models = []string{"birch", "cedar"} })
	hasty := start(t, models, func(_ *httpapi.Options, p *pipeline.Options) { p.Timeout = 200 * time.Millisecond })
	const verdictSchema = `{"type":"object","required":["verdict"],"properties":{"verdict":{"enum":["yes","no"]}}}`
	schema := map[string]string{
		"/v1/chat/completions": `,"response_format":{"type":"json_schema","json_schema":{"name":"verdict","schema":` + verdictSchema + `}}`,
		"/v1/responses":        `,"text":{"format":{"type":"json_schema","name":"verdict","schema":` + verdictSchema + `}}`,
	}
	for _, tt := range []struct {
		name, model string
		status      int
		code        council.Code
		schema      bool
		calls       int // that may be billed; 0: the failure was free
	}{
		{"no_quorum", "council/broken,broken", 502, council.CodeNoQuorum, false, 2},
		{"one of two is free", "council/broken,refusing", 502, council.CodeNoQuorum, false, 1},
		{"all are free", "council/refusing,refusing", 502, council.CodeNoQuorum, false, 0},
		{"no_valid_output", "council", 502, council.CodeNoValidOutput, true, 8},
		{"deadline", "council/hanging,hanging", 504, council.CodeDeadline, false, 2},
		{"one model", "council/broken", 502, council.CodeNoQuorum, false, 1},
	} {
		for path, form := range doors {
			for _, streamed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %t", tt.name, path, streamed), func(t *testing.T) {
					s, fields := patient, fmt.Sprintf(`,"stream":%t`, streamed)
					if tt.code == council.CodeDeadline {
						s = hasty
					}
					if tt.schema {
						fields += schema[path]
					}
					body := fmt.Sprintf(form, tt.model, tt.name, fields)
					ask := func(body string, headers ...string) (*http.Response, string, bool) {
						t.Helper()
						before := s.requests()
						resp, data := s.Call(t, "POST", path, body, headers...)
						if status := map[bool]int{false: tt.status, true: 200}[streamed]; resp.StatusCode != status ||
							!strings.Contains(string(data), fmt.Sprintf(`"code":%q`, tt.code)) {
							t.Errorf("%d %s", resp.StatusCode, data)
						}
						return resp, string(data), s.requests() > before
					}
					resp, first, asked := ask(body)
					if !asked || resp.Header.Get("Councild-Replayed") != "" {
						t.Fatalf("no session of its own: %v %s", resp.Header, first)
					}
					id := s.sessions(t)[0].ID
					if retry := resp.Header.Get("X-Should-Retry"); (retry == "false") != (tt.calls > 0 && !streamed) {
						t.Errorf("X-Should-Retry is %q", retry)
					}
					if after := resp.Header.Get("Retry-After"); (after == "7") != (tt.calls == 0 && !streamed) {
						t.Errorf("Retry-After is %q", after)
					}
					if tt.calls == 0 {
						if _, _, again := ask(body); !again {
							t.Error("a failure that was free is not tried again")
						}
						return
					}
					var problem council.Problem
					failed := last(t, s.Watch(t, id))
					if problem.PaidCalls = failed.Data.(*council.Error).Paid; problem.PaidCalls != tt.calls {
						t.Errorf("%d calls are paid, want %d", problem.PaidCalls, tt.calls)
					}
					for range 3 {
						resp, again, asked := ask(body)
						if asked || resp.Header.Get("Councild-Replayed") != "true" || !strings.Contains(again, id) {
							t.Errorf("the repeat asked: %t; %v %s", asked, resp.Header, again)
						}
						if !strings.Contains(again, "nothing was paid again: to ask again, change the question, send an Idempotency-Key, or wait 2 minutes") {
							t.Errorf("the repeat does not say how to ask again: %s", again)
						}
						if retry := resp.Header.Get("X-Should-Retry"); (retry == "false") == streamed {
							t.Errorf("X-Should-Retry of the repeat is %q", retry)
						}
					}
					// What is another request is another session.
					for what, other := range map[string][]string{
						"another question": {strings.Replace(body, tt.name, tt.name+"?", 1)},
						"other bytes":      {body + " "},
						"an unknown field": {strings.Replace(body, "{", `{"user":"ada",`, 1)},
						"a key of its own": {body, "Idempotency-Key", path + fields + tt.name},
					} {
						if resp, text, asked := ask(other[0], other[1:]...); !asked || resp.Header.Get("Councild-Replayed") != "" {
							t.Errorf("%s: %v %s", what, resp.Header, text)
						}
					}
				})
			}
		}
	}
}

// The failure is that of the token that paid.
func TestReplayBelongsToTheToken(t *testing.T) {
	const other = "another-token-of-sixteen"
	s := start(t, []simllm.Model{{Name: "broken", Faults: []simllm.Fault{{Kind: simllm.FaultErrorIn200, Rate: 1}}}},
		func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = doortest.Tokens(secret, other) })
	body := fmt.Sprintf(doors["/v1/responses"], "council/broken,broken", "x", "")
	for i, token := range []string{secret, other, secret, other} {
		before := s.requests()
		resp, data := s.Call(t, "POST", "/v1/responses", body, "Authorization", "Bearer "+token)
		if replayed := resp.Header.Get("Councild-Replayed") != ""; replayed != (i > 1) || replayed == (s.requests() > before) {
			t.Errorf("request %d: %d %s", i, resp.StatusCode, data)
		}
	}
}

// Every door says that asking again would pay again. Only those of OpenAI answer for the session that failed.
func TestNativeDoorSaysWhatWasPaid(t *testing.T) {
	s := start(t, []simllm.Model{
		{Name: "broken", Faults: []simllm.Fault{{Kind: simllm.FaultErrorIn200, Rate: 1}}},
		{Name: "refusing", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 429, Rate: 1, RetryAfter: "7"}}},
		{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 500, Rate: 1}}},
	})
	for models, paid := range map[string]int{
		`"down","down"`:     2, // nobody knows what a provider bills for these
		`"broken","broken"`: 2, `"broken","refusing"`: 1, `"refusing","refusing"`: 0,
	} {
		for _, headers := range [][]string{nil, {"Idempotency-Key", models}, {"Idempotency-Key", models}} {
			resp, p := s.MustFail(t, 502, council.CodeNoQuorum, "POST", "/v1/council", `{"query":"x","models":[`+models+`]}`, headers...)
			if retry := resp.Header.Get("X-Should-Retry"); p.PaidCalls != paid || (retry == "false") != (paid > 0) ||
				resp.Header.Get("Councild-Replayed") != "" {
				t.Errorf("%s: %v %+v", models, resp.Header, p)
			}
		}
	}
}

// A session that was cancelled stays cancelled, whoever waits for it, and the status is one that no SDK repeats.
func TestCancelledStaysCancelled(t *testing.T) {
	for path, form := range doors {
		for _, streamed := range []bool{false, true} {
			t.Run(fmt.Sprint(path, streamed), func(t *testing.T) {
				m, asked, release := waiting(t)
				defer release()
				s := start(t, []simllm.Model{m})
				body := fmt.Sprintf(form, "council/waiting,waiting", "x", fmt.Sprintf(`,"stream":%t`, streamed))
				var waits sync.WaitGroup
				waits.Go(func() {
					resp, data := s.Call(t, "POST", path, body)
					if want := map[bool]int{false: 400, true: 200}[streamed]; resp.StatusCode != want ||
						!strings.Contains(string(data), `"code":"cancelled"`) || !strings.Contains(string(data), "by DELETE after 2 calls were paid") {
						t.Errorf("%d %s", resp.StatusCode, data)
					}
				})
				<-asked
				<-asked
				id := s.sessions(t)[0].ID
				s.Call(t, "DELETE", "/v1/council/"+id, "")
				waits.Wait()
				before := s.requests()
				for range 2 {
					if resp, data := s.Call(t, "POST", path, body); resp.Header.Get("Councild-Replayed") != "true" ||
						!strings.Contains(string(data), `"code":"cancelled"`) || s.requests() != before {
						t.Errorf("%d %v %s", resp.StatusCode, resp.Header, data)
					}
					// It stays so when the session is deleted.
					s.Call(t, "DELETE", "/v1/council/"+id, "")
				}
			})
		}
	}
}

// A client that left, as Node's fetch does after 300 s, and sends the same bytes is told what was paid. Until then, the
// same bytes are another session.
func TestClientThatLeftAsksAgain(t *testing.T) {
	m, asked, release := waiting(t)
	defer release()
	s := start(t, []simllm.Model{m})
	for path, form := range doors {
		for _, streamed := range []bool{false, true} {
			body := fmt.Sprintf(form, "council/waiting,waiting", "x", fmt.Sprintf(`,"stream":%t`, streamed))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			left := make(chan struct{}, 2)
			for range 2 { // two at once are two sessions
				req, err := http.NewRequestWithContext(ctx, "POST", s.URL+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					if resp, err := s.Client().Do(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					left <- struct{}{}
				}()
				<-asked
				<-asked
			}
			if n := len(s.sessions(t)); n%2 != 0 {
				t.Errorf("%d sessions", n)
			}
			leave()
			<-left
			<-left
			for running := true; running; { // until the server has noticed
				running = false
				for _, session := range s.sessions(t) {
					running = running || session.Status == council.StatusRunning
				}
			}
			before := s.requests()
			resp, data := s.Call(t, "POST", path, body)
			if want := map[bool]int{false: 400, true: 200}[streamed]; resp.StatusCode != want || s.requests() != before ||
				resp.Header.Get("Councild-Replayed") != "true" {
				t.Errorf("%d %v, %d requests before, %d now", resp.StatusCode, resp.Header, before, s.requests())
			}
			for _, words := range []string{
				`"code":"cancelled"`, "cancelled after 2 calls were paid", "its client left", "stream the answer, or raise the client's time-out",
				"docs/clients.md", "nothing was paid again",
			} {
				if !strings.Contains(string(data), words) {
					t.Errorf("%q is missing in %s", words, data)
				}
			}
		}
	}
}

// A request that comes while the session of the client that left is being cancelled waits for its end. Where that is an
// answer, it is the answer.
func TestRepeatJoinsASessionThatEnds(t *testing.T) {
	entered, ends := make(chan context.Context, 1), make(chan error)
	runs := 0
	s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
		inner, err := pipeline.New(*p)
		if err != nil {
			t.Fatal(err)
		}
		o.Council = endless{inner, entered, ends, &runs}
	})
	const path = "/v1/chat/completions"
	for i, failure := range []error{nil, &council.Error{Code: council.CodeCancelled, Detail: "the session was cancelled", Paid: 3}} {
		body := fmt.Sprintf(doors[path], "council", fmt.Sprint("question ", i), "")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := s.Client().Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		run := <-entered
		leave()
		<-run.Done() // the server has noticed
		var repeat sync.WaitGroup
		repeat.Go(func() {
			resp, data := s.Call(t, "POST", path, body)
			want, words := 200, "the whole answer"
			if failure != nil {
				want, words = 400, "cancelled after 3 calls were paid ($0.05)"
			}
			if resp.StatusCode != want || !strings.Contains(string(data), words) || resp.Header.Get("Councild-Replayed") != "true" {
				t.Errorf("%d %s", resp.StatusCode, data)
			}
		})
		ends <- failure
		repeat.Wait()
	}
	if runs != 2 {
		t.Errorf("%d sessions ran", runs)
	}
}

// endless is a council whose sessions end when the test says so, whatever their context does.
type endless struct {
	httpapi.Council
	entered chan context.Context
	ends    chan error
	runs    *int
}

func (c endless) Run(ctx context.Context, plan council.Plan, _ council.Observer, _ *runlog.Log) (*council.Session, error) {
	*c.runs++
	c.entered <- ctx
	err := <-c.ends
	session := plan.Session()
	session.Answer, session.Status = "the whole answer", council.StatusComplete
	session.Metadata.Usage.Total = council.NoUsage()
	*session.Metadata.Usage.Total.CostUSD = 0.05
	if err != nil {
		session.Status = council.StatusCancelled
	}
	return session, err
}

// A shutdown that cancels a session before anything was paid can be survived by asking again. After that it is paid once.
func TestShutdownOfASession(t *testing.T) {
	for paid, want := range map[int]council.Code{0: council.CodeUnavailable, 2: council.CodeCancelled} {
		entered, ends := make(chan context.Context, 1), make(chan error)
		s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
			inner, err := pipeline.New(*p)
			if err != nil {
				t.Fatal(err)
			}
			o.Council = endless{inner, entered, ends, new(int)}
		})
		var waits sync.WaitGroup
		waits.Go(func() {
			resp, data := s.Call(t, "POST", "/v1/responses", fmt.Sprintf(doors["/v1/responses"], "council", "x", ""))
			var body httpapi.ChatError
			if err := json.Unmarshal(data, &body); err != nil || body.Error.Code != want || !strings.Contains(body.Error.Message, "the daemon shut down") {
				t.Errorf("%d %s", resp.StatusCode, data)
			}
			if again := resp.Header.Get("Retry-After") != ""; again != (paid == 0) || again == (resp.Header.Get("X-Should-Retry") == "false") ||
				again != (resp.StatusCode == 503) || again == (resp.StatusCode == 400) {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		})
		run := <-entered
		s.API.Cancel(context.DeadlineExceeded)
		<-run.Done()
		ends <- &council.Error{Code: council.CodeCancelled, Detail: "the session was cancelled", Paid: paid}
		waits.Wait()
	}
}
