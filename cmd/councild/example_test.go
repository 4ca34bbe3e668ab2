package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/google/go-cmp/cmp"
	"github.com/oasdiff/yaml3"
)

// compose is what the tests read of docs/cluster/compose.yaml.
type compose struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []string
		Secrets     []string
		Networks    []string
		Grace       string `yaml:"stop_grace_period"`
		Restart     string
	}
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]any
	Secrets  map[string]struct{ File string }
}

func example(t *testing.T) (c compose) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(page(t, "docs/cluster/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 7 {
		t.Fatalf("%d services", len(c.Services))
	}
	return c
}

// In the example of a cluster, whatever a file names is there.
func TestExampleIsWhole(t *testing.T) {
	c := example(t)
	var hosts []string
	for name, s := range c.Services {
		hosts = append(hosts, name)
		if s.Restart != "unless-stopped" {
			t.Errorf("%s is not started again", name)
		}
		if (len(s.Ports) > 0) != (name == "balancer") {
			t.Errorf("%s has the ports %v", name, s.Ports)
		}
		for _, network := range s.Networks {
			if _, ok := c.Networks[network]; !ok {
				t.Errorf("%s is in the network %s, which is not there", name, network)
			}
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			_, named := c.Volumes[from]
			if _, err := os.Stat(filepath.Join("../../docs/cluster", from)); !named && err != nil {
				t.Errorf("%s mounts %s, which is not there", name, from)
			}
		}
		for _, secret := range s.Secrets {
			file := strings.TrimPrefix(c.Secrets[secret].File, "./")
			if file == "" || !strings.Contains(page(t, "docs/sessions.md"), file) {
				t.Errorf("docs/sessions.md does not say how to make the file %q of the secret %s", file, secret)
			}
		}
	}
	if !c.Networks["store"].Internal {
		t.Error("the servers of NATS ask for no login, and their network is open")
	}
	texts := page(t, "docs/cluster/compose.yaml") + page(t, "docs/cluster/haproxy.cfg")
	named := firsts(regexp.MustCompile(`(?:nats://| )((?:nats|node)[0-9]):`).FindAllStringSubmatch(texts, -1))
	for _, host := range named {
		if !slices.Contains(hosts, host) {
			t.Errorf("%s is named, and is no service", host)
		}
	}
	if len(named) < 15 {
		t.Errorf("found only the hosts %v", named)
	}
}

// The balancer of the example asks every node for its readiness.
func TestExampleAsksForReadiness(t *testing.T) {
	text := page(t, "docs/cluster/haproxy.cfg")
	if !strings.Contains(text, "\n  option httpchk GET /readyz\n  http-check expect status 200\n") {
		t.Error("the balancer does not read /readyz")
	}
	if !regexp.MustCompile(`(?m)^  default-server check `).MatchString(text) {
		t.Error("the balancer does not check its servers")
	}
	got := firsts(regexp.MustCompile(`(?m)^  server (\S+ \S+)$`).FindAllStringSubmatch(text, -1))
	if diff := cmp.Diff([]string{"node1 node1:8080", "node2 node2:8080", "node3 node3:8080"}, got); diff != "" {
		t.Error(diff)
	}
}

// The servers of the example set every variable of nats.conf, and run the version with
// which councild is tested.
func TestExampleServers(t *testing.T) {
	want := firsts(regexp.MustCompile(`\$(NATS_[A-Z]+)`).FindAllStringSubmatch(page(t, "docs/cluster/nats.conf"), -1))
	slices.Sort(want)
	version := regexp.MustCompile(`nats-io/nats-server/v2 v(\S+)`).FindStringSubmatch(page(t, "go.mod"))[1]
	c := example(t)
	for _, name := range []string{"nats1", "nats2", "nats3"} {
		s := c.Services[name]
		var got []string
		for variable := range s.Environment {
			got = append(got, variable)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if s.Environment["NATS_NAME"] != name || strings.Contains(s.Environment["NATS_ROUTES"], name) {
			t.Errorf("%s: %v", name, s.Environment)
		}
		if s.Image != "nats:"+version+"-alpine" {
			t.Errorf("%s runs %s, tested is %s", name, s.Image, version)
		}
	}
}

// A daemon accepts the settings of the example's nodes, and has the time to hand over
// its sessions.
func TestExampleSettings(t *testing.T) {
	c := example(t)
	for _, name := range []string{"node1", "node2", "node3"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LLM_COUNCIL_BIAS_STORE", "/data/bias_metrics.jsonl") // as the image sets it
			for variable, value := range c.Services[name].Environment {
				if secret, ok := strings.CutPrefix(value, "/run/secrets/"); ok && slices.Contains(c.Services[name].Secrets, secret) {
					value = filepath.Join(t.TempDir(), secret)
					if err := os.WriteFile(value, []byte("0123456789abcdef"), 0o600); err != nil {
						t.Fatal(err)
					}
				} else if strings.HasPrefix(value, "${LLM_COUNCIL_MODELS:?") {
					value = "one,two"
				}
				t.Setenv(variable, value)
			}
			cfg, err := config.Load()
			if err != nil {
				t.Fatal(err)
			}
			if cfg.APIKey == "" || len(cfg.APITokens) != 1 || strings.Count(cfg.NatsURL, "nats://") != 3 {
				t.Errorf("key %q, tokens %v, cluster %s", cfg.APIKey, cfg.APITokens, cfg.NatsURL)
			}
			grace, err := time.ParseDuration(c.Services[name].Grace)
			if err != nil || grace < cfg.DrainTimeout+15*time.Second { // three timers of 5 s follow
				t.Errorf("the node is killed %s after SIGTERM (%v), and drains for %s", grace, err, cfg.DrainTimeout)
			}
		})
	}
}
