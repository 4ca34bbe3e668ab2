package render

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild"
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
		"clean":   printable,
		"first":   first,
		"signed":  func(x *float64) string { return figure("%+.3f", x) },
		"plain":   func(x *float64) string { return figure("%.3f", x) },
		"words":   words,
		"label":   label,
		"q":       readableP,
		"verdict": verdict, "volatile": volatile, "topic": bias.Topic,
		"css":        func() template.CSS { return template.CSS(councild.ReportStyle) }, //nolint:gosec // our own file
		"boardTitle": boardTitle, "boardPlot": boardPlot, "boardsApart": func() string { return boardsApart },
		"filter": filterNote,
		"member": func(m bias.Metric) bool { return strings.Contains(m.Name, "|") },
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

// HTML returns a report as one self-contained HTML page: the summary, the questions, each with a plot, and the tables.
// HTML panics if the page's template does not fit the report, which is a bug in this package.
func HTML(r FullReport) []byte {
	asked := questionsOf(r.Report)
	var b bytes.Buffer
	if err := reportPage.Execute(&b, struct {
		FullReport
		Asked     []questionView
		Described []bias.Metric // figures that no question has
	}{r, asked, only(r.Metrics, func(m bias.Metric) bool {
		return !slices.ContainsFunc(asked, func(q questionView) bool { return slices.Contains(q.Figures, m.Name) })
	})}); err != nil {
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

// boardPlot returns the plot of the scores on a board.
func boardPlot(b bias.Board) *plot {
	spans := make([]span, len(b.Entries))
	for i, e := range b.Entries {
		spans[i] = span{Label: lastRunes(fmt.Sprintf("%d. %s", e.Rank, clip(e.Model)), 44), Point: &e.BordaNormalized, Low: e.CILower, High: e.CIUpper}
	}
	p := newPlot("Scores with 95 % intervals. The table that follows holds the same figures.", spans, 1)
	p.HasZero = false
	p.name(axisNames{"ranked last", "score", "ranked first"})
	p.Caption = "Each line is a 95 % interval. Models whose intervals overlap may be equally good."
	return p
}
