//go:build scale

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var recordDir = flag.String("record", "", "the directory to which TestRecordKilledSessions writes what killed daemons left")

// recording is a daemon that is to be killed with sessions of one sort.
type recording struct {
	name     string
	env      map[string]string
	sessions []recorded
	requests int           // most requests of a session that are answered in one life
	lives    int           // how many daemons are killed, one after the other; 0: one
	settle   time.Duration // how long the provider is quiet before a kill; 0: nobody waits for it
	begins   time.Duration // how long the first daemon has from its first request on, where nobody waits for the provider
	chance   time.Duration // most further time before the kill
	stopped  bool          // the first daemon is asked to stop, and hands its sessions over
}

// recorded is a session to record.
type recorded struct {
	door       string // background, keyed, streamed or single
	directions string
	fields     string // further fields of the body, with a comma before each
	cancelled  bool   // somebody deletes it just before the last kill
}

// all returns so many sessions that are asked at these doors in turn, with these directions in turn.
func all(n int, doors []string, directions ...string) (list []recorded) {
	for i := range n {
		r := recorded{door: doors[i%len(doors)]}
		if len(directions) > 0 {
			r.directions = directions[i%len(directions)]
		}
		list = append(list, r)
	}
	return list
}

// with returns the sessions with further fields in turn.
func with(list []recorded, fields ...string) []recorded {
	for i := range list {
		list[i].fields += fields[i%len(fields)]
	}
	return list
}

// settings returns these settings, and limits of cost that are hard.
func settings(session string, pairs ...string) map[string]string {
	env := map[string]string{"COST_LIMITS": "hard", "MAX_COST_USD": session}
	for pair := range slices.Chunk(pairs, 2) {
		env[pair[0]] = pair[1]
	}
	return env
}

func recordings() []recording {
	const (
		quiet = 300 * time.Millisecond
		some  = 150 * time.Millisecond
		judge = "llm_judge"
	)
	background := []string{"background"}
	doors := []string{"background", "keyed", "streamed"}
	hard := settings("1")
	day := settings("0.5", "MAX_COST_USD_PER_DAY", "100", "MODELS", "a,b,c,d")
	retries := []string{"[a.answer=429]", "[b.answer=cut]", "[c.review=500]", "[a.synthesis=cut]", "[b.review=429]", "", ""}
	repairs := []string{"[a.review=prose]", "[b.review=prose] [c.review=prose]", "[c.review=prose] [c.repair=prose]"}
	chairmen := []string{"[a.synthesis=bad]", "[a.synthesis=bad] [b.synthesis=bad]", "[a.synthesis=500]"}
	failures := []string{"[a.answer=bad]", "[b.review=bad]", "[a.answer=bad] [b.answer=bad]", "[c.answer=empty]"}
	late := []string{"[b.answer=hang]", "[c.review=hang]", "[a.synthesis=hang]"}
	budgets := []string{
		`,"max_cost_usd":0.03`, `,"max_cost_usd":0.034`, `,"max_cost_usd":0.04`,
		`,"max_cost_usd":0.05`, `,"max_cost_usd":0.06`, `,"max_cost_usd":0.07`,
	}
	tokens := []string{`,"max_total_tokens":4000`, `,"max_total_tokens":6000`, `,"max_total_tokens":9000`}
	soft := []string{`,"max_cost_usd":0.0001`, `,"max_cost_usd":0.002`, `,"max_total_tokens":300`, `,"max_total_tokens":2000`}
	schemas := all(10, background, "{json}", "{json} [a.synthesis=429]", "[b.review=429]")
	cancelled := all(14, background)
	for i := range cancelled {
		cancelled[i].cancelled = i%2 == 0
	}
	return []recording{
		{name: "plain", sessions: all(14, doors), requests: 8, settle: quiet, chance: some},
		{name: "hard", env: hard, sessions: all(14, doors), requests: 8, settle: quiet, chance: some},
		{name: "day", env: day, sessions: all(14, doors), requests: 5, lives: 2, settle: quiet, chance: some},
		{name: "five", env: settings("2", "MODELS", "a,b,c,d,e"), sessions: all(12, doors), requests: 12, settle: quiet, chance: some},
		{
			name: "repair", env: settings("1", "BALLOT_REPAIR", "true"), sessions: all(14, background, repairs...),
			requests: 6, lives: 2, settle: quiet, chance: some,
		},
		{name: "retries", env: hard, sessions: all(14, doors, retries...), requests: 9, settle: quiet, chance: some},
		{
			name: "retries-again", env: hard, sessions: all(12, background, retries...),
			requests: 5, lives: 3, settle: 50 * time.Millisecond, chance: some,
		},
		{
			name: "fallback", env: hard, sessions: all(14, doors, chairmen...),
			requests: 5, lives: 2, settle: quiet, chance: some,
		},
		{name: "failures", env: hard, sessions: all(12, background, failures...), requests: 7, settle: quiet, chance: some},
		{
			name: "judge", env: settings("2", "DEMOGRAPHICS", judge, "JUDGE_MODEL", "e"), sessions: all(14, background),
			requests: 10, settle: quiet, chance: some,
		},
		{
			name: "judge-soft", env: map[string]string{"DEMOGRAPHICS": judge, "JUDGE_MODEL": "e"}, sessions: all(12, background),
			requests: 7, lives: 2, settle: quiet, chance: some,
		},
		{
			name: "embedding", env: settings("2", "DEMOGRAPHICS", "embedding", "EMBEDDING_MODEL", "f", "MODELS", "a,b,c,d"),
			sessions: all(14, background), requests: 11, settle: quiet, chance: some,
		},
		{name: "budget", env: hard, sessions: with(all(14, background), budgets...), requests: 7, settle: quiet, chance: some},
		{name: "tokens", env: hard, sessions: with(all(12, background), tokens...), requests: 7, settle: quiet, chance: some},
		{name: "soft-budget", sessions: with(all(12, background), soft...), requests: 7, settle: quiet, chance: some},
		{
			name: "deadline", env: hard, sessions: with(all(12, background, late...), `,"timeout_seconds":6`),
			requests: 7, settle: quiet, chance: some,
		},
		{name: "texts", env: hard, sessions: all(14, []string{"background", "streamed"}), requests: 7, settle: 5500 * time.Millisecond},
		{
			name: "single", env: hard, sessions: all(12, []string{"single"}, "", "[a.answer=429]"),
			requests: 1, settle: 50 * time.Millisecond, chance: some,
		},
		{
			name: "schema", env: hard, sessions: with(schemas, `,"output_schema":{"type":"object","required":["n"]}`),
			requests: 8, settle: quiet, chance: some,
		},
		{name: "cancelled", env: hard, sessions: cancelled, requests: 7, settle: quiet},
		{name: "any-time", env: hard, sessions: all(14, doors), requests: 100, chance: some},
		{
			name: "any-time-again", env: day, sessions: all(14, background, "[b.review=500]", ""),
			requests: 100, lives: 3, chance: 6 * time.Millisecond,
		},
		{
			name: "crashes", sessions: all(10, background),
			requests: 100, lives: 5, begins: 10 * time.Millisecond, chance: 10 * time.Millisecond,
		},
		{name: "soon", env: hard, sessions: all(14, doors), requests: 100, chance: 30 * time.Millisecond},
		{
			name: "stopped", env: settings("1", "DRAIN_TIMEOUT", "0s"), sessions: all(12, background),
			requests: 5, lives: 2, settle: quiet, chance: some, stopped: true,
		},
		{
			name: "order", env: map[string]string{"ORDER": "per_reviewer", "SELF_REVIEW_RATE": "0.5"},
			sessions: all(12, doors), requests: 5, lives: 2, settle: quiet, chance: some,
		},
	}
}

