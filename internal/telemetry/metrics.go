package telemetry

import (
	"context"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts what sessions do. It is a council.Observer of every session.
type Metrics struct {
	registry    *prometheus.Registry
	sessions    *prometheus.CounterVec   // by status
	running     prometheus.Gauge         // number of sessions that run
	stages      *prometheus.HistogramVec // seconds, by stage
	overhead    prometheus.Histogram     // seconds
	calls       *prometheus.CounterVec   // by stage, model, outcome
	latency     *prometheus.HistogramVec // seconds, by stage
	retries     *prometheus.CounterVec   // by stage, model
	implausible *prometheus.CounterVec   // by model
	tokens      *prometheus.CounterVec   // by model, kind
	cost        *prometheus.CounterVec   // US dollars, by model
	ballots     *prometheus.CounterVec   // by status
	records     *prometheus.CounterVec   // by outcome
}

// NewMetrics returns metrics that have counted nothing. Each scrape calls the function states to get the circuit
// breakers. The argument states may be nil.
func NewMetrics(version string, states func() []council.Breaker) *Metrics {
	registry := prometheus.NewRegistry()
	registered := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	byStage := func(name, help string) *prometheus.HistogramVec {
		seconds := []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600}
		return registered.NewHistogramVec(prometheus.HistogramOpts{
			Name:    name,
			Help:    help,
			Buckets: seconds,
		}, []string{"stage"})
	}
	registered.NewGauge(prometheus.GaugeOpts{
		Name: "councild_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": version},
	}).Set(1)
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{
		registry: registry,
		sessions: counter("councild_sessions_total", "Sessions that ended, by status.", "status"),
		running: registered.NewGauge(prometheus.GaugeOpts{
			Name: "councild_sessions_running",
			Help: "Sessions that run.",
		}),
		stages: byStage("councild_stage_seconds", "Wall time of a stage."),
		overhead: registered.NewHistogram(prometheus.HistogramOpts{
			Name: "councild_overhead_seconds", Help: "Time of a session that its slowest calls do not explain.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		calls: counter("councild_calls_total",
			"Calls to models, by what came of them: ok, or the failure's code.", "stage", "model", "outcome"),
		latency: byStage("councild_call_seconds", "Time of a call, all attempts."),
		retries: counter("councild_retries_total", "Requests to providers beyond the first of a call.",
			"stage", "model"),
		implausible: counter("councild_usage_doubted_total",
			"Figures of usage and cost that were not believed and count as unknown.", "model"),
		tokens: counter("councild_tokens_total",
			"Tokens that calls used, as far as providers said it: input or output.", "model", "kind"),
		cost: counter("councild_cost_usd_total", "Cost of calls in US dollars, as far as providers said it.",
			"model"),
		ballots: counter("councild_ballots_total", "Reviews, by status.", "status"),
		records: counter("councild_records_total",
			"Bias records, by whether they are on disk: persisted or not_persisted.", "outcome"),
	}
	m.Gauges("councild_breaker_open", "Circuit breakers: 0 closed, 0.5 half open, 1 open.", []string{"provider", "model"},
		func(set func(float64, ...string)) {
			if states == nil {
				return
			}
			values := map[council.BreakerState]float64{council.BreakerHalfOpen: 0.5, council.BreakerOpen: 1}
			for _, b := range states() {
				set(values[b.State], b.Provider, b.Model)
			}
		})
	return m
}

// Gauge adds a gauge. Each scrape calls the function value to get the current value.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// Counter adds a counter. Each scrape calls the function value to get the current value, which must never fall.
func (m *Metrics) Counter(name, help string, value func() float64) {
	promauto.With(m.registry).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
}

// Gauges adds gauges with one name. Each scrape calls the function in the argument each. That function must call set
// once for every current value, with the values of the labels.
func (m *Metrics) Gauges(name, help string, labels []string, each func(set func(value float64, labels ...string))) {
	m.Families([]Family{{Name: name, Help: help}}, labels, func(set func(family int, value float64, labels ...string)) {
		each(func(value float64, labels ...string) { set(0, value, labels...) })
	})
}

// Family describes all metrics with the same name.
type Family struct {
	Name, Help string
	Counter    bool // its values only grow
}

