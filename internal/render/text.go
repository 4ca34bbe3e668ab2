package render

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// noSessions says why a report may have no sessions. Its lines fit into 80 columns even with the names of the
// environment variables.
func noSessions(names council.SettingNames, filters []bias.Filter) string {
	if slices.ContainsFunc(filters, func(f bias.Filter) bool { return f.LeftOut > 0 }) {
		return "There are records, but none of them matches the filters.\n"
	}
	return bias.NoSessions + "\n" + recording(names)
}

// recording says which settings the recording of sessions needs.
func recording(names council.SettingNames) string {
	return fmt.Sprintf("Recording needs %s=true and\n%s=1 or more.\n",
		names.Of(council.SettingBiasPersistence), names.Of(council.SettingBiasConsent))
}

// Text returns a report in at most 80 columns. It has the summary, the questions, the metrics and the skipped records. If
// verbose is set, it also has the reviewers' profiles, the positions, all reasons, and what is not measured.
func Text(r FullReport, verbose bool, names council.SettingNames) []byte {
	var b bytes.Buffer
	writeSummary(&b, r.Report)
	switch {
	case r.Status != bias.StatusCollecting:
		writeFigures(&b, r.Report, verbose)
	case r.Summary.Window == bias.NoSessions:
		b.WriteString("\n" + recording(names))
	case r.Window.Sessions == 0:
		b.WriteString("\n" + noSessions(names, r.Filters))
	}
	writeFilters(&b, r.Filters)
	for i, v := range r.Versions {
		if i == 0 {
			b.WriteString("\nVersions of models that changed:\n")
		}
		b.WriteString(wrap(printable(v.String())+".", "  ") + "\n")
	}
	if r.Repeats.Note != "" {
		b.WriteString("\n" + wrap(r.Repeats.Note, "") + "\n")
	}
	writeSkipped(&b, r.Skipped)
	writeEvidence(&b, r.Evidence)
	return b.Bytes()
}

// Leaderboard returns a leaderboard in at most 80 columns, or in more if names are long.
func Leaderboard(l bias.Leaderboard, names council.SettingNames) []byte {
	var b bytes.Buffer
	if l.Sessions > 0 {
		writeLeaderboard(&b, l)
	} else {
		fmt.Fprintf(&b, "No ballots in %d sessions\n\n", l.Window.Sessions)
		switch {
		case l.Window.Sessions > 0:
			b.WriteString("There are sessions, but no reviewer ranked two answers.\n")
		case l.Category != nil:
			fmt.Fprintf(&b, "No session in the window has the category %s.\n", *l.Category)
		default:
			b.WriteString(noSessions(names, l.Filters))
		}
	}
	writeFilters(&b, l.Filters)
	writeSkipped(&b, l.Skipped)
	return b.Bytes()
}

func writeLeaderboard(b *bytes.Buffer, l bias.Leaderboard) {
	category := "all categories"
	categories := l.Categories
	if l.Category != nil {
		category = clip(*l.Category)
		categories = nil
	}
	title := fmt.Sprintf("Leaderboard, %s: %d sessions with ballots, %s to %s\n\n", category, l.Sessions,
		l.Window.Start.Format(time.DateOnly), l.Window.End.Format(time.DateOnly))
	writeBoards(b, title, l.Boards, true)
	for _, c := range categories {
		writeBoards(b, fmt.Sprintf("\n%s: %d sessions\n\n", clip(c.Category), c.Sessions), c.Boards, false)
	}
	const note = "\nScore: mean over sessions, 1 always first, 0 always last. Intervals (95 %%) from\n%d questions on.\n"
	fmt.Fprintf(b, note, bias.IntervalsFrom)
	b.WriteString(windowNote(l.Window) + "\n")
}

func writeFilters(b *bytes.Buffer, filters []bias.Filter) {
	for _, f := range filters {
		b.WriteString("\n" + wrap(filterNote(f), "") + "\n")
	}
}

