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
	// clockTolerance is how far in the future the time of a record may be, because the machine that wrote the
	// record may have another clock.
	clockTolerance = 5 * time.Minute
	// usualRows is how many records a new session has memory for. Four members that review each other write 12
	// records.
	usualRows = 12
	// defaultMinSessions is ADR-018's MIN_SESSIONS_FOR_AGGREGATION.
	defaultMinSessions = 20
)

// Options are the settings of a Collector.
type Options struct {
	Now time.Time // the report's date and the end of its window; required
	// WindowSessions is the largest number of sessions in the window if the query has no Sessions. 0 is no limit.
	WindowSessions int
	// WindowDays is the length of the window in days if the query has no Days. 0 is no limit.
	WindowDays int
	// MinSessions is the number of sessions that a verdict needs. With fewer, figures count as preliminary. 0
	// stands for ADR-018's 20.
	MinSessions int
	// RetentionDays is the age, in days, from which records are deleted. If it is nil, records are never deleted.
	RetentionDays *int
	// SecretMade is when the secret of question keys was last replaced. It is zero if the secret was never
	// replaced.
	SecretMade time.Time
	// Settings holds the names of the settings. The reasons for missing figures name the setting that the reader
	// can change.
	Settings council.SettingNames
	Query
}

// Query selects the records of a report or a leaderboard. A field that is nil or empty leaves the other settings of
// the Collector as they are.
type Query struct {
	Sessions *int // limits the window to this many of the newest sessions. 0 is no limit
	// Days limits the window to sessions that started within this many times 24 h before Now. 0 is no limit.
	Days *int

	Since         time.Time // keeps only sessions that started at this time or later
	Until         time.Time // keeps only sessions that started before this time
	ConfigVersion string    // keeps only records of this council_config_version
	// Reviewer keeps only the records of one reviewer, and Model only the records of one candidate. Both are member
	// ids. If no member has that id, the value stands for all members whose ids begin with the value. A [Filter] in
	// the report lists these members.
	Reviewer, Model string
	// ModelVersion keeps only records whose reviewer or candidate was served as this version.
	ModelVersion string
	// Source keeps only records of this source. Without a source, it keeps the records of answers that members wrote, and
	// leaves out the records of answers that were given to judges.
	Source   string
	Category string // keeps only sessions whose caller named this category
	// Language keeps only sessions whose caller named this language, by its ISO 639-1 code.
	Language string
	// Split is "category" or "language" if the report describes the sessions of each value separately. Otherwise it
	// is "".
	Split string
}

// Collector takes BiasMetricRecords in one pass and keeps those of the sessions in the window (ADR-018). The window
// holds the newest WindowSessions sessions that started in the last WindowDays days. The start of a session is the
// newest time in its records. All records of one session that this program writes have the same time. If two
// sessions start at the same instant, the one with the greater id counts as newer. A record that is older than the
// oldest session in the window is left out, even if its own session is in the window. So the window depends neither
// on the order of the records nor on which record is read first.
//
// A Collector holds at most twice as many sessions as the window, and all member ids that occurred. If the number
// of sessions has no limit, its memory grows by 40 bytes for each record, and by a little more for each session.
// Only one goroutine may use a Collector.
type Collector struct {
	o        Options
	oldest   time.Time // the earliest start in the window, or zero without a limit
	sessions map[string]*session
	order    []*session // the values of sessions, in no particular order
	members  map[string]int32
	names    []string // the member ids. The values of the map members are indices into names
	skipped  map[string]Skipped

	dropped      map[string]Filter // counts what the filters left out, by field
	versions     []versionPair     // the pairs that occur. The values of versionIndex are indices into versions
	versionIndex map[versionPair]int32
}

// session holds the records of one session.
type session struct {
	id       string
	start    time.Time // the newest time in its records
	mentions []mention // the mentions in the order of the records
	// firstMention is the memory that the slice mentions uses until it has a second element.
	firstMention [1]mention
	rows         []row
	duplicates   int // counts rows that were dropped because an earlier one has the same reviewer and candidate

	// The facts from the records that are in the window. The method sortRows sets them.
	facts
}

// mention holds the facts from consecutive records of a session that have the same time.
type mention struct {
	time time.Time
	facts
}

// facts holds what the records of a session say about the whole session. A string is "" if no record has this fact.
type facts struct {
	query    string // is the same for all sessions of one question
	key      string // keyMark followed by the question_key
	config   string // council_config_version
	category string // the caller named it
	language string // the caller named it
	order    council.Order
	embedder string // the model that measured how similar the answers are
	// block identifies frozen answers that are reviewed more than once, from a probe or an import.
	block string
	early bool // is true if a record has a schema whose positions are not trusted
}

// keyMark stands before a question_key, so that a key never equals a query_hash or a block_id.
const keyMark = "\x00"

