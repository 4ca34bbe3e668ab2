package daemon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/store"
)

const (
	// maxUnsent bounds the bytes of the records that wait in memory for the cluster.
	maxUnsent = 16 << 20

	// The cursor says how far the records of the cluster were copied. The follower writes it after this time or this
	// many sessions, whichever comes first. After a crash, the follower checks whether the store has the sessions since
	// the last write.
	cursorEvery    = time.Second
	cursorSessions = 1000

	// recordsPause is the time before records are sent or copied again after an error.
	recordsPause = time.Second

	// lateRecords is the age from which a session counts as old. The records of an old session may come from an older
	// record file that was sent to the cluster, and this node may have them already.
	lateRecords = time.Hour
)

// shareRecords returns the Recorder of a daemon. On a cluster, that Recorder sends records to all nodes, and
// shareRecords copies the records of all nodes into the store until the teardown. Without a cluster, shareRecords
// returns its Recorder argument.
func (d *Daemon) shareRecords(ctx context.Context, alone pipeline.Recorder) pipeline.Recorder {
	if d.store == nil || d.journal == nil || !d.journal.Cluster() {
		return alone
	}
	p, release := shareRecords(ctx, d.journal, d.store, d.cfg.BiasStore+".cursor", d.log)
	d.teardown.push("the records of the cluster", release)
	d.publisher = p
	return p
}

// shareRecords returns a Recorder that sends records to the cluster. shareRecords also copies the records of all nodes
// into the store until the second result is called. The file cursorFile says how far the records were copied.
func shareRecords(
	ctx context.Context, j *journal.Journal, s *store.Store, cursorFile string, log *slog.Logger,
) (_ *publisher, release func(context.Context) error) {
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	copying, stopCopying := context.WithCancel(sending)
	p := &publisher{journal: j, store: s, stopped: sending}
	f := &follower{journal: j, store: s, file: cursorFile, log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(copying)
		<-copying.Done()
		stopSending() // last, because unsent records may still come back as copies
		p.close()
	}()
	return p, func(ctx context.Context) error {
		stopCopying()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// publisher is the Recorder of a node of a cluster.
type publisher struct {
	journal *journal.Journal
	store   *store.Store
	stopped context.Context // ends when nothing more can be sent

	calls sync.WaitGroup

	mu      sync.Mutex // guards all below
	waiting int        // bytes of the records that wait for the cluster
	records int        // number of these records
	closed  bool
}

var errUnsent = errors.New("the cluster has not answered for too long, and no more records can wait in memory")

// errKeptHere is the error for records that only this node has.
var errKeptHere = errors.New("the cluster did not take the records before the daemon stopped: " +
	"they are in the record file of this node alone; " +
	"send them with councild store publish")

// Append implements pipeline.Recorder. It returns nil when most servers of the cluster have the records of a session.
// While the cluster does not take the records, Append waits and sends them again. If the daemon stops first, Append
// adds the records to the store of this node, and returns an error.
func (p *publisher) Append(ctx context.Context, records []council.BiasMetricRecord) error {
	if len(records) == 0 {
		return nil
	}
	lines, err := store.Encode(records)
	if err == nil {
		err = p.begin(len(lines), len(records))
	}
	if err != nil {
		return fmt.Errorf("sending records to the cluster: %w", err)
	}
	defer p.end(len(lines), len(records))
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.stopped, cancel)() //nolint:contextcheck // it ends with the daemon too
	for {
		_, err = p.journal.PublishRecords(sending, records[0].SessionID, lines)
		if err == nil {
			return nil
		}
		if !errors.Is(err, journal.ErrUnavailable) || !pause(sending) {
			break
		}
	}
	if p.stopped.Err() != nil {
		err = p.keepHere(context.WithoutCancel(ctx), records)
	}
	return fmt.Errorf("sending records to the cluster: %w", err)
}

// keepHere appends records to the store of this node, unless the store holds these records already. It holds them if
// the cluster took the records but its answer was lost, because the records have then come back as copies.
func (p *publisher) keepHere(ctx context.Context, records []council.BiasMetricRecord) error {
	held, err := p.store.Holds(ctx, records[0].SessionID, records[0].Timestamp)
	if err == nil && !held {
		err = p.store.Append(ctx, records)
	}
	if err != nil {
		return err
	}
	return errKeptHere
}

func (p *publisher) begin(n, records int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fs.ErrClosed
	case p.waiting > 0 && p.waiting+n > maxUnsent:
		return errUnsent
	}
	p.waiting += n
	p.records += records
	p.calls.Add(1)
	return nil
}

func (p *publisher) end(n, records int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting -= n
	p.records -= records
	p.calls.Done()
}

// pending returns how many records the cluster has not taken yet.
func (p *publisher) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records
}

// close waits for the running calls of Append. Call close after the context p.stopped has ended.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.calls.Wait()
}

// pause waits for recordsPause. It returns false if ctx ends first.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(recordsPause):
		return true
	}
}

