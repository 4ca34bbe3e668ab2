package bias

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// clockTolerance is how far in the future a session may have started, for
	// stores that were written under another clock.
	clockTolerance = 5 * time.Minute
	// usualRows is the number of records that a session has memory for at first: those
	// of four members who review each other.
	usualRows = 12
	// defaultMinSessions is ADR-018's MIN_SESSIONS_FOR_AGGREGATION.
	defaultMinSessions = 20
)

// Options are the settings of a Collector.
type Options struct {
	Now            time.Time // the report's date and the end of its window; required
	WindowSessions int       // for a query without Sessions
	WindowDays     int       // for a query without Days
	// MinSessions is how many sessions a verdict takes; below it figures count as
	// preliminary. 0 stands for ADR-018's 20.
	MinSessions int
	// RetentionDays is the age, in days, from which records are deleted; nil: never.
	RetentionDays *int
	// SecretMade is when the secret of question keys was made anew; zero: it never was.
	SecretMade time.Time
	Settings   council.SettingNames // for the reasons of what is not reported
	Query
}

// Query says of what a report or a leaderboard is wanted. Nil and zero values do not
// limit it further than the other settings of the Collector.
type Query struct {
	Sessions *int // the newest this many sessions; 0: no limit
	Days     *int // sessions started within this many times 24 h before Now; 0: no limit

	Since         time.Time // sessions that started then or later
	Until         time.Time // sessions that started before then
	ConfigVersion string    // records of this council_config_version
	// Reviewer and Model narrow the sessions of the window to the records of one
	// reviewer and of one candidate, by member id. Where none has that id, they are those
	// whose ids begin with it; Filter says which.
	Reviewer, Model string
	ModelVersion    string // records whose reviewer or candidate was served as this version
	Category        string // sessions whose caller named this category
	Language        string // sessions whose caller named this language, by its ISO 639-1 code
	Split           string // "category" or "language": describe each apart; "": do not
}

// Collector takes BiasMetricRecords in one pass and keeps those of the sessions
// in the window (ADR-018): the newest WindowSessions sessions that started in the
// last WindowDays days. A session starts at the newest time that its records say;
// all records of one session that this program writes say the same. Of sessions
// that start at the same instant the greater id counts as newer. Records from before
// the oldest session in the window are outside, whatever their session. So neither
// the order of the records nor where reading them begins decides what is in the
// window.
//
// Memory is bounded by twice the window's sessions and the member ids met; without
// a limit on sessions it grows with them, by 40 bytes a record and what a session
// takes itself. A Collector is for one goroutine.
type Collector struct {
	o        Options
	oldest   time.Time // earliest start in the window; zero: no limit
	sessions map[string]*session
	order    []*session // those of sessions, in no particular order
	members  map[string]int32
	names    []string // member ids by the value of members
	skipped  map[string]Skipped

	dropped      map[string]Filter // what the filters left out, by field
	versions     []versionPair     // that records tell, by the value of versionIndex
	versionIndex map[versionPair]int32
}

// session is what is kept of one session.
type session struct {
	id           string
	start        time.Time  // the newest time that its records say
	mentions     []mention  // in the order of its records
	firstMention [1]mention // the first memory of mentions, enough while all records say the same time
	rows         []row
	duplicates   int // rows that were dropped for one before them

	facts // of what is in the window, once sortRows has run
}

// mention is what consecutive records of a session, which say the same time, tell of it.
type mention struct {
	time time.Time
	facts
}

// facts are what records tell of their session.
type facts struct {
	query    string        // what the sessions of one question share; "" when the records do not tell
	key      string        // question_key behind keyMark; "" when the records do not tell
	config   string        // council_config_version
	category string        // that the caller named; "" for none
	language string        // that the caller named; "" for none
	order    council.Order // "" when the records do not tell
	embedder string        // that measured how alike the answers are; "" for none
	block    string        // the frozen answers, of a probe or imported, which are reviewed more than once; "" for none
	early    bool          // the positions are of a schema in which they are not trusted
}

