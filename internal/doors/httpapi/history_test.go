package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
)

// startKept starts a server that keeps its sessions in a directory. The chairman writes what the function answer returns
// for a question.
func startKept(t *testing.T, dir string, answer func(question string) string) (s *server, stop func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: dir, MaxBytes: 64 << 20, Prefix: "council", Node: "node", Replicas: 1, Lease: time.Minute, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	writer := simllm.Model{Name: "writer", Reply: func(task simllm.Task) (string, bool) {
		question := task.Question
		if i := strings.LastIndex(question, "user:\n"); i >= 0 {
			question = question[i:]
		}
		return answer(question), task.Kind == simllm.Synthesis
	}}
	s = start(t, []simllm.Model{writer}, func(o *httpapi.Options, p *pipeline.Options) {
		p.Chairman = "writer"
		o.Kept.Journal, o.Kept.Node, o.Kept.Log = j, "node", log
	})
	return s, func() {
		if err := s.API.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := j.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// list returns the ids of a list of sessions, with their names in the argument names, and the whole list.
func (s *server) list(t *testing.T, query string, names map[string]string) (string, httpapi.SessionList) {
	t.Helper()
	list := fetch[httpapi.SessionList](t, s, "/v1/council"+query)
	var got []string
	for _, summary := range list.Sessions {
		got = append(got, names[summary.ID])
	}
	return strings.Join(got, " "), list
}

// TestConversations holds that follow-ups belong to their conversation whichever door they come through, and that lists
// are searched and filtered, also after a restart.
func TestConversations(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	long := "Yes, **one** is enough.\n\n" + strings.Repeat("So it is. ", 20<<10) + "A NEEDLE ends it."
	var again atomic.Bool // the question is asked a second time
	answer := func(question string) string {
		switch {
		case again.Load():
			return long[:30] + "\n\nFor other reasons."
		case strings.Contains(question, "Which one?"):
			return "The second one."
		case strings.Contains(question, "Is one enough?"):
			return long
		default:
			return "Something else."
		}
	}
	s, stop := startKept(t, dir, answer)
	names := map[string]string{}
	ask := func(name, body string) string {
		t.Helper()
		id := s.background(t, body)
		s.Watch(t, id)
		names[id] = name
		return id
	}
	messages := func(texts ...string) string {
		var all []council.Message
		for i, text := range texts {
			all = append(all, council.Message{Role: []string{council.RoleUser, council.RoleAssistant}[i%2], Content: text})
		}
		data, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return `"messages":` + string(data)
	}
	first := ask("first", `"query":"Is one enough?"`)
	other := ask("other", `"query":"And two?","models":["amber","birch"]`)
	again.Store(true)
	twin := ask("twin", `"query":"Is one enough?"`)
	again.Store(false)
	second := ask("second", messages("Is one enough?", long, "Which one?"))
	ofTwin := ask("of-twin", messages("Is one enough?", long[:30]+"\n\nFor other reasons.\n\n(A note.)", "Why?"))
	branch := ask("branch", messages("Is one enough? ", long+"\n\n(A note.)", "And what of branches?"))
	third := ask("third", messages("Is one enough?", "what a client made of it", "Which one?", "The second one.\n\n(A note.)", "Why?"))
	stranger := ask("stranger", messages("Is one enough?", "No.", "Why not?"))

	for id, want := range map[string]council.Turn{
		first: {}, other: {}, twin: {}, stranger: {}, ofTwin: {Earlier: twin, Thread: twin}, second: {Earlier: first, Thread: first}, branch: {Earlier: first, Thread: first},
		third: {Earlier: second, Thread: first},
	} {
		if diff := cmp.Diff(want, s.session(t, id).Turn); diff != "" {
			t.Errorf("%s: %s", names[id], diff)
		}
	}
	chat := `{"model":"council","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"And two?"},
		{"role":"assistant","content":"Something else."},{"role":"user","content":"Why?"}]}`
	resp, data := s.Call(t, "POST", "/v1/chat/completions", chat, "Idempotency-Key", "chat")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	names[s.sessions(t)[0].ID] = "chat"

	created := func(id string) string { return s.session(t, id).Created.Format(time.RFC3339Nano) }
	check := func(again string) {
		t.Helper()
		for _, tt := range []struct {
			query, want string
			more        bool
		}{
			{"", "chat stranger third branch of-twin second twin other first", false},
			{"?q=needle", "first", false},
			{"?q=The+second", "second", false},
			{"?council=default", "chat stranger third branch of-twin second twin other first", false},
			{"?council=fast", "", false},
			{"?since=" + created(second), "chat stranger third branch of-twin second", false},
			{"?until=" + created(second), "twin other first", false},
			{"?until=2020-01-01", "", false},
			{"?thread=" + third, "third branch second first", false},
			{"?thread=nothing", "", false},
			{"?threads=true", "chat other stranger third branch second first of-twin twin", false},
			{"?threads=true&limit=1", "chat other", true},
			{"?threads=true&limit=1&before=" + other, "stranger", true},
			{"?threads=true&q=needle", "third branch second first", false},
			{"?threads=true&q=needle&before=" + first, "", false},
		} {
			got, list := s.list(t, tt.query, names)
			if got != tt.want || list.More != tt.more || list.More != (list.Next != "") {
				t.Errorf("%s%s: %q, more is %v, next is %q", again, tt.query, got, list.More, list.Next)
			}
		}
	}
	check("")

	resp, data = s.Call(t, "PATCH", "/v1/council/"+first, `{"title":"  One or two `+strings.Repeat("é", 188)+`"}`)
	var renamed council.Summary
	if err := json.Unmarshal(data, &renamed); err != nil || resp.StatusCode != http.StatusOK ||
		!strings.HasPrefix(renamed.Title, "One or two é") || renamed.Answer != "Yes, **one** is enough." ||
		renamed.Query != "Is one enough?" || renamed.Council != council.DefaultCouncil || renamed.Thread != first {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if resp, data = s.Call(t, "PATCH", "/v1/council/"+first, `{"title":"`+strings.Repeat("é", 201)+`"}`); resp.StatusCode != 422 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	check("renamed ")
	stop()
	s, stop = startKept(t, dir, answer)
	defer stop()
	check("after a restart ")
	if got, list := s.list(t, "?q=ONE+OR+TWO", names); got != "first" || list.Sessions[0].Title != renamed.Title {
		t.Errorf("after a restart the title finds %q", got)
	}
	if resp, data := s.Call(t, "PATCH", "/v1/council/"+first, `{"title":""}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if _, list := s.list(t, "?thread="+first+"&q=needle", names); len(list.Sessions) != 1 || list.Sessions[0].Title != "Is one enough?" {
		t.Errorf("without a title: %+v", list.Sessions)
	}
	if resp, data := s.Call(t, "DELETE", "/v1/council/"+first, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if got, _ := s.list(t, "?thread="+second, names); got != "third branch second" {
		t.Errorf("without its first session, the conversation has %q", got)
	}
}

// TestRenameIsOfTheOwner holds that a session of another token, or one that runs, is not renamed.
func TestRenameIsOfTheOwner(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	hang := simllm.Model{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	s := start(t, []simllm.Model{hang}, func(o *httpapi.Options, _ *pipeline.Options) {
		o.Tokens = limited(httpapi.Limits{}, secret, "0123456789abcdef0123")
	})
	mine := []string{"Authorization", "Bearer " + secret}
	id := s.background(t, `"query":"x","models":["hang","hang"]`, mine...)
	for _, tt := range []struct {
		headers []string
		want    int
	}{{mine, 409}, {[]string{"Authorization", "Bearer 0123456789abcdef0123"}, 404}} {
		if resp, data := s.Call(t, "PATCH", "/v1/council/"+id, `{"title":"x"}`, tt.headers...); resp.StatusCode != tt.want {
			t.Errorf("%d %s, want %d", resp.StatusCode, data, tt.want)
		}
	}
	s.Call(t, "DELETE", "/v1/council/"+id, "", mine...)
}
