package pipeline_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

// judges builds a council whose reviewers reply as a function says.
func judges(t *testing.T, n int, reply func(judge int, task simllm.Task) string, mutate ...func(*pipeline.Options)) harness {
	t.Helper()
	models := members(n)
	for i := range models {
		models[i].Reply = func(task simllm.Task) (string, bool) { return reply(i, task), task.Kind == simllm.Review }
	}
	return build(t, models, mutate...)
}

// byText ranks the answers by their texts, the greatest first.
func byText(_ int, task simllm.Task) string {
	answers := slices.Clone(task.Answers)
	slices.SortFunc(answers, func(a, b simllm.Answer) int { return strings.Compare(b.Text, a.Text) })
	return ranks(answers)
}

// byPlace prefers the first place.
func byPlace(_ int, task simllm.Task) string { return ranks(task.Answers) }

func ranks(answers []simllm.Answer) string {
	labels := make([]string, len(answers))
	for i, a := range answers {
		labels[i] = a.Label
	}
	return "FINAL RANKING: " + strings.Join(labels, " > ")
}

func (h harness) judge(t *testing.T, r council.JudgeRequest) (council.Plan, *council.Session) {
	t.Helper()
	if r.Question == "" {
		r.Question = "Why is the sky blue?"
	}
	plan, err := h.PrepareJudge(r)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan, s
}

func pair() []council.JudgeAnswer {
	return []council.JudgeAnswer{{ID: "a", Text: "one", Author: "lab/x"}, {ID: "b", Text: "two"}}
}

// Judges that keep to their vote in both orders are counted, once each.
func TestJudgedPair(t *testing.T) {
	h := judges(t, 3, byText)
	_, s := h.judge(t, council.JudgeRequest{Answers: pair()})
	if s.Mode != council.ModeJudge || s.Answer != "" || s.AnswerFrom.Rule != council.RuleNone || s.Status != council.StatusComplete {
		t.Errorf("%s %s %q %v", s.Mode, s.Status, s.Answer, s.AnswerFrom)
	}
	if h.requests() != 6 || len(s.Stage2) != 6 || s.Metadata.Agreement.Ballots != 3 {
		t.Errorf("%d calls, %d reviews, %d ballots", h.requests(), len(s.Stage2), s.Metadata.Agreement.Ballots)
	}
	if top := s.Metadata.AggregateRankings[0]; top.Model != "b" || top.VoteCount != 3 || top.VoteCoverage != "high" {
		t.Errorf("%+v", top)
	}
	for i := range 3 {
		if first, second := s.Stage2[i].Slate, s.Stage2[3+i].Slate; first[0].Member != second[1].Member || first[1].Member != second[0].Member {
			t.Errorf("judge %d reads %v and %v", i, first, second)
		}
	}
	records := slices.Concat(h.notes.batches...)
	if len(records) != 12 {
		t.Fatalf("%d records", len(records))
	}
	sessions := map[string]int{}
	for _, r := range records {
		sessions[r.SessionID]++
		if r.Source != "judge" || r.Mode != council.ModeJudge || r.Own || *r.BlockID != s.ID || r.RosterIDs != nil ||
			r.CouncilConfig != "review-1+judge" || r.ModelID != "lab/x" && r.ModelID != "unnamed" || strings.Contains(r.ReviewerID, "#") {
			t.Errorf("%+v", r)
		}
	}
	if sessions[s.ID+"-1"] != 6 || sessions[s.ID+"-2"] != 6 {
		t.Errorf("%v", sessions)
	}
}

// A judge that always takes the first place abstains in every pair.
func TestJudgesOfTheFirstPlace(t *testing.T) {
	h := judges(t, 4, byPlace)
	for seed := range int64(20) {
		if _, s := h.judge(t, council.JudgeRequest{Answers: pair(), Seed: &seed}); s.Metadata.Agreement.Ballots != 0 ||
			!warned(s, council.WarnNoRanking) {
			t.Errorf("seed %d: %d ballots", seed, s.Metadata.Agreement.Ballots)
		}
	}
}

