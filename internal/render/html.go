package render

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"math"
	"strconv"
	"time"

	"github.com/councild/councild/internal/bias"
)

//go:embed report.html
var reportHTML string

//go:embed leaderboard.html
var leaderboardHTML string

//go:embed style.html
var styleHTML string

//nolint:gochecknoglobals // parsed once
var (
	reportPage      = page(reportHTML)
	leaderboardPage = page(leaderboardHTML)
)

// page returns the template of a page in the style of all.
func page(text string) *template.Template {
	t := template.Must(template.New("page").Funcs(functions()).Parse(text))
	template.Must(t.New("style").Parse(styleHTML))
	return t
}

// functions are what the pages call.
func functions() template.FuncMap {
	return template.FuncMap{
		"day":     func(t *time.Time) string { return t.Format(time.DateOnly) },
		"clip":    clip,
		"first":   first,
		"signed":  func(x *float64) string { return figure("%+.3f", x) },
		"plain":   func(x *float64) string { return figure("%.3f", x) },
		"words":   words,
		"label":   label,
		"q":       readableP,
		"verdict": verdict,
		"filter":  filterNote,
		"place":   func(position int) int { return position + 1 },

		"notes": monitorNotes, "estimated": estimated, "within": watchedInterval,
	}
}

// LeaderboardHTML returns a leaderboard as one HTML page that needs no other file. It
// panics as [HTML] does.
func LeaderboardHTML(l bias.Leaderboard) []byte {
	var b bytes.Buffer
	if err := leaderboardPage.Execute(&b, l); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// HTML returns a report as one HTML page that needs no other file. Each group of
// metrics has a plot of intervals, and below it the same figures as a table. HTML
// panics when the page's template does not fit the report, which is a mistake in this
// package.
func HTML(r bias.Report) []byte {
	var b bytes.Buffer
	if err := reportPage.Execute(&b, struct {
		bias.Report
		Plots []plot
	}{r, plotsOf(r)}); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// readableP returns a p or q value in the form that papers use.
func readableP(x *float64) string {
	if x != nil && *x < 0.001 {
		return "< 0.001"
	}
	return figure("%.3f", x)
}

// plot is a figure of intervals on one axis, and its table. Lengths are in the plot's
// own units.
type plot struct {
	Title, Unit, Note string
	ID                string // for reference within the page
	Metrics           []bias.Metric
	Rows              []plotRow
	Ticks             []tick
	Zero              float64
	Axis              float64 // where the rows end
	Width, Height     float64
}

// plotRow is one interval of a plot.
type plotRow struct {
	Label               string
	Text                string // in place of the interval, where there is no figure
	Y, Low, High, Point float64
	BandFrom, BandWidth float64 // the effects too small to count; no band has width 0
	Flagged             bool
}

type tick struct {
	X    float64
	Text string
}

// The measures of a plot, in its own units.
const (
	plotLeft, plotRight = 230.0, 690.0
	rowHeight           = 28.0
)

// plotsOf returns the plots of a report. Tested headlines come first, by unit, then
// the members of those that are flagged. Metrics that are not tested follow in the
// same way.
func plotsOf(r bias.Report) []plot {
	const (
		describes = "These figures describe the records. They are not tested, and none proves a bias or rules one out."
		tests     = "The shaded band holds effects too small to count as a bias. Each line is a 95 % interval."
		source    = "The members of a flagged headline show where it comes from."
	)
	var all []plot
	add := func(title, unit, note string, metrics []bias.Metric) {
		all = append(all, newPlot("plot"+strconv.Itoa(len(all)), title, unit, note, metrics))
	}
	for _, kind := range []struct {
		tested               bool
		title, note, members string
	}{
		{true, "What was tested", tests, source},
		{false, "What is described", describes, describes},
	} {
		group := only(r.Metrics, func(m bias.Metric) bool { return (m.Verdict != nil && m.Delta != nil) == kind.tested })
		for len(group) > 0 {
			unit := group[0].Unit
			add(kind.title, unit, kind.note, only(group, func(m bias.Metric) bool { return m.Unit == unit }))
			group = only(group, func(m bias.Metric) bool { return m.Unit != unit })
		}
		for _, m := range only(r.Metrics, unfolds) {
			if (m.Delta != nil) == kind.tested {
				add(words(m.Name)+", one by one", m.Unit, kind.members, m.Members)
			}
		}
	}
	return all
}

// newPlot returns the plot of some metrics.
func newPlot(id, title, unit, note string, metrics []bias.Metric) plot {
	low, high := 0.0, 0.0
	for _, m := range metrics {
		shown := []*float64{m.PointEstimate, m.CILower, m.CIUpper, m.Delta}
		if m.Delta != nil {
			shown = append(shown, new(-*m.Delta))
		}
		for _, x := range shown {
			if x != nil {
				low, high = min(low, *x), max(high, *x)
			}
		}
	}
	step := tickDistance(high - low)
	low, high = step*math.Floor(low/step), step*math.Ceil(high/step)
	if low == high {
		high = low + step
	}
	at := func(x float64) float64 { return math.Round(10*(plotLeft+(plotRight-plotLeft)*(x-low)/(high-low))) / 10 }
	axis := rowHeight * float64(len(metrics))
	p := plot{
		ID: id, Title: title, Unit: unit, Note: note, Metrics: metrics,
		Zero: at(0), Axis: axis, Width: plotRight + 30, Height: axis + 34,
	}
	for i := 0.0; low+i*step <= high+step/2; i++ {
		x := low + i*step
		p.Ticks = append(p.Ticks, tick{at(x), strconv.FormatFloat(math.Round(x*1e6)/1e6, 'g', -1, 64)})
	}
	for i, m := range metrics {
		row := plotRow{Label: label(m), Y: rowHeight * (float64(i) + 0.5), Flagged: flagged(m)}
		if m.Delta != nil {
			row.BandFrom, row.BandWidth = at(-*m.Delta), at(*m.Delta)-at(-*m.Delta)
		}
		if m.PointEstimate == nil {
			row.Text = cmp.Or(words(verdict(m)), "no figure")
		} else {
			row.Point = at(*m.PointEstimate)
			row.Low, row.High = row.Point, row.Point
			if m.CILower != nil && m.CIUpper != nil {
				row.Low, row.High = at(*m.CILower), at(*m.CIUpper)
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}

// tickDistance returns the distance of ticks over a span: 1, 2 or 5 times a power of
// ten.
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
