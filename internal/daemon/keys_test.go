package daemon_test

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// A provider that repeats its key in answers: no caller sees it, whole or streamed, and no other model is asked with it.
func TestKeyInAnswers(t *testing.T) {
	const key = "sk-a-long-key-of-this-test"
	var models []simllm.Model
	for _, name := range []string{"a", "b"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Reply: func(task simllm.Task) (string, bool) {
			return "The key is " + key + ".", task.Kind == simllm.Question
		}})
	}
	p := tapModels(t, models...)
	d := daemontest.Start(t, map[string]string{"BASE_URL": p.url, "MODELS": "a,b", "API_KEY": key})
	for path, body := range map[string]string{
		"/v1/council": anyQuestion, "/v1/chat/completions": `{"model":"council/a","stream":true,"messages":[{"role":"user","content":"x"}]}`,
	} {
		code, data := d.Call(t, "POST", path, body)
		if text := string(data); code != 200 || strings.Contains(text, key) || !strings.Contains(text, "[key]") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, body := range p.bodies {
		if data, ok := body["messages"].([]any); ok {
			for _, m := range data {
				if text, _ := m.(map[string]any)["content"].(string); strings.Contains(text, key) {
					t.Errorf("a model was asked with the key: %s", text)
				}
			}
		}
	}
}
