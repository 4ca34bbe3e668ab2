// Package sessions keeps sessions while they run and for some time afterwards: what is
// known of each and its log. It leaves running them to the pipeline, and the form in
// which a client sees a log, such as server-sent events, to the front doors.
//
// The log of a session is an ordered list. It is read as events, of the types that
// the run reported, or as entries, whose data is JSON. Sessions and idempotency keys
// belong to the owner that made them.
//
// Sessions that somebody can come back to, those in the background and those with an
// idempotency key, are kept in a journal, where there is one. Their entries are shown
// when they are stored, text on its way as it comes. Another process goes on with
// them. All others are in memory: an event is encoded once, when an entry is first
// asked for, and all readers share the bytes. A second after its end a session is held as
// JSON alone, and decoded where a reader needs more.
//
// # Decisions
//
// One log for all watchers. An event is encoded when it is first asked for, and all watchers share its JSON; each
// front door frames it. A watcher that waits has no buffer of its own; one that does not read is cut off after 30 s.
//
// A lease says when to try, and the log who wins. A node counts as dead when its key has not changed for LEASE, by the
// clock of a node whose own lease was confirmed all the while. The clocks of two nodes are never compared.
//
// Old sessions are deleted whole, by us. Limits of a stream would cut single messages out of a log. The stream
// therefore refuses what does not fit, and nodes delete the logs of ended sessions, the oldest first. Any node may do
// so.
//
// A side request leaves no session. A chat program sends several with each turn. Kept, they would push its history
// out.
package sessions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

// ErrDeleted is the cause with which a session is cancelled that is to be deleted.
var ErrDeleted = errors.New("cancelled by DELETE")

// Owner tells apart whose sessions are whose: 16 hexadecimal digits that stand for a
// bearer token or its name, or "" where none is asked for.
type Owner string

// Options limit what is kept of finished sessions. The oldest go first. The sessions in
// the journal and those in memory each have all of the limits.
type Options struct {
	Retention time.Duration // how long
	Kept      int           // how many
	KeptBytes int64         // how much: logs and bodies
	// Journal is where sessions are kept that outlive their client; nil: in memory. The
	// Store does not close it.
	Journal *journal.Journal
	Node    string // of this process, in the journal
	// Lease is the silence after which another node counts as dead; 0: there are no others.
	Lease time.Duration
	Log   *slog.Logger // required with a Journal
	// Prompts are the versions of the prompts of this process, which says them to the other
	// nodes (journal.Options). Needs returns those that a session needs to be gone on with:
	// nodes that have them come first. Required with a Lease.
	Prompts []string
	Needs   func(council.Plan, []council.Stage) []string
	Waits   Waits // the zero value stands for DefaultWaits
}

// Store keeps sessions until Close. It is safe for concurrent use.
type Store struct {
	o       Options
	stop    context.CancelFunc // ends all below
	keepers sync.WaitGroup
	plain   chan plain    // ends of sessions in memory, to be stored for other nodes
	tidy    chan struct{} // holds a token when a session in the journal has ended

	runner   Runner        // set by Resume
	claiming sync.Mutex    // held while a session is claimed: a claim of this process must not be taken for another
	refusals chan struct{} // It holds a token if sessions in refused wait for their removal.

	mu       sync.Mutex          // guards all below; taken after a session's own, never before it
	sessions map[string]*Session // by id
	keys     map[key]*Session
	followed map[journal.ID]*follower // sessions of other nodes that are watched here
	finished []*Session               // in the order in which they ended
	bytes    int64                    // of finished
	replays  []*replay                // in the order in which they were noted
	refused  map[journal.ID]refusal   // what is to be removed from the journal
	expiry   *time.Timer              // for the oldest of finished
	closed   bool
	ctx      context.Context // of the keepers
}

type key struct {
	owner Owner
	key   string
}

// hash returns what stands for the key in the journal.
func (k key) hash() string {
	if k.key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(string(k.owner) + "\n" + k.key))
	return hex.EncodeToString(sum[:])
}

