package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/google/go-cmp/cmp"
)

// startJudges starts a server whose council has these judges. A judge "first" takes the first place, "tie" ties all
// answers, "once" ties them where the answer with the greatest text stands first, "silent" returns no ballot, and any
// other judge prefers the greatest text.
func startJudges(t *testing.T, names []string, mutate ...func(*httpapi.Options, *pipeline.Options)) *server {
	t.Helper()
	var models []simllm.Model
	for _, name := range names {
		models = append(models, simllm.Model{Name: name, Reply: func(task simllm.Task) (string, bool) {
			return ballotOf(name, task), task.Kind == simllm.Review
		}})
	}
	return start(t, models, append(mutate, func(_ *httpapi.Options, p *pipeline.Options) {
		p.Models, p.MaxModels, p.Chairman = names, 9, ""
	})...)
}

// ballotOf returns the reply of a judge of startJudges.
func ballotOf(name string, task simllm.Task) string {
	answers := slices.Clone(task.Answers)
	if name != "first" {
		slices.SortStableFunc(answers, func(a, b simllm.Answer) int { return strings.Compare(b.Text, a.Text) })
	}
	ranking, scores := []any{}, map[string]int{}
	var labels []string
	for i, a := range answers {
		ranking = append(ranking, a.Label)
		labels = append(labels, a.Label)
		scores[a.Label] = 9 - i
	}
	switch {
	case name == "silent":
		return "I like them all."
	case name == "tie", name == "once" && task.Answers[0] == answers[0]:
		ranking = []any{labels}
	}
	ballot, _ := json.Marshal(map[string]any{"ranking": ranking, "scores": scores})
	return "```json\n" + string(ballot) + "\n```"
}

const pairBody = `{"question":"Why is the sky blue?","answers":[{"id":"a","text":"one","author":"lab/x"},{"id":"b","text":"two"}]}`

// judged sends a body to POST /v1/judge and returns the result.
func (s *server) judged(t *testing.T, body string, headers ...string) council.Judgement {
	t.Helper()
	return post[council.Judgement](t, s, "/v1/judge", body, headers...)
}

// Two answers get one vote of each judge that keeps to it, and the result says why the others have none.
func TestJudgePair(t *testing.T) {
	s := startJudges(t, []string{"one", "two", "first", "tie", "once", "silent"})
	j := s.judged(t, pairBody)
	want := &council.Verdict{Winner: new("b"), For: map[string]int{"a": 0, "b": 2}, Ties: 1, Abstained: 3, SignTestP: 0.5}
	if diff := cmp.Diff(want, j.Verdict); diff != "" || requests(s) != 12 || j.Status != council.StatusDegraded {
		t.Errorf("%s: %d requests\n%s", j.Status, requests(s), diff)
	}
	votes := map[string]string{}
	for _, b := range j.Ballots {
		if b.Vote != nil {
			votes[b.Judge] = *b.Vote
		} else {
			votes[b.Judge] = string(*b.Why)
		}
		if len(b.Orders) != 2 || b.Orders[0].Shown[0] != b.Orders[1].Shown[1] || b.Consistency != nil {
			t.Errorf("%+v", b)
		}
	}
	if diff := cmp.Diff(map[string]string{
		"one": "b", "two": "b", "first": "flipped", "tie": "tie", "once": "unsure", "silent": "missing",
	}, votes); diff != "" {
		t.Error(diff)
	}
	if r := j.Ranking; r[0].ID != "b" || *r[0].Rank != 1 || *r[0].MeanScore != 8.9 || r[0].Ballots != 3 {
		t.Errorf("%+v", r)
	}
	_, again := s.Call(t, "GET", "/v1/judge/"+j.SessionID, "")
	if first, _ := json.Marshal(j); string(first) != strings.TrimSpace(string(again)) {
		t.Errorf("read again: %s, before %s", again, first)
	}
	other := s.ask(t, `{"query":"x","mode":"single","models":["amber"]}`)
	s.MustFail(t, 404, council.CodeNotFound, "GET", "/v1/judge/"+other.ID, "")
	s.MustFail(t, 404, council.CodeNotFound, "GET", "/v1/judge/0", "")

	// The session is like the others, and its question can be put to the council.
	events := string(s.Watch(t, j.SessionID))
	if n := strings.Count(events, "event: stage2.ballot"); n != 12 || !strings.Contains(events, "event: session.done") {
		t.Errorf("%d ballots", n)
	}
	if _, request := s.Call(t, "GET", "/v1/council/"+j.SessionID+"/request", ""); strings.Contains(string(request), `"models"`) ||
		!strings.Contains(string(request), `"query":"Why is the sky blue?"`) {
		t.Errorf("%s", request)
	}
	s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council/"+j.SessionID+"/convene", "")
	if resp, _ := s.Call(t, "DELETE", "/v1/council/"+j.SessionID, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("not deleted: %d", resp.StatusCode)
	}
}

