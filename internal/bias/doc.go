// Package bias looks for signs that something other than the quality of an answer moved the scores that reviewers
// gave.
//
// [Audit] computes the indicators of one session (ADR-015). A [Collector] takes the records of many sessions in one
// pass and computes the cross-session [Report] (ADR-018) over a window of sessions. A [Monitor] says whether the
// same biases have begun. It may be computed often, because this does not make false alarms more likely.
// [Consistency] measures how far reviewers agree with themselves when they review the same answers again (ADR-015,
// phase 2).
//
// Figures that treat the records of one session as independent are descriptive and are not tested, because these
// records share the question, the answers and the reviewers. The figures that are tested compare scores within each
// session, by least squares or by a graded-response model. Their errors come from the variation between questions.
//
// The package takes values and returns values. Its callers read the record store, the clock and the settings, and
// serve HTTP. Arithmetic that is not about councils is in package stat. No figure changes a vote.
//
// # Decisions
//
// One session cannot prove a bias. A flag is judged only if the session holds enough data. The length flag needs
// five scored answers. The position flag needs enough possible orders for a p of at most .05. Otherwise the flag is
// null. The risk is indeterminate if the position flag is null, or if the length flag is null and the position flag
// is not up.
package bias