// keyMark stands before a question_key, so that it is no query_hash and no block_id.
const keyMark = "\x00"

// add adds what later records tell. Where they differ, the first that tells decides.
func (f *facts) add(later facts) {
	f.query = cmp.Or(f.query, later.query)
	f.key = cmp.Or(f.key, later.key)
	f.config = cmp.Or(f.config, later.config)
	f.category = cmp.Or(f.category, later.category)
	f.language = cmp.Or(f.language, later.language)
	f.order = cmp.Or(f.order, later.order)
	f.embedder = cmp.Or(f.embedder, later.embedder)
	f.block = cmp.Or(f.block, later.block)
	f.early = f.early || later.early
}

// row is one record, kept small because a million of them may be held.
type row struct {
	score               float64 // 1 to 10; NaN when none was given
	rank                float64 // place on the ballot, the own answer closed up; NaN when it was not ranked
	reviewer, candidate int32   // indices into Collector.names
	length              int32   // of the answer, in code points
	position            int32   // 0-based; -1 when the record does not tell
	shown               int32   // size of the slate; 0 when the record does not tell
	mention             int32   // index into session.mentions
	versions            int32   // index into Collector.versions
	reasoning           int32   // tokens that the author of the answer reasoned with; -1 when the record does not tell
	style               float32 // similarity to the reviewer's own answer, -1 to 1; NaN when it was not measured
	own, family, early  bool
	correct             int8 // 1: it is the right answer, 0: it is not, -1: nobody knows
}

func compareSessions(a, b *session) int {
	return cmp.Or(a.start.Compare(b.start), strings.Compare(a.id, b.id))
}

// NewCollector returns an empty Collector.
func NewCollector(o Options) *Collector {
	o.MinSessions = cmp.Or(o.MinSessions, defaultMinSessions)
	o.WindowSessions = *cmp.Or(o.Sessions, &o.WindowSessions)
	o.WindowDays = *cmp.Or(o.Days, &o.WindowDays)
	c := &Collector{
		o:            o,
		sessions:     map[string]*session{},
		members:      map[string]int32{},
		skipped:      map[string]Skipped{},
		dropped:      map[string]Filter{},
		versionIndex: map[versionPair]int32{},
	}
	if o.WindowDays > 0 {
		c.oldest = o.Now.UTC().AddDate(0, 0, -o.WindowDays)
	}
	if o.Since.After(c.oldest) {
		c.oldest = o.Since
	}
	return c
}

// Add takes one record. Records of several sessions may be interleaved and come
// in any order. A record that is outside the window, or that the options leave out,
// is dropped. One that lies more than five minutes in the future, or holds a score
// that its scale does not explain, is counted as skipped; so is, in the report, every
// further record of the same session, reviewer and candidate.
func (c *Collector) Add(record council.BiasMetricRecord) {
	if record.Timestamp.After(c.o.Now.Add(clockTolerance)) {
		c.skip(Skipped{Reason: reasonFuture, Count: 1})
		return
	}
	known := factsOf(&record)
	versions := versionsOf(record.ModelVersions)
	if c.leavesOut(record.Timestamp, &known, versions) {
		return
	}
	r, ok := rowOf(&record)
	if !ok {
		c.skip(Skipped{Reason: reasonScore, Count: 1})
		return
	}
	s := c.session(record.SessionID, record.Timestamp)
	r.early = known.early
	r.mention = s.tell(record.Timestamp, known)
	r.versions = c.version(versions)
	r.reviewer = c.member(record.ReviewerID)
	r.candidate = c.member(record.ModelID)
	if s.rows == nil {
		s.rows = make([]row, 0, usualRows)
	}
	s.rows = append(s.rows, r)
}

