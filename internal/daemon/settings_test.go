package daemon_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// tapped is a provider that remembers the requests it gets.
type tapped struct {
	url string

	mu          sync.Mutex // guards what follows
	bodies      []map[string]any
	keys        map[string]bool // Authorization headers
	now, max    int             // requests in flight
	seen        []*seen         // in the order in which they came
	connections int
}

// seen is one request.
type seen struct {
	model      string
	task       simllm.TaskKind
	sum        [sha256.Size]byte // of its body
	connection string
	begun      time.Time
	ended      time.Time // zero while it is in flight
	cut        bool      // the client went away before the reply was sent
}

// tap starts a provider with models a to d, of which d may be given faults.
func tap(t *testing.T, faults ...simllm.Fault) *tapped {
	t.Helper()
	return tapAll(t, map[string][]simllm.Fault{"d": faults})
}

// tapAll starts a provider with models a to d, with faults by model. A fault
// without a rate strikes always.
func tapAll(t *testing.T, faults map[string][]simllm.Fault) *tapped {
	t.Helper()
	var models []simllm.Model
	for _, name := range []string{"a", "b", "c", "d"} {
		m := simllm.Model{Name: name, Spread: 1, LengthSigma: 0.3, Noise: 0.5, Price: simllm.Price{Input: 1, Output: 1}}
		for _, f := range faults[name] {
			f.Rate = cmp.Or(f.Rate, 1)
			m.Faults = append(m.Faults, f)
		}
		models = append(models, m)
	}
	return tapModels(t, models...)
}

