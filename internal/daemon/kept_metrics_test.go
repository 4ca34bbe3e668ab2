package daemon_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// keptMetric matches the metrics of kept sessions, with their values.
var keptMetric = regexp.MustCompile(`(?m)^(councild_(?:kept_\w+|records_lag|lease_age_seconds|taken_over_total)) (\S+)$`)

// keptMetrics returns what a daemon measures of kept sessions.
func keptMetrics(t *testing.T, d *daemontest.Daemon) map[string]string {
	t.Helper()
	_, text := d.Call(t, "GET", "/metrics", "")
	all := map[string]string{}
	for _, m := range keptMetric.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// notReady returns the body of /readyz, which must be green.
func notReady(t *testing.T, d *daemontest.Daemon) string {
	t.Helper()
	status, body := d.Call(t, "GET", "/readyz", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return string(body)
}

// The table of metrics of kept sessions in docs/metrics.md is that of the daemon.
func TestKeptMetricsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, measured []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(councild_\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if keptMetric.MatchString(row[1] + " 0") {
			documented = append(documented, row[1])
		}
	}
	for name := range keptMetrics(t, daemontest.Start(t, nil)) {
		measured = append(measured, name)
	}
	slices.Sort(documented)
	slices.Sort(measured)
	if diff := cmp.Diff(measured, documented); diff != "" || len(measured) == 0 {
		t.Errorf("measured and documented: %s", diff)
	}
}

// Every metric of a daemon that ran sessions is in docs/metrics.md, its verdicts too.
func TestMetricsDocumented(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	page := read(t, "../../docs/metrics.md")
	measured := metricNames(t)
	for _, name := range []string{"councild_tokens_total", "councild_bias_verdict"} {
		if !measured[name] {
			t.Errorf("%s is not measured", name)
		}
	}
	for name := range measured {
		if strings.HasPrefix(name, "councild_") && !regexp.MustCompile("(?m)^\\| `"+name+"(\\{[a-z,]+\\})?` \\|").MatchString(page) {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
}

// Metrics and readiness say how a node stands with the cluster.
func TestClusterMeasured(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	url, arrived, release := daemontest.Held(t)
	d := nodes(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"}, link.URL)[0]
	background(t, d, "Who is counted?")
	<-arrived
	is := func(want map[string]string) func() bool {
		return func() bool {
			all := keptMetrics(t, d)
			for name, value := range want {
				if all["councild_"+name] != value {
					return false
				}
			}
			return true
		}
	}
	daemontest.Until(t, is(map[string]string{"kept_connected": "1", "kept_writable": "1", "kept_sessions": "1", "kept_running": "1"}))
	if m := keptMetrics(t, d); m["councild_kept_bytes"] == "0" || m["councild_kept_limit_bytes"] != "3.52321536e+08" {
		t.Errorf("measured %v", m) // 1.25 times 256 MiB and 16 MiB
	}
	if body := notReady(t, d); strings.Contains(body, "sessions") {
		t.Errorf("ready: %s", body)
	}
	link.Cut()
	daemontest.Until(t, is(map[string]string{"kept_connected": "0", "kept_writable": "0"}))
	if body := notReady(t, d); !strings.Contains(body, "the cluster of LLM_COUNCIL_NATS_URL does not answer") {
		t.Errorf("cut off: %s", body)
	}
	link.Mend()
	release()
	daemontest.Until(t, is(map[string]string{"kept_connected": "1", "kept_writable": "1", "kept_running": "0", "records_lag": "0"}))
	daemontest.Until(t, func() bool { return !strings.Contains(notReady(t, d), "sessions") })
}

// Readiness says that the store is full.
func TestKeptFull(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	url, _, release := daemontest.Held(t)
	defer release()
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": url, "MODELS": "waiting,quick", "MAX_QUERY_BYTES": "4MiB",
	}, func(c *config.Config) { c.SessionsKeptBytes = 1 })
	for range 8 {
		if strings.Contains(notReady(t, d), "90 % full") {
			break
		}
		d.Call(t, "POST", "/v1/council", `{"query":"`+strings.Repeat("x", 3<<20)+`","background":true}`)
	}
	if body := notReady(t, d); !strings.Contains(body, "90 % full; raise LLM_COUNCIL_SESSIONS_KEPT or") {
		t.Errorf("full: %s", body)
	}
	if status, body := d.Call(t, "POST", "/v1/council", `{"query":"Room?","background":true}`); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
}
