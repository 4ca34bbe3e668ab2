package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions/journal"
)

// openJournal opens the journal, which keeps sessions in a directory or on a cluster. It returns nil if sessions
// are in memory only. It also returns nil, with a warning in the log, if no setting names a directory and the
// default one cannot be written. node is the id of this process on the cluster.
func openJournal(ctx context.Context, cfg config.Config, node string, log *slog.Logger) (*journal.Journal, error) {
	o := journal.Options{
		MaxBytes: max(1, int64(cfg.SessionsKeptBytes)), Node: node, Prefix: "council",
		Says: strings.Join(pipeline.Prompts(tasks()), " "), Log: log,
	}
	if cfg.NatsURL != "" {
		return openCluster(ctx, cfg, o)
	}
	dir, named := cfg.SessionsDir()
	if dir == "" {
		return nil, nil
	}
	o.Dir = dir
	o.Key = cfg.SessionsKey.Reveal()
	j, err := journal.Open(ctx, o)
	if _, unusable := errors.AsType[*fs.PathError](err); unusable && !named {
		log.WarnContext(ctx, "sessions are in memory only, and a restart loses them: name a directory in "+
			"LLM_COUNCIL_DATA_DIR, or write off",
			"error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the sessions in LLM_COUNCIL_DATA_DIR (with SESSIONS_KEY): %w", err)
	}
	return j, nil
}

// openCluster opens the journal on the cluster that the settings name. All nodes of the cluster share this journal.
func openCluster(ctx context.Context, cfg config.Config, o journal.Options) (*journal.Journal, error) {
	o.URL = cfg.NatsURL
	o.Creds = cfg.NatsCreds.Reveal()
	o.CA = cfg.NatsCA
	o.Prefix = cfg.NatsPrefix
	o.Replicas = cfg.NatsReplicas
	o.Lease = cfg.Lease
	if cfg.BiasRetentionDays != nil {
		o.RecordsFor = time.Duration(*cfg.BiasRetentionDays) * 24 * time.Hour
	}
	j, err := journal.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("the cluster of LLM_COUNCIL_NATS_URL (with NATS_CREDS, NATS_CA, NATS_PREFIX and NATS_REPLICAS): %w", err)
	}
	if cfg.NatsReplicas == 1 {
		o.Log.WarnContext(ctx, "each session is stored by one server of the cluster, and lost with it: set LLM_COUNCIL_NATS_REPLICAS to 3")
	}
	return j, nil
}

// notKept returns why sessions cannot be kept now, or "" if they can. The text contains neither a path nor an
// address, so that /readyz may show it.
func (d *Daemon) notKept() string {
	err := d.journal.Healthy()
	errno, known := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil && d.journal.Full():
		return "their store is 90 % full; raise LLM_COUNCIL_SESSIONS_KEPT or delete sessions"
	case err == nil:
		return ""
	case d.journal.Cluster():
		return "the cluster of LLM_COUNCIL_NATS_URL does not answer"
	case known:
		return "their store cannot be written: " + errno.Error()
	default:
		return "their store cannot be written; the log says why"
	}
}

// measureKept adds the state of the journal to the metrics.
func (d *Daemon) measureKept() {
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"councild_kept_writable", "Whether sessions can be stored: 1 yes, 0 no.", func() float64 {
			if d.journal.Healthy() != nil {
				return 0
			}
			return 1
		}},
		{"councild_kept_connected", "Whether the engine of sessions is open, or the cluster connected: 1 yes, 0 no.", func() float64 {
			if d.journal.Stats().Connected {
				return 1
			}
			return 0
		}},
		{"councild_kept_sessions", "Sessions that are stored.", func() float64 { return float64(d.journal.Stats().Sessions) }},
		{"councild_kept_running", "Stored sessions that have not ended.", func() float64 { return float64(d.journal.Stats().Running) }},
		{"councild_kept_bytes", "Size of the store of sessions, in bytes.", func() float64 { return float64(d.journal.Stats().Bytes) }},
		{"councild_kept_limit_bytes", "Size that the store of sessions may have, in bytes.", func() float64 {
			return float64(d.journal.Stats().MaxBytes)
		}},
		{"councild_kept_lag", "Messages in the session store that this process has not indexed yet.", func() float64 {
			return float64(d.journal.Stats().Lag)
		}},
		{"councild_records_lag", "Sessions whose records are on the cluster and not yet copied to this node.", func() float64 {
			return float64(d.journal.Stats().RecordsLag)
		}},
		{"councild_lease_age_seconds", "Time since the lease of this node was confirmed, in seconds; 0 without a cluster.", func() float64 {
			return d.journal.Stats().LeaseAge.Seconds()
		}},
	} {
		d.engine.metrics.Gauge(g.name, g.help, g.value)
	}
	d.engine.metrics.Counter("councild_taken_over_total", "Sessions of other processes that this process has continued since its start.", func() float64 {
		return float64(d.api.TakenOver())
	})
}
