package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

// OpenStore opens the record store on the disk on, as cfg says.
func OpenStore(cfg config.Config, on disk.Disk, log *slog.Logger) (*store.Store, store.Recovery, error) {
	o := store.Options{
		Path: cfg.BiasStore, Fsync: cfg.BiasFsync, Interval: cfg.BiasFsyncInterval, RotateBytes: int64(cfg.BiasRotateBytes),
		Disk: on, Log: log,
	}
	if cfg.BiasRetentionDays != nil {
		o.Retention = time.Duration(*cfg.BiasRetentionDays) * 24 * time.Hour
	}
	return store.Open(o)
}

// collect reads the store at path in one pass, as far as a query asks for its records.
// A store that does not exist yet holds no sessions.
func collect(ctx context.Context, cfg config.Config, path string, q bias.Query) (*bias.Collector, error) {
	collector := bias.NewCollector(bias.Options{
		Now: time.Now(), WindowSessions: cfg.BiasWindowSessions, WindowDays: cfg.BiasWindowDays, MinSessions: cfg.MinBiasSessions,
		Settings: config.SettingNames(), Query: q,
	})
	for record, err := range store.ReadFile(ctx, path) {
		bad, ok := errors.AsType[*store.LineError](err)
		switch {
		case err == nil:
			collector.Add(record)
		case ok:
			collector.Skip(bad.File, bad.Line, string(bad.Reason))
		case errors.Is(err, fs.ErrNotExist):
		default:
			return nil, err
		}
	}
	return collector, nil
}

// Report computes the bias report over the record store at path.
func Report(ctx context.Context, cfg config.Config, path string, q bias.Query) (bias.Report, error) {
	collector, err := collect(ctx, cfg, path, q)
	if err != nil {
		return bias.Report{}, err
	}
	return collector.Report(), nil
}

// Leaderboard computes the leaderboard over the record store at path.
func Leaderboard(ctx context.Context, cfg config.Config, path string, q bias.Query) (bias.Leaderboard, error) {
	collector, err := collect(ctx, cfg, path, q)
	if err != nil {
		return bias.Leaderboard{}, err
	}
	return collector.Leaderboard(cfg.PartialBallots), nil
}
