package consent_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/consent"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

var began = time.Date(2026, 11, 20, 10, 30, 0, 0, time.UTC)

// sessionRecords are those of three members that review each other: a is before b, and b before c, on every ballot.
func sessionRecords(id string) (records []council.BiasMetricRecord) {
	members := []string{"a", "b", "c"}
	for r, reviewer := range members {
		position := 0
		for c, candidate := range members {
			if c == r {
				continue
			}
			rank := float64(position)
			records = append(records, council.BiasMetricRecord{
				SchemaVersion: council.RecordSchema, SessionID: id, Timestamp: began, ConsentLevel: 4,
				QueryMetadata: council.QueryMetadata{
					Category: new("coding"), TokenCountBucket: new("0-100"), Language: new("en"),
				},
				ReviewerID: "vendor/" + reviewer, ModelID: "vendor/" + candidate, Position: new(position),
				ResponseLengthChars: 100 + 10*c, ScoreValue: new(9 - float64(c)), ScoreScale: council.ScoreScale,
				QueryHash: new("0123456789abcdef"), QuestionKey: new("fedcba9876543210"), NShown: 2, OrderDesign: council.OrderBalanced, RankValue: &rank, Status: council.BallotOK,
				RosterIDs: &council.SeatPair{Reviewer: reviewer, Candidate: candidate},
			})
			position++
		}
	}
	return records
}

func options(level int) consent.Options {
	return consent.Options{
		Level: level, Audit: &council.AuditThresholds{LengthCorrelation: .3, PositionVariance: .5}, Policy: council.PolicyAvailable,
		Publish: func(id string) string {
			return map[string]string{"a": "maker/a", "c": "maker/c"}[id]
		},
	}
}

func TestMake(t *testing.T) {
	records := sessionRecords("0199a0b0-0000-7000-8000-000000000001")
	for level := range consent.LevelRankings {
		if e := consent.Make(records, options(level)); e != nil {
			t.Errorf("level %d makes %+v", level, e)
		}
	}
	at := map[int]*consent.Event{}
	for level := consent.LevelRankings; level <= consent.LevelResearch; level++ {
		at[level] = consent.Make(records, options(level))
		data, err := json.Marshal(at[level])
		if err != nil {
			t.Fatal(err)
		}
		if again, err := consent.Parse(data, began); err != nil || !reflect.DeepEqual(again, *at[level]) {
			t.Errorf("level %d is read as %+v, %v", level, again, err)
		}
	}
	want := []consent.Ranking{{"maker/a", 1, 1}, {"other", 2, .5}, {"maker/c", 3, 0}}
	two, three, four := at[2], at[3], at[4]
	if !reflect.DeepEqual(two.Rankings, want) {
		t.Errorf("the rankings are %v", two.Rankings)
	}
	if two.Day != "2026-11-20" || *two.Category != "coding" {
		t.Errorf("the day is %s, the category %s", two.Day, *two.Category)
	}
	if two.BiasIndicators != nil || two.QueryMetadata != nil || two.Time != nil || two.QueryHash != nil {
		t.Errorf("level 2 has more than it may: %+v", two)
	}
	if three.Time != nil || three.QueryHash != nil {
		t.Errorf("level 3 has more than it may: %+v", three)
	}
	for _, e := range []*consent.Event{two, three} {
		if e.SessionID == records[0].SessionID {
			t.Error("the session's own id is sent below level 4")
		}
	}
	if two.EventID == three.EventID || two.SessionID == three.SessionID {
		t.Error("ids are not drawn for each event")
	}
	if w := three.BiasIndicators.ReviewerAgreement; w != nil {
		t.Errorf("the agreement is %v, and no two of three ballots rank the same two answers", *w)
	}
	if r := three.BiasIndicators.LengthCorrelation; r == nil || *r != -1 {
		t.Error("scores fall with the length, and the correlation is not -1")
	}
	if *three.QueryMetadata.Language != "en" || *three.QueryMetadata.TokenCountBucket != "0-100" {
		t.Errorf("the metadata is %+v", three.QueryMetadata)
	}
	if four.SessionID != records[0].SessionID || !four.Time.Equal(began) || *four.QueryHash != *records[0].QueryHash {
		t.Errorf("level 4 lacks the session's own id, time or hash: %+v", four)
	}
	if text, err := json.Marshal(four); err != nil || strings.Contains(string(text), *records[0].QuestionKey) {
		t.Errorf("%v, the key of the question leaves the machine: %s", err, text)
	}
}

