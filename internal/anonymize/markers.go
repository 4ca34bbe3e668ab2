package anonymize

import (
	"crypto/rand"
	"encoding/hex"
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

// Block returns text between the markers of its kind ("QUESTION", "ANSWER",
// "REVIEW"), under a name such as its label; the name may be empty. The text
// itself is not changed. The block comes in parts, because texts may be long: a prompt
// joins the parts of all its blocks, and copies each text once.
func (m Markers) Block(kind, name, text string) []string {
	tag := kind + " " + m.Token
	if name != "" {
		tag += ": " + name
	}
	return []string{"=== BEGIN " + tag + " ===\n", text, "\n=== END " + tag + " ===\n\n"}
}
