package pipenet_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit/pipenet"
	"github.com/councild/councild/internal/testkit/race"
)

// An answer that takes an hour of the bubble's time arrives after exactly an hour.
func TestTimePasses(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		l := pipenet.Listen()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, "late")
		})}
		go func() { _ = server.Serve(l) }()
		transport := &http.Transport{DialContext: l.DialContext}
		start := time.Now()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://anywhere/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "late" {
			t.Errorf("got %q, %v", body, err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("the answer took %v, want an hour", took)
		}
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.DialContext(t.Context(), "tcp", "anywhere:80"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener was dialed: %v", err)
		}
	})
}
