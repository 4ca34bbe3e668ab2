package spend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
)

// Options configure a Book.
type Options struct {
	// Hard makes the limits strict: an attempt is sent only if the most that it can cost stays within every limit.
	// Without Hard, a limit that is reached only stops later calls.
	Hard     bool
	Day      *USD // limit for all sessions that began on one day (UTC), or nil
	TokenDay *USD // limit for the sessions of one token on one day, or nil
	// TokenLimit returns the daily limit that is set for one token, or nil. This limit takes precedence over TokenDay.
	// If TokenLimit is nil, no token has a limit of its own. The function is called concurrently.
	TokenLimit func(token string) *USD
	// Tariff returns the prices of a model. The result ok is false if the prices are not known. The function is called
	// concurrently.
	Tariff func(model string) (Tariff, bool)
	Ledger Ledger           // stores the lines; if nil, none are kept
	Now    func() time.Time // time.Now if nil
	Names  council.SettingNames
	// Hold, if it is not nil, is called for each request of a session before the request is sent. bound is the most
	// that the request can cost, or 0 if that is not known. If Hold returns an error, the request is not sent.
	// finish is called once with what the request cost, or with the most that it can have cost. finish must return
	// at once.
	Hold func(session string, bound USD) (finish func(cost USD), err error)
}

// Opening describes a session before its first call.
type Opening struct {
	Session string // the id of the session
	// Token is the name of the caller's token, or "" if the daemon asks for none.
	Token string
	// User is council.Plan.User, or "".
	User    string
	Council string // council.Plan.CouncilLabel
	Limit   *USD   // cost limit of the session, or nil
	// Upper is the most that the session should cost, or nil if that is not known.
	Upper  *USD
	Models []string // the models that it may call
	// Shares maps each stage to the percentage of the session's limits that may be spent by the end of that stage. A
	// stage may therefore also spend what earlier stages left over. For a stage that is not in the map, the percentage
	// is 100.
	Shares map[council.Stage]int64
	// MaxTokens is a limit for input and output tokens together, or nil. Options.Hard applies to it as to a cost
	// limit.
	MaxTokens *int64
	// First is the most that all calls of stage 1, or of a stage of votes, can cost together at their first attempt. It
	// is nil if that is not known.
	First *USD
}

// Book holds the accounts of all sessions, the limits for days and tokens, and the ledger. It is safe for
// concurrent use.
type Book struct {
	o Options

	mu       sync.Mutex // guards all fields below
	sessions map[string]*Account
	// orphans holds the first ledger line of each session whose process died before it wrote the session's last line.
	// Replay adds the calls from the ledger to that first line.
	orphans map[string]entry
	// closed holds the sessions that ended last according to the replayed ledger. One of them may be opened again: a
	// process can write the last line of a session to the ledger, and die before the session's log says that the
	// session has ended.
	closed map[string]closed
	days   map[string]*scope
	// recent are the keys of days. The day that was changed last is the last element.
	recent   []string
	tokens   map[[2]string]*scope // keyed by day and token
	over     map[string]overrun   // keyed by model
	costs    map[[2]string]*costs // keyed by model and stage
	bills    map[bill]USD         // bills of this process
	councils map[string]bool      // the councils that bills name
}

// closed is a session whose last line is in the ledger. Its costs count already.
type closed struct {
	day, token string
	limit      *USD
	sum        scope
}

// scope is the cost that counts against one limit.
type scope struct {
	certain, uncertain, held USD
	unknown                  int // calls without a known cost
	refused                  int // sessions that this process refused
}

func (s *scope) spent() USD { return s.certain.Plus(s.uncertain) }
func (s *scope) used() USD  { return s.spent().Plus(s.held) }

// overrun is kept for one model. It describes the attempts that cost more than their bounds. The bound of an attempt is
// the most that it should have been able to cost.
type overrun struct {
	// bill and bound belong to the attempt with the largest ratio of bill to bound. An attempt with the bound 0 counts
	// as larger than all others. Among several such attempts, the one with the largest bill counts.
	bill, bound USD
	count       int // bills above their bounds
}

// raise increases the bound of a new attempt by the ratio of the overrun.
func (o overrun) raise(bound USD) USD {
	switch {
	case o.count == 0:
		return bound
	case o.bound == 0:
		return max(bound, o.bill)
	default:
		return bound.scaled(int64(o.bill), int64(o.bound))
	}
}

// worse reports whether a bill exceeds its bound by a larger ratio than the overrun does.
func (o overrun) worse(bill, bound USD) bool {
	if o.count == 0 || bound == 0 || o.bound == 0 {
		return o.count == 0 || bound == 0 && (o.bound > 0 || bill > o.bill)
	}
	return bill.Float64()/bound.Float64() > o.bill.Float64()/o.bound.Float64()
}

