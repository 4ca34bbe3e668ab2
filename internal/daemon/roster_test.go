package daemon_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/doors/openai"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// twoCouncils is a roster over the models of a tap. Two of its models are one model upstream.
const twoCouncils = `
version: 1
default: deep
models:
  one: {model: a, maker: acme, price: free}
  skeptic: {model: a, system: Look for what is wrong., price: free}
  two: {model: b, price: free}
  three: {model: c, price: free}
councils:
  fast: {members: [one, skeptic, two], chairman: two, max_total_tokens: 1000000}
  deep: {members: [one, two, three], reviewers: [one, two], fallbacks: [three]}
`

func writeRoster(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "roster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// onRoster starts a daemon with a roster over the models of a tap.
func onRoster(t *testing.T, text string, env map[string]string) (*daemontest.Daemon, string) {
	t.Helper()
	path := writeRoster(t, text)
	all := map[string]string{"BASE_URL": tap(t).url, "MODELS": "", "ROSTER": path}
	maps.Copy(all, env)
	return daemontest.Start(t, all), path
}

// A council can have a say of its own in what OpenAI's clients send.
func TestKeysForClients(t *testing.T) {
	text := strings.Replace(twoCouncils, "max_total_tokens: 1000000", "tools: ignore, side_requests: three, degraded_note: false", 1)
	d, _ := onRoster(t, text, nil)
	ask := func(model, more string) (int, openai.Chat) {
		var c openai.Chat
		code, data := d.Call(t, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,%s%s`, model, more, chatQuestion), "Councild-Side-Request", "true")
		_ = json.Unmarshal(data, &c)
		return code, c
	}
	const tools = `"tools":[{"type":"function"}],`
	fast, side := ask("council/fast", tools)
	deep, _ := ask("council", tools)
	if fast != 200 || deep != 422 {
		t.Errorf("tools: fast answers %d, deep %d", fast, deep)
	}
	if models := slices.Collect(maps.Keys(side.Council.Metadata.Usage.ByModel)); !slices.Equal(models, []string{"c"}) {
		t.Errorf("a side request of fast asked %v, want the model of three", models)
	}
	if _, side := ask("council", ""); !slices.Equal(slices.Collect(maps.Keys(side.Council.Metadata.Usage.ByModel)), []string{"a"}) {
		t.Errorf("a side request of deep asked %v, want its first member", side.Council.Metadata.Usage.ByModel)
	}
}

func TestNamedCouncils(t *testing.T) {
	d, _ := onRoster(t, twoCouncils, nil)
	s := d.Ask(t, `{"query":"Why?","council":"fast"}`)
	members := make([]string, len(s.Stage1))
	for i, a := range s.Stage1 {
		members[i] = a.Model
	}
	if diff := cmp.Diff([]string{"one", "skeptic", "two"}, members); diff != "" {
		t.Errorf("members of fast (-want +got):\n%s", diff)
	}
	if s.Stage3.Model != "two" {
		t.Errorf("the chairman of fast is %s", s.Stage3.Model)
	}
	if s.Council != "fast" || !strings.HasPrefix(s.Metadata.Versions.CouncilConfig, "review-1+fast.") {
		t.Errorf("council %s, version %s", s.Council, s.Metadata.Versions.CouncilConfig)
	}
	byDefault := d.Ask(t, anyQuestion)
	if byDefault.Council != "deep" || len(byDefault.Stage1) != 3 || len(byDefault.Stage2) != 2 {
		t.Errorf("without a name: council %s, %d members, %d reviewers", byDefault.Council, len(byDefault.Stage1), len(byDefault.Stage2))
	}
	chosen := d.Ask(t, `{"query":"Why?","models":["three","two"]}`)
	if chosen.Stage1[0].Model != "three" || chosen.Metadata.Versions.CouncilConfig == byDefault.Metadata.Versions.CouncilConfig {
		t.Errorf("with models: %s, version %s as with those of the council", chosen.Stage1[0].Model, chosen.Metadata.Versions.CouncilConfig)
	}
}

// Seats of one model at one provider do not judge each other, whatever their ids, options and the name of the provider.
func TestTwinsOfARoster(t *testing.T) {
	upstream := tap(t)
	d, _ := onRoster(t, `
version: 1
default: deep
providers:
  mine: {base_url: `+upstream.url+`}
  yours: {base_url: `+upstream.url+`}
  routed: {base_url: `+upstream.url+`, headers: {X-Route: other}}
models:
  one: {provider: mine, model: a, reasoning_effort: high, price: free}
  skeptic: {provider: yours, model: a, system: Look for what is wrong., price: free}
  other: {provider: routed, model: a, price: free}
  two: {provider: mine, model: b, price: free}
  three: {provider: mine, model: c, price: free}
councils:
  deep: {members: [one, two, skeptic, three]}
  fast: {members: [one, skeptic, two]}
  routes: {members: [one, two, other, three]}
`, nil)
	for _, tt := range []struct {
		council   string
		reviewers map[string]string
		warned    bool
	}{
		{"deep", map[string]string{"one": "three two", "two": "one skeptic three", "three": "one skeptic two"}, false},
		{"fast", map[string]string{"one": "skeptic two", "skeptic": "one two", "two": "one skeptic"}, true},
		{"routes", map[string]string{"one": "other three two", "two": "one other three", "other": "one three two", "three": "one other two"}, false},
	} {
		body := `{"query":"Why?","council":"` + tt.council + `"}`
		var estimate struct{ Calls int }
		if code, data := d.Call(t, "POST", "/v1/council/estimate", body); code != 200 || json.Unmarshal(data, &estimate) != nil {
			t.Fatalf("%s: the estimate answers %d, %s", tt.council, code, data)
		}
		s := d.Ask(t, body)
		reviewers, calls := map[string]string{}, len(s.Stage1)+1
		for _, v := range s.Stage2 {
			var shown []string
			for _, seat := range v.LabelToModel {
				shown = append(shown, seat.Model)
			}
			slices.Sort(shown)
			reviewers[v.Model] = strings.Join(shown, " ")
			calls++
		}
		if diff := cmp.Diff(tt.reviewers, reviewers); diff != "" {
			t.Errorf("%s: what the reviewers saw (-want +got):\n%s", tt.council, diff)
		}
		if estimate.Calls != calls {
			t.Errorf("%s: %d calls estimated, %d made", tt.council, estimate.Calls, calls)
		}
		warned := slices.ContainsFunc(s.Metadata.Warnings, func(w council.Warning) bool { return w.Code == council.WarnTwinsJudge })
		if warned != tt.warned {
			t.Errorf("%s: warnings %v", tt.council, s.Metadata.Warnings)
		}
	}
}

// Records keep the model as the identity, so that moving to a roster begins no new series, and say the ids beside it.
func TestRecordsOfARoster(t *testing.T) {
	d, _ := onRoster(t, twoCouncils, nil)
	s := d.Ask(t, `{"query":"Why?","council":"fast"}`)
	identity := map[string]string{"one": "a", "skeptic": "a#2", "two": "b"}
	maker := map[string]string{"one": "acme", "skeptic": "a", "two": "b"}
	records := d.Records(t)
	if len(records) != 6 {
		t.Fatalf("%d records", len(records))
	}
	for _, r := range records {
		if r.RosterIDs == nil {
			t.Fatalf("no ids in %+v", r)
		}
		want := council.ProviderPair{Reviewer: maker[r.RosterIDs.Reviewer], Candidate: maker[r.RosterIDs.Candidate]}
		switch {
		case r.ReviewerID != identity[r.RosterIDs.Reviewer] || r.ModelID != identity[r.RosterIDs.Candidate]:
			t.Errorf("%s judges %s as %s and %s", r.ReviewerID, r.ModelID, r.RosterIDs.Reviewer, r.RosterIDs.Candidate)
		case r.Provider != want:
			t.Errorf("makers %+v, want %+v", r.Provider, want)
		case r.CouncilConfig != s.Metadata.Versions.CouncilConfig:
			t.Errorf("version %s, the session says %s", r.CouncilConfig, s.Metadata.Versions.CouncilConfig)
		}
	}
	plain := onTap(t, tap(t), "", "")
	plain.Ask(t, anyQuestion)
	for _, r := range plain.Records(t) {
		if r.RosterIDs != nil || r.CouncilConfig != "review-1" {
			t.Errorf("without a roster: %+v in %s", r.RosterIDs, r.CouncilConfig)
		}
	}
}

func TestCouncilsOfEveryDoor(t *testing.T) {
	d, _ := onRoster(t, twoCouncils, nil)
	var list httpapi.CouncilList
	_, data := d.Call(t, "GET", "/v1/councils", "")
	if err := json.Unmarshal(data, &list); err != nil || len(list.Councils) != 2 {
		t.Fatalf("%s, %v", data, err)
	}
	fast := list.Councils[1]
	if list.Councils[0].Name != "deep" || fast.Name != "fast" ||
		!slices.Equal(fast.Members, []string{"one", "skeptic", "two"}) || fast.Chairman != "two" {
		t.Errorf("the default is not first, or fast is another: %s", data)
	}
	var models openai.ModelList
	_, data = d.Call(t, "GET", "/v1/models", "")
	if err := json.Unmarshal(data, &models); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, card := range models.Data {
		ids = append(ids, card.ID)
	}
	if diff := cmp.Diff([]string{"council", "council/deep", "council/fast", "council/one", "council/two", "council/three"}, ids); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	for _, door := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"council/fast","messages":[{"role":"user","content":"Why?"}]}`},
		{"/v1/responses", `{"model":"council/fast","input":"Why?"}`},
	} {
		code, data := d.Call(t, "POST", door.path, door.body)
		var answer struct{ Council openai.ChatCouncil }
		if err := json.Unmarshal(data, &answer); err != nil || code != 200 {
			t.Fatalf("%s: %d %s, %v", door.path, code, data, err)
		}
		if _, data = d.Call(t, "GET", "/v1/council/"+answer.Council.SessionID, ""); !strings.Contains(string(data), `"council":"fast"`) {
			t.Errorf("%s asked another council: %.300s", door.path, data)
		}
		// The question can be asked again, of the same council.
		var again council.Request
		_, data = d.Call(t, "GET", "/v1/council/"+answer.Council.SessionID+"/request", "")
		if err := json.Unmarshal(data, &again); err != nil || again.Council != "fast" || again.Models != nil {
			t.Errorf("%s: asking again is %s, %v", door.path, data, err)
		}
		if repeated := d.Ask(t, string(data)); repeated.Council != "fast" || repeated.Stage3.Model != "two" {
			t.Errorf("%s: asked again, %s answers with %s", door.path, repeated.Council, repeated.Stage3.Model)
		}
	}
	code, data := d.Call(t, "POST", "/v1/council/estimate", `{"query":"Why?","council":"fast"}`)
	if code != 200 || !strings.Contains(string(data), `"calls":7`) {
		t.Errorf("the estimate of fast: %d %s", code, data)
	}
	if code, data := d.Call(t, "GET", "/v1/spend?by=council", ""); code != 200 || !strings.Contains(string(data), `"fast"`) {
		t.Errorf("spend by council: %d %s", code, data)
	}
}

func TestCouncilIsRefused(t *testing.T) {
	d, _ := onRoster(t, twoCouncils, nil)
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"query":"x","council":"slow"}`, 422, "use deep, fast"},
		{`{"query":"x","council":"slow","order":"none"}`, 422, "is not an order"},
		{`{"query":"x","council":"fast","models":["one","two"]}`, 422, "give one of them"},
		{`{"query":"x","models":["one","skeptic"]}`, 403, `\"skeptic\" is not a model`},
		{`{"query":"x","council":"fast","chairman":"three"}`, 403, `\"three\" is not a model`},
		{`{"query":"x","models":["a","b"]}`, 403, `\"a\" is not a model`},
	} {
		if code, data := d.Call(t, "POST", "/v1/council", c.body); code != c.code || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %d %s, want %d and %s", c.body, code, data, c.code, c.want)
		}
	}
	plain := onTap(t, tap(t), "", "")
	code, data := plain.Call(t, "POST", "/v1/council", `{"query":"x","council":"fast"}`)
	if code != 422 || !strings.Contains(string(data), "use default") {
		t.Errorf("without a roster: %d %s", code, data)
	}
}

