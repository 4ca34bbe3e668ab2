package consent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/stat"
)

// Schema is the schema version of events.
const Schema = "1.1.0"

// The levels of consent (ADR-018) at which events are sent.
const (
	LevelRankings = 2 // rankings, day and category
	LevelBias     = 3 // also bias_indicators and query_metadata
	LevelResearch = 4 // also the session's own id, its time and query_hash
)

// Event is what is sent about one session. If a field's comment names a level of consent, the field is sent from that
// level on. All other fields are sent from level 2 on.
type Event struct {
	SchemaVersion string `json:"schema_version"` // Schema
	EventID       string `json:"event_id"`       // a random UUID (version 4)
	// SessionID is a random UUID that is used nowhere else. At level 4 it is the session's own id.
	SessionID string `json:"session_id"`
	Day       string `json:"day"` // the day on which the session began (UTC), in the form 2026-11-20
	// Category is the category that the caller named, one of council.Categories. It is null if the caller named none.
	Category *string   `json:"category"`
	Rankings []Ranking `json:"rankings"` // the best first; at least one
	// BiasIndicators are the audit of the session, computed again from its records and rounded. They are sent from
	// level 3 on, if the audit is switched on.
	BiasIndicators *council.BiasIndicators `json:"bias_indicators,omitempty"`
	QueryMetadata  *council.QueryMetadata  `json:"query_metadata,omitempty"` // level 3
	Time           *time.Time              `json:"time,omitempty"`           // when the session began (UTC); level 4
	QueryHash      *string                 `json:"query_hash,omitempty"`     // the query_hash of the records; level 4
}

// Ranking is the place of one seat in a session.
type Ranking struct {
	Model string `json:"model"` // the name under which the model is published, or council.OtherModel
	Rank  int    `json:"rank"`  // from 1; tied seats share a rank
	// BordaNormalized is the mean over ballots of (m-1-p)/(m-1), from 0 to 1. m is how many seats the ballot could
	// rank, and p is the place of this seat, from 0.
	BordaNormalized float64 `json:"borda_normalized"`
}

// Options are the settings for making events.
type Options struct {
	Level int // level of consent, 0 to 4
	// Publish returns the name under which a model of the roster is published. If it is nil or returns "", the name
	// is council.OtherModel.
	Publish func(rosterID string) string
	Policy  council.PartialPolicy    // how a ballot counts for a candidate that it leaves out
	Audit   *council.AuditThresholds // nil if the audit is switched off
}

// Make returns the event of a session. The argument records has all records of the session. Make returns nil if the
// level is below 2, if no ballot counts, or if the answers were given to judges. It also returns nil if the session is
// one of several that review the same answers: its records have a block id.
func Make(records []council.BiasMetricRecord, o Options) *Event {
	if o.Level < LevelRankings || len(records) == 0 || records[0].BlockID != nil || records[0].Source != "" {
		return nil
	}
	first := records[0]
	e := &Event{
		SchemaVersion: Schema,
		EventID:       newUUID(),
		SessionID:     newUUID(),
		Day:           first.Timestamp.UTC().Format(time.DateOnly),
		Category:      first.QueryMetadata.Category,
		Rankings:      rankings(records, o),
	}
	if len(e.Rankings) == 0 {
		return nil
	}
	if o.Level >= LevelBias {
		metadata := first.QueryMetadata
		e.QueryMetadata = &metadata
		if o.Audit != nil {
			e.BiasIndicators = indicators(records, *o.Audit)
		}
	}
	if o.Level >= LevelResearch {
		e.SessionID = first.SessionID
		e.Time = new(first.Timestamp.UTC())
		e.QueryHash = first.QueryHash
	}
	return e
}

// rankings returns the places of the seats. Tied seats are in the order of their published names.
func rankings(records []council.BiasMetricRecord, o Options) []Ranking {
	published := map[string]string{} // published name for each model of the records
	all := bias.NewCollector(bias.Options{Now: records[0].Timestamp})
	for _, r := range records {
		published[r.ModelID] = council.OtherModel
		if r.RosterIDs != nil && o.Publish != nil {
			published[r.ModelID] = cmp.Or(o.Publish(council.ModelOf(r.RosterIDs.Candidate)), council.OtherModel)
		}
		all.Add(r)
	}
	places := []Ranking{}
	for _, board := range all.Leaderboard(o.Policy).Boards {
		// All models of a session were compared with each other, so there is at most one leaderboard.
		for _, entry := range board.Entries {
			places = append(places, Ranking{
				Model:           published[entry.Model],
				Rank:            entry.Rank,
				BordaNormalized: entry.BordaNormalized,
			})
		}
	}
	// The leaderboard sorts tied entries by names that are not sent. Sort them again, so that their order does not
	// reveal these names.
	slices.SortFunc(places, func(a, b Ranking) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Model, b.Model))
	})
	return places
}

