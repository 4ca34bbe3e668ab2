package journaltest

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Link is a way to a server that can be cut and stalled.
type Link struct {
	URL  string // for LLM_COUNCIL_NATS_URL
	Addr string // the same without a scheme

	target string
	wg     sync.WaitGroup

	mu      sync.Mutex // guards all below
	changed *sync.Cond
	conns   []net.Conn
	cut     bool
	stalled [2]bool // the bytes to the server, and those from it
}

// Link returns a way to the first server of the cluster that ends with the test.
func (c *Cluster) Link(tb testing.TB) *Link {
	tb.Helper()
	first, _, _ := strings.Cut(c.URL, ",")
	target, err := url.Parse(first)
	if err != nil {
		tb.Fatal(err)
	}
	return NewLink(tb, target.Host)
}

// NewLink returns a way to the server at an address that ends with the test.
func NewLink(tb testing.TB, target string) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{URL: "nats://" + listener.Addr().String(), Addr: listener.Addr().String(), target: target}
	l.changed = sync.NewCond(&l.mu)
	l.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.pass(conn)
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.wg.Wait()
	})
	return l
}

// Cut ends all connections, and lets none through until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.closeLocked()
}

// Break ends all connections, and lets new ones through.
func (l *Link) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *Link) closeLocked() {
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
	l.changed.Broadcast()
}

// Stall holds back the bytes to the server, those from it, or both, until Mend. The
// connections stay.
func (l *Link) Stall(to, from bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = [2]bool{to, from}
}

// Mend lets everything through again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.stalled = false, [2]bool{}
	l.changed.Broadcast()
}

// pass connects a client with the server.
func (l *Link) pass(client net.Conn) {
	back, err := net.Dial("tcp", l.target)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.cut {
		_ = client.Close()
		if err == nil {
			_ = back.Close()
		}
		return
	}
	l.conns = append(l.conns, client, back)
	l.wg.Go(func() { l.copy(0, back, client) })
	l.wg.Go(func() { l.copy(1, client, back) })
}

// copy passes on what comes from one end, and closes both when there is no more.
func (l *Link) copy(direction int, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !l.wait(direction, from) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// wait waits while a direction is stalled. It reports whether the connection is still
// there.
func (l *Link) wait(direction int, conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		there := false
		for _, c := range l.conns {
			there = there || c == conn
		}
		if !there || !l.stalled[direction] {
			return there
		}
		l.changed.Wait()
	}
}
