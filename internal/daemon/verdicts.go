package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/councild/councild/internal/bias"
)

// verdictsAge is the shortest pause after a computation. A scrape during the pause gets the last verdicts, and starts no
// computation.
const verdictsAge = time.Minute

// verdictsRest limits the load of the computations. The pause after a computation is at least this many times longer
// than the computation, because a report over a large store is a lot of work.
const verdictsRest = 10

// verdicts computes the verdicts of the bias report's headlines. It computes them in the background when a scrape
// asks. A scrape gets the last result and does not wait.
type verdicts struct {
	report func(context.Context, bias.Query) (bias.Report, error)
	log    *slog.Logger
	// asked has room for one element. A scrape sends an element to ask for new verdicts.
	asked chan struct{}

	mu sync.Mutex // guards latest
	// latest has the verdicts by metric. It is nil before the first result, and after an error.
	latest map[string]string
}

func newVerdicts(report func(context.Context, bias.Query) (bias.Report, error), log *slog.Logger) *verdicts {
	return &verdicts{report: report, log: log, asked: make(chan struct{}, 1)}
}

// current is the result of the last computation: the verdicts by metric. The call also asks for newer ones.
func (v *verdicts) current() map[string]string {
	select {
	case v.asked <- struct{}{}:
	default:
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.latest
}

// run computes the verdicts when a scrape asks for them, until ctx ends.
func (v *verdicts) run(ctx context.Context) {
	for {
		select {
		case <-v.asked:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		latest, err := v.compute(ctx)
		if err != nil && ctx.Err() == nil {
			v.log.WarnContext(ctx, "the verdicts of /metrics could not be computed", "error", err)
		}
		v.mu.Lock()
		v.latest = latest
		v.mu.Unlock()
		select {
		case <-time.After(max(verdictsAge, verdictsRest*time.Since(begun))):
		case <-ctx.Done():
			return
		}
		select {
		case <-v.asked: // asked while the verdicts were new
		default:
		}
	}
}

func (v *verdicts) compute(ctx context.Context) (map[string]string, error) {
	report, err := v.report(ctx, bias.Query{})
	if err != nil {
		return nil, err
	}
	latest := map[string]string{}
	for _, m := range report.Metrics {
		if m.Verdict != nil {
			latest[m.Name] = string(*m.Verdict)
		}
	}
	return latest, nil
}

// measureVerdicts adds the verdicts of the bias report to the metrics.
func (d *Daemon) measureVerdicts(ctx context.Context) {
	v := newVerdicts(d.Report, d.log)
	d.runBackground(ctx, "the verdicts", v.run)
	d.engine.metrics.Gauges("councild_bias_verdict", "1 for the verdict of each headline of the bias report.",
		[]string{"metric", "verdict"}, func(set func(float64, ...string)) {
			for metric, verdict := range v.current() {
				set(1, metric, verdict)
			}
		})
}

// runBackground starts run in a goroutine. The teardown cancels the context of run and waits for run to return. The
// argument name is the name of run in errors of the teardown.
func (d *Daemon) runBackground(ctx context.Context, name string, run func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	d.teardown.push(name, always(func() {
		stop()
		running.Wait()
	}))
}
