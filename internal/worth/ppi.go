package worth

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// PPI is an estimate of the mean of people's labels. It combines the labels of a few sessions with a judge's values
// for many sessions. This is prediction-powered inference with a tuned weight (PPI++; Angelopoulos, Duchi and Zrnic
// 2023). The judge may be biased, because its errors in the sessions with labels are subtracted.
type PPI struct {
	Labelled int     `json:"labelled"` // counts sessions with a label, n
	Others   int     `json:"others"`   // counts sessions with the judge alone, N
	Lambda   float64 `json:"lambda"`   // the weight of the judge, 0 to 1
	Estimate float64 `json:"estimate"`
	SE       float64 `json:"se"`
	// Lower and Upper are one-sided 95 % limits, on the t distribution with n-1 degrees of freedom.
	Lower float64    `json:"lower_one_sided"`
	Upper float64    `json:"upper_one_sided"`
	CI95  [2]float64 `json:"ci95"`
	// Gain says how many times as many labels the same precision would need without the judge.
	Gain float64 `json:"gain"`
}

// PredictionPowered estimates the mean label. The argument judged has the judge's values for the sessions in
// labels. The argument others has the judge's values for sessions without a label. It returns nil if there are
// fewer than two labels, or if the standard error would be zero.
func PredictionPowered(labels, judged, others []float64) *PPI {
	n := float64(len(labels))
	m := float64(len(others))
	if len(labels) < 2 {
		return nil
	}
	p := &PPI{Labelled: len(labels), Others: len(others)}
	if len(others) > 0 {
		all := append(append([]float64{}, judged...), others...)
		// The covariance has divisor n, and the pooled variance n+N-1, as in the authors' ppi_py.
		if spread := stat.PopVariance(all) * (n + m) / (n + m - 1); spread > 0 {
			p.Lambda = min(max(covariance(labels, judged)/((1+n/m)*spread), 0), 1)
		}
	}
	corrected := make([]float64, len(labels))
	for i := range labels {
		corrected[i] = labels[i] - p.Lambda*judged[i]
	}
	p.Estimate = stat.Mean(corrected)
	square := stat.PopVariance(corrected) / n
	if len(others) > 0 {
		p.Estimate += p.Lambda * stat.Mean(others)
		square += p.Lambda * p.Lambda * stat.PopVariance(others) / m
	}
	if square <= 0 {
		return nil
	}
	p.SE = math.Sqrt(square)
	limit := func(level float64) float64 { return stat.StudentQuantile(level, n-1) * p.SE }
	p.Lower = p.Estimate - limit(1-Level)
	p.Upper = p.Estimate + limit(1-Level)
	p.CI95 = [2]float64{p.Estimate - limit(1-Level/2), p.Estimate + limit(1-Level/2)}
	p.Gain = stat.PopVariance(labels) / n / square
	return p
}

// covariance divides by the number of values.
func covariance(x, y []float64) float64 {
	a := stat.Mean(x)
	b := stat.Mean(y)
	sum := 0.0
	for i := range x {
		sum += (x[i] - a) * (y[i] - b)
	}
	return sum / float64(len(x))
}
