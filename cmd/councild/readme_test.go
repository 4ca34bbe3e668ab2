package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
)

// The commands of README.md work in their order, with simulated models under the names of the default provider. The page's own lines
// are run by a shell, so that the quotes are tested too.
func TestReadme(t *testing.T) {
	readme := page(t, "README.md")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "councild"), []byte("#!/bin/sh\nCOUNCILD_TEST_MAIN=1 exec '"+self+"' \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	// block returns the code under a heading.
	block := func(heading, language string) string {
		t.Helper()
		_, section, _ := strings.Cut(readme, "\n## "+heading+"\n")
		_, code, found := strings.Cut(section, "```"+language+"\n")
		code, _, _ = strings.Cut(code, "```")
		if !found {
			t.Fatalf("README.md has no %s under %q", language, heading)
		}
		return code
	}
	_, after, _ := strings.Cut(block("Real models", "sh"), "LLM_COUNCIL_MODELS='")
	names, _, _ := strings.Cut(after, "'")
	var models []simllm.Model
	for name := range strings.SplitSeq(names, ",") {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5})
	}
	if len(models) != 3 {
		t.Fatalf("README.md has a council of %q", names)
	}
	d := startDaemon(t, models)
	// run has a shell run lines, and returns what they print.
	run := func(lines string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", lines)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "LLM_COUNCIL_BASE_URL="+d.sim.URL())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s\n%s", err, lines, out)
		}
		return string(out)
	}
	settings := regexp.MustCompile(`(?m)^councild serve\n`).ReplaceAllString(block("Real models", "sh"), "")
	said := run(settings)
	if strings.Count(said, "  ok\n") < 4 || !strings.Contains(said, "Nothing is wrong") {
		t.Errorf("councild check says %s", said)
	}
	exports := regexp.MustCompile(`(?m)^councild check.*\n`).ReplaceAllString(settings, "")
	if said := run(exports + `councild ask "Should we split our monolith?"`); !strings.Contains(said, "Simulated") {
		t.Errorf("councild ask says %s", said)
	}
	request := regexp.MustCompile(`(?s)curl -s http://127\.0\.0\.1:8080(/\S+) .*?-d '(\{.*?\})'`)
	for _, heading := range []string{"What comes back", "Clients", "What it costs"} {
		sent := request.FindStringSubmatch(block(heading, "sh"))
		if sent == nil {
			t.Fatalf("README.md has no request under %q", heading)
		}
		if resp, body := d.call(t, "POST", sent[1], sent[2]); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %d %s", sent[1], sent[2], resp.StatusCode, body)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "roster.yaml"), []byte(block("More than one council", "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := run("councild config roster check roster.yaml"); !strings.Contains(said, "Nothing is wrong: 6 models, 2 councils.") {
		t.Errorf("councild config roster check says %s", said)
	}
	limits, _, _ := strings.Cut(block("What it costs", "sh"), "\ncurl")
	run(exports + limits + "\ncouncild config >/dev/null")
	run(exports + "councild report spend --by model")
	if said := run(strings.ReplaceAll(block("The bias report", "sh"), "/tmp/", dir+"/")); !strings.Contains(said, "100 sessions") {
		t.Errorf("the report of 100 simulated sessions: %.500s", said)
	}
	d.finish(t)
}
