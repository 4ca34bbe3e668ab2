package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/gatesim"
)

// parts is an expression for the steps and the parts of a session that are shown.
const parts = `[...document.querySelectorAll("#session .step, #session h2")].filter((e) => e.checkVisibility()).map((e) => e.textContent).join(", ")`

// beginning is an expression for the line that says which members began.
const beginning = `document.querySelector("#session .beginning")?.textContent`

// ended returns the parts that follow the answers of a session that has ended.
func ended(ranking string) string {
	if ranking != "" {
		ranking += ", "
	}
	return ", How it was judged, " + ranking + "Time and cost"
}

// author is an expression for the line that says whose the final answer is.
const author = `document.querySelector('section[aria-labelledby="part-answer"] .hint').textContent`

// form is the part of a request that asks for A or B.
const form = `"answer_form": {"type": "choice", "options": ["A", "B"]}`

// choosing returns members that give these answers, which are A or B, to each question.
func choosing(answers ...string) []simllm.Model {
	models := members()[:len(answers)]
	for i := range models {
		models[i].Price = simllm.Price{Input: 1, Output: 10}
		models[i].Reply = func(task simllm.Task) (string, bool) {
			return "Clearly so.\n\nANSWER: " + answers[i], task.Kind == simllm.Question
		}
	}
	return models
}

// begin begins a session in the background, and returns its view.
func begin(t *testing.T, origin, request string) (view string) {
	t.Helper()
	return beginAt(t, origin, "/v1/council", request)
}

