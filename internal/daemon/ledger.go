package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

// ledger stores the cost of sessions in a file. A second file next to the ledger holds its high-water mark, which the
// code calls the end. The end says how many lines the ledger has. A ledger with fewer lines has lost some lines.
type ledger struct {
	path     string
	store    *store.Store
	disk     disk.Disk
	log      *slog.Logger
	required bool // a daily limit needs the ledger
	// closed is a channel that Close closes first.
	closed chan struct{}
	// writer waits for the goroutines that write the waiting lines and the file of the end.
	writer sync.WaitGroup

	mu      sync.Mutex // guards waiting, and is held while the store takes lines in their order
	waiting [][]byte   // lines whose callers do not wait for the disk

	// ended has room for one element. noteSynced sends an element to wake keepEnd.
	ended   chan struct{}
	endFile sync.Mutex // held while the file of the end is written
	endMu   sync.Mutex // guards all below
	synced  [][]byte   // lines on disk that the end does not count yet
	// direct says that the ledger is being closed. noteSynced then writes the file of the end itself.
	direct  bool
	end     spend.End
	endBad  bool        // the file of the end is damaged
	endErr  error       // why the last write to the file of the end failed
	state   spend.State // state of the ledger when it was last checked
	damages int64       // the result of store.Damages when the ledger was last checked
}

const (
	// gatherTime is how long the ledger gathers the lines of callers that do not wait, so that one write stores all of
	// them.
	gatherTime = 50 * time.Millisecond

	// ledgerInterval is the longest time between a write and the sync of the ledger, if no daily limit needs it.
	ledgerInterval = time.Second

	// endInterval is the shortest time between two writes to the file of the end. If a process is killed, the end may
	// not count the lines of the last endInterval. A later loss of only these lines goes unnoticed.
	endInterval = time.Second

	// maxEndFile bounds how much of the end's file is read, in bytes.
	maxEndFile = 1 << 20
)

// errDamaged says why a daemon with a hard daily limit does not start.
var errDamaged = errors.New("the cost ledger is damaged, and hard daily limits need all of it")

// openLedger opens the ledger. It returns nil if the cost is not kept. It also returns nil, with a warning in the log,
// if the default file beside the records cannot be written and no daily limit needs the file. With a hard daily limit,
// a damaged ledger is an error.
func openLedger(ctx context.Context, cfg config.Config, on disk.Disk, log *slog.Logger) (*ledger, error) {
	path, named := cfg.SpendFile()
	if path == "" {
		return nil, nil
	}
	if on == nil {
		on = disk.OS{}
	}
	l := &ledger{
		path: path, disk: on, log: log, required: cfg.HasDayLimit(),
		closed: make(chan struct{}), ended: make(chan struct{}, 1),
	}
	o := store.Options{
		Path: path, Fsync: council.FsyncInterval, Interval: ledgerInterval, RotateBytes: int64(cfg.BiasRotateBytes),
		Disk: on, Log: log.With("store", "spend"), Synced: l.noteSynced,
	}
	if l.required {
		o.Fsync = council.FsyncSession
	}
	var recovery store.Recovery
	var err error
	l.store, recovery, err = store.Open(o) //nolint:contextcheck // a store lives until it is closed
	switch {
	case err == nil:
	case named || cfg.HasDayLimit():
		return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	default:
		log.WarnContext(ctx, "costs are not stored: name a directory in LLM_COUNCIL_DATA_DIR, or write "+
			"off", "error", err)
		return nil, nil
	}
	if recovery.CutBytes > 0 {
		log.WarnContext(ctx, "removed an unfinished last line, left by a crash, from the cost "+
			"ledger", "bytes", recovery.CutBytes)
	}
	if err := l.look(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err), l.store.Close())
	}
	if l.state.Damaged && cfg.HasHardLimits() && cfg.HasDayLimit() {
		return nil, errors.Join(fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w: in %s, %s; put the lost file back, or look "+
			"at councild report spend verify and accept the loss with councild report spend "+
			"accept", errDamaged, path, l.state.Problem()), l.store.Close())
	}
	l.writer.Go(func() { l.keepEnd(context.WithoutCancel(ctx)) })
	return l, nil
}

