package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/google/go-cmp/cmp"
)

// get reads a document that must be answered with 200.
func get[T any](t *testing.T, r *daemontest.Daemon, path string) (document T) {
	t.Helper()
	status, data := r.Call(t, "GET", path, "")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %.500s", path, status, data)
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// The machine crashes before each operation of the disk in turn, and loses what was not
// synced. A daemon starts on the files that are left.
func TestFaultF23Daemon(t *testing.T) {
	testkit.Slow(t)
	for _, tt := range []struct {
		mode     string
		interval time.Duration // for which a session may be lost
		promised string
	}{
		{"session", 0, "nothing acknowledged is lost"},
		{"interval", 200 * time.Millisecond, "at most 200 ms are lost"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			d := &faultdisk.Disk{}
			f := trialOn(t, d, tap(t), "a,b,c,d", map[string]string{"BIAS_FSYNC": tt.mode},
				func(c *config.Config) { c.BiasFsyncInterval = 200 * time.Millisecond })
			type answer struct {
				ops int // of the disk, so far
				at  time.Time
			}
			answers := map[string]answer{}
			for len(answers) < 8 || len(d.Done(faultdisk.Sync)) < 4 {
				s := f.session(t, "")
				if !s.Persisted {
					t.Fatalf("warnings %+v", s.Metadata.Warnings)
				}
				answers[s.ID] = answer{len(d.Done()), time.Now()}
			}
			ops, end := d.Done(), time.Now()

			states := map[string]map[string]int{} // records by session
			lost := map[string]bool{}
			var oldest time.Duration // of the lost sessions
			for n := range len(ops) + 1 {
				at := end
				if n < len(ops) {
					at = ops[n].At
				}
				left := faultdisk.Crash{}.After(ops[:n])
				state := fmt.Sprint(left)
				if states[state] == nil {
					states[state] = restarted(t, left)
				}
				for id, a := range answers {
					got := states[state][id]
					if got != 0 && got != f.persisted[id] {
						t.Errorf("after %d operations: session %s has %d of %d records", n, id, got, f.persisted[id])
					}
					if got == 0 && a.ops <= n {
						lost[id] = true
						oldest = max(oldest, at.Sub(a.at))
					}
				}
			}
			if (len(lost) > 0) != (tt.interval > 0) {
				t.Errorf("%d sessions of %d are lost in some crash", len(lost), len(answers))
			}
			daemontest.Fault(t, "F23", tt.promised,
				"the daemon, %s: %d sessions, a start on each of %d states of the disk: %d lost in some crash, answered at most %s before",
				tt.mode, len(answers), len(states), len(lost), atMost(t, "a lost session", oldest, tt.interval))
		})
	}
}

