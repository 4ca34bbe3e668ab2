package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/store"
)

// evidence keeps what reviewers and people say of whole sessions.
type evidence struct {
	store *store.Store
	key   string // of the hash of persons; "": there is none
}

// openEvidence opens the evidence file. It returns nil where there is none: also where nobody named a
// file or a share of sessions, and the one beside the records cannot be written.
func openEvidence(ctx context.Context, cfg config.Config, on disk.Disk, log *slog.Logger) (*evidence, error) {
	path, named := cfg.EvidenceFile()
	if path == "" {
		return nil, nil
	}
	s, _, err := store.Open(store.Options{ //nolint:contextcheck // a store lives until it is closed
		Path: path, Fsync: cfg.BiasFsync, Interval: cfg.BiasFsyncInterval, Disk: on, Log: log.With("store", "evidence"),
	})
	switch {
	case err == nil:
		return &evidence{s, cfg.HashSecret.Reveal()}, nil
	case named || cfg.ShadowRate > 0 || cfg.LabelRate > 0:
		return nil, fmt.Errorf("LLM_COUNCIL_EVIDENCE_STORE: %w", err)
	default:
		log.WarnContext(ctx, "feedback is not kept: name a file in LLM_COUNCIL_EVIDENCE_STORE, or off", "error", err)
		return nil, nil
	}
}

// keep returns nil once the record is kept, as BIAS_FSYNC defines it.
func (e *evidence) keep(ctx context.Context, record store.Evidence) error {
	line, err := store.EncodeEvidence(record)
	if err != nil {
		return err
	}
	wait, err := e.store.AppendLines(line)
	if err != nil {
		return err
	}
	return wait(ctx)
}

// Keep implements httpapi.Labels.
func (e *evidence) Keep(ctx context.Context, record council.LabelRecord) error {
	return e.keep(ctx, store.Evidence{Label: &record})
}

// Key implements httpapi.Labels.
func (e *evidence) Key() string { return e.key }
