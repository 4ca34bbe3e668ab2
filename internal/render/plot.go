package render

import (
	"math"
	"slices"
	"strconv"

	"github.com/councild/councild/internal/worth"
)

// plot is a figure with a row for each interval. Horizontal lengths are in percent of the width of the plot, and
// vertical ones are in pixels. The plot therefore fits a phone and a wide screen with letters of the same size.
type plot struct {
	Label   string // describes it for a reader who cannot see it
	Caption string // says how to read it; "" for none
	Rows    []plotRow
	Lines   []segment
	Ticks   []tick
	Zero    float64
	HasZero bool
	Axis    float64 // the height at which the rows end
	Height  float64
	Names   *axisNames
	Top     float64 // the height at which the rows begin
	// Band names the effects that are too small to count. It is "" if no row has a band.
	Band, BandAnchor string
}

// axisNames names an axis: what it measures, and what the directions below 0 and above 0 mean.
type axisNames struct{ Less, Unit, More string }

// plotRow is one row of a plot: a line of text, and below it a point with an interval.
type plotRow struct {
	Label, Side string // the texts at the left and right end
	// Top, Base and Y are the heights of the row, its text and its interval.
	Top, Base, Y        float64
	Shown               bool // set if there is a point
	Low, High, Point    float64
	InnerLow, InnerHigh float64 // a narrower interval; both are 0 if there is none
	// The band shows effects that are too small to count. Its width is 0 if there is none.
	BandFrom, BandWidth float64
	BarFrom, BarWidth   float64 // a bar next to the point; its width is 0 if there is none
	Flagged, Hollow     bool
	Seen                bool // set if what is flagged is no favour
}

type tick struct {
	X    float64
	Text string
}

type segment struct{ X1, Y1, X2, Y2 float64 }

// The dimensions of a plot, horizontal ones in percent and vertical ones in pixels.
const (
	plotLeft, plotRight = 2.0, 98.0
	rowHeight           = 44.0
)

// span is the content of a plot row. Nil values are not drawn.
type span struct {
	Label, Side      string
	Point, Low, High *float64
	Inner            *[2]float64
	Delta            *float64 // effects up to this size are too small to count
	Flagged, Seen    bool
}

// intervalSpan returns the span of a difference in points, with the 90 % interval inside the 95 % interval.
func intervalSpan(name string, i *worth.Interval) span {
	s := span{Label: lastRunes(name, 28), Side: "no figure"}
	if i != nil {
		s.Side = signed(i.Estimate) + " (" + limits(i.Lower, i.Upper) + ")"
		s.Point = new(100 * i.Estimate)
		s.Low = new(100 * i.CI95[0])
		s.High = new(100 * i.CI95[1])
		s.Inner = &[2]float64{100 * i.Lower, 100 * i.Upper}
	}
	return s
}

// newPlot returns the plot of some intervals. Its axis includes 0 and the other given values.
func newPlot(label string, spans []span, within ...float64) *plot {
	values := append([]float64{0}, within...)
	for _, s := range spans {
		for _, x := range []*float64{s.Point, s.Low, s.High, s.Delta} {
			if x != nil {
				values = append(values, *x)
			}
		}
		if s.Delta != nil {
			values = append(values, -*s.Delta)
		}
	}
	across := scaleOf(plotLeft, plotRight, 1, values)
	p := &plot{Label: label, Zero: across.at(0), HasZero: true, Ticks: across.ticks()}
	for _, s := range spans {
		row := p.add(s.Label, s.Side)
		row.Flagged = s.Flagged
		row.Seen = s.Seen
		if s.Delta != nil {
			row.BandFrom = across.at(-*s.Delta)
			row.BandWidth = math.Round(100*(across.at(*s.Delta)-row.BandFrom)) / 100
		}
		if s.Point == nil {
			continue
		}
		row.Shown = true
		row.Point = across.at(*s.Point)
		row.Low = row.Point
		row.High = row.Point
		if s.Low != nil && s.High != nil {
			row.Low = across.at(*s.Low)
			row.High = across.at(*s.High)
		}
		if s.Inner != nil {
			row.InnerLow = across.at(s.Inner[0])
			row.InnerHigh = across.at(s.Inner[1])
		}
	}
	return p
}

// name names the axis of a plot whose rows are complete, and the band of its rows.
func (p *plot) name(names axisNames) *plot {
	p.Names = &names
	p.Height += 20
	if !slices.ContainsFunc(p.Rows, func(r plotRow) bool { return r.BandWidth > 0 }) {
		return p
	}
	p.Band = "too small to count"
	p.BandAnchor = "middle"
	if p.Zero < 25 {
		p.BandAnchor = "start"
	} else if p.Zero > 75 {
		p.BandAnchor = "end"
	}
	const line = 20
	p.Top = line
	p.Axis += line
	p.Height += line
	for i := range p.Rows {
		p.Rows[i].Top += line
		p.Rows[i].Base += line
		p.Rows[i].Y += line
	}
	return p
}

// add appends an empty row. The pointer is valid until the next row is added.
func (p *plot) add(label, side string) *plotRow {
	p.Rows = append(p.Rows, plotRow{Label: label, Side: side, Top: p.Axis, Base: p.Axis + 16, Y: p.Axis + 30})
	p.Axis += rowHeight
	p.Height = p.Axis + 24
	return &p.Rows[len(p.Rows)-1]
}

// scale maps values to a part of the width, in percent.
type scale struct{ low, high, step, from, to float64 }

// scaleOf returns a scale that begins and ends at a tick and holds all values. There must be at least one value. part
// is the share of the plot's width that the scale takes. A smaller share gets fewer ticks.
func scaleOf(from, to, part float64, values []float64) scale {
	low := values[0]
	high := values[0]
	for _, x := range values {
		low = min(low, x)
		high = max(high, x)
	}
	step := tickDistance((high - low) / part)
	s := scale{step * math.Floor(low/step), step * math.Ceil(high/step), step, from, to}
	if s.low == s.high {
		s.high += step
	}
	return s
}

func (s scale) at(x float64) float64 {
	return math.Round(100*(s.from+(s.to-s.from)*(x-s.low)/(s.high-s.low))) / 100
}

func (s scale) ticks() (all []tick) {
	for i := 0.0; s.low+i*s.step <= s.high+s.step/2; i++ {
		x := s.low + i*s.step
		all = append(all, tick{s.at(x), strconv.FormatFloat(math.Round(x*1e6)/1e6, 'g', -1, 64)})
	}
	return all
}

// tickDistance returns the distance between the ticks of a span. It is 1, 2 or 5 times a power of ten.
func tickDistance(span float64) float64 {
	if !(span > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, k := range []float64{1, 2, 5} {
		if span/(k*power) <= 6 {
			return k * power
		}
	}
	return 10 * power
}
