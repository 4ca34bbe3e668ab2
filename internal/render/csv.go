package bias

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteCSV writes the metrics as one table with the field names of the JSON form
// (RFC 4180), members under the headlines that are flagged, and behind them a row
// named "skipped" for each reason why records could not be used. An undefined figure
// is an empty cell. It fails only where w does.
func (r Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{
		"metric_name", "subject", "headline", "unit", "point_estimate", "ci_lower", "ci_upper", "sample_size", "records", "window_start", "window_end",
		"statistical_confidence", "verdict", "reason", "p_value", "q_value", "minimum_detectable_effect", "delta", "method",
	}}
	for _, m := range r.Metrics {
		rows = append(rows, m.cells(""))
		if m.unfolds() {
			for _, member := range m.Members {
				rows = append(rows, member.cells(m.Name))
			}
		}
	}
	for _, s := range r.Skipped {
		m := Metric{Name: "skipped", Subject: s.Reason, Unit: "records", Records: s.Count}
		if s.FirstFile != nil {
			m.Reason = "the first at " + s.First()
		}
		cells := m.cells("")
		cells[slices.Index(rows[0], "sample_size")] = ""
		rows = append(rows, cells)
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// cells returns the metric as a row, under its headline if it is a member.
func (m Metric) cells(headline string) []string {
	verdict := ""
	if m.Verdict != nil {
		verdict = string(*m.Verdict)
	}
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	}
	instant := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Format(time.RFC3339)
	}
	cells := []string{
		m.Name, m.Subject, headline, m.Unit, number(m.PointEstimate), number(m.CILower), number(m.CIUpper), strconv.Itoa(m.SampleSize), strconv.Itoa(m.Records),
		instant(m.WindowStart), instant(m.WindowEnd), string(m.Confidence), verdict, m.Reason, number(m.PValue), number(m.QValue),
		number(m.MinimumDetectableEffect), number(m.Delta), m.Method,
	}
	for i, cell := range cells {
		if _, err := strconv.ParseFloat(cell, 64); err != nil { // numbers stay numbers
			cells[i] = CSVText(cell)
		}
	}
	return cells
}

// CSVText returns a text as a cell of a table. A spreadsheet would run one that
// begins like a formula, and ids come from files, so an apostrophe is put before it.
func CSVText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