// follower copies the records of all nodes into the store of this node, each session once. Only one goroutine may use a
// follower.
//
// Before the follower copies an old session, or a session that was in the stream before the follower began, it looks
// the session up in the store. It does so because the store can hold such a session already: after a crash between the
// append and the next write of the cursor, or if the node kept the session before it joined the cluster.
type follower struct {
	journal *journal.Journal
	store   *store.Store
	file    string // path of the cursor
	log     *slog.Logger

	at      journal.RecordsPlace // place in the cluster's records; the store has all records before it
	copied  int                  // sessions since the last write of the cursor
	checked time.Time            // when check last ran
	end     store.End            // where the store ended when check last ran
	damages int64                // result of store.Damages when check last ran
	failing bool                 // set if the last check failed
	// suspect says that an append has failed since the last check. The store may have cut its file and made it a
	// segment.
	suspect bool
	begun   time.Time // the follower looks up sessions that began before this time

	// known has the ids of the sessions in the store that began at the time f.since or later. It is nil until the store is
	// read.
	known map[string]struct{}
	since time.Time
	used  time.Time // when known was last used
}

// cursor is how far the records of the cluster were copied, and where the store ended then.
type cursor struct {
	journal.RecordsPlace
	store.End
}

// run copies records until ctx or the journal ends.
func (f *follower) run(ctx context.Context) {
	c, err := readCursor(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.WarnContext(ctx, "the position up to which the cluster's records were copied cannot be read: all are "+
			"compared with the record file",
			"file", f.file, "error", err)
	}
	f.at = c.RecordsPlace
	f.end = c.End
	f.check(ctx)
	for f.follow(ctx) {
	}
}

// follow copies the records after f.at. If the store has lost records, follow returns true. The place f.at is then at
// the beginning of the records of the cluster again.
func (f *follower) follow(ctx context.Context) (again bool) {
	f.begin()
	following, cancel := context.WithCancel(ctx)
	records := make(chan journal.Records)
	at := f.at
	go func() {
		defer close(records)
		for r := range f.journal.FollowRecords(following, at) {
			select {
			case records <- r:
			case <-following.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range records { // until the goroutine ends
		}
	}()
	tick := time.NewTicker(cursorEvery)
	defer tick.Stop()
	for {
		select {
		case r, ok := <-records:
			if !ok || !f.take(ctx, r) {
				f.check(ctx)
				return false
			}
		case <-tick.C:
		}
		if (f.copied >= cursorSessions || time.Since(f.checked) >= cursorEvery) && f.check(ctx) {
			return true
		}
	}
}

// begin makes the follower look up every session that began before now, because the store may hold it already.
func (f *follower) begin() {
	f.begun = time.Now()
	f.known = nil
}

// take copies the records of a session. It tries again after an error, and returns false if ctx ends first.
func (f *follower) take(ctx context.Context, r journal.Records) bool {
	if !r.Place.Stream.Equal(f.at.Stream) || r.Place.Seq <= f.at.Seq {
		f.begin()
	}
	texts, created := f.parse(ctx, r)
	look := r.Earlier || created.Before(f.begun) || time.Since(created) > lateRecords
	for failed := false; ; failed = true {
		err := f.keep(ctx, r.Session, created, texts, look)
		if err == nil {
			f.at = r.Place
			f.copied++
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !failed {
			f.log.ErrorContext(ctx, "the records of other nodes cannot be copied now", "error", err)
			f.suspect = true
		}
		// Records whose append failed wait in the store, which writes them later.
		for wait := true; wait; wait = f.store.Healthy() != nil {
			if !pause(ctx) {
				return false
			}
		}
		look = true
		f.known = nil
	}
}

// parse returns the texts of the records in a message, and the creation time of their session. It keeps records that a
// later release wrote and that this release cannot read. It logs and drops all other lines that are no records of the
// session.
func (f *follower) parse(ctx context.Context, r journal.Records) (texts [][]byte, created time.Time) {
	refuse := func(err error) {
		f.log.ErrorContext(ctx, "a message on the cluster does not hold the records of its session",
			"session", r.Session, "error", err)
	}
	for line, err := range store.LinesOf(context.WithoutCancel(ctx), bytes.NewReader(r.Lines)) {
		switch {
		case line.Later && (line.SessionID == "" || line.SessionID == r.Session):
			err = nil
		case (err == nil || line.Later) && line.SessionID != r.Session:
			err = fmt.Errorf("a record of another session: %.80q", line.SessionID)
		}
		if err != nil {
			refuse(err)
			continue
		}
		if len(texts) == 0 || line.Timestamp.Before(created) {
			created = line.Timestamp
		}
		texts = append(texts, bytes.Clone(line.Text))
	}
	if _, err := store.Join(texts); err != nil {
		refuse(err)
		return nil, created
	}
	return texts, created
}

// keep appends the records of a session to the store. If look is true, it first checks that the store does not hold the
// session.
func (f *follower) keep(ctx context.Context, id string, created time.Time, texts [][]byte, look bool) error {
	if len(texts) == 0 {
		return nil
	}
	if look {
		if err := f.know(ctx, created); err != nil {
			return err
		}
		if _, held := f.known[id]; held {
			return nil
		}
	}
	if err := f.store.AppendTexts(ctx, texts); err != nil {
		return err
	}
	if f.known != nil {
		f.known[id] = struct{}{}
	}
	return nil
}

// know reads into f.known the sessions that began at the time created or later. The first time, it also reads the
// sessions of the hour before. If a later call needs still older sessions, it reads all.
func (f *follower) know(ctx context.Context, created time.Time) (err error) {
	f.used = time.Now()
	switch {
	case f.known == nil:
		f.since = created.Add(-time.Hour)
	case created.Before(f.since):
		f.since = time.Time{}
	default:
		return nil
	}
	f.known, err = f.store.Sessions(ctx, f.since)
	return err
}

// check writes the cursor if sessions were copied. It returns true if the store has lost records. The follower then
// compares all records of the cluster with the store.
func (f *follower) check(ctx context.Context) (lost bool) {
	f.checked = time.Now()
	if f.checked.Sub(f.used) > time.Minute {
		f.known = nil // the map can be large
	}
	damages := f.store.Damages()
	end, err := f.store.End()
	if err == nil {
		if lost = f.suspect || damages > f.damages || end.Before(f.end); lost {
			f.log.WarnContext(ctx, "the record file failed, was changed or became shorter: missing records are "+
				"copied from the cluster again",
				"file", f.end, "now", end)
			f.at = journal.RecordsPlace{}
			f.copied = 1
		}
		f.end = end
		f.damages = damages
		f.suspect = false
		if f.copied > 0 {
			err = writeCursor(f.file, cursor{f.at, end})
		}
	}
	if err != nil && !f.failing {
		f.log.ErrorContext(ctx, "the position up to which the cluster's records were copied cannot be written; "+
			"after a kill, the next start compares more sessions", "error", err)
	}
	if f.failing = err != nil; !f.failing {
		f.copied = 0
	}
	return lost
}

func readCursor(name string) (c cursor, err error) {
	file, err := disk.OpenRegular(name)
	if err != nil {
		return c, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 1<<10))
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return cursor{}, err
	}
	return c, nil
}

func writeCursor(name string, c cursor) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return disk.Replace(disk.OS{}, name, append(data, '\n'))
}

