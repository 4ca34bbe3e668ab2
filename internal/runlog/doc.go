// Package runlog reads the log of one session: which node owns the session, how far its run has come, and the outcome
// of each call. A process that resumes a session asks the [State] of the log, so that no call is made, paid for or
// shown twice. In this package, a node claims a session when it becomes the owner, and a call has landed when its
// outcome is in the log.
//
// Other packages store a log, append to it, and run the session.
//
// # Decisions
//
// The log is the only record of a kept session, so no other record can disagree with it. It is an ordered list of
// entries in the journal: the events that clients see, and hidden entries between them. The hidden entries are
// session.accepted with the plan, session.claimed, calls.begun, call.landed, session.result and session.released. The
// order of the log decides which node owns a session, because every append names the message that must be the last one
// in the log.
package runlog
