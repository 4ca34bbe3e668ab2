package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"text/tabwriter"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
)

type compareProbeCmd struct {
	Earlier string `arg:"" help:"Records of the earlier probe: a file, or a pattern such as 'march-*.jsonl'."`
	Later   string `arg:"" help:"Records of the later probe."`
	JSON    bool   `name:"json" help:"Print the figures as JSON."`
}

// Run prints how each reviewer changed between two probes.
func (c compareProbeCmd) Run(ctx context.Context, std IO) error {
	earlier, err := probeRecords(ctx, c.Earlier)
	if err != nil {
		return err
	}
	later, err := probeRecords(ctx, c.Later)
	if err != nil {
		return err
	}
	changes := bias.CompareProbes(earlier, later)
	if c.JSON {
		return writeIndented(std.Stdout, changes)
	}
	return writeChanges(terminal{std.Stdout}, changes)
}

// probeRecords reads the records of a probe. input is a record file or a pattern.
func probeRecords(ctx context.Context, input string) (iter.Seq[council.BiasMetricRecord], error) {
	paths, err := recordFiles([]string{input})
	if err != nil {
		return nil, err
	}
	var records []council.BiasMetricRecord
	for _, path := range paths {
		for record, err := range store.ReadFile(ctx, path) {
			if err != nil {
				return nil, fmt.Errorf("reading the records: %w", err)
			}
			if record.BlockID != nil {
				records = append(records, record)
			}
		}
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s has no record of a probe: make one with councild probe --out", input)
	}
	return slices.Values(records), nil
}

// writeChanges prints the comparison as text.
func writeChanges(w io.Writer, changes []bias.ProbeChange) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "REVIEWER\tMILDER BY\tQUESTIONS\tWITHIN SD\tICC(1)") // Flush returns the errors
	both := func(c bias.ProbeChange, of func(*bias.SelfConsistency) *float64) string {
		text := [2]string{"-", "-"}
		for i, s := range []*bias.SelfConsistency{c.Earlier, c.Later} {
			if s != nil {
				text[i] = figure(of(s))
			}
		}
		return text[0] + " > " + text[1]
	}
	paired := 0
	for _, c := range changes {
		questions := fmt.Sprintf("%d and %d", c.EarlierQuestions, c.LaterQuestions)
		if c.Paired {
			questions = fmt.Sprintf("%d in both", c.EarlierQuestions)
			paired++
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.ReviewerID, interval(c.HarshnessChange), questions,
			both(c, func(s *bias.SelfConsistency) *float64 { return s.WithinSD.Value }),
			both(c, func(s *bias.SelfConsistency) *float64 { return s.ICC.Value }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, `
MILDER BY is how many points more the reviewer adds to an answer's score than before, beside the
other reviewers of the same answers, with its 95 % interval; below 0 it became harsher. WITHIN SD
is how far its scores of the same answers scatter, before > after. Nothing here is a verdict:
one in twenty intervals misses 0 by chance.
`)
	if err == nil && paired == 0 {
		_, err = io.WriteString(w, "The questions are not known to be the same: with LLM_COUNCIL_BIAS_CONSENT=4 and "+
			"one\nLLM_COUNCIL_HASH_SECRET for both, probes of the same questions are compared question by question.\n")
	}
	return err
}
