package daemon

import (
	"context"
	"log/slog"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/telemetry"
)

// requestHandler adds the id of the request and the id of its trace to every line that is logged for it.
type requestHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := council.RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if id := telemetry.TraceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
