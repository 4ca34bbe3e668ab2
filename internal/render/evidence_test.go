package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/worth"
)

// evidence is what reviewers and people say of so many sessions. Every third of the first 90 was drawn
// to be asked about, and people had a word on all but three of those.
func evidence(sessions int, hostile string) *CouncilEvidence {
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var shadows []council.ShadowRecord
	var labels []council.LabelRecord
	for i := range sessions {
		wanted := i%3 == 0 && i < 180
		id := fmt.Sprint("session ", i)
		s := council.ShadowRecord{
			SessionID: id, Timestamp: at, Wanted: wanted, Chairman: "amber", TopModel: "birch",
			Lengths: council.ShadowLengths{Synthesis: 1000 + 10*(i%7), Top: 1000},
		}
		for j, reviewer := range []string{"cedar", "dune" + hostile} {
			choice, first := council.ChoiceSynthesis, council.ChoiceTop
			if (i+j)%4 == 0 {
				choice = council.ChoiceTop
			}
			if i%2 == j {
				first = council.ChoiceSynthesis
			}
			s.Reviewers = append(s.Reviewers, council.ShadowReview{ID: reviewer, First: first, Choice: &choice, Status: council.OutcomeOK})
		}
		shadows = append(shadows, s)
		preferred, over := "synthesis", []string{"birch", "cedar"}
		if i%5 == 0 {
			preferred, over = "birch", []string{"cedar", "synthesis"}
		}
		if wanted && i >= 9 || i%50 == 1 {
			labels = append(labels, council.LabelRecord{
				Timestamp: at, Labelled: at, Wanted: wanted, Chairman: new("amber"), TopModel: new("birch"),
				Kept:    council.Kept{SessionID: id, Preferred: &preferred, Over: over, Rating: new(1 + i%5), By: fmt.Sprintf("%016x", i%2*(i%3))},
				Borda:   map[string]float64{"birch": 2, "cedar": 1},
				Ballots: []council.LabelBallot{{ID: "dune" + hostile, Places: map[string]int{"birch": i % 2, "cedar": 1 - i%2}}},
			})
		}
	}
	return &CouncilEvidence{
		CouncilConfig: "review-1", LeftOut: 7,
		Skipped:  []bias.Skipped{{Reason: "not_json", Count: 2, FirstFile: new("evidence.jsonl"), FirstLine: new(int64(3))}},
		Evidence: worth.Weigh(shadows, labels),
	}
}

func TestEvidenceForms(t *testing.T) {
	base := reports(t)["collecting"]
	for name, e := range map[string]*CouncilEvidence{"evidence": evidence(300, ""), "evidence_few": evidence(12, "")} {
		report := FullReport{Report: base, Evidence: e}
		text := Text(report, false, config.SettingNames())
		for line := range strings.Lines(string(text)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("a line has %d columns: %s", n, line)
			}
		}
		golden(t, name+".txt", text)
		page := string(HTML(report))
		_, section, _ := strings.Cut(page, `<section aria-labelledby="r-evidence">`)
		section, _, ok := strings.Cut(section, "</section>")
		if !ok {
			t.Fatalf("%s: the page has no such section", name)
		}
		golden(t, name+".html", []byte(section))
	}
}

// Names come from files that anybody may have written.
func TestHostileEvidence(t *testing.T) {
	report := FullReport{Report: reports(t)["collecting"], Evidence: evidence(60, "<script>\x1b[31m")}
	for form, text := range map[string]string{"text": string(Text(report, true, nil)), "HTML": string(HTML(report))} {
		for _, bad := range []string{"\x1b", "\x00"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q", form, bad)
			}
		}
		if form == "HTML" && strings.Contains(text, "<script>") {
			t.Error("a name is markup")
		}
	}
}

// A report with evidence is the report with one more member, which goes both ways.
func TestReportOfBoth(t *testing.T) {
	base := reports(t)["moderate"]
	plain, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	same, err := json.Marshal(FullReport{Report: base})
	if err != nil || string(plain) != string(same) {
		t.Errorf("without evidence it is another report: %v", err)
	}
	both, err := json.Marshal(FullReport{Report: base, Evidence: evidence(60, "")})
	if err != nil {
		t.Fatal(err)
	}
	var again FullReport
	if err := json.Unmarshal(both, &again); err != nil || again.Evidence == nil || again.Evidence.Shadow.Sessions != 60 ||
		again.Window.Sessions != base.Window.Sessions {
		t.Errorf("%v, %+v", err, again.Evidence)
	}
}
