// Command gate measures the gate for changes with simulated models: on seeded and clean diffs, in several worlds. It
// prints the table of worlds, and whether the base world reaches the goals of README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/gatesim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	seeded := flags.Int("seeded", 20, "diffs with five defects")
	clean := flags.Int("clean", 600, "diffs without a defect")
	worlds := flags.Bool("worlds", true, "measure all worlds, and not only the base world")
	write := flags.String("write", "", "only write the diffs to this `directory`, in the form of councild gate --trial")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *write != "" {
		return gatesim.Write(*write, gatesim.Worlds()[0].Cases(*seeded, *clean))
	}
	fmt.Fprintln(out, gatesim.Heading)
	var base gatesim.Result
	for i, w := range gatesim.Worlds() {
		if i > 0 && !*worlds {
			break
		}
		ask, err := gatesim.Direct(w, nil)
		if err != nil {
			return err
		}
		cases := w.Cases(*seeded, *clean)
		if err := gatesim.Fill(ctx, cases, ask); err != nil {
			return err
		}
		r := gatesim.Evaluate(cases)
		fmt.Fprintln(out, r.Row(w.Name))
		if i == 0 {
			base = r
		}
	}
	for _, s := range []gate.Performance{base.Union, base.Finders} {
		fmt.Fprintf(out, "\nIn the base world, %s: precision %.2f, recall %.2f, clean diffs blocked %.2f.\n",
			s.Name, *s.Precision.Value, *s.Recall.Value, *s.FalseBlocks.Value)
	}
	fmt.Fprintln(out)
	for _, g := range goals(base, *clean) {
		mark := "missed"
		if g.reached {
			mark = "reached"
		}
		fmt.Fprintf(out, "%s: %s\n", mark, g.text)
	}
	return nil
}

type goal struct {
	text    string
	reached bool
}

// maxFalse is the largest share of clean diffs that may be blocked.
const maxFalse = 0.12

// goals returns the goals of the base world.
func goals(r gatesim.Result, clean int) []goal {
	blocked := int(*r.Council.FalseBlocks.Value*float64(clean) + .5)
	limit := stat.ClopperPearsonUpper(blocked, clean, 0.95)
	above := func(name string, e stat.Estimate) goal {
		if e.Lower == nil {
			return goal{name + " above the best member's: too few diffs", false}
		}
		return goal{fmt.Sprintf("%s above the best member's: %.2f, lower limit %.2f", name, *e.Value, *e.Lower), *e.Lower > 0}
	}
	return []goal{
		{fmt.Sprintf("merging has a precision of %.2f", *r.Merged.Precision.Value), *r.Merged.Precision.Value >= .9},
		{fmt.Sprintf("merging has a recall of %.2f", *r.Merged.Recall.Value), *r.Merged.Recall.Value >= .9},
		{fmt.Sprintf("%d of %d clean diffs are blocked, upper limit %.1f %%", blocked, clean, 100*limit), limit <= maxFalse},
		above("precision", r.PrecisionAbove),
		above("recall", r.RecallAbove),
		{fmt.Sprintf("%d invented quotes are reported, %d were dropped", r.Invented, r.Dropped), r.Invented == 0},
	}
}