// add adds the facts of later records. A fact that an earlier record has does not change.
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
	score float64 // 1 to 10, or NaN if no score was given
	// rank is the candidate's place on the ballot, counted without the reviewer's own answer. It is NaN if the
	// answer was not ranked.
	rank                float64
	reviewer, candidate int32 // indices into Collector.names
	length              int32 // length of the answer in code points
	position            int32 // 0-based, or -1 if the record has none
	shown               int32 // size of the slate, or 0 if the record has none
	mention             int32 // index into session.mentions
	versions            int32 // index into Collector.versions
	// reasoning is how many tokens the author of the answer reasoned with, or -1 if the record has no number.
	reasoning int32
	// style is the similarity to the reviewer's own answer, -1 to 1. It is NaN if it was not measured.
	style              float32
	own, family, early bool
	correct            int8 // 1 if the answer is right, 0 if it is wrong, -1 if the record has no grade
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

// Add takes one record. Records of several sessions may be interleaved and come in any order. A record outside the
// window or the filters is dropped. A record is counted as skipped if its time is more than five minutes in the
// future, or if its score is not on its scale. A report also counts repeated records of one session, reviewer and
// candidate as skipped.
func (c *Collector) Add(record council.BiasMetricRecord) {
	if record.Timestamp.After(c.o.Now.Add(clockTolerance)) {
		c.skip(Skipped{Reason: reasonFuture, Count: 1})
		return
	}
	if record.Source != c.o.Source {
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

// factsOf returns what a record says about its session.
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
	// If a record of a probe has no query_hash, its block_id stands for the question, because all answers of a
	// block answer the same question.
	if hash := cmp.Or(record.QueryHash, record.BlockID); hash != nil {
		known.query = *hash
	}
	if record.QuestionKey != nil {
		known.key = keyMark + *record.QuestionKey
	}
	return known
}

// leavesOut reports whether a record with these facts is outside the window or the filters. It counts the records
// that a filter leaves out.
func (c *Collector) leavesOut(at time.Time, known *facts, versions versionPair) bool {
	if at.Before(c.oldest) || !c.o.Until.IsZero() && !at.Before(c.o.Until) {
		return true
	}
	return c.drops("config_version", c.o.ConfigVersion, known.config) ||
		c.drops("category", c.o.Category, known.category) ||
		c.drops("language", c.o.Language, known.language) ||
		c.drops("model_version", c.o.ModelVersion, versions.reviewer, versions.candidate)
}

// rowOf returns the row of a record. The caller must set the indices and the field early of that row. rowOf returns
// false if the score is not on its scale.
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

// drops reports whether a filter leaves out a record that has these values. If so, it counts the record.
func (c *Collector) drops(field, asked string, values ...string) bool {
	if asked == "" || slices.Contains(values, asked) {
		return false
	}
	c.drop(Filter{Field: field, Asked: asked, Matches: []string{}, Present: values, LeftOut: 1})
	return true
}

// drop adds the records in f to the records that the same filter left out before. It keeps only the first
// maxPresent values in sorted order, so that the result does not depend on the order of the records.
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

// leftOut returns what the filters left out, by field. It returns nothing if the window is full, because the reader
// of the store may then have skipped older records, and the numbers would be too small.
func (c *Collector) leftOut() (all []Filter) {
	if c.full() {
		return nil
	}
	for _, field := range slices.Sorted(maps.Keys(c.dropped)) {
		all = append(all, c.dropped[field])
	}
	return all
}

// tell stores the facts that a record has about the session, with the time of the record. It returns the index of
// these facts in s.mentions. Consecutive records with the same time share one index.
func (s *session) tell(at time.Time, f facts) int32 {
	last := len(s.mentions) - 1
	if last >= 0 && s.mentions[last].time.Equal(at) {
		s.mentions[last].add(f)
		return int32(last)
	}
	s.mentions = append(s.mentions, mention{at, f})
	return int32(last + 1)
}

// Excludes reports whether records with times from oldest to newest cannot change the report. Such records are all
// outside the window, and none of them counts as skipped. Readers of the store use Excludes to skip parts of files.
func (c *Collector) Excludes(oldest, newest time.Time) bool {
	if newest.After(c.o.Now.Add(clockTolerance)) {
		return false
	}
	c.trim()
	return newest.Before(c.oldest) ||
		!c.o.Until.IsZero() && !oldest.Before(c.o.Until) ||
		c.full() && newest.Before(c.order[0].start)
}

// AddBefore adds all records that another Collector holds. That Collector must have the same options, and its
// records must come before those of c in the store. The other Collector must not be used afterwards.
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

// Skip counts lines that the reader of the store could not parse. The reader names its reason, the file, and the
// 1-based number of the first such line.
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

// session returns the session with that id. If there is none, it adds one. If the argument start is later than the
// start of the session, the session gets that start. A session that trim dropped can be added again. Its earlier
// records are then missing, but they are outside the window in any case.
func (c *Collector) session(id string, start time.Time) *session {
	if s, ok := c.sessions[id]; ok {
		if start.After(s.start) {
			s.start = start
		}
		return s
	}
	// Trim only at twice the limit, because each call of trim sorts all sessions.
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

// rescale maps a score linearly from its scale, "min-max", to 1-10. It returns false for an invalid scale and for a
// score outside its scale.
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
