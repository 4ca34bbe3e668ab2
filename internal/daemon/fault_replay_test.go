package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// repeats is how often clients send a request by themselves: LangChain seven times.
const repeats = 7

// doors are bodies for OpenAI's doors, with places for the question and for further fields.
var doors = []struct{ path, body, schema string }{
	{
		"/v1/chat/completions", `{"model":"council","messages":[{"role":"user","content":%q}]%s}`,
		`,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","required":["n"]}}}`,
	},
	{
		"/v1/responses", `{"model":"council","input":%q%s}`,
		`,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","required":["n"]}}}`,
	},
}

// calls returns how many requests the provider got.
func (f *trial) calls() int {
	f.provider.mu.Lock()
	defer f.provider.mu.Unlock()
	return len(f.provider.seen)
}

// listed returns the sessions that the daemon lists.
func listed(t *testing.T, d *daemontest.Daemon) []council.Summary {
	t.Helper()
	var list struct{ Sessions []council.Summary }
	if _, data := d.Call(t, "GET", "/v1/council", ""); json.Unmarshal(data, &list) != nil {
		t.Fatalf("%s", data)
	}
	return list.Sessions
}

// A client repeats what failed, whatever the failure says, and its session is paid once.
func TestFaultF52(t *testing.T) {
	testkit.Slow(t)
	var figures []string
	for _, tt := range []struct {
		name  string
		fault simllm.Fault
		json  bool
		code  council.Code
	}{
		{"no_quorum", simllm.Fault{Kind: simllm.FaultErrorIn200}, false, council.CodeNoQuorum},
		{"no_valid_output", simllm.Fault{Kind: simllm.FaultRefusal, Tasks: syntheses}, true, council.CodeNoValidOutput},
		{"deadline", simllm.Fault{Kind: simllm.FaultHang}, false, council.CodeDeadline},
	} {
		t.Run(tt.name, func(t *testing.T) {
			faults := []simllm.Fault{tt.fault}
			f := trialOf(t, tapAll(t, map[string][]simllm.Fault{"a": faults, "b": faults, "c": faults}), "a,b,c", map[string]string{"TIMEOUT": "2s"})
			sessions, calls, requests := 0, 0, 0
			for _, door := range doors {
				for _, streamed := range []bool{false, true} {
					fields := fmt.Sprintf(`,"stream":%t`, streamed)
					if tt.json {
						fields += door.schema
					}
					body := fmt.Sprintf(door.body, fmt.Sprint("the unmistakable question ", sessions), fields)
					for i := range repeats {
						before := f.calls()
						resp, data, err := f.Send(t.Context(), "POST", door.path, body)
						if err != nil || !strings.Contains(string(data), fmt.Sprintf(`"code":%q`, tt.code)) {
							t.Fatalf("%s: %.500s %v", door.path, data, err)
						}
						f.problems = append(f.problems, data...)
						if requests++; i == 0 {
							calls += f.calls() - before
						} else if n := f.calls() - before; n > 0 || resp.Header.Get("Councild-Replayed") != "true" {
							t.Errorf("%s: repeat %d made %d calls: %.500s", door.path, i, n, data)
						}
					}
					sessions++
				}
			}
			if n := len(listed(t, f.Daemon)); n != sessions || f.calls() != calls {
				t.Errorf("%d questions made %d sessions; %d calls, %d of them in first sessions", sessions, n, f.calls(), calls)
			}
			figures = append(figures, fmt.Sprintf("%s: %d questions in %d requests, %d sessions, %d calls", tt.name, sessions, requests, sessions, calls))
		})
	}
	daemontest.Fault(t, "F52", "one session for each question; no call for a repeat", "%s", strings.Join(figures, "; "))
}

