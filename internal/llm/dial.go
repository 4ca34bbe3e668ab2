package llm

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxOpening is how many connections to one provider are opened at the same time. Many servers queue 128 new
	// connections (net.core.somaxconn before Linux 5.4), and lose further ones. The sessions of a daemon can begin
	// hundreds of calls at once.
	maxOpening = 64
	// A connection that is being opened may keep others waiting for the dial timeout divided by openingShare. So with
	// a timeout of 5 s, 64 stalled handshakes delay the next ones by half a second.
	openingShare = 10
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// limitOpening lets t open only a limited number of connections at the same time, each within the timeout, which
// includes the wait. A connection through a proxy counts until it has reached the proxy.
func limitOpening(t *http.Transport, timeout time.Duration) {
	places := make(chan struct{}, maxOpening)
	limited := func(dial dialFunc) dialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			}
			leave := sync.OnceFunc(func() { <-places })
			defer leave()
			defer time.AfterFunc(timeout/openingShare, leave).Stop()
			return dial(ctx, network, address)
		}
	}
	connect := t.DialContext
	secure := t.DialTLSContext
	if secure == nil {
		secure = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := connect(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return handshake(ctx, conn, t.TLSClientConfig, address)
		}
	}
	t.DialContext = limited(connect)
	t.DialTLSContext = limited(secure)
}

// handshake turns conn into a TLS connection, as http.Transport does.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config, address string) (net.Conn, error) {
	config = config.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	encrypted := tls.Client(conn, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return encrypted, nil
}
