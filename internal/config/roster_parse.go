package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/stage1"
	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth is how deep mappings and lists may be nested.
const maxDepth = 16

var modelID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

const (
	useID    = "write 1 to 64 letters (a to z), digits, ., _ and -, beginning with a letter or digit"
	useModel = "name a key of models"
)

// ownMembers returns the names of the fields of a request body that councild sets itself or refuses.
func ownMembers() []string {
	return []string{
		"model", "messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions",
		"function_call", "response_format",
		"temperature", "max_tokens", "max_completion_tokens", "reasoning_effort", "usage",
	}
}

// ParseRoster parses and checks the text of a roster. It also checks that the roster does not contradict the settings.
// Its error is a RosterProblems. ParseRoster does not read the secrets. ReadRoster reads them.
func (c Config) ParseRoster(data []byte) (*Roster, error) {
	if len(data) > MaxRosterBytes {
		return nil, RosterProblems{{Message: fmt.Sprintf("the file has more than %d bytes: split it, "+
			"or remove what is not used",
			MaxRosterBytes)}}
	}
	root, err := document(data)
	if err != nil {
		return nil, RosterProblems{*err}
	}
	r := &rosterReader{
		settings: c, roster: Roster{Hash: short(data)}, hashes: map[[sha256.Size]byte]string{}, prices: map[string]Model{},
		models: map[string]bool{}, councils: map[string]bool{}, classes: map[string]bool{},
		tokens: map[string]bool{}, providers: map[string]bool{},
	}
	for _, name := range c.ProviderNames() {
		r.providers[name] = true
	}
	for _, t := range c.APITokens {
		r.tokens[t.Label()] = true
	}
	r.file(root)
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b RosterProblem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, r.problems
	}
	return &r.roster, nil
}

// document returns the root of the YAML text, which must hold one document.
func document(data []byte) (*yaml.Node, *RosterProblem) {
	var first, second yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(
		noAnchors{}, loaderlimits.New(loaderlimits.DepthFunc(func(depth int, _ *yaml.DepthContext) error {
			if depth > maxDepth {
				return fmt.Errorf("mappings and lists are nested more than %d deep: write them flatter",
					maxDepth)
			}
			return nil
		})),
	))
	if err == nil {
		err = loader.Load(&first)
	}
	if err == nil {
		if err = loader.Load(&second); err == nil {
			return nil, &RosterProblem{
				Line: second.Line, Message: "a second document begins: write one roster into a file, without --- in it",
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if failure, ok := errors.AsType[*yaml.LoadError](err); ok {
		message := failure.Message
		if anchor := failure.Unwrap(); anchor != nil {
			message = anchor.Error()
		}
		return nil, &RosterProblem{Line: max(failure.Mark.Line, 0), Message: "this is not valid YAML, so correct the line, and indent with blanks, not tabs: " + message}
	}
	if err != nil {
		return nil, &RosterProblem{Message: "this is not valid YAML, so correct the line, and indent with blanks, not tabs: " + err.Error()}
	}
	if first.Kind != yaml.DocumentNode || len(first.Content) != 1 {
		return nil, &RosterProblem{Message: "the file is empty: write version, models, councils and default"}
	}
	return first.Content[0], nil
}

// noAnchors is a YAML plugin that refuses anchors and aliases, because aliases can turn a small file into a huge value.
type noAnchors struct{}

var errAnchor = errors.New("anchors (&) and aliases (*) are not allowed: write the value in full")

func (noAnchors) NewAliasDataContext(yaml.AliasDataServices) (yaml.AliasDataContext, error) {
	return noAnchors{}, nil
}
func (noAnchors) BeginDocument() error                          { return nil }
func (noAnchors) DefineAnchor(string, *yaml.Node) error         { return errAnchor }
func (noAnchors) ResolveAlias(string) (*yaml.Node, bool, error) { return nil, false, errAnchor }
func (noAnchors) EndDocument() error                            { return nil }

// rosterReader builds a Roster from YAML nodes, and collects the problems. Most of its methods read the value of a key,
// or return a function that reads such a value.
type rosterReader struct {
	settings Config
	roster   Roster
	problems RosterProblems
	later    []func() // checks that need the whole file

	// These maps have the names that are taken. Searching the lists would take quadratic time.
	models, councils, classes, tokens, providers map[string]bool
	hashes                                       map[[sha256.Size]byte]string // token names by hash
	prices                                       map[string]Model             // the first entry with a price, by model
}

func (r *rosterReader) add(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, RosterProblem{Line: n.Line, Message: fmt.Sprintf(format, args...)})
}

// quote quotes at most 64 characters of a text for a message.
func quote(text string) string { return fmt.Sprintf("%.64q", text) }

// each calls its last argument for every key of a mapping, with the key and its value. It reports keys that are no text
// and repeated keys as problems. The second argument names the mapping in messages.
func (r *rosterReader) each(n *yaml.Node, what string, read func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.add(n, "%s is not a mapping: write it as key: value", what)
		return
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		value := n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.add(key, "a key of %s is not a text: write a name", what)
		case seen[key.Value]:
			r.add(key, "%s has the key %s twice: remove one", what, quote(key.Value))
		default:
			seen[key.Value] = true
			read(key, value)
		}
	}
}

