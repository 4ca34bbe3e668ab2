package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// Evidence is one record of an evidence file. Exactly one of its fields is set.
type Evidence struct {
	Shadow *council.ShadowRecord
	Label  *council.LabelRecord
}

// EncodeEvidence returns a record as a line for [Store.AppendLines].
func EncodeEvidence(e Evidence) ([]byte, error) {
	var record any = e.Shadow
	if e.Label != nil {
		record = e.Label
	}
	line, err := json.Marshal(record)
	return append(line, '\n'), err
}

// ReadEvidence returns the records of the evidence file at path in their order, each with a nil error. For a line
// that holds no record it returns a *LineError, and reading continues. Any other error, such as that of ctx, is the
// last element. If the file does not exist, there are no records. ReadEvidence takes no lock.
func ReadEvidence(ctx context.Context, path string) iter.Seq2[Evidence, error] {
	return func(yield func(Evidence, error) bool) {
		for f, err := range files(path, false) {
			if errors.Is(err, fs.ErrNotExist) {
				return
			}
			more := true
			if err == nil {
				more, err = f.evidence(ctx, yield)
			}
			if err != nil {
				yield(Evidence{}, fmt.Errorf("opening the evidence file %s: %w", path, err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// evidence yields the records of one file. It reports whether the caller wants more records.
func (f File) evidence(ctx context.Context, yield func(Evidence, error) bool) (more bool, err error) {
	r, torn, err := f.content(ctx, math.MaxInt64)
	if isLine(err) {
		return yield(Evidence{}, err), nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	more = true
	readAs(ctx, r, f.Name, torn, ParseEvidence, func(e Evidence, err error) bool {
		more = yield(e, err) && (err == nil || isLine(err))
		return more
	})
	return more, nil
}

// ParseEvidence returns the record in one line. An error is always a *LineError. Unknown fields are
// ignored, so that a later release may add some.
func ParseEvidence(line []byte) (e Evidence, err error) {
	refuse := func(reason Reason, err error) (Evidence, error) {
		return Evidence{}, &LineError{Reason: reason, Err: err}
	}
	if !utf8.Valid(line) {
		return refuse(ReasonInvalidUTF8, nil)
	}
	var head *struct {
		Schema string `json:"schema_version"`
	}
	if err = json.Unmarshal(line, &head); err == nil && head != nil {
		e, err = evidenceOf(line, head.Schema)
	}
	mistyped, isType := errors.AsType[*json.UnmarshalTypeError](err)
	_, isLine := errors.AsType[*LineError](err)
	_, isSyntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case isLine:
		return Evidence{}, err
	case isSyntax:
		return refuse(ReasonNotJSON, err)
	case head == nil || isType && mistyped.Field == "":
		return refuse(ReasonNotAnObject, nil)
	case isType && mistyped.Field == "schema_version":
		return refuse(ReasonUnknownSchema, err)
	case err != nil: // a value of the wrong type, or a time that cannot be read
		return refuse(ReasonBadField, err)
	}
	return e, nil
}

// evidenceOf reads a record that has this schema, and checks it.
func evidenceOf(line []byte, schema string) (e Evidence, err error) {
	switch schema {
	case council.ShadowSchema:
		if err = json.Unmarshal(line, &e.Shadow); err == nil {
			err = checkShadow(e.Shadow)
		}
	case council.LabelSchema:
		if err = json.Unmarshal(line, &e.Label); err == nil {
			err = checkLabel(e.Label)
		}
	default:
		err = &LineError{Reason: ReasonUnknownSchema}
	}
	return e, err
}

// checkShadow returns an error if a shadow record has impossible values.
func checkShadow(r *council.ShadowRecord) error {
	for _, v := range r.Reviewers {
		if v.ID == "" {
			return &LineError{Reason: ReasonMissingField, Err: errors.New("id of a reviewer")}
		}
		if v.First != council.ChoiceSynthesis && v.First != council.ChoiceTop {
			return &LineError{Reason: ReasonBadField, Err: fmt.Errorf("first is %.40q", v.First)}
		}
		if v.Choice != nil && v.Choice.Value() == nil {
			return &LineError{Reason: ReasonBadField, Err: fmt.Errorf("choice is %.40q", *v.Choice)}
		}
	}
	switch {
	case r.SessionID == "" || r.Chairman == "" || r.TopModel == "":
		return &LineError{Reason: ReasonMissingField, Err: errors.New("session_id, chairman or top_model")}
	case r.Timestamp.IsZero():
		return &LineError{Reason: ReasonBadTimestamp}
	case r.Lengths.Synthesis < 0 || r.Lengths.Top < 0 || !(r.Rate >= 0 && r.Rate <= 1):
		return &LineError{Reason: ReasonBadField, Err: errors.New("a length or the rate is out of range")}
	}
	return nil
}

// checkLabel returns an error if a label has impossible values.
func checkLabel(r *council.LabelRecord) error {
	switch {
	case r.SessionID == "" || r.By == "":
		return &LineError{Reason: ReasonMissingField, Err: errors.New("session_id or by")}
	case r.Preferred == nil && r.Rating == nil:
		return &LineError{Reason: ReasonMissingField, Err: errors.New("preferred or rating")}
	case r.Timestamp.IsZero() || r.Labelled.IsZero():
		return &LineError{Reason: ReasonBadTimestamp}
	case r.Rating != nil && (*r.Rating < 1 || *r.Rating > 5):
		return &LineError{Reason: ReasonBadField, Err: fmt.Errorf("rating is %d", *r.Rating)}
	}
	return nil
}
