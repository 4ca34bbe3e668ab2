package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// A trial says first what it can cost, stops at its limit, continues, and never asks for a report that it has.
func TestGateTrial(t *testing.T) {
	daemontest.Setenv(t, map[string]string{
		"MODELS": "sim:amber,sim:birch,sim:cedar,sim:dune", "DATA_DIR": "off", "MAX_OUTPUT_TOKENS": "1000",
	})
	dir := t.TempDir()
	if err := gatesim.Write(dir, gatesim.Worlds()[0].Cases(3, 3)); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		data, _ := os.ReadFile(filepath.Join(dir, trialFile))
		return bytes.Count(data, []byte(`"key"`))
	}
	trial := func(want int, limit string, words ...string) string {
		t.Helper()
		args := []string{"gate", "--trial", dir}
		if limit != "" {
			args = append(args, "--max-cost-usd", limit)
		}
		code, stdout, stderr := command(t, args...)
		for _, w := range words {
			if code != want || !strings.Contains(stdout+stderr, w) {
				t.Errorf("%d, want %d and %q: %s%s", code, want, w, stdout, stderr)
			}
		}
		return stdout
	}
	trial(exitOK, "", "6 of 6 diffs have no report yet. They cost at most $", "Nothing was asked.")
	trial(exitStopped, "0.01", "the next diff may cost $")
	if n := kept(); n != 0 {
		t.Errorf("%d reports are kept", n)
	}
	trial(exitStopped, "0.7", "run the same command again")
	some := kept()
	if some == 0 || some == 6 {
		t.Errorf("%d reports are kept", some)
	}
	table := trial(exitOK, "10", "3 diffs with 15 planted defects, 3 clean diffs.", "council ", "sim:amber ", "Do not block yet.", "233 planted")
	if n := kept(); n != 6 {
		t.Errorf("%d reports are kept", n)
	}
	if again := trial(exitOK, "", "15 planted"); again != table {
		t.Errorf("the same trial says\n%s and\n%s", table, again)
	}
	code, stdout, _ := command(t, "gate", "--trial", dir, "--format", "json")
	var result gate.Trial
	if err := json.Unmarshal([]byte(stdout), &result); code != exitOK || err != nil || len(result.Members) != 4 || result.Planted != 15 {
		t.Errorf("%d %v %s", code, err, stdout)
	}
	name := filepath.Join(dir, "clean-000.diff")
	diff, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(diff, []byte("handbook"), []byte("manual"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	trial(exitOK, "", "1 of 6 diffs have no report yet")
}

// A trial that cannot be carried out is refused with its fix.
func TestGateTrialFails(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "sim:amber,sim:birch", "DATA_DIR": "off"})
	dir := t.TempDir()
	fails := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := command(t, append([]string{"gate", "--trial", dir}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%d, want %q: %s%s", code, want, stdout, stderr)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fails("has no file NAME.diff: put diffs there")
	fails("--trial cannot be combined", "--server", "http://127.0.0.1:1")
	write("a.diff", "What is this?")
	fails("a.diff: ")
	write("a.diff", gatesim.Refund)
	fails("Set LLM_COUNCIL_MAX_OUTPUT_TOKENS")
	write("a.json", `{"defects": [{"file": "pay/other.go", "start": 1}]}`)
	fails("a.json: defect 1 needs a file of the diff")
	write("a.json", `{"defects": [`)
	fails("a.json: ")
	write("a.json", `{"defects": [{"file": "pay/refund.go", "start": 49}]}`)
	write("b.json", "{}")
	fails("there is no file b.diff")
}