func TestBadRosterAtStart(t *testing.T) {
	text := strings.NewReplacer("default: deep", "default: none", "fallbacks: [three]", "fallbacks: [four]").Replace(twoCouncils)
	daemontest.Setenv(t, map[string]string{"ROSTER": writeRoster(t, text), "MODELS": "a,b", "CHAIRMAN": "a"})
	_, err := daemon.LoadConfig(simllm.Default())
	for _, want := range []string{
		"LLM_COUNCIL_ROSTER: cannot be set together with LLM_COUNCIL_MODELS, LLM_COUNCIL_CHAIRMAN: unset them",
		`LLM_COUNCIL_ROSTER: line 3: default is "none", which is not a council`,
		`LLM_COUNCIL_ROSTER: line 11: fallbacks names "four", which is not a model`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no line says %q:\n%v", want, err)
		}
	}
	daemontest.Setenv(t, map[string]string{"ROSTER": "/no/roster", "MODELS": "", "CHAIRMAN": ""})
	if _, err := daemon.LoadConfig(simllm.Default()); err == nil || !strings.Contains(err.Error(), `"/no/roster" cannot be read`) {
		t.Errorf("no file: %v", err)
	}
}

// The example of the documentation has every key, and is right.
func TestRosterExample(t *testing.T) {
	t.Setenv("AZURE_KEY", "x")
	daemontest.Setenv(t, map[string]string{
		"MODELS": "", "PROVIDERS": "claude=https://api.anthropic.com/v1",
		"API_KEY_CLAUDE": "x", "API_KEY": "x",
	})
	cfg, err := daemon.LoadConfig(simllm.Default())
	if err != nil {
		t.Fatal(err)
	}
	shown, err := daemon.ShowRoster(cfg, "../../docs/roster.yaml", simllm.Default())
	if err != nil {
		t.Fatal(err)
	}
	if shown.Default != "deep" || len(shown.Models) != 3 || len(shown.Councils) != 2 || shown.Models[1].Upstream != "claude-opus-5-5" {
		t.Errorf("got %+v", shown)
	}
	page, err := os.ReadFile("../../docs/roster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, small, _ := strings.Cut(string(page), "```yaml\n")
	small, _, _ = strings.Cut(small, "```")
	if _, err := daemon.ShowRoster(cfg, writeRoster(t, small), simllm.Default()); err != nil {
		t.Errorf("the small example: %v", err)
	}
}

// secrets are tokens of the roster below, by their names.
var secrets = map[string]string{
	"ci": "cicicicicicicici", "team": "teamteamteamteam",
	"reader": "readerreaderread", "boss": "bossbossbossboss",
}

// guarded is a roster with tokens, an audience and classes of data.
func guarded() string {
	sum := func(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secrets[name]))) }
	return `
version: 1
default: deep
classes: [public, internal, secret]
models:
  one: {model: a, clearance: secret, price: free}
  two: {model: b, clearance: internal, price: free}
  three: {model: c, price: free}
councils:
  fast: {members: [one, three], data_class: public, audience: [ci]}
  deep: {members: [one, two], data_class: internal}
  vault: {members: [one, one], fallbacks: [two]}
tokens:
  ci: {sha256: ` + sum("ci") + `, may: [ask], rate_limit: 2, max_cost_usd_per_day: 0.000001}
  team: {sha256: ` + sum("team") + `}
  reader: {sha256: ` + sum("reader") + `, may: [report]}
  boss: {sha256: ` + sum("boss") + `, may: [ask, admin]}
`
}

