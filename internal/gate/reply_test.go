package gate

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
)

var update = flag.Bool("update", false, "write the golden files of new prompts")

// The prompts are pinned. Each golden file has the version in its name, so a changed prompt needs a new version.
func TestPrompts(t *testing.T) {
	s := script{request: Request{Context: "Refunds by id."}, seats: members("a b"), finds: map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")},
	}}
	plan, _, second := s.rounds(t)
	first, err := Gate{}.Calls(plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	for version, call := range map[string][]string{
		PromptFind:    {first[0].Messages[0].Content, first[0].Messages[1].Content, string(first[0].Format.Schema)},
		PromptConfirm: {second[0].Messages[0].Content, second[0].Messages[1].Content, string(second[0].Format.Schema)},
	} {
		if !json.Valid([]byte(call[2])) || !slices.Contains(Gate{}.Prompts(), version) {
			t.Errorf("%s: %v, %s", version, Gate{}.Prompts(), call[2])
		}
		testkit.Prompt(t, *update, "prompt_"+version, strings.Join(call, "\n---\n"))
	}
}

// The schemas have only keywords that providers support in strict mode.
func TestSchemasAreStrict(t *testing.T) {
	var look func(value any)
	look = func(value any) {
		object, ok := value.(map[string]any)
		if !ok {
			return
		}
		for key, inner := range object {
			switch key {
			case "properties":
				if object["additionalProperties"] != false || len(object["required"].([]any)) != len(inner.(map[string]any)) {
					t.Errorf("not all properties are required: %v", object)
				}
				for _, p := range inner.(map[string]any) {
					look(p)
				}
			case "items":
				look(inner)
			case "type", "required", "additionalProperties", "enum":
			default:
				t.Errorf("the keyword %s", key)
			}
		}
	}
	for _, schema := range []json.RawMessage{findFormat().Schema, confirmFormat([]string{"F1", "F2"}).Schema} {
		var value any
		if err := json.Unmarshal(schema, &value); err != nil {
			t.Fatal(err)
		}
		look(value)
	}
}

// A reply that repeats the prompt finds nothing and casts no vote.
func TestPromptIsNoReply(t *testing.T) {
	c := changeOf(t, refund)
	dropped := map[string]int{}
	if found, _ := c.readFindings("a", findTask, dropped); len(found) > 0 {
		t.Errorf("found %+v", found[0])
	}
	if b, ok := readBallot("a", confirmTask, map[string]bool{"F1": true}); ok {
		t.Errorf("voted %+v", b)
	}
}

func changeOf(tb testing.TB, diff string) *change {
	tb.Helper()
	c, problems := Request{Diff: diff}.read()
	if problems != nil {
		tb.Fatal(problems)
	}
	for _, f := range c.files {
		f.foldSides()
	}
	return c
}

func TestReadFindings(t *testing.T) {
	good := `{"file":"pay/refund.go","line":50,"quote":"` + deletes + `","severity":"blocking","what":"W","scenario":"S"}`
	with := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	c := changeOf(t, refund)
	for _, tt := range []struct {
		name, text string
		want       string // the findings and what is dropped; "unreadable"
	}{
		{"as asked for", `{"findings":[` + good + `]}`, "50 blocking W/S"},
		{"none", `{"findings":[]}`, ""},
		{"in a block, after prose", "Some {braces}.\n```json\n{\"findings\": [" + good + "]}\n```\nDone {so}.", "50 blocking W/S"},
		{"another member first", `{"summary":"x","findings":[` + good + `]}`, "50 blocking W/S"},
		{"a draft before it", `{"findings":[]} No: {"findings":[` + good + `]}`, "50 blocking W/S"},
		{"thinking before it", `<think>{"findings":[]}</think>{"findings":[` + good + `]}`, "50 blocking W/S"},
		{"only in thinking", `<think>{"findings":[` + good + `]}</think>I found nothing.`, "unreadable"},
		{"the line as text", `{"findings":[` + with("50", `"50"`) + `]}`, "50 blocking W/S"},
		{"no line", `{"findings":[` + with("50", "null") + `]}`, "50 blocking W/S"},
		{"another severity", `{"findings":[` + with(`"blocking"`, `"critical"`) + `]}`, "50 advisory W/S"},
		{"the severity in capitals", `{"findings":[` + with(`"blocking"`, `" Blocking "`) + `]}`, "50 blocking W/S"},
		{"control characters", `{"findings":[` + with("W", `W\u0000\u001b[1m\n\u202e x`) + `]}`, "50 blocking W [1m x/S"},
		{"an invented quote", `{"findings":[` + with(deletes, "refunds = nil // all") + `,` + good + `]}`, "50 blocking W/S quote:1"},
		{"no words", `{"findings":[` + with(`"W"`, `" "`) + `]}`, "form:1"},
		{"a text, a list and a number", `{"findings":["x",[],1,` + good + `]}`, "50 blocking W/S form:3"},
		{"seven", `{"findings":[` + strings.Repeat(good+",", 6) + good + `]}`, strings.Repeat("50 blocking W/S ", 5) + "limit:2"},
		{"no list", `{"findings":"none"}`, "unreadable"},
		{"null", `{"findings":null}`, "unreadable"},
		{"another object", `{"votes":[]}`, "unreadable"},
		{"prose", `I found nothing.`, "unreadable"},
		{"cut off", `{"findings":[` + good, "unreadable"},
		{"too long", strings.Repeat(" ", maxReply) + `{"findings":[]}`, "unreadable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dropped := map[string]int{}
			found, ok := c.readFindings("a", tt.text, dropped)
			var got []string
			for _, f := range found {
				got = append(got, fmt.Sprintf("%d %s %s/%s", f.file.start(f.place), f.severity, f.what, f.scenario))
			}
			for _, why := range []string{droppedForm, droppedLimit, droppedQuote} {
				if dropped[why] > 0 {
					got = append(got, fmt.Sprintf("%s:%d", why, dropped[why]))
				}
			}
			if !ok {
				got = append(got, "unreadable")
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), tt.want)
			}
		})
	}
}

