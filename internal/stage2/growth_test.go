package stage2

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// hostileUnits are texts that make a reply slow to read when they are repeated: brackets
// and tags that are never closed, lines and words that are nearly a ranking or a refusal.
func hostileUnits() []string {
	return []string{
		"[", "[1,", `["A"],`, `{"ranking":[{"label":"A"},`, "[/*", "<think>", "</think>", "<think> </think>", "[THINK]", "<a<", " ",
		"FINAL RANKING\n", "FINAL RANKING: A and ", "A = ", "A|10/10|", "A: 10/10\n", "I must would ", "(", "\u200b",
	}
}

// TestFaultF33Review checks that the time to read a reply is linear in its length.
func TestFaultF33Review(t *testing.T) {
	labels := slateOf(4)
	var slowest time.Duration
	for _, unit := range hostileUnits() {
		t.Run(unit, func(t *testing.T) {
			slowest = max(slowest, growth.Linear(t, func(n int) func() {
				text := "FINAL RANKING: " + strings.Repeat(unit, n/len(unit)-8)
				return func() { _, _ = ParseBallot(text, labels) }
			}))
		})
	}
	objects := map[string]func(n int) string{ // of which the critiques are taken out
		"a deep object": func(n int) string { return `{"x":` + strings.Repeat("[", n/2) + strings.Repeat("]", n/2) + `}` },
		"a long object": func(n int) string {
			return `{"critiques":"` + strings.Repeat("<", n/2) + `","x":["` + strings.Repeat(`","`, n/6) + `"]}`
		},
	}
	for name, object := range objects {
		t.Run(name, func(t *testing.T) {
			slowest = max(slowest, growth.Linear(t, func(n int) func() {
				text := object(n)
				return func() { _, _ = ParseBallot(text, labels) }
			}))
		})
	}
	t.Logf("fault F33: the slowest of %d hostile reviews of 1 MiB took %s (promised linear, 100 ms a MiB)",
		len(hostileUnits())+len(objects), slowest)
}

// A review in the form that we ask for has its ranking, scores and abstention behind critiques of any length.
func TestParseBallotBehindLongCritiques(t *testing.T) {
	critiques, err := json.Marshal(map[council.Label]string{
		"Response A": strings.Repeat("It says \"[x] > {y}\", and leaves out why. ", 1<<10), // 40 KiB
		"Response B": "FINAL RANKING: Response A > Response B",
	})
	if err != nil {
		t.Fatal(err)
	}
	votes := `"ranking":["Response B","Response A"],"scores":{"Response A":3,"Response B":9},"abstain":null`
	const declines = `"ranking":[],"scores":{"Response A":3,"Response B":9},"abstain":"I wrote one of them."`
	form := func(rest string) string { return `{"critiques":` + string(critiques) + `,` + rest + `}` }
	for name, reply := range map[string]string{
		"one object":     form(votes),
		"critiques last": `{` + votes + `,"critiques":` + string(critiques) + `}`,
		"in a fence":     "Here is my review.\n```json\n" + strings.ReplaceAll(form(votes), `,"`, ",\n\"") + "\n```\n",
	} {
		b, err := ParseBallot(reply, slateOf(2))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b.Scores["Response B"] != 9 {
			t.Errorf("%s: the scores are %v", name, b.Scores)
		}
	}
	b, err := ParseBallot(form(declines), slateOf(2))
	if err != nil || !b.Abstained {
		t.Errorf("a reviewer that declines behind long critiques: %+v, %v", b, err)
	}
}

func TestParseBallotReadsTheEnd(t *testing.T) {
	ballot := "\nFINAL RANKING: Response B > Response A"
	critique := strings.Repeat("Response A leaves out why the cache is cold. ", 4<<10) // 180 KiB
	tests := []struct {
		name, reply string
		want        InvalidReason
	}{
		{"a ballot at the end", critique + ballot, ""},
		{"a ballot at the beginning", ballot + "\n" + critique, InvalidNoBallot},
		{"reasoning before the ballot", "<think>" + critique + "</think>" + ballot, ""},
		{"1 MiB", strings.Repeat(" ", 1<<20-len(ballot)) + ballot, ""},
		{"more than 1 MiB", strings.Repeat(" ", 1<<20-len(ballot)+1) + ballot, InvalidTooLong},
		{"a cut through a character", strings.Repeat("é", maxText), InvalidNoBallot},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseBallot(tt.reply, slateOf(2))
			var got InvalidReason
			if err != nil {
				invalid, _ := errors.AsType[Invalid](err)
				got = invalid.Reason
			}
			if got != tt.want {
				t.Errorf("the reason is %q, want %q", got, tt.want)
			}
		})
	}
}
