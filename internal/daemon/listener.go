package daemon

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
)

const (
	// spareDescriptors are kept for everything except connections of clients and calls to providers: the standard
	// streams, the store, reports that read the store, and name lookups.
	spareDescriptors = 32
	// watchers is how many connections may be open in addition to those that run or request a session.
	watchers = 4096
	// evictEvery is how often the daemon closes idle connections while the limit of connections is reached. A connection
	// counts as idle if its first request does not come within muteTime.
	evictEvery = 100 * time.Millisecond
	muteTime   = 5 * time.Second
)

// maxCalls returns how many calls may be in flight to a provider without a call limit. These providers share a quarter
// of the descriptors of the process. The argument limit is the number of these descriptors.
func maxCalls(cfg config.Config, limit int) int {
	return max(limit/4/shares(cfg), 1)
}

// shares is the sum of the descriptors that one call to each provider needs.
func shares(cfg config.Config) int {
	n := 1 + len(cfg.Providers)
	if usesSim(cfg) {
		n += 2 // both ends of a simulated call are in this process
	}
	return n
}

// maxConnections returns how many connections clients may hold. This number suffices for the configured sessions, and
// leaves the daemon the descriptors that it needs itself. The argument limit is the number of descriptors that the
// process may have.
func maxConnections(cfg config.Config, limit int) int {
	calls := maxCalls(cfg, limit) * shares(cfg)
	for _, p := range cfg.Providers {
		if p.MaxCalls > 0 {
			calls += p.MaxCalls - maxCalls(cfg, limit)
		}
	}
	return min(2*cfg.MaxSessions+watchers, max(limit-calls-spareDescriptors, limit/4))
}

// boundedListener accepts only a limited number of connections at the same time. Each open connection takes a place.
// Further clients wait in the kernel, where they take neither memory nor descriptors of the daemon.
type boundedListener struct {
	net.Listener
	places chan struct{} // one element for each open connection
	evict  func()        // closes idle connections
	closed chan struct{}
	close  func()

	mu sync.Mutex // guards mute
	// mute holds the connections whose first request has not come yet, and when each was opened.
	mute map[net.Conn]time.Time
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

// closeMute closes the connections that have sent no request within muteTime.
func (l *boundedListener) closeMute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, since := range l.mute {
		if time.Since(since) > muteTime {
			_ = conn.Close() // The server then calls changed, which frees the place of the connection.
		}
	}
}

// changed keeps the map mute up to date, and frees the place of a closed connection. The server calls changed when a
// connection has a new state.
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

// leave frees the place of one connection.
func (l *boundedListener) leave() { <-l.places }

// Close closes the listener and ends Accept.
func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

// nowhere is a listener to which no client can connect.
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