// New returns a Store.
func New(o Options) *Store {
	o.Waits = cmp.Or(o.Waits, DefaultWaits())
	st := &Store{
		o:        o,
		sessions: map[string]*Session{},
		keys:     map[key]*Session{},
		followed: map[journal.ID]*follower{},
		tidy:     make(chan struct{}, 1),
		plain:    make(chan plain, maxPlain),
		refusals: make(chan struct{}, 1),
		refused:  map[journal.ID]refusal{},
	}
	st.ctx, st.stop = context.WithCancel(context.Background())
	st.expiry = time.AfterFunc(math.MaxInt64, st.evict) // never, before a session has ended
	if o.Journal != nil {
		st.keepers.Go(func() { st.retain(st.ctx) })
		st.keepers.Go(func() { st.forgetRefused(st.ctx) })
	}
	if o.Lease > 0 {
		st.keepers.Go(func() { st.hearOthers(st.ctx) })
		st.keepers.Go(func() { st.storeLast(st.ctx) })
	}
	return st
}

// Add takes in a session that starts. Where the owner has given its key before,
// it returns the session of that time instead, and false. A session that is to be kept
// is stored before Add returns; the error is a *council.Error when it cannot be.
func (st *Store) Add(ctx context.Context, start Start) (s *Session, added bool, err error) {
	for {
		s = st.newSession(start)
		old := st.insert(s)
		if old == nil {
			break
		}
		if old, err := old.there(ctx); old != nil || err != nil {
			return old, false, err
		}
	}
	if s.begun == nil {
		return s, true, nil
	}
	defer close(s.begun)
	// A client that leaves now leaves a session behind, and not half of one.
	if other, err := st.begin(context.WithoutCancel(ctx), s, start); other != "" || err != nil {
		s.refused = true
		st.remove(s)
		old, err := st.holder(ctx, start.Owner, other, err)
		return old, false, err
	}
	return s, true, nil
}

// unavailable returns what a client is told of an error of the journal.
func unavailable(err error, detail string) error {
	return &council.Error{Code: council.CodeUnavailable, RetryAfter: 5 * time.Second, Cause: err, Detail: detail}
}

// insert puts a session into the maps, unless the key of its owner has one, which is
// returned.
func (st *Store) insert(s *Session) (old *Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	if old := st.keys[s.key]; old != nil {
		return old
	}
	st.sessions[s.ID] = s
	if s.key.key != "" {
		st.keys[s.key] = s
	}
	return nil
}

func (st *Store) remove(s *Session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.sessions, s.ID)
	if st.keys[s.key] == s {
		delete(st.keys, s.key)
	}
}

// disown forgets a session that another node has. Its log stays.
func (st *Store) disown(s *Session) {
	st.mu.Lock()
	s.keeper.whole = true
	if i := slices.Index(st.finished, s); i >= 0 {
		st.forgetLocked(i, i+1)
	}
	st.mu.Unlock()
	st.remove(s)
}

