package pipenet

import (
	"net"
	"time"
)

// Proxied is a client's connection through a proxy. The proxy closes the connection when the server has been silent for
// Idle.
type Proxied struct {
	net.Conn
	Idle time.Duration
}

// Read implements net.Conn.
func (c Proxied) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.Idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}
