package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// longest is a provider of models that prefer the longest answer. The model "first" prefers the first one.
func longest(t *testing.T) *simllm.Running {
	t.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "first"} {
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
			answers := task.Answers
			if name != "first" && len(answers) == 2 && len(answers[1].Text) > len(answers[0].Text) {
				answers = []simllm.Answer{answers[1], answers[0]}
			}
			labels := make([]string, len(answers))
			for i, a := range answers {
				labels[i] = a.Label
			}
			return "FINAL RANKING: " + strings.Join(labels, " > "), task.Kind == simllm.Review
		}})
	}
	return daemontest.Provider(t, models...)
}

// The command judges here and at a daemon, from flags and from a body, and says the same.
func TestJudge(t *testing.T) {
	sim := longest(t)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,first", "DATA_DIR": "off"}
	d := daemontest.Start(t, env)
	daemontest.Setenv(t, env)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short, long := write("short.txt", "It scatters."), write("long.txt", "It scatters blue light.")
	body := write("body.json", `{"question":"Why?","answers":[{"id":"x","text":"It scatters.","author":"b"},{"id":"y","text":"It scatters blue light."}]}`)
	flags := []string{"judge", "--question", "Why?", "--answer", "x:b=" + short, "--answer", "y=" + long}
	for name, args := range map[string][]string{
		"here": flags, "a file": {"judge", body}, "at a daemon": append([]string{"--server", d.URL()}, flags[1:]...),
	} {
		if args[0] != "judge" {
			args = append([]string{"judge"}, args...)
		}
		code, stdout, stderr := command(t, args...)
		for _, want := range []string{
			"The judges prefer y, by 1 to 0. No vote: 1. ", "\na: prefers y\n", "\nfirst: no vote: in the other order it prefers the other answer\n",
			"\nb was not asked: it may not read x: its own model wrote it\n", ": complete\n",
		} {
			if code != exitOK || !strings.Contains(stdout, want) || !strings.Contains(stderr, "cost") {
				t.Errorf("%s: %d, no %q: %s%s", name, code, want, stdout, stderr)
			}
		}
	}
	code, stdout, _ := command(t, "judge", body, "--json", "--exclude", "none", "--seed", "7")
	var j council.Judgement
	if err := json.Unmarshal([]byte(stdout), &j); code != exitOK || err != nil || len(j.Ballots) != 3 || j.Verdict.For["y"] != 2 || j.Seed != 7 {
		t.Errorf("%d %v: %s", code, err, stdout)
	}
	code, stdout, stderr := command(t, "judge", "--question", "Why?", "--answer", "y="+long, "--rubric", "It is short.", "--rubric", "It is true.")
	for _, want := range []string{"On average, a statement has a share of ", "  It is short. (", "  It is true. (", ": complete\n"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("a rubric: %d, no %q: %s%s", code, want, stdout, stderr)
		}
	}
	for _, at := range [][]string{nil, {"--server", d.URL()}} {
		code, stdout, _ := command(t, append([]string{"judge", body, "--json", "--estimate"}, at...)...)
		var e spend.Estimate
		if err := json.Unmarshal([]byte(stdout), &e); code != exitOK || err != nil || e.Calls != 4 || e.Mode != council.ModeJudge {
			t.Errorf("%v: %d %v: %s", at, code, err, stdout)
		}
	}
}

// A command line that cannot be judged is refused with its fix, and nothing is asked.
func TestJudgeFails(t *testing.T) {
	sim := longest(t)
	daemontest.Setenv(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "DATA_DIR": "off"})
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte(`{"question":"?","answer":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"there is nothing to judge":                      {},
		"leave out --question and --answer, or the file": {file, "--question", "?"},
		`unknown field "answer": give one JSON object`:   {file},
		"write ID=PATH":                                   {"--question", "?", "--answer", "x"},
		"name a readable text file":                       {"--question", "?", "--answer", "x=" + file + ".none"},
		`"x" is given twice; give each answer an id`:      {"--question", "?", "--answer", "x=" + file, "--answer", "x=" + file},
		"question: ":                                      {"--answer", "x=" + file, "--answer", "y=" + file},
		"--orders: two answers need both orders":          {"--question", "?", "--answer", "x=" + file, "--answer", "y=" + file, "--orders", "one"},
		"a may not read x (same model); b may not read y": {"--question", "?", "--answer", "x:a=" + file, "--answer", "y:b=" + file},
	} {
		code, stdout, stderr := command(t, append([]string{"judge"}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d, want %q: %s%s", args, code, want, stdout, stderr)
		}
	}
	for _, m := range sim.Stats().Models {
		if m.Requests > 0 {
			t.Errorf("%+v", m)
		}
	}
}
