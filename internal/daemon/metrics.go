package daemon

import (
	"time"

	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/telemetry"
)

// measure adds the state of the daemon to the metrics: readiness, stores, roster, costs, events and prices.
func (d *Daemon) measure() {
	d.engine.metrics.Gauges("councild_ready", "Whether requests can be sent here: 1 yes, 0 no, by the code of the reason at /readyz, or ok.",
		[]string{"code"}, func(set func(float64, ...string)) {
			reasons := d.NotReady()
			for _, r := range reasons {
				value := 0.0
				if r.Bearable {
					value = 1
				}
				set(value, r.Code)
			}
			if len(reasons) == 0 {
				set(1, "ok")
			}
		})
	if d.store != nil {
		d.engine.metrics.Gauge("councild_store_healthy", "Whether the last attempt to write records succeeded: 1 yes, 0 no.",
			func() float64 {
				if d.store.Healthy() != nil {
					return 0
				}
				return 1
			})
		d.engine.metrics.Gauge("councild_records_pending", "Records that are in memory alone, because they could not be written or sent yet.",
			func() float64 {
				pending := d.store.Pending()
				if d.publisher != nil {
					pending += d.publisher.pending()
				}
				return float64(pending)
			})
	}
	if d.journal != nil {
		d.measureKept()
	}
	d.engine.metrics.Gauge("councild_roster_reload_ok", "Whether the roster that was read last is in force: 1 yes, or there is none; 0 no.",
		func() float64 {
			if d.rosterInvalid.Load() {
				return 0
			}
			return 1
		})
	measureSpend(d.engine.metrics, d.engine.book)
	d.measureEvents()
	d.engine.metrics.Gauges("councild_price_age_days", "Days since the prices of a model were read, where that is known.",
		[]string{"model"}, func(set func(float64, ...string)) {
			for _, model := range d.engine.setup.Load().cfg.Named() {
				if tariff, ok := d.engine.tariff(model); ok && !tariff.AsOf.IsZero() {
					set(time.Since(tariff.AsOf).Hours()/24, model)
				}
			}
		})
}

// measureEvents adds the counts of sent and received events to the metrics, if the daemon sends or takes in events.
func (d *Daemon) measureEvents() {
	if d.outbox != nil {
		d.engine.metrics.Families([]telemetry.Family{
			{Name: "councild_events_waiting", Help: "Events of sessions that wait for their sink."},
			{Name: "councild_events_oldest_waiting_seconds", Help: "Age of the oldest event that waits for its sink; 0 if none waits."},
			{Name: "councild_events_sent_total", Counter: true, Help: "Events that their sink has taken."},
			{Name: "councild_events_rejected_total", Counter: true, Help: "Events that their sink rejects, and that are not sent again."},
			{Name: "councild_events_given_up_total", Counter: true, Help: "Events that their sink did not take for three days."},
		}, nil, func(set func(int, float64, ...string)) {
			s := d.outbox.State()
			for family, value := range []float64{
				float64(s.Waiting), s.Oldest.Seconds(), float64(s.Sent), float64(s.Rejected), float64(s.GivenUp),
			} {
				set(family, value)
			}
		})
	}
	if d.intake != nil {
		d.engine.metrics.Families([]telemetry.Family{{
			Name: "councild_events_taken_total", Counter: true,
			Help: "Events of other councils that came in, by what became of them: accepted, duplicate or rejected.",
		}}, []string{"outcome"}, func(set func(int, float64, ...string)) {
			for outcome, count := range d.intake.Outcomes() {
				set(0, float64(count), string(outcome))
			}
		})
	}
}

// measureHooks adds the counts of webhooks to the metrics, if the daemon sends webhooks.
func (d *Daemon) measureHooks() {
	if d.hooks == nil {
		return
	}
	d.engine.metrics.Families([]telemetry.Family{
		{Name: "councild_webhooks_waiting", Help: "Webhooks that wait for their receiver."},
		{Name: "councild_webhooks_oldest_waiting_seconds", Help: "Age of the oldest webhook that waits; 0 if none waits."},
		{Name: "councild_webhooks_sent_total", Counter: true, Help: "Webhooks that their receiver has taken."},
		{Name: "councild_webhooks_given_up_total", Counter: true, Help: "Webhooks that their receiver did not take for three days."},
	}, nil, func(set func(int, float64, ...string)) {
		s := d.hooks.State()
		for family, value := range []float64{float64(s.Waiting), s.Oldest.Seconds(), float64(s.Sent), float64(s.GivenUp)} {
			set(family, value)
		}
	})
}

// measureSpend adds costs, limits and reservations to the metrics.
func measureSpend(m *telemetry.Metrics, a *spend.Book) {
	m.Families([]telemetry.Family{{
		Name: "councild_spend_usd_total", Counter: true,
		Help: "Cost of requests to providers in US dollars, by where the figure is from: provider, tariff, or bound for uncertain cost.",
	}}, []string{"council", "model", "source"}, func(set func(int, float64, ...string)) {
		for _, b := range a.Bills() {
			set(0, b.USD.Float64(), b.Council, b.Model, string(b.Source))
		}
	})
	m.Families([]telemetry.Family{
		{
			Name: "councild_budget_used_usd",
			Help: "Cost of the sessions of today (UTC) in US dollars, of all (day) or of one token, uncertain cost included.",
		},
		{Name: "councild_budget_reserved_usd", Help: "Part of the limit that running sessions have reserved, in US dollars."},
		{Name: "councild_budget_refused_sessions", Help: "Sessions that were refused today because of the limit."},
		{Name: "councild_budget_limit_usd", Help: "The cost limit in US dollars, if there is one."},
	}, []string{"scope", "token"}, func(set func(int, float64, ...string)) {
		for _, b := range a.Budgets() {
			for family, value := range []float64{b.Used.Float64(), b.Reserved.Float64(), float64(b.Refused)} {
				set(family, value, b.Scope, b.Token)
			}
			if b.Limit != nil {
				const limit = 3
				set(limit, b.Limit.Float64(), b.Scope, b.Token)
			}
		}
	})
	m.Families([]telemetry.Family{{
		Name: "councild_cost_over_bound_total", Counter: true, Help: "Requests that cost more than their computed maximum.",
	}}, []string{"model"}, func(set func(int, float64, ...string)) {
		for model, count := range a.OverBounds() {
			set(0, float64(count), model)
		}
	})
}
