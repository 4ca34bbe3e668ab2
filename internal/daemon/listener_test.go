package daemon

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/councild/councild/internal/config"
	"github.com/google/go-cmp/cmp"
)

func TestMaxConnections(t *testing.T) {
	few := config.Config{MaxSessions: 64, MaxCallsPerProvider: 64}
	two := few
	two.Providers = config.Providers{{Name: "second"}}
	sim := few
	sim.Models = []string{"sim:amber", "sim:birch"}
	for name, tt := range map[string]struct {
		cfg         config.Config
		descriptors int
		want        int
	}{
		"plenty":               {few, 1 << 20, 4224},
		"few":                  {few, 256, 160},
		"two providers":        {two, 256, 96},
		"a simulated provider": {sim, 1024, 800},
		"too few":              {sim, 256, 64},
		"many sessions":        {config.Config{MaxSessions: 5000, MaxCallsPerProvider: 64}, 1 << 20, 14096},
	} {
		if got := maxConnections(tt.cfg, tt.descriptors); got != tt.want {
			t.Errorf("%s: %d connections, want %d", name, got, tt.want)
		}
	}
}

// An address that other machines can reach is never left open.
func TestTokenForAnOpenAddress(t *testing.T) {
	for address, want := range map[string]int{"0.0.0.0": 1, "::": 1, "192.0.2.1": 1, "127.0.0.1": 0, "::1": 0, "127.0.0.9": 0} {
		var log bytes.Buffer
		addr := &net.TCPAddr{IP: net.ParseIP(address)}
		tokens := requireTokens(t.Context(), nil, addr, slog.New(slog.NewJSONHandler(&log, nil)))
		if len(tokens) != want {
			t.Errorf("%s: %d tokens, want %d", address, len(tokens), want)
		}
		if want == 1 && (len(tokens[0]) < 16 || strings.Count(log.String(), tokens[0]) != 1) {
			t.Errorf("%s: the token is not logged once: %s", address, &log)
		}
	}
	given := []config.Secret{"given-by-the-user"}
	tokens := requireTokens(t.Context(), given, &net.TCPAddr{IP: net.IPv4zero}, slog.New(slog.DiscardHandler))
	if diff := cmp.Diff([]string{"given-by-the-user"}, tokens); diff != "" {
		t.Error(diff)
	}
}
