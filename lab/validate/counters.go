package main

import (
	"slices"
	"strings"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/testkit/biassim"
)

// counter returns the hits and the trials in one report. The argument metrics has the report's metrics and their
// members by name.
type counter func(r bias.Report, metrics map[string]bias.Metric) (hits, trials int)

// ofReport counts reports for which hit returns true.
func ofReport(hit func(r bias.Report, metrics map[string]bias.Metric) bool) counter {
	return func(r bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		if hit(r, metrics) {
			hits = 1
		}
		return hits, 1
	}
}

// ofMetrics counts the metrics of a name. A metric is a trial if tried returns true for it. A trial is a hit if hit
// returns true for it. A name that ends in a bar stands for all names that begin with it.
func ofMetrics(name string, tried, hit func(bias.Metric) bool) counter {
	return func(_ bias.Report, metrics map[string]bias.Metric) (hits, trials int) {
		for n, m := range metrics {
			named := n == name || strings.HasSuffix(name, "|") && strings.HasPrefix(n, name)
			if !named || !tried(m) {
				continue
			}
			trials++
			if hit(m) {
				hits++
			}
		}
		return hits, trials
	}
}

// alpha is the significance level of the single tests.
const alpha = 0.05

// rejected is the counter of the metrics whose own test rejects at alpha.
func rejected(name string) counter {
	return ofMetrics(name,
		func(m bias.Metric) bool { return m.PValue != nil },
		func(m bias.Metric) bool { return *m.PValue < alpha })
}

// covered is the counter of the metrics whose interval holds the truth about their subject.
func covered(name string, truth func(subject string) float64) counter {
	return ofMetrics(name,
		func(m bias.Metric) bool { return m.CILower != nil && m.CIUpper != nil },
		func(m bias.Metric) bool { return *m.CILower <= truth(m.Subject) && truth(m.Subject) <= *m.CIUpper })
}

// changed is the counter of the change points whose own test rejects at alpha.
func changed(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
	for _, c := range r.ChangePoints {
		if c.PValue < alpha {
			hits++
		}
	}
	return hits, len(r.ChangePoints)
}

// anomalous is the counter of reports with an anomaly that is significant after adjustment over all cells.
func anomalous(r bias.Report, _ map[string]bias.Metric) (hits, trials int) {
	return min(1, len(r.Anomalies.Found)), min(1, r.Anomalies.Cells)
}

// identified is the counter of reports whose records identify the metric of that name.
func identified(name string) counter {
	return ofReport(func(_ bias.Report, metrics map[string]bias.Metric) bool {
		m, ok := metrics[name]
		return !ok || *m.Verdict != bias.VerdictNotIdentified
	})
}

// significant is the counter of reports with a favour that is significant after adjustment, whatever its size.
func significant() counter {
	return ofReport(func(r bias.Report, _ map[string]bias.Metric) bool {
		return slices.ContainsFunc(r.Metrics, func(m bias.Metric) bool {
			return m.Kind == bias.KindFavour && m.QValue != nil && *m.QValue < level(r)
		})
	})
}

// level returns the false discovery rate at which the report flags findings.
func level(r bias.Report) float64 {
	if r.Window.Sessions < 50 {
		return r.Levels.BelowHigh
	}
	return r.Levels.High
}

// favouring is the counter of reports with a verdict of favour.
func favouring() counter {
	return ofReport(func(r bias.Report, _ map[string]bias.Metric) bool {
		return slices.ContainsFunc(r.Metrics, func(m bias.Metric) bool { return m.Is(bias.VerdictFavour) })
	})
}

// verdict counts reports whose metric of that headline has a finding.
func verdict(headline string) counter {
	return ofReport(func(_ bias.Report, metrics map[string]bias.Metric) bool { return metrics[headline].Found() })
}

// changedAt is the counter of reports in which some reviewer changed at some time.
func changedAt() counter {
	return ofReport(func(r bias.Report, _ map[string]bias.Metric) bool {
		return slices.ContainsFunc(r.ChangePoints, bias.ChangePoint.Found)
	})
}

// always is the truth about a metric that has no members.
func always(points float64) func(string) float64 {
	return func(string) float64 { return points }
}

// relative is the truth about each reviewer, compared with the mean of all reviewers, if only the planted reviewer has
// an effect.
func relative(points float64) func(string) float64 {
	members := biassim.Members()
	mean := points / float64(len(members))
	return func(subject string) float64 {
		if subject == members[planted] {
			return points - mean
		}
		return -mean
	}
}
