package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// numbers are models that answer with the number in their name.
func numbers() (models []simllm.Model) {
	for _, name := range []string{"seven", "7", "7.0", "8"} {
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
			return "I counted them.\n\nANSWER: " + strings.Replace(name, "seven", "7", 1), task.Kind == simllm.Question
		}})
	}
	return models
}

// post sends a body and returns the result, which must come with status 200.
func post[T any](t *testing.T, s *server, path, body string, headers ...string) (result T) {
	t.Helper()
	resp, data := s.Call(t, "POST", path, body, headers...)
	if err := json.Unmarshal(data, &result); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%.200s: %d %s", body, resp.StatusCode, data)
	}
	return result
}

// ask begins a session, waits for its end and returns it.
func (s *server) ask(t *testing.T, body string, headers ...string) council.Session {
	t.Helper()
	return post[council.Session](t, s, "/v1/council", body, headers...)
}

// Each mode runs its stages and no others, and says whose text the answer is.
func TestModes(t *testing.T) {
	s := start(t, numbers())
	for mode, tt := range map[string]struct {
		fields   string
		requests int
		stages   []council.Stage
		rule     council.AnswerRule
	}{
		"council":   {`"models":["7","8"]`, 5, []council.Stage{"stage1", "stage2", "stage3"}, "written"},
		"ranked":    {`"models":["7","8","7.0"]`, 6, []council.Stage{"stage1", "stage2"}, "top"},
		"synthesis": {`"models":["7","8"]`, 3, []council.Stage{"stage1", "stage3"}, "written"},
		"vote":      {`"models":["7","8","7.0"],"answer_form":{"type":"number"}`, 3, []council.Stage{"stage1"}, "commonest"},
		"single":    {`"models":["8"]`, 1, []council.Stage{"stage1"}, "only"},
	} {
		before := requests(s)
		session := s.ask(t, fmt.Sprintf(`{"query":"How many?","mode":%q,%s}`, mode, tt.fields))
		if made := requests(s) - before; made != tt.requests {
			t.Errorf("%s made %d requests, want %d", mode, made, tt.requests)
		}
		if string(session.Mode) != mode || session.AnswerFrom.Rule != tt.rule || session.Answer == "" || session.Status != council.StatusComplete {
			t.Errorf("%s: mode %s, %+v, %s", mode, session.Mode, session.AnswerFrom, session.Status)
		}
		if diff := cmp.Diff(tt.stages, session.Metadata.Stages); diff != "" {
			t.Errorf("%s: stages %s", mode, diff)
		}
		events := string(s.Watch(t, session.ID))
		for _, stage := range []string{"stage2.done", "stage3.done"} {
			if ran := slices.Contains(tt.stages, council.Stage(stage[:6])); strings.Contains(events, "event: "+stage) != ran {
				t.Errorf("%s: there is an event %s: %v, want %v", mode, stage, !ran, ran)
			}
		}
		// What was asked can be asked again.
		_, request := s.Call(t, "GET", "/v1/council/"+session.ID+"/request", "")
		if again := s.ask(t, string(request)); again.Answer != session.Answer || again.Mode != session.Mode {
			t.Errorf("%s: asked again, the answer is %q in mode %s", mode, again.Answer, again.Mode)
		}
	}
}

// requests returns how many requests the models have had.
func requests(s *server) (n int) {
	for _, m := range s.Sim.Stats().Models {
		n += m.Requests
	}
	return n
}

// An answer that a mode picks is streamed as one piece.
func TestPickedAnswerIsOneDelta(t *testing.T) {
	s := start(t, numbers())
	_, data := s.Call(t, "POST", "/v1/council", `{"query":"How many?","mode":"ranked","stream":true}`)
	if n := strings.Count(string(data), "event: stage3.delta"); n != 1 {
		t.Errorf("%d pieces: %s", n, data)
	}
}

// The estimate has every mode in which the request is valid.
func TestEstimateByMode(t *testing.T) {
	s := start(t, nil)
	for body, want := range map[string]map[council.Mode]int{
		`{"query":"x"}`: {"council": 7, "ranked": 6, "synthesis": 4},
		`{"query":"x","mode":"vote","answer_form":{"type":"number"}}`: {"council": 7, "ranked": 6, "synthesis": 4, "vote": 3},
		`{"query":"x","output_schema":{"type":"object"}}`:             {"council": 8, "synthesis": 5}, // The schema may take a second try.
		`{"query":"x","mode":"single","models":["amber"]}`:            {"single": 1},
	} {
		_, data := s.Call(t, "POST", "/v1/council/estimate", body)
		var e spend.Estimate
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatalf("%s: %s", body, data)
		}
		got := map[council.Mode]int{}
		for mode, figure := range e.ByMode {
			got[mode] = figure.Calls
		}
		if diff := cmp.Diff(want, got); diff != "" || e.ByMode[e.Mode].Calls != e.Calls || e.LeastCalls != e.Calls {
			t.Errorf("%s: %d calls in mode %s, at least %d, by mode %s", body, e.Calls, e.Mode, e.LeastCalls, diff)
		}
	}
	for body, least := range map[string]int{
		`{"query":"x","first":1}`:                                 1,
		`{"query":"x","first":2}`:                                 7, // Without a form, all are asked at once.
		`{"query":"x","first":2,"answer_form":{"type":"number"}}`: 2,
	} {
		var e spend.Estimate
		if _, data := s.Call(t, "POST", "/v1/council/estimate", body); json.Unmarshal(data, &e) != nil || e.LeastCalls != least || e.Calls != 7 {
			t.Errorf("%s: %s", body, data)
		}
	}
}

