// Package bias looks for signs that something other than the quality of an answer moved
// the scores that reviewers gave.
//
// [Audit] computes the indicators of one session (ADR-015). A [Collector] takes
// the records of many sessions in one pass and computes the cross-session
// [Report] (ADR-018) over a rolling window. Records of one session share its
// question, its answers and its reviewers, so the figures that treat them as
// independent only describe. Biases are estimated within sessions, by least
// squares with what sessions, answers and reviewers differ in absorbed, and tested
// between sessions. A [Monitor] says of the same biases whether they have begun, however
// often one looks. [Consistency] measures how far reviewers agree with
// themselves when they review the same answers again (ADR-015, phase 2).
//
// The package works on values alone. Reading the record store, the clock, settings and
// HTTP are left to others, and so is arithmetic that is not about councils (package
// stat). No figure changes a vote.
//
// # Decisions
//
// One session cannot prove a bias. Flags are judged only where the session can carry them: the length flag from five
// scored answers on, the position flag where so many orders could have been drawn that one of them would be
// surprising. Elsewhere they are null and the risk is indeterminate.
package bias
