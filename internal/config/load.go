package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kelseyhightower/envconfig"
)

// Load reads the environment of the process. Its error joins one error for every problem. Each of these errors is one
// line with the variable, the problem and the remedy, but never a secret. A variable that begins with LLM_COUNCIL_ and
// is no setting is a problem too.
//
// Load replaces the variables of the process that begin with LLM_COUNCIL_, and restores them before it returns, because
// the package envconfig reads only the variables of the process. Call Load before any goroutine reads or sets such
// variables.
// Load calls each function in checks with the settings that could be read. Such a function returns further problems in
// the same form, or nil.
func Load(checks ...func(Config) error) (Config, error) {
	given := map[string]string{}
	for variable, text := range environ() {
		if text = strings.TrimSpace(text); text != "" {
			given[variable] = text
		}
	}
	links := takeServiceLinks(given)
	p := &problems{texts: maps.Clone(given), given: given}
	p.readFiles(given)

	c, err := p.process()
	if err != nil {
		return Config{}, fmt.Errorf("reading the environment: %w", err)
	}
	for i, provider := range c.Providers {
		c.Providers[i].APIKey = Secret(p.texts[provider.KeyVariable()])
	}
	c.settings = p.settings(c.Providers, given)
	c.serviceLinks = links
	c.quoted = p.quoted()
	p.unknown(given, c.settings)
	c.complete(p)
	c.check(p)
	for _, check := range checks {
		if err := check(c); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	if err := p.err(); err != nil {
		return Config{}, err
	}
	c.Constants = c.constants()
	c.AttemptTimeout = min(c.AttemptTimeout, c.Timeout)
	c.MaxSessions = min(c.MaxSessions, maxPlaces)
	return c, nil
}

// environ returns the variables of the process that begin with LLM_COUNCIL_.
func environ() map[string]string {
	vars := map[string]string{}
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, prefix) {
			vars[name] = value
		}
	}
	return vars
}

// problems collects the problems of the variables.
type problems struct {
	// texts has the values by variable, including values from files. No value is empty.
	texts map[string]string
	given map[string]string // the unchanged variables of the environment
	errs  []error
}

// add reports a problem of one variable.
func (p *problems) add(variable, format string, args ...any) {
	p.errs = append(p.errs, errors.New(variable+": "+fmt.Sprintf(format, args...)))
}

// invalid reports a problem and quotes the value of the variable, which must not be a secret.
func (p *problems) invalid(variable, problem string) {
	p.add(variable, "%q %s", p.texts[variable], problem)
}