// Daemons are killed while their sessions run, and what they leave is written to the directory of -record. A session is
// left out when several daemons that resume it do not agree on its outcome.
func TestRecordKilledSessions(t *testing.T) {
	if *recordDir == "" {
		t.Skip("-record names no directory")
	}
	next := 0
	total := 0
	for n, r := range recordings() {
		first := next
		next += len(r.sessions)
		t.Run(r.name, func(t *testing.T) {
			d := r.record(t, first, rand.New(rand.NewPCG(uint64(n), 1)))
			d.decide(t)
			total += len(d.Sessions)
			d.write(t, filepath.Join(*recordDir, r.name+".jsonl.gz"))
		})
	}
	t.Logf("%d sessions of %d", total, next)
}

// record has daemons run the sessions, kills them, and returns what the last one left.
func (r recording) record(t *testing.T, first int, rng *rand.Rand) killedDaemon {
	t.Helper()
	provider := newScripted(t)
	dir := t.TempDir()
	all := map[string]string{
		"MODELS": "a,b,c", "PRICES": "a=1.25/10,b=1.25/10,c=1.25/10,d=1.25/10,e=1.25/10,f=1/0", "MAX_OUTPUT_TOKENS": "300",
		"BIAS_STORE": "$DIR/records.jsonl", "TIMEOUT": "60s",
	}
	maps.Copy(all, r.env)
	env := []string{"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + provider.URL + "/v1"}
	for name, value := range all {
		env = append(env, "LLM_COUNCIL_"+name+"="+strings.ReplaceAll(value, "$DIR", dir))
	}
	var ids sync.Map // by question
	lives := max(1, r.lives)
	for life := range lives {
		gates := map[string]int{}
		for i := range r.sessions {
			gates[mark(first+i)] = rng.IntN(r.requests + 1)
		}
		provider.hold(gates)
		p := start(t, env, "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`)
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			_, _ = io.Copy(io.Discard, p.stderr)
		}()
		var callers sync.WaitGroup
		if life == 0 {
			for i, s := range r.sessions {
				callers.Go(func() { s.ask(t, url, mark(first+i), &ids) })
			}
		}
		if r.settle > 0 {
			time.Sleep(100 * time.Millisecond)
			provider.quiet(r.settle)
		}
		if life == lives-1 {
			for i, s := range r.sessions {
				if id, ok := ids.Load(mark(first + i)); ok && s.cancelled {
					time.Sleep(500 * time.Microsecond)
					callers.Go(func() {
						_, _, _ = daemontest.Caller{Base: url}.Send(t.Context(), http.MethodDelete, fmt.Sprint("/v1/council/", id), "")
					})
				}
			}
		}
		if life == 0 && r.settle == 0 {
			daemontest.Until(t, provider.busy)
			time.Sleep(r.begins)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(r.chance) + 1)))
		how := os.Kill
		if r.stopped && life == 0 {
			how = syscall.SIGTERM
		}
		if err := p.Process.Signal(how); err != nil {
			t.Error(err)
		}
		<-logged
		_ = p.Wait() // that it was killed
		callers.Wait()
	}
	d := readLeft(t, dir)
	d.Env = all
	return d
}

