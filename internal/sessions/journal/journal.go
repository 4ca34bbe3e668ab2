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

// ErrUnavailable is the error of an operation that could not store or read. The text of the error says why.
var ErrUnavailable = errors.New("kept sessions are not available")

// ErrFull is the error of an append for which the stream has no room. An error that matches ErrFull also matches
// ErrUnavailable.
var ErrFull = errors.New("the stream is full")

// ErrGone is the error of a session without a log.
var ErrGone = errors.New("the session has no log")

// Options say where logs are kept. All times must be more than 0, except RecordsFor.
type Options struct {
	// Dir is the directory of the engine inside this process. Open creates it if it is missing, and locks it.
	Dir string
	// Key is the key with which the engine encrypts its files, or "".
	Key string
	// MaxBytes is how many bytes all logs together may hold, at least 1. The stream may hold more, as a reserve (see
	// streamBytes).
	MaxBytes int64
	// URL is a list of addresses of a cluster, separated by commas. If it is not "", Dir and Key are not used.
	URL   string
	Creds string // content of a credentials file, or ""
	// CA is the path of a PEM file with the CAs of the servers, or "" for the CAs of the system.
	CA string
	// Prefix begins all names of streams and subjects. It may hold a to z, 0 to 9, - and _.
	Prefix   string
	Replicas int    // copies of each stream on a cluster, 1 to 5
	Node     string // the name of this process: a new UUID
	Says     string // text about this node that the other nodes get from Said
	// Lease is how long a node must show no sign of life to count as dead.
	Lease      time.Duration
	RecordsFor time.Duration // how long records are kept on a cluster, or 0 for ever
	Log        *slog.Logger
	Waits      Waits // the zero value stands for DefaultWaits
}

var validPrefix = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

// Journal stores the logs of sessions in an engine. It is safe for concurrent use.
type Journal struct {
	o       Options
	maxWait time.Duration
	ends    ends
	working working
	entered bool        // guarded by starting
	worked  map[ID]bool // the result of readWorking, or nil on a cluster
	index   *index
	relay   chan *nats.Msg
	broken  chan struct{} // holds a token while the engine inside must be opened again
	back    chan struct{} // holds a token while the lease must be renewed at once
	early   chan struct{} // holds a token while a check must be made early
	stop    context.CancelFunc
	done    <-chan struct{} // closed by stop
	wg      sync.WaitGroup

	starting sync.Mutex // held while a link is opened; taken before mu

	mu      sync.Mutex // guards all fields below
	place   dirHeld    // the directory, or zero on a cluster
	damages []Damage   // damage that no operator has accepted
	lost    map[ID]bool
	engine
	checked
	closed bool
}

// engine holds the connection to the engine. If the engine has failed, it also holds the reason.
type engine struct {
	// With the engine inside, link is nil before anything is kept, and while the engine is opened again.
	link       *link
	engineLog  *engineLog // the log of the engine that is open or being opened
	fault      error      // why nothing can be stored, or nil
	persistent bool       // the fault stayed or came back after the engine was opened again
	reopened   time.Time  // when the engine was last opened again
}

// checked holds what is known about the stream and the nodes. Checks, appends and renewals of the lease update it.
type checked struct {
	doubt    error         // the error of the last check
	bytes    int64         // size of the stream at the last check, plus what was appended since
	appended int64         // bytes appended since the journal was opened
	ahead    time.Duration // how far the engine's clock is ahead, at the last check
	max      int64         // how many bytes the stream may hold
	lag      uint64

	recordsLag uint64
	nodes      map[string]node
	confirmed  time.Time
	held       time.Time // the result of Held
}

// Open opens a journal. If the directory of the engine inside holds something, Open starts the engine. Otherwise the
// first write starts it. If a cluster is starting or electing a leader, Open waits for at most the sum of Lease and 10
// s. The text of an error says what a user can do. If Open returns an error, it has deleted nothing.
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

