package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// killedDir holds what killed daemons left, one file for each of them. TestRecordKilledSessions (build tag scale) wrote the files.
const killedDir = "testdata/killed"

// killedDaemon is what a killed daemon left on its disk. In its file it is the first line, and each of its sessions is a
// line of its own.
type killedDaemon struct {
	Env      map[string]string `json:"env"`    // the settings, without the prefix
	Ledger   string            `json:"ledger"` // the file of costs
	End      string            `json:"end"`    // the file of the ledger's end
	Records  string            `json:"records"`
	Sessions []killedSession   `json:"-"`
}

// killedSession is a session of a killed daemon.
type killedSession struct {
	ID       string          `json:"id"`
	Question string          `json:"question"` // its mark in prompts, such as q-0007
	Worked   bool            `json:"worked"`   // whether the journal suspects that it killed the daemon
	Log      []killedMessage `json:"log"`
	Outcome  sessionEnd      `json:"outcome"` // of the daemon that resumed it when it was recorded
}

// killedMessage is one message of a session's log, as the journal had it.
type killedMessage struct {
	Seq     uint64          `json:"seq"`
	At      time.Time       `json:"at"`
	Head    journal.Head    `json:"head"`
	First   int             `json:"first"`
	Entries []council.Entry `json:"entries"`
}

// sessionEnd is how a session ended in the daemon that resumed it.
type sessionEnd struct {
	Status  int          `json:"status"` // of the answer to a request for the session
	Session any          `json:"session"`
	Costs   sessionCosts `json:"costs"`
	Records int          `json:"records"`
	Asked   []string     `json:"asked"` // every request that the provider got for the session, sorted
}

// sessionCosts are what the ledger has of a session.
type sessionCosts struct {
	Calls     int       `json:"calls"`
	Certain   spend.USD `json:"certain_usd"`
	Uncertain spend.USD `json:"uncertain_usd"`
	Unknown   int       `json:"unknown_calls"`
}

// 200 sessions whose daemons were killed by earlier builds are resumed. Each must end as it did in the build that
// recorded it: with the same session, the same costs in the ledger, and the same requests to the provider. The recording
// builds charged five cancelled sessions twice. Their costs were replaced by those of a build that charges them once.
func TestKilledSessionsResume(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(killedDir, "*.gz"))
	if err != nil {
		t.Fatal(err)
	}
	sessions := 0
	for i, file := range files {
		d := readKilled(t, file)
		sessions += len(d.Sessions)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl.gz"), func(t *testing.T) {
			if i > 0 {
				testkit.Slow(t)
			}
			for i, got := range d.resume(t) {
				if diff := cmp.Diff(plain(t, d.Sessions[i].Outcome), plain(t, got)); diff != "" {
					t.Errorf("session %s (%s): %s", d.Sessions[i].ID, d.Sessions[i].Question, diff)
				}
			}
		})
	}
	if sessions < 200 {
		t.Errorf("%d sessions are recorded, want 200", sessions)
	}
}

// reworded replaces what a message has said in another way since the logs were recorded.
var reworded = strings.NewReplacer(
	"run councild disagreement", "run councild report disagreement",
	"it takes two reviewers", "the test needs two reviewers",
	"and it takes 5", "and the test needs 5",
	"so few orders could have been drawn that none of them would be surprising",
	"there are too few possible orders of the answers: even the most extreme order could not be significant",
)

// aboutMoney matches the words that sentences about money have said in another way since the logs were recorded, with
// their amounts. The messages of the logs are lists of words. The field costs has the exact amounts.
var aboutMoney = regexp.MustCompile(`(\$?[0-9.]+|US|dollars|are|is|because|of|cost[:,]?|uncertain:?|in|flight|under|way)( |$)`)

// withoutMoney removes these words from the messages about money.
func withoutMoney(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			text, ok := member.(string)
			if key == "message" && ok && (strings.Contains(text, "uncertain") || strings.Contains(text, "reached:")) {
				v[key] = strings.TrimSpace(aboutMoney.ReplaceAllString(text, ""))
			}
			withoutMoney(member)
		}
	case []any:
		for _, element := range v {
			withoutMoney(element)
		}
	}
}

// plain returns an outcome as JSON decodes it.
func plain(t *testing.T, o sessionEnd) (v any) {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(reworded.Replace(string(data))), &v); err != nil {
		t.Fatal(err)
	}
	withoutMoney(v)
	outcome, _ := v.(map[string]any)
	session, _ := outcome["session"].(map[string]any)
	if inner, ok := session["session"].(map[string]any); ok { // the problem of a session that failed holds the session
		session = inner
	}
	metadata, _ := session["metadata"].(map[string]any)
	for _, field := range later {
		delete(session, field)
		delete(metadata, field)
	}
	return v
}

// later are the fields that sessions have got since the logs were recorded.
var later = []string{"mode", "answer_from", "stages", "first", "map", "earlier", "thread"}

