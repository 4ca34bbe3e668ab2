package httpapi

import "sync"

// shares are places that callers share, so that a caller with many places leaves some to the others. A caller gets a
// place only while it holds fewer places than are free. The first caller can take half of the places, the next caller
// half of the rest, and so on. newShares returns new shares.
type shares struct {
	mu   sync.Mutex // guards the other fields
	free int
	held map[any]int // places by caller. Callers without places have no entry.
}

func newShares(places int) *shares { return &shares{free: places, held: map[any]int{}} }

// take takes n places for a caller. If the caller cannot have n places now, ok is false and release is nil. Otherwise
// release gives the places back, and must be called once.
func (s *shares) take(caller any, n int) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[caller]+n-1 >= s.free-(n-1) {
		return nil, false
	}
	s.free -= n
	s.held[caller] += n
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free += n
		if s.held[caller] -= n; s.held[caller] == 0 {
			delete(s.held, caller)
		}
	}, true
}