func bearer(name string) string { return "Bearer " + secrets[name] }

func TestTokensOfTheRoster(t *testing.T) {
	d, _ := onRoster(t, guarded(), map[string]string{"API_TOKENS": "old:0123456789abcdef"})
	const ask, report = `{"query":"x"}`, ""
	const compared = `{"answers":[{"id":"a","text":"x"},{"id":"b","text":"y"}]}`
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"team", "POST", "/v1/council", ask, 200, `"deep"`},
		{"team", "GET", "/v1/bias-report", report, 200, ""},
		{"ci", "GET", "/v1/bias-report", report, 403, "add report to its may"},
		{"ci", "GET", "/v1/leaderboard", report, 403, "add report to its may"},
		{"reader", "GET", "/v1/leaderboard", report, 200, ""},
		{"reader", "POST", "/v1/council", ask, 403, "the token reader has no right to ask: add ask to its may"},
		{"reader", "POST", "/v1/council/estimate", ask, 403, "add ask"},
		{"reader", "POST", "/v1/chat/completions", `{"model":"council","messages":[]}`, 403, "add ask"},
		{"reader", "POST", "/v1/responses", `{"model":"council","input":"x"}`, 403, "add ask"},
		{"reader", "POST", "/v1/decisions", fmt.Sprintf(decided, "council"), 403, "add ask"},
		{"reader", "POST", "/v1/disagreement", compared, 403, "add ask"},
		{"ci", "POST", "/v1/disagreement", compared, 200, `"baseline_disagreement"`}, // it costs nothing, and counts against no limit
		{"nobody", "GET", "/v1/councils", "", 401, "or one that the roster has"},
	} {
		code, data := d.Call(t, c.method, c.path, c.body, "Authorization", bearer(c.name))
		if code != c.code || !strings.Contains(string(data), c.want) {
			t.Errorf("%s, %s %s %s: %d %.300s, want %d and %q", c.name, c.method, c.path, c.body, code, data, c.code, c.want)
		}
	}
	if code, _ := d.Call(t, "POST", "/v1/council", ask, "Authorization", "Bearer 0123456789abcdef"); code != 200 {
		t.Errorf("a token of the settings: %d", code)
	}
	for name, want := range map[string][]string{"ci": {"deep", "fast", "vault"}, "team": {"deep", "vault"}} {
		var list httpapi.CouncilList
		_, data := d.Call(t, "GET", "/v1/councils", "", "Authorization", bearer(name))
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, card := range list.Councils {
			names = append(names, card.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("councils of %s (-want +got):\n%s", name, diff)
		}
	}
	if _, data := d.Call(t, "GET", "/v1/models", "", "Authorization", bearer("team")); strings.Contains(string(data), "council/fast") {
		t.Errorf("models of team: %s", data)
	}
}

