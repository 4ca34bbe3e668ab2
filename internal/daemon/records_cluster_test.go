package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/journaltest"
)

// node is what a daemon on a cluster has for its records.
type node struct {
	pipeline.Recorder
	journal *journal.Journal
	path    string
	log     *daemontest.Log
	stop    func()
}

// startNode starts a node of the cluster at url, with the record store at path.
func startNode(t *testing.T, url, path string, rotate int64) *node {
	t.Helper()
	n := &node{path: path, log: &daemontest.Log{}}
	log := slog.New(slog.NewTextHandler(n.log, nil))
	s, _, err := store.Open(store.Options{Path: path, RotateBytes: rotate, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(t.Context(), journal.Options{
		URL: url, Prefix: "council", Replicas: 3, Node: rand.Text(), MaxBytes: 1 << 20, Lease: 20 * time.Second, Log: log,
	})
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	n.journal = j
	p, release := daemon.ShareRecords(t.Context(), j, s, path+".cursor", log)
	n.Recorder = p
	n.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(release(ctx), j.Close(ctx), s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

// simulated returns the records of so many sessions, which began every six hours.
func simulated(sessions int) [][]council.BiasMetricRecord {
	members := biassim.Members()
	var all [][]council.BiasMetricRecord
	for _, r := range biassim.Generate(biassim.Options{
		Seed: 1, Sessions: sessions, Start: time.Now().UTC().Add(-10 * 24 * time.Hour), Order: council.OrderBalanced,
		Effects: biassim.Effects{Length: 0.5, Harshness: []float64{-1}},
		Slates: func(session int) []council.Slate {
			slates := make([]council.Slate, len(members))
			for i := range members {
				for place := range len(members) - 1 {
					shown := members[(i+1+(place+session)%(len(members)-1))%len(members)]
					slates[i] = append(slates[i], council.Shown{Label: anonymize.LabelAt(place), Member: shown})
				}
			}
			return slates
		},
	}) {
		if last := len(all) - 1; last < 0 || all[last][0].SessionID != r.SessionID {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// sorted returns the records as sorted lines.
func sorted(t *testing.T, records []council.BiasMetricRecord) (lines []string) {
	t.Helper()
	for i := range records {
		line, err := json.Marshal(records[i])
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines
}

// records returns what is in the store of the node, which may not be there.
func (n *node) records(t *testing.T) (records []council.BiasMetricRecord) {
	t.Helper()
	for record, err := range store.ReadFile(t.Context(), n.path) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bad, ok := errors.AsType[*store.LineError](err); ok && bad.Reason == store.ReasonUnterminated {
			return records // it is being written
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records
}

// hold waits until each of the nodes has at least the records of the sessions, and fails
// unless it then has these, each once.
func hold(t *testing.T, what string, sessions [][]council.BiasMetricRecord, nodes ...*node) {
	t.Helper()
	all := slices.Concat(sessions...)
	want := sorted(t, all)
	for i, n := range nodes {
		daemontest.Until(t, func() bool { return len(n.records(t)) >= len(all) })
		if d := cmp.Diff(want, sorted(t, n.records(t))); d != "" {
			t.Fatalf("%s: records of node %d: %.3000s", what, i, d)
		}
	}
}

// publish has the nodes send the records of the sessions in turn, all at once.
func publish(t *testing.T, sessions [][]council.BiasMetricRecord, nodes ...*node) {
	t.Helper()
	var wg sync.WaitGroup
	for i, records := range sessions {
		wg.Go(func() {
			if err := nodes[i%len(nodes)].Append(t.Context(), records); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// reports returns the bias reports over the stores of the nodes, as JSON.
func reports(t *testing.T, nodes ...*node) (all []string) {
	t.Helper()
	o := bias.Options{Now: time.Now(), WindowSessions: 25, Settings: config.SettingNames()}
	for _, n := range nodes {
		collector, err := daemon.Collect(t.Context(), []string{n.path}, o)
		if err != nil {
			t.Fatal(err)
		}
		report, err := json.MarshalIndent(collector.Report(t.Context()), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(report))
	}
	return all
}

// All nodes of a cluster have the records of all sessions, each once, and equal reports:
// also one that was stopped meanwhile, one whose file was deleted, one whose file was cut,
// and one that was killed before it wrote how far it was.
func TestRecordsOfAllNodes(t *testing.T) {
	testkit.Slow(t)
	url, dir, sessions := journaltest.Start(t).URL, t.TempDir(), simulated(30)
	for i := range sessions[12] { // of a node whose clock is ahead
		sessions[12][i].Timestamp = time.Now().UTC().Add(time.Hour)
	}
	start := func(name string, rotate int64) *node {
		return startNode(t, url, filepath.Join(dir, name, "records.jsonl"), rotate)
	}
	const small = 20 << 10 // two sessions or so
	a, b, c := start("a", 0), start("b", small), start("c", 0)
	publish(t, sessions[:10], a, b, c)
	hold(t, "10 sessions", sessions[:10], a, b, c)

	// The stopping a writes its cursor of now; c is cut in the middle of a session.
	a.stop()
	early := readFile(t, a.path+".cursor")
	a = start("a", 0)
	c.stop()
	cut := readFile(t, c.path)
	if err := os.Truncate(c.path, int64(len(cut)/2+100)); err != nil {
		t.Fatal(err)
	}
	publish(t, sessions[10:20], a, b)
	hold(t, "20 sessions, while one node is down", sessions[:20], a, b)

	// The files of b are deleted, but not its cursor. The cursor of a is from before 10 sessions that are in its file.
	a.stop()
	b.stop()
	files, err := filepath.Glob(filepath.Join(dir, "b", "records.jsonl*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files of b: %v, %v", files, err)
	}
	for _, file := range files {
		if file == b.path+".cursor" {
			continue
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if late := readFile(t, a.path+".cursor"); late == early {
		t.Error("the cursor did not change")
	}
	if err := os.WriteFile(a.path+".cursor", []byte(early), 0o600); err != nil {
		t.Fatal(err)
	}
	a, b, c = start("a", 0), start("b", small), start("c", 0)
	hold(t, "after the damage", sessions[:20], a, b, c)
	publish(t, sessions[20:], a, b, c)
	hold(t, "30 sessions", sessions, a, b, c)
	for _, n := range []*node{b, c} {
		if !strings.Contains(n.log.String(), "failed, was changed or became shorter") {
			t.Errorf("%s: the log does not say that something is missing: %s", n.path, n.log)
		}
	}
	all := reports(t, a, b, c)
	for i := range all {
		if d := cmp.Diff(all[0], all[i]); d != "" {
			t.Errorf("report of node %d: %.3000s", i, d)
		}
	}
	if !strings.Contains(all[0], `"sessions": 25`) {
		t.Errorf("the report: %.500s", all[0])
	}

	// While a node runs, too.
	if err := os.Remove(a.path); err != nil {
		t.Fatal(err)
	}
	hold(t, "after a file was deleted", sessions, a)
	publish(t, sessions[:10], b, c) // once more
	more := simulated(31)[30:]
	c.stop()
	if err := os.WriteFile(c.path+".cursor", []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = start("c", 0)
	publish(t, more, b)
	sessions = append(sessions, more...)
	hold(t, "31 sessions", sessions, a, b, c)

	// A file is cut just before an append, which makes a segment of what is left.
	left := readFile(t, a.path)
	left = left[:strings.LastIndex(left[:len(left)/2], "\n")+1]
	if err := os.Truncate(a.path, int64(len(left))); err != nil {
		t.Fatal(err)
	}
	after := simulated(34)[33:]
	publish(t, after, b)
	sessions = append(sessions, after...)
	hold(t, "after a file was cut", sessions, a, b, c)

	// The stream is made anew, and what it held comes again.
	recent := simulated(32)[31:]
	for i := range recent[0] {
		recent[0][i].Timestamp = time.Now().UTC()
	}
	publish(t, recent, a)
	sessions = append(sessions, recent...)
	hold(t, "33 sessions", sessions, a, b, c)
	remakeRecords(t, url)
	publish(t, sessions[:1], a)
	for _, n := range []*node{a, b, c} {
		daemontest.Until(t, func() bool { return strings.Contains(readFile(t, n.path+".cursor"), `"seq":1,`) })
	}
	publish(t, recent, b)
	last := simulated(33)[32:]
	publish(t, last, c)
	hold(t, "34 sessions", append(sessions, last...), a, b, c)
}

// A cut is noticed also where more is appended behind it, before anybody looks, than it took away.
func TestRecordsCutAndAppended(t *testing.T) {
	testkit.Slow(t)
	n := startNode(t, journaltest.Start(t).URL, filepath.Join(t.TempDir(), "records.jsonl"), 0)
	sessions := simulated(6)
	publish(t, sessions[:3], n)
	hold(t, "3 sessions", sessions[:3], n)
	size := len(readFile(t, n.path))
	daemontest.Until(t, func() bool { // the node has just looked, and does so again after a second
		written, _ := os.ReadFile(n.path + ".cursor")
		return bytes.Contains(written, fmt.Appendf(nil, `"bytes":%d}`, size))
	})
	if err := os.Truncate(n.path, int64(size-10)); err != nil {
		t.Fatal(err)
	}
	publish(t, sessions[3:], n)
	hold(t, "6 sessions", sessions, n)
}

// remakeRecords deletes the stream of records and makes it anew.
func remakeRecords(t *testing.T, url string) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "COUNCIL_RECORDS")
	if err == nil {
		err = js.DeleteStream(t.Context(), "COUNCIL_RECORDS")
	}
	if err == nil {
		_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What is on the cluster and holds no records of its session is passed over.
func TestRecordsThatAreNone(t *testing.T) {
	testkit.Slow(t)
	n := startNode(t, journaltest.Start(t).URL, filepath.Join(t.TempDir(), "records.jsonl"), 0)
	sessions := simulated(2)
	other, err := store.Encode(sessions[1])
	if err != nil {
		t.Fatal(err)
	}
	for id, lines := range map[string][]byte{"a": []byte("nonsense"), "b": other, "c": {}} {
		if _, err := n.journal.PublishRecords(t.Context(), id, lines); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, sessions[:1], n)
	hold(t, "one session", sessions[:1], n)
	if got := strings.Count(n.log.String(), "does not hold the records of its session"); got != 1+len(sessions[1]) {
		t.Errorf("%d lines are named: %s", got, n.log)
	}
}

// lineOfALaterSchema returns a record as a later release writes it, which this one cannot read.
func lineOfALaterSchema(t *testing.T, r council.BiasMetricRecord, schema string) []byte {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	line = bytes.Replace(line, []byte(`"schema_version":"`+r.SchemaVersion+`"`), []byte(`"schema_version":"`+schema+`"`), 1)
	return append(line[:len(line)-1], `,"a_new_field": {"b" : 1}}`...)
}

// A node copies what a node of a later release sent as it was written: fields that it does not know, and records of a schema
// that it does not know. The report counts those, and a store that lost them has them from the cluster again, once.
func TestRecordsOfALaterRelease(t *testing.T) {
	testkit.Slow(t)
	url, path := journaltest.Start(t).URL, filepath.Join(t.TempDir(), "records.jsonl")
	n := startNode(t, url, path, 0)
	sessions, want := simulated(4), map[string]int{}
	for i, schema := range []string{council.RecordSchema, "1.6.0", "2.0.0"} {
		line := lineOfALaterSchema(t, sessions[i][0], schema)
		if _, err := n.journal.PublishRecords(t.Context(), sessions[i][0].SessionID, append(bytes.Clone(line), '\n')); err != nil {
			t.Fatal(err)
		}
		want[string(line)] = 1
	}
	holdLines := func(what string) {
		t.Helper()
		lines := func() map[string]int {
			got := map[string]int{}
			for line := range strings.SplitSeq(readFile(t, path), "\n") {
				if strings.Contains(line, "a_new_field") {
					got[line]++
				}
			}
			return got
		}
		if d := cmp.Diff(want, lines()); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	copied := func(lines int) func() bool {
		return func() bool {
			data, _ := os.ReadFile(path)
			return bytes.Count(data, []byte{'\n'}) >= lines
		}
	}
	publish(t, sessions[3:], n)
	daemontest.Until(t, copied(3+len(sessions[3])))
	holdLines("first")
	if strings.Contains(n.log.String(), "does not hold the records of its session") {
		t.Errorf("log: %s", n.log)
	}
	if report := reports(t, n)[0]; !strings.Contains(report, "unknown_schema") {
		t.Errorf("the report does not count them: %s", report)
	}
	n.stop()
	if err := os.Remove(path + ".cursor"); err != nil { // all of the cluster are compared with the file
		t.Fatal(err)
	}
	n = startNode(t, url, path, 0)
	more := simulated(5)[4:]
	publish(t, more, n)
	daemontest.Until(t, copied(3+len(sessions[3])+len(more[0])))
	holdLines("compared again")
}

// Records of a later schema are sent to the cluster as they are, with those of their session.
func TestPublishStoreOfALaterRelease(t *testing.T) {
	testkit.Slow(t)
	url, dir, sessions := journaltest.Start(t).URL, t.TempDir(), simulated(2)
	daemontest.Setenv(t, map[string]string{"NATS_URL": url})
	cfg := daemontest.Options(t).Config
	from, to := filepath.Join(dir, "from.jsonl"), filepath.Join(dir, "to.jsonl")
	var lines [][]byte
	for i, schema := range []string{council.RecordSchema, "1.6.0", "2.0.0"} {
		lines = append(lines, lineOfALaterSchema(t, sessions[0][i], schema))
	}
	lines = append(lines, lineOfALaterSchema(t, sessions[1][0], "2.0.0"))
	nameless := sessions[1][0]
	nameless.SessionID = ""
	text := bytes.Join(append(lines, lineOfALaterSchema(t, nameless, "2.0.0"), nil), []byte("\n"))
	if err := os.WriteFile(from, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := daemon.PublishStore(t.Context(), cfg, from, slog.New(slog.DiscardHandler))
	if want := (daemon.Published{Sessions: 2, Added: 2, Skipped: 1}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	startNode(t, url, to, 0)
	want := fmt.Sprintf("%s\t\n%s\t\n%s\n%s\n", lines[0], lines[1], lines[2], lines[3])
	daemontest.Until(t, func() bool {
		text, _ := os.ReadFile(to)
		return len(text) >= len(want)
	})
	if d := cmp.Diff(want, readFile(t, to)); d != "" {
		t.Error(d)
	}
}

// While the cluster takes nothing, records wait in memory, so many of them. Those that
// were not sent when the daemon stops are in its own file.
func TestRecordsWithoutACluster(t *testing.T) {
	testkit.Slow(t)
	cluster := journaltest.Start(t)
	n := startNode(t, cluster.URL, filepath.Join(t.TempDir(), "records.jsonl"), 0)
	cluster.Stop()
	const sessions, waiting = 40, 32 // of half a megabyte
	outcomes := make(chan error, sessions)
	for _, records := range simulated(sessions) {
		for range 10 {
			records = append(records, records[0])
			records[len(records)-1].ModelID = strings.Repeat("x", 50_000)
		}
		go func() { outcomes <- n.Append(t.Context(), records) }()
	}
	for range sessions - waiting {
		if err := <-outcomes; err == nil || !strings.Contains(err.Error(), "no more records can wait") {
			t.Fatalf("a session too many: %v", err)
		}
	}
	n.stop()
	for range waiting {
		if err := <-outcomes; err == nil || !strings.Contains(err.Error(), "store publish") {
			t.Errorf("a session that waited: %v", err)
		}
	}
	held := map[string]int{}
	for _, r := range n.records(t) {
		held[r.SessionID]++
	}
	if len(held) != waiting {
		t.Errorf("%d sessions are in the file of the node, want %d", len(held), waiting)
	}
	if err := n.Append(t.Context(), simulated(1)[0]); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// The records of sessions at three daemons are in the files of all, and their reports are
// equal but for their dates.
func TestDaemonsShareRecords(t *testing.T) {
	testkit.Slow(t)
	env := map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c", "NATS_URL": journaltest.Start(t).URL, "DRAIN_TIMEOUT": "600ms",
	}
	var daemons []*daemontest.Daemon
	for range 3 {
		daemons = append(daemons, daemontest.Start(t, env))
	}
	for _, d := range daemons {
		if s := d.Ask(t, `{"query":"x"}`); !s.Persisted {
			t.Errorf("session %s is not persisted", s.ID)
		}
	}
	var all []map[string]any
	for _, d := range daemons {
		daemontest.Until(t, func() bool {
			var report map[string]any
			_, data := d.Call(t, "GET", "/v1/bias-report", "")
			if err := json.Unmarshal(data, &report); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			delete(report, "generated_at")
			if window, _ := report["window"].(map[string]any); window["sessions"] != 3. {
				return false
			}
			all = append(all, report)
			return true
		})
	}
	for i := range all {
		if d := cmp.Diff(all[0], all[i]); d != "" {
			t.Errorf("report of daemon %d: %s", i, d)
		}
	}
}

// An older file is sent to the cluster, as often as somebody likes, also by a node that
// has the file as its own.
func TestPublishStore(t *testing.T) {
	testkit.Slow(t)
	url, dir, sessions := journaltest.Start(t).URL, t.TempDir(), simulated(12)
	daemontest.Setenv(t, map[string]string{"NATS_URL": url})
	cfg := daemontest.Options(t).Config
	log := slog.New(slog.DiscardHandler)
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	// The records of the first ten sessions, one of each in turn.
	var text strings.Builder
	for i := range sessions[0] {
		for _, s := range sessions[:10] {
			line, err := json.Marshal(s[i])
			if err != nil {
				t.Fatal(err)
			}
			text.Write(append(line, '\n'))
		}
	}
	if err := os.WriteFile(a, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := []*node{startNode(t, url, a, 0), startNode(t, url, b, 0)}
	publish(t, sessions[9:11], nodes[1])
	for _, want := range []daemon.Published{{Sessions: 10, Added: 9}, {Sessions: 10}} {
		from := filepath.Join(dir, "copy.jsonl")
		if err := os.WriteFile(from, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := daemon.PublishStore(t.Context(), cfg, from, log)
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	publish(t, sessions[11:], nodes...)
	hold(t, "12 sessions", sessions, nodes...)

	odd := sessions[0][0]
	odd.SessionID = "with a blank"
	lines, err := store.Encode([]council.BiasMetricRecord{odd})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "odd.jsonl"), append(lines, "nonsense\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := daemon.PublishStore(t.Context(), cfg, filepath.Join(dir, "odd.jsonl"), log)
	if err != nil || got.Sessions != 1 || got.Refused != 1 || got.Skipped != 1 || !strings.Contains(got.Reason.Error(), "with a blank") {
		t.Errorf("a session that cannot be sent: %+v, %v", got, err)
	}
	if _, err := daemon.PublishStore(t.Context(), cfg, filepath.Join(dir, "none.jsonl"), log); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
