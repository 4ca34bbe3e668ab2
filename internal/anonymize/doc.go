// Package anonymize hides the authors of the answers. It labels the answers, draws the order in which each reviewer
// sees them, and separates texts from instructions in prompts.
//
// Everything except NewMarkers is a pure function of its arguments. Random choices come from SHA-256 and ChaCha8,
// whose output is specified bit by bit. This package turns their output into orders with its own code, so the same
// seed and the same names give the same slates on every platform and with every release of Go.
//
// Its callers write the prompts and read the ballots.
//
// # Decisions
//
// A reviewer does not see its own answer. An answer is the reviewer's own if the same model wrote it, in whichever seat
// (council.Twins, fixed in the plan). With N answers, leaving out the own one saves 1/N of the review tokens. If the
// reviewer saw its own answer and only its score of that answer were dropped, the answer would still shift its other
// scores. LLM_COUNCIL_SELF_REVIEW_RATE sets the share of sessions in which reviewers do see their own answers, to
// measure self-preference. Scores and ranks of own answers are never counted.
//
// The balanced orders come from experimental designs and not from shuffles. If own answers are hidden, all authors
// review and no two have the same model, every answer is shown exactly once in every position, and no ordered pair of
// neighbours occurs twice. For odd N from 29 on, only the positions are balanced. With balanced orders, measuring the
// effect of position needs several times fewer sessions, and the position does not change the expected rank of an
// answer.
//
// Every slate is labelled A, B, C in the order shown, so the labels of a slate always follow its order. The
// chairman reads the answers under numbers, and each review as the reviewer wrote it. A line above the review says
// which answer each letter stands for.
//
// Answers are data. They stand between markers with a token that is drawn for each prompt: for each session, stage,
// reader and repair. No author of a text in a prompt knew the token of that prompt.
package anonymize
