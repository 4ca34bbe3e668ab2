// Package stage2 asks the reviewers to rank each other's anonymised answers. It builds the review prompt for each
// reviewer's slate, makes the calls, and reads each reply into a ballot ([ParseBallot]). A reply without a ballot is
// kept, with the reason why it has none. [Compare] asks the reviewers after a session to compare two texts.
//
// Its callers draw the order of each slate, count the ballots, and set deadlines.
package stage2
