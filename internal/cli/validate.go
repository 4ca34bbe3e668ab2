package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/councild/councild/internal/biascheck"
)

type validateCmd struct {
	Replicates int     `help:"Data sets behind most figures." default:"1000" placeholder:"N"`
	Seed       uint64  `help:"Replays the data sets." default:"1" placeholder:"N"`
	Widen      float64 `help:"Widen every bound by at least this many binomial standard errors." placeholder:"X"`
	Worth      bool    `help:"Simulate comparisons of a council with others, and count their verdicts, in place of the bias report."`
	Only       string  `help:"Run the scenarios whose name matches, such as '^ceiling'." placeholder:"REGEXP"`
}

// Run prints the tables of what the report makes of simulated records whose truth
// is known, and fails where a figure is out of bounds.
func (c validateCmd) Run(ctx context.Context, std IO) error {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // data sets are small and many: a sixth of the time
	only, err := regexp.Compile(c.Only)
	if c.Replicates < 1 || c.Replicates > maxCount || c.Widen < 0 || err != nil {
		wrong := fmt.Errorf("--replicates takes a whole number from 1 to %d, --widen a number from 0 on, --only a regular expression", maxCount)
		return usageError{errors.Join(wrong, err)}
	}
	start := time.Now()
	o := biascheck.Options{Replicates: c.Replicates, Seed: c.Seed, Widen: c.Widen}
	var figures []biascheck.Figure
	if c.Worth {
		figures, err = biascheck.RunWorth(ctx, std.Stderr, biascheck.Comparisons(only), o)
		if err == nil {
			var streams []biascheck.Figure
			streams, err = biascheck.RunStreams(ctx, std.Stderr, biascheck.Streams(only), o)
			figures = append(figures, streams...)
		}
	} else {
		figures, err = biascheck.Run(ctx, std.Stderr, biascheck.Matching(only), o)
	}
	if err == nil && len(figures) == 0 {
		return usageError{fmt.Errorf("--only %q matches no scenario; without it, their names stand on stderr as they end", c.Only)}
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(std.Stderr, "took %s\n", time.Since(start).Round(time.Second))
	bad, err := biascheck.Print(std.Stdout, figures)
	if err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d figures are out of bounds", bad)
	}
	return nil
}
