package render

import (
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
)

// TestTextSaysVersions holds that the text has a line for each version that changed, also while sessions are still collected.
func TestTextSaysVersions(t *testing.T) {
	r := FullReport{Report: bias.Report{Status: bias.StatusCollecting, Versions: []bias.VersionChange{
		{Member: "bob/two", From: "two-1", To: "two-2\x1b[31m", Start: time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC), Sessions: 7},
	}}}
	text := strings.Join(strings.Fields(string(Text(r, false, nil))), " ")
	if !strings.Contains(text, "bob/two was served as two-1 until 4 March 2026, then as two-2") || !strings.Contains(text, "in 7 sessions.") ||
		strings.Contains(text, "\x1b") {
		t.Errorf("text: %q", text)
	}
}
