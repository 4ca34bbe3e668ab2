package daemon_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// hookSecret returns a webhook secret whose key is the text.
func hookSecret(key string) string { return "whsec_" + base64.StdEncoding.EncodeToString([]byte(key)) }

const hookKey = "a key of at least 24 bytes"

// hook is a webhook that arrived.
type hook struct {
	header http.Header
	consent.SessionFinished
}

// hookReceiver returns the settings that send webhooks to a receiver, and the webhooks that arrive there. The receiver
// answers with the status.
func hookReceiver(t *testing.T, status *atomic.Int64) (env map[string]string, arrived <-chan hook) {
	t.Helper()
	got := make(chan hook, 64)
	server := sink(t, func(w http.ResponseWriter, r *http.Request) {
		h := hook{header: r.Header}
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &h.SessionFinished) != nil {
			t.Errorf("%s: %v", body, err)
		}
		got <- h
		w.WriteHeader(int(status.Load()))
	})
	return map[string]string{
		"WEBHOOK_URL": server.URL, "WEBHOOK_SECRET": hookSecret(hookKey), "EVENT_ALLOW": "127.0.0.1/32",
	}, got
}

func takesHooks() *atomic.Int64 {
	status := new(atomic.Int64)
	status.Store(http.StatusNoContent)
	return status
}

// A session in the background sends a webhook that says how it ended. Other sessions send none.
func TestWebhook(t *testing.T) {
	env, arrived := hookReceiver(t, takesHooks())
	env["API_TOKENS"] = "ci:sixteen-letters."
	d := onTapWith(t, tap(t), env)
	d.Token = "sixteen-letters."
	d.Ask(t, anyQuestion)
	id := background(t, d, "What is a webhook?")
	h := <-arrived
	_, data := d.Call(t, "GET", "/v1/council/"+id, "")
	var s council.Session
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if s.Status != council.StatusComplete { // The webhook is sent after the end.
		t.Errorf("after the webhook the session is %s", s.Status)
	}
	want := consent.FinishedData{
		SessionID: id, ResponseID: "resp_" + id, Status: s.Status, Council: "default", Token: "ci",
		DurationMS: h.Data.DurationMS,
	}
	cost := h.Data.CostUSD
	h.Data.CostUSD = nil
	if h.Type != "session.finished" || h.Data != want || h.header.Get("webhook-id") != "msg_"+id || cost == nil != (s.Metadata.Usage.CostUSD == nil) {
		t.Errorf("the webhook %s is %+v, want %+v", h.header.Get("webhook-id"), h.SessionFinished, want)
	}
	if time.Since(h.Timestamp) > time.Minute || h.Data.DurationMS < 0 {
		t.Errorf("the session ended at %s after %d ms", h.Timestamp, h.Data.DurationMS)
	}
	d.End(t)
	if len(arrived) > 0 {
		t.Errorf("a session in the foreground sent %+v", <-arrived)
	}
}

// A webhook names the reason why there is no answer.
func TestWebhookOfAFailure(t *testing.T) {
	env, arrived := hookReceiver(t, takesHooks())
	sim := daemontest.Provider(t, simllm.Model{Name: "a", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}})
	env["BASE_URL"] = sim.URL()
	env["MODELS"] = "a,a"
	d := daemontest.Start(t, env)
	background(t, d, "Why?")
	h := <-arrived
	if h.Data.Status != council.StatusFailed || h.Data.Code == nil || *h.Data.Code == "" {
		t.Errorf("the webhook is %+v", h.Data)
	}
}

// While the receiver fails, the daemon is ready and has a remark, and a metric counts what waits. The webhook is on disk
// when a client sees the end of the session, and the next daemon sends it.
func TestWebhookReceiverFails(t *testing.T) {
	status := takesHooks()
	status.Store(http.StatusServiceUnavailable)
	env, arrived := hookReceiver(t, status)
	env["DATA_DIR"] = t.TempDir()
	wire := tap(t)
	d := onTapWith(t, wire, env)
	id := background(t, d, "Where does it wait?")
	for {
		if _, data := d.Call(t, "GET", "/v1/council/"+id, ""); !strings.Contains(string(data), `"status":"running"`) {
			break
		}
	}
	files, err := filepath.Glob(filepath.Join(env["DATA_DIR"], "webhooks-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files of webhooks are %v: %v", files, err)
	}
	if data, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(data), `"msg_`+id+`"`) {
		t.Errorf("when the end was visible, the file held %q: %v", data, err)
	}
	first := <-arrived
	daemontest.Until(t, func() bool {
		status, data := d.Call(t, "GET", "/readyz", "")
		return status == http.StatusOK && strings.Contains(string(data), `"webhooks"`)
	})
	_, data := d.Call(t, "GET", "/metrics", "")
	for _, line := range []string{"councild_webhooks_waiting 1", "councild_webhooks_sent_total 0"} {
		if !strings.Contains(string(data), line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	d.End(t)
	for len(arrived) > 0 {
		<-arrived
	}
	status.Store(http.StatusOK)
	next := onTapWith(t, wire, env)
	second := <-arrived
	if second.header.Get("webhook-id") != first.header.Get("webhook-id") || second.Data.SessionID != id {
		t.Errorf("the second delivery is %+v, the first %+v", second, first)
	}
	daemontest.Until(t, func() bool {
		_, data := next.Call(t, "GET", "/metrics", "")
		return strings.Contains(string(data), "councild_webhooks_sent_total 1\n")
	})
	if _, data := next.Call(t, "GET", "/readyz", ""); strings.Contains(string(data), "webhooks") {
		t.Errorf("after the delivery /readyz says %s", data)
	}
}

// A session that another node takes over sends one webhook, with the session's own id and the name of its token. The
// first node comes back before the end.
func TestWebhookOfAnotherNode(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	link := cluster.Link(t)
	url, asked, release := daemontest.Held(t)
	env, arrived := hookReceiver(t, takesHooks())
	env["BASE_URL"] = url
	env["MODELS"] = "waiting,quick"
	env["API_TOKENS"] = "ci:sixteen-letters."
	all := nodes(t, env, link.URL, cluster.URL)
	for _, d := range all {
		d.Token = "sixteen-letters."
	}
	id := background(t, all[0], "Who finishes it?")
	<-asked
	there(t, all[1], id)
	link.Cut()
	<-asked // by the second node
	link.Mend()
	if len(arrived) > 0 {
		t.Errorf("before the end of the session, a node sent %+v", <-arrived)
	}
	release()
	h := <-arrived
	s := state(t, all[1], id)
	if h.header.Get("webhook-id") != "msg_"+id || h.Data.Status != s.Status || h.Data.Token != "ci" {
		t.Errorf("the webhook is %+v, the session %s", h, s.Status)
	}
	for _, d := range all {
		d.End(t)
	}
	if len(arrived) > 0 {
		t.Errorf("another webhook is %+v", <-arrived)
	}
}
