package render

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/bias"
)

// mostRows is the largest number of rows in the plot of a question.
const mostRows = 16

// questionView is a question of a report as a page shows it.
type questionView struct {
	bias.Question
	Number  int
	Class   string        // says how to colour the verdict
	Metrics []bias.Metric // the rows of the table: figures, and the members that are shown
	Plot    *plot         // nil if no row has a figure
}

// axes names the axes of the plots, by the id of the question.
func axes(id string) axisNames {
	return map[string]axisNames{
		"place":        {"scores lower", "points", "scores higher"},
		"length":       {"longer scores lower", "points", "longer scores higher"},
		"favour":       {"scores lower", "points", "scores higher"},
		"level":        {"harsher", "points", "milder"},
		"first_answer": {"others score lower", "points", "others score higher"},
		"agreement":    {"less agreement", "", "more agreement"},
		"change":       {"became harsher", "points", "became milder"},
	}[id]
}

// verdictClass says how to colour a verdict.
func verdictClass(v *bias.Verdict) string {
	switch {
	case v == nil:
		return "open"
	case *v == bias.VerdictFavour:
		return "found"
	case v.Found():
		return "seen"
	case v.Missing():
		return "open"
	}
	return "none"
}

// questionsOf returns the questions of a report as a page shows them.
func questionsOf(r bias.Report) []questionView {
	views := make([]questionView, 0, len(r.Questions))
	for i, q := range r.Questions {
		v := questionView{Question: q, Number: i + 1, Class: verdictClass(q.Verdict)}
		var drawn []bias.Metric
		for _, m := range only(r.Metrics, func(m bias.Metric) bool { return slices.Contains(q.Figures, m.Name) }) {
			v.Metrics = append(v.Metrics, m)
			members := m.Members
			if q.ID == "favour" { // it has too many members to show those at which nothing was found
				members = only(members, flagged)
			}
			v.Metrics = append(v.Metrics, members...)
			if known := only(members, figured); len(known) > 0 && q.ID != "favour" && q.ID != "agreement" {
				drawn = append(drawn, known...)
			} else {
				drawn = append(append(drawn, m), known...)
			}
		}
		v.Plot = questionPlot(q.ID, drawn)
		views = append(views, v)
	}
	return views
}

func figured(m bias.Metric) bool { return m.PointEstimate != nil }

// questionPlot returns the plot of a question. If there are very many figures, it leaves out the smallest ones.
func questionPlot(id string, metrics []bias.Metric) *plot {
	if !slices.ContainsFunc(metrics, figured) {
		return nil
	}
	left := len(metrics) - mostRows
	if left > 0 {
		sizes := make([]float64, len(metrics))
		for i, m := range metrics {
			sizes[i] = prominence(m)
		}
		slices.Sort(sizes)
		least := sizes[left]
		metrics = only(metrics, func(m bias.Metric) bool { return prominence(m) >= least })
	}
	spans := make([]span, len(metrics))
	var margins []string
	found := ""
	for i, m := range metrics {
		spans[i] = span{Label: plotLabel(m), Point: m.PointEstimate, Low: m.CILower, High: m.CIUpper, Delta: m.Delta, Flagged: flagged(m)}
		spans[i].Seen = flagged(m) && !m.Is(bias.VerdictFavour)
		if m.PointEstimate == nil {
			spans[i].Side = "too little data"
			if m.Is(bias.VerdictNotIdentified) {
				spans[i].Side = "cannot be told"
			}
		}
		if m.Delta != nil && m.PointEstimate != nil {
			if margin := strconv.FormatFloat(*m.Delta, 'g', -1, 64); !slices.Contains(margins, margin) {
				margins = append(margins, margin)
			}
		}
		if flagged(m) {
			found = " A coloured square is a finding, and a round dot is not."
		}
	}
	names := axes(id)
	p := newPlot("Estimates with 95 % intervals. The table has the same figures.", spans).name(names)
	p.Caption = "Each line is a 95 % interval." + found
	if p.Band != "" {
		p.Caption += fmt.Sprintf(" The shaded band marks effects of less than %s points, which are too small to count.", strings.Join(margins, " or "))
	}
	switch id {
	case "length":
		p.Caption += " Points are for an answer of twice the length. A reviewer’s row compares it with the others."
	case "agreement":
		p.HasZero = false
		p.Caption += " The first row is Kendall’s W of the scores. The others are Kendall’s tau of two ballots, where 0 is chance."
	case "level":
		p.Caption += " A reviewer’s row compares it with the others on the same answers."
	}
	if left > 0 {
		p.Caption += fmt.Sprintf(" The table has %s more.", counted(left, "row"))
	}
	return p
}

// prominence is larger for figures that a plot must show rather than others.
func prominence(m bias.Metric) float64 {
	switch {
	case m.PointEstimate == nil:
		return -1
	case flagged(m):
		return 1e9 + math.Abs(*m.PointEstimate)
	}
	return math.Abs(*m.PointEstimate)
}

// plotLabel returns the name of a figure in a plot. It fits beside nothing else on a phone.
func plotLabel(m bias.Metric) string {
	const width = 42
	subject := printable(m.SubjectName())
	if reviewer, candidate, pair := strings.Cut(subject, ">"); pair {
		subject = lastRunes(reviewer, 12) + " on " + lastRunes(candidate, 12)
	}
	switch {
	case m.InCommon && m.Subject == "":
		return "all reviewers"
	case m.InCommon:
		return subject + ", all reviewers"
	case strings.HasPrefix(m.Name, "position|") && m.Unit == "points":
		return lastRunes(subject, width-13) + ", first place"
	case strings.Contains(m.Name, "|"):
		return lastRunes(subject, width)
	}
	text := strings.TrimPrefix(cmp.Or(m.Topic, words(m.Name)), "favour for ")
	if m.Subject != "" && m.PointEstimate != nil {
		text += ": " + lastRunes(subject, width-2-len(text))
	}
	return lastRunes(text, width)
}

// writeSummary writes what a reader should know first, and then the questions with their answers.
func writeSummary(b *bytes.Buffer, r bias.Report) {
	s := r.Summary
	b.WriteString(wrap(s.Result, "") + "\n")
	for _, finding := range s.Findings {
		b.WriteString(item(finding, "  ") + "\n")
	}
	b.WriteString("\n")
	for _, line := range slices.Concat([]string{s.Brackets, s.Window, s.Council}, s.CouldFind, []string{s.More}) {
		if line != "" {
			b.WriteString(wrap(line, "") + "\n")
		}
	}
	for i, q := range r.Questions {
		fmt.Fprintf(b, "\n%s\n", wrapAfter(fmt.Sprintf("%d. ", i+1), q.Question, ""))
		b.WriteString(wrap(strings.ToUpper(q.Word)+". "+q.Sentence, "   ") + "\n")
		for _, more := range q.Also {
			b.WriteString(item(more, "   ") + "\n")
		}
		if q.ToDo != "" {
			b.WriteString(wrap("What to do: "+q.ToDo, "   ") + "\n")
		}
	}
}

// item returns a text as an item of a list.
func item(text, indent string) string { return wrapAfter("- ", text, indent) }

// wrapAfter wraps a text. The mark stands before its first line, and the other lines are indented as far.
func wrapAfter(mark, text, indent string) string {
	return indent + mark + strings.TrimLeft(wrap(text, indent+strings.Repeat(" ", len(mark))), " ")
}
