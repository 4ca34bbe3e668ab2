package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// thinks returns a model that answers and writes as replies say, by task. It reviews like any other.
func thinks(name string, replies map[simllm.TaskKind]string) simllm.Model {
	return simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
		reply, ok := replies[task.Kind]
		return reply, ok
	}}
}

// A reply that holds its thinking.
func TestFaultF48(t *testing.T) {
	const secret = "inner monologue"
	const begun = "<think>\nI am DeepSeek, and this is my " + secret + ".\n</think>\n\n"
	const unopened = "I am a model, and this is my " + secret + ".\n</think>\n\n"
	models := []simllm.Model{
		thinks("a", map[simllm.TaskKind]string{simllm.Question: begun + "The answer is 42.", simllm.Synthesis: begun + `{"answer":42}`}),
		thinks("b", map[simllm.TaskKind]string{simllm.Question: unopened + "It is 42.", simllm.Synthesis: unopened + `{"answer":42}`}),
		thinks("c", map[simllm.TaskKind]string{simllm.Question: "<think>\nThis is my " + secret + ", and"}),
		{Name: "d"},
	}
	prompts := 0
	for _, chairman := range []string{"a", "b"} {
		p := tapModels(t, models...)
		f := trialOf(t, p, "a,b,c,d", map[string]string{"CHAIRMAN": chairman, "QUORUM": "3"})
		_, stream, err := f.post(t.Context(), `,"stream":true`)
		if err != nil {
			t.Fatal(err)
		}
		var s council.Session
		var texts daemontest.Texts
		for _, e := range daemontest.Events(t, stream) {
			if err := texts.Take(e); err != nil {
				t.Error(err)
			}
			switch data := e.Data.(type) {
			case council.AnswerDelta:
				if data.Model != "b" && strings.Contains(data.Text, secret) {
					t.Errorf("a piece of the answer holds thinking: %q", data)
				}
			case council.AnswerRestart:
				if data.Model != "b" || data.Reason != council.FailThinking {
					t.Errorf("%+v", data)
				}
			case council.Delta, council.Restart: // of b it is known how it thinks
				if strings.Contains(fmt.Sprint(data), "monologue") {
					t.Errorf("a piece of the final answer holds thinking: %q", data)
				}
			case *council.Session:
				s = *data
			}
		}
		if s.Persisted {
			f.kept(s)
		}
		want := []string{"The answer is 42.", "It is 42."}
		for i, text := range want {
			if a := s.Stage1[i]; *a.Response != text || !strings.Contains(*a.Reasoning, secret) {
				t.Errorf("%s: %q, %v", a.Model, *a.Response, a.Reasoning)
			}
		}
		if a := s.Stage1[2]; a.Response != nil || a.Error == nil || a.Error.Code != council.FailEmpty {
			t.Errorf("%s: %+v", a.Model, a)
		}
		if s.Answer != `{"answer":42}` || s.Stage3.Reasoning == nil || !strings.Contains(*s.Stage3.Reasoning, secret) {
			t.Errorf("%q, %+v", s.Answer, s.Stage3)
		}
		for _, record := range f.Records(t) {
			if i := slices.Index([]string{"a", "b"}, record.ModelID); i >= 0 && record.ResponseLengthChars != len(want[i]) {
				t.Errorf("a record has %d characters for %q", record.ResponseLengthChars, want[i])
			}
		}

		_, chat, err := f.Send(t.Context(), "POST", "/v1/chat/completions",
			`{"model":"council","stream":true,"messages":[{"role":"user","content":"another question"}]}`)
		if err != nil || strings.Contains(string(chat), "monologue") || !strings.Contains(string(chat), "[DONE]") {
			t.Errorf("%.2000s, %v", chat, err)
		}
		before := len(f.requests(chairman, simllm.Synthesis))
		s = f.session(t, `,"output_schema":{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`)
		if calls := len(f.requests(chairman, simllm.Synthesis)) - before; calls != 1 || s.Answer != `{"answer":42}` || s.Stage3.Fallback != nil {
			t.Errorf("%d calls of the chairman for %q", calls, s.Answer)
		}
		p.mu.Lock()
		for _, body := range p.bodies {
			if strings.Contains(fmt.Sprint(body["messages"]), secret) {
				t.Errorf("%v is shown thinking: %v", body["model"], body["messages"])
			}
		}
		prompts += len(p.bodies)
		p.mu.Unlock()
	}
	daemontest.Fault(t, "F48", "no thinking in answers, prompts, lengths and streams; a reply that is nothing else is no answer; one call for a schema",
		"%d prompts without thinking; one call for a schema", prompts)
}

// A provider that cuts the prompt.
func TestFaultF49(t *testing.T) {
	const window = 4096
	count := regexp.MustCompile(`"(prompt|total)_tokens":(\d+)`)
	sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"}, simllm.Model{Name: "c"}, simllm.Model{Name: "d"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Model string }
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_ = json.Unmarshal(raw, &body)
		r.Body = io.NopCloser(bytes.NewReader(raw))
		if body.Model != "d" {
			sim.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		sim.ServeHTTP(whole, r)
		maps.Copy(w.Header(), whole.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(whole.Code)
		_, _ = w.Write(count.ReplaceAllFunc(whole.Body.Bytes(), func(found []byte) []byte {
			parts := count.FindSubmatch(found)
			n, _ := strconv.Atoi(string(parts[2]))
			return fmt.Appendf(nil, `"%s_tokens":%d`, parts[1], min(n, window))
		}))
	}))
	t.Cleanup(server.Close)
	d := daemontest.Start(t, map[string]string{"BASE_URL": server.URL, "MODELS": "a,b,c,d", "CHAIRMAN": "a"})
	long := strings.Repeat("Nobody in the village has ever asked the fox why it jumps over the dog. ", 600)
	for question, cut := range map[string]bool{"a short question": false, long: true} {
		body, err := json.Marshal(map[string]string{"query": question})
		if err != nil {
			t.Fatal(err)
		}
		s := d.Ask(t, string(body))
		i := slices.IndexFunc(s.Metadata.Warnings, func(w council.Warning) bool { return w.Code == council.WarnPromptCut })
		if (i >= 0) != cut || cut && !strings.Contains(s.Metadata.Warnings[i].Message, ": d;") {
			t.Errorf("%d bytes, warnings %+v", len(question), s.Metadata.Warnings)
		}
		review := s.Stage2[3]
		if invalid := review.Status == council.OutcomeInvalid; invalid != cut || invalid && review.Error.Code != council.FailPromptCut {
			t.Errorf("%d bytes, the review is %s: %+v", len(question), review.Status, review.Error)
		}
		want := 4
		if cut {
			want = 3
		}
		if s.Metadata.Agreement.Ballots != want || s.Stage1[3].Response == nil || s.Stage1[3].PromptCut != cut || review.Attempts != 1 {
			t.Errorf("%d bytes, %d ballots, %+v", len(question), s.Metadata.Agreement.Ballots, s.Stage1[3])
		}
	}
	daemontest.Fault(t, "F49", "warning prompt_cut; the answer counts, the ballot does not", "%d of %d bytes' tokens: warned, answer counted, ballot not",
		window, len(long))
}
