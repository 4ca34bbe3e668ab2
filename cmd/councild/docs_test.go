package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	gotoken "go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages that are made from the code")

// page reads a file of the repository.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/settings.md and .env.example hold every setting, with its default and meaning. Run
// with -update to write them.
func TestSettingsAreDocumented(t *testing.T) {
	settings := (config.Config{}).Settings()
	var text, env strings.Builder
	text.WriteString(`# Settings

Every setting is an environment variable, read once at the start. Misspelt names and invalid values are errors, reported all at once.
` + "`councild config`" + ` shows the values in force. A secret can come from a file: add ` + "`_FILE`" + ` to its name. All names below begin with
` + "`LLM_COUNCIL_`" + `. [.env.example](../.env.example) is a file to start from. Both are made from internal/config, with
` + "`go test ./cmd/councild -run Settings -update`" + `.

| variable | default | meaning |
|---|---|---|
`)
	env.WriteString(`# Settings of councild: copy to .env, remove the # where you set something.
# councild reads the environment, not this file: set -a; . ./.env; set +a
# A shell needs single quotes around a value with ~, $ or blanks, as in LLM_COUNCIL_MODELS='~openai/gpt-latest,...'.
# docker run --env-file keeps quotes as a part of the value: write none there.
`)
	for _, s := range settings {
		text.WriteString(row(strings.TrimPrefix(s.Name, "LLM_COUNCIL_"), s))
		fmt.Fprintf(&env, "\n# %s\n#%s=%s\n", s.Meaning, s.Name, s.Default)
	}
	text.WriteString(`
` + "`councild check`" + ` and the log warn of likely mistakes. councild ignores variables that Kubernetes sets for a Service named ` + "`llm-council`" + `.

## Traces

These variables of OpenTelemetry configure [traces](metrics.md#traces); its other variables for traces also apply.

| variable of OpenTelemetry | default | meaning |
|---|---|---|
`)
	for _, s := range config.Tracing() {
		text.WriteString(row(s.Name, s))
	}
	text.WriteString(`
## Names of earlier versions

With one of these set, councild does not start, and says what to do instead.

| earlier name | what to do |
|---|---|
`)
	for _, r := range config.ReplacedNames() {
		fmt.Fprintf(&text, "| `%s` | %s |\n", r.Name, strings.ReplaceAll(r.Remedy, "LLM_COUNCIL_", ""))
	}
	for name, want := range map[string]string{"docs/settings.md": text.String(), ".env.example": env.String()} {
		if *update {
			if err := os.WriteFile(filepath.Join("../..", name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, page(t, name)); diff != "" {
			t.Errorf("%s is not what the settings say; run this test with -update: %s", name, diff)
		}
	}
}

// row returns a setting as a row of docs/settings.md.
func row(name string, s config.Setting) string {
	value := "-"
	if s.Default != "" {
		value = "`" + s.Default + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, value, s.Meaning)
}

// Every variable that a page names is a setting.
func TestPagesNameKnownVariables(t *testing.T) {
	known := map[string]bool{}
	for _, s := range (config.Config{}).Settings() {
		known[s.Name] = true
		if s.Secret {
			known[s.Name+"_FILE"] = true
		}
	}
	for _, name := range []string{
		"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "Dockerfile", "docs/bias-report.md", "docs/clients.md",
		"docs/commands.md", "docs/errors.md", "docs/faults.md", "docs/http.md", "docs/mcp.md", "docs/differences.md", "docs/metrics.md", "docs/operations.md", "docs/sessions.md", "docs/providers.md", "docs/roster.md", "docs/roster.yaml", "docs/scale.md",
		"docs/troubleshooting.md", "docs/cluster/compose.yaml", "docs/cluster/haproxy.cfg", "docs/cluster/nats.conf", "api/openapi.yaml",
	} {
		found := regexp.MustCompile(`LLM_COUNCIL_[A-Z][A-Z_]*[A-Z]`).FindAllString(page(t, name), -1)
		for _, variable := range found {
			if !known[variable] && !strings.HasPrefix(variable, "LLM_COUNCIL_API_KEY_") {
				t.Errorf("%s names %s, which is no setting", name, variable)
			}
		}
	}
}

// help returns what the binary says of a command.
func help(t *testing.T, command ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append(command, "--help")...)
	cmd.Env = append(os.Environ(), "COUNCILD_TEST_MAIN=1")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commandsBelow returns the commands that can be run below one, or all of them.
func commandsBelow(t *testing.T, path ...string) []string {
	t.Helper()
	title := "Commands:\n"
	if len(path) == 0 {
		title = "Ask and read:\n" // the first of the groups
	}
	_, listed, found := strings.Cut(help(t, path...), title)
	if !found {
		return []string{strings.Join(path, " ")}
	}
	var below []string
	for _, name := range firsts(regexp.MustCompile(`(?m)^  ([a-z-]+(?: [a-z]+)*)  `).FindAllStringSubmatch(listed, -1)) {
		below = append(below, commandsBelow(t, strings.Fields(name)...)...)
	}
	return below
}

// docs/commands.md has the commands of the binary and their flags, and the make targets that
// pages name exist.
func TestCommandsAreDocumented(t *testing.T) {
	want := commandsBelow(t)
	for _, command := range want {
		row := regexp.MustCompile("(?m)^\\| `councild " + command + "` \\|.*$").FindString(page(t, "docs/commands.md"))
		for _, flag := range firsts(regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`).FindAllStringSubmatch(help(t, strings.Fields(command)...), -1)) {
			if flag != "--help" && !regexp.MustCompile(flag+`[^a-z-]`).MatchString(row) {
				t.Errorf("docs/commands.md does not say that councild %s has %s", command, flag)
			}
		}
	}
	got := firsts(regexp.MustCompile("(?m)^\\| `councild ([a-z -]+)` \\|").FindAllStringSubmatch(page(t, "docs/commands.md"), -1))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 30 {
		t.Errorf("commands: %s", diff)
	}
	targets := firsts(regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(page(t, "Makefile"), -1))
	for _, name := range []string{"README.md", "CONTRIBUTING.md", ".ci/run", "docs/benchmarks.md", "docs/scale.md"} {
		for _, target := range firsts(regexp.MustCompile(`(?m)(?:^|\x60)make ([a-z-]+)`).FindAllStringSubmatch(page(t, name), -1)) {
			if !slices.Contains(targets, target) {
				t.Errorf("%s says make %s, which is no target", name, target)
			}
		}
	}
}

// docs/http.md has every route of the contract.
func TestRoutesAreDocumented(t *testing.T) {
	text := page(t, "docs/http.md")
	routes := firsts(regexp.MustCompile(`(?m)^  (/[^: ]*):$`).FindAllStringSubmatch(page(t, "api/openapi.yaml"), -1))
	for _, route := range routes {
		if !strings.HasPrefix(route, "/assets/") && !strings.Contains(text, " "+route+"`") {
			t.Errorf("docs/http.md does not have %s", route)
		}
	}
	if len(routes) < 20 {
		t.Errorf("found %d routes", len(routes))
	}
}

func firsts(matches [][]string) []string {
	var out []string
	for _, m := range matches {
		out = append(out, m[1])
	}
	return out
}

// anchors returns the names by which links reach the headings of a page.
func anchors(text string) []string {
	var names []string
	for _, heading := range firsts(regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1)) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// The targets of links between the pages exist, headings included.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"../../docs/*.md", "../../lab/*/*.md"} {
		found, err := filepath.Glob(more)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 7 {
		t.Fatalf("found %d pages", len(pages))
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)#?([^)]*)\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(path), m[1], err)
				continue
			}
			if m[2] == "" {
				continue
			}
			linked, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(anchors(string(linked)), m[2]) {
				t.Errorf("%s links to %s#%s, which is no heading", filepath.Base(path), m[1], m[2])
			}
		}
	}
}