// In 1,000 draws, no judge sees a text of its maker or of its model.
func TestJudgesSeeNoTextOfTheirMaker(t *testing.T) {
	h := judges(t, 4, byText, func(o *pipeline.Options) {
		o.Models = []string{"lab/one", "lab/two", "firm/three", "org/four", "house/five"}
		o.MaxModels = 9
	})
	makers := []string{"lab", "firm", "org", "house", "other"}
	for seed := range int64(1000) {
		r := council.JudgeRequest{Question: "Why?", Seed: &seed}
		for i := range 2 + seed%5 {
			r.Answers = append(r.Answers, council.JudgeAnswer{
				ID: strconv.FormatInt(i, 10), Text: fmt.Sprint("text ", i), Author: fmt.Sprintf("%s/m%d", makers[(seed/7+i)%5], i),
			})
		}
		plan, err := h.PrepareJudge(r)
		if err != nil {
			t.Fatal(err)
		}
		author := map[string]string{}
		for _, a := range r.Answers {
			author[a.ID] = a.Author
		}
		for _, judge := range plan.Reviewers() {
			if !slices.ContainsFunc(plan.Members(), func(m council.Member) bool { return !plan.Twins.Own(judge.ID, m.ID) }) {
				t.Errorf("seed %d: %s reads nothing", seed, judge.ID)
			}
			for _, m := range plan.Members() {
				own := plan.Twins.Own(judge.ID, m.ID)
				same := council.Maker(judge.ID, nil) == council.Maker(author[m.ID], nil)
				if own != same {
					t.Errorf("seed %d: %s and %s: %v", seed, judge.ID, author[m.ID], own)
				}
			}
		}
	}
}

// The session says which answers a judge is not shown. A judge that has nothing to compare is not asked.
func TestExcludedJudges(t *testing.T) {
	h := judges(t, 3, byText, func(o *pipeline.Options) { o.Models = []string{"amber", "birch", "cedar"} })
	answers := []council.JudgeAnswer{{ID: "1", Text: "x", Author: "amber"}, {ID: "2", Text: "y", Author: "lab/m"}, {ID: "3", Text: "z"}}
	_, s := h.judge(t, council.JudgeRequest{Answers: answers})
	want := []council.Exclusion{{Judge: "amber", Answer: "1", Why: council.SameModel}}
	if diff := cmp.Diff(want, s.Metadata.Excluded); diff != "" || len(s.Stage2) != 3 {
		t.Errorf("%s\n%d reviews", diff, len(s.Stage2))
	}
	if len(s.Stage2[0].Slate) != 2 || len(s.Stage2[1].Slate) != 3 {
		t.Errorf("%v", s.Stage2)
	}
	if _, s = h.judge(t, council.JudgeRequest{Answers: answers[:2]}); len(s.Stage2) != 4 {
		t.Errorf("a pair, one by a judge: %d reviews", len(s.Stage2))
	}
	_, err := build(t, members(2)).PrepareJudge(council.JudgeRequest{
		Question: "?", Answers: []council.JudgeAnswer{{ID: "1", Text: "x", Author: "amber"}, {ID: "2", Text: "y", Author: "birch"}},
	})
	failure, ok := errors.AsType[*council.Error](err)
	if !ok || failure.Code != council.CodeInvalid || !strings.Contains(fmt.Sprint(failure.Fields), "amber may not read 1 (same model)") {
		t.Errorf("%v", err)
	}
}

// A judge that reads two of three answers, and returns one of its two ballots, has no vote.
func TestOneBallotOnTwoAnswers(t *testing.T) {
	read := map[int]int{}
	h := judges(t, 2, func(judge int, task simllm.Task) string {
		if judge == 0 && task.Answers[0].Text == "z" {
			return "I like both."
		}
		return byText(judge, task)
	})
	_, s := h.judge(t, council.JudgeRequest{Orders: council.OrdersBoth, Answers: []council.JudgeAnswer{
		{ID: "1", Text: "x", Author: "amber"}, {ID: "2", Text: "y"}, {ID: "3", Text: "z"},
	}})
	for _, v := range s.Stage2 {
		if v.Status == council.OutcomeOK {
			read[len(v.Slate)]++
		}
	}
	if read[2] != 1 || read[3] != 2 || s.Metadata.Agreement.Ballots != 1 {
		t.Errorf("ballots by slate %v, %d count", read, s.Metadata.Agreement.Ballots)
	}
}

// Three answers and more are ranked in one order or in both, and criteria reach the judges.
func TestJudgedMany(t *testing.T) {
	heard := &heard{}
	h := judges(t, 3, byText, listen(heard))
	answers := append(pair(), council.JudgeAnswer{ID: "c", Text: "three"})
	for orders, reviews := range map[council.Orders]int{"": 3, council.OrdersOne: 3, council.OrdersBoth: 6} {
		_, s := h.judge(t, council.JudgeRequest{Answers: answers, Orders: orders, Criteria: "Brevity."})
		var order []string
		for _, st := range s.Metadata.AggregateRankings {
			order = append(order, st.Model)
		}
		if !slices.Equal(order, []string{"b", "c", "a"}) || len(s.Stage2) != reviews || s.Metadata.Agreement.Ballots != 3 {
			t.Errorf("%q: %v, %d reviews, %d ballots", orders, order, len(s.Stage2), s.Metadata.Agreement.Ballots)
		}
		for _, prompt := range heard.prompts(s.ID, council.Stage2) {
			if !strings.Contains(prompt, "by these criteria and nothing else:\n\nBrevity.\n\n") {
				t.Errorf("%q: the criteria are missing", orders)
			}
		}
	}
}

