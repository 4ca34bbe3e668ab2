package disagreement

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// TestCouncilEx holds the report equal to that of CouncilEx, to the last figure.
func TestCouncilEx(t *testing.T) {
	data, err := os.ReadFile("testdata/councilex.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name      string
		Answers   map[string]string
		Lexicon   Axes
		Threshold float64
		Report    council.ReferenceReport
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases, error %v", len(cases), err)
	}
	for _, c := range cases {
		lexicon := DefaultLexicon()
		if c.Lexicon != nil {
			lexicon = Lexicon{Version: "other", Axes: c.Lexicon}
		}
		in := Input{Answers: c.Answers, Matcher: NewMatcher(lexicon), Threshold: c.Threshold}
		if diff := cmp.Diff(c.Report, CouncilEx(t.Context(), in)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.Name, diff)
		}
	}
}

// TestBesideCouncilEx shows what the test of rates adds: CouncilEx flags one neutral mention, and
// words inside of others.
func TestBesideCouncilEx(t *testing.T) {
	for _, answers := range []map[string]string{
		{"a": "Women and men vote.", "b": "Everybody of age votes."},
		{"a": "The comment on the human shepherd is a theme.", "b": "A manager of older racing kayaks."},
	} {
		report, ok := Report(t.Context(), Input{Answers: answers, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3})
		if !ok || report.Flagged || !report.CouncilEx.Flagged || report.Backend != council.BackendLexicon {
			t.Errorf("flagged %v, by CouncilEx %v: %s", report.Flagged, report.CouncilEx.Flagged, report.Wording)
		}
	}
	in := farmers()
	report, ok := Report(t.Context(), in)
	if !ok || !report.Flagged || !report.CouncilEx.Flagged || report.Threshold != in.Threshold {
		t.Errorf("a difference: %+v", report)
	}
}

func TestCouncilExIsLinear(t *testing.T) {
	for _, text := range hostile {
		growth.Linear(t, func(n int) func() {
			in := Input{
				Answers: map[string]string{"a": strings.Repeat(text, n/len(text)), "b": text}, Matcher: NewMatcher(DefaultLexicon()),
			}
			return func() { CouncilEx(t.Context(), in) }
		})
	}
}

func TestCouncilExStops(t *testing.T) {
	long := strings.Repeat("rain and snow ", 20_000)
	in := Input{Answers: map[string]string{"a": long, "b": long + "x"}, Matcher: NewMatcher(DefaultLexicon())}
	whole := &ending{Context: t.Context(), last: math.MaxInt}
	if CouncilEx(whole, in).Axes == nil || whole.looks < 100 {
		t.Fatalf("the context was read only %d times", whole.looks)
	}
	for last := 0; last < whole.looks-1; last += whole.looks / 20 {
		ctx := &ending{Context: t.Context(), last: last}
		if report := CouncilEx(ctx, in); report.Axes != nil || ctx.looks > last+20 {
			t.Errorf("ended after read %d of %d: %d reads followed", last, whole.looks, ctx.looks-last)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := Report(ended, in); ok {
		t.Error("a report after the end")
	}
}
