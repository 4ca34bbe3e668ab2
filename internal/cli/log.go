package cli

import (
	"io"
	"log/slog"
	"os"

	"github.com/councild/councild/internal/config"
	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLog returns the logger that the configuration asks for.
func newLog(w io.Writer, cfg config.Config) *slog.Logger {
	terminal := isTerminal(w)
	if cfg.LogFormat == "text" || cfg.LogFormat == "auto" && terminal {
		noColor := !terminal || os.Getenv("NO_COLOR") != ""
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: cfg.LogLevel, NoColor: noColor}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
