package render

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/spend"
)

// Spend returns a report of what sessions cost as text.
func Spend(r spend.Report) []byte {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(t, "USD\tUNCERTAIN\tUNKNOWN\tCALLS\tSESSIONS\t  %s\n", r.By)
	for _, row := range r.Rows {
		_, _ = fmt.Fprintf(t, "%v\t%v\t%d\t%d\t%d\t  %s\n",
			row.Total, row.Uncertain, row.Unknown, row.Calls, row.Sessions, clip(cmp.Or(row.Key, "(none)")))
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nTotal: %v US dollars, of which at most %v are uncertain", r.Total, r.Uncertain)
	if r.Unknown > 0 {
		fmt.Fprintf(&b, "; the cost of %d calls is unknown", r.Unknown)
	}
	b.WriteString("\n")
	writeLimits(&b, r.Limits)
	return b.Bytes()
}

// SpendCSV returns the rows of a report of what sessions cost.
func SpendCSV(r spend.Report) []byte {
	rows := append(make([][]string, 0, 1+len(r.Rows)),
		[]string{string(r.By), "sessions", "calls", "total_usd", "uncertain_usd", "unknown_calls"})
	for _, row := range r.Rows {
		rows = append(rows, []string{
			Cell(row.Key), strconv.Itoa(row.Sessions), strconv.Itoa(row.Calls), row.Total.String(), row.Uncertain.String(), strconv.Itoa(row.Unknown),
		})
	}
	return table(rows)
}

// Estimate returns what a session may cost as text.
func Estimate(e spend.Estimate) []byte {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(calls int, expected, upper *spend.USD, name string) {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t  %s\n", usdOrUnknown(expected), usdOrUnknown(upper), calls, name)
	}
	_, _ = fmt.Fprintln(t, "EXPECTED USD\tAT MOST USD\tCALLS\t  model")
	for _, model := range slices.Sorted(maps.Keys(e.ByModel)) {
		part := e.ByModel[model]
		row(part.Calls, part.Expected, part.Upper, clip(model))
	}
	row(e.Calls, e.Expected, e.Upper, "together, when nothing fails")
	_ = t.Flush()
	b.WriteString("\n")
	if len(e.Unpriced) > 0 {
		fmt.Fprintf(&b, "Nobody knows what these models cost: %s\n", printable(strings.Join(e.Unpriced, ", ")))
	} else if e.Upper == nil {
		b.WriteString("There is no most, because nothing limits the models' output.\n")
	}
	writeLimits(&b, e.Limits)
	if e.Refusal != nil {
		fmt.Fprintf(&b, "It would be refused: %s\n", *e.Refusal)
	} else {
		b.WriteString("It fits.\n")
	}
	return b.Bytes()
}

func usdOrUnknown(amount *spend.USD) string {
	if amount == nil {
		return "unknown"
	}
	return amount.String()
}

func writeLimits(b *bytes.Buffer, limits []spend.Limit) {
	for _, l := range limits {
		fmt.Fprintf(b, "Limit of the %s: %v used and %v reserved of %v, %v left\n", l.Scope, l.Used, l.Reserved, l.Limit, l.Left)
	}
}
