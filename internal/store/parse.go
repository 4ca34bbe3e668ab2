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

// wire is a record as it may stand in a file: its own fields hide those of the
// record that are checked, or that differ in older schemas.
type wire struct {
	council.BiasMetricRecord
	SchemaVersion any    `json:"schema_version"` // the number 1 or a semantic version
	Timestamp     string `json:"timestamp"`
	Length        *int   `json:"response_length_chars"`
	Own           *bool  `json:"own"`
}

// ParseRecord returns the record in one line, without regard to its length; an
// error is always a *LineError.
//
// The schema is 1.2.0, 1.1.0 or the integer 1 of ADR-018, which is returned as
// "1.0.0"; any patch level will do. Required are session_id, reviewer_id,
// model_id, timestamp, response_length_chars and, where there is a score, the
// score_scale that it lies on. The position is nil before 1.2.0, where it did not
// yet mean the place shown to this reviewer. An own that is missing is whether
// the reviewer is the candidate, a provider that is missing is the id up to its
// first slash, and every other missing field is zero. Null counts as missing.
//
// As in encoding/json, unknown fields are passed over, keys match in any case,
// and of two equal keys the last one counts.
func ParseRecord(line []byte) (council.BiasMetricRecord, error) {
	if !utf8.Valid(line) { // encoding/json would take it, mended
		return reject(ReasonInvalidUTF8, nil)
	}
	var w *wire
	err := json.Unmarshal(line, &w)
	mistyped, isType := errors.AsType[*json.UnmarshalTypeError](err)
	if err != nil && !isType {
		return reject(ReasonNotJSON, err)
	}
	if w == nil || isType && mistyped.Field == "" { // null, or a value of another kind
		return reject(ReasonNotAnObject, nil)
	}
	record := w.BiasMetricRecord
	if record.SchemaVersion = schema(w.SchemaVersion); record.SchemaVersion == "" {
		return reject(ReasonUnknownSchema, nil)
	}
	if isType {
		return reject(reasonOf(mistyped.Field), err)
	}

	switch {
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
	if record.Timestamp, err = parseTime(w.Timestamp); err != nil {
		return reject(ReasonBadTimestamp, err)
	}
	if council.EarlySchema(record.SchemaVersion) {
		record.Position = nil
	}
	if err := checkFields(&record); err != nil {
		return reject(ReasonBadField, err)
	}
	if err := checkScore(&record); err != nil {
		return reject(ReasonBadScore, err)
	}

	if w.Own != nil {
		record.Own = *w.Own
	}
	derive(&record, w.Own != nil)
	return record, nil
}

func reject(reason Reason, err error) (council.BiasMetricRecord, error) {
	return council.BiasMetricRecord{}, &LineError{Reason: reason, Err: err}
}

// schema returns the schema version, "" for one that is not known.
func schema(version any) string {
	switch v := version.(type) {
	case float64:
		if v == 1 {
			return "1.0.0"
		}
	case string:
		for _, known := range []string{"1.2.", "1.1.", "1.0."} {
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
	if year := t.Year(); year < 0 || year > 9999 { // only an offset can lead there
		return time.Time{}, errors.New("the year in UTC is not one of 0 to 9999")
	}
	return t, nil
}

// reasonOf returns the reason for a value of the wrong type. Before the field's
// own name, path may hold those of the structs around it.
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

func checkFields(r *council.BiasMetricRecord) error {
	switch {
	case r.ResponseLengthChars < 0:
		return errors.New("response_length_chars is negative")
	case r.Position != nil && *r.Position < 0:
		return errors.New("position is negative")
	case r.NShown < 0:
		return errors.New("n_shown is negative")
	case r.RankValue != nil && *r.RankValue < 0:
		return errors.New("rank_value is negative")
	}
	switch r.OrderDesign {
	case "", council.OrderBalanced, council.OrderPerReviewer, council.OrderShared:
	default:
		return fmt.Errorf("order_design is %.40q", r.OrderDesign)
	}
	switch r.Status {
	case "", council.BallotOK, council.BallotPartial, council.BallotAbstained, council.BallotInvalid, council.BallotError, council.BallotCut:
	default:
		return fmt.Errorf("ballot_status is %.40q", r.Status)
	}
	return nil
}

// checkScore reports a score that does not lie on its scale, "min-max".
func checkScore(r *council.BiasMetricRecord) error {
	if r.ScoreValue == nil {
		return nil
	}
	low, high, ok := council.ParseScale(r.ScoreScale)
	if !ok {
		return fmt.Errorf("score_scale is %.40q, not min-max", r.ScoreScale)
	}
	if score := *r.ScoreValue; score < low || score > high {
		return fmt.Errorf("score_value is %v, outside %.40s", score, r.ScoreScale)
	}
	return nil
}

// derive sets what a record does not tell; a provider that is empty is not told.
func derive(r *council.BiasMetricRecord, ownGiven bool) {
	if !ownGiven {
		r.Own = r.ReviewerID == r.ModelID
	}
	if r.Provider.Reviewer == "" {
		r.Provider.Reviewer = council.Maker(r.ReviewerID, nil)
	}
	if r.Provider.Candidate == "" {
		r.Provider.Candidate = council.Maker(r.ModelID, nil)
	}
}
