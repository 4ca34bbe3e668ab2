package cli

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// A daemon that cannot write to its store ends at its start, with one line.
func TestFaultF31(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, foreign := filepath.Join(dir, "read-only"), filepath.Join(dir, "foreign")
	for _, name := range []string{readOnly, foreign} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dir, filepath.Dir(dir)} { // so that another user reaches it
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The file and its lock are there, and only their directory is read-only.
	for _, name := range []string{"records.jsonl", "records.jsonl.lock"} {
		if err := os.WriteFile(filepath.Join(readOnly, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := asOther(t, readOnly, foreign)
	for name, path := range map[string]string{
		"read-only":             filepath.Join(readOnly, "records.jsonl"),
		"another user's":        filepath.Join(foreign, "records.jsonl"),
		"missing and read-only": filepath.Join(readOnly, "sub", "records.jsonl"),
		"missing behind a file": filepath.Join(file, "sub", "records.jsonl"),
		"a directory":           dir,
	} {
		t.Run(name, func(t *testing.T) {
			daemontest.Setenv(t, map[string]string{"BIAS_STORE": path})
			var stderr bytes.Buffer
			var code int
			run(func() { code = Main(t.Context(), IO{Args: []string{"serve"}, Stdout: io.Discard, Stderr: &stderr}) })
			said := stderr.String()
			if code != exitError || strings.Count(said, "\n") != 1 || !strings.Contains(said, "opening the record store "+path) ||
				!strings.Contains(said, "switch the records off") {
				t.Errorf("exit %d: %s", code, said)
			}
			d := startDaemon(t, map[string]string{"BIAS_STORE": path, "BIAS_PERSISTENCE": "false"})
			if status, data := d.Call(t, "GET", "/readyz", ""); status != http.StatusOK {
				t.Errorf("without records: %d %s", status, data)
			}
			t.Logf("fault F31: %s: exit %d, %d line (promised: exit with one clear line); starts with BIAS_PERSISTENCE=false", name, code,
				strings.Count(said, "\n"))
		})
	}
}

// asOther makes two directories unwritable: the first one and its files belong to the
// user that run acts for, the second one belongs to another user. Permissions do not bind
// root, so where the test runs as root, run accesses files as another user.
func asOther(t *testing.T, readOnly, foreign string) (run func(f func())) {
	t.Helper()
	run = func(f func()) { f() }
	if os.Getuid() == 0 {
		const nobody = 65534
		run = func(f func()) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := syscall.Setfsuid(nobody); err != nil {
				t.Fatal(err)
			}
			defer syscall.Setfsuid(0) //nolint:errcheck // it cannot fail for root
			f()
		}
		own, err := filepath.Glob(filepath.Join(readOnly, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(own, readOnly) {
			if err := os.Chown(name, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{readOnly, foreign} {
		if err := os.Chmod(name, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	return run
}