// Account holds the limits of one session and what it has cost. It is safe for concurrent use.
type Account struct {
	b *Book // nil in the account of a session that did not begin
	sums

	// The mutex of the book guards all fields below.
	scope // its field held is what attempts in flight have reserved
	Opening
	day      string
	expected USD      // what attempts in flight are expected to cost, if that is known
	calls    []Charge // charges that the ledger does not have yet
	// tokens is the number of tokens that are certain. tokensHeld is the number of tokens that attempts in flight have
	// reserved, under a hard token limit.
	tokens, tokensHeld int64
	// lost has the stage and seat of each call that an earlier process had begun when it died.
	lost       map[[2]string]bool
	lostTokens int64                            // the most tokens that these calls can have consumed
	recovered  bool                             // Recover was called, or the ledger has all calls that landed
	closed     bool                             // the ledger has the last line of the session
	billed     string                           // the name of the council under which its bills count the costs
	over       *scope                           // the limit that refused the session
	warnings   map[council.WarningCode][]string // for each code, the models that it concerns
}

// hold returns how much of the daily limits is reserved for the session. Under a hard limit this is the rest of the
// session's own limit, so that other sessions cannot take the money that this session may still need.
func (b *Book) hold(s *Account) USD {
	if b.o.Hard && s.Limit != nil {
		return max(s.held, *s.Limit-min(s.spent(), *s.Limit))
	}
	return s.held
}

// NewBook returns an empty Book.
func NewBook(o Options) *Book {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Book{
		o: o, sessions: map[string]*Account{}, orphans: map[string]entry{}, closed: map[string]closed{}, days: map[string]*scope{},
		tokens: map[[2]string]*scope{}, over: map[string]overrun{}, costs: map[[2]string]*costs{},
		bills: map[bill]USD{}, councils: map[string]bool{},
	}
}

// HasDayLimit reports whether there is any daily limit.
func (b *Book) HasDayLimit() bool {
	return b.o.Day != nil || b.o.TokenDay != nil || b.o.TokenLimit != nil
}

// dayLimits returns the daily limit for all sessions, and the daily limit for a token. A limit that is not set is nil.
func (b *Book) dayLimits(token string) [2]*USD {
	limits := [2]*USD{b.o.Day, b.o.TokenDay}
	if b.o.TokenLimit != nil {
		limits[1] = cmp.Or(b.o.TokenLimit(token), b.o.TokenDay)
	}
	return limits
}

func (b *Book) today() string { return b.o.Now().UTC().Format(time.DateOnly) }

// limits reports whether a cost limit applies to the session.
func (b *Book) limits(s *Account) bool { return s.Limit != nil || b.HasDayLimit() }