// writeBoards writes the boards under one title. If notes is set, each board has its note.
func writeBoards(b *bytes.Buffer, title string, boards []bias.Board, notes bool) {
	for i, board := range boards {
		if len(boards) > 1 {
			council := boardTitle(i, len(boards), board.Sessions)
			if i == 0 && notes {
				title += wrap(boardsApart, "") + "\n\n"
			}
			title += council + "\n\n"
		}
		writeEntries(b, title, board.Entries)
		if notes && board.Note != "" {
			b.WriteString("\n" + wrap(board.Note, "") + "\n")
		}
		title = "\n"
	}
}

// boardsApart explains why there is more than one board.
const boardsApart = "Some models were never ranked together, not even through others. " +
	"The records cannot compare them, so each council has its own list."

// boardTitle returns the title of one of several boards. i counts from 0.
func boardTitle(i, of, sessions int) string {
	return fmt.Sprintf("Council %d of %d: %d sessions", i+1, of, sessions)
}

func writeEntries(b *bytes.Buffer, title string, entries []bias.LeaderboardEntry) {
	writeTable(b, title, "RANK\tMODEL\tSCORE\tINTERVAL\tPLACES\tSESSIONS\tVOTES\tWINS\tTIER", entries, func(e bias.LeaderboardEntry) string {
		return fmt.Sprintf("%d\t%s\t%.3f\t%s\t%d-%d\t%d\t%d\t%.4g\t%s",
			e.Rank, clip(e.Model), e.BordaNormalized, interval("%.3f", e.CILower, e.CIUpper),
			e.PlaceLower, e.PlaceUpper, e.Appearances, e.VoteCount, e.WinCount, e.Confidence)
	})
}

func writeSkipped(b *bytes.Buffer, skipped []bias.Skipped) {
	writeTable(b, "\nSkipped records:\n\n", "REASON\tCOUNT\tFIRST LINE", skipped, func(s bias.Skipped) string {
		return fmt.Sprintf("%s\t%d\t%s", s.Reason, s.Count, first(s))
	})
}

func writeFigures(b *bytes.Buffer, r bias.Report, verbose bool) {
	fmt.Fprintf(b, "\nAll figures, from %d records:\n", r.Window.Records)
	if volatile := only(r.Metrics, volatile); len(volatile) > 0 {
		names := make([]string, len(volatile))
		for i, m := range volatile {
			names[i] = m.Topic
		}
		b.WriteString(wrap("High volatility: a few more sessions may change these figures a lot: "+strings.Join(names, ", ")+".", "") + "\n")
	}
	favours := only(r.Metrics, func(m bias.Metric) bool { return m.Kind == bias.KindFavour })
	apart := only(r.Metrics, func(m bias.Metric) bool {
		return m.Kind != bias.KindFavour && m.Kind != bias.KindDescription
	})
	described := only(r.Metrics, func(m bias.Metric) bool { return m.Kind == bias.KindDescription })

	writeTested(b, "\nFavours (FINDS: the effect found with a probability of 80 %):\n\n", favours, verbose)
	writeTested(b, "\n"+apartTitle+":\n\n", apart, verbose)
	writeMetrics(b, "\nDescribed, not tested: none of these proves a favour or rules one out.\n\n", described)
	writeMembers(b, described)
	for _, m := range described {
		if verbose || missing(m) {
			writeReason(b, m, verbose)
		}
	}
	writePairs(b, r.Pairs)
	writeEvents(b, r)
	if verbose {
		writeProfiles(b, r)
	}
	const calibrated = "\nCalibrated view (raw mean in points; z in standard deviations of the reviewer):\n\n"
	writeTable(b, calibrated, "REVIEWER\tMODEL\tRAW\tZ\tREVIEWS", r.Calibrated, func(c bias.Calibrated) string {
		return fmt.Sprintf("%s\t%s\t%.2f\t%s\t%d",
			clip(c.ReviewerID), clip(c.ModelID), c.Mean, figure("%+.2f", c.Z), c.Reviews)
	})
	writeSplits(b, r.Splits)
}

