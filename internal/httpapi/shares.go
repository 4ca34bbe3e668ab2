package httpapi

import "sync"

// shares are places that callers share: a caller that takes many leaves some for the
// others. A caller gets a place only while it holds fewer than are free, so that the
// first caller takes half of them, the next one half of the rest, and so on.
// newShares makes them.
type shares struct {
	mu   sync.Mutex // guards all below
	free int
	held map[any]int // places by caller, without callers that hold none
}

func newShares(places int) *shares { return &shares{free: places, held: map[any]int{}} }

// take gives a caller a place, which release gives back. ok is false when there is no
// place for this caller.
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
