package llm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
)

// F08: over HTTP/2, too, a connection whose path is dead fails no later call, and a model that writes for minutes
// without a byte keeps its connection.
func TestDeadConnectionOverHTTP2(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		const writes = 2*time.Minute + 7*time.Second // it ends between two signs of life
		provider := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.ProtoMajor != 2 {
				t.Errorf("the request came over %s", r.Proto)
			}
			time.Sleep(writes)
			_, _ = io.WriteString(w, goodBody)
		}))
		paths := &pipenet.Paths{Listener: pipenet.Listen()}
		provider.Listener, provider.EnableHTTP2 = paths, true
		provider.StartTLS()
		defer provider.Close()

		o := fakeOptions()
		o.Providers = []Provider{{BaseURL: "https://provider.test/v1"}}
		o.Dial = paths.DialContext
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		roots := x509.NewCertPool()
		roots.AddCert(provider.Certificate())
		c.providers[""].pool.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}

		if _, err := c.Complete(t.Context(), aCall()); err != nil || paths.Dialed() != 1 {
			t.Fatalf("the first call: %v over %d connections", err, paths.Dialed())
		}
		paths.Vanish()
		start := time.Now()
		completion, err := c.Complete(t.Context(), aCall())
		if err != nil || completion.Attempts != 2 || paths.Dialed() != 2 {
			t.Errorf("the call on the dead path: %v after %d attempts over %d connections", err, completion.Attempts, paths.Dialed())
		}
		if lost := time.Since(start) - writes; lost < 2*pingAfter || lost > 2*pingAfter+backoffBase {
			t.Errorf("the dead path cost %s", lost)
		}
		if _, err := c.Complete(t.Context(), aCall()); err != nil || paths.Dialed() != 2 {
			t.Errorf("the call after it: %v over %d connections", err, paths.Dialed())
		}
	})
}

// A request that had no connection was free, whatever stood in the way.
func TestNotSentIsFree(t *testing.T) {
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	refuses, stalls, closes := listen(), listen(), listen()
	go func() {
		for {
			conn, err := closes.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer proxy.Close()
	breaks := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer breaks.Close()
	_ = refuses.Close() // after the others have their ports
	for _, tt := range []struct {
		name, base, proxy string
		leave             bool
		free              bool
		message           string
	}{
		{"refused", "https://" + refuses.Addr().String(), "", false, true, "no connection to the provider at "},
		{"a proxy that is down", "https://api.test", "http://" + refuses.Addr().String(), false, true, "api.test: the proxy: connect: "},
		{"a proxy that refuses", "https://api.test", proxy.URL, false, true, "api.test: the proxy answered 502 Bad Gateway"},
		{"a handshake that stalls", "https://" + stalls.Addr().String(), "", false, true, "no connection to the provider at "},
		{"a handshake that is cut off", "https://" + closes.Addr().String(), "", false, true, "no connection to the provider at "},
		{"the caller leaves meanwhile", "https://" + stalls.Addr().String(), "", true, true, "cancelled"},
		{"a connection that breaks", breaks.URL, "", false, false, "broke before its reply began: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := fakeOptions()
			o.MaxAttempts, o.DialTimeout = 1, 300*time.Millisecond
			o.Providers = []Provider{{BaseURL: tt.base}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.leave {
				o.DialTimeout = time.Minute
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			var consumed []council.Consumed
			begin := func(context.Context, council.Attempt) (council.Receipt, *council.Failure) {
				return settled(func(c council.Consumed) *float64 {
					consumed = append(consumed, c)
					return nil
				}), nil
			}
			c, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if tt.proxy != "" { // as with HTTPS_PROXY, which net/http reads once in a process
				address, err := url.Parse(tt.proxy)
				if err != nil {
					t.Fatal(err)
				}
				c.providers[""].pool.Proxy = http.ProxyURL(address)
			}
			call := aCall()
			call.Begin = begin
			_, err = c.Complete(ctx, call)
			if f := council.AsFailure(err); f == nil || !strings.Contains(f.Message, tt.message) {
				t.Errorf("got %v, want %q in it", err, tt.message)
			}
			if len(consumed) == 0 || consumed[0].Free != tt.free {
				t.Errorf("consumed %+v, want free %v", consumed, tt.free)
			}
		})
	}
}

// A proxy that answers 407 is named, with the variable in which its credentials belong. One request finds it out.
func TestProxyThatAsksForCredentials(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Proxy-Authenticate", `Basic realm="corp"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	defer proxy.Close()
	host := strings.TrimPrefix(proxy.URL, "http://")
	for _, tt := range []struct{ name, base, proxy, want string }{
		{
			"without TLS", "http://models.corp.test/v1", proxy.URL,
			"the proxy at " + host + " asks for a password (HTTP 407): write it into HTTP_PROXY, as in http://USER:PASSWORD@" + host,
		},
		{
			"with TLS", "https://models.corp.test/v1", proxy.URL,
			"the proxy at " + host + " asks for a password (HTTP 407): write it into HTTPS_PROXY, as in http://USER:PASSWORD@" + host,
		},
		{
			"wrong credentials", "http://models.corp.test/v1", "http://ada:very-secret@" + host,
			"the proxy at " + host + " refuses the user and password in HTTP_PROXY (HTTP 407): correct them there",
		},
		{
			"wrong credentials with TLS", "https://models.corp.test/v1", "http://ada:very-secret@" + host,
			"the proxy at " + host + " refuses the user and password in HTTPS_PROXY (HTTP 407): correct them there",
		},
		{"a provider without a proxy", proxy.URL, "", "the provider at " + host + " answered 407 Proxy Authentication Required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := fakeOptions()
			o.Providers = []Provider{{BaseURL: tt.base}}
			c, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if tt.proxy != "" { // as with HTTP_PROXY, which net/http reads once in a process
				address, err := url.Parse(tt.proxy)
				if err != nil {
					t.Fatal(err)
				}
				c.providers[""].pool.Proxy = http.ProxyURL(address)
			}
			streamed := aCall()
			streamed.OnDelta = func(string) {}
			for what, ask := range map[string]func() error{
				"a call":           func() error { _, err := c.Complete(t.Context(), aCall()); return err },
				"a stream":         func() error { _, err := c.Complete(t.Context(), streamed); return err },
				"a list of models": func() error { _, err := c.Models(t.Context(), ""); return err },
			} {
				asked.Store(0)
				err := ask()
				f := council.AsFailure(err)
				if f == nil || f.Message != tt.want || f.HTTPStatus == nil || *f.HTTPStatus != http.StatusProxyAuthRequired || asked.Load() != 1 {
					t.Errorf("%s: %v after %d requests, want %q", what, err, asked.Load(), tt.want)
				}
				if f != nil && (f.Code == council.FailConnection) != (tt.proxy != "") {
					t.Errorf("%s: code %s", what, f.Code)
				}
			}
		})
	}
}