// apartTitle is the title of levels, changes and associations.
const apartTitle = "Other findings; none of them changes a ranking by itself"

// volatile reports whether a few more sessions may change the figure of a metric a lot.
func volatile(m bias.Metric) bool {
	return m.PointEstimate != nil && m.Confidence == bias.ConfidencePreliminary
}

// missing reports whether the verdict on a metric leaves open whether there is an effect.
func missing(m bias.Metric) bool { return m.Verdict != nil && m.Verdict.Missing() }

// writeTested writes metrics that are tested, with the reasons for their verdicts. It adds the members of metrics
// at which something was found.
func writeTested(b *bytes.Buffer, title string, metrics []bias.Metric, verbose bool) {
	writeMetrics(b, title, metrics)
	for _, m := range metrics {
		if verbose || flagged(m) || missing(m) {
			writeReason(b, m, verbose)
		}
	}
	writeMembers(b, metrics)
}

func writeMetrics(b *bytes.Buffer, title string, metrics []bias.Metric) {
	writeTable(b, title, "METRIC\tESTIMATE\t95 % INTERVAL\tFINDS\tVERDICT", metrics, func(m bias.Metric) string {
		return strings.Join([]string{
			label(m), figure("%+.2f", m.PointEstimate), interval("%+.2f", m.CILower, m.CIUpper),
			figure("%.2f", m.MinimumDetectableEffect), cmp.Or(words(verdict(m)), "-"),
		}, "\t")
	})
}

// writeMembers writes the members of the metrics that unfold.
func writeMembers(b *bytes.Buffer, metrics []bias.Metric) {
	for _, m := range only(metrics, unfolds) {
		writeMetrics(b, "\n"+m.Topic+", each one:\n\n", m.Members)
		for _, member := range m.Members {
			if missing(member) {
				writeReason(b, member, false)
			}
		}
	}
}

// writeReason writes the reason for the verdict on a metric.
func writeReason(b *bytes.Buffer, m bias.Metric, verbose bool) {
	fmt.Fprintf(b, "\n%s (%d sessions, %s confidence)\n%s\n",
		label(m), m.SampleSize, m.Confidence, wrap(m.Reason, "  "))
	if verbose && m.Method != "" {
		b.WriteString(wrap(m.Method, "  ") + "\n")
	}
}

// writePairs writes how the reviewers judged pairs of answers.
func writePairs(b *bytes.Buffer, pairs []bias.PairJudge) {
	const (
		both = "\nPairs of answers that were shown in both orders. A pair is in conflict when\n" +
			"the order decides which answer wins: the one shown first in both orders, or the\n" +
			"one shown last. Pairs that are tied in one order only are TIED.\n\n"
		right = "\nHow often the correct one of two answers won, with 95 % intervals:\n\n"
	)
	share := func(e stat.Estimate) string { return figure("%.2f", e.Value) + within("%.2f", e.Lower, e.Upper) }
	ordered := only(pairs, func(p bias.PairJudge) bool { return p.Comparisons > 0 })
	writeTable(b, both, "REVIEWER\tPAIRS\tAGREE\tCONFLICTS\tFIRST\tLAST\tTIED", ordered, func(p bias.PairJudge) string {
		return fmt.Sprintf("%s\t%d\t%d\t%s\t%d\t%d\t%d",
			clip(p.ReviewerID), p.Comparisons, p.Agree, share(p.ConflictRate),
			p.Primacy, p.Recency, p.PrimacyTies+p.RecencyTies)
	})
	graded := only(pairs, func(p bias.PairJudge) bool { return p.Accuracy != nil })
	writeTable(b, right, "REVIEWER\tREVIEWS\tCORRECT\tSHOWN FIRST\tSHOWN LAST", graded, func(p bias.PairJudge) string {
		a := p.Accuracy
		return fmt.Sprintf("%s\t%d\t%s\t%s\t%s",
			clip(p.ReviewerID), a.Reviews, share(a.Share), share(a.ShownFirst), share(a.ShownLast))
	})
}