// fields reads a mapping with known keys. The argument known holds, for each key, the function that reads its value.
// Every key in required must be present.
func (r *rosterReader) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node), required ...string) {
	given := map[string]bool{}
	r.each(n, what, func(key, value *yaml.Node) {
		read := known[key.Value]
		given[key.Value] = true
		switch {
		case read == nil:
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			remedy := "use " + strings.Join(names, ", ")
			if near := Nearest(key.Value, names, 2); near != "" {
				remedy = "did you mean " + near + "?"
			}
			r.add(key, "%s has no key %s: %s", what, quote(key.Value), remedy)
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			r.add(key, "%s has no value: give one, or remove the key", key.Value)
		default:
			read(value)
		}
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, name := range required {
		if !given[name] {
			r.add(n, "%s lacks %s: add it", what, name)
		}
	}
}

// named returns a function that reads a mapping of entries by their names. That function calls the last argument for
// each entry. The argument form matches a valid name, and the argument use says in messages how to write a name.
func (r *rosterReader) named(
	what string, form *regexp.Regexp, use string, read func(name string, n *yaml.Node),
) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.each(n, what, func(key, value *yaml.Node) {
			if !form.MatchString(key.Value) {
				r.add(key, "%s is not a name for an entry of %s: %s", quote(key.Value), what, use)
				return
			}
			read(key.Value, value)
		})
	}
}

// text returns a function that reads a text.
func (r *rosterReader) text(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Value == "" {
			r.add(n, "%s is not a text: write one", what)
			return
		}
		*into = n.Value
	}
}

// list returns a function that reads a list of texts. That function calls the argument check for each text.
func (r *rosterReader) list(what string, into *[]string, check func(n *yaml.Node)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
			r.add(n, "%s is not a list, or is empty: write it as [a, b], or remove the key", what)
			return
		}
		for _, entry := range n.Content {
			if entry.Kind != yaml.ScalarNode || entry.Value == "" {
				r.add(entry, "an entry of %s is not a text: write a name", what)
				continue
			}
			*into = append(*into, entry.Value)
			check(entry)
		}
	}
}

// whole returns a function that reads a whole number. The argument least is the smallest number allowed.
func whole[T int | int64](r *rosterReader, what string, least T, set func(T)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil || v < int64(least) || v > math.MaxInt32 {
			r.add(n, "%s is not a whole number from %d to %d: write digits only", what, least, math.MaxInt32)
			return
		}
		set(T(v))
	}
}

// dollars returns a function that reads an amount of US dollars above 0.
func (r *rosterReader) dollars(what string, into **float64) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v, err := spend.ParseUSD(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v == 0 {
			r.add(n, "%s is not an amount of US dollars above 0: write a number such as 0.20", what)
			return
		}
		*into = new(v.Float64())
	}
}

