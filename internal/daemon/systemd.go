package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// manager is the service manager that started the process, if that is systemd. Its protocol is sd_notify(3): one datagram
// for each message, to the socket that NOTIFY_SOCKET names. The zero value stands for no manager, and sends nothing.
type manager struct {
	socket string
	// interval is how often the manager expects to hear from the process. It is 0 if the manager does not wait for that.
	interval time.Duration
	log      *slog.Logger
}

// newManager reads the variables that systemd sets for a unit with Type=notify and WatchdogSec.
func newManager(log *slog.Logger) manager {
	m := manager{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID") // If it is set, the interval is meant for this process alone.
	if m.socket != "" && err == nil && micros > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.interval = time.Duration(micros) * time.Microsecond
	}
	return m
}

// tell sends a message. A failure is only logged, because the daemon can answer without its manager.
func (m manager) tell(ctx context.Context, message string) {
	if m.socket == "" {
		return
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", m.socket)
	if err == nil {
		_, err = conn.Write([]byte(message))
		_ = conn.Close() // The datagram is sent.
	}
	if err != nil {
		m.log.WarnContext(ctx, "could not notify systemd; check that the unit has NotifyAccess=main", "message", message, "error", err)
	}
}

// watch tells the manager twice in each interval that the process is alive, until ctx ends. It stays silent while alive
// reports false or does not return. The manager then restarts the process.
func (m manager) watch(ctx context.Context, alive func(context.Context) bool) {
	if m.interval == 0 {
		return
	}
	ticks := time.NewTicker(m.interval / 2)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if alive(ctx) {
			m.tell(ctx, "WATCHDOG=1")
		} else if ctx.Err() == nil {
			m.log.ErrorContext(ctx, "the daemon does not answer its own health check; systemd will restart it")
		}
	}
}

// alive reports whether the daemon answers GET /healthz. It calls the handler and opens no connection, because a flood
// of connections must not end the daemon.
func (d *Daemon) alive(ctx context.Context) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", http.NoBody)
	if err != nil {
		return false
	}
	w := statusWriter{header: http.Header{}}
	d.api.ServeHTTP(&w, r)
	return w.status == http.StatusOK
}

// statusWriter is an http.ResponseWriter that keeps only the status.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header { return w.header }

func (w *statusWriter) Write(body []byte) (int, error) { return len(body), nil }

func (w *statusWriter) WriteHeader(status int) { w.status = status }
