package daemon

// CloseIdleConnections closes the connections to providers that wait for a next call.
func (d *Daemon) CloseIdleConnections() { d.engine.client.Close() }

// The time limits that tests go to the edge of.
const (
	HeaderTimeout = headerTimeout
	BodyTimeout   = bodyTimeout
	CloseGrace    = closeGrace
)
