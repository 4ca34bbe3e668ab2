package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrUnavailable is the error of what could not be stored or read. Its text says why.
var ErrUnavailable = errors.New("kept sessions are not available")

// ErrFull is the error of what has no room beside what is kept. It is ErrUnavailable too.
var ErrFull = errors.New("the stream is full")

// ErrGone is the error of a session without a log.
var ErrGone = errors.New("the session has no log")

// Options say where logs are kept. All times are more than 0.
type Options struct {
	// Dir is the directory of the engine inside this process. It is made where there is
	// none, and locked.
	Dir string
	// Key is the key of the engine's encryption at rest, "" for none.
	Key string
	// MaxBytes is what all logs may hold, at least 1. The stream gets a reserve above it.
	MaxBytes int64
	// URL, when it is not "", is a list of addresses of a cluster, with commas between.
	// Dir and Key are not used then.
	URL   string
	Creds string // content of a credentials file, "" for none
	CA    string // path of a PEM file with the CAs of the servers, "" for those of the system
	// Prefix begins all names of streams and subjects: a to z, 0 to 9, - and _.
	Prefix   string
	Replicas int    // of each stream of a cluster, 1 to 5
	Node     string // identifies this process: a new UUID
	Says     string // what Said tells the other nodes of this one
	// Lease is the time without a sign of life after which a node counts as dead.
	Lease      time.Duration
	RecordsFor time.Duration // how long records are kept on a cluster, 0 for ever
	Log        *slog.Logger
	Waits      Waits // the zero value stands for DefaultWaits
}

var validPrefix = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// Journal is a place where logs are kept. It is safe for concurrent use.
type Journal struct {
	o       Options
	maxWait time.Duration
	ends    ends
	working working
	entered bool        // guarded by starting
	worked  map[ID]bool // as readWorking returns it; nil with a cluster
	index   *index
	relay   chan *nats.Msg
	broken  chan struct{} // 1 while the engine inside is to be opened again
	back    chan struct{} // 1 while the lease is to be renewed at once
	early   chan struct{} // 1 while a check is to be made early
	stop    context.CancelFunc
	done    <-chan struct{} // closed by stop
	wg      sync.WaitGroup

	starting sync.Mutex // held while a link is opened; taken before mu

	mu      sync.Mutex // guards all below
	place   dirHeld    // the directory; zero with a cluster
	damages []Damage   // that no operator has accepted
	lost    map[ID]bool
	engine
	checked
	closed bool
}

// engine is the connection to what stores the logs, and why it fails.
type engine struct {
	link       *link      // nil inside while nothing is kept, and while the engine is opened again
	engineLog  *engineLog // of the engine that is open or being opened
	fault      error      // why nothing can be stored, nil where it can
	persistent bool       // the fault stayed or came back after the engine was opened again
	reopened   time.Time  // when the engine was last opened again
}

// checked is what the checks of the place have found.
type checked struct {
	doubt    error         // of the last check
	bytes    int64         // in the stream at the last check, and appended since it began
	appended int64         // bytes
	ahead    time.Duration // of the engine's clock, at the last check
	max      int64         // that the stream takes
	lag      uint64

	recordsLag uint64
	nodes      map[string]node
	confirmed  time.Time
	held       time.Time // as Held returns it
}

