// Package cli is the command line of councild. It turns flags and settings into calls of the packages below, and
// turns their results into text and exit codes. It leaves the wiring and the life of a council to daemon.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
)

// IO has the arguments and the streams of the process, and its version.
type IO struct {
	Args []string // without the name of the program
	// Stdin may be nil if the process has no standard input.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Version is the version of the program. "" stands for the one that the Go toolchain recorded.
	Version string
	// Adjust changes the settings with which serve starts a daemon. Only tests set it.
	Adjust func(*config.Config)
}

// The exit codes.
const (
	exitOK          = 0
	exitError       = 1   // the command failed
	exitUsage       = 2   // the command line or the environment is wrong
	exitFound       = 3   // --fail-on has a finding or a verdict, or --estimate is over a cost limit
	exitStopped     = 4   // batch, compare or gate --trial ended early, and the same command continues the run
	ExitInterrupted = 130 // a signal ended the command; shells use 128 plus the number of SIGINT
)

// exitCodes explains the exit codes in the help.
const exitCodes = "Exit codes: 0 done; 1 failed; 2 wrong command line or setting; 3 --fail-on found something, or " +
	"--estimate is over a cost limit; 4 batch, compare or gate --trial stopped early, run the same command again to continue; " +
	"130 interrupted."

// commandGroups returns the groups of commands in the order of the help.
func commandGroups() []kong.Group {
	return []kong.Group{
		{Key: "ask", Title: "Ask and read:"},
		{Key: "measure", Title: "Measure:"},
		{Key: "run", Title: "Run and maintain:"},
		{Key: "files", Title: "Files and shell:"},
	}
}

// commands has the commands in the order of the help.
type commands struct {
	Ask      askCmd      `cmd:"" group:"ask" help:"Put one question to the council."`
	Judge    judgeCmd    `cmd:"" group:"ask" help:"Have the council judge answers that you already have: compare two, or rank up to 26."`
	Gate     gateCmd     `cmd:"" group:"ask" help:"Have the council review a change before it is merged."`
	Sessions sessionsCmd `cmd:"" group:"ask" help:"List, show and delete the sessions of a daemon."`
	MCP      mcpCmd      `cmd:"" group:"ask" name:"mcp" help:"Offer the council to an editor or an agent over the Model Context Protocol, on stdio."`

	Compare compareCmd `cmd:"" group:"measure" help:"Find out whether the council is worth its money: compare it with simpler ways to answer a file of questions."`
	Batch   batchCmd   `cmd:"" group:"measure" help:"Put the questions of a file to the council, and grade the answers."`
	Report  reportCmd  `cmd:"" group:"measure" help:"Report on many sessions: bias, ranking of models, common errors, costs, differences."`
	Probe   probeCmd   `cmd:"" group:"measure" help:"Measure how far reviewers agree with themselves, and whether they have changed."`

	Serve       serveCmd       `cmd:"" group:"run" help:"Run the daemon."`
	Demo        demoCmd        `cmd:"" group:"run" help:"Run the daemon with a simulated council: no key and no network needed."`
	Check       checkCmd       `cmd:"" group:"run" help:"Test addresses, keys and model names at the providers, and say what to fix."`
	Config      configCmd      `cmd:"" group:"run" help:"Show or check the settings: variables, roster, lexicon, prices, tokens."`
	Healthcheck healthcheckCmd `cmd:"" group:"run" help:"Ask the daemon on this machine whether it is alive."`

	Store      storeCmd      `cmd:"" group:"files" help:"Check, export, publish or fill the record store."`
	Completion completionCmd `cmd:"" group:"files" help:"Print a script that makes a shell complete commands and flags."`
	Version    versionCmd    `cmd:"" group:"files" help:"Print the version."`
}

type reportCmd struct {
	Bias        biasReportCmd  `cmd:"" help:"Report what the reviews of many sessions reveal."`
	Leaderboard leaderboardCmd `cmd:"" help:"Rank the models by many sessions."`
	Seats       seatsCmd       `cmd:"" help:"Show how often the models of a council make the same errors."`
	Spend       spendCmd       `cmd:"" help:"Show what sessions cost, by day, token, user, council or model."`
	Disagree    disagreeCmd    `cmd:"" name:"disagreement" help:"Show on which demographic axes the answers of a session, or of a file, differ."`
}

type configCmd struct {
	Show    showConfigCmd `cmd:"" default:"1" help:"Show every setting, where it comes from, and what it means."`
	Roster  rosterCmd     `cmd:"" help:"Check or show the file that names models and councils."`
	Lexicon lexiconCmd    `cmd:"" help:"Print or check the terms of the demographic axes."`
	Prices  pricesCmd     `cmd:"" help:"Print what the configured models cost, from their providers or a file."`
	Token   tokenCmd      `cmd:"" help:"Make a token for the roster."`
}

// renamed is the map from the old names of commands to their new ones. The old names keep working, but help and
// completion leave them out.
func renamed() map[string]string {
	return map[string]string{
		"bias-report":    "report bias",
		"leaderboard":    "report leaderboard",
		"seats":          "report seats",
		"spend":          "report spend",
		"disagreement":   "report disagreement",
		"roster":         "config roster",
		"lexicon":        "config lexicon",
		"prices":         "config prices",
		"token":          "config token",
		"events preview": "store events",
		"import":         "store import",
		"simulate":       "store simulate",
	}
}

