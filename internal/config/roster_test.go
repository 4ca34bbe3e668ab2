package config_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/google/go-cmp/cmp"
)

const valid = `# A roster with every key.
version: 1
default: deep
models:
  gpt: {model: openai/gpt-5, maker: openai, publish_as: openai/gpt-5, reasoning_effort: high, max_output_tokens: 16000, context_tokens: 400000, clearance: internal,
        price: {as_of: 2026-11-20, input: 1.25, cached_input: 0.125, output: 10, above: [{input_tokens: 272000, input: 2.5, output: 15}]}}
  skeptic: {provider: claude, model: claude-opus-4-6, clearance: internal, system: "Look for what is wrong.",
        body: {top_k: 40}, price: {as_of: 2026-11-20, input: 5, output: 25}}
  local: {provider: azure, model: "llama3:8b", price: free}
councils:
  fast: {members: [gpt, skeptic, local], chairman: gpt, max_cost_usd: 0.20, max_total_tokens: 100000, timeout_seconds: 60, quorum: 2,
        data_class: public, audience: [ci, team], tools: ignore, side_requests: local, degraded_note: false}
  deep: {members: [gpt, skeptic, local], reviewers: [gpt, skeptic], fallbacks: [skeptic], mode: ranked, first: 2, answer_form: {type: choice, options: [A, B]}}
classes: [public, internal]
tokens:
  ci: {sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, max_cost_usd_per_day: 5, ` +
	`rate_limit: 10, max_sessions: 2, may: [ask, report]}
providers:
  azure: {base_url: "https://x.openai.azure.com/openai/v1/", headers: {api-key: {file: /run/key}}, ` +
	`query: {api-version: preview}, key_variable: AZURE, max_calls: 3, idle_timeout_seconds: 90}
`

// parseRoster parses a roster beside settings that have the provider claude and the token team.
func parseRoster(text string) (*config.Roster, error) {
	var c config.Config
	c.Providers = config.Providers{{Name: "claude"}}
	c.APITokens = config.Tokens{{Name: "team"}}
	c.MaxModels = 12
	return c.ParseRoster([]byte(text))
}

func TestParseRoster(t *testing.T) {
	r, err := parseRoster(valid)
	if err != nil {
		t.Fatal(err)
	}
	gpt, _ := r.Model("gpt")
	local, _ := r.Model("local")
	skeptic, _ := r.Model("skeptic")
	ci := r.Tokens[0]
	for _, fact := range []struct {
		what      string
		got, want any
	}{
		{"default", r.Default, "deep"},
		{"model of gpt", gpt.Member.Model, "openai/gpt-5"},
		{"maker of gpt", gpt.Member.Maker, "openai"},
		{"public name of gpt", gpt.PublishAs, "openai/gpt-5"},
		{"public name of local, which has none", local.PublishAs, ""},
		{"profile of gpt", *gpt.Member.Profile, council.Profile{ReasoningEffort: "high", MaxOutputTokens: 16000, ContextTokens: 400000}},
		{"price of gpt", gpt.Price.Line(), "{as_of: 2026-11-20, input: 1.25, cached_input: 0.125, output: 10, " +
			"above: [{input_tokens: 272000, input: 2.5, output: 15}]}"},
		{"model of skeptic", skeptic.Member.Model, "claude:claude-opus-4-6"},
		{"persona of skeptic", skeptic.Member.Profile.System, "Look for what is wrong."},
		{"body of skeptic", string(skeptic.Member.Profile.Body["top_k"]), "40"},
		{"model of local", local.Member.Model, "azure:llama3:8b"},
		{"clearance of local, the lowest", local.Clearance, "public"},
		{"price of local", local.Price.Line(), "{input: 0, output: 0}"},
		{"members of fast", r.Councils[0].Members, []string{"gpt", "skeptic", "local"}},
		{"limit of fast", *r.Councils[0].MaxCostUSD, 0.2},
		{"audience of fast", r.Councils[0].Audience, []string{"ci", "team"}},
		{"tools of fast", r.Councils[0].Tools, council.ToolsIgnore},
		{"side requests of fast", r.Councils[0].SideRequests, "local"},
		{"note of fast", r.Councils[0].DegradedNote, new(false)},
		{"tools, side requests and note of deep", r.Councils[1].Tools == "" && r.Councils[1].SideRequests == "" && r.Councils[1].DegradedNote == nil, true},
		{"mode, first and form of fast", []any{r.Councils[0].Mode, r.Councils[0].First, r.Councils[0].AnswerForm == nil}, []any{council.ModeCouncil, 0, true}},
		{"mode of deep", r.Councils[1].Mode, council.ModeRanked},
		{"first of deep", r.Councils[1].First, 2},
		{"form of deep", *r.Councils[1].AnswerForm, council.AnswerForm{Type: council.FormChoice, Options: []string{"A", "B"}}},
		{"fallbacks of deep", r.Councils[1].Fallbacks, []string{"skeptic"}},
		{"rights of ci", ci.May, []council.Right{council.MayAsk, council.MayReport}},
		{"limit of ci", *ci.MaxCostUSDPerDay, 5.0},
		{"URL of azure", r.Providers[0].BaseURL, "https://x.openai.azure.com/openai/v1"},
		{"calls of azure", r.Providers[0].MaxCalls, 3},
		{"silence of azure", r.Providers[0].IdleTimeout, 90 * time.Second},
		{"headers of azure, whose file was not read", r.Providers[0].Headers, map[string]config.Secret{}},
		{"query of azure", r.Providers[0].Query, map[string]config.Secret{"api-version": "preview"}},
	} {
		if diff := cmp.Diff(fact.want, fact.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", fact.what, diff)
		}
	}
}

