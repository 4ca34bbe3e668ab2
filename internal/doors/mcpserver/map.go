package mcpserver

import (
	"fmt"
	"strings"

	"github.com/councild/councild/internal/council"
)

// disputed returns the disputes of a session, or nil if it is not known what is disputed.
func disputed(s *council.Session) []council.Dispute {
	if s.Metadata.Map == nil {
		return nil
	}
	return s.Metadata.Map.Disputed
}

// writeDisputed writes what is disputed, one line for each side.
func writeDisputed(text *strings.Builder, disputes []council.Dispute) {
	for _, d := range disputes {
		fmt.Fprintf(text, "Disputed, as the chairman reads it: %s\n", d.About)
		for _, side := range d.Sides {
			for i, q := range side.Quotes {
				if i == 0 {
					fmt.Fprintf(text, "- %s:", side.Claim)
				}
				fmt.Fprintf(text, " %s says %q.", q.Model, strings.Join(strings.Fields(q.Quote), " "))
			}
			text.WriteByte('\n')
		}
	}
}
