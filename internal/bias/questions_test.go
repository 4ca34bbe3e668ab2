package bias

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
)

// words returns the verdicts of the questions in words, by question.
func words(r Report) map[string]string {
	words := map[string]string{}
	for _, q := range r.Questions {
		words[q.ID] = q.Word
	}
	return words
}

// found returns the questions at which something was found.
func found(r Report) (ids []string) {
	for _, q := range r.Questions {
		if q.Verdict != nil && q.Verdict.Found() {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// TestQuestions holds that a planted effect is found at its question and at no other, and that the summary names it.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for id, effects := range map[string]biassim.Effects{
		"":       {},
		"place":  {Position: []float64{0.8}},
		"length": {LengthSlope: []float64{1}},
		"favour": {Self: 1},
		"level":  {Harshness: []float64{-1}},
		"change": {Drift: []float64{2.5}},
	} {
		t.Run("planted "+id, func(t *testing.T) {
			t.Parallel()
			r := collect(unlimited, generated(5, 150, council.OrderBalanced, true, effects)).Report(t.Context())
			var want []string
			if id != "" {
				want = []string{id}
			}
			got := found(r)
			if id == "change" { // the level of a reviewer that changed differs too
				got = slices.DeleteFunc(got, func(id string) bool { return id == "level" })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("questions (-want +got):\n%s%+v", diff, r.Questions)
			}
			if len(r.Questions) != 7 {
				t.Fatalf("%d questions", len(r.Questions))
			}
			favour := slices.Contains([]string{"place", "length", "favour"}, id)
			if favour != (r.Summary.Result == "Favour found.") || (id == "") != (r.Summary.Result == "Nothing proven.") {
				t.Errorf("the summary says %q", r.Summary.Result)
			}
			if (id == "") != (len(r.Summary.Findings) == 0) || len(r.Summary.Findings) > mostFindings {
				t.Errorf("findings %q", r.Summary.Findings)
			}
			for _, q := range r.Questions {
				if q.ID == id && !slices.Contains(r.Summary.Findings, q.Sentence) {
					t.Errorf("the summary lacks %q: %q", q.Sentence, r.Summary.Findings)
				}
				if q.Sentence == "" || q.Word == "" || len(q.Figures) == 0 || q.ID == id && q.ToDo == "" {
					t.Errorf("%+v", q)
				}
				if text := strings.ToLower(q.Sentence + q.Word); strings.Contains(text, "no bias") {
					t.Errorf("%q claims more than was seen", text)
				}
				for _, name := range q.Figures {
					if !slices.ContainsFunc(r.Metrics, func(m Metric) bool { return m.Name == name }) {
						t.Errorf("there is no figure %s", name)
					}
				}
			}
		})
	}
}

// TestWorstVerdict holds that a question over several figures takes the worst verdict, and says something of each.
func TestWorstVerdict(t *testing.T) {
	planted := collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report(t.Context())
	want := map[string]string{
		"place": "favour found", "length": "too little data", "favour": "favour found", "level": "differs",
		"first_answer": "effect found", "agreement": "described, not tested", "change": "too little data",
	}
	if diff := cmp.Diff(want, words(planted)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	favour := planted.Questions[2]
	if !strings.HasPrefix(favour.Sentence, "Reviewers score their own answers ") {
		t.Errorf("favour: %s", favour.Sentence)
	}
	for _, beginning := range []string{"openai/m1 scores its own answers ", "No favour for own family shown: ", "No favour for another model shown: "} {
		if !slices.ContainsFunc(favour.Also, func(text string) bool { return strings.HasPrefix(text, beginning) }) {
			t.Errorf("no sentence begins with %q: %q", beginning, favour.Also)
		}
	}
	shared := []string{" that all reviewers share would ", " that only one reviewer has would "}
	for i, part := range shared {
		if len(planted.Summary.CouldFind) != 2 || !strings.Contains(planted.Summary.CouldFind[i], part) {
			t.Errorf("could find %q", planted.Summary.CouldFind)
		}
	}
}

// TestQuestionsOfLittle holds what a report says of no session, of one, and of one reviewer.
func TestQuestionsOfLittle(t *testing.T) {
	for n, window := range map[int]string{0: NoSessions, 1: "1 session asked 1 question, on 2026-03-31."} {
		r := collect(unlimited, recordsOf(n)).Report(t.Context())
		if s := r.Summary; len(r.Questions) != 0 || s.Window != window || *s.MoreSessions != 10-n ||
			s.Result != fmt.Sprintf("Collecting data (%d of 10 sessions).", n) || len(s.Findings) > 0 {
			t.Errorf("%d sessions: %+v", n, s)
		}
	}
	r := collect(unlimited, oneReviewer()).Report(t.Context())
	for _, q := range r.Questions {
		if q.Verdict != nil && !q.Verdict.Missing() && q.ID != "length" || q.MoreSessions != nil && q.ID != "length" {
			t.Errorf("of one reviewer: %+v", q)
		}
	}
	if !strings.HasPrefix(r.Summary.Result, "Nothing proven: ") {
		t.Errorf("of one reviewer: %q", r.Summary.Result)
	}
}

// TestMoreSessions holds how many more sessions would show that there is no effect.
func TestMoreSessions(t *testing.T) {
	m := Metric{Name: familyName, Verdict: new(VerdictInconclusive), Delta: new(0.25), StandardError: new(0.25), Clusters: 40}
	// The estimate lies within 1.2816 errors of 0 with a probability of 80 %, and the 90 % interval reaches 1.6449 errors
	// further: 40 * (2.9265^2 - 1) = 302.6.
	if got := m.moreSessions(20, 40); got != 310 {
		t.Errorf("%d more, want 310", got)
	}
	member := Metric{StandardError: new(0.25)}
	m.Members = []Metric{member, member}
	// Both lie within 1.6146 errors with a probability of 80 %: 40 * (3.2595^2 - 1) = 385.
	if got := m.moreSessions(20, 40); got != 390 {
		t.Errorf("%d more, want 390", got)
	}
	anchoring := m
	anchoring.Name = anchoringName
	for name, m := range map[string]Metric{
		"a member without a figure": {Delta: new(0.25), Clusters: 40, Members: []Metric{member, {}}},
		"no figure":                 {Delta: new(0.25), Clusters: 40},
		"enough sessions":           {Delta: new(0.25), Clusters: 40, StandardError: new(0.05)},
		"anchoring":                 anchoring,
	} {
		m.Verdict = new(VerdictInconclusive)
		if got := moreSessions([]*Metric{&m}, 20, 40); got != nil {
			t.Errorf("%s: %d more", name, *got)
		}
	}
}

// TestChangePointsAnswer holds that a change point alone answers whether anything changed.
func TestChangePointsAnswer(t *testing.T) {
	r := Report{
		Metrics:      []Metric{{Name: driftName, Kind: KindChange, Verdict: new(VerdictNegligible), Sentence: "No change of level that counts."}},
		ChangePoints: []ChangePoint{{Verdict: VerdictChanged, Sentence: "elm scores lower."}, {Sentence: "oak may."}},
		Versions:     []VersionChange{{Member: "elm", From: "1", To: "2", Start: now, Sessions: 3}},
	}
	q := NewCollector(unlimited).questions(&r)[0]
	if q.Sentence != "elm scores lower." || q.Word != "changed" || q.ToDo == "" {
		t.Errorf("%+v", q)
	}
	want := []string{"No change of level that counts.", "elm was served as 1 until 31 March 2026, then as 2 in 3 sessions."}
	if diff := cmp.Diff(want, q.Also); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPartsOfAnswers holds what an answer adds where a question has many members, pairs in both orders, or many versions.
func TestPartsOfAnswers(t *testing.T) {
	t.Parallel()
	level := Metric{Name: harshnessName, Kind: KindLevel, Subject: "m0", Verdict: new(VerdictDiffers), PointEstimate: new(1.), Delta: new(0.25)}
	for i := range 8 {
		member := level
		member.Subject = fmt.Sprint("m", i)
		member.PointEstimate = new(float64(i))
		member.Sentence = member.Subject + " differs."
		level.Members = append(level.Members, member)
	}
	pull := Metric{
		Name: anchoringName, Kind: KindFavour, Verdict: new(VerdictInconclusive), PointEstimate: new(0.05), Delta: new(0.1), Sentence: "A small one.",
	}
	r := Report{
		Metrics: []Metric{
			level, pull,
			{Name: agreeName, Kind: KindDescription, PointEstimate: new(0.5)},
			{Name: driftName, Kind: KindChange, Verdict: new(VerdictNegligible), Sentence: "None."},
		},
		Pairs: []PairJudge{{ReviewerID: "elm", BothOrders: BothOrders{Comparisons: 20, ConflictRate: estimate(0.25, 0.1, 0.4)}}, {ReviewerID: "oak"}},
	}
	for range 7 {
		r.Versions = append(r.Versions, VersionChange{Member: "elm", From: "1", To: "2", Start: now, Sessions: 1})
	}
	want := map[string][]string{
		"level":        {"m7 differs.", "m6 differs.", "m5 differs.", "m4 differs.", "m3 differs.", "The table shows 2 more."},
		"first_answer": {"This test can show an effect, but never rule one out: its estimate is about a third of the true effect."},
		"agreement":    {"elm contradicts itself in 25 % of 20 pairs of answers that it saw in both orders."},
		"change": append(slices.Repeat([]string{"elm was served as 1 until 31 March 2026, then as 2 in 1 sessions."}, mostAlso),
			"Versions of models changed 2 more times."),
	}
	for _, q := range NewCollector(unlimited).questions(&r) {
		if diff := cmp.Diff(want[q.ID], q.Also); diff != "" {
			t.Errorf("%s (-want +got):\n%s", q.ID, diff)
		}
		if q.ID == "first_answer" && q.Word != "cannot be told" {
			t.Errorf("the first answer: %s", q.Word)
		}
	}
	r.Metrics[0].Verdict = new(VerdictAlike)
	r.Metrics[0].Sentence = "No difference in level that counts."
	if q := NewCollector(unlimited).questions(&r)[0]; q.Sentence != "No difference in level that counts. Ranks do not depend on levels." {
		t.Errorf("level: %s", q.Sentence)
	}
	if w := (Window{Sessions: 100, Newest: 100}); w.wider() == "" || (Window{Sessions: 99, Newest: 100}).wider() != "" {
		t.Errorf("wider: %q", w.wider())
	}
}