// Open opens the place. Inside, the engine is started only when the directory holds
// something: otherwise with the first write. A cluster that is starting, or electing a
// leader, is waited for, for Lease and 10 s. An error says what to do about it; nothing was
// deleted then, and no stream created.
func Open(ctx context.Context, o Options) (*Journal, error) {
	if !validPrefix.MatchString(o.Prefix) {
		return nil, fmt.Errorf("the prefix %q of names on the cluster has other characters than a to z, 0 to 9, - "+
			"and _, or more than 32; choose another one", o.Prefix)
	}
	o.Waits = cmp.Or(o.Waits, DefaultWaits())
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	j := &Journal{
		o:       o,
		maxWait: o.Lease + o.Waits.Answer,
		index:   newIndex(),
		relay:   make(chan *nats.Msg, 1024),
		broken:  make(chan struct{}, 1),
		early:   make(chan struct{}, 1),
		stop:    stop,
		lost:    map[ID]bool{},
		done:    background.Done(),
		checked: checked{nodes: map[string]node{}},
		back:    make(chan struct{}, 1),
		working: working{wait: o.Waits.Working},
	}
	begin := o.URL != ""
	if o.URL == "" {
		j.maxWait = o.Waits.Answer
		var err error
		if begin, err = j.lockDir(); err != nil {
			stop()
			return nil, err
		}
	}
	if begin {
		if _, err := j.start(ctx); err != nil {
			stop()
			return nil, errors.Join(err, j.leaveDir())
		}
	}
	j.wg.Go(func() { j.relayAll(background) })
	j.wg.Go(func() { j.checkAll(background) })
	if o.URL == "" {
		j.wg.Go(func() { j.mend(background) })
	} else {
		j.wg.Go(func() { j.live(background) })
		j.wg.Go(func() { j.watch(background) })
	}
	return j, nil
}

// start opens a link where there is none.
func (j *Journal) start(ctx context.Context) (*link, error) {
	j.starting.Lock()
	defer j.starting.Unlock()
	log := &engineLog{log: j.o.Log}
	log.failed = func(err error) { j.fail(log, err) }
	j.mu.Lock()
	l := j.link
	closed := j.closed
	if l == nil {
		j.engineLog = log
	}
	j.mu.Unlock()
	if closed {
		return nil, errStopping
	}
	if l != nil {
		return l, nil
	}
	unread, err := j.enter()
	if err != nil {
		return nil, err
	}
	l, err = connect(ctx, j.o, log)
	if err != nil {
		return nil, err
	}
	l.conn.SetReconnectHandler(func(*nats.Conn) { j.beatNow() })
	if err = j.prepare(ctx, l); err == nil {
		err = j.reconcile()
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("opening the sessions in %s: %w", l.place, err)
	}
	log.warn()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.link = l
	j.max = l.max
	j.ahead = time.Until(l.log.CachedInfo().TimeStamp)
	if unread {
		j.wg.Go(func() { j.verify(log) })
	}
	j.wake()
	return l, nil
}

// prepare opens the streams of a link and reads the list of sessions. It waits for a
// cluster that is starting or electing a leader.
func (j *Journal) prepare(ctx context.Context, l *link) error {
	begun := time.Now()
	for said := false; ; said = true {
		err := l.open(ctx, j.o)
		if err == nil {
			if err = j.fill(ctx, l); err == nil {
				l.ready.Store(true)
				return nil
			}
			err = fmt.Errorf("reading the list of sessions: %w", err)
		}
		if !l.notReady(err) || time.Since(begun) > j.maxWait {
			return cmp.Or(l.forbidden(), err)
		}
		if !said {
			j.o.Log.WarnContext(ctx, "waiting for the cluster of sessions, which is not ready",
				"at_most", j.maxWait.String(), "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(j.o.Waits.MinPause):
		}
	}
}

// beatNow has the lease renewed at once: a connection is there again, or its server does
// not answer.
func (j *Journal) beatNow() {
	select {
	case j.back <- struct{}{}:
	default:
	}
}

// wake has a check made early.
func (j *Journal) wake() {
	select {
	case j.early <- struct{}{}:
	default:
	}
}

var errStopping = fmt.Errorf("%w: the daemon is stopping", ErrUnavailable)

// errIdle is the error of reading where nothing has been kept yet.
var errIdle = fmt.Errorf("%w: nothing is kept yet", ErrGone)

// errOpening is the error of a link while the engine is opened again for the first time
// after a fault.
var errOpening = fmt.Errorf("%w: the engine is being opened again", ErrUnavailable)

// reading returns the link for reading. It can be there while nothing can be written.
func (j *Journal) reading(context.Context) (*link, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return nil, errStopping
	case j.link != nil:
		return j.link, nil
	case j.fault != nil:
		return nil, j.faultLocked()
	}
	return nil, errIdle
}

