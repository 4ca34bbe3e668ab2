// Package sessions keeps sessions while they run and for some time afterwards. For each session it keeps the state and
// the log. The pipeline runs the sessions, and each front door (a package that serves an API) decides in which form a
// client sees a log, such as server-sent events.
//
// The log of a session is an ordered list. A reader can get it as events, whose data are Go values, or as entries,
// whose data is JSON. Sessions and idempotency keys belong to the owner that made them.
//
// A client can come back to a session that runs in the background or has an idempotency key. If there is a journal, it
// stores the logs of these sessions, and another process can continue them. Clients see an entry of such a log only
// after the journal has stored it. They see the text that a model is still writing before it is stored. All other
// sessions are only in memory. Their events are encoded when a reader first asks for entries, and all readers share
// the JSON. A second after its end, a session in memory is reduced to its JSON. The JSON is decoded when a reader
// needs the Go values.
//
// # Decisions
//
// All watchers of a session read the same log. An event is encoded when a watcher first asks for it, and all watchers
// share its JSON. Each front door adds the framing of its protocol. A watcher that waits has no buffer of its own. A
// watcher that does not read is disconnected after 30 s.
//
// In a cluster, a lease decides when a node may try to take a session over, and the log of the session decides which
// node becomes its owner. Each node renews a key of its own. A node counts as dead for another node when its key has
// not changed for the time of a lease. The other node measures this time with its own clock, and only while its own
// lease is confirmed. The clocks of two nodes are never compared.
//
// The nodes delete an old session as a whole. A stream that enforces its own limits would delete single messages of a
// log instead. The stream therefore refuses a message that does not fit, and the nodes delete the logs of ended
// sessions, the oldest first. Any node may do so.
//
// A side request, such as for the title of a chat, leaves no session in the history. A chat program sends several side
// requests with each turn. If their sessions were kept, they would push the other sessions out of the history.
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
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/sessions/journal"
)

// ErrDeleted is the cause with which a session is cancelled when its owner deletes it.
var ErrDeleted = errors.New("cancelled by DELETE")

// Owner says to whom a session belongs. It is 16 hexadecimal digits that stand for a bearer token or for the name
// of one. It is "" if the daemon asks for no token.
type Owner string

// Options limit which finished sessions are kept. The oldest are deleted first. The limits hold for the sessions in the
// journal, and separately for the sessions in memory.
type Options struct {
	// Retention is how long a session is kept after its end.
	Retention time.Duration
	// Kept is how many ended sessions are kept.
	Kept int
	// KeptBytes is how many bytes the logs and the bodies of ended sessions may take.
	KeptBytes int64
	// Journal keeps the sessions that outlive their client. If it is nil, these sessions are in memory too. The Store
	// does not close the Journal.
	Journal *journal.Journal
	// Node is the name of this process in the journal.
	Node string
	// Lease is how long another node must be silent to count as dead. It is 0 if there are no other nodes.
	Lease time.Duration
	Log   *slog.Logger // It is required with a Journal.
	// Prompts are the versions of the prompts that this process has. The other nodes learn them through the journal
	// (journal.Options). Needs returns the prompt versions that a node needs to continue a session. While a node that
	// has all of them is alive, only such nodes take the session over. Prompts and Needs are required with a Lease.
	Prompts []string
	Needs   func(council.Plan, []council.Stage) []string
	// Ending is called when a session that was started in the background ends, before clients can see the end. A session
	// can end more than once: if the process dies before the journal has stored the end, another process continues the
	// session. Ending must not change the session. It may be nil.
	Ending func(End)
	Waits  Waits // the zero value stands for DefaultWaits
}

// End says how a session ends.
type End struct {
	Owner   Owner
	Token   string // council.Plan.Token
	Session *council.Session
	Failure *council.Error // nil if there is a result
}

// Store keeps sessions until Close. It is safe for concurrent use.
type Store struct {
	o       Options
	stop    context.CancelFunc // ends ctx, and with it the keepers
	keepers sync.WaitGroup
	// plain is the queue of storeLast: ended sessions in memory whose end other nodes must be able to show.
	plain chan plain
	tidy  chan struct{} // holds a token when a session in the journal has ended

	runner Runner // set by Resume
	// claiming is held while this process makes itself the owner of a session, so that two of its goroutines do not
	// compete.
	claiming sync.Mutex
	renaming sync.Mutex    // held by Rename
	refusals chan struct{} // holds a token if sessions in refused wait for their removal

	// mu guards all fields below. A goroutine that also needs the mutex of a session locks that mutex first.
	mu       sync.Mutex
	sessions map[string]*Session // by id
	keys     map[key]*Session
	followed map[journal.ID]*follower // sessions of other nodes that clients watch here
	finished []*Session               // ended sessions in memory, in the order in which they ended
	bytes    int64                    // the size of all sessions in finished
	replays  []*replay                // in the order in which they were noted
	refused  map[journal.ID]refusal   // sessions that are still to be removed from the journal
	expiry   *time.Timer              // fires when the retention of the oldest finished session is over
	closed   bool
	ctx      context.Context // the context of the keepers
}

