package daemon

import (
	"testing"

	"github.com/councild/councild/internal/config"
)

// withSessions returns settings that have nothing but a limit of sessions.
func withSessions(limit int) config.Config {
	return config.Config{SessionLimits: config.SessionLimits{MaxSessions: limit}}
}

func TestMaxConnections(t *testing.T) {
	few := withSessions(64)
	few.Providers = config.Providers{{Name: "first", MaxCalls: 64}}
	many := withSessions(64)
	many.Providers = config.Providers{{Name: "first", MaxCalls: 500}}
	two := few
	two.Providers = append(two.Providers, config.Provider{Name: "second"})
	sim := withSessions(64)
	sim.Models = []string{"sim:amber", "sim:birch"}
	for name, tt := range map[string]struct {
		cfg         config.Config
		descriptors int
		want        int
	}{
		"plenty":               {few, 1 << 20, 4224},
		"few":                  {few, 256, 128},
		"two providers":        {two, 256, 118},
		"a simulated provider": {sim, 1024, 737},
		"too few":              {many, 256, 64},
		"no limit":             {withSessions(64), 256, 160},
		"no limit, plenty":     {withSessions(64), 1 << 20, 4224},
		"many sessions":        {withSessions(5000), 1 << 20, 14096},
	} {
		if got := maxConnections(tt.cfg, tt.descriptors); got != tt.want {
			t.Errorf("%s: %d connections, want %d", name, got, tt.want)
		}
	}
}

func TestMaxCalls(t *testing.T) {
	two := config.Config{Endpoints: config.Endpoints{Providers: config.Providers{{Name: "second"}}}}
	sim := config.Config{Members: config.Members{Models: []string{"sim:amber", "sim:birch"}}}
	for name, tt := range map[string]struct {
		cfg         config.Config
		descriptors int
		want        int
	}{
		"plenty":               {config.Config{}, 1 << 20, 1 << 18},
		"few":                  {config.Config{}, 256, 64},
		"two providers":        {two, 256, 32},
		"a simulated provider": {sim, 256, 21},
		"hardly any":           {two, 3, 1},
	} {
		if got := maxCalls(tt.cfg, tt.descriptors); got != tt.want {
			t.Errorf("%s: %d calls, want %d", name, got, tt.want)
		}
	}
}
