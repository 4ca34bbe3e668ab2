package render

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/stat"
)

// CSV returns the figures of a report as one table (RFC 4180) whose columns have the field names of the JSON form.
// The members of a metric follow it if something was found or if it is not tested. Figures that are only described
// follow the metrics. The last rows are named "skipped" and say why records could not be used. An undefined figure
// is an empty cell.
func CSV(r bias.Report) []byte {
	rows := [][]string{{
		"metric_name", "subject", "headline", "unit", "point_estimate", "ci_lower", "ci_upper",
		"sample_size", "records",
		"window_start", "window_end", "statistical_confidence", "kind", "verdict", "reason", "p_value", "q_value",
		"minimum_detectable_effect", "detectable_single", "delta", "method",
	}}
	for _, m := range r.Metrics {
		rows = append(rows, cells(m, ""))
		if unfolds(m) {
			for _, member := range m.Members {
				rows = append(rows, cells(member, m.Name))
			}
		}
	}
	for _, m := range described(r) {
		rows = append(rows, cells(m, ""))
	}
	for _, p := range r.Pairs {
		add := func(name string, e stat.Estimate, records int) {
			rows = append(rows, cells(bias.Metric{
				Name:          name,
				Subject:       p.ReviewerID,
				Unit:          "share",
				PointEstimate: e.Value,
				CILower:       e.Lower,
				CIUpper:       e.Upper,
				Records:       records,
				Reason:        "described, not tested",
			}, ""))
		}
		add("pair_conflict_rate", p.ConflictRate, p.Comparisons)
		if a := p.Accuracy; a != nil {
			add("pair_accuracy", a.Share, a.Reviews)
			add("pair_accuracy_shown_first", a.ShownFirst, a.Reviews)
			add("pair_accuracy_shown_last", a.ShownLast, a.Reviews)
		}
	}
	for _, s := range r.Skipped {
		m := bias.Metric{Name: "skipped", Subject: s.Reason, Unit: "records", Records: s.Count}
		if s.FirstFile != nil {
			m.Reason = "the first at " + first(s)
		}
		row := cells(m, "")
		row[slices.Index(rows[0], "sample_size")] = ""
		rows = append(rows, row)
	}
	return table(rows)
}

// described returns the means that a report describes, as metrics without a verdict.
// Places count from 1.
func described(r bias.Report) (all []bias.Metric) {
	add := func(name, subject, unit string, figure, low, high *float64, records int) {
		all = append(all, bias.Metric{
			Name:          name,
			Subject:       subject,
			Unit:          unit,
			PointEstimate: figure,
			CILower:       low,
			CIUpper:       high,
			Records:       records,
			Reason:        "described, not tested",
		})
	}
	for _, p := range r.Reviewers {
		add("reviewer_mean", p.ReviewerID, "points", &p.Mean, p.MeanLower, p.MeanUpper, p.Reviews)
		add("reviewer_harshness_z", p.ReviewerID, "SD of the reviewers' means", p.HarshnessZ, p.HarshnessZLower, p.HarshnessZUpper, p.Reviews)
		h := p.RelativeHarshness
		add("reviewer_relative_harshness", p.ReviewerID, "points", h.Value, h.Lower, h.Upper, p.Reviews)
	}
	for _, p := range r.Positions {
		add("place_mean", fmt.Sprint("place ", p.Position+1), "points", &p.Mean, p.CILower, p.CIUpper, p.Count)
	}
	for _, p := range r.ModelPositions {
		subject := fmt.Sprintf("%s at place %d", p.ModelID, p.Position+1)
		add("model_place_mean", subject, "points", &p.Mean, p.CILower, p.CIUpper, p.Count)
	}
	for _, p := range r.Series {
		for _, v := range p.Reviewers {
			add("series_relative_harshness", v.ReviewerID, "points", &v.RelativeHarshness, nil, nil, 0)
			m := &all[len(all)-1]
			m.SampleSize = v.Sessions
			m.WindowStart = &p.Start
			m.WindowEnd = &p.End
		}
	}
	for _, s := range r.Splits {
		for _, m := range s.Models {
			subject := fmt.Sprintf("%s, %s", m.ModelID, named(s))
			add("split_mean", subject, "points", &m.Mean, m.CILower, m.CIUpper, m.Count)
			all[len(all)-1].SampleSize = s.Sessions
		}
	}
	return all
}

// LeaderboardCSV returns a leaderboard as one table (RFC 4180) whose columns have the field names of the JSON form.
// A row without a category is about all sessions. Boards count from 1. An undefined figure is an empty cell.
func LeaderboardCSV(l bias.Leaderboard) []byte {
	rows := [][]string{{
		"category", "board", "rank", "place_lower", "place_upper", "model", "borda_normalized", "ci_lower", "ci_upper",
		"appearances", "vote_count", "win_count", "statistical_confidence",
	}}
	add := func(category string, boards []bias.Board) {
		for i, board := range boards {
			for _, e := range board.Entries {
				rows = append(rows, []string{
					Cell(category), strconv.Itoa(i + 1), strconv.Itoa(e.Rank),
					strconv.Itoa(e.PlaceLower), strconv.Itoa(e.PlaceUpper), Cell(e.Model),
					number(&e.BordaNormalized), number(e.CILower), number(e.CIUpper),
					strconv.Itoa(e.Appearances), strconv.Itoa(e.VoteCount), number(&e.WinCount), string(e.Confidence),
				})
			}
		}
	}
	if l.Category != nil {
		add(*l.Category, l.Boards)
		return table(rows)
	}
	add("", l.Boards)
	for _, c := range l.Categories {
		add(c.Category, c.Boards)
	}
	return table(rows)
}

// table returns rows as CSV.
func table(rows [][]string) []byte {
	var b bytes.Buffer
	_ = csv.NewWriter(&b).WriteAll(rows) // writing to a buffer cannot fail
	return b.Bytes()
}

// number returns a figure in full, or "" if it is undefined.
func number(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

// cells returns a metric as a row. If the metric is a member of another metric, headline is the name of the other
// metric. Otherwise headline is "".
func cells(m bias.Metric, headline string) []string {
	instant := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Format(time.RFC3339)
	}
	row := []string{
		m.Name, m.Subject, headline, m.Unit, number(m.PointEstimate), number(m.CILower), number(m.CIUpper),
		strconv.Itoa(m.SampleSize), strconv.Itoa(m.Records), instant(m.WindowStart), instant(m.WindowEnd),
		string(m.Confidence), string(m.Kind), verdict(m), m.Reason, number(m.PValue), number(m.QValue),
		number(m.MinimumDetectableEffect), number(m.DetectableSingle), number(m.Delta), m.Method,
	}
	for i, cell := range row {
		if _, err := strconv.ParseFloat(cell, 64); err != nil { // -0.5 is a number, not a formula
			row[i] = Cell(cell)
		}
	}
	return row
}

// Cell returns a text that is safe in a table. A spreadsheet runs a text that begins like a formula, so Cell puts an
// apostrophe before such a text.
func Cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
