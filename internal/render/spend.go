package render

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"strconv"
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
	for _, l := range r.Limits {
		fmt.Fprintf(&b, "Limit of the %s: %v used and %v reserved of %v, %v left\n", l.Scope, l.Used, l.Reserved, l.Limit, l.Left)
	}
	return b.Bytes()
}

// SpendCSV returns the rows of a report of what sessions cost.
func SpendCSV(r spend.Report) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b) // writing to a buffer does not fail
	_ = w.Write([]string{string(r.By), "sessions", "calls", "total_usd", "uncertain_usd", "unknown_calls"})
	for _, row := range r.Rows {
		_ = w.Write([]string{
			Cell(row.Key), strconv.Itoa(row.Sessions), strconv.Itoa(row.Calls), row.Total.String(), row.Uncertain.String(), strconv.Itoa(row.Unknown),
		})
	}
	w.Flush()
	return b.Bytes()
}