// look reads the whole ledger and its end, and notes their state. It is called when the ledger is opened.
func (l *ledger) look(ctx context.Context) error {
	b, err := openBook(l.path)
	if err != nil {
		return err
	}
	if l.state, err = spend.Check(b.all(ctx), b.end); err != nil {
		return err
	}
	if l.state.Damaged {
		l.logDamage(ctx)
	}
	if b.end != nil {
		l.end = b.end.Clone()
	}
	if !l.state.Damaged || b.end == nil {
		l.end.CatchUp(l.state)
	}
	l.endBad = b.endBad
	return nil
}

func (l *ledger) logDamage(ctx context.Context) {
	l.log.ErrorContext(ctx, "the ledger of costs is damaged, so that sums are too low; to see what is left, run "+
		"councild report spend verify; to accept the loss, run councild report spend "+
		"accept", "file", l.path, "problem", l.state.Problem())
}

// Append implements spend.Ledger. If synced is true, it returns when the lines are on disk. Lines whose write fails
// stay in memory, and the store tries again.
func (l *ledger) Append(ctx context.Context, synced bool, lines ...[]byte) error {
	l.mu.Lock()
	first := len(l.waiting) == 0
	l.waiting = append(l.waiting, lines...)
	if synced {
		wait, err := l.writeLocked()
		l.mu.Unlock()
		if err != nil {
			return err
		}
		return wait(ctx)
	}
	defer l.mu.Unlock()
	if first {
		ctx = context.WithoutCancel(ctx)
		l.writer.Go(func() {
			select {
			case <-time.After(gatherTime):
			case <-l.closed:
			}
			l.write(ctx)
		})
	}
	return nil
}

// writeLocked hands the waiting lines to the store, in their order.
func (l *ledger) writeLocked() (wait func(context.Context) error, err error) {
	lines := l.waiting
	l.waiting = nil
	return l.store.AppendLines(lines...)
}

// write writes the waiting lines and waits until they are on disk. It logs errors.
func (l *ledger) write(ctx context.Context) {
	l.mu.Lock()
	wait, err := l.writeLocked()
	l.mu.Unlock()
	if err == nil {
		err = wait(ctx)
	}
	if err != nil && ctx.Err() == nil {
		l.log.ErrorContext(ctx, "costs could not be written to the ledger yet", "error", err)
	}
}

// noteSynced notes lines that are on disk now, so that keepEnd adds these lines to the [spend.End] and writes its file.
// noteSynced does not write that file itself, because the store's writer calls noteSynced and must not wait. When the
// ledger is being closed, keepEnd has stopped, and noteSynced writes the file.
func (l *ledger) noteSynced(lines []byte) {
	l.endMu.Lock()
	l.synced = append(l.synced, lines)
	direct := l.direct
	l.endMu.Unlock()
	if direct {
		l.writeEnd(context.Background())
		return
	}
	select {
	case l.ended <- struct{}{}:
	default: // keepEnd has not yet seen the last signal
	}
}

// keepEnd runs until the ledger is closed. When new lines are on disk, it writes the end to its file, at most once in
// endInterval.
func (l *ledger) keepEnd(ctx context.Context) {
	for {
		select {
		case <-l.ended:
		case <-l.closed:
			return
		}
		l.writeEnd(ctx)
		l.lookAgain(ctx)
		select {
		case <-time.After(endInterval):
		case <-l.closed:
			return
		}
	}
}

// writeEnd adds the lines on disk to the end, and writes the end to its file. It leaves a damaged file as it is
// until an operator accepts the loss.
func (l *ledger) writeEnd(ctx context.Context) {
	l.endFile.Lock()
	defer l.endFile.Unlock()
	l.endMu.Lock()
	synced := l.synced
	l.synced = nil
	l.endMu.Unlock()
	tally := spend.Tally(synced...)
	l.endMu.Lock()
	l.end.Add(tally)
	nothing := len(synced) == 0 && l.endErr == nil || l.endBad
	l.end.Written = time.Now().UTC()
	text := l.end.Text()
	before := l.endErr
	l.endMu.Unlock()
	if nothing {
		return
	}
	err := disk.Replace(l.disk, endOf(l.path), text)
	l.endMu.Lock()
	l.endErr = err
	l.endMu.Unlock()
	if err != nil && before == nil {
		l.log.ErrorContext(ctx, "the length of the cost ledger could not be stored; until the next attempt "+
			"succeeds, nobody notices if lines are removed", "error", err)
	}
}

