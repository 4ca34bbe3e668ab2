package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// streamedResponse is what TestFaultF70ResponseAfterKillNine reads of a response.
type streamedResponse struct {
	ID, Status string
	Metadata   map[string]string
	Output     []struct{ Content []struct{ Text string } }
}

// streamedEvent is what it reads of an event.
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
		const body = `{"model":"council/a","input":"x","background":true,"stream":true,"metadata":{"a":"b"}}`
		var id string
		var text strings.Builder
		after := 0
		for e := range responseEvents(t, http.MethodPost, base+"/v1/responses", body) {
			if e.Response != nil {
				id = e.Response.ID
			}
			text.WriteString(e.Delta)
			after = e.SequenceNumber
			if strings.Count(text.String(), " ") >= seen {
				break
			}
		}
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait() // It was killed.
		kills++
		release()
		s, base = startResponses(t, env)
		var last streamedEvent
		for e := range responseEvents(t, http.MethodGet, fmt.Sprintf("%s/v1/responses/%s?stream=true&starting_after=%d", base, id, after), "") {
			text.WriteString(e.Delta)
			last = e
		}
		if last.Type != "response.completed" {
			t.Fatalf("the stream ends with %+v", last)
		}
		whole := last.Response.Output[0].Content[0].Text
		if !strings.HasPrefix(whole, "draft2-0-🙂 ") || strings.Contains(whole, "draft1") || strings.Contains(text.String(), "draft2") {
			t.Errorf("after the kill the client has %q, and the response is %q", text.String(), whole)
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
