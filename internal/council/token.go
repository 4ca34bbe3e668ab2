package council

import (
	"crypto/sha256"
	"encoding/hex"
)

// Right allows the holder of a token to do something.
type Right string

// The rights of a token.
const (
	MayAsk    Right = "ask"    // to ask questions, and to see the sessions of this token
	MayReport Right = "report" // to read the bias report, the leaderboard and the costs of sessions
	MayEvents Right = "events" // to send events of other councils
	MayAdmin  Right = "admin"  // to see the costs of the sessions of all tokens
)

// TokenLabel returns the text that names a token in audiences of councils and in reports of costs. It is the name of
// the token. For a token without a name, it is the first 8 hexadecimal digits of its hash.
func TokenLabel(name string, sum [sha256.Size]byte) string {
	if name != "" {
		return name
	}
	return hex.EncodeToString(sum[:4])
}
