package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// Each daemon gets sessions with some four times as many spans as wait for the collector.
func TestFaultF75TracesWithoutACollector(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	const sessions = 40
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(release) })
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(failing.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	var slowest, stopped []time.Duration // of each daemon
	for _, collector := range []string{"", silent.URL, failing.URL, gone.URL} {
		d := startDaemon(t, daemontest.Members(), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector,
			"OTEL_BSP_MAX_QUEUE_SIZE=200", "OTEL_BSP_SCHEDULE_DELAY=1")
		var most time.Duration
		asked := map[string]bool{}
		for range sessions {
			begun := time.Now()
			s := d.Ask(t, `{"query":"What would change?"}`)
			most = max(most, time.Since(begun))
			asked[s.ID] = s.Status == council.StatusComplete
		}
		begun := time.Now()
		d.terminate(t)
		d.ended(t, 0)
		slowest = append(slowest, most.Round(time.Millisecond))
		stopped = append(stopped, time.Since(begun).Round(time.Millisecond))
		if len(d.sessions) != sessions || len(asked) != sessions {
			t.Errorf("collector %q: %d sessions of %d are stored", collector, len(d.sessions), len(asked))
		}
		for id, complete := range asked {
			if !complete || !d.sessions[id] {
				t.Errorf("collector %q: session %s: complete %v, stored %v", collector, id, complete, d.sessions[id])
			}
		}
		if most > slowest[0]+time.Second || stopped[len(stopped)-1] > 25*time.Second {
			t.Errorf("collector %q: the slowest session took %v, without traces %v; the daemon stopped after %v",
				collector, most, slowest[0], stopped[len(stopped)-1])
		}
		if logged := strings.Contains(d.log.String(), `"level":"WARN","msg":"traces"`); collector == gone.URL && !logged {
			t.Errorf("the log does not name the fault: %s", &d.log)
		}
	}
	daemontest.Fault(t, "F75", "no session takes longer or is lost; the daemon stops within 5 s",
		"%d sessions each are stored; without traces, and with a collector that is silent, fails and is gone, "+
			"the slowest session took %v, and stopping %v", sessions, slowest, stopped)
}

// The exporter console writes each span to standard output as JSON. OTEL_SDK_DISABLED turns traces off.
func TestTracesOnTheConsole(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	for disabled, want := range map[string]string{"false": "invoke_workflow default", "true": ""} {
		t.Run("disabled "+disabled, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, daemontest.Members(), "OTEL_TRACES_EXPORTER=console", "OTEL_SDK_DISABLED="+disabled)
			written := make(chan string)
			go func() {
				defer close(written)
				for decoder := json.NewDecoder(d.stdout); ; {
					var span struct{ Name string }
					if err := decoder.Decode(&span); err != nil {
						if !errors.Is(err, io.EOF) {
							t.Error(err)
						}
						return
					}
					if strings.HasPrefix(span.Name, "invoke_workflow") {
						written <- span.Name
					}
				}
			}()
			d.Ask(t, `{"query":"What would change?"}`)
			d.terminate(t)
			var names []string
			for name := range written {
				names = append(names, name)
			}
			d.ended(t, 0)
			if got := strings.Join(names, ","); got != want {
				t.Errorf("sessions on standard output: %q, want %q", got, want)
			}
		})
	}
}
