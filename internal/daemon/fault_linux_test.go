package daemon_test

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/daemontest"
)

func TestFaultF06(t *testing.T) {
	const dial = 200 * time.Millisecond
	closed, mute := listener(t), listener(t)
	_ = closed.Close()
	f := trialOf(t, tap(t), "a,b,c,closed:m,mute:m,full:m", map[string]string{
		"PROVIDERS":    fmt.Sprintf("closed=http://%s,mute=https://%s,full=http://%s", closed.Addr(), mute.Addr(), full(t)),
		"MAX_ATTEMPTS": "1", "QUORUM": "3",
	}, func(c *config.Config) { c.DialTimeout = dial })
	s := f.session(t, "")
	latency := make([]time.Duration, 3)
	for i, a := range s.Stage1[3:] {
		latency[i] = time.Duration(a.LatencyMS * float64(time.Millisecond))
		if a.Error == nil || a.Error.Code != council.FailConnection {
			t.Errorf("%s: %+v", a.Model, a.Error)
		}
	}
	for i, what := range []string{"stalled handshake", "unroutable"} {
		if latency[1+i] < dial {
			t.Errorf("%s: gave up after %v", what, latency[1+i])
		}
	}
	daemontest.Fault(t, "F06", "at once; within the dial timeout of 200 ms", "refused %s, stalled handshake %s, unroutable %s",
		atMost(t, "refused", latency[0], 50*time.Millisecond),
		atMost(t, "stalled handshake", latency[1], dial+50*time.Millisecond), atMost(t, "unroutable", latency[2], dial+50*time.Millisecond))
}

// listener listens on a free port and accepts nothing.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// full returns an address that answers no connection request, as behind a broken route:
// the queue of its listener is full.
func full(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	for range 100 {
		conn, err := net.DialTimeout("tcp", address.String(), 100*time.Millisecond)
		if err != nil {
			return address.String()
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue does not fill up")
	return ""
}