// A token learns only of councils that it may ask: at every door, another one is as one that is not there.
func TestHiddenCouncils(t *testing.T) {
	hidden := strings.NewReplacer("default: deep", "default: fast", "vault: {members: [one, one]", "vault: {members: [one, one], audience: [ci]")
	for name, text := range map[string]string{"another is the default": guarded(), "it is the default": hidden.Replace(guarded())} {
		t.Run(name, func(t *testing.T) {
			d, _ := onRoster(t, text, nil)
			const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"council","arguments":{"question":"x","council":"NAME"}}}`
			for _, c := range []struct{ method, path, body string }{
				{"POST", "/v1/council", `{"query":"x","council":"NAME"}`},
				{"POST", "/v1/council", `{"query":"","council":"NAME","order":"x","models":["one"]}`},
				{"POST", "/v1/council", `{"query":"x","council":"NAME","data_class":"secret"}`},
				{"POST", "/v1/council", `{"query":"x","models":["NAME","one"]}`},
				{"POST", "/v1/council/estimate", `{"query":"x","council":"NAME"}`},
				{"POST", "/v1/chat/completions", `{"model":"council/NAME","messages":[{"role":"user","content":"x"}]}`},
				{"POST", "/v1/chat/completions", `{"model":"council/NAME,one","messages":[{"role":"user","content":"x"}]}`},
				{"POST", "/v1/chat/completions", `{"model":"council/NAME","stream":true,"messages":[]}`},
				{"POST", "/v1/responses", `{"model":"council/NAME","input":"x"}`},
				{"POST", "/v1/decisions", fmt.Sprintf(decided, "council/NAME")},
				{"POST", "/v1/decisions", `{"model":"council/NAME"}`},
				{"GET", "/v1/models/council/NAME", ""},
				{"GET", "/v1/models", ""},
				{"GET", "/v1/councils", ""},
				{"GET", "/v1/spend?by=council", ""},
				{"POST", "/mcp", call},
				{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
			} {
				var said [2]string
				for i, name := range []string{"fast", "zzzz"} {
					replaced := strings.NewReplacer("NAME", name)
					code, data := d.Call(t, c.method, replaced.Replace(c.path), replaced.Replace(c.body),
						"Authorization", bearer("team"), "Accept", "application/json, text/event-stream")
					id := regexp.MustCompile(`"request_id": ?"[^"]*"`).ReplaceAllString(string(data), "")
					said[i] = fmt.Sprintf("%d %s", code, strings.ReplaceAll(id, name, "NAME"))
				}
				if said[0] != said[1] {
					t.Errorf("%s %s %s\nof a hidden council: %s\nof none: %s", c.method, c.path, c.body, said[0], said[1])
				}
				if c.method == "POST" && c.path != "/mcp" && !strings.HasPrefix(said[0], "4") {
					t.Errorf("%s %s %s: %s", c.method, c.path, c.body, said[0])
				}
				if strings.Contains(said[1], "fast") || strings.Contains(said[1], "three") {
					t.Errorf("%s %s %s names what is hidden: %s", c.method, c.path, c.body, said[1])
				}
			}
		})
	}
	d, _ := onRoster(t, hidden.Replace(guarded()), nil)
	for body, want := range map[string]string{
		`{"query":"x"}`:                          "use deep",
		`{"query":"x","models":["one","three"]}`: "use deep",
	} {
		if code, data := d.Call(t, "POST", "/v1/council", body, "Authorization", bearer("team")); code != 422 || !strings.Contains(string(data), want) {
			t.Errorf("%s where the default council is hidden: %d %s", body, code, data)
		}
	}
}

