package anonymize

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
)

// Markers enclose text that models are shown as data. Each prompt has different markers. An author that knows the
// token could write the end of a block, and each model that reads a prompt learns the token of that prompt.
type Markers struct {
	Token string // 16 hex digits
}

// NewMarkers draws the markers of one prompt. They do not depend on anything that an author could know in advance,
// such as the session's id or seed.
func NewMarkers() Markers {
	var token [8]byte
	_, _ = rand.Read(token[:]) // it never fails
	return Markers{Token: hex.EncodeToString(token[:])}
}

// MarkersFrom returns a function that makes markers. Each call of this function returns the markers of the next
// prompt of a seat. With the same key the markers are the same in each process, and they are secret as long as the
// key is secret. With an empty key all markers are drawn at random. The returned function may be called concurrently.
func MarkersFrom(key string) func(seat string) Markers {
	if key == "" {
		return func(string) Markers { return NewMarkers() }
	}
	var mu sync.Mutex
	made := map[string]int{}
	return func(seat string) Markers {
		mu.Lock()
		defer mu.Unlock()
		made[seat]++
		sum := sha256.Sum256([]byte("councild markers\x00" + key + "\x00" + seat + "\x00" + strconv.Itoa(made[seat])))
		return Markers{Token: hex.EncodeToString(sum[:8])}
	}
}

// Append appends text to a prompt between the markers of its kind ("QUESTION", "ANSWER", "REVIEW"), under a name
// such as its label. The name may be empty. The text itself does not change.
func (m Markers) Append(prompt *strings.Builder, kind, name, text string) {
	m.line(prompt, "=== BEGIN ", kind, name)
	prompt.WriteString(text)
	prompt.WriteByte('\n')
	m.line(prompt, "=== END ", kind, name)
	prompt.WriteByte('\n')
}

// BlockBytes is the largest number of bytes that Append adds to a text if kind and name together have at most 40
// bytes. Callers use it to make room for all blocks of a prompt before they copy long texts.
const BlockBytes = 160

func (m Markers) line(prompt *strings.Builder, begin, kind, name string) {
	for _, part := range []string{begin, kind, " ", m.Token} {
		prompt.WriteString(part)
	}
	if name != "" {
		prompt.WriteString(": ")
		prompt.WriteString(name)
	}
	prompt.WriteString(" ===\n")
}
