package render

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/worth"
)

// document is a report as words, plots and tables. The text and the page are made from it.
type document struct {
	Title    string
	Headline string // the outcome in a sentence or a few
	Facts    []string
	Sections []section
}

// section is a part of a document. Only the page shows its plots.
type section struct {
	ID, Title string
	Notes     []string
	Line      string // a text that readers copy, so that it must not be wrapped
	List      []string
	Plot      *plot
	Power     *powerPlot
	Tables    []grid
}

// grid is a table. The first cell of a row is its name.
type grid struct {
	Title   string
	Columns []column
	Rows    [][]cell
}

// column is a column of a grid.
type column struct {
	Name string
	// Short is the name of the column in a text. A text leaves out a column without a Short.
	Short string
	Text  bool // set if the column holds words, not figures
}

type cell struct{ Text, Class string }

// textCells is the largest number of letters that the name of a row has in a text.
const textCells = 22

// add appends a row.
func (g *grid) add(texts ...string) {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	g.Rows = append(g.Rows, row)
}

// write appends the grid to a text.
func (g grid) write(b *bytes.Buffer) {
	var names []string
	for _, c := range g.Columns {
		if c.Short != "" {
			names = append(names, c.Short)
		}
	}
	title := "\n"
	if g.Title != "" {
		title += wrap(g.Title+":", "") + "\n\n"
	}
	writeTable(b, title, strings.Join(names, "\t"), g.Rows, func(row []cell) string {
		var texts []string
		for i, c := range row {
			switch {
			case i == 0:
				if len([]rune(c.Text)) > textCells {
					c.Text = strings.TrimPrefix(c.Text, armMember)
				}
				texts = append(texts, lastRunes(c.Text, textCells))
			case g.Columns[i].Short != "":
				texts = append(texts, c.Text)
			}
		}
		return strings.Join(texts, "\t")
	})
}

// text returns the document as text.
func (d document) text() []byte {
	var b bytes.Buffer
	b.WriteString(wrap(d.Headline, "") + "\n\n")
	for _, fact := range d.Facts {
		b.WriteString(wrap(fact, "") + "\n")
	}
	for _, s := range d.Sections {
		if s.Title != "" {
			b.WriteString("\n" + s.Title + "\n" + strings.Repeat("-", len(s.Title)) + "\n")
		}
		for _, note := range s.Notes {
			b.WriteString(wrap(note, "") + "\n")
		}
		if s.Line != "" {
			b.WriteString("\n" + s.Line + "\n")
		}
		for _, item := range s.List {
			b.WriteString(wrap(item, "  ") + "\n")
		}
		for _, g := range s.Tables {
			g.write(&b)
		}
	}
	return b.Bytes()
}

//go:embed document.html
var documentHTML string

//go:embed power.html
var powerHTML string

//nolint:gochecknoglobals // parsed once
var documentPage = func() *template.Template {
	t := page(documentHTML)
	template.Must(t.New("power").Parse(powerHTML))
	return t
}()

// html returns the document as one self-contained HTML page. It panics if the template does not fit.
func (d document) html() []byte {
	var b bytes.Buffer
	if err := documentPage.Execute(&b, d); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sheet returns rows of cells, by column, as one table (RFC 4180). A column that a row lacks is an empty cell.
func sheet(columns []string, rows []map[string]string) []byte {
	all := make([][]string, 0, 1+len(rows))
	all = append(all, columns)
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i, name := range columns {
			cells[i] = row[name]
			if _, err := strconv.ParseFloat(cells[i], 64); err != nil {
				cells[i] = Cell(printable(cells[i]))
			}
		}
		all = append(all, cells)
	}
	return table(all)
}

// powerPlot shows the smallest true difference that a number of questions can detect. It has one curve for each share
// of questions at which the scores differ.
type powerPlot struct {
	Curves []curve
	// The ticks of the horizontal axis, which shows numbers of questions.
	Across []tick
	// The ticks of the vertical axis, which shows points. Their field X is a height.
	Down         []tick
	Axis, Height float64
	Margin       float64 // the height at which the margin lies
	// Here is where the run's number of questions lies, in percent. It is 0 if that number is outside the plot.
	Here     float64
	HereText string
	HereLeft bool // set if HereText stands to the left of Here
}

// curve is one line of a powerPlot. Its points are in percent across and in pixels down.
type curve struct {
	Label  string
	X, Y   float64 // the position of the label
	Points string
}

// newPowerPlot returns the plot of the differences that numbers of questions can detect. margin is a share, such as
// 0.05.
func newPowerPlot(clusters int, margin float64, rivals int, powers []worth.Power) *powerPlot {
	const (
		// The number of questions at the left end of the horizontal axis.
		first  = 25.0
		left   = 8.0
		height = 240.0
	)
	last := 1600.0
	for last < float64(clusters) {
		last *= 2
	}
	x := func(n float64) float64 {
		return math.Round(100*(left+(plotRight-left)*math.Log(n/first)/math.Log(last/first))) / 100
	}
	mde := func(p worth.Power, n float64) float64 {
		return 100 * worth.MDE80(p.Discordance, int(n), margin, rivals)
	}
	top := margin * 100
	for _, p := range powers {
		top = max(top, mde(p, first))
	}
	points := scaleOf(height, 0, 1, []float64{0, top})
	p := &powerPlot{
		Axis: height, Height: height + 24, Margin: points.at(100 * margin), Down: points.ticks(),
	}
	for n := first; n <= last; n *= 2 {
		p.Across = append(p.Across, tick{x(n), grouped(int(n))})
	}
	for _, power := range powers {
		c := curve{Label: fmt.Sprintf("%.0f %%", 100*power.Discordance), X: left, Y: points.at(mde(power, first)) - 5}
		for n := first; n < last*1.01; n *= math.Sqrt2 {
			whole := math.Round(n)
			c.Points += strconv.FormatFloat(x(whole), 'f', -1, 64) + "," + strconv.FormatFloat(points.at(mde(power, whole)), 'f', -1, 64) + " "
		}
		p.Curves = append(p.Curves, c)
	}
	if float64(clusters) >= first {
		p.Here = x(float64(clusters))
		p.HereText = grouped(clusters) + " here"
		p.HereLeft = p.Here > 60
	}
	return p
}
