package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var hookKills = flag.Int("hookkills", 4, "how often TestFaultF72WebhooksAfterKillNine kills the daemon")

// A daemon is killed when a client has just seen the end of a session in the background, or at a random time. The receiver
// of its webhooks does not answer meanwhile, or answers with an error. When the receiver is back, the webhook of each
// session arrives, with the status that the session has.
func TestFaultF72WebhooksAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var answers atomic.Bool
	var mu sync.Mutex              // guards arrived and copies
	arrived := map[string]string{} // by session, the last status that arrived
	copies := map[string]int{}     // by session
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if !answers.Load() || err != nil {
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var h struct {
			Data struct {
				SessionID string `json:"session_id"`
				Status    string `json:"status"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &h); err != nil || r.Header.Get("webhook-id") != "msg_"+h.Data.SessionID {
			t.Errorf("the webhook %s is %s: %v", r.Header.Get("webhook-id"), body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		arrived[h.Data.SessionID] = h.Data.Status
		copies[h.Data.SessionID]++
	}))
	defer receiver.Close()
	provider, dir := daemontest.Quick(t), t.TempDir()
	begin := func() (*process, daemontest.Caller) {
		p := start(t, []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + provider, "LLM_COUNCIL_MODELS=a,b,c",
			"LLM_COUNCIL_BIAS_STORE=" + filepath.Join(dir, "records.jsonl"),
			"LLM_COUNCIL_WEBHOOK_URL=" + receiver.URL, "LLM_COUNCIL_EVENT_ALLOW=127.0.0.1/32",
			"LLM_COUNCIL_WEBHOOK_SECRET=whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		}, "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
		return p, daemontest.Caller{Base: url}
	}
	runs := func(d daemontest.Caller, id string) bool {
		_, data := d.Call(t, http.MethodGet, "/v1/council/"+id, "")
		return strings.Contains(string(data), `"status":"running"`)
	}
	p, d := begin()
	var sessions []string
	for kill := range *hookKills {
		for n := range 5 {
			status, data := d.Call(t, http.MethodPost, "/v1/council", fmt.Sprintf(`{"query":"Why %d %d?","background":true}`, kill, n))
			var s council.Summary
			if err := json.Unmarshal(data, &s); err != nil || status != http.StatusAccepted {
				t.Fatalf("%d %s", status, data)
			}
			sessions = append(sessions, s.ID)
		}
		if kill%2 == 0 {
			for runs(d, sessions[len(sessions)-1]) {
			}
		} else {
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		}
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.Wait() // that it was killed
		p, d = begin()
	}
	answers.Store(true)
	begun := time.Now()
	daemontest.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range sessions {
			if arrived[id] == "" {
				return false
			}
		}
		return true
	})
	took := time.Since(begun)
	again := 0
	for _, id := range sessions {
		_, data := d.Call(t, http.MethodGet, "/v1/council/"+id, "")
		if !strings.Contains(string(data), `"status":"`+arrived[id]+`"`) {
			t.Errorf("the webhook of %s says %s, and the session is %s", id, arrived[id], data)
		}
		again += copies[id] - 1
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = p.Wait()
	daemontest.Fault(t, "F72", "the webhook of each session in the background arrives, with the session's status",
		"%d times kill -9, %d sessions: all webhooks arrived within %s of the receiver's return, %d of them again",
		*hookKills, len(sessions), took.Round(time.Millisecond), again)
}
