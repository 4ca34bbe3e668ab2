package llm

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

// quote returns a text as JSON.
func quote(text string) string {
	b, _ := json.Marshal(text) //nolint:errchkjson // a string
	return string(b)
}

// completion is a reply of one choice.
func completionOf(message, finish string) roundTripper {
	return reply(http.StatusOK, `{"choices":[{"index":0,"message":`+message+`,"finish_reason":"`+finish+`"}]}`)
}

// Thinking is not part of the text, wherever the provider puts it.
func TestThinking(t *testing.T) {
	tests := []struct {
		name, message, finish string
		text, reasoning       string
		failure               council.FailureCode
	}{
		{
			name: "p-think", message: `{"content":` + quote("<think>\nI am DeepSeek, and 6*7 is 42.\n</think>\n\nThe answer is 42.") + `}`,
			text: "The answer is 42.", reasoning: "I am DeepSeek, and 6*7 is 42.",
		},
		{
			name: "p-thinkclose", message: `{"content":` + quote("I am DeepSeek, and 6*7 is 42.\n</think>\n\nThe answer is 42.") + `}`,
			text: "The answer is 42.", reasoning: "I am DeepSeek, and 6*7 is 42.",
		},
		{
			name: "p-thinkonly", message: `{"content":` + quote("<think>\nI am DeepSeek, and 6*7") + `}`,
			failure: council.FailEmpty,
		},
		{
			name: "p-thinkonly at the token limit", message: `{"content":` + quote("<think>\nI am DeepSeek, and 6*7") + `}`, finish: "length",
			failure: council.FailLength,
		},
		{name: "JSON", message: `{"content":` + quote("<think>JSON, then.</think>{\"a\":1}") + `}`, text: `{"a":1}`, reasoning: "JSON, then."},
		{name: "none", message: `{"content":"Yes."}`, text: "Yes."},
		{name: "DeepSeek, vLLM", message: `{"content":"Yes.","reasoning_content":"Hm."}`, text: "Yes.", reasoning: "Hm."},
		{name: "Ollama, Groq", message: `{"content":"Yes.","reasoning":"Hm."}`, text: "Yes.", reasoning: "Hm."},
		{name: "both names", message: `{"content":"Yes.","reasoning":"Hm.","reasoning_content":"Hm."}`, text: "Yes.", reasoning: "Hm."},
		{name: "two texts", message: `{"content":"Yes.","reasoning":"So.","reasoning_content":"Hm."}`, text: "Yes.", reasoning: "Hm."},
		{name: "thinking", message: `{"thinking":"Hm.","content":"Yes."}`, text: "Yes.", reasoning: "Hm."},
		{name: "null", message: `{"content":"Yes.","reasoning":null,"reasoning_content":null,"reasoning_details":null}`, text: "Yes."},
		{name: "an object", message: `{"content":"Yes.","reasoning":{"effort":"low"}}`, text: "Yes."},
		{
			name: "OpenRouter", text: "Yes.", reasoning: "Hm.",
			message: `{"content":"Yes.","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm."}]}`,
		},
		{
			name: "OpenRouter, details alone", text: "Yes.", reasoning: "Hm, hm.",
			message: `{"content":"Yes.","reasoning_details":[{"type":"reasoning.text","text":"Hm, "},{"type":"reasoning.text","text":"hm."}]}`,
		},
		{name: "encrypted", message: `{"content":"Yes.","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}`, text: "Yes."},
		{
			name: "Mistral", text: "Yes.", reasoning: "Hm.",
			message: `{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"Yes."}]}`,
		},
		{name: "Mistral, one text", message: `{"content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Yes."}]}`, text: "Yes.", reasoning: "Hm."},
		{name: "apart and in the text", message: `{"content":"<think>So.</think>Yes.","reasoning":"Hm."}`, text: "Yes.", reasoning: "Hm.\n\nSo."},
		{name: "apart alone", message: `{"content":"","reasoning":"Hm."}`, failure: council.FailEmpty},
		{
			name: "long", message: `{"content":"Yes.","reasoning":"` + strings.Repeat("ä", 40_000) + `"}`, text: "Yes.",
			reasoning: strings.Repeat("ä", 32_766) + "…",
		},
	}
	for _, test := range tests {
		finish := test.finish
		if finish == "" {
			finish = "stop"
		}
		for _, streams := range []bool{false, true} {
			play := completionOf(test.message, finish)
			if streams {
				play = eventStream(`data: {"choices":[{"index":0,"delta":` + test.message + `}]}` + "\n\n" +
					`data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + finish + `"}]}` + "\n\ndata: [DONE]\n\n")
			}
			var shown strings.Builder
			call := aCall()
			if streams {
				call.OnDelta, call.OnVoid = func(text string) { shown.WriteString(text) }, shown.Reset
			}
			completion, err := fakeClient(t, once(), play).Complete(t.Context(), call)
			f := council.AsFailure(err)
			if f != nil && f.Code != test.failure || f == nil && test.failure != "" {
				t.Errorf("%s: %v, want %q", test.name, err, test.failure)
			}
			if f == nil && (completion.Text != test.text || completion.Reasoning != test.reasoning) {
				t.Errorf("%s: text %.200q and thinking %.200q, want %q and %.200q", test.name, completion.Text, completion.Reasoning, test.text, test.reasoning)
			}
			if streams && f == nil && shown.String() != test.text {
				t.Errorf("%s: %q is shown of %q", test.name, shown.String(), test.text)
			}
		}
	}
}

// A stream whose thinking has no mark of its beginning is taken back. The next one of the model shows nothing before the end of its thinking.
func TestThinkingIsTakenBack(t *testing.T) {
	s := &sequence{plays: []roundTripper{
		eventStream(chunks("So, ", "42.", `\n</thi`, `nk>\n\n`, "It is ", "42.")),
		eventStream(chunks("So, ", "42.", `\n</thi`, `nk>\n\n`, "It is ", "42.")),
		eventStream(chunks("It ", "is ", "42.")),
		eventStream(chunks("So.</think>It is 42.")),
	}}
	c := fakeClient(t, fakeOptions(), s.RoundTrip)
	ask := func(voids bool) (shown string, text string) {
		var b strings.Builder
		call := aCall()
		call.OnDelta = func(text string) { b.WriteString(text) }
		if voids {
			call.OnVoid = func() { b.WriteString(" | ") }
		}
		completion, err := c.Complete(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		return b.String(), completion.Text
	}
	for i, want := range []string{"So, 42.\n</think>\n\nIt is 42. | It is 42.", "It is 42.", "It is 42."} {
		if shown, text := ask(true); shown != want || text != "It is 42." {
			t.Errorf("stream %d: %q is shown of %q", i+1, shown, text)
		}
	}
	if shown, text := ask(false); shown != text || shown != "So.</think>It is 42." {
		t.Errorf("%q is shown of %q to a caller that takes nothing back", shown, text)
	}
}

// samples are texts with the bytes of text that a token of them has in the tokeniser that makes the fewest tokens of such text.
var samples = []struct {
	name, text string
	bytes      float64 // a token
	noticed    bool    // a cut to half of the tokens
}{
	// o200k of OpenAI, by its own examples: a token is about four characters of English, and three quarters of a word.
	{"English", "The quick brown fox jumps over the lazy dog, and nobody in the village has ever asked it why it does so every morning. ", 5, true},
	{"words of one token", "information government development understanding responsibility communication international environment ", 12.75, true},
	{"short words", "I am as old as he is, so we go on to do it at six if it is up to us. ", 3.2, false},
	{"German", "Der schnelle braune Fuchs springt über den faulen Hund, und niemand im Dorf hat ihn je gefragt, warum er das jeden Morgen tut. ", 4.7, true},
	{"German compounds", "Die Donaudampfschifffahrtsgesellschaft veröffentlicht regelmäßig Verordnungen über Geschwindigkeitsbegrenzungen. ", 5, false},
	{"Finnish", "Lentokonesuihkuturbiinimoottoriapumekaanikkoaliupseerioppilas tarkastaa huolellisesti kaikki moottorit ennen lähtöä. ", 4.5, false},
	{"Russian", "Быстрая коричневая лиса перепрыгивает через ленивую собаку, и никто в деревне не спрашивает её, зачем. ", 8, false},
	// A Chinese character is about 0.6 tokens (DeepSeek), 1.5 to 1.8 characters are a token (Qwen).
	{"Chinese", "人工智能的发展正在改变我们的生活方式，许多工作将由机器完成，但是人类的创造力仍然不可替代。", 5.4, true},
	{"Chinese without punctuation", "中华人民共和国有限公司人工智能进一步发展经济社会", 8.4, true},
	{"Japanese", "ありがとうございます。人工知能の発展によって、私たちの生活は大きく変わっています。", 6.6, true},
	{"Korean", "인공지능의 발전은 우리의 생활 방식을 바꾸고 있으며 많은 일을 기계가 대신하게 될 것입니다. ", 7, true},
	{"Thai", "การพัฒนาปัญญาประดิษฐ์กำลังเปลี่ยนแปลงวิถีชีวิตของเราอย่างรวดเร็ว ", 9, false},
	{"Hindi", "कृत्रिम बुद्धिमत्ता का विकास हमारे जीवन के तरीके को तेज़ी से बदल रहा है। ", 9, false},
	{"Arabic", "يغير تطور الذكاء الاصطناعي طريقة حياتنا بسرعة كبيرة في كل مكان. ", 7, true},
	{"emoji", "😀🎉👩‍👩‍👧‍👦🚀", 4, false},
	{"code", "func main() {\n\tfor i := 0; i < n; i++ {\n\t\tfmt.Println(values[i], getUserAccountInformation(id))\n\t}\n}\n", 4, false},
	{"indented code", strings.Repeat(" ", 80) + "return x\n", 30, false},
	{"lines", strings.Repeat("=", 64) + "\n" + strings.Repeat("-", 64) + "\n", 40, false},
	{"a table", "| a | b |" + strings.Repeat(" ", 60) + "|\n|---|---|" + strings.Repeat("-", 60) + "|\n", 16, false},
	{"one letter", strings.Repeat("a", 256), 16, false},
	{"numbers", "31415 92653 58979 32384 62643 38327 95028 84197 16939 93751 ", 2, false},
	{"base64", "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24sIGJ1dCBieSB0aGlzIHNpbmd1bGFyIHBhc3Npb24gZnJvbSBvdGhlciBhbmltYWxz\n", 1.5, false},
	{"JSON", `{"userIdentifier": "a1b2c3", "isActive": true, "balance": 1234.5, "tags": ["one", "two"]}` + "\n", 3.5, false},
}

// No honest count is taken for a cut, in any language. A cut to half of the tokens is noticed in those languages whose tokens are not much longer
// than others.
func TestCutsPrompt(t *testing.T) {
	said := func(text string, tokens float64) bool {
		call := aCall()
		call.Messages = []council.Message{{Role: council.RoleUser, Content: text}}
		return cutsPrompt(&call, received{used: &figures{}, usage: council.Usage{InputTokens: new(int64(tokens))}})
	}
	for _, s := range samples {
		for _, bytes := range []int{1 << 10, 40 << 10, 400 << 10} {
			text := strings.Repeat(s.text, 1+bytes/len(s.text))
			tokens := float64(len(text)) / s.bytes
			if said(text, tokens) {
				t.Errorf("%s: %d bytes and %.0f tokens, an honest count, are taken for a cut; the bound is %d", s.name, len(text), tokens, fewestTokens(text))
			}
			if got := said(text, tokens/2); bytes > 1<<14 && got != s.noticed {
				t.Errorf("%s: %d bytes and %.0f tokens of %.0f: noticed is %v; the bound is %d", s.name, len(text), tokens/2, tokens, got, fewestTokens(text))
			}
		}
	}
	// What Ollama does with its default window (fault P8).
	if text := strings.Repeat(samples[0].text, 1+37_500/len(samples[0].text))[:37_500]; !said(text, 4096) {
		t.Errorf("4096 tokens of 37,500 bytes are no cut; the bound is %d", fewestTokens(text))
	}
}

func TestCutsPromptKnowsCaches(t *testing.T) {
	text := strings.Repeat(samples[0].text, 400)
	for body, want := range map[string]bool{
		`{"prompt_tokens":4096}`: true,
		`{"prompt_tokens":4096,"prompt_tokens_details":{"cached_tokens":20000}}`:                                          false,
		`{"prompt_tokens":4096,"prompt_tokens_details":{"cached_tokens":10000,"cache_write_tokens":10000}}`:               false,
		`{"prompt_tokens":4096,"cache_read_input_tokens":10000,"cache_creation_input_tokens":10000}`:                      false,
		`{"prompt_tokens":4096,"prompt_cache_hit_tokens":20000}`:                                                          false,
		`{"prompt_tokens":4096,"completion_tokens":5,"total_tokens":20000}`:                                               false,
		`{"prompt_tokens":4096,"completion_tokens":5,"total_tokens":4101,"prompt_tokens_details":{"cached_tokens":4000}}`: false,
		`{"prompt_tokens":511}`: false, `{"prompt_tokens":512}`: true,
		`{"prompt_tokens":0}`: false, `{"completion_tokens":5}`: false, `{"prompt_tokens":"many"}`: false, `{"prompt_tokens":-1}`: false, `null`: false,
	} {
		call := aCall()
		call.Messages = []council.Message{{Role: council.RoleUser, Content: text}}
		c := fakeClient(t, once(), reply(http.StatusOK, `{"choices":[{"message":{"content":"Yes."}}],"usage":`+body+`}`))
		completion, err := c.Complete(t.Context(), call)
		if err != nil || completion.PromptCut != want {
			t.Errorf("%s: %v, %v", body, completion.PromptCut, err)
		}
	}
}
