package anonymize

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Markers fence off text that models are shown as data. Each prompt has markers of
// its own: whoever knows the token can write the end of a block, and whoever has
// read an earlier prompt knows the token of that one.
type Markers struct {
	Token string // 16 hex digits
}

// NewMarkers draws the markers of one prompt. They depend on nothing that anybody
// could know beforehand, such as the session's id or seed.
func NewMarkers() Markers {
	var token [8]byte
	_, _ = rand.Read(token[:]) // it never fails
	return Markers{Token: hex.EncodeToString(token[:])}
}

// Write writes text between the markers of its kind ("QUESTION", "ANSWER",
// "REVIEW"), under a name such as its label; the name may be empty. The text
// itself is not changed.
func (m Markers) Write(b *strings.Builder, kind, name, text string) {
	tag := kind + " " + m.Token
	if name != "" {
		tag += ": " + name
	}
	b.WriteString("=== BEGIN " + tag + " ===\n")
	b.WriteString(text)
	b.WriteString("\n=== END " + tag + " ===\n\n")
}