// The picture of ARCHITECTURE.md has the floors that the code has, and the libraries beside their owners.
func TestFloorsAreDocumented(t *testing.T) {
	_, picture, _ := strings.Cut(page(t, "ARCHITECTURE.md"), "```\n")
	picture, _, _ = strings.Cut(picture, "```")
	floor := 0
	drawn := map[string]int{}
	libraries := map[string]string{}
	for line := range strings.Lines(picture) {
		if n, rest, ok := strings.Cut(line, "  "); ok && n != "" {
			if _, err := fmt.Sscan(n, &floor); err != nil {
				t.Fatal(err)
			}
			line = rest
		}
		columns := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
		drawn[columns[0]] = floor
		if len(columns) > 2 {
			libraries[columns[0]] = columns[2]
		}
	}
	above := 0 // floors of tests alone
	for i, names := range floors {
		product := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, forTests) })
		if len(product) == 0 {
			above++
		}
		for _, name := range product {
			if got, ok := drawn[name]; !ok || got != i-above {
				t.Errorf("ARCHITECTURE.md puts %s on floor %d (drawn: %v), it is on floor %d", name, got, ok, i-above)
			}
			delete(drawn, name)
		}
	}
	for name := range drawn {
		t.Errorf("ARCHITECTURE.md has %s, and the code has not", name)
	}
	for library, owner := range owners {
		short := filepath.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(library, ""))
		if !slices.Contains(strings.Fields(libraries[owner]), short) {
			t.Errorf("ARCHITECTURE.md does not name %s beside %s", short, owner)
		}
	}
}

