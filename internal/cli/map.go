package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/council"
)

// printMap prints the map of disagreement, with one quote for each side of a dispute. It prints nothing if the session
// asked for no map. It ignores errors of w.
func printMap(w io.Writer, m *council.Map) {
	if m == nil {
		return
	}
	if m.Reason != nil {
		_, _ = fmt.Fprintf(w, "No map of disagreement: %s.\n", noMap(*m.Reason))
		return
	}
	for _, d := range m.Disputed {
		_, _ = fmt.Fprintf(w, "Disputed   %s\n", d.About)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, side := range d.Sides {
			_, _ = fmt.Fprintf(t, "   %s\t%s\t%s\n", side.Claim, saidBy(side), quoteOf(side))
		}
		_ = t.Flush()
	}
	for _, c := range m.Agreed {
		_, _ = fmt.Fprintf(w, "Agreed     %s: %s\n", strings.TrimRight(c.Claim, ".:"), saidBy(c))
	}
	for _, c := range m.OnlyOneSaid {
		_, _ = fmt.Fprintf(w, "Only %s   %s\n", saidBy(c), quoteOf(c))
	}
	for _, question := range m.Open {
		_, _ = fmt.Fprintf(w, "Open       %s (not checked)\n", question)
	}
}

// noMap says why a session has no map.
func noMap(reason council.MapReason) string {
	switch reason {
	case council.MapNone:
		return "the chairman wrote none"
	case council.MapCutOff:
		return "the chairman's reply was cut off"
	case council.MapQuotesInvented:
		return "the chairman invented most of its quotes"
	case council.MapNotJSON, council.MapSchema:
		return "the chairman wrote it in another form"
	default:
		return string(reason)
	}
}

// saidBy returns the members that a claim quotes.
func saidBy(c council.Claim) string {
	members := make([]string, 0, len(c.Quotes))
	for _, q := range c.Quotes {
		if !slices.Contains(members, q.Model) {
			members = append(members, q.Model)
		}
	}
	return strings.Join(members, ", ")
}

// quoteOf returns the first quote of a claim on one line.
func quoteOf(c council.Claim) string {
	return `"` + strings.Join(strings.Fields(c.Quotes[0].Quote), " ") + `"`
}
