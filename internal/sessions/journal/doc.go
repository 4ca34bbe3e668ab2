// Package journal keeps the logs of sessions in NATS JetStream, which this package calls the engine. The engine runs
// inside this process, with its files in a directory ("the engine inside", or "inside"), or on a cluster. The code is
// the same for both. Callers decide which node owns a session, how a session is resumed and what clients see of a
// session.
//
// # Logs
//
// The log of a session is all messages of one subject of one stream, in the stream's order. A message holds one entry
// or more. A message of more than 512 KiB is stored in parts, and its entries are visible with the last part. Entries
// are numbered from 1 within their session, and these numbers identify the entries. The sequence numbers of the stream
// do not identify entries, because they can fall back after damage. The header of each message repeats what a list of
// sessions needs (Head), so that the last message of a log is enough to list the session. After the end of a session, a
// message without entries can change the header, such as the title of the session.
//
// Every append names the sequence number of the message that it expects to be the last of its log, so the order of the
// log decides who owns a session. If an append is refused or not answered, Append reads the last message from the
// stream's leader. Then either the message is stored once, or the caller learns which node appended first.
//
// If the last part of a message never came, its other parts hold no entries. The next message follows these parts and
// begins with the same entry number. Readers skip the parts. If a log has no whole message, reading it returns
// ErrGone.
//
// Remove replaces a log by a mark: a message without entries that makes the engine refuse late appends. The mark is
// needed because an append to a new log can arrive after its sender has given up, or arrive again after the log was
// deleted. The mark disappears by itself. Like an append, the mark names the sequence number of the message that it
// expects to be the last one. If another process has appended first, that process keeps the log. Purge, which is for
// logs that ended long ago, leaves no mark.
//
// # Index and nodes
//
// The index lists, in memory, all sessions that have a log. A JetStream consumer that receives only headers feeds the
// index. The consumer brings the last message of each log first, and then new messages. An append of this process is in
// its index before Append returns. A process that purges a log sends a plain NATS message to all processes, but this
// message can be lost. Therefore each process also compares its index with the subjects of the stream every 5 s, and
// drops the rows whose logs are gone. If the sequence of the stream has fallen back, the process builds its index
// again.
//
// Each node renews its lease by writing a key of its own. The other nodes watch this key. Each of them measures by its
// own clock how long the key has not changed. A node asks the stream's leader about each node that was silent for half
// a lease, because a watcher can miss or delay a change. A node renews its own lease also when a connection comes back,
// and when an append gets no answer. If the renewal gets no answer either, the node connects to another server, because
// its current server may be cut off from the others.
//
// # Faults
//
// The journal tries each operation for a bounded time: 10 s inside, and 10 s plus a lease on a cluster, which is longer
// than an election. After this time the operation fails with ErrUnavailable, and the text of the error gives the
// reason. After a full disk or a write error, the engine inside does not answer any more. The journal then closes the
// engine and opens it again, with growing pauses. Before the journal keeps sessions again, it writes a megabyte as a
// probe, because the engine opens on a full disk too. Until then appends fail at once, but logs can be read.
//
// The journal locks the directory before it opens the engine, because the engine takes no lock of its own. If the files
// of a stream exist but the engine does not find the stream, there are two possible causes: the encryption key is
// wrong, or the files with the settings of the stream are damaged. If a key is set, or if there are key files, Open
// fails and does not create the stream, because with a wrong key this would delete the encrypted messages. Otherwise
// Open sets the damaged settings aside and makes new ones, and the messages stay.
//
// # Decisions
//
// A node that gives a session up removes the log of the session only if no other node has appended to the log since
// then. journal.(*Journal).Remove puts a mark in place of the log, after the last message that the node saw. If another
// node has appended first, that node keeps the session. A client can send an idempotency key that belongs to a session
// of another node. The client gets that session only when the log says that the run of the session has begun.
package journal
