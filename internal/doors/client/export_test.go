package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
)

// DialWith has the client of its own connections dial a daemon for tests, whose certificate is for example.com.
func DialWith(c *Client, dial func(ctx context.Context, network, address string) (net.Conn, error), certificate *x509.Certificate) {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	transport := c.o.HTTP.Transport.(*http.Transport)
	transport.DialContext, transport.TLSClientConfig = dial, &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
}
