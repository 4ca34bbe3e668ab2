package cli

import (
	"io"
	"log/slog"
	"os"

	"github.com/councild/councild/internal/config"
	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLog returns a logger that writes text to a terminal, and JSON to everything else.
func newLog(w io.Writer, cfg config.Config) *slog.Logger {
	if isTerminal(w) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.LogLevel, NoColor: os.Getenv("NO_COLOR") != ""}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel}))
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width returns how many columns a terminal has, or 0 if w is no terminal.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}
