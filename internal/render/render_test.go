package render

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden fails the test unless got is what the golden file holds.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// reports returns the reports that the tests of package bias compute: one of each
// kind that a reader can meet.
func reports(t *testing.T) map[string]bias.Report {
	t.Helper()
	files, err := filepath.Glob("../bias/testdata/*.json.golden")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bias.Report{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r bias.Report
		if err := json.Unmarshal(body, &r); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json.golden")] = r
	}
	for _, name := range []string{"empty", "collecting", "preliminary", "moderate", "odd", "flagged"} {
		if all[name].SchemaVersion == "" {
			t.Fatalf("there is no report %q", name)
		}
	}
	return all
}

func TestText(t *testing.T) {
	for name, report := range reports(t) {
		for _, verbose := range []bool{false, true} {
			if verbose {
				name += "_verbose"
			}
			t.Run(name, func(t *testing.T) {
				text := Text(FullReport{Report: report}, verbose, config.SettingNames())
				for line := range strings.Lines(string(text)) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
						t.Errorf("a line has %d columns: %s", n, line)
					}
				}
				golden(t, name+".txt", text)
			})
		}
	}
}

func TestTextOfEvents(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	name := strings.Repeat("name ", 12)
	r := bias.Report{
		ChangePoints: []bias.ChangePoint{
			{ReviewerID: name, Start: now, Before: -0.25, After: 1, Verdict: bias.VerdictChanged},
			{ReviewerID: "unflagged", Start: now},
		},
		Anomalies: bias.Anomalies{Found: []bias.Anomaly{{Start: now, ReviewerID: name, Value: -3.125, Usual: 0.5}}},
	}
	const want = `
Reviewers that changed (below 0 is harsher than the others):

REVIEWER                                  FROM        BEFORE  AFTER
…ame name name name name name name name   2026-03-31  -0.25   +1.00

Unusual sessions (below 0 is harsher than the others):

SESSION OF           REVIEWER                                  VALUE  USUAL
2026-03-31 12:00:00  …ame name name name name name name name   -3.12  +0.50
`
	var b bytes.Buffer
	writeEvents(&b, r)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHostileNames holds that no name in a record file can steer a terminal, be
// markup or run in a spreadsheet.
func TestHostileNames(t *testing.T) {
	const name = "=1+1\x1b[31m\xff\x00<script>\t\r\n"
	r := reports(t)["moderate"]
	r.Skipped = []bias.Skipped{{Reason: "not_json", Count: 1, FirstFile: new(name), FirstLine: new(int64(7))}}
	r.Metrics[0].Subject = name
	r.Reviewers[0].ReviewerID = name
	r.Calibrated[0].ModelID = name
	r.Questions[0].Sentence = name
	r.Questions[0].Also = []string{name}
	r.Questions[0].ToDo = name
	r.Summary.Council = name
	r.Summary.Findings = []string{name}
	for form, tt := range map[string]struct {
		body []byte
		not  []string
	}{
		"text": {Text(FullReport{Report: r}, true, nil), []string{"\x1b", "\x00", "\r"}},
		"CSV":  {CSV(r), []string{",=", "\n="}},
		"HTML": {HTML(FullReport{Report: r}), []string{"<script>", "\x1b", "\x00"}},
	} {
		for _, hostile := range tt.not {
			if bytes.Contains(tt.body, []byte(hostile)) {
				t.Errorf("%s holds %q", form, hostile)
			}
		}
	}
}

func TestCSV(t *testing.T) {
	r := reports(t)["flagged"]
	rows, err := csv.NewReader(bytes.NewReader(CSV(r))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	want := 0
	for _, m := range r.Metrics {
		want++
		if unfolds(m) {
			want += len(m.Members)
		}
	}
	want += len(described(r))
	if len(rows)-1 != want {
		t.Errorf("%d rows, want %d: one for each metric, for each member that is shown, and for each mean", len(rows)-1, want)
	}
	if want == len(r.Metrics) {
		t.Error("no member is shown")
	}
	for i, m := range r.Metrics[:2] {
		for name, cell := range map[string]string{
			"metric_name": m.Name, "point_estimate": strconv.FormatFloat(*m.PointEstimate, 'g', -1, 64),
			"verdict": "", "q_value": "", "sample_size": "60", "window_start": m.WindowStart.Format(time.RFC3339),
		} {
			if got := rows[1+i][column[name]]; got != cell {
				t.Errorf("metric %s: %s is %q, want %q", m.Name, name, got, cell)
			}
		}
	}
	for _, row := range rows[1:] {
		for i, cell := range row {
			if _, err := strconv.ParseFloat(cell, 64); err != nil && strings.HasPrefix(cell, "=") {
				t.Errorf("%s: a spreadsheet would run %q", rows[0][i], cell)
			}
		}
	}
}

func TestCSVOfSkippedRecords(t *testing.T) {
	rows, err := csv.NewReader(bytes.NewReader(CSV(reports(t)["collecting"]))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows[1:] {
		got = append(got, strings.Trim(strings.Join(row, " "), " "))
	}
	want := []string{
		"skipped future_timestamp  records     1",
		"skipped not_json  records     2         the first at records.jsonl:12",
		"skipped too_long  records     1         the first at records.jsonl:31",
	}
	for i, line := range got {
		got[i] = strings.Join(strings.Fields(line), " ")
		want[i] = strings.Join(strings.Fields(want[i]), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHTML(t *testing.T) {
	for name, r := range reports(t) {
		t.Run(name, func(t *testing.T) {
			page := string(HTML(FullReport{Report: r}))
			for _, wrong := range []string{"<script", "http:", "https:", "ZgotmplZ", "%!"} {
				if strings.Contains(page, wrong) {
					t.Errorf("the page runs a script, loads something or is not whole: it holds %q", wrong)
				}
			}
			plots, tables, marks := elements(t, page)
			drawn, figures := 0, 0
			for _, q := range questionsOf(r) {
				if q.Plot == nil {
					continue
				}
				drawn++
				for _, row := range q.Plot.Rows {
					if row.Shown {
						figures++
					}
				}
			}
			if plots != drawn {
				t.Errorf("%d plots, want %d", plots, drawn)
			}
			if tables < plots {
				t.Errorf("%d tables for %d plots", tables, plots)
			}
			if marks != figures {
				t.Errorf("%d marks for %d figures", marks, figures)
			}
			if (r.Status == bias.StatusCollecting) != (figures == 0) {
				t.Errorf("status %s, but %d figures", r.Status, figures)
			}
		})
	}
}

// TestOneVoice holds that the terminal and the HTML page print the sentences of the report, in one order.
func TestOneVoice(t *testing.T) {
	for name, r := range reports(t) {
		t.Run(name, func(t *testing.T) {
			s := r.Summary
			want := slices.Concat([]string{s.Result}, s.Findings, []string{s.Brackets, s.Window, s.Council}, s.CouldFind, []string{s.More})
			for _, q := range r.Questions {
				want = slices.Concat(want, []string{q.Question, q.Word, q.Sentence}, q.Also, []string{q.ToDo})
			}
			tags := regexp.MustCompile(`<[^>]*>`)
			page := string(HTML(FullReport{Report: r}))
			_, page, _ = strings.Cut(page, "<main>")
			forms := map[string]string{
				"text": string(Text(FullReport{Report: r}, false, config.SettingNames())),
				"HTML": html.UnescapeString(tags.ReplaceAllString(page, " ")),
			}
			for form, text := range forms {
				text = strings.ToLower(strings.Join(strings.Fields(text), " "))
				for _, sentence := range want {
					sentence = strings.ToLower(strings.Join(strings.Fields(printable(sentence)), " "))
					before, after, ok := strings.Cut(text, sentence)
					if !ok {
						t.Fatalf("the %s lacks %q in its place: %.300s", form, sentence, before)
					}
					text = after
				}
			}
		})
	}
}

// elements returns how many plots, tables, and marks of figures a page holds. It
// fails the test unless all elements but the void ones are closed.
func elements(t *testing.T, page string) (plots, tables, marks int) {
	t.Helper()
	var open []string
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose = false, []string{"meta"}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = append(open, e.Name.Local)
			switch e.Name.Local {
			case "svg":
				plots++
			case "table":
				tables++
			case "circle":
				marks++
			case "rect":
				if e.Attr[0].Value != "band" {
					marks++
				}
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != e.Name.Local {
				t.Fatalf("</%s> closes %v", e.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("not closed: %v", open)
	}
	return plots, tables, marks
}

func TestHTMLOfAFlaggedReport(t *testing.T) {
	page := string(HTML(FullReport{Report: reports(t)["flagged"]}))
	golden(t, "flagged.html", []byte(page))
	for _, want := range []string{"&lt;script&gt;", `<b class="verdict seen">changed</b>`, "Unusual sessions", "s000007"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestTickDistance(t *testing.T) {
	for span, want := range map[float64]float64{0: 1, 1: 0.2, 0.6: 0.1, 5: 1, 7: 2, 12: 2, 31: 10, 0.07: 0.02, 1e-9: 2e-10} {
		if got := tickDistance(span); got/want < 0.999 || got/want > 1.001 {
			t.Errorf("%v: %v, want %v", span, got, want)
		}
	}
}

func TestLeaderboard(t *testing.T) {
	day := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	entries := []bias.LeaderboardEntry{
		{
			Rank: 1, PlaceLower: 1, PlaceUpper: 2, Confidence: bias.ConfidencePreliminary, Model: "ann/one", BordaNormalized: 0.75, CILower: new(0.7), CIUpper: new(0.8),
			Appearances: 21, VoteCount: 63, WinCount: 40.5,
		},
		{Rank: 2, PlaceLower: 1, PlaceUpper: 2, Confidence: bias.ConfidenceInsufficient, Model: strings.Repeat("very-", 10) + "long\x1b#2", BordaNormalized: 0.25, Appearances: 3, VoteCount: 9},
	}
	board := func(sessions int, note string, entries ...bias.LeaderboardEntry) []bias.Board {
		return []bias.Board{{Sessions: sessions, Note: note, Entries: entries}}
	}
	window := bias.Window{Start: &day, End: &day, Sessions: 21}
	skipped := []bias.Skipped{
		{Reason: "not_json", Count: 2, FirstFile: new("records.jsonl"), FirstLine: new(int64(12))},
		{Reason: "duplicate", Count: 1},
	}
	for _, tt := range []struct {
		name  string
		board bias.Leaderboard
	}{
		{"leaderboard", bias.Leaderboard{
			Window: window, Sessions: 21, Boards: board(21, "", entries...), Skipped: skipped,
			Categories: []bias.Category{
				{Category: "coding", Sessions: 3, Boards: board(3, "", entries[0])},
				{Category: "math", Sessions: 1, Boards: board(1, "", entries[1])},
			},
		}},
		{"leaderboard_coding", bias.Leaderboard{
			Window: window, Category: new("coding"), Sessions: 3, Boards: board(3, "", entries[0]),
			Categories: []bias.Category{{Category: "coding", Sessions: 3, Boards: board(3, "", entries[0])}},
		}},
		{"leaderboard_two", bias.Leaderboard{
			Window: window, Sessions: 21,
			Boards:     slices.Concat(board(18, "No place is certain.", entries...), board(3, "Three say little.", entries[0])),
			Categories: []bias.Category{{Category: "math", Sessions: 2, Boards: slices.Concat(board(1, "", entries[0]), board(1, "", entries[1]))}},
		}},
		{"leaderboard_empty", bias.Leaderboard{Skipped: skipped[1:]}},
		{"leaderboard_unranked", bias.Leaderboard{Window: window}},
		{"leaderboard_left_out", bias.Leaderboard{Filters: []bias.Filter{
			{Field: "config_version", Asked: "v2", Matches: []string{}, Present: []string{"v0", "v1"}, LeftOut: 1234},
		}}},
		{"leaderboard_no_math", bias.Leaderboard{Category: new("math")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			golden(t, tt.name+".txt", Leaderboard(tt.board, config.SettingNames()))
			golden(t, tt.name+".csv", LeaderboardCSV(tt.board))
			golden(t, tt.name+".html", LeaderboardHTML(tt.board))
		})
	}
}
