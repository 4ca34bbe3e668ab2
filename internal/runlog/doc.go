// Package runlog says what the log of one session means: whose the session is, how far its run has come, and what came of
// each call. A process that goes on with a session asks its [State], so that nothing is asked, paid for or shown twice.
//
// It leaves to others where a log is stored, who appends to it, and what a run does.
//
// # Decisions
//
// The log is the session. A session that is kept is an ordered list of entries in the journal, the events as they were
// shown, between hidden ones: session.accepted with the plan, session.claimed, call.landed, session.result,
// session.released. Nothing else has to agree with it. The order of the log decides who owns a session: every append
// names the message that it expects to be the last.
package runlog
