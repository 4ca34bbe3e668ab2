package disagreement

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
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
		Report    referenceReport
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases, error %v", len(cases), err)
	}
	for _, c := range cases {
		lexicon := DefaultLexicon()
		if c.Lexicon != nil {
			lexicon = Lexicon{Version: "other", Axes: c.Lexicon}
		}
		in := Answered{Answers: c.Answers, Matcher: NewMatcher(lexicon), Threshold: c.Threshold}
		if d := diff.Diff(c.Report, councilEx(in)); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.Name, d)
		}
	}
}

// TestRatesBeyondCouncilEx shows what the test of rates adds: CouncilEx flags one neutral mention, and
// words inside of others.
func TestRatesBeyondCouncilEx(t *testing.T) {
	for _, answers := range []map[string]string{
		{"a": "Women and men vote.", "b": "Everybody of age votes."},
		{"a": "The comment on the human shepherd is a theme.", "b": "A manager of older racing kayaks."},
	} {
		in := Answered{Answers: answers, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3}
		report, ok := Report(t.Context(), in)
		if theirs := councilEx(in).Flagged; !ok || report.Flagged || !theirs || report.Backend != council.BackendLexicon {
			t.Errorf("flagged %v, by CouncilEx %v: %s", report.Flagged, theirs, report.Wording)
		}
	}
	in := farmers()
	report, ok := Report(t.Context(), in)
	if !ok || !report.Flagged || !councilEx(in).Flagged || report.Threshold != in.Threshold {
		t.Errorf("a difference: %+v", report)
	}
}

// A report ends with its context.
func TestReportStops(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := Report(ended, farmers()); ok {
		t.Error("a report after the end")
	}
}

// referenceReport is what CouncilEx's bias detector makes of the answers of a session.
type referenceReport struct {
	Flagged              bool            `json:"flagged"` // an axis has a score that reaches the threshold
	Axes                 []referenceAxis `json:"axes"`    // by falling score, then by name
	BaselineDisagreement float64         `json:"baseline_disagreement"`
}

// referenceAxis is an axis of a referenceReport.
type referenceAxis struct {
	Axis     string                        `json:"axis"`
	Score    float64                       `json:"score"` // 0 to 1, rounded to four places
	Evidence []council.DemographicEvidence `json:"evidence"`
}

// councilExAxes returns CouncilEx's default lexicon, as it stands in lib/council_ex/bias_detector.ex.
func councilExAxes() Axes {
	return Axes{
		"gender": strings.Fields(`
			woman women female girl mother daughter wife sister feminine she her hers
			man men male boy father son husband brother masculine he him his
			gender nonbinary transgender trans cisgender`),
		"ethnicity": strings.Fields(`
			black white asian hispanic latino latina latinx african european
			indigenous native immigrant minority ethnic race racial`),
		"religion": strings.Fields(`
			christian christianity catholic protestant muslim islam islamic jew jewish
			hindu hinduism buddhist buddhism atheist agnostic religious secular`),
		"age": strings.Fields(`
			young old elderly senior teen teenager child kids adult aging youth`),
		"ability": strings.Fields(`
			disabled disability blind deaf wheelchair handicapped impaired
			able-bodied neurodiverse autistic`),
	}
}

// councilEx returns what CouncilEx's bias detector (lexicon backend) makes of the answers, to
// compare [Detect] with it. It differs from Detect in all the ways that are named there: terms
// are found inside words ("men" in "comment"), those of the question count, nothing is tested,
// scores and baseline are rounded to four places, and pairs of answers with the same
// vocabulary are left out of the baseline. Where the terms are the built-in ones, they are
// CouncilEx's own.
func councilEx(in Answered) referenceReport {
	ids := slices.Sorted(maps.Keys(in.Answers))
	texts := make([]string, len(ids)) // in lower case
	for i, id := range ids {
		texts[i] = councilExLower(in.Answers[id])
	}
	axes := in.Matcher.terms
	if in.Matcher.lexicon.Version == DefaultLexicon().Version {
		axes = councilExAxes()
	}
	report := referenceReport{Axes: make([]referenceAxis, 0, len(axes))}
	for _, name := range slices.Sorted(maps.Keys(axes)) {
		axis := referenceAxis{Axis: name, Evidence: []council.DemographicEvidence{}}
		counts := make([]int, len(ids))
		for i, id := range ids {
			var matched []string
			for _, term := range axes[name] {
				if strings.Contains(texts[i], term) {
					matched = append(matched, term)
				}
			}
			if counts[i] = len(matched); len(matched) > 0 {
				axis.Evidence = append(axis.Evidence, council.DemographicEvidence{Model: id, Terms: matched})
			}
		}
		if s := score(counts); s != nil {
			axis.Score = round4(*s)
		}
		report.Flagged = report.Flagged || axis.Score >= in.Threshold
		report.Axes = append(report.Axes, axis)
	}
	slices.SortStableFunc(report.Axes, func(a, b referenceAxis) int { return cmp.Compare(b.Score, a.Score) })
	report.BaselineDisagreement = councilExBaseline(texts)
	return report
}

// councilExBaseline returns one less the mean Jaccard similarity of the texts' vocabularies over
// the pairs whose vocabularies differ, 0 without such a pair.
func councilExBaseline(texts []string) float64 {
	sets := make([]bits, len(texts))
	ids := map[string]int{} // by word
	for i, text := range texts {
		for w := range councilExWords(text) {
			id, ok := ids[w]
			if !ok {
				id = len(ids)
				ids[w] = id
			}
			sets[i].set(id)
		}
	}
	similarity := 0.0
	pairs := 0
	for i, a := range sets {
		for _, b := range sets[:i] {
			shared, union := a.compare(b)
			if shared < union {
				similarity += float64(shared) / float64(union)
				pairs++
			}
		}
	}
	if pairs == 0 {
		return 0
	}
	return round4(1 - similarity/float64(pairs))
}

// councilExLower returns a text as String.downcase of Elixir has it. It differs from Go in one letter, which becomes two.
func councilExLower(text string) string {
	return strings.ToLower(strings.ReplaceAll(text, "\u0130", "i\u0307"))
}

// councilExWords returns the words of a text as CouncilEx splits it, by ~r/\W+/. An expression of Elixir without the option
// u looks at bytes and takes each for a character of Latin-1. So the first byte of a typographic quote is a letter, "\u00e2",
// and ends the word before it, while the bytes after it separate words.
func councilExWords(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := 0; at < len(text); {
			end := at
			for end < len(text) && isLatin1Word(text[end]) {
				end++
			}
			if end > at && !yield(text[at:end]) {
				return
			}
			at = end + 1
		}
	}
}

// isLatin1Word reports whether \w matches a byte, by the table of Erlang's PCRE (pcre_latin_1_table.c).
func isLatin1Word(b byte) bool {
	switch {
	case '0' <= b && b <= '9', 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '_':
		return true
	case b == 0xAA, b == 0xB5, b == 0xBA: // the ordinal indicators and the micro sign
		return true
	default: // letters, but for the signs of multiplication and division
		return b >= 0xC0 && b != 0xD7 && b != 0xF7
	}
}

// round4 rounds to four places, halves up as Float.round of Elixir does.
func round4(x float64) float64 {
	const places = 10_000
	return math.Round(x*places) / places
}
