package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
)

// slowly is a Recorder that takes a given time for each append.
type slowly struct {
	pipeline.Recorder
	takes time.Duration
}

func (s slowly) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	select {
	case <-time.After(s.takes):
		return s.Recorder.Append(ctx, records)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(message string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), message)
}

// The wait for the records begins when everything else is done: records that are on disk
// must not be reported as lost because the chairman was slow. Records that were not
// written in time are reported as not yet written, which is not a failure.
func TestWaitForTheRecords(t *testing.T) {
	const (
		late   = "not written yet"
		later  = "the session's records were written after it had ended"
		failed = "the session's records were not written"
		slow   = council.WarnNotYetWritten
	)
	for _, tt := range []struct {
		name     string
		chairman time.Duration
		takes    time.Duration // to append
		err      error
		warning  council.WarningCode
		either   bool // or no warning
		logged   []string
		silent   []string
	}{
		{name: "at once", chairman: time.Minute, silent: []string{late, later, failed}},
		{name: "beside the chairman", chairman: time.Minute, takes: 59 * time.Second, silent: []string{late, later, failed}},
		{name: "just in time", chairman: time.Minute, takes: 69 * time.Second, silent: []string{late, later, failed}},
		{name: "at the second", chairman: time.Minute, takes: 70 * time.Second, warning: slow, either: true, silent: []string{failed}},
		{
			name: "too late", chairman: time.Minute, takes: 71 * time.Second, warning: slow, logged: []string{late, later},
			silent: []string{failed},
		},
		{
			name: "failed", chairman: time.Minute, takes: time.Second, err: errors.New("the disk is full"),
			warning: council.WarnNotPersisted,
			logged:  []string{failed}, silent: []string{late, later},
		},
		{
			name: "failed in the end", chairman: time.Minute, takes: 71 * time.Second, err: errors.New("the disk is full"), warning: slow,
			logged: []string{late, failed}, silent: []string{later},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				models := append(members(3), simllm.Model{Name: "elder", Latency: simllm.Latency{Median: tt.chairman}})
				log := &journal{}
				h := bubble(t, models, nil, func(o *pipeline.Options) {
					o.Models, o.Chairman, o.Log = o.Models[:3], "elder", slog.New(slog.NewTextHandler(log, nil))
					o.Recorder = slowly{o.Recorder, tt.takes}
				})
				h.notes.err = tt.err
				for range 4 { // an outcome that depends on chance shows
					s := h.run(t, council.Request{})
					warning := tt.warning
					if tt.either && s.Persisted {
						warning = ""
					}
					if s.Persisted != (warning == "") {
						t.Errorf("persisted is %v", s.Persisted)
					}
					for _, code := range []council.WarningCode{council.WarnNotPersisted, council.WarnNotYetWritten} {
						if warned(s, code) != (code == warning) {
							t.Errorf("warnings %v, want %q", s.Metadata.Warnings, warning)
						}
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, message := range tt.logged {
					if !log.has(message) {
						t.Errorf("the log does not say %q", message)
					}
				}
				for _, message := range tt.silent {
					if log.has(message) {
						t.Errorf("the log says %q", message)
					}
				}
				if tt.err == nil && len(h.notes.batches) != 4 {
					t.Errorf("%d sessions were written, want 4", len(h.notes.batches))
				}
			})
		})
	}
}

// hanging is a Recorder whose disk does not answer until the test lets it.
type hanging struct{ answers chan struct{} }

func (h hanging) Append(context.Context, []council.BiasMetricRecord) error {
	<-h.answers
	return nil
}

// Records that wait for a disk that hangs hold nothing else of their session in memory:
// its texts may be a thousand times as large.
func TestHangingRecordsHoldNoSession(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		recorder := hanging{make(chan struct{})}
		h := bubble(t, members(3), nil, func(o *pipeline.Options) { o.Recorder = recorder })
		answer := func() weak.Pointer[council.Session] {
			s := h.run(t, council.Request{})
			if !warned(s, council.WarnNotYetWritten) {
				t.Errorf("warnings %v, want not_yet_written", s.Metadata.Warnings)
			}
			return weak.Make(s)
		}()
		synctest.Wait()
		runtime.GC()
		if answer.Value() != nil {
			t.Error("the session is still in memory after it has ended")
		}
		close(recorder.answers)
		synctest.Wait()
	})
}
