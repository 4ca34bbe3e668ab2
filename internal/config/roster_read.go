package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// ReadRoster reads the roster that the settings name. It returns the settings with the providers, secrets, models and
// limits of the roster added to them. The roster is nil if the settings name none. ReadRoster may be called again on
// its result, and then reads the file again.
func (c Config) ReadRoster() (Config, *Roster, error) {
	if c.Roster == "" {
		return c, nil, nil
	}
	c.Providers = slices.DeleteFunc(slices.Clone(c.Providers), func(p Provider) bool { return p.InRoster })
	r, err := c.openRoster()
	if err == nil {
		err = r.readSecrets()
	}
	if err != nil {
		return c, nil, fmt.Errorf(
			"LLM_COUNCIL_ROSTER: %s", strings.ReplaceAll(err.Error(), "\n", "\nLLM_COUNCIL_ROSTER: "),
		)
	}
	c.Providers = append(c.Providers, r.Providers...)
	c.Models = nil
	c.AllowedModels = nil
	first := r.Councils[slices.IndexFunc(r.Councils, func(c Council) bool { return c.Name == r.Default })]
	for _, id := range first.Members {
		m, _ := r.Model(id)
		c.Models = append(c.Models, m.Member.Model)
	}
	for _, m := range r.Models {
		if !slices.Contains(c.Models, m.Member.Model) {
			c.AllowedModels = append(c.AllowedModels, m.Member.Model)
		}
	}
	c.CouncilLimits = slices.ContainsFunc(r.Councils, func(c Council) bool { return c.MaxCostUSD != nil })
	c.TokenDayLimits = slices.ContainsFunc(r.Tokens, func(t Token) bool { return t.MaxCostUSDPerDay != nil })
	switch {
	case c.TokenDayLimits && c.DataDir == off:
		err = errors.New("LLM_COUNCIL_DATA_DIR: is off, and the daily limits of the roster's tokens need a file there: name a directory, or unset it")
	case c.TokenDayLimits && c.HasHardLimits() && c.MaxCostUSD == nil && c.MaxOutputTokens == nil:
		err = errors.New("LLM_COUNCIL_COST_LIMITS: needs a limit for the cost of each session, because tokens of the roster have daily limits:  " +
			"set LLM_COUNCIL_MAX_COST_USD or LLM_COUNCIL_MAX_OUTPUT_TOKENS")
	}
	return c, r, err
}

// openRoster parses the file that ROSTER names.
func (c Config) openRoster() (*Roster, error) {
	path := c.Roster
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // A pipe or a device may never end.
		return nil, fmt.Errorf("%q is not a regular file: write the path of one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf(
			"%q cannot be read (%w): write the path of a file that councild can read", path, errors.Unwrap(err),
		)
	}
	defer func() { _ = f.Close() }() // The file was only read, so the error does not matter.
	data, err := io.ReadAll(io.LimitReader(f, MaxRosterBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w", path, err)
	}
	return c.ParseRoster(data)
}

// secretPlace says in which file or environment variable a secret of the roster is.
type secretPlace struct {
	of             string       // names the secret in messages
	file, variable string       // one of them is ""
	put            func(Secret) // sets the secret
}

// readSecrets reads all secrets of the roster and sets them. Its error has a line for each problem.
func (r *Roster) readSecrets() error {
	var errs []error
	for _, place := range r.secrets {
		secret, err := place.read()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place.of, err))
		}
		place.put(secret)
	}
	return errors.Join(errs...)
}

// read reads the secret from its file or variable.
func (p secretPlace) read() (Secret, error) {
	var text string
	if p.variable != "" {
		if text = os.Getenv(p.variable); text == "" {
			return "", fmt.Errorf("the variable %s is not set: set it, or remove its name", p.variable)
		}
	} else {
		info, err := os.Stat(p.file)
		if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
			return "", fmt.Errorf("%q is not a small file that councild can read: write the path of one", p.file)
		}
		data, err := os.ReadFile(p.file)
		if err != nil {
			return "", fmt.Errorf(
				"%q cannot be read (%w): write the path of a file that councild can read", p.file, errors.Unwrap(err),
			)
		}
		text = strings.TrimRight(string(data), "\r\n")
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", errors.New("it has a character that is not allowed in an HTTP header: write visible ASCII on one line")
	}
	return Secret(text), nil
}
