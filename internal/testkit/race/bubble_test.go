package race_test

import (
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit/race"
)

// Eight goroutines fire timers at once, and the race detector survives it.
func TestBubble(t *testing.T) {
	race.Bubble(t, func(*testing.T) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20_000 {
					<-time.NewTimer(0).C
				}
			})
		}
		all.Wait()
	})
}
