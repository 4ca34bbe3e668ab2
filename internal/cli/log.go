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
	text := cfg.LogFormat == "text" || cfg.LogFormat == "auto" && terminal
	var h slog.Handler
	if text {
		h = tint.NewTextHandler(w, &tint.Options{Level: cfg.LogLevel, NoColor: !terminal || os.Getenv("NO_COLOR") != ""})
	} else {
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.LogLevel})
	}
	return slog.New(h)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
