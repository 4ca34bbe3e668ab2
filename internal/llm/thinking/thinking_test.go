package thinking_test

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/llm/thinking"
	"github.com/councild/councild/internal/testkit/growth"
)

// divided are replies that hold thinking.
var divided = []struct{ name, reply, thought, answer string }{
	{"think", "<think>\nThe user asks. I am DeepSeek.\n</think>\n\nThe answer is 42.", "The user asks. I am DeepSeek.", "The answer is 42."},
	{"one line", "<think>6*7</think>The answer is 42.", "6*7", "The answer is 42."},
	{"one line, a blank", "<think>Six times seven is 42.</think> The answer is 42.", "Six times seven is 42.", "The answer is 42."},
	{"an answer that begins with a small letter", "<think>A short one will do.</think> yes", "A short one will do.", "yes"},
	{"blanks before", "\n\n  <think>a b</think>\nYes.", "a b", "Yes."},
	{"invisible marks before", "\uFEFF\u200B<think>a b</think>\nYes.", "a b", "Yes."},
	{"nothing thought", "<think>\n\n</think>\n\nYes.", "", "Yes."},
	{"nothing between", "<think></think>Yes.", "", "Yes."},
	{"Chinese", "<think>用户想知道答案。</think>答案是42。", "用户想知道答案。", "答案是42。"},
	{"thinking", "<thinking>Let me see.</thinking>\nYes.", "Let me see.", "Yes."},
	{"any case", "<Thinking>Let me see.</THINKING>\nYes.", "Let me see.", "Yes."},
	{"thought", "<thought>Let me see.</thought>\nYes.", "Let me see.", "Yes."},
	{"reasoning", "<reasoning>\nLet me see.\n</reasoning>\nYes.", "Let me see.", "Yes."},
	{"reflection", "<reflection>\nLet me see.\n</reflection>\nYes.", "Let me see.", "Yes."},
	{"Seed", "<seed:think>Let me see.</seed:think>Yes.", "Let me see.", "Yes."},
	{"LongCat", "<longcat_think>Let me see.</longcat_think>Yes.", "Let me see.", "Yes."},
	{"Kimi", "◁think▷Let me see.◁/think▷Yes.", "Let me see.", "Yes."},
	{"Cohere", "<|START_THINKING|>Let me see.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>", "Let me see.", "Yes."},
	{"Cohere, without marks of the answer", "<|START_THINKING|>Let me see.<|END_THINKING|>Yes.", "Let me see.", "Yes."},
	{"Magistral", "[THINK]Let me see.[/THINK]Yes.", "Let me see.", "Yes."},
	{"Apertus", "<|inner_prefix|>Let me see.<|inner_suffix|>Yes.", "Let me see.", "Yes."},
	{"OpenThinker", "<|begin_of_thought|>\nHm.\n<|end_of_thought|>\n\n<|begin_of_solution|>Yes.<|end_of_solution|>", "Hm.", "Yes."},
	{"Gemma", "<|channel>thought\nLet me see.<channel|>Yes.", "thought\nLet me see.", "Yes."},
	{
		"harmony", "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
		"Let me see.", "Yes.",
	},
	{"harmony without an end", "<|channel|>analysis<|message|>Let me see.<|channel|>final<|message|>Yes.", "Let me see.", "Yes."},
	{"harmony without a final header", "<|channel|>analysis<|message|>Let me see.<|end|>Yes.", "Let me see.", "Yes."},
	{
		"harmony with commentary", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look." +
			"<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{\"a\":1}", "Hm.\n\nI look.", `{"a":1}`,
	},
	{"harmony, final only", "<|channel|>final<|message|>Yes.", "", "Yes."},
	{
		"harmony, opened by the template", "Let me see.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
		"Let me see.<|end|><|start|>assistant", "Yes.",
	},
	{"harmony, its tokens dropped", "analysisWe need to multiply.assistantfinal42.", "We need to multiply.", "42."},
	{"two blocks", "<think>a b</think>\n<think>c d</think>\nYes.", "a b\n\nc d", "Yes."},
	{"no opening tag", "Okay, six times seven.\n</think>\n\nThe answer is 42.", "Okay, six times seven.", "The answer is 42."},
	{"no opening tag, at the end of a line", "Okay, 42.</think>\n\nThe answer is 42.", "Okay, 42.", "The answer is 42."},
	{"no opening tag, on one line", "Okay, 42.</think>The answer is 42.", "Okay, 42.", "The answer is 42."},
	{"no opening tag, behind a word", "so it is 42</think>The answer is 42.", "so it is 42", "The answer is 42."},
	{"no opening tag, a bracket", "Okay.\n[/THINK]\nYes.", "Okay.", "Yes."},
	{"no opening tag, Kimi", "Okay.◁/think▷Yes.", "Okay.", "Yes."},
	{"no opening tag, Cohere", "Okay.<|END_THINKING|>Yes.", "Okay.", "Yes."},
	{"no opening tag, and nothing but it", "</think>\n\nYes.", "", "Yes."},
	{"no opening tag, quoted tags before", "They ask about `<think>` and `</think>`.\n</think>\n\nTags.", "They ask about `<think>` and `</think>`.", "Tags."},
	{"an inner mention in code", "<think>Where does `</think>` stand? Behind it.</think>\nBehind.", "Where does `</think>` stand? Behind it.", "Behind."},
	{"an inner mention in quotes", "<think>Where does \"</think>\" stand?\n</think>\nBehind.", "Where does \"</think>\" stand?", "Behind."},
	{"an inner listing", "<think>\n```\n<think>\n</think>\n```\nGood.\n</think>\nA listing.", "```\n<think>\n</think>\n```\nGood.", "A listing."},
	{"an inner code block that stays open", "<think>\n```\nx := 1\n</think>\nYes.", "```\nx := 1", "Yes."},
	{"nested", "<think>It mentions <think> tags. </think> hm, again.\n</think>\nYes.", "It mentions <think> tags.\n\nhm, again.", "Yes."},
	{"another closing tag", "<thinking>\nLet me see.\n</think>\n\nYes.", "Let me see.", "Yes."},
	{
		"an answer about tags", "<think>They ask about tags.</think>\n\nModels write `<think>` first and `</think>` last:\n\n```\n<think>\n...\n</think>\n```\n",
		"They ask about tags.", "Models write `<think>` first and `</think>` last:\n\n```\n<think>\n...\n</think>\n```\n",
	},
	{"cut off", "<think>\nI should compute 6*7. Let me", "I should compute 6*7. Let me", ""},
	{"cut off at once", "<think>", "", ""},
	{"cut off in a sentence", "<think> okay so the user wants to know what 6*7 is and", "okay so the user wants to know what 6*7 is and", ""},
	{"cut off, Kimi", "◁think▷Draft: yes, hmm", "Draft: yes, hmm", ""},
	{"cut off, Seed", "<seed:think>Draft: yes, hmm", "Draft: yes, hmm", ""},
	{"cut off, Cohere", "<|START_THINKING|>Draft: yes, hmm", "Draft: yes, hmm", ""},
	{"cut off, harmony", "<|channel|>analysis<|message|>I lean to", "I lean to", ""},
	{"cut off, harmony's header", "<|channel|>analysis", "analysis", ""},
	{"nothing behind it", "<think>Only this.</think>\n", "Only this.", ""},
	{"no opening tag, nothing behind it", "Only this.\n</think>", "Only this.", ""},
}

