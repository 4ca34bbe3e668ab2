package daemon_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/daemon/daemontest"
	"github.com/councild/councild/internal/httpapi"
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
	if list.Councils[0].Name != "deep" || fast.Name != "fast" || !slices.Equal(fast.Members, []string{"one", "skeptic", "two"}) || fast.Chairman != "two" {
		t.Errorf("the default is not first, or fast is another: %s", data)
	}
	var models httpapi.ModelList
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
		var answer struct{ Council httpapi.ChatCouncil }
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
	if code, data := d.Call(t, "POST", "/v1/council/estimate", `{"query":"Why?","council":"fast"}`); code != 200 || !strings.Contains(string(data), `"calls":7`) {
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
	if code, data := plain.Call(t, "POST", "/v1/council", `{"query":"x","council":"fast"}`); code != 422 || !strings.Contains(string(data), "use default") {
		t.Errorf("without a roster: %d %s", code, data)
	}
}

func TestBadRosterAtStart(t *testing.T) {
	text := strings.NewReplacer("default: deep", "default: none", "fallbacks: [three]", "fallbacks: [four]").Replace(twoCouncils)
	daemontest.Setenv(t, map[string]string{"ROSTER": writeRoster(t, text), "MODELS": "a,b", "CHAIRMAN": "a"})
	_, err := daemon.LoadConfig()
	for _, want := range []string{
		"LLM_COUNCIL_ROSTER: cannot stand beside LLM_COUNCIL_MODELS, LLM_COUNCIL_CHAIRMAN: unset them",
		`LLM_COUNCIL_ROSTER: line 3: default is "none", which is no council`,
		`LLM_COUNCIL_ROSTER: line 11: fallbacks names "four", which is no model`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no line says %q:\n%v", want, err)
		}
	}
	daemontest.Setenv(t, map[string]string{"ROSTER": "/no/roster", "MODELS": "", "CHAIRMAN": ""})
	if _, err := daemon.LoadConfig(); err == nil || !strings.Contains(err.Error(), `"/no/roster" cannot be read`) {
		t.Errorf("no file: %v", err)
	}
}

// The example of the documentation has every key, and is right.
func TestRosterExample(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "", "PROVIDERS": "claude=https://api.anthropic.com/v1", "API_KEY_CLAUDE": "x", "API_KEY": "x"})
	cfg, err := daemon.LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := daemon.ShowRoster(cfg, "../../docs/roster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if shown.Default != "deep" || len(shown.Models) != 3 || len(shown.Councils) != 2 || shown.Models[1].Upstream != "claude-opus-4-6" {
		t.Errorf("got %+v", shown)
	}
	page, err := os.ReadFile("../../docs/roster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, small, _ := strings.Cut(string(page), "```yaml\n")
	small, _, _ = strings.Cut(small, "```")
	if _, err := daemon.ShowRoster(cfg, writeRoster(t, small)); err != nil {
		t.Errorf("the small example: %v", err)
	}
}
