package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/daemon"
)

type healthcheckCmd struct{}

// Run asks the daemon at the configured address whether it is alive.
func (healthcheckCmd) Run(ctx context.Context, std IO) error {
	cfg, err := config.Load()
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+daemon.Reachable(cfg.Addr)+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var health struct {
		Status string `json:"status"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<10)).Decode(&health); err != nil || resp.StatusCode != http.StatusOK || health.Status != "ok" {
		return fmt.Errorf("the daemon at %s answered %s", cfg.Addr, resp.Status)
	}
	_, err = fmt.Fprintln(std.Stdout, "ok")
	return err
}
