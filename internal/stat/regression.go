package stat

import "math"

// Trend returns the least-squares slope of y over t, from three points in two
// clusters or more, and its standard error by leaving out one cluster at a time
// (CV3; MacKinnon, Nielsen and Webb 2023). The error is 0 where nothing but rounding scatters about
// the line. It reports false where t is constant, also when a cluster is left out.
func Trend(t, y []float64, cluster []int) (slope, se float64, ok bool) {
	centre, level := Mean(t), Mean(y)
	// Number of points, and sums of t, y, t^2 and ty, as deviations.
	var all [5]float64
	parts := map[int]*[5]float64{}
	var order []*[5]float64 // the sum of squares must not depend on the order of a map
	for k := range t {
		dt, dy := t[k]-centre, y[k]-level
		part := parts[cluster[k]]
		if part == nil {
			part = new([5]float64)
			parts[cluster[k]] = part
			order = append(order, part)
		}
		for i, v := range [...]float64{1, dt, dy, dt * dt, dt * dy} {
			all[i] += v
			part[i] += v
		}
	}
	slopeOf := func(sums [5]float64) (float64, bool) {
		n, spread := sums[0], sums[3]-sums[1]*sums[1]/sums[0]
		return (sums[4] - sums[1]*sums[2]/n) / spread, n > 1 && spread > Dependent*all[3]
	}
	if len(t) < 3 || Constant(t) || len(order) < 2 {
		return 0, 0, false
	}
	slope, _ = slopeOf(all)
	squares, total := 0.0, 0.0
	for k := range t {
		e := y[k] - level - slope*(t[k]-centre)
		squares += e * e
		total += y[k] * y[k]
	}
	if squares <= 1e-24*total {
		return slope, 0, true
	}
	variance := 0.0
	for _, part := range order {
		left := all
		for i, v := range part {
			left[i] -= v
		}
		without, ok := slopeOf(left)
		if !ok {
			return slope, 0, false
		}
		variance += (without - slope) * (without - slope)
	}
	g := float64(len(order))
	return slope, math.Sqrt((g - 1) / g * variance), true
}