// Every promise of docs/faults.md has its test, and every such test its promise.
func TestFaultsAreTested(t *testing.T) {
	var files []string
	for _, pattern := range []string{"../../*/*/*_test.go", "../../*/*/*/*_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var tested []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tested = append(tested, firsts(regexp.MustCompile(`(?m)^func TestFault(F[0-9]{2})`).FindAllStringSubmatch(string(text), -1))...)
	}
	slices.Sort(tested)
	promised := firsts(regexp.MustCompile(`(?m)^\| (F[0-9]{2}) \|`).FindAllStringSubmatch(page(t, "docs/faults.md"), -1))
	if diff := cmp.Diff(promised, slices.Compact(tested)); diff != "" || len(promised) < 30 {
		t.Error(diff)
	}
}

// figures returns the rows of a page whose first cell is a name: name and next cell.
func figures(text string) map[string]string {
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9.,]+) \\|").FindAllStringSubmatch(text, -1) {
		found[m[1]] = strings.ReplaceAll(m[2], ",", "")
	}
	return found
}

// What docs/scale.md computes follows from the figures that it says are measured and assumed.
func TestScalePage(t *testing.T) {
	text := page(t, "docs/scale.md")
	known := figures(text)
	for _, s := range (config.Config{}).Settings() {
		if s.Name == "LLM_COUNCIL_MAX_SESSIONS" && known["places"] != s.Default {
			t.Errorf("%s is %s, docs/scale.md has %q", s.Name, s.Default, known["places"])
		}
	}
	var source strings.Builder
	source.WriteString("package page\n")
	for name, figure := range known {
		_, _ = fmt.Fprintf(&source, "const %s = float64(%s)\n", name, figure)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `([^`]+)` \\| ([0-9.,]+) \\|").FindAllStringSubmatch(text, -1)
	for _, row := range rows {
		_, _ = fmt.Fprintf(&source, "const %s = %s\n", row[1], row[2])
	}
	set := gotoken.NewFileSet()
	file, err := parser.ParseFile(set, "page", source.String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	computed, err := (&types.Config{}).Check("page", set, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		value, _ := constant.Float64Val(computed.Scope().Lookup(row[1]).(*types.Const).Val())
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 2, 64), 64)
		if got, err := strconv.ParseFloat(strings.ReplaceAll(row[3], ",", ""), 64); err != nil || got != rounded {
			t.Errorf("%s is %v, docs/scale.md has %s", row[1], rounded, row[3])
		}
	}
	if len(known) < 13 || len(rows) < 10 {
		t.Errorf("found %d known and %d computed figures", len(known), len(rows))
	}
}
