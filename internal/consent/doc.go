// Package consent makes events from the records of sessions, and accepts the events of other councils. An event may
// leave the machine (ADR-018). It holds numbers and words of closed lists, and no text of any kind.
//
// The package also sends webhooks (webhook.go). Their receiver is an application of the operator.
//
// Package daemon opens what is needed and reports each session that has ended. Package httpapi has the routes, and
// package store keeps the lines on disk.
//
// # The levels of consent
//
// Levels 0 and 1 send nothing. Level 2 sends the rankings of a session, the day and the category. Level 3 also
// sends the indicators of bias, and what the caller said about the question. Level 4 also sends the session's own
// id, its time and the keyed hash of the question. docs/events.md lists every field.
package consent
