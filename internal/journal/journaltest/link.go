package journaltest

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Link is a way to a cluster that can be cut.
type Link struct {
	URL string // for LLM_COUNCIL_NATS_URL

	target string
	wg     sync.WaitGroup

	mu    sync.Mutex // guards all below
	conns []net.Conn
	cut   bool
}

// Link returns a way to the cluster that ends with the test.
func (c *Cluster) Link(tb testing.TB) *Link {
	tb.Helper()
	first, _, _ := strings.Cut(c.URL, ",")
	target, err := url.Parse(first)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{URL: "nats://" + listener.Addr().String(), target: target.Host}
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
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// Mend lets connections through again.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
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
	for _, ends := range [][2]net.Conn{{client, back}, {back, client}} {
		l.wg.Go(func() {
			_, _ = io.Copy(ends[0], ends[1])
			_ = ends[0].Close()
			_ = ends[1].Close()
		})
	}
}
