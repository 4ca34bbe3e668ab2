package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/faultdisk"
	"github.com/councild/councild/internal/testkit/race"
)

// Many sessions come at once while operations of every kind fail now and then. No session
// is lost or there twice, also after a crash at some of these moments.
func TestFaultF25Chaos(t *testing.T) {
	testkit.Slow(t)
	for seed := range uint64(3) {
		for _, mode := range []council.Fsync{council.FsyncSession, council.FsyncInterval, council.FsyncOff} {
			path := newPath(t)
			d := &faultdisk.Disk{}
			k := &kept{ops: map[string]int{}, at: map[string]time.Time{}}
			var all []string
			race.Bubble(t, func(t *testing.T) {
				s := openWith(t, Options{
					Path: path, Fsync: mode, Interval: time.Second, RotateBytes: int64(5 * len(lines(t, "00"))), Disk: d,
				})
				var mu sync.Mutex // guards rng
				rng := rand.New(rand.NewPCG(seed, 0))
				d.Fail(func(o faultdisk.Op, n int) (int, error) {
					mu.Lock()
					defer mu.Unlock()
					if o.Kind != faultdisk.Truncate && rng.IntN(7) == 0 {
						if o.Kind == faultdisk.Write {
							return rng.IntN(n + 1), syscall.ENOSPC
						}
						return n, syscall.EIO
					}
					return n, nil
				})
				var done sync.WaitGroup
				for w := range 4 {
					for i := range 6 {
						id := fmt.Sprintf("%d%d", w, i)
						all = append(all, id)
						done.Go(func() {
							time.Sleep(time.Duration(i) * 150 * time.Millisecond)
							k.append(t, s, d, id)
						})
					}
				}
				done.Wait()
				time.Sleep(2 * time.Second)
				d.Fail(nil)
				time.Sleep(lastPause + 2*time.Second)
				synctest.Wait()
				if err := s.Healthy(); err != nil {
					t.Error(err)
				}
				holds(t, path, all...)
			})
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, mode)
			}
			if mode != council.FsyncSession {
				continue
			}
			ops := d.Done()
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 12 {
				n := rng.IntN(len(ops) + 1)
				for _, c := range faultdisk.Crashes() {
					p := restore(t, c.After(ops[:n]))
					s, _, err := Open(Options{Path: p, Disk: &faultdisk.Disk{}})
					if err != nil {
						t.Fatal(err)
					}
					ids := whole(t, p)
					for id, at := range k.ops {
						if at <= n && !slices.Contains(ids, id) {
							t.Errorf("session %s is missing", id)
						}
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					if t.Failed() {
						t.Fatalf("seed %d: after %d operations, %+v", seed, n, c)
					}
				}
			}
		}
	}
}
