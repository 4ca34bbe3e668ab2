package daemontest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Balancer is a proxy in front of several daemons. It sends each request to the next daemon that is ready, over a new
// connection. It tries another daemon only if the connection is refused, so it sends no request twice.
type Balancer struct {
	URL string

	mu    sync.Mutex // guards the other fields
	nodes []string   // the addresses of all daemons, each a host and a port
	ready []string   // the nodes that are ready
	next  int        // the index in ready for the next request, modulo the length of ready
}

// readyEvery is how often a Balancer asks for /readyz.
const readyEvery = 200 * time.Millisecond

// NewBalancer returns a Balancer that ends with the test. It has no daemons yet.
func NewBalancer(tb testing.TB) *Balancer {
	tb.Helper()
	b := &Balancer{}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: b.dial}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme = "http"
			r.Out.URL.Host = "daemons"
			r.Out.Host = r.In.Host
		},
		Transport: transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // Daemons that a test kills cut connections.
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Keep the body of the request open while the server sends the response. By default, the server closes the body
		// at the first bytes of the response, which may be before the transport has seen the end of the body.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}))
	b.URL = server.URL
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			b.look(ctx)
			select {
			case <-time.After(readyEvery):
			case <-ctx.Done():
			}
		}
	})
	tb.Cleanup(func() {
		stop()
		looking.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	return b
}

// Set makes the Balancer send requests only to the daemons at these URLs. A daemon gets requests after the Balancer has
// seen that the daemon is ready.
func (b *Balancer) Set(urls ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nil
	for _, u := range urls {
		b.nodes = append(b.nodes, strings.TrimPrefix(u, "http://"))
	}
}

// Wait waits until exactly n daemons are ready.
func (b *Balancer) Wait(tb testing.TB, n int) {
	tb.Helper()
	Until(tb, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.ready) == n
	})
}

// look asks all daemons whether they are ready.
func (b *Balancer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	b.mu.Lock()
	nodes := slices.Clone(b.nodes)
	b.mu.Unlock()
	is := make([]bool, len(nodes))
	var asking sync.WaitGroup
	for i, node := range nodes {
		asking.Go(func() {
			base := url.URL{Scheme: "http", Host: node}
			resp, _, err := Caller{Base: base.String()}.Send(ctx, "GET", "/readyz", "")
			is[i] = err == nil && resp.StatusCode == http.StatusOK
		})
	}
	asking.Wait()
	var ready []string
	for i, node := range nodes {
		if is[i] {
			ready = append(ready, node)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = ready
}

// dial connects to the next daemon that is ready and does not refuse the connection.
func (b *Balancer) dial(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	b.mu.Lock()
	ready := b.ready
	first := b.next
	b.next++
	b.mu.Unlock()
	err = errors.New("no daemon is ready")
	for i := range ready {
		conn, err = new(net.Dialer).DialContext(ctx, network, ready[(first+i)%len(ready)])
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return conn, err
}