// indicators returns the indicators of bias of a session, as ADR-018 defines them.
func indicators(records []council.BiasMetricRecord, thresholds council.AuditThresholds) *council.BiasIndicators {
	in := bias.AuditInput{
		Order: records[0].OrderDesign, Thresholds: thresholds, Twins: twins(records),
		Chars: map[string]int{}, Shown: map[string][]string{},
	}
	votes := map[string]*ranking.Vote{}         // keyed by reviewer
	places := map[string]map[float64][]string{} // keyed by reviewer, then by rank
	for _, r := range records {
		in.Chars[r.ModelID] = r.ResponseLengthChars
		// The records are in the order of the slate.
		in.Shown[r.ReviewerID] = append(in.Shown[r.ReviewerID], r.ModelID)
		if r.ScoreValue != nil && r.Position != nil {
			in.Scores = append(in.Scores, bias.Score{
				Reviewer: r.ReviewerID, Candidate: r.ModelID, Position: *r.Position, Own: r.Own, Value: *r.ScoreValue,
			})
		}
		if votes[r.ReviewerID] == nil {
			votes[r.ReviewerID] = &ranking.Vote{Reviewer: r.ReviewerID}
			places[r.ReviewerID] = map[float64][]string{}
		}
		if !r.Own {
			votes[r.ReviewerID].Shown = append(votes[r.ReviewerID].Shown, r.ModelID)
		}
		if r.RankValue != nil {
			places[r.ReviewerID][*r.RankValue] = append(places[r.ReviewerID][*r.RankValue], r.ModelID)
		}
	}
	o := ranking.Options{Candidates: slices.Sorted(maps.Keys(in.Chars)), Policy: council.PolicyAvailable}
	for _, reviewer := range slices.Sorted(maps.Keys(votes)) {
		for _, rank := range slices.Sorted(maps.Keys(places[reviewer])) {
			votes[reviewer].Places = append(votes[reviewer].Places, places[reviewer][rank])
		}
		if len(votes[reviewer].Places) > 0 {
			o.Votes = append(o.Votes, *votes[reviewer])
		}
	}
	found := bias.Indicators(bias.Audit(in), ranking.KendallW(o))
	for _, figure := range []*float64{found.PositionVariance, found.LengthCorrelation, found.ReviewerAgreement} {
		if figure != nil {
			*figure = stat.Round(*figure)
		}
	}
	return &found
}