// err returns all problems, sorted by variable, or nil.
func (p *problems) err() error {
	for i, err := range p.errs {
		if variable, _, ok := strings.Cut(err.Error(), ": "); ok && isQuoted(p.given[variable]) {
			p.errs[i] = fmt.Errorf("%w; its quotes belong to the value: remove them first", err)
		}
	}
	slices.SortFunc(p.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(p.errs...)
}

// serviceLink matches the variables that Kubernetes sets for each Service of a namespace, in the form VARIABLE=VALUE.
// For a Service llm-council, Kubernetes sets LLM_COUNCIL_PORT, LLM_COUNCIL_PORT_80_TCP_ADDR and others. For a Service
// llm-council-web, it sets LLM_COUNCIL_WEB_PORT and others. A mistake such as LLM_COUNCIL_PORT=8080 does not match and
// is reported, because its value has another form.
var serviceLink = regexp.MustCompile(`^` + prefix + `(?:[A-Z0-9_]+_)?(?:` +
	`SERVICE_HOST=[0-9a-fA-F.:]+|SERVICE_PORT(?:_[A-Z0-9_]+)?=[0-9]+|` +
	`PORT(?:_[0-9]+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://.+|` +
	`PORT_[0-9]+_(?:TCP|UDP|SCTP)_(?:PROTO=(?:tcp|udp|sctp)|PORT=[0-9]+|ADDR=[0-9a-fA-F.:]+))$`)

// takeServiceLinks removes the variables of Kubernetes Services, and returns their sorted names.
func takeServiceLinks(vars map[string]string) []string {
	var links []string
	for variable, text := range vars {
		if serviceLink.MatchString(variable + "=" + text) {
			links = append(links, variable)
			delete(vars, variable)
		}
	}
	slices.Sort(links)
	return links
}

// quoted is the list of the sorted names of the variables whose values still have quotes around them.
func (p *problems) quoted() []string {
	var variables []string
	for variable, text := range p.texts {
		if isQuoted(text) {
			variables = append(variables, variable)
		}
	}
	slices.Sort(variables)
	return variables
}

// isQuoted reports whether a text, or an entry of a comma list, stands in quotes. A shell removes quotes. Docker's
// --env-file and Kubernetes manifests keep them.
func isQuoted(text string) bool {
	inQuotes := func(text string) bool {
		first, size := utf8.DecodeRuneInString(text)
		last, _ := utf8.DecodeLastRuneInString(text)
		return len(text) > size && strings.ContainsRune("\"'`“‘„", first) && strings.ContainsRune("\"'`”“’‘", last)
	}
	text = strings.TrimSpace(text)
	return inQuotes(text) || slices.ContainsFunc(strings.Split(text, ","), func(entry string) bool {
		return inQuotes(strings.TrimSpace(entry))
	})
}

// readFiles reads the files that _FILE variables name, and sets the secrets to their contents.
func (p *problems) readFiles(given map[string]string) {
	for variable, path := range given {
		secret, ok := strings.CutSuffix(variable, fileSuffix)
		if !ok || !isSecret(secret) {
			continue
		}
		if given[secret] != "" {
			p.add(variable, "%s is set as well: unset one of them", secret)
			continue
		}
		content, err := os.ReadFile(path)
		content = bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
		switch {
		case err != nil && !strings.Contains(path, "/"):
			// The message does not quote the path, because it may be the secret itself in the wrong variable.
			p.add(variable, "names no file that councild can read (%v): write its whole path", errors.Unwrap(err))
		case err != nil:
			p.add(variable, "%q cannot be read (%v): write the path of a file that councild can read", path, errors.Unwrap(err))
		case len(bytes.TrimSpace(content)) == 0:
			p.add(variable, "%q is empty: write the secret into it", path)
		case bytes.ContainsRune(content, 0):
			p.add(variable, "%q holds a NUL character: write the secret as text", path)
		default:
			p.texts[secret] = string(content)
		}
	}
}

func isSecret(variable string) bool {
	return strings.HasPrefix(variable, keyPrefix) ||
		slices.ContainsFunc(table(), func(s Setting) bool { return s.Secret && s.Name == variable })
}

// process lets envconfig read the texts. envconfig stops at the first text that it cannot parse. process then reports
// that text, and calls envconfig again without that text. A setting whose text was reported gets its default, so that
// no later check reports the setting again.
func (p *problems) process() (c Config, err error) {
	own := environ()
	defer func() { err = errors.Join(err, replaceEnviron(own)) }()
	for {
		c = Config{}
		err := errors.Join(replaceEnviron(p.without("off")), envconfig.Process("", &c))
		failed, _ := errors.AsType[*envconfig.ParseError](err)
		if failed == nil || p.texts[failed.KeyName] == "" {
			return c, err
		}
		p.invalid(failed.KeyName, unparsable(failed))
		delete(p.texts, failed.KeyName)
	}
}

// without returns a copy of the texts. The copy leaves out each setting of a pointer type whose text equals the
// argument.
func (p *problems) without(word string) map[string]string {
	texts := maps.Clone(p.texts)
	for _, f := range settingFields() {
		if name := f.Tag.Get("envconfig"); f.Type.Kind() == reflect.Pointer && texts[name] == word {
			delete(texts, name)
		}
	}
	return texts
}

// replaceEnviron unsets all variables of the process that begin with LLM_COUNCIL_. It then sets the variables in vars.
func replaceEnviron(vars map[string]string) (err error) {
	for variable := range environ() {
		err = errors.Join(err, os.Unsetenv(variable))
	}
	for variable, text := range vars {
		err = errors.Join(err, os.Setenv(variable, text))
	}
	return err
}

// unparsable returns what is wrong with a text that envconfig could not parse.
func unparsable(e *envconfig.ParseError) string {
	switch strings.TrimPrefix(e.TypeName, "*") {
	case "bool":
		return "is neither true nor false: write one of them"
	case "int", "int64":
		if digits := strings.TrimLeft(e.Value, "+-"); digits != "" && strings.Trim(digits, "0123456789") == "" {
			return "is out of range: write a smaller number"
		}
		return "is not a whole number: write digits only"
	case "float64":
		return "is not a number: write it as in 0.5"
	case "time.Duration":
		return "is not a duration: write a number and a unit, such as 30s or 10m"
	case "slog.Level":
		return "is not a level: " + useLevel
	default:
		return e.Err.Error()
	}
}

// settings returns the table of settings with their values. It has a row for the key of every provider.
func (p *problems) settings(providers Providers, given map[string]string) []Setting {
	var rows []Setting
	for _, row := range table() {
		if row.Name != keyPattern || len(providers) == 0 {
			rows = append(rows, row)
			continue
		}
		for _, provider := range providers {
			row.Name = provider.KeyVariable()
			rows = append(rows, row)
		}
	}
	for i := range rows {
		row := &rows[i]
		text := p.texts[row.Name]
		if text == "" {
			continue
		}
		row.Value = text
		row.Source = SourceEnvironment
		if row.Secret {
			row.Value = redacted
		}
		if given[row.Name] == "" {
			row.Source = SourceFile
		}
	}
	return rows
}

// unknown is the check for unknown variables. It reports every given variable that is no setting.
func (p *problems) unknown(given map[string]string, rows []Setting) {
	var known []string
	for _, row := range rows {
		if row.Name == keyPattern {
			continue // Without providers, this row stands for no variable.
		}
		known = append(known, row.Name)
		if row.Secret {
			known = append(known, row.Name+fileSuffix)
		}
	}
	replaced := ReplacedNames()
	for variable := range given {
		if slices.Contains(known, variable) {
			continue
		}
		if i := slices.IndexFunc(replaced, func(r Replaced) bool { return prefix+r.Name == variable }); i >= 0 {
			p.add(variable, "is no longer a setting: unset it; %s", replaced[i].Remedy)
		} else if strings.HasPrefix(variable, keyPrefix) {
			p.add(variable, "LLM_COUNCIL_PROVIDERS names no provider with this key: add name=url there, or unset this variable")
		} else if name := Nearest(variable, known, 2); name != "" {
			p.add(variable, "there is no such setting: did you mean %s?", name)
		} else {
			p.add(variable, "there is no such setting: unset it")
		}
	}
}

// Nearest returns the entry of names that needs the fewest edits to become name. If several entries need equally few,
// it returns the first of these entries. It returns "" if every entry needs more edits than the argument edits allows.
// An edit inserts, deletes or replaces one byte.
func Nearest(name string, names []string, edits int) string {
	best := ""
	least := edits + 1
	for _, candidate := range names {
		if max(len(name), len(candidate))-min(len(name), len(candidate)) >= least {
			continue
		}
		if d := distance(name, candidate); d < least {
			best = candidate
			least = d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes. It computes the distance row by row (Wagner and
// Fischer 1974).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
