package stage3

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The brief names nobody: members appear as their canonical labels, reviewers by
// number.
func TestBrief(t *testing.T) {
	in := Input{
		Question: "Why is the sky blue?",
		Slate:    council.Slate{{Label: "Response A", Member: "acme/x"}, {Label: "Response B", Member: "acme/y"}},
		Answers:  map[string]string{"acme/x": "Scattering.", "acme/y": "The sea."},
		Standings: []council.Standing{
			{Model: "acme/x", FinalRank: 1, BordaNormalized: 2.0 / 3, VoteCount: 3},
			{Model: "acme/y", FinalRank: 2, BordaNormalized: 1.0 / 3, VoteCount: 3},
		},
		Reviews: []string{"Response A is right."},
		Markers: anonymize.NewMarkers("a session"),
	}
	var b strings.Builder
	for _, m := range prompt(in) {
		b.WriteString("--- " + m.Role + "\n" + m.Content + "\n")
	}
	golden := filepath.Join("testdata", "brief.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(b.String(), "acme") {
		t.Error("the brief names a member")
	}
	in.Standings, in.Reviews = nil, nil
	if text := prompt(in)[1].Content; strings.Contains(text, "Ranking by") || strings.Contains(text, "REVIEW") {
		t.Errorf("without a ranking the brief is %s", text)
	}
}
