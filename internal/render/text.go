package bias

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

const noSessions = `Nothing was recorded yet, or every session lies outside the window that was
asked for. Sessions are recorded while LLM_COUNCIL_BIAS_PERSISTENCE is true and
LLM_COUNCIL_BIAS_CONSENT is 1 or more: ask the council some questions. A window
of 0 days (LLM_COUNCIL_BIAS_WINDOW_DAYS) reaches back without a limit.
`

// WriteText writes the report for people, in at most 80 columns: the headline
// first, then the metrics and what was skipped. Verbose adds the reviewers'
// profiles and the positions. It fails only where w does.
func (r Report) WriteText(w io.Writer, verbose bool) error {
	var b bytes.Buffer
	if r.Status == StatusCollecting {
		fmt.Fprintf(&b, "Collecting data (%d of %d sessions)\n\n", r.Window.Sessions, preliminaryFrom)
		if r.Window.Sessions == 0 {
			b.WriteString(noSessions)
		} else {
			b.WriteString("With so few sessions any figure would be chance, so none is shown.\n")
		}
	} else {
		r.writeFigures(&b, verbose)
	}
	writeSkipped(&b, r.Skipped)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func writeSkipped(b *bytes.Buffer, skipped []Skipped) {
	if len(skipped) == 0 {
		return
	}
	b.WriteString("\nSkipped records:\n\n")
	t := newTable(b)
	fmt.Fprintln(t, "REASON\tCOUNT\tFIRST LINE")
	for _, s := range skipped {
		fmt.Fprintf(t, "%s\t%d\t%s\n", s.Reason, s.Count, s.First())
	}
	t.Flush()
}

// WriteText writes the leaderboard for people, in at most 80 columns but for long
// names. It fails only where w does.
func (l Leaderboard) WriteText(w io.Writer) error {
	var b bytes.Buffer
	if l.Sessions == 0 {
		fmt.Fprintf(&b, "No ballots in %d sessions\n\n", l.Window.Sessions)
		switch {
		case l.Window.Sessions > 0:
			b.WriteString("The sessions are there, but none of their reviewers ranked two answers.\n")
		case l.Category != nil:
			fmt.Fprintf(&b, "No session in the window was given the category %s.\n", *l.Category)
		default:
			b.WriteString(noSessions)
		}
	} else {
		of := "all categories"
		if l.Category != nil {
			of = clip(*l.Category)
		}
		fmt.Fprintf(&b, "Leaderboard, %s: %d sessions with ballots, %s to %s\n\n", of, l.Sessions,
			l.Window.Start.Format(time.DateOnly), l.Window.End.Format(time.DateOnly))
		writeEntries(&b, l.Entries)
		if l.Category == nil {
			for _, c := range l.Categories {
				fmt.Fprintf(&b, "\n%s: %d sessions\n\n", clip(c.Category), c.Sessions)
				writeEntries(&b, c.Entries)
			}
		}
		fmt.Fprintf(&b, "\nScore: mean over sessions, 1 always first, 0 always last. Intervals (95 %%) from\n%d sessions on.\n", bootstrapFrom)
	}
	writeSkipped(&b, l.Skipped)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the leaderboard: %w", err)
	}
	return nil
}

func writeEntries(b *bytes.Buffer, entries []Entry) {
	t := newTable(b)
	fmt.Fprintln(t, "RANK\tMODEL\tSCORE\tINTERVAL\tSESSIONS\tVOTES\tWINS")
	for _, e := range entries {
		interval := "-"
		if e.CILower != nil {
			interval = fmt.Sprintf("%.3f to %.3f", *e.CILower, *e.CIUpper)
		}
		fmt.Fprintf(t, "%d\t%s\t%.3f\t%s\t%d\t%d\t%.4g\n", e.Rank, clip(e.Model), e.BordaNormalized, interval, e.Appearances, e.VoteCount, e.WinCount)
	}
	t.Flush()
}

func (r Report) writeFigures(b *bytes.Buffer, verbose bool) {
	b.WriteString(wrap(r.Headline+".", "") + "\n\n")
	fmt.Fprintf(b, "%d sessions, %d records, %s to %s\n", r.Window.Sessions, r.Window.Records,
		r.Window.Start.Format(time.DateOnly), r.Window.End.Format(time.DateOnly))

	var tested, described []Metric
	if slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Confidence == ConfidencePreliminary }) {
		b.WriteString("High volatility: a few more sessions may change these figures a lot.\n")
	}
	for _, m := range r.Metrics {
		if m.Delta != nil {
			tested = append(tested, m)
		} else {
			described = append(described, m)
		}
	}
	b.WriteString("\nTested (FINDS: the effect found in four of five such windows):\n\n")
	writeMetrics(b, tested)
	for _, m := range tested {
		writeReason(b, m, verbose)
	}
	writeMembers(b, tested)
	b.WriteString("\nDescribed, not tested: none of these proves a bias or rules one out.\n\n")
	writeMetrics(b, described)
	writeMembers(b, described)
	if verbose {
		for _, m := range described {
			writeReason(b, m, verbose)
		}
	}
	r.writeEvents(b)
	t := newTable(b)
	if verbose && len(r.Reviewers) > 0 {
		b.WriteString("\nReviewers (a harshness z below 0 is harsher than the others):\n\n")
		fmt.Fprintln(t, "REVIEWER\tMEAN\tSTD\tHARSHNESS Z\tREVIEWS")
		for _, p := range r.Reviewers {
			fmt.Fprintf(t, "%s\t%.2f\t%s\t%s\t%d\n", clip(p.ReviewerID), p.Mean, figure("%.2f", p.Std), figure("%+.2f", p.HarshnessZ), p.Reviews)
		}
		t.Flush()
	}
	if verbose && len(r.Reviewers) > 0 {
		b.WriteString("\nOn the same answers (points; credible interval; drift in standard deviations):\n\n")
		fmt.Fprintln(t, "REVIEWER\tRELATIVE HARSHNESS\tDRIFT")
		for _, p := range r.Reviewers {
			harshness := figure("%+.2f", p.RelativeHarshness.Value)
			if e := p.RelativeHarshness; e.Lower != nil && e.Upper != nil {
				harshness += fmt.Sprintf(" (%+.2f to %+.2f)", *e.Lower, *e.Upper)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", clip(p.ReviewerID), harshness, figure("%+.2f", p.DriftSD))
		}
		t.Flush()
	}
	if verbose && len(r.Positions) > 0 {
		b.WriteString("\nPositions (0 is shown first):\n\n")
		fmt.Fprintln(t, "POSITION\tMEAN\tSCORES")
		for _, p := range r.Positions {
			fmt.Fprintf(t, "%d\t%.2f\t%d\n", p.Position, p.Mean, p.Count)
		}
		t.Flush()
	}
	if verbose {
		r.writeNotMeasured(b)
	}
}

