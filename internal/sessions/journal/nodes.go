package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// node is the state of another process.
type node struct {
	revision uint64
	says     string
	at       time.Time // when its key last changed, by this process's clock
}

// Beat renews the lease of this node once. The Journal itself calls Beat three times in the time of a lease. With the
// engine inside, Beat does nothing. Errors are ErrUnavailable.
func (j *Journal) Beat(ctx context.Context) error {
	if j.o.URL == "" {
		return nil
	}
	l, err := j.reading(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, j.o.Lease/6) // After this time, live tries the next server.
	defer cancel()
	sent := time.Now()
	if _, err := l.nodes.Put(ctx, j.o.Node, []byte(j.o.Says)); err != nil {
		return fmt.Errorf("%w: renewing the lease: %w", ErrUnavailable, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if time.Since(j.confirmed) > j.o.Lease*2/3 {
		j.held = sent // The other nodes may have seen no sign of life for a lease.
	}
	if sent.After(j.confirmed) {
		j.confirmed = sent
	}
	return nil
}

// Held returns the time since which this node has held its lease without a gap. A gap begins when two thirds of a lease
// have passed since the last confirmation. While the lease is confirmed, no other node has taken over a session that
// this node owned at the returned time or later. With the engine inside, Held returns the zero time.
func (j *Journal) Held() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

// Confirmed returns the time of the last renewal of this node's lease that was answered. It is the time at which the
// renewal was sent, or the zero time before the first one. With the engine inside, it is the current time.
func (j *Journal) Confirmed() time.Time {
	if j.o.URL == "" {
		return time.Now()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.confirmed
}

// Nodes returns when the key of each node last changed, or was first seen, by the clock of this process. A node that
// called Close is missing. A node that fell silent is included for four leases. With the engine inside, the map is
// empty.
func (j *Journal) Nodes() map[string]time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make(map[string]time.Time, len(j.nodes))
	for name, n := range j.nodes {
		list[name] = n.at
	}
	return list
}

// Said returns the Options.Says of each node that Nodes returns.
func (j *Journal) Said() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	said := make(map[string]string, len(j.nodes))
	for name, n := range j.nodes {
		said[name] = n.says
	}
	return said
}

// alive is called when the key of a node has changed. It notes the change.
func (j *Journal) alive(entry jetstream.KeyValueEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if entry.Revision() > j.nodes[entry.Key()].revision {
		j.nodes[entry.Key()] = node{revision: entry.Revision(), says: string(entry.Value()), at: time.Now()}
	}
}

// live renews the lease of this node, until ctx ends. If a renewal fails, live tries again soon, because without a
// lease this node begins no calls. The reason of the failure may be an election that is soon over.
func (j *Journal) live(ctx context.Context) {
	beats := time.NewTicker(j.o.Lease / 3)
	defer beats.Stop()
	var again <-chan time.Time // nil when the lease was renewed
	for due := false; ; {
		err := j.Beat(ctx)
		if err == nil {
			again = nil
		} else if ctx.Err() == nil {
			if due || again == nil {
				j.o.Log.Warn("the lease of this node was not renewed", "error", err)
			}
			again = time.After(j.o.Lease / 20)
			// Try the next server, because the server of this connection may be cut off from the others. Do not change
			// the server after every error: without a leader, the error comes at once, and during an election all
			// servers return it.
			if l, failed := j.reading(ctx); failed == nil && l.conn.IsConnected() &&
				(due || errors.Is(err, context.DeadlineExceeded)) {
				_ = l.conn.ForceReconnect()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			due = false
		case <-j.back: // The lease may be nearly over, or the server may be cut off.
			due = false
		case <-beats.C:
			due = true
		}
	}
}

// watch watches the leases of all nodes. It has a goroutine of its own, because a request to the leader may take long
// and must not delay the renewal of this node's lease.
func (j *Journal) watch(ctx context.Context) {
	looks := time.NewTicker(min(time.Second, j.o.Lease/10))
	defer looks.Stop()
	var watcher jetstream.KeyWatcher
	var updates <-chan jetstream.KeyValueEntry
	for {
		if l, err := j.reading(ctx); watcher == nil && err == nil {
			if watcher, err = l.nodes.WatchAll(ctx); err == nil {
				updates = watcher.Updates()
			}
		}
		select {
		case <-ctx.Done():
			if watcher != nil {
				_ = watcher.Stop()
			}
			return
		case <-looks.C:
			j.look(ctx)
		case entry, ok := <-updates:
			switch {
			case !ok:
				watcher = nil
				updates = nil
			case entry == nil: // All keys that existed have come.
			case entry.Operation() == jetstream.KeyValuePut:
				j.alive(entry)
			case entry.Operation() == jetstream.KeyValueDelete:
				j.mu.Lock()
				delete(j.nodes, entry.Key())
				j.mu.Unlock()
			}
		}
	}
}

// look asks the stream's leader about each node that has been silent for half a lease, because a watcher can miss
// or delay a change.
func (j *Journal) look(ctx context.Context) {
	l, err := j.reading(ctx)
	if err != nil {
		return
	}
	for name, at := range j.Nodes() {
		switch silent := time.Since(at); {
		case silent > 4*j.o.Lease:
			j.mu.Lock()
			delete(j.nodes, name)
			j.mu.Unlock()
		case silent > j.o.Lease/2:
			try, cancel := context.WithTimeout(ctx, j.o.Lease/10)
			entry, err := l.nodes.Get(try, name)
			cancel()
			if err == nil {
				j.alive(entry)
			}
		}
	}
}

// leave removes the key of this node, so that the other nodes do not wait for this node.
func (j *Journal) leave(ctx context.Context, l *link) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	err := l.nodes.Delete(ctx, j.o.Node)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	return err
}
