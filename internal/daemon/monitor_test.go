package daemon_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage2"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// monitored returns the metrics of a daemon over 240 sessions, of which another council has the newer half, when the
// monitor was computed or at once where it is off.
func monitored(t *testing.T, env map[string]string) string {
	t.Helper()
	members := biassim.Members()
	var lines bytes.Buffer
	for s, record := range biassim.Generate(biassim.Options{
		Seed: 4, Sessions: 240, Start: time.Now().AddDate(-1, 0, 0), Order: council.OrderBalanced,
		Effects: biassim.Effects{Position: []float64{0.8}},
		Slates: func(session int) []council.Slate {
			return anonymize.Draw(anonymize.Options{Seed: int64(session), Authors: members, Reviewers: members}).Reviewer
		},
	}) {
		record.CouncilConfig = stage2.PromptVersion
		if s >= 120*20 { // the newer half is another council's
			record.CouncilConfig = "other"
		}
		line, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	env["BIAS_STORE"] = filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(env["BIAS_STORE"], lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, env)
	var text string
	scrape := func() string {
		_, body := d.Call(t, "GET", "/metrics", "")
		return string(body)
	}
	if env["MONITOR_INTERVAL"] == "off" {
		return scrape()
	}
	daemontest.Until(t, func() bool {
		text = scrape()
		return strings.Contains(text, "councild_monitor_alarm{")
	})
	return text
}

// The metrics say what the monitor finds about the council that answers now, over all of its
// sessions, and nothing of another council or without the setting.
func TestMonitorMeasured(t *testing.T) {
	text := monitored(t, map[string]string{"MONITOR_INTERVAL": "1m"})
	for _, want := range []string{
		`(?m)^councild_monitor_alarm\{headline="position"\} 1$`, `(?m)^councild_monitor_alarm\{headline="harshness"\} 0$`,
		`(?m)^councild_monitor_log_e\{headline="position"\} [1-9][0-9]+\.`, `(?m)^councild_monitor_log_e\{headline="anchoring"\} `,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, "self_preference") {
		t.Error("there is an e value without own answers")
	}
	page := read(t, "../../docs/metrics.md")
	for _, name := range []string{"councild_monitor_log_e{headline}", "councild_monitor_alarm{headline}"} {
		if !strings.Contains(page, "\n| `"+name+"` |") {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	if text := monitored(t, map[string]string{"MONITOR_INTERVAL": "off"}); strings.Contains(text, "councild_monitor") {
		t.Error("the monitor is measured, although it is off")
	}
	text = monitored(t, map[string]string{"MONITOR_INTERVAL": "1h", "CONFIG_VERSION": "other"})
	if !strings.Contains(text, `councild_monitor_alarm{headline="position"} 1`) {
		t.Error("/metrics lacks the alarm of the other council")
	}
}