func TestLimitsOfTokensOfTheRoster(t *testing.T) {
	d, _ := onRoster(t, strings.ReplaceAll(guarded(), "price: free", "price: {as_of: 2026-11-20, input: 1, output: 1}"), nil)
	ask := func(name string) (int, string) {
		code, data := d.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", bearer(name))
		return code, string(data)
	}
	if code, data := ask("ci"); code != 200 {
		t.Fatalf("the first: %d %s", code, data)
	}
	if code, data := ask("ci"); code != 429 || !strings.Contains(data, "over_budget") || !strings.Contains(data, "0.000001") {
		t.Errorf("after the money of the day: %d %s", code, data)
	}
	if code, data := ask("ci"); code != 429 || !strings.Contains(data, "in a minute") {
		t.Errorf("after two in a minute: %d %s", code, data)
	}
	for range 3 {
		if code, data := ask("team"); code != 200 {
			t.Errorf("a token without limits: %d %s", code, data)
		}
	}
	for name, sees := range map[string]bool{"team": false, "boss": true} {
		if _, data := d.Call(t, "GET", "/v1/spend?by=token", "", "Authorization", bearer(name)); strings.Contains(string(data), `"ci"`) != sees {
			t.Errorf("%s sees what ci spent: %v, want %v\n%s", name, !sees, sees, data)
		}
	}
}

