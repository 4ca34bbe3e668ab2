// Package stage2 has the reviewers rank each other's anonymised answers: it
// builds the review prompt for each reviewer's slate, makes the calls, and reads
// each reply into a ballot ([ParseBallot]). A reply that is no ballot is kept as
// what it is, with the reason.
//
// It leaves to others which order a slate has, what ballots add up to, and
// deadlines.
package stage2