// A card names the mode of its council, and the calls that its sessions make.
func TestCouncilCardInEveryMode(t *testing.T) {
	form := &council.AnswerForm{Type: council.FormNumber}
	for mode, calls := range map[council.Mode][2]int{
		council.ModeCouncil: {7, 2}, council.ModeRanked: {6, 2}, council.ModeSynthesis: {4, 2}, council.ModeVote: {3, 3},
	} {
		s := start(t, nil, func(o *httpapi.Options, p *pipeline.Options) {
			o.Models, p.Mode, p.Form = p.Models, mode, form
			if mode != council.ModeVote {
				p.First = 2
			}
		})
		card := fetch[httpapi.CouncilList](t, s, "/v1/councils").Councils[0]
		if card.Mode != mode || card.Calls != calls[0] || card.LeastCalls != calls[1] || card.AnswerForm == nil ||
			(card.First == nil) != (mode == council.ModeVote) || (card.Chairman == "") == mode.Writes() {
			t.Errorf("%s: %+v", mode, card)
		}
	}
}

// With first, the session ends where the members that begin give the same answer.
func TestFirst(t *testing.T) {
	s := start(t, numbers())
	const form = `"answer_form":{"type":"number"}`
	for fields, tt := range map[string]struct {
		answers int
		first   council.FirstAsked
	}{
		`"first":1,"models":["7","8"]`:               {1, council.FirstAsked{Asked: []string{"7"}, Why: council.FirstAlone}},
		`"first":2,"models":["7","7.0","8"],` + form: {2, council.FirstAsked{Asked: []string{"7", "7.0"}, Same: new(true), Why: council.FirstSame}},
		`"first":2,"models":["7","8","amber"],` + form: {3, council.FirstAsked{
			Asked: []string{"7", "8"}, Same: new(false), Convened: true, Why: council.FirstDifferent,
		}},
		`"first":2,"models":["7","amber","8"],"answer_form":{"type":"choice","options":["7","8"]}`: {3, council.FirstAsked{
			Asked: []string{"7", "amber"}, Convened: true, Why: council.FirstUnreadable,
		}},
		`"first":2,"models":["7","7.0","8"]`: {3, council.FirstAsked{Asked: []string{}, Convened: true, Why: council.FirstNoForm}},
	} {
		session := s.ask(t, `{"query":"How many?",`+fields+`}`)
		if diff := cmp.Diff(&tt.first, session.Metadata.First); diff != "" || len(session.Stage1) != tt.answers {
			t.Errorf("%s: %d answers, %s", fields, len(session.Stage1), diff)
		}
		if events := string(s.Watch(t, session.ID)); strings.Count(events, "event: first.done") != 1 {
			t.Errorf("%s: %s", fields, events)
		}
	}
}

// settled begins a session that its first member decides, and returns its id.
func (s *server) settled(t *testing.T, fields string, headers ...string) string {
	t.Helper()
	return s.ask(t, `{"query":"How many?","first":1,`+fields+`}`, headers...).ID
}

// Convene asks the members that were not asked, and gives the answers that exist.
func TestConvene(t *testing.T) {
	s := start(t, numbers())
	for name, fields := range map[string]string{
		"in memory": `"models":["7","8","7.0"]`, "in the mode ranked": `"models":["7","8","7.0"],"mode":"ranked"`,
	} {
		id := s.settled(t, fields)
		before := requests(s)
		resp, data := s.Call(t, "POST", "/v1/council/"+id+"/convene", "")
		var session council.Session
		if err := json.Unmarshal(data, &session); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, data)
		}
		want := &council.FirstAsked{Asked: []string{"7"}, Convened: true, Why: council.FirstOnDemand}
		if diff := cmp.Diff(want, session.Metadata.First); diff != "" || session.Metadata.GivenFrom != id || len(session.Stage1) != 3 ||
			!session.Stage1[0].Given || session.Stage1[1].Given || len(session.Stage2) != 3 {
			t.Errorf("%s: %s", name, data)
		}
		if made := requests(s) - before; made != 2+3+len(session.Metadata.Stages)-2 {
			t.Errorf("%s: %d requests", name, made)
		}
		// The council is convened once. The convened session, and the earlier one, say so.
		for _, again := range []string{id, session.ID} {
			_, p := s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council/"+again+"/convene", "")
			if p.SessionID != session.ID || !strings.Contains(p.Detail, "already") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if resp, _ := s.Call(t, "DELETE", "/v1/council/"+session.ID, ""); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: not deleted: %s", name, resp.Status)
		}
		if resp, data := s.Call(t, "POST", "/v1/council/"+id+"/convene", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: after the convened session is deleted: %s %s", name, resp.Status, data)
		}
	}
}

