package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
)

type rosterCmd struct {
	Check rosterCheckCmd `cmd:"" help:"List everything that is wrong with a roster."`
	Show  rosterShowCmd  `cmd:"" help:"Print the councils of a roster, with their models and prices."`
}

type rosterCheckCmd struct {
	File string `arg:"" optional:"" help:"Roster; default LLM_COUNCIL_ROSTER."`
}

// Help returns the details that --help prints below the summary of the command.
func (rosterCheckCmd) Help() string {
	return "The command calls nothing. Exit code 2 means that something is wrong. councild serve reads its roster " +
		"again on SIGHUP."
}

// Run checks a roster. Its error names every problem.
func (c rosterCheckCmd) Run(_ context.Context, std IO) error {
	shown, err := readRoster(c.File)
	if err != nil {
		return err
	}
	for _, warning := range shown.Warnings {
		_, _ = fmt.Fprintln(std.Stderr, "councild: warning:", warning)
	}
	verdict := "Nothing is wrong"
	if len(shown.Warnings) > 0 {
		verdict = "The roster can be used, but see the warnings"
	}
	_, err = fmt.Fprintf(std.Stdout, "%s: %d models, %d councils.\n", verdict, len(shown.Models), len(shown.Councils))
	return err
}

type rosterShowCmd struct {
	File string `arg:"" optional:"" help:"Roster; default LLM_COUNCIL_ROSTER."`
	JSON bool   `name:"json" help:"Print it as JSON."`
}

// Run prints the councils and models of a roster.
func (c rosterShowCmd) Run(_ context.Context, std IO) error {
	shown, err := readRoster(c.File)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeIndented(std.Stdout, shown)
	}
	var b strings.Builder // its writes never fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "COUNCIL\tVERSION\tMODE\tFIRST\tMEMBERS\tREVIEWERS\tCHAIRMEN\tAUDIENCE")
	for _, council := range shown.Councils {
		name := council.Name
		if name == shown.Default {
			name += " (default)"
		}
		first := "all"
		if council.First > 0 {
			first = strconv.Itoa(council.First)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, council.Version, council.Mode, first,
			strings.Join(council.Members, ", "), cmp.Or(strings.Join(council.Reviewers, ", "), "-"),
			cmp.Or(strings.Join(council.Chairmen, ", "), "-"), cmp.Or(strings.Join(council.Audience, ", "), "everybody"))
	}
	_ = t.Flush()
	b.WriteString("\n")
	_, _ = fmt.Fprintln(t, "MODEL\tPROVIDER\tUPSTREAM\tOPTIONS\tCLEARANCE\tPRICE")
	for _, m := range shown.Models {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n",
			m.ID, m.Provider, cell(m.Upstream), cell(cmp.Or(m.Options, "-")),
			cell(cmp.Or(m.Clearance, "-")), cmp.Or(m.Price, "-"))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintf(&b, "\nThe roster's hash is %s.\n", shown.Hash)
	_, err = io.WriteString(terminal{std.Stdout}, b.String())
	return err
}

// readRoster returns the roster in a file, or the roster in the settings if file is "".
func readRoster(file string) (daemon.ShownRoster, error) {
	cfg, err := config.Load() // does not check the roster of the settings
	if err != nil {
		return daemon.ShownRoster{}, usageError{err}
	}
	shown, err := daemon.ShowRoster(cfg, file, simllm.Default())
	if err != nil {
		return shown, usageError{err}
	}
	return shown, nil
}

type tokenCmd struct {
	Name string `arg:"" help:"The name of the token's owner: 1 to 32 letters, digits, - and _."`
}

// Help returns the details that --help prints below the summary of the command.
func (tokenCmd) Help() string {
	return "The command prints the token once and stores it nowhere: give it to its user. The roster has only its " +
		"SHA-256."
}

// Run prints a new token, and the lines to write in the roster.
func (c tokenCmd) Run(std IO) error {
	if !config.TokenName.MatchString(c.Name) {
		return usageError{fmt.Errorf("%.64q is not a name of a token: write 1 to 32 letters, digits, - and _", c.Name)}
	}
	token := rand.Text()
	_, err := fmt.Fprintf(std.Stdout, "%s\n\n# In the roster, under tokens:\n  %s: {sha256: %x}\n",
		token, c.Name, sha256.Sum256([]byte(token)))
	return err
}