// A session that was cancelled stays cancelled for the client that waits and repeats its request. A client that left, and
// comes back with the same request, is told what was paid.
func TestFaultF53(t *testing.T) {
	var figures []string
	for _, how := range []string{"DELETE", "the client leaves"} {
		t.Run(how, func(t *testing.T) {
			hang := []simllm.Fault{{Kind: simllm.FaultHang, Tasks: []simllm.TaskKind{simllm.Review}}}
			f := trialOf(t, tapAll(t, map[string][]simllm.Fault{"a": hang, "b": hang, "c": hang, "d": hang}), "a,b,c,d", nil)
			questions, requests := 0, 0
			for _, door := range doors {
				for _, streamed := range []bool{false, true} {
					questions++
					body := fmt.Sprintf(door.body, fmt.Sprint("the unmistakable question ", questions), fmt.Sprintf(`,"stream":%t`, streamed))
					ctx, leave := context.WithCancel(t.Context())
					defer leave()
					var answers sync.WaitGroup
					answers.Go(func() {
						requests++
						resp, data, err := f.Send(ctx, "POST", door.path, body)
						if how == "DELETE" && (err != nil || !streamed && resp.StatusCode != http.StatusBadRequest ||
							!strings.Contains(string(data), `"code":"cancelled"`)) {
							t.Errorf("who waits gets %.500s, %v", data, err)
						}
					})
					eventually(t, "the reviews are under way", 10*time.Second, func() bool { return f.calls() == 8*questions })
					if how == "DELETE" {
						f.Call(t, "DELETE", "/v1/council/"+listed(t, f.Daemon)[0].ID, "")
					} else {
						leave()
					}
					answers.Wait()
					f.idle(t)
					for range repeats - 1 {
						requests++
						resp, data, err := f.Send(t.Context(), "POST", door.path, body)
						if err != nil || !streamed && resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Councild-Replayed") != "true" ||
							!strings.Contains(string(data), `"code":"cancelled"`) || !strings.Contains(string(data), "after 8 calls were paid") {
							t.Errorf("who repeats gets %.500s, %v", data, err)
						}
						f.problems = append(f.problems, data...)
					}
				}
			}
			if n := len(listed(t, f.Daemon)); n != questions || f.calls() != 8*questions {
				t.Errorf("%d sessions and %d calls for %d questions", n, f.calls(), questions)
			}
			figures = append(figures, fmt.Sprintf("%s: %d questions in %d requests, %d sessions, 8 calls each", how, questions, requests, questions))
		})
	}
	daemontest.Fault(t, "F53", "cancelled, 400, and no call for a repeat", "%s", strings.Join(figures, "; "))
}

// A balancer sends the repeats of a request to other nodes. They know how its session ended.
func TestNodesReplay(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	members := daemontest.Members()[:2]
	for i := range members {
		members[i].Faults = []simllm.Fault{{Kind: simllm.FaultErrorIn200, Rate: 1}}
	}
	sim := daemontest.Provider(t, members...)
	all := nodes(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b"}, cluster.URL, cluster.URL, cluster.URL)
	asked := func() (n int) {
		for _, m := range sim.Stats().Models {
			n += m.Requests
		}
		return n
	}
	for i, door := range doors {
		for _, streamed := range []bool{false, true} {
			body := fmt.Sprintf(door.body, "the unmistakable question", fmt.Sprintf(`,"stream":%t`, streamed))
			first, data := all[i].Call(t, "POST", door.path, body)
			id := listed(t, all[i])[0].ID
			if !strings.Contains(string(data), id) {
				t.Fatalf("%d %s", first, data)
			}
			for _, d := range all {
				there(t, d, id)
			}
			before := asked()
			for n, d := range all {
				resp, data, err := d.Send(t.Context(), "POST", door.path, body)
				if err != nil || resp.StatusCode != first || resp.Header.Get("Councild-Replayed") != "true" || asked() != before ||
					!strings.Contains(string(data), id) || !strings.Contains(string(data), `"code":"no_quorum"`) ||
					!strings.Contains(string(data), "nothing was paid again") {
					t.Errorf("node %d: %.500s %v", n, data, err)
				}
				if retry := resp.Header.Get("X-Should-Retry"); (retry == "false") == streamed {
					t.Errorf("node %d: X-Should-Retry is %q", n, retry)
				}
			}
		}
	}
}