func (r *rosterReader) file(root *yaml.Node) {
	var defaultAt *yaml.Node
	take := func(own, others map[string]bool, name string, n *yaml.Node) {
		if others[name] {
			r.add(n, "%s is the name of a model and of a council: choose another name for one of them", quote(name))
		}
		own[name] = true
	}
	r.fields(root, "the roster", map[string]func(*yaml.Node){
		"version": func(n *yaml.Node) {
			if n.Value != "1" {
				r.add(n, "the version %s is not known: write version: 1", quote(n.Value))
			}
		},
		"default": func(n *yaml.Node) {
			defaultAt = n
			r.text("default", &r.roster.Default)(n)
		},
		"models": r.named("models", modelID, useID, func(name string, n *yaml.Node) {
			take(r.models, r.councils, name, n)
			r.model(name, n)
		}),
		"councils": r.named("councils", modelID, useID, func(name string, n *yaml.Node) {
			take(r.councils, r.models, name, n)
			r.council(name, n)
		}),
		"classes": r.list("classes", &r.roster.Classes, func(n *yaml.Node) {
			if r.classes[n.Value] {
				r.add(n, "the class %s is listed twice: remove one", quote(n.Value))
			}
			r.classes[n.Value] = true
		}),
		"tokens":    r.named("tokens", TokenName, "write 1 to 32 letters, digits, - and _", r.token),
		"providers": r.named("providers", ProviderName, "write it with a to z, 0 to 9, _ and -", r.provider),
	}, "version", "models", "councils")
	for _, check := range r.later {
		check()
	}
	switch {
	case defaultAt == nil && len(r.roster.Councils) == 1:
		r.roster.Default = r.roster.Councils[0].Name
	case defaultAt == nil && len(r.roster.Councils) > 1:
		r.add(root, "the roster lacks default: name the council that answers when a request names none")
	case defaultAt != nil && r.roster.Default != "" && !r.councils[r.roster.Default]:
		r.add(defaultAt, "default is %s, which is not a council: name a key of councils", quote(r.roster.Default))
	}
}

// class returns a function that reads the name of a data class.
func (r *rosterReader) class(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.text(what, into)(n)
		r.later = append(r.later, func() {
			if !r.classes[n.Value] {
				r.add(n, "%s is %s, which is not in classes: add it there, or use a class from there", what, quote(n.Value))
			}
		})
	}
}

func (r *rosterReader) model(id string, n *yaml.Node) {
	m := Model{ID: id, Member: council.Member{ID: id}}
	profile := council.Profile{}
	var name string
	r.fields(n, "the model "+id, map[string]func(*yaml.Node){
		"model":            r.text("model", &name),
		"provider":         r.providerName(&m.Provider),
		"maker":            r.text("maker", &m.Member.Maker),
		"system":           r.text("system", &profile.System),
		"reasoning_effort": r.text("reasoning_effort", &profile.ReasoningEffort),
		"max_output_tokens": whole(r, "max_output_tokens", 1, func(v int) {
			profile.MaxOutputTokens = v
		}),
		"context_tokens": whole(r, "context_tokens", 1, func(v int64) { profile.ContextTokens = v }),
		"clearance":      r.class("clearance", &m.Clearance),
		"publish_as": func(n *yaml.Node) {
			r.text("publish_as", &m.PublishAs)(n)
			if m.PublishAs != "" && !council.IsPublicName(m.PublishAs) {
				r.add(n, "publish_as is %s, which is not a public name: write 1 to 64 of a to z, 0 to 9 and . _ / : -, "+
					"the first a letter or a digit", quote(m.PublishAs))
			}
		},
		"body": func(n *yaml.Node) { profile.Body = r.body(n) },
		"price": func(n *yaml.Node) {
			m.Price = r.price(n)
			r.later = append(r.later, func() { r.onePrice(m, n) })
		},
	}, "model")
	m.Member.Model = name
	if m.Provider != "" {
		m.Member.Model = m.Provider + ":" + name
	}
	if council.ModelOf(name) != name {
		r.add(n, "the model %s ends in \"#\" and a number, which names a further seat: "+
			"list the id twice in a council instead", quote(name))
	}
	if profile.ReasoningEffort != "" && profile.Body["reasoning"] != nil {
		r.add(n, "the model %s has reasoning_effort and reasoning in its body, "+
			"which providers may treat as the same setting: remove one of them", id)
	}
	m.Member.Profile = &profile
	i := len(r.roster.Models)
	r.roster.Models = append(r.roster.Models, m)
	r.later = append(r.later, func() {
		if m := &r.roster.Models[i]; m.Clearance == "" && len(r.roster.Classes) > 0 {
			m.Clearance = r.roster.Classes[0]
		}
	})
}

