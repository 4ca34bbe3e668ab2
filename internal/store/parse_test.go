package store

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// Short names for tables.
type (
	object = map[string]any
	record = council.BiasMetricRecord
)

// noon is the start of the tests' sessions.
var noon = time.Date(2025, 12, 17, 12, 0, 0, 0, time.UTC)

// valid returns a record with every field set, as this program writes it.
func valid() council.BiasMetricRecord {
	return council.BiasMetricRecord{
		SchemaVersion: council.RecordSchema,
		SessionID:     "session-1",
		Timestamp:     noon,
		ConsentLevel:  4,
		QueryMetadata: council.QueryMetadata{Category: new("coding"), TokenCountBucket: new("100-500"), Language: new("en")},
		ReviewerID:    "google/gemini", ModelID: "anthropic/claude", Position: new(2),
		ResponseLengthChars: 1200, ScoreValue: new(8.5), ScoreScale: council.ScoreScale,
		CouncilConfig: "review-1", QueryHash: new("0123456789abcdef"),
		Own: false, NShown: 3, OrderDesign: council.OrderBalanced, RankValue: new(0.5), Status: council.BallotOK,
		Provider: council.ProviderPair{Reviewer: "google", Candidate: "anthropic"}, BlockID: new("block"),
		ModelVersions:           council.VersionPair{Reviewer: new("gemini-001"), Candidate: new("claude-20251101")},
		ResponseReasoningTokens: new(int64(300)), QuestionKey: new("fedcba9876543210"),
	}
}