// Families adds metrics with several names that have the same labels and belong to the same instant. Each scrape calls
// the function in the argument each. That function must call set once for every current value, with the index of the
// family in all, the value, and the values of the labels.
func (m *Metrics) Families(
	all []Family, labels []string, each func(set func(family int, value float64, labels ...string)),
) {
	f := families{each: each}
	for _, family := range all {
		f.descs = append(f.descs, prometheus.NewDesc(family.Name, family.Help, labels, nil))
		kind := prometheus.GaugeValue
		if family.Counter {
			kind = prometheus.CounterValue
		}
		f.kinds = append(f.kinds, kind)
	}
	m.registry.MustRegister(f)
}

// families are metrics whose label values become known only in a scrape. At the next scrape, some values may be gone.
type families struct {
	descs []*prometheus.Desc
	kinds []prometheus.ValueType
	each  func(set func(family int, value float64, labels ...string))
}

// Describe implements prometheus.Collector.
func (f families) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range f.descs {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (f families) Collect(metrics chan<- prometheus.Metric) {
	f.each(func(family int, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(f.descs[family], f.kinds[family], value, labels...)
	})
}

// Handler serves the metrics in Prometheus's text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Observe counts an event. It implements council.Observer.
func (m *Metrics) Observe(e council.Event) {
	switch data := e.Data.(type) {
	case council.Started:
		m.running.Inc()
	case council.Review:
		m.ballots.WithLabelValues(string(data.Status)).Inc()
	case *council.Session:
		m.running.Dec()
		m.sessions.WithLabelValues(string(data.Status)).Inc()
		t := data.Metadata.Timing
		stages := map[council.Stage]float64{
			council.Stage1: t.Stage1MS,
			council.Stage2: t.Stage2MS,
			council.Stage3: t.Stage3MS,
		}
		for stage, ms := range stages {
			if ms > 0 { // Otherwise the session had no such stage.
				m.stages.WithLabelValues(string(stage)).Observe(ms / 1000)
			}
		}
		m.overhead.Observe(t.OverheadMS / 1000)
	case *council.Error:
		m.running.Dec()
		status := council.StatusFailed
		if data.Code == council.CodeCancelled {
			status = council.StatusCancelled
		}
		m.sessions.WithLabelValues(string(status)).Inc()
	}
}

// Completer returns a council.Completer that passes calls to c and counts them.
func (m *Metrics) Completer(c council.Completer) council.Completer { return &counted{c, m} }

type counted struct {
	council.Completer
	*Metrics
}

// Complete implements council.Completer. It uses the model as a label. The label has few values, because only
// configured models are called.
func (c *counted) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	completion, err := c.Completer.Complete(ctx, call)
	outcome := "ok"
	if failure := council.AsFailure(err); failure != nil {
		outcome = string(failure.Code)
	}
	c.calls.WithLabelValues(string(call.Stage), call.Model, outcome).Inc()
	if completion.Attempts > 0 { // Otherwise nothing was sent.
		c.latency.WithLabelValues(string(call.Stage)).Observe(completion.LatencyMS / 1000)
	}
	c.retries.WithLabelValues(string(call.Stage), call.Model).Add(float64(max(0, completion.Attempts-1)))
	if completion.Implausible > 0 {
		c.implausible.WithLabelValues(call.Model).Add(float64(completion.Implausible))
	}
	usage := completion.Usage // A figure that is not known has no series, because it is not zero.
	for kind, tokens := range map[string]*int64{"input": usage.InputTokens, "output": usage.OutputTokens} {
		if tokens != nil {
			c.tokens.WithLabelValues(call.Model, kind).Add(float64(*tokens))
		}
	}
	if usage.CostUSD != nil {
		c.cost.WithLabelValues(call.Model).Add(*usage.CostUSD)
	}
	return completion, err
}

// appender stores bias records.
type appender interface {
	Append(ctx context.Context, records []council.BiasMetricRecord) error
}

// Recorder passes bias records on. It counts the stored records and the records that could not be stored.
type Recorder struct {
	appender
	records *prometheus.CounterVec
}

// Recorder returns a Recorder that passes records to the appender a.
func (m *Metrics) Recorder(a appender) Recorder { return Recorder{a, m.records} }

// Append passes records on and counts them.
func (r Recorder) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	err := r.appender.Append(ctx, records)
	outcome := "persisted"
	if err != nil {
		outcome = "not_persisted"
	}
	r.records.WithLabelValues(outcome).Add(float64(len(records)))
	return err
}
