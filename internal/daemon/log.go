package daemon

import (
	"context"
	"log/slog"

	"github.com/councild/councild/internal/council"
)

// requestHandler puts the request's id on every line that is logged for it.
type requestHandler struct{ slog.Handler }

// Handle handles a record.
func (h requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := council.RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler with more attributes.
func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler with a group.
func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
