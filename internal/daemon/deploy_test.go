package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

const (
	alertRules = "../../deploy/prometheus/councild.rules.yml"
	alertTests = "../../deploy/prometheus/councild.test.yml"
	dashboard  = "../../deploy/grafana/councild.json"
)

// promtool runs promtool, which tools/promtool.sh sees to.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if path, err = filepath.Abs("../../tools/bin/promtool"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			testkit.Missing(t, "there is no promtool: run make promtool")
		}
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every alert has a test in which it fires, and one in which it does not.
func TestAlerts(t *testing.T) {
	testkit.Slow(t)
	promtool(t, "check", "rules", alertRules)
	promtool(t, "test", "rules", alertTests)
	tests := read(t, alertTests)
	page := read(t, "../../docs/metrics.md")
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(read(t, alertRules), -1)
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for _, alert := range alerts {
		if !strings.Contains(page, "\n| `"+alert[1]+"` | ") {
			t.Errorf("docs/metrics.md lacks %s", alert[1])
		}
		name := regexp.QuoteMeta(alert[1])
		for what, test := range map[string]string{
			"fires":         `- alertname: ` + name + `\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels`,
			"does not fire": `\{alertname: ` + name + `, eval_time: \w+, exp_alerts: \[\]\}`,
		} {
			if !regexp.MustCompile(test).MatchString(tests) {
				t.Errorf("%s has no test in which it %s", alert[1], what)
			}
		}
	}
}

// panels returns the expressions of the dashboard's panels, by title, for all instances.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	all := map[string][]string{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all[panel.Title] = append(all[panel.Title], variables.Replace(target.Expr))
		}
	}
	return all
}

// The expressions of the dashboard are valid, and the metrics that they and the alerts name
// are a daemon's.
func TestDashboard(t *testing.T) {
	testkit.Slow(t)
	var rules, named strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	named.WriteString(read(t, alertRules))
	for title, expressions := range panels(t) {
		for i, expression := range expressions {
			fmt.Fprintf(&rules, "      - {record: %q, expr: %q}\n", fmt.Sprintf("panel_%x_%d", title, i), expression)
			named.WriteString(expression + "\n")
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)

	withoutTexts := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(named.String(), "")
	names := regexp.MustCompile(`\b(?:councild|process|go)_\w+\b`).FindAllString(withoutTexts, -1)
	if len(names) < 20 {
		t.Fatalf("only %v are named", names)
	}
	measured := metricNames(t)
	measured["councild_monitor_alarm"] = true // from 100 sessions on: TestMonitorMeasured
	for _, name := range names {
		base := strings.TrimSuffix(name, "_bucket")
		if !measured[base] {
			t.Errorf("a daemon has no metric %s", name)
		}
	}
}

// metricNames returns the names of the metrics of a daemon that ran sessions.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	d := daemontest.Start(t, map[string]string{
		"BIAS_CONSENT": "2", "EVENT_SINK": filepath.Join(t.TempDir(), "sink.jsonl"), "EVENTS_INTAKE": "true",
		"MAX_COST_USD_PER_DAY": "1000", "MAX_COST_USD_PER_TOKEN_DAY": "1000", "PRICES": "sim:amber=1/2@2026-11-20",
	})
	for range 10 { // with fewer records there are no verdicts
		d.Ask(t, `{"query":"What is measured?"}`)
	}
	var text []byte
	daemontest.Until(t, func() bool {
		_, text = d.Call(t, "GET", "/metrics", "")
		return strings.Contains(string(text), "councild_bias_verdict{")
	})
	names := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^# TYPE (\w+)`).FindAllStringSubmatch(string(text), -1) {
		names[row[1]] = true
	}
	return names
}
