package journal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// own says of the last message of a log that a process appended it.
func own(j *Journal) func(*Stored) bool {
	return func(last *Stored) bool { return last.Node == j.o.Node }
}

func TestRemove(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("k", 64)
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		for _, tt := range []struct {
			name  string
			store func(t *testing.T, id ID) // before the log is removed
			gone  bool
		}{
			{"nothing", func(*testing.T, ID) {}, true},
			{"a message", func(t *testing.T, id ID) {
				t.Helper()
				m := message(j, 1, "x")
				m.Key = key
				appended(t, j, id, 0, m)
			}, true},
			{"a message in parts", func(t *testing.T, id ID) {
				t.Helper()
				appended(t, j, id, 0, message(j, 1, strings.Repeat("x", 2*maxPart)))
			}, true},
			{"half a message", func(t *testing.T, id ID) {
				t.Helper()
				half(t, j, id, 0, message(j, 1, strings.Repeat("x", 2*maxPart)))
			}, true},
			{"another process's message behind one of this", func(t *testing.T, id ID) {
				t.Helper()
				claim := message(other, 2, "claim")
				claim.Node = "another"
				appended(t, other, id, appended(t, j, id, 0, message(j, 1, "x")), claim)
			}, false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				id := ID{Session: strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), "'", "")}
				if _, ok, err := j.Reserve(t.Context(), key, Reservation{Session: id.Session}); !ok || err != nil {
					t.Fatal(ok, err)
				}
				tt.store(t, id)
				for range 2 { // the second request is one that is repeated
					if gone, err := j.Remove(t.Context(), id, key, own(j)); gone != tt.gone || err != nil {
						t.Errorf("gone: %v, %v", gone, err)
					}
				}
				held, free, err := other.Reserve(t.Context(), key, Reservation{Session: "next"})
				if free != tt.gone || err != nil {
					t.Errorf("the key has the session %q, %v", held.Session, err)
				}
				if err := other.Release(t.Context(), key, held.Session); err != nil {
					t.Error(err)
				}
				last, err := other.Last(t.Context(), id)
				_, read := other.Read(t.Context(), id)
				if err != nil || (last == nil) != tt.gone || errors.Is(read, ErrGone) != tt.gone {
					t.Errorf("the log ends with %+v, %v, and reading says %v", last, err, read)
				}
				if !tt.gone {
					return
				}
				for _, x := range []*Journal{j, other} {
					eventually(t, x, "no row", func() bool { _, ok := x.Row(id); return !ok })
				}
				// What was sent before comes late, or once more.
				for _, late := range []Message{message(j, 1, "x"), message(j, 1, strings.Repeat("x", 2*maxPart))} {
					_, err := j.Append(t.Context(), id, 0, late)
					if moved, ok := errors.AsType[*Moved](err); !ok || moved.Last != nil {
						t.Errorf("appending to a log that was removed: %v", err)
					}
				}
				for _, err := range other.Follow(t.Context(), id, 0) {
					if !errors.Is(err, ErrGone) {
						t.Errorf("following what was removed: %v", err)
					}
				}
				if err := other.Purge(t.Context(), id); err != nil {
					t.Errorf("purging what was removed: %v", err)
				}
			})
		}
		late := p.open(t)
		for _, x := range []*Journal{j, other, late} {
			x.wake()
			eventually(t, x, "one session", func() bool { return x.Stats().Sessions == 1 })
			if rows := x.Rows(""); len(rows) != 1 {
				t.Errorf("%d rows", len(rows))
			}
		}
		l, err := j.reading(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := l.log.GetLastMsgForSubject(t.Context(), j.o.Prefix+".session._.TestRemove-"+map[bool]string{true: "inside", false: "cluster"}[j.o.URL == ""]+"-a_message")
		if err != nil || raw.Header.Get(jetstream.MsgTTLHeader) == "" {
			t.Errorf("a mark stays for ever: %+v, %v", raw, err)
		}
	})
}

// half stores the first part of a message.
func half(t *testing.T, j *Journal, id ID, after uint64, m Message) {
	t.Helper()
	l, err := j.writing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	subject, err := j.subject("session", id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.publish(t.Context(), subject, after, cut(m)[0]); err != nil {
		t.Fatal(err)
	}
}

// A message that another process appends between the look at a log and its removal stays.
func TestRemoveRace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		seq := appended(t, j, one, 0, message(j, 1, "x"))
		claim := message(other, 2, "claim")
		claim.Node = "another"
		gone, err := j.Remove(t.Context(), one, "", func(last *Stored) bool {
			if last.Seq == seq { // it is behind the look
				appended(t, other, one, seq, claim)
			}
			return last.Node == j.o.Node
		})
		if gone || err != nil {
			t.Errorf("gone: %v, %v", gone, err)
		}
		numbersOf(t, other, one, "x", "claim")
	})
}

func numbersOf(t *testing.T, j *Journal, id ID, want ...string) {
	t.Helper()
	log, err := j.Read(t.Context(), id)
	if got := texts(log); err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the log holds %q, want %q: %v", got, want, err)
	}
}

// While marks are there, a purge of which no process was told is seen all the same.
func TestIndexLateBesideMarks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j, other := p.open(t), p.open(t)
		for _, session := range []string{"1", "2", "3"} {
			appended(t, j, ID{Session: session}, 0, message(j, 1, "x"))
		}
		for _, session := range []string{"1", "4", "5"} { // of two of them there was nothing
			if gone, err := j.Remove(t.Context(), ID{Session: session}, "", own(j)); !gone || err != nil {
				t.Fatal(gone, err)
			}
		}
		eventually(t, other, "rows", func() bool { return other.Stats().Sessions == 2 && other.index.logs() == 5 })
		l, err := j.reading(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.log.Purge(t.Context(), jetstream.WithPurgeSubject(j.o.Prefix+".session._.2")); err != nil {
			t.Fatal(err)
		}
		for _, x := range []*Journal{j, other} {
			x.wake()
			eventually(t, x, "the purged row", func() bool { return x.Stats().Sessions == 1 })
		}
	})
}

// Where there is no room for a mark, what was seen is purged.
func TestRemoveFull(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p place) {
		t.Helper()
		j := p.open(t)
		appended(t, j, one, 0, message(j, 1, strings.Repeat("x", 100<<10)))
		l, err := j.writing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		info, err := l.log.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		small := info.Config
		small.MaxBytes = int64(info.State.Bytes) + 1
		if _, err := l.js.UpdateStream(ctx, small); err != nil {
			t.Fatal(err)
		}
		if gone, err := j.Remove(ctx, one, "", own(j)); !gone || err != nil {
			t.Errorf("gone: %v, %v", gone, err)
		}
		if _, err := j.Read(ctx, one); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
		if rows := j.Rows(one.Owner); len(rows) > 0 {
			t.Errorf("rows: %v", rows)
		}
	})
}
