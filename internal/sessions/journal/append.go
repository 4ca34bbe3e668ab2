package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/councild/councild/internal/council"
)

// These are error codes in the engine's answers.
const (
	codeNotLast    jetstream.ErrorCode = 10071 // the expected message is not the last one
	codeNotLast2   jetstream.ErrorCode = 10164 // the same as codeNotLast, from a replicated stream
	codeNotStored  jetstream.ErrorCode = 10077 // the description in the answer says why
	codeTooLarge   jetstream.ErrorCode = 10054
	codeNoPeers    jetstream.ErrorCode = 10005 // the description in the answer says why
	codeNoReplicas jetstream.ErrorCode = 10074 // replicas were asked for from a server without a cluster
	codeNoLeader   jetstream.ErrorCode = 10008
	codeNoServers  jetstream.ErrorCode = 10023 // no server can take a consumer
	codeExceeded   jetstream.ErrorCode = 10002 // a limit of the account is exceeded
	codeNoMemory   jetstream.ErrorCode = 10028 // the servers lack memory
	codeNoStorage  jetstream.ErrorCode = 10047 // the servers lack storage
)

// describedFull is the description in an answer with codeNotStored if the stream is full.
const describedFull = "maximum bytes exceeded"

// Moved is the error of an append if the last message of the log is not the one that the append expected.
type Moved struct {
	// Last is the last message of the log, or nil if the log is gone. If the message is damaged or has several parts,
	// its Entries are nil. If its last part is missing, its Count is 0, because none of its entries can be read.
	Last *Stored
}

// Error names the node that appended first, or says that the log is gone.
func (m *Moved) Error() string {
	if m.Last == nil {
		return "the log of the session is gone"
	}
	return fmt.Sprintf("node %s (epoch %d) appended to the log of the session", m.Last.Node, m.Last.Epoch)
}

// subject returns the subject for a session. kind is "session" for the log, or "delta" for text that is still being
// written. If the ID cannot be part of a subject, the error is ErrGone.
func (j *Journal) subject(kind string, id ID) (string, error) {
	owner := id.Owner
	if owner == "" {
		owner = noOwner
	}
	if !validToken.MatchString(owner) || !validToken.MatchString(id.Session) {
		return "", ErrGone
	}
	return j.o.Prefix + "." + kind + "." + owner + "." + id.Session, nil
}

