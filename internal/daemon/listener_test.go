package daemon

import (
	"testing"

	"github.com/councild/councild/internal/config"
)

func TestMaxConnections(t *testing.T) {
	few := config.Config{MaxSessions: 64, Providers: config.Providers{{Name: "first", MaxCalls: 64}}}
	many := config.Config{MaxSessions: 64, Providers: config.Providers{{Name: "first", MaxCalls: 500}}}
	two := few
	two.Providers = append(two.Providers, config.Provider{Name: "second"})
	sim := config.Config{MaxSessions: 64, Models: []string{"sim:amber", "sim:birch"}}
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
		"no limit":             {config.Config{MaxSessions: 64}, 256, 160},
		"no limit, plenty":     {config.Config{MaxSessions: 64}, 1 << 20, 4224},
		"many sessions":        {config.Config{MaxSessions: 5000}, 1 << 20, 14096},
	} {
		if got := maxConnections(tt.cfg, tt.descriptors); got != tt.want {
			t.Errorf("%s: %d connections, want %d", name, got, tt.want)
		}
	}
}

func TestMaxCalls(t *testing.T) {
	two := config.Config{Providers: config.Providers{{Name: "second"}}}
	sim := config.Config{Models: []string{"sim:amber", "sim:birch"}}
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
