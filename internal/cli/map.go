package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/council"
)

// printMap prints where the answers agree and where they do not, with one quote for each side of a dispute. It prints
// nothing if the session asked for no map. Errors of w are not returned.
func printMap(w io.Writer, m *council.Map) {
	if m == nil {
		return
	}
	if m.Reason != nil {
		_, _ = fmt.Fprintf(w, "Nothing is known of where the answers disagree: %s.\n\n", noMap(*m.Reason))
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
	if len(m.Disputed)+len(m.Agreed)+len(m.OnlyOneSaid)+len(m.Open) > 0 {
		_, _ = fmt.Fprintln(w)
	}
}

// noMap says why a session has no map.
func noMap(reason council.MapReason) string {
	switch reason {
	case council.MapNone:
		return "the chairman did not say"
	case council.MapCutOff:
		return "the reply of the chairman was cut off"
	case council.MapQuotesInvented:
		return "most quotes of the chairman stand in no answer"
	case council.MapNotJSON, council.MapSchema:
		return "what the chairman wrote cannot be read"
	default:
		return string(reason)
	}
}

// saidBy returns the members that a claim quotes.
func saidBy(c council.Claim) string {
	var members []string
	for _, q := range c.Quotes {
		members = append(members, q.Model)
	}
	return strings.Join(distinct(members), ", ")
}

// distinct returns the texts of a list without repetitions, in their order.
func distinct(list []string) (all []string) {
	seen := map[string]bool{}
	for _, text := range list {
		if !seen[text] {
			seen[text] = true
			all = append(all, text)
		}
	}
	return all
}

// quoteOf returns the first quote of a claim on one line.
func quoteOf(c council.Claim) string {
	return `"` + strings.Join(strings.Fields(c.Quotes[0].Quote), " ") + `"`
}