// ReadRoster reads the secrets from where the roster says they are. It reports all that are missing.
func TestSecretsOfTheRoster(t *testing.T) {
	const text = `version: 1
models: {m: {model: a}}
councils: {main: {members: [m, m]}}
providers:
  azure: {base_url: "https://a/v1", headers: {api-key: {file: %[1]q}, x-team: council}, key_variable: ROSTER_TEST_KEY}
  box: {base_url: "https://b/v1", query: {key: {variable: ROSTER_TEST_KEY}}, key_file: %[1]q}
`
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	var c config.Config
	c.MaxModels = 12
	c.Roster = write(t, dir, "roster.yaml", fmt.Sprintf(text, key))
	_, _, err := c.ReadRoster()
	for _, want := range []string{
		"LLM_COUNCIL_ROSTER: the header api-key of the provider azure: ", "LLM_COUNCIL_ROSTER: the key of the provider azure: ",
		"LLM_COUNCIL_ROSTER: the query key of the provider box: ", "LLM_COUNCIL_ROSTER: the key of the provider box: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no line says %q:\n%v", want, err)
		}
	}
	write(t, dir, "key", "from-a-file\n")
	t.Setenv("ROSTER_TEST_KEY", "from-a-variable")
	c, r, err := c.ReadRoster()
	if err != nil {
		t.Fatal(err)
	}
	want := config.Providers{
		{
			Name: "azure", BaseURL: "https://a/v1", APIKey: "from-a-variable", InRoster: true,
			Headers: map[string]config.Secret{"api-key": "from-a-file", "x-team": "council"},
		},
		{
			Name: "box", BaseURL: "https://b/v1", APIKey: "from-a-file", InRoster: true,
			Query: map[string]config.Secret{"key": "from-a-variable"},
		},
	}
	if diff := cmp.Diff(want, c.Providers); diff != "" {
		t.Errorf("providers (-want +got):\n%s", diff)
	}
	if again, _, err := c.ReadRoster(); err != nil || len(again.Providers) != len(r.Providers) {
		t.Errorf("read twice, there are %d providers, want %d: %v", len(again.Providers), len(r.Providers), err)
	}
}

