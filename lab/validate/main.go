// Command validate checks the bias report, the monitor and the verdicts of package worth against simulations whose
// truth is known. It simulates many data sets, with a planted bias or without one, and computes the report over
// each of them. It counts false verdicts, intervals that cover the planted effect, and planted effects that are
// found. It prints these shares beside the bounds that they must keep.
//
// Package biassim simulates the records, and package bias makes all estimates.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"time"
)

// The exit codes besides 0.
const (
	exitFailure = 1 // a figure is out of bounds, or the run was interrupted
	exitUsage   = 2 // the command line is wrong
)

// maxReplicates bounds the seeds that a scenario keeps in memory.
const maxReplicates = 100_000

func main() {
	debug.SetGCPercent(400) // the data sets are small and many, and this saves a sixth of the time
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the scenarios that args name, prints their tables, and returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("validate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	replicates := flags.Int("replicates", 1000, "data sets behind most figures")
	seed := flags.Uint64("seed", 1, "the same seed gives the same data sets")
	widen := flags.Float64("widen", 0, "widen every bound by at least this many binomial standard errors")
	comparing := flags.Bool("worth", false, "simulate comparisons of a council with others, and the monitor, "+
		"instead of the bias report")
	only := flags.String("only", "", "run the scenarios whose name matches this regular expression, such as '^ceiling'")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	chosen, err := regexp.Compile(*only)
	if *replicates < 1 || *replicates > maxReplicates || *widen < 0 || err != nil || flags.NArg() > 0 {
		_, _ = fmt.Fprintf(stderr, "-replicates takes a whole number from 1 to %d, -widen a number from 0 on, -only a regular expression\n",
			maxReplicates)
		return exitUsage
	}
	start := time.Now()
	figures, err := simulate(ctx, stderr, chosen, *comparing, Options{
		Replicates: *replicates,
		Seed:       *seed,
		Widen:      *widen,
	})
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return exitFailure
	}
	if len(figures) == 0 {
		_, _ = fmt.Fprintf(stderr, "-only %q matches no scenario. Without -only, the name of each scenario is printed when it ends.\n",
			*only)
		return exitUsage
	}
	_, _ = fmt.Fprintf(stderr, "took %s\n", time.Since(start).Round(time.Second))
	bad, err := Print(stdout, figures)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return exitFailure
	}
	if bad > 0 {
		_, _ = fmt.Fprintf(stderr, "%d figures are out of bounds\n", bad)
		return exitFailure
	}
	return 0
}

// simulate runs the chosen scenarios of the bias report. If comparing is true, it runs the comparisons and the streams
// for the monitor instead.
func simulate(ctx context.Context, progress io.Writer, only *regexp.Regexp, comparing bool, o Options) ([]Figure, error) {
	if !comparing {
		return Run(ctx, progress, Matching(only), o)
	}
	figures, err := RunWorth(ctx, progress, Comparisons(only), o)
	if err != nil {
		return nil, err
	}
	streams, err := RunStreams(ctx, progress, Streams(only), o)
	return append(figures, streams...), err
}