// Requests that cannot be judged are refused with a fix, before anything is paid.
func TestJudgeRefused(t *testing.T) {
	h := judges(t, 3, byText)
	many := make([]council.JudgeAnswer, 27)
	for i := range many {
		many[i] = council.JudgeAnswer{ID: strconv.Itoa(i), Text: "x"}
	}
	doubled, empty, named := pair(), pair(), pair()
	doubled[1].ID = "a"
	empty[1].Text = " \n"
	named[1].ID = "birch"
	tests := map[string]struct {
		request council.JudgeRequest
		field   string
		fix     string
	}{
		"no question":        {council.JudgeRequest{Answers: pair()}, "question", "give"},
		"no answers":         {council.JudgeRequest{Question: "?"}, "answers", "give 2 to 26"},
		"27 answers":         {council.JudgeRequest{Question: "?", Answers: many}, "answers", "give fewer"},
		"doubled ids":        {council.JudgeRequest{Question: "?", Answers: doubled}, "answers[1].id", "an id of its own"},
		"an empty text":      {council.JudgeRequest{Question: "?", Answers: empty}, "answers[1].text", "give the answer a text"},
		"the id of a judge":  {council.JudgeRequest{Question: "?", Answers: named}, "answers[1].id", "another id"},
		"one without rubric": {council.JudgeRequest{Question: "?", Answers: pair()[:1]}, "rubric", "give a rubric"},
		"two with a rubric":  {council.JudgeRequest{Question: "?", Answers: pair(), Rubric: []string{"x"}}, "rubric", "leave it out"},
		"one order of two":   {council.JudgeRequest{Question: "?", Answers: pair(), Orders: "one"}, "orders", "use both"},
		"another order":      {council.JudgeRequest{Question: "?", Answers: pair(), Orders: "all"}, "orders", "use one or both"},
		"another exclusion":  {council.JudgeRequest{Question: "?", Answers: pair(), Exclude: "all"}, "exclude", "use family"},
		"long criteria":      {council.JudgeRequest{Question: "?", Answers: pair(), Criteria: strings.Repeat("x", 5000)}, "criteria", "shorten"},
		"a seed below -1":    {council.JudgeRequest{Question: "?", Answers: pair(), Seed: new(int64(-2))}, "seed", "give a whole number"},
	}
	for name, tt := range tests {
		_, err := h.PrepareJudge(tt.request)
		failure, ok := errors.AsType[*council.Error](err)
		if !ok || failure.Code != council.CodeInvalid || failure.Fields[0].Field != tt.field || !strings.Contains(failure.Fields[0].Fix, tt.fix) {
			t.Errorf("%s: %v %v", name, err, failure)
		}
	}
	if h.requests() != 0 {
		t.Errorf("%d calls", h.requests())
	}
}

// One answer is judged by a rubric: the judges vote on its statements, and see the question.
func TestJudgedByRubric(t *testing.T) {
	heard := &heard{}
	h := build(t, voters(), listen(heard))
	one := []council.JudgeAnswer{{ID: "a", Text: "Because of Rayleigh scattering.", Author: "amber"}}
	_, s := h.judge(t, council.JudgeRequest{Answers: one, Rubric: []string{"It names a cause.", "It is polite."}})
	if s.Mode != council.ModeJudge || s.Status != council.StatusComplete || len(s.Votes) != 2 || len(s.Stage2) != 0 || h.requests() != 3 {
		t.Errorf("%s, %s, %v, %d calls", s.Mode, s.Status, s.Votes, h.requests())
	}
	if want := []council.Exclusion{{Judge: "amber", Answer: "a", Why: council.SameModel}}; !slices.Equal(want, s.Metadata.Excluded) {
		t.Errorf("%v", s.Metadata.Excluded)
	}
	if count := s.Votes[0]; s.Rubric[0] != "It names a cause." || count.Votes[0]+count.Votes[1]+count.Abstained+count.Failed != 3 {
		t.Errorf("%+v", count)
	}
	for _, prompt := range heard.prompts(s.ID, council.StageVotes) {
		if !strings.Contains(prompt, "Why is the sky blue?") || !strings.Contains(prompt, one[0].Text) {
			t.Errorf("a prompt lacks the question or the answer: %.300q", prompt)
		}
	}
	if len(h.notes.batches) != 0 {
		t.Errorf("%d records", len(h.notes.batches[0]))
	}
	_, err := build(t, members(1), func(o *pipeline.Options) { o.Mode = council.ModeSingle }).PrepareJudge(
		council.JudgeRequest{Question: "?", Answers: one, Rubric: []string{"x"}})
	if code(err) != council.CodeInvalid {
		t.Errorf("its only judge wrote it: %v", err)
	}
}
