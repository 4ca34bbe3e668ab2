package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
)

type healthcheckCmd struct{}

// Run asks the daemon at LLM_COUNCIL_ADDR whether it is alive.
func (healthcheckCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	d, err := client.New(client.Options{URL: "http://" + daemon.Reachable(cfg.Addr)})
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := d.Healthy(ctx); err != nil {
		return fmt.Errorf("no healthy daemon at %s: %w; start one with councild serve, or set LLM_COUNCIL_ADDR", cfg.Addr, err)
	}
	_, err = fmt.Fprintln(std.Stdout, "ok")
	return err
}
