package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestEventsPreview(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if code, _, stderr := command(t, "store", "simulate", "--sessions", "4", "--out", path); code != 0 {
		t.Fatal(stderr)
	}
	for level, want := range map[string]struct {
		lines int
		has   string
	}{
		"1": {0, ""}, "2": {3, `"rankings":[{"model":"other","rank":1,`}, "3": {3, `"bias_indicators":{"position_variance"`}, "4": {3, `"time":"20`},
	} {
		code, stdout, stderr := command(t, "store", "events", "--input", path, "--sessions", "3", "--level", level)
		if code != 0 || strings.Count(stdout, "\n") != want.lines || !strings.Contains(stdout, want.has) {
			t.Errorf("level %s: exit code %d, %s%s", level, code, stdout, stderr)
		}
		if none := strings.Contains(stderr, "No event"); none != (want.lines == 0) {
			t.Errorf("level %s says %q", level, stderr)
		}
		if level == "2" && strings.Contains(stdout, "bias_indicators") || level == "3" && strings.Contains(stdout, `"time"`) {
			t.Errorf("level %s has more than it may: %s", level, stdout)
		}
	}
	if code, _, stderr := command(t, "store", "events", "--level", "5"); code != 2 || !strings.Contains(stderr, "--level") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
