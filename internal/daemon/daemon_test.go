package daemon_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTwoProvidersInOneCouncil(t *testing.T) {
	one, two := daemontest.Provider(t, simllm.Model{Name: "acme/alpha", Noise: 0.5}, simllm.Model{Name: "llama3:8b", Noise: 0.5}),
		daemontest.Provider(t, simllm.Model{Name: "globex/beta", Noise: 0.5})
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": one.URL(), "PROVIDERS": "second=" + two.URL(), "MODELS": "acme/alpha,llama3:8b,second:globex/beta,sim:amber",
		"CHAIRMAN": "second:globex/beta",
	})
	s := d.Ask(t, `{"query":"Which one?"}`)
	if s.Status != council.StatusComplete || s.Stage3.Model != "second:globex/beta" {
		t.Errorf("status %s, chairman %s, missing %v", s.Status, s.Stage3.Model, daemontest.Missing(s))
	}
	if n := two.Stats().Models["globex/beta"].Requests; n != 3 {
		t.Errorf("the second provider saw %d calls, want 3", n)
	}
	if n := one.Stats().Models["acme/alpha"].Requests + one.Stats().Models["llama3:8b"].Requests; n != 4 {
		t.Errorf("the first provider saw %d calls, want 4", n)
	}
	makers := map[string]string{}
	for _, r := range d.Records(t) {
		makers[r.ModelID] = r.Provider.Candidate
	}
	want := map[string]string{"acme/alpha": "acme", "llama3:8b": "llama3:8b", "second:globex/beta": "globex", "sim:amber": "amber"}
	if diff := cmp.Diff(want, makers); diff != "" {
		t.Error(diff)
	}
}

// The largest numbers mean no limit. A daemon with them starts, answers, and stops
// without using up its drain time.
func TestLargestLimits(t *testing.T) {
	for _, most := range []string{"9223372036854775807", "5000000000000000000"} {
		d := daemontest.Start(t, map[string]string{
			"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c,d",
			"MAX_SESSIONS": most,
		})
		if s := d.Ask(t, `{"query":"Which one?"}`); s.Status != council.StatusComplete {
			t.Errorf("%s sessions: %s", most, s.Status)
		}
		d.End(t)
		if log := d.Log.String(); strings.Contains(log, "the drain time is over") {
			t.Errorf("%s sessions: %s", most, log)
		}
	}
}

func TestTroubledCouncil(t *testing.T) {
	testkit.Slow(t)
	d := daemontest.Start(t, map[string]string{"MODELS": "sim:amber,sim:down,sim:abstainer,sim:garbler,sim:birch"})
	s := d.Ask(t, `{"query":"Who is left?"}`)
	want := []string{
		"stage1 sim:down unavailable", "stage2 sim:down unavailable", "stage2 sim:abstainer abstained", "stage2 sim:garbler invalid_ballot",
	}
	if diff := cmp.Diff(want, daemontest.Missing(s)); diff != "" {
		t.Error(diff)
	}
	outcomes := map[string]council.Outcome{}
	for _, v := range s.Stage2 {
		outcomes[v.Model] = v.Status
	}
	wantOutcomes := map[string]council.Outcome{
		"sim:amber": council.OutcomeOK, "sim:birch": council.OutcomeOK, "sim:down": council.OutcomeError,
		"sim:abstainer": council.OutcomeAbstained, "sim:garbler": council.OutcomeInvalid,
	}
	if diff := cmp.Diff(wantOutcomes, outcomes); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusDegraded || s.Metadata.Agreement.Ballots != 2 || len(s.Metadata.AggregateRankings) != 4 || !s.Persisted {
		t.Errorf("status %s, %d ballots, rankings %+v", s.Status, s.Metadata.Agreement.Ballots, s.Metadata.AggregateRankings)
	}
}

func TestTornTailIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, []byte(`{"schema_ver`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, map[string]string{"BIAS_STORE": path, "BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c,d"})
	if !strings.Contains(d.Log.String(), "unfinished last session") || !strings.Contains(d.Log.String(), `"bytes":12`) {
		t.Errorf("log: %s", d.Log)
	}
	d.Ask(t, `{"query":"And now?"}`)
	if n := len(d.Records(t)); n != 12 {
		t.Errorf("%d records", n)
	}
}

func TestDrain(t *testing.T) {
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick"})
	status := make(chan int, 1)
	go func() {
		resp, _, err := d.Send(t.Context(), "POST", "/v1/council", `{"query":"Wait for me?"}`)
		if err != nil {
			t.Error(err)
			return
		}
		status <- resp.StatusCode
	}()
	<-arrived
	d.Stop()
	// Readiness turns red, new sessions are refused, and the running session finishes.
	for {
		if code, data := d.Call(t, "GET", "/readyz", ""); code == http.StatusServiceUnavailable {
			if !strings.Contains(string(data), "draining") {
				t.Errorf("%s", data)
			}
			break
		}
	}
	if code, data := d.Call(t, "POST", "/v1/council", `{"query":"Me too?"}`); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, data)
	}
	release()
	if code := <-status; code != http.StatusOK {
		t.Errorf("the running session answered %d", code)
	}
	d.End(t)
	if len(daemontest.Records(t, d.Config.BiasStore)) != 2 {
		t.Error("the drained session left no records")
	}
}

func TestDrainTimeout(t *testing.T) {
	arrived := make(chan struct{}, 2)
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost { // and not the daemon's look at the list of models
			arrived <- struct{}{}
		}
		<-r.Context().Done()
	}))
	defer hang.Close()
	d := daemontest.Start(t, map[string]string{"BASE_URL": hang.URL, "MODELS": "a,b", "DRAIN_TIMEOUT": "10ms"})
	type result struct {
		status int
		body   []byte
	}
	answered := make(chan result, 1)
	go func() {
		resp, data, err := d.Send(t.Context(), "POST", "/v1/council", `{"query":"Wait for me?"}`)
		if err != nil {
			t.Error(err)
			return
		}
		answered <- result{resp.StatusCode, data}
	}()
	<-arrived
	d.Stop()
	if got := <-answered; got.status != http.StatusBadRequest || !strings.Contains(string(got.body), `"code":"cancelled"`) ||
		!strings.Contains(string(got.body), "session_id") {
		t.Errorf("%d %s", got.status, got.body)
	}
	d.End(t)
}

// Everything in the log of a session is safe to keep.
func TestLogHoldsNoContent(t *testing.T) {
	d := daemontest.Start(t, map[string]string{
		"LOG_LEVEL": "debug", "BASE_URL": daemontest.Quick(t), "MODELS": "a,b",
		"API_KEY": "sk-a-secret-key", "API_TOKENS": "a-token-of-sixteen-and-more",
	})
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"the unmistakable question"}`, "Authorization",
		"Bearer a-token-of-sixteen-and-more", "X-Request-Id", "request-7")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	log := d.Log.String()
	for _, secret := range []string{"unmistakable", "Simulated", "sk-a-secret-key", "a-token-of-sixteen"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q: %s", secret, log)
		}
	}
	if !strings.Contains(log, `"request_id":"request-7"`) || !strings.Contains(log, "session finished") {
		t.Errorf("log: %s", log)
	}
}
