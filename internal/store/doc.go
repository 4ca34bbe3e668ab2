// Package store keeps BiasMetricRecords (ADR-018) in append-only files of JSON
// lines, and reads them back.
//
// # Format
//
// Each line is one record, a JSON object of at most 64 KiB that ends in "\n". The
// records of a session are written together; every one of them but the last ends
// in "\t\n", which is space to a reader of JSON and says that the session goes on.
//
// Records are appended to the data file. When it is large enough it becomes a
// closed segment: it is renamed to its own name with ".000001" behind it, the next
// one ".000002", and a new data file is begun. Closed segments never change. They
// are compressed as zstd (RFC 8878) into a file of the same name with ".zst"
// behind it, and then the uncompressed one is removed; where both are there, they
// hold the same, and the compressed one counts. The store is its closed segments
// in the order of their numbers, then the data file.
//
// Beside them lie a lock file, the name of the data file with ".lock" behind it,
// which stays when the store is closed and must not be deleted while one is open,
// and, for a moment, one with ".tmp".
//
// A symbolic link to the data file is resolved once, by [Open] and by every reader. No
// link is followed after that: whoever may put one beside the files could otherwise
// have the store write to any other file.
//
// # What survives a crash
//
// With [council.FsyncSession], [Store.Append] returns nil only once the records were
// written and fsync succeeded, so they survive a crash of the process or the
// machine. With the other modes it returns once they were written, so they survive
// a crash of the process. What a crash interrupted was not acknowledged; it may be
// missing, whole, or cut somewhere in the middle. [Open] cuts a session that has
// no end, and nothing else, before the first append, so that it never merges with
// a later one; readers pass it over even before. Every other broken line stays
// where it is: readers skip it and say why.
//
// A file is synced before it is renamed, and its directory before anything relies
// on a name in it. So a crash while a segment is closed, compressed or deleted
// neither loses nor repeats a session.
//
// # What survives a fault
//
// A write that fails is rolled back to the last whole session. After a failed
// fsync, or a roll-back that failed, nobody knows what is on disk: the file is
// given up, what it held for certain becomes a closed segment, and a new file is
// begun. Either way the sessions that failed wait in memory, at most 16 MiB of
// them, and are written again: at once after an append that succeeds, and from
// time to time without one. [Store.Healthy] says so meanwhile. While a write or an
// fsync hangs, at most 16 MiB more wait for it, and [Store.Append] refuses the rest.
//
// A panic while records are written is such a fault: the process and the other
// sessions go on.
//
// # What others may do
//
// Somebody may remove, rename, replace or cut the data file, or remove its directory
// or the lock file. Before each write and once more before a session counts as kept,
// the store looks whether its file and its lock stand where other processes look for
// them. If not, it takes the lock again and begins the data file again; while it
// cannot, or where a link has come that it does not follow, sessions wait as after
// any fault. What was taken away is not read any more. A file that grew while its
// lock was gone may be another daemon's work, and is neither cut nor sealed.
//
// # What is trusted
//
// The file system keeps what fsync promised, for the file and its directory, never
// keeps a later change of a directory without an earlier one, and an exclusive
// flock excludes other processes. It need not write a batch as a whole, or in
// order.
//
// # What is left to others
//
// What the records mean is package bias's concern, whether and where they are
// kept is a matter of settings, and when a session's records are complete only
// the pipeline knows.
package store
