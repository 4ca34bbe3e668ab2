// Package store keeps BiasMetricRecords (ADR-018) in append-only files of JSON
// lines, and reads them back.
//
// # Format
//
// Each line is one record, a JSON object of at most 64 KiB that ends in "\n". The records of a session are written
// together. All of them except the last end in "\t\n". The tab says that more records of the session follow. JSON
// allows it as white space.
//
// Records are appended to the data file. When the data file is large enough, it becomes a closed segment. The first one
// is renamed to its own name with ".000001" appended, the second one gets ".000002", and so on. A new data file then
// begins. The records of a closed segment never change. The segment is compressed as zstd (RFC 8878) into a file of the
// same name with ".zst" appended, and then the uncompressed file is removed. While both files exist they hold the same
// records, and readers take the compressed one. The records of the store are the records of its closed segments, in the
// order of the segments' numbers, and then the records of the data file.
//
// A compressed segment ends in a [SegmentSummary] of its records, in a frame that zstd readers skip. A report does not
// read a segment if the summary says that all its records lie outside the time window of the report.
//
// Two more files are in the same directory. The lock file has the name of the data file with ".lock" appended. It
// stays when the store is closed, and must not be deleted while a store is open. The temporary file, with ".tmp"
// appended, exists while a segment is compressed.
//
// [Open] and every reader resolve a symbolic link to the data file once. After that they follow no link, because a user
// who can put links into the directory could make the store write to any other file. If a link replaces the directory
// just between a check and an open, the store may create new files in the directory to which the link leads. The store
// acknowledges no session while the link exists.
//
// # What survives a crash
//
// With [council.FsyncSession], [Store.Append] returns nil only after the records were written and fsync succeeded, so
// they survive a crash of the process or the machine. With the other modes, Append returns nil after the records were
// written. The records then survive a crash of the process. A session whose append was interrupted by a crash was not
// acknowledged: it may be missing, whole, or cut at any byte. Before the first append, [Open] cuts off a last session
// that has no end, so that its records never merge with a later session. Open cuts nothing else. Readers skip such a
// session even before Open has cut it off. Every other broken line stays in the file: readers skip it and say why.
//
// A file is synced before it is renamed, and its directory is synced before anything relies on the new name. So a
// crash while a segment is closed, compressed or deleted neither loses nor repeats a session. The summary is part
// of the compressed file, so a crash cannot leave one without the other.
//
// # What survives a fault
//
// A write that fails is rolled back to the last whole session. After a failed fsync or a failed roll-back, it is
// unknown what is on disk. The store then gives the file up: the part that is certainly on disk becomes a closed
// segment, and a new file begins. In both cases the failed sessions wait in memory, at most 16 MiB of them. They
// are written again after the next append that succeeds, and also from time to time. Meanwhile [Store.Healthy]
// returns the cause. While a write or an fsync hangs, at most 16 MiB more wait for it, and [Store.Append] refuses
// any further session.
//
// A panic while records are written is handled like such a fault. The process and the other sessions continue.
//
// # What other programs may do
//
// Other programs may remove, rename, replace or cut the data file, or remove its directory or the lock file. Before
// each write, and again before a session counts as kept, the store checks that other processes would find its file and
// its lock by their names. If not, it takes the lock again and begins a new data file. As long as it cannot do that, or
// a link is in the way, sessions wait as after any other fault. A file that was moved away is no longer read. The store
// neither cuts a file that grew while its lock was missing, nor makes it a segment, because the file may hold the
// records of another daemon.
//
// # What is trusted
//
// The store trusts the file system in three ways. What fsync has written of a file or a directory survives a crash. A
// later change of a directory never survives without the earlier changes. An exclusive flock excludes other processes.
// The store does not rely on a batch being written as a whole, or in order.
//
// # What is left to others
//
// Package bias decides what the records mean and which of them a report needs. The settings decide whether and
// where records are kept. The pipeline decides when the records of a session are complete.
//
// # Decisions
//
// Records are durable before the answer says persisted. A session that comes alone has a write and an fsync of its own.
// Sessions that come during a write share the next write and fsync. The lock keeps a second process from writing. If an
// append fails, the caller still gets the answer. The session then says persisted: false, and its records wait in
// memory until the disk accepts them. A session waits up to 10 s for its records after everything else is done. If they
// are not written by then, the session has the warning not_yet_written, which is not a failure. A file whose fsync
// failed is never trusted again. Before and after each write, the store checks that the councild commands would read
// its file. If another program took the file away, the store begins a new one.
package store
