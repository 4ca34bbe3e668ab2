package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

// limitFiles lets no file of this process grow beyond so many bytes, which a write
// meets as it meets a full disk: a part of it is written, the rest is refused.
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
	d := serve(t, map[string]string{"BASE_URL": quick(t), "MODELS": "a,b,c"})
	d.ask(t, `{"query":"Is there room?"}`)
	before, err := os.ReadFile(d.cfg.BiasStore)
	if err != nil {
		t.Fatal(err)
	}
	limitFiles(t, int64(len(before))+1000)
	defer limitFiles(t, 0)
	s := d.ask(t, `{"query":"Is there room now?"}`)
	if s.Persisted || s.Answer == "" || s.Status != council.StatusComplete || len(s.Metadata.Warnings) != 1 || s.Metadata.Warnings[0].Code != council.WarnNotPersisted {
		t.Errorf("status %s, persisted %v, warnings %v", s.Status, s.Persisted, s.Metadata.Warnings)
	}
	status, data := d.call(t, "GET", "/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(string(data), `"code":"store"`) || !strings.Contains(string(data), syscall.EFBIG.Error()) ||
		strings.Contains(string(data), d.cfg.BiasStore) {
		t.Errorf("%d %s", status, data)
	}
	if after, err := os.ReadFile(d.cfg.BiasStore); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file is not as it was: %d bytes before, %d after, %v", len(before), len(after), err)
	}

	limitFiles(t, 0)
	start := time.Now()
	until(t, func() bool {
		status, _ = d.call(t, "GET", "/readyz", "")
		return status == http.StatusOK
	})
	took := time.Since(start)
	if n := len(d.records(t)); n != 12 {
		t.Errorf("%d records, want those of both sessions", n)
	}
	t.Logf("fault F24: the daemon: answered with persisted false and a warning, readiness red with the cause; all written %d ms after there was room, without a request (promised: by itself)", took.Milliseconds())
}

func TestFaultF27SecondDaemon(t *testing.T) {
	d := serve(t, nil)
	_, err := newDaemon(t.Context(), d.cfg, disk.OS{}, slog.New(slog.DiscardHandler), "test")
	held, ok := errors.AsType[*store.HeldError](err)
	if !ok || held.Holder.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	t.Logf("fault F27: the second daemon: %v (promised: refused by the name of the holder)", strings.ReplaceAll(err.Error(), filepath.Dir(d.cfg.BiasStore), "..."))
}
