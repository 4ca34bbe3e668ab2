package daemon

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/simllm"
)

// LoadConfig reads the settings. Its error also reports a lexicon that cannot be read,
// simulated models that do not exist, prices that are none, and every problem of the roster. The
// settings have what the roster adds to them.
func LoadConfig() (config.Config, error) {
	cfg, err := config.Load(checkLexicon, checkSimulated, checkPrices, checkRoster)
	if err != nil {
		return cfg, err
	}
	return WithRoster(cfg)
}

// checkRoster reports what is wrong with the roster.
func checkRoster(cfg config.Config) error {
	if cfg.Roster == "" {
		return nil
	}
	_, _, err := openRoster(cfg, "")
	return err
}

func checkLexicon(cfg config.Config) error {
	if _, err := ReadLexicon(cfg.Lexicon); err != nil {
		return fmt.Errorf("LLM_COUNCIL_LEXICON: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// checkPrices reports entries of PRICES that hold no price.
func checkPrices(cfg config.Config) error {
	_, err := readPrices(cfg)
	return err
}

// checkSimulated reports the simulated models that do not exist, or whose settings are wrong.
func checkSimulated(cfg config.Config) error {
	where := "LLM_COUNCIL_MODELS or another list of models"
	if cfg.Roster != "" {
		where = "LLM_COUNCIL_ROSTER"
	}
	var unknown []string
	for _, model := range slices.DeleteFunc(cfg.Named(), func(model string) bool { return !isSimulated(model) }) {
		_, ok, err := findSimulated(builtIn(), model)
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
	return fmt.Errorf("%s: there is no simulated model %s: use %s",
		where, strings.Join(unknown, ", "), strings.Join(simulated(builtIn()), ", "))
}

// findSimulated is simllm.Find for the name by which a configuration calls a model.
func findSimulated(models []simllm.Model, name string) (simllm.Model, bool, error) {
	return simllm.Find(models, strings.TrimPrefix(name, config.SimProvider+":"))
}

// builtIn returns the simulated models that settings can name.
func builtIn() []simllm.Model { return slices.Concat(simllm.Council(), simllm.Troubled()) }

// ReadLexicon reads the terms by demographic axis from the file at path, or returns the
// built-in terms where there is no path.
func ReadLexicon(path string) (disagreement.Lexicon, error) {
	if path == "" {
		return disagreement.DefaultLexicon(), nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe or a device may never end
		return disagreement.Lexicon{}, fmt.Errorf("%q is no regular file: write the path of one", path)
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

// usesSim reports whether any configured model is simulated.
func usesSim(cfg config.Config) bool {
	return slices.ContainsFunc(cfg.Named(), isSimulated)
}

// isSimulated reports whether a model goes to the simulated provider.
func isSimulated(model string) bool { return strings.HasPrefix(model, config.SimProvider+":") }

// simulated returns the names by which a configuration calls simulated models.
func simulated(models []simllm.Model) []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = config.SimProvider + ":" + m.Name
	}
	return names
}

// Simulated replaces the council and the store of a configuration: four simulated
// members, records in the given file and nowhere else.
func Simulated(cfg config.Config, records string) config.Config {
	cfg.Models = simulated(simllm.Council())
	cfg.AllowedModels = simulated(simllm.Troubled())
	cfg.Roster = ""
	cfg.Chairman = ""
	cfg.ChairmanFallbacks = nil
	cfg.Reviewers = nil
	cfg.Quorum = 0
	if !isSimulated(cfg.EmbeddingModel) {
		cfg.EmbeddingModel = ""
	}
	cfg.MaxModels = max(cfg.MaxModels, len(cfg.Models))
	cfg.BiasPersistence = true
	cfg.BiasStore = records
	cfg.SessionsDir = ""
	cfg.BiasConsent = max(cfg.BiasConsent, 1)
	return cfg
}
