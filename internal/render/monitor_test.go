package render

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
)

// monitors are one of each kind that a reader can meet.
func monitors() map[string]bias.Monitor {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	end := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	m := bias.Monitor{
		Status: bias.StatusOK, GeneratedAt: end, ConfigVersion: "review-1+fast.3fa94c1b", OtherCouncils: 12, RetentionDays: new(90), Level: 0.05,
		Window:   bias.Window{Start: &start, End: &end, Sessions: 340, Records: 4080},
		Headline: "Alarm after 340 sessions: harshness (cedar) -0.69 points, shadow preference 0.71 share for the synthesis",
		Skipped:  []bias.Skipped{{Reason: "not_json", Count: 2, FirstFile: new("records.jsonl"), FirstLine: new(int64(12))}},
		Watched: []bias.Watched{
			{
				Name: "position", Unit: "points", Subject: "place 2", PointEstimate: new(-0.08), CILower: new(-0.15), CIUpper: new(-0.01),
				LogE: new(4.1), Members: 3, Clusters: 340, Delta: new(0.15), Reason: "log e = 4.1, but smaller than the 0.15 points that count",
			},
			{Name: "self_preference", Unit: "points", Delta: new(0.25), Reason: "own answers were reviewed in too few sessions"},
			{
				Name: "harshness", Unit: "points", Subject: "cedar", PointEstimate: new(-0.69), CILower: new(-0.78), CIUpper: new(-0.61),
				LogE: new(158.4), Members: 4, Clusters: 340, Delta: new(0.25), Alarm: true, Reason: "log e = 158.4, and at least 0.25 points",
			},
			{
				Name: "affinity", Unit: "points", Subject: "=1+1\x1b[31m<script>", PointEstimate: new(0.2), CILower: new(-0.1), CIUpper: new(0.5),
				LogE: new(-0.4), Members: 12, Clusters: 340, Delta: new(0.25), Reason: "no effect shown",
			},
			{
				Name: "shadow_preference", Unit: "share for the synthesis", PointEstimate: new(0.71), CILower: new(0.6), CIUpper: new(0.8),
				LogE: new(8.3), Members: 1, Clusters: 150, Alarm: true, Reason: "log e = 8.3: the reviewers' choice is not by chance",
			},
		},
	}
	collecting := bias.Monitor{
		Status: bias.StatusCollecting, Headline: "Collecting data (40 of 100 sessions)", GeneratedAt: end, Level: 0.05,
		Window: bias.Window{Start: &start, End: &end, Sessions: 40, Records: 480},
	}
	empty := bias.Monitor{Status: bias.StatusCollecting, Headline: "Collecting data (0 of 100 sessions)", GeneratedAt: end, Level: 0.05}
	return map[string]bias.Monitor{"monitor": m, "monitor_collecting": collecting, "monitor_empty": empty}
}

func TestMonitor(t *testing.T) {
	for name, m := range monitors() {
		text, page, table := Monitor(m, config.SettingNames()), MonitorHTML(m), MonitorCSV(m)
		golden(t, name+".txt", text)
		golden(t, name+".csv", table)
		golden(t, name+".html", page)
		for line := range strings.Lines(string(text)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: a line has %d columns: %s", name, n, line)
			}
		}
		for _, hostile := range []string{"<script>", "\x1b", "ZgotmplZ", "%!"} {
			if bytes.Contains(page, []byte(hostile)) {
				t.Errorf("%s: the page holds %q", name, hostile)
			}
		}
		if bytes.Contains(text, []byte("\x1b")) || bytes.Contains(table, []byte(",=")) {
			t.Errorf("%s: a name steers the terminal, or runs in a spreadsheet", name)
		}
		if _, tables, _ := elements(t, string(page)); tables != min(1, len(m.Watched))+min(1, len(m.Skipped)) {
			t.Errorf("%s: %d tables", name, tables)
		}
	}
}
