// Package stage2 asks the reviewers to rank each other's anonymised answers. It
// builds the review prompt for each reviewer's slate, makes the calls, and reads
// each reply into a ballot ([ParseBallot]). A reply without a ballot is kept, with the
// reason why it holds none.
//
// It leaves to others the order of a slate, what ballots add up to, and deadlines.
package stage2
