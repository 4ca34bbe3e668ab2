package daemon_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/councild/councild/internal/gate"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// cleanDiffs is the number of clean diffs that a daemon reviews. lab/gate/README.md has the whole number.
var cleanDiffs = flag.Int("clean", 30, "clean diffs that a daemon reviews")

// A daemon says the same about a change as the rules alone, in whatever order the replies arrive.
func TestGateServesAWorld(t *testing.T) {
	t.Parallel()
	seeded, clean := 20, *cleanDiffs
	if testing.Short() {
		seeded, clean = 2, 3
	}
	w := gatesim.Worlds()[0]
	models := w.Models()
	for i := range models {
		models[i].Latency = simllm.Latency{Median: 5 * time.Millisecond, Sigma: 2}
	}
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models, Planted: gatesim.Planted(w.Tempting)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": sim.URL(), "MODELS": "amber,birch,cedar,dune", "DATA_DIR": "off",
	})
	served := func(_ context.Context, diff string) (r gate.Report, err error) {
		body, err := json.Marshal(gate.Request{Diff: diff, MaxFindings: 50})
		if err != nil {
			return r, err
		}
		status, data := d.Call(t, "POST", "/v1/gate", string(body)) //nolint:contextcheck // it has the context of the test
		if status != http.StatusOK {
			return r, fmt.Errorf("%d %s", status, data)
		}
		return r, json.Unmarshal(data, &r)
	}
	direct, err := gatesim.Direct(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[gate.Verdict]int{}
	cases, again := w.Cases(seeded, clean), w.Cases(seeded, clean)
	if err := gatesim.Fill(t.Context(), cases, served); err != nil {
		t.Fatal(err)
	}
	if err := gatesim.Fill(t.Context(), again, direct); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		verdicts[c.Report.Verdict]++
		got, want := c.Report, again[i].Report
		if got.SessionID == "" || got.Usage == nil {
			t.Errorf("%s: no session or usage: %+v", c.Name, got)
		}
		got.SessionID, got.Usage, want.Usage = "", nil, nil
		if got, want := string(gate.JSON(got)), string(gate.JSON(want)); got != want {
			t.Errorf("%s: the daemon says\n%s and not\n%s", c.Name, got, want)
		}
	}
	if verdicts[gate.Pass] == 0 || verdicts[gate.Blocked] == 0 || verdicts[gate.Undecided] > 0 {
		t.Errorf("%v", verdicts)
	}
	r := gatesim.Evaluate(cases)
	t.Logf("\n%s\n%s", gatesim.Heading, r.Row(w.Name))
	if r.Invented > 0 {
		t.Errorf("%d invented quotes are reported", r.Invented)
	}
}
