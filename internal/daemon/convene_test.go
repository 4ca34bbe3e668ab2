package daemon_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// askedAlone begins a session in which only the first member is asked, and returns its id.
func askedAlone(t *testing.T, d *daemontest.Daemon, headers ...string) string {
	t.Helper()
	status, data := d.Call(t, "POST", "/v1/council", `{"query":"Who else?","first":1}`, headers...)
	var s council.Session
	if err := json.Unmarshal(data, &s); err != nil || status != http.StatusOK || len(s.Stage1) != 1 {
		t.Fatalf("%d %s", status, data)
	}
	return s.ID
}

// convene convenes the council after a session, and checks that the answer has a status.
func convene(t *testing.T, d *daemontest.Daemon, id string, want int, headers ...string) (s council.Session, p council.Problem) {
	t.Helper()
	status, data := d.Call(t, "POST", "/v1/council/"+id+"/convene", "", headers...)
	if status != want {
		t.Fatalf("%d %s", status, data)
	}
	var into any = &p
	if status == http.StatusOK {
		into = &s
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// requests is how many requests the models of a provider had.
func requests(sim *simllm.Running) (n int) {
	for _, m := range sim.Stats().Models {
		n += m.Requests
	}
	return n
}

// A kept session can be convened after a restart, once, also across another restart.
func TestConveneAfterRestart(t *testing.T) {
	sim := daemontest.Provider(t, daemontest.Members()...)
	env := map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c", "DATA_DIR": t.TempDir()}
	d := daemontest.Start(t, env)
	id := askedAlone(t, d, "Idempotency-Key", "first")
	d.End(t)

	d = daemontest.Start(t, env)
	convened, _ := convene(t, d, id, http.StatusOK, "Idempotency-Key", "again")
	if convened.Metadata.GivenFrom != id || len(convened.Stage1) != 3 || convened.Status != council.StatusComplete {
		t.Errorf("%+v", convened)
	}
	d.End(t)

	d = daemontest.Start(t, env)
	before := requests(sim)
	if same, _ := convene(t, d, id, http.StatusOK, "Idempotency-Key", "again"); same.ID != convened.ID {
		t.Errorf("the same key gets %s", same.ID)
	}
	if _, p := convene(t, d, id, http.StatusConflict); p.SessionID != convened.ID || !strings.Contains(p.Detail, "already") {
		t.Errorf("%+v", p)
	}
	if status, _ := d.Call(t, "DELETE", "/v1/council/"+id, ""); status != http.StatusNoContent {
		t.Errorf("not deleted: %d", status)
	}
	if _, p := convene(t, d, id, http.StatusNotFound); p.Code != council.CodeNotFound {
		t.Errorf("%+v", p)
	}
	if n := requests(sim); n != before || n != 7 {
		t.Errorf("%d requests, and %d before the last restart", n, before)
	}
}

// Any node of a cluster can convene a session, and all of them know that it was convened. The session in the
// foreground was in the memory of another node.
func TestConveneOnAnotherNode(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	sim := daemontest.Provider(t, daemontest.Members()...)
	all := nodes(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b,c"}, cluster.URL, cluster.URL)
	for _, headers := range [][]string{nil, {"Idempotency-Key", "kept"}} {
		before := requests(sim)
		id := askedAlone(t, all[0], headers...)
		there(t, all[1], id)
		convened, _ := convene(t, all[1], id, http.StatusOK)
		there(t, all[0], convened.ID)
		for i, d := range all {
			if _, p := convene(t, d, id, http.StatusConflict); p.SessionID != convened.ID {
				t.Errorf("%v: node %d: %+v", headers, i, p)
			}
		}
		if made := requests(sim) - before; made != 7 {
			t.Errorf("%v: %d requests", headers, made)
		}
	}
}
