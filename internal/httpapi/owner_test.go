package httpapi

import (
	"testing"

	"github.com/councild/councild/internal/sessions"
)

// The owner must not change between releases: kept sessions are found by it.
func TestOwner(t *testing.T) {
	for token, want := range map[Token]sessions.Owner{
		{Secret: "a-token-of-sixteen-and-more"}:              "0c79e0dbfe2ebd2d",
		{Name: "ada", Secret: "a-token-of-sixteen-and-more"}: "fdee430d40bd57de",
		{Name: "ada", Secret: "another-token-of-sixteen"}:    "fdee430d40bd57de",
	} {
		if got := token.owner(); got != want {
			t.Errorf("%+v: %s, want %s", token, got, want)
		}
	}
}
