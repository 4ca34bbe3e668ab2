package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/store"
)

// openOutbox opens the outbox of events. It returns nil if no events are sent.
func openOutbox(ctx context.Context, cfg config.Config, on disk.Disk, log *slog.Logger) (*consent.Outbox, error) {
	if !cfg.SendsEvents() {
		if cfg.EventSink != "" {
			log.InfoContext(ctx, "no events are sent: set LLM_COUNCIL_BIAS_CONSENT to 2 or more, and keep bias records")
		}
		return nil, nil
	}
	var sink consent.Sink = consent.NewHTTPSink(cfg.EventSink, cfg.EventToken.Reveal(), cfg.EventNetworks())
	if !cfg.EventsGoToURL() {
		file, err := consent.OpenFileSink(cfg.EventSink, on, log.With("store", "event_sink")) //nolint:contextcheck // it lives until it is closed
		if err != nil {
			return nil, fmt.Errorf("LLM_COUNCIL_EVENT_SINK: %w", err)
		}
		sink = file
	}
	o, err := consent.OpenOutbox(ctx, consent.OutboxOptions{
		Path: cfg.EventFile(), Sink: sink, Disk: on, Log: log.With("store", "events"),
	})
	if err != nil {
		return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	}
	log.InfoContext(ctx, "events of sessions are sent", "sink", cfg.EventSink, "consent", cfg.BiasConsent)
	return o, nil
}

// eventRecorder puts the event of a session into the outbox before it stores the records of the session. So a crash
// between these two steps loses no event. The session continues after the crash, and the outbox knows which sessions
// have their event already.
type eventRecorder struct {
	pipeline.Recorder
	engine *Engine
	outbox *consent.Outbox
}

// Append implements pipeline.Recorder.
func (r *eventRecorder) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	o := eventOptions(r.engine.o.Config, r.engine.setup.Load().roster)
	if len(records) > 0 {
		o.Level = min(o.Level, records[0].ConsentLevel)
	}
	if e := consent.Make(records, o); e != nil {
		if err := r.outbox.Add(ctx, records[0].SessionID, e.EventID, e); err != nil {
			r.engine.o.Log.ErrorContext(ctx, "the event of a session could not be written to disk",
				"session_id", records[0].SessionID, "error", err)
		}
	}
	return r.Recorder.Append(ctx, records)
}

// eventOptions returns the options by which events are made. Without a roster, events publish no model.
func eventOptions(cfg config.Config, r *config.Roster) consent.Options {
	o := consent.Options{Level: cfg.BiasConsent, Policy: cfg.PartialBallots, Audit: cfg.AuditThresholds()}
	if r != nil {
		o.Publish = func(id string) string {
			m, _ := r.Model(id)
			return m.PublishAs
		}
	}
	return o
}

// PreviewEvents returns the events that the newest sessions of a record file would send at a consent level, the oldest
// first. The argument sessions is the largest number of events to return. The random ids in the events differ at each
// call.
func PreviewEvents(ctx context.Context, cfg config.Config, path string, level, sessions int) ([]consent.Event, error) {
	cfg, r, err := cfg.ReadRoster()
	if err != nil {
		return nil, err
	}
	o := eventOptions(cfg, r)
	o.Level = level
	order := []string{}
	bySession := map[string][]council.BiasMetricRecord{}
	for record, err := range store.ReadFile(ctx, path) {
		if _, bad := errors.AsType[*store.LineError](err); bad {
			continue
		}
		if err != nil {
			return nil, err
		}
		id := record.SessionID
		if bySession[id] == nil {
			order = append(order, id)
		}
		bySession[id] = append(bySession[id], record)
		if len(order) > 2*sessions { // twice as many, because some sessions have no event
			delete(bySession, order[0])
			order = order[1:]
		}
	}
	var found []consent.Event
	for _, id := range order {
		if e := consent.Make(bySession[id], o); e != nil {
			found = append(found, *e)
		}
	}
	return found[max(0, len(found)-sessions):], nil
}
