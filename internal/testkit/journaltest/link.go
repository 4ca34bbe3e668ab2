package journaltest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Link is a proxy in front of a server. A test can cut and stall the link, and can make the link lose, repeat and delay
// requests.
type Link struct {
	URL  string // for LLM_COUNCIL_NATS_URL
	Addr string // URL without its scheme

	target string
	wg     sync.WaitGroup
	ended  chan struct{} // closed at the end of the test

	mu      sync.Mutex // guards all below
	changed *sync.Cond
	conns   []net.Conn
	cut     bool
	stalled [2]bool // the bytes to the server, and the bytes from it
	fate    func(subject string) Fate
	silent  map[string]bool // the subjects of answers that are lost
}

// Fate says what happens to a request to a server.
type Fate struct {
	// After has one element for each time that the server gets the request. The element is the delay. If After is empty,
	// the request is lost.
	After []time.Duration
	// Unanswered says that all answers to the request are lost.
	Unanswered bool
}

// Link returns a link to the first server of the cluster. The link is closed when the test ends.
func (c *Cluster) Link(tb testing.TB) *Link {
	tb.Helper()
	first, _, _ := strings.Cut(c.URL, ",")
	target, err := url.Parse(first)
	if err != nil {
		tb.Fatal(err)
	}
	return NewLink(tb, target.Host)
}

// NewLink returns a link to the server at the address target. The link is closed when the test ends.
func NewLink(tb testing.TB, target string) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{
		URL: "nats://" + listener.Addr().String(), Addr: listener.Addr().String(), target: target,
		ended: make(chan struct{}), silent: map[string]bool{},
	}
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
		close(l.ended)
		l.Cut()
		l.wg.Wait()
	})
	return l
}

// Cut ends all connections, and refuses new ones until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.closeLocked()
}

// Break ends all connections, but allows new ones.
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

// Stall holds back the bytes to the server, the bytes from it, or both, until Mend. It does not end connections.
func (l *Link) Stall(to, from bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = [2]bool{to, from}
}

// Mend ends Cut and Stall.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	l.stalled = [2]bool{}
	l.changed.Broadcast()
}

// Requests sets the function that decides the fate of each request from now on. A request is a message for which the
// client wants an answer. Requests ends all connections.
func (l *Link) Requests(fate func(subject string) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate = fate
	l.closeLocked()
}

// pass connects a client with the server, unless the link is cut.
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
	if l.fate == nil {
		l.wg.Go(func() { l.copy(0, back, client) })
		l.wg.Go(func() { l.copy(1, client, back) })
		return
	}
	fate := l.fate
	l.wg.Go(func() { l.copyRequests(fate, back, client) })
	l.wg.Go(func() { l.copyAnswers(client, back) })
}

// copy copies bytes from one end to the other, and closes both ends when the first one is closed.
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

// wait waits while a direction is stalled. It reports whether the connection is still open.
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

// copyRequests copies messages to the server. It loses, repeats or delays each request as the function fate says.
func (l *Link) copyRequests(fate func(subject string) Fate, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	var writing sync.Mutex
	write := func(f frame) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := to.Write(f.data)
		return err
	}
	in := bufio.NewReader(from)
	for {
		f, err := readFrame(in)
		if err != nil || !l.wait(0, from) {
			return
		}
		what := Fate{After: []time.Duration{0}}
		if f.reply != "" {
			what = fate(f.subject)
		}
		if what.Unanswered {
			l.mu.Lock()
			l.silent[f.reply] = true
			l.mu.Unlock()
		}
		for _, after := range what.After {
			if after > 0 {
				l.wg.Go(func() {
					select {
					case <-time.After(after):
						_ = write(f) // The connection may have ended.
					case <-l.ended:
					}
				})
			} else if write(f) != nil {
				return
			}
		}
	}
}

// copyAnswers copies messages from the server, but leaves out answers to the subjects in silent.
func (l *Link) copyAnswers(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		f, err := readFrame(in)
		if err != nil || !l.wait(1, from) {
			return
		}
		l.mu.Lock()
		lost := l.silent[f.subject]
		l.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(f.data); err != nil {
			return
		}
	}
}

// frame is one line of the NATS protocol, with its message if it has one.
type frame struct {
	data    []byte
	subject string // the subject of the message, "" without a message
	reply   string // the subject for the answer, "" if none is wanted
}

// readFrame reads a line of the NATS protocol, and the message that follows it.
func readFrame(in *bufio.Reader) (f frame, err error) {
	if f.data, err = in.ReadBytes('\n'); err != nil {
		return f, err
	}
	words := strings.Fields(string(f.data))
	if len(words) == 0 {
		return f, nil
	}
	least, ok := map[string]int{"PUB": 3, "HPUB": 4, "MSG": 4, "HMSG": 5}[words[0]] // A reply subject is one more word.
	switch {
	case !ok:
		return f, nil
	case len(words) < least:
		return f, fmt.Errorf("a message with the head %q", f.data)
	}
	f.subject = words[1]
	if len(words) > least && strings.HasSuffix(words[0], "PUB") {
		f.reply = words[2]
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return f, err
	}
	body := make([]byte, size+len("\r\n"))
	_, err = io.ReadFull(in, body)
	f.data = append(f.data, body...)
	return f, err
}