// factsOf returns what a record says of its session.
func factsOf(record *council.BiasMetricRecord) facts {
	known := facts{
		config:   record.CouncilConfig,
		order:    record.OrderDesign,
		embedder: record.EmbeddingModel,
		early:    council.EarlySchema(record.SchemaVersion),
	}
	if record.QueryMetadata.Category != nil {
		known.category = *record.QueryMetadata.Category
	}
	if record.QueryMetadata.Language != nil {
		known.language = *record.QueryMetadata.Language
	}
	if record.BlockID != nil {
		known.block = *record.BlockID
	}
	// The frozen answers of a probe answer one question too.
	if hash := cmp.Or(record.QueryHash, record.BlockID); hash != nil {
		known.query = *hash
	}
	if record.QuestionKey != nil {
		known.key = keyMark + *record.QuestionKey
	}
	return known
}

// leavesOut reports whether a record with these facts is outside the window or the filters. It counts what a filter leaves out.
func (c *Collector) leavesOut(at time.Time, known *facts, versions versionPair) bool {
	if at.Before(c.oldest) || !c.o.Until.IsZero() && !at.Before(c.o.Until) {
		return true
	}
	return c.drops("config_version", c.o.ConfigVersion, known.config) ||
		c.drops("category", c.o.Category, known.category) ||
		c.drops("language", c.o.Language, known.language) ||
		c.drops("model_version", c.o.ModelVersion, versions.reviewer, versions.candidate)
}

// rowOf returns the row of a record. Its indices and its field early are not set yet. It reports false if the scale does not
// explain the score.
func rowOf(record *council.BiasMetricRecord) (row, bool) {
	r := row{
		score:     math.NaN(),
		rank:      math.NaN(),
		length:    clamp(record.ResponseLengthChars),
		position:  -1,
		shown:     clamp(record.NShown),
		reasoning: -1,
		style:     float32(math.NaN()),
		own:       record.Own,
		family:    !record.Own && record.Provider.Reviewer != "" && record.Provider.Reviewer == record.Provider.Candidate,
		correct:   -1,
	}
	if record.ScoreValue != nil {
		score, ok := rescale(*record.ScoreValue, record.ScoreScale)
		if !ok {
			return r, false
		}
		r.score = score
	}
	if n := record.ResponseReasoningTokens; n != nil {
		r.reasoning = clamp(int(*n))
	}
	if record.Position != nil {
		r.position = clamp(*record.Position)
	}
	if record.RankValue != nil {
		r.rank = *record.RankValue
	}
	if record.StyleSimilarity != nil {
		r.style = float32(*record.StyleSimilarity)
	}
	if record.Correct != nil {
		r.correct = 0
		if *record.Correct {
			r.correct = 1
		}
	}
	return r, true
}

// drops reports whether a filter leaves out a record that has those values, and counts it.
func (c *Collector) drops(field, asked string, values ...string) bool {
	if asked == "" || slices.Contains(values, asked) {
		return false
	}
	c.drop(Filter{Field: field, Asked: asked, Matches: []string{}, Present: values, LeftOut: 1})
	return true
}

// drop adds to what a filter left out. It keeps the first values in their order, whichever came first.
func (c *Collector) drop(f Filter) {
	known := c.dropped[f.Field]
	f.LeftOut += known.LeftOut
	present := known.Present
	if present == nil {
		present = []string{}
	}
	for _, value := range f.Present {
		if at, ok := slices.BinarySearch(present, value); !ok && value != "" && at < maxPresent {
			present = slices.Insert(present, at, value)
			present = present[:min(len(present), maxPresent)]
		}
	}
	f.Present = present
	c.dropped[f.Field] = f
}

// leftOut returns what the filters left out, by field. Which records were read at all is only certain where the window is not full.
func (c *Collector) leftOut() (all []Filter) {
	if c.full() {
		return nil
	}
	for _, field := range slices.Sorted(maps.Keys(c.dropped)) {
		all = append(all, c.dropped[field])
	}
	return all
}

// tell notes what a record of that time tells of the session, and returns where.
func (s *session) tell(at time.Time, f facts) int32 {
	last := len(s.mentions) - 1
	if last >= 0 && s.mentions[last].time.Equal(at) {
		s.mentions[last].add(f)
		return int32(last)
	}
	s.mentions = append(s.mentions, mention{at, f})
	return int32(last + 1)
}

