package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// probedCouncil starts a provider with three reviewers: keen favours the answer that it
// reads first, steady scores without noise, and noisy with much noise.
func probedCouncil(t *testing.T) *simllm.Running {
	t.Helper()
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: []simllm.Model{
		{Name: "keen", Spread: 0.5, Noise: 0.3, Position: []float64{3}},
		{Name: "steady", Spread: 0.5},
		{Name: "noisy", Spread: 0.5, Noise: 1.5},
		{Name: "writer", Spread: 0.5, Noise: 0.3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return sim
}

func requests(sim *simllm.Running) int {
	n := 0
	for _, m := range sim.Stats().Models {
		n += m.Requests
	}
	return n
}

func TestProbe(t *testing.T) {
	sim := probedCouncil(t)
	daemontest.Setenv(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "keen,steady,noisy,writer", "RANDOM_SEED": "1"})
	dir := t.TempDir()
	out, file := filepath.Join(dir, "probe.jsonl"), filepath.Join(dir, "questions.txt")
	var questions strings.Builder
	for n := range 14 {
		fmt.Fprintf(&questions, "What of topic %d?\n\n", n)
	}
	if err := os.WriteFile(file, []byte(questions.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"probe", "--out", out, "--file", file, "--repeats", "4", "--sessions", "16", "And what of this?"}

	code, stdout, stderr := command(t, args...)
	if code != 2 || stdout != "" || !strings.Contains(stderr, "--yes") || !strings.Contains(stderr, "not known") || requests(sim) != 0 {
		t.Errorf("exit %d after %d calls: %s%s", code, requests(sim), stdout, stderr)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("a probe that did not start left %v, %v", files, err)
	}

	code, stdout, stderr = command(t, append(args, "--yes", "--json")...)
	var p probed
	if err := json.Unmarshal([]byte(stdout), &p); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	announced := fmt.Sprintf("%d calls", 16*(4+4*4))
	if got := fmt.Sprintf("%d calls", requests(sim)); got != announced || !strings.Contains(stderr, ": "+announced+".\n") {
		t.Errorf("%s were made, want %s, announced: %s", got, announced, stderr)
	}
	by := map[string]bias.SelfConsistency{}
	for _, r := range p.Reviewers {
		by[r.ReviewerID] = r
		if r.Blocks != 16 || r.Repeated != 2*16 || r.Comparisons != 16*3 || r.Identical == nil || *r.Identical != 1 {
			t.Errorf("%+v", r)
		}
	}
	keen, steady, noisy := by["keen"], by["steady"], by["noisy"]
	if keen.PValue == nil || *keen.PValue > 0.001 || keen.Primacy <= keen.Recency {
		t.Errorf("the planted position effect is not found: %+v", keen)
	}
	if steady.Primacy+steady.Recency != 0 || *steady.ConflictRate.Value != 0 {
		t.Errorf("a reviewer without bias and noise is in conflict with itself: %+v", steady)
	}
	if noisy.PValue == nil || *noisy.PValue < 0.05 {
		t.Errorf("noise is taken for a position effect: %+v", noisy)
	}
	records := daemontest.Records(t, out)
	if len(records) != 16*4*4*3 ||
		slices.ContainsFunc(records, func(r council.BiasMetricRecord) bool { return r.BlockID == nil || r.ConsentLevel != 1 }) {
		t.Errorf("%d records", len(records))
	}
	if _, err := os.Stat(os.Getenv("LLM_COUNCIL_BIAS_STORE")); !os.IsNotExist(err) {
		t.Errorf("a probe touched the store: %v", err)
	}
	if code, _, stderr := command(t, args...); code != 2 || !strings.Contains(stderr, "new file") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestProbeOfSimulatedModels(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "", "BIAS_CONSENT": "0"})
	out := filepath.Join(t.TempDir(), "probe.jsonl")
	code, stdout, stderr := command(t, "probe", "--simulate", "--out", out, "--sessions", "3")
	for _, part := range []string{
		"SAME ORDER", "REVERSED ORDER", "sim:cedar",
		"3 questions, 4 rounds each; 0 answers or reviews missing; $", "Records: " + out,
	} {
		if !strings.Contains(stdout, part) {
			t.Errorf("stdout lacks %q: %s", part, stdout)
		}
	}
	if code != 0 || !strings.Contains(stderr, "60 calls.\nThey cost nothing") || len(daemontest.Records(t, out)) != 3*4*12 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestProbeThatFails(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"MODELS": "sim:amber,sim:down", "MAX_COST_USD": "2"})
	out := filepath.Join(t.TempDir(), "probe.jsonl")
	code, _, stderr := command(t, "probe", "--yes", "--out", out, "Which way?", "And then?")
	for _, part := range []string{
		"2 questions", ": 20 calls.", "have cost $2.00: about $20.00 in all",
		"question 1 of 2: 1 of 2 members answered", out + " holds the records so far",
	} {
		if !strings.Contains(stderr, part) {
			t.Errorf("stderr lacks %q: %s", part, stderr)
		}
	}
	if code != 1 {
		t.Errorf("exit %d", code)
	}
}