type key struct {
	owner Owner
	key   string
}

// hash returns the name of the key in the journal: a hash of the owner and the key. It returns "" if there is no
// key.
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

// Add adds a session that starts. If the owner has used the idempotency key before, Add returns the session of the
// earlier request instead, and added is false. If the journal keeps the session, the head of its log is stored before
// Add returns. If the head cannot be stored, the error is a *council.Error.
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
	// If the client leaves now, the session is still begun completely.
	if other, err := st.begin(context.WithoutCancel(ctx), s, start); other != "" || err != nil {
		s.refused = true
		st.remove(s)
		old, err := st.holder(ctx, start.Owner, other, err)
		return old, false, err
	}
	return s, true, nil
}

// unavailable returns the error that a client gets when the journal fails.
func unavailable(err error, detail string) error {
	return &council.Error{Code: council.CodeUnavailable, RetryAfter: 5 * time.Second, Cause: err, Detail: detail}
}

// insert puts a session into the maps. If the owner's key already has a session, insert returns that one and
// changes nothing.
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

// disown forgets a session that another node now owns. Its log stays in the journal.
func (st *Store) disown(s *Session) {
	st.mu.Lock()
	s.keeper.whole = true
	if i := slices.Index(st.finished, s); i >= 0 {
		st.forgetLocked(i, i+1)
	}
	st.mu.Unlock()
	st.remove(s)
}

// there waits until it is known whether a session could begin. It returns the session, or nil if the session could not
// begin.
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

// beginning reports whether it is still unknown if a session can begin.
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

// newSession returns the session for a start. It is not in the maps yet.
func (st *Store) newSession(start Start) *Session {
	k := key{start.Owner, start.Key}
	s := &Session{
		origin: origin{
			Digest:     start.Digest,
			Created:    start.Plan.Created,
			key:        k,
			background: start.Background || k.key != "",
			alone:      start.Background,
			token:      start.Plan.Token,
			side:       start.Plan.Side,
			repeat:     start.Repeat,
			request:    start.Plan.Request(),
			council:    start.Plan.Council(),
			listed:     listed(start.Plan),
			first:      first(start.Plan),
			door:       start.Plan.Door,
		},
		ID:      start.Plan.SessionID,
		store:   st,
		done:    make(chan struct{}),
		session: start.Plan.Session(),
		status:  council.StatusRunning,
		cancel:  start.Cancel,
	}
	switch {
	case s.side: // it stays in memory, and no history lists it
	case s.background && st.o.Journal != nil:
		s.begun = make(chan struct{})
	case st.o.Lease > 0:
		s.plan = &start.Plan
	}
	return s
}

// first returns a plan for Session.First.
func first(plan council.Plan) *council.Plan {
	if plan.First == 0 {
		return nil
	}
	return &plan
}

// holder returns what Add answers when a session could not begin. If err is nil, another session has the
// Idempotency-Key, and holder returns that session, whose id is the argument id. Otherwise err is the reason, and
// holder turns it into an error for the client.
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