// restarted starts a daemon on the files, by name, that a crash left, and returns how
// many records each session has.
func restarted(t *testing.T, left map[string]string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	for name, data := range left {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := daemontest.Start(t, map[string]string{"BIAS_STORE": filepath.Join(dir, "records.jsonl"), "BIAS_WINDOW_SESSIONS": "0"})
	records := map[string]int{}
	for _, record := range r.Records(t) {
		records[record.SessionID]++
	}
	if report := get[bias.Report](t, r, "/v1/bias-report"); report.Window.Sessions != len(records) || len(report.Skipped) > 0 {
		t.Errorf("a report over %d sessions of %d, skipped %+v", report.Window.Sessions, len(records), report.Skipped)
	}
	r.End(t)
	return records
}

// One fsync fails while several sessions run.
func TestFaultF25Daemon(t *testing.T) {
	const clients = 8
	d := &faultdisk.Disk{}
	f := trialOn(t, d, tap(t), "a,b,c,d", nil)
	f.session(t, "") // what the closed segment is to hold
	var blocked atomic.Bool
	var syncs atomic.Int32
	all, looked := make(chan struct{}), make(chan struct{})
	write, goOn := sync.OnceFunc(func() { close(all) }), sync.OnceFunc(func() { close(looked) })
	defer write()
	defer goOn()
	d.Fail(func(o faultdisk.Op, n int) (int, error) {
		switch data := o.Name == filepath.Base(f.Config.BiasStore); {
		case data && o.Kind == faultdisk.Write && blocked.CompareAndSwap(false, true):
			<-all // and the others share the next fsync
		case data && o.Kind == faultdisk.Sync && syncs.Add(1) == 2:
			return n, syscall.EIO
		case o.Kind == faultdisk.Rename: // makes room for the new file
			<-looked
		}
		return n, nil
	})

	answers := make([][]byte, clients)
	var load sync.WaitGroup
	for i := range answers {
		load.Go(func() {
			resp, data, err := f.Send(t.Context(), "POST", "/v1/council",
				fmt.Sprintf(`{"query":"the unmistakable question under load, %d"}`, i))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%.500s, %v", data, err)
			}
			answers[i] = data
		})
		eventually(t, "the first is being written", slack*2*time.Second, blocked.Load)
	}
	eventually(t, "all have come to their last stage", slack*2*time.Second, func() bool {
		n := 0
		for _, model := range []string{"a", "b", "c", "d"} {
			n += len(f.requests(model, simllm.Synthesis))
		}
		return n == 1+clients
	})
	write()
	var said []byte
	eventually(t, "readiness is red", slack*2*time.Second, func() bool {
		var status int
		status, said = f.Call(t, "GET", "/readyz", "")
		return status == http.StatusServiceUnavailable
	})
	if !bytes.Contains(said, []byte(`"code":"store"`)) || !bytes.Contains(said, []byte(syscall.EIO.Error())) {
		t.Errorf("readiness: %s", said)
	}
	goOn()
	load.Wait()
	if t.Failed() {
		return
	}
	green := eventually(t, "readiness is green", slack*10*time.Second, func() bool {
		status, _ := f.Call(t, "GET", "/readyz", "")
		return status == http.StatusOK
	})

	var affected []string
	for _, data := range answers {
		s := f.answered(t, data)
		if s.Status != council.StatusComplete || s.Answer == "" {
			t.Errorf("status %s", s.Status)
		}
		if s.Persisted {
			continue
		}
		affected = append(affected, s.ID)
		if w := s.Metadata.Warnings; len(w) != 1 || w[0].Code != council.WarnNotPersisted {
			t.Errorf("warnings %+v", w)
		}
		f.kept(s) // by now, since readiness is green
	}
	slices.Sort(affected)
	unsynced, retried := givenUp(t, d.Done())
	if diff := cmp.Diff(unsynced, affected); diff != "" || len(affected) == 0 {
		t.Errorf("the sessions that the fsync was for, and those that say so: %s", diff)
	}
	if retried > 0 {
		t.Errorf("%d writes and syncs went to the file whose fsync had failed", retried)
	}
	s := f.session(t, "")
	if now, err := os.ReadFile(f.Config.BiasStore); err != nil || !s.Persisted || !bytes.Contains(now, []byte(s.ID)) {
		t.Errorf("the next session: persisted %v, in the new file %v, %v", s.Persisted, bytes.Contains(now, []byte(s.ID)), err)
	}
	if closed, err := filepath.Glob(f.Config.BiasStore + ".000001*"); err != nil || len(closed) == 0 {
		t.Errorf("there is no closed segment, %v", err)
	}
	daemontest.Fault(t, "F25", "0 retries on the file, a new file, the affected not acknowledged",
		"the daemon: %d of %d sessions answered with persisted false and a warning, all kept in the end; %d retries on the file, a new "+
			"file; readiness red with the cause, green again by itself after %.0f ms",
		len(affected), clients, retried, milliseconds(green))
}