func (r *rosterReader) providerName(into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.text("provider", into)(n)
		r.later = append(r.later, func() {
			if !r.providers[n.Value] {
				r.add(n, "there is no provider %s: add it to providers or to LLM_COUNCIL_PROVIDERS, or use one of %s",
					quote(n.Value), strings.Join(r.settings.ProviderNames(), ", "))
			}
		})
	}
}

// seats returns a function that reads a list of model ids.
func (r *rosterReader) seats(what string, into *[]string) func(*yaml.Node) {
	return r.list(what, into, func(n *yaml.Node) { r.seat(what, n) })
}

// seat checks, after the whole file is read, that a text is the id of a model.
func (r *rosterReader) seat(what string, n *yaml.Node) {
	r.later = append(r.later, func() {
		if !r.models[n.Value] {
			r.add(n, "%s names %s, which is not a model: %s", what, quote(n.Value), useModel)
		}
	})
}

func (r *rosterReader) council(name string, n *yaml.Node) {
	c := Council{Name: name, Mode: council.ModeCouncil}
	at := map[string]*yaml.Node{} // the values of the keys that Mode.Check names
	r.fields(n, "the council "+name, map[string]func(*yaml.Node){
		"members": func(n *yaml.Node) {
			at["members"] = n
			r.seats("members", &c.Members)(n)
			if len(c.Members) > r.settings.MaxModels {
				r.add(n, "members names %d models, and LLM_COUNCIL_MAX_MODELS is %d: raise it, or list fewer",
					len(c.Members), r.settings.MaxModels)
			}
		},
		"mode": func(n *yaml.Node) {
			at["mode"] = n
			c.Mode = council.Mode(n.Value)
		},
		"first": func(n *yaml.Node) {
			at["first"] = n
			whole(r, "first", 1, func(v int) { c.First = v })(n)
		},
		"answer_form": func(n *yaml.Node) { c.AnswerForm = r.answerForm(n) },
		"reviewers": func(n *yaml.Node) {
			r.seats("reviewers", &c.Reviewers)(n)
			if len(c.Reviewers) > r.settings.MaxModels {
				r.add(n, "reviewers names %d models, and LLM_COUNCIL_MAX_MODELS is %d: raise it, or list fewer",
					len(c.Reviewers), r.settings.MaxModels)
			}
		},
		"chairman": func(n *yaml.Node) {
			r.text("chairman", &c.Chairman)(n)
			r.seat("chairman", n)
		},
		"fallbacks": r.seats("fallbacks", &c.Fallbacks),
		"quorum": func(n *yaml.Node) {
			whole(r, "quorum", 1, func(v int) { c.Quorum = v })(n)
			r.later = append(r.later, func() {
				if c.Quorum > len(c.Members) {
					r.add(n, "the quorum %d is more than the %d members: lower it", c.Quorum, len(c.Members))
				}
			})
		},
		"max_cost_usd":     r.dollars("max_cost_usd", &c.MaxCostUSD),
		"max_total_tokens": whole(r, "max_total_tokens", 1, func(v int64) { c.MaxTotalTokens = &v }),
		"timeout_seconds": whole(r, "timeout_seconds", 1, func(v int) {
			c.Timeout = new(time.Duration(v) * time.Second)
		}),
		"data_class": r.class("data_class", &c.DataClass),
		"tools": func(n *yaml.Node) {
			c.Tools = council.ToolsPolicy(n.Value)
			if n.Kind != yaml.ScalarNode || c.Tools != council.ToolsRefuse && c.Tools != council.ToolsIgnore {
				r.add(n, "tools is neither refuse nor ignore: write one of them")
			}
		},
		"side_requests": func(n *yaml.Node) {
			r.text("side_requests", &c.SideRequests)(n)
			r.later = append(r.later, func() {
				if id := c.SideRequests; id != "" && id != council.SideMember && id != council.SideCouncil && !r.models[id] {
					r.add(n, "side_requests is %s: write member or council, or name a key of models", quote(id))
				}
			})
		},
		"degraded_note": func(n *yaml.Node) {
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
				r.add(n, "degraded_note is neither true nor false: write one of them")
				return
			}
			c.DegradedNote = new(strings.EqualFold(n.Value, "true"))
		},
		"audience": r.list("audience", &c.Audience, func(n *yaml.Node) {
			r.later = append(r.later, func() {
				if !r.tokens[n.Value] {
					r.add(n, "audience names %s, which is not a token: add it to tokens, "+
						"or name one of LLM_COUNCIL_API_TOKENS", quote(n.Value))
				}
			})
		}),
	}, "members")
	for _, problem := range c.Mode.Check(len(c.Members), c.First, c.AnswerForm) {
		r.add(cmp.Or(at[problem.Field], n), "%s %s: %s", problem.Field, problem.Message, problem.Fix)
	}
	r.roster.Councils = append(r.roster.Councils, c)
}

