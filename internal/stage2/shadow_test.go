package stage2

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/growth"
)

// Reviewers that always take the first text see each text first in turns, and neither the names of
// the texts nor those of their authors.
func TestCompare(t *testing.T) {
	var prompts []string
	first := simllm.Model{Name: "first", Reply: func(task simllm.Task) (string, bool) {
		return "Simulated.\nCHOICE: A", task.Kind == simllm.Choice && task.Question == "Why is the sky blue?"
	}}
	vague := simllm.Model{Name: "vague", Reply: func(task simllm.Task) (string, bool) {
		for _, a := range task.Answers {
			prompts = append(prompts, a.Label+": "+a.Text)
		}
		return "Simulated. Both are good.", true
	}}
	broken := simllm.Model{Name: "broken", Faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400, Rate: 1}}}
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: []simllm.Model{first, vague, broken}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client, err := llm.New(llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: 5 * time.Second,
		MaxCallsPerProvider: 4, MaxReplyBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	in := Shadow{
		Question: "Why is the sky blue?", Synthesis: "Scattering.", Top: "The sea.", SynthesisFirst: true, NewMarkers: anonymize.MarkersFrom(""),
	}
	for _, name := range []string{"first", "first", "vague", "broken"} {
		in.Reviewers = append(in.Reviewers, council.Member{ID: name, Model: name})
	}
	synthesis, top := council.ChoiceSynthesis, council.ChoiceTop
	want := []council.ShadowReview{
		{ID: "first", First: synthesis, Choice: &synthesis, Status: council.OutcomeOK},
		{ID: "first", First: top, Choice: &top, Status: council.OutcomeOK},
		{ID: "vague", First: synthesis, Status: council.OutcomeInvalid},
		{ID: "broken", First: top, Status: council.OutcomeError},
	}
	if diff := cmp.Diff(want, Compare(t.Context(), client, in, council.Sampling{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Response A: Scattering.", "Response B: The sea."}, prompts); diff != "" {
		t.Errorf("what a reviewer was shown: -want +got:\n%s", diff)
	}
	in.SynthesisFirst = false
	if r := Compare(t.Context(), client, in, council.Sampling{}); r[0].First != top || r[1].First != synthesis {
		t.Errorf("after the other side of the coin they saw %s and %s first", r[0].First, r[1].First)
	}
}

// A defect in one seat is that seat's failure.
func TestCompareKeepsSeatsApart(t *testing.T) {
	in := Shadow{
		Reviewers: []council.Member{{ID: "a", Model: "a"}}, SynthesisFirst: true,
		NewMarkers: func(string) anonymize.Markers { panic("a defect") },
	}
	want := []council.ShadowReview{{ID: "a", First: council.ChoiceSynthesis, Status: council.OutcomeError}}
	if diff := cmp.Diff(want, Compare(t.Context(), nil, in, council.Sampling{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseChoice(t *testing.T) {
	const none = 9
	for reply, want := range map[string]int{
		"A is short.\n\nCHOICE: A":             0,
		"CHOICE: B":                            1,
		"CHOICE: tie\n":                        -1,
		"choice: b.\n\n":                       1,
		"**CHOICE: A**":                        0,
		"**Choice:** B":                        1,
		"`CHOICE: tie`\r\n":                    -1,
		"> CHOICE： Ａ":                          0,
		"CHOICE: <A>":                          0,
		"":                                     none,
		"A":                                    none,
		"CHOICE:":                              none,
		"CHOICE: <A, B or tie>":                none,
		"CHOICE: A or B":                       none,
		"CHOICE: C":                            none,
		"CHOICE: A\nCHOICE: A or B":            none,
		"CHOICE: A\nI hope this helps.":        none,
		"My CHOICE: A":                         none,
		"CHOICE A":                             none,
		"CHOICE: A" + strings.Repeat(" ", 999): 0,
		strings.Repeat("(", maxChoice) + "CHOICE: A": none,
	} {
		place, ok := ParseChoice(reply)
		if !ok {
			place = none
		}
		if place != want {
			t.Errorf("%.60q: %d, want %d", reply, place, want)
		}
	}
	if _, ok := ParseChoice(compare); ok {
		t.Error("the instructions hold a choice")
	}
}

// FuzzParseChoice checks that nothing before the last line changes a choice, and that blanks behind it
// do not. It also fails for texts that take very long.
func FuzzParseChoice(f *testing.F) {
	for _, seed := range append(hostileUnits(), "CHOICE: A", "x\nCHOICE: tie", "*choice: b*") {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		var place int
		var ok bool
		growth.Bounded(t, len(reply), func() { place, ok = ParseChoice(reply) })
		if place < -1 || place > 1 || !ok && place != 0 {
			t.Fatalf("%q: %d, %v", reply, place, ok)
		}
		for _, same := range []string{"CHOICE: B\n" + reply, reply + "\n \n"} {
			if p, o := ParseChoice(same); strings.TrimSpace(reply) != "" && (p != place || o != ok) {
				t.Errorf("%q: %d, %v, and %q: %d, %v", reply, place, ok, same, p, o)
			}
		}
	})
}

// Choices are read in time that is linear in the reply, as ballots are.
func TestParseChoiceGrowth(t *testing.T) {
	for _, unit := range append(hostileUnits(), "\n", "CHOICE: A") {
		t.Run(unit, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				text := strings.Repeat(unit, n/len(unit)-1)
				return func() { _, _ = ParseChoice(text) }
			})
		})
	}
}
