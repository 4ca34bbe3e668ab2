package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/telemetry"
)

// monitor computes the monitor of the bias report at an interval. A scrape gets the last result and does not wait.
type monitor struct {
	compute func(context.Context) (bias.Monitor, error)
	every   time.Duration // shortest time between two results; verdictsRest can make it longer
	log     *slog.Logger

	mu     sync.Mutex     // guards latest
	latest []bias.Watched // nil before the first result, and after an error
}

// current is the list of the headlines from the last computation.
func (m *monitor) current() []bias.Watched {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// run computes the monitor at the interval until ctx ends.
func (m *monitor) run(ctx context.Context) {
	for {
		begun := time.Now()
		latest, err := m.compute(ctx)
		if err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "the monitor of /metrics could not be computed", "error", err)
		}
		m.mu.Lock()
		m.latest = latest.Watched
		m.mu.Unlock()
		select {
		case <-time.After(max(m.every, verdictsRest*time.Since(begun))):
		case <-ctx.Done():
			return
		}
	}
}

// measureMonitor adds the monitor of the bias report to the metrics.
func (d *Daemon) measureMonitor(ctx context.Context) {
	m := &monitor{compute: d.monitor, every: *d.cfg.MonitorInterval, log: d.log}
	d.runBackground(ctx, "the monitor", m.run)
	d.engine.metrics.Families([]telemetry.Family{
		{
			Name: "councild_monitor_log_e",
			Help: "Natural logarithm of the e value against the absence of bias, for each headline of the monitor.",
		},
		{Name: "councild_monitor_alarm", Help: "Whether the monitor raises an alarm on each headline: 1 yes, 0 no."},
	}, []string{"headline"}, func(set func(int, float64, ...string)) {
		for _, w := range m.current() {
			alarm := 0.0
			if w.Alarm {
				alarm = 1
			}
			if w.LogE != nil {
				set(0, *w.LogE, w.Name)
				set(1, alarm, w.Name)
			}
		}
	})
}

// monitor computes the monitor of the default council, over the sessions since that council last changed.
func (d *Daemon) monitor(ctx context.Context) (bias.Monitor, error) {
	h := d.engine.setup.Load()
	plan, err := h.pipelines[h.first].Prepare(council.Request{Query: "?"})
	if err != nil {
		return bias.Monitor{}, err
	}
	var evidence []string
	if path, _ := d.cfg.EvidenceFile(); path != "" {
		evidence = append(evidence, path)
	}
	return Monitor(ctx, d.cfg, []string{d.cfg.BiasStore}, evidence, bias.Query{ConfigVersion: plan.Versions.CouncilConfig})
}
