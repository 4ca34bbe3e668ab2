package council

import (
	"crypto/sha256"
	"encoding/hex"
)

// Right is something that a token may do.
type Right string

// The rights of a token.
const (
	MayAsk    Right = "ask"    // asks questions, and sees its own sessions
	MayReport Right = "report" // reads the bias report, the leaderboard and what sessions cost
	MayEvents Right = "events" // sends events of other councils
	MayAdmin  Right = "admin"  // sees what the sessions of all tokens cost
)

// TokenLabel names a token in audiences of councils and in what is said of costs: by its name, or else by the beginning of its hash.
func TokenLabel(name string, sum [sha256.Size]byte) string {
	if name != "" {
		return name
	}
	return hex.EncodeToString(sum[:4])
}