// resume has a new daemon go on with the sessions. It returns how each ended.
func (d killedDaemon) resume(t *testing.T) []sessionEnd {
	t.Helper()
	dir := t.TempDir()
	d.restore(t, dir)
	provider := newScripted(t)
	env := map[string]string{"BASE_URL": provider.URL + "/v1"}
	for name, value := range d.Env {
		env[name] = strings.ReplaceAll(value, "$DIR", dir)
	}
	// These are names of earlier versions. Sessions lie beside the records, and their plans say who reviews and writes.
	if backend, ok := env["DEMOGRAPHICS_BACKEND"]; ok {
		env["DEMOGRAPHICS"] = backend
	}
	for _, name := range []string{"DEMOGRAPHICS_BACKEND", "SESSIONS_DIR", "REVIEWERS", "CHAIRMAN_FALLBACKS"} {
		delete(env, name)
	}
	resumed := daemontest.Start(t, env)
	outcomes := make([]sessionEnd, len(d.Sessions))
	for i, s := range d.Sessions {
		daemontest.Until(t, func() bool {
			var body []byte
			outcomes[i].Status, body = resumed.Call(t, http.MethodGet, "/v1/council/"+s.ID, "")
			var session struct{ Status council.Status }
			if err := json.Unmarshal(body, &session); err != nil {
				t.Fatal(err)
			}
			outcomes[i].Session = withoutTimes(t, body)
			return session.Status != council.StatusRunning
		})
	}
	resumed.End(t)
	costs := readCosts(t, filepath.Join(dir, "spend.jsonl"))
	records := map[string]int{}
	for r, err := range store.ReadFile(t.Context(), filepath.Join(dir, "records.jsonl")) {
		if err == nil {
			records[r.SessionID]++
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	for i, s := range d.Sessions {
		outcomes[i].Costs = costs[s.ID]
		outcomes[i].Records = records[s.ID]
		outcomes[i].Asked = provider.asked(s.Question)
	}
	return outcomes
}

// restore writes to a directory what the killed daemon left. The messages get new times: the sessions seem to have
// taken next to no time yet.
func (d killedDaemon) restore(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"spend.jsonl": d.Ledger, "spend.jsonl.end": d.End, "records.jsonl": d.Records} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := openKilled(t, filepath.Join(dir, "sessions"))
	for _, s := range d.Sessions {
		id := journal.ID{Session: s.ID}
		var last uint64
		for _, m := range s.Log {
			var err error
			if last, err = j.Append(t.Context(), id, last, journal.Message{Head: m.Head, First: m.First, Entries: m.Entries}); err != nil {
				t.Fatal(err)
			}
		}
		j.Working(id, s.Worked)
	}
	if err := j.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// openKilled opens the journal in a directory.
func openKilled(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: dir, MaxBytes: 64 << 20, Prefix: "council", Node: t.Name(), Replicas: 1, Lease: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// readKilled reads a file of killedDir.
func readKilled(t *testing.T, name string) (d killedDaemon) {
	t.Helper()
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(bufio.NewReader(text))
	if err := lines.Decode(&d); err != nil {
		t.Fatal(err)
	}
	for {
		var s killedSession
		if err := lines.Decode(&s); errors.Is(err, io.EOF) {
			return d
		} else if err != nil {
			t.Fatal(err)
		}
		d.Sessions = append(d.Sessions, s)
	}
}

// readCosts adds up the lines of a ledger by session. It reads the JSON, and does not use the package that wrote it.
func readCosts(t *testing.T, name string) map[string]sessionCosts {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]sessionCosts{}
	for line := range strings.Lines(string(text)) {
		var entry struct {
			Session string
			Calls   []struct {
				USD    *spend.USD
				Source spend.CostSource
			}
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		sum := all[entry.Session]
		for _, call := range entry.Calls {
			sum.Calls++
			switch {
			case call.USD == nil:
				sum.Unknown++
			case call.Source == spend.SourceBound:
				sum.Uncertain = sum.Uncertain.Plus(*call.USD)
			default:
				sum.Certain = sum.Certain.Plus(*call.USD)
			}
		}
		all[entry.Session] = sum
	}
	return all
}

var (
	// providerAddress matches the address of the provider, whose port is another one in each test.
	providerAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	amounts         = regexp.MustCompile(`\$?[0-9.]+`)
)

// withoutTimes returns a session, or a problem, without the figures that differ from run to run.
func withoutTimes(t *testing.T, body []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	removeTimes(v)
	session, _ := v.(map[string]any)
	metadata, _ := session["metadata"].(map[string]any)
	if status := session["status"]; status == string(council.StatusCancelled) || status == string(council.StatusFailed) {
		delete(metadata, "demographic_disagreement") // chance decides whether the run still counted terms before it ended
	}
	return v
}

func removeTimes(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			text, isText := member.(string)
			switch {
			case strings.HasSuffix(key, "_ms") || key == "timing":
				delete(v, key)
			case key == "message" && isText: // it may name models in the order in which they were charged
				text = providerAddress.ReplaceAllString(text, "")
				if strings.HasPrefix(text, "not called:") { // it may say what other calls had cost by then
					text = amounts.ReplaceAllString(text, "")
				}
				v[key] = strings.Join(slices.Sorted(strings.FieldsSeq(strings.ReplaceAll(text, ",", " "))), " ")
			default:
				removeTimes(member)
			}
		}
	case []any:
		for _, element := range v {
			removeTimes(element)
		}
	}
}

// mark returns the mark of a question, which questionMark matches.
func mark(n int) string { return fmt.Sprintf("q-%04d", n) }