// givenUp returns the sessions that were written to a file and not yet synced when
// its fsync failed, sorted, and how many writes and syncs went to the file after that.
func givenUp(t *testing.T, ops []faultdisk.Op) (unsynced []string, retried int) {
	t.Helper()
	written := map[int]string{} // since the last sync, by inode
	given := map[int]bool{}
	for _, o := range ops {
		if o.Kind != faultdisk.Write && o.Kind != faultdisk.Sync {
			continue
		}
		if given[o.Inode] {
			retried++
		}
		switch {
		case o.Kind == faultdisk.Write:
			written[o.Inode] += o.Data
		case !o.Failed:
			written[o.Inode] = ""
		default:
			given[o.Inode] = true
			for r, err := range store.Read(t.Context(), strings.NewReader(written[o.Inode])) {
				if err != nil {
					t.Fatal(err)
				}
				unsynced = append(unsynced, r.SessionID)
			}
		}
	}
	slices.Sort(unsynced)
	return slices.Compact(unsynced), retried
}

// The daemon starts on a store that holds everything that does not belong there.
func TestFaultF26Daemon(t *testing.T) {
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c"})
	var sessions [3]string // their lines
	for i := range sessions {
		before, err := os.ReadFile(d.Config.BiasStore)
		d.Ask(t, `{"query":"What is garbage?"}`)
		after, err2 := os.ReadFile(d.Config.BiasStore)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		sessions[i] = string(after[len(before):])
	}
	d.End(t)
	old := `{"schema_version": 1, "session_id": "old", "timestamp": "` + time.Now().Add(-time.Hour).Format(time.RFC3339) +
		`", "reviewer_id": "a", "model_id": "b", "position": 0, "response_length_chars": 9, "score_value": null}`
	garbage := "\ufeff" + old + "\r\n" + strings.Repeat("\x00", 4096) + "\n" + strings.Repeat("x", 10<<20) + "\n" +
		strings.ReplaceAll(sessions[0], "\n", "\r\n") + `{"schema_version":"9.0.0"}` + "\n" + sessions[1] + sessions[2][:len(sessions[2])/2]
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, []byte(garbage), 0o600); err != nil {
		t.Fatal(err)
	}

	f := trialOf(t, tap(t), "a,b,c,d", map[string]string{"BIAS_STORE": path})
	f.skipped = 3
	if said := fmt.Sprintf(`"bytes":%d`, len(sessions[2])/2); !strings.Contains(f.Log.String(), said) {
		t.Errorf("the log does not say that the tail was cut, %s", said)
	}
	want := []bias.Skipped{
		{Reason: "not_json", Count: 1, FirstFile: new("records.jsonl"), FirstLine: new(int64(2))},
		{Reason: "too_long", Count: 1, FirstFile: new("records.jsonl"), FirstLine: new(int64(3))},
		{Reason: "unknown_schema", Count: 1, FirstFile: new("records.jsonl"), FirstLine: new(int64(10))},
	}
	reports := func(sessions int) {
		t.Helper()
		report, board := get[bias.Report](t, f.Daemon, "/v1/bias-report"), get[bias.Leaderboard](t, f.Daemon, "/v1/leaderboard")
		if report.Window.Sessions != sessions || board.Window.Sessions != sessions {
			t.Errorf("a report over %d sessions and a leaderboard over %d, want %d", report.Window.Sessions, board.Window.Sessions,
				sessions)
		}
		if diff := cmp.Diff([][]bias.Skipped{want, want}, [][]bias.Skipped{report.Skipped, board.Skipped}); diff != "" {
			t.Errorf("skipped (-want +got):\n%s", diff)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	reports(3)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 10<<20 {
		t.Errorf("%d bytes were allocated, more than the long line has", allocated)
	}
	if s := f.session(t, ""); !s.Persisted {
		t.Errorf("warnings %+v", s.Metadata.Warnings)
	}
	reports(4)
	daemontest.Fault(t, "F26", "all, bounded",
		"the daemon: starts, the tail cut; report and leaderboard with 3 lines skipped by reason, %d KiB allocated for both; a new "+
			"session is kept and read", allocated>>10)
}