// Prices of the roster go before those of PRICES, and the provider tells none.
func TestPricesOfTheRoster(t *testing.T) {
	text := "version: 1\nmodels:\n  one: {model: a, price: {as_of: 2026-11-20, input: 1000, output: 1000}}\n  two: {model: b}\n" +
		"councils: {main: {members: [one, two]}}\n"
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "", "ROSTER": writeRoster(t, text), "PRICES": "a=1/1,b=1/1",
	})
	usage := d.Ask(t, anyQuestion).Metadata.Usage.ByModel
	for model, price := range map[string]float64{"a": 1000, "b": 1} {
		u := usage[model]
		if u.CostUSD == nil || u.InputTokens == nil || u.OutputTokens == nil {
			t.Fatalf("%s: %+v", model, u)
		}
		if want := float64(*u.InputTokens+*u.OutputTokens) * price / 1e6; *u.CostUSD < want*0.999 || *u.CostUSD > want*1.001 {
			t.Errorf("%s costs %v, want %v", model, *u.CostUSD, want)
		}
	}
}

func TestClearance(t *testing.T) {
	p := tap(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": p.url, "MODELS": "", "ROSTER": writeRoster(t, guarded())})
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"query":"x","data_class":"secret"}`, 403, "which these seats may not see: two"},
		{`{"query":"x","council":"fast","data_class":"internal"}`, 403, "three may see data up to public"},
		{`{"query":"x","council":"vault"}`, 403, "two may see data up to internal"}, // a fallback; the highest class by default
		{`{"query":"x","models":["one","two"],"data_class":"secret"}`, 403, "two may see"},
		{`{"query":"x","data_class":"top"}`, 422, "use public, internal, secret"},
	} {
		name := "boss"
		if strings.Contains(c.body, "fast") {
			name = "ci" // its audience
		}
		code, data := d.Call(t, "POST", "/v1/council", c.body, "Authorization", bearer(name))
		if code != c.code || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %d %s, want %d and %q", c.body, code, data, c.code, c.want)
		}
	}
	p.mu.Lock()
	called := len(p.bodies)
	p.mu.Unlock()
	if called != 0 {
		t.Errorf("%d calls were made", called)
	}
	for _, body := range []string{`{"query":"x"}`, `{"query":"x","council":"vault","data_class":"internal"}`} {
		if code, data := d.Call(t, "POST", "/v1/council", body, "Authorization", bearer("boss")); code != 200 {
			t.Errorf("%s: %d %s", body, code, data)
		}
	}
	plain := onTap(t, tap(t), "", "")
	code, data := plain.Call(t, "POST", "/v1/council", `{"query":"x","data_class":"public"}`)
	if code != 422 || !strings.Contains(string(data), "no data classes") {
		t.Errorf("without classes: %d %s", code, data)
	}
}

// The model that embeds answers sees those that the roster clears it for, and no others.
func TestClearanceOfTheEmbeddingModel(t *testing.T) {
	for model, want := range map[string]string{
		"a": "", "c": "the roster does not clear c for internal data", "d": "the roster does not clear d for internal data",
	} {
		p := tap(t)
		d := daemontest.Start(t, map[string]string{
			"BASE_URL": p.url, "MODELS": "", "ROSTER": writeRoster(t, guarded()), "EMBEDDING_MODEL": model,
		})
		code, data := d.Call(t, "POST", "/v1/council", anyQuestion, "Authorization", bearer("boss"))
		var s council.Session
		if err := json.Unmarshal(data, &s); code != 200 || err != nil {
			t.Fatalf("%d %s", code, data)
		}
		embedded := slices.ContainsFunc(p.bodies, func(body map[string]any) bool { return body["input"] != nil })
		if embedded != (want == "") {
			t.Errorf("%s embeds the answers: %v", model, embedded)
		}
		var said []string
		for _, w := range s.Metadata.Warnings {
			if w.Code == council.WarnNoStyle {
				said = append(said, w.Message)
			}
		}
		if want == "" && said != nil || !strings.HasSuffix(strings.Join(said, "; "), want) {
			t.Errorf("%s: the session says %q", model, said)
		}
	}
}

// A reload under 200 sessions that run: each keeps the roster with which it began, and none mixes two.
func TestReloadUnderSessions(t *testing.T) {
	const sessions = 200
	arrived, release := make(chan struct{}, 4*sessions), make(chan struct{})
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Reply: func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Question {
				arrived <- struct{}{}
				<-release
			}
			return "", false
		}})
	}
	sim := daemontest.Provider(t, models...)
	var let sync.Once
	t.Cleanup(func() { let.Do(func() { close(release) }) })
	roster := func(first, second string) string {
		return fmt.Sprintf("version: 1\nmodels:\n  one: {%s}\n  two: {%s}\ncouncils:\n  main: {members: [one, two]}\n", first, second)
	}
	path := writeRoster(t, roster("model: a", "model: b"))
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": sim.URL(), "MODELS": "", "ROSTER": path, "MAX_SESSIONS": "400",
	})
	type outcome struct {
		id      string
		version string
	}
	outcomes := make(chan outcome, 2*sessions)
	begin := func() {
		for range sessions {
			go func() {
				var s council.Session
				_, data, err := d.Send(t.Context(), "POST", "/v1/council", `{"query":"x"}`)
				if err == nil {
					err = json.Unmarshal(data, &s)
				}
				if err != nil {
					t.Errorf("%.300s: %v", data, err)
				}
				outcomes <- outcome{s.ID, s.Metadata.Versions.CouncilConfig}
			}()
		}
		for range 2 * sessions {
			<-arrived // all of them run
		}
	}
	begin()
	// Another provider too, so that calls of running sessions need the client of the roster before.
	other := roster("provider: box, model: c", "provider: box, model: d") + "providers: {box: {base_url: " + sim.URL() + "}}\n"
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Reload(t.Context())
	begin()
	let.Do(func() { close(release) })
	version := map[string]string{}
	count := map[string]int{}
	for range 2 * sessions {
		o := <-outcomes
		version[o.id] = o.version
		count[o.version]++
	}
	if len(count) != 2 {
		t.Fatalf("versions and their sessions: %v", count)
	}
	for v, n := range count {
		if n != sessions {
			t.Errorf("%d sessions of %s, want %d", n, v, sessions)
		}
	}
	seats := map[string]map[string]bool{} // the models in the records, by version
	for _, r := range d.Records(t) {
		if version[r.SessionID] != r.CouncilConfig {
			t.Errorf("the session %s of %s has a record of %s", r.SessionID, version[r.SessionID], r.CouncilConfig)
		}
		if seats[r.CouncilConfig] == nil {
			seats[r.CouncilConfig] = map[string]bool{}
		}
		seats[r.CouncilConfig][r.ReviewerID+" "+r.ModelID] = true
	}
	var pairs []string
	for _, of := range seats {
		pairs = append(pairs, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
	}
	slices.Sort(pairs)
	if diff := cmp.Diff([]string{"a b, b a", "box:c box:d, box:d box:c"}, pairs); diff != "" {
		t.Errorf("who judged whom, by version (-want +got):\n%s", diff)
	}
}

func TestReload(t *testing.T) {
	d, path := onRoster(t, guarded(), nil)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Reload(t.Context())
	}
	ready := func() string {
		code, data := d.Call(t, "GET", "/readyz", "")
		if code != 200 {
			t.Errorf("/readyz is %d: %s", code, data)
		}
		return string(data)
	}
	gauge := func(want string) {
		t.Helper()
		if _, data := d.Call(t, "GET", "/metrics", ""); !strings.Contains(string(data), "\ncouncild_roster_reload_ok "+want+"\n") {
			t.Errorf("the gauge is not %s", want)
		}
	}
	asks := func(name, body string) int {
		code, _ := d.Call(t, "POST", "/v1/council", body, "Authorization", bearer(name))
		return code
	}
	gauge("1")
	write(strings.NewReplacer("default: deep", "default: none", "members: [one, one]", "members: [one]").Replace(guarded()))
	if body := ready(); !strings.Contains(body, `"roster_invalid"`) || !strings.Contains(body, `"ready":true`) {
		t.Errorf("after a bad roster: %s", body)
	}
	gauge("0")
	for _, problem := range []string{`default is \"none\"`, "members names one model"} {
		if !strings.Contains(d.Log.String(), problem) {
			t.Errorf("the log does not say %s", problem)
		}
	}
	if code := asks("team", `{"query":"x"}`); code != 200 {
		t.Errorf("the roster before is not in force: %d", code)
	}
	// Another roster: a council and a token are gone, and another council is the default.
	changed := strings.NewReplacer("default: deep", "default: fast", "audience: [ci]", "audience: [team]").Replace(guarded())
	before, after, _ := strings.Cut(changed, "  vault:")
	_, after, _ = strings.Cut(after, "\n")
	changed = before + after
	before, after, _ = strings.Cut(changed, "  ci:")
	_, after, _ = strings.Cut(after, "\n")
	write(before + strings.ReplaceAll(after, "{sha256: "+fmt.Sprintf("%x", sha256.Sum256([]byte(secrets["team"])))+"}",
		"{sha256: "+fmt.Sprintf("%x", sha256.Sum256([]byte(secrets["team"])))+", max_cost_usd_per_day: 3}"))
	if body := ready(); strings.Contains(body, "roster_invalid") {
		t.Errorf("after a good roster: %s\n%s", body, d.Log)
	}
	gauge("1")
	if code := asks("ci", `{"query":"x"}`); code != 401 {
		t.Errorf("a token that is gone: %d", code)
	}
	if code := asks("team", `{"query":"x","council":"vault"}`); code != 422 {
		t.Errorf("a council that is gone: %d", code)
	}
	_, data := d.Call(t, "POST", "/v1/council", `{"query":"x"}`, "Authorization", bearer("team"))
	if !strings.Contains(string(data), `"council":"fast"`) {
		t.Errorf("the new default is not asked: %.200s", data)
	}
}

