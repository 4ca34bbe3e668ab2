package daemon_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// publishing is a roster in which one of three models has a public name.
const publishing = `version: 1
models:
  one: {model: a, publish_as: maker/model-a}
  two: {model: b}
  three: {model: c}
councils:
  all: {members: [one, two, three]}
`

// recorder passes connections on to an address, and keeps each byte that comes in.
type recorder struct {
	url string

	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// record starts a recorder in front of the server at a URL.
func record(t *testing.T, to string) *recorder {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{url: "http://" + listener.Addr().String()}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() {
				defer in.Close()
				out, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(to, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer out.Close()
				passing.Go(func() {
					_, _ = io.Copy(in, out)
					_ = in.Close()
				})
				_, _ = io.Copy(io.MultiWriter(out, r), in)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		passing.Wait()
	})
	return r
}

// sink starts a server that takes events, and counts deliveries.
func sink(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return server
}

// Every byte that leaves the machine, at each level of consent: nothing at 0 and 1, and from 2 on one event a session, made of
// its records, that holds no text and no name of a model but a public one.
func TestEventsOnTheWire(t *testing.T) {
	const question = `{"query":"Tell me about marmalade","category":"knowledge","language":"en"}`
	for level := range 5 {
		t.Run(strconv.Itoa(level), func(t *testing.T) {
			took := make(chan struct{}, 8)
			wire := record(t, sink(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusAccepted)
				took <- struct{}{}
			}).URL)
			d, _ := onRoster(t, publishing, map[string]string{
				"BIAS_CONSENT": strconv.Itoa(level), "HASH_SECRET": "a secret of this test", "EVENT_SINK": wire.url + "/v1/events",
				"EVENT_TOKEN": "sixteen-letters.", "EVENT_ALLOW": "127.0.0.0/8",
			})
			session := d.Ask(t, question)
			if level >= 2 {
				<-took
			}
			d.End(t) // ends a delivery that is on its way
			if level < 2 {
				if wire.String() != "" {
					t.Errorf("at level %d this was sent: %s", level, wire)
				}
				return
			}
			head, body, _ := strings.Cut(wire.String(), "\r\n\r\n")
			wantHead := fmt.Sprintf("POST /v1/events HTTP/1.1\r\nHost: %s\r\nUser-Agent: councild\r\nContent-Length: %d\r\n"+
				"Authorization: Bearer sixteen-letters.\r\nContent-Type: application/json", strings.TrimPrefix(wire.url, "http://"), len(body))
			if head != wantHead {
				t.Errorf("the head is %q, want %q", head, wantHead)
			}
			var sent struct {
				Events []consent.Event `json:"events"`
			}
			if err := json.Unmarshal([]byte(body), &sent); err != nil || len(sent.Events) != 1 {
				t.Fatalf("%s: %v", body, err)
			}
			if level >= 3 { // one name, one figure
				own := *session.Metadata.BiasIndicators
				for _, figure := range []*float64{own.PositionVariance, own.LengthCorrelation, own.ReviewerAgreement} {
					if figure != nil {
						*figure = stat.Round(*figure)
					}
				}
				if diff := cmp.Diff(&own, sent.Events[0].BiasIndicators); diff != "" || own.LengthCorrelation == nil {
					t.Errorf("the indicators of the session and of its event (-session +event):\n%s", diff)
				}
			}
			want := consent.Make(d.Records(t), consent.Options{
				Level: level, Policy: council.PolicyAvailable, Audit: &council.AuditThresholds{LengthCorrelation: .3, PositionVariance: .5},
				Publish: func(id string) string { return map[string]string{"one": "maker/model-a"}[id] },
			})
			previewed, err := daemon.PreviewEvents(t.Context(), d.Config, d.Config.BiasStore, level, 1)
			if err != nil || len(previewed) != 1 {
				t.Fatalf("%d events in the preview: %v", len(previewed), err)
			}
			for name, e := range map[string]*consent.Event{"the records": want, "the preview": &previewed[0]} {
				e.EventID = sent.Events[0].EventID
				if level < 4 {
					e.SessionID = sent.Events[0].SessionID
				}
				text, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if all := `{"events":[` + string(text) + `]}`; body != all {
					t.Errorf("%s was sent, and %s says %s", body, name, all)
				}
			}
			hidden := []string{"marmalade", `"a"`, `"b"`, `"one"`, "a secret of this test"}
			if level < 4 {
				hidden = append(hidden, session.ID)
			}
			for _, text := range hidden {
				if strings.Contains(wire.String(), text) {
					t.Errorf("%s was sent: %s", text, wire)
				}
			}
			if !strings.Contains(body, `"model":"maker/model-a"`) || strings.Count(body, `"model":"other"`) != 2 {
				t.Errorf("the models are not maker/model-a and two others: %s", body)
			}
		})
	}
}

