package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/worth"
)

// OpenStore opens the record store of the settings on a disk. A nil disk stands for the operating system's.
func OpenStore(cfg config.Config, on disk.Disk, log *slog.Logger) (*store.Store, store.Recovery, error) {
	o := store.Options{
		Path: cfg.BiasStore, Fsync: cfg.BiasFsync, Interval: cfg.BiasFsyncInterval, RotateBytes: int64(cfg.BiasRotateBytes),
		Disk: on, Log: log,
	}
	if cfg.BiasRetentionDays != nil {
		o.Retention = time.Duration(*cfg.BiasRetentionDays) * 24 * time.Hour
	}
	s, recovery, err := store.Open(o)
	if err != nil {
		err = fmt.Errorf("LLM_COUNCIL_BIAS_STORE: %w", err)
	}
	return s, recovery, err
}

// options returns the options of a report for a query, within the window of the settings.
func options(cfg config.Config, q bias.Query) bias.Options {
	return bias.Options{
		Now: time.Now(), WindowSessions: cfg.BiasWindowSessions, WindowDays: cfg.BiasWindowDays,
		MinSessions: cfg.MinBiasSessions, RetentionDays: cfg.BiasRetentionDays, Settings: config.SettingNames(), Query: q,
	}
}

// collect reads the stores at the paths as one, with the newest file first. If several stores hold a record, the record
// counts once. A store that does not exist yet holds no sessions.
func collect(ctx context.Context, paths []string, o bias.Options) (*bias.Collector, error) {
	for _, path := range paths {
		if s, err := store.ReadQuestionSecret(path); err == nil && s.Anew && s.Made.After(o.SecretMade) {
			o.SecretMade = s.Made
		}
	}
	all := bias.NewCollector(o)
	if len(paths) > 1 {
		var err error
		if paths, err = byTime(ctx, paths); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Backward(paths) {
		if err := collectStore(ctx, path, o, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// byTime sorts the paths by the time of the first record of each store.
func byTime(ctx context.Context, paths []string) ([]string, error) {
	first := map[string]time.Time{}
	for _, path := range paths {
		for record, err := range store.ReadFile(ctx, path) {
			if _, bad := errors.AsType[*store.LineError](err); bad {
				continue
			}
			if err != nil {
				return nil, err
			}
			first[path] = record.Timestamp
			break
		}
	}
	return slices.SortedStableFunc(slices.Values(paths), func(a, b string) int { return first[a].Compare(first[b]) }), nil
}

// collectStore adds the records of the store at path to a collector, in front of the records that the collector has
// already. If the summary of a segment shows that the segment lies outside the window, collectStore takes only the
// counts of bad lines from the summary.
func collectStore(ctx context.Context, path string, o bias.Options, all *bias.Collector) error {
	for file, err := range store.Files(path) {
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("opening the record store: %w", err)
		}
		earlier := bias.NewCollector(o)
		if s, err := file.Summary(); err == nil && (s.Records == 0 || all.Excludes(s.Oldest, s.Newest)) {
			for _, skip := range s.Skipped {
				earlier.Skip(file.Name, skip.Lines[0], string(skip.Reason), skip.Count)
			}
		} else if err := collectFile(ctx, file, earlier); err != nil {
			return err
		}
		all.AddBefore(earlier)
	}
	return nil
}

func collectFile(ctx context.Context, file store.File, to *bias.Collector) error {
	for record, err := range file.Records(ctx) {
		if bad, ok := errors.AsType[*store.LineError](err); ok {
			to.Skip(bad.File, bad.Line, string(bad.Reason), 1)
		} else if err != nil {
			return err
		} else {
			to.Add(record)
		}
	}
	return nil
}

// Report computes the bias report over the record stores at the paths, which it reads as one.
func Report(ctx context.Context, cfg config.Config, paths []string, q bias.Query) (bias.Report, error) {
	collector, err := collect(ctx, paths, options(cfg, q))
	if err != nil {
		return bias.Report{}, err
	}
	return collector.Report(ctx), ctx.Err()
}

// Monitor computes the monitor of the bias report over the record stores and the evidence files at the paths. It
// reads all stores as one, and all files as one. The window of the settings does not apply.
func Monitor(ctx context.Context, cfg config.Config, paths, evidence []string, q bias.Query) (bias.Monitor, error) {
	q.Sessions = new(0)
	q.Days = new(0)
	collector, err := collect(ctx, paths, options(cfg, q))
	if err != nil {
		return bias.Monitor{}, err
	}
	q.ConfigVersion = collector.NewestCouncil()
	if q.Reviewer != "" || q.Model != "" || q.ModelVersion != "" || q.Source != "" { // evidence is about whole councils
		evidence = nil
	}
	g, err := gather(ctx, evidence, q)
	if err != nil {
		return bias.Monitor{}, err
	}
	g.ofOne()
	return collector.Monitor(ctx, worth.Preferences(g.shadows)), ctx.Err()
}

// Leaderboard computes the leaderboard over the record stores at the paths, which it reads as one.
func Leaderboard(ctx context.Context, cfg config.Config, paths []string, q bias.Query) (bias.Leaderboard, error) {
	collector, err := collect(ctx, paths, options(cfg, q))
	if err != nil {
		return bias.Leaderboard{}, err
	}
	return collector.Leaderboard(cfg.PartialBallots), nil
}
