package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Records are the bias records of a session.
type Records struct {
	Session string
	Lines   []byte
	Place   RecordsPlace
	// Earlier says that the records were stored before FollowRecords began. If FollowRecords had to begin again at the
	// start of the stream, Earlier says that the records were stored before that.
	Earlier bool
}

// RecordsPlace is a place in a stream of records. The zero value is the place before all records of any stream.
type RecordsPlace struct {
	Stream time.Time `json:"stream"` // when the stream was made
	// Seq is the sequence of the last message before the place.
	Seq uint64 `json:"seq"`
}

// Cluster reports whether logs are kept on a cluster. Only a cluster has records.
func (j *Journal) Cluster() bool { return j.o.URL != "" }

// PublishRecords stores the records of a session on the cluster, only once. If they are already stored, PublishRecords
// succeeds, and added is false. If they are too large for the servers, the error matches nats.ErrMaxPayload. Other
// errors are ErrUnavailable.
func (j *Journal) PublishRecords(ctx context.Context, session string, lines []byte) (added bool, err error) {
	if !validToken.MatchString(session) {
		return false, fmt.Errorf("the id %q of a session cannot be a part of a subject", session)
	}
	subject := j.o.Prefix + ".records." + session
	unanswered := false
	timeout := j.o.Waits.FirstTry
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		try, cancel := l.within(ctx)
		defer cancel()
		try, stop := context.WithTimeout(try, timeout)
		defer stop()
		timeout *= 2
		_, err := l.js.Publish(try, subject, lines, jetstream.WithExpectLastSequencePerSubject(0))
		switch {
		case err == nil:
			added = true
		case errors.Is(err, nats.ErrMaxPayload):
			return final{fmt.Errorf("%d bytes of records are more than the servers take in a message: %w",
				len(lines), err)}
		case notLast(err):
			// A replicated stream also refuses while another publish is under way.
			var raw *jetstream.RawStreamMsg
			raw, err = l.next(ctx, l.records, subject, 1)
			if err == nil && raw == nil {
				err = errors.New("the records of the session are being stored")
			}
			added = unanswered
		default:
			unanswered = true
		}
		return err
	})
	return added && err == nil, err
}

// FollowRecords returns the records after a place in the stream, for all sessions. It returns the stored records first,
// and then new ones, until ctx or the Journal ends. If the old stream was lost or replaced, FollowRecords begins with
// the first records of the new stream. This is the case if the place belongs to another stream, or is after the end of
// this one. While the records cannot be read, FollowRecords waits.
func (j *Journal) FollowRecords(ctx context.Context, after RecordsPlace) iter.Seq[Records] {
	return func(yield func(Records) bool) {
		subject := j.o.Prefix + ".records."
		// checked is when the argument after was last found to be a place in this stream. end is the sequence of the
		// last message that the stream had when FollowRecords began, or began again.
		var checked time.Time
		var end uint64
		for ctx.Err() == nil {
			var raw *jetstream.RawStreamMsg
			err := j.retry(ctx, j.reading, func(ctx context.Context, l *link) (err error) {
				if time.Since(checked) > j.o.Waits.Poll {
					last, err := l.sameRecords(ctx, &after, &end, checked.IsZero())
					if err != nil {
						return err
					}
					checked = time.Now()
					j.behind(last - after.Seq)
				}
				raw, err = l.next(ctx, l.records, subject+"*", after.Seq+1)
				if err == nil && raw == nil {
					j.behind(0) // The stream holds no message after the place.
				}
				return err
			})
			if err != nil || raw == nil {
				select {
				case <-ctx.Done():
				case <-j.done:
					return
				case <-time.After(j.o.Waits.Poll):
				}
				continue
			}
			after.Seq = raw.Sequence
			r := Records{Session: strings.TrimPrefix(raw.Subject, subject), Lines: raw.Data, Place: after, Earlier: raw.Sequence <= end}
			if !yield(r) {
				return
			}
		}
	}
}

// behind notes how many messages FollowRecords has not yet returned.
func (j *Journal) behind(n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recordsLag = n
}

// sameRecords checks that a place is in the stream of records. If it is not, sameRecords moves the place to the
// beginning of the stream. last is the sequence number of the last message of the stream. If the place was moved, or if
// this is the first check, sameRecords also stores that sequence number in end.
func (l *link) sameRecords(ctx context.Context, place *RecordsPlace, end *uint64, first bool) (last uint64, err error) {
	try, cancel := l.within(ctx)
	defer cancel()
	info, err := l.records.Info(try)
	if err != nil {
		return 0, err
	}
	same := info.Created.Equal(place.Stream) && place.Seq <= info.State.LastSeq
	if !same {
		*place = RecordsPlace{Stream: info.Created}
	}
	if !same || first {
		*end = info.State.LastSeq
	}
	return info.State.LastSeq, nil
}