// What councild prints of a price can be written into a roster.
func TestPrintedPriceInARoster(t *testing.T) {
	for _, text := range []string{
		"3/15+request:0.018@2026-11-20",
		"1/4+cached_input:0.1+cache_write:1.25+reasoning:6+above:200000+input:2+output:8+request:0.001+above:400000+output:9@2026-11-20",
		"3/15+request:0.018+above:200000+request:0@2026-11-20",
	} {
		tariff, err := spend.ParseTariff(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseRoster(strings.Replace(valid, "{as_of: 2026-11-20, input: 5, output: 25}", tariff.Line(), 1))
		if err != nil {
			t.Fatal(err)
		}
		if skeptic, _ := r.Model("skeptic"); skeptic.Price.Entry() != text {
			t.Errorf("%s became %s", text, skeptic.Price.Entry())
		}
	}
}

// Each mutation of a valid roster breaks one rule, and the one problem names its line and how to mend it.
func TestRosterRules(t *testing.T) {
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, c := range []struct {
		name, old, new string
		line           int
		want           string
	}{
		{"no version", "version: 1\n", "", 2, "lacks version"},
		{"another version", "version: 1", "version: 2", 2, "write version: 1"},
		{"unknown key", "default: deep", "dflt: deep\ndefault: deep", 3, "use classes, councils, default"},
		{"doubled key", "default: deep", "default: deep\ndefault: deep", 4, "twice: remove one"},
		{"key without a value", "default: deep", "default:", 3, "has no value"},
		{"no default of several", "default: deep\n", "", 2, "lacks default"},
		{"default that is no council", "default: deep", "default: gpt", 3, "which is not a council"},
		{"second document", "providers:", "---\nproviders:", 17, "second document"},
		{"no mapping", "classes: [public, internal]", "classes: {public: internal}", 14, "write it as [a, b]"},
		{"anchor", "[gpt, skeptic, local], reviewers", "&a [gpt, skeptic, local], reviewers", 13, "write the value in full"},
		{"alias", "[gpt, skeptic, local], reviewers", "*a, reviewers", 13, "write the value in full"},
		{"bad id", "  local: {", "  Local_: {model: a}\n  local: {", 9, "write 1 to 64 letters"},
		{"id of both", "  fast: {", "  gpt: {members: [gpt, gpt]}\n  fast: {", 11, "of a model and of a council"},
		{"model without its name", "model: openai/gpt-5, ", "", 5, "lacks model"},
		{"model with a seat's number", "openai/gpt-5", "openai/gpt-5#2", 5, "list the id twice"},
		{"unknown provider", "provider: claude", "provider: clod", 7, "or use one of sim, claude"},
		{"unknown option", "reasoning_effort", "reasoning_efort", 5, "did you mean reasoning_effort?"},
		{"temperature, which no model has", "maker: openai", "temperature: 1", 5, `no key "temperature"`},
		{"no tokens", "max_output_tokens: 16000", "max_output_tokens: 0", 5, "whole number from 1"},
		{"tokens in words", "context_tokens: 400000", "context_tokens: many", 5, "whole number from 1"},
		{"public name with blanks", "publish_as: openai/gpt-5", "publish_as: Our GPT", 5, "not a public name"},
		{"public name that is long", "publish_as: openai/gpt-5", "publish_as: " + strings.Repeat("a", 65), 5, "not a public name"},
		{"unknown clearance", "400000, clearance: internal", "400000, clearance: secret", 5, "not in classes"},
		{"body with a model", "top_k: 40", "model: x", 8, "councild sets itself"},
		{"body with messages", "top_k: 40", "messages: []", 8, "councild sets itself"},
		{"body with stream", "top_k: 40", "stream: true", 8, "councild sets itself"},
		{"body with n", "top_k: 40", "n: 2", 8, "councild sets itself"},
		{"body with tools", "top_k: 40", "tools: []", 8, "councild sets itself"},
		{"body with response_format", "top_k: 40", "response_format: {}", 8, "councild sets itself"},
		{"body with temperature", "top_k: 40", "temperature: 1", 8, "councild sets itself"},
		{"body with a token limit", "top_k: 40", "max_tokens: 1", 8, "councild sets itself"},
		{"body with another token limit", "top_k: 40", "max_completion_tokens: 1", 8, "councild sets itself"},
		{"body with a model in another case", "top_k: 40", "Model: x", 8, "councild sets itself"},
		{"body with usage", "top_k: 40", "usage: {}", 8, "councild sets itself"},
		{"effort twice", "body: {top_k: 40}", "reasoning_effort: low, body: {reasoning: {}}", 7, "remove one of them"},
		{"body with infinity", "top_k: 40", "top_k: .inf", 8, "not a JSON number"},
		{"price without its day", "as_of: 2026-11-20, input: 5", "input: 5", 8, "lacks as_of"},
		{"price of no day", "as_of: 2026-11-20, input: 5", "as_of: yesterday, input: 5", 8, "as in 2026-11-20"},
		{"price without output", ", output: 25", "", 8, "lacks output"},
		{"negative price", "output: 25", "output: -1", 8, "is not a price"},
		{"price in words", "price: free", "price: cheap", 9, "neither free nor a mapping"},
		{
			"two prices", "  local: {", "  other: {provider: claude, model: claude-opus-4-6, price: free}\n  local: {", 9,
			"another price in skeptic",
		},
		{
			"tiers out of order", "input_tokens: 272000, input: 2.5, output: 15}", "input_tokens: 9, input: 1}, {input_tokens: 9, input: 2}", 6,
			"ascending order",
		},
		{"tier without its tokens", "input_tokens: 272000, ", "", 6, "lacks input_tokens"},
		{"one member", "members: [gpt, skeptic, local], reviewers", "members: [gpt], reviewers", 13, "list two or more"},
		{"two members alone", "mode: ranked, first: 2", "mode: single", 13, "members names 3 models, and the mode single asks one: list one, or use another mode"},
		{
			"unknown mode", "mode: ranked", "mode: panel", 13,
			`mode is "panel", which is not a mode of a council: use council, ranked, synthesis, vote or single`,
		},
		{"a list of modes", "mode: ranked", "mode: [ranked]", 13, `mode is "", which`},
		{"judging", "mode: ranked", "mode: judge", 13, "judging answers that exist already is not a mode of a council: use council,"},
		{
			"vote without a form", "quorum: 2", "mode: vote", 11,
			"answer_form is missing, and the mode vote counts equal answers: add it, such as {type: number}, or use another mode",
		},
		{"vote with first", "mode: ranked", "mode: vote", 13, "first is 2, which does not go with the mode vote: remove it, or use another mode"},
		{"all begin", "first: 2", "first: 3", 13, "first is 3, which is out of range: use 1 or more, but less than the number of members"},
		{"none begins", "first: 2", "first: 0", 13, "first is not a whole number from 1"},
		{"unknown form", "type: choice, options: [A, B]", "type: regex", 13, `answer_form cannot be used: there is no form "regex": use exact,`},
		{"form without options", ", options: [A, B]", "", 13, "answer_form cannot be used: options belong to the type choice"},
		{"form with one option", "options: [A, B]", "options: [A, a.]", 13, "is given twice: write each option once"},
		{"form without a type", "type: choice, ", "", 13, "answer_form lacks type: add it"},
		{"form in a word", "{type: choice, options: [A, B]}", "choice", 13, "answer_form is not a mapping"},
		{"unknown member", "members: [gpt, skeptic, local], reviewers", "members: [gpt, gtp], reviewers", 13, "name a key of models"},
		{"unknown reviewer", "reviewers: [gpt, skeptic]", "reviewers: [gpt, nobody]", 13, "reviewers names"},
		{"unknown chairman", "chairman: gpt", "chairman: nobody", 11, "chairman names"},
		{"unknown fallback", "fallbacks: [skeptic]", "fallbacks: [nobody]", 13, "fallbacks names"},
		{"no reviewers", "reviewers: [gpt, skeptic]", "reviewers: []", 13, "or remove the key"},
		{"quorum above the members", "quorum: 2", "quorum: 4", 11, "more than the 3 members"},
		{"limit of nothing", "max_cost_usd: 0.20", "max_cost_usd: 0", 11, "above 0"},
		{"no time", "timeout_seconds: 60", "timeout_seconds: 0", 11, "whole number from 1"},
		{"no total", "max_total_tokens: 100000", "max_total_tokens: -1", 11, "whole number from 1"},
		{"unknown class", "data_class: public", "data_class: secret", 12, "not in classes"},
		{"unknown policy for tools", "tools: ignore", "tools: call", 12, "neither refuse nor ignore"},
		{"nobody for side requests", "side_requests: local", "side_requests: nobody", 12, "write member or council"},
		{"note that is no choice", "degraded_note: false", "degraded_note: 7", 12, "write one of them"},
		{"unknown audience", "audience: [ci, team]", "audience: [nobody]", 12, "which is not a token"},
		{"doubled class", "classes: [public, internal]", "classes: [public, internal, public]", 14, "is listed twice"},
		{"token without its hash", "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, ", "", 16, "lacks sha256"},
		{"the token itself", hash, "hunter2hunter2hunter2", 16, "councild config token ci"},
		{"token of two names", "  ci:", "  other: {sha256: " + hash + "}\n  ci:", 17, "has this hash already"},
		{"token of the settings", "  ci:", "  team: {sha256: 00}\n  ci:", 16, "LLM_COUNCIL_API_TOKENS too"},
		{"unknown right", "may: [ask, report]", "may: [ask, everything]", 16, "use ask, report, events, admin"},
		{"rate of nothing", "rate_limit: 10", "rate_limit: 0", 16, "whole number from 1"},
		{"provider of the settings", "  azure: {base_url", "  claude: {base_url: http://a}\n  azure: {base_url", 18, "choose another name"},
		{"provider without its URL", `base_url: "https://x.openai.azure.com/openai/v1/", `, "", 18, "lacks base_url"},
		{"URL with a secret", "https://x.openai", "https://me:secret@x.openai", 18, "without user"},
		{"secret in a header", "api-key: {file: /run/key}", "api-key: abc", 18, "which no roster holds"},
		{"secret in two places", "{file: /run/key}", "{file: /run/key, variable: KEY}", 18, "needs either file or variable"},
		{"header of two lines", "headers: {api-key: {file: /run/key}}", `headers: {x: "a\nb"}`, 18, "visible ASCII"},
		{"no calls", "max_calls: 3", "max_calls: 0", 18, "whole number from 1"},
		{"no time", "idle_timeout_seconds: 90", "idle_timeout_seconds: 1.5", 18, "whole number from 1"},
		{"two keys", "key_variable: AZURE", "key_variable: AZURE, key_file: /a", 18, "remove one of them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(valid, c.old) {
				t.Fatalf("the valid roster lacks %q", c.old)
			}
			_, err := parseRoster(strings.Replace(valid, c.old, c.new, 1))
			problems, _ := errors.AsType[config.RosterProblems](err)
			if i := slices.IndexFunc(problems, func(p config.RosterProblem) bool { return strings.Contains(p.Message, c.want) }); i < 0 {
				t.Fatalf("no problem says %q:\n%v", c.want, err)
			} else if problems[i].Line != c.line {
				t.Errorf("line %d, want %d: %s", problems[i].Line, c.line, problems[i].Message)
			}
		})
	}
}

