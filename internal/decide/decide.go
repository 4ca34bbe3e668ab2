// Package decide has seats vote on questions about a text, and counts their votes. A seat is called once, with all
// questions.
//
// The pipeline performs the calls and decides whether enough seats replied. Package openai gives the counts the form of
// OpenAI's decisions.
//
// # Decisions
//
// Models favour options that stand at certain places. Over the seats of a stage, each option of a question therefore
// stands at each place about equally often. The levels of a score keep their order, which ascends for half of the seats
// and descends for the others.
//
// A share of votes is not the probability that the majority is right, because judges make the same mistakes. Package
// ranking only avoids the extremes: it counts as if one more judge had divided its vote equally.
package decide

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

// Input says who votes on what.
type Input struct {
	// Question is the question that Text answers. If it is "", the seats see only Text.
	Question  string
	Text      string
	Questions []council.VoteQuestion
	Seats     []council.Member
	Seed      int64 // determines the orders of the options
	// NewMarkers makes the markers of the next prompt of a seat.
	NewMarkers func(seat string) anonymize.Markers
}

// Reply is the reply of one seat.
type Reply struct {
	Seat string
	// Votes has the index of an option for each question, or -1 if the seat cast no vote on the question. It is nil if
	// Error is set.
	Votes []int
	council.Spent
	Error *council.Failure
}

// Stage is a stage that is ready to begin. Prepare makes it, and Ask runs it.
type Stage struct {
	Calls []council.Call // the call of each seat

	orders [][][]int // the options in the order shown, for each seat and question
	labels [][][]string
}

// Prepare makes the calls of the seats.
func Prepare(in Input, sampling council.Sampling) *Stage {
	s := &Stage{orders: in.orders()}
	for i, seat := range in.Seats {
		labels := make([][]string, len(in.Questions))
		for q, question := range in.Questions {
			labels[q] = labelsOf(question, s.orders[i][q])
		}
		s.labels = append(s.labels, labels)
		s.Calls = append(s.Calls, council.Call{
			Stage: council.StageVotes, Seat: seat.ID, Model: seat.Model, Profile: seat.Profile,
			Messages: in.prompt(s.orders[i], labels, in.NewMarkers(seat.ID)),
			Sampling: seat.Sampling(sampling), Format: format(labels),
		})
	}
	return s
}

// orders draws the order in which each seat sees the options of each question.
func (in Input) orders() [][][]int {
	orders := make([][][]int, len(in.Seats))
	seats := make([]string, len(in.Seats))
	for i, seat := range in.Seats {
		seats[i] = seat.ID
	}
	for q, question := range in.Questions {
		n := len(question.Options)
		if question.Kind == council.VoteScore {
			n = 2 // the two directions
		}
		numbers := make([]string, n)
		for i := range numbers {
			numbers[i] = strconv.Itoa(i)
		}
		drawn := anonymize.Draw(anonymize.Options{
			Seed:    anonymize.SeedFor(in.Seed, fmt.Sprintf("votes on question %d", q+1)),
			Authors: numbers, Reviewers: seats, ShowOwn: true,
		})
		for i, slate := range drawn.Reviewer {
			order := make([]int, n)
			for place, shown := range slate {
				order[place], _ = strconv.Atoi(shown.Member) // the members are numbers
			}
			if question.Kind == council.VoteScore {
				order = levels(len(question.Options), order[0] == 1)
			}
			orders[i] = append(orders[i], order)
		}
	}
	return orders
}

// levels returns the levels of a score, ascending or descending.
func levels(n int, descending bool) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if descending {
		slices.Reverse(order)
	}
	return order
}

// Ask makes the calls of the seats, all at the same time, and waits for all of them. Reply i belongs to seat i. Ask
// calls the function landed once for each reply as it arrives, from several goroutines.
func (s *Stage) Ask(ctx context.Context, c council.Completer, landed func(Reply)) []Reply {
	replies := make([]Reply, len(s.Calls))
	var wg sync.WaitGroup
	for i := range s.Calls {
		wg.Go(func() {
			replies[i] = s.ask(ctx, c, i)
			landed(replies[i])
		})
	}
	wg.Wait()
	return replies
}

func (s *Stage) ask(ctx context.Context, c council.Completer, i int) (r Reply) {
	r.Seat = s.Calls[i].Seat
	defer func() {
		if v := recover(); v != nil {
			r.Votes = nil
			r.Error = council.Panicked(v)
		}
	}()
	completion, err := c.Complete(ctx, s.Calls[i])
	r.Spent = completion.Spent
	if err != nil {
		r.Error = council.AsFailure(err)
		return r
	}
	if completion.PromptCut {
		r.Error = &council.Failure{
			Code:    council.FailPromptCut,
			Message: "the server of the model cut the prompt: the seat has not seen the whole text",
		}
		return r
	}
	places, ok := read(completion.Text, s.labels[i])
	if !ok {
		r.Error = &council.Failure{
			Code: council.FailInvalidBallot, Message: "the reply does not hold the JSON object with the votes",
		}
		return r
	}
	r.Votes = places
	for q, place := range places {
		if place >= 0 {
			r.Votes[q] = s.orders[i][q][place]
		}
	}
	return r
}