func TestMakeNothing(t *testing.T) {
	none, frozen, judged := sessionRecords("s"), sessionRecords("s"), sessionRecords("s")
	for i := range none {
		none[i].RankValue, none[i].Status = nil, council.BallotError
		frozen[i].BlockID = new("block")
		judged[i].Source = council.SourceJudge
	}
	for name, records := range map[string][]council.BiasMetricRecord{
		"no records": nil, "no ballots": none, "frozen answers": frozen, "judged answers": judged,
	} {
		if e := consent.Make(records, options(4)); e != nil {
			t.Errorf("%s make %+v", name, e)
		}
	}
	quiet := options(3)
	quiet.Audit, quiet.Publish = nil, nil
	e := consent.Make(sessionRecords("s"), quiet)
	if e.BiasIndicators != nil {
		t.Error("there are indicators without an audit")
	}
	for _, r := range e.Rankings {
		if r.Model != council.OtherModel {
			t.Errorf("without a roster %s is sent", r.Model)
		}
	}
}

// valid is an event of level 4, as text.
func valid(tb testing.TB) string {
	tb.Helper()
	data, err := json.Marshal(consent.Make(sessionRecords("0199a0b0-0000-7000-8000-000000000001"), options(4)))
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestParseRefuses(t *testing.T) {
	text := valid(t)
	for _, c := range []struct{ old, new, want string }{
		{`"1.1.0"`, `"1.0.0"`, "schema_version"},
		{`"event_id":"`, `"event_id":"x`, "event_id"},
		{`"session_id":"0199`, `"session_id":"hello`, "session_id"},
		{`"2026-11-20"`, `"20.11.2026"`, "day is not a day"},
		{`"2026-11-20"`, `"2026-08-22"`, "more than 89 days"},
		{`"2026-11-20"`, `"2026-11-22"`, "future"},
		{`"2026-11-20"`, `"2026-11-19"`, "time is not on the day"},
		{`"category":"coding"`, `"category":"my secret"`, "category is not one of"},
		{`"category":"coding","rankings"`, `"rankings"`, "a field is missing"},
		{`"model":"other"`, `"model":"What is it?"`, "rankings[1].model"},
		{`"rank":2,`, ``, "rankings[1].rank"},
		{`"rank":2`, `"rank":4`, "rankings[1].rank"},
		{`"rank":2`, `"rank":2.5`, "wrong type"},
		{`"borda_normalized":0.5`, `"borda_normalized":1.5`, "rankings[1].borda"},
		{`,"borda_normalized":0.5`, ``, "a field is missing"},
		{`"length_correlation":-1`, `"length_correlation":-2`, "length_correlation"},
		{`"reviewer_agreement":null`, `"reviewer_agreement":1.01`, "reviewer_agreement"},
		{`"position_variance":`, `"position_variance":21,"x":`, "does not have"},
		{`"flags":[]`, `"flags":["HELLO"]`, "flags"},
		{`"flags":[]`, `"flags":["LENGTH_ASSOCIATION","LENGTH_ASSOCIATION"]`, "flags"},
		{`"flags":[]`, `"flags":null`, "flags"},
		{`"0-100"`, `"0-99"`, "token_count_bucket"},
		{`"language":"en"`, `"language":"eng"`, "language"},
		{`"time":"2026`, `"time":"then, 2026`, "RFC 3339"},
		{`"query_hash":"0`, `"query_hash":"g`, "query_hash"},
		{`{"schema_version"`, `{"query":"what","schema_version"`, "does not have"},
		{`{"schema_version"`, `{"day":"2026-11-20","schema_version"`, "twice"},
		{`"day":`, `"Day":`, "another case"},
		{`{"schema_version"`, `[{"schema_version"`, "not valid JSON"},
		{`{"schema_version"`, `{"schema_version`, "not valid JSON"},
	} {
		changed := strings.Replace(text, c.old, c.new, 1)
		if changed == text {
			t.Fatalf("%s is not in %s", c.old, text)
		}
		if _, err := consent.Parse([]byte(changed), began); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: %v, want %q", c.new, c.old, err, c.want)
		}
	}
	for text, want := range map[string]string{
		text + "{}": "follows the event", "": "not valid JSON", "null": "schema_version", strings.Repeat(" ", consent.MaxBytes) + text: "bytes",
	} {
		if _, err := consent.Parse([]byte(text), began); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// An error tells how to mend an event, and never what somebody wrote into it.
func FuzzParse(f *testing.F) {
	f.Add([]byte(valid(f)))
	f.Add([]byte(`{"schema_version":"1.1.0","rankings":[{"model":"a","rank":1,"borda_normalized":1}]}`))
	f.Add([]byte(`[[[[]]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e consent.Event
		var err error
		growth.Bounded(t, len(data), func() { e, err = consent.Parse(data, began) })
		if err != nil {
			return
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := consent.Parse(text, began); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("what was accepted is not accepted again: %v", err)
		}
	})
}
