package journal

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// next returns the first part of a subject from the stream's leader. It ignores parts with a lower sequence number than
// the argument from. It returns nil if there is no other part.
func (l *link) next(
	ctx context.Context, stream jetstream.Stream, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	try, cancel := l.within(ctx)
	defer cancel()
	raw, err := stream.GetMsg(try, from, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return raw, err
}

// Last returns the last message of a session's log from the stream's leader, or nil if there is no log. If the message
// has several parts, its Entries are nil.
func (j *Journal) Last(ctx context.Context, id ID) (last *Stored, err error) {
	subject, err := j.subject("session", id)
	if err != nil {
		return nil, err
	}
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		p, err := l.last(ctx, subject)
		if p != nil && err == nil && !p.gone() {
			last = p.stored()
		}
		return err
	})
	return last, err
}

// Read returns the whole log of a session in order, from the stream's leader. If the log has lost a part, Read returns
// what can be read, and a *Damaged error. If the log has no whole message and is not damaged, the error is ErrGone.
func (j *Journal) Read(ctx context.Context, id ID) ([]Stored, error) {
	subject, err := j.subject("session", id)
	if err != nil {
		return nil, err
	}
	var log []Stored
	var damaged error
	r := reader{id: id, next: 1}
	for from := uint64(1); ; {
		m, seq, err := j.read(ctx, subject, &r, from)
		if d, ok := errors.AsType[*Damaged](err); ok {
			if damaged == nil {
				damaged = d
			}
		} else if err != nil {
			return log, err
		}
		if seq == 0 {
			break
		}
		if m != nil {
			log = append(log, *m)
		}
		from = seq + 1
	}
	if len(log) == 0 && damaged == nil {
		return nil, ErrGone
	}
	return log, damaged
}

// read reads one part of a log, and adds the part to r. It is the first part whose sequence number is not below the
// argument from. seq is 0 if there is no such part. m is nil if the part does not complete a message.
func (j *Journal) read(ctx context.Context, subject string, r *reader, from uint64) (m *Stored, seq uint64, err error) {
	var raw *jetstream.RawStreamMsg
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) (err error) {
		raw, err = l.next(ctx, l.log, subject, from)
		return err
	})
	if err != nil || raw == nil {
		return nil, 0, err
	}
	p, err := parse(raw.Header, raw.Data, raw.Sequence, raw.Time)
	if err != nil {
		return nil, raw.Sequence, &Damaged{ID: r.id, Entry: r.next, Seq: raw.Sequence, Reason: err.Error()}
	}
	if p.gone() {
		return nil, raw.Sequence, nil
	}
	whole, ok, damaged := r.add(p)
	if damaged != nil {
		err = damaged
	}
	if !ok {
		return nil, raw.Sequence, err
	}
	return &whole, raw.Sequence, err
}

// gone reports whether the stream's leader says that a subject has no log.
func (j *Journal) gone(ctx context.Context, subject string) (none bool) {
	err := j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		last, err := l.last(ctx, subject)
		none = last == nil || last.gone()
		return err
	})
	return err == nil && none
}

// Follow returns the messages of a log, but only the entries with numbers above the argument behind. It returns the
// stored messages first, and then new ones, until ctx or the Journal ends. If the log is gone or damaged, the sequence
// ends with the error ErrGone or a *Damaged. While the log cannot be read, Follow waits.
func (j *Journal) Follow(ctx context.Context, id ID, behind int) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		subject, err := j.subject("session", id)
		if err != nil {
			yield(Stored{}, err)
			return
		}
		r := reader{id: id, next: 1}
		for from := uint64(1); ctx.Err() == nil; {
			changed := j.index.changes(id)
			m, seq, err := j.read(ctx, subject, &r, from)
			switch {
			case errors.Is(err, ErrUnavailable):
				if !j.await(ctx, nil) {
					return
				}
				continue
			case err != nil:
				yield(Stored{}, err)
				return
			case seq == 0:
				// Without a row, the index is late or the log is gone.
				if changed == nil && j.gone(ctx, subject) {
					yield(Stored{}, ErrGone)
					return
				}
				if !j.await(ctx, changed) { // changed is nil while the index is late
					return
				}
				continue
			}
			from = seq + 1
			if m == nil || m.First+len(m.Entries) <= behind+1 {
				continue
			}
			if skip := behind + 1 - m.First; skip > 0 {
				m.First = behind + 1
				m.Count -= skip
				m.Entries = m.Entries[skip:]
			}
			if !yield(*m, nil) {
				return
			}
		}
	}
}

// await waits for a change or for Waits.Poll, whichever comes first. It returns false when the Journal has ended.
func (j *Journal) await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
	case <-j.done:
		return false
	case <-changed:
	case <-time.After(j.o.Waits.Poll):
	}
	return true
}
