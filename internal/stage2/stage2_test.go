package stage2

import (
	"context"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

type completer func(council.Call) (council.Completion, error)

func (c completer) Complete(_ context.Context, call council.Call) (council.Completion, error) {
	return c(call)
}

// A reviewer whose call panics is a failed seat. The others go on, and each review stands
// at the place of its reviewer.
func TestAskKeepsSeatsApart(t *testing.T) {
	slate := council.Slate{{Label: "Response A", Member: "x"}, {Label: "Response B", Member: "y"}}
	in := Input{
		Question: "Why?", Answers: map[string]string{"x": "a", "y": "b"}, NewMarkers: anonymize.NewMarkers,
		Reviewers: []council.Member{{ID: "bad", Model: "bad"}, {ID: "good", Model: "good"}}, Slates: []council.Slate{slate, slate},
	}
	landed := make(chan council.Review, len(in.Reviewers))
	reviews := Ask(t.Context(), completer(func(call council.Call) (council.Completion, error) {
		if call.Model == "bad" {
			panic("a defect")
		}
		return council.Completion{Text: `{"ranking":["Response B","Response A"]}`}, nil
	}), in, Options{}, func(r council.Review) { landed <- r })
	if bad := reviews[0]; bad.Status != council.OutcomeError || bad.Error == nil || bad.Error.Code != council.FailInternal {
		t.Errorf("the seat that panicked is %s, %v", bad.Status, bad.Error)
	}
	if good := reviews[1]; good.Status != council.OutcomeOK || len(good.ParsedRanking.Ranking) != 2 {
		t.Errorf("the other seat is %s, %v", good.Status, good.Error)
	}
	if len(landed) != len(reviews) {
		t.Errorf("%d reviews were told of, want %d", len(landed), len(reviews))
	}
}
