package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/sessions"
)

// hookWait is how long the end of a session waits until its webhook is on disk.
const hookWait = 5 * time.Second

// openHooks opens the outbox of webhooks, if there is an address for them. The outbox asks the interface whether a
// session has ended, so the interface must exist.
func (d *Daemon) openHooks(ctx context.Context, on disk.Disk) error {
	if d.cfg.WebhookURL == "" {
		return nil
	}
	keys, err := d.cfg.WebhookKeys()
	if err != nil {
		return fmt.Errorf("LLM_COUNCIL_WEBHOOK_SECRET: %w", err)
	}
	d.hooks, err = consent.OpenOutbox(ctx, consent.OutboxOptions{
		Path: d.cfg.WebhookFile(), Sink: consent.NewWebhookSink(d.cfg.WebhookURL, keys, d.cfg.EventNetworks()), Disk: on,
		Log: d.log.With("store", "webhooks"), Single: true, When: d.hookTime,
	})
	if err != nil {
		return fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	}
	d.teardown.push("the webhooks that wait", func(context.Context) error { return d.hooks.Close() })
	d.measureHooks()
	return nil
}

// ending puts the webhook of a session that ends into the outbox (sessions.Options.Ending).
func (d *Daemon) ending(end sessions.End) {
	s := end.Session
	f := consent.SessionFinished{
		Type:      consent.TypeSessionFinished,
		Timestamp: time.Now().UTC(),
		Data: consent.FinishedData{
			SessionID:  s.ID,
			ResponseID: "resp_" + s.ID,
			Status:     s.Status,
			Council:    s.Council,
			Token:      end.Token,
			CostUSD:    s.Metadata.Usage.CostUSD,
			DurationMS: int64(cmp.Or(s.Metadata.Timing.TotalMS, float64(time.Since(s.Created).Milliseconds()))),
		},
	}
	if end.Failure != nil {
		f.Data.Code = &end.Failure.Code
	}
	ctx, cancel := context.WithTimeout(context.Background(), hookWait)
	defer cancel()
	if err := d.hooks.Add(ctx, hookKey(end.Owner, s.ID), f.ID(), f); err != nil {
		d.log.ErrorContext(ctx, "the webhook of a session is not on disk", "session_id", s.ID, "error", err)
	}
}

// hookKey returns the name of a session in the outbox of webhooks.
func hookKey(owner sessions.Owner, id string) string { return string(owner) + "/" + id }

// hookTime says when a webhook may be sent (consent.OutboxOptions.When). The webhook is on disk before clients can see
// the end of the session. If the process dies in between, or another node takes the session over, the session ends once
// more. If it then ends with another status, it gets another webhook, and this one must not be sent.
func (d *Daemon) hookTime(session string, event json.RawMessage) consent.When {
	owner, id, _ := strings.Cut(session, "/")
	var f consent.SessionFinished
	if json.Unmarshal(event, &f) != nil {
		return consent.Never
	}
	switch status := d.api.Status(sessions.Owner(owner), id); status {
	case council.StatusRunning:
		return consent.Later
	case f.Data.Status, "":
		return consent.Now
	default:
		return consent.Never
	}
}
