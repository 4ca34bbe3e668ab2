// Package consent makes of the records of a session the event that may leave the machine (ADR-018), and takes in the
// events of other councils. An event holds numbers and words of closed lists, and no text of any kind.
//
// What it leaves to others: package daemon opens what is needed and says when a session has ended, httpapi has the
// routes, and package store keeps lines on disk.
//
// # The levels of consent
//
// Levels 0 and 1 send nothing. Level 2 sends the rankings of a session, the day and the category; level 3 also the
// indicators of bias and what the caller said of the question; level 4 also the session's own id, its time and the keyed
// hash of the question. docs/events.md has every field.
package consent
