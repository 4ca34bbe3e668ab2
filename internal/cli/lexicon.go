package cli

import (
	"cmp"
	"fmt"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/disagreement"
)

type lexiconCmd struct {
	Print lexiconPrintCmd `cmd:"" help:"Print the terms of the demographic axes, as a file for LLM_COUNCIL_LEXICON."`
	Check lexiconCheckCmd `cmd:"" help:"List everything that is wrong with a file of such terms, or say how many terms it has."`
}

// lexiconFile is the argument that names the lexicon of a command.
type lexiconFile struct {
	File string `arg:"" optional:"" help:"Lexicon; default LLM_COUNCIL_LEXICON, or the built-in one."`
}

// read returns the lexicon in the file that the argument names. Without the argument, it returns the lexicon of the
// settings.
func (c lexiconFile) read() (disagreement.Lexicon, error) {
	cfg, err := config.Load() // does not check the lexicon of the settings
	if err != nil {
		return disagreement.Lexicon{}, usageError{err}
	}
	lexicon, err := daemon.ReadLexicon(cmp.Or(c.File, cfg.Lexicon))
	if err != nil {
		return lexicon, usageError{err}
	}
	return lexicon, nil
}

type lexiconPrintCmd struct {
	lexiconFile
}

// Help returns the details that --help prints below the summary of the command.
func (lexiconPrintCmd) Help() string {
	return "If the file extends the built-in terms, both are printed, so that the output is a complete lexicon. Without a " +
		"file, and with an empty LLM_COUNCIL_LEXICON, only the built-in terms are printed."
}

// Run prints a lexicon as JSON.
func (c lexiconPrintCmd) Run(std IO) error {
	lexicon, err := c.read()
	if err != nil {
		return err
	}
	return writeIndented(std.Stdout, lexicon)
}

type lexiconCheckCmd struct {
	lexiconFile
}

// Help returns the details that --help prints below the summary of the command.
func (lexiconCheckCmd) Help() string {
	return "A lexicon has the form of the output of councild config lexicon print. \"extend\": true next to its " +
		"axes adds their terms to the built-in ones. Exit code 2 means that something is wrong."
}

// Run checks a lexicon and prints its size.
func (c lexiconCheckCmd) Run(std IO) error {
	lexicon, err := c.read()
	if err != nil {
		return err
	}
	terms := 0
	for _, list := range lexicon.Axes {
		terms += len(list)
	}
	_, err = fmt.Fprintf(terminal{std.Stdout}, "Nothing is wrong: %d terms on %d axes, language %s, version %s.\n",
		terms, len(lexicon.Axes), cmp.Or(lexicon.Language, "not named"), lexicon.Version)
	return err
}
