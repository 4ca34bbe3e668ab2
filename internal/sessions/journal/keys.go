package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Reservation says to which session an idempotency key belongs.
type Reservation struct {
	Session string
	// Digest identifies the request that came with the key.
	Digest [32]byte
	// Revision is the revision of the reservation, for TakeOver. It is not stored.
	Revision uint64
}

// reservation is the stored form of a Reservation.
type reservation struct {
	Session string `json:"session"`
	Digest  []byte `json:"digest"`
}

// Reserve gives a key to the session in v if no session has the key. The argument key is a hash of the owner and the
// owner's key. held is the reservation that has the key afterwards. mine is true if that reservation is for the session
// in v. If several calls with different sessions compete, mine is true for one of them. Errors are ErrUnavailable.
func (j *Journal) Reserve(ctx context.Context, key string, v Reservation) (held Reservation, mine bool, err error) {
	return j.swap(ctx, key, v, 0)
}

// TakeOver gives a key to the session in v if the key still has the reservation held. There are two uses: the log of
// the session in held never appeared, or a node reserves the key of its own session once more. The results are those of
// Reserve.
func (j *Journal) TakeOver(
	ctx context.Context, key string, held, v Reservation,
) (now Reservation, mine bool, err error) {
	return j.swap(ctx, key, v, held.Revision)
}

// swap stores a reservation if the current one has the given revision. With revision 0, the key must be free.
func (j *Journal) swap(
	ctx context.Context, key string, v Reservation, revision uint64,
) (held Reservation, mine bool, err error) {
	value, err := json.Marshal(reservation{Session: v.Session, Digest: v.Digest[:]})
	if err != nil {
		return held, false, err
	}
	err = j.retry(ctx, j.writing, func(ctx context.Context, l *link) error {
		try, cancel := l.within(ctx)
		defer cancel()
		var failed error
		if revision == 0 {
			v.Revision, failed = l.keys.Create(try, key, value)
		} else {
			v.Revision, failed = l.keys.Update(try, key, value, revision)
		}
		if failed == nil {
			held = v
			mine = true
			return nil
		}
		if refusal(failed) != "" || errors.Is(failed, jetstream.ErrInvalidKey) {
			return final{fmt.Errorf("%w: reserving a key: %w", ErrUnavailable, failed)}
		}
		now, err := l.held(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			revision = 0
			return failed
		case err != nil: // The request for the reservation got no answer either.
			if ctx.Err() == nil {
				l.failed(fmt.Errorf("reserving a key: %w", failed))
			}
			return errors.Join(failed, err)
		// The reservation is still the expected one, so try again.
		case now.Session != v.Session && now.Revision == revision:
			return failed
		}
		held = now
		mine = now.Session == v.Session
		return nil
	})
	return held, mine, err
}

// Holds reports whether a session has a key. Errors are ErrUnavailable.
func (j *Journal) Holds(ctx context.Context, key, session string) (holds bool, err error) {
	err = j.retry(ctx, j.reading, func(ctx context.Context, l *link) error {
		held, err := l.held(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		holds = held.Session == session
		return err
	})
	return holds, err
}

// held asks the stream's leader for the reservation of a key.
func (l *link) held(ctx context.Context, key string) (v Reservation, err error) {
	try, cancel := l.within(ctx)
	defer cancel()
	entry, err := l.keys.Get(try, key)
	if err != nil {
		return v, err
	}
	var stored reservation
	if err := json.Unmarshal(entry.Value(), &stored); err != nil {
		return v, fmt.Errorf("reading a reservation: %w", err)
	}
	v.Session = stored.Session
	v.Revision = entry.Revision()
	copy(v.Digest[:], stored.Digest)
	return v, nil
}

// Release frees a key if the session has it. Otherwise it does nothing.
func (j *Journal) Release(ctx context.Context, key, session string) error {
	err := j.retry(ctx, j.reading, func(ctx context.Context, l *link) error { return j.release(ctx, l, key, session) })
	if errors.Is(err, errIdle) {
		return nil
	}
	return err
}

func (j *Journal) release(ctx context.Context, l *link, key, session string) error {
	held, err := l.held(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && held.Session != session {
		return nil
	}
	if err != nil {
		return err
	}
	try, cancel := l.within(ctx)
	defer cancel()
	return l.keys.Purge(try, key, jetstream.LastRevision(held.Revision), jetstream.PurgeTTL(markerLife))
}

// Agree returns the value that all nodes of a cluster share under a name. The first node that calls Agree with a value
// sets the shared value: the argument mine. If no node has set a value yet, and mine is nil, Agree returns nil. The
// name must not be the name of a reservation. Errors are ErrUnavailable.
func (j *Journal) Agree(ctx context.Context, name string, mine []byte) (agreed []byte, err error) {
	err = j.retry(ctx, j.writing, func(ctx context.Context, l *link) error {
		try, cancel := l.within(ctx)
		defer cancel()
		entry, err := l.keys.Get(try, name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			if mine == nil {
				return nil
			}
			if _, err = l.keys.Create(try, name, mine); err == nil {
				agreed = mine
				return nil
			}
			if refusal(err) != "" {
				return final{fmt.Errorf("%w: storing %s: %w", ErrUnavailable, name, err)}
			}
			return err // Another node may have been faster. Its value is read next.
		}
		if err == nil {
			agreed = entry.Value()
		}
		return err
	})
	return agreed, err
}
