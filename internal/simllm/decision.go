package simllm

import (
	"slices"
	"strconv"
	"strings"
)

// agrees is the probability with which a model votes as most models do.
const agrees = 0.8

// readVotes returns the questions of a decision. A question begins with a line such as "q1. ", and each vote that can
// be cast has a line such as `- "label": description`. The votes end with "cannot tell", which no model casts.
func readVotes(text string) (votes []Vote) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		label, isVote := strings.CutPrefix(line, `- "`)
		label, option, isVote2 := strings.Cut(label, `"`)
		switch {
		case strings.HasPrefix(line, "q"+strconv.Itoa(len(votes)+1)+". "):
			votes = append(votes, Vote{})
		case len(votes) == 0:
		case isVote && isVote2 && label != "cannot tell":
			last := &votes[len(votes)-1]
			last.Labels = append(last.Labels, label)
			last.Options = append(last.Options, strings.TrimPrefix(option, ": "))
		case !isVote:
			votes[len(votes)-1].Question += line
		}
	}
	return votes
}

// decision writes the model's reply to a decision. The text and the question determine a vote that most models cast,
// whatever the order of the votes. Set Model.Reply for other votes.
func (m *model) decision(t Task) string {
	type member struct {
		Why  string `json:"why"`
		Vote string `json:"vote"`
	}
	members := map[string]member{}
	for i, v := range t.Votes {
		// The label of a vote is its text, or a letter that changes with the order.
		names := make([]string, len(v.Labels))
		for j, label := range v.Labels {
			names[j] = label
			if len(label) == 1 && v.Options[j] != "" {
				names[j] = v.Options[j]
			}
		}
		sorted := slices.Sorted(slices.Values(names))
		if len(sorted) == 0 {
			continue
		}
		chosen := sorted[draws("decision", t.Text, v.Question).IntN(len(sorted))]
		if own := m.draws("decision", t.Text, v.Question); own.Float64() > agrees {
			chosen = sorted[own.IntN(len(sorted))]
		}
		members["q"+strconv.Itoa(i+1)] = member{Why: "Simulated.", Vote: v.Labels[slices.Index(names, chosen)]}
	}
	return string(encode(members))
}
