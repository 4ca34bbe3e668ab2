// Package render turns figures into documents for people: text for a terminal, CSV for a spreadsheet and one HTML
// page. The figures are a bias report, a monitor, a leaderboard, a comparison of the council with simpler ways to
// answer, the errors that its seats share, and the cost of sessions.
//
// Names of members, files and sessions come from files, which anyone may have written. Every form makes these names
// harmless: it replaces control characters and escapes HTML, and no cell of a table begins like a formula.
//
// Callers of this package compute the figures, encode them as JSON, and send or print the documents.
package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/bias"
)

// flagged reports whether the verdict on a metric is that something was found.
func flagged(m bias.Metric) bool { return m.Found() }

// unfolds reports whether the members of a metric are shown. The members of a tested metric prove nothing by
// themselves, so they are shown only if the test of the whole metric found something. The members of a metric that is
// not tested are always shown.
func unfolds(m bias.Metric) bool { return len(m.Members) > 0 && (flagged(m) || m.Delta == nil) }

// verdict returns the verdict on a metric, or "" if there is none.
func verdict(m bias.Metric) string {
	if m.Verdict == nil {
		return ""
	}
	return string(*m.Verdict)
}

// label returns a name for a metric of at most 32 characters.
func label(m bias.Metric) string {
	const width = 32
	text := cmp.Or(m.Topic, words(m.Name))
	if _, member, ok := strings.Cut(m.Name, "|"); ok {
		text = member
		if member == m.Subject {
			text = m.SubjectName()
		}
	} else if full := text + ": " + m.SubjectName(); m.Subject != "" && len([]rune(full)) <= width {
		text = full
	}
	return lastRunes(clip(text), width)
}

// first returns the file and line of the first skipped record, or "-" if it is not known.
func first(s bias.Skipped) string {
	if s.FirstFile == nil || s.FirstLine == nil {
		return "-"
	}
	return fmt.Sprintf("%s:%d", clip(*s.FirstFile), *s.FirstLine)
}

// figure returns a number in the format, or "-" if it is undefined.
func figure(format string, x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}

// filterNote says which members a filter stands for, or which records it leaves out.
func filterNote(f bias.Filter) string {
	list := func(ids []string) string {
		names := make([]string, len(ids))
		for i, id := range ids {
			names[i] = clip(id)
		}
		return strings.Join(names, ", ")
	}
	asked := f.Field + " " + clip(f.Asked)
	switch {
	case f.LeftOut > 0 && len(f.Present) > 0:
		return fmt.Sprintf("The filter %s leaves out %s with other values: %s.",
			asked, counted(f.LeftOut, "record"), list(f.Present))
	case f.LeftOut > 0:
		return fmt.Sprintf("The filter %s leaves out %s without a value.",
			asked, counted(f.LeftOut, "record"))
	case len(f.Matches) > 0:
		return asked + " stands for " + list(f.Matches) + "."
	case len(f.Present) > 0:
		return "No member is called " + clip(f.Asked) + " or begins with it. There are " + list(f.Present) + "."
	default:
		return asked + " matches no member: there are no sessions in this window."
	}
}

// windowNote says how the window was limited.
func windowNote(w bias.Window) string {
	switch {
	case w.Newest > 0 && w.Days > 0:
		return fmt.Sprintf("Window: the newest %d sessions of the last %d days.", w.Newest, w.Days)
	case w.Newest > 0:
		return fmt.Sprintf("Window: the newest %d sessions.", w.Newest)
	case w.Days > 0:
		return fmt.Sprintf("Window: the last %d days.", w.Days)
	default:
		return "Window: no limit of sessions or days."
	}
}

// words makes a name readable: "length_slope" becomes "length slope".
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// only returns the items for which keep returns true, in their order.
func only[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !keep(item) })
}

// clip returns an id without control characters and of at most 40 characters.
func clip(id string) string { return lastRunes(printable(id), 40) }

// lastRunes returns a text of at most width characters. A longer text loses its beginning, because versions and
// instances differ at the end.
func lastRunes(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return "…" + string(r[len(r)-width+1:])
	}
	return text
}

// printable replaces characters that could control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