// beginAt is begin for another route.
func beginAt(t *testing.T, origin, route, request string) (view string) {
	t.Helper()
	body := strings.NewReader(`{"background": true, ` + request + `}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+route, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s council.Summary
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the daemon answered %s, %v", resp.Status, err)
	}
	return "#/session/" + s.ID
}

// TestModes holds that a session shows the stages that ran, and whose text the answer is.
func TestModes(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, choosing("A", "B", "A", "A")...)
	const answered = "Answer, Continue, Answers"
	const ranked = "Answer, Do they agree?, Continue, Answers"
	for name, mode := range map[string]struct{ request, parts, author string }{
		"council":   {`"mode": "council"`, ranked + ended("Ranking"), "Written by amber, the chairman"},
		"ranked":    {`"mode": "ranked"`, ranked + ended("Ranking"), ", word for word."},
		"synthesis": {`"mode": "synthesis"`, ranked + ended(""), "Written by amber, the chairman"},
		"vote":      {`"mode": "vote", ` + form, answered + ended(""), "The most frequent answer: 3 of 4 members. In the words of amber."},
		"tied": {
			`"mode": "vote", "models": ["amber", "birch"], ` + form, answered + ended(""),
			" are equally frequent. The seed picked this one. In the words of ",
		},
		"single": {`"mode": "single", "models": ["birch"]`, answered + ended(""), "The answer of birch, the only one asked, word for word."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, origin, begin(t, origin, `"query": "A or B?", `+mode.request))
			p.says(said, "The answer is complete.")
			want := mode.parts
			p.until(`document.getElementById("follow-up")`)
			if got := value[string](p, parts); got != want {
				t.Errorf("it shows %q, want %q", got, want)
			}
			if got := value[string](p, author); !strings.Contains(got, mode.author) {
				t.Errorf("the answer is %q, want %q", got, mode.author)
			}
			p.says(answer, p.session()["answer"].(string)[:5])
			for _, violation := range p.violations() {
				t.Error(violation)
			}
			p.picture(name)
		})
	}
}

// TestJudged holds that a session of judges shows the question, the given answers, the ranking and the reviews, and no
// final answer.
func TestJudged(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, members()[:2]...)
	p := open(t, origin, beginAt(t, origin, "/v1/judge",
		`"question": "Why is the sky blue?", "answers": [{"id": "x", "text": "The sea."}, {"id": "y", "text": "It scatters."}]`))
	p.says(said, "The judges have finished.")
	p.says("#session h1", "Why is the sky blue?")
	p.until(`document.querySelector("#session a[href^='#/again/']")`)
	if got, want := value[string](p, parts), "Result, Do they agree?, Answers"+ended("Ranking"); got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	if got := value[string](p, seats(answers)); !strings.Contains(got, "x already given") || !strings.Contains(got, "y already given") {
		t.Errorf("the answers are %q", got)
	}
	p.says(answers, "This answer was given to the judges.")
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("judged")
}

// TestReviewed holds that a session that reviewed a change shows the verdict and the replies of both rounds, and neither a
// ranking nor a final answer.
func TestReviewed(t *testing.T) {
	t.Parallel()
	models := members()
	for i := range models {
		models[i].Reviewing = gatesim.Eager("").Reviewing
	}
	origin := daemon(t, nil, models...)
	p := open(t, origin, beginAt(t, origin, "/v1/gate",
		`"diff": "--- a/pay.go\n+++ b/pay.go\n@@ -1,1 +1,2 @@\n package pay\n+var second = first * 2\n"`))
	p.says(said, "The review is complete.")
	p.says("#session h1", "gate: 1 file, +1 -0")
	if got, want := value[string](p, parts), "Result, Answers"+ended(""); got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	if got := value[string](p, `document.querySelector('section[aria-labelledby="part-answer"]').textContent`); !strings.Contains(got, "blocked: ") || !strings.Contains(got, "pay.go:2") {
		t.Errorf("the result is %q", got)
	}
	if value[bool](p, `document.querySelector("#session a[href^='#/again/']") !== null`) {
		t.Error("the change can be asked again as a question")
	}
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("reviewed")
}

// TestModesLive holds that a session that runs shows only stages that will run.
func TestModesLive(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"ranked": "Answer, Answers, Answers, Reviews, Members", "synthesis": "Answer, Answers, Answers, Final answer, Members",
		"vote": "Answer, Answers, Answers, Members",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			models := members()
			release := hold(t, models, simllm.Question)
			origin := daemon(t, nil, models...)
			p := open(t, origin, begin(t, origin, fmt.Sprintf(`"query": "4?", "mode": %q, "answer_form": {"type": "exact"}`, mode)))
			p.until(seats(answers) + ` === "amber waiting, birch waiting, cedar waiting, dune waiting"`)
			if got := value[string](p, parts); got != want {
				t.Errorf("it shows %q, want %q", got, want)
			}
			release(simllm.Question, "amber", "birch", "cedar", "dune")
			p.until(`/is complete|failed/.test(document.querySelector('` + said + `').textContent)`)
		})
	}
}

// TestNoFormForAVote holds that a vote without an answer that can be counted says so.
func TestNoFormForAVote(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, choosing("neither", "both")...)
	p := open(t, origin, begin(t, origin, `"query": "How many?", "mode": "vote", "answer_form": {"type": "number"}`))
	p.says(said, "The session failed.")
	p.says("#session .notice.bad", "no answer has the form number")
}

// TestFirst holds that a session says which members began, and why the others were asked or not.
func TestFirst(t *testing.T) {
	t.Parallel()
	same := daemon(t, nil, choosing("A", "A", "B")...)
	different := daemon(t, nil, choosing("A", "B", "A")...)
	const begun = "Answer, Continue, Answers"
	whole := "Answer, Do they agree?, Continue, Answers" + ended("Ranking")
	for name, first := range map[string]struct{ origin, request, says, seats, parts string }{
		"the same": {
			same, `"first": 2, ` + form, "amber and birch gave the same answer, so the others were not asked. The same answer can still be wrong, and it is not known how often that happens here.",
			"amber done, birch done, cedar not asked", begun + ended(""),
		},
		"alone": {same, `"first": 1`, "Only amber was asked.", "amber done, birch not asked, cedar not asked", begun + ended("")},
		"different": {
			different, `"first": 2, ` + form, "amber and birch gave different answers, so the whole council was asked.",
			"amber done, birch done, cedar done", whole,
		},
		"no number": {
			different, `"first": 2, "answer_form": {"type": "number"}`,
			"The answers of amber and birch cannot be compared, because one does not have the form asked for. So the whole council was asked.",
			"amber done, birch done, cedar done", whole,
		},
		"no form": {
			different, `"first": 2`, "Answers without a form cannot be compared, so the whole council was asked at once.",
			"amber done, birch done, cedar done", whole,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, first.origin, begin(t, first.origin, `"query": "A or B?", `+first.request))
			p.says(said, "The answer is complete.")
			p.until(`document.getElementById("follow-up")`)
			for expression, want := range map[string]string{beginning: first.says, seats(answers): first.seats, parts: first.parts} {
				if got := value[string](p, expression); got != want {
					t.Errorf("it reads %q, want %q", got, want)
				}
			}
			const button = `[...document.querySelectorAll("#session button")].some((b) => b.textContent === "Ask the whole council")`
			if can := value[bool](p, button); can == (first.parts == whole) {
				t.Errorf("the whole council can be asked: %v", can)
			}
		})
	}
}

// TestFirstLive holds that a session says which members are asked first while they write, and what follows from their answers.
func TestFirstLive(t *testing.T) {
	t.Parallel()
	models := members()
	release := hold(t, models, simllm.Question)
	origin := daemon(t, nil, models...)
	p := open(t, origin, begin(t, origin, `"query": "A or B?", "first": 2, `+form))
	p.until(beginning + ` === "2 of 4 are asked first."`)
	release(simllm.Question, "amber", "birch")
	p.until(beginning + `?.startsWith("The answers of amber and birch cannot be compared")`)
	p.says(said, "Asking the whole council.")
	release(simllm.Question, "cedar", "dune")
	p.says(said, "The answer is complete.")
}

// convene presses the button that asks the whole council.
func (p *tab) convene() {
	p.Helper()
	const button = `[...document.querySelectorAll("#session button")].find((b) => b.textContent === "Ask the whole council")`
	p.until(button)
	p.do(chromedp.Evaluate[chromedp.Void](button + `.click()`))
}

// TestConvene holds that the whole council can be asked after its first members, for a price that is said before, and only
// once.
func TestConvene(t *testing.T) {
	t.Parallel()
	models := choosing("A", "A", "A", "A")
	var prices []string
	for _, m := range models {
		prices = append(prices, m.Name+"=1/10")
	}
	origin := daemon(t, map[string]string{"PRICES": strings.Join(prices, ","), "MAX_OUTPUT_TOKENS": "1000"}, models...)
	earlier := begin(t, origin, `"query": "A or B?", "first": 2, `+form)
	p := open(t, origin, earlier)
	p.says(said, "The answer is complete.")
	p.says(`section[aria-labelledby="part-answer"]`, "7 more calls, at most $0.")
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("first")
	p.convene()
	p.until(`location.hash !== "` + earlier + `"`)
	p.says(said, "The answer is complete.")
	p.until(seats(answers) + ` === "amber already given, birch already given, cedar done, dune done"`)
	p.until(beginning + ` === "Only amber and birch were asked at first. Then the whole council was asked. The earlier session"`)
	p.says(answers, "The earlier session paid for this answer.")
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("convened")
	whole := value[string](p, `location.hash`)
	p.do(chromedp.Click(chromedp.CSS("#session .beginning a")))
	p.until(`location.hash === "` + earlier + `" && ` + parts + `.includes("Continue")`)
	p.convene()
	p.says("#session .notice.bad", "convened already")
	p.do(chromedp.Click(chromedp.CSS(`#session [role=alert] > p a`)))
	p.until(`location.hash === "` + whole + `"`)
}

// TestModesAtHome holds that the home page says what each council does, who begins, and what a question takes.
func TestModesAtHome(t *testing.T) {
	t.Parallel()
	origin := twoCouncils(t)
	p := open(t, before(t, origin, func(w http.ResponseWriter, r *http.Request, daemon http.Handler) {
		if r.URL.Path != "/v1/councils" {
			daemon.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		daemon.ServeHTTP(recorder, r)
		var list struct {
			Councils []map[string]any `json:"councils"`
		}
		if err := json.Unmarshal(recorder.Body.Bytes(), &list); err != nil {
			t.Error(err)
			return
		}
		like := func(changed map[string]any) {
			card := maps.Clone(list.Councils[1])
			maps.Copy(card, changed)
			list.Councils = append(list.Councils, card)
		}
		nobody := []string{}
		maps.Copy(list.Councils[0], map[string]any{"mode": "council", "first": 2, "calls": 9, "least_calls": 2})
		like(map[string]any{"name": "ranks", "mode": "ranked", "chairman": "", "calls": 4})
		like(map[string]any{"name": "drafts", "mode": "synthesis", "reviewers": nobody, "calls": 3})
		like(map[string]any{
			"name": "count", "mode": "vote", "reviewers": nobody, "chairman": "", "calls": 2,
			"answer_form": map[string]any{"type": "number"},
		})
		like(map[string]any{"name": "solo", "mode": "single", "members": []string{"dune"}, "reviewers": nobody, "chairman": "", "calls": 1})
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}), "")
	p.until(`!document.getElementById("councils").hidden`)
	for name, want := range map[string]string{
		"deep":   "4 answers, reviewed, one synthesis · 2 of 4 are asked first · ",
		"fast":   "2 answers, reviewed, one synthesis · ",
		"ranks":  "best of 2 by rank · ",
		"drafts": "2 answers, one synthesis · ",
		"solo":   "one model · ",
		"count":  "most frequent answer of 2 · a number · ",
	} {
		p.choose("council", name)
		if got := value[string](p, `document.getElementById("council-line").textContent`); got != want {
			t.Errorf("%s reads %q, want %q", name, got, want)
		}
		if written := value[bool](p, `!document.getElementById("chairman-field").hidden`); written == (name == "ranks" || name == "count" || name == "solo") {
			t.Errorf("%s: a chairman can be chosen: %v", name, written)
		}
	}
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("councils")
}

// TestAgainInAMode holds that a question that is asked again keeps its mode, and that the form says so.
func TestAgainInAMode(t *testing.T) {
	t.Parallel()
	origin := daemon(t, nil, choosing("A", "B", "A")...)
	view := begin(t, origin, `"query": "A or B?", "mode": "vote", `+form)
	p := open(t, origin, strings.Replace(view, "session", "again", 1))
	p.says("#earlier", "As before, the mode is vote, the answer is one of A, B, and the time limit is ")
	p.says("#estimate", "3 calls")
	p.do(chromedp.Click(chromedp.CSS("#question-form .primary")))
	p.says(said, "The answer is complete.")
	if got := p.request(); got.Mode != council.ModeVote || got.AnswerForm == nil {
		t.Errorf("asked was %+v", got)
	}
}
