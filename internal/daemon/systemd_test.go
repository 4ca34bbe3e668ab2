package daemon_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// systemd hears when the daemon is ready, then twice in each interval that it lives, and then that it stops.
func TestSystemdIsNotified(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	manager, err := new(net.ListenConfig).ListenPacket(t.Context(), "unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "100000")
	t.Setenv("WATCHDOG_PID", "")
	heard := func() string {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, _, err := manager.ReadFrom(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	d := daemontest.Start(t, nil)
	got := []string{heard(), heard(), heard()}
	if want := []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"}; !slices.Equal(got, want) {
		t.Errorf("systemd heard %q, want %q", got, want)
	}
	d.End(t)
	last := heard()
	for last == "WATCHDOG=1" {
		last = heard()
	}
	if last != "STOPPING=1" {
		t.Errorf("the last message is %q", last)
	}
}
