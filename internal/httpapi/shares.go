package httpapi

import "sync"

// shares are places that callers share: whoever takes many leaves some for the
// others. A caller gets a place only while it holds fewer than are free: the first
// takes half of them, the next half of what is left, and so on. They are made by
// newShares.
type shares struct {
	mu   sync.Mutex // guards all below
	free int
	held map[any]int // by caller; who holds none is not in it
}

func newShares(places int) *shares { return &shares{free: places, held: map[any]int{}} }

// take gives a caller a place, which release gives back, or says that there is
// none for it.
func (s *shares) take(caller any) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[caller] >= s.free {
		return nil, false
	}
	s.free--
	s.held[caller]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free++
		if s.held[caller]--; s.held[caller] == 0 {
			delete(s.held, caller)
		}
	}, true
}