// answerForm reads the form in which members answer.
func (r *rosterReader) answerForm(n *yaml.Node) *council.AnswerForm {
	form := &council.AnswerForm{}
	before := len(r.problems)
	r.fields(n, "answer_form", map[string]func(*yaml.Node){
		"type":    r.text("type", &form.Type),
		"options": r.list("options", &form.Options, func(*yaml.Node) {}),
	}, "type")
	if len(r.problems) > before {
		return form
	}
	if _, err := stage1.NewForm(*form); err != nil {
		r.add(n, "answer_form cannot be used: %v", err)
	}
	return form
}

func (r *rosterReader) token(name string, n *yaml.Node) {
	t := Token{Name: name}
	if r.tokens[name] {
		r.add(n, "the token %s is in LLM_COUNCIL_API_TOKENS too: remove one of them", quote(name))
	}
	r.tokens[name] = true
	var may []string
	r.fields(n, "the token "+name, map[string]func(*yaml.Node){
		"sha256": func(n *yaml.Node) {
			sum, err := hex.DecodeString(n.Value)
			if err != nil || len(sum) != sha256.Size || n.Value != strings.ToLower(n.Value) {
				r.add(n, "sha256 is not a SHA-256: write 64 hexadecimal digits in lower case, "+
					"as councild config token %s prints them", name)
				return
			}
			t.SHA256 = (*[sha256.Size]byte)(sum)
			if other := r.hashes[*t.SHA256]; other != "" {
				r.add(n, "the token %s has this hash already: make another token", quote(other))
			}
			r.hashes[*t.SHA256] = name
		},
		"max_cost_usd_per_day": r.dollars("max_cost_usd_per_day", &t.MaxCostUSDPerDay),
		"rate_limit":           whole(r, "rate_limit", 1, func(v int) { t.RateLimit = &v }),
		"max_sessions":         whole(r, "max_sessions", 1, func(v int) { t.MaxSessions = &v }),
		"may": r.list("may", &may, func(n *yaml.Node) {
			if !slices.Contains(rights(), n.Value) {
				r.add(n, "may names %s, which is not a right: use %s", quote(n.Value), strings.Join(rights(), ", "))
			}
		}),
	}, "sha256")
	for _, right := range may {
		t.May = append(t.May, council.Right(right))
	}
	r.roster.Tokens = append(r.roster.Tokens, t)
}

// mostCalls and mostSeconds replace every larger number, so that products with these limits do not overflow.
const (
	mostCalls   = 1 << 20
	mostSeconds = 1 << 30
)

func (r *rosterReader) provider(name string, n *yaml.Node) {
	p := Provider{Name: name, InRoster: true}
	var key secretPlace
	if r.providers[name] {
		r.add(n, "the provider %s is in LLM_COUNCIL_PROVIDERS too, or is built in: choose another name, or remove one of them", quote(name))
	}
	r.providers[name] = true
	r.fields(n, "the provider "+name, map[string]func(*yaml.Node){
		"base_url": func(n *yaml.Node) {
			if n.Kind != yaml.ScalarNode || !IsBaseURL(n.Value) {
				r.add(n, "base_url is not an absolute http or https URL: write it as in https://host/v1, without user, query, fragment or blanks; "+
					"a port is 1 to 65535")
				return
			}
			p.BaseURL = strings.TrimRight(n.Value, "/")
		},
		"headers":      func(n *yaml.Node) { p.Headers = r.values("headers", "the header %s of the provider "+name, n) },
		"query":        func(n *yaml.Node) { p.Query = r.values("query", "the query %s of the provider "+name, n) },
		"key_file":     r.text("key_file", &key.file),
		"key_variable": r.text("key_variable", &key.variable),
		"max_calls":    whole(r, "max_calls", 1, func(v int) { p.MaxCalls = min(v, mostCalls) }),
		"idle_timeout_seconds": whole(r, "idle_timeout_seconds", 1, func(v int) {
			p.IdleTimeout = time.Duration(min(v, mostSeconds)) * time.Second
		}),
	}, "base_url")
	if key.file != "" && key.variable != "" {
		r.add(n, "the provider %s has key_file and key_variable: remove one of them", name)
	}
	i := len(r.roster.Providers)
	r.roster.Providers = append(r.roster.Providers, p)
	if key.file != "" || key.variable != "" {
		key.of = "the key of the provider " + name
		key.put = func(s Secret) { r.roster.Providers[i].APIKey = s }
		r.roster.secrets = append(r.roster.secrets, key)
	}
}

