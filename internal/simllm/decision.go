package simllm

import (
	"slices"
	"strconv"
	"strings"
)

// agrees is the probability with which a model votes as most models do.
const agrees = 0.8

// readQuestions returns the questions of a decision. A question begins with a line such as "q1. ", and each vote that
// can be cast has a line such as `- "label": description`. The votes end with "cannot tell", which no model casts.
func readQuestions(text string) (questions []DecisionQuestion) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		label, isVote := strings.CutPrefix(line, `- "`)
		label, option, isVote2 := strings.Cut(label, `"`)
		switch {
		case strings.HasPrefix(line, "q"+strconv.Itoa(len(questions)+1)+". "):
			questions = append(questions, DecisionQuestion{})
		case len(questions) == 0:
		case isVote && isVote2 && label != "cannot tell":
			last := &questions[len(questions)-1]
			last.Labels = append(last.Labels, label)
			last.Options = append(last.Options, strings.TrimPrefix(option, ": "))
		case !isVote:
			questions[len(questions)-1].Question += line
		}
	}
	return questions
}

// decision writes the model's reply to a decision. The text and the question determine a vote that most models cast,
// whatever the order of the votes. Set Model.Reply for other votes.
func (m *model) decision(t Task) string {
	type member struct {
		Why  string `json:"why"`
		Vote string `json:"vote"`
	}
	members := map[string]member{}
	for i, q := range t.Questions {
		// The label of a vote is its text, or a letter that changes with the order.
		names := make([]string, len(q.Labels))
		for j, label := range q.Labels {
			names[j] = label
			if len(label) == 1 && q.Options[j] != "" {
				names[j] = q.Options[j]
			}
		}
		sorted := slices.Sorted(slices.Values(names))
		if len(sorted) == 0 {
			continue
		}
		chosen := sorted[draws("decision", t.Text, q.Question).IntN(len(sorted))]
		if own := m.draws("decision", t.Text, q.Question); own.Float64() > agrees {
			chosen = sorted[own.IntN(len(sorted))]
		}
		members["q"+strconv.Itoa(i+1)] = member{Why: "Simulated.", Vote: q.Labels[slices.Index(names, chosen)]}
	}
	return string(encode(members))
}