// Headers, queries and keys of a provider of the roster reach it, and no message shows them.
func TestProviderOfTheRoster(t *testing.T) {
	sim := daemontest.Provider(t, simllm.Model{Name: "a"})
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[strings.Join([]string{
			r.Header.Get("Api-Key"), r.Header.Get("X-Team"), r.URL.Query().Get("api-version"), r.Header.Get("Authorization"),
		}, " ")] = true
		mu.Unlock()
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	secret := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(secret, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROSTER_TEST_KEY", "from-a-variable")
	text := fmt.Sprintf(`
version: 1
models:
  one: {provider: box, model: a, system: Be a pirate., body: {top_k: 40}}
councils:
  main: {members: [one, one]}
providers:
  box:
    base_url: %s/v1
    headers: {api-key: {file: %q}, x-team: council}
    query: {api-version: preview}
    key_variable: ROSTER_TEST_KEY
`, server.URL, secret)
	d, path := onRoster(t, text, nil)
	asks := func(want string) {
		t.Helper()
		d.Ask(t, anyQuestion)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[string]bool{want: true}, seen); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		clear(seen)
	}
	asks("from-a-file council preview Bearer from-a-variable")
	// A new key, in a roster that says the same, counts from the reload on.
	if err := os.WriteFile(secret, []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Reload(t.Context())
	asks("another council preview Bearer from-a-variable")
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROSTER_TEST_KEY", "")
	_, err := daemon.ShowRoster(d.Config, path, simllm.Default())
	for _, want := range []string{
		"the header api-key of the provider box: ",
		"the key of the provider box: the variable ROSTER_TEST_KEY is not set",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no line says %q:\n%v", want, err)
		}
	}
}

