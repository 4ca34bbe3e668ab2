package council

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RecordSchema is the schema version of the records that this version of councild writes.
const RecordSchema = "1.5.0"

// ScoreScale is the scale of the scores that reviewers are asked for.
const ScoreScale = "1-10"

// SourceJudge is the source of records from answers that were given, and judged. Unnamed stands for their author if the
// author is not known.
const (
	SourceJudge = "judge"
	Unnamed     = "unnamed"
)

// EarlySchema reports whether a schema version is from before 1.2.0. Such records have no ranks, and their Position
// need not be the position at which this reviewer saw the answer.
func EarlySchema(version string) bool {
	return strings.HasPrefix(version, "1.0.") || strings.HasPrefix(version, "1.1.")
}

// ParseScale reads the bounds of a score scale. A scale is "min-max" with two finite numbers, the smaller one first. It
// reports false for any other text.
func ParseScale(scale string) (low, high float64, ok bool) {
	unsigned, negative := strings.CutPrefix(scale, "-")
	lowText, highText, _ := strings.Cut(unsigned, "-") // Either number may have a minus sign.
	low, errLow := strconv.ParseFloat(lowText, 64)
	high, errHigh := strconv.ParseFloat(highText, 64)
	if negative {
		low = -low
	}
	return low, high, errLow == nil && errHigh == nil && low < high && !math.IsInf(high-low, 0)
}

// BiasMetricRecord is the bias record of one reviewer and one candidate in one session (ADR-018). There is one record
// for every candidate on the slate of every reviewer that was asked, even if no ballot came back. It never holds text
// of a query or an answer.
type BiasMetricRecord struct {
	SchemaVersion string        `json:"schema_version"`
	SessionID     string        `json:"session_id"`
	Timestamp     time.Time     `json:"timestamp"` // the start of the session in UTC
	ConsentLevel  int           `json:"consent_level"`
	QueryMetadata QueryMetadata `json:"query_metadata"`
	ReviewerID    string        `json:"reviewer_id"`
	ModelID       string        `json:"model_id"`
	// Position is the 0-based position at which this reviewer was shown the candidate. It is nil in records before schema
	// 1.2.0.
	Position            *int     `json:"position"`
	ResponseLengthChars int      `json:"response_length_chars"` // in Unicode code points
	ScoreValue          *float64 `json:"score_value"`           // on ScoreScale, nil without a score
	ScoreScale          string   `json:"score_scale"`           // "min-max", see ParseScale
	CouncilConfig       string   `json:"council_config_version"`
	// QueryHash is 16 hexadecimal digits, the same in all records of one question. It is nil below consent level 4.
	QueryHash *string `json:"query_hash"`

	Own         bool  `json:"own"`          // true if the reviewer's model wrote the candidate
	NShown      int   `json:"n_shown"`      // the size of the slate, 0 if the record does not say it
	OrderDesign Order `json:"order_design"` // "" if the record does not say it
	// RankValue is the 0-based rank of the candidate on the ballot. Candidates with Own do not count. Tied candidates
	// have the mean of their ranks.
	RankValue *float64     `json:"rank_value"`
	Status    BallotStatus `json:"ballot_status"`
	Provider  ProviderPair `json:"provider"`
	BlockID   *string      `json:"block_id"` // the same in all rounds of a probe, which share their answers

	// Records before schema 1.4.0 do not have the next three fields, which are then nil.
	ModelVersions VersionPair `json:"model_versions"`
	// ResponseReasoningTokens counts the reasoning tokens of the calls for the answer. It is nil if no reply reports them.
	ResponseReasoningTokens *int64 `json:"response_reasoning_tokens"`
	// QuestionKey is 16 hexadecimal digits, the same in all records of one question. It is nil if the secret for such keys
	// was not known.
	QuestionKey *string `json:"question_key"`
	// Mode is the mode of the session. It is "" in records before schema 1.5.0, whose sessions had ModeCouncil.
	Mode Mode `json:"mode,omitempty"`
	// Source is SourceJudge if the answers were given, and "" if members wrote them.
	Source string `json:"source,omitempty"`

	// StyleSimilarity is the cosine of the embeddings of the reviewer's own answer and of the candidate, -1 to 1. It is
	// nil if it was not measured, and before schema 1.3.0. The embeddings themselves are not kept. EmbeddingModel is
	// the model that made the embeddings. Figures from different models are not comparable.
	StyleSimilarity *float64 `json:"style_similarity,omitempty"`
	EmbeddingModel  string   `json:"embedding_model,omitempty"`
	// Correct says whether the candidate is the right answer. It is set only in records that were imported together with
	// the right answers.
	Correct *bool `json:"correct,omitempty"`
	// RosterIDs are the seats' ids in the roster. It is nil without a roster.
	RosterIDs *SeatPair `json:"roster_ids,omitempty"`
}

