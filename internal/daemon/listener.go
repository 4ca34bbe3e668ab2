package daemon

import (
	"net"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
)

const (
	// spareDescriptors are for what is neither a connection of a client nor a call
	// to a provider: standard streams, the store, a report that reads it, name
	// lookups.
	spareDescriptors = 32
	// watchers is how many connections may be open besides those of clients that
	// run a session or ask for one.
	watchers = 4096
	// evictEvery is how often idle connections are closed while all places are
	// taken.
	evictEvery = 100 * time.Millisecond
)

// maxConnections returns how many connections clients may hold: enough for the
// configured sessions, and no more than leaves the daemon the descriptors that it
// needs itself. limit is how many the process may have.
func maxConnections(cfg config.Config, limit int) int {
	calls := cfg.MaxCallsPerProvider * (1 + len(cfg.Providers))
	if usesSim(cfg) {
		calls += 2 * cfg.MaxCallsPerProvider // both ends are here
	}
	return min(2*cfg.MaxSessions+watchers, max(limit-calls-spareDescriptors, limit/4))
}

// boundedListener accepts connections as long as there are places. Clients
// beyond wait in the kernel, where they cost the daemon neither memory nor
// descriptors.
type boundedListener struct {
	net.Listener
	places chan struct{} // one element per connection
	evict  func()        // closes connections that do nothing
	closed chan struct{}
	close  func()
}

func newBoundedListener(l net.Listener, places int) *boundedListener {
	b := &boundedListener{Listener: l, places: make(chan struct{}, places), closed: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	return b
}

// Accept waits for a place, and for a connection to take it.
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
		}
	}
}

// leave gives the place of a connection back.
func (l *boundedListener) leave() { <-l.places }

// Close ends Accept.
func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}
