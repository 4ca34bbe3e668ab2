package llm

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		header, value string
		want          float64 // negative: none
	}{
		{"Retry-After", "2", 2},
		{"Retry-After", "0.5", 0.5},
		{"Retry-After", now.Add(90 * time.Second).Format(http.TimeFormat), 90},
		{"Retry-After", now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{"Retry-After-Ms", "250", 0.25},
		{"Retry-After", "-1", -1},
		{"Retry-After", "soon", -1},
		{"Retry-After", "NaN", -1},
		{"Retry-After", "Inf", -1},
		{"Retry-After-Ms", "x", -1},
		{"Date", "2", -1},
	}
	for _, tt := range tests {
		got := retryAfter(http.Header{tt.header: {tt.value}}, now)
		if (got == nil) != (tt.want < 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %s: got %v, want %v", tt.header, tt.value, got, tt.want)
		}
	}
}

// Messages hold no address of this machine or of its resolver, whatever wraps the error.
func TestReason(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 45222}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}
	lookup := func(e net.DNSError) error {
		e.Name, e.Server = "api.test", "10.0.0.53:53"
		return &net.OpError{Op: "dial", Net: "tcp", Err: &e}
	}
	for want, err := range map[string]error{
		"no such host": lookup(net.DNSError{Err: "no such host", IsNotFound: true}),
		"looking up the name of the host took too long": lookup(
			net.DNSError{Err: "read udp 10.0.0.5:33->10.0.0.53:53: i/o timeout", IsTimeout: true},
		),
		"the name of the host could not be looked up": lookup(net.DNSError{Err: "server misbehaving"}),
		"connection reset by peer": &net.OpError{
			Op: "read", Net: "tcp", Source: here, Addr: there, Err: syscall.ECONNRESET,
		},
		"the proxy: connection refused": &net.OpError{
			Op: "proxyconnect", Net: "tcp", Err: &net.OpError{Op: "dial", Net: "tcp", Addr: there, Err: syscall.ECONNREFUSED},
		},
		"EOF": errors.New("EOF"),
		"broken pipe": fmt.Errorf(
			"transport connection broken: %w", &net.OpError{Op: "write", Source: here, Addr: there, Err: syscall.EPIPE},
		),
		"x509: certificate signed by unknown authority": x509.UnknownAuthorityError{},
	} {
		if got := reason(&url.Error{Op: "Post", URL: "https://api.test/v1", Err: err}); got != want || strings.Contains(got, "10.0.0.") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