// RecordColumn is a column in a table of bias records, such as a CSV file.
type RecordColumn struct {
	Name   string
	Object string // the field is in this object of a record's JSON, or in the record itself if ""
	Field  string // the name of the field in Object
	Text   bool   // true for text, false for a number or a truth value
}

// RecordColumns returns all columns in their order.
func RecordColumns() []RecordColumn {
	text := func(name string) RecordColumn { return RecordColumn{Name: name, Field: name, Text: true} }
	value := func(name string) RecordColumn { return RecordColumn{Name: name, Field: name} }
	in := func(object, name, field string) RecordColumn { return RecordColumn{name, object, field, true} }
	return []RecordColumn{
		text("schema_version"), text("session_id"), text("timestamp"), value("consent_level"),
		in("query_metadata", "category", "category"), in("query_metadata", "token_count_bucket", "token_count_bucket"),
		in("query_metadata", "language", "language"),
		text("reviewer_id"), text("model_id"), value("position"), value("response_length_chars"), value("score_value"),
		text("score_scale"), text("council_config_version"), text("query_hash"), value("own"), value("n_shown"),
		text("order_design"), value("rank_value"), text("ballot_status"),
		in("provider", "provider_reviewer", "reviewer"), in("provider", "provider_candidate", "candidate"),
		text("block_id"), in("roster_ids", "roster_reviewer", "reviewer"), in("roster_ids", "roster_candidate", "candidate"),
		value("style_similarity"), text("embedding_model"),
		in("model_versions", "model_version_reviewer", "reviewer"),
		in("model_versions", "model_version_candidate", "candidate"),
		value("response_reasoning_tokens"), text("question_key"), value("correct"), text("mode"), text("source"),
	}
}

// VersionPair has the Spent.ModelVersion of the reviewer's review and of the candidate's answer.
type VersionPair struct {
	Reviewer  *string `json:"reviewer"`
	Candidate *string `json:"candidate"`
}

// QueryMetadata describes the question. The caller gives the category and the language, and a provider counts the
// tokens. councild derives nothing from the text itself.
type QueryMetadata struct {
	Category         *string `json:"category"`
	TokenCountBucket *string `json:"token_count_bucket"` // see TokenBucket
	Language         *string `json:"language"`           // ISO 639-1
}

// ProviderPair names the makers of the reviewer's and the candidate's models.
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
	BallotPartial   BallotStatus = "partial" // The ballot does not rank all labels of the slate.
	BallotAbstained BallotStatus = "abstained"
	BallotInvalid   BallotStatus = "invalid"
	BallotError     BallotStatus = "error" // The call failed.
	BallotCut       BallotStatus = "cut"   // The stage did not wait for the review.
)

// ParseTime reads a time that a user wrote. It takes RFC 3339 with an offset, or a day. A day stands for the midnight
// (UTC) at which the day begins.
func ParseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%.40q is not a time: write a day such as 2026-11-20, or a time such as 2026-11-20T09:00:00Z", text)
	}
	return t.UTC(), nil
}

// TokenBucket returns the bucket of ADR-018 for a prompt of n tokens. A bucket includes its lower bound.
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
	FsyncSession  Fsync = "session"  // when the records are on disk
	FsyncInterval Fsync = "interval" // when the records are written. They are on disk at most one interval later.
	FsyncOff      Fsync = "off"      // when the records are written. The operating system decides when they reach the disk.
)
