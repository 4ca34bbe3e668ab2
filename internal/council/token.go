package council

import (
	"crypto/sha256"
	"encoding/hex"
)

// Right allows the holder of a token to do something.
type Right string

// The rights of a token.
const (
	MayAsk    Right = "ask"    // to ask questions, and to see the own sessions
	MayReport Right = "report" // to read the bias report, the leaderboard and the costs of sessions
	MayEvents Right = "events" // to send events of other councils
	MayAdmin  Right = "admin"  // to see the costs of the sessions of all tokens
)

// TokenLabel returns the text that names a token in audiences of councils and in reports of costs. It is the name of
// the token. If it has none, it is the beginning of its hash, 8 hexadecimal digits.
func TokenLabel(name string, sum [sha256.Size]byte) string {
	if name != "" {
		return name
	}
	return hex.EncodeToString(sum[:4])
}
