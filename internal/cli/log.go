package cli

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLog returns the logger that the configuration asks for.
func newLog(w io.Writer, cfg config.Config) *slog.Logger {
	terminal := isTerminal(w)
	text := cfg.LogFormat == "text" || cfg.LogFormat == "auto" && terminal
	var h slog.Handler
	if text {
		h = tint.NewTextHandler(w, &tint.Options{Level: cfg.LogLevel, NoColor: !terminal || os.Getenv("NO_COLOR") != ""})
	} else {
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel})
	}
	return slog.New(requestHandler{h})
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

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
