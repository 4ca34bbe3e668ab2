package daemon

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
)

const (
	// spareDescriptors are kept for what is neither a connection of a client nor a
	// call to a provider: the standard streams, the store, a report that reads the
	// store, and name lookups.
	spareDescriptors = 32
	// watchers is how many connections may be open besides the connections of clients
	// that run a session or ask for one.
	watchers = 4096
	// evictEvery is how often idle connections are closed while all places are
	// taken. A connection whose first request is not there after muteTime counts as idle.
	evictEvery = 100 * time.Millisecond
	muteTime   = 5 * time.Second
)

// maxCalls returns how many calls may be in flight to a provider that has no limit of its own: a quarter of the
// descriptors is shared between the providers. limit is how many descriptors the process may have.
func maxCalls(cfg config.Config, limit int) int {
	return max(limit/4/shares(cfg), 1)
}

// shares returns how many descriptors a call to each provider takes together.
func shares(cfg config.Config) int {
	n := 1 + len(cfg.Providers)
	if usesSim(cfg) {
		n += 2 // both ends of a call are in this process
	}
	return n
}

// maxConnections returns how many connections clients may hold: enough for the
// configured sessions, and few enough to leave the daemon the descriptors that it
// needs itself.
func maxConnections(cfg config.Config, limit int) int {
	calls := maxCalls(cfg, limit) * shares(cfg)
	for _, p := range cfg.Providers {
		if p.MaxCalls > 0 {
			calls += p.MaxCalls - maxCalls(cfg, limit)
		}
	}
	return min(2*cfg.MaxSessions+watchers, max(limit-calls-spareDescriptors, limit/4))
}

// boundedListener accepts connections as long as there are places. Further clients
// wait in the kernel, where they cost the daemon neither memory nor descriptors.
type boundedListener struct {
	net.Listener
	places chan struct{} // one element per connection
	evict  func()        // closes idle connections
	closed chan struct{}
	close  func()

	mu   sync.Mutex             // guards mute
	mute map[net.Conn]time.Time // since when there is a connection whose first request is not there yet
}

func newBoundedListener(l net.Listener, places int) *boundedListener {
	closed := make(chan struct{})
	return &boundedListener{
		Listener: l, places: make(chan struct{}, places), closed: closed, close: sync.OnceFunc(func() { close(closed) }),
		mute: map[net.Conn]time.Time{},
	}
}

// Accept waits for a free place and for the connection that takes it.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		select {
		case l.places <- struct{}{}:
			conn, err := l.Listener.Accept()
			if err != nil {
				l.leave()
			}
			return conn, err
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(evictEvery):
			l.evict()
			l.closeMute()
		}
	}
}

// closeMute closes the connections whose first request does not come.
func (l *boundedListener) closeMute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, since := range l.mute {
		if time.Since(since) > muteTime {
			_ = conn.Close() // The server notices, and gives the place back.
		}
	}
}

// changed hears from the server of each state of a connection.
func (l *boundedListener) changed(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	switch state {
	case http.StateNew:
		l.mute[conn] = time.Now()
	case http.StateActive, http.StateClosed, http.StateHijacked:
		delete(l.mute, conn)
	case http.StateIdle:
	}
	l.mu.Unlock()
	if state == http.StateClosed {
		l.leave()
	}
}

// leave gives the place of a connection back.
func (l *boundedListener) leave() { <-l.places }

// Close ends Accept.
func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

// nowhere is a listener that nobody can connect to.
type nowhere struct {
	close  func()
	closed chan struct{}
}

func newNowhere() nowhere {
	closed := make(chan struct{})
	return nowhere{sync.OnceFunc(func() { close(closed) }), closed}
}

// Accept implements net.Listener.
func (n nowhere) Accept() (net.Conn, error) {
	<-n.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (n nowhere) Close() error {
	n.close()
	return nil
}

// Addr implements net.Listener.
func (nowhere) Addr() net.Addr { return nowhereAddr{} }

type nowhereAddr struct{}

// Network implements net.Addr.
func (nowhereAddr) Network() string { return "none" }

// String implements net.Addr.
func (nowhereAddr) String() string { return "none" }
