package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// maxKey is the most bytes of an Idempotency-Key.
const maxKey = 255

// readKey sets start.Key from the header Idempotency-Key, and start.Digest to a hash of the path and the decoded
// request. Blanks and the order of fields do not change the digest, because it is made of the decoded request.
func readKey(r *http.Request, request any, start *sessions.Start) error {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return nil
	}
	start.Key = keys[0]
	invisible := func(c rune) bool { return c < ' ' || c > '~' }
	if len(keys) > 1 || start.Key == "" || len(start.Key) > maxKey || strings.ContainsFunc(start.Key, invisible) {
		return &council.Error{
			Code:   council.CodeInvalid,
			Detail: "the header Idempotency-Key is not valid",
			Fields: []council.FieldError{{
				Field: "Idempotency-Key", Message: "the key is not valid",
				Fix: fmt.Sprintf("send one key of 1 to %d printable ASCII characters, or leave the header out", maxKey),
			}},
		}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	start.Digest = sha256.Sum256(append([]byte(r.URL.Path+"\n"), body...))
	return nil
}

// checkDigest returns an error if another request began the session s with the same key.
func checkDigest(s *sessions.Session, start sessions.Start) error {
	if s.Digest == start.Digest {
		return nil
	}
	return keyTaken(s)
}

// keyTaken returns the error for a request whose key has begun the session s for another request.
func keyTaken(s *sessions.Session) error {
	return &council.Error{
		Code: council.CodeConflict, SessionID: s.ID,
		Detail: "the Idempotency-Key was given with another request before; send a new key with a new request",
	}
}
