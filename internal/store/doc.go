// Package store keeps BiasMetricRecords (ADR-018) in one append-only file of JSON
// lines, and reads them back.
//
// # Format
//
// Each line is one record, a JSON object of at most 64 KiB that ends in "\n". The
// records of a session are written together. Beside the file lies a lock file,
// the same name with ".lock" behind it; it stays when the store is closed and
// must not be deleted while one is open.
//
// # What survives a crash
//
// [Store.Append] returns nil only once the records were written and fsync
// succeeded, so they survive a crash of the process or the machine. What a crash
// interrupted was not acknowledged; it may be missing, whole, or cut somewhere
// in the middle. [Open] cuts an unterminated last line, and nothing else, before
// the first append, so a torn line never merges with a later record. Every other
// broken line stays where it is: readers skip it and say why.
//
// A failed write is rolled back. After a failed fsync, or a roll-back that
// failed, nobody knows what is on disk: the store then refuses every further
// append until it is opened anew.
//
// # What is trusted
//
// The file system keeps what fsync promised, for the file and its directory, and
// an exclusive flock excludes other processes. It need not write a batch as a
// whole, or in order.
//
// # What is left to others
//
// What the records mean is package bias's concern, whether and where they are
// kept is a matter of settings, and when a session's records are complete only
// the pipeline knows.
package store
