package simllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token   = "0123456789abcdef"
	ranking = `End with {"ranking": [...], "scores": {...}}.`
)

// brief returns a review or synthesis prompt in the form of the package comment.
func brief(token, question string, answers []Answer, reviews []string, instructions string) string {
	var b strings.Builder
	block := func(tag, text string) {
		fmt.Fprintf(&b, "=== BEGIN %[1]s ===\n%[2]s\n=== END %[1]s ===\n\n", tag, text)
	}
	block("QUESTION "+token, question)
	for _, a := range answers {
		block("ANSWER "+token+": "+a.Label, a.Text)
	}
	for i, r := range reviews {
		block(fmt.Sprintf("REVIEW %s: Reviewer %d", token, i+1), r)
	}
	return b.String() + instructions
}

// labelled returns the texts under the labels Response A, Response B, ...
func labelled(texts ...string) []Answer {
	answers := make([]Answer, len(texts))
	for i, text := range texts {
		answers[i] = Answer{Label: "Response " + string(rune('A'+i)), Text: text}
	}
	return answers
}

// object is the JSON of a request.
type object map[string]any

// chat returns a request with one user message.
func chat(model, content string) object {
	return object{"model": model, "messages": []object{{"role": "user", "content": content}}}
}

func newServer(tb testing.TB, models ...Model) *Server {
	tb.Helper()
	s, err := New(Options{Models: models})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// names returns the names of the models, in the order configured.
func (s *Server) names() []string {
	var names []string
	for _, m := range s.configured {
		names = append(names, m.Name)
	}
	return names
}

// ask returns the text of the reply to a request, without a network.
func ask(tb testing.TB, s *Server, model, content string) string {
	tb.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(encode(chat(model, content)))))
	if w.Code != 200 {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return textOf(tb, w.Body.Bytes())
}

// textOf returns the text of a completion.
func textOf(tb testing.TB, body []byte) string {
	tb.Helper()
	c := decode[completion](tb, body)
	if len(c.Choices) != 1 || c.Choices[0].Message == nil || c.Choices[0].Message.Content == nil {
		tb.Fatalf("no text in %s", body)
	}
	return *c.Choices[0].Message.Content
}

func decode[T any](tb testing.TB, body []byte) T {
	tb.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		tb.Fatalf("%v in %.200q", err, body)
	}
	return v
}

// ballotOf returns the ballot at the end of a review.
func ballotOf(tb testing.TB, review string) ballot {
	tb.Helper()
	_, object, ok := strings.Cut(review, "```json\n")
	object, closed := strings.CutSuffix(object, "\n```\n")
	if !ok || !closed {
		tb.Fatalf("no fenced JSON at the end of %q", review)
	}
	return decode[ballot](tb, []byte(object))
}

// remote is a server on the loopback interface and a client of its own.
type remote struct {
	*Running
	client *http.Client
}

func start(tb testing.TB, o Options) remote {
	tb.Helper()
	running, err := Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(running.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	tb.Cleanup(transport.CloseIdleConnections)
	return remote{running, &http.Client{Transport: transport}}
}

// received is what a client saw of a response. Whatever arrived before an error
// is there.
type received struct {
	status  int // 0: no headers came
	header  http.Header
	length  int64 // of the Content-Length header, -1 without one
	chunked bool
	body    []byte
	err     error
}

// post sends a request and reads the whole response.
func (r remote) post(ctx context.Context, body object) received {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL()+"/chat/completions", bytes.NewReader(encode(body)))
	if err != nil {
		return received{err: err}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return received{err: err}
	}
	defer resp.Body.Close()
	got := received{
		status: resp.StatusCode, header: resp.Header, length: resp.ContentLength,
		chunked: slices.Contains(resp.TransferEncoding, "chunked"),
	}
	got.body, got.err = io.ReadAll(resp.Body)
	return got
}

// whole tells whether a completion arrived.
func (r received) whole() bool { return r.err == nil && r.status == 200 && json.Valid(r.body) }

// choice returns the choice of a completion, with a message at any rate.
func (r received) choice() choice {
	var c completion
	if json.Unmarshal(r.body, &c) != nil || len(c.Choices) != 1 || c.Choices[0].Message == nil {
		return choice{Message: &message{}}
	}
	return c.Choices[0]
}

// text returns the text of a completion, or "(none)".
func (r received) text() string {
	if content := r.choice().Message.Content; content != nil {
		return *content
	}
	return "(none)"
}

// failure returns the error object.
func (r received) failure() errorObject {
	var e errorBody
	if json.Unmarshal(r.body, &e) != nil {
		return errorObject{Message: "(no JSON)"}
	}
	return e.Error
}

// String keeps the messages of failed tests short.
func (r received) String() string {
	return fmt.Sprintf("status %d, header %v, length %d, chunked %t, error %v, body of %d bytes: %.500s",
		r.status, r.header, r.length, r.chunked, r.err, len(r.body), r.body)
}
