package stage2

import (
	"cmp"
	"context"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// Input holds the question, the answers and the reviewers.
type Input struct {
	Question  string
	Answers   map[string]string // member id -> answer
	Reviewers []council.Member
	Slates    []council.Slate // slate i is shown to reviewer i
	// NewMarkers makes the markers of the next prompt of a seat.
	NewMarkers func(seat string) anonymize.Markers
}

// Options say how to call the reviewers.
type Options struct {
	council.Sampling
	// Repair allows one more call when a reply holds no ballot or a partial one.
	Repair bool
	// Criteria says what the reviewers look for. If it is "", they look for general quality.
	Criteria string
}

// Stage is a stage 2 that is ready to begin. Prepare makes it, and Ask runs it.
type Stage struct {
	Calls []council.Call // the first call of each reviewer, which shows its slate

	in Input
	o  Options
	// defects holds, for each reviewer, why its call could not be made, or nil.
	defects []*council.Failure
}

// Prepare makes the first calls of the reviewers.
func Prepare(in Input, o Options) *Stage {
	s := &Stage{
		Calls:   make([]council.Call, len(in.Reviewers)),
		in:      in,
		o:       o,
		defects: make([]*council.Failure, len(in.Reviewers)),
	}
	// formats holds the formats by the length of the slate, which determines the labels.
	formats := map[int]*council.Format{}
	for i, reviewer := range in.Reviewers {
		slate := in.Slates[i]
		if formats[len(slate)] == nil {
			formats[len(slate)] = format(slate.Labels())
		}
		s.Calls[i] = council.Call{
			Stage: council.Stage2, Seat: reviewer.ID, Model: reviewer.Model, Profile: reviewer.Profile,
			Sampling: reviewer.Sampling(o.Sampling), Format: formats[len(slate)],
		}
		func() {
			defer func() {
				if v := recover(); v != nil {
					s.defects[i] = council.Panicked(v)
				}
			}()
			s.Calls[i].Messages = prompt(in, slate, o.Criteria, reviewer.ID)
		}()
	}
	return s
}

// Ask makes the calls of the reviewers, all at the same time, and waits for all of them. Review i belongs to reviewer
// i. If a reviewer fails, its Review holds the Failure. Ask calls the function landed once for each review as it
// arrives, from several goroutines.
func (s *Stage) Ask(ctx context.Context, c council.Completer, landed func(council.Review)) []council.Review {
	reviews := make([]council.Review, len(s.Calls))
	var wg sync.WaitGroup
	for i := range s.Calls {
		wg.Go(func() {
			reviews[i] = s.review(ctx, c, i)
			landed(reviews[i])
		})
	}
	wg.Wait()
	return reviews
}

func (s *Stage) review(ctx context.Context, c council.Completer, i int) (r council.Review) {
	in := s.in
	call := s.Calls[i]
	r = council.Review{Model: in.Reviewers[i].ID, Slate: in.Slates[i], LabelToModel: in.Slates[i].LabelToModel()}
	defer func() {
		if v := recover(); v != nil {
			r.Status = council.OutcomeError
			r.Error = council.Panicked(v)
		}
	}()
	if r.Error = s.defects[i]; r.Error != nil {
		r.Status = council.OutcomeError
		return r
	}
	labels := r.Slate.Labels()
	completion, err := c.Complete(ctx, call)
	r.Spent = completion.Spent
	if failure := council.AsFailure(err); failure != nil && failure.Code != council.FailEmpty {
		r.Status = council.OutcomeError
		r.Error = failure
		return r
	} // an empty reply counts as a reply without a ballot
	r.Ranking = &completion.Text
	r.Reasoning = completion.Thought()
	r.FinishReason = completion.Finish()
	if completion.PromptCut {
		r.Status = council.OutcomeInvalid
		r.Error = promptCut()
		r.ParsedRanking = new(emptyBallot())
		r.ParsedRanking.Reason = r.Error.Message
		return r
	}
	ballot, err := ParseBallot(completion.Text, labels)
	if s.o.Repair && (err != nil || ballot.Partial(len(labels))) {
		// Draw new markers, because the next prompt holds the reviewer's reply, and the reviewer knows the markers of
		// the first prompt.
		again := prompt(in, r.Slate, s.o.Criteria, call.Seat)
		call.Messages = repairPrompt(again, completion.Text, ballot, labels)
		if better, ok := repair(ctx, c, call, &r, len(ballot.Ranking)); ok {
			ballot = better
			err = nil
		}
	}
	r.ParsedRanking = &ballot
	switch {
	case err != nil:
		r.Status = council.OutcomeInvalid
		r.Error = &council.Failure{Code: council.FailInvalidBallot, Message: err.Error()}
	case ballot.Abstained:
		r.Status = council.OutcomeAbstained
	default:
		r.Status = council.OutcomeOK
	}
	return r
}

// repair asks the reviewer once more. It returns true in two cases: the new reply ranks more labels than the first
// reply, or the new reply abstains and the first reply ranked no label.
func repair(ctx context.Context, c council.Completer, call council.Call, r *council.Review, ranked int) (council.Ballot, bool) {
	completion, err := c.Complete(ctx, call)
	r.Add(completion.Spent)
	if err != nil {
		return council.Ballot{}, false
	}
	r.Repair = &completion.Text
	if completion.PromptCut {
		return council.Ballot{}, false
	}
	ballot, err := ParseBallot(completion.Text, r.Slate.Labels())
	r.Repaired = err == nil && (len(ballot.Ranking) > ranked || ballot.Abstained && ranked == 0)
	if r.Repaired {
		r.ModelVersion = cmp.Or(completion.ModelVersion, r.ModelVersion)
	}
	return ballot, r.Repaired
}

// promptCut returns the failure of a reviewer whose prompt the provider cut.
func promptCut() *council.Failure {
	return &council.Failure{
		Code: council.FailPromptCut, Message: "the server of the model cut the prompt: " +
			"the reviewer has not seen all answers",
	}
}
