package stage2

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
)

// slateOf returns the labels of a slate of n answers.
func slateOf(n int) []council.Label {
	labels := make([]council.Label, n)
	for i := range labels {
		letters := string(rune('A' + i%26))
		if i >= 26 {
			letters = string(rune('A'+i/26-1)) + letters
		}
		labels[i] = council.Label("Response " + letters)
	}
	return labels
}

// corpusCase is one file of testdata/corpus; README.md there describes it.
type corpusCase struct {
	name   string
	labels int
	reply  string
	want   struct {
		Invalid InvalidReason `json:"invalid"`
		council.Ballot
	}
}

func readCorpus(tb testing.TB) []corpusCase {
	tb.Helper()
	files, err := filepath.Glob("testdata/corpus/*.case")
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) < 120 {
		tb.Fatalf("%d cases in testdata/corpus, want at least 120", len(files))
	}
	cases := make([]corpusCase, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		c, err := parseCase(string(text))
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		c.name = strings.TrimSuffix(filepath.Base(file), ".case")
		cases = append(cases, c)
	}
	return cases
}

func parseCase(text string) (corpusCase, error) {
	var c corpusCase
	description, rest, ok1 := strings.Cut(text, "\n-- labels --\n")
	labels, rest, ok2 := strings.Cut(rest, "\n-- reply")
	kind, rest, ok3 := strings.Cut(rest, " --\n")
	reply, want, ok4 := strings.Cut(rest, "\n-- want --\n")
	if description == "" || !ok1 || !ok2 || !ok3 || !ok4 {
		return c, errors.New("a section is missing")
	}
	c.reply = reply
	if kind == " as JSON" {
		if err := json.Unmarshal([]byte(reply), &c.reply); err != nil {
			return c, err
		}
	}
	c.want.Ballot = emptyBallot()
	decoder := json.NewDecoder(strings.NewReader(want))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c.want); err != nil {
		return c, err
	}
	if c.want.Invalid != "" {
		c.want.Reason = Invalid{Reason: c.want.Invalid}.Error()
	}
	var err error
	c.labels, err = strconv.Atoi(labels)
	return c, err
}

func TestParseBallotCorpus(t *testing.T) {
	for _, c := range readCorpus(t) {
		t.Run(c.name, func(t *testing.T) {
			labels := slateOf(c.labels)
			b, err := ParseBallot(c.reply, labels)
			if diff := cmp.Diff(c.want.Ballot, b); diff != "" {
				t.Errorf("ballot (-want +got):\n%s", diff)
			}
			if invalid, _ := errors.AsType[Invalid](err); invalid.Reason != c.want.Invalid {
				t.Errorf("error %v, want %q", err, c.want.Invalid)
			}
			checkBallot(t, c.reply, labels)
		})
	}
}

// The corpus has a case for every reason and every source.
func TestCorpusIsComplete(t *testing.T) {
	reasons := make(map[InvalidReason]string)
	sources := make(map[council.BallotSource]bool)
	for _, c := range readCorpus(t) {
		reasons[c.want.Invalid] = c.want.Reason
		sources[c.want.Source] = true
	}
	words := make(map[string]bool)
	for _, r := range []InvalidReason{
		InvalidEmpty, InvalidReasoningOnly, InvalidNoBallot, InvalidNoKnownLabel, InvalidUnclear, InvalidCutOff, // too_long takes a MiB
	} {
		if reasons[r] == "" || words[reasons[r]] {
			t.Errorf("no case is %q, or its words %q are another reason's", r, reasons[r])
		}
		words[reasons[r]] = true
	}
	for _, source := range []council.BallotSource{
		council.SourceNone, council.SourceJSON, council.SourceScores, council.SourceFinalRanking,
		council.SourceTable, council.SourceScoreList, council.SourceProse,
	} {
		if !sources[source] {
			t.Errorf("no case has source %q", source)
		}
	}
}

// checkBallot checks what must hold for every text.
func checkBallot(t *testing.T, text string, labels []council.Label) {
	t.Helper()
	b, err := ParseBallot(text, labels)
	invalid, isInvalid := errors.AsType[Invalid](err)
	switch {
	case err != nil && !isInvalid:
		t.Fatalf("error %v is not an Invalid", err)
	case err != nil:
		want := emptyBallot()
		want.Reason = invalid.Error()
		if diff := cmp.Diff(want, b); diff != "" {
			t.Fatalf("ballot of an invalid reply (-want +got):\n%s", diff)
		}
		return
	case b.Abstained:
		if diff := cmp.Diff(abstention(b.Reason, b.Source), b); diff != "" {
			t.Fatalf("an abstention holds more than its reason (-want +got):\n%s", diff)
		}
	case len(b.Ranking) == 0 || b.Reason != "":
		t.Fatalf("neither a ranking, nor an abstention, nor an error: %+v", b)
	}
	if b.Source == council.SourceNone || b.Ranking == nil || b.Tied == nil || b.Scores == nil {
		t.Fatalf("incomplete ballot %+v", b)
	}

	for i, l := range b.Ranking {
		if !slices.Contains(labels, l) {
			t.Fatalf("%q is ranked, but not on the slate", l)
		}
		if slices.Contains(b.Ranking[:i], l) {
			t.Fatalf("%q is ranked twice", l)
		}
	}
	for l, score := range b.Scores {
		if !slices.Contains(labels, l) || !(1 <= score && score <= 10) {
			t.Fatalf("score %v of %q", score, l)
		}
	}
	next := 0 // where the next group may begin
	for _, group := range b.Tied {
		at := slices.Index(b.Ranking, group[0])
		if len(group) < 2 || at < next || !slices.Equal(group, b.Ranking[at:at+len(group)]) {
			t.Fatalf("tied %v in ranking %v", b.Tied, b.Ranking)
		}
		next = at + len(group)
	}

	again, err := ParseBallot(render(b), labels)
	if err != nil {
		t.Fatalf("the rendered ballot %s is invalid: %v", render(b), err)
	}
	again.Source = b.Source // rendered, it is JSON
	if diff := cmp.Diff(b, again); diff != "" {
		t.Fatalf("rendered and parsed (-want +got):\n%s", diff)
	}
}

// render writes a ballot in the form that reviewers are asked for.
func render(b council.Ballot) string {
	form := make(map[string]any)
	if b.Abstained {
		form["abstain"], form["reason"] = true, b.Reason
		if words := (value{kind: scalar, text: b.Reason, quoted: true}).abstains(value{}); words == b.Reason && words != "" {
			form = map[string]any{"abstain": b.Reason}
		}
	} else {
		var places []any
		for _, group := range b.Groups() {
			if len(group) == 1 {
				places = append(places, group[0])
			} else {
				places = append(places, group)
			}
		}
		form["ranking"], form["scores"] = places, b.Scores
	}
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(form); err != nil {
		panic(err) // a ballot holds nothing that JSON cannot
	}
	return "```json\n" + buf.String() + "```\n"
}