// Under hard limits without a limit of replies, a model that thinks first has more room than another one.
func TestRoomToThink(t *testing.T) {
	p := tap(t)
	const text = `
version: 1
models:
  one: {model: a, price: free, reasoning_effort: high}
  two: {model: b, price: free}
  three: {model: c, price: free, reasoning_effort: none}
  four: {model: d, price: free, reasoning_effort: low, max_output_tokens: 900}
councils: {main: {members: [one, two, three, four]}}
`
	for _, env := range []map[string]string{{"COST_LIMITS": "hard"}, {"COST_LIMITS": "hard", "MAX_OUTPUT_TOKENS": "700"}, {}} {
		p.mu.Lock()
		p.bodies = nil
		p.mu.Unlock()
		all := map[string]string{"BASE_URL": p.url, "MODELS": "", "ROSTER": writeRoster(t, text)}
		maps.Copy(all, env)
		daemontest.Start(t, all).Ask(t, anyQuestion)
		want := map[any]any{"a": 16384.0, "b": 4096.0, "c": 4096.0, "d": 900.0}
		switch {
		case env["COST_LIMITS"] == "":
			want = map[any]any{"a": nil, "b": nil, "c": nil, "d": 900.0}
		case env["MAX_OUTPUT_TOKENS"] != "":
			want = map[any]any{"a": 700.0, "b": 700.0, "c": 700.0, "d": 900.0}
		}
		p.mu.Lock()
		for _, body := range p.bodies {
			got := body["max_tokens"]
			if named, ok := body["max_completion_tokens"]; ok {
				got = named
			}
			if got != want[body["model"]] {
				t.Errorf("%v: a reply of %v may have %v tokens, want %v", env, body["model"], got, want[body["model"]])
			}
		}
		p.mu.Unlock()
	}
}

// The options of a model are in all its requests, but its persona stands before its answers only.
func TestOptionsOfTheRoster(t *testing.T) {
	p := tap(t)
	text := `
version: 1
models:
  one: {model: a, system: Look for what is wrong., reasoning_effort: high, max_output_tokens: 5000, body: {top_k: 40}}
  two: {model: b}
councils: {main: {members: [one, two]}}
`
	daemontest.Start(t, map[string]string{"BASE_URL": p.url, "MODELS": "", "ROSTER": writeRoster(t, text)}).Ask(t, anyQuestion)
	p.mu.Lock()
	defer p.mu.Unlock()
	count := map[simllm.TaskKind]int{}
	for i, body := range p.bodies {
		task := p.seen[i].task
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		has := func(what string) bool { return strings.Contains(string(encoded), what) }
		mine := body["model"] == "a"
		if mine {
			count[task]++
		}
		if has("Look for what is wrong.") != (mine && task == simllm.Question) {
			t.Errorf("the persona, in a %v of %v: %.300s", task, body["model"], encoded)
		}
		for _, option := range []string{`"reasoning_effort":"high"`, `5000`, `"top_k":40`} {
			if has(option) != mine {
				t.Errorf("%s in a %v of %v: %v", option, task, body["model"], !mine)
			}
		}
	}
	if count[simllm.Question] != 1 || count[simllm.Review] != 1 || count[simllm.Synthesis] != 1 {
		t.Errorf("requests to a: %v", count)
	}
}
