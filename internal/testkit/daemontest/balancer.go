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

// Balancer is a proxy in front of several daemons. It gives each request to the next
// daemon whose /readyz is green, over a connection of its own. Only a connection that is
// refused makes it try another one: no request is sent twice.
type Balancer struct {
	URL string

	mu    sync.Mutex // guards all below
	nodes []string   // addresses, each a host and a port
	ready []string   // those of nodes that are ready
	next  int        // index in ready, modulo its length
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
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // of connections that a daemon cuts
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise the server closes the body of a request with the first bytes of its answer,
		// now and then before the transport has seen the end of that body.
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

// Set makes the daemons at these URLs those of the Balancer. Each gets requests from the
// time on at which it is found to be ready.
func (b *Balancer) Set(urls ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = nil
	for _, u := range urls {
		b.nodes = append(b.nodes, strings.TrimPrefix(u, "http://"))
	}
}

// Wait waits until so many daemons are ready.
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