// resetsAt returns the time at which the daily limits begin again: the next midnight (UTC).
func resetsAt(now time.Time) time.Time { return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// scopesLocked returns the costs of a day, and the costs of a token on this day.
func (b *Book) scopesLocked(day, token string) [2]*scope {
	if b.days[day] == nil {
		b.days[day] = &scope{}
	}
	b.recent = moveToEnd(b.recent, day)
	key := [2]string{day, token}
	if b.tokens[key] == nil {
		b.tokens[key] = &scope{}
	}
	return [2]*scope{b.days[day], b.tokens[key]}
}

// changeLocked changes the account of a session by a call of the function change. It then adds the difference to the
// costs of the session's day, and to the costs of the session's token on that day.
func (b *Book) changeLocked(s *Account, change func()) {
	before := s.scope
	held := b.hold(s)
	change()
	for _, scope := range b.scopesLocked(s.day, s.Token) {
		scope.certain = scope.certain.Plus(s.certain - before.certain)
		scope.uncertain = scope.uncertain.Plus(s.uncertain - before.uncertain)
		scope.unknown += s.unknown - before.unknown
		scope.held += b.hold(s) - held
	}
}

// Open opens the account of a session, or returns why the session must not begin. If the account is already open, Open
// returns it. If the ledger has the session but not its last line, the session continues with its day, token and limit
// from the ledger. The caller must then report the earlier cost with [Account.Recover]. If there is a daily limit, the
// first line of the session is on disk when Open returns.
func (b *Book) Open(ctx context.Context, o Opening) (*Account, *council.Error) {
	s, old, failure := b.begin(o)
	if failure != nil || old || b.o.Ledger == nil {
		return s, failure
	}
	b.mu.Lock()
	line := entry{
		Type:    entryOpen,
		Day:     s.day,
		Session: s.Session,
		Token:   s.Token,
		User:    s.User,
		Council: s.Council,
		Limit:   s.Limit,
		Upper:   s.Upper,
	}
	b.mu.Unlock()
	err := b.o.Ledger.Append(ctx, b.HasDayLimit(), line.line())
	if err != nil && b.HasDayLimit() {
		s.Close(ctx, false)
		return nil, &council.Error{
			Code: council.CodeUnavailable, RetryAfter: 5 * time.Second, Cause: err,
			Detail: "the ledger of costs cannot be written, and no daily limit can be enforced without it; " +
				"the log says why; check the disk of " +
				b.o.Names.Of(council.SettingDataDir),
		}
	}
	return s, nil
}

// begin does the same as Open, but writes nothing to the ledger. If the result old is true, the ledger already has the
// first line of the session.
func (b *Book) begin(o Opening) (s *Account, old bool, failure *council.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open := b.sessions[o.Session]; open != nil {
		return open, true, nil
	}
	s = b.limited(&Account{b: b, sums: noSums(), Opening: o, day: b.today()})
	orphan, resumed := b.orphans[o.Session]
	if c, ok := b.closed[o.Session]; ok {
		s.day = c.day
		s.Token = c.token
		s.Limit = c.limit
		s.scope = c.sum
		s.recovered = true
		s.closed = true
	} else if resumed {
		s.day = orphan.Day
		s.Token = orphan.Token
		s.Limit = orphan.Limit
	} else if failure := b.refusalLocked(s); failure != nil {
		if s.over != nil {
			s.over.refused++
		}
		return nil, false, failure
	}
	b.noteTariffs(s)
	if resumed {
		delete(b.orphans, o.Session)
		for _, scope := range b.scopesLocked(s.day, s.Token) {
			orphan.addWhole(scope, -1)
		}
	}
	for _, scope := range b.scopesLocked(s.day, s.Token) {
		scope.held = scope.held.Plus(b.hold(s))
	}
	for _, c := range orphan.Calls {
		b.changeLocked(s, func() { c.addTo(&s.scope) })
	}
	b.sessions[s.Session] = s
	b.openBillsLocked(s)
	b.forgetLocked()
	return s, resumed || s.closed, nil
}

// limited sets a cost limit for a session without one, if there are hard daily limits. The new limit is the most that
// the session can cost without retries. If that is not known, the session stays without a limit.
func (b *Book) limited(s *Account) *Account {
	if b.o.Hard && s.Limit == nil && b.HasDayLimit() {
		s.Limit = s.Upper
	}
	return s
}

// refusalLocked returns why a session must not begin, or nil.
func (b *Book) refusalLocked(s *Account) *council.Error {
	if e := b.withoutPrices(s); e != nil {
		return e
	}
	scopes := b.scopesLocked(s.day, s.Token)
	for i, limit := range b.dayLimits(s.Token) {
		if limit == nil {
			continue
		}
		if e := b.overDay(s, scopes[i], *limit, i == 1); e != nil {
			return e
		}
	}
	return b.tooLittle(s)
}

// withoutPrices returns an error if a session under a hard limit has a model whose price is not known.
func (b *Book) withoutPrices(s *Account) *council.Error {
	if !b.o.Hard || s.Limit == nil && !b.HasDayLimit() {
		return nil
	}
	unpriced := b.unpriced(s.Models)
	if len(unpriced) == 0 {
		return nil
	}
	return &council.Error{
		Code: council.CodeUnpriced,
		Detail: "there is a hard cost limit, and these models have no known price: " +
			strings.Join(unpriced, ", ") + "; give their prices in " + b.o.Names.Of(council.SettingPrices),
	}
}

// overDay refuses a session that does not fit into a daily limit. If ofToken is true, this daily limit belongs to the
// session's token. Otherwise it is the daily limit of all sessions.
func (b *Book) overDay(s *Account, day *scope, limit USD, ofToken bool) *council.Error {
	whose := "all sessions"
	name := b.o.Names.Of(council.SettingMaxCostUSDPerDay)
	if ofToken {
		whose = "the sessions of this token"
		name = b.o.Names.Of(council.SettingMaxCostUSDPerTokenDay)
		if b.o.TokenLimit != nil && b.o.TokenLimit(s.Token) != nil {
			name = "max_cost_usd_per_day in the roster"
		}
	}
	over := day.spent() >= limit
	why := ""
	if b.o.Hard {
		if s.Limit == nil {
			return b.withoutLimit()
		}
		over = *s.Limit > limit-min(day.used(), limit)
		why = fmt.Sprintf(", %s is reserved by sessions that run, and this one may cost %s", day.held.Dollars(), s.Limit.Dollars())
	}
	if !over {
		return nil
	}
	now := b.o.Now()
	s.over = day
	return &council.Error{
		Code:       council.CodeOverBudget,
		RetryAfter: resetsAt(now).Sub(now),
		Detail: fmt.Sprintf("%s may cost %s a day (%s), %s is spent%s; wait until 00:00 UTC, or raise the limit",
			whose, limit.Dollars(), name, day.spent().Dollars(), why),
	}
}

// leastLimit returns the least limit with which a session could begin, rounded up. It is nil if the limit of the
// session is enough.
func (b *Book) leastLimit(s *Account) *USD {
	if !b.o.Hard || s.Limit == nil || s.First == nil {
		return nil
	}
	percent := s.share(council.Stage1)
	if *s.First <= s.Limit.share(percent) {
		return nil
	}
	return new(s.First.scaled(100, percent).Plus(1).atLeast())
}

// tooLittle returns an error if the hard limit of a session is too low for its first calls.
func (b *Book) tooLittle(s *Account) *council.Error {
	least := b.leastLimit(s)
	if least == nil {
		return nil
	}
	percent := s.share(council.Stage1)
	return &council.Error{
		Code:   council.CodeInvalid,
		Detail: "the cost limit of the session is too low for its first calls",
		Fields: []council.FieldError{{
			Field: "max_cost_usd",
			Message: fmt.Sprintf("the limit is %s, and the first calls can cost %s, but may use only %d %% of it",
				s.Limit.Dollars(), s.First.Dollars(), percent),
			Fix: fmt.Sprintf("give %v or more, where council and daemon allow it, or lower %s or the number of members",
				*least, b.o.Names.Of(council.SettingMaxOutputTokens)),
		}},
	}
}

// withoutLimit refuses a session that needs a limit under a hard daily limit, and has none.
func (b *Book) withoutLimit() *council.Error {
	return &council.Error{
		Code:   council.CodeInvalid,
		Detail: "the daily limit is hard, and nothing limits what this session can cost",
		Fields: []council.FieldError{{
			Field: "max_cost_usd", Message: "the session has no cost limit",
			Fix: "give one, or set " + b.o.Names.Of(council.SettingMaxCostUSD),
		}},
	}
}

// unpriced returns the models whose prices are not known, each once.
func (b *Book) unpriced(models []string) []string {
	var unpriced []string
	for _, model := range models {
		if _, ok := b.o.Tariff(model); !ok && !slices.Contains(unpriced, model) {
			unpriced = append(unpriced, model)
		}
	}
	return unpriced
}

// oldAfter is the age from which prices are reported as old.
const oldAfter = 45 * 24 * time.Hour

// noteTariffs warns of the models of a session whose prices are old.
func (b *Book) noteTariffs(s *Account) {
	for _, model := range s.Models {
		if t, ok := b.o.Tariff(model); ok && !t.AsOf.IsZero() && b.o.Now().Sub(t.AsOf) > oldAfter {
			s.warn(council.WarnPriceOld, model)
		}
	}
}

func (s *Account) warn(code council.WarningCode, model string) {
	if s.warnings == nil {
		s.warnings = map[council.WarningCode][]string{}
	}
	if !slices.Contains(s.warnings[code], model) {
		s.warnings[code] = append(s.warnings[code], model)
	}
}

// forgetLocked forgets old days. It keeps the days that were changed last, the days of running sessions, and the days
// of sessions without a last line in the ledger. It does not compare days with the clock, because today's cost would be
// lost if the clock jumped ahead and back.
func (b *Book) forgetLocked() {
	if len(b.recent) <= daysKept {
		return
	}
	keep := map[string]bool{}
	for _, s := range b.sessions {
		keep[s.day] = true
	}
	for _, o := range b.orphans {
		keep[o.Day] = true
	}
	for _, day := range b.recent[len(b.recent)-daysKept:] {
		keep[day] = true
	}
	isOld := func(day string) bool { return !keep[day] }
	b.recent = slices.DeleteFunc(b.recent, isOld)
	maps.DeleteFunc(b.days, func(day string, _ *scope) bool { return isOld(day) })
	maps.DeleteFunc(b.tokens, func(key [2]string, _ *scope) bool { return isOld(key[0]) })
}

// Attempt is one request to a provider, before it is sent.
type Attempt struct {
	Stage       council.Stage
	Seat        string // council.Call.Seat
	Model       string // council.Call.Model
	Provider    string // name of the provider, or "" for the default one
	Number      int    // number of the attempt in its call, from 1
	Bytes       int64  // size of the request body
	OutputLimit *int   // the most output tokens, or nil if the request sets no limit
}

// Hold is what an attempt has reserved in the account of its session. Each Hold must be charged.
type Hold struct {
	s        *Account
	at       Attempt
	tariff   Tariff
	priced   bool
	bounded  bool // whether bound is known
	bound    USD
	expected USD
	tokens   int64 // reserved tokens
	done     bool  // guarded by the mutex of the book
	// finish is from Options.Hold. It is nil if there is none, or if it was called.
	finish func(USD)
}

// share returns which part of a session's limit may be spent by the end of a stage, in percent.
func (s *Account) share(stage council.Stage) int64 {
	if percent, ok := s.Shares[stage]; ok {
		return percent
	}
	return 100
}

// Reserve reserves money and tokens for an attempt, or returns why it must not be sent. Every Hold must be charged.
func (s *Account) Reserve(at Attempt) (*Hold, *council.Failure) {
	if s.b == nil {
		return nil, &council.Failure{Code: council.FailBudget, Message: "not called: the session has not begun"}
	}
	a := s.b
	a.mu.Lock()
	defer a.mu.Unlock()
	h := s.holdLocked(at)
	if failure := a.reserveLocked(h); failure != nil {
		return nil, failure
	}
	return h, nil
}

// Begin reserves money and tokens for a request of a call, as Reserve does, and then calls Options.Hold. If Reserve or
// Options.Hold fails, Begin returns a failure.
func (s *Account) Begin(
	ctx context.Context, call *council.Call, a council.Attempt,
) (council.Receipt, *council.Failure) {
	h, failure := s.Reserve(attemptOf(call, a))
	if failure != nil {
		return nil, failure
	}
	if s.b.o.Hold != nil {
		var err error
		if h.finish, err = s.b.o.Hold(s.Session, h.bound); err != nil {
			h.Charge(ctx, Billed{Free: true})
			return nil, &council.Failure{Code: council.FailInterrupted, Message: err.Error()}
		}
	}
	return h, nil
}

// attemptOf returns the Attempt for a request of a call.
func attemptOf(call *council.Call, a council.Attempt) Attempt {
	at := Attempt{
		Stage: call.Stage, Seat: call.Seat, Model: call.Model, Provider: a.Provider, Number: a.Number, Bytes: a.Bytes,
		OutputLimit: call.MaxOutputTokens,
	}
	if call.Texts != nil {
		at.OutputLimit = new(int) // Embeddings have no output tokens.
	}
	return at
}

// Bound returns the most that a request of a call can cost, and the most tokens that it can consume. If they are not
// known, bound is nil and tokens is 0.
func (s *Account) Bound(call *council.Call, a council.Attempt) (bound *USD, tokens int64) {
	if s.b == nil {
		return nil, 0
	}
	at := attemptOf(call, a)
	s.b.mu.Lock()
	h := s.holdLocked(at)
	s.b.mu.Unlock()
	if h.bounded {
		bound = &h.bound
	}
	if at.OutputLimit != nil {
		tokens = min(at.Bytes, maxTokens) + min(int64(*at.OutputLimit), maxTokens)
	}
	return bound, tokens
}

// Lost is a request that a process had begun before it died. Its outcome is not known.
type Lost struct {
	Stage  council.Stage
	Seat   string
	Model  string
	Bound  *USD  // the most that it can have cost, or nil if not known
	Tokens int64 // the most that it can have consumed, or 0 if not known
}

// Recover charges the account with what an earlier process had spent before it died. The argument landed has the calls
// whose outcome is in the log of the session. The first Recover charges their known costs; the ledger already has their
// uncertain costs. The argument lost has the requests whose outcome is unknown. Recover charges them with the most that
// they can have cost. With a ledger and limits, these charges are in the ledger when Recover returns. The lost requests
// may be sent again.
func (s *Account) Recover(ctx context.Context, landed []council.Landed, lost []Lost) {
	if s.b == nil {
		return
	}
	a := s.b
	a.mu.Lock()
	if !s.recovered {
		s.recovered = true
		for _, l := range landed {
			known := outcomeOf(council.Consumed{Usage: l.Completion.Usage})
			if known.Tokens != nil {
				s.tokens += known.Tokens.Input + known.Tokens.Output
			}
			if known.CostUSD != nil && *known.CostUSD > 0 {
				// Attempts without a known cost are in the ledger, as uncertain.
				a.chargeLocked(s, Charge{
					Stage:  l.Stage,
					Model:  l.Model,
					Tokens: known.Tokens,
					USD:    known.CostUSD,
					Source: SourceProvider,
				})
			}
		}
	}
	a.mu.Unlock()
	s.Lose(ctx, lost...)
}

// Lose charges requests that a process had begun before it died, with the most that they can have cost.
func (s *Account) Lose(ctx context.Context, lost ...Lost) {
	if s.b == nil || len(lost) == 0 {
		return
	}
	a := s.b
	a.mu.Lock()
	if s.lost == nil {
		s.lost = map[[2]string]bool{}
	}
	for _, l := range lost {
		c := Charge{Stage: l.Stage, Model: l.Model, USD: l.Bound, Source: SourceBound}
		a.chargeLocked(s, c)
		a.billLocked(s, c)
		if l.Bound != nil && *l.Bound > 0 {
			s.warn(council.WarnCostUncertain, l.Model)
		}
		s.lost[[2]string{string(l.Stage), l.Seat}] = true
		s.lostTokens += l.Tokens
		s.lose(l)
	}
	a.mu.Unlock()
	a.save(ctx, s)
}

// holdLocked returns the hold for an attempt. It reserves nothing yet.
func (s *Account) holdLocked(at Attempt) *Hold {
	h := &Hold{s: s, at: at}
	h.tariff, h.priced = s.b.o.Tariff(at.Model)
	if h.priced && at.OutputLimit != nil {
		h.bound = s.b.over[at.Model].raise(h.tariff.Bound(at.Bytes, int64(*at.OutputLimit)))
		h.bounded = true
	}
	return h
}

// reserveLocked is Reserve for callers that hold the mutex.
func (b *Book) reserveLocked(r *Hold) *council.Failure {
	at := r.at
	if !b.o.Hard && r.s.Limit != nil {
		r.expected, _ = b.costsLocked(at.Model, string(at.Stage)).median()
	}
	refusal := b.roomLocked(r)
	if refusal == "" && r.s.MaxTokens != nil {
		refusal = r.tokenRoomLocked()
	}
	if refusal != "" {
		return &council.Failure{Code: council.FailBudget, Message: "not called: " + refusal}
	}
	r.s.tokensHeld += r.tokens
	b.changeLocked(r.s, func() {
		r.s.held += r.bound
		r.s.expected = r.s.expected.Plus(r.expected)
	})
	return nil
}

// roomLocked returns why an attempt would exceed the cost limit of its session, or "".
func (b *Book) roomLocked(r *Hold) string {
	s := r.s
	if r.bound > math.MaxInt64/2-s.held { // so that no sum of bounds overflows
		return fmt.Sprintf("the request can cost %s", r.bound.Dollars())
	}
	if s.Limit == nil {
		return ""
	}
	if !b.o.Hard {
		if s.certain >= *s.Limit {
			return budgetSpent
		}
		if s.spent().Plus(s.expected) >= *s.Limit {
			return fmt.Sprintf("the session's limit of %s is reached: "+
				"%s is spent, and calls under way are expected to cost %s",
				s.Limit.Dollars(), s.spent().Dollars(), s.expected.Dollars())
		}
		return ""
	}
	if !r.bounded {
		return "there is a hard cost limit, and the most that " + r.at.Model + " can cost is not known"
	}
	percent := s.share(r.at.Stage)
	if most := s.Limit.share(percent); r.bound > most-min(s.used(), most) {
		return fmt.Sprintf("the request can cost %s; %s of the session's %s is spent or reserved, "+
			"and %s may take %d %%",
			r.bound.Dollars(), s.used().Dollars(), s.Limit.Dollars(), r.at.Stage, percent)
	}
	return ""
}

// budgetSpent is the reason if a limit of the session is used up.
const budgetSpent = "the session's budget is spent"

// maxTokens is more than any request has, and so small that sums do not overflow.
const maxTokens = 1 << 40

// tokenRoomLocked returns why an attempt would exceed the token limit of its session, or "". Under hard limits it also
// sets h.tokens, the number of tokens to reserve.
func (h *Hold) tokenRoomLocked() string {
	s := h.s
	at := h.at
	lost := s.lostTokens
	if s.lost[[2]string{string(at.Stage), at.Seat}] {
		lost = 0 // This attempt may repeat the lost call.
	}
	if !s.b.o.Hard {
		if s.Usage().Total.Tokens() >= *s.MaxTokens-lost {
			return budgetSpent
		}
		return ""
	}
	if at.OutputLimit == nil {
		return "there is a hard token limit, and the reply has no limit"
	}
	percent := s.share(at.Stage)
	most := int64(USD(*s.MaxTokens).share(percent))
	if at.Bytes > maxTokens || int64(*at.OutputLimit) > maxTokens {
		return "the request can take more tokens than can be counted"
	}
	if h.tokens = at.Bytes + int64(*at.OutputLimit); h.tokens > most-min(s.tokens+s.lostTokens+s.tokensHeld, most) {
		return fmt.Sprintf("the request can take %d tokens; %d of the session's %d are spent or reserved, "+
			"and %s may take %d %%",
			h.tokens, s.tokens+s.lostTokens+s.tokensHeld, *s.MaxTokens, at.Stage, percent)
	}
	return ""
}

// Billed is what the provider reported about an attempt.
type Billed struct {
	Free    bool    // the provider was not reached, or refused the request (HTTP 4xx)
	CostUSD *USD    // the cost that the provider reported, or nil
	Tokens  *Tokens // nil if they were not reported, or not completely
}

// Finish implements council.Receipt. The cost is nil if it is not certain.
func (h *Hold) Finish(ctx context.Context, c council.Consumed) (costUSD *float64) {
	charge := h.Charge(ctx, outcomeOf(c))
	if h.finish != nil {
		h.finish(*cmp.Or(charge.USD, new(USD)))
		h.finish = nil
	}
	if charge.USD == nil || charge.Source == SourceBound {
		return nil
	}
	return new(charge.USD.Float64())
}

// outcomeOf returns what a provider reported about an attempt.
func outcomeOf(c council.Consumed) Billed {
	o := Billed{Free: c.Free}
	if c.Usage.CostUSD != nil {
		o.CostUSD = new(FromFloat(*c.Usage.CostUSD))
	}
	if c.Usage.InputTokens != nil && c.Usage.OutputTokens != nil {
		o.Tokens = &Tokens{
			Input: *c.Usage.InputTokens, CachedInput: c.Kinds.CachedInput, CacheWrite: c.Kinds.CacheWrite,
			Output: *c.Usage.OutputTokens, Reasoning: c.Kinds.Reasoning,
		}
	}
	return o
}

// Charge replaces the hold of an attempt by what the attempt cost, and returns the charge. Charge.USD is nil if the
// cost is not known. A second Charge does nothing.
//
// With a ledger and limits, Charge returns only after an uncertain cost is in the ledger, because another process that
// continues the session can find this cost nowhere else.
func (h *Hold) Charge(ctx context.Context, o Billed) Charge {
	charge := h.chargeLocal(o)
	if charge.Source == SourceBound {
		h.s.b.save(ctx, h.s)
	}
	return charge
}

// chargeLocal does the same as Charge, but does not write to the ledger.
func (h *Hold) chargeLocal(o Billed) Charge {
	b := h.s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.done {
		return Charge{}
	}
	h.done = true
	b.changeLocked(h.s, func() {
		h.s.held -= h.bound
		h.s.expected -= h.expected
	})
	h.s.tokensHeld -= h.tokens
	charge := h.charge(o)
	if o.Free {
		return charge
	}
	if o.Tokens != nil && h.tokens > 0 {
		h.s.tokens += o.Tokens.Input + o.Tokens.Output // Each is plausible, so the sum cannot overflow.
	} else {
		h.s.tokens += h.tokens
	}
	h.noteLocked(o, charge)
	b.chargeLocked(h.s, charge)
	b.billLocked(h.s, charge)
	return charge
}

// save writes the uncertain costs of a session to the ledger, except those that the ledger already has. It does not
// write known costs, because the log of a kept session has the known costs.
func (b *Book) save(ctx context.Context, s *Account) {
	if b.o.Ledger == nil || !b.o.Hard && !b.HasDayLimit() {
		return
	}
	b.mu.Lock()
	var uncertain, others []Charge
	for _, c := range s.calls {
		if c.Source == SourceBound {
			uncertain = append(uncertain, c)
		} else {
			others = append(others, c)
		}
	}
	lines := s.lines(uncertain, entryCalls)
	s.calls = others
	b.mu.Unlock()
	_ = b.o.Ledger.Append(context.WithoutCancel(ctx), true, lines...) // After an error the ledger tries again.
}

// undercharged reports whether the reported cost of an attempt is too low. The cost of the attempt's tokens at the
// known prices then counts instead. Under hard limits, a reported cost below the cost of the tokens is always too low.
// Under soft limits, only a reported cost of 0 is too low, because any other cost may be the price of a cheaper tier. A
// gateway, for example, reports 0 if another provider charges the caller's own key.
func (h *Hold) undercharged(o Billed) bool {
	return o.Tokens != nil && h.priced && (h.s.b.o.Hard || *o.CostUSD == 0) && h.tariff.Cost(*o.Tokens) > *o.CostUSD
}

// charge returns what an attempt cost.
func (h *Hold) charge(o Billed) Charge {
	c := Charge{Stage: h.at.Stage, Model: h.at.Model, Provider: h.at.Provider, Attempt: h.at.Number, Tokens: o.Tokens}
	switch {
	case o.Free:
		c.USD = new(USD)
	case o.CostUSD != nil && !h.undercharged(o):
		c.USD = o.CostUSD
		c.Source = SourceProvider
	case o.Tokens != nil && h.priced:
		c.USD = new(h.tariff.Cost(*o.Tokens))
		c.Source = SourceTariff
	default:
		c = h.lost()
		c.Attempt = h.at.Number
	}
	return c
}

// lost returns the charge of a request whose outcome is not known. The cost is the bound, if the attempt has one.
func (h *Hold) lost() Charge {
	c := Charge{Stage: h.at.Stage, Model: h.at.Model, Provider: h.at.Provider, Source: SourceBound}
	if h.bounded {
		c.USD = &h.bound
	}
	return c
}

// noteLocked notes a warning if the cost is uncertain, differs from the known prices, or is above the bound of the
// attempt. It also notes known costs, for later estimates.
func (h *Hold) noteLocked(o Billed, c Charge) {
	a := h.s.b
	s := h.s
	model := h.at.Model
	if c.Source == SourceBound && c.USD != nil && *c.USD > 0 {
		s.warn(council.WarnCostUncertain, model)
	}
	if c.Source == SourceBound || c.USD == nil {
		return
	}
	if o.CostUSD != nil && o.Tokens != nil && h.priced {
		figure := *o.CostUSD
		ours := h.tariff.Cost(*o.Tokens)
		const percent = 2
		if max(figure, ours)-min(figure, ours) > max(figure, ours).share(percent) {
			s.warn(council.WarnPriceDiffers, model)
		}
	}
	if h.bounded && *c.USD > h.bound {
		s.warn(council.WarnCostOverBound, model)
		over := a.over[model]
		unscaled := h.tariff.Bound(h.at.Bytes, int64(*h.at.OutputLimit))
		if over.worse(*c.USD, unscaled) {
			over.bill = *c.USD
			over.bound = unscaled
		}
		over.count++
		a.over[model] = over
	}
	a.costsLocked(model, string(h.at.Stage)).add(*c.USD)
}

// chargeLocked adds a charge to the account of a session.
func (b *Book) chargeLocked(s *Account, c Charge) {
	b.changeLocked(s, func() { c.addTo(&s.scope) })
	if s.calls == nil {
		s.calls = make([]Charge, 0, 2*len(s.Models)+1) // enough for a session whose seats have different models
	}
	s.calls = append(s.calls, c)
	if c.USD == nil && b.limits(s) {
		s.warn(council.WarnCostUnknown, c.Model)
	}
}

// Close ends the account, and returns warnings for the readers of the session. It releases what the session had
// reserved of the daily limits. When Close returns, the session's last ledger line may not be on disk yet. If a crash
// loses this line, the session counts with its whole limit.
//
// The argument continues says that another process continues the session. Close then only returns the warnings.
func (s *Account) Close(ctx context.Context, continues bool) []council.Warning {
	a := s.b
	if a == nil {
		return nil
	}
	a.mu.Lock()
	if a.sessions[s.Session] != s {
		a.mu.Unlock()
		return nil
	}
	var warnings []council.Warning
	for _, code := range []council.WarningCode{
		council.WarnPriceOld, council.WarnPriceDiffers, council.WarnCostUncertain, council.WarnCostOverBound,
		council.WarnCostUnknown,
	} {
		if models := s.warnings[code]; len(models) > 0 {
			warnings = append(warnings, council.Warning{
				Code:    code,
				Message: a.explain(code, s) + strings.Join(models, ", "),
			})
		}
	}
	if continues {
		a.mu.Unlock()
		return warnings
	}
	if a.o.Ledger != nil && (!s.closed || len(s.calls) > 0) {
		// Append queues this session's last line before its reserved money is free. Another session may then reserve
		// this money. If the ledger has that session after a crash, it also has the last line of this session.
		_ = a.o.Ledger.Append(ctx, false, s.lines(s.calls, entryClose)...) // The ledger logs an error and tries again.
	}
	held := a.hold(s)
	for _, scope := range a.scopesLocked(s.day, s.Token) {
		scope.held -= held
	}
	delete(a.sessions, s.Session)
	a.mu.Unlock()
	return warnings
}

// explain returns the beginning of the text of a warning. The caller adds the names of the models.
func (b *Book) explain(code council.WarningCode, s *Account) string {
	switch code {
	case council.WarnPriceOld:
		return "prices were read more than 45 days ago, and may have changed since: "
	case council.WarnPriceDiffers:
		return "what the provider charged differs by more than 2 % from its tokens at the price that councild " +
			"knows; look at the prices of "
	case council.WarnCostUncertain:
		return fmt.Sprintf("%s of the cost is uncertain, because attempts that failed or were cut off count with "+
			"the most that they can have cost: ", s.uncertain.Dollars())
	case council.WarnCostOverBound:
		return "a provider charged more than the most that a request should have cost; the charge counts in full, " +
			"and later bounds are raised in the same ratio, for "
	default:
		return "there is a cost limit, but the cost of some calls is not known, " +
			"so these calls count as free; give the prices of their models in " +
			b.o.Names.Of(council.SettingPrices) + ": "
	}
}

// These are the scopes of limits.
const (
	ScopeSession = "session"
	ScopeDay     = "day"   // all sessions that began on one day (UTC)
	ScopeToken   = "token" // the sessions of one token on one day
)

// Limit is a limit and what is used of it.
type Limit struct {
	Scope    string     `json:"scope"` // ScopeSession, ScopeDay or ScopeToken
	Limit    USD        `json:"limit_usd"`
	Used     USD        `json:"used_usd"`     // certain and uncertain cost
	Reserved USD        `json:"reserved_usd"` // reserved by sessions that run
	Left     USD        `json:"left_usd"`
	ResetsAt *time.Time `json:"resets_at"` // null in ScopeSession
	// Hard is true if no call can pass the limit. Calls that are under way may pass a soft limit.
	Hard bool `json:"hard"`
	// Sentence says what is left of the limit, or in ScopeSession what the limit does.
	Sentence string `json:"sentence"`
}

// Limits returns the daily limit for all sessions, and the daily limit for a token. It leaves out a limit that is not
// set.
func (b *Book) Limits(token string) []Limit {
	b.mu.Lock()
	defer b.mu.Unlock()
	limits := []Limit{}
	today := b.today()
	reset := resetsAt(b.o.Now())
	add := func(name string, limit *USD, s *scope) {
		if limit != nil {
			l := Limit{
				Scope:    name,
				Limit:    *limit,
				Used:     s.spent(),
				Reserved: s.held,
				Left:     *limit - min(s.used(), *limit),
				ResetsAt: &reset,
				Hard:     b.o.Hard,
			}
			l.say()
			limits = append(limits, l)
		}
	}
	add(ScopeDay, b.o.Day, cmp.Or(b.days[today], &scope{}))
	add(ScopeToken, b.dayLimits(token)[1], cmp.Or(b.tokens[[2]string{today, token}], &scope{}))
	return limits
}

// Account returns the account of a session, or nil if it is not open.
func (b *Book) Account(session string) *Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[session]
}

// costs are the costs of the latest calls of a model in a stage.
type costs struct {
	latest [200]USD
	count  int
	middle *USD // their median, or nil before it is computed
}

// fewest is how many calls are needed before the median of their costs is used as the expected cost of the next call.
const fewest = 20

func (c *costs) add(cost USD) {
	c.latest[c.count%len(c.latest)] = cost
	c.count++
	c.middle = nil
}

func (c *costs) median() (USD, bool) {
	if c.count < fewest {
		return 0, false
	}
	if c.middle == nil {
		latest := slices.Clone(c.latest[:min(c.count, len(c.latest))])
		slices.Sort(latest)
		c.middle = new(latest[len(latest)/2])
	}
	return *c.middle, true
}

func (b *Book) costsLocked(model, stage string) *costs {
	key := [2]string{model, stage}
	if b.costs[key] == nil {
		b.costs[key] = &costs{}
	}
	return b.costs[key]
}
