package daemon_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/cli"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// limitFiles lets no file of this process grow beyond size bytes. A write then fails as on
// a full disk: a part of it is written, and the rest is refused.
func limitFiles(t *testing.T, size int64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur = limit.Max; size > 0 {
		limit.Cur = uint64(size)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}

func TestFaultF24Daemon(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ) // by default it ends the process
	defer signal.Reset(syscall.SIGXFSZ)
	// The limit is one of the whole process. The store is larger than any other file
	// that is written meanwhile, such as the log of the test runner.
	path := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, bytes.Repeat([]byte("\n"), 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c", "BIAS_STORE": path})
	d.Ask(t, `{"query":"Is there room?"}`)
	before, err := os.ReadFile(d.Config.BiasStore)
	if err != nil {
		t.Fatal(err)
	}
	limitFiles(t, int64(len(before))+1000)
	defer limitFiles(t, 0)
	s := d.Ask(t, `{"query":"Is there room now?"}`)
	if s.Persisted || s.Answer == "" || s.Status != council.StatusComplete || len(s.Metadata.Warnings) != 1 ||
		s.Metadata.Warnings[0].Code != council.WarnNotPersisted {
		t.Errorf("status %s, persisted %v, warnings %v", s.Status, s.Persisted, s.Metadata.Warnings)
	}
	status, data := d.Call(t, "GET", "/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(string(data), `"code":"store"`) ||
		!strings.Contains(string(data), syscall.EFBIG.Error()) ||
		strings.Contains(string(data), d.Config.BiasStore) {
		t.Errorf("%d %s", status, data)
	}
	measured := func(lines ...string) bool {
		_, text := d.Call(t, "GET", "/metrics", "")
		for _, line := range lines {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				return false
			}
		}
		return true
	}
	if !measured(`councild_ready{code="store"} 0`, "councild_store_healthy 0", "councild_records_pending 6") {
		t.Error("the metrics do not say what is wrong")
	}
	if after, err := os.ReadFile(d.Config.BiasStore); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file is not as it was: %d bytes before, %d after, %v", len(before), len(after), err)
	}

	limitFiles(t, 0)
	start := time.Now()
	daemontest.Until(t, func() bool {
		status, _ = d.Call(t, "GET", "/readyz", "")
		return status == http.StatusOK
	})
	took := time.Since(start)
	daemontest.Until(t, func() bool {
		return measured(`councild_ready{code="ok"} 1`, "councild_store_healthy 1", "councild_records_pending 0")
	})
	if n := len(d.Records(t)); n != 12 {
		t.Errorf("%d records, want those of both sessions", n)
	}
	t.Logf("fault F24: the daemon: answered with persisted false and a warning, readiness red with the cause; all written %d ms after "+
		"there was room, without a request (promised: by itself)", took.Milliseconds())
}

// export returns what the command councild store export prints.
func export(t *testing.T, path string) string {
	t.Helper()
	var stdout bytes.Buffer
	if code := cli.Main(t.Context(), cli.IO{Args: []string{"store", "export", path}, Stdout: &stdout, Stderr: t.Output()}); code != 0 {
		t.Errorf("store export: exit %d", code)
	}
	return stdout.String()
}

// Between two sessions the record file or its directory is removed, or renamed as
// logrotate does. The daemon starts a new file, and every command reads it.
func TestFaultF34Daemon(t *testing.T) {
	d := daemontest.Start(t, map[string]string{
		"BASE_URL": daemontest.Quick(t), "MODELS": "a,b,c",
		"BIAS_STORE": filepath.Join(t.TempDir(), "sub", "records.jsonl"),
	})
	path := d.Config.BiasStore
	d.Ask(t, `{"query":"Is it there?"}`)
	sessions := 0
	for name, deed := range map[string]func() error{
		"renamed":  func() error { return os.Rename(path, path+".1") },
		"removed":  func() error { return os.Remove(path) },
		"replaced": func() error { return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path)) },
		"directory removed": func() (err error) { // once more while the ledger writes what the last session cost, after its answer
			daemontest.Until(t, func() bool {
				err = os.RemoveAll(filepath.Dir(path))
				return !errors.Is(err, syscall.ENOTEMPTY)
			})
			return err
		},
		"lock removed": func() error { return os.Remove(path + ".lock") },
	} {
		if err := deed(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := d.Ask(t, `{"query":"Is it there now?"}`)
		if !s.Persisted {
			t.Errorf("%s: persisted false, warnings %v", name, s.Metadata.Warnings)
		}
		sessions++
		exported := export(t, path)
		if n := strings.Count(exported, s.ID); n != 6 {
			t.Errorf("%s: store export has %d records of the session, want 6", name, n)
		}
		if status, data := d.Call(t, "GET", "/readyz", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, data)
		}
		if _, err := daemon.New(t.Context(), daemon.Options{Config: d.Config, Simulated: simllm.Default(), Version: "test"}); err == nil {
			t.Errorf("%s: a second daemon has the store open", name)
		}
	}

	// A link in the place of the file is not followed, and readiness says why.
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("untouched"), 0o600), os.Remove(path), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	s := d.Ask(t, `{"query":"Is it there behind a link?"}`)
	status, said := d.Call(t, "GET", "/readyz", "")
	if s.Persisted || status != http.StatusServiceUnavailable {
		t.Errorf("persisted %v, readiness %d %s", s.Persisted, status, said)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "untouched" {
		t.Errorf("the link's target holds %q, %v", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	daemontest.Until(t, func() bool {
		status, _ := d.Call(t, "GET", "/readyz", "")
		return status == http.StatusOK
	})
	if exported := export(t, path); strings.Count(exported, s.ID) != 6 {
		t.Error("the session is not there after the link was removed")
	}
	t.Logf("fault F34: the daemon: the record file taken away %d times in 5 ways: persisted true, and every command reads the session "+
		"(promised); "+
		"a link in its place: not followed, persisted false, readiness red, kept after it was removed", sessions)
}

func TestFaultF27SecondDaemon(t *testing.T) {
	d := daemontest.Start(t, nil)
	_, err := daemon.New(t.Context(), daemon.Options{Config: d.Config, Simulated: simllm.Default(), Version: "test"})
	held, ok := errors.AsType[*store.HeldError](err)
	if !ok || held.Holder.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	t.Logf("fault F27: the second daemon: %v (promised: refused by the name of the holder)",
		strings.ReplaceAll(err.Error(), filepath.Dir(d.Config.BiasStore), "..."))
}
