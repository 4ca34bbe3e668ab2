package bias

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{ //nolint:gochecknoglobals // parsed once
	"day":    func(t *time.Time) string { return t.Format(time.DateOnly) },
	"clip":   clip,
	"signed": func(x *float64) string { return figure("%+.3f", x) },
	"plain":  func(x *float64) string { return figure("%.3f", x) },
	"words":  words,
	"label":  label,
	"q":      readableP,
	"verdict": func(m Metric) string {
		if m.Verdict == nil {
			return ""
		}
		return string(*m.Verdict)
	},
}).Parse(reportHTML))

// WriteHTML writes the report as one HTML page that needs no other file: a plot of
// intervals for each group of metrics, and beside it the same figures as a table.
// It fails only where w does.
func (r Report) WriteHTML(w io.Writer) error {
	if err := reportPage.Execute(w, struct {
		Report
		Plots []plot
	}{r, r.plots()}); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// readableP writes a p or q value as papers do.
func readableP(x *float64) string {
	if x != nil && *x < 0.001 {
		return "< 0.001"
	}
	return figure("%.3f", x)
}

// words makes a name readable: "length_slope" is "length slope".
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// plot is a figure of intervals on one axis, and its table.
type plot struct {
	Title, Unit, Note string
	ID                string // for reference within the page
	Metrics           []Metric
	Rows              []plotRow
	Ticks             []tick
	Zero              float64
	Axis              float64 // where the rows end
	Width, Height     float64
}

// plotRow is one interval, in the plot's own units.
type plotRow struct {
	Label, Text          string
	Y, Low, High, Point  float64
	BandFrom, BandWidth  float64 // the effects too small to count
	Drawn, Band, Flagged bool    // Drawn is false where there is no figure
}

type tick struct {
	X    float64
	Text string
}

// The measures of a plot, in the plot's own units.
const (
	plotLeft, plotRight = 230.0, 690.0
	rowHeight           = 28.0
)

// plots returns what there is to see: the headlines by unit, what describes, and
// the members of each headline that is flagged.
func (r Report) plots() []plot {
	tested, described := map[string][]Metric{}, map[string][]Metric{}
	var testedUnits, describedUnits []string
	var plots []plot
	for _, m := range r.Metrics {
		groups, units := tested, &testedUnits
		if m.Verdict == nil || m.Delta == nil {
			groups, units = described, &describedUnits
		}
		if groups[m.Unit] == nil {
			*units = append(*units, m.Unit)
		}
		groups[m.Unit] = append(groups[m.Unit], m)
	}
	for _, unit := range testedUnits {
		plots = append(plots, newPlot("What was tested", unit, "The shaded band holds effects too small to count as a bias. Each line is a 95 % interval.", tested[unit]))
	}
	for _, m := range r.Metrics {
		if m.unfolds() && m.Delta != nil {
			plots = append(plots, newPlot(words(m.Name)+", one by one", m.Unit, "Under a flagged headline: who or what it comes from.", m.Members))
		}
	}
	const describes = "These figures describe the records. They are not tested, and none proves a bias or rules one out."
	for _, unit := range describedUnits {
		plots = append(plots, newPlot("What is described", unit, describes, described[unit]))
	}
	for _, m := range r.Metrics {
		if m.unfolds() && m.Delta == nil {
			plots = append(plots, newPlot(words(m.Name)+", one by one", m.Unit, describes, m.Members))
		}
	}
	for i := range plots {
		plots[i].ID = "plot" + strconv.Itoa(i)
	}
	return plots
}

// flagged reports whether the verdict is that something was found.
func (m Metric) flagged() bool {
	return m.Verdict != nil && (*m.Verdict == VerdictBias || *m.Verdict == VerdictAssociation)
}

// unfolds reports whether people are shown the members of a metric: those of a
// headline only where it is flagged, because by themselves they prove nothing, and
// those of a metric that describes.
func (m Metric) unfolds() bool { return len(m.Members) > 0 && (m.flagged() || m.Delta == nil) }

func newPlot(title, unit, note string, metrics []Metric) plot {
	low, high := 0.0, 0.0
	for _, m := range metrics {
		for _, x := range []*float64{m.PointEstimate, m.CILower, m.CIUpper} {
			if x != nil {
				low, high = min(low, *x), max(high, *x)
			}
		}
		if m.Delta != nil {
			low, high = min(low, -*m.Delta), max(high, *m.Delta)
		}
	}
	step := niceStep(high - low)
	low, high = step*math.Floor(low/step), step*math.Ceil(high/step)
	if low == high {
		high = low + step
	}
	at := func(x float64) float64 { return math.Round(10*(plotLeft+(plotRight-plotLeft)*(x-low)/(high-low))) / 10 }
	axis := rowHeight * float64(len(metrics))
	p := plot{Title: title, Unit: unit, Note: note, Metrics: metrics, Zero: at(0), Axis: axis, Width: plotRight + 30, Height: axis + 34}
	for i := 0.0; low+i*step <= high+step/2; i++ {
		x := low + i*step
		p.Ticks = append(p.Ticks, tick{at(x), strconv.FormatFloat(math.Round(x*1e6)/1e6, 'g', -1, 64)})
	}
	for i, m := range metrics {
		row := plotRow{Label: label(m), Y: rowHeight * (float64(i) + 0.5), Flagged: m.flagged()}
		if m.Delta != nil {
			row.Band, row.BandFrom, row.BandWidth = true, at(-*m.Delta), at(*m.Delta)-at(-*m.Delta)
		}
		if m.PointEstimate == nil {
			row.Text = "no figure"
			if m.Verdict != nil {
				row.Text = words(string(*m.Verdict))
			}
		} else {
			row.Drawn, row.Point, row.Low, row.High = true, at(*m.PointEstimate), at(*m.PointEstimate), at(*m.PointEstimate)
			if m.CILower != nil && m.CIUpper != nil {
				row.Low, row.High = at(*m.CILower), at(*m.CIUpper)
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

// label names a metric beside its interval, short enough for the room there.
func label(m Metric) string {
	const room = 32
	text := words(m.Name)
	if _, member, ok := strings.Cut(m.Name, "|"); ok {
		text = member
	} else if full := text + ": " + m.Subject; m.Subject != "" && utf8.RuneCountInString(full) <= room {
		text = full
	}
	text = clip(text)
	if r := []rune(text); len(r) > room {
		return "…" + string(r[len(r)-room+1:])
	}
	return text
}

// niceStep returns the distance of ticks over a span: 1, 2 or 5 times a power of ten.
func niceStep(span float64) float64 {
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
