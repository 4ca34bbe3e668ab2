package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
)

// One shell runs the commands of README.md in their order, as a reader does. The models are simulated, under the names of
// the default provider. Left out are the commands that build the program and those that need Docker. The commands curl and
// openssl are stand-ins, because a machine may have neither.
func TestReadme(t *testing.T) {
	readme := page(t, "README.md")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"councild": "COUNCILD_TEST_MAIN=1 exec '" + self + "' \"$@\"",
		"curl":     "COUNCILD_TEST_CURL=1 exec '" + self + "' \"$@\"",
		"openssl":  "echo " + strings.Repeat("0123456789abcdef", 4),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
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
	if install := block("Try it", "sh"); !strings.HasPrefix(install, "VERSION=") || !strings.HasSuffix(install, "\n./councild demo\n") {
		t.Errorf("the first commands are %q", install)
	}
	_, after, _ := strings.Cut(block("Ask real models", "sh"), "LLM_COUNCIL_MODELS='")
	names, _, _ := strings.Cut(after, "'")
	var models []simllm.Model
	for name := range strings.SplitSeq(names, ",") {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5})
	}
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models, APIKey: "sk-or-..."})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "roster.yaml"), []byte(block("More than one council", "yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	for _, heading := range []string{"Ask real models", "Run it for a team", "Clients", "The bias report"} {
		commands.WriteString("echo '## " + heading + "'\n" + block(heading, "sh"))
	}
	commands.WriteString("echo '## Roster'\ncouncild config roster check roster.yaml\n")
	lines := strings.ReplaceAll(commands.String(), "127.0.0.1:8080", address)
	lines = strings.ReplaceAll(lines, "/tmp/", dir+"/")
	// A reader goes on when the daemon says that it listens.
	lines = strings.Replace(lines, "councild serve &\n", "councild serve &\ntrap \"kill $!; wait\" EXIT\nuntil councild healthcheck; do sleep .1; done\n", 1)
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", lines)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LLM_COUNCIL_BASE_URL="+sim.URL(), "LLM_COUNCIL_ADDR="+address)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s\n%s", err, lines, out)
	}
	for heading, want := range map[string]string{
		"Ask real models":   `(?s)Nothing is wrong.*Simulated`,
		"Run it for a team": `(?s)"status": ?"complete".*\nShould we split our monolith.*gpt-latest\n`,
		"Clients":           `"object": ?"chat.completion"`,
		"The bias report":   `100 sessions`,
		"Roster":            `Nothing is wrong: 6 models, 2 councils.`,
	} {
		_, said, _ := strings.Cut(string(out), "## "+heading+"\n")
		said, _, _ = strings.Cut(said, "\n## ")
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%s: not %q in\n%s", heading, want, said)
		}
	}
}

// curl sends the request that its arguments describe, and prints the response. It knows the options that README.md uses.
// It returns its exit code.
func curl(args []string) int {
	body := ""
	header := http.Header{}
	address := ""
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-s":
		case "-H", "-d":
			i++
			if name, value, ok := strings.Cut(args[i], ": "); ok && args[i-1] == "-H" {
				header.Set(name, value)
			} else {
				body = args[i]
			}
		default:
			address = args[i]
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode >= http.StatusBadRequest {
		fmt.Fprintln(os.Stderr, resp.Status, err)
		return 1
	}
	return 0
}
