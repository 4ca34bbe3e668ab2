package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// counted are models that count the calls for each question. Those for questions with the
// word hold are answered when the test ends.
func counted(t *testing.T) (url string, calls func(question string) int) {
	t.Helper()
	var mu sync.Mutex
	count := map[string]int{}
	held := make(chan struct{})
	models := daemontest.Members()
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			mu.Lock()
			count[task.Question]++
			mu.Unlock()
			if strings.Contains(task.Question, "hold") {
				<-held
			}
			return "", false
		}
	}
	url = daemontest.Provider(t, models...).URL()
	t.Cleanup(func() { close(held) })
	return url, func(question string) int {
		mu.Lock()
		defer mu.Unlock()
		return count[question]
	}
}

// keep begins a session in the background and returns its id.
func keep(t *testing.T, d *daemontest.Daemon, question string) string {
	t.Helper()
	status, body := d.Call(t, "POST", "/v1/council", fmt.Sprintf(`{"query":%q,"background":true}`, question))
	var s council.Summary
	if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, body)
	}
	return s.ID
}

// over waits until a session has ended, and returns it as a client gets it.
func over(t *testing.T, d *daemontest.Daemon, id string) (body string) {
	t.Helper()
	daemontest.Until(t, func() bool {
		status, data := d.Call(t, "GET", "/v1/council/"+id, "")
		body = string(data)
		return status != http.StatusOK || !strings.Contains(body, `"status":"running"`)
	})
	return body
}

// keptDaemon starts a daemon that keeps its sessions in a directory, which must be named "sessions".
func keptDaemon(t *testing.T, url, dir string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, map[string]string{
		"BASE_URL": url, "MODELS": "a,b,c", "DATA_DIR": filepath.Dir(dir), "BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"),
		"DRAIN_TIMEOUT": "100ms",
	})
}

// A damaged file of the engine of sessions costs what is damaged. It is said until somebody
// accepts it, and no session that had ended is run again.
func TestFaultF60(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	url, calls := counted(t)
	dir := filepath.Join(t.TempDir(), "sessions")
	first := keptDaemon(t, url, dir)
	const sessions = 20
	bodies := map[string]string{}
	asked := map[string]string{}
	for n := range sessions {
		question := fmt.Sprintf("Question %d?", n)
		asked[keep(t, first, question)] = question
	}
	for id := range asked {
		bodies[id] = over(t, first, id)
	}
	paid := map[string]int{}
	for _, question := range asked {
		paid[question] = calls(question)
	}
	running := keep(t, first, "Please hold?")
	daemontest.Until(t, func() bool { return calls("Please hold?") >= 3 })
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	block := func(dir string) string {
		return filepath.Join(dir, "jetstream", "$G", "streams", "COUNCIL_SESSIONS", "msgs", "1.blk")
	}
	info, err := os.Stat(block(killed))
	if err != nil {
		t.Fatal(err)
	}
	size := int(info.Size())
	flip := func(at int) func(dir string) error {
		return func(dir string) error {
			data, err := os.ReadFile(block(dir))
			if err == nil {
				data[at] ^= 4
				err = os.WriteFile(block(dir), data, 0o600)
			}
			return err
		}
	}
	worst := 0
	for name, damage := range map[string]struct {
		do    func(dir string) error
		lost  int // sessions, at most
		quiet bool
	}{
		"nothing":                 {func(string) error { return nil }, 0, true},
		"a bit near the begin":    {flip(70), 1, false},
		"a bit in the middle":     {flip(size / 2), 1, false},
		"a bit in the last fifth": {flip(size * 4 / 5), 1, false},
		"a bit near the end":      {flip(size - 40), 1, false},
		"a torn tail": {func(dir string) error {
			return os.Truncate(block(dir), info.Size()+5000)
		}, 0, true},
		"the last third cut off": {func(dir string) error { return os.Truncate(block(dir), info.Size()*2/3) }, sessions / 2, false},
		"removed":                {func(dir string) error { return os.Remove(block(dir)) }, sessions, false},
	} {
		again := filepath.Join(t.TempDir(), "sessions")
		if err := errors.Join(os.CopyFS(again, os.DirFS(killed)), damage.do(again)); err != nil {
			t.Fatal(err)
		}
		d := keptDaemon(t, url, again)
		lost := 0
		for id, want := range bodies {
			if body := over(t, d, id); body != want {
				lost++
			}
		}
		status, of := reasons(t, d)
		said := of["sessions_damaged"]
		if lost > damage.lost {
			t.Errorf("%s: %d of %d sessions are lost: %q", name, lost, sessions, said)
		}
		if !damage.quiet && damage.lost == 1 {
			worst = max(worst, lost)
		}
		if status != http.StatusOK || (said == "") != damage.quiet || strings.Contains(d.Log.String(), "damaged") == damage.quiet {
			t.Errorf("%s: %d, %q, log: %s", name, status, of, d.Log)
		}
		if _, err := journal.Accept(again); err != nil {
			t.Error(err)
		}
		if !damage.quiet {
			daemontest.Until(t, func() bool { _, of := reasons(t, d); return of["sessions_damaged"] == "" })
		}
		d.Call(t, "DELETE", "/v1/council/"+running, "")
		d.End(t)
		for id, question := range asked {
			if n := calls(question); n != paid[question] {
				t.Errorf("%s: session %s had ended, and %d calls were made for it again", name, id, n-paid[question])
				paid[question] = n
			}
		}
	}
	daemontest.Fault(t, "F60", "one session at most of one flipped bit, named in the log and in /readyz until it is accepted; no call of a "+
		"session that had ended", "%d sessions of %d lost by a flipped bit, none of those that had ended paid again", worst, sessions)
}