func tapModels(t *testing.T, models ...simllm.Model) *tapped {
	t.Helper()
	sim, err := simllm.New(simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	p := &tapped{keys: map[string]bool{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // a look at the models
			sim.ServeHTTP(w, r)
			return
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		defer p.note(t, r, raw)()
		r.Body = io.NopCloser(bytes.NewReader(raw))
		sim.ServeHTTP(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.connections++
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// note notes a request; the returned function notes its end.
func (p *tapped) note(t *testing.T, r *http.Request, raw []byte) (ended func()) {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Error(err)
	}
	s := &seen{
		model: fmt.Sprint(body["model"]), task: simllm.Question, sum: sha256.Sum256(raw), connection: r.RemoteAddr,
		begun: time.Now(),
	}
	switch {
	case bytes.Contains(raw, []byte("You are the chairman")):
		s.task = simllm.Synthesis
	case bytes.Contains(raw, []byte("=== BEGIN ANSWER")):
		s.task = simllm.Review
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, body)
	p.keys[r.Header.Get("Authorization")] = true
	p.now++
	p.max = max(p.max, p.now)
	p.seen = append(p.seen, s)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now--
		s.ended, s.cut = time.Now(), r.Context().Err() != nil
	}
}

const anyQuestion = `{"query":"What would change?","seed":3}`

// chatQuestion ends the body of a chat completion.
const chatQuestion = `"messages":[{"role":"user","content":"Why?"}]}`

// onTap starts a daemon whose members are a, b and c of p.
func onTap(t *testing.T, p *tapped, name, value string) *daemontest.Daemon {
	t.Helper()
	env := map[string]string{"BASE_URL": p.url, "MODELS": "a,b,c"}
	env[name] = value
	return daemontest.Start(t, env)
}

// onTapWith is onTap with several settings.
func onTapWith(t *testing.T, p *tapped, env map[string]string) *daemontest.Daemon {
	t.Helper()
	all := map[string]string{"BASE_URL": p.url, "MODELS": "a,b,c"}
	maps.Copy(all, env)
	return daemontest.Start(t, all)
}

// session runs one session of a, b and c with a setting.
func session(t *testing.T, name, value string) council.Session {
	t.Helper()
	return onTap(t, tap(t), name, value).Ask(t, anyQuestion)
}

// reviewedBy runs one session of members that one other model reviews, with settings.
func reviewedBy(t *testing.T, url, reviewer string, members []string, env map[string]string) council.Session {
	t.Helper()
	all := daemontest.Roster(t, "{members: ["+strings.Join(members, ", ")+"], reviewers: ["+reviewer+"]}", append(members, reviewer)...)
	all["BASE_URL"] = url
	maps.Copy(all, env)
	return daemontest.Start(t, all).Ask(t, anyQuestion)
}

// status returns the status that answers a request under a setting.
func status(t *testing.T, name, value, body string) int {
	t.Helper()
	code, _ := onTap(t, tap(t), name, value).Call(t, "POST", "/v1/council", body)
	return code
}

// first returns the status that answers a GET of the first of two finished sessions
// under a setting.
func first(t *testing.T, name, value string) int {
	t.Helper()
	d := onTap(t, tap(t), name, value)
	id := d.Ask(t, anyQuestion).ID
	d.Ask(t, anyQuestion)
	code, _ := d.Call(t, "GET", "/v1/council/"+id, "")
	return code
}

// besideAnother returns the status that answers a request while a session of the same
// caller runs, under a setting.
func besideAnother(t *testing.T, name, value string) int {
	t.Helper()
	url, arrived, release := daemontest.Held(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "waiting,quick", "ALLOWED_MODELS": "quick", name: value})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = d.Send(t.Context(), "POST", "/v1/council", anyQuestion)
	}()
	<-arrived
	code, _ := d.Call(t, "POST", "/v1/council", `{"query":"x","models":["quick","quick"]}`)
	release()
	<-done
	return code
}

// onOther returns the status with which another daemon, under a setting, answers a GET of
// a session that is kept on a cluster.
func onOther(t *testing.T, name, value string) int {
	t.Helper()
	env := map[string]string{"BASE_URL": tap(t).url, "MODELS": "a,b", "NATS_URL": journaltest.Start(t).URL, "DRAIN_TIMEOUT": "600ms"}
	d := daemontest.Start(t, env)
	_, data := d.Call(t, "POST", "/v1/council", anyQuestion, "Idempotency-Key", "k")
	var s council.Session
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	env[name] = value
	other := daemontest.Start(t, env)
	daemontest.Until(t, func() bool {
		_, list := d.Call(t, "GET", "/v1/council", "")
		return bytes.Contains(list, []byte(s.ID))
	})
	code, _ := other.Call(t, "GET", "/v1/council/"+s.ID, "")
	return code
}

// refused returns the end of the error with which a daemon on a cluster does not start
// under a setting: what it says of the value. "" means that it starts.
func refused(t *testing.T, name, value string) string {
	t.Helper()
	daemontest.Setenv(t, map[string]string{"NATS_URL": journaltest.Start(t).URL, name: value})
	d, err := daemon.New(t.Context(), daemontest.Options(t))
	if err == nil {
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return ""
	}
	for _, word := range []string{"/none.pem", "credentials"} {
		if strings.Contains(err.Error(), word) && strings.Contains(err.Error(), "LLM_COUNCIL_NATS_URL") {
			return word
		}
	}
	return err.Error()
}

// reportUnder returns the bias report over 25 sessions, one a day, under a setting.
func reportUnder(t *testing.T, name, value string) bias.Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	encoder := json.NewEncoder(f)
	for i := range 25 {
		for j := range 4 {
			err := encoder.Encode(council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: strconv.Itoa(i), Timestamp: time.Now().AddDate(0, 0, -i).Add(-time.Minute),
				ReviewerID: fmt.Sprint("r", j%2),
				ModelID:    fmt.Sprint("m", j), Position: &j, ResponseLengthChars: 100 * (i + j), ScoreValue: new(float64(1 + (i+j)%10)),
				ScoreScale:  council.ScoreScale,
				OrderDesign: council.OrderBalanced, Status: council.BallotOK,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"BIAS_STORE": path}
	env[name] = value
	code, data := daemontest.Start(t, env).Call(t, "GET", "/v1/bias-report", "")
	var r bias.Report
	if err := json.Unmarshal(data, &r); code != http.StatusOK || err != nil {
		t.Fatalf("%d %s", code, data)
	}
	return r
}

// synced reports whether records were synced to disk before the answer or, with an interval below a second, soon after it.
func synced(t *testing.T, fsync string, interval time.Duration) bool {
	t.Helper()
	env := map[string]string{"BASE_URL": tap(t).url, "MODELS": "a,b,c", "BIAS_FSYNC": fsync, "LOG_LEVEL": "debug"}
	d := daemontest.Start(t, env, func(c *config.Config) { c.BiasFsyncInterval = interval })
	d.Ask(t, anyQuestion)
	onDisk := func() bool { return strings.Contains(d.Log.String(), "records are on disk") }
	if interval < time.Second {
		daemontest.Until(t, onDisk)
	}
	return onDisk()
}

// differ fails the test unless the setting makes the difference.
func differ[T comparable](t *testing.T, without, with, wantWithout, wantWith T) {
	t.Helper()
	if without != wantWithout || with != wantWith {
		t.Errorf("without the setting %v, with it %v; want %v and %v", without, with, wantWithout, wantWith)
	}
}

// equal fails the test unless got is what it must be under the setting.
func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// settings has one test for each setting: that it changes what the daemon does.
// A setting named "" is the default.
var settings = map[string]func(t *testing.T){
	"ADDR": func(t *testing.T) {
		equal(t, strings.HasPrefix(daemontest.Start(t, map[string]string{"ADDR": "127.0.0.2:0"}).URL(), "http://127.0.0.2:"), true)
	},
	"API_TOKENS": func(t *testing.T) {
		differ(t, status(t, "", "", anyQuestion), status(t, "API_TOKENS", "0123456789abcdef", anyQuestion), 200, 401)
	},
	"CORS_ORIGINS": func(t *testing.T) {
		shared := func(origins string) string {
			url := onTap(t, tap(t), "CORS_ORIGINS", origins).URL() + "/v1/models"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Origin", "https://chat.example.com")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.Header.Get("Access-Control-Allow-Origin")
		}
		differ(t, shared(""), shared("https://chat.example.com"), "", "https://chat.example.com")
	},
	"BASE_URL": func(t *testing.T) {
		p := tap(t)
		onTap(t, p, "", "").Ask(t, anyQuestion)
		equal(t, len(p.bodies), 7)
	},
	"API_KEY": func(t *testing.T) {
		p := tap(t)
		onTap(t, p, "API_KEY", "sk-1").Ask(t, anyQuestion)
		equal(t, p.keys["Bearer sk-1"], true)
		equal(t, p.keys[""], false)
	},
	"PROVIDERS": func(t *testing.T) {
		p, other := tap(t), tap(t)
		daemontest.Start(t, map[string]string{"BASE_URL": p.url, "PROVIDERS": "other=" + other.url, "MODELS": "a,b,other:c"}).Ask(t,
			anyQuestion)
		equal(t, len(p.bodies), 5)
		equal(t, len(other.bodies), 2)
	},
	"API_KEY_<NAME>": func(t *testing.T) {
		p, other := tap(t), tap(t)
		daemontest.Start(t, map[string]string{
			"BASE_URL": p.url, "PROVIDERS": "other=" + other.url, "MODELS": "a,b,other:c",
			"API_KEY_OTHER": "sk-2",
		}).Ask(t, anyQuestion)
		equal(t, p.keys["Bearer sk-2"], false)
		equal(t, other.keys["Bearer sk-2"], true)
	},
	"MODELS": func(t *testing.T) {
		differ(t, len(session(t, "", "").Stage1), len(session(t, "MODELS", "a,b,c,a").Stage1), 3, 4)
	},
	"CHAIRMAN": func(t *testing.T) {
		differ(t, session(t, "", "").Stage3.Model, session(t, "CHAIRMAN", "c").Stage3.Model, "a", "c")
	},
	"ALLOWED_MODELS": func(t *testing.T) {
		const other = `{"query":"x","models":["a","b","d"]}`
		differ(t, status(t, "", "", other), status(t, "ALLOWED_MODELS", "d", other), 403, 200)
	},
	"MODE": func(t *testing.T) {
		differ(t, len(session(t, "", "").Stage2), len(session(t, "MODE", "synthesis").Stage2), 3, 0)
	},
	"MAP": func(t *testing.T) {
		differ(t, session(t, "", "").Metadata.Map != nil, session(t, "MAP", "false").Metadata.Map != nil, true, false)
	},
	"FIRST": func(t *testing.T) {
		differ(t, len(session(t, "", "").Stage1), len(session(t, "FIRST", "1").Stage1), 3, 1)
	},
	"ROSTER": func(t *testing.T) {
		asked := func(env map[string]string) string {
			env["BASE_URL"] = tap(t).url
			return daemontest.Start(t, env).Ask(t, anyQuestion).Council
		}
		differ(t, asked(map[string]string{"MODELS": "a,b,c"}), asked(map[string]string{"MODELS": "", "ROSTER": writeRoster(t, twoCouncils)}), "default", "deep")
	},
	"MAX_MODELS": func(t *testing.T) {
		const four = `{"query":"x","models":["a","b","c","a"]}`
		differ(t, status(t, "", "", four), status(t, "MAX_MODELS", "3", four), 200, 422)
	},
	"MAX_SESSIONS": func(t *testing.T) {
		differ(t, besideAnother(t, "MAX_SESSIONS", "2"), besideAnother(t, "MAX_SESSIONS", "1"), 200, 503)
	},
	"TIMEOUT": func(t *testing.T) {
		hang := simllm.Fault{Kind: simllm.FaultHang, Rate: 1}
		d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t, hang).url, "MODELS": "d,d", "TIMEOUT": "100ms"})
		code, _ := d.Call(t, "POST", "/v1/council", anyQuestion)
		equal(t, code, 504)
	},
	"ATTEMPT_TIMEOUT": func(t *testing.T) {
		hang := simllm.Fault{Kind: simllm.FaultHang, Rate: 1}
		d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t, hang).url, "MODELS": "a,b,c,d", "ATTEMPT_TIMEOUT": "500ms"})
		s := d.Ask(t, anyQuestion)
		equal(t, s.Stage1[3].Error.Code, council.FailTimeout)
	},
	"MAX_ATTEMPTS": func(t *testing.T) {
		// The second attempt would succeed.
		code := func(most string) council.Outcome {
			once := simllm.Fault{Kind: simllm.FaultStatus, Status: 503, Rate: 1, Times: 1}
			return daemontest.Start(t, map[string]string{"BASE_URL": tap(t, once).url, "MODELS": "a,b,c,d", "MAX_ATTEMPTS": most}).Ask(t,
				anyQuestion).Stage1[3].Status
		}
		differ(t, code(""), code("1"), council.OutcomeOK, council.OutcomeError)
	},
	"STRAGGLER_GRACE": func(t *testing.T) {
		hang := simllm.Fault{Kind: simllm.FaultHang, Rate: 1}
		d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t, hang).url, "MODELS": "a,b,c,d", "STRAGGLER_GRACE": "1s"})
		equal(t, strings.Join(daemontest.Missing(d.Ask(t, anyQuestion)), ","), "stage1 d cut,stage2 d cut")
	},
	"QUORUM": func(t *testing.T) {
		down := simllm.Fault{Kind: simllm.FaultStatus, Rate: 1}
		answered := func(quorum string) int {
			d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t, down).url, "MODELS": "a,b,d", "QUORUM": quorum})
			code, _ := d.Call(t, "POST", "/v1/council", anyQuestion)
			return code
		}
		differ(t, answered(""), answered("3"), 200, 502)
	},
	"MAX_COST_USD": func(t *testing.T) {
		free := session(t, "", "")
		answers := *free.Metadata.Usage.ByStage[council.Stage1].CostUSD // less of it than two of three cost would end stage 1
		limited := session(t, "MAX_COST_USD", strconv.FormatFloat(0.9*answers, 'f', -1, 64))
		differ(t, free.Status, limited.Status, council.StatusComplete, council.StatusDegraded)
	},
	"COST_LIMITS": func(t *testing.T) {
		code := func(strength string) int {
			return status(t, "COST_LIMITS", strength, `{"query":"x","max_cost_usd":1}`)
		}
		differ(t, code(""), code("hard"), 200, 422)
	},
	"MAX_COST_USD_PER_DAY": func(t *testing.T) {
		second := func(limit string) int {
			d := onTap(t, tap(t), "MAX_COST_USD_PER_DAY", limit)
			d.Ask(t, anyQuestion)
			code, _ := d.Call(t, "POST", "/v1/council", anyQuestion)
			return code
		}
		differ(t, second(""), second("0.0001"), 200, 429)
	},
	"MAX_COST_USD_PER_TOKEN_DAY": func(t *testing.T) {
		other := func(limit string) [2]int {
			d := daemontest.Start(t, map[string]string{
				"BASE_URL": tap(t).url, "MODELS": "a,b,c", "API_TOKENS": "one:0123456789abcdef,two:fedcba9876543210",
				"MAX_COST_USD_PER_TOKEN_DAY": limit,
			})
			d.Token = "0123456789abcdef"
			d.Ask(t, anyQuestion)
			mine, _ := d.Call(t, "POST", "/v1/council", anyQuestion)
			d.Token = "fedcba9876543210"
			theirs, _ := d.Call(t, "POST", "/v1/council", anyQuestion)
			return [2]int{mine, theirs}
		}
		differ(t, other(""), other("0.0001"), [2]int{200, 200}, [2]int{429, 200})
	},
	"PRICES": func(t *testing.T) {
		cost := func(prices string) bool {
			url := daemontest.Quick(t) // it does not tell its costs
			s := daemontest.Start(t, map[string]string{"BASE_URL": url, "MODELS": "a,b", "PRICES": prices}).Ask(t, anyQuestion)
			return s.Metadata.Usage.CostUSD != nil
		}
		differ(t, cost(""), cost("a=1/10,b=1/10"), false, true)
	},
	"EVENT_SINK": func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "sent.jsonl")
		found := func() bool {
			data, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(data), `"event_id"`)
		}
		d := onTapWith(t, tap(t), map[string]string{"BIAS_CONSENT": "2"})
		d.Ask(t, anyQuestion)
		d.End(t)
		waiting, err := filepath.Glob(filepath.Join(filepath.Dir(d.Config.BiasStore), "events*"))
		if err != nil || len(waiting) > 0 {
			t.Errorf("without a sink there are %v", waiting)
		}
		onTapWith(t, tap(t), map[string]string{"BIAS_CONSENT": "2", "EVENT_SINK": file}).Ask(t, anyQuestion)
		daemontest.Until(t, found)
	},
	"EVENT_TOKEN": func(t *testing.T) {
		header := func(token string) string {
			got := make(chan string, 8)
			server := sink(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
			onTapWith(t, tap(t), map[string]string{
				"BIAS_CONSENT": "2", "EVENT_SINK": server.URL, "EVENT_ALLOW": "127.0.0.1/32", "EVENT_TOKEN": token,
			}).Ask(t, anyQuestion)
			return <-got
		}
		differ(t, header(""), header("a-secret-of-sixteen"), "", "Bearer a-secret-of-sixteen")
	},
	"WEBHOOK_URL": func(t *testing.T) {
		sends := func(set bool) bool {
			env, arrived := hookReceiver(t, takesHooks())
			if !set {
				delete(env, "WEBHOOK_URL")
				delete(env, "WEBHOOK_SECRET")
			}
			d := onTapWith(t, tap(t), env)
			background(t, d, "Is there a webhook?")
			if set {
				<-arrived
			}
			d.End(t)
			waiting, err := filepath.Glob(filepath.Join(filepath.Dir(d.Config.BiasStore), "webhooks*"))
			equal(t, err, nil)
			return len(waiting) > 0
		}
		differ(t, sends(false), sends(true), false, true)
	},
	"WEBHOOK_SECRET": func(t *testing.T) {
		signatures := func(secret string) int {
			env, arrived := hookReceiver(t, takesHooks())
			env["WEBHOOK_SECRET"] = secret
			background(t, onTapWith(t, tap(t), env), "Who signs it?")
			return strings.Count((<-arrived).header.Get("webhook-signature"), "v1,")
		}
		secret := hookSecret(hookKey)
		differ(t, signatures(secret), signatures(secret+","+secret), 1, 2)
	},
	"EVENTS_INTAKE": func(t *testing.T) {
		took := func(intake string) int {
			code, _ := onTap(t, tap(t), "EVENTS_INTAKE", intake).Call(t, "POST", "/v1/events", `{"events":[1]}`)
			return code
		}
		differ(t, took("false"), took("true"), http.StatusNotFound, http.StatusForbidden)
	},
	"EVENT_ALLOW": func(t *testing.T) {
		reached := func(networks string) bool {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var connections atomic.Int32
			var listening sync.WaitGroup
			listening.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					connections.Add(1)
					_ = conn.Close()
				}
			})
			defer listening.Wait()
			defer listener.Close()
			_, port, err := net.SplitHostPort(listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			d := onTapWith(t, tap(t), map[string]string{
				"BIAS_CONSENT": "2", "EVENT_SINK": "https://localhost:" + port, "EVENT_ALLOW": networks,
			})
			d.Ask(t, anyQuestion)
			daemontest.Until(t, func() bool {
				_, data := d.Call(t, "GET", "/readyz", "")
				return strings.Contains(string(data), `"events"`)
			})
			d.End(t)
			return connections.Load() > 0
		}
		differ(t, reached(""), reached("127.0.0.0/8,::1/128"), false, true)
	},
	"MAX_TOTAL_TOKENS": func(t *testing.T) {
		differ(t, session(t, "", "").Status, session(t, "MAX_TOTAL_TOKENS", "1").Status, council.StatusComplete, council.StatusDegraded)
	},
	"TEMPERATURE": func(t *testing.T) {
		differ(t, count(t, "", "", "temperature", 0.25), count(t, "TEMPERATURE", "0.25", "temperature", 0.25), 0, 4)
	},
	"REVIEW_TEMPERATURE": func(t *testing.T) {
		differ(t, count(t, "", "", "temperature", 0), count(t, "REVIEW_TEMPERATURE", "0", "temperature", 0), 0, 3)
	},
	"MAX_OUTPUT_TOKENS": func(t *testing.T) {
		differ(t, count(t, "", "", "max_tokens", 5000), count(t, "MAX_OUTPUT_TOKENS", "5000", "max_tokens", 5000), 0, 7)
	},
	"BALLOT_REPAIR": func(t *testing.T) {
		invalid := func(repair string) council.Outcome {
			prose := simllm.Fault{Kind: simllm.BallotProse, Rate: 1, Times: 1}
			s := reviewedBy(t, tap(t, prose).url, "d", []string{"a", "b", "c"}, map[string]string{"BALLOT_REPAIR": repair})
			return s.Stage2[0].Status
		}
		differ(t, invalid(""), invalid("true"), council.OutcomeInvalid, council.OutcomeOK)
	},
	"ORDER": func(t *testing.T) {
		differ(t, session(t, "", "").Metadata.Order, session(t, "ORDER", "shared").Metadata.Order, council.OrderBalanced,
			council.OrderShared)
	},
	"RANDOM_SEED": func(t *testing.T) {
		seed := func(value string) int64 {
			return onTap(t, tap(t), "RANDOM_SEED", value).Ask(t, `{"query":"What would change?"}`).Metadata.Seed
		}
		five, again := seed("5"), seed("5")
		differ(t, five == seed("6"), five == again, false, true)
	},
	"SELF_REVIEW_RATE": func(t *testing.T) {
		differ(t, len(session(t, "", "").Stage2[0].LabelToModel), len(session(t, "SELF_REVIEW_RATE", "1").Stage2[0].LabelToModel), 2, 3)
	},
	"PARTIAL_BALLOTS": func(t *testing.T) {
		votes := func(policy string) int {
			partial := simllm.Fault{Kind: simllm.BallotPartial, Rate: 1}
			s := reviewedBy(t, tap(t, partial).url, "d", []string{"a", "b", "c"}, map[string]string{"PARTIAL_BALLOTS": policy})
			n := 0
			for _, st := range s.Metadata.AggregateRankings {
				n += st.VoteCount
			}
			return n
		}
		differ(t, votes(""), votes("tied_last"), 2, 3)
	},
	"CONFIG_VERSION": func(t *testing.T) {
		d := onTap(t, tap(t), "CONFIG_VERSION", "mine-2")
		s := d.Ask(t, anyQuestion)
		equal(t, s.Metadata.Versions.CouncilConfig, "mine-2")
		equal(t, d.Records(t)[0].CouncilConfig, "mine-2")
	},
	"BIAS_AUDIT": func(t *testing.T) {
		differ(t, session(t, "", "").Metadata.BiasAudit == nil, session(t, "BIAS_AUDIT", "false").Metadata.BiasAudit == nil, false, true)
		differ(t, session(t, "", "").Metadata.BiasIndicators == nil, session(t, "BIAS_AUDIT", "false").Metadata.BiasIndicators == nil,
			false, true)
	},
	"LENGTH_CORRELATION_THRESHOLD": func(t *testing.T) {
		// Twelve members whose lengths differ, reviewed by one that prefers long answers.
		detected := func(threshold string) bool {
			var models []simllm.Model
			var names []string
			for i := range 12 {
				models = append(models, simllm.Model{Name: fmt.Sprintf("m%d", i), Length: 0.5 + float64(i)/4})
				names = append(names, models[i].Name)
			}
			sim := daemontest.Provider(t, append(models, simllm.Model{Name: "fan", LengthBias: 1.5, Harshness: -1})...)
			s := reviewedBy(t, sim.URL(), "fan", names, map[string]string{"LENGTH_CORRELATION_THRESHOLD": threshold})
			return *s.Metadata.BiasAudit.LengthAssociation
		}
		differ(t, detected(""), detected("1"), true, false)
	},
	"POSITION_VARIANCE_THRESHOLD": func(t *testing.T) {
		detected := func(threshold string) bool {
			// Seven members that all give the first place four points.
			var models []simllm.Model
			var names []string
			for i := range 7 {
				models = append(models, simllm.Model{Name: fmt.Sprintf("m%d", i), Position: []float64{4}, Harshness: -2})
				names = append(names, models[i].Name)
			}
			s := daemontest.Start(t, map[string]string{
				"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": strings.Join(names, ","), "POSITION_VARIANCE_THRESHOLD": threshold,
			}).Ask(t, anyQuestion)
			return *s.Metadata.BiasAudit.PositionBiasDetected
		}
		differ(t, detected("100"), detected(""), false, true)
	},
	"LEXICON": func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lexicon.json")
		if err := os.WriteFile(path, []byte(`{"size": ["large", "small"]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		differ(t, len(session(t, "", "").Metadata.DemographicDisagreement.Axes),
			len(session(t, "LEXICON", path).Metadata.DemographicDisagreement.Axes), 5, 1)
	},
	"DEMOGRAPHICS_THRESHOLD": func(t *testing.T) {
		// One of three answers covers an axis that the others do not.
		flagged := func(threshold string) bool {
			reply := func(text string) func(simllm.Task) (string, bool) {
				return func(task simllm.Task) (string, bool) { return text, task.Kind == simllm.Question }
			}
			plain := strings.Repeat("Soak the beans overnight and cook them slowly. ", 12)
			sim := daemontest.Provider(t, simllm.Model{Name: "a", Reply: reply(plain)},
				simllm.Model{Name: "b", Reply: reply(plain + "Salt them late.")},
				simllm.Model{Name: "c", Reply: reply(strings.Repeat("Every grandmother, mother, daughter, sister and wife in the family "+
					"cooks them. ", 8))})
			s := daemontest.Start(t, map[string]string{
				"BASE_URL": sim.URL(), "MODELS": "a,b,c",
				"DEMOGRAPHICS_THRESHOLD": threshold,
			}).Ask(t, anyQuestion)
			return s.Metadata.DemographicDisagreement.Flagged
		}
		differ(t, flagged(""), flagged("1"), true, false)
	},
	"DEMOGRAPHICS": func(t *testing.T) {
		asked := func(backend string) council.Metadata {
			sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"})
			return daemontest.Start(t, map[string]string{
				"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": "b", "EMBEDDING_MODEL": "b", "DEMOGRAPHICS": backend,
			}).Ask(t, anyQuestion).Metadata
		}
		judged := func(backend string) bool { return asked(backend).DemographicJudgement != nil }
		clustered := func(backend string) bool { return asked(backend).DemographicClustering != nil }
		differ(t, asked("").DemographicDisagreement == nil, asked("off").DemographicDisagreement == nil, false, true)
		differ(t, judged(""), judged("llm_judge"), false, true)
		differ(t, clustered("llm_judge"), clustered("embedding"), false, true)
	},
	"JUDGE_MODEL": func(t *testing.T) {
		asked := func(judge string) int {
			sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"})
			r, _ := sessionsOf(t, "planted.txt")
			code, _, _ := ask(t, daemontest.Start(t, map[string]string{"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": judge}), r[0])
			return code
		}
		differ(t, asked(""), asked("b"), 422, 200)
	},
	"BIAS_PERSISTENCE": func(t *testing.T) {
		differ(t, session(t, "", "").Persisted, session(t, "BIAS_PERSISTENCE", "false").Persisted, true, false)
	},
	"DATA_DIR": func(t *testing.T) {
		// kept returns the names of what a daemon keeps, and with which status another daemon knows a session.
		kept := func(dir string) (names []string, status int) {
			sim := daemontest.Provider(t, simllm.Model{Name: "a"}, simllm.Model{Name: "b"})
			env := map[string]string{
				"BASE_URL": sim.URL(), "MODELS": "a,b", "JUDGE_MODEL": "b", "BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"), "DATA_DIR": dir,
			}
			if dir != "off" {
				env["BIAS_CONSENT"] = "2"
				env["EVENT_SINK"] = filepath.Join(t.TempDir(), "sent")
				env["EVENTS_INTAKE"] = "true"
			}
			d := daemontest.Start(t, env)
			id := background(t, d, "Is it kept?")
			if dir != "off" {
				r, _ := sessionsOf(t, "everyday.txt")
				calibrate(t, d, r[:1])
			}
			d.End(t)
			if dir == "" || dir == "off" {
				dir = filepath.Dir(d.Config.BiasStore)
			}
			found, err := os.ReadDir(dir)
			equal(t, err, nil)
			for _, e := range found {
				if name, _, _ := strings.Cut(e.Name(), "."); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			status, _ = daemontest.Start(t, env).Call(t, "GET", "/v1/council/"+id, "")
			return names, status
		}
		beside, afterwards := kept("")
		equal(t, afterwards, 200)
		elsewhere, afterwards := kept(filepath.Join(t.TempDir(), "deep", "er"))
		equal(t, afterwards, 200)
		nowhere, afterwards := kept("off")
		equal(t, afterwards, 404)
		for _, name := range []string{"calibrations", "evidence", "events", "sessions", "spend"} {
			is := func(n string) bool { return strings.HasPrefix(n, name) }
			differ(t, slices.ContainsFunc(beside, is), slices.ContainsFunc(nowhere, is), true, false)
			equal(t, slices.ContainsFunc(elsewhere, is), true)
		}
		equal(t, slices.Contains(elsewhere, "records"), false)
	},
	"BIAS_STORE": func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "deep", "er.jsonl")
		onTap(t, tap(t), "BIAS_STORE", path).Ask(t, anyQuestion)
		equal(t, len(daemontest.Records(t, path)), 6)
	},
	"BIAS_CONSENT": func(t *testing.T) {
		d := onTap(t, tap(t), "BIAS_CONSENT", "2")
		d.Ask(t, anyQuestion)
		differ(t, session(t, "BIAS_CONSENT", "0").Persisted, d.Records(t)[0].ConsentLevel == 2, false, true)
	},
	"BIAS_WINDOW_SESSIONS": func(t *testing.T) {
		differ(t, reportUnder(t, "", "").Window.Sessions, reportUnder(t, "BIAS_WINDOW_SESSIONS", "12").Window.Sessions, 25, 12)
	},
	"BIAS_WINDOW_DAYS": func(t *testing.T) {
		differ(t, reportUnder(t, "", "").Window.Sessions, reportUnder(t, "BIAS_WINDOW_DAYS", "12").Window.Sessions, 25, 12)
	},
	"MIN_BIAS_SESSIONS": func(t *testing.T) {
		differ(t, reportUnder(t, "", "").Metrics[0].Confidence, reportUnder(t, "MIN_BIAS_SESSIONS", "40").Metrics[0].Confidence,
			bias.ConfidenceModerate, bias.ConfidencePreliminary)
	},
	"MONITOR_INTERVAL": func(t *testing.T) {
		shown := func(interval string) bool {
			return strings.Contains(monitored(t, map[string]string{"MONITOR_INTERVAL": interval}), "councild_monitor_alarm{")
		}
		differ(t, shown("off"), shown("1m"), false, true)
	},
	"BIAS_FSYNC": func(t *testing.T) {
		differ(t, synced(t, "session", time.Hour), synced(t, "off", time.Hour), true, false)
		differ(t, synced(t, "interval", time.Hour), synced(t, "interval", time.Millisecond), false, true)
	},
	"BIAS_RETENTION_DAYS": func(t *testing.T) {
		kept := func(days string) int {
			path := filepath.Join(t.TempDir(), "records.jsonl")
			old := fmt.Sprintf(`{"schema_version": 1, "session_id": "old", "timestamp": %q, `+
				`"reviewer_id": "a", "model_id": "b", "response_length_chars": 9}`+"\n",
				time.Now().AddDate(0, 0, -40).Format(time.RFC3339))
			if err := os.WriteFile(path+".000001", []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
			d := daemontest.Start(t, map[string]string{"BIAS_STORE": path, "BIAS_RETENTION_DAYS": days})
			daemontest.Until(t, func() bool { // the segment was compressed or, too old for that, deleted
				_, err := os.Stat(path + ".000001")
				return os.IsNotExist(err)
			})
			d.End(t)
			return len(d.Records(t))
		}
		differ(t, kept("41"), kept("39"), 1, 0)
	},
	"EMBEDDING_MODEL": func(t *testing.T) {
		measured := func(model string) bool {
			d := onTap(t, tap(t), "EMBEDDING_MODEL", model)
			d.Ask(t, anyQuestion)
			return d.Records(t)[0].StyleSimilarity != nil
		}
		differ(t, measured(""), measured("d"), false, true)
	},
	"HASH_SECRET": func(t *testing.T) {
		hash := func(secret string) string {
			d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t).url, "MODELS": "a,b", "BIAS_CONSENT": "4", "HASH_SECRET": secret})
			d.Ask(t, anyQuestion)
			return *d.Records(t)[0].QueryHash
		}
		one, again := hash("the first of two secrets"), hash("the first of two secrets")
		differ(t, one == hash("the second of two secrets"), one == again, false, true)
	},
	"SHADOW_RATE": func(t *testing.T) {
		compared := func(rate string) int {
			d := onTap(t, tap(t), "SHADOW_RATE", rate)
			d.Ask(t, anyQuestion)
			d.End(t)
			return len(evidenceOf(t, d))
		}
		differ(t, compared(""), compared("1"), 0, 1)
	},
	"LABEL_RATE": func(t *testing.T) {
		wanted := func(rate string) bool {
			return daemontest.Start(t, map[string]string{
				"BASE_URL": tap(t).url, "MODELS": "a,b", "LABEL_RATE": rate, "HASH_SECRET": "a-secret-of-sixteen",
			}).Ask(t, anyQuestion).Metadata.LabelWanted
		}
		differ(t, wanted(""), wanted("1"), false, true)
	},
	"SESSIONS_KEY": func(t *testing.T) {
		readable := func(key string) bool {
			dir := t.TempDir()
			d := daemontest.Start(t, map[string]string{"BASE_URL": tap(t).url, "MODELS": "a,b", "DATA_DIR": dir, "SESSIONS_KEY": key})
			background(t, d, "Who can read this question?")
			d.End(t)
			found := false
			if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				found = found || bytes.Contains(data, []byte("Who can read this question?"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return found
		}
		differ(t, readable(""), readable("0123456789abcdef"), true, false)
	},
	"NATS_URL": func(t *testing.T) {
		differ(t, onOther(t, "NATS_URL", ""), onOther(t, "", ""), 404, 200)
	},
	"NATS_PREFIX": func(t *testing.T) {
		differ(t, onOther(t, "NATS_PREFIX", "council"), onOther(t, "NATS_PREFIX", "team"), 200, 404)
	},
	"NATS_REPLICAS": func(t *testing.T) {
		url := journaltest.Start(t).URL
		warned := func(replicas, prefix string) bool {
			d := daemontest.Start(t, map[string]string{"NATS_URL": url, "NATS_REPLICAS": replicas, "NATS_PREFIX": prefix, "DRAIN_TIMEOUT": "0s"})
			return strings.Contains(d.Log.String(), "stored by one server")
		}
		differ(t, warned("", "three"), warned("1", "one"), false, true)
	},
	"NATS_CREDS": func(t *testing.T) {
		differ(t, refused(t, "", ""), refused(t, "NATS_CREDS", "no credentials"), "", "credentials")
	},
	"NATS_CA": func(t *testing.T) {
		differ(t, refused(t, "", ""), refused(t, "NATS_CA", "/none.pem"), "", "/none.pem")
	},
	"SESSION_RETENTION": func(t *testing.T) {
		differ(t, first(t, "", ""), first(t, "SESSION_RETENTION", "0s"), 200, 404)
	},
	"SESSIONS_KEPT": func(t *testing.T) {
		differ(t, first(t, "", ""), first(t, "SESSIONS_KEPT", "1"), 200, 404)
	},
	"MAX_QUERY_BYTES": func(t *testing.T) {
		differ(t, status(t, "", "", anyQuestion), status(t, "MAX_QUERY_BYTES", "10", anyQuestion), 200, 422)
	},
	"METRICS": func(t *testing.T) {
		scrape := func(on string) (int, string) {
			d := onTap(t, tap(t), "METRICS", on)
			d.Ask(t, anyQuestion)
			code, data := d.Call(t, "GET", "/metrics", "")
			return code, string(data)
		}
		code, text := scrape("")
		off, _ := scrape("false")
		differ(t, code, off, 200, 404)
		equal(t, strings.Contains(text, `councild_sessions_total{status="complete"} 1`), true)
	},
	"LOG_LEVEL": func(t *testing.T) {
		listening := func(level string) bool { return strings.Contains(logOf(t, "LOG_LEVEL", level), "listening") }
		differ(t, listening("info"), listening("error"), true, false)
	},
	"DRAIN_TIMEOUT": TestDrainTimeout, // and TestDrain shows the default
}

// logOf returns what a daemon logs that is started and stopped under a setting.
func logOf(t *testing.T, name, value string) string {
	t.Helper()
	daemontest.Setenv(t, map[string]string{name: value})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := &stopping{stop: stop}
	if code := cli.Main(ctx, cli.IO{Args: []string{"demo"}, Stdout: log, Stderr: &log.Buffer}); code != 0 {
		t.Fatalf("exit %d: %s", code, log)
	}
	return log.String()
}

// stopping stops a daemon that says how to stop it.
type stopping struct {
	bytes.Buffer
	stop func()
}

// Write implements io.Writer.
func (s *stopping) Write(p []byte) (int, error) {
	s.stop()
	return len(p), nil
}

// count returns how many requests of one session hold the value in a field.
func count(t *testing.T, name, value, field string, want float64) int {
	t.Helper()
	p := tap(t)
	onTap(t, p, name, value).Ask(t, anyQuestion)
	n := 0
	for _, body := range p.bodies {
		if body[field] == want {
			n++
		}
	}
	return n
}

func TestEverySettingChangesSomething(t *testing.T) {
	testkit.Slow(t)
	var known []string
	for _, s := range (config.Config{}).Settings() {
		known = append(known, strings.TrimPrefix(s.Name, "LLM_COUNCIL_"))
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !slices.Contains(known, name) {
			t.Errorf("%s is tested, but is no setting", name)
		}
	}
	for _, name := range known {
		test, ok := settings[name]
		if !ok {
			t.Errorf("%s has no test that changing it changes behaviour", name)
			continue
		}
		t.Run(name, test)
	}
}
