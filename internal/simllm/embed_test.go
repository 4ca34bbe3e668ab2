package simllm

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/growth"
)

func postEmbeddings(s *Server, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/embeddings", bytes.NewReader(body)))
	return w
}

func TestEmbeddings(t *testing.T) {
	s := newServer(t, Model{Name: "m"})
	w := postEmbeddings(s, encode(object{"model": "m", "input": []string{"Air scatters light.", "Light, scattered by air", "!"}}))
	if w.Code != 200 || w.Header().Get("X-Simulated") != "true" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	reply := decode[embeddings](t, w.Body.Bytes())
	if len(reply.Data) != 3 || reply.Usage == nil || reply.Usage.PromptTokens < 1 {
		t.Fatalf("%d embeddings, usage %+v", len(reply.Data), reply.Usage)
	}
	for i, e := range reply.Data {
		v, _ := e.Embedding.([]any)
		sum := 0.
		for _, x := range v {
			sum += x.(float64) * x.(float64)
		}
		if e.Index != i || len(v) != dimensions || sum == 0 {
			t.Errorf("embedding %d has the place %d, %d numbers, and the squares add up to %v", i, e.Index, len(v), sum)
		}
	}
	if one := postEmbeddings(s, encode(object{"model": "m", "input": "one text"})); one.Code != 200 {
		t.Errorf("a single text: %d %s", one.Code, one.Body)
	}
	if got := s.Stats().Models["m"].Requests; got != 2 {
		t.Errorf("%d requests were counted", got)
	}
}

func TestEmbeddingsRefuses(t *testing.T) {
	s := newServer(t, Model{Name: "m"})
	for body, want := range map[string]struct {
		status  int
		message string
	}{
		`{"model":"x","input":["a"]}`: {404, "does not exist"},
		`{"model":"m","input":[]}`:    {400, "at least one text"},
		`{"model":"m"}`:               {400, "at least one text"},
		`{"model":"m","input":[7]}`:   {400, "not the JSON"},
		`x`:                           {400, "not the JSON"},
	} {
		w := postEmbeddings(s, []byte(body))
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.message) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestEmbeddingTimePerByte(t *testing.T) {
	for _, unit := range []string{"why ", "x", "!", "\u00e9"} {
		growth.Linear(t, func(n int) func() {
			text := strings.Repeat(unit, n/len(unit))
			return func() { embed(text) }
		})
	}
}
