package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disagreement"
)

// LoadConfig reads the settings from the environment, and adds what the roster sets. Its error names every problem:
// problems of the settings, and also an unreadable lexicon, unknown simulated models, invalid prices and all problems
// of the roster. A nil sim stands for no simulated models.
func LoadConfig(sim Simulator) (config.Config, error) {
	cfg, err := config.Load(checkLexicon, simulated{sim}.check, checkPrices, func(cfg config.Config) error {
		return checkRoster(cfg, sim)
	})
	if err != nil {
		return cfg, err
	}
	cfg, _, err = cfg.ReadRoster()
	return cfg, err
}

// checkRoster returns the problems of the roster, if the settings name one.
func checkRoster(cfg config.Config, sim Simulator) error {
	if cfg.Roster == "" {
		return nil
	}
	_, _, err := openRoster(cfg, "", sim)
	return err
}

func checkLexicon(cfg config.Config) error {
	if _, err := ReadLexicon(cfg.Lexicon); err != nil {
		return fmt.Errorf("LLM_COUNCIL_LEXICON: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// checkPrices returns the invalid entries of LLM_COUNCIL_PRICES.
func checkPrices(cfg config.Config) error {
	_, err := readPrices(cfg)
	return err
}

// Simulator is the provider of the simulated models. Settings call its models "sim:NAME". Its models and prices
// must not change while the daemon runs.
type Simulator interface {
	// Names returns the names of its models.
	Names() []string
	// Price returns the prices of a model in US dollars per million tokens, for its prompts and for its replies. The
	// result ok is false if the model does not exist. The name of a model may contain settings of the model. The error
	// says what is wrong with these settings.
	Price(name string) (input, output float64, ok bool, err error)
	// Start starts the provider. It returns the base URL, and a function that stops the provider.
	Start(ctx context.Context) (baseURL string, stop func(), err error)
}

// simulated is a Simulator whose models have the names that settings use. The zero value has no models.
type simulated struct{ Simulator }

// names returns the names of the models, with the prefix "sim:".
func (s simulated) names() []string {
	if s.Simulator == nil {
		return nil
	}
	names := s.Names()
	for i := range names {
		names[i] = config.SimProvider + ":" + names[i]
	}
	return names
}

// price calls Simulator.Price for a model with the prefix "sim:". Every other model does not exist.
func (s simulated) price(name string) (input, output float64, ok bool, err error) {
	model, simulated := strings.CutPrefix(name, config.SimProvider+":")
	if s.Simulator == nil || !simulated {
		return 0, 0, false, nil
	}
	return s.Price(model)
}

// check returns an error if the settings name a simulated model that does not exist, or a simulated model with invalid
// settings in its name.
func (s simulated) check(cfg config.Config) error {
	where := "LLM_COUNCIL_MODELS (or CHAIRMAN, ALLOWED_MODELS)"
	if cfg.Roster != "" {
		where = "LLM_COUNCIL_ROSTER"
	}
	var unknown []string
	for _, model := range slices.DeleteFunc(cfg.Named(), func(model string) bool { return !isSimulated(model) }) {
		_, _, ok, err := s.price(model)
		if err != nil {
			return fmt.Errorf("%s: the simulated model %s: %w", where, model, err)
		}
		if !ok {
			unknown = append(unknown, model)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	names := s.names()
	return fmt.Errorf("%s: there is no simulated model %s: use %s, or another of docs/providers.md",
		where, strings.Join(unknown, ", "), strings.Join(names[:min(4, len(names))], ", "))
}

// usesSim reports whether any configured model is simulated.
func usesSim(cfg config.Config) bool {
	return slices.ContainsFunc(cfg.Named(), isSimulated)
}

// isSimulated reports whether a model goes to the simulated provider.
func isSimulated(model string) bool { return strings.HasPrefix(model, config.SimProvider+":") }

// ReadLexicon reads the terms of the demographic axes from the file at path. If path is "", it returns the built-in
// terms.
func ReadLexicon(path string) (disagreement.Lexicon, error) {
	if path == "" {
		return disagreement.DefaultLexicon(), nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe or a device may never end
		return disagreement.Lexicon{}, fmt.Errorf("%q is not a regular file: write the path of one", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return disagreement.Lexicon{},
			fmt.Errorf("%q cannot be read (%w): write the path of a file that councild can read", path, errors.Unwrap(err))
	}
	lexicon, err := disagreement.ParseLexicon(data)
	if err != nil {
		return disagreement.Lexicon{}, fmt.Errorf("%q is no lexicon: %w", path, err)
	}
	return lexicon, nil
}
