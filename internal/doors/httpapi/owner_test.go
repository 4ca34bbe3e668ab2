package httpapi

import (
	"testing"

	"github.com/councild/councild/internal/sessions"
)

// The owner must not change between releases: kept sessions are found by it.
func TestOwner(t *testing.T) {
	for _, c := range []struct {
		token Token
		want  sessions.Owner
	}{
		{Token{Secret: "a-token-of-sixteen-and-more"}, "0c79e0dbfe2ebd2d"},
		{Token{Name: "ada", Secret: "a-token-of-sixteen-and-more"}, "fdee430d40bd57de"},
		{Token{Name: "ada", Secret: "another-token-of-sixteen"}, "fdee430d40bd57de"},
		{Token{Name: "ada", SHA256: new([32]byte{1})}, "fdee430d40bd57de"}, // of the roster
	} {
		if got := c.token.owner(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.token, got, c.want)
		}
	}
}
