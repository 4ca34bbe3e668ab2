package render

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
)

// Spend returns a report about the cost of sessions as text.
func Spend(r spend.Costs) []byte {
	var b bytes.Buffer
	writeSpent(&b, r)
	if l := r.Ledger; l != nil && l.Damaged {
		fmt.Fprintf(&b, "These sums are too low, because the ledger is damaged: %s. Run councild report spend verify to see what the ledger still holds.\n",
			l.Problem())
	} else if l != nil && len(l.Accepted) > 0 {
		fmt.Fprintf(&b, "These sums may be too low: a loss was accepted on %s. Run councild report spend verify to see what the ledger still holds.\n",
			l.Accepted[len(l.Accepted)-1].At.Format(time.DateOnly))
	}
	writeLimits(&b, r.Limits)
	return b.Bytes()
}

// writeSpent writes the rows of a report, and their sum.
func writeSpent(b *bytes.Buffer, r spend.Costs) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Rows) > 0 {
		_, _ = fmt.Fprintf(t, "COST\tUNCERTAIN\tUNKNOWN\tCALLS\tSESSIONS\t  %s\n", r.By)
	}
	for _, row := range r.Rows {
		_, _ = fmt.Fprintf(t, "%v\t%v\t%d\t%d\t%d\t  %s\n",
			row.Total.Dollars(), row.Uncertain.Dollars(), row.Unknown, row.Calls, row.Sessions, clip(cmp.Or(row.Key, "(none)")))
	}
	_ = t.Flush()
	if len(r.Rows) > 0 {
		b.WriteString("\n")
	}
	b.WriteString(r.Sentence + "\n")
}

// Ledger returns a text that says how much of a ledger can be read, and what is lost. The report is about all days.
func Ledger(r spend.Costs) []byte {
	var b bytes.Buffer
	l := r.Ledger
	writeSpent(&b, r)
	fmt.Fprintf(&b, "Lines that can be read: %d, %d of them without a checksum.\n", l.Lines, l.Unchecked)
	if l.Expected == nil {
		b.WriteString("How many lines there should be is not known: no daemon has written that down yet.\n")
	} else {
		fmt.Fprintf(&b, "Lines that should be there: at least %d. Missing: at least %d.\n", *l.Expected, l.Missing)
	}
	fmt.Fprintf(&b, "Lines that cannot be read: %d.\n", l.Unreadable)
	for _, s := range l.Reasons {
		fmt.Fprintf(&b, "  %s: %d, the first in %s at line %d\n",
			printable(s.Reason), s.Count, printable(s.File), s.Line)
	}
	for _, day := range slices.Sorted(maps.Keys(l.MissingUSD)) {
		fmt.Fprintf(&b, "Lost: at least %s of %s.\n", l.MissingUSD[day].Dollars(), printable(day))
	}
	if l.Torn {
		b.WriteString("The last line is not complete: a crash cut it, or it is being written. That is no damage.\n")
	}
	for _, a := range l.Accepted {
		fmt.Fprintf(&b, "Accepted on %s: %d lines cannot be read, at least %d lines are missing",
			a.At.Format(time.RFC3339), a.Unreadable, a.Missing)
		for _, day := range slices.Sorted(maps.Keys(a.MissingUSD)) {
			fmt.Fprintf(&b, ", at least %s of %s", a.MissingUSD[day].Dollars(), printable(day))
		}
		b.WriteString(".\n")
	}
	if !l.Damaged && len(l.Accepted) == 0 {
		b.WriteString("The ledger is whole.\n")
	}
	return b.Bytes()
}

// SpendCSV returns the rows of a report about the cost of sessions.
func SpendCSV(r spend.Costs) []byte {
	rows := append(make([][]string, 0, 1+len(r.Rows)),
		[]string{string(r.By), "sessions", "calls", "total_usd", "uncertain_usd", "unknown_calls"})
	for _, row := range r.Rows {
		rows = append(rows, []string{
			Cell(row.Key), strconv.Itoa(row.Sessions), strconv.Itoa(row.Calls), row.Total.String(),
			row.Uncertain.String(), strconv.Itoa(row.Unknown),
		})
	}
	return table(rows)
}

// Estimate returns the estimated cost of a session as text.
func Estimate(e spend.Estimate) []byte {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(calls int, expected, upper *spend.USD, name string) {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t  %s\n", usdOrUnknown(expected), usdOrUnknown(upper), calls, name)
	}
	_, _ = fmt.Fprintln(t, "ABOUT\tAT MOST\tCALLS\t  model")
	for _, model := range slices.Sorted(maps.Keys(e.ByModel)) {
		part := e.ByModel[model]
		row(part.Calls, part.Expected, part.Upper, clip(model))
	}
	row(e.Calls, e.Expected, e.Upper, "total, without retries")
	if e.LeastCalls < e.Calls {
		row(e.LeastCalls, nil, e.LeastUSD, "if the members that begin decide")
	}
	for _, mode := range council.Modes() {
		if part, ok := e.ByMode[mode]; ok && mode != e.Mode {
			row(part.Calls, part.Expected, part.Upper, "in the mode "+string(mode))
		}
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%s\n", printable(e.Sentence))
	if e.BudgetSentence != "" {
		fmt.Fprintln(&b, printable(e.BudgetSentence))
	}
	return b.Bytes()
}

func usdOrUnknown(amount *spend.USD) string {
	if amount == nil {
		return "unknown"
	}
	return amount.Dollars()
}

func writeLimits(b *bytes.Buffer, limits []spend.Limit) {
	for _, l := range limits {
		fmt.Fprintln(b, l.Sentence)
	}
}
