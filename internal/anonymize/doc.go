// Package anonymize hides the authors of the answers. It names the answers with labels,
// draws the order in which each reviewer sees them, and separates texts from
// instructions in prompts.
//
// Everything but NewMarkers is a pure function of its arguments. Random choices come
// from SHA-256 and ChaCha8, whose output is specified bit by bit, and are turned into
// orders by code of this package: the same seed and the same names give the same slates
// on every platform and with every release of Go.
//
// It leaves to others what a prompt says and how a ballot is read.
//
// # Decisions
//
// Own answers are hidden from their reviewers. An answer is a reviewer's own one where the model is, whatever the seat
// (council.Twins, fixed in the plan). That saves 1/N of the review tokens, and a self-vote that is dropped afterwards
// would still shift the others. LLM_COUNCIL_SELF_REVIEW_RATE shows them in a share of sessions, to measure self-
// preference; they are never counted.
//
// Orders are designs, not shuffles. With own answers hidden, every answer takes every place exactly once over the
// reviewers, and no ordered pair of neighbours occurs twice (odd N from 29 on: the places, not the pairs). Measuring
// position then needs several times fewer sessions, and position drops out of every answer's expected place.
//
// Every slate is labelled A, B, C in the order shown, so that label order is presentation order on each. The chairman
// reads the answers under numbers and each review as it was written, under a line that says which answer each letter
// was.
//
// Answers are data. They stand between markers with a token that is drawn for each prompt: of session, stage, reader
// and repair. No text in a prompt was written by somebody who knew its token.
package anonymize