// One answer is judged by a rubric. The probabilities are shares of votes.
func TestJudgeByRubric(t *testing.T) {
	s := start(t, []simllm.Model{
		{Name: "one", Reply: voting("true", "true")}, {Name: "two", Reply: voting("true", "false")}, {Name: "three", Reply: voting("true", "none")},
	}, func(_ *httpapi.Options, o *pipeline.Options) { o.Models = []string{"one", "two", "three"} })
	j := s.judged(t, `{"question":"Why?","answers":[{"id":"a","text":"It scatters."}],"rubric":["It is short.","It is true."]}`)
	want := []council.Criterion{
		{Text: "It is short.", Probability: new(0.875), Votes: []int{0, 3}}, {Text: "It is true.", Probability: new(0.5), Votes: []int{1, 1}, Abstained: 1},
	}
	if diff := cmp.Diff(want, j.Criteria); diff != "" || *j.Mean != 0.6875 || j.Verdict != nil || len(j.Ranking) != 0 || requests(s) != 3 {
		t.Errorf("mean %v, %d requests\n%s", j.Mean, requests(s), diff)
	}
	_, again := s.Call(t, "GET", "/v1/judge/"+j.SessionID, "")
	if first, _ := json.Marshal(j); string(first) != strings.TrimSpace(string(again)) {
		t.Errorf("read again: %s, before %s", again, first)
	}
}

// voting has a model cast these votes on the statements of a rubric.
func voting(votes ...string) func(simllm.Task) (string, bool) {
	return func(task simllm.Task) (string, bool) {
		reply := map[string]any{}
		for i, vote := range votes {
			reply[fmt.Sprintf("q%d", i+1)] = map[string]string{"vote": vote}
		}
		text, _ := json.Marshal(reply)
		return string(text), task.Kind == simllm.Decision
	}
}

// A judge that always takes the first place has no vote in any pair, and is consistent with itself in no long list.
func TestJudgeThatTakesTheFirstPlace(t *testing.T) {
	s := startJudges(t, []string{"first"}, func(_ *httpapi.Options, p *pipeline.Options) { p.Mode = council.ModeSingle })
	for seed := range 10 {
		j := s.judged(t, strings.Replace(pairBody, `{`, fmt.Sprintf(`{"seed":%d,`, seed), 1))
		if j.Verdict.Winner != nil || j.Verdict.Abstained != 1 || *j.Ballots[0].Why != council.NoVoteFlipped || j.Seed != int64(seed) {
			t.Errorf("seed %d: %+v", seed, j)
		}
	}
	j := s.judged(t, strings.Replace(pairBody, `]`, `,{"id":"c","text":"three"}],"orders":"both"`, 1))
	if b := j.Ballots[0]; j.Verdict != nil || b.Why != nil || *b.Consistency != -1 || len(j.Ranking) != 3 {
		t.Errorf("%+v", j)
	}
}