// there waits until it is known whether a session could begin, and returns it, or nil.
func (s *Session) there(ctx context.Context) (*Session, error) {
	if s.begun == nil {
		return s, nil
	}
	select {
	case <-s.begun:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.refused {
		return nil, nil
	}
	return s, nil
}

// beginning reports whether it is not known yet whether a session can begin.
func (s *Session) beginning() bool {
	if s.begun == nil {
		return false
	}
	select {
	case <-s.begun:
		return false
	default:
		return true
	}
}

// newSession returns the session of a start, which is in no list yet.
func (st *Store) newSession(start Start) *Session {
	k := key{start.Owner, start.Key}
	s := &Session{
		origin: origin{
			Digest:     start.Digest,
			Created:    start.Plan.Created,
			key:        k,
			background: start.Background || k.key != "",
			side:       start.Plan.Side,
			repeat:     start.Repeat,
			request:    start.Plan.Request(),
			council:    start.Plan.Council(),
		},
		ID:      start.Plan.SessionID,
		store:   st,
		done:    make(chan struct{}),
		session: start.Plan.Session(),
		status:  council.StatusRunning,
		cancel:  start.Cancel,
	}
	switch {
	case s.side: // it is in memory, and in no history
	case s.background && st.o.Journal != nil:
		s.begun = make(chan struct{})
	case st.o.Lease > 0:
		s.plan = &start.Plan
	}
	return s
}

// holder returns the session that has the Idempotency-Key of one that could not begin. It fails where the session failed
// to begin for another reason, which is err.
func (st *Store) holder(ctx context.Context, owner Owner, id string, err error) (old *Session, _ error) {
	if err == nil {
		if old, err = st.readLog(ctx, journal.ID{Owner: string(owner), Session: id}); old == nil && err == nil {
			err = errors.New("the session of the Idempotency-Key is being deleted")
		}
	}
	if err == nil {
		return old, nil
	}
	detail := "the session cannot be stored, and might be lost: " +
		"try again later, or ask in the foreground and without an Idempotency-Key"
	if errors.Is(err, errNotBegun) {
		detail = "the session of this Idempotency-Key has not begun yet: try again later"
	}
	return old, unavailable(err, detail)
}

// begin stores the head of a session's log, which makes it a kept one. Where its key
// belongs to another session in the journal, that one's id is returned.
func (st *Store) begin(ctx context.Context, s *Session, start Start) (other string, err error) {
	j := st.o.Journal
	switch {
	case j.Full():
		return "", errors.New("the store of sessions is full")
	case !st.fresh() && !j.Confirmed().IsZero(): // it is zero just after the start
		return "", errors.New("the lease of this node is not confirmed: its sessions could not begin a call")
	}
	wait := st.o.Waits.Append
	if st.o.Lease > 0 {
		wait = st.o.Lease * 2 / 3 // by then an election is over, or the lease is not confirmed any more
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var reserved time.Time
	var mine journal.Reservation
	if s.key.key != "" {
		if other, mine, reserved, err = st.reserve(ctx, s); other != "" || err != nil {
			return other, err
		}
	}
	data, err := json.Marshal(runlog.NewAccepted(start.Plan, start.Digest[:], start.Background))
	if err != nil {
		return "", fmt.Errorf("encoding the plan: %w", err)
	}
	k := st.newKeeper(s, journal.Head{
		Node:    st.o.Node,
		Epoch:   1,
		Created: s.Created,
		Query:   start.Plan.Preview(),
		Key:     s.key.hash(),
		Council: start.Plan.Council(),
		Timeout: start.Plan.Timeout,
	})
	m := journal.Message{Head: k.head, First: 1, Entries: []council.Entry{{Type: runlog.TypeAccepted, Data: data}}}
	m.Status = council.StatusRunning
	m.Bytes = int64(len(data))
	k.seq, err = j.Append(ctx, k.id, 0, m)
	if err == nil && k.head.Key != "" && st.o.Lease > 0 && time.Since(reserved) > st.keyWait()/2 {
		err = st.confirmKey(ctx, k.head.Key, mine)
	}
	if err != nil {
		st.refuse(context.WithoutCancel(ctx), k.refusal())
		return "", err
	}
	k.number = 1
	k.head.Bytes = m.Bytes
	s.keeper = k
	st.keep(k) //nolint:contextcheck // a keeper lives until the store is closed
	return "", nil
}

// refusal is a session that could not begin, or that ended without its log and is
// forgotten.
type refusal struct {
	id    journal.ID
	key   string // of its owner, "" for none
	epoch int    // in which it was this node's
}

func (k *keeper) refusal() refusal { return refusal{k.id, k.head.Key, k.head.Epoch} }

// maxRefused is how many refused sessions wait for being deleted.
const maxRefused = 1024

// refuse removes a session that could not begin. Its head may be stored all the same, or still
// be on its way to the journal.
func (st *Store) refuse(ctx context.Context, r refusal) {
	st.mu.Lock()
	st.forgetLaterLocked(r)
	st.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = st.forget(ctx, r) // otherwise it is tried again
}

// forgetLaterLocked has what is stored of a session removed as soon as the journal answers.
func (st *Store) forgetLaterLocked(r refusal) {
	if len(st.refused) >= maxRefused {
		st.o.Log.Error("too much is to be deleted at once: a session may run again", "session_id", r.id.Session)
		return
	}
	st.refused[r.id] = r
	select {
	case st.refusals <- struct{}{}:
	default:
	}
}

// forget removes what may be stored of a session, and frees its key, unless another node has appended to its log.
func (st *Store) forget(ctx context.Context, r refusal) error {
	gone, err := st.o.Journal.Remove(ctx, r.id, r.key, func(last *journal.Stored) bool {
		return last.Epoch == r.epoch && (last.Node == st.o.Node || asksToCancel(last))
	})
	if err != nil {
		return err
	}
	if !gone {
		st.o.Log.InfoContext(ctx, "a session that this node gave up stays: another node has it",
			"session_id", r.id.Session)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.refused, r.id)
	return nil
}

// forgetRefused deletes refused sessions as soon as the journal answers, until ctx ends.
func (st *Store) forgetRefused(ctx context.Context) {
	for {
		select {
		case <-st.refusals:
		case <-ctx.Done():
			return
		}
		for {
			st.mu.Lock()
			waiting := slices.Collect(maps.Values(st.refused))
			st.mu.Unlock()
			if len(waiting) == 0 {
				break
			}
			for _, r := range waiting {
				if st.forget(ctx, r) == nil {
					continue
				}
				select {
				case <-time.After(st.o.Waits.Look):
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// keyWait is how long a key without a session is waited for on a cluster: the node
// that reserved it may be storing the session. That node gives up after half of it.
func (st *Store) keyWait() time.Duration { return st.o.Lease / 3 }

// confirmKey fails where another node may have given the key of a stored session away. Where none has, taking the
// key once more keeps other nodes from doing so: the session can already be found.
func (st *Store) confirmKey(ctx context.Context, hash string, mine journal.Reservation) error {
	_, still, err := st.o.Journal.TakeOver(ctx, hash, mine, mine)
	if err == nil && still {
		return nil
	}
	return errors.Join(errors.New("storing it took too long: another node may have given its Idempotency-Key away"),
		err)
}

// reserve gives a session the key of its owner, from the time since on. Where another
// session in the journal has it, that one's id is returned. A process that died may have
// left a key without a session.
func (st *Store) reserve(
	ctx context.Context, s *Session,
) (other string, held journal.Reservation, since time.Time, err error) {
	mine := journal.Reservation{Session: s.ID, Digest: s.Digest}
	var by string      // session that has the key
	var seen time.Time // when that was first seen
	for {
		since = time.Now()
		held, ok, err := st.o.Journal.Reserve(ctx, s.key.hash(), mine)
		if ok || err != nil {
			return "", held, since, err
		}
		id := journal.ID{Owner: string(s.key.owner), Session: held.Session}
		p, err := st.load(ctx, id)
		if err != nil || p != nil && (p.begun() || st.o.Lease == 0) {
			return held.Session, held, since, err
		}
		if held.Session != by { // also one that has taken it from another
			by = held.Session
			seen = time.Now()
		}
		if late := st.o.Lease == 0 || time.Since(seen) > st.keyWait(); late && p != nil {
			if err := st.beginOther(ctx, id); err != nil {
				return "", held, since, err
			}
		} else if late {
			since = time.Now()
			held, err = st.takeKey(ctx, s, held, mine)
			return "", held, since, err
		}
		st.awaitChange(st.keyWait() / 6)
	}
}

// awaitChange waits until the journal has changed, but no longer than a time.
func (st *Store) awaitChange(atMost time.Duration) {
	select {
	case <-st.o.Journal.Changed():
	case <-time.After(atMost):
	}
}

// takeKey gives a session its key, which a reservation without a session has.
func (st *Store) takeKey(ctx context.Context, s *Session, held, mine journal.Reservation) (journal.Reservation, error) {
	held, ok, err := st.o.Journal.TakeOver(ctx, s.key.hash(), held, mine)
	if !ok && err == nil {
		err = errors.New("another request with the Idempotency-Key came at the same time")
	}
	return held, err
}

// beginOther begins the session of a key in place of the node that stored its head and nothing since. That node makes no
// call before it has stored more, so no call is paid twice.
func (st *Store) beginOther(ctx context.Context, id journal.ID) error {
	if st.runner.Place == nil {
		return errNotBegun
	}
	placed, err := st.goOn(ctx, id, st.runner, func(p *past) bool { return !p.begun() && st.reads(p, st.o.Prompts) })
	if _, moved := errors.AsType[*journal.Moved](err); moved || err == nil && placed {
		return nil // the log says now who has it
	}
	return errors.Join(errNotBegun, err)
}

var errNotBegun = errors.New("the node that stored the session of the Idempotency-Key has not begun it")

func (st *Store) newKeeper(s *Session, head journal.Head) *keeper {
	k := &keeper{
		s: s, id: journal.ID{Owner: string(s.key.owner), Session: s.ID}, head: head,
		wake: make(chan struct{}, 1), foreign: make(chan struct{}, 1),
		owned: time.Now(), // what makes the session this node's is stored later
	}
	k.log = &runlog.Log{State: &runlog.State{}, Stored: k.stored, MayCall: k.mayCall, Calling: k.calling}
	return k
}

// keep has a keeper store what comes.
func (st *Store) keep(k *keeper) {
	ctx, stop := context.WithCancel(st.ctx) // not that of a request: a log is stored until the store is closed
	k.stop = stop
	st.keepers.Go(func() {
		defer stop()
		k.run(ctx)
	})
}

// Get returns the owner's session with an id, or nil.
func (st *Store) Get(ctx context.Context, owner Owner, id string) (*Session, error) {
	st.mu.Lock()
	st.evictLocked()
	s := st.sessions[id]
	st.mu.Unlock()
	if s != nil {
		if s.key.owner != owner {
			return nil, nil
		}
		return s.there(ctx)
	}
	return st.read(ctx, journal.ID{Owner: string(owner), Session: id})
}

// Find returns the session for which the owner gave an idempotency key, or nil.
func (st *Store) Find(ctx context.Context, owner Owner, k string) (*Session, error) {
	if k == "" {
		return nil, nil
	}
	st.mu.Lock()
	st.evictLocked()
	s := st.keys[key{owner, k}]
	st.mu.Unlock()
	if s != nil {
		return s.there(ctx)
	}
	if st.o.Journal == nil {
		return nil, nil
	}
	row, ok := st.o.Journal.Keyed(key{owner, k}.hash())
	if !ok || st.o.Lease > 0 && row.Status == council.StatusRunning && row.Entries <= 1 {
		return nil, nil // its node may still refuse it: Add decides
	}
	return st.read(ctx, row.ID)
}

// List returns the owner's sessions, the newest first.
func (st *Store) List(owner Owner) []council.Summary {
	list := []council.Summary{}
	here := map[string]bool{}
	for _, s := range st.all() {
		if s.key.owner == owner && !s.side {
			list = append(list, s.Summary())
			here[s.ID] = true
		}
	}
	if st.o.Journal != nil {
		rows := st.o.Journal.Rows(string(owner))
		list = slices.Grow(list, len(rows))
		for _, row := range rows {
			if !here[row.Session] {
				list = append(list, council.Summary{
					ID:         row.Session,
					Status:     row.Status,
					Created:    row.Created,
					Query:      row.Query,
					CostUSD:    row.CostUSD,
					DurationMS: took(row.Timing),
				})
			}
		}
	}
	slices.SortFunc(list, func(a, b council.Summary) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID, a.ID))
	})
	return list
}

// took returns how long a session took, nil where it is not known.
func took(t council.Timing) *float64 {
	if t.TotalMS == 0 {
		return nil
	}
	return &t.TotalMS
}

// Spent is what one session took.
type Spent struct {
	Created time.Time
	Timing  council.Timing
	CostUSD *float64 // nil where it is not known
}

// Lately returns what the newest sessions of a council took, at most n of those that are
// known here, of all owners, and that ended with an answer: the newest first. Of those in
// the journal it takes the ones that ended last.
func (st *Store) Lately(name string, n int) []Spent {
	list := []Spent{}
	here := map[string]bool{}
	answered := func(status council.Status) bool {
		return status == council.StatusComplete || status == council.StatusDegraded
	}
	for _, s := range st.all() {
		s.mu.Lock()
		if s.council == name {
			here[s.ID] = true
			if answered(s.status) {
				list = append(list, Spent{s.Created, s.session.Metadata.Timing, s.session.Metadata.Usage.CostUSD})
			}
		}
		s.mu.Unlock()
	}
	if st.o.Journal != nil {
		wanted := func(row *journal.IndexRow) bool {
			return row.Council == name && answered(row.Status) && !here[row.Session]
		}
		for _, row := range st.o.Journal.Newest(n, wanted) {
			list = append(list, Spent{row.Created, row.Timing, row.CostUSD})
		}
	}
	slices.SortFunc(list, func(a, b Spent) int { return b.Created.Compare(a.Created) })
	return list[:min(n, len(list))]
}

// Delete forgets a session that has ended, and its idempotency key. It does nothing to
// one that runs or is forgotten already.
func (st *Store) Delete(ctx context.Context, s *Session) error {
	if s.Summary().Status == council.StatusRunning {
		return nil
	}
	if s.keeper == nil && st.o.Lease > 0 { // its end may still wait for being stored
		ctx, cancel := context.WithTimeout(ctx, st.o.Waits.Append)
		defer cancel()
		if err := st.storedLast(ctx); err != nil {
			return err
		}
	}
	st.mu.Lock()
	if i := slices.Index(st.finished, s); i >= 0 {
		st.forgetLocked(i, i+1)
	}
	st.mu.Unlock()
	if s.keeper == nil && st.o.Lease == 0 {
		return nil
	}
	kept := ""
	if s.keeper != nil {
		kept = s.keeper.head.Key
	}
	id := journal.ID{Owner: string(s.key.owner), Session: s.ID}
	_, err := st.o.Journal.Remove(ctx, id, kept, func(*journal.Stored) bool { return true })
	return err
}

// Cancel cancels every session that runs, and hands over those that are kept.
func (st *Store) Cancel(cause error) {
	for _, s := range st.all() {
		if s.keeper != nil {
			s.release()
		}
		s.Cancel(cause)
	}
	st.mu.Lock()
	followed := slices.Collect(maps.Values(st.followed))
	st.mu.Unlock()
	for _, f := range followed {
		f.stop()
	}
}

func (st *Store) all() []*Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
	all := slices.Collect(maps.Values(st.sessions))
	return slices.DeleteFunc(all, (*Session).beginning)
}

// ended makes room for a session that is over.
func (st *Store) ended(s *Session) {
	if k := s.keeper; k != nil && !k.open {
		return
	}
	if s.side && s.key.key == "" && s.failure == nil {
		st.remove(s) // a chat has several for each turn, which would push its history out
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.finished = append(st.finished, s)
	st.bytes += s.size
	st.evictLocked()
}

// forgetStored forgets a session that is stored to its end. A watcher reads on.
func (st *Store) forgetStored(s *Session) {
	if s.keeper.open {
		st.mu.Lock()
		s.keeper.whole = true
		st.mu.Unlock()
		st.o.Log.Info("the log of a session that went on without it is stored to its end", "session_id", s.ID)
	} else {
		st.remove(s)
	}
	select {
	case st.tidy <- struct{}{}:
	default:
	}
}

// Close forgets the finished sessions, and keeps none that ends later. It waits, as long
// as ctx does, until what is to be stored is stored.
func (st *Store) Close(ctx context.Context) {
	st.mu.Lock()
	again := st.closed
	st.closed = true
	st.evictLocked()
	st.mu.Unlock()
	for _, s := range st.all() {
		if s.keeper != nil {
			s.keeper.stored(ctx)
		}
	}
	if st.o.Lease > 0 && !again {
		_ = st.storedLast(ctx) // further ends are lost to other nodes
	}
	st.stop()
	st.keepers.Wait()
}

// evict forgets the sessions whose time is over. Their memory is not to wait for the
// next request.
func (st *Store) evict() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
}

// evictLocked forgets the finished sessions that are beyond a limit, and has the next
// one forgotten when its time is over.
func (st *Store) evictLocked() {
	n := 0
	bytes := st.bytes
	for _, s := range st.finished {
		if !st.closed && len(st.finished)-n <= st.o.Kept && bytes <= st.o.KeptBytes &&
			time.Since(s.ended) < st.o.Retention {
			break
		}
		n++
		bytes -= s.size
	}
	st.forgetLocked(0, n)
	st.expiry.Stop()
	if len(st.finished) > 0 {
		st.expiry.Reset(time.Until(st.finished[0].ended.Add(st.o.Retention)))
	}
}

// forgetLocked forgets the finished sessions from one index up to another.
func (st *Store) forgetLocked(from, to int) {
	for _, s := range st.finished[from:to] {
		st.bytes -= s.size
		delete(st.sessions, s.ID)
		delete(st.keys, s.key)
		if k := s.keeper; k != nil {
			k.stop()
			if !k.whole && !st.closed {
				st.forgetLaterLocked(k.refusal()) // nobody is to run it again
			}
		}
	}
	st.finished = slices.Delete(st.finished, from, to)
}

// retain deletes what is beyond the limits from the journal, until ctx ends.
func (st *Store) retain(ctx context.Context) {
	for {
		next := st.purge(ctx)
		select {
		case <-st.tidy:
		case <-time.After(next):
		case <-ctx.Done():
			return
		}
	}
}

// purge deletes the ended sessions that are beyond a limit, and returns after what time
// the next one is.
func (st *Store) purge(ctx context.Context) time.Duration {
	const longest = time.Minute
	for tried := (journal.IndexRow{}); ; {
		oldest, sessions, bytes := st.o.Journal.Oldest()
		age := st.o.Journal.Now().Sub(oldest.At)
		switch {
		case sessions == 0:
			return longest
		case sessions <= st.o.Kept && bytes <= st.o.KeptBytes && age < st.o.Retention:
			return min(longest, st.o.Retention-age)
		case oldest.ID == tried.ID && oldest.Seq == tried.Seq:
			return time.Second // another process deleted it, and this one is yet to hear of that
		}
		if err := st.o.Journal.Purge(ctx, oldest.ID); err != nil {
			st.o.Log.WarnContext(ctx, "a session whose time is over could not be deleted",
				"session_id", oldest.Session, "error", err)
			return longest
		}
		tried = oldest
	}
}

// encoder encodes one value after the other. Its zero value is ready.
type encoder struct {
	json *json.Encoder
	out  []byte // of the value that is being encoded
}

// encode returns v as JSON with a line break behind it. A panic becomes an error:
// what is encoded comes from a run, but the locks and the goroutine do not.
func (e *encoder) encode(v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while encoding: %v", p)
		}
	}()
	if e.json == nil {
		e.json = json.NewEncoder(e)
		e.json.SetEscapeHTML(false)
	}
	e.out = nil
	err = e.json.Encode(v)
	return e.out, err
}

// Write takes what the json.Encoder made. That writes a value at once, so that data
// of encode has no room for more.
func (e *encoder) Write(p []byte) (int, error) {
	e.out = append(e.out, p...)
	return len(p), nil
}
