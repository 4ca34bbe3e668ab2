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

// take gives a caller n places, which release gives back. ok is false if the caller
// cannot have n places now.
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
