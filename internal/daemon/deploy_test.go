package daemon_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
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
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	places := map[[2]int]string{}
	ids := map[int]string{}
	for _, panel := range board.Panels {
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				place := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				if other := places[place]; other != "" {
					t.Fatalf("the panels %q and %q overlap", other, panel.Title)
				}
				places[place] = panel.Title
			}
		}
		if other := ids[panel.ID]; other != "" {
			t.Errorf("the panels %q and %q have one id", other, panel.Title)
		}
		ids[panel.ID] = panel.Title
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

// The dashboard shows what tells an operator that a node, a store or a roster is in trouble.
func TestDashboardShowsTrouble(t *testing.T) {
	var shown strings.Builder
	for _, expressions := range panels(t) {
		shown.WriteString(strings.Join(expressions, "\n"))
	}
	for _, name := range []string{
		"councild_ready", "councild_breaker_open", "councild_lease_age_seconds", "councild_kept_lag", "councild_records_lag",
		"councild_store_healthy", "councild_kept_writable", "councild_kept_connected", "councild_roster_reload_ok",
	} {
		if !strings.Contains(shown.String(), name+"{") {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// tool returns a command of a program.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Program(t, name), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	return cmd
}

// run runs a command, which must succeed.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", cmd, err, out)
	}
}

// systemd accepts the unit, and rates its exposure 2.0 at most.
func TestUnit(t *testing.T) {
	unit := read(t, "../../deploy/councild.service")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	installed := strings.Replace(unit, "ExecStart=councild ", "ExecStart="+self+" ", 1)
	for _, line := range []string{"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "WatchdogSec=60", "ExecStart=" + self + " serve"} {
		if !strings.Contains(installed, "\n"+line+"\n") {
			t.Errorf("the unit has no line %q", line)
		}
	}
	file := filepath.Join(t.TempDir(), "councild.service")
	if err := os.WriteFile(file, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, tool(t, "systemd-analyze", "verify", "--man=no", file))
	run(t, tool(t, "systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", file))
}

// nginx accepts the site as it is. nginx reads the certificate and its key, so the test makes both.
func TestNginx(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	t.Cleanup(server.Close)
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	site := read(t, "../../deploy/nginx.conf")
	for name, block := range map[string]*pem.Block{
		"/etc/ssl/council.pem": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"/etc/ssl/council.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(site, name) {
			t.Fatalf("the site does not name %s", name)
		}
		site = strings.ReplaceAll(site, name, path)
	}
	var paths strings.Builder
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&paths, "%s_temp_path %s;\n", name, filepath.Join(dir, name))
	}
	file := filepath.Join(dir, "nginx.conf")
	text := "pid " + dir + "/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n" + paths.String() + site + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, tool(t, "nginx", "-t", "-q", "-e", "stderr", "-p", dir, "-c", file))
}

// Caddy accepts the site as it is.
func TestCaddy(t *testing.T) {
	run(t, tool(t, "caddy", "validate", "--adapter", "caddyfile", "--config", "../../deploy/Caddyfile"))
}

// metricNames returns the names of the metrics of a daemon that ran sessions.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	d := daemontest.Start(t, map[string]string{
		"BIAS_CONSENT": "2", "EVENT_SINK": filepath.Join(t.TempDir(), "sink.jsonl"), "EVENTS_INTAKE": "true",
		"MAX_COST_USD_PER_DAY": "1000", "MAX_COST_USD_PER_TOKEN_DAY": "1000", "PRICES": "sim:amber=1/2@2026-11-20",
		"WEBHOOK_URL": "https://receiver.example/hooks", "WEBHOOK_SECRET": hookSecret(hookKey),
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