// whole are replies that hold no thinking, or may hold none.
var whole = map[string]string{
	"empty":                            "",
	"blanks":                           " \n\t",
	"prose":                            "The answer is 42.",
	"blanks before an answer":          "\n\n  The answer is 42.\n",
	"mathematics":                      "If a < b and b < c, then a < c. [1] says so.",
	"HTML":                             "<p>Use <b>bold</b> text.</p>\n<ul>\n<li>one</li>\n</ul>",
	"XML":                              "<?xml version=\"1.0\"?>\n<note><to>Ada</to><thinker>Bo</thinker></note>",
	"a tag like it":                    "<thinker>Ada</thinker> <think-tank>RAND</think-tank>",
	"a prompt":                         "Put this in your prompt:\n\n<thinking>\nReason step by step here.\n</thinking>\n<answer>\nYour answer.\n</answer>\n",
	"a prompt in code":                 "```xml\n<thinking>\nReason here.\n</thinking>\n```\nThat is all.",
	"code first":                       "```\n<think>\nLet me see.\n</think>\n```\n\nThis is what R1 writes.",
	"code with the end only":           "The template opens the block, so the reply reads:\n\n```\nLet me see.\n</think>\n\n42\n```\n",
	"indented code":                    "The reply reads:\n\n    Let me see.\n    </think>\n\n    42\n",
	"tildes":                           "~~~\nLet me see.\n</think>\n42\n~~~\n",
	"a quoted closing tag":             "The model closes its reasoning with \"</think>\" and then answers.",
	"a quoted tag at an end":           "The model closes its reasoning with \"</think>\"\nThen it answers.",
	"an inline closing tag":            "The model closes its reasoning with `</think>`\nThen it answers.",
	"a bare mention":                   "Response C writes </think> in the middle of a paragraph, which is odd.",
	"a bare mention at an end":         "The reasoning is closed by </think>\nThen it answers.",
	"a mention and a full stop":        "The reasoning ends at</think>. Then it answers.",
	"in brackets":                      "The closing tag (</think>) ends it.",
	"begins with a mention":            "<think> is the tag that begins the reasoning of R1.",
	"begins with two mentions":         "<think> and </think> are special tokens of R1.",
	"begins with a pair":               "<think>...</think> is the block in which R1 reasons.",
	"begins with a named pair":         "<think>reasoning</think>, then the answer: that is the format.",
	"begins with inline code":          "`<think>` begins the reasoning.\n`</think>` ends it.",
	"a German mention":                 "<think> ist ein Tag, das R1 schreibt.",
	"an Arabic mention":                "<think> هو وسم.",
	"a pair later":                     "R1 writes\n<think>\nLet me see.\n</think>\nand then the answer.",
	"a block behind":                   "Yes.\n\n<thinking>Should I have said no?</thinking>",
	"an opening tag behind":            "Yes.\n<think>\nShould I have",
	"a regular expression":             "Use re.sub(r\"<think>.*?</think>\", \"\", text, flags=re.S).",
	"a regular expression for the end": "text = text.split('</think>')[-1]\nprint(text)",
	"harmony as a topic":               "gpt-oss writes `<|channel|>analysis<|message|>`, and later `<|channel|>final<|message|>`.",
	"the word analysis":                "analysis of variance: see Fisher.",
	"Analysis":                         "analysisResult is the name of the variable.",
	"a list":                           "[THIS] is a list [/THIS]",
	"a table":                          "| tag | meaning |\n|---|---|\n| <think> | begins |\n| </think> | ends |\n",
}

