// Package pipenet is a network in memory, for tests with the clock of testing/synctest. Such tests need it because a
// goroutine that waits for data from a real socket would stop that clock. An http.Server serves a Listener, and an
// http.Transport dials it.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener whose connections are ends of a net.Pipe. A test with synctest must create it inside its
// bubble.
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener without connections.
func Listen() *Listener {
	return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext connects to the listener, and ignores network and address. It has the signature of
// http.Transport.DialContext.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.dialed <- there:
		return here, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: ctx.Err()}
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "pipe", Err: net.ErrClosed}
	}
}

// Close implements net.Listener. Connections that were accepted stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "pipe" }
