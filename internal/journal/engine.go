package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// storeDir is where the engine keeps its streams, below the directory of a journal.
const storeDir = "jetstream"

// unlimited is a limit in bytes that no disk reaches: the streams have their own.
const unlimited = 1 << 62

// startPatience is how long the engine may take to start.
const startPatience = 60 * time.Second

// used tells whether an engine has kept something in a directory.
func used(dir string) (bool, error) {
	names, err := os.ReadDir(filepath.Join(dir, storeDir))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return len(names) > 0, err
}

// hasStream tells whether the files of a stream are in a directory.
func hasStream(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, storeDir, "$G", "streams", name))
	return !errors.Is(err, os.ErrNotExist)
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
	if !engine.ReadyForConnections(startPatience) {
		err = fmt.Errorf("the engine did not start within %v", startPatience)
	}
	if first := log.opened(); err == nil && !engine.JetStreamEnabled() {
		err = cmpErr(first, errors.New("JetStream did not start"))
	}
	if err != nil {
		stopEngine(engine)
		return nil, err
	}
	return engine, nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func stopEngine(engine *server.Server) {
	engine.Shutdown()
	engine.WaitForShutdown()
}

// engineLog writes what the engine logs to the log of the daemon. What is logged as an
// error is an error of the journal.
type engineLog struct {
	log    *slog.Logger
	failed func(error) // told of each error after the engine was opened

	mu    sync.Mutex // guards all below
	ready bool
	first error // the first warning or error while the engine was opened
}

// opened returns the first warning or error until now, and has later errors told.
func (l *engineLog) opened() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
	return l.first
}

// remedied are parts of warnings by which the engine says that it cannot write.
const denied = "permission denied"

func (l *engineLog) fault(err error) {
	l.mu.Lock()
	ready := l.ready
	if !ready && l.first == nil {
		l.first = err
	}
	l.mu.Unlock()
	if ready {
		l.failed(err)
	}
}

// Noticef implements server.Logger.
func (l *engineLog) Noticef(format string, v ...any) {
	l.log.Debug("sessions engine", "said", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *engineLog) Warnf(format string, v ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	l.log.Warn("sessions engine", "said", text)
	l.mu.Lock()
	ready := l.ready
	l.mu.Unlock()
	if !ready || strings.Contains(text, denied) {
		l.fault(errors.New(text))
	}
}

// Errorf implements server.Logger.
func (l *engineLog) Errorf(format string, v ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	l.log.Error("sessions engine", "said", text)
	l.fault(errors.New(text))
}

// Fatalf implements server.Logger. The engine does not end the process itself.
func (l *engineLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements server.Logger.
func (l *engineLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *engineLog) Tracef(string, ...any) {}