// A sink that hangs slows neither a session nor the end of the daemon. The next daemon sends what waits.
func TestEventsOutliveTheDaemon(t *testing.T) {
	var mu sync.Mutex
	arrived := map[string]int{}
	var hangs atomic.Bool
	hangs.Store(true)
	reached := make(chan struct{}, 64)
	server := sink(t, func(w http.ResponseWriter, r *http.Request) {
		var sent struct {
			Events []consent.Event `json:"events"`
		}
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &sent) != nil {
			t.Errorf("%s: %v", body, err)
		}
		if hangs.Load() {
			reached <- struct{}{}
			<-r.Context().Done() // nobody knows any more what became of them
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range sent.Events {
			arrived[e.EventID]++
		}
		w.WriteHeader(http.StatusOK)
	})
	env := map[string]string{
		"BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"), "BIAS_CONSENT": "2", "EVENT_SINK": server.URL, "EVENT_ALLOW": "127.0.0.1/32",
	}
	d, _ := onRoster(t, publishing, env)
	const sessions = 3
	for range sessions {
		if s := d.Ask(t, anyQuestion); !s.Persisted {
			t.Error("the records of a session are not kept")
		}
	}
	<-reached
	begun := time.Now()
	d.End(t)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the daemon took %s to end", took)
	}
	hangs.Store(false)
	d, _ = onRoster(t, publishing, env)
	daemontest.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(arrived) == sessions
	})
	d.End(t)
	mu.Lock()
	defer mu.Unlock()
	for id, n := range arrived {
		if n != 1 {
			t.Errorf("the event %s arrived %d times", id, n)
		}
	}
}