// A request that cannot be judged is refused with a fix before any call. The estimate refuses the same requests.
func TestJudgeRefuses(t *testing.T) {
	s := startJudges(t, []string{"lab/one", "lab/two", "firm/one"})
	const question = `"question":"?","answers":`
	for body, want := range map[string][2]string{
		`{` + question + `[{"id":"a","text":"x"},{"id":"a","text":"y"}]}`:                {"answers[1].id", "given twice"},
		`{` + question + `[{"id":"a","text":"x"},{"id":"b","text":" "}]}`:                {"answers[1].text", "empty"},
		`{` + question + `[{"id":"a","text":"x"}]}`:                                      {"rubric", "no rubric is given"},
		`{` + question + `[{"id":"a","text":"x"},{"id":"b","text":"y"}],"rubric":["z"]}`: {"rubric", "for one answer"},
		`{` + question + `[{"id":"a","text":"x"}],"rubric":["z"," "]}`:                   {"rubric[1]", "empty"},
		`{` + question + `[{"id":"a","text":"x"},{"id":"b","text":"y"}],"orders":"one"}`: {"orders", "two answers need both orders"},
		`{` + question + `[{"id":"a","text":"x"},{"id":"b","text":"y"}],"orders":7}`:     {"orders", "one or both"},
		`{` + question + `[{"id":"a","text":"x"},{"id":"b","text":"y"}],"stream":true}`:  {"stream", "no such field"},
		`{` + question + `[]}`: {"answers", "none"},
		`{"query":"?","answers":[{"id":"a","text":"x"},{"id":"b","text":"y"}]}`: {"query", "no such field"},
		`{` + question + `[{"id":"a","text":"x","author":"lab/z"},{"id":"b","text":"y","author":"firm/one"}]}`: {
			"exclude", "firm/one may not read b (same model); lab/one may not read a (same maker); lab/two may not read a (same maker)",
		},
	} {
		for _, path := range []string{"/v1/judge", "/v1/council/estimate"} {
			_, p := s.MustFail(t, 422, council.CodeInvalid, "POST", path, body)
			if !slices.ContainsFunc(p.Errors, func(f council.FieldError) bool {
				return f.Field == want[0] && strings.Contains(f.Message+f.Fix, want[1]) && f.Fix != ""
			}) {
				t.Errorf("%s: %+v", body, p.Errors)
			}
		}
	}
	s.MustFail(t, 400, council.CodeMalformed, "POST", "/v1/judge", `[]`)
	if n := requests(s); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A repeated request with a key judges once, in the background too, and the estimate says what is asked.
func TestJudgeOnceAsEstimated(t *testing.T) {
	s := startJudges(t, []string{"one", "two", "three"})
	long := strings.Replace(pairBody, `]`, `,{"id":"c","text":"three"}]`, 1)
	for body, calls := range map[string]int{
		pairBody: 6, long: 3, strings.Replace(long, `{`, `{"orders":"both",`, 1): 6,
		strings.Replace(pairBody, "lab/x", "two", 1): 4,
	} {
		before := requests(s)
		var e spend.Estimate
		if _, data := s.Call(t, "POST", "/v1/council/estimate", body); json.Unmarshal(data, &e) != nil || e.Calls != calls ||
			e.Mode != council.ModeJudge || e.ByMode != nil || e.ByStage["stage2"].Calls != calls {
			t.Errorf("%s: %s", body, data)
		}
		key := []string{"Idempotency-Key", body}
		background := strings.Replace(body, `{`, `{"background":true,`, 1)
		resp, data := s.Call(t, "POST", "/v1/judge", background, key...)
		var summary council.Summary
		if err := json.Unmarshal(data, &summary); err != nil || resp.StatusCode != http.StatusAccepted ||
			resp.Header.Get("Location") != "/v1/judge/"+summary.ID {
			t.Fatalf("%d %s %v", resp.StatusCode, data, resp.Header)
		}
		s.Watch(t, summary.ID)
		s.Call(t, "POST", "/v1/judge", background, key...)
		s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/judge", body, key...)
		s.MustFail(t, 409, council.CodeConflict, "POST", "/v1/council", `{"query":"x"}`, key...)
		if made := requests(s) - before; made != calls {
			t.Errorf("%s: %d calls, want %d", body, made, calls)
		}
	}
}
