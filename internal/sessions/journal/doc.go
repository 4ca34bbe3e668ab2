// Package journal keeps the logs of sessions in NATS JetStream, which this package calls the engine. The engine runs
// inside this process, with its files in a directory ("the engine inside", or "inside"), or on a cluster. The code is
// the same for both. Callers decide which node owns a session, how a session is resumed and what clients see of a
// session.
//
// # Logs
//
// The log of a session is all messages of one subject of one stream, in the stream's order. A message holds one entry
// or more. A message of more than 512 KiB is stored in parts, and its entries are visible with the last part. Entries
// are numbered from 1 within their session. These numbers identify the entries. The sequence numbers of the stream do
// not, because they can fall back after damage. The header of each message repeats what a list of sessions needs
// (Head), so that the last message of a log is enough to list the session.
//
// Every append names the sequence number of the message that it expects to be the last of its log, so the order of the
// log decides who owns a session. If an append is refused or not answered, Append reads the last message from the
// stream's leader. Then either the message is stored once, or the caller learns which node appended first.
//
// If the last part of a message never came, its other parts hold no entries. The next message follows these parts and
// begins with the same entry number. Readers skip the parts. If a log has no whole message, reading it returns
// ErrGone.
//
// An append to a new log can arrive after its sender has given up, or arrive again after the log was deleted. Remove
// therefore replaces the log by a mark: a message without entries that makes the engine refuse late appends. The mark
// disappears by itself. Like an append, the mark names the sequence number that it expects to be the last. If another
// process has appended first, that process keeps the log. Purge, which is for logs that ended long ago, leaves no
// mark.
//
// # Index and nodes
//
// The index lists, in memory, all sessions that have a log. A JetStream consumer that receives only headers feeds the
// index. It brings the last message of each log first, and then new messages. An append of this process is in its
// index before Append returns. After a purge, a plain NATS message tells all processes, but it can be lost. Therefore
// each process also compares its index with the subjects of the stream every 5 s, and drops the rows whose logs are
// gone. When the sequence of the stream has fallen back, the index is built again.
//
// Each node renews its lease by writing a key of its own. The other nodes watch this key, and measure by their own
// clocks how long it does not change. A watcher can miss or delay a change, so a node asks the stream's leader about
// each node that was silent for half a lease. A node renews its own lease also when a connection comes back, and when
// an append gets no answer. If the renewal gets no answer either, the node connects to another server, because its
// current server may be cut off from the others.
//
// # Faults
//
// Operations are tried for a bounded time: 10 s inside, and 10 s plus a lease on a cluster, which is longer than an
// election. Then they fail with ErrUnavailable, and the error gives the reason in words. After a full disk or a write
// error, the engine inside does not answer any more. The journal then closes the engine and opens it again, with
// growing pauses. The engine opens on a full disk too, so the journal writes a megabyte as a probe before it keeps
// sessions again. Until then appends fail at once, and logs can be read.
//
// The engine takes no lock of its own, so the journal locks the directory before it opens the engine. If the files of
// a stream exist but the engine does not find the stream, then the encryption key is wrong or the files with the
// settings of the stream are damaged. With a wrong key, creating the stream would delete the encrypted messages. So if
// a key is set, or if there are key files, Open fails and creates nothing. Otherwise Open sets the damaged settings
// aside and makes new ones, and the messages stay.
//
// # Decisions
//
// A node that gives a session up removes its log only if no other node has appended since. journal.(*Journal).Remove
// puts a mark in place of the log, after the last message that the node saw. If another node has appended first, that
// node keeps the session. A client whose idempotency key belongs to a session of another node gets that session only
// when its log says that its run has begun.
package journal
