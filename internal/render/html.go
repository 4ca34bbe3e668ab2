package render

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"slices"
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

//go:embed plot.html
var plotHTML string

//nolint:gochecknoglobals // parsed once
var (
	reportPage      = page(reportHTML)
	leaderboardPage = page(leaderboardHTML)
)

// page returns the template of a page in the common style.
func page(text string) *template.Template {
	t := template.Must(template.New("page").Funcs(functions()).Parse(text))
	template.Must(t.New("style").Parse(styleHTML))
	template.Must(t.New("plot").Parse(plotHTML))
	return t
}

// functions returns the functions that the pages call.
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
		"verdict": verdict, "volatile": volatile, "apart": func() string { return apartTitle },
		"boardTitle": boardTitle, "boardsApart": func() string { return boardsApart },
		"filter": filterNote,
		"place":  func(position int) int { return position + 1 },
		"title":  func() string { return evidenceTitle },
		"note":   func() string { return evidenceNote },

		"notes": monitorNotes, "finding": finding, "estimated": estimated, "within": watchedInterval,
		"sentences": sentences, "preferences": preferences, "agreements": agreements,
	}
}

// LeaderboardHTML returns a leaderboard as one self-contained HTML page. Like [HTML], it panics if the template does
// not fit.
func LeaderboardHTML(l bias.Leaderboard) []byte {
	var b bytes.Buffer
	if err := leaderboardPage.Execute(&b, l); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// HTML returns a report as one self-contained HTML page. Each group of metrics has a plot of intervals, and below it
// a table with the same figures. HTML panics if the page's template does not fit the report, which is a bug in this
// package.
func HTML(r FullReport) []byte {
	var b bytes.Buffer
	if err := reportPage.Execute(&b, struct {
		FullReport
		Plots []metricsPlot
	}{r, plotsOf(r.Report)}); err != nil {
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

// metricsPlot holds a plot of some metrics and their table.
type metricsPlot struct {
	Title, Unit, Note string
	ID                string // refers to the plot within the page
	Metrics           []bias.Metric
	Plot              *plot
}

// plotsOf returns the plots of a report. Favours come first, by unit, then the members of the favours that were
// found. Levels, changes and associations follow in the same way, then metrics that are not tested.
func plotsOf(r bias.Report) []metricsPlot {
	const (
		describes = "These figures describe the records. They are not tested, and none proves a favour or rules one out."
		tests     = "The shaded band holds effects too small to count. Each line is a 95 % interval."
		source    = "The members of a flagged headline show where it comes from."
	)
	var plots []metricsPlot
	add := func(title, unit, note string, metrics []bias.Metric) {
		plots = append(plots, metricsPlot{title, unit, note, "plot" + strconv.Itoa(len(plots)), metrics, plotMetrics(metrics)})
	}
	for _, part := range []struct {
		kinds                []bias.Kind
		title, note, members string
	}{
		{[]bias.Kind{bias.KindFavour}, "Favours", tests, source},
		{[]bias.Kind{bias.KindLevel, bias.KindChange, bias.KindAssociation}, "Apart from favours", apartTitle + ". " + tests, source},
		{[]bias.Kind{bias.KindDescription}, "What is described", describes, describes},
	} {
		all := only(r.Metrics, func(m bias.Metric) bool { return slices.Contains(part.kinds, m.Kind) })
		group := all
		for len(group) > 0 {
			unit := group[0].Unit
			add(part.title, unit, part.note, only(group, func(m bias.Metric) bool { return m.Unit == unit }))
			group = only(group, func(m bias.Metric) bool { return m.Unit != unit })
		}
		for _, m := range only(all, unfolds) {
			add(words(m.Name)+", one by one", m.Unit, part.members, m.Members)
		}
	}
	return plots
}

// plotMetrics returns the plot of some metrics.
func plotMetrics(metrics []bias.Metric) *plot {
	spans := make([]span, len(metrics))
	for i, m := range metrics {
		spans[i] = span{
			Label:   label(m),
			Point:   m.PointEstimate,
			Low:     m.CILower,
			High:    m.CIUpper,
			Delta:   m.Delta,
			Flagged: flagged(m),
		}
		if m.PointEstimate == nil {
			spans[i].Side = cmp.Or(words(verdict(m)), "no figure")
		}
	}
	return newPlot("Estimates with 95 % intervals. The table that follows holds the same figures.", spans)
}