// A convened session can be streamed, or run in the background.
func TestConveneInEachForm(t *testing.T) {
	s := start(t, numbers())
	resp, data := s.Call(t, "POST", "/v1/council/"+s.settled(t, `"models":["7","8"]`)+"/convene", "", "Accept", "text/event-stream")
	if resp.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(string(data), `"given":true`) ||
		!strings.Contains(string(data), "event: stage3.delta") || !strings.Contains(string(data), "event: session.done") {
		t.Errorf("streamed: %s", data)
	}
	_, data = s.Call(t, "POST", "/v1/council/"+s.settled(t, `"models":["7","8"]`)+"/convene", `{"stream":true}`)
	if !strings.Contains(string(data), "event: session.done") {
		t.Errorf("streamed by a field: %s", data)
	}
	resp, data = s.Call(t, "POST", "/v1/council/"+s.settled(t, `"models":["7","8"]`)+"/convene", `{"background":true}`)
	var started council.Summary
	if err := json.Unmarshal(data, &started); err != nil || resp.StatusCode != http.StatusAccepted ||
		resp.Header.Get("Location") != "/v1/council/"+started.ID {
		t.Fatalf("in the background: %d %s", resp.StatusCode, data)
	}
	s.Watch(t, started.ID)
	if session := s.session(t, started.ID); session.Status != council.StatusComplete {
		t.Errorf("in the background: %s", session.Status)
	}
}

// The same Idempotency-Key gets the convened session again. Another key, or none, does not.
func TestConveneAgain(t *testing.T) {
	s := start(t, numbers())
	path := "/v1/council/" + s.settled(t, `"models":["7","8"]`) + "/convene"
	_, first := s.Call(t, "POST", path, "", "Idempotency-Key", "k")
	if _, again := s.Call(t, "POST", path, "", "Idempotency-Key", "k"); string(again) != string(first) {
		t.Errorf("the same key gets %s, not %s", again, first)
	}
	s.MustFail(t, 409, council.CodeConflict, "POST", path, "", "Idempotency-Key", "another")
	s.MustFail(t, 409, council.CodeConflict, "POST", path, "")
	// A key that a request to another route has used is refused before anything begins.
	path = "/v1/council/" + s.settled(t, `"models":["7","8"]`, "Idempotency-Key", "used") + "/convene"
	if _, p := s.MustFail(t, 409, council.CodeConflict, "POST", path, "", "Idempotency-Key", "used"); !strings.Contains(p.Detail, "another request") {
		t.Errorf("a used key: %s", p.Detail)
	}
	if resp, data := s.Call(t, "POST", path, "", "Idempotency-Key", "fresh"); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %s %s", resp.Status, data)
	}
	// No client can send the internal key.
	s.MustFail(t, 422, council.CodeInvalid, "POST", "/v1/council", `{"query":"x"}`, "Idempotency-Key", "convene\tx")
}

// Two requests at once convene the council once.
func TestConveneTwiceAtOnce(t *testing.T) {
	s := start(t, numbers())
	path := "/v1/council/" + s.settled(t, `"models":["7","8","7.0"]`) + "/convene"
	before := requests(s)
	codes := make(chan int, 4)
	for range cap(codes) {
		go func() {
			resp, _ := s.Call(t, "POST", path, "")
			codes <- resp.StatusCode
		}()
	}
	var got []int
	for range cap(codes) {
		got = append(got, <-codes)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]int{200, 409, 409, 409}, got); diff != "" || requests(s)-before != 6 {
		t.Errorf("%d requests to models, answers %s", requests(s)-before, diff)
	}
}