// begin stores the head of a session's log. From then on the session is kept. If the key belongs to another session in
// the journal, begin returns the id of that session.
func (st *Store) begin(ctx context.Context, s *Session, start Start) (other string, err error) {
	j := st.o.Journal
	switch {
	case j.Full():
		return "", errors.New("the store of sessions is full")
	case !st.fresh() && !j.Confirmed().IsZero(): // Confirmed is zero just after the start.
		return "", errors.New("the lease of this node is not confirmed: its sessions could not begin a call")
	}
	wait := st.o.Waits.Append
	if st.o.Lease > 0 {
		wait = st.o.Lease * 2 / 3 // By then an election is over, or the lease is no longer confirmed.
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
	head := s.listed
	head.Node = st.o.Node
	head.Epoch = 1
	head.Key = s.key.hash()
	head.Timeout = start.Plan.Timeout
	k := st.newKeeper(s, head)
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

// refusal names a session that must be removed from the journal, so that no process runs it. Either the session could
// not begin, or it ended but its log could not be stored to the end.
type refusal struct {
	id    journal.ID
	key   string // name of its key in the journal, "" if it has none
	epoch int    // the epoch in which this node owned it
}

func (k *keeper) refusal() refusal { return refusal{k.id, k.head.Key, k.head.Epoch} }

// maxRefused is how many refused sessions may wait for their removal.
const maxRefused = 1024

// refuse removes from the journal a session that could not begin. The head of its log may be stored nevertheless, or
// still be on its way to the journal.
func (st *Store) refuse(ctx context.Context, r refusal) {
	st.mu.Lock()
	st.forgetLaterLocked(r)
	st.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = st.forget(ctx, r) // If it fails, forgetRefused tries again.
}

// forgetLaterLocked queues a session for forgetRefused, which removes it from the journal when the journal answers.
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

// forget removes a session from the journal and frees its key, unless another node has appended to its log.
func (st *Store) forget(ctx context.Context, r refusal) error {
	gone, err := st.o.Journal.Remove(ctx, r.id, r.key, func(last *journal.Stored) bool {
		return last.Epoch == r.epoch && (last.Node == st.o.Node || asksToCancel(last))
	})
	if err != nil {
		return err
	}
	if !gone {
		st.o.Log.InfoContext(ctx, "did not delete a session that this node gave up, "+
			"because another node has taken it over",
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

// keyWait is how long a node of a cluster waits for the session that a reserved key belongs to. The node that reserved
// the key may still be storing that session. If storing takes longer than half of this time, that node must confirm
// the key (see confirmKey).
func (st *Store) keyWait() time.Duration { return st.o.Lease / 3 }

// confirmKey reserves the key of a stored session once more. From now on, other nodes cannot give the key to another
// session, because they find the stored session first. confirmKey fails if another node may already have given the key
// away.
func (st *Store) confirmKey(ctx context.Context, hash string, mine journal.Reservation) error {
	_, still, err := st.o.Journal.TakeOver(ctx, hash, mine, mine)
	if err == nil && still {
		return nil
	}
	return errors.Join(errors.New("storing the session took too long: another node may have given its Idempotency-Key to another one"),
		err)
}

// reserve reserves the idempotency key of a session in the journal. If another session has the key, other is the id of
// that session. since is when this node sent the request for the reservation. A process that died may have reserved
// the key without storing its session. reserve then takes the key over, in a cluster only after keyWait.
func (st *Store) reserve(
	ctx context.Context, s *Session,
) (other string, held journal.Reservation, since time.Time, err error) {
	mine := journal.Reservation{Session: s.ID, Digest: s.Digest}
	// by is the id of the session that has the key, and seen is when this node first saw that.
	var by string
	var seen time.Time
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
		if held.Session != by { // The key now belongs to another session than before.
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

// awaitChange waits until the journal changes, but no longer than atMost.
func (st *Store) awaitChange(atMost time.Duration) {
	select {
	case <-st.o.Journal.Changed():
	case <-time.After(atMost):
	}
}

// takeKey gives an idempotency key to the session s. The key was reserved for another session, which was never stored.
func (st *Store) takeKey(ctx context.Context, s *Session, held, mine journal.Reservation) (journal.Reservation, error) {
	held, ok, err := st.o.Journal.TakeOver(ctx, s.key.hash(), held, mine)
	if !ok && err == nil {
		err = errors.New("another request with the Idempotency-Key came at the same time")
	}
	return held, err
}

// beginOther runs the session that has a key, in place of the node that stored only the head of its log. That node
// must append to the log before its first call, so no call is paid twice.
func (st *Store) beginOther(ctx context.Context, id journal.ID) error {
	if st.runner.Place == nil {
		return errNotBegun
	}
	placed, err := st.goOn(ctx, id, st.runner, func(p *past) bool { return !p.begun() && st.reads(p, st.o.Prompts) })
	if _, moved := errors.AsType[*journal.Moved](err); moved || err == nil && placed {
		return nil // The log now says which node owns the session.
	}
	return errors.Join(errNotBegun, err)
}

var errNotBegun = errors.New("the node that stored the session of the Idempotency-Key has not begun it")

func (st *Store) newKeeper(s *Session, head journal.Head) *keeper {
	k := &keeper{
		s: s, id: journal.ID{Owner: string(s.key.owner), Session: s.ID}, head: head,
		wake: make(chan struct{}, 1), foreign: make(chan struct{}, 1),
		owned: time.Now(), // The message that makes this node the owner is stored later.
	}
	k.log = &runlog.Log{State: &runlog.State{}, Stored: k.stored, MayCall: k.mayCall, Calling: k.calling}
	return k
}

// keep starts the goroutine of a keeper, which stores what the keeper queues.
func (st *Store) keep(k *keeper) {
	ctx, stop := context.WithCancel(st.ctx) // A log is stored until the store is closed, not until a request ends.
	k.stop = stop
	st.keepers.Go(func() {
		defer stop()
		k.run(ctx)
	})
}

// Get returns the owner's session with an id, or nil if there is none.
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

// Status returns the status of a session as clients see it. The result is "" if the session is not kept.
func (st *Store) Status(owner Owner, id string) council.Status {
	st.mu.Lock()
	s := st.sessions[id]
	st.mu.Unlock()
	if s != nil {
		return s.Summary().Status
	}
	if st.o.Journal == nil {
		return ""
	}
	row, _ := st.o.Journal.Row(journal.ID{Owner: string(owner), Session: id})
	return row.Status
}

// Find returns the session for which the owner gave an idempotency key, or nil if there is none.
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
		return nil, nil // The node that stored the head may still refuse the session. Add decides.
	}
	return st.read(ctx, row.ID)
}

// Spent is the time and the cost of one session.
type Spent struct {
	Created time.Time
	Timing  council.Timing
	CostUSD *float64 // nil if the cost is not known
}

// Lately returns the time and the cost of at most n sessions of a council that ended with an answer, the newest first.
// It includes the sessions of all owners. Of such sessions in the journal, it considers the n that ended last.
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

// Delete forgets a session that has ended, and its idempotency key. It does nothing if the session still runs or is
// already forgotten.
func (st *Store) Delete(ctx context.Context, s *Session) error {
	if s.Summary().Status == council.StatusRunning {
		return nil
	}
	if s.keeper == nil && st.o.Lease > 0 { // Its end may still wait to be stored.
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

// Cancel cancels every session that runs. Sessions in the journal are handed over to another process.
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

// ended is called when a session ends. For a session whose log the journal stores, it does nothing (see forgetStored).
// It removes a side request that ended with an answer and has no key. It keeps any other session, and evicts those
// beyond a limit.
func (st *Store) ended(s *Session) {
	if k := s.keeper; k != nil && !k.open {
		return
	}
	if s.side && s.key.key == "" && s.failure == nil {
		st.remove(s) // A chat program sends several side requests with each turn. They would push other sessions out.
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.finished = append(st.finished, s)
	st.bytes += s.size
	st.evictLocked()
}

// forgetStored forgets a session whose log is stored to its end, unless the session continued without its log. A client
// that watches a forgotten session can continue to read it.
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

// Close forgets the finished sessions. Sessions that end later are forgotten at once. Close waits until the queued
// entries are stored, or until ctx ends.
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
		_ = st.storedLast(ctx) // Other nodes never see ends that come later.
	}
	st.stop()
	st.keepers.Wait()
}

// evict forgets the sessions whose retention is over. A timer calls evict, so that their memory is freed even if no
// request comes.
func (st *Store) evict() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
}

// evictLocked forgets the finished sessions that are beyond a limit. It sets the timer for the session that expires
// next.
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

// forgetLocked forgets the sessions st.finished[from:to].
func (st *Store) forgetLocked(from, to int) {
	for _, s := range st.finished[from:to] {
		st.bytes -= s.size
		delete(st.sessions, s.ID)
		delete(st.keys, s.key)
		if k := s.keeper; k != nil {
			k.stop()
			if !k.whole && !st.closed {
				st.forgetLaterLocked(k.refusal()) // No process may run it again.
			}
		}
	}
	st.finished = slices.Delete(st.finished, from, to)
}

// retain deletes ended sessions that are beyond the limits from the journal, until ctx ends.
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

// purge deletes the ended sessions that are beyond a limit. It returns the time until the next one is due.
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
			return time.Second // Another process deleted it, and the index of this one does not show that yet.
		}
		if err := st.o.Journal.Purge(ctx, oldest.ID); err != nil {
			st.o.Log.WarnContext(ctx, "a session whose time is over could not be deleted",
				"session_id", oldest.Session, "error", err)
			return longest
		}
		tried = oldest
	}
}

// encoder encodes one value after another. Its zero value is ready to use.
type encoder struct {
	json *json.Encoder
	out  []byte // the JSON of the value that is being encoded
}

// encode returns v as JSON with a line break at the end. A panic becomes an error: a panic in a value of the run must
// not stop the goroutine or leave a mutex locked.
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

// Write appends the JSON that the json.Encoder made. The json.Encoder writes each value in one call, so the slice
// that encode returns has no spare room.
func (e *encoder) Write(p []byte) (int, error) {
	e.out = append(e.out, p...)
	return len(p), nil
}