// writeEvents writes the change points that were found, and the anomalies.
func writeEvents(b *bytes.Buffer, r bias.Report) {
	const (
		changed = "\nReviewers that changed (below 0 is harsher than the others):\n\n"
		unusual = "\nUnusual sessions (below 0 is harsher than the others):\n\n"
	)
	changes := only(r.ChangePoints, func(c bias.ChangePoint) bool { return c.Verdict == bias.VerdictChanged })
	writeTable(b, changed, "REVIEWER\tFROM\tBEFORE\tAFTER", changes, func(c bias.ChangePoint) string {
		return fmt.Sprintf("%s\t%s\t%+.2f\t%+.2f", clip(c.ReviewerID), c.Start.Format(time.DateOnly), c.Before, c.After)
	})
	writeTable(b, unusual, "SESSION OF\tREVIEWER\tVALUE\tUSUAL", r.Anomalies.Found, func(a bias.Anomaly) string {
		return fmt.Sprintf("%s\t%s\t%+.2f\t%+.2f", a.Start.Format(time.DateTime), clip(a.ReviewerID), a.Value, a.Usual)
	})
}

// writeProfiles writes the reviewers' profiles, the positions, and what the report does not measure.
func writeProfiles(b *bytes.Buffer, r bias.Report) {
	const (
		profiles  = "\nReviewers (means with 95 % intervals; a level below 0 is harsher):\n\n"
		harshness = "\nOn the same answers (points; credible interval; drift in standard deviations):\n\n"
	)
	writeTable(b, profiles, "REVIEWER\tMEAN\tSTD\tREVIEWS", r.Reviewers, func(p bias.Profile) string {
		mean := figure("%.2f", &p.Mean) + within("%.2f", p.MeanLower, p.MeanUpper)
		return fmt.Sprintf("%s\t%s\t%s\t%d", clip(p.ReviewerID), mean, figure("%.2f", p.Std), p.Reviews)
	})
	writeTable(b, "\n", "REVIEWER\tLEVEL Z\tTIER", r.Reviewers, func(p bias.Profile) string {
		z := figure("%+.2f", p.HarshnessZ) + within("%+.2f", p.HarshnessZLower, p.HarshnessZUpper)
		return fmt.Sprintf("%s\t%s\t%s", clip(p.ReviewerID), z, p.Confidence)
	})
	writeTable(b, harshness, "REVIEWER\tLEVEL\tDRIFT", r.Reviewers, func(p bias.Profile) string {
		relative := figure("%+.2f", p.RelativeHarshness.Value)
		if e := p.RelativeHarshness; e.Lower != nil && e.Upper != nil {
			relative += " (" + interval("%+.2f", e.Lower, e.Upper) + ")"
		}
		return strings.Join([]string{clip(p.ReviewerID), relative, figure("%+.2f", p.DriftSD)}, "\t")
	})
	const places = "\nPlaces (1 is shown first; mean with its 95 % interval):\n\n"
	writeTable(b, places, "PLACE\tMEAN\tSCORES", r.Positions, func(p bias.Position) string {
		return fmt.Sprintf("%d\t%s\t%d",
			p.Position+1, figure("%.2f", &p.Mean)+within("%.2f", p.CILower, p.CIUpper), p.Count)
	})
	writeTable(b, "\nModels at each place, own answers left out:\n\n", "MODEL\tPLACE\tMEAN\tSCORES", r.ModelPositions,
		func(p bias.ModelPosition) string {
			mean := figure("%.2f", &p.Mean) + within("%.2f", p.CILower, p.CIUpper)
			return fmt.Sprintf("%s\t%d\t%s\t%d", clip(p.ModelID), p.Position+1, mean, p.Count)
		})
	writeSeries(b, r.Series)
	if len(r.NotMeasured) > 0 {
		b.WriteString("\nNot measured:\n\n")
	}
	for _, n := range r.NotMeasured {
		b.WriteString(wrap(words(n.Name)+": "+n.Reason, "  ") + "\n")
	}
}