func (j *Journal) faultLocked() error {
	if j.persistent {
		return fmt.Errorf("%w: %w", ErrUnavailable, j.fault)
	}
	return fmt.Errorf("%w: %w", errOpening, j.fault)
}

// writing returns the link for writing, which it opens where nothing has been kept yet.
func (j *Journal) writing(ctx context.Context) (*link, error) {
	j.mu.Lock()
	if j.fault != nil && !j.closed {
		defer j.mu.Unlock()
		return nil, j.faultLocked()
	}
	j.mu.Unlock()
	l, err := j.reading(ctx)
	if !errors.Is(err, errIdle) {
		return l, err
	}
	if l, err = j.start(ctx); err != nil {
		j.mu.Lock()
		log := j.engineLog
		j.mu.Unlock()
		j.fail(log, err)
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return l, nil
}

// final is an error that trying again would not change.
type final struct{ error }

// retry calls do with a link until it succeeds or fails finally, for a bounded time.
// What has no answer by then is ErrUnavailable.
func (j *Journal) retry(
	ctx context.Context, open func(context.Context) (*link, error), do func(context.Context, *link) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, j.maxWait)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		l, err := open(ctx)
		switch {
		case err == nil:
			err = do(ctx, l)
			if last, ok := errors.AsType[final](err); ok {
				return last.error
			}
		case !errors.Is(err, errOpening):
			return err
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: no answer in time: %w", ErrUnavailable, err)
		case <-time.After(pause):
		}
	}
}

// failed is fail for the engine that is open.
func (j *Journal) failed(err error) {
	j.mu.Lock()
	log := j.engineLog
	j.mu.Unlock()
	j.fail(log, err)
}

// fail notes that the engine inside failed, and has it opened again.
func (j *Journal) fail(log *engineLog, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.engineLog != log || j.closed {
		return // an earlier engine
	}
	if j.fault == nil {
		j.fault = err
		j.persistent = time.Since(j.reopened) < j.o.Waits.Quiet
	}
	select {
	case j.broken <- struct{}{}:
	default:
	}
}

// mend opens the engine again whenever it has failed.
func (j *Journal) mend(ctx context.Context) {
	pause := j.o.Waits.MinPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.broken:
		}
		j.mu.Lock()
		if time.Since(j.reopened) > j.o.Waits.Quiet {
			pause = j.o.Waits.MinPause
		}
		l := j.link
		fault := j.fault
		j.link = nil
		j.engineLog = nil
		j.mu.Unlock()
		j.o.Log.Error("sessions cannot be kept until the engine is opened again", "error", fault)
		if l != nil {
			l.close()
		}
		select {
		case <-j.broken: // by what the engine said as it ended
		default:
		}
		for again := true; again; pause = min(2*pause, j.o.Waits.MaxPause) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			again = !j.reopen(ctx) && len(j.broken) == 0
		}
	}
}

// reopen opens the engine, and tells whether sessions can be kept again. Where the disk
// has no room yet, the engine is only read from.
func (j *Journal) reopen(ctx context.Context) bool {
	_, err := j.start(ctx)
	if err == nil {
		err = probe(j.o.Dir)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		if j.fault == nil || j.fault.Error() != err.Error() {
			j.o.Log.Error("sessions cannot be kept yet", "error", err)
		}
		j.fault = err
		j.persistent = true
		return false
	}
	if len(j.broken) > 0 {
		return false // it failed meanwhile
	}
	j.fault = nil
	j.persistent = false
	j.reopened = time.Now()
	j.o.Log.Info("sessions are kept again")
	return true
}

// probe writes as much as two parts of messages, and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, "probe")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 2*maxPart))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// Close ends everything that the Journal began. Inside, the engine writes its state.
func (j *Journal) Close(ctx context.Context) error {
	j.starting.Lock()
	j.mu.Lock()
	l := j.link
	again := j.closed
	j.closed = true
	j.link = nil
	j.engineLog = nil
	j.mu.Unlock()
	j.starting.Unlock()
	if again {
		return nil
	}
	j.stop()
	if l != nil && l.nodes != nil {
		_ = j.leave(ctx, l)
	}
	closed := make(chan error, 1)
	go func() {
		if l != nil {
			l.close()
		}
		j.wg.Wait()
		j.ends.close()
		j.working.close()
		if l != nil && j.o.URL == "" {
			j.noteClosed()
		}
		closed <- j.leaveDir()
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("closing the sessions: %w", context.Cause(ctx))
	}
}

