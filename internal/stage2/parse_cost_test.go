package stage2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stage2"
)

// replies returns replies of 2 KB by what is in them.
func replies() map[string]string {
	english := strings.Repeat("Response A explains the trade well, but I would say it does not show when the lease ends. ", 22)
	german := strings.Repeat("Antwort A erklärt den Handel gut, sagt aber nicht, was geschieht, wenn die Frist endet. ", 22)
	return map[string]string{
		"a ballot": english + `{"ranking": ["Response B", "Response A", "Response C"], "scores": ` +
			`{"Response A": 7, "Response B": 9, "Response C": 4}}`,
		"a final ranking":        english + "\n\nFINAL RANKING:\n1. Response B\n2. Response A\n3. Response C\n",
		"no ballot":              english,
		"no ballot, many lines":  strings.ReplaceAll(english, ". ", ".\n"),
		"no ballot, German":      german,
		"no ballot, no sentence": strings.Repeat("response a says that it is so and ", 60),
	}
}

// A reply without a ballot takes little more time than one with a ballot: in the end it is searched for a refusal, in
// eight languages.
func TestNoBallotIsFoundQuickly(t *testing.T) {
	fastest := func(text string) time.Duration {
		least := time.Hour
		for range 20 {
			start := time.Now()
			_, _ = stage2.ParseBallot(text, benchLabels())
			least = min(least, time.Since(start))
		}
		return least
	}
	with := fastest(replies()["a ballot"])
	for name, text := range replies() {
		if took := fastest(text); took > 25*with {
			t.Errorf("%s: %s, and with a ballot %s", name, took, with)
		}
	}
}

// BenchmarkParseBallot measures the reading of replies of 2 KB.
func BenchmarkParseBallot(b *testing.B) {
	for name, text := range replies() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = stage2.ParseBallot(text, benchLabels())
			}
		})
	}
}

func benchLabels() []council.Label { return []council.Label{"Response A", "Response B", "Response C"} }
