package llm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A call knows the version of the model that replied, as the provider named it, in every form of a reply.
func TestModelVersion(t *testing.T) {
	for _, tt := range []struct {
		name, model string // JSON, "" for none
		want        *string
	}{
		{"a version", `"gpt-5-2025-08-07"`, new("gpt-5-2025-08-07")},
		{"the name that was asked for", `"m"`, new("m")},
		{"with blanks", `" openai/gpt-5 "`, new("openai/gpt-5")},
		{"escaped", `"gr\u00f6\u00dfer\/1"`, new("größer/1")},
		{"a path", `"/models/Qwen3 14B.gguf"`, new("/models/Qwen3 14B.gguf")},
		{"none", "", nil},
		{"null", "null", nil},
		{"empty", `""`, nil},
		{"blank", `"  "`, nil},
		{"a number", "5", nil},
		{"an object", `{"name":"gpt"}`, nil},
		{"two lines", `"a\nb"`, nil},
		{"a control character", `"a\u0007"`, nil},
		{"turned around", `"a\u202eb"`, nil},
		{"200 bytes", `"` + strings.Repeat("v", maxVersion) + `"`, new(strings.Repeat("v", maxVersion))},
		{"too long", `"` + strings.Repeat("v", maxVersion+1) + `"`, nil},
	} {
		member := ""
		if tt.model != "" {
			member = `"model":` + tt.model + ","
		}
		whole := fmt.Sprintf(`{%s"choices":[{"index":0,"message":{"content":"text"},"finish_reason":"stop"}]}`, member)
		chunks := fmt.Sprintf(`data: {"model":"","choices":[]}`+"\n\n"+
			`data: {%s"choices":[{"delta":{"content":"te"}}]}`+"\n\n"+
			`data: {%[1]s"choices":[{"delta":{"content":"xt"},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"model":"","choices":[],"usage":null}`+"\n\ndata: [DONE]\n\n", member)
		for name, play := range map[string]roundTripper{
			"whole": reply(200, whole), "stream": eventStream(chunks),
			"in any form": reply(200, strings.Replace(whole, "{", `{"X":1,`, 1)),
			"reframed":    reply(200, chunks),
		} {
			_, got := told(t, play, name == "stream")
			if diff := cmp.Diff(tt.want, got.ModelVersion); diff != "" || got.Text != "text" {
				t.Errorf("%s, %s: text %q (-want +got):\n%s", tt.name, name, got.Text, diff)
			}
		}
	}
	r := received{model: []byte(`"gpt-sk-secret-secret"`)}
	if got := r.version(keys{"sk-secret-secret"}); *got != "gpt-[key]" {
		t.Errorf("a key is repeated: %s", *got)
	}
}