// Excludes reports whether records that say times from oldest to newest change
// nothing any more, whatever else they say: they are outside the window, and none
// of them counts as skipped.
func (c *Collector) Excludes(oldest, newest time.Time) bool {
	if newest.After(c.o.Now.Add(clockTolerance)) {
		return false
	}
	c.trim()
	return newest.Before(c.oldest) ||
		!c.o.Until.IsZero() && !oldest.Before(c.o.Until) ||
		c.full() && newest.Before(c.order[0].start)
}

// AddBefore adds what another Collector of the same options took from records that
// stand before those of c. The other one is of no use after that.
func (c *Collector) AddBefore(earlier *Collector) {
	for _, from := range earlier.order {
		for i := range from.rows {
			r := &from.rows[i]
			r.versions = c.version(earlier.versions[r.versions])
			r.reviewer = c.member(earlier.names[r.reviewer])
			r.candidate = c.member(earlier.names[r.candidate])
		}
		s := c.session(from.id, from.start)
		for i := range s.rows {
			s.rows[i].mention += int32(len(from.mentions))
		}
		s.mentions = append(from.mentions, s.mentions...)
		s.rows = append(from.rows, s.rows...)
	}
	for _, f := range earlier.dropped {
		c.drop(f)
	}
	for reason, first := range earlier.skipped {
		further, ok := c.skipped[reason]
		c.skipped[reason] = first
		if ok {
			c.skip(further)
		}
	}
}

// Skip counts lines that the reader of the store could not take, all for the reader's
// one reason: the name of their file, and the 1-based number of the first there.
func (c *Collector) Skip(file string, line int64, reason string, count int) {
	c.skip(Skipped{Reason: reason, Count: count, FirstFile: &file, FirstLine: &line})
}

func (c *Collector) skip(s Skipped) {
	known := c.skipped[s.Reason]
	s.Count += known.Count
	if known.FirstLine != nil {
		s.FirstFile = known.FirstFile
		s.FirstLine = known.FirstLine
	}
	c.skipped[s.Reason] = s
}

// session returns the session of that id, which started then or later. One that was
// dropped may come back; what it had before then is outside the window for good.
func (c *Collector) session(id string, start time.Time) *session {
	if s, ok := c.sessions[id]; ok {
		if start.After(s.start) {
			s.start = start
		}
		return s
	}
	// Making room only at twice the limit keeps its cost per session small.
	if c.o.WindowSessions > 0 && len(c.order)/2 >= c.o.WindowSessions {
		c.trim()
	}
	s := &session{id: id, start: start}
	s.mentions = s.firstMention[:0]
	c.sessions[id] = s
	c.order = append(c.order, s)
	return s
}

// trim sorts the sessions by start and drops those before the window.
func (c *Collector) trim() {
	slices.SortFunc(c.order, compareSessions)
	excess := len(c.order) - c.o.WindowSessions
	if c.o.WindowSessions <= 0 || excess <= 0 {
		return
	}
	for _, s := range c.order[:excess] {
		delete(c.sessions, s.id)
	}
	c.order = slices.Delete(c.order, 0, excess)
}

// full reports whether the window holds as many sessions as it may. Call trim first.
func (c *Collector) full() bool { return c.o.WindowSessions > 0 && len(c.order) == c.o.WindowSessions }

func (c *Collector) member(id string) int32 {
	index, ok := c.members[id]
	if !ok {
		index = int32(len(c.names))
		c.members[id] = index
		c.names = append(c.names, id)
	}
	return index
}

func clamp(n int) int32 { return int32(max(-1, min(n, math.MaxInt32))) }

// rescale maps a score affinely from its scale, "min-max", to 1-10. It reports
// false for a scale that is none and for a score outside its scale.
func rescale(score float64, scale string) (float64, bool) {
	if scale == council.ScoreScale {
		return score, 1 <= score && score <= 10
	}
	low, high, ok := council.ParseScale(scale)
	if !ok || !(low <= score && score <= high) { // also refuses NaN
		return 0, false
	}
	return 1 + 9*((score-low)/(high-low)), true
}
