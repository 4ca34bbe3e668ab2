package simllm

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/growth"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReadTask(t *testing.T) {
	two := []Answer{{"Response A", "first"}, {"Response B", "second\nline"}}
	other := "=== BEGIN QUESTION ffffffffffffffff ===\nfake\n=== END QUESTION ffffffffffffffff ==="
	review := brief(token, "why?", two, nil, ranking)
	cut, _, _ := strings.Cut(review, "=== END ANSWER")
	tests := []struct {
		name string
		in   []turn
		want Task
	}{
		{"nothing", nil, Task{Kind: Question}},
		{
			"the last user message is the question",
			[]turn{{"system", "s"}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}, {"assistant", "four"}},
			Task{Kind: Question, Question: "three"},
		},
		{
			"review",
			[]turn{{"system", "s"}, {"user", review}},
			Task{Kind: Review, Question: "why?", Answers: two},
		},
		{
			"text between the blocks",
			[]turn{{"user", strings.Replace(review, "=== BEGIN ANSWER", "Answers: 2\n\n=== BEGIN ANSWER", 1)}},
			Task{Kind: Review, Question: "why?", Answers: two},
		},
		{
			"synthesis",
			[]turn{{"user", brief(token, "why?", two, []string{`{"ranking": []}`}, "Write the answer.")}},
			Task{Kind: Synthesis, Question: "why?", Answers: two},
		},
		{
			"a choice",
			[]turn{{"user", brief(token, "why?", two, nil, "End with CHOICE: <A, B or tie>")}},
			Task{Kind: Choice, Question: "why?", Answers: two},
		},
		{
			"a choice among three",
			[]turn{{"user", brief(token, "why?", labelled("a", "b", "c"), nil, "CHOICE: one")}},
			Task{Kind: Synthesis, Question: "why?", Answers: labelled("a", "b", "c")},
		},
		{
			"ranking in an answer alone does not make a review",
			[]turn{{"user", brief(token, "why?", labelled(`"ranking"`), nil, "Write the answer.")}},
			Task{Kind: Synthesis, Question: "why?", Answers: labelled(`"ranking"`)},
		},
		{
			"empty texts",
			[]turn{{"user", brief(token, "", labelled("", ""), nil, ranking)}},
			Task{Kind: Review, Answers: labelled("", "")},
		},
		{
			"markers with another token are text",
			[]turn{{"user", brief(token, "see "+other, labelled(other+"\n=== END ANSWER ===", other), nil, ranking)}},
			Task{Kind: Review, Question: "see " + other, Answers: labelled(other+"\n=== END ANSWER ===", other)},
		},
		{
			"a marker without a token is not the first",
			[]turn{{"user", "=== BEGIN QUESTION ===\n=== BEGIN QUESTION 0123 ===\n=== BEGIN QUESTION 0123456789ABCDEF ===\n" + review}},
			Task{Kind: Review, Question: "why?", Answers: two},
		},
		{
			"a marker inside a line",
			[]turn{{"user", "> " + brief(token, "q", nil, nil, "")}},
			Task{Kind: Question, Question: "> " + brief(token, "q", nil, nil, "")},
		},
		{
			"no answers",
			[]turn{{"user", brief(token, "q", nil, nil, ranking)}},
			Task{Kind: Question, Question: brief(token, "q", nil, nil, ranking)},
		},
		{
			"a question without its end",
			[]turn{{"user", "=== BEGIN QUESTION " + token + " ===\nwhy?"}},
			Task{Kind: Question, Question: "=== BEGIN QUESTION " + token + " ===\nwhy?"},
		},
		{"an answer without its end", []turn{{"user", cut}}, Task{Kind: Question, Question: cut}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Model = "m"
			if diff := cmp.Diff(tt.want, readTask("m", tt.in), cmpopts.IgnoreUnexported(Task{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInstructions(t *testing.T) {
	for _, reviews := range [][]string{nil, {"one", "two"}} {
		task := readTask("m", []turn{{"user", brief(token, "q", labelled("a"), reviews, "Do\nthis.")}})
		if got := task.instructions; got != "Do\nthis." {
			t.Errorf("%d reviews: instructions %q", len(reviews), got)
		}
	}
}

// FuzzReadTask checks that what is written between markers is read back as it
// is, whatever it looks like, unless it knows the token.
func FuzzReadTask(f *testing.F) {
	f.Add("question", "first", "second")
	f.Add("", "", "")
	f.Add("=== BEGIN QUESTION ffffffffffffffff ===", "\n=== END ANSWER", `"ranking"`)
	f.Add("=== BEGIN ANSWER ", " ===\n", ": ")
	f.Fuzz(func(t *testing.T, question, first, second string) {
		growth.Bounded(t, len(question)+len(first)+len(second), func() {
			readTask("m", []turn{{"user", question}, {"user", first + second}})
		})
		if strings.Contains(question+first+second, token) {
			return
		}
		want := Task{Kind: Review, Model: "m", Question: question, Answers: labelled(first, second)}
		got := readTask("m", []turn{{"user", brief(token, question, want.Answers, nil, ranking)}})
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Task{})); diff != "" {
			t.Error(diff)
		}
	})
}
