package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
)

type checkCmd struct {
	JSON bool `name:"json" help:"Print what was found as JSON."`
}

// Help returns the details that --help prints below the summary of the command.
func (checkCmd) Help() string {
	return "The command asks each configured provider for its list of models, for at most 10 seconds. It tests the " +
		"key if that is free. It calls no model and costs nothing. Exit code 1 means that something is wrong. What " +
		"it could not test is named, and is not an error."
}

// Run asks the providers for their models and prints what is wrong with the settings.
func (c checkCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load() // simulated models are checked in the table
	if err != nil {
		return usageError{err}
	}
	if cfg, _, err = cfg.ReadRoster(); err != nil {
		return usageError{err}
	}
	if len(cfg.Models) == 0 {
		return usageError{cfg.RequireCouncil()}
	}
	checked := daemon.Check(ctx, cfg, simllm.Default())
	for _, warning := range checked.Warnings {
		_, _ = fmt.Fprintln(std.Stderr, "councild: warning: a setting is probably wrong:", warning)
	}
	if ctx.Err() != nil {
		return interruptedError{errors.New("interrupted before everything was checked")}
	}
	if c.JSON {
		err = writeIndented(std.Stdout, checked)
	} else {
		_, err = io.WriteString(terminal{std.Stdout}, checkTable(checked))
	}
	if err == nil && !checked.OK {
		err = errors.New("providers or models have problems: see above for what to set")
	}
	return err
}

// checkTable returns the findings as two aligned tables, followed by the remedies.
func checkTable(c daemon.Checked) string {
	var b, remedies strings.Builder // their writes never fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	verdict := func(name string, f daemon.CheckFinding) string {
		if f.Remedy != "" {
			fmt.Fprintf(&remedies, "  %s: %s\n", cell(name), cell(f.Remedy))
		}
		if f.Problem == "" {
			return string(f.Verdict)
		}
		return fmt.Sprintf("%s: %s", f.Verdict, cell(f.Problem))
	}
	_, _ = fmt.Fprintln(t, "PROVIDER\tADDRESS\tKEY\tMODELS\tVERDICT")
	for _, p := range c.Providers {
		listed := "-"
		if p.Listed != nil {
			listed = strconv.Itoa(*p.Listed)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Name, cell(p.BaseURL), p.Key, listed,
			verdict(p.Name, p.CheckFinding))
	}
	_ = t.Flush()
	b.WriteString("\n")
	_, _ = fmt.Fprintln(t, "MODEL\tROLES\tPROVIDER\tVERDICT")
	for _, m := range c.Models {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", cell(m.Model), strings.Join(m.Roles, ", "), m.Provider,
			verdict(m.Model, m.CheckFinding))
	}
	_ = t.Flush()
	b.WriteString(prefixed("\nWhat to do:\n", remedies.String()))
	switch {
	case !c.OK:
	case len(c.Untested) > 0:
		b.WriteString("\nNothing is wrong with what could be tested. Not tested: " + visible(strings.Join(c.Untested, ", ")) + ".\n")
	case remedies.Len() > 0:
		b.WriteString("\nNothing is wrong yet.\n")
	default:
		b.WriteString("\nNothing is wrong.\n")
	}
	return b.String()
}

// prefixed returns the title followed by the text, or "" if the text is empty.
func prefixed(title, text string) string {
	if text == "" {
		return ""
	}
	return title + text
}

// cell returns a text from outside councild as one line without control characters. It cuts a long text.
func cell(text string) string {
	const most = 300
	return clip(strings.Join(strings.Fields(visible(text)), " "), most)
}
