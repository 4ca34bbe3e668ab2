package sessions

import "time"

// Waits are the times for which a Store waits. Tests of what happens after a wait have shorter ones.
type Waits struct {
	// Text is the longest time for which text on its way is shown before it is stored.
	Text time.Duration
	// Append is how long a session waits for a log that cannot be written. Then it tries once more, for LastTry, and goes on
	// without its log. The last try matters to a process that stood still: it tells the process whether another one has the
	// session.
	Append  time.Duration
	LastTry time.Duration
	// MaxPause is the longest pause between two attempts to append.
	MaxPause time.Duration
	// Claim is the pause before a session is tried again that could not be claimed at start.
	Claim time.Duration
	// Look is the pause between two looks for sessions that nobody runs.
	Look time.Duration
	// Lag is how much later than another node a node may show an entry.
	Lag time.Duration
	// Obey is how long the node that runs a session may take to obey a request to cancel it.
	Obey time.Duration
	// Margin is how long a session may take beyond its time limit and a lease. The session waits for its records then, and
	// its end is stored.
	Margin time.Duration
	// Pack is how long a session that ended, or is looked at again, stays as its run returned it. Clients that waited for
	// the end have read it by then.
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