// Sessions that cannot be convened are refused before a call is paid, and the error says what to do.
func TestConveneRefused(t *testing.T) {
	const other = "another-token-of-16-characters"
	s := start(t, append(numbers(), simllm.Model{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}),
		func(o *httpapi.Options, _ *pipeline.Options) {
			o.Tokens = []httpapi.Token{
				{Name: "me", Secret: secret},
				{Name: "other", Secret: other},
				{Name: "reader", Secret: "a-token-that-may-not-ask", May: []council.Right{council.MayReport}},
			}
			o.Kept.Kept = 2
		})
	auth := []string{"Authorization", "Bearer " + secret}
	expired := s.settled(t, `"models":["7","8"]`, auth...)
	whole := s.ask(t, `{"query":"x","models":["7","8"]}`, auth...).ID
	different := s.ask(t, `{"query":"x","models":["7","8","7.0"],"first":2,"answer_form":{"type":"number"}}`, auth...).ID
	asked := requests(s)
	running := s.background(t, `"query":"x","models":["hang","7"],"first":1`, auth...)
	for requests(s) == asked { // The first request may come late.
		time.Sleep(time.Millisecond)
	}
	for name, tt := range map[string]struct {
		id, token string
		status    int
		code      council.Code
		fix       string
	}{
		"it runs":                     {running, secret, 409, council.CodeConflict, "wait for its end"},
		"it has no first":             {whole, secret, 409, council.CodeConflict, "ask the question again"},
		"it was convened in itself":   {different, secret, 409, council.CodeConflict, "read its answer"},
		"it has expired":              {expired, secret, 404, council.CodeNotFound, "GET /v1/council"},
		"it is somebody else's":       {whole, other, 404, council.CodeNotFound, "GET /v1/council"},
		"the token may not ask":       {whole, "a-token-that-may-not-ask", 403, council.CodeForbidden, ""},
		"there is no such session":    {"none", secret, 404, council.CodeNotFound, "GET /v1/council"},
		"the token is not a good one": {whole, "wrong", 401, council.CodeUnauthorized, ""},
	} {
		before := requests(s)
		_, p := s.MustFail(t, tt.status, tt.code, "POST", "/v1/council/"+tt.id+"/convene", "", "Authorization", "Bearer "+tt.token)
		if !strings.Contains(p.Detail, tt.fix) || requests(s) != before {
			t.Errorf("%s: %s, %d requests", name, p.Detail, requests(s)-before)
		}
	}
	path := "/v1/council/" + different + "/convene"
	s.MustFail(t, 422, council.CodeInvalid, "POST", path, `{"query":"x"}`, auth...)
	s.MustFail(t, 422, council.CodeInvalid, "POST", path, `{"stream":true,"background":true}`, auth...)
	s.MustFail(t, 400, council.CodeMalformed, "POST", path, `{`, auth...)
	s.Call(t, "DELETE", "/v1/council/"+running, "", auth...)
	s.Watch(t, running, auth...)
	_, p := s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council/"+running+"/convene", "", auth...)
	if !strings.Contains(p.Detail, "ask the question again") {
		t.Errorf("a cancelled session: %s", p.Detail)
	}
}

// A convened session does not end with its client, because a second request could not begin it again.
func TestConvenedSessionOutlivesItsClient(t *testing.T) {
	s := start(t, append(numbers(), simllm.Model{Name: "slow", Reply: func(simllm.Task) (string, bool) {
		time.Sleep(300 * time.Millisecond)
		return "", false
	}}))
	id := s.settled(t, `"models":["7","slow"]`)
	resp, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/council/"+id+"/convene", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := *s.Client()
	client.Timeout = 50 * time.Millisecond
	if answer, err := client.Do(resp); err == nil {
		answer.Body.Close()
		t.Fatalf("the client got an answer before it left: %s", answer.Status)
	}
	_, p := s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council/"+id+"/convene", "")
	s.Watch(t, p.SessionID)
	if session := s.session(t, p.SessionID); session.Status != council.StatusComplete {
		t.Errorf("the session is %s", session.Status)
	}
}

// Feedback on a session without a synthesis prefers members' answers.
func TestFeedbackWithoutSynthesis(t *testing.T) {
	labels := &fakeLabels{key: "s3cret"}
	s := start(t, numbers(), func(o *httpapi.Options, _ *pipeline.Options) { o.Labels = labels })
	for _, mode := range []string{"ranked", "vote"} {
		id := s.ask(t, `{"query":"How many?","models":["7","8","7.0"],"mode":"`+mode+`","answer_form":{"type":"number"}}`).ID
		path := "/v1/council/" + id + "/feedback"
		if resp, data := s.Call(t, "POST", path, `{"preferred":"8","over":["7"],"rating":2}`); resp.StatusCode != http.StatusCreated {
			t.Errorf("%s: %s %s", mode, resp.Status, data)
		}
		_, p := s.MustFail(t, 422, council.CodeInvalid, "POST", path, `{"preferred":"synthesis","over":["7"]}`)
		if len(p.Errors) != 1 || p.Errors[0].Field != "preferred" {
			t.Errorf("%s: %+v", mode, p.Errors)
		}
	}
}
