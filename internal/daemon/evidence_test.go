package daemon_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// evidenceOf returns the records of the evidence file of a daemon.
func evidenceOf(t *testing.T, d *daemontest.Daemon) (all []store.Evidence) {
	t.Helper()
	path, _ := d.Config.EvidenceFile()
	for e, err := range store.ReadEvidence(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// After a session the reviewers that wrote neither text are asked. The session knows nothing of it, and
// the metrics and the ledger know all.
func TestShadowSessions(t *testing.T) {
	p := tap(t)
	d := onTap(t, p, "SHADOW_RATE", "1")
	session := d.Ask(t, anyQuestion)
	var found []store.Evidence
	daemontest.Until(t, func() bool { found = evidenceOf(t, d); return len(found) == 1 })
	record := found[0].Shadow
	if record == nil || record.SessionID != session.ID || len(record.Reviewers) == 0 || record.Chairman != "a" {
		t.Fatalf("%+v", found[0])
	}
	_, data := d.Call(t, http.MethodGet, "/v1/council/"+session.ID, "")
	var again council.Session
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if len(again.Metadata.Usage.ByStage) != 3 || *again.Metadata.Usage.CostUSD != *session.Metadata.Usage.CostUSD {
		t.Errorf("the usage of the session has changed to %+v", again.Metadata.Usage)
	}
	_, metrics := d.Call(t, http.MethodGet, "/metrics", "")
	for _, r := range record.Reviewers {
		if want := `councild_calls_total{model="` + r.ID + `",outcome="ok",stage="shadow"} 1`; !strings.Contains(string(metrics), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	var bill spend.Costs
	_, data = d.Call(t, http.MethodGet, "/v1/spend", "")
	if err := json.Unmarshal(data, &bill); err != nil {
		t.Fatal(err)
	}
	if row := bill.Rows[0]; row.Sessions != 1 || row.Calls != 7+len(record.Reviewers) ||
		bill.Total.Float64() <= *session.Metadata.Usage.CostUSD {
		t.Errorf("the ledger has %d sessions with %d calls for %v", row.Sessions, row.Calls, bill.Total)
	}
	if n := len(d.Records(t)); n != 6 {
		t.Errorf("%d bias records, want the 6 of the session", n)
	}
}

// The answer does not wait for what follows it, and a daemon that stops does.
func TestDrainWaitsForShadows(t *testing.T) {
	asked, release := make(chan struct{}, 8), make(chan struct{})
	models := daemontest.Members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Choice {
				asked <- struct{}{}
				<-release
			}
			return "", false
		}
	}
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": "a,b,c,d", "SHADOW_RATE": "1",
	})
	d.Ask(t, anyQuestion) // has its answer
	<-asked
	d.Stop()
	time.Sleep(50 * time.Millisecond)
	if found := evidenceOf(t, d); len(found) != 0 {
		t.Errorf("%d records before anybody has answered", len(found))
	}
	close(release)
	d.End(t)
	if found := evidenceOf(t, d); len(found) != 1 {
		t.Errorf("%d records after the daemon has stopped, want 1", len(found))
	}
}

// When the drain time is over, the comparison is cut off, and leaves nothing.
func TestDrainCutsShadows(t *testing.T) {
	models := daemontest.Members()
	for i := range models {
		models[i].Faults = []simllm.Fault{{Kind: simllm.FaultHang, Rate: 1, Tasks: []simllm.TaskKind{simllm.Choice}}}
	}
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": "a,b,c,d", "SHADOW_RATE": "1", "DRAIN_TIMEOUT": "100ms",
	})
	d.Ask(t, anyQuestion)
	start := time.Now()
	d.End(t)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if found := evidenceOf(t, d); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// What a person says of a session is on disk before the answer, and survives the daemon.
func TestFeedbackIsKept(t *testing.T) {
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": tap(t).url, "MODELS": "a,b,c,d", "LABEL_RATE": "1", "HASH_SECRET": "a-secret-of-sixteen",
	})
	session := d.Ask(t, anyQuestion)
	c, err := client.New(client.Options{URL: d.Base})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kept, err := c.Feedback(t.Context(), session.ID, council.Feedback{
		Preferred: "synthesis", Over: []string{"a", "b"}, Rating: new(5), By: "lovelace",
	})
	if err != nil || kept.SessionID != session.ID || len(kept.By) != 16 {
		t.Fatalf("%+v, %v", kept, err)
	}
	path, _ := d.Config.EvidenceFile()
	if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), "lovelace") {
		t.Errorf("the file names the person: %s, %v", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || filepath.Base(path) != "evidence.jsonl" {
		t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
	}
	d.End(t)
	found := evidenceOf(t, d)
	isLabel := func(e store.Evidence) bool { return e.Label != nil }
	label, shadow := slices.IndexFunc(found, isLabel), slices.IndexFunc(found, func(e store.Evidence) bool { return e.Shadow != nil })
	if label < 0 || *found[label].Label.Preferred != "synthesis" || !found[label].Label.Wanted || len(found[label].Label.Borda) != 2 {
		t.Errorf("%+v", found)
	}
	if shadow < 0 || !found[shadow].Shadow.Wanted {
		t.Errorf("a session of which people are asked was not compared: %+v", found)
	}
}

// A person may speak to another node than the one that ran the session. That node keeps what they say.
func TestFeedbackToAnotherNode(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	all := nodes(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "HASH_SECRET": "a-secret-of-sixteen"}, cluster.URL, cluster.URL)
	_, data := all[0].Call(t, "POST", "/v1/council", `{"query":"x","background":true}`)
	var started council.Summary
	if err := json.Unmarshal(data, &started); err != nil {
		t.Fatal(err)
	}
	there(t, all[1], started.ID)
	daemontest.Until(t, func() bool { return state(t, all[1], started.ID).Status != council.StatusRunning })
	status, data := all[1].Call(t, "POST", "/v1/council/"+started.ID+"/feedback", `{"preferred":"b","over":["a"]}`)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, data)
	}
	if found := evidenceOf(t, all[1]); len(found) != 1 || found[0].Label == nil || found[0].Label.SessionID != started.ID {
		t.Errorf("%+v", found)
	}
}

// Where nobody named the file and it cannot be written, the daemon starts without it. Where somebody
// needs it, it does not.
func TestEvidenceThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "evidence.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "BIAS_STORE": filepath.Join(dir, "records.jsonl")}
	d := daemontest.Start(t, env)
	d.Ask(t, anyQuestion)
	if status, data := d.Call(t, "POST", "/v1/council/x/feedback", `{"rating":1}`); status != http.StatusNotFound ||
		!strings.Contains(string(data), "LLM_COUNCIL_DATA_DIR") {
		t.Errorf("%d %s", status, data)
	}
	d.End(t)
	env["SHADOW_RATE"] = "0.5"
	daemontest.Setenv(t, env)
	o := daemontest.Options(t)
	o.Log = slog.New(slog.DiscardHandler)
	if _, err := daemon.New(t.Context(), o); err == nil || !strings.Contains(err.Error(), "LLM_COUNCIL_DATA_DIR") {
		t.Errorf("%v, want that the file is named", err)
	}
}
