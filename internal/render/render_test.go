package bias

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

// flaggedReport has headlines with members under them, a change point and an
// unusual session.
func flaggedReport() Report {
	records := recordsOf(60)
	for i := range records {
		switch r := &records[i]; {
		case r.ReviewerID == "bob/two" && r.SessionID == "s000007":
			r.ScoreValue = new(1.0)
		case r.ReviewerID == "ann/one":
			r.ReviewerID = `=cmd|'<script>alert(1)</script>'`
			if i >= len(records)/2 {
				r.ScoreValue = new(max(1, *r.ScoreValue-3))
			}
		}
	}
	return collect(unlimited, records).Report()
}

func TestWriteCSV(t *testing.T) {
	r := flaggedReport()
	var b bytes.Buffer
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	want := 0
	for _, m := range r.Metrics {
		want++
		if m.unfolds() {
			want += len(m.Members)
		}
	}
	if len(rows)-1 != want || want == len(r.Metrics) {
		t.Errorf("%d rows for %d metrics and members, of %d metrics", len(rows)-1, want, len(r.Metrics))
	}
	for i, m := range r.Metrics[:2] {
		if row := rows[1+i]; row[column["metric_name"]] != m.Name || row[column["point_estimate"]] != strconv.FormatFloat(*m.PointEstimate, 'g', -1, 64) ||
			row[column["verdict"]] != "" || row[column["q_value"]] != "" || row[column["sample_size"]] != "60" {
			t.Errorf("%v is not %+v", row, m)
		}
	}
	for _, row := range rows[1:] {
		for i, cell := range row {
			if _, err := strconv.ParseFloat(cell, 64); err != nil && strings.HasPrefix(cell, "=") {
				t.Errorf("%s: a spreadsheet would run %q", rows[0][i], cell)
			}
		}
	}
	if err := r.WriteCSV(broken{}); err == nil {
		t.Error("no error from a broken writer")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestWriteHTML(t *testing.T) {
	all := reports()
	all["flagged"] = flaggedReport()
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := r.WriteHTML(&b); err != nil {
				t.Fatal(err)
			}
			page := b.String()
			if strings.Contains(page, "<script") || strings.Contains(page, "http:") || strings.Contains(page, "https:") || strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "%!") {
				t.Errorf("the page runs a script, asks for something, or is not whole:\n%s", page)
			}
			// Everything but the void elements is closed, and what a plot shows stands
			// in the table after it.
			plots, tables, marks := 0, 0, 0
			var open []string
			d := xml.NewDecoder(strings.NewReader(page))
			d.Strict, d.AutoClose = false, []string{"meta"}
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				switch e := token.(type) {
				case xml.StartElement:
					open = append(open, e.Name.Local)
					switch e.Name.Local {
					case "svg":
						plots++
					case "table":
						tables++
					case "circle":
						marks++
					case "rect":
						if e.Attr[0].Value != "band" {
							marks++
						}
					}
				case xml.EndElement:
					if len(open) == 0 || open[len(open)-1] != e.Name.Local {
						t.Fatalf("</%s> closes %v", e.Name.Local, open)
					}
					open = open[:len(open)-1]
				}
			}
			figures := 0
			for _, p := range r.plots() {
				for _, m := range p.Metrics {
					if m.PointEstimate != nil {
						figures++
					}
				}
			}
			if len(open) > 0 || plots != len(r.plots()) || tables < plots || marks != figures {
				t.Errorf("open %v, %d plots and %d tables with %d marks, for %d plots and %d figures", open, plots, tables, marks, len(r.plots()), figures)
			}
			if (r.Status == StatusCollecting) != (figures == 0) {
				t.Errorf("%s with %d figures", r.Status, figures)
			}
		})
	}
	if page := new(bytes.Buffer); flaggedReport().WriteHTML(page) != nil || !strings.Contains(page.String(), "&lt;script&gt;") || !strings.Contains(page.String(), "one by one") ||
		!strings.Contains(page.String(), `<b class="bias">change</b>`) || !strings.Contains(page.String(), "Unusual sessions") || !strings.Contains(page.String(), "s000007") {
		t.Errorf("the flagged report:\n%s", page)
	}
	if err := flaggedReport().WriteHTML(broken{}); err == nil {
		t.Error("no error from a broken writer")
	}
}

func TestNiceStep(t *testing.T) {
	for span, want := range map[float64]float64{0: 1, 1: 0.2, 0.6: 0.1, 5: 1, 7: 2, 12: 2, 31: 10, 0.07: 0.02, 1e-9: 2e-10} {
		if got := niceStep(span); got/want < 0.999 || got/want > 1.001 {
			t.Errorf("%v: %v, want %v", span, got, want)
		}
	}
}
