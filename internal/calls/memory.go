package calls

import "sync"

// Memory bounds how many bytes a session holds: its question, its replies so far, and its prompts in flight. It is safe
// for concurrent use.
type Memory struct {
	Limit int64 // in bytes. 0 means no limit.

	mu   sync.Mutex // guards held
	held int64
}

// NewMemory returns a Memory that already holds some bytes. Both arguments are in bytes.
func NewMemory(limit, held int64) *Memory { return &Memory{Limit: limit, held: held} }

// Hold adds a number of bytes to the bytes that the session holds. If the sum would exceed the limit, Hold adds nothing
// and reports false.
func (m *Memory) Hold(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Limit > 0 && bytes > m.Limit-m.held {
		return false
	}
	m.held += bytes
	return true
}

// Release takes back an earlier Hold of the same number of bytes.
func (m *Memory) Release(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= bytes
}
