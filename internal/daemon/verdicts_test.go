package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// Scrapes never wait for the verdicts, and have them computed at most once a minute, or
// less often where that takes long.
func TestVerdictsAreComputedBeside(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		computed, takes := 0, 2*time.Second
		var fails error
		v := newVerdicts(func(context.Context, bias.Query) (bias.Report, error) {
			computed++
			time.Sleep(takes)
			found, tells := bias.VerdictDiffers, bias.Metric{Name: "length_association"}
			return bias.Report{Metrics: []bias.Metric{{Name: "harshness", Subject: "cedar", Verdict: &found}, tells}}, fails
		}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			v.run(ctx)
		}()
		scrape := func(after time.Duration) map[string]string {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			begun := time.Now()
			current := v.current()
			if took := time.Since(begun); took != 0 {
				t.Errorf("a scrape waited %v", took)
			}
			return current
		}
		time.Sleep(time.Hour)
		if computed != 0 {
			t.Error("computed without a scrape")
		}
		if got := scrape(0); got != nil {
			t.Errorf("before anything is known: %v", got)
		}
		want := map[string]string{"harshness": "differs"}
		for range 6 { // until 62 s after the first scrape
			if diff := cmp.Diff(want, scrape(10*time.Second)); diff != "" {
				t.Error(diff)
			}
		}
		if computed != 1 {
			t.Errorf("computed %d times in a minute", computed)
		}
		takes, fails = 30*time.Second, errors.New("the disk is away")
		scrape(10 * time.Second)
		if got := scrape(31 * time.Second); got != nil || computed != 2 {
			t.Errorf("%v after %d computations, of which the last failed", got, computed)
		}
		fails = nil
		for range 28 {
			scrape(10 * time.Second)
		}
		if computed != 2 {
			t.Errorf("no rest after a computation of 30 s: %d", computed)
		}
		scrape(time.Minute)
		if diff := cmp.Diff(want, scrape(time.Minute)); diff != "" || computed != 3 {
			t.Errorf("%d computations: %s", computed, diff)
		}
		stop()
		<-done
	})
}
