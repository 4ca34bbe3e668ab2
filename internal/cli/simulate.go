package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
)

type simulateCmd struct {
	Out      string `help:"New file for the records." required:"" placeholder:"FILE"`
	Sessions int    `help:"How many sessions." default:"100" placeholder:"N"`
	Seed     uint64 `help:"Replays questions, labels, orders and replies." default:"1" placeholder:"N"`

	Category []string `placeholder:"A,B" help:"Categories of the sessions, one after the other: ${categories}."`
	Language []string `placeholder:"A,B" help:"Languages of the sessions, one after the other: two letters each, such as en,de."`
}

// Run runs simulated sessions through the real pipeline, over HTTP, and writes their records.
func (c simulateCmd) Run(ctx context.Context, std IO) (err error) {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	if c.Sessions < 1 {
		return usageError{errors.New("--sessions takes a whole number above 0")}
	}
	if err := checkSubjects(c.Category, c.Language); err != nil {
		return err
	}
	if err := newFile(c.Out); err != nil {
		return err
	}
	cfg = simulatedCouncil(cfg, c.Out)
	cfg.AllowedModels = nil
	out, _, err := store.Open(store.Options{Path: c.Out}) //nolint:contextcheck // a store lives until it is closed
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	e, err := daemon.NewEngine(ctx, daemon.EngineOptions{
		Config:         cfg,
		Simulated:      simllm.Default().With(c.Seed, instantCouncil()),
		Recorder:       out,
		QuestionSecret: questionSecret(ctx, std, cfg, c.Out, true),
		Log:            slog.New(slog.DiscardHandler),
		Version:        std.Version,
	})
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	draws := rand.New(rand.NewPCG(c.Seed, 0))
	start := time.Now()
	for i := range c.Sessions {
		plan, err := e.Prepare(council.Request{
			Query: fmt.Sprintf("Simulated question %d: how would you go about %s?",
				i+1, topics()[draws.IntN(len(topics()))]),
			Seed:     new(draws.Int64N(council.MaxSeed + 1)),
			Category: turn(c.Category, i), Language: turn(c.Language, i/max(1, len(c.Category))),
		})
		if err != nil {
			return err
		}
		session, err := e.Run(ctx, plan, nil, nil)
		if err != nil {
			return err
		}
		if !session.Persisted {
			return fmt.Errorf("writing the records of session %d failed: %v", i+1, session.Metadata.Warnings)
		}
	}
	_, err = fmt.Fprintf(std.Stdout, "%d simulated sessions of %d members in %s\nRecords: %s\nReport:  councild report bias --input %s\n",
		c.Sessions, len(cfg.Models), time.Since(start).Round(time.Millisecond), c.Out, c.Out)
	return err
}

// simulatedCouncil replaces the council and the store of the settings. The council has four simulated members, and
// its records go to one file only.
func simulatedCouncil(cfg config.Config, records string) config.Config {
	names := func(models []simllm.Model) []string {
		names := make([]string, len(models))
		for i, m := range models {
			names[i] = config.SimProvider + ":" + m.Name
		}
		return names
	}
	cfg.Models = names(simllm.Council())
	cfg.AllowedModels = names(simllm.Troubled())
	cfg.Roster = ""
	cfg.Chairman = ""
	cfg.Quorum = 0
	cfg.Mode = council.ModeCouncil
	cfg.First = 0
	if !strings.HasPrefix(cfg.EmbeddingModel, config.SimProvider+":") {
		cfg.EmbeddingModel = ""
	}
	cfg.MaxModels = max(cfg.MaxModels, len(cfg.Models))
	cfg.BiasPersistence = true
	cfg.BiasStore = records
	cfg.DataDir = ""
	cfg.BiasConsent = max(cfg.BiasConsent, 1)
	return cfg
}

// instantCouncil returns the models of the simulated council. They answer at once.
func instantCouncil() []simllm.Model {
	models := simllm.Council()
	for i := range models {
		models[i].Latency = simllm.Latency{}
	}
	return models
}

// turn returns element i of a list. After its last element, the list starts again. If the list is empty, turn returns
// "".
func turn(list []string, i int) string {
	if len(list) == 0 {
		return ""
	}
	return list[i%len(list)]
}

// checkSubjects returns an error for an unknown category or language. "" stands for none.
func checkSubjects(categories, languages []string) error {
	for _, category := range categories {
		if category != "" && !slices.Contains(council.Categories(), category) {
			return usageError{fmt.Errorf("--category: %q is not a category: use %s",
				category, strings.Join(council.Categories(), ", "))}
		}
	}
	for _, language := range languages {
		if language != "" && !council.IsLanguage(language) {
			return usageError{fmt.Errorf("--language: %q is not a language code: "+
				"use two lower-case letters, such as en", language)}
		}
	}
	return nil
}

// newFile returns an error if a file exists at path.
func newFile(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("%s is there already, or cannot be looked at: "+
			"--out names a new file, so that these records never mix with others", path)}
	}
	return nil
}

func topics() []string {
	return []string{
		"splitting a monolith", "learning a language as an adult", "reading a paper with care", "choosing a database",
		"planning a garden",
		"estimating a project", "teaching recursion", "finding a memory leak", "writing a short story",
		"preparing a long hike",
	}
}