// Append stores the message m in a log, and returns the sequence number of m. The argument after is the sequence number
// of the message that Append expects to be the last one of the log. It is 0 for a new log. A process must not append
// twice to the same log at the same time.
//
// If the append is refused or not answered, Append reads the last message of the log from the leader of the stream.
// There are four cases. (1) The last message is still the expected one: Append tries again, for a bounded time. (2) It
// is a part of an incomplete message whose first entry has the same number: Append stores m after that part. The engine
// then refuses the next part of the incomplete message. (3) It has the node, epoch and numbers of m: m was stored, and
// only the reply was lost. (4) Anything else: the error is a *Moved, and m was not stored.
//
// If the id cannot have a log, the error is ErrGone. Any error except ErrGone and *Moved is ErrUnavailable. m may then
// be stored. If that error is also ErrFull, m is not stored. The index has m before Append returns without an error.
func (j *Journal) Append(ctx context.Context, id ID, after uint64, m Message) (uint64, error) {
	subject, err := j.subject("session", id)
	if err != nil {
		return 0, err
	}
	begins := after == 0
	for _, p := range cut(m) {
		if after, err = j.put(ctx, subject, after, p); err != nil {
			return 0, err
		}
		p.seq = after
		p.at = j.Now().UTC()
		j.index.put(0, id, p)
		j.mu.Lock()
		j.bytes += int64(len(p.body))
		j.appended += int64(len(p.body))
		j.mu.Unlock()
	}
	// Clients get a reply after the first and after the last message of a log. Check before each reply that the
	// engine's files are still at their paths. Between the two, the periodic check is enough.
	if begins || m.Status != council.StatusRunning {
		if err := j.inPlace(); err != nil {
			j.failed(err)
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if m.Status != council.StatusRunning {
		j.ends.ended(id)
	}
	return after, nil
}

// refused decides whether an append that failed can be tried again. If the engine would refuse the part again, refused
// returns a final error. Otherwise it returns nil.
func (j *Journal) refused(failed error) error {
	reason := refusal(failed)
	if reason == "" {
		return nil
	}
	j.wake() // so that a check sees how full the stream is
	if full(failed) {
		failed = fmt.Errorf("%w: %w", ErrFull, failed)
	}
	return final{fmt.Errorf("%w: %s: %w", ErrUnavailable, reason, failed)}
}

// put stores one part of a message. The argument after is the sequence number of the part that put expects to be the
// last one of the log. It is 0 for a new log.
func (j *Journal) put(ctx context.Context, subject string, after uint64, p part) (seq uint64, err error) {
	timeout := j.maxWait
	if j.Cluster() {
		timeout = j.o.Waits.FirstTry
	}
	err = j.retry(ctx, j.writing, func(ctx context.Context, l *link) error {
		try, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var failed error
		if seq, failed = l.publish(try, subject, after, p); failed == nil {
			return nil
		}
		if errors.Is(failed, context.DeadlineExceeded) {
			j.beatNow()
		}
		if err := j.refused(failed); err != nil {
			return err
		}
		try, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		timeout *= 2
		last, err := l.last(try, subject)
		switch {
		case err != nil: // The request for the last message got no answer either.
			return errors.Join(failed, err)
		// The last message is still the expected one, so try again.
		case last == nil && after == 0, last != nil && last.seq == after:
			return failed
		case last == nil || last.gone():
			return final{&Moved{}}
		case last.sameAs(p.header):
			seq = last.seq
			return nil
		case p.Part == 1 && last.Part < last.Parts && last.First == p.First:
			after = last.seq // The last part belongs to an incomplete message, and holds no entry.
			return failed
		default:
			return final{&Moved{Last: last.stored()}}
		}
	})
	return seq, err
}

// refusal returns why an append would fail again, as a text for users. It returns "" if another try may succeed.
func refusal(err error) string {
	var api *jetstream.APIError
	switch {
	case !errors.As(err, &api):
		return ""
	case full(err):
		return "all the room for kept sessions is used"
	case api.ErrorCode == codeTooLarge:
		return "the stream takes only smaller messages"
	default:
		return ""
	}
}

// full reports whether the error says that the stream has no room.
func full(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeNotStored && api.Description == describedFull
}

// notLast reports whether the error says that the expected message is not the last one.
func notLast(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeNotLast || api.ErrorCode == codeNotLast2)
}

// publish sends a part to the engine once. If the error shows that the engine inside has failed, publish reports the
// failure to the Journal.
func (l *link) publish(ctx context.Context, subject string, after uint64, p part) (uint64, error) {
	msg, err := p.message(subject)
	if err != nil {
		return 0, err
	}
	try, cancel := l.within(ctx)
	defer cancel()
	ack, err := l.js.PublishMsg(try, msg, jetstream.WithExpectLastSequencePerSubject(after),
		jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, nil
	}
	if ctx.Err() == nil && !notLast(err) && refusal(err) == "" {
		l.failed(fmt.Errorf("storing a message: %w", err))
	}
	return 0, err
}

// last reads the last part of a subject from the stream's leader. It returns nil if the subject has no part.
func (l *link) last(ctx context.Context, subject string) (*part, error) {
	try, cancel := l.within(ctx)
	defer cancel()
	raw, err := l.log.GetLastMsgForSubject(try, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := parse(raw.Header, raw.Data, raw.Sequence, raw.Time)
	return &p, err
}

// stored returns the message to which a part belongs. Its Entries are set only if the message has a single part.
func (p part) stored() *Stored {
	s := &Stored{Message: Message{Head: p.Head, First: p.First}, Count: p.Count, Seq: p.seq, At: p.at}
	if p.Parts == 1 {
		s.Entries, _ = entries(p.body)
	}
	return s
}
