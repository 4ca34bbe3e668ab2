package trial_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/trial"
	"github.com/councild/councild/internal/worth"
	"github.com/google/go-cmp/cmp"
)

// questionKey returns a key of a question. The real one needs a secret.
func questionKey(question string) *string { return new(fmt.Sprintf("%016x", question)[:16]) }

// imported returns the rows of a text and the codes of the lines that were rejected, as "line:code".
func imported[T any](tb testing.TB, from trial.ImportFormat, text string) (s trial.ImportSummary, rows []T, rejected []string) {
	tb.Helper()
	var out bytes.Buffer
	s, err := trial.Import(tb.Context(), from, questionKey, strings.NewReader(text), &out, func(r trial.Rejection) {
		rejected = append(rejected, fmt.Sprintf("%d:%s", r.Line, r.Code))
	})
	if err != nil {
		tb.Fatal(err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rejected) != s.Rejected || len(rows) != s.Written {
		tb.Errorf("%+v, but %d were rejected and %d written", s, len(rejected), len(rows))
	}
	return s, rows, rejected
}

// judgeBenchLine returns a line of JudgeBench: a pair and the two decisions of a judge, "" for null and "-" for a call that failed.
func judgeBenchLine(id, source, label, judge, first, second string) string {
	verdict := func(decision string) any {
		v := map[string]any{"judgment": map[string]any{"judge_model": judge, "prompt": "p", "response": "r"}, "decision": decision}
		switch decision {
		case "-":
			return nil
		case "":
			v["decision"] = nil
		}
		return v
	}
	line, _ := json.Marshal(map[string]any{
		"pair_id": id, "original_id": 7, "source": source, "question": "q", "response_model": "m", "response_A": "a", "response_B": "b",
		"label": label, "judge_name": "arena_hard", "judgments": []any{verdict(first), verdict(second)},
	})
	return string(line) + "\n"
}

func TestImportJudgeBench(t *testing.T) {
	text := "\ufeff" + judgeBenchLine("1", "law", "A>B", "m", "A>B", "B>A") + // right in both orders
		"\r\n" + judgeBenchLine("2", "law", "B>A", "m", "A=B", "A>B") + // a tie, and right
		judgeBenchLine("3", "math", "B>A", "m", "B>A", "B>A") + // once right, once wrong
		judgeBenchLine("4", "math", "A>B", "m", "B>A", "A>B") + // wrong
		judgeBenchLine("5", "math", "A>B", "m", "", "B>A") + // missing, and right
		judgeBenchLine("6", "math", "A>B", "m", "", "") + // missing
		judgeBenchLine("7", "math", "A>B", "m", "-", "-") + // both calls failed
		judgeBenchLine("1", "law", "A>B", "org/n", "A>B", "A=B") +
		strings.TrimSuffix(judgeBenchLine("8", "math", "A>B", "org/n", "-", "B>A"), "\n")
	s, rows, rejected := imported[trial.GradedRow](t, trial.FormatJudgeBench, text)
	if len(rejected) > 0 || s.Accepted != 9 || !s.Graded {
		t.Errorf("%+v, rejected %v", s, rejected)
	}
	one, zero := new(1.0), new(0.0)
	row := func(id, cluster string, m, n *float64) trial.GradedRow {
		return trial.GradedRow{
			ID: id, Cluster: cluster, CostUSD: map[string]*float64{},
			Scores: map[string]*float64{"arena_hard:m": m, "arena_hard:org/n": n},
		}
	}
	want := []trial.GradedRow{
		row("1", "law", one, one), row("2", "law", one, nil), row("3", "math", zero, nil), row("4", "math", zero, nil),
		row("5", "math", one, nil), row("6", "math", nil, nil), row("7", "math", nil, nil), row("8", "math", nil, one),
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

// A row fits what worth computes with: an accuracy that counts missing scores as wrong is JudgeBench's own.
func TestImportedRowsFitWorth(t *testing.T) {
	var text strings.Builder
	decisions := []string{"A>B", "B>A", "A=B", ""}
	right := 0
	for i := range 64 {
		first, second := decisions[i%4], decisions[i/4%4]
		text.WriteString(judgeBenchLine(strconv.Itoa(i), strconv.Itoa(i/4), "A>B", "m", first, second))
		net := map[string]int{"A>B": 1, "B>A": -1}[first] - map[string]int{"A>B": 1, "B>A": -1}[second]
		if net > 0 {
			right++
		}
	}
	_, rows, _ := imported[trial.GradedRow](t, trial.FormatJudgeBench, text.String())
	questions := make([]worth.SeatQuestion, len(rows))
	for i, row := range rows {
		score := row.Scores["arena_hard:m"]
		questions[i] = worth.SeatQuestion{ID: row.ID, Cluster: row.Cluster, Wrong: []bool{score == nil || *score == 0}}
	}
	report := worth.Seats(questions, 1)
	if report.Clusters != 16 || *report.Seats[0].Accuracy != float64(right)/64 {
		t.Errorf("%d clusters, accuracy %v, want 16 and %v", report.Clusters, *report.Seats[0].Accuracy, float64(right)/64)
	}
}

func TestImportJudgeBenchRejections(t *testing.T) {
	valid := judgeBenchLine("1", "law", "A>B", "m", "A>B", "B>A")
	long := strings.Repeat("x", 201)
	for name, tt := range map[string]struct{ line, want string }{
		"not UTF-8":           {"\"\xff\"", "not_utf8"},
		"not JSON":            {"{", "not_json"},
		"trailing data":       {"{} {}", "not_json"},
		"a list":              {"[]", "not_object"},
		"null":                {"null", "not_object"},
		"too long":            {`"` + strings.Repeat("x", 16<<20) + `"`, "too_long"},
		"no label":            {strings.Replace(valid, "label", "lable", 1), "missing_field"},
		"no judgments":        {strings.Replace(valid, "judgments", "judgements", 1), "missing_field"},
		"another label":       {judgeBenchLine("1", "law", "A", "m", "A>B", "B>A"), "bad_field"},
		"another decision":    {judgeBenchLine("1", "law", "A>B", "m", "A>>B", "B>A"), "bad_field"},
		"a number":            {strings.Replace(valid, `"pair_id":"1"`, `"pair_id":1`, 1), "bad_field"},
		"no model":            {judgeBenchLine("1", "law", "A>B", "", "A>B", "B>A"), "bad_field"},
		"two models":          {strings.Replace(valid, `"judge_model":"m"`, `"judge_model":"n"`, 1), "bad_field"},
		"a long id":           {judgeBenchLine(long, "law", "A>B", "m", "A>B", "B>A"), "bad_field"},
		"a long model":        {judgeBenchLine("1", "law", "A>B", long, "A>B", "B>A"), "bad_field"},
		"one order":           {`{"pair_id":"1","source":"s","label":"A>B","judge_name":"j","judgments":[null]}`, "one_order"},
		"three orders":        {`{"pair_id":"1","source":"s","label":"A>B","judge_name":"j","judgments":[null,null,null]}`, "bad_field"},
		"the same":            {judgeBenchLine("0", "law", "A>B", "m", "A>B", "B>A"), "duplicate"},
		"another source":      {judgeBenchLine("0", "math", "A>B", "n", "A>B", "B>A"), "bad_field"},
		"nothing but earlier": {judgeBenchLine("0", "law", "A>B", "m", "-", "-"), "duplicate"},
	} {
		before := judgeBenchLine("0", "law", "A>B", "m", "A>B", "B>A")
		s, _, rejected := imported[trial.GradedRow](t, trial.FormatJudgeBench, before+"\n"+strings.TrimSpace(tt.line)+"\n")
		if want := []string{"3:" + tt.want}; !slices.Equal(rejected, want) || s.Accepted != 1 {
			t.Errorf("%s: %v, want %v; %+v", name, rejected, want, s)
		}
	}
	var judges strings.Builder
	for i := range 101 {
		judges.WriteString(judgeBenchLine("0", "law", "A>B", strconv.Itoa(i), "A>B", "B>A"))
	}
	if _, _, rejected := imported[trial.GradedRow](t, trial.FormatJudgeBench, judges.String()); !slices.Equal(rejected, []string{"101:bad_field"}) {
		t.Errorf("101 judges: %v", rejected)
	}
}

const (
	single = "[User Question]\nWhy?\n\n[The Start of Assistant A's Answer]\n%s\n[The End of Assistant A's Answer]\n\n" +
		"[The Start of Assistant B's Answer]\n%s\n[The End of Assistant B's Answer]"
	talk = "<|The Start of Assistant %[1]s's Conversation with User|>\n\n### User:\nWhy?\n\n### Assistant %[1]s:\n%[2]s\n\n" +
		"### User:\nAnd then?\n\n### Assistant %[1]s:\n%[3]s\n\n<|The End of Assistant %[1]s's Conversation with User|>"
)

// mtBenchLine returns a line of MT-bench.
func mtBenchLine(edit func(map[string]any)) string {
	line := map[string]any{
		"question_id": 81, "model_1": "alpaca-13b", "model_2": "gpt-4", "g1_winner": "model_2", "g2_winner": "tie",
		"judge": []string{"gpt-4", "pair-v2"}, "g1_user_prompt": fmt.Sprintf(single, "größer", "no"), "g1_judgment": "[[B]]",
		"g2_user_prompt": fmt.Sprintf(single, "no", "größer"), "g2_judgment": "[[C]]", "turn": 1, "tstamp": 1687212345.5,
	}
	if edit != nil {
		edit(line)
	}
	text, _ := json.Marshal(line)
	return string(text) + "\n"
}

func TestImportMTBenchPairs(t *testing.T) {
	second := mtBenchLine(func(line map[string]any) {
		line["turn"], line["g1_winner"], line["g2_winner"], line["judge"] = 2, "error", "model_1", []string{"claude-v1", "pair-v2-multi-turn"}
		line["g1_user_prompt"] = "<reference>\n\n" + fmt.Sprintf(talk, "A", "one", "two") + "\n\n\n" + fmt.Sprintf(talk, "B", "1", "22")
		line["g2_user_prompt"] = fmt.Sprintf(talk, "A", "1", "22") + "\n\n\n" + fmt.Sprintf(talk, "B", "one", "two")
	})
	s, records, rejected := imported[council.BiasMetricRecord](t, trial.FormatMTBenchPairs, mtBenchLine(nil)+second)
	if len(rejected) > 0 || s.Accepted != 2 || s.Graded || len(records) != 8 {
		t.Fatalf("%+v, rejected %v", s, rejected)
	}
	type judged struct {
		Session, Reviewer, Model string
		Position, Length         int
		Score, Rank              string
		Status                   council.BallotStatus
		Own                      bool
	}
	got := make([]judged, len(records))
	for i, r := range records {
		text := func(v *float64) string {
			if v == nil {
				return "null"
			}
			return fmt.Sprint(*v)
		}
		got[i] = judged{
			r.SessionID, r.ReviewerID, r.ModelID, *r.Position, r.ResponseLengthChars, text(r.ScoreValue), text(r.RankValue), r.Status, r.Own,
		}
		line, _ := json.Marshal(r)
		if _, err := store.ParseRecord(line); err != nil || r.ScoreScale != "0-1" || r.NShown != 2 || *r.QueryHash != *records[0].QueryHash {
			t.Errorf("record %d: %v: %s", i, err, line)
		}
	}
	const block = "mt-81-1-alpaca-13b|gpt-4"
	const block2 = "mt-81-2-alpaca-13b|gpt-4"
	want := []judged{
		{block + "-g1", "gpt-4", "alpaca-13b", 0, 6, "0", "1", "ok", false},
		{block + "-g1", "gpt-4", "gpt-4", 1, 2, "1", "0", "ok", true},
		{block + "-g2", "gpt-4", "gpt-4", 0, 2, "0.5", "0.5", "ok", true},
		{block + "-g2", "gpt-4", "alpaca-13b", 1, 6, "0.5", "0.5", "ok", false},
		{block2 + "-g1", "claude-v1", "alpaca-13b", 0, 6, "null", "null", "invalid", false},
		{block2 + "-g1", "claude-v1", "gpt-4", 1, 3, "null", "null", "invalid", false},
		{block2 + "-g2", "claude-v1", "gpt-4", 0, 3, "0", "1", "ok", false},
		{block2 + "-g2", "claude-v1", "alpaca-13b", 1, 6, "1", "0", "ok", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	first := records[0]
	at := first.Timestamp.Format("2006-01-02T15:04:05.0Z07:00")
	if *first.BlockID != block || first.CouncilConfig != "mtbench-pairs/pair-v2" || at != "2023-06-19T22:05:45.5Z" {
		t.Errorf("block %s, version %s, time %s", *first.BlockID, first.CouncilConfig, first.Timestamp)
	}
}

func TestImportMTBenchRejections(t *testing.T) {
	set := func(key string, value any) string {
		return mtBenchLine(func(line map[string]any) { line[key] = value })
	}
	for name, tt := range map[string]struct{ line, want string }{
		"no question":        {set("question_id", nil), "missing_field"},
		"a question's text":  {set("question_id", "81"), "bad_field"},
		"no winner":          {set("g2_winner", ""), "missing_field"},
		"another winner":     {set("g2_winner", "A"), "bad_field"},
		"one model":          {set("model_2", "alpaca-13b"), "bad_field"},
		"a long name":        {set("model_2", strings.Repeat("m", 201)), "bad_field"},
		"no judge":           {set("judge", []string{"gpt-4"}), "bad_field"},
		"a judge's name":     {set("judge", "gpt-4"), "bad_field"},
		"no turn":            {set("turn", nil), "bad_field"},
		"no time":            {set("tstamp", nil), "bad_field"},
		"a time far away":    {set("tstamp", 1e12), "bad_field"},
		"another prompt":     {set("g1_user_prompt", "Which is better?"), "no_answers"},
		"a marker as answer": {set("g1_user_prompt", fmt.Sprintf(single, "x\n[The End of Assistant A's Answer]", "no")), "no_answers"},
		"a turn as answer": {
			set("g2_user_prompt", fmt.Sprintf(talk, "A", "1\n\n### User:\n", "2")+fmt.Sprintf(talk, "B", "1", "2")), "no_answers",
		},
		"one turn": {
			set("g2_user_prompt", strings.Replace(fmt.Sprintf(talk, "A", "1", "2"), "### User:\nAnd", "And", 1)), "no_answers",
		},
		"not swapped": {set("g2_user_prompt", fmt.Sprintf(single, "größer", "no")), "not_swapped"},
		"the same":    {mtBenchLine(nil), "duplicate"},
	} {
		_, _, rejected := imported[council.BiasMetricRecord](t, trial.FormatMTBenchPairs, mtBenchLine(nil)+tt.line)
		if want := []string{"2:" + tt.want}; !slices.Equal(rejected, want) {
			t.Errorf("%s: %v, want %v", name, rejected, want)
		}
	}
}

func TestImportTables(t *testing.T) {
	t.Run("graded rows", func(t *testing.T) {
		const text = "\ufeffid,score:council,group,cost_usd:council,score:a\r\n" +
			"q1,1,law,0.25,0.5\r\n\r\n\"q\n2\",0,,,\r\n'=q3,,math,0,1\r\nq1,1,law,1,1\r\nq4,1.5,,,\r\n,1,,,\r\nq5,1,,-1,\r\nq6,NaN,,,\r\nq7,1\r\n" +
			"q8,\"1,,,\r\n"
		s, rows, rejected := imported[trial.GradedRow](t, trial.FormatCSV, text)
		if !s.Graded || s.Accepted != 3 {
			t.Errorf("%+v", s)
		}
		row := func(id, cluster string, council, a, cost *float64) trial.GradedRow {
			return trial.GradedRow{
				ID: id, Cluster: cluster, Scores: map[string]*float64{"council": council, "a": a}, CostUSD: map[string]*float64{"council": cost},
			}
		}
		want := []trial.GradedRow{
			row("q1", "law", new(1.0), new(0.5), new(0.25)), row("q\n2", "q\n2", new(0.0), nil, nil), row("=q3", "math", nil, new(1.0), new(0.0)),
		}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Error(diff)
		}
		lines := []string{
			"7:duplicate", "8:bad_field", "9:missing_field", "10:bad_field", "11:bad_field", "12:bad_row", "13:bad_row",
		}
		if diff := cmp.Diff(lines, rejected); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("records", func(t *testing.T) {
		text := "session_id,timestamp,reviewer_id,model_id,response_length_chars,position,score_value,score_scale,own,category,block_id\n" +
			"s,2026-11-23T10:00:00Z,a/x,b/y,120,1,7.5,1-10,false,math,'@b\n" +
			"s,2026-11-23T10:00:00Z,a/x,c,9,,,,,,\n" +
			"s,yesterday,a/x,b/y,120,1,7,1-10,,,\n" + "s,2026-11-23T10:00:00Z,a/x,b/y,120,1,7,,,,\n" +
			"s,2026-11-23T10:00:00Z,a/x,b/y,-1,1,7,1-10,,,\n" + "s,2026-11-23T10:00:00Z,a/x,b/y,many,1,7,1-10,,,\n" +
			"s,2026-11-23T10:00:00Z,a/x,b/y,1,1,7,1-10,perhaps,,\n" + "s,2026-11-23T10:00:00Z,,b/y,1,1,7,1-10,,,\n" +
			"s,2026-11-23T10:00:00Z,a/x,b/y,1,1.5,7,1-10,,,\n" + "s,2026-11-23T10:00:00Z,a/x,b/\xff,1,1,7,1-10,,,\n" +
			"s,2026-11-23T10:00:00Z,a/x," + "b/y,1,1,7,1-10,,," + strings.Repeat("b", 60<<10) + "\n"
		s, records, rejected := imported[council.BiasMetricRecord](t, trial.FormatCSV, text)
		if s.Graded || len(records) != 2 {
			t.Fatalf("%+v, %d records", s, len(records))
		}
		r := records[0]
		if *r.Position != 1 || *r.ScoreValue != 7.5 || *r.QueryMetadata.Category != "math" || *r.BlockID != "@b" {
			t.Errorf("%+v", r)
		}
		if r = records[1]; r.Position != nil || r.ScoreValue != nil || r.BlockID != nil || r.SchemaVersion != council.RecordSchema {
			t.Errorf("%+v", r)
		}
		lines := []string{
			"4:bad_timestamp", "5:bad_score", "6:bad_field", "7:bad_field", "8:bad_field", "9:missing_field", "10:bad_field", "11:not_utf8",
			"12:too_long",
		}
		if diff := cmp.Diff(lines, rejected); diff != "" {
			t.Error(diff)
		}
	})
	for header, want := range map[string]string{
		"":                          "not the header",
		"\"":                        "not the header",
		"id;score:a":                "is not known",
		"id,group":                  "no column has scores",
		"id,score:a,score:a":        "is there twice",
		"id,score:":                 "is not known in a table with id",
		"id,score:a,cost_usd:b":     "is not known in a table with id",
		"id,score:a,session_id":     "is not known in a table with id",
		"session_id,note":           "is not known: a table",
		"session_id,reviewer_id":    "needs the column timestamp",
		"Session_id,reviewer_id":    "is not known: a table",
		"session_id,timestamp,a\nb": "is not known: a table",
	} {
		var out bytes.Buffer
		_, err := trial.Import(t.Context(), trial.FormatCSV, questionKey, strings.NewReader(header), &out, nil)
		if _, ok := errors.AsType[*trial.HeaderError](err); !ok || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v, want %q", header, err, want)
		}
	}
}

// What cannot be read or written, and the end of the context, are errors and no rejections.
func TestImportErrors(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for from, text := range map[trial.ImportFormat]string{
		trial.FormatJudgeBench: judgeBenchLine("1", "law", "A>B", "m", "A>B", "B>A"), trial.FormatMTBenchPairs: mtBenchLine(nil), trial.FormatCSV: "id,score:a\n1,1\n",
	} {
		cut := io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))
		if _, err := trial.Import(t.Context(), from, questionKey, cut, io.Discard, nil); !errors.Is(err, broken) {
			t.Errorf("%s: reading: %v", from, err)
		}
		if _, err := trial.Import(t.Context(), from, questionKey, strings.NewReader(text), failingWriter{broken}, nil); !errors.Is(err, broken) {
			t.Errorf("%s: writing: %v", from, err)
		}
		if _, err := trial.Import(ended, from, questionKey, strings.NewReader(text), io.Discard, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %v", from, err)
		}
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func importFormats() []trial.ImportFormat {
	return []trial.ImportFormat{trial.FormatJudgeBench, trial.FormatMTBenchPairs, trial.FormatCSV}
}

// FuzzImport checks that every line is a row or a rejection, that rows are what they should be, and that no text
// takes more than time in proportion to it.
func FuzzImport(f *testing.F) {
	f.Add(judgeBenchLine("1", "law", "A>B", "m", "A>B", "B>A") + judgeBenchLine("1", "law", "A>B", "n", "", "-"))
	f.Add(mtBenchLine(nil) + mtBenchLine(nil))
	f.Add("id,score:a,cost_usd:a,group\n1,.5,2,\"g\n\"\n1\n\"")
	f.Add("session_id,timestamp,reviewer_id,model_id,response_length_chars,own\ns,2026-11-23T10:00:00Z,a,b,1,true\n")
	f.Add("\ufeff\r\n{}\n[]\n\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, from := range importFormats() {
			var out bytes.Buffer
			var s trial.ImportSummary
			var err error
			var last int64
			growth.Bounded(t, len(text), func() {
				out.Reset()
				last = 0
				s, err = trial.Import(t.Context(), from, questionKey, strings.NewReader(text), &out, func(r trial.Rejection) {
					if r.Line <= last || r.Code == "" {
						t.Errorf("%s: rejected is %+v after line %d", from, r, last)
					}
					last = r.Line
				})
			})
			if _, ok := errors.AsType[*trial.HeaderError](err); ok && from == trial.FormatCSV {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", from, err)
			}
			if want := filled(text); from != trial.FormatCSV && s.Accepted+s.Rejected != want {
				t.Errorf("%s: %+v of %d lines", from, s, want)
			}
			for line := range bytes.Lines(out.Bytes()) {
				checkRow(t, s.Graded, line)
			}
		}
	})
}

// filled returns how many lines of a text are not empty.
func filled(text string) (n int) {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

func checkRow(t *testing.T, graded bool, line []byte) {
	t.Helper()
	if !utf8.Valid(line) || len(line) > 64<<10 && !graded {
		t.Errorf("%d bytes: %.100q", len(line), line)
	}
	if !graded {
		if _, err := store.ParseRecord(line); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		return
	}
	var row trial.GradedRow
	if err := json.Unmarshal(line, &row); err != nil || row.ID == "" || row.Cluster == "" || len(row.Scores) == 0 {
		t.Errorf("%v: %s", err, line)
	}
	for arm, score := range row.Scores {
		if score != nil && !(*score >= 0 && *score <= 1) {
			t.Errorf("the score of %s is %v", arm, *score)
		}
	}
}

// TestImportTimePerByte holds that reading takes time in proportion to the text.
func TestImportTimePerByte(t *testing.T) {
	judged, matched := judgeBenchLine("1", "law", "A>B", "m", "A>B", "B>A"), mtBenchLine(nil)
	pairs := func(n int) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			b.WriteString(judgeBenchLine(strconv.Itoa(i/3), "law", "A>B", strconv.Itoa(i%100), "A>B", "B>A"))
		}
		return b.String()
	}
	header := func(n int) string {
		var b strings.Builder
		b.WriteString("id")
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, ",score:%d", i)
		}
		return b.String() + "\n"
	}
	repeated := func(before, unit string) func(int) string {
		return func(n int) string { return before + strings.Repeat(unit, n/len(unit)) }
	}
	for name, tt := range map[string]struct {
		from trial.ImportFormat
		text func(n int) string
	}{
		"pairs":         {trial.FormatJudgeBench, pairs},
		"duplicates":    {trial.FormatJudgeBench, repeated("", judged)},
		"matches":       {trial.FormatMTBenchPairs, repeated("", matched)},
		"one long line": {trial.FormatMTBenchPairs, repeated("", "x")},
		"many markers": {trial.FormatMTBenchPairs, func(n int) string {
			return mtBenchLine(func(l map[string]any) { l["g1_user_prompt"] = repeated("", "### User:\n")(n) })
		}},
		"brackets":           {trial.FormatJudgeBench, repeated("", "[")},
		"empty lines":        {trial.FormatJudgeBench, repeated("", "\n")},
		"many columns":       {trial.FormatCSV, header},
		"rows":               {trial.FormatCSV, repeated("id,score:a\n", "q,1\n")},
		"a quote at the end": {trial.FormatCSV, repeated("id,score:a\n\"", "q,1\n")},
		"quotes":             {trial.FormatCSV, repeated("id,score:a\n", "\"\n")},
		"records": {trial.FormatCSV, repeated(
			"session_id,timestamp,reviewer_id,model_id,response_length_chars\n", "s,2026-11-23T10:00:00Z,a/x,c,9\n",
		)},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				text := tt.text(n)
				return func() {
					if _, err := trial.Import(t.Context(), tt.from, questionKey, strings.NewReader(text), io.Discard, func(trial.Rejection) {}); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A table of records may name the questions: by their text, or by any name. The records have the keys, and not the names.
func TestImportQuestionsOfATable(t *testing.T) {
	const text = "session_id,timestamp,reviewer_id,model_id,response_length_chars,question,question_key\n" +
		"s,2026-11-23T10:00:00Z,a/x,c,9,Why is the sky blue?,\n" + "t,2026-11-23T10:00:00Z,a/x,c,9,Why is the sky blue?,\n" +
		"u,2026-11-23T10:00:00Z,a/x,c,9,,\n" + "v,2026-11-23T10:00:00Z,a/x,c,9,Why?,0123456789abcdef\n"
	_, records, rejected := imported[council.BiasMetricRecord](t, trial.FormatCSV, text)
	if len(rejected) > 0 || len(records) != 4 {
		t.Fatalf("%d records, rejected %v", len(records), rejected)
	}
	if k := records[0].QuestionKey; k == nil || *k != *questionKey("Why is the sky blue?") || *k != *records[1].QuestionKey {
		t.Errorf("the keys of one question: %v, %v", k, records[1].QuestionKey)
	}
	if k := records[2].QuestionKey; k != nil {
		t.Errorf("without a question the key is %s", *k)
	}
	if k := records[3].QuestionKey; k == nil || *k != "0123456789abcdef" {
		t.Errorf("a key of the table became %v", k)
	}
	_, pairs, _ := imported[council.BiasMetricRecord](t, trial.FormatMTBenchPairs, mtBenchLine(nil))
	if k := pairs[0].QuestionKey; k == nil || *k != *questionKey("MT-bench question 81") || *k != *pairs[3].QuestionKey {
		t.Errorf("the key of an MT-bench question is %v", k)
	}
}

// A table of records has the columns that the export writes.
func TestImportRecordColumns(t *testing.T) {
	var names, row []string
	values := map[string]string{
		"schema_version": "1.2.0", "session_id": "s", "timestamp": "2026-11-23T10:00:00Z", "consent_level": "2", "category": "math",
		"token_count_bucket": "0-100", "language": "en", "reviewer_id": "r", "model_id": "m", "position": "1", "response_length_chars": "7",
		"score_value": "3", "score_scale": "1-10", "council_config_version": "v", "query_hash": "h", "own": "true", "n_shown": "2",
		"order_design": "balanced", "rank_value": "0.5", "ballot_status": "partial", "provider_reviewer": "pr", "provider_candidate": "pc",
		"block_id": "b", "roster_reviewer": "rr", "roster_candidate": "rc", "style_similarity": "0.75", "embedding_model": "e",
		"model_version_reviewer": "r-2", "model_version_candidate": "m-3", "response_reasoning_tokens": "40", "question_key": "0123456789abcdef", "correct": "true",
	}
	for _, column := range council.RecordColumns() {
		names = append(names, column.Name)
		row = append(row, values[column.Name])
		delete(values, column.Name)
	}
	if len(values) > 0 {
		t.Errorf("no columns are %v", values)
	}
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	if err := w.WriteAll([][]string{names, row}); err != nil {
		t.Fatal(err)
	}
	_, records, rejected := imported[map[string]any](t, trial.FormatCSV, text.String())
	if len(records) != 1 {
		t.Fatal(rejected)
	}
	got, _ := json.Marshal(records[0])
	const want = `{"ballot_status":"partial","block_id":"b","consent_level":2,"correct":true,"council_config_version":"v","embedding_model":"e","model_id":"m",` +
		`"model_versions":{"candidate":"m-3","reviewer":"r-2"},"n_shown":2,` +
		`"order_design":"balanced","own":true,"position":1,"provider":{"candidate":"pc","reviewer":"pr"},"query_hash":"h",` +
		`"query_metadata":{"category":"math","language":"en","token_count_bucket":"0-100"},"question_key":"0123456789abcdef","rank_value":0.5,` +
		`"response_length_chars":7,"response_reasoning_tokens":40,` +
		`"reviewer_id":"r","roster_ids":{"candidate":"rc","reviewer":"rr"},"schema_version":"1.2.0","score_scale":"1-10","score_value":3,` +
		`"session_id":"s","style_similarity":0.75,"timestamp":"2026-11-23T10:00:00Z"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// docs/commands.md explains every code.
func TestImportCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := []trial.Code{
		trial.NotUTF8, trial.NotJSON, trial.NotObject, trial.TooLong, trial.BadRow, trial.MissingField, trial.BadField,
		trial.Duplicate, trial.OneOrder, trial.NoAnswers, trial.NotSwapped,
		trial.Code(store.ReasonBadTimestamp), trial.Code(store.ReasonBadScore), trial.Code(store.ReasonUnknownSchema),
	}
	for _, code := range codes {
		if !strings.Contains(string(page), "`"+string(code)+"`") {
			t.Errorf("the page says nothing of %s", code)
		}
	}
}
