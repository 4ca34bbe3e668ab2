package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Records are the bias records of a session.
type Records struct {
	Session string
	Lines   []byte
	Seq     uint64 // in the stream of records
}

// PublishRecords stores the records of a session on the cluster, once for ever: where
// they are there already, that is success. Errors are ErrUnavailable.
func (j *Journal) PublishRecords(ctx context.Context, session string, lines []byte) error {
	if !validToken.MatchString(session) {
		return fmt.Errorf("the id %q of a session cannot be a part of a subject", session)
	}
	return j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		try, cancel := l.within(ctx)
		defer cancel()
		_, err := l.js.Publish(try, j.o.Prefix+".records."+session, lines, jetstream.WithExpectLastSequencePerSubject(0))
		if notLast(err) {
			// A replicated stream also refuses while another publish is under way.
			var raw *jetstream.RawStreamMsg
			raw, err = l.next(ctx, l.records, j.o.Prefix+".records."+session, 1)
			if err == nil && raw == nil {
				err = errors.New("the records of the session are being stored")
			}
		}
		return err
	})
}

// FollowRecords returns the records of all sessions behind a sequence, 0 for all: those
// that are stored, then what comes, until ctx or the Journal ends. When the stream ends before that
// sequence (it was lost, or made anew), it begins at the first. While the records cannot
// be read, it waits.
func (j *Journal) FollowRecords(ctx context.Context, after uint64) iter.Seq[Records] {
	return func(yield func(Records) bool) {
		subject := j.o.Prefix + ".records.*"
		for ctx.Err() == nil {
			var raw *jetstream.RawStreamMsg
			_ = j.retry(ctx, j.reading, func(ctx context.Context, l *link) (err error) {
				if raw, err = l.next(ctx, l.records, subject, after+1); err != nil || raw != nil {
					return err
				}
				info, err := l.records.Info(ctx)
				if err == nil && info.State.LastSeq < after {
					after = 0
				}
				return err
			})
			if raw == nil {
				select {
				case <-ctx.Done():
				case <-j.done:
					return
				case <-time.After(poll):
				}
				continue
			}
			after = raw.Sequence
			if !yield(Records{Session: strings.TrimPrefix(raw.Subject, j.o.Prefix+".records."), Lines: raw.Data, Seq: raw.Sequence}) {
				return
			}
		}
	}
}
