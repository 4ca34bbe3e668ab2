package calls

import "sync"

// Memory bounds what a session holds: the question, the replies so far, and the prompts on their way.
type Memory struct {
	Limit int64 // bytes; 0: there is no limit

	mu   sync.Mutex // guards held
	held int64
}

// NewMemory returns a Memory that holds so many bytes.
func NewMemory(limit, held int64) *Memory { return &Memory{Limit: limit, held: held} }

// Hold takes room for so many bytes more, and reports whether there was enough.
func (m *Memory) Hold(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Limit > 0 && bytes > m.Limit-m.held {
		return false
	}
	m.held += bytes
	return true
}

// Release gives room back.
func (m *Memory) Release(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= bytes
}