// lookAgain checks the ledger again after the store has found damage. Damage means that another program changed the
// file, or that the disk failed.
func (l *ledger) lookAgain(ctx context.Context) {
	damages := l.store.Damages()
	if damages == l.damages {
		return
	}
	l.damages = damages
	b := l.known()
	state, err := spend.Check(b.all(ctx), b.end)
	if err != nil {
		return // the log also says why lines cannot be written
	}
	l.endMu.Lock()
	defer l.endMu.Unlock()
	l.state = state
	if state.Damaged {
		l.logDamage(ctx)
	}
}

// known returns the ledger as a book with the current end, for code that reads the ledger.
func (l *ledger) known() book {
	l.endMu.Lock()
	defer l.endMu.Unlock()
	b := book{path: l.path, endBad: l.endBad}
	if !b.endBad {
		b.end = new(l.end.Clone())
	}
	return b
}

// replay adds the lines of the recent days to the accounts of the book.
func (l *ledger) replay(ctx context.Context, a *spend.Book) error {
	l.write(ctx)
	l.endMu.Lock()
	days := l.state.Recent
	l.endMu.Unlock()
	if err := a.Replay(ledgerLines(ctx, l.path), days); err != nil {
		return fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	}
	return nil
}

// report returns what sessions cost. It writes the waiting lines first, because the sessions of these lines have ended
// and belong in the report.
func (l *ledger) report(ctx context.Context, a *spend.Book, q spend.Query) (spend.Costs, error) {
	l.write(ctx)
	b := l.known()
	r, err := spend.ReadReport(b.all(ctx), b.end, a, q, time.Now())
	if err == nil {
		l.endMu.Lock()
		l.state = *r.Ledger
		l.endMu.Unlock()
	}
	return r, err
}

// notReady returns the problems of the ledger that /readyz reports.
func (l *ledger) notReady() (reasons []httpapi.Reason) {
	if err := l.store.Healthy(); err != nil {
		message := "costs could not be written to the ledger, and wait for the next attempt; the log says why"
		if errno, ok := errors.AsType[syscall.Errno](err); ok { // its text holds no path
			message = "costs could not be written to the ledger, and wait for the next attempt: " + errno.Error()
		}
		if l.required {
			message += "; no daily limit can hold without the ledger, so sessions are refused"
		}
		reasons = append(reasons, httpapi.Reason{Code: "ledger", Bearable: !l.required, Message: message})
	}
	l.endMu.Lock()
	defer l.endMu.Unlock()
	if l.state.Damaged {
		reasons = append(reasons, httpapi.Reason{
			Code: "ledger_damaged", Bearable: true,
			Message: "cost sums are too low: " + l.state.Problem() + "; councild report spend verify shows what is " +
				"left",
		})
	}
	return reasons
}

// Close implements CommandLedger.
func (l *ledger) Close(ctx context.Context) error {
	close(l.closed)
	l.writer.Wait()
	l.endMu.Lock()
	l.direct = true
	l.endMu.Unlock()
	l.writeEnd(ctx)
	return l.store.Close()
}

// CommandLedger is the ledger of a command that runs councils without a daemon.
type CommandLedger interface {
	spend.Ledger
	// Close writes the waiting lines and releases the ledger.
	Close(ctx context.Context) error
}

// OpenLedger opens the ledger of the settings for a command. It returns nil if the cost is not kept. If another
// process has the ledger open, the error is a *store.HeldError.
func OpenLedger(ctx context.Context, cfg config.Config, log *slog.Logger) (CommandLedger, error) {
	l, err := openLedger(ctx, cfg, nil, log)
	if l == nil { // a nil *ledger would not be nil as an interface
		return nil, err
	}
	return l, nil
}

// ReadLedger returns the ledger of the settings for a command that asks no model. It reads the file and never
// writes to it, so that another process may have it open. It returns nil if no daily limit needs the ledger.
func ReadLedger(cfg config.Config) spend.Ledger {
	path, _ := cfg.SpendFile()
	if path == "" || !cfg.HasDayLimit() {
		return nil
	}
	return readLedger(path)
}

// readLedger is the path of a ledger that is only read. Append drops the lines that it gets.
type readLedger string