// The directory of kept sessions, or a part of it, is removed or replaced while a daemon
// runs: it notices that before it says that a session is kept, and begins again.
func TestFaultF61(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	url, calls := counted(t)
	found, refused := 0, 0
	for name, deed := range map[string]func(dir string) error{
		"removed":           os.RemoveAll,
		"renamed":           func(dir string) error { return os.Rename(dir, dir+".1") },
		"replaced":          func(dir string) error { return errors.Join(os.Rename(dir, dir+".1"), os.Mkdir(dir, 0o700)) },
		"lock removed":      func(dir string) error { return os.Remove(filepath.Join(dir, "lock")) },
		"engine removed":    func(dir string) error { return os.RemoveAll(filepath.Join(dir, "jetstream")) },
		"a file in its way": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		dir := filepath.Join(t.TempDir(), "sessions")
		d := keptDaemon(t, url, dir)
		over(t, d, keep(t, d, "Before?"))
		before := calls("Please hold?")
		keep(t, d, "Please hold?")
		daemontest.Until(t, func() bool { return calls("Please hold?") >= before+3 })
		if err := deed(dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "lock removed" {
			second := d.Config
			second.DataDir = t.TempDir() // where nothing but the sessions is the other daemon's
			second.BiasStore = filepath.Join(second.DataDir, "records.jsonl")
			if err := os.Symlink(dir, filepath.Join(second.DataDir, "sessions")); err != nil {
				t.Fatal(err)
			}
			if _, err := daemon.New(t.Context(), daemon.Options{Config: second, Simulated: simllm.Default(), Version: "test"}); err == nil || !strings.Contains(err.Error(), "another daemon") {
				t.Errorf("%s: a second daemon starts: %v", name, err)
			}
		}
		var id string
		daemontest.Until(t, func() bool {
			status, body := d.Call(t, "POST", "/v1/council", `{"query":"After?","background":true}`)
			if status == http.StatusServiceUnavailable {
				refused++
				if name == "a file in its way" { // until somebody removes it
					if info, err := os.Stat(dir); err == nil && !info.IsDir() {
						if _, of := reasons(t, d); of["sessions"] == "" {
							return false
						}
						if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
							t.Error(err)
						}
					}
				}
				return false
			}
			var s council.Summary
			if err := json.Unmarshal(body, &s); err != nil || status != http.StatusAccepted {
				t.Fatalf("%s: %d %s", name, status, body)
			}
			id = s.ID
			return true
		})
		over(t, d, id)
		if log := d.Log.String(); !strings.Contains(log, "another program removed or replaced") || !strings.Contains(log, "kept again") {
			t.Errorf("%s: the log says nothing", name)
		}
		killed := filepath.Join(t.TempDir(), "sessions")
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		next := keptDaemon(t, url, killed)
		if status, body := next.Call(t, "GET", "/v1/council/"+id, ""); status != http.StatusOK || !strings.Contains(string(body), "complete") {
			t.Errorf("%s: after a restart: %d %s", name, status, body)
		}
		found++
		next.Stop()
		d.Stop()
	}
	daemontest.Fault(t, "F61", "refused with 503 until the sessions are kept again, and found after a restart once it was answered with 202",
		"%d times: %d requests refused, every session that was accepted found after a restart", found, refused)
}
