package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// wire is a record as a file may hold it. The fields that wire declares itself replace fields of the record that need
// a check, or that older schemas write in another form.
type wire struct {
	council.BiasMetricRecord
	SchemaVersion any    `json:"schema_version"` // the number 1 or a semantic version
	Timestamp     string `json:"timestamp"`
	Length        *int   `json:"response_length_chars"`
	Own           *bool  `json:"own"`

	// parsed is the last timestamp that was parsed. All records of a session have the same one.
	parsed     string
	parsedTime time.Time
}

// ParseRecord returns the record in one line of any length. An error is always a *LineError.
//
// The schema is 1.5.0, 1.4.0, 1.3.0, 1.2.0, 1.1.0, or the integer 1 of ADR-018, which is returned as "1.0.0". Any patch
// level is accepted. For a record of a later schema, ParseRecord returns an error. The store counts such a record,
// copies it unchanged, and deletes it when it is too old (see [Line.Later]).
//
// The required fields are session_id, reviewer_id, model_id, timestamp, response_length_chars and, if there is a score,
// its score_scale. For schemas before 1.2.0 ParseRecord sets the position to nil, because the position in the line is
// not the one at which this reviewer saw the answer. If own is missing, ParseRecord sets it to true if the reviewer is
// the candidate, and otherwise to false. If a provider is missing, ParseRecord uses the part of the model's id before
// the first slash. Every other missing field is zero. Null counts as missing.
//
// As in encoding/json, unknown fields are ignored, keys match in any case, and the last one of equal keys counts.
func ParseRecord(line []byte) (council.BiasMetricRecord, error) {
	if !utf8.Valid(line) { // encoding/json would replace the wrong bytes
		return reject(ReasonInvalidUTF8, nil)
	}
	var w *wire
	err := json.Unmarshal(line, &w)
	mistyped, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err != nil && !isType:
		return reject(ReasonNotJSON, err)
	case w == nil || isType && mistyped.Field == "": // null, or not an object
		return reject(ReasonNotAnObject, nil)
	case isType && schema(w.SchemaVersion) != "":
		return reject(reasonOf(mistyped.Field), err)
	}
	return w.record()
}

// record checks the fields and derives the missing ones.
func (w *wire) record() (council.BiasMetricRecord, error) {
	record := w.BiasMetricRecord
	record.SchemaVersion = schema(w.SchemaVersion)
	switch {
	case record.SchemaVersion == "":
		return reject(ReasonUnknownSchema, nil)
	case record.SessionID == "":
		return reject(ReasonMissingField, errors.New("session_id"))
	case record.ReviewerID == "":
		return reject(ReasonMissingField, errors.New("reviewer_id"))
	case record.ModelID == "":
		return reject(ReasonMissingField, errors.New("model_id"))
	case w.Length == nil:
		return reject(ReasonMissingField, errors.New("response_length_chars"))
	}
	record.ResponseLengthChars = *w.Length
	if w.Timestamp != w.parsed || w.parsed == "" {
		at, err := parseTime(w.Timestamp)
		if err != nil {
			return reject(ReasonBadTimestamp, err)
		}
		w.parsed = w.Timestamp
		w.parsedTime = at
	}
	record.Timestamp = w.parsedTime
	if council.EarlySchema(record.SchemaVersion) {
		record.Position = nil
	}
	if err := checkFields(&record); err != nil {
		return reject(ReasonBadField, err)
	}
	if err := checkScore(&record); err != nil {
		return reject(ReasonBadScore, err)
	}
	record.Own = record.ReviewerID == record.ModelID
	if w.Own != nil {
		record.Own = *w.Own
	}
	if record.Provider.Reviewer == "" {
		record.Provider.Reviewer = council.Maker(record.ReviewerID, nil)
	}
	if record.Provider.Candidate == "" {
		record.Provider.Candidate = council.Maker(record.ModelID, nil)
	}
	return record, nil
}

func reject(reason Reason, err error) (council.BiasMetricRecord, error) {
	return council.BiasMetricRecord{}, &LineError{Reason: reason, Err: err}
}

