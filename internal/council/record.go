package council

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RecordSchema is the schema version of the records this program writes.
const RecordSchema = "1.4.0"

// ScoreScale is the scale of the scores that reviewers are asked for.
const ScoreScale = "1-10"

// EarlySchema reports whether a schema version is from before 1.2.0. Such records have no
// ranks, and their position may not be the place at which this reviewer saw the answer.
func EarlySchema(version string) bool {
	return strings.HasPrefix(version, "1.0.") || strings.HasPrefix(version, "1.1.")
}

// ParseScale reads the bounds of a score scale, "min-max" with finite numbers, the smaller
// one first. It reports false for anything else.
func ParseScale(scale string) (low, high float64, ok bool) {
	unsigned, negative := strings.CutPrefix(scale, "-")
	lowText, highText, _ := strings.Cut(unsigned, "-") // a minus sign may stand before either number
	low, errLow := strconv.ParseFloat(lowText, 64)
	high, errHigh := strconv.ParseFloat(highText, 64)
	if negative {
		low = -low
	}
	return low, high, errLow == nil && errHigh == nil && low < high && !math.IsInf(high-low, 0)
}

// BiasMetricRecord is the judgement of one reviewer on one candidate in one session
// (ADR-018). There is one for every candidate on the slate of every reviewer that was
// asked, also if no ballot came back. It never holds text of a query or an answer.
type BiasMetricRecord struct {
	SchemaVersion string        `json:"schema_version"`
	SessionID     string        `json:"session_id"`
	Timestamp     time.Time     `json:"timestamp"` // start of the session, UTC
	ConsentLevel  int           `json:"consent_level"`
	QueryMetadata QueryMetadata `json:"query_metadata"`
	ReviewerID    string        `json:"reviewer_id"`
	ModelID       string        `json:"model_id"`
	// Position is the 0-based place at which this reviewer was shown the
	// candidate; nil in records before schema 1.2.0, which do not know it.
	Position            *int     `json:"position"`
	ResponseLengthChars int      `json:"response_length_chars"` // Unicode code points
	ScoreValue          *float64 `json:"score_value"`           // on ScoreScale
	ScoreScale          string   `json:"score_scale"`           // "min-max"
	CouncilConfig       string   `json:"council_config_version"`
	QueryHash           *string  `json:"query_hash"`

	Own         bool         `json:"own"`          // the reviewer wrote this candidate
	NShown      int          `json:"n_shown"`      // size of the slate; 0 when the record does not tell
	OrderDesign Order        `json:"order_design"` // "" when the record does not tell
	RankValue   *float64     `json:"rank_value"`   // mean 0-based place on the ballot after closing up the own answer
	Status      BallotStatus `json:"ballot_status"`
	Provider    ProviderPair `json:"provider"`
	BlockID     *string      `json:"block_id"` // the frozen answers of a probe

	// Records before schema 1.4.0 do not have these three fields: they are nil there.
	ModelVersions           VersionPair `json:"model_versions"`
	ResponseReasoningTokens *int64      `json:"response_reasoning_tokens"` // of the calls for the answer; nil where no reply reports them
	// QuestionKey is 16 hexadecimal digits, the same in all records of one question; nil where nobody knows.
	QuestionKey *string `json:"question_key"`

	// StyleSimilarity is the cosine of the embeddings of the reviewer's own answer and of the candidate,
	// -1 to 1; nil where it was not measured, and before schema 1.3.0. The embeddings themselves are kept
	// nowhere. EmbeddingModel is the model that made them: figures of two models are on two scales.
	StyleSimilarity *float64 `json:"style_similarity,omitempty"`
	EmbeddingModel  string   `json:"embedding_model,omitempty"`
	// Correct says whether the candidate is the right answer, where records were imported together with the truth; nil
	// where nobody knows it.
	Correct *bool `json:"correct,omitempty"`
	// RosterIDs are the seats' ids in the roster; nil where there is none.
	RosterIDs *SeatPair `json:"roster_ids,omitempty"`
}