// fields returns valid as a JSON object that a test can change.
func fields(t *testing.T) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := json.Unmarshal(marshal(t, valid()), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// absent as a field's value removes the field.
type absent struct{}

// mutate returns valid as a line with some fields changed.
func mutate(t *testing.T, changes map[string]any) []byte {
	t.Helper()
	object := fields(t)
	maps.Copy(object, changes)
	maps.DeleteFunc(object, func(_ string, v any) bool { return v == absent{} })
	return marshal(t, object)
}

func reasonFrom(t *testing.T, err error) Reason {
	t.Helper()
	bad, ok := errors.AsType[*LineError](err)
	if !ok {
		t.Fatalf("error %v is no LineError", err)
	}
	return bad.Reason
}

func TestParseRecordTakesWhatIsWritten(t *testing.T) {
	want := valid()
	got, err := ParseRecord(marshal(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRecordTakes(t *testing.T) {
	for name, test := range map[string]struct {
		change map[string]any
		want   func(*council.BiasMetricRecord)
	}{
		"integer schema": {object{"schema_version": 1}, func(r *record) { r.SchemaVersion, r.Position = "1.0.0", nil }},
		"schema 1.0.0":   {object{"schema_version": "1.0.0"}, func(r *record) { r.SchemaVersion, r.Position = "1.0.0", nil }},
		"schema 1.1.0":   {object{"schema_version": "1.1.0"}, func(r *record) { r.SchemaVersion, r.Position = "1.1.0", nil }},
		"old bad position": {
			object{"schema_version": 1, "position": -3},
			func(r *record) { r.SchemaVersion, r.Position = "1.0.0", nil },
		},
		"patch level":   {object{"schema_version": "1.2.17"}, func(r *record) { r.SchemaVersion = "1.2.17" }},
		"null position": {object{"position": nil}, func(r *record) { r.Position = nil }},
		"no position":   {object{"position": absent{}}, func(r *record) { r.Position = nil }},
		"offset": {
			object{"timestamp": "2025-12-17T13:30:00.25+01:30"},
			func(r *record) { r.Timestamp = noon.Add(time.Second / 4) },
		},
		"null score": {object{"score_value": nil, "score_scale": nil}, func(r *record) { r.ScoreValue, r.ScoreScale = nil, "" }},
		"no score":   {object{"score_value": absent{}}, func(r *record) { r.ScoreValue = nil }},
		"scale without score": {
			object{"score_value": nil, "score_scale": "good-bad"},
			func(r *record) { r.ScoreValue, r.ScoreScale = nil, "good-bad" },
		},
		"zero score": {
			object{"score_value": 0, "score_scale": "0-1"},
			func(r *record) { r.ScoreValue, r.ScoreScale = new(0.0), "0-1" },
		},
		"signed scale": {
			object{"score_value": -2, "score_scale": "-2.5--1.5"},
			func(r *record) { r.ScoreValue, r.ScoreScale = new(-2.0), "-2.5--1.5" },
		},
		"score at the top":    {object{"score_value": 10}, func(r *record) { r.ScoreValue = new(10.0) }},
		"score at the bottom": {object{"score_value": 1}, func(r *record) { r.ScoreValue = new(1.0) }},
		"no config version":   {object{"council_config_version": absent{}}, func(r *record) { r.CouncilConfig = "" }},
		"no metadata":         {object{"query_metadata": nil}, func(r *record) { r.QueryMetadata = council.QueryMetadata{} }},
		"no own":              {object{"own": absent{}}, func(*council.BiasMetricRecord) {}},
		"no own, own answer": {
			object{"own": nil, "model_id": "google/gemini"},
			func(r *record) { r.Own, r.ModelID = true, "google/gemini" },
		},
		"own contradicts ids": {object{"own": true}, func(r *record) { r.Own = true }},
		"no provider":         {object{"provider": absent{}}, func(*council.BiasMetricRecord) {}},
		"half a provider":     {object{"provider": object{"reviewer": "here"}}, func(r *record) { r.Provider.Reviewer = "here" }},
		"id without a slash": {
			object{"provider": nil, "model_id": "llama3:8b"},
			func(r *record) { r.ModelID, r.Provider.Candidate = "llama3:8b", "llama3:8b" },
		},
		"no n_shown":          {object{"n_shown": absent{}}, func(r *record) { r.NShown = 0 }},
		"no order":            {object{"order_design": absent{}}, func(r *record) { r.OrderDesign = "" }},
		"no ballot status":    {object{"ballot_status": nil}, func(r *record) { r.Status = "" }},
		"unknown field":       {object{"reasoning": []any{1, object{"deep": nil}}}, func(*council.BiasMetricRecord) {}},
		"key in another case": {object{"session_id": absent{}, "Session_ID": "other"}, func(r *record) { r.SessionID = "other" }},
		"length 0":            {object{"response_length_chars": 0}, func(r *record) { r.ResponseLengthChars = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			want := valid()
			test.want(&want)
			got, err := ParseRecord(mutate(t, test.change))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRecordRejects(t *testing.T) {
	for name, test := range map[string]struct {
		change map[string]any
		want   Reason
	}{
		"no schema":                  {map[string]any{"schema_version": absent{}}, ReasonUnknownSchema},
		"null schema":                {map[string]any{"schema_version": nil}, ReasonUnknownSchema},
		"integer 2":                  {map[string]any{"schema_version": 2}, ReasonUnknownSchema},
		"schema 1.2 as a number":     {map[string]any{"schema_version": 1.2}, ReasonUnknownSchema},
		"schema without a patch":     {map[string]any{"schema_version": "1.2"}, ReasonUnknownSchema},
		"pre-release":                {map[string]any{"schema_version": "1.2.0-rc.1"}, ReasonUnknownSchema},
		"later minor":                {map[string]any{"schema_version": "1.6.0"}, ReasonUnknownSchema},
		"minor 20":                   {map[string]any{"schema_version": "1.20.0"}, ReasonUnknownSchema},
		"later major":                {map[string]any{"schema_version": "2.0.0"}, ReasonUnknownSchema},
		"later major, other types":   {map[string]any{"schema_version": "2.0.0", "timestamp": 1, "session_id": 2}, ReasonUnknownSchema},
		"no session":                 {map[string]any{"session_id": absent{}}, ReasonMissingField},
		"null session":               {map[string]any{"session_id": nil}, ReasonMissingField},
		"empty reviewer":             {map[string]any{"reviewer_id": ""}, ReasonMissingField},
		"no model":                   {map[string]any{"model_id": absent{}}, ReasonMissingField},
		"no length":                  {map[string]any{"response_length_chars": nil}, ReasonMissingField},
		"numeric session":            {map[string]any{"session_id": 7}, ReasonBadField},
		"naive time":                 {map[string]any{"timestamp": "2025-12-17T12:00:00"}, ReasonBadTimestamp},
		"numeric time":               {map[string]any{"timestamp": 1765972800}, ReasonBadTimestamp},
		"null time":                  {map[string]any{"timestamp": nil}, ReasonBadTimestamp},
		"no time":                    {map[string]any{"timestamp": absent{}}, ReasonBadTimestamp},
		"date only":                  {map[string]any{"timestamp": "2025-12-17"}, ReasonBadTimestamp},
		"year 10000 in UTC":          {map[string]any{"timestamp": "9999-12-31T23:59:59-01:00"}, ReasonBadTimestamp},
		"year -1 in UTC":             {map[string]any{"timestamp": "0000-01-01T00:00:00+01:00"}, ReasonBadTimestamp},
		"score as text":              {map[string]any{"score_value": "8"}, ReasonBadScore},
		"score beyond float64":       {map[string]any{"score_value": json.RawMessage("1e999")}, ReasonBadScore},
		"score above its scale":      {map[string]any{"score_value": 10.01}, ReasonBadScore},
		"score below its scale":      {map[string]any{"score_value": 0}, ReasonBadScore},
		"score without a scale":      {map[string]any{"score_scale": absent{}}, ReasonBadScore},
		"scale of one number":        {map[string]any{"score_scale": "10"}, ReasonBadScore},
		"scale without a top":        {map[string]any{"score_scale": "1-"}, ReasonBadScore},
		"scale of three numbers":     {map[string]any{"score_scale": "1-10-20"}, ReasonBadScore},
		"scale in words":             {map[string]any{"score_scale": "bad-good"}, ReasonBadScore},
		"scale upside down":          {map[string]any{"score_scale": "10-1"}, ReasonBadScore},
		"scale without width":        {map[string]any{"score_value": 5, "score_scale": "5-5"}, ReasonBadScore},
		"infinite scale":             {map[string]any{"score_scale": "1-inf"}, ReasonBadScore},
		"scale without a number":     {map[string]any{"score_scale": "nan-10"}, ReasonBadScore},
		"scale of infinite width":    {map[string]any{"score_scale": "-1e308-1e308"}, ReasonBadScore},
		"scale as a number":          {map[string]any{"score_scale": 10}, ReasonBadScore},
		"negative reasoning":         {map[string]any{"response_reasoning_tokens": -1}, ReasonBadField},
		"short question key":         {map[string]any{"question_key": "0123"}, ReasonBadField},
		"question key in capitals":   {map[string]any{"question_key": "0123456789ABCDEF"}, ReasonBadField},
		"version as a number":        {map[string]any{"model_versions": object{"reviewer": 5}}, ReasonBadField},
		"negative length":            {map[string]any{"response_length_chars": -1}, ReasonBadField},
		"length with a fraction":     {map[string]any{"response_length_chars": 1.5}, ReasonBadField},
		"negative position":          {map[string]any{"position": -1}, ReasonBadField},
		"position with a fraction":   {map[string]any{"position": 0.5}, ReasonBadField},
		"negative n_shown":           {map[string]any{"n_shown": -1}, ReasonBadField},
		"negative rank":              {map[string]any{"rank_value": -0.5}, ReasonBadField},
		"unknown order":              {map[string]any{"order_design": "random"}, ReasonBadField},
		"unknown ballot status":      {map[string]any{"ballot_status": "fine"}, ReasonBadField},
		"provider as text":           {map[string]any{"provider": "google"}, ReasonBadField},
		"category as a number":       {map[string]any{"query_metadata": map[string]any{"category": 1}}, ReasonBadField},
		"own as text":                {map[string]any{"own": "yes"}, ReasonBadField},
		"config version as a number": {map[string]any{"council_config_version": 1}, ReasonBadField},
	} {
		t.Run(name, func(t *testing.T) {
			record, err := ParseRecord(mutate(t, test.change))
			if got := reasonFrom(t, err); got != test.want {
				t.Errorf("%v: got reason %s, want %s", err, got, test.want)
			}
			if diff := cmp.Diff(council.BiasMetricRecord{}, record); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRecordRejectsLinesThatAreNoObject(t *testing.T) {
	good := string(marshal(t, valid()))
	for line, want := range map[string]Reason{
		"":                             ReasonNotJSON,
		"oops":                         ReasonNotJSON,
		"\x00\x00\x00\x00":             ReasonNotJSON,
		good[:len(good)-1]:             ReasonNotJSON,
		good[1:]:                       ReasonNotJSON,
		good + good:                    ReasonNotJSON,
		good + ",":                     ReasonNotJSON,
		"{'session_id': 1}":            ReasonNotJSON,
		`{"score_value": NaN}`:         ReasonNotJSON,
		"null":                         ReasonNotAnObject,
		" null ":                       ReasonNotAnObject,
		"1":                            ReasonNotAnObject,
		`"text"`:                       ReasonNotAnObject,
		"[" + good + "]":               ReasonNotAnObject,
		"{}":                           ReasonUnknownSchema,
		good[:20] + "\xff" + good[20:]: ReasonInvalidUTF8,
		"\xff\xfe{\x00}\x00":           ReasonInvalidUTF8,
		strings.Repeat("[", 20_000):    ReasonNotJSON,
	} {
		_, err := ParseRecord([]byte(line))
		if got := reasonFrom(t, err); got != want {
			t.Errorf("%.40q: got reason %s, want %s", line, got, want)
		}
	}
}

func TestParseRecordTakesTheLastOfEqualKeys(t *testing.T) {
	line := string(marshal(t, valid()))
	line = line[:len(line)-1] + `,"score_value":3,"SCORE_VALUE":4}`
	got, err := ParseRecord([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if *got.ScoreValue != 4 {
		t.Errorf("got score %v, want 4", *got.ScoreValue)
	}
}

// A record of the first schema, as ADR-018 shows it, holds what the later fields
// are derived from.
func TestParseRecordTakesTheFirstSchema(t *testing.T) {
	got, err := ParseRecord([]byte(`{
  "schema_version": 1,
  "session_id": "a",
  "timestamp": "2025-12-17T12:00:00Z",
  "reviewer_id": "google/gemini",
  "model_id": "google/gemini",
  "position": 2,
  "response_length_chars": 1200,
  "score_value": 8.5,
  "score_scale": "1-10",
  "council_config_version": "0.3.0",
  "query_hash": null
}`))
	if err != nil {
		t.Fatal(err)
	}
	want := council.BiasMetricRecord{
		SchemaVersion: "1.0.0", SessionID: "a", Timestamp: noon, ReviewerID: "google/gemini", ModelID: "google/gemini",
		ResponseLengthChars: 1200, ScoreValue: new(8.5), ScoreScale: "1-10", CouncilConfig: "0.3.0",
		Own: true, Provider: council.ProviderPair{Reviewer: "google", Candidate: "google"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLineErrorSaysWhatAndWhere(t *testing.T) {
	_, err := ParseRecord(mutate(t, map[string]any{"timestamp": strings.Repeat("x", 1000)}))
	if got := err.Error(); !strings.Contains(got, "bad_timestamp") || len(got) > 200 {
		t.Errorf("got %q", got)
	}
	bad := &LineError{Line: 7, Reason: ReasonBadField, Err: errors.New("position is negative")}
	if got, want := bad.Error(), "line 7: bad_field: position is negative"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad.File = "records.jsonl"
	if got, want := bad.Error(), "records.jsonl: line 7: bad_field: position is negative"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(bad, bad.Err) {
		t.Error("the detail is not unwrapped")
	}
}

// records draws records that this program may write.
func records() *rapid.Generator[council.BiasMetricRecord] {
	return rapid.Custom(func(t *rapid.T) council.BiasMetricRecord {
		id := rapid.StringN(1, 20, -1)
		text := rapid.Ptr(rapid.StringN(0, 20, -1), true)
		seconds := rapid.Int64Range(0, 4e9).Draw(t, "seconds")
		nanoseconds := rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")
		orders := []council.Order{council.OrderBalanced, council.OrderPerReviewer, council.OrderShared}
		return council.BiasMetricRecord{
			SchemaVersion: council.RecordSchema,
			SessionID:     id.Draw(t, "session"),
			Timestamp:     time.Unix(seconds, nanoseconds).UTC(),
			ConsentLevel:  rapid.IntRange(0, 4).Draw(t, "consent"),
			QueryMetadata: council.QueryMetadata{
				Category: text.Draw(t, "category"), TokenCountBucket: text.Draw(t, "bucket"), Language: text.Draw(t, "language"),
			},
			ReviewerID: id.Draw(t, "reviewer"), ModelID: id.Draw(t, "model"),
			Position:            rapid.Ptr(rapid.IntMin(0), true).Draw(t, "position"),
			ResponseLengthChars: rapid.IntMin(0).Draw(t, "length"),
			ScoreValue:          rapid.Ptr(rapid.Float64Range(1, 10), true).Draw(t, "score"), ScoreScale: council.ScoreScale,
			CouncilConfig: rapid.String().Draw(t, "config"), QueryHash: text.Draw(t, "hash"),
			Own: rapid.Bool().Draw(t, "own"), NShown: rapid.IntMin(0).Draw(t, "n_shown"),
			OrderDesign: rapid.SampledFrom(orders).Draw(t, "order"),
			RankValue:   rapid.Ptr(rapid.Float64Range(0, math.MaxFloat64), true).Draw(t, "rank"),
			Status: rapid.SampledFrom([]council.BallotStatus{
				council.BallotOK, council.BallotPartial, council.BallotAbstained,
				council.BallotInvalid, council.BallotError, council.BallotCut,
			}).Draw(t, "status"),
			Provider: council.ProviderPair{Reviewer: id.Draw(t, "reviewer's provider"), Candidate: id.Draw(t, "candidate's provider")},
			BlockID:  text.Draw(t, "block"),
			ModelVersions: council.VersionPair{
				Reviewer: text.Draw(t, "reviewer's version"), Candidate: text.Draw(t, "candidate's version"),
			},
			ResponseReasoningTokens: rapid.Ptr(rapid.Int64Min(0), true).Draw(t, "reasoning"),
			QuestionKey:             rapid.Ptr(rapid.StringMatching("[0-9a-f]{16}"), true).Draw(t, "key"),
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	seed := valid()
	line, err := json.Marshal(&seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte(`{"schema_version":1,"session_id":"a","timestamp":"2025-12-17T12:00:00+02:00","reviewer_id":"a/b","model_id":"a/b",` +
		`"position":2,"response_length_chars":0,"score_value":-0,"score_scale":"-1-1"}`))
	f.Add([]byte(`{"schema_version":"1.2.0","session_id":1,"timestamp":"9999-12-31T23:59:59-23:59"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, line []byte) {
		growth.Bounded(t, len(line), func() { _, _ = ParseRecord(line) })
		record, err := ParseRecord(line)
		if err != nil {
			reasonFrom(t, err)
			return
		}
		if record.SessionID == "" || record.ReviewerID == "" || record.ModelID == "" {
			t.Errorf("empty id in %+v", record)
		}
		if v := record.ScoreValue; v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			t.Errorf("score %v", *v)
		}
		again, err := ParseRecord(marshal(t, record))
		if err != nil {
			t.Fatalf("%+v is not taken again: %v", record, err)
		}
		if diff := cmp.Diff(record, again); diff != "" {
			t.Error(diff)
		}
	})
}
