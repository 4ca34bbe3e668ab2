package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// storeDir is the name of the directory that holds the engine's streams. It is in the directory of the journal.
const storeDir = "jetstream"

// unlimited is a limit in bytes that no disk reaches. The streams have limits of their own.
const unlimited = 1 << 62

// startTimeout is how long the engine may take to start.
const startTimeout = 60 * time.Second

// streamDir returns the directory of a stream's files.
func streamDir(dir, name string) string { return filepath.Join(dir, storeDir, "$G", "streams", name) }

// hasStream reports whether a directory holds files of a stream.
func hasStream(dir, name string) bool {
	_, err := os.Stat(streamDir(dir, name))
	return !errors.Is(err, os.ErrNotExist)
}

// setAside renames the two files with the settings of a stream. A new stream with the same name then has the old
// messages. setAside does so only if the engine logged that one of the files is damaged or missing, and if the stream
// is not encrypted. It returns true if it renamed the files.
func setAside(o Options, name string, said []string) bool {
	dir := streamDir(o.Dir, name)
	meta := filepath.Join(dir, "meta.")
	if o.Key != "" || !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, meta) }) {
		return false
	}
	for _, pattern := range []string{"*.key", "*/*.key"} {
		if keys, err := fs.Glob(os.DirFS(dir), pattern); err != nil || len(keys) > 0 {
			return false
		}
	}
	for _, file := range []string{meta + "inf", meta + "sum"} {
		if err := os.Rename(file, file+".damaged"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	o.Log.Warn("the settings of a stream of sessions are damaged and made anew", "directory", dir)
	return true
}

// startEngine starts JetStream inside this process, without a port.
func startEngine(o Options, log *engineLog) (*server.Server, error) {
	engine, err := server.NewServer(&server.Options{
		ServerName:             "councild",
		DontListen:             true,
		NoSigs:                 true,
		JetStream:              true,
		StoreDir:               o.Dir,
		SyncAlways:             true,
		JetStreamKey:           o.Key,
		JetStreamMaxStore:      unlimited,
		JetStreamMaxMemory:     unlimited,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, err
	}
	engine.SetLoggerV2(log, false, false, false)
	engine.Start()
	if !engine.ReadyForConnections(startTimeout) {
		err = fmt.Errorf("the engine did not start within %v", startTimeout)
	}
	if said := log.opened(); err == nil && !engine.JetStreamEnabled() {
		err = fmt.Errorf("the engine did not start: %s", strings.Join(said, "; "))
	}
	if err != nil {
		stopEngine(engine)
		return nil, err
	}
	return engine, nil
}

func stopEngine(engine *server.Server) {
	engine.Shutdown()
	engine.WaitForShutdown()
}

// engineLog writes the messages of the engine to the log of the daemon. When the engine is open and logs that it cannot
// write, engineLog calls the function failed.
type engineLog struct {
	log    *slog.Logger
	failed func(error) // called for each failure after the engine was opened

	mu    sync.Mutex // guards all fields below
	ready bool
	// said holds the warnings and errors from before the engine was open, at most maxSaid.
	said []string
}

// maxSaid is how many warnings are remembered while an engine is being opened.
const maxSaid = 20

// opened is called when the engine is open. It returns the warnings and errors so far. After this call, say passes each
// failure to the function failed.
func (l *engineLog) opened() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
	return l.said
}

// say writes a warning or an error to the log of the daemon. While the engine is being opened, say also keeps the text
// in said, because the text may explain why the engine does not open. Later, if the text reports a failure, say passes
// it to the function failed.
func (l *engineLog) say(level slog.Level, format string, v []any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	l.mu.Lock()
	ready := l.ready
	if !ready && len(l.said) < maxSaid {
		l.said = append(l.said, text)
	}
	l.mu.Unlock()
	if !ready || harmless.MatchString(text) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "sessions engine", "said", text)
	if ready && failure.MatchString(text) {
		l.failed(errors.New(text))
	}
}

// warn logs the warnings and errors that the engine logged while it was being opened. It leaves out harmless texts.
func (l *engineLog) warn() {
	for _, text := range l.opened() {
		if !harmless.MatchString(text) {
			l.log.Warn("sessions engine", "said", text)
		}
	}
}

// failure matches the texts that the engine logs when it cannot write. It does not match other errors, such as a file
// that cannot be read. After such an error the engine continues, and opening it again would not help.
var failure = regexp.MustCompile(`write error|failed to store|DISABLED|disabling JetStream|permission denied`)

// harmless matches a text that the engine logs after its process was killed. The text says that the stored state is
// older than the messages. The engine then rebuilds the state from the messages.
var harmless = regexp.MustCompile(`state (is )?outdated`)

// Noticef implements server.Logger.
func (l *engineLog) Noticef(format string, v ...any) {
	l.log.Debug("sessions engine", "said", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *engineLog) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (l *engineLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Fatalf implements server.Logger. The engine does not end the process itself.
func (l *engineLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements server.Logger.
func (l *engineLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *engineLog) Tracef(string, ...any) {}