// visible is the pattern of a valid value of a header or query parameter.
var visible = regexp.MustCompile(`^[!-~]+( [!-~]+)*$`)

// entryName matches a valid name of a header or query parameter.
var entryName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// secretWord matches a word in a name that shows that the header or query parameter holds a secret. It matches whole
// words, so that the words of x-portkey-provider and x-author do not match.
var secretWord = regexp.MustCompile(`^(keys?|auth|auth[nz]|authorization|authentication|bearer|jwt|pwd|passwd|passphrase|sig|signature|` +
	`.*(password|token|cookies?|secrets?|credentials?|(api|access|auth|private|secret|subscription|virtual)keys?))$`)

// camel matches the boundary between two words of a name such as apiKey.
var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// secretValue matches a value that is a secret under any name. Such values are HTTP credentials with their scheme, keys
// in the forms of well-known providers, JSON Web Tokens, and texts such as "api_key: x", which contain a key with its
// name.
var secretValue = regexp.MustCompile(`(?i)^(bearer|basic|token) |\b(sk|rk|gsk|xai|hf|ghp)[-_][a-z0-9_-]{16}|\bAIza[a-z0-9_-]{30}|` +
	`\beyJ[a-z0-9_-]{10,}\.[a-z0-9_-]+\.|(api|access|secret)[-_]?key["']? ?[:=]`)

// LooksSecret reports whether a header or query parameter looks like a secret, by its name or its text.
func LooksSecret(name, text string) bool {
	words := strings.FieldsFunc(strings.ToLower(camel.ReplaceAllString(name, "$1-$2")), func(r rune) bool {
		return r == '-' || r == '_'
	})
	return slices.ContainsFunc(words, secretWord.MatchString) || secretValue.MatchString(text)
}

// values reads headers or query parameters. The first argument names the mapping in messages. The second argument is a
// format that names a secret in messages. Its %s stands for the name of the header or query parameter.
func (r *rosterReader) values(what, of string, n *yaml.Node) map[string]Secret {
	values := map[string]Secret{}
	r.each(n, what, func(key, value *yaml.Node) {
		name := key.Value
		switch {
		case !entryName.MatchString(name):
			r.add(key, "%s is not a name for an entry of %s: write 1 to 64 letters, digits, - and _",
				quote(name), what)
		case value.Kind == yaml.MappingNode:
			place := secretPlace{of: fmt.Sprintf(of, name), put: func(s Secret) { values[name] = s }}
			r.fields(value, what+" "+name, map[string]func(*yaml.Node){
				"file": r.text("file", &place.file), "variable": r.text("variable", &place.variable),
			})
			if (place.file == "") == (place.variable == "") {
				r.add(value, "%s %s needs either file or variable: write one of them", what, name)
			}
			r.roster.secrets = append(r.roster.secrets, place)
		case value.Kind != yaml.ScalarNode || !visible.MatchString(value.Value):
			r.add(value, "%s %s is not a text of visible ASCII: write one, or {file: PATH}, or {variable: NAME}",
				what, name)
		case LooksSecret(name, value.Value):
			r.add(value, "%s %s looks like a secret, which no roster holds: write {file: PATH} or {variable: NAME}",
				what, name)
		default:
			values[name] = Secret(value.Value)
		}
	})
	return values
}

