package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var eventRounds = flag.Int("eventcrash", 6, "how often TestFaultF46EventsAfterKillNine kills or stops one of the two daemons")

// Two daemons: one sends events, and one takes them in. Either is killed, and at times stopped, at random times while sessions
// run, which the next daemon goes on with, and while events are on their way. In the end the event of each session of which
// there are records has arrived, and none twice.
func TestFaultF46EventsAfterKillNine(t *testing.T) {
	testkit.Slow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	provider, dir, intake := daemontest.Quick(t), t.TempDir(), t.TempDir()
	begin := func(env ...string) (*process, string) {
		p := start(t, append([]string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + provider, "LLM_COUNCIL_MODELS=a,b,c",
			"LLM_COUNCIL_DRAIN_TIMEOUT=0s",
		}, env...), "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
		return p, url
	}
	const token = "token-of-the-sender"
	var receiverURL atomic.Value // of a daemon whose port is another after each start
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		resp, data, err := daemontest.Caller{Base: receiverURL.Load().(string), Token: token}.Send(r.Context(), r.Method, r.URL.Path, string(body))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(data)
	}))
	defer between.Close()
	beginReceiver := func() *process {
		p, url := begin("LLM_COUNCIL_BIAS_STORE="+filepath.Join(intake, "records.jsonl"), "LLM_COUNCIL_EVENTS_INTAKE=true",
			"LLM_COUNCIL_API_TOKENS=sender:"+token)
		receiverURL.Store(url)
		return p
	}
	var senderURL atomic.Value
	beginSender := func() *process {
		p, url := begin("LLM_COUNCIL_BIAS_STORE="+filepath.Join(dir, "records.jsonl"), "LLM_COUNCIL_BIAS_CONSENT=4", "LLM_COUNCIL_HASH_SECRET=a-secret-of-sixteen",
			"LLM_COUNCIL_EVENT_SINK="+between.URL+"/v1/events", "LLM_COUNCIL_EVENT_TOKEN="+token, "LLM_COUNCIL_EVENT_ALLOW=127.0.0.1/32")
		senderURL.Store(url)
		return p
	}
	end := func(p *process, how os.Signal) {
		if err := p.Process.Signal(how); err != nil {
			t.Error(err)
		}
		_ = p.Wait() // that it was killed
	}
	receiver, sender := beginReceiver(), beginSender()
	var over atomic.Bool
	var callers sync.WaitGroup
	for n := range 4 {
		callers.Go(func() {
			for asked := 0; !over.Load(); asked++ {
				body := fmt.Sprintf(`{"query":"Why %d %d?","background":%v}`, n, asked, n%2 == 0)
				resp, _, err := daemontest.Caller{Base: senderURL.Load().(string)}.Send(t.Context(), http.MethodPost, "/v1/council", body)
				if err != nil || resp.StatusCode >= 300 || n%2 == 0 {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for round := range *eventRounds {
		time.Sleep(50*time.Millisecond + time.Duration(rng.Int64N(int64(300*time.Millisecond))))
		how := os.Kill
		if round%5 == 4 {
			how = syscall.SIGTERM
		}
		if round%2 == 0 {
			end(sender, how)
			sender = beginSender()
		} else {
			end(receiver, how)
			receiver = beginReceiver()
		}
	}
	over.Store(true)
	callers.Wait()
	end(sender, syscall.SIGTERM)
	sender = beginSender() // sends at once what waits
	sessions, arrived := map[string]bool{}, map[string]int{}
	daemontest.Until(t, func() bool {
		_, data := daemontest.Caller{Base: senderURL.Load().(string)}.Call(t, http.MethodGet, "/v1/council?status=running", "")
		if !strings.Contains(string(data), `"sessions":[]`) {
			return false
		}
		clear(sessions)
		for _, r := range daemontest.Records(t, filepath.Join(dir, "records.jsonl")) {
			if r.RankValue != nil {
				sessions[r.SessionID] = true
			}
		}
		arrived = map[string]int{}
		for line, err := range store.DailyLines(t.Context(), filepath.Join(intake, "events-intake.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			var l struct {
				Event struct {
					Session string `json:"session_id"`
				} `json:"event"`
			}
			if err := json.Unmarshal(line.Text, &l); err != nil {
				t.Fatal(err)
			}
			arrived[l.Event.Session]++
		}
		for id := range sessions {
			if arrived[id] == 0 {
				return false
			}
		}
		return len(sessions) > 0
	})
	end(sender, syscall.SIGTERM)
	end(receiver, syscall.SIGTERM)
	for id, n := range arrived {
		if n > 1 {
			t.Errorf("the event of the session %s arrived %d times", id, n)
		}
	}
	daemontest.Fault(t, "F46", "the event of each session of which there are records arrives, and none arrives twice",
		"%d times kill -9 or SIGTERM: %d sessions with records, events of %d sessions, none twice", *eventRounds, len(sessions), len(arrived))
}