// checkAll compares the index with the stream at intervals, and asks for its size.
func (j *Journal) checkAll(ctx context.Context) {
	tick := time.NewTicker(j.o.Waits.Check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-j.early:
		}
		l, err := j.reading(ctx)
		if err != nil {
			continue
		}
		err = j.check(ctx, l)
		if ctx.Err() != nil {
			return
		}
		j.mu.Lock()
		j.doubt = err
		j.mu.Unlock()
	}
}

func (j *Journal) check(ctx context.Context, l *link) error {
	rows, _, seen := j.index.size()
	logs := j.index.logs()
	j.index.forgetGone()
	if err := j.lookAfter(rows); err != nil {
		j.failed(err)
		return err
	}
	j.mu.Lock()
	appended := j.appended
	j.mu.Unlock()
	try, cancel := l.within(ctx)
	defer cancel()
	info, err := l.log.Info(try)
	if err != nil {
		if ctx.Err() == nil {
			l.failed(err)
		}
		return fmt.Errorf("the stream of sessions does not answer: %w", err)
	}
	state := info.State
	j.mu.Lock()
	j.ahead = time.Until(info.TimeStamp)
	j.bytes = int64(min(state.Bytes, math.MaxInt64/2)) + j.appended - appended
	j.lag = state.LastSeq - min(seen, state.LastSeq)
	j.mu.Unlock()
	if state.LastSeq < seen {
		j.o.Log.Warn("the stream of sessions has lost messages; reading the list of sessions again")
		return j.fill(ctx, l)
	}
	if state.NumSubjects >= uint64(logs) { //nolint:gosec // a length
		return nil // the consumer brings what is missing
	}
	return j.sweep(try, l)
}

// Healthy returns why nothing can be kept now, or nil.
func (j *Journal) Healthy() error {
	confirmed := j.Confirmed()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return errStopping
	case j.fault != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, j.fault)
	case j.link != nil && !j.link.conn.IsConnected():
		return fmt.Errorf("%w: there is no connection to %s", ErrUnavailable, j.link.place)
	case j.doubt != nil:
		return fmt.Errorf("%w: %w", ErrUnavailable, j.doubt)
	case j.o.URL != "" && !confirmed.IsZero() && time.Since(confirmed) >= j.o.Lease*2/3:
		return fmt.Errorf("%w: the cluster has not renewed the lease of this node for two thirds of its time",
			ErrUnavailable)
	}
	return nil
}

// Now returns the time by the engine's clock, which Row.At is of too: that of the server
// that answered the last check.
func (j *Journal) Now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Now().Add(j.ahead)
}

// Full tells whether the stream is 90 % full. No new session should be kept then.
func (j *Journal) Full() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.max > 0 && j.bytes >= j.max/10*9
}

// Stats are figures of a Journal.
type Stats struct {
	Connected bool
	Lag       uint64        // messages that the index did not have yet at the last check
	LeaseAge  time.Duration // since this node's lease was confirmed; 0 inside
	Bytes     int64         // in the stream
	MaxBytes  int64         // that the stream takes
	Sessions  int           // in the index
	Running   int           // of them, on whatever node
	// RecordsLag is how many messages of records FollowRecords had not returned at its
	// last look.
	RecordsLag uint64
}

// Stats returns the figures of now.
func (j *Journal) Stats() Stats {
	confirmed := j.Confirmed()
	rows, running, _ := j.index.size()
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Stats{
		Connected: j.link != nil && j.link.conn.IsConnected(), Lag: j.lag, RecordsLag: j.recordsLag,
		Bytes: j.bytes, MaxBytes: j.o.streamBytes(), Sessions: rows, Running: running,
	}
	if j.o.URL != "" {
		s.LeaseAge = time.Since(confirmed)
	}
	return s
}
