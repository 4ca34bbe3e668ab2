package council

// Right is something that a token may do.
type Right string

// The rights of a token.
const (
	MayAsk    Right = "ask"    // asks questions, and sees its own sessions
	MayReport Right = "report" // reads the bias report, the leaderboard and what sessions cost
	MayEvents Right = "events" // sends events of other councils
	MayAdmin  Right = "admin"  // sees what the sessions of all tokens cost
)