// Published is the result of PublishStore.
type Published struct {
	Sessions int   // sessions in the store
	Added    int   // sessions that the cluster did not have
	Refused  int   // sessions that were not sent
	Reason   error // why the first refused session was not sent
	Skipped  int   // lines that hold no record
}

// PublishStore sends the records of the store at path to the cluster of the settings. Sessions that the cluster has
// already stay as they are, so that the call can be repeated. The nodes of the cluster copy the records into their
// own stores.
func PublishStore(ctx context.Context, cfg config.Config, path string, log *slog.Logger) (_ Published, err error) {
	j, err := openJournal(ctx, cfg, rand.Text(), log)
	if err != nil {
		return Published{}, err
	}
	defer func() { err = errors.Join(err, within(ctx, closeGrace, j.Close)) }()
	return publishStore(ctx, j, path)
}

// publishStore sends the records of the store at path to the cluster. It reads the store twice. It first counts the
// records of each session, because the records of a session need not be next to each other.
func publishStore(ctx context.Context, j *journal.Journal, path string) (p Published, err error) {
	left := map[string]int{}
	err = eachRecord(ctx, path, func() { p.Skipped++ }, func(l store.Line) error {
		left[l.SessionID]++
		return nil
	})
	if err != nil {
		return Published{}, err
	}
	p.Sessions = len(left)
	begun := map[string][][]byte{}
	err = eachRecord(ctx, path, func() {}, func(l store.Line) error {
		id := l.SessionID
		if left[id] == 0 {
			return nil // the record was added after the count
		}
		left[id]--
		begun[id] = append(begun[id], bytes.Clone(l.Text))
		if left[id] > 0 {
			return nil
		}
		lines, err := store.Join(begun[id])
		delete(begun, id)
		added := false
		if err == nil {
			added, err = j.PublishRecords(ctx, id, lines)
		}
		switch {
		case errors.Is(err, journal.ErrUnavailable):
			return err
		case err != nil:
			p.refuse(fmt.Errorf("session %.80q: %w", id, err))
		case added:
			p.Added++
		}
		return nil
	})
	if err == nil {
		for range begun {
			p.refuse(errors.New("the record store was changed meanwhile: run the command again"))
		}
	}
	return p, err
}

func (p *Published) refuse(reason error) {
	p.Refused++
	p.Reason = cmp.Or(p.Reason, reason)
}

// eachRecord calls its last argument for each record of the store at path, and the argument skip for each line without
// a record. A record of a later schema counts as a record only if it names its session.
func eachRecord(ctx context.Context, path string, skip func(), take func(store.Line) error) error {
	for line, err := range store.ReadLines(ctx, path) {
		if line.Later && line.SessionID != "" {
			err = nil
		}
		if _, ok := errors.AsType[*store.LineError](err); ok {
			skip()
			continue
		}
		if err == nil {
			err = take(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
