package anonymize

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Markers stand around text that models are shown as data. Each prompt has markers of
// its own: an author that knows the token can write the end of a block, and every reader
// of a prompt knows its token.
type Markers struct {
	Token string // 16 hex digits
}

// NewMarkers draws the markers of one prompt. They do not depend on anything that could
// be known before, such as the session's id or seed.
func NewMarkers() Markers {
	var token [8]byte
	_, _ = rand.Read(token[:]) // it never fails
	return Markers{Token: hex.EncodeToString(token[:])}
}

// Append appends text to a prompt between the markers of its kind ("QUESTION", "ANSWER",
// "REVIEW"), under a name such as its label; the name may be empty. The text itself is
// not changed.
func (m Markers) Append(prompt *strings.Builder, kind, name, text string) {
	m.line(prompt, "=== BEGIN ", kind, name)
	prompt.WriteString(text)
	prompt.WriteByte('\n')
	m.line(prompt, "=== END ", kind, name)
	prompt.WriteByte('\n')
}

// BlockBytes is how many bytes Append adds to a text at most, where kind and name have 40
// bytes: a prompt makes room for all of its blocks before it copies long texts.
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