// A sink that is away is told in /readyz, which stays green.
func TestEventsThatWaitAreTold(t *testing.T) {
	server := sink(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	d, _ := onRoster(t, publishing, map[string]string{"BIAS_CONSENT": "2", "EVENT_SINK": server.URL, "EVENT_ALLOW": "127.0.0.1/32"})
	d.Ask(t, anyQuestion)
	daemontest.Until(t, func() bool {
		status, data := d.Call(t, "GET", "/readyz", "")
		return status == http.StatusOK && strings.Contains(string(data), `"code":"events"`)
	})
	_, data := d.Call(t, "GET", "/metrics", "")
	for _, want := range []string{
		"councild_events_waiting 1\n", "councild_events_sent_total 0\n", "councild_events_rejected_total 0\n", "councild_events_given_up_total 0\n",
		"councild_events_oldest_waiting_seconds ",
	} {
		if !strings.Contains(string(data), "\n"+want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(string(data), "councild_events_taken_total") {
		t.Error("a daemon that takes no events in counts them")
	}
}

// eventText is an event of today, as a sender would write it.
func eventText(tb testing.TB, n int) string {
	tb.Helper()
	return fmt.Sprintf(`{"schema_version":"1.1.0","event_id":"00000000-0000-4000-8000-%012d","session_id":"00000000-0000-4000-8000-%012d",`+
		`"day":%q,"category":null,"rankings":[{"model":"maker/x","rank":1,"borda_normalized":1},{"model":"other","rank":2,"borda_normalized":0}]}`,
		n, n, time.Now().UTC().Format(time.DateOnly))
}

func TestIntakeRefuses(t *testing.T) {
	const sends, asks = "token-of-the-sender", "token-of-the-asker"
	tokens := fmt.Sprintf("tokens:\n  sender: {sha256: %x, may: [events]}\n  asker: {sha256: %x, may: [ask, report]}\n",
		sha256.Sum256([]byte(sends)), sha256.Sum256([]byte(asks)))
	d, _ := onRoster(t, publishing+tokens, map[string]string{"EVENTS_INTAKE": "true"})
	one := `{"events":[` + eventText(t, 1) + `]}`
	for _, c := range []struct {
		name, token, body string
		status            int
		want              string
	}{
		{"no token", "", one, http.StatusUnauthorized, "unauthorized"},
		{"a wrong token", sends + "x", one, http.StatusUnauthorized, "unauthorized"},
		{"a token without the right", asks, one, http.StatusForbidden, "no right to events"},
		{"no events", sends, `{"events":[]}`, http.StatusUnprocessableEntity, "send 1 to 1000"},
		{"no list", sends, `{"events":{}}`, http.StatusUnprocessableEntity, "give a list"},
		{"another field", sends, `{"events":[1],"more":1}`, http.StatusUnprocessableEntity, "no such field"},
		{"too many", sends, `{"events":[` + strings.Repeat("1,", 1000) + `1]}`, http.StatusUnprocessableEntity, "1000 are allowed"},
		{"too large", sends, `{"events":["` + strings.Repeat("x", 1<<20) + `"]}`, http.StatusRequestEntityTooLarge, "MAX_QUERY_BYTES"},
		{"no JSON", sends, `{"events":[`, http.StatusBadRequest, "not valid JSON"},
		{"no event", sends, `{"events":[{"text":"What is it?"},null,7]}`, http.StatusOK, `"rejected":3`},
		{"an event", sends, one, http.StatusOK, `{"accepted":1,"duplicates":0,"rejected":0,"events":[{"event_id":"00000000-0000-4000-8000-000000000001","status":"accepted"}]}`},
		{"it again", sends, one, http.StatusOK, `"status":"duplicate"`},
	} {
		status, data := daemontest.Caller{Base: d.Base, Token: c.token}.Call(t, "POST", "/v1/events", c.body)
		if status != c.status || !strings.Contains(string(data), c.want) {
			t.Errorf("%s: %d %s, want %d with %s", c.name, status, data, c.status, c.want)
		}
		if strings.Contains(string(data), "What is it?") {
			t.Errorf("%s: what was sent comes back: %s", c.name, data)
		}
	}
	_, data := daemontest.Caller{Base: d.Base, Token: asks}.Call(t, "GET", "/metrics", "")
	for outcome, want := range map[string]int{"accepted": 1, "duplicate": 1, "rejected": 3} {
		if line := fmt.Sprintf("\ncouncild_events_taken_total{outcome=%q} %d\n", outcome, want); !strings.Contains(string(data), line) {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if strings.Contains(string(data), "councild_events_waiting") {
		t.Error("a daemon that sends no events counts them")
	}
}

func TestIntakeNeedsTokens(t *testing.T) {
	body := `{"events":[` + eventText(t, 1) + `]}`
	for intake, want := range map[string]int{"true": http.StatusForbidden, "false": http.StatusNotFound} {
		d := onTap(t, tap(t), "EVENTS_INTAKE", intake)
		if status, data := d.Call(t, "POST", "/v1/events", body); status != want {
			t.Errorf("EVENTS_INTAKE=%s without tokens: %d %s, want %d", intake, status, data, want)
		}
	}
}

// Two daemons: what one sends, the other takes in, each event once, also when the sender does not hear of it.
func TestOneDaemonSendsToAnother(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	const token = "token-of-the-sender"
	receiver := onTapWith(t, tap(t), map[string]string{"EVENTS_INTAKE": "true", "API_TOKENS": "sender:" + token})
	var lost atomic.Int32
	between := sink(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		resp, data, err := daemontest.Caller{Base: receiver.Base, Token: token}.Send(r.Context(), "POST", r.URL.Path, string(body))
		if err != nil {
			return
		}
		if lost.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway) // the answer is lost
			return
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(data)
	})
	sender, _ := onRoster(t, publishing, map[string]string{
		"BIAS_CONSENT": "4", "HASH_SECRET": "a-secret-of-sixteen", "EVENT_SINK": between.URL + "/v1/events", "EVENT_TOKEN": token, "EVENT_ALLOW": "127.0.0.1/32",
	})
	const sessions = 4
	for range sessions {
		sender.Ask(t, `{"query":"Why?","category":"math"}`)
	}
	kept := func() map[string]int {
		ids := map[string]int{}
		for line, err := range store.DailyLines(t.Context(), receiver.Config.IntakeFile()) {
			if err != nil {
				t.Fatal(err)
			}
			var l struct {
				Organisation string        `json:"organisation"`
				Event        consent.Event `json:"event"`
			}
			if err := json.Unmarshal(line.Text, &l); err != nil || l.Organisation != "sender" {
				t.Fatalf("%s: %v", line.Text, err)
			}
			ids[l.Event.SessionID]++
		}
		return ids
	}
	daemontest.Until(t, func() bool { return len(kept()) == sessions && lost.Load() > 1 })
	sender.End(t)
	receiver.End(t)
	for id, n := range kept() {
		if n != 1 {
			t.Errorf("the event of %s was taken in %d times", id, n)
		}
	}
}

// The board over the events of five organisations, over HTTP: what they sent before the daemon was started is looked at then.
func TestBoardOverEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	var tokens []string
	for k := range 5 {
		tokens = append(tokens, fmt.Sprintf("org%d:token-of-organisation-%d", k, k))
	}
	env := map[string]string{"EVENTS_INTAKE": "true", "BIAS_STORE": path, "API_TOKENS": strings.Join(tokens, ",")}
	d := onTapWith(t, tap(t), env)
	board := filepath.Join(filepath.Dir(path), "events-intake-board.json")
	n := 0
	for k := range 5 {
		var texts []string
		for range 5 {
			n++
			texts = append(texts, eventText(t, n))
		}
		caller := daemontest.Caller{Base: d.Base, Token: fmt.Sprintf("token-of-organisation-%d", k)}
		if status, data := caller.Call(t, "POST", "/v1/events", `{"events":[`+strings.Join(texts, ",")+`]}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, data)
		}
	}
	read := func() (b consent.Board) {
		caller := daemontest.Caller{Base: d.Base, Token: "token-of-organisation-0"}
		if status, data := caller.Call(t, "GET", "/v1/leaderboard?scope=events&days=7", ""); status != http.StatusOK || json.Unmarshal(data, &b) != nil {
			t.Fatalf("%d %s", status, data)
		}
		return b
	}
	if b := read(); len(b.Models) > 0 || b.Day == nil {
		t.Errorf("on the day on which the events were looked at before they came, there is %+v", b)
	}
	d.End(t)
	if err := os.Remove(board); err != nil { // as if the events had come before the first look
		t.Fatal(err)
	}
	d = onTapWith(t, tap(t), env)
	if b := read(); len(b.Models) != 1 || b.Models[0].Model != "maker/x" || b.Models[0].Mean != 1 || b.Models[0].Organisations != 5 ||
		b.Models[0].Sessions != 25 {
		t.Errorf("the board is %+v", b)
	}
}
