package stage2

import (
	"context"
	"strings"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// ShadowPromptVersion is the version of the prompt below. Every change of the prompt raises it, because choices
// from different prompts must not be pooled without notice.
const ShadowPromptVersion = "shadow-1"

// compare ends the prompt. Its example of the last line holds no choice, so a reply that repeats the example makes no
// choice.
const compare = "Which of the two answers serves the person who asked better? Write one or two sentences about each. " +
	"Then end your reply with one line in this form, and nothing behind it:\n\n" +
	"CHOICE: <A, B or tie>\n\n" +
	"A stands for Response A, B for Response B, and tie for neither being better."

// Shadow holds what reviewers, or judges, compare after a session.
type Shadow struct {
	Question string
	// Synthesis and Top are the texts of the final answer and of the top-ranked answer.
	Synthesis, Top string
	Reviewers      []council.Member
	// SynthesisFirst says that the first reviewer sees the synthesis before the other text. The order alternates from
	// one reviewer to the next.
	SynthesisFirst bool
	// NewMarkers makes the markers of the next prompt of a seat.
	NewMarkers func(seat string) anonymize.Markers
}

// Compare asks every reviewer once which text is better, all at the same time, and waits for all of them. It does
// not tell them who wrote the texts. Review i belongs to reviewer i.
func Compare(ctx context.Context, c council.Completer, in Shadow, sampling council.Sampling) []council.ShadowReview {
	reviews := make([]council.ShadowReview, len(in.Reviewers))
	var wg sync.WaitGroup
	for i, reviewer := range in.Reviewers {
		wg.Go(func() { reviews[i] = in.ask(ctx, c, reviewer, in.SynthesisFirst == (i%2 == 0), sampling) })
	}
	wg.Wait()
	return reviews
}

func (in Shadow) ask(
	ctx context.Context, c council.Completer, reviewer council.Member, synthesisFirst bool, sampling council.Sampling,
) (r council.ShadowReview) {
	shown := [2]council.Choice{council.ChoiceTop, council.ChoiceSynthesis}
	if synthesisFirst {
		shown = [2]council.Choice{council.ChoiceSynthesis, council.ChoiceTop}
	}
	r = council.ShadowReview{ID: reviewer.ID, First: shown[0], Status: council.OutcomeError}
	defer func() {
		if v := recover(); v != nil {
			r.Status = council.OutcomeError
			r.Choice = nil
		}
	}()
	slate := council.Slate{{Label: "Response A", Member: string(shown[0])}, {Label: "Response B", Member: string(shown[1])}}
	texts := map[string]string{string(council.ChoiceSynthesis): in.Synthesis, string(council.ChoiceTop): in.Top}
	completion, err := c.Complete(ctx, council.Call{
		Stage:    council.StageShadow,
		Seat:     reviewer.ID,
		Model:    reviewer.Model,
		Profile:  reviewer.Profile,
		Messages: messages(in.Question, slate, texts, in.NewMarkers(reviewer.ID), compare),
		Sampling: reviewer.Sampling(sampling),
	})
	if err != nil {
		return r
	}
	r.Status = council.OutcomeInvalid
	switch place, ok := ParseChoice(completion.Text); {
	case !ok, completion.PromptCut: // the reviewer may not have seen both answers
	case place < 0:
		r.Status = council.OutcomeOK
		r.Choice = new(council.ChoiceTie)
	default:
		r.Status = council.OutcomeOK
		r.Choice = &shown[place]
	}
	return r
}

// maxChoice is the length in bytes of the longest line that can hold a choice.
const maxChoice = 200

// ParseChoice returns which of two answers a reply prefers: 0 for A, 1 for B, and -1 for a tie. The choice must be
// alone on the last line that is not empty, as "CHOICE: A", in upper or lower case and with any markup. ParseChoice
// returns false for any other reply, because a choice elsewhere may be a quotation.
func ParseChoice(reply string) (place int, ok bool) {
	reply = strings.TrimSpace(reply)
	line := reply[strings.LastIndexByte(reply, '\n')+1:]
	if len(line) > maxChoice {
		return 0, false
	}
	choice, ok := strings.CutPrefix(strings.ToLower(unbullet(clean(line))), "choice:")
	if !ok {
		return 0, false
	}
	switch strings.TrimSpace(choice) {
	case "a":
		return 0, true
	case "b":
		return 1, true
	case "tie":
		return -1, true
	default:
		return 0, false
	}
}
