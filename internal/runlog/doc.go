// Package runlog says what the log of one session means: whose the session is, how far its run has come, and what came of
// each call. A process that goes on with a session asks its [State], so that nothing is asked, paid for or shown twice.
//
// It leaves to others where a log is stored, who appends to it, and what a run does.
package runlog