func TestReadBallot(t *testing.T) {
	shown := map[string]bool{"F1": true, "F2": true, "F3": true}
	for _, tt := range []struct{ name, text, want string }{
		{"as asked for", `{"votes":[{"finding":"F1","why":"x","vote":"confirm","severity":"blocking"},{"finding":"F2","why":"y","vote":"reject","severity":"advisory"}],"same":[["F1","F2"]]}`, "F1 confirm blocking x, F2 reject advisory y, [[F1 F2]]"},
		{"in a block", "```json\n{\"votes\":[{\"finding\":\" F3 \",\"vote\":\"Unsure\"}],\"same\":[]}\n```", "F3 unsure advisory , []"},
		{"a finding that was not shown", `{"votes":[{"finding":"F9","vote":"confirm"},{"finding":"F1","vote":"confirm"}],"same":[["F1","F9","F1"],["F9"]]}`, "F1 confirm advisory , [[F1] []]"},
		{"twice", `{"votes":[{"finding":"F1","vote":"confirm"},{"finding":"F1","vote":"reject"}]}`, "F1 reject advisory , []"},
		{"no such vote", `{"votes":[{"finding":"F1","vote":"yes"}]}`, ""},
		{"same is a text", `{"votes":[{"finding":"F1","vote":"reject"}],"same":"none"}`, "F1 reject advisory , []"},
		{"no votes", `{"votes":[],"same":[]}`, ""},
		{"prose", `All findings are right.`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, ok := readBallot("a", tt.text, shown)
			var all []string
			for _, id := range []string{"F1", "F2", "F3", "F9"} {
				if v, voted := b.votes[id]; voted {
					all = append(all, fmt.Sprintf("%s %s %s %s", id, v.Vote, v.Severity, v.Why))
				}
			}
			if ok {
				all = append(all, fmt.Sprint(b.same))
			}
			if got := strings.Join(all, ", "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzReply checks that any reply is read in linear time, and that what is read keeps its limits.
func FuzzReply(f *testing.F) {
	for _, unit := range []string{`{"findings":`, `{"findings":[{"what":"x","quote":"` + deletes + `"}]}`, `{`, `[`, `"votes"`, `{"votes":[{"finding":"F1","vote":"confirm"}],"same":[["F1"]]}`, "<think>", "```"} {
		f.Add(unit)
		f.Add(strings.Repeat(unit, 100))
	}
	c := changeOf(f, refund)
	shown := map[string]bool{"F1": true}
	f.Fuzz(func(t *testing.T, text string) {
		growth.Bounded(t, len(text), func() {
			c.readFindings("a", text, map[string]int{})
			readBallot("a", text, shown)
		})
		dropped := map[string]int{}
		found, ok := c.readFindings("a", text, dropped)
		if len(found) > MaxFound || !ok && len(found) > 0 {
			t.Fatalf("%d findings, %v", len(found), ok)
		}
		for _, x := range found {
			for l := range strings.SplitSeq(x.file.quote(x.place), "\n") {
				if !strings.Contains(refund, l) {
					t.Fatalf("%q is not in the diff", l)
				}
			}
			checkClean(t, x.what, maxWhat)
			checkClean(t, x.scenario, maxScenario)
		}
		b, _ := readBallot("a", text, shown)
		for id, v := range b.votes {
			if !shown[id] {
				t.Fatalf("a vote on %q", id)
			}
			checkClean(t, v.Why, maxWhy)
		}
	})
}

func checkClean(tb testing.TB, text string, n int) {
	tb.Helper()
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > n || !utf8.ValidString(text) || strings.ContainsFunc(text, unprintable) {
		tb.Fatalf("%d bytes: %q", len(text), text)
	}
}

func TestClean(t *testing.T) {
	for _, text := range []string{"", "  a \t\nb  ", strings.Repeat("x", 1000), strings.Repeat("日本 ", 300), "a\xffb", "\u2028a\u200bb\u202ec\x07"} {
		for _, n := range []int{20, 100} {
			checkClean(t, clean(text, n), n)
		}
	}
	if got := clean(" a \x00\n b\u202e ", 100); got != "a b" {
		t.Errorf("got %q", got)
	}
}
