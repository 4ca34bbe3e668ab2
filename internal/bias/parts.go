package bias

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// parts are pieces of work that run beside each other. A panic in one of them
// would end the process: it is raised again by wait, where the caller can recover
// from it.
type parts struct {
	group sync.WaitGroup

	mu       sync.Mutex // guards panicked
	panicked any
}

func (p *parts) run(part func()) {
	p.group.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.panicked = fmt.Sprintf("%v, in a part of a report:\n%s", v, debug.Stack())
			}
		}()
		part()
	})
}

func (p *parts) wait() {
	p.group.Wait()
	if p.panicked != nil {
		panic(p.panicked)
	}
}
