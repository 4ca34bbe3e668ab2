package pipenet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Paths dials a Listener over connections that can stop working without an error.
type Paths struct {
	*Listener
	mu     sync.Mutex // guards dialed
	dialed []*path
}

// DialContext connects to the Listener, and remembers the connection for Vanish.
func (p *Paths) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.Listener.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialed = append(p.dialed, &path{Conn: conn, closed: make(chan struct{})})
	return p.dialed[len(p.dialed)-1], nil
}

// Dialed returns how many connections there have been.
func (p *Paths) Dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.dialed)
}

// Vanish makes all connections so far lose everything that is sent. Neither side gets an error.
func (p *Paths) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.dialed {
		path.vanished.Store(true)
	}
}

type path struct {
	net.Conn
	vanished atomic.Bool
	once     sync.Once
	closed   chan struct{}
}

// Read implements net.Conn.
func (p *path) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if p.vanished.Load() {
		<-p.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (p *path) Write(b []byte) (int, error) {
	if p.vanished.Load() {
		return len(b), nil
	}
	return p.Conn.Write(b)
}

// Close implements net.Conn.
func (p *path) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}