// body reads the fields that are merged into the bodies of requests.
func (r *rosterReader) body(n *yaml.Node) map[string]json.RawMessage {
	body := map[string]json.RawMessage{}
	r.each(n, "body", func(key, value *yaml.Node) {
		if slices.Contains(ownMembers(), strings.ToLower(key.Value)) { // Some providers ignore the case of names.
			r.add(key, "body has %s, which councild sets itself or refuses: remove it", key.Value)
			return
		}
		text, err := json.Marshal(r.json(value))
		if err != nil {
			r.add(value, "body %s is not a JSON value: write texts, numbers, true, false, lists and mappings",
				quote(key.Value))
			return
		}
		body[key.Value] = text
	})
	return body
}

// json returns the value of a node in the types of encoding/json.
func (r *rosterReader) json(n *yaml.Node) any {
	if n.Kind == yaml.MappingNode {
		object := map[string]any{}
		r.each(n, "body", func(key, value *yaml.Node) { object[key.Value] = r.json(value) })
		return object
	}
	if n.Kind == yaml.SequenceNode {
		list := make([]any, len(n.Content))
		for i, entry := range n.Content {
			list[i] = r.json(entry)
		}
		return list
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if number := json.Number(n.Value); json.Valid([]byte(n.Value)) {
			return number
		}
		r.add(n, "body has %s, which is not a JSON number: write it in decimal digits", quote(n.Value))
		return nil
	default:
		return n.Value
	}
}

func (r *rosterReader) price(n *yaml.Node) *spend.Tariff {
	if n.Kind == yaml.ScalarNode && n.Value == "free" {
		return new(spend.Free())
	}
	if n.Kind != yaml.MappingNode {
		r.add(n, "price is neither free nor a mapping: "+
			"write it as {as_of: 2026-11-20, input: 1.25, output: 10}, in US dollars per million tokens")
		return nil
	}
	t := spend.Tariff{}
	before := len(r.problems)
	known := r.rates(&t.Rates)
	known["as_of"] = func(n *yaml.Node) {
		var err error
		if t.AsOf, err = time.Parse(time.DateOnly, n.Value); err != nil {
			r.add(n, "as_of is not a day: write the day on which you read the prices, as in 2026-11-20")
		}
	}
	known["above"] = func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			r.add(n, "above is not a list: write it as [{input_tokens: 272000, input: 2.5, output: 15}]")
			return
		}
		for _, entry := range n.Content {
			var tier spend.Tier
			known := r.rates(&tier.Rates)
			known["input_tokens"] = whole(r, "input_tokens", 1, func(v int64) { tier.InputTokens = v })
			r.fields(entry, "an entry of above", known, "input_tokens")
			t.Above = append(t.Above, tier)
		}
	}
	r.fields(n, "price", known, "as_of", "input", "output")
	if len(r.problems) > before {
		return nil
	}
	if err := t.Validate(); err != nil {
		r.add(n, "price: %v", err)
	}
	return &t
}

// onePrice reports a problem if two entries give one model different prices.
func (r *rosterReader) onePrice(m Model, n *yaml.Node) {
	switch before, known := r.prices[m.Member.Model]; {
	case m.Price == nil:
	case !known:
		r.prices[m.Member.Model] = m
	case !reflect.DeepEqual(before.Price, m.Price):
		r.add(n, "%s has another price in %s: give it the same, because a model has one price",
			quote(m.Member.Model), before.ID)
	}
}

// rates returns the functions that read the keys of rates.
func (r *rosterReader) rates(rates *spend.Rates) map[string]func(*yaml.Node) {
	price := func(what string, into **spend.Price) func(*yaml.Node) {
		return func(n *yaml.Node) {
			p, err := spend.ParsePrice(n.Value)
			if n.Kind != yaml.ScalarNode || err != nil {
				r.add(n, "%s %s %v", what, quote(n.Value), err)
				return
			}
			*into = &p
		}
	}
	return map[string]func(*yaml.Node){
		"input": price("input", &rates.Input), "cached_input": price("cached_input", &rates.CachedInput),
		"cache_write": price("cache_write", &rates.CacheWrite), "output": price("output", &rates.Output),
		"reasoning": price("reasoning", &rates.Reasoning),
		"request": func(n *yaml.Node) {
			amount, err := spend.ParseUSD(n.Value)
			if n.Kind != yaml.ScalarNode || err != nil {
				r.add(n, "request %s is not an amount of US dollars: write a number such as 0.01", quote(n.Value))
				return
			}
			rates.Request = &amount
		},
	}
}