// twins returns the seats of one model in a session. It returns none if such seats judged each other.
func twins(records []council.BiasMetricRecord) council.Twins {
	var seats []council.Member
	for _, r := range records {
		for _, id := range []string{r.ReviewerID, r.ModelID} {
			seats = append(seats, council.Member{ID: id, Model: council.ModelOf(id)})
		}
	}
	found := council.TwinsOf(seats, nil)
	if slices.ContainsFunc(records, func(r council.BiasMetricRecord) bool { return !r.Own && found.Own(r.ReviewerID, r.ModelID) }) {
		return nil
	}
	return found
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // It never fails.
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

const (
	// MaxBytes is the size of the largest event, in bytes.
	MaxBytes = 16 << 10
	// maxSeats is how many rankings one event may have.
	maxSeats = 64
	// maxVariance is the largest variance of scores from 1 to 10: half of the scores are 1, and half are 10.
	maxVariance = 20.25
	// KeptDays is how many days an intake keeps events.
	KeptDays = 90
	// maxAgeDays is how many days ago the day of an event may be. An intake must refuse an older event. It forgets
	// events after KeptDays, and would not recognise a duplicate.
	maxAgeDays = KeptDays - 1
)

var (
	eventID   = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	sessionID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	queryHash = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// Parse reads one event strictly. It returns an error for unknown and doubled fields, for wrong types, and for
// values that no event has. The error says how to fix the event, and quotes nothing of the text.
func Parse(text []byte, now time.Time) (Event, error) {
	var e Event
	if len(text) > MaxBytes {
		return e, fmt.Errorf("the event has more than %d bytes: leave out what is not in its schema", MaxBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return Event{}, explain(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Event{}, errors.New("more text follows the event: send one JSON object")
	}
	if err := e.check(now); err != nil {
		return Event{}, err
	}
	// Compare the names of the fields in the result and in the text, because encoding/json also accepts fields that
	// occur twice or in another case.
	again, err := json.Marshal(e)
	if err != nil || !slices.Equal(keys(again), keys(text)) {
		return Event{}, errors.New("a field is missing, is given twice, is null or is in another case: " +
			"write each field once, as docs/events.md spells it")
	}
	return e, nil
}

// explain describes an error in JSON without quoting the text.
func explain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s has the wrong type: write it as docs/events.md shows", cmp.Or(wrong.Field, "the event"))
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) {
		return errors.New("the event is not valid JSON: send one object")
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return errors.New("time is not a time of RFC 3339: write it as in 2026-11-20T10:00:00Z")
	}
	return errors.New("the event has a field that its schema does not have: send those of docs/events.md")
}

// keys returns the names of all fields in a valid JSON text, sorted.
func keys(text []byte) (names []string) {
	var open []json.Delim // the objects and lists that are open
	named := false        // true after a name, when the value of that name follows
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err != nil {
			slices.Sort(names)
			return names
		}
		delim, _ := token.(json.Delim)
		switch {
		case delim == '{' || delim == '[':
			open = append(open, delim)
			named = false
		case delim != 0:
			open = open[:len(open)-1]
		case open[len(open)-1] == '{' && !named:
			names = append(names, token.(string))
			named = true
		default:
			named = false
		}
	}
}

// checkHead checks the ids of the event, its day, and how many rankings it has.
func (e Event) checkHead(now time.Time) error {
	day, err := time.Parse(time.DateOnly, e.Day)
	today := now.UTC().Truncate(24 * time.Hour)
	switch {
	case e.SchemaVersion != Schema:
		return errors.New("schema_version is not " + Schema + ": send events of that version")
	case !eventID.MatchString(e.EventID):
		return errors.New("event_id is not a UUID of version 4 in lower case: draw one for each event")
	case !sessionID.MatchString(e.SessionID):
		return errors.New("session_id is not a UUID in lower case: draw one for each event")
	case err != nil:
		return errors.New("day is not a day: write it as in 2026-11-20")
	case day.Before(today.AddDate(0, 0, -maxAgeDays)):
		return fmt.Errorf("day is more than %d days ago: send events sooner", maxAgeDays)
	case day.After(today.AddDate(0, 0, 1)):
		return errors.New("day is in the future: set the clock")
	case len(e.Rankings) == 0 || len(e.Rankings) > maxSeats:
		return fmt.Errorf("rankings has %d entries: send 1 to %d", len(e.Rankings), maxSeats)
	default:
		return nil
	}
}

// check returns an error for the first value that is not valid in an event.
func (e Event) check(now time.Time) error {
	if err := e.checkHead(now); err != nil {
		return err
	}
	if err := checkCategory("category", e.Category); err != nil {
		return err
	}
	for i, r := range e.Rankings {
		switch {
		case !council.IsPublicName(r.Model):
			return fmt.Errorf("rankings[%d].model is not a name: write 1 to 64 of a to z, 0 to 9 and . _ / : -", i)
		case r.Rank < 1 || r.Rank > len(e.Rankings):
			return fmt.Errorf("rankings[%d].rank is out of range: use 1 to the number of rankings", i)
		case !(r.BordaNormalized >= 0 && r.BordaNormalized <= 1):
			return fmt.Errorf("rankings[%d].borda_normalized is out of range: use 0 to 1", i)
		}
	}
	if err := checkIndicators(e.BiasIndicators); err != nil {
		return err
	}
	if err := checkMetadata(e.QueryMetadata); err != nil {
		return err
	}
	if e.Time != nil && e.Time.UTC().Format(time.DateOnly) != e.Day {
		return errors.New("time is not on the day: send the time at which the session began")
	}
	if e.QueryHash != nil && !queryHash.MatchString(*e.QueryHash) {
		return errors.New("query_hash is not 16 hexadecimal digits: send the keyed hash of the records")
	}
	return nil
}

func checkCategory(field string, category *string) error {
	if category != nil && !slices.Contains(council.Categories(), *category) {
		return fmt.Errorf("%s is not one of %v: use one of them, or null", field, council.Categories())
	}
	return nil
}

func checkIndicators(b *council.BiasIndicators) error {
	if b == nil {
		return nil
	}
	within := func(v *float64, least, most float64) bool {
		return v == nil || !math.IsNaN(*v) && *v >= least && *v <= most
	}
	switch flags := slices.Compact(slices.Sorted(slices.Values(b.Flags))); {
	case !within(b.PositionVariance, 0, maxVariance):
		return errors.New("bias_indicators.position_variance is out of range: use 0 to 20.25, or null")
	case !within(b.LengthCorrelation, -1, 1):
		return errors.New("bias_indicators.length_correlation is out of range: use -1 to 1, or null")
	case !within(b.ReviewerAgreement, 0, 1):
		return errors.New("bias_indicators.reviewer_agreement is out of range: use 0 to 1, or null")
	case b.Flags == nil || len(flags) != len(b.Flags) ||
		slices.ContainsFunc(flags, func(f string) bool { return !isFlag(f) }):
		return errors.New("bias_indicators.flags is not a list of flags: use " + flagLength + " and " + flagPosition + ", each once, or []")
	}
	return nil
}

// These are the flags of council.BiasIndicators.
const (
	flagLength   = "LENGTH_ASSOCIATION"
	flagPosition = "POSITION_BIAS_DETECTED"
)

func isFlag(text string) bool { return text == flagLength || text == flagPosition }

func checkMetadata(m *council.QueryMetadata) error {
	if m == nil {
		return nil
	}
	buckets := []string{
		council.TokenBucket(0), council.TokenBucket(100), council.TokenBucket(500), council.TokenBucket(2000),
	}
	switch {
	case m.TokenCountBucket != nil && !slices.Contains(buckets, *m.TokenCountBucket):
		return fmt.Errorf("query_metadata.token_count_bucket is not one of %v: use one of them, or null", buckets)
	case m.Language != nil && !council.IsLanguage(*m.Language):
		return errors.New("query_metadata.language is not a language: use two lower-case letters of ISO 639-1, or null")
	}
	return checkCategory("query_metadata.category", m.Category)
}
