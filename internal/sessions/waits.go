package sessions

import "time"

// Waits are the times that a Store waits. Tests that need the moment after a wait set shorter ones.
type Waits struct {
	// Text is how long a text may be shown before the part that is written so far is stored.
	Text time.Duration
	// Append is how long a session waits for a log that cannot be written. The session then tries once more, for at
	// most LastTry. If that fails, it continues without its log. The last try shows whether another process owns the
	// session now, because this process may have been suspended during the wait.
	Append  time.Duration
	LastTry time.Duration
	// MaxPause is the longest pause between two attempts to append.
	MaxPause time.Duration
	// Claim is the pause between two tries to claim a session that could not be claimed at the start.
	Claim time.Duration
	// Look is the pause between two looks for sessions without a run.
	Look time.Duration
	// Lag is how much later than the other nodes this node may show an entry.
	Lag time.Duration
	// Obey is how long a node may take to obey a request to cancel a session that it runs.
	Obey time.Duration
	// Margin is how long a session may take beyond its time limit and a lease. In this time the session waits for
	// findings that its bias records need (council.SidePlan.Records), and its end is stored.
	Margin time.Duration
	// Pack is how long the decoded form of an ended session is kept after the end, and after each use. Clients that
	// waited for the end have read it by then.
	Pack time.Duration
}

// DefaultWaits returns the waits of a daemon.
func DefaultWaits() Waits {
	return Waits{
		Text:     5 * time.Second,
		Append:   15 * time.Second,
		LastTry:  5 * time.Second,
		MaxPause: 5 * time.Second,
		Claim:    5 * time.Second,
		Look:     time.Second,
		Lag:      5 * time.Second,
		Obey:     time.Second,
		Margin:   20 * time.Second,
		Pack:     time.Second,
	}
}
