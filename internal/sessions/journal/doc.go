// Package journal keeps the logs of sessions in NATS JetStream: in an engine inside this
// process, whose files lie in a directory, or on a cluster. The code is the same for
// both. Who owns a session, how one is resumed and what clients see of it is left to
// others.
//
// # Logs
//
// The log of a session is all messages of one subject of one stream, in the stream's
// order. A message holds one entry or more; a message larger than 512 KiB is stored in
// parts, and its entries are visible with the last part. Entries are numbered from 1
// within their session. These numbers identify them, and never the stream's sequence,
// which can fall back after damage. Each message repeats in its header what a list of
// sessions needs (Head), so that the last message of a log is enough to list it.
//
// Every append names the sequence of the message that it expects to be the last of its
// log, so the order of the log decides who owns a session. A refused or unanswered
// append is decided by reading the last message from the stream's leader, as Append
// says: it is either stored once, or the caller is told who came first.
//
// Parts whose last one never came hold no entries: the next message goes behind them and
// begins with the same entry number, and readers pass them over. A log without a whole
// message is ErrGone.
//
// An append to a new log can arrive after its sender has given it up, or arrive again after the log
// was deleted. Remove therefore puts a mark in place of the log, with the sequence that it expects
// to be the last: another process that appended first keeps the log. The mark refuses late appends,
// holds no entry, and disappears by itself. Purge, for logs that ended long ago, leaves none.
//
// # Index and nodes
//
// One consumer of headers feeds the index in memory: the last message of each log
// first, then what comes. An append of this process is in its index before Append
// returns. A purge is told to all processes by a plain message, which can be lost:
// therefore each process also compares its index with the subjects of the stream every
// 5 s, and drops what is not there any more. When the stream's sequence has fallen
// back, the index is built again.
//
// A node counts the silence of others by its own clock. It watches their keys, and asks
// the stream's leader about one that was silent for half a lease, because a watcher can
// miss or delay what it watches. It renews its own lease also when a connection is there
// again, and when an append is not answered. Where a renewal is not answered either, it
// goes to another server: its own may be cut off from the others.
//
// # Faults
//
// Operations are tried for a bounded time: 10 s inside, a lease and 10 s with a cluster,
// which is longer than an election. What fails then is ErrUnavailable, with a reason for
// people. The engine inside answers nothing any more after a full disk or a write error.
// It is then closed and opened again, with growing pauses. It opens on a full disk too,
// so a probe of a megabyte decides when sessions are kept again: until then appends fail
// at once, and what is stored can be read.
//
// The engine takes no lock of its own, so the directory is locked before it is opened.
// Where files of a stream are there and the engine does not find the stream, the key is
// wrong or the files with its settings are damaged. Creating a stream would delete what
// another key encrypted: so with a key, or with files of one, Open fails and creates
// nothing. Without, the damaged settings are set aside and made anew, and the messages
// stay.
//
// # Decisions
//
// A node removes a session that it gave up only as it left it. journal.(*Journal).Remove puts a mark in place of the
// log, behind the message that it saw to be the last, so another node that was faster keeps the session. A session of
// another node is acknowledged only when its log says that its run has begun.
package journal