func TestSplit(t *testing.T) {
	for _, test := range divided {
		p := thinking.Split(test.reply)
		if p.Thought != test.thought || p.Answer != test.answer {
			t.Errorf("%s: %q is thought, and %q the answer, want %q and %q", test.name, p.Thought, p.Answer, test.thought, test.answer)
		}
		if want := strings.HasPrefix(test.name, "no opening tag"); p.Unopened != want && !strings.Contains(test.name, "template") {
			t.Errorf("%s: unopened is %v", test.name, p.Unopened)
		}
	}
}

func TestSplitKeepsTextAboutThinking(t *testing.T) {
	for name, reply := range whole {
		if p := thinking.Split(reply); p.Answer != reply || p.Thought != "" {
			t.Errorf("%s: %q is thought, and %q the answer of %q", name, p.Thought, p.Answer, reply)
		}
	}
}

// show sends a reply through a stream in pieces of a length, and returns what a reader has in the end.
func show(reply string, size int, unopened bool) (shown string, p thinking.Parts, void bool) {
	s := thinking.NewStream(unopened)
	var b strings.Builder
	for i := 0; i < len(reply); i += size {
		b.WriteString(s.Add(reply[i:min(i+size, len(reply))]))
	}
	p, rest, void := s.End()
	if void {
		b.Reset()
	}
	return b.String() + rest, p, void
}