func TestAllProblemsOfARosterAtOnce(t *testing.T) {
	text := strings.NewReplacer("default: deep", "default: none", "output: 25", "output: x", "may: [ask, report]", "may: [all]").Replace(valid)
	_, err := parseRoster(text)
	problems, _ := errors.AsType[config.RosterProblems](err)
	lines := make([]int, len(problems))
	for i, p := range problems {
		lines[i] = p.Line
	}
	if diff := cmp.Diff([]int{3, 8, 16}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%v", diff, err)
	}
}

// A roster may have one member, if its mode is single. A doubtful first gives a warning, and no error.
func TestWarningsOfARoster(t *testing.T) {
	const text = `version: 1
default: a
models:
  gpt: {model: openai/gpt-5}
  mini: {model: azure-mini, maker: openai}
  opus: {provider: claude, model: opus}
councils:
  solo: {members: [gpt], mode: single}
  alone: {members: [gpt, mini], first: 1, mode: synthesis}
  outside: {members: [gpt, mini], reviewers: [mini, opus]}
  pair: {members: [gpt, opus], mode: ranked}
  within: {members: [gpt, opus], reviewers: [gpt, opus]}
  a: {members: [gpt, opus, mini], first: 2, answer_form: {type: number}}
  b: {members: [gpt, opus, mini], first: 2}
  c: {members: [gpt, mini, opus], first: 2, answer_form: {type: number}}
`
	r, err := parseRoster(text)
	if err != nil {
		t.Fatal(err)
	}
	const two = " has two members: each reviews only the other's answer, so the reviews cost money and rank nothing; " +
		"add a third member, write mode: synthesis, or name reviewers that are not members"
	want := []string{
		"the council pair" + two,
		"the council within" + two,
		"the council b has first: 2 and no answer_form: a question without one asks all members at once, because answers without a form cannot be compared; add answer_form",
		"the first 2 members of the council c have one maker, openai: begin with members of two makers, because agreement between makers means more",
	}
	if diff := cmp.Diff(want, r.Warnings([]string{"claude"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The hash moves with what shapes the votes, and with nothing else.
func TestCouncilHash(t *testing.T) {
	type votes struct {
		order            council.Order
		answers, reviews council.Sampling
	}
	hashOf := func(from, to string, change func(*votes)) string {
		t.Helper()
		if !strings.Contains(valid, from) {
			t.Fatalf("the valid roster lacks %q", from)
		}
		r, err := parseRoster(strings.ReplaceAll(valid, from, to))
		if err != nil {
			t.Fatal(err)
		}
		seats := func(ids []string) (members []council.Member) {
			for _, id := range ids {
				m, _ := r.Model(id)
				members = append(members, m.Member)
			}
			return members
		}
		v := votes{order: council.OrderBalanced}
		if change != nil {
			change(&v)
		}
		return config.CouncilHash(v.order, v.answers, v.reviews, seats(r.Councils[1].Members), seats(r.Councils[1].Reviewers))
	}
	before := hashOf("", "", nil)
	for _, c := range []struct {
		what, old, new string
		change         func(*votes)
		moves          bool
	}{
		{"model", "openai/gpt-5", "openai/gpt-6", nil, true},
		{"provider", "provider: claude", "provider: sim", nil, true},
		{"system prompt", "Look for what is wrong.", "Look for what is right.", nil, true},
		{"effort", "reasoning_effort: high", "reasoning_effort: low", nil, true},
		{"output limit", "max_output_tokens: 16000", "max_output_tokens: 8000", nil, true},
		{"body", "top_k: 40", "top_k: 41", nil, true},
		{"order of the members", "members: [gpt, skeptic, local], reviewers", "members: [skeptic, gpt, local], reviewers", nil, true},
		{"reviewers", "reviewers: [gpt, skeptic]", "reviewers: [gpt, skeptic, local]", nil, true},
		{"order of the answers", "", "", func(v *votes) { v.order = council.OrderShared }, true},
		{"temperature", "", "", func(v *votes) { v.answers.Temperature = new(0.0) }, true},
		{"temperature of reviews", "", "", func(v *votes) { v.reviews.Temperature = new(0.5) }, true},
		{"output limit of the settings", "", "", func(v *votes) { v.answers.MaxOutputTokens = new(9) }, true},

		{"price", "input: 5", "input: 6", nil, false},
		{"limits", "max_cost_usd: 0.20", "max_cost_usd: 0.10", nil, false},
		{"audience", "audience: [ci, team]", "audience: [ci]", nil, false},
		{"fallbacks", "fallbacks: [skeptic]", "fallbacks: [gpt]", nil, false},
		{"id", "skeptic", "critic", nil, false},
		{"maker", "maker: openai", "maker: others", nil, false},
		{"context", "context_tokens: 400000", "context_tokens: 300000", nil, false},
		{"public name", "publish_as: openai/gpt-5", "publish_as: gpt", nil, false},
		{"clearance", "400000, clearance: internal", "400000, clearance: public", nil, false},
		{"comment", "# A roster", "# The roster", nil, false},
		{"other council", "quorum: 2", "quorum: 3", nil, false},
	} {
		if after := hashOf(c.old, c.new, c.change); (after != before) != c.moves {
			t.Errorf("%s: the hash is %s after %s, moves must be %v", c.what, after, before, c.moves)
		}
	}
}

// Headers and parameters that name a provider, a configuration or an organisation stand in a roster as they are. Secrets do not.
func TestHeadersThatLookLikeSecrets(t *testing.T) {
	refusal := func(t *testing.T, name, text string) string {
		t.Helper()
		file := strings.Replace(valid, "headers: {api-key: {file: /run/key}}", fmt.Sprintf("headers: {%s: %q}", name, text), 1)
		_, err := parseRoster(file)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for name, text := range map[string]string{
		"x-portkey-provider": "openai", "X-Portkey-Config": "pc-council-1a2b3c", "x-portkey-trace-id": "council",
		"x-portkey-strict-open-ai-compliance": "false", "x-portkey-metadata": `{"team": "council"}`,
		"OpenAI-Organization": "org-a1b2c3d4e5f6g7h8", "openai-project": "proj_a1b2c3d4e5f6g7h8i9", "Helicone-Property-Environment": "production",
		"helicone-cache-enabled": "true", "HTTP-Referer": "https://council.example", "X-Title": "council", "x-author": "ada",
		"x-keyword": "council", "x-monkey": "1", "x-max-tokens": "100", "x-tokenizer": "cl100k", "anthropic-version": "2023-06-01",
		"anthropic-beta": "context-1m", "cf-aig-metadata": "council", "x-authority": "a", "task-sketch-id": "risk-assessment-of-2026-09",
	} {
		if refused := refusal(t, name, text); refused != "" {
			t.Errorf("%s: %s is refused: %s", name, text, refused)
		}
	}
	for name, text := range map[string]string{
		"Authorization": "abc", "proxy-authorization": "abc", "api-key": "abc", "X-Api-Key": "abc", "x-portkey-api-key": "abc",
		"x-portkey-virtual-key": "abc", "Ocp-Apim-Subscription-Key": "abc", "apikey": "abc", "apiKey": "abc", "api_key": "abc",
		"x-functions-key": "abc", "cf-aig-authorization": "abc", "Helicone-Auth": "abc", "Cookie": "a=b", "x-session-cookie": "abc",
		"X-Auth-Token": "abc", "accessToken": "abc", "x-amz-security-token": "abc", "client-secret": "abc", "x-password": "abc",
		"x-portkey-vertex-service-account-credentials": "abc", "x-jwt": "abc", "subscriptionkey": "abc",
		"x-provider": "Bearer abc", "x-config": `{"provider": "openai", "api_key": "abc"}`, "x-user": "sk-a1b2c3d4e5f6g7h8i9j0",
		"x-goog": "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "x-id": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln",
	} {
		if refused := refusal(t, name, text); !strings.Contains(refused, "looks like a secret, which no roster holds") {
			t.Errorf("%s: %s is not refused as a secret: %q", name, text, refused)
		}
	}
}

// hostile returns files of n bytes that make a careless reader slow or large.
func hostile(n int) map[string]string {
	fill := func(begin, piece, end string) string {
		return begin + strings.Repeat(piece, max(0, n-len(begin)-len(end))/len(piece)) + end
	}
	numbered := func(begin, format string) string {
		var b strings.Builder
		b.WriteString(begin)
		for i := 0; b.Len() < n-64; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	bomb := "a0: &a0 [x]\n"
	for i := 1; len(bomb) < n-200; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	return map[string]string{
		"alias bomb":             bomb,
		"flow lists":             fill("", "[", ""),
		"flow mappings":          fill("", "{a: ", ""),
		"block lists":            fill("", "- ", ""),
		"complex keys":           fill("", "? ", ""),
		"comments":               fill("", "#\n", ""),
		"comments with blanks":   fill("a: 1\n", "  # x\n\n", ""),
		"comments in a list":     fill("a:\n", "- 1 # x\n# y\n", ""),
		"one line":               fill("a: ", "x", "\n"),
		"quotes":                 fill(`a: "`, `\n`, "\"\n"),
		"open quote":             fill(`a: "`, "x\n ", ""),
		"blank lines":            fill("a: |\n", "\n", ""),
		"blanks":                 fill("", " ", ""),
		"tabs":                   fill("a:", "\t", ""),
		"colons":                 fill("", "a:", ""),
		"keys":                   numbered("", "k%d: 1\n"),
		"same keys":              fill("", "k: 1\n", ""),
		"keys in a flow":         numbered("{", "k%d: 1, "),
		"keys without values":    fill("", "k\n", ""),
		"models":                 numbered("version: 1\nmodels:\n", "  m%d: {model: a, provider: x}\n"),
		"seats":                  fill("version: 1\ncouncils: {a: {members: [", "m,", "]}}"),
		"classes":                numbered("classes: [", "c%d,") + "]",
		"tokens":                 numbered("tokens:\n", "  t%d: {}\n"),
		"directives":             fill("", "%TAG ! x\n", ""),
		"tags":                   fill("a: ", "!!str ", ""),
		"anchors":                numbered("", "- &a%d x\n"),
		"documents":              fill("", "---\n", ""),
		"brackets":               fill("a: ", "]", ""),
		"commas":                 fill("a: [", ",", ""),
		"dashes":                 fill("", "-\n", ""),
		"carriage returns":       fill("a: 1", "\r", ""),
		"bytes that are no text": fill("a: ", "\xff", ""),
		"body":                   numbered("models: {m: {model: a, body: {a: [", "%d,") + "]}}}",
	}
}

func TestHostileRosters(t *testing.T) {
	for name := range hostile(1) {
		t.Run(name, func(t *testing.T) {
			growth.LinearTo(t, config.MaxRosterBytes/4, func(n int) func() { // which takes a second already
				text := hostile(n)[name]
				return func() {
					if _, err := parseRoster(text); err == nil {
						t.Error("no problem was found")
					}
				}
			})
		})
	}
	if _, err := parseRoster(strings.Repeat("#", config.MaxRosterBytes+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestDeepRoster(t *testing.T) {
	for depth, ok := range map[int]bool{10: true, 40: false} {
		deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		_, err := parseRoster(strings.Replace(valid, "top_k: 40", "a: "+deep, 1))
		if (err == nil) != ok {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

func FuzzParseRoster(f *testing.F) {
	f.Add([]byte(valid))
	for _, text := range hostile(256) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		growth.Bounded(t, len(data), func() {
			r, err := parseRoster(string(data))
			if err != nil {
				if problems, ok := errors.AsType[config.RosterProblems](err); !ok || len(problems) == 0 {
					t.Errorf("%v is no list of problems", err)
				}
				return
			}
			for _, c := range r.Councils {
				for _, id := range slices.Concat(c.Members, c.Reviewers, c.Fallbacks) {
					if m, ok := r.Model(id); !ok || m.Member.Model == "" {
						t.Errorf("the council %q has the seat %q of no model", c.Name, id)
					}
				}
			}
		})
	})
}
