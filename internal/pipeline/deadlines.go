package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/council"
)

// endOf returns the time from the start of a run to the deadline of a stage. A stage that ends early leaves its time to
// the next stage. The last stage must end a little before the time budget, so that the fallback answer is still in
// time.
func endOf(plan council.Plan, stage council.Stage) time.Duration {
	last := plan.Timeout - min(time.Second, plan.Timeout/20)
	for _, s := range plan.Stages {
		if s.Kind.Stage() == stage {
			return min(last, time.Duration(math.Round(s.TimeEnd*float64(plan.Timeout))))
		}
	}
	return last
}

// FirstStage returns how long the first stage of a plan may take.
func FirstStage(plan council.Plan) time.Duration { return endOf(plan, plan.FirstStage().Kind.Stage()) }

// until returns a context that ends at the deadline of the stage.
func (r *run) until(ctx context.Context, stage council.Stage) (context.Context, context.CancelFunc) {
	return r.untilTime(ctx, stage, endOf(r.plan, stage))
}

// untilTime returns a context that ends when the run has taken the time end. The stage names that time in errors.
func (r *run) untilTime(
	ctx context.Context, stage council.Stage, end time.Duration,
) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, r.start.Add(end), errors.New("the time for "+string(stage)+" ran out"))
}

// stragglerContext returns a context for the calls of a stage with n seats. The caller must call the function delivered
// with each outcome. The context ends when the run has taken the time end, or with council.ErrCut when the grace period
// for slow seats is over. The grace period begins with the outcome that completes a quorum. That outcome may come from an
// earlier process of the run.
func (r *run) stragglerContext(ctx context.Context, stage council.Stage, n int, end time.Duration) (
	_ context.Context, delivered func(council.Outcome), cancel func(),
) {
	ctx, cancelled := r.untilTime(ctx, stage, end)
	if r.plan.Rules.StragglerGrace == nil {
		return ctx, func(council.Outcome) {}, cancelled
	}
	grace := *r.plan.Rules.StragglerGrace
	quorum := Quorum(r.plan.Rules.Quorum, n)
	ctx, cut := context.WithCancelCause(ctx)
	cause := fmt.Errorf(
		"%w: a quorum had answered, and %s was over", council.ErrCut, r.p.o.Settings.Of(council.SettingStragglerGrace),
	)
	wait := r.plan.Timeout // Before a quorum the timer has no effect: the stage ends earlier.
	earlier := r.state.Delivered(stage)
	if len(earlier) >= quorum {
		wait = earlier[quorum-1] + grace - time.Since(r.start)
	}
	if wait <= 0 {
		cut(cause) // no further call begins
	}
	timer := time.AfterFunc(wait, func() { cut(cause) })
	var ok atomic.Int64
	if stage == council.Stage1 { // Others may have answered before these seats were asked.
		ok.Store(int64(len(r.authors)))
	}
	delivered = func(o council.Outcome) {
		if o == council.OutcomeOK && ok.Add(1) == int64(quorum) && len(earlier) < quorum {
			timer.Reset(grace)
		}
	}
	return ctx, delivered, func() {
		timer.Stop()
		cancelled()
	}
}

// Quorum returns how many of n seats must succeed. The setting 0 means more than half of the seats.
func Quorum(setting, n int) int {
	if setting > 0 {
		return min(setting, n)
	}
	return n/2 + 1
}

// stopwatch starts to measure a stage. The returned function sets ms to the milliseconds that the stage took, including
// the time in earlier processes of the run.
func (r *run) stopwatch(stage council.Stage, ms *float64) (stop func()) {
	start := time.Since(r.start)
	if earlier, ok := r.state.Began(stage); ok {
		start = earlier
	}
	return func() {
		end, ok := r.state.Done(stage)
		if !ok {
			end = time.Since(r.start)
		}
		*ms = milliseconds(end - start)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
