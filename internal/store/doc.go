// Package store keeps BiasMetricRecords (ADR-018) in append-only files of JSON
// lines, and reads them back.
//
// # Format
//
// Each line is one record, a JSON object of at most 64 KiB that ends in "\n". The
// records of a session are written together. Every one of them but the last ends in
// "\t\n": JSON allows the tab as space, and it says that the session goes on.
//
// Records are appended to the data file. When the data file is large enough it becomes a
// closed segment: it is renamed to its own name with ".000001" behind it, the next one
// to ".000002", and a new data file is begun. The records of a closed segment never
// change. The segment is compressed as zstd (RFC 8878) into a file of the same name with
// ".zst" behind it, and then the uncompressed file is removed. While both files exist
// they hold the same records, and readers take the compressed one. The store is its
// closed segments in the order of their numbers, then the data file.
//
// A compressed segment ends in a [SegmentSummary] of its records, in a frame that readers of
// zstd skip. A report need not read a segment whose summary lies outside its window.
//
// Two more files lie beside them. The lock file has the name of the data file with
// ".lock" behind it. It stays when the store is closed, and must not be deleted while a
// store is open. The temporary file, with ".tmp", exists while a segment is compressed.
//
// A symbolic link to the data file is resolved once, by [Open] and by every reader. No
// link is followed after that: a user who can put links beside the files could
// otherwise make the store write to any other file. A link that takes the place of the
// directory in the moment between the look and the opening can get new files of the
// store behind it; no session is acknowledged there while the link stands.
//
// # What survives a crash
//
// With [council.FsyncSession], [Store.Append] returns nil only after the records were written
// and fsync succeeded, so they survive a crash of the process or the machine. With the
// other modes it returns after they were written, so they survive a crash of the
// process. A session whose append was interrupted by a crash was not acknowledged: it
// may be missing, whole, or cut at any byte. Before the first append, [Open] cuts off a
// last session that has no end, and nothing else, so that it never merges with a later
// one. Readers pass over such a session even before that. Every other broken line stays
// in the file: readers skip it and say why.
//
// A file is synced before it is renamed, and its directory is synced before anything
// relies on the new name. So a crash while a segment is closed, compressed or deleted
// neither loses nor repeats a session. The summary is part of the compressed file: no
// crash can leave one without the other.
//
// # What survives a fault
//
// A write that fails is rolled back to the last whole session. After a failed fsync, or
// a failed roll-back, it is unknown what is on disk. The store then gives the file up:
// the part that is known to be on disk becomes a closed segment, and a new file is
// begun. In both cases the failed sessions wait in memory, at most 16 MiB of them, and
// are written again: after the next append that succeeds, and from time to time without
// one. Meanwhile [Store.Healthy] returns the cause. While a write or an fsync hangs, at
// most 16 MiB more wait for it, and [Store.Append] refuses any further session.
//
// A panic while records are written is handled as such a fault: the process and the
// other sessions go on.
//
// # What other programs may do
//
// Other programs may remove, rename, replace or cut the data file, or remove its
// directory or the lock file. Before each write, and once more before a session counts
// as kept, the store checks that its file and its lock are still the ones that other
// processes find by name. If they are not, it takes the lock again and begins a new data
// file. As long as it cannot do that, or a link is in the way, sessions wait as after
// any fault. A file that was taken away is no longer read. A file that grew while its
// lock was missing may hold the records of another daemon, so the store neither cuts it
// nor closes it as a segment.
//
// # What is trusted
//
// The store trusts the file system to keep what fsync promised, for a file and for its
// directory; never to keep a later change of a directory without an earlier one; and to
// exclude other processes by an exclusive flock. It does not rely on a batch being
// written as a whole, or in order.
//
// # What is left to others
//
// Package bias decides what the records mean and which of them a report needs. The
// settings decide whether and where records are kept. The pipeline knows when the
// records of a session are complete.
//
// # Decisions
//
// Records are durable before the answer says persisted. A session that comes alone has a write and an fsync to itself;
// what comes meanwhile shares the next, under a lock that a second process cannot take. A failed append never takes
// the answer from the caller: the session says persisted: false, its records wait in memory, and are written when the
// disk takes them again. A session waits up to 10 s for its records after everything else is done; the warning
// not_yet_written is no failure. A file whose fsync failed is never trusted again, and one that somebody took away is
// begun again: before and after each write the store looks whether its file is the one that commands read.
package store
