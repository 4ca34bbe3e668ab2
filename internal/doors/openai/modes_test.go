package openai_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/doortest"
)

// A chat in each mode has the answer and its finish reason, also as a stream and as a response.
func TestChatModes(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	cut := simllm.Model{Name: "cut", Faults: []simllm.Fault{{Kind: simllm.FaultLength, Rate: 1}}}
	s := doortest.Start(t, []simllm.Model{cut}, func(_ *httpapi.Options, p *pipeline.Options) { p.Mode = council.ModeRanked })
	for _, tt := range []struct {
		model, mode string
		want        council.Mode
		finish      string
		pieces      bool // the text arrives as it is written
	}{
		{"council", "", "ranked", "stop", false},
		{"council/amber,birch,dune", "", "ranked", "stop", false},
		{"council/dune", "", "single", "stop", true},
		{"council", "council", "council", "stop", true},
		{"council", "synthesis", "synthesis", "stop", true},
		{"council/cut,cut", "", "ranked", "length", false},
		{"council/cut,cut", "synthesis", "synthesis", "stop", true},
	} {
		name := tt.model + " " + tt.mode
		fields := fmt.Sprintf(`,"metadata":{"mode":%q}`, tt.mode)
		_, data := complete(t, s, tt.model, fields)
		var whole openai.Chat
		if err := json.Unmarshal(data, &whole); err != nil || whole.Council == nil || whole.Council.Mode != tt.want ||
			*whole.Choices[0].FinishReason != tt.finish || whole.Choices[0].Message.Content == "" {
			t.Errorf("%s: %s", name, data)
			continue
		}
		if from := whole.Council.AnswerFrom; from.Rule == council.RuleNone || from.Model == "" {
			t.Errorf("%s: the answer is from %+v", name, from)
		}
		_, data = complete(t, s, tt.model, fields+`,"stream":true`)
		if n := strings.Count(string(data), `"delta":{"content":"`); (n > 1) != tt.pieces || n == 0 {
			t.Errorf("%s: %d pieces of text", name, n)
		}
		if !strings.Contains(string(data), `"finish_reason":"`+tt.finish+`"`) || !strings.Contains(string(data), "data: [DONE]") {
			t.Errorf("%s: the stream ends with %s", name, data[max(0, len(data)-300):])
		}
		_, data = s.Call(t, "POST", "/v1/responses", fmt.Sprintf(`{"model":%q,"input":"Why?"%s}`, tt.model, fields))
		var response openai.Response
		want := map[string]string{"stop": "completed", "length": "incomplete"}[tt.finish]
		if err := json.Unmarshal(data, &response); err != nil || response.Status != want || response.Council.Mode != tt.want ||
			response.Output[0].Content[0].Text == "" {
			t.Errorf("%s: %s", name, data)
		}
		_, data = s.Call(t, "POST", "/v1/responses", fmt.Sprintf(`{"model":%q,"input":"Why?","stream":true%s}`, tt.model, fields))
		all := events(t, data)
		deltas := slices.DeleteFunc(slices.Clone(all), func(e event) bool { return e.Type != "response.output_text.delta" })
		if len(deltas) == 0 || (len(deltas) > 1) != tt.pieces || all[len(all)-1].Type != "response."+want {
			t.Errorf("%s: %d pieces of text, the last event is %s", name, len(deltas), all[len(all)-1].Type)
		}
	}
}
