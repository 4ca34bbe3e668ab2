package stage2

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/simllm"
)

// A reviewer whose prompt cannot be made, because that panics, is a failed seat. The
// others go on, and each review stands at the place of its reviewer.
func TestAskKeepsSeatsApart(t *testing.T) {
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: []simllm.Model{{Name: "one"}, {Name: "two"}, {Name: "three"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: 5 * time.Second,
		MaxCallsPerProvider: 3, MaxReplyBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	slate := council.Slate{{Label: "Response A", Member: "x"}, {Label: "Response B", Member: "y"}}
	var prompts atomic.Int64
	in := Input{
		Question: "Why is the sky blue?", Answers: map[string]string{"x": "Scattering.", "y": "The sea."},
		Slates: []council.Slate{slate, slate, slate},
		NewMarkers: func(string) anonymize.Markers {
			if prompts.Add(1) == 2 {
				panic("a defect")
			}
			return anonymize.NewMarkers()
		},
	}
	for _, name := range []string{"one", "two", "three"} {
		in.Reviewers = append(in.Reviewers, council.Member{ID: name, Model: name})
	}
	landed := make(chan council.Review, len(in.Reviewers))
	reviews := Prepare(in, Options{}).Ask(t.Context(), client, func(r council.Review) { landed <- r })
	failed := 0
	for i, r := range reviews {
		if r.Model != in.Reviewers[i].ID {
			t.Errorf("review %d is of %s", i, r.Model)
		}
		switch {
		case r.Status == council.OutcomeOK && len(r.ParsedRanking.Ranking) == 2:
		case r.Status == council.OutcomeError && r.Error.Code == council.FailInternal:
			failed++
		default:
			t.Errorf("the review of %s is %s, %v", r.Model, r.Status, r.Error)
		}
	}
	if failed != 1 {
		t.Errorf("%d seats failed, want 1", failed)
	}
	if len(landed) != len(reviews) {
		t.Errorf("%d reviews were told of, want %d", len(landed), len(reviews))
	}
}

// A panic while a reviewer is asked is the failure of its review alone.
func TestAskSurvivesPanics(t *testing.T) {
	slate := council.Slate{{Label: "Response A", Member: "x"}, {Label: "Response B", Member: "y"}}
	in := Input{
		Question: "Why?", Answers: map[string]string{"x": "Scattering.", "y": "The sea."}, Slates: []council.Slate{slate, slate},
		Reviewers:  []council.Member{{ID: "one", Model: "one"}, {ID: "two", Model: "two"}},
		NewMarkers: func(string) anonymize.Markers { return anonymize.NewMarkers() },
	}
	reviews := Prepare(in, Options{}).Ask(t.Context(), defective("one"), func(council.Review) {})
	if r := reviews[0]; r.Status != council.OutcomeError || r.Error.Code != council.FailInternal {
		t.Errorf("the review of one is %s, %v", r.Status, r.Error)
	}
	if r := reviews[1]; r.Status != council.OutcomeOK {
		t.Errorf("the review of two is %s, %v", r.Status, r.Error)
	}
}

// defective panics in calls of the model that it names.
type defective string

// Complete implements council.Completer.
func (d defective) Complete(_ context.Context, call council.Call) (council.Completion, error) {
	if call.Model == string(d) {
		panic("a defect")
	}
	return council.Completion{Text: `{"ranking": ["Response B", "Response A"]}`}, nil
}
