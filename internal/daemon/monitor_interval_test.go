package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/bias"
)

// The monitor is computed at the start and then at each interval, or less often where that
// takes long. One that could not be computed shows nothing.
func TestMonitorInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		computed, takes := 0, time.Second
		var fails error
		m := &monitor{every: time.Hour, log: slog.New(slog.DiscardHandler), compute: func(context.Context) (bias.Monitor, error) {
			computed++
			err := fails
			time.Sleep(takes)
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
			if computed != times || len(m.current()) != headlines {
				t.Errorf("computed %d times, want %d; %d headlines, want %d", computed, times, len(m.current()), headlines)
			}
		}
		after(0, 1, 0)
		after(time.Second, 1, 1)
		after(time.Hour-time.Second, 1, 1)
		takes = 10 * time.Minute
		after(time.Second, 2, 1)
		fails = errors.New("the disk is away")
		after(time.Hour+11*time.Minute, 2, 1) // it rests for ten times as long as it took
		after(39*time.Minute, 3, 1)
		after(10*time.Minute, 3, 0)
		stop()
		<-done
	})
}