// writeNotMeasured says what the report does not look for.
func (r Report) writeNotMeasured(b *bytes.Buffer) {
	b.WriteString("\nNot measured:\n\n")
	for _, n := range r.NotMeasured {
		b.WriteString(wrap(words(n.Name)+": "+n.Reason, "  ") + "\n")
	}
}

// writeMetrics writes a table that holds no reasons.
func writeMetrics(b *bytes.Buffer, metrics []Metric) {
	t := newTable(b)
	fmt.Fprintln(t, "METRIC\tESTIMATE\t95 % INTERVAL\tFINDS\tVERDICT")
	for _, m := range metrics {
		interval, verdict := "-", "-"
		if m.CILower != nil && m.CIUpper != nil {
			interval = fmt.Sprintf("%+.2f to %+.2f", *m.CILower, *m.CIUpper)
		}
		if m.Verdict != nil {
			verdict = words(string(*m.Verdict))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", label(m), figure("%+.2f", m.PointEstimate), interval, figure("%.2f", m.MinimumDetectableEffect), verdict)
	}
	t.Flush()
}

// writeMembers lists the members of those metrics that unfold.
func writeMembers(b *bytes.Buffer, metrics []Metric) {
	for _, m := range metrics {
		if m.unfolds() {
			fmt.Fprintf(b, "\n%s, one by one:\n\n", words(m.Name))
			writeMetrics(b, m.Members)
		}
	}
}

// writeReason says why the verdict is what it is: always where something was found
// or could not be looked for.
func writeReason(b *bytes.Buffer, m Metric, verbose bool) {
	if !verbose && !m.flagged() && m.PointEstimate != nil {
		return
	}
	fmt.Fprintf(b, "\n%s (%d sessions, %s confidence)\n", label(m), m.SampleSize, m.Confidence)
	b.WriteString(wrap(m.Reason, "  ") + "\n")
	if verbose && m.Method != "" {
		b.WriteString(wrap(m.Method, "  ") + "\n")
	}
}

// writeEvents writes the change points that are flagged, and the anomalies.
func (r Report) writeEvents(b *bytes.Buffer) {
	t := newTable(b)
	if changes := slices.DeleteFunc(slices.Clone(r.ChangePoints), func(c ChangePoint) bool { return !c.Flagged }); len(changes) > 0 {
		b.WriteString("\nReviewers that changed (below 0 is harsher than the others):\n\n")
		fmt.Fprintln(t, "REVIEWER\tFROM\tBEFORE\tAFTER")
		for _, c := range changes {
			fmt.Fprintf(t, "%s\t%s\t%+.2f\t%+.2f\n", clip(c.ReviewerID), c.Start.Format(time.DateOnly), c.Before, c.After)
		}
		t.Flush()
	}
	if len(r.Anomalies.Found) > 0 {
		b.WriteString("\nUnusual sessions (below 0 is harsher than the others):\n\n")
		fmt.Fprintln(t, "SESSION OF\tREVIEWER\tVALUE\tUSUAL")
		for _, a := range r.Anomalies.Found {
			fmt.Fprintf(t, "%s\t%s\t%+.2f\t%+.2f\n", a.Start.Format(time.DateTime), clip(a.ReviewerID), a.Value, a.Usual)
		}
		t.Flush()
	}
}

// newTable aligns tab-separated columns. Writing to a buffer cannot fail.
func newTable(b *bytes.Buffer) *tabwriter.Writer { return tabwriter.NewWriter(b, 0, 0, 2, ' ', 0) }

func figure(format string, x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}

// wrap breaks a text between words into indented lines of at most 78 columns.
// Words that are longer get lines of their own, without their ends.
func wrap(text, indent string) string {
	const width = 78
	lines, column := indent, len(indent)
	for i, word := range strings.Fields(printable(text)) {
		letters := []rune(word)
		letters = letters[:min(len(letters), width-len(indent))]
		if i > 0 && column+1+len(letters) > width {
			lines, column = lines+"\n"+indent, len(indent)
		} else if i > 0 {
			lines, column = lines+" ", column+1
		}
		lines, column = lines+string(letters), column+len(letters)
	}
	return lines
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// clip makes an id from a file fit its column and unable to steer a terminal. The
// end is kept, where versions and instances differ.
func clip(id string) string {
	const width = 40
	id = printable(id)
	if n := utf8.RuneCountInString(id); n > width {
		id = "…" + string([]rune(id)[n-width+1:])
	}
	return id
}
