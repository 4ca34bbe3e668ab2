package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
)

// priced is a council whose sessions cost 1 US dollar each. The session "s0" runs until it is cancelled.
type priced struct{ *Calls }

func (p priced) Panel(ctx context.Context, plan council.Plan, _ []pipeline.Arm, _ pipeline.QuestionBudget) ([]pipeline.ArmResult, error) {
	if plan.SessionID == "s0" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	finish, err := p.Hold(plan.SessionID, 1)
	if err != nil {
		return nil, err
	}
	finish(1)
	spent := council.Spent{Usage: council.Usage{CostUSD: new(1.0)}}
	answer := council.Answer{Model: "amber", Response: new("yes"), Status: council.OutcomeOK, Spent: spent}
	return []pipeline.ArmResult{{Session: &council.Session{Stage1: []council.Answer{answer}}}}, nil
}

func (priced) Judge(
	context.Context, council.Plan, string, int, []council.Member, string, string, pipeline.QuestionBudget,
) ([]pipeline.Preference, bool) {
	return nil, false
}

// pricedRun returns a run of questions from number first on, each of which costs 1 US dollar.
func pricedRun(t *testing.T, first, questions int) Options {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	calls := openCalls(t, out+".calls")
	t.Cleanup(func() { _ = calls.Close() })
	o := Options{Council: priced{calls}, Calls: calls, Out: out, MaxCostUSD: 100, Concurrency: 2}
	for i := first; i < first+questions; i++ {
		o.Questions = append(o.Questions, Prepared{
			Question: Question{ID: strconv.Itoa(i)}, Session: council.Plan{SessionID: fmt.Sprintf("s%d", i)}, Bound: new(1.0),
		})
	}
	return o
}

// Questions that wait for an earlier one are over, and what they cost counts.
func TestRunCountsQuestionsThatWait(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o := pricedRun(t, 0, 5)
	var last Progress
	o.Progress = func(p Progress) {
		if last = p; p.Done == 4 {
			stop()
		}
	}
	out, err := Run(ctx, o)
	if err != nil || out.Stopped == nil || *out.Stopped != StoppedSignal {
		t.Fatalf("%+v, %v", out, err)
	}
	if cost := *cmp.Or(last.Usage.CostUSD, new(float64)); cost != 4 {
		t.Errorf("4 questions of 1 US dollar are over and cost %v", cost)
	}
	if len(out.Results) != 0 || out.Over != 4 || out.CostUSD != 4 {
		t.Errorf("%d results, %d questions are over, the cost is %v; want 0, 4, 4", len(out.Results), out.Over, out.CostUSD)
	}
}

// A question whose records cannot be kept has no line, and the run ends.
func TestRunEndsWithTheRecords(t *testing.T) {
	full := errors.New("the disk is full")
	o := pricedRun(t, 1, 3)
	o.Concurrency = 1
	var told []string
	o.Over = func(session string) error {
		if told = append(told, session); session == "s2" {
			return full
		}
		return nil
	}
	out, err := Run(t.Context(), o)
	if !errors.Is(err, full) {
		t.Errorf("the error is %v", err)
	}
	if len(out.Results) != 1 || fmt.Sprint(told) != "[s1 s2]" {
		t.Errorf("%d results, told of %v; want 1 result, and s1 and s2", len(out.Results), told)
	}
}
