package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// outcomes returns the record of each line, as JSON, or its error. It parses all lines
// before it looks at the first record, so that it notices a line that changes an earlier
// record.
func outcomes(parse func([]byte) (council.BiasMetricRecord, error), lines [][]byte) []string {
	records, errs := make([]council.BiasMetricRecord, len(lines)), make([]error, len(lines))
	buf := make([]byte, maxLine) // used again for each line, as when a file is read
	for i, line := range lines {
		records[i], errs[i] = parse(buf[:copy(buf, line)])
	}
	all := make([]string, len(lines))
	for i := range lines {
		text, err := json.Marshal(&records[i])
		all[i] = fmt.Sprintf("%s, %v, %v", text, errs[i], err)
	}
	return all
}

// unlike returns how a scanner differs from ParseRecord on the lines, "" when it
// does not.
func unlike(lines ...[]byte) string {
	want, got := outcomes(ParseRecord, lines), outcomes(newScanner().parse, lines)
	if slices.Equal(want, got) { // much faster than cmp.Diff
		return ""
	}
	return cmp.Diff(want, got)
}

// written returns lines as this program writes them, in which every field varies.
func written(t *testing.T) [][]byte {
	t.Helper()
	var batch []council.BiasMetricRecord
	for i, r := range slices.Repeat(session("a"), 100) {
		r.SessionID = fmt.Sprint("session-", i/7)
		r.Timestamp = noon.AddDate(0, 0, i/7).Add(1_234_567)
		r.ConsentLevel = 1 + i%4
		r.ReviewerID, r.ModelID = fmt.Sprint("a/", i%5), fmt.Sprint("é/", i%6)
		r.Position, r.ResponseLengthChars = new(i%3), i*i
		r.ScoreValue, r.RankValue = new(1+float64(i%90)/10), new(float64(i%8)/2)
		r.CouncilConfig, r.QueryHash = fmt.Sprint("review-", i/50), new(fmt.Sprintf("%016x", i))
		r.Own, r.NShown = i%5 == i%6, 3+i%2
		r.Provider = council.ProviderPair{Reviewer: "a", Candidate: "é"}
		r.QueryMetadata.Category = new("other")
		r.ModelVersions = council.VersionPair{Reviewer: new(fmt.Sprint("a-", i/40)), Candidate: new(fmt.Sprint("é-", i/60))}
		r.ResponseReasoningTokens, r.QuestionKey = new(int64(i*i)), new(fmt.Sprintf("%016x", 2*i))
		if i/20%2 == 1 {
			r.RosterIDs = &council.SeatPair{Reviewer: fmt.Sprint("r", i%5), Candidate: fmt.Sprint("é", i%6)}
		}
		if i/30%2 == 1 && i%4 > 0 {
			r.StyleSimilarity, r.EmbeddingModel = new(float64(i%200-100)/100), fmt.Sprint("embed-", i/90)
		}
		switch i % 10 {
		case 3:
			r.Status, r.ScoreValue, r.RankValue, r.BlockID = council.BallotError, nil, nil, nil
		case 4:
			r.QueryMetadata, r.QueryHash, r.OrderDesign = council.QueryMetadata{}, nil, council.OrderShared
		case 5:
			r.ScoreValue, r.RankValue = new(10.0/3), new(0.0)
			r.ModelVersions, r.ResponseReasoningTokens, r.QuestionKey = council.VersionPair{}, nil, nil
		case 6:
			r.QueryMetadata.Category, r.Provider.Candidate = new("R&D \"new\" \u2028"), "<é>"
		}
		batch = append(batch, r)
	}
	lines, err := Encode(batch)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(lines), []byte("\t\n"))
}

// foreign is a record as another program writes it.
const foreign = `{"schema_version": "1.2.0", "session_id": "s1", "timestamp": "2025-12-17T12:00:00+02:00", "reviewer_id": "one/a", ` +
	`"model_id": "one/a", "position": 1, "response_length_chars": 1789, "score_value": 7.0, "score_scale": "1-10", ` +
	`"council_config_version": "other", "query_hash": null}` + "\n"

