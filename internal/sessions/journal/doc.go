// Package journal keeps the logs of sessions in NATS JetStream. The engine is NATS JetStream. It runs inside this
// process, with its files in a directory ("the engine inside", or "inside"), or on a cluster. The code is the same for
// both. Callers decide which node owns a session, how a session is resumed and what clients see of it.
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
// stream's leader. Then either the message is stored once, or the caller learns which node was faster.
//
// If the last part of a message never came, its other parts hold no entries. The next message follows these parts and
// begins with the same entry number. Readers skip the parts. A log without a whole message is ErrGone.
//
// An append to a new log can arrive after its sender has given it up, or arrive again after the log was deleted. Remove
// therefore puts a mark in place of the log, and names the sequence number that it expects to be the last. If another
// process has appended first, that process keeps the log. The mark refuses late appends, holds no entry, and disappears
// by itself. Purge, which is for logs that ended long ago, leaves no mark.
//
// # Index and nodes
//
// One consumer of headers feeds the index in memory. It brings the last message of each log first, and then new
// messages. An append of this process is in its index before Append returns. A plain message tells all processes of
// a purge, and can be lost. Therefore each process also compares its index with the subjects of the stream every 5
// s, and drops the rows whose logs are gone. When the stream's sequence has fallen back, the index is built again.
//
// A node measures by its own clock how long the others are silent. It watches their keys. A watcher can miss or delay a
// change, so the node asks the stream's leader about each node that was silent for half a lease. It renews its own
// lease also when a connection comes back, and when an append gets no answer. If the renewal gets no answer either, the
// node connects to another server, because its current server may be cut off from the others.
//
// # Faults
//
// Operations are tried for a bounded time: 10 s inside, a lease and 10 s with a cluster, which is longer than an
// election. Then they fail with ErrUnavailable, and the error gives the reason in words. After a full disk or a write
// error, the engine inside does not answer any more. The journal then closes the engine and opens it again, with
// growing pauses. The engine opens on a full disk too, so the journal writes a megabyte as a probe before it keeps
// sessions again. Until then appends fail at once, and logs can be read.
//
// The engine takes no lock of its own, so the journal locks the directory before it opens the engine. If the files of a
// stream exist but the engine does not find the stream, then the key is wrong or the files with its settings are
// damaged. With a wrong key, creating the stream would delete the encrypted messages. So if there is a key, or the
// files of one, Open fails and creates nothing. Otherwise Open sets the damaged settings aside and makes new ones, and
// the messages stay.
//
// # Decisions
//
// A node that gives a session up removes its log only if no other node has appended since. journal.(*Journal).Remove
// puts a mark in place of the log, behind the last message that the node saw, so another node that was faster keeps the
// session. A session of another node is acknowledged only when its log says that its run has begun.
package journal