// RecordColumn is a column of a table of records.
type RecordColumn struct {
	Name   string
	Object string // the object in the JSON of a record that has the field; "" for the record itself
	Field  string // the name of the field there
	Text   bool   // false: the field is a number, or true or false
}

// RecordColumns returns the columns of a table of records, in their order.
func RecordColumns() []RecordColumn {
	text := func(name string) RecordColumn { return RecordColumn{Name: name, Field: name, Text: true} }
	value := func(name string) RecordColumn { return RecordColumn{Name: name, Field: name} }
	in := func(object, name, field string) RecordColumn { return RecordColumn{name, object, field, true} }
	return []RecordColumn{
		text("schema_version"), text("session_id"), text("timestamp"), value("consent_level"),
		in("query_metadata", "category", "category"), in("query_metadata", "token_count_bucket", "token_count_bucket"),
		in("query_metadata", "language", "language"),
		text("reviewer_id"), text("model_id"), value("position"), value("response_length_chars"), value("score_value"), text("score_scale"),
		text("council_config_version"), text("query_hash"), value("own"), value("n_shown"), text("order_design"), value("rank_value"),
		text("ballot_status"), in("provider", "provider_reviewer", "reviewer"), in("provider", "provider_candidate", "candidate"),
		text("block_id"), in("roster_ids", "roster_reviewer", "reviewer"), in("roster_ids", "roster_candidate", "candidate"),
		value("style_similarity"), text("embedding_model"),
		in("model_versions", "model_version_reviewer", "reviewer"), in("model_versions", "model_version_candidate", "candidate"),
		value("response_reasoning_tokens"), text("question_key"), value("correct"),
	}
}

// VersionPair says which versions of the reviewer and of the candidate replied, as in Spent.ModelVersion: of the reviewer in
// its review, and of the candidate in its answer.
type VersionPair struct {
	Reviewer  *string `json:"reviewer"`
	Candidate *string `json:"candidate"`
}

// QueryMetadata is what the caller said about the question; nothing in it is
// derived from the text.
type QueryMetadata struct {
	Category         *string `json:"category"`
	TokenCountBucket *string `json:"token_count_bucket"` // see TokenBucket
	Language         *string `json:"language"`           // ISO 639-1
}

// ProviderPair names who makes the reviewer and the candidate.
type ProviderPair struct {
	Reviewer  string `json:"reviewer"`
	Candidate string `json:"candidate"`
}

// SeatPair names the seats of the reviewer and the candidate.
type SeatPair struct {
	Reviewer  string `json:"reviewer"`
	Candidate string `json:"candidate"`
}

// BallotStatus says what came back from the reviewer of a record.
type BallotStatus string

// The ballot statuses.
const (
	BallotOK        BallotStatus = "ok"
	BallotPartial   BallotStatus = "partial" // some labels of the slate are not ranked
	BallotAbstained BallotStatus = "abstained"
	BallotInvalid   BallotStatus = "invalid"
	BallotError     BallotStatus = "error" // the call failed
	BallotCut       BallotStatus = "cut"   // the stage went on without it
)

// ParseTime reads a time as a user writes it: RFC 3339 with an offset, or a day, which
// begins at midnight UTC.
func ParseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%.40q is neither a day as 2026-11-20 nor RFC 3339 with an offset", text)
	}
	return t.UTC(), nil
}

// TokenBucket returns the bucket of ADR-018 that a prompt of n tokens falls in;
// a bucket includes its lower bound.
func TokenBucket(n int64) string {
	switch {
	case n < 100:
		return "0-100"
	case n < 500:
		return "100-500"
	case n < 2000:
		return "500-2000"
	default:
		return "2000+"
	}
}

// Fsync says when the records of a session count as kept.
type Fsync string

// The values of Fsync.
const (
	FsyncSession  Fsync = "session"  // once they are on disk
	FsyncInterval Fsync = "interval" // once they are written; they are on disk an interval later at most
	FsyncOff      Fsync = "off"      // once they are written; the operating system chooses when they are on disk
)
