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
	// maxOpening limits how many connections to one provider are opened at the same time, because the sessions of a
	// daemon can begin hundreds of calls at once. Many servers queue 128 new connections (net.core.somaxconn before
	// Linux 5.4), and drop further ones.
	maxOpening = 64
	// openingShare limits how long a connection that is being opened may keep others waiting: for the dial timeout
	// divided by openingShare. With a timeout of 5 s, 64 stalled handshakes delay the next connections by half a
	// second.
	openingShare = 10
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// limitOpening changes t so that it opens at most maxOpening connections at the same time. The timeout limits how long
// it takes to open one connection, including the wait for others. A connection through a proxy counts only until the
// proxy is reached.
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