// ask asks for a session. The daemon may be killed meanwhile.
func (s recorded) ask(t *testing.T, url, question string, ids *sync.Map) {
	t.Helper()
	path := "/v1/council"
	text := fmt.Sprintf("Why is the sky blue, %s? %s", question, s.directions)
	body := fmt.Sprintf(`{"query":%q%s`, text, s.fields)
	headers := []string{"Idempotency-Key", question}
	switch s.door {
	case "background":
		body += `,"background":true`
		headers = nil
	case "streamed":
		body += `,"stream":true`
	case "single":
		path = "/v1/chat/completions"
		body = fmt.Sprintf(`{"model":"council/a","stream":true,"messages":[{"role":"user","content":%q}]%s`, text, s.fields)
	}
	resp, data, err := daemontest.Caller{Base: url}.Send(context.WithoutCancel(t.Context()), http.MethodPost, path, body+"}", headers...)
	if err == nil && resp.StatusCode >= http.StatusBadRequest && resp.StatusCode < http.StatusInternalServerError {
		t.Errorf("%s: %s", question, data)
	}
	var accepted struct {
		ID string `json:"session_id"`
	}
	if err == nil && json.Unmarshal(data, &accepted) == nil && accepted.ID != "" {
		ids.Store(question, accepted.ID)
	}
}

// readLeft reads what a killed daemon left in a directory.
func readLeft(t *testing.T, dir string) (d killedDaemon) {
	t.Helper()
	for name, text := range map[string]*string{"spend.jsonl": &d.Ledger, "spend.jsonl.end": &d.End, "records.jsonl": &d.Records} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		*text = string(data)
	}
	j := openKilled(t, filepath.Join(dir, "sessions"))
	for _, row := range j.Rows("") {
		s := killedSession{ID: row.Session, Question: questionMark.FindString(row.Query), Worked: j.MayHaveKilled(row.ID)}
		log, err := j.Read(t.Context(), journal.ID{Session: row.Session})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range log {
			s.Log = append(s.Log, killedMessage{Seq: m.Seq, At: m.At, Head: m.Head, First: m.First, Entries: m.Entries})
		}
		d.Sessions = append(d.Sessions, s)
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// decide resumes the sessions several times, on one processor and on several, and keeps those with one outcome that
// does not depend on chance.
func (d *killedDaemon) decide(t *testing.T) {
	t.Helper()
	const rounds = 10
	first := d.resume(t)
	differs := map[int]bool{}
	for i, s := range d.Sessions {
		if first[i].rationed(t) {
			differs[i] = true
			t.Logf("left out: session %s (%s): its budget was enough for some calls of a stage", s.ID, s.Question)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for round := range rounds - 1 {
		runtime.GOMAXPROCS(1 + round%3)
		for i, o := range d.resume(t) {
			if diff := cmp.Diff(plain(t, first[i]), plain(t, o)); diff != "" && !differs[i] {
				differs[i] = true
				t.Logf("left out: session %s (%s): %s", d.Sessions[i].ID, d.Sessions[i].Question, diff)
			}
		}
	}
	var kept []killedSession
	for i, s := range d.Sessions {
		if s.Outcome = first[i]; !differs[i] {
			kept = append(kept, s)
		}
	}
	d.Sessions = kept
}

// rationed reports whether the budget was enough for some calls of a stage and not for all. Chance decides then which
// calls come first.
func (e sessionEnd) rationed(t *testing.T) bool {
	t.Helper()
	data, err := json.Marshal(e.Session)
	if err != nil {
		t.Fatal(err)
	}
	type seat struct{ Error *council.Failure }
	var session struct{ Stage1, Stage2 []seat }
	if err := json.Unmarshal(data, &session); err != nil {
		t.Fatal(err)
	}
	refused := func(s seat) bool { return s.Error != nil && s.Error.Code == council.FailBudget }
	asked := strings.Join(e.Asked, " ")
	return slices.ContainsFunc(session.Stage1, refused) && strings.Contains(asked, ".answer") ||
		slices.ContainsFunc(session.Stage2, refused) && strings.Contains(asked, ".re") // of a review or its repair
}

// write writes the file of a killed daemon.
func (d killedDaemon) write(t *testing.T, name string) {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	err = lines.Encode(d)
	for _, s := range d.Sessions {
		err = errors.Join(err, lines.Encode(s))
	}
	if err := errors.Join(err, w.Close(), os.WriteFile(name, packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}
