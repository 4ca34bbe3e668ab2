package bias

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// agreement returns the mean over sessions of Kendall's W, own answers left out.
func (c *Collector) agreement(w *window, span Window) Metric {
	var t tally
	var terms [][]float64 // by cluster: the sum of W and how many there are
	sum, records := 0.0, 0
	for _, k := range w.byCluster() {
		x := &w.sessions[k]
		y := x.others()
		agreed, ok := stat.KendallW(y)
		if !ok {
			continue
		}
		t.add(x.cluster, k)
		if len(terms) < t.clusters {
			terms = append(terms, make([]float64, 2))
		}
		terms[len(terms)-1][0] += agreed
		terms[len(terms)-1][1]++
		sum += agreed
		for _, row := range y {
			for _, v := range row {
				if !math.IsNaN(v) {
					records++
				}
			}
		}
	}
	m := c.metric("agreement", "Kendall's W", "mean over sessions of Kendall's W of the scores, own answers left out, "+resampled, t, span)
	m.Records = records
	if c.describe(&m, "scores that agreement can be told from") {
		m.PointEstimate = new(sum / float64(t.sessions))
		m.resample(terms, ratio)
	}
	return m
}

// ratio is the first of two sums over the second.
func ratio(sums []float64) float64 { return sums[0] / sums[1] }
