package anonymize

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Markers fence off text that models are shown as data. Their token is known to
// no model before it reads the prompt, so a text cannot close its own block or
// open another.
type Markers struct {
	token string // 16 hex digits
}

// NewMarkers returns the markers of a session, derived from its id.
func NewMarkers(sessionID string) Markers {
	sum := sha256.Sum256([]byte("councild markers\x00" + sessionID))
	return Markers{token: hex.EncodeToString(sum[:8])}
}

// Write writes text between the markers of its kind ("QUESTION", "ANSWER",
// "REVIEW"), under a name such as its label; the name may be empty. The text
// itself is not changed.
func (m Markers) Write(b *strings.Builder, kind, name, text string) {
	tag := kind + " " + m.token
	if name != "" {
		tag += ": " + name
	}
	b.WriteString("=== BEGIN " + tag + " ===\n")
	b.WriteString(text)
	b.WriteString("\n=== END " + tag + " ===\n\n")
}