func TestScannerTakesWhatIsWritten(t *testing.T) {
	lines := written(t)
	s := newScanner()
	for _, line := range lines {
		if _, err := s.parse(line); err != nil {
			t.Fatal(err)
		}
		if !s.decode(line) && !bytes.Contains(line, []byte(`\`)) {
			t.Fatalf("not taken: %s", line)
		}
	}
	if diff := unlike(lines...); diff != "" {
		t.Error(diff)
	}
}

// ours is a record as this program writes it.
const ours = `{"schema_version":"1.2.0","session_id":"s1","timestamp":"2025-12-17T12:00:00+02:00","consent_level":1,` +
	`"query_metadata":{"category":null,"token_count_bucket":null,"language":null},"reviewer_id":"one/a","model_id":"one/a","position":1,` +
	`"response_length_chars":1789,"score_value":7.0,"score_scale":"1-10","council_config_version":"other","query_hash":null,` +
	`"own":true,"n_shown":3,"order_design":"","rank_value":null,"ballot_status":"","provider":{"reviewer":"","candidate":""},` +
	`"block_id":null}`

// Whatever a line is like, and whatever the lines before it were, the scanner says what
// ParseRecord says.
func TestScannerIsParseRecordOnUnusualLines(t *testing.T) {
	compact := strings.NewReplacer(`": `, `":`, `, `, `,`)
	for name, change := range map[string][2]string{
		"negative score":         {`7.0, "score_scale": "1-10"`, `-7.25, "score_scale": "-10--1"`},
		"negative zero":          {`7.0, "score_scale": "1-10"`, `-0, "score_scale": "-1-1"`},
		"carriage return":        {"null}", "null}\r"},
		"first schema":           {`"1.2.0"`, "1"},
		"first schema, as 1.":    {`"1.2.0"`, "1.0"},
		"schema 1.1.0":           {`"1.2.0"`, `"1.1.0"`},
		"own answer":             {"{", `{"own": true,`},
		"objects that are null":  {"{", `{"query_metadata": null, "provider" : null,`},
		"half a provider":        {"{", `{"provider": {"candidate": "two"}, `},
		"empty provider":         {"{", `{"provider": {"candidate": "", "reviewer": ""}, `},
		"two halves":             {"{", `{"provider": {"candidate": "two"}, "provider": {"reviewer": "three"}, `},
		"no score":               {`"score_value": 7.0, "score_scale": "1-10", `, ""},
		"score of many digits":   {"7.0", "7.333333333333333"},
		"score with exponent":    {"7.0", "70E-1"},
		"whole exponent":         {"7.0", "1e1"},
		"score of many zeros":    {"7.0", "7.00000000000000000000000000000000000"},
		"escapes":                {"one/a", `\u006fne\/\ud83d\ude00\n\\`},
		"half a surrogate":       {"one/a", `\ud83d`},
		"escaped key":            {"position", `p\u006fsition`},
		"delete character":       {"one/a", "\x7f"},
		"no change":              {"}", "}"},
		"space at the ends":      {"{", " \t{"},
		"unknown field":          {"{", `{"reasoning": 1, `},
		"key in another case":    {"position", "Position"},
		"equal keys":             {"{", `{"position": 0, `},
		"equal keys but case":    {"{", `{"POSITION": 0, `},
		"member as a field":      {"{", `{"query_metadata.category": "x", `},
		"object in an object":    {"{", `{"query_metadata": {"provider": {"reviewer": "x"}}, `},
		"field as an object":     {`"position": 1`, `"position": {"position": 1}`},
		"object as a value":      {"{", `{"query_metadata": "x", `},
		"empty object":           {"{", `{"provider": {}, `},
		"array":                  {"{", `[{`},
		"key without quotes":     {`"position"`, `position`},
		"key without a colon":    {`"position":`, `"position"`},
		"no key":                 {`"position":`, `:`},
		"key only":               {`"position": 1, `, `"position", `},
		"no comma":               {`1, "resp`, `1 "resp`},
		"comma at the end":       {"}", ",}"},
		"comma at the start":     {"{", "{,"},
		"two commas":             {`1, "resp`, `1,, "resp`},
		"open object":            {"}", ""},
		"closed twice":           {"}", "}}"},
		"two records":            {"}", "}{}"},
		"form feed":              {"{", "{\f"},
		"integer with fraction":  {"1789", "1789.0"},
		"integer with exponent":  {"1789", "1789e0"},
		"negative length":        {"1789", "-1789"},
		"integer of 20 digits":   {"1789", "17890000000000000000"},
		"leading zero":           {"1789", "01789"},
		"two zeros":              {"1789", "00"},
		"leading plus":           {"1789", "+1789"},
		"hexadecimal":            {"1789", "0x1789"},
		"underscore":             {"1789", "1_789"},
		"score without fraction": {"7.0", "7."},
		"score without a whole":  {"7.0", ".7"},
		"score of two points":    {"7.0", "7.0.0"},
		"score with half an exp": {"7.0", "7e"},
		"score minus":            {"7.0", "-"},
		"score -00":              {"7.0", "-00"},
		"score infinite":         {"7.0", "Infinity"},
		"score NaN":              {"7.0", "NaN"},
		"score beyond float64":   {"7.0", "1e999"},
		"score beyond its scale": {"7.0", "10.000000000000002"},
		"score below its scale":  {"7.0", "0.999"},
		"score as text":          {"7.0", `"7.0"`},
		"score true":             {"7.0", "true"},
		"score nulls":            {"7.0", "nulls"},
		"score without a scale":  {`"score_scale": "1-10", `, ""},
		"scale in words":         {"1-10", "good-bad"},
		"scale null":             {`"1-10"`, "null"},
		"negative rank":          {"{", `{"rank_value": -0.5, `},
		"rank beyond float64":    {"{", `{"rank_value": 1e999, `},
		"own null":               {"{", `{"own": null, `},
		"own as a number":        {"{", `{"own": 1, `},
		"own in capitals":        {"{", `{"own": True, `},
		"own truer":              {"{", `{"own": truer, `},
		"unknown order":          {"{", `{"order_design": "random", `},
		"unknown status":         {"{", `{"ballot_status": "fine", `},
		"later schema":           {"1.2.0", "1.6.0"},
		"versions":               {"null}", `null,"model_versions":{"reviewer":"a","candidate":null},"response_reasoning_tokens":7,"question_key":null}`},
		"versions and more":      {"null}", `null,"model_versions":{"reviewer":null,"candidate":"b"},"response_reasoning_tokens":0,"question_key":"00112233445566ff","style_similarity":1,"embedding_model":"e","roster_ids":{"reviewer":"a","candidate":"b"}}`},
		"versions null":          {"null}", `null,"model_versions":null,"response_reasoning_tokens":null,"question_key":null}`},
		"a bad question key":     {"null}", `null,"model_versions":{"reviewer":null,"candidate":null},"response_reasoning_tokens":null,"question_key":"x"}`},
		"a similarity":           {"null}", `null,"style_similarity":-0.25,"embedding_model":"e"}`},
		"a similarity alone":     {"null}", `null,"style_similarity":1}`},
		"too large a similarity": {"null}", `null,"style_similarity":1.01,"embedding_model":"e"}`},
		"no similarity":          {"null}", `null,"style_similarity":null,"embedding_model":""}`},
		"a similarity as text":   {"null}", `null,"style_similarity":"0.5","embedding_model":"e"}`},
		"schema as a number":     {`"1.2.0"`, "1.2"},
		"schema 2":               {`"1.2.0"`, "2"},
		"schema null":            {`"1.2.0"`, "null"},
		"no schema":              {`"schema_version": "1.2.0", `, ""},
		"no timestamp":           {`"timestamp": "2025-12-17T12:00:00+02:00", `, ""},
		"no length":              {`"response_length_chars": 1789, `, ""},
		"no reviewer":            {`"reviewer_id": "one/a", `, ""},
		"empty model":            {`"model_id": "one/a"`, `"model_id": ""`},
		"null session":           {`"s1"`, "null"},
		"session as a number":    {`"s1"`, "1"},
		"naive time":             {"+02:00", ""},
		"year -1 in UTC":         {"2025-12-17T12:00:00+02:00", "0000-01-01T00:00:00+01:00"},
		"unknown escape":         {"one/a", `\a`},
		"half an escape":         {"one/a", `\u12`},
		"string without an end":  {`null}`, `"x}`},
		"escaped end":            {`null}`, `"x\"}`},
		"single quotes":          {`"s1"`, `'s1'`},
		"control character":      {"one/a", "one\ta"},
		"zero byte":              {"one/a", "one\x00a"},
		"not UTF-8":              {"one/a", "one\xffa"},
		"not UTF-8, escaped":     {"one/a", "\\none\xffa"},
		"half a character":       {"one/a", "\xc3"},
		"surrogate in UTF-8":     {"one/a", "\xed\xa0\x80"},
		"byte order mark":        {"{", "\ufeff{"},
		"nothing but space":      {strings.TrimSpace(foreign), " \n"},
		"nothing":                {strings.TrimSpace(foreign), ""},
	} {
		for layout, good := range map[string]string{"foreign": strings.TrimSpace(foreign), "ours": ours} {
			t.Run(name+"/"+layout, func(t *testing.T) {
				from, to := change[0], change[1]
				if from == strings.TrimSpace(foreign) {
					from = good
				} else if layout == "ours" {
					from, to = compact.Replace(from), compact.Replace(to)
				}
				if !strings.Contains(good, from) {
					t.Fatalf("no %q to change", from)
				}
				line := []byte(strings.Replace(good, from, to, 1))
				if diff := unlike(line, nil, []byte(good), line, line, []byte(good), []byte(good)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Strings that are like each other, or that are escaped as others are written.
func TestScannerTellsStringsApart(t *testing.T) {
	ids := []string{
		`a\u0022b`, `a`, `a\u0022`, `ab`, "aXcd", "aYcd", "aXcd", `aXcd\u0000`, "é", `\u00e9`, `\\`, `\"`, `\\n`, `\n`,
		strings.Repeat("x", 300),
	}
	var lines [][]byte
	for _, id := range ids {
		lines = append(lines, []byte(strings.ReplaceAll(foreign, "one/a", id)))
	}
	if diff := unlike(lines...); diff != "" {
		t.Error(diff)
	}
}

// No byte that is changed, added or missing anywhere makes a difference to what
// ParseRecord says.
func TestScannerMindsEveryByte(t *testing.T) {
	record := valid()
	record.QueryMetadata.Category = new("é\n")
	for _, good := range [][]byte{append(marshal(t, record), '\n'), []byte(foreign)} {
		var lines [][]byte
		for i := range good {
			for _, c := range []byte("0\"\\,}\xff") {
				lines = append(lines, good, slices.Concat(good[:i], []byte{c}, good[i+1:]), slices.Concat(good[:i], []byte{c}, good[i:]))
			}
			lines = append(lines, good, slices.Concat(good[:i], good[i+1:]), good[:i])
		}
		if diff := unlike(lines...); diff != "" {
			t.Error(diff)
		}
	}
}

// mutated draws a line with some changes at any place, whether they keep it JSON or not.
func mutated(line []byte) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		changed := slices.Clone(line)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			from := rapid.IntRange(0, len(changed)).Draw(t, "from")
			to := rapid.IntRange(from, min(len(changed), from+12)).Draw(t, "to")
			with := rapid.OneOf(
				rapid.SampledFrom([]string{"", "0", "null", "true", `"`, `\`, "{", "}", ",", ":", `,"own":true`, `"Own":null,`, "é"}),
				rapid.Just(string(changed[from:to])+string(changed[from:to])),
			).Draw(t, "with")
			changed = slices.Replace(changed, from, to, []byte(with)...)
		}
		return changed
	})
}

func TestScannerIsParseRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lines [][]byte
		for _, r := range rapid.SliceOfN(records(), 1, 5).Draw(t, "records") {
			line, err := Encode([]council.BiasMetricRecord{r})
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		lines = append(lines, []byte(foreign))
		sequence := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
			return mutated(rapid.SampledFrom(lines).Draw(t, "line")).Draw(t, "mutated")
		}), 0, 20).Draw(t, "sequence")
		if diff := unlike(sequence...); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzScanner(f *testing.F) {
	r := valid()
	known, err := json.Marshal(&r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(known)
	f.Add([]byte(foreign))
	f.Add([]byte(ours))
	f.Add([]byte(strings.Replace(ours, `"block_id":null}`, `"block_id":null,"roster_ids":{"reviewer":"gpt","candidate":"mini"}}`, 1)))
	f.Add([]byte(`{"schema_version":1,"session_id":"\u0061","timestamp":"2025-12-17T12:00:00+02:00","reviewer_id":"a/b","model_id":"a/b",` +
		`"position":2,"response_length_chars":0,"score_value":-0,"score_scale":"-1-1","query_metadata":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		growth.Bounded(t, 2*len(line), func() {
			s := newScanner()
			_, _ = s.parse(line)
			_, _ = s.parse(line)
		})
		if diff := unlike(known, line, line, known); diff != "" {
			t.Error(diff)
		}
	})
}
