package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
)

// client is a client of a server that asks for tokens.
type client struct {
	*doortest.Server
	headers []string
}

// call sends a request, checks the status of the answer, and reads the answer into a T.
func call[T any](t *testing.T, c client, status int, method, path, body string, headers ...string) (v T) {
	t.Helper()
	resp, data := c.Call(t, method, path, body, append(headers, c.headers...)...)
	if err := json.Unmarshal(data, &v); err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
	}
	return v
}

// ended waits until a response has ended, and returns it.
func (c client) ended(t *testing.T, id string) openai.Response {
	t.Helper()
	for {
		if r := call[openai.Response](t, c, 200, "GET", "/v1/responses/"+id, ""); r.Status != "in_progress" {
			return r
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestResponseInBackground holds that a response in the background can be fetched, streamed from any event, listed and
// deleted, and only with the token that asked for it.
func TestResponseInBackground(t *testing.T) {
	t.Parallel()
	writer := simllm.Model{Name: "writer", Reply: func(task simllm.Task) (string, bool) {
		return "Ein Rat 🙂 mit Emojis 👩‍🚀, und noch ein Satz.", task.Kind == simllm.Synthesis
	}}
	s := doortest.Start(t, []simllm.Model{writer}, func(o *httpapi.Options, p *pipeline.Options) {
		o.Tokens = doortest.Tokens(doortest.Secret, doortest.Secret+"2")
		p.Chairman = "writer"
	})
	mine := client{s, []string{"Authorization", "Bearer " + doortest.Secret}}
	other := client{s, []string{"Authorization", "Bearer " + doortest.Secret + "2"}}
	begun := call[openai.Response](t, mine, 200, "POST", "/v1/responses", `{"model":"council","background":true,"instructions":"I.",
		"input":[{"role":"user","content":"Q1"},{"role":"assistant","content":"A1"},{"role":"user","content":"Q2"}],
		"metadata":{"a":"b","category":"math"},"temperature":0.5,"reasoning":{"effort":"low"},"text":{"verbosity":"low"},"truncation":null}`)
	if begun.Status != "in_progress" || !begun.Background || !begun.Store || len(begun.Output) != 0 || begun.Metadata["a"] != "b" {
		t.Errorf("it begins as %+v", begun)
	}
	ended := mine.ended(t, begun.ID)
	if ended.Status != "completed" || ended.Metadata["a"] != "b" || ended.CompletedAt == nil ||
		!cmp.Equal(ended.Council.Ignored, []string{"temperature", "reasoning", "text.verbosity"}) || *ended.Instructions != "I." {
		t.Errorf("it ends as %+v", ended)
	}

	path := "/v1/responses/" + begun.ID
	_, whole := s.Call(t, "GET", path+"?stream=true", "", mine.headers...)
	all := events(t, whole)
	text := []rune(ended.Output[0].Content[0].Text)
	for i, want := range []int{0, 1, 2, 3} {
		if all[i].SequenceNumber != want {
			t.Errorf("event %d has the number %d", i, all[i].SequenceNumber)
		}
	}
	if last := all[len(all)-1]; last.SequenceNumber != 3+len(text)+4 || last.Type != "response.completed" {
		t.Errorf("the last event is %d %s", last.SequenceNumber, last.Type)
	}
	for after := range 3 + len(text) + 5 {
		_, data := s.Call(t, "GET", fmt.Sprintf("%s?stream=true&starting_after=%d", path, after), "", mine.headers...)
		rest := events(t, data)
		var deltas strings.Builder
		for _, e := range rest {
			if e.SequenceNumber <= after {
				t.Errorf("after %d: %d comes again", after, e.SequenceNumber)
			}
			deltas.WriteString(e.Delta)
		}
		if want := string(text[min(max(0, after-3), len(text)):]); deltas.String() != want {
			t.Errorf("after %d: %q, want %q", after, deltas.String(), want)
		}
	}

	var ids []string
	list := call[openai.ResponseItems](t, mine, 200, "GET", path+"/input_items?limit=2", "")
	for list.HasMore {
		ids = append(ids, list.Data[0].ID, list.Data[1].ID)
		list = call[openai.ResponseItems](t, mine, 200, "GET", path+"/input_items?limit=2&after="+*list.LastID, "")
	}
	session := strings.TrimPrefix(begun.ID, "resp_")
	item := list.Data[0]
	ids = append(ids, item.ID)
	if want := []string{"msg_" + session + "_2", "msg_" + session + "_1", "msg_" + session + "_0"}; !cmp.Equal(ids, want) {
		t.Errorf("the items are %v", ids)
	}
	if item.Role != "user" || item.Content[0].Type != "input_text" || item.Content[0].Text != "Q1" || *list.FirstID != item.ID {
		t.Errorf("the last list is %+v", list)
	}
	oldest := call[openai.ResponseItems](t, mine, 200, "GET", path+"/input_items?order=asc", "")
	if a := oldest.Data[1]; oldest.HasMore || oldest.Data[0].ID != item.ID || a.Role != "assistant" || a.Content[0].Type != "output_text" {
		t.Errorf("the oldest first: %+v", oldest)
	}

	for _, route := range []struct{ method, path string }{
		{"GET", path}, {"GET", path + "?stream=true"}, {"GET", path + "/input_items"}, {"POST", path + "/cancel"}, {"DELETE", path},
	} {
		e := call[httpapi.ChatError](t, other, 404, route.method, route.path, "")
		if e.Error.Code != "not_found" || e.Error.Type != "invalid_request_error" {
			t.Errorf("%v: %+v", route, e)
		}
	}
	for _, query := range []string{
		"?stream=x", "?stream=true&starting_after=-1", "?stream=true&starting_after=x", "/input_items?limit=0", "/input_items?limit=101",
		"/input_items?order=x", "/input_items?after=x",
	} {
		if e := call[httpapi.ChatError](t, mine, 422, "GET", path+query, ""); e.Error.Param == nil || !strings.Contains(query, *e.Error.Param) {
			t.Errorf("%s: %+v", query, e)
		}
	}
	if unchanged := call[openai.Response](t, mine, 200, "POST", path+"/cancel", ""); !cmp.Equal(unchanged, ended) {
		t.Errorf("cancelled after its end, it is %+v", unchanged)
	}
	want := openai.ResponseDeletion{ID: begun.ID, Object: "response", Deleted: true}
	if got := call[openai.ResponseDeletion](t, mine, 200, "DELETE", path, ""); got != want {
		t.Errorf("deleted: %+v", got)
	}
	call[httpapi.ChatError](t, mine, 404, "GET", path, "")
	call[httpapi.ChatError](t, mine, 404, "GET", "/v1/responses/"+session, "")
	call[httpapi.ChatError](t, mine, 404, "GET", "/v1/responses/resp_x", "")
}

// TestResponseCancel holds that only a response in the background can be cancelled, and that none is deleted while it
// runs.
func TestResponseCancel(t *testing.T) {
	t.Parallel()
	hang := simllm.Model{Name: "hang", Faults: []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1}}}
	down := simllm.Model{Name: "down", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Rate: 1}}}
	c := client{Server: doortest.Start(t, []simllm.Model{hang, down})}
	begun := call[openai.Response](t, c, 200, "POST", "/v1/responses", `{"model":"council/hang,hang","input":"x","background":true}`)
	call[httpapi.ChatError](t, c, 422, "DELETE", "/v1/responses/"+begun.ID, "")
	call[httpapi.ChatError](t, c, 404, "POST", "/v1/responses",
		fmt.Sprintf(`{"model":"council","input":"x","previous_response_id":%q}`, begun.ID))
	cancelled := call[openai.Response](t, c, 200, "POST", "/v1/responses/"+begun.ID+"/cancel", "")
	if cancelled.Status != "cancelled" || len(cancelled.Output) != 0 {
		t.Errorf("cancelled: %+v", cancelled)
	}
	if again := call[openai.Response](t, c, 200, "POST", "/v1/responses/"+begun.ID+"/cancel", ""); !cmp.Equal(again, cancelled) {
		t.Errorf("cancelled again: %+v", again)
	}
	_, data := c.Call(t, "GET", "/v1/responses/"+begun.ID+"?stream=true", "")
	if all := events(t, data); all[len(all)-1].Type != "response.failed" || all[len(all)-1].Response.Status != "cancelled" {
		t.Errorf("the stream of a cancelled response: %s", data)
	}

	failed := call[openai.Response](t, c, 200, "POST", "/v1/responses", `{"model":"council/down,down","input":"x","background":true}`)
	if failed = c.ended(t, failed.ID); failed.Status != "failed" || failed.Error == nil || failed.Error.Code != "no_quorum" {
		t.Errorf("failed: %+v", failed)
	}

	req, err := http.NewRequestWithContext(t.Context(), "POST", c.URL+"/v1/responses",
		strings.NewReader(`{"model":"council/hang,hang","input":"foreground","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	list := call[httpapi.SessionList](t, c, 200, "GET", "/v1/council?status=running", "")
	e := call[httpapi.ChatError](t, c, 422, "POST", "/v1/responses/resp_"+list.Sessions[0].ID+"/cancel", "")
	if !strings.Contains(e.Error.Message, "background") {
		t.Errorf("in the foreground: %+v", e)
	}
}

// TestResponseOfOtherDoors holds that every session can be read as a response.
func TestResponseOfOtherDoors(t *testing.T) {
	t.Parallel()
	c := client{Server: doortest.Start(t, nil)}
	chat := call[openai.Chat](t, c, 200, "POST", "/v1/chat/completions",
		`{"model":"council/dune","messages":[{"role":"system","content":"S"},{"role":"user","content":"Q"}]}`)
	id := "resp_" + chat.Council.SessionID
	r := call[openai.Response](t, c, 200, "GET", "/v1/responses/"+id, "")
	if r.Model != "council/dune" || r.Background || r.Output[0].Content[0].Text != chat.Choices[0].Message.Content {
		t.Errorf("got %+v", r)
	}
	items := call[openai.ResponseItems](t, c, 200, "GET", "/v1/responses/"+id+"/input_items?order=asc", "")
	if len(items.Data) != 2 || items.Data[0].Role != "system" {
		t.Errorf("got %+v", items)
	}
	_, data := c.Call(t, "GET", "/v1/responses/"+id+"?stream=true", "")
	if all := events(t, data); all[len(all)-1].Type != "response.completed" {
		t.Errorf("got %s", data)
	}
}

// TestPreviousResponse holds that a response continues the conversation of an earlier one, without its instructions.
func TestPreviousResponse(t *testing.T) {
	t.Parallel()
	c := client{Server: doortest.Start(t, nil)}
	var previous string
	var answers []string
	for i := range 3 {
		body := fmt.Sprintf(`{"model":"council/dune","instructions":"I%d","input":"Q%d","previous_response_id":%q}`, i, i, previous)
		r := call[openai.Response](t, c, 200, "POST", "/v1/responses", body)
		if r.PreviousResponseID == nil && i > 0 || r.PreviousResponseID != nil && *r.PreviousResponseID != previous {
			t.Errorf("turn %d continues %v", i, r.PreviousResponseID)
		}
		previous = r.ID
		answers = append(answers, r.Output[0].Content[0].Text)
	}
	_, data := c.Call(t, "GET", "/v1/council/"+strings.TrimPrefix(previous, "resp_")+"/request", "")
	var asked struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(data, &asked); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range asked.Messages {
		got = append(got, m.Role+" "+m.Content)
	}
	want := []string{"system I2", "user Q0", "assistant " + answers[0], "user Q1", "assistant " + answers[1], "user Q2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	e := call[httpapi.ChatError](t, c, 422, "POST", "/v1/responses",
		fmt.Sprintf(`{"model":"council/dune","previous_response_id":%q,"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, previous))
	if *e.Error.Param != "input[0].content[0]" {
		t.Errorf("a problem of the input is at %s", *e.Error.Param)
	}
}

// TestResponseNotStored holds that "store": false deletes the session once it is answered, but not before a client with
// an Idempotency-Key can ask again.
func TestResponseNotStored(t *testing.T) {
	t.Parallel()
	c := client{Server: doortest.Start(t, nil)}
	const body = `{"model":"council/dune","input":"x","store":false`
	r := call[openai.Response](t, c, 200, "POST", "/v1/responses", body+"}")
	call[httpapi.ChatError](t, c, 404, "GET", "/v1/responses/"+r.ID, "")
	_, data := c.Call(t, "POST", "/v1/responses", body+`,"stream":true}`)
	all := events(t, data)
	last := all[len(all)-1]
	call[httpapi.ChatError](t, c, 404, "GET", "/v1/responses/"+last.Response.ID, "")
	if r.Store || last.Response.Store || last.Type != "response.completed" {
		t.Errorf("stored: %v, %v", r.Store, last.Response.Store)
	}
	if list := call[httpapi.SessionList](t, c, 200, "GET", "/v1/council", ""); len(list.Sessions) != 0 {
		t.Errorf("left are %+v", list.Sessions)
	}
	for range 2 {
		keyed := call[openai.Response](t, c, 200, "POST", "/v1/responses", body+"}", "Idempotency-Key", "k")
		if !keyed.Store || r.ID != keyed.ID && r.ID[:5] != "resp_" {
			t.Errorf("with a key: %+v", keyed)
		}
	}
	if list := call[httpapi.SessionList](t, c, 200, "GET", "/v1/council", ""); len(list.Sessions) != 1 {
		t.Errorf("with a key, left are %+v", list.Sessions)
	}
}

// TestResponseDrafts holds that a text is never made of two drafts: not when the chairman is lost in the middle, and not
// when another daemon continues the session.
func TestResponseDrafts(t *testing.T) {
	t.Parallel()
	lost := simllm.Model{
		Name: "lost", Faults: []simllm.Fault{{Kind: simllm.StreamError, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}},
	}
	c := client{Server: doortest.Start(t, []simllm.Model{lost}, func(_ *httpapi.Options, p *pipeline.Options) { p.Chairman = "lost" })}
	_, data := c.Call(t, "POST", "/v1/responses", `{"model":"council","input":"x","background":true,"stream":true}`)
	all := events(t, data)
	id := all[0].Response.ID
	checkDrafts(t, c, id, all)
}

// checkDrafts checks the events of a client that read a part of a draft which was void later.
func checkDrafts(t *testing.T, c client, id string, all []event) {
	t.Helper()
	whole := c.ended(t, id).Output[0].Content[0].Text
	last := all[len(all)-1]
	var deltas int
	for _, e := range all {
		if e.Delta != "" {
			deltas = e.SequenceNumber
		}
	}
	if deltas == 0 || deltas >= 1<<24 || last.Type != "response.completed" || last.SequenceNumber <= 1<<24 || all[len(all)-4].Text != whole {
		t.Errorf("the last delta is %d, the last event %d %s", deltas, last.SequenceNumber, last.Type)
	}
	for after, want := range map[int]string{0: whole, 3: whole, deltas: "", 4: ""} {
		_, data := c.Call(t, "GET", fmt.Sprintf("/v1/responses/%s?stream=true&starting_after=%d", id, after), "", c.headers...)
		var text strings.Builder
		rest := events(t, data)
		for _, e := range rest {
			text.WriteString(e.Delta)
		}
		if text.String() != want || rest[len(rest)-1].SequenceNumber != last.SequenceNumber || rest[len(rest)-4].Text != whole {
			t.Errorf("after %d: %q, then %+v", after, text.String(), rest[len(rest)-4])
		}
	}
}

// TestResponseAfterRestart holds the same over a restart: the next daemon has the response, and what it repeats.
func TestResponseAfterRestart(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	var drafts atomic.Int32
	writer := simllm.Model{
		Name: "writer",
		Reply: func(task simllm.Task) (string, bool) {
			if task.Kind != simllm.Synthesis {
				return "", false
			}
			return strings.Repeat(fmt.Sprintf("Draft %d. 🙂 ", drafts.Add(1)), 20), true
		},
	}
	stalled := writer
	stalled.Faults = []simllm.Fault{{Kind: simllm.FaultStall, Rate: 1, Tasks: []simllm.TaskKind{simllm.Synthesis}}}
	begin := func(model simllm.Model) (c client, stop func()) {
		log := slog.New(slog.DiscardHandler)
		j, err := journal.Open(t.Context(), journal.Options{
			Dir: dir, MaxBytes: 64 << 20, Prefix: "council", Node: "node", Replicas: 1, Lease: time.Minute, Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Server = doortest.Start(t, []simllm.Model{model}, func(o *httpapi.Options, p *pipeline.Options) {
			p.Chairman = "writer"
			o.Kept.Journal, o.Kept.Node, o.Kept.Log = j, "node", log
		})
		c.API.Resume(t.Context())
		return c, func() {
			if err := c.API.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := j.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	c, stop := begin(stalled)
	asked := call[openai.Response](t, c, 200, "POST", "/v1/responses",
		`{"model":"council","input":"x","background":true,"metadata":{"a":"b"}}`)
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.URL+"/v1/responses/"+asked.ID+"?stream=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	buffer := make([]byte, 1<<10)
	for !strings.Contains(seen.String(), "output_text.delta") {
		n, err := resp.Body.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	stop()
	resp.Body.Close()
	complete, _, _ := strings.Cut(seen.String(), "event: response.output_text.delta")
	before := events(t, []byte(complete))

	c, stop = begin(writer)
	defer stop()
	_, data := c.Call(t, "GET", "/v1/responses/"+asked.ID+"?stream=true&starting_after=10", "")
	rest := events(t, data)
	for _, e := range rest { // The rest of the first draft may come, if the second one has not begun yet.
		if e.Delta != "" && (e.SequenceNumber >= 1<<24 || strings.Contains(e.Delta, "Draft 2")) {
			t.Errorf("a delta of the second draft: %+v", e)
		}
	}
	done := rest[len(rest)-4]
	if before[0].Response.ID != asked.ID || !strings.HasPrefix(done.Text, "Draft 2.") || strings.Contains(done.Text, "Draft 1.") ||
		done.Type != "response.output_text.done" || done.SequenceNumber < 1<<24 {
		t.Errorf("the client that comes back gets %s", data)
	}
	if ended := c.ended(t, asked.ID); ended.Status != "completed" || !ended.Background || ended.Metadata["a"] != "b" || ended.Model != "council" {
		t.Errorf("it ends as %+v", ended)
	}
}
