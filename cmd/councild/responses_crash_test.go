package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// streamedResponse is what the tests of this file read of a response.
type streamedResponse struct {
	ID, Status string
	Metadata   map[string]string
	Output     []struct{ Content []struct{ Text string } }
}

// streamedEvent is what they read of an event.
type streamedEvent struct {
	Type, Delta    string
	SequenceNumber int               `json:"sequence_number"`
	Response       *streamedResponse `json:"response"`
}

// halfDrafts is a provider whose model writes each time another text, in single words. It waits in the middle of a text
// until the function release is called.
func halfDrafts(t *testing.T) (url string, release func()) {
	t.Helper()
	var drafts atomic.Int32
	more := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		draft := drafts.Add(1)
		const words = 40
		for i := range words {
			if i == words/2 {
				select {
				case <-more:
				case <-r.Context().Done():
					return
				}
			}
			end := "null"
			if i == words-1 {
				end = `"stop"`
			}
			fmt.Fprintf(w, `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,`+
				`"delta":{"content":"draft%d-%d-🙂 "},"finish_reason":%s}]}`+"\n\n", draft, i, end)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", func() { close(more) }
}

// A daemon is killed while a client follows a response. The client comes back to the next daemon with the number of the
// last event that it has. It gets no piece of another draft than its own, and the whole text at the end.
func TestFaultF70ResponseAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	kills := 0
	for seen := 1; seen <= 20; seen += 6 {
		url, release := halfDrafts(t)
		env := []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=a,b", "LLM_COUNCIL_BASE_URL=" + url,
			"LLM_COUNCIL_DATA_DIR=" + t.TempDir(), "LLM_COUNCIL_BIAS_PERSISTENCE=false",
		}
		s, base := startResponses(t, env)
		id, text, after := beginResponse(t, base, seen)
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait() // It was killed.
		kills++
		release()
		s, base = startResponses(t, env)
		text, whole := followResponse(t, base, id, text, after, func() {})
		if strings.Contains(text, "draft2") {
			t.Errorf("after the kill the client has %q, and the response is %q", text, whole)
		}
		var now streamedResponse
		status, data := daemontest.Caller{Base: base}.Call(t, http.MethodGet, "/v1/responses/"+id, "")
		if err := json.Unmarshal(data, &now); err != nil || status != http.StatusOK || now.Status != "completed" ||
			now.Metadata["a"] != "b" || now.Output[0].Content[0].Text != whole {
			t.Errorf("it ended as %s: %v", data, err)
		}
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait() // It was killed.
	}
	daemontest.Fault(t, "F70", "a response in the background keeps its id, and no text is made of two drafts",
		"%d times kill -9 in the middle of the text; 0 texts were made of two drafts", kills)
}

// The node that runs a response is killed. A client that followed it there comes back to another node, at once, with the
// number of its last event. Another client follows at the other node from the beginning. Neither gets a text made of two
// drafts, and both get the whole text at the end.
func TestFaultF76ResponseAtAnotherNode(t *testing.T) {
	testkit.Slow(t)
	nats := journaltest.Start(t).URL
	kills := 0
	for seen := 1; seen <= 20; seen += 6 {
		url, release := halfDrafts(t)
		env := []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_MODELS=a,b", "LLM_COUNCIL_BASE_URL=" + url, "LLM_COUNCIL_NATS_URL=" + nats,
			"LLM_COUNCIL_BIAS_PERSISTENCE=false", constants(map[string]any{"Lease": 2 * time.Second}),
		}
		one, first := startResponses(t, env)
		two, second := startResponses(t, env)
		id, text, after := beginResponse(t, first, seen)
		daemontest.Until(t, func() bool { // The other node hears of the response a little later.
			status, _ := daemontest.Caller{Base: second}.Call(t, http.MethodGet, "/v1/responses/"+id, "")
			return status == http.StatusOK
		})
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		early := seen%4 == 1 // do not wait until the client at the other node has text
		var follower sync.WaitGroup
		follower.Go(func() {
			defer begin() // also if the stream fails
			text, whole := followResponse(t, second, id, "", 0, begin)
			if strings.Contains(text, "draft2") && text != whole || !early && !strings.HasPrefix(text, "draft1") {
				t.Errorf("a client at the other node has %q, and the response is %q", text, whole)
			}
		})
		if !early {
			<-begun
		}
		if err := one.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = one.Wait() // It was killed.
		kills++
		release()
		if text, whole := followResponse(t, second, id, text, after, func() {}); strings.Contains(text, "draft2") {
			t.Errorf("after the kill the client has %q, and the response is %q", text, whole)
		}
		follower.Wait()
		if err := two.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = two.Wait() // It was killed.
	}
	daemontest.Fault(t, "F76", "a response in the background continues at another node, and no text is made of two drafts",
		"%d times kill -9 of a node in the middle of the text, 2 clients each; 0 texts were made of two drafts", kills)
}

// beginResponse begins a response in the background and follows it until so many words have arrived. It returns the text
// so far, and the number of the last event.
func beginResponse(t *testing.T, base string, words int) (id, text string, after int) {
	t.Helper()
	const body = `{"model":"council/a","input":"x","background":true,"stream":true,"metadata":{"a":"b"}}`
	var got strings.Builder
	for e := range responseEvents(t, http.MethodPost, base+"/v1/responses", body) {
		if e.Response != nil {
			id = e.Response.ID
		}
		got.WriteString(e.Delta)
		after = e.SequenceNumber
		if strings.Count(got.String(), " ") >= words {
			break
		}
	}
	return id, got.String(), after
}

// followResponse reads the rest of a stream, behind an event, to its end. It calls begun for each piece of text. It returns
// the text with that of all pieces, and the text of the last event, which must be the second draft.
func followResponse(t *testing.T, base, id, text string, after int, begun func()) (all, whole string) {
	t.Helper()
	var last streamedEvent
	var got strings.Builder
	got.WriteString(text)
	for e := range responseEvents(t, http.MethodGet, fmt.Sprintf("%s/v1/responses/%s?stream=true&starting_after=%d", base, id, after), "") {
		if e.Delta != "" {
			begun()
		}
		got.WriteString(e.Delta)
		last = e
	}
	return got.String(), secondDraft(t, last)
}

// secondDraft returns the text of the last event of a stream. It must be the whole second draft of halfDrafts.
func secondDraft(t *testing.T, last streamedEvent) string {
	t.Helper()
	if last.Type != "response.completed" {
		t.Errorf("the stream ends with %+v", last)
		return ""
	}
	whole := last.Response.Output[0].Content[0].Text
	if !strings.HasPrefix(whole, "draft2-0-🙂 ") || !strings.Contains(whole, "draft2-39-") || strings.Contains(whole, "draft1") {
		t.Errorf("the response is %q", whole)
	}
	return whole
}

// startResponses starts a daemon and returns the base of its URLs.
func startResponses(t *testing.T, env []string) (p *process, base string) {
	t.Helper()
	p = start(t, env, "serve")
	base, _, _ = strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
	go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
	return p, base
}

// responseEvents yields the events of a stream. The connection is closed after the last one that is wanted.
func responseEvents(t *testing.T, method, url, body string) func(yield func(streamedEvent) bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return func(yield func(streamedEvent) bool) {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var e streamedEvent
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if !yield(e) {
				return
			}
		}
	}
}