// Whatever the pieces are, a reader of the stream has the answer in the end. Only thinking without an opening mark may have to be taken back,
// and not where that is known.
func TestStream(t *testing.T) {
	check := func(name, reply string) {
		for size := 1; size <= len(reply); size++ {
			for _, unopened := range []bool{false, true} {
				shown, p, void := show(reply, size, unopened)
				if want := thinking.Split(reply); p != want || shown != want.Answer {
					t.Errorf("%s, pieces of %d: %q is shown of %+v", name, size, shown, want)
				}
				late := strings.HasSuffix(name, "dropped") && size < len("analysis")
				if void && name != "nested" && !late && (unopened || !p.Unopened) {
					t.Errorf("%s, pieces of %d: the text is taken back", name, size)
				}
			}
		}
	}
	for _, test := range divided {
		check(test.name, test.reply)
	}
	for name, reply := range whole {
		check(name, reply)
	}
}

// An answer that does not begin like thinking is shown as it arrives.
func TestStreamShowsAtOnce(t *testing.T) {
	for _, text := range []string{"The answer", " is 42", ". <think", "> is", " a tag.\n</think", ">\n"} {
		s := thinking.NewStream(false)
		s.Add("It is so. ")
		if shown := s.Add(text); shown != text {
			t.Errorf("%q is shown of %q", shown, text)
		}
	}
	for reply, from := range map[string]int{
		"Yes": 1, "<p>Yes</p>": 2, "[1, 2]": 2, "  Yes": 3, "```\n<think>": 1, "analysis of": 1,
		"<think>a b</think>Yes. It is.": 23,
	} {
		s := thinking.NewStream(false)
		for i := range len(reply) {
			if shown := s.Add(reply[i : i+1]); (shown != "") != (i >= from-1) {
				t.Errorf("%q: byte %d shows %q", reply, i, shown)
			}
		}
	}
}

func TestStreamWithoutTakingBack(t *testing.T) {
	s := thinking.NewStream(false)
	shown := s.Add("Okay.\n</thi") + s.Add("nk>\nYes.")
	if _, _, void := s.End(); !void {
		t.Fatal("nothing is taken back")
	}
	if answer, rest := s.Keep(); answer != shown+rest || answer != "Okay.\n</think>\nYes." {
		t.Errorf("%q, rest %q", answer, rest)
	}
}

// hostile are texts that repeat what a reader of marks looks at.
var hostile = []string{
	"<", "</", "<think>", "</think>", "<think> </think>", "`</think>` ", "\"</think>\"", "[", "[THINK]", "◁", "<|channel|>", "<|channel|>analysis<|message|>",
	"<|end|>", "```\n</think>\n", "`", "\n", " ", "a</think>b ", "analysisAassistantfinal", "<|start|>assistant", "<thinking>\n</think>\n",
}

func TestTimePerByte(t *testing.T) {
	for _, unit := range hostile {
		for _, begin := range []string{"", "<think>", "A "} {
			growth.LinearTo(t, growth.Large/2, func(n int) func() {
				text := begin + strings.Repeat(unit, n/len(unit))
				return func() {
					thinking.Split(text)
					thinking.Outside(text)
				}
			})
		}
	}
}

func TestStreamTimePerByte(t *testing.T) {
	for _, unit := range hostile {
		for _, unopened := range []bool{false, true} {
			growth.LinearTo(t, growth.Large/4, func(n int) func() {
				text := strings.Repeat(unit, n/len(unit))
				return func() {
					show(text, 16, unopened)
					show("<think>"+text, 16, unopened)
				}
			})
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, test := range divided {
		f.Add(test.reply, 3)
	}
	for _, reply := range whole {
		f.Add(reply, 3)
	}
	f.Fuzz(func(t *testing.T, reply string, size int) {
		p := thinking.Split(reply)
		if !strings.Contains(reply, p.Answer) {
			t.Errorf("the answer %q is no part of the reply %q", p.Answer, reply)
		}
		for _, unopened := range []bool{false, true} {
			if shown, again, _ := show(reply, max(1, size), unopened); again != p || shown != p.Answer {
				t.Errorf("%q is shown of %+v", shown, p)
			}
		}
	})
}
