package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/google/go-cmp/cmp"
)

// choice is the section in which a reader says which answer they prefer.
const choice = "#session section[aria-labelledby=part-choice]"

// violations returns what axe-core finds, in both colour schemes, on a wide screen and on a phone.
func (p *tab) violations() (found []string) {
	p.Helper()
	axe, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		p.Fatal(err)
	}
	p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
	for _, width := range []int64{1440, 1024, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p.look(width, 900, scheme)
			found = append(found, value[[]string](p, `axe.run().then((r) =>
				r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + ": " + n.failureSummary))
				.concat(r.passes.length < 10 ? ["hardly anything was checked"] : []))`)...)
		}
		if wide := value[int64](p, `document.scrollingElement.scrollWidth`); wide > width {
			found = append(found, fmt.Sprintf("on %d pixels it is %d pixels wide", width, wide))
		}
	}
	p.look(1100, 900, "light")
	return found
}

// openAnswer opens the answer of a member.
func (p *tab) openAnswer(model string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](seat(answers, model) + `.click()`))
}

// offered is an expression for what a reader can choose.
const offered = `[...document.querySelectorAll('` + choice + ` input')].map((i) => i.value + (i.checked ? "!" : "")).join(" ")`

// labels returns what an evidence file holds of people, without times.
func labels(t *testing.T, path string) (said []string) {
	t.Helper()
	for e, err := range store.ReadEvidence(t.Context(), path) {
		if err != nil {
			t.Fatal(err)
		}
		if l := e.Label; l != nil {
			preferred, rating := "none", 0
			if l.Preferred != nil {
				preferred = *l.Preferred
			}
			if l.Rating != nil {
				rating = *l.Rating
			}
			said = append(said, fmt.Sprintf("%s over %s, %d, wanted %v", preferred, strings.Join(l.Over, " "), rating, l.Wanted))
		}
	}
	return said
}

// A reader of a session that was drawn chooses among the answers that are open. The form is accessible, and
// what was sent is kept.
func TestPreference(t *testing.T) {
	t.Parallel()
	records := filepath.Join(t.TempDir(), "records.jsonl")
	env := map[string]string{"LABEL_RATE": "1", "HASH_SECRET": "a-secret-of-sixteen", "BIAS_STORE": records}
	p := open(t, daemon(t, env, members()...), "")
	p.ask("Which answer do you prefer?")
	p.says(said, "The answer is complete.")
	p.says(choice, "Open the answers that you want to compare with the final answer")
	if got := value[string](p, offered); got != "" {
		t.Errorf("with no answer open there is a choice of %q", got)
	}
	p.do(chromedp.Click(chromedp.CSS(choice + " button")))
	p.says(choice+" [role=status]", "Choose an answer or a rating first.")
	p.openAnswer("birch")
	p.until(offered + ` === "synthesis birch tie"`)
	p.openAnswer("dune")
	p.until(offered + `.split(" ").sort().join(" ") === "birch dune synthesis tie"`)
	// By keyboard: the first choice, and the next one.
	p.do(chromedp.Focus(chromedp.CSS(choice + " input[value=synthesis]")))
	p.press(" ")
	p.until(offered + `.includes("synthesis!")`)
	p.do(chromedp.Click(chromedp.CSS(choice + " input[value=birch]")))
	p.until(offered + `.includes("birch!")`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById("rating").value = "4"`))
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("form")
	p.do(chromedp.Click(chromedp.CSS(choice + " button")))
	p.says(choice+" [role=status]", "Saved.")
	p.do(chromedp.Click(chromedp.CSS(choice+" input[value=tie]")), chromedp.Click(chromedp.CSS(choice+" button")))
	p.until(`document.querySelector('` + choice + ` button').disabled === false`)
	evidence := filepath.Join(filepath.Dir(records), "evidence.jsonl")
	for len(labels(t, evidence)) < 2 && t.Context().Err() == nil {
		p.says(choice+" [role=status]", "Saved.")
	}
	want := []string{"birch over dune synthesis, 4, wanted true", "tie over birch dune synthesis, 4, wanted true"}
	if diff := cmp.Diff(want, labels(t, evidence)); diff != "" {
		t.Errorf("-want +kept:\n%s", diff)
	}
}

// Any other reader can say it on request, where the daemon can keep it.
func TestPreferenceOnRequest(t *testing.T) {
	t.Parallel()
	const asks = `[...document.querySelectorAll("#session .tools button")].find((b) => b.textContent === "Say which answer you prefer")`
	p := open(t, daemon(t, map[string]string{"HASH_SECRET": "a-secret-of-sixteen"}, members()...), "")
	p.ask("What else?")
	p.says(said, "The answer is complete.")
	p.until(asks + `?.checkVisibility()`)
	if value[bool](p, `document.querySelector('`+choice+`').checkVisibility()`) {
		t.Error("nobody asked for the form, and it is there")
	}
	p.do(chromedp.Evaluate[chromedp.Void](asks + `.click()`))
	p.until(`document.activeElement.textContent === "Which answer do you prefer?" && !` + asks + `.checkVisibility()`)
	p.openAnswer("cedar")
	p.until(offered + ` === "synthesis cedar tie"`)

	without := open(t, daemon(t, nil, members()...), "")
	without.ask("And here?")
	without.says(said, "The answer is complete.")
	without.until(`document.querySelector("#session section[aria-labelledby=part-continue]").checkVisibility()`)
	if value[bool](without, `Boolean(`+asks+`)`) {
		t.Error("the page offers to keep what the daemon cannot keep")
	}
}

// The report says what reviewers and people prefer, and how far they agree.
func TestReportOfPreferences(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "evidence.jsonl")
	var text []byte
	write := func(e store.Evidence) {
		line, err := store.EncodeEvidence(e)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, line...)
	}
	for i := range 90 {
		id, at, choice := strconv.Itoa(i), time.Now().UTC(), council.ChoiceSynthesis
		if i%10 == 0 {
			choice = council.ChoiceTop
		}
		write(store.Evidence{Shadow: &council.ShadowRecord{
			SchemaVersion: council.ShadowSchema, SessionID: id, Timestamp: at, Chairman: "amber", TopModel: "birch", Wanted: i < 60,
			Lengths:   council.ShadowLengths{Synthesis: 100 + i%9, Top: 100},
			Reviewers: []council.ShadowReview{{ID: "cedar", First: council.ChoiceTop, Choice: &choice, Status: council.OutcomeOK}},
		}})
		write(store.Evidence{Label: &council.LabelRecord{
			SchemaVersion: council.LabelSchema, Timestamp: at, Labelled: at, Wanted: i < 60, Chairman: new("amber"), TopModel: new("birch"),
			Kept:  council.Kept{SessionID: id, Preferred: new("birch"), Over: []string{"dune", "synthesis"}, By: strconv.Itoa(i % 3)},
			Borda: map[string]float64{"birch": 2, "dune": 1},
		}})
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, daemon(t, map[string]string{"DATA_DIR": filepath.Dir(path)}, members()...), "")
	p.show("report")
	for _, sentence := range []string{
		"Reviewers that wrote neither text prefer the final answer to the answer that was ranked first.",
		"People prefer the answer that was ranked first to the final answer.", "Labels of sessions that nobody asked about: 30.",
		"the council, unasked",
	} {
		p.says("#report", sentence)
	}
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.shot("report")
}
