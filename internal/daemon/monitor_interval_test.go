package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/testkit/race"
)

// The monitor is computed at the start and then at each interval, or less often where that
// takes long. One that could not be computed shows nothing.
func TestMonitorInterval(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex // guards what follows
		computed, takes := 0, time.Second
		var fails error
		m := &monitor{every: time.Hour, log: slog.New(slog.DiscardHandler), compute: func(context.Context) (bias.Monitor, error) {
			mu.Lock()
			computed++
			err, pause := fails, takes
			mu.Unlock()
			time.Sleep(pause)
			if err != nil {
				return bias.Monitor{}, err
			}
			return bias.Monitor{Watched: []bias.Watched{{Name: "position"}}}, nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.run(ctx)
		}()
		after := func(d time.Duration, times, headlines int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if computed != times || len(m.current()) != headlines {
				t.Errorf("computed %d times, want %d; %d headlines, want %d", computed, times, len(m.current()), headlines)
			}
		}
		after(0, 1, 0)
		after(time.Second, 1, 1)
		after(time.Hour-time.Second, 1, 1)
		mu.Lock()
		takes = 10 * time.Minute
		mu.Unlock()
		after(time.Second, 2, 1)
		mu.Lock()
		fails = errors.New("the disk is away")
		mu.Unlock()
		after(time.Hour+11*time.Minute, 2, 1) // it rests for ten times as long as it took
		after(39*time.Minute, 3, 1)
		after(10*time.Minute, 3, 0)
		stop()
		<-done
	})
}