// unknownSchema returns what can be read in a line whose schema this program does not know. The result has the schema
// version, or "" if the line has none. It has the session and the time if the line has them in the fields of the
// current schema.
func unknownSchema(text []byte) (r council.BiasMetricRecord) {
	var raw struct {
		SchemaVersion any `json:"schema_version"`
		SessionID     any `json:"session_id"`
		Timestamp     any `json:"timestamp"`
	}
	_ = json.Unmarshal(text, &raw) // It is a JSON object.
	if raw.SchemaVersion != nil {
		r.SchemaVersion = fmt.Sprint(raw.SchemaVersion)
	}
	r.SessionID, _ = raw.SessionID.(string)
	timestamp, _ := raw.Timestamp.(string)
	r.Timestamp, _ = parseTime(timestamp)
	return r
}

// schema returns the schema version, or "" for an unknown one.
func schema(version any) string {
	switch v := version.(type) {
	case float64:
		if v == 1 {
			return "1.0.0"
		}
	case string:
		for _, known := range []string{"1.5.", "1.4.", "1.3.", "1.2.", "1.1.", "1.0."} {
			if patch, ok := strings.CutPrefix(v, known); ok {
				if _, err := strconv.ParseUint(patch, 10, 64); err == nil {
					return v
				}
			}
		}
	}
	return ""
}

// parseTime returns the time in UTC.
func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is not RFC 3339 with an offset", text)
	}
	t = t.UTC()
	if year := t.Year(); year < 0 || year > 9999 { // Only the offset can move a year out of this range.
		return time.Time{}, errors.New("the year in UTC is not one of 0 to 9999")
	}
	return t, nil
}

// reasonOf returns the reason for a field with a value of the wrong type. The argument path names the structs around
// the field, and then the field.
func reasonOf(path string) Reason {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "timestamp":
		return ReasonBadTimestamp
	case "score_value", "score_scale":
		return ReasonBadScore
	default:
		return ReasonBadField
	}
}

func isNegative[N int | int64 | float64](n *N) bool { return n != nil && *n < 0 }

func checkFields(r *council.BiasMetricRecord) error {
	switch {
	case r.ResponseLengthChars < 0:
		return errors.New("response_length_chars is negative")
	case isNegative(r.Position):
		return errors.New("position is negative")
	case r.NShown < 0:
		return errors.New("n_shown is negative")
	case isNegative(r.RankValue):
		return errors.New("rank_value is negative")
	case r.StyleSimilarity != nil && (*r.StyleSimilarity < -1 || *r.StyleSimilarity > 1):
		return errors.New("style_similarity is not from -1 to 1")
	case isNegative(r.ResponseReasoningTokens):
		return errors.New("response_reasoning_tokens is negative")
	case r.QuestionKey != nil && !isQuestionKey(*r.QuestionKey):
		return fmt.Errorf("question_key is %.40q, not 16 hexadecimal digits", *r.QuestionKey)
	}
	if r.Source != "" && r.Source != council.SourceJudge {
		return fmt.Errorf("source is %.40q", r.Source)
	}
	if r.Mode != "" && !r.Mode.Known() && r.Mode != council.ModeJudge {
		return fmt.Errorf("mode is %.40q", r.Mode)
	}
	if r.OrderDesign != "" && !r.OrderDesign.Known() {
		return fmt.Errorf("order_design is %.40q", r.OrderDesign)
	}
	switch r.Status {
	case "", council.BallotOK, council.BallotPartial, council.BallotAbstained,
		council.BallotInvalid, council.BallotError, council.BallotCut:
	default:
		return fmt.Errorf("ballot_status is %.40q", r.Status)
	}
	return nil
}

// isQuestionKey reports whether a text is 16 hexadecimal digits in lower case.
func isQuestionKey(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}

// checkScore returns an error if a score lies outside its scale, or if the scale does not have the form "min-max".
func checkScore(r *council.BiasMetricRecord) error {
	if r.ScoreValue == nil {
		return nil
	}
	low := 1.
	high := 10.
	ok := r.ScoreScale == council.ScoreScale // true for nearly all records
	if !ok {
		low, high, ok = council.ParseScale(r.ScoreScale)
	}
	if !ok {
		return fmt.Errorf("score_scale is %.40q, not min-max", r.ScoreScale)
	}
	if score := *r.ScoreValue; score < low || score > high {
		return fmt.Errorf("score_value is %v, outside %.40s", score, r.ScoreScale)
	}
	return nil
}
