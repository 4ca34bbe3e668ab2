package disagreement

import (
	"context"

	"github.com/councild/councild/internal/council"
)

// Terms is the [council.Side] that compares the answers by the terms of a lexicon, as [Detect] does. It calls no model.
type Terms struct {
	Matcher   *Matcher
	Threshold float64 // the score, 0 to 1, from which an axis may be flagged
}

// Name implements council.Side.
func (Terms) Name() string { return "terms" }

// Plan implements council.Side.
func (t Terms) Plan(council.Plan) *council.SidePlan {
	return &council.SidePlan{Name: t.Name(), Tally: true, Threshold: t.Threshold}
}

// Look implements council.Side.
func (t Terms) Look(ctx context.Context, in council.Seen, _ council.Completer) council.Finding {
	found := Detect(ctx, Answered{
		Question:  in.Plan.Question(),
		Answers:   in.Answers,
		Matcher:   t.Matcher,
		Threshold: in.Side.Threshold,
		Seed:      in.Plan.Seed,
	})
	if found == nil {
		return nil
	}
	return lexical(*found)
}

// Missing implements council.Side. A session without the finding says nothing about the terms.
func (Terms) Missing(council.SidePlan, string) council.Finding { return nil }

// lexical is the Finding of Terms.
type lexical council.DemographicDisagreement

// AddTo implements council.Finding.
func (l lexical) AddTo(s *council.Session) {
	s.Metadata.DemographicDisagreement = (*council.DemographicDisagreement)(&l)
}
