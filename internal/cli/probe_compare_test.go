package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/bias"
)

// Two probes of simulated models, which do not change, over real HTTP.
func TestProbeCompare(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LLM_COUNCIL_BIAS_CONSENT", "4")
	t.Setenv("LLM_COUNCIL_HASH_SECRET", "a-secret-of-sixteen")
	for _, name := range []string{"march-1", "march-2", "april"} {
		code, _, stderr := command(t, "probe", "--simulate", "--sessions", "6", "--repeats", "2", "--out", filepath.Join(dir, name+".jsonl"))
		if code != exitOK {
			t.Fatalf("exit %d: %s", code, stderr)
		}
	}
	march, april := filepath.Join(dir, "march-*.jsonl"), filepath.Join(dir, "april.jsonl")
	code, stdout, stderr := command(t, "probe", "compare", march, april, "--json")
	var changes []bias.ProbeChange
	if err := json.Unmarshal([]byte(stdout), &changes); err != nil || code != exitOK || len(changes) != 4 {
		t.Fatalf("exit %d: %v %s%s", code, err, stdout, stderr)
	}
	for _, c := range changes {
		// Both runs of March asked the questions of April.
		if !c.Paired || c.EarlierQuestions != 6 || c.Earlier.Blocks != 12 || c.Later.Blocks != 6 {
			t.Errorf("%s: paired %v, %d questions, %d and %d blocks", c.ReviewerID, c.Paired, c.EarlierQuestions, c.Earlier.Blocks, c.Later.Blocks)
		}
		if e := c.HarshnessChange; e.Value == nil || *e.Lower > *e.Value || *e.Upper < *e.Value {
			t.Errorf("%s: %+v", c.ReviewerID, e)
		}
	}
	code, stdout, _ = command(t, "probe", "compare", march, april)
	if code != exitOK || !strings.Contains(stdout, "6 in both") || !strings.Contains(stdout, "sim:amber") || strings.Contains(stdout, "HASH_SECRET") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	sessions := filepath.Join(dir, "sessions.jsonl")
	if code, _, stderr := command(t, "store", "simulate", "--out", sessions, "--sessions", "10"); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, tt := range []struct{ earlier, want string }{
		{sessions, "has no record of a probe: make one with councild probe --out"},
		{filepath.Join(dir, "none.jsonl"), "no such file"},
		{filepath.Join(dir, "x*"), "no file matches"},
		{dir, "is a directory"},
	} {
		if code, stdout, stderr := command(t, "probe", "compare", tt.earlier, april); code != exitError || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d: %s%s", tt.earlier, code, stdout, stderr)
		}
	}
}