// newNames replaces the old name of a command by its new one, and prints the new name on stderr.
func newNames(args []string, stderr io.Writer) []string {
	for old, now := range renamed() {
		words := strings.Fields(old)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			_, _ = fmt.Fprintf(stderr, "councild: %s is now: councild %s\n", old, now)
			return append(strings.Fields(now), args[len(words):]...)
		}
	}
	return args
}

// usageError is an error in the command line or in the settings.
type usageError struct{ error }

// interruptedError is the error of a command that a signal ended.
type interruptedError struct{ error }

// findingError says that a command found what --fail-on names, or that a cost limit would refuse the question of an
// estimate.
type findingError struct{ error }

// stoppedError says why a run of batch, compare or gate --trial ended early.
type stoppedError struct{ error }

// exited is the exit code with which the parser ends the program, for example after --help. Main recovers it from a
// panic.
type exited int

// loadConfig reads the settings and the files that they name. Its error is a usageError.
func loadConfig() (config.Config, error) {
	cfg, err := daemon.LoadConfig(simllm.Default())
	if err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// Main runs one command and returns the exit code of the process. When ctx ends, the command completes the steps that
// must not stay half done, and stops.
func Main(ctx context.Context, std IO) (code int) {
	if std.Version == "" {
		std.Version = builtVersion()
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case exited:
			code = int(v)
		default:
			panic(v)
		}
	}()
	parser, err := kong.New(&commands{}, kong.Name("councild"),
		kong.Description("A council of language models: they answer, review each other's anonymised answers, and a "+
			"chairman writes the final one.\n\nSettings are LLM_COUNCIL_* environment variables; councild config "+
			"lists them.\n\n"+exitCodes),
		kong.Writers(std.Stdout, std.Stderr), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.Vars{"categories": strings.Join(council.Categories(), ", ")},
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(std),
		kong.ExplicitGroups(commandGroups()),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}))
	if err != nil {
		_, _ = fmt.Fprintln(std.Stderr, "councild:", err)
		return exitError
	}
	for _, command := range parser.Model.Children {
		for _, below := range command.Children { // Without a group of their own they would have the title of their parent.
			below.Group = &kong.Group{Key: "commands", Title: "Commands:"}
		}
	}
	args := std.Args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(newNames(args, std.Stderr))
	if err != nil {
		help := "councild"
		if parsing, ok := errors.AsType[*kong.ParseError](err); ok && parsing.Context.Selected() != nil {
			help = parsing.Context.Selected().FullPath()
			if help == "councild ask" && strings.HasPrefix(err.Error(), "unexpected argument") {
				err = fmt.Errorf(`%w: put the question in quotes: councild ask "Why is the sky blue?"`, err)
			}
		}
		_, _ = fmt.Fprintf(terminal{std.Stderr}, "councild: %s\nTry %s --help.\n", reworded(err), help)
		return exitUsage
	}
	if err := command.Run(); err != nil {
		_, _ = fmt.Fprintln(terminal{std.Stderr}, "councild:", err) // The error may quote a model.
		return exitCode(ctx, err)
	}
	return exitOK
}

// reworded returns the message of an error of the parser, in words that name the problem and the remedy.
func reworded(err error) string {
	message := err.Error()
	for _, r := range []struct{ from, to string }{
		{`expected a valid \d+ bit u?int but got (".*")`, `$1 is not a whole number: write digits only`},
		{`expected an? (?:int|float) but got (".*") \(.*\)`, `$1 is not a number: write digits only, such as 0.50`},
		{`expected a float but got (".*")`, `$1 is not a number: write digits only, such as 0.50`},
		{`(\S+) must be one of (.*) but got (".*")`, `$1: $3 is not a choice: write one of $2`},
		{`^expected one of (.*)`, `a command is missing: write one of $1`},
		{`^expected "(<.*>)"`, `the argument $1 is missing: write it behind the command`},
		{`expected \S+ value but got "EOL" \(<EOL>\)`, `the value is missing: write it behind the flag`},
		{`^missing flags: (.*)`, `flags are missing: write $1`},
		{`, did you mean one of (.*)\?`, `: write one of $1`},
		{`, did you mean (.*)\?`, `: write $1`},
	} {
		message = regexp.MustCompile(r.from).ReplaceAllString(message, r.to)
	}
	remedy := strings.LastIndex(message, ": write ")
	if remedy < 0 {
		return message
	}
	choices := strings.NewReplacer(`"",`, "", `", "`, ", ", `","`, ", ", `"`, "").Replace(message[remedy:])
	return message[:remedy] + choices
}

// builtVersion returns the version of the module from which the binary was built.
func builtVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

// exitCode returns the exit code for the error of a command.
func exitCode(ctx context.Context, err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[stoppedError](err); ok {
		return exitStopped
	}
	if _, ok := errors.AsType[interruptedError](err); ok || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	if _, ok := errors.AsType[findingError](err); ok {
		return exitFound
	}
	return exitError
}