// writeSeries writes the reviewers' relative harshness over rolling windows.
func writeSeries(b *bytes.Buffer, points []bias.SeriesPoint) {
	type row struct {
		from time.Time
		bias.SeriesValue
	}
	var rows []row
	for _, p := range points {
		for _, v := range p.Reviewers {
			rows = append(rows, row{p.Start, v})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.ReviewerID, b.ReviewerID) })
	const title = "\nLevel over rolling windows, each of which shares half of its\nsessions with the next:\n\n"
	writeTable(b, title, "REVIEWER\tFROM\tSESSIONS\tLEVEL", rows, func(r row) string {
		return fmt.Sprintf("%s\t%s\t%d\t%+.2f",
			clip(r.ReviewerID), r.from.Format(time.DateOnly), r.Sessions, r.RelativeHarshness)
	})
}

// writeSplits writes the figures of each part into which the query splits the sessions.
func writeSplits(b *bytes.Buffer, splits []bias.Split) {
	if len(splits) > 0 {
		b.WriteString("\n" + wrap("By "+splits[0].By+". With more parts, more differences are only chance. "+
			"These figures are not tested.", "") + "\n")
	}
	for _, s := range splits {
		title := fmt.Sprintf("\n%s: %d sessions, %d scores\n\n", named(s), s.Sessions, s.Records)
		writeTable(b, title, "MODEL\tMEAN\tSCORES", s.Models, func(m bias.SplitMean) string {
			return fmt.Sprintf("%s\t%s\t%d",
				clip(m.ModelID), figure("%.2f", &m.Mean)+within("%.2f", m.CILower, m.CIUpper), m.Count)
		})
	}
}

// named returns the name of the part of the sessions that a split describes. It is "no category" or "no language" for
// sessions whose caller named none.
func named(s bias.Split) string {
	if s.Value == nil {
		return "no " + s.By
	}
	return clip(*s.Value)
}

// within formats an interval in brackets, after a space. It returns "" if the interval is undefined.
func within(format string, low, high *float64) string {
	if low == nil || high == nil {
		return ""
	}
	return " (" + interval(format, low, high) + ")"
}

// writeTable writes a title and a table with a row for each item. Tabs separate the columns. It writes nothing if
// there are no items.
func writeTable[T any](b *bytes.Buffer, title, header string, items []T, row func(T) string) {
	if len(items) == 0 {
		return
	}
	b.WriteString(title)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, item := range items {
		fmt.Fprintln(w, row(item))
	}
	w.Flush()
}

// interval returns both ends of an interval, or "-" if there is none.
func interval(format string, low, high *float64) string {
	if low == nil || high == nil {
		return "-"
	}
	return figure(format, low) + " to " + figure(format, high)
}

// wrap breaks a text between words into indented lines of at most 78 columns. A longer word gets its own line and
// loses its end.
func wrap(text, indent string) string {
	const width = 78
	var lines strings.Builder
	lines.WriteString(indent)
	column := len(indent)
	for i, word := range strings.Fields(printable(text)) {
		letters := []rune(word)
		letters = letters[:min(len(letters), width-len(indent))]
		if i > 0 && column+1+len(letters) > width {
			lines.WriteString("\n" + indent)
			column = len(indent)
		} else if i > 0 {
			lines.WriteByte(' ')
			column++
		}
		lines.WriteString(string(letters))
		column += len(letters)
	}
	return lines.String()
}