// start returns the link, and opens one if there is none.
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

// prepare opens the streams of a link and reads the list of sessions. If a cluster is starting or electing a leader,
// prepare waits.
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

// beatNow asks live to renew the lease at once. It is called when a connection has come back, and when the server did
// not answer an append.
func (j *Journal) beatNow() {
	select {
	case j.back <- struct{}{}:
	default:
	}
}

// wake asks checkAll for an early check.
func (j *Journal) wake() {
	select {
	case j.early <- struct{}{}:
	default:
	}
}

var errStopping = fmt.Errorf("%w: the daemon is stopping", ErrUnavailable)

// errIdle is the error of a read before anything has been kept.
var errIdle = fmt.Errorf("%w: nothing is kept yet", ErrGone)

// errOpening is the error of an operation while the engine is opened again for the first time after a fault. retry
// waits until the engine is open.
var errOpening = fmt.Errorf("%w: the engine is being opened again", ErrUnavailable)

// reading returns the link for reading. It can return a link even if nothing can be written.
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

// writing returns the link for writing. It opens the engine if nothing has been kept yet.
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

// final is an error that every further try would return too. retry returns it at once.
type final struct{ error }

// retry calls the function do with a link until do returns nil or a final error. It gets the link from the function
// open. After a bounded time, retry gives up, and the error is ErrUnavailable. If open returns an error other than
// errOpening, retry returns that error at once.
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

// failed reports an error of the engine that is open now (see fail).
func (j *Journal) failed(err error) {
	j.mu.Lock()
	log := j.engineLog
	j.mu.Unlock()
	j.fail(log, err)
}

// fail notes that the engine inside failed, so that mend opens the engine again. The argument log is the log of the
// engine that failed.
func (j *Journal) fail(log *engineLog, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.engineLog != log || j.closed {
		return // An earlier engine failed, or the journal is closed.
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

// mend opens the engine again each time it fails, until ctx ends.
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
		case <-j.broken: // The engine may have reported errors while it ended.
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

// reopen opens the engine, and reports whether sessions can be kept again. The engine also opens on a full disk, but
// then only reading works.
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
		return false // The engine failed meanwhile.
	}
	j.fault = nil
	j.persistent = false
	j.reopened = time.Now()
	j.o.Log.Info("sessions are kept again")
	return true
}

// probe checks that the disk has room. It writes a file of the size of two parts of messages, and removes the file.
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

// Close ends the goroutines of the Journal and closes the link. The engine inside then writes its state. If ctx ends
// first, Close returns the error of ctx.
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

// checkAll checks that the index agrees with the stream. It checks at intervals, and when wake asks for a check.
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

// check compares the index with the stream once, and notes how many bytes the stream holds.
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
		return nil // The consumer brings the rows that are missing.
	}
	return j.sweep(try, l)
}

// Healthy returns nil if sessions can be kept now. Otherwise the error says why they cannot be kept.
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

// Now returns the current time by the engine's clock. The times in IndexRow.At come from the same clock. On a cluster,
// it is the clock of the server that answered the last check.
func (j *Journal) Now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Now().Add(j.ahead)
}

// Full reports whether the stream is 90 % full. Callers should then keep no new session.
func (j *Journal) Full() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.max > 0 && j.bytes >= j.max/10*9
}

// Stats are figures of a Journal.
type Stats struct {
	Connected bool
	Lag       uint64 // messages that the index did not have yet at the last check
	// LeaseAge is the time since this node's lease was last confirmed. It is 0 with the engine inside.
	LeaseAge time.Duration
	Bytes    int64 // how many bytes the stream holds
	MaxBytes int64 // how many bytes the stream may hold
	Sessions int   // how many sessions the index has
	Running  int   // how many of these sessions run, on any node
	// RecordsLag is how many messages FollowRecords had not yet returned when it last looked.
	RecordsLag uint64
}

// Stats returns the current figures.
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
