package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// script runs a script of the action in a directory, and returns its output and its exit code.
func script(t *testing.T, dir, name string, env ...string) (output string, code int) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../gate", name))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	text, _ := cmd.CombinedOutput() // The exit code says whether it failed.
	return string(text), cmd.ProcessState.ExitCode()
}

// changedRepository returns a repository with a change, and the commit before the change. The change also tries to hide
// itself: it calls its files binary, and accepts all findings.
func changedRepository(t *testing.T) (dir, base string) {
	t.Helper()
	dir = t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("pay.go", "package pay\n\nvar old = 1\n")
	write("accepted.txt", "# none\n")
	git("add", ".")
	git("commit", "-qm", "before")
	base = git("rev-parse", "HEAD")
	write("pay.go", "package pay\n\nvar first = 1\nvar second = first * 2\n")
	write("accepted.txt", "a fingerprint without a reason\n")
	write(".gitattributes", "*.go binary\n")
	git("add", ".")
	git("commit", "-qm", "after")
	return dir, base
}

// The action reviews the change of a pull request and says what the command says. A change cannot hide itself.
func TestGateAction(t *testing.T) {
	for _, name := range []string{"git", "jq", "bash", "od"} {
		testkit.Program(t, name)
	}
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c"} {
		models = append(models, gatesim.Eager(name))
	}
	const token = "a-token-of-sixteen-and-more"
	serve := func(names string) *daemontest.Daemon {
		return daemontest.Start(t, map[string]string{
			"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": names, "DATA_DIR": "off", "API_TOKENS": "ci:" + token,
		})
	}
	d := serve("a,b,c")
	two := serve("a,b")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	repository, base := changedRepository(t)
	for name, tt := range map[string]struct {
		env     []string
		outputs []string
		log     string // in the output of the script
		code    int
	}{
		"a finding blocks": {
			[]string{"FAIL_ON=blocked", "IGNORE=accepted.txt"}, []string{"verdict=blocked", "code=3", "sarif="}, "::error file=pay.go,", 0,
		},
		"nothing fails the job": {nil, []string{"verdict=blocked", "code=0"}, "::error file=pay.go,", 0},
		"a fork":                {[]string{"LLM_COUNCIL_API_TOKENS=", "FAIL_ON=undecided, blocked"}, []string{"verdict=undecided", "code=3", "shown=0"}, "", 0},
		"two makers":            {[]string{"SERVER=" + two.URL()}, []string{"verdict=undecided", "code=0"}, "", 0},
		"no change":             {[]string{"BASE=HEAD", "FAIL_ON=blocked"}, []string{"verdict=pass", "code=0"}, "", 0},
		"no such commit":        {[]string{"BASE=0123456789"}, nil, "check out with fetch-depth: 0", 1},
		"no such council":       {[]string{"COUNCIL=none"}, nil, "--council", 2},
	} {
		t.Run(name, func(t *testing.T) {
			runner := t.TempDir()
			event := filepath.Join(runner, "event.json")
			if err := os.WriteFile(event, []byte(`{"pull_request":{"title":"Pay more","body":"It is `+"`x`"+` $(y)"}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			env := []string{
				"COUNCILD_TEST_MAIN=1", "BINARY=" + self, "SERVER=" + d.URL(), "LLM_COUNCIL_API_TOKENS=" + token, "BASE=" + base,
				"COUNCIL=", "FAIL_ON=", "MAX_COST_USD=", "IGNORE=", "RUNNER_TEMP=" + runner, "GITHUB_EVENT_PATH=" + event,
				"GITHUB_OUTPUT=" + filepath.Join(runner, "output"), "GITHUB_STEP_SUMMARY=" + filepath.Join(runner, "summary"),
			}
			log, code := script(t, repository, "review.sh", append(env, tt.env...)...)
			outputs, _ := os.ReadFile(filepath.Join(runner, "output")) // missing after an error
			for _, want := range tt.outputs {
				if !strings.Contains("\n"+string(outputs), "\n"+want) {
					t.Errorf("no %s: %s%s", want, outputs, log)
				}
			}
			if strings.Contains(string(outputs), "verdict=undecided") && strings.Contains(string(outputs), "sarif=") {
				t.Errorf("code scanning would close the alerts of earlier reviews: %s", outputs)
			}
			if code != tt.code || !strings.Contains(log, tt.log) || code != 0 && len(outputs) > 0 {
				t.Errorf("%d %s%s", code, outputs, log)
			}
			if summary, _ := os.ReadFile(filepath.Join(runner, "summary")); (len(summary) > 0) != (code == 0) {
				t.Errorf("the summary is %s", summary)
			}
		})
	}
}

// The report stands in one comment. It is edited in place, and none is made if there is nothing to show. The comments of
// people stay as they are, even with the mark of the gate.
func TestGateComment(t *testing.T) {
	for _, name := range []string{"jq", "curl", "bash"} {
		testkit.Program(t, name)
	}
	report := filepath.Join(t.TempDir(), "report.md")
	if err := os.WriteFile(report, []byte("**councild gate: blocked**\n\n\"x\" `y`\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	comment := func(id int, kind, body string) string {
		return fmt.Sprintf(`{"id":%d,"user":{"type":%q},"body":%q}`, id, kind, body)
	}
	const mark = "<!-- councild gate -->\n"
	for name, tt := range map[string]struct{ comments, shown, want string }{
		"nothing to show":         {"", "0", ""},
		"the first comment":       {comment(1, "User", mark+"mine"), "2", "POST /repos/o/r/issues/7/comments"},
		"another":                 {comment(1, "Bot", "tests passed") + "," + comment(5, "Bot", mark+"old"), "2", "PATCH /repos/o/r/issues/comments/5"},
		"nothing to show anymore": {comment(5, "Bot", mark+"old"), "0", "PATCH /repos/o/r/issues/comments/5"},
	} {
		t.Run(name, func(t *testing.T) {
			got, text := "", ""
			github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("authorization %q", r.Header.Get("Authorization"))
				}
				if r.Method == http.MethodGet {
					fmt.Fprintf(w, "[%s]", tt.comments)
					return
				}
				var body struct{ Body string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				got += r.Method + " " + r.URL.Path
				text = body.Body
				_, _ = w.Write([]byte("{}"))
			}))
			defer github.Close()
			log, code := script(t, t.TempDir(), "comment.sh", "GITHUB_API_URL="+github.URL, "GITHUB_REPOSITORY=o/r", "GH_TOKEN=secret",
				"NUMBER=7", "REPORT="+report, "SHOWN="+tt.shown, "RUNNER_TEMP="+t.TempDir())
			if code != 0 || got != tt.want || tt.want != "" && text != mark+"**councild gate: blocked**\n\n\"x\" `y`\n" {
				t.Errorf("%d, %q, %q: %s", code, got, text, log)
			}
		})
	}
}

// The scripts are free of what shellcheck finds, and no expression is inside a script of the action.
func TestGateActionIsClean(t *testing.T) {
	action, err := os.ReadFile("../../gate/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range regexp.MustCompile(`(?m)^\s+run:.*$`).FindAllString(string(action), -1) {
		if strings.Contains(run, "${{") || strings.HasSuffix(run, "|") {
			t.Errorf("%s", run)
		}
	}
	for _, permission := range []string{"contents: read", "pull-requests: write", "security-events: write"} {
		if !strings.Contains(string(action), permission) {
			t.Errorf("action.yml does not name the permission %s", permission)
		}
	}
	testkit.Program(t, "shellcheck")
	if out, err := exec.CommandContext(t.Context(), "shellcheck", "../../gate/review.sh", "../../gate/comment.sh").CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}