// Append implements spend.Ledger.
func (readLedger) Append(context.Context, bool, ...[]byte) error { return nil }

// replay adds the lines of the recent days to the accounts of the book.
func (l readLedger) replay(ctx context.Context, a *spend.Book) error {
	lines := ledgerLines(ctx, string(l))
	state, err := spend.Check(lines, nil)
	if err == nil {
		err = a.Replay(lines, state.Recent)
	}
	return err
}

// endOf returns the path of the file that holds the end of the ledger at path.
func endOf(path string) string { return store.Resolve(path) + ".end" }

// book is a ledger to read. Its end is read before its lines, because otherwise the end could count lines that were
// added after the lines were read.
type book struct {
	path   string
	end    *spend.End // nil if the file of the end is missing or damaged
	endBad bool       // the file of the end is damaged
}

// openBook reads the end of the ledger at path. The method all reads the lines.
func openBook(path string) (book, error) {
	b := book{path: path}
	f, err := disk.OpenRegular(endOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("the end of the ledger: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEndFile))
	if err != nil {
		return b, fmt.Errorf("the end of the ledger: %w", err)
	}
	end, err := spend.ParseEnd(text)
	if err != nil {
		b.endBad = true
		return b, nil
	}
	b.end = &end
	return b, nil
}

// all returns the lines of the ledger. A damaged file of the end counts as one unreadable line.
func (b book) all(ctx context.Context) spend.Lines {
	lines := ledgerLines(ctx, b.path)
	if !b.endBad {
		return lines
	}
	return func(yield func(spend.Line, error) bool) {
		if yield(spend.Line{}, &spend.Damage{File: filepath.Base(endOf(b.path)), Line: 1, Reason: spend.ReasonChecksum}) {
			lines(yield)
		}
	}
}

// ledgerLines returns the lines of the ledger at path. It returns no lines if there is no file. Every reader of a
// ledger uses it.
func ledgerLines(ctx context.Context, path string) spend.Lines {
	parse := func(text []byte) (spend.Line, error) {
		line, err := spend.ParseLine(text)
		if d, bad := errors.AsType[*spend.Damage](err); bad {
			err = &store.LineError{Reason: store.Reason(d.Reason)}
		}
		return line, err
	}
	return func(yield func(spend.Line, error) bool) {
		for line, err := range store.LinesAs(ctx, path, parse) {
			if errors.Is(err, fs.ErrNotExist) {
				return
			}
			if bad, ok := errors.AsType[*store.LineError](err); ok {
				err = &spend.Damage{File: bad.File, Line: bad.Line, Reason: string(bad.Reason)}
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Spend reads the report on the cost of sessions from the ledger at path. The report counts all that running sessions
// have reserved as uncertain cost.
func Spend(ctx context.Context, path string, q spend.Query) (spend.Costs, error) {
	b, err := openBook(path)
	if err != nil {
		return spend.Costs{}, err
	}
	return spend.ReadReport(b.all(ctx), b.end, nil, q, time.Now())
}

// AcceptLedger writes down that an operator accepts the damage of the ledger at path, and returns that damage. If a
// daemon has the ledger open, the error is a *store.HeldError.
func AcceptLedger(ctx context.Context, path string, log *slog.Logger) (spend.State, error) {
	if _, err := os.Lstat(endOf(path)); errors.Is(err, fs.ErrNotExist) {
		if err := store.Find(path); err != nil {
			return spend.State{}, fmt.Errorf("there is no ledger of costs: %w", err)
		}
	}
	s, _, err := store.Open(store.Options{Path: path, Log: log}) //nolint:contextcheck // a store lives until it is closed
	if err != nil {
		return spend.State{}, err
	}
	state, err := acceptLoss(ctx, path)
	return state, errors.Join(err, s.Close())
}

func acceptLoss(ctx context.Context, path string) (spend.State, error) {
	b, err := openBook(path)
	if err != nil {
		return spend.State{}, err
	}
	state, err := spend.Check(b.all(ctx), b.end)
	if err != nil || !state.Damaged {
		return state, err
	}
	var end spend.End
	if b.end != nil {
		end = *b.end
	}
	now := time.Now()
	end.Accept(state, now)
	end.Written = now.UTC()
	return state, disk.Replace(disk.OS{}, endOf(path), end.Text())
}
