package daemon

// measure adds the figures of the daemon to the metrics: how it is, and what it keeps.
func (d *Daemon) measure() {
	d.engine.metrics.Gauges("councild_ready", "Whether requests can be sent here: 1 yes, 0 no, by the code of what /readyz says, or ok.",
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
		d.engine.metrics.Gauge("councild_store_healthy", "Whether the last attempt to write records succeeded: 1 yes, 0 no.", func() float64 {
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
}
