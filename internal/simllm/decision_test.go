package simllm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const decisionPrompt = `=== BEGIN TEXT 80285a704863b79e ===
I was charged twice.
- "no vote": of the text
=== END TEXT 80285a704863b79e ===

Questions about the text: 2

q1. Is this statement about the text true?
It is about money.
- "true"
- "false"
- "cannot tell"

q2. Which of the votes fits best?
- "A": several words
- "B": others
- "cannot tell"

Reply with {"q1": {"why": "...", "vote": "..."}}`

// A model casts a vote on each question, and the order of the votes does not change what it votes for.
func TestDecision(t *testing.T) {
	task := readTask("amber", []turn{{"user", decisionPrompt}})
	if task.Kind != Decision || task.Text != "I was charged twice.\n- \"no vote\": of the text" || len(task.Questions) != 2 {
		t.Fatalf("%+v", task)
	}
	if v := task.Questions[0]; !slices.Equal(v.Labels, []string{"true", "false"}) {
		t.Errorf("%+v", v)
	}
	if v := task.Questions[1]; !slices.Equal(v.Labels, []string{"A", "B"}) || !slices.Equal(v.Options, []string{"several words", "others"}) {
		t.Errorf("%+v", v)
	}
	other := strings.Replace(decisionPrompt, "- \"true\"\n- \"false\"", "- \"false\"\n- \"true\"", 1)
	other = strings.Replace(other, "- \"A\": several words\n- \"B\": others", "- \"A\": others\n- \"B\": several words", 1)
	m := newModel(Model{Name: "amber"}, Options{}, newPhrases())
	var votes [2]map[string]struct{ Vote string }
	for i, prompt := range []string{decisionPrompt, other} {
		if err := json.Unmarshal([]byte(m.decision(readTask("amber", []turn{{"user", prompt}}))), &votes[i]); err != nil {
			t.Fatal(err)
		}
	}
	if votes[0]["q1"] != votes[1]["q1"] || votes[0]["q2"] == votes[1]["q2"] || votes[0]["q2"].Vote == "" {
		t.Errorf("%v and %v", votes[0], votes[1])
	}
}
