package stage2

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

// drawBallot draws a ballot over some of the labels, as ParseBallot returns it.
func drawBallot(t *rapid.T, labels []council.Label) council.Ballot {
	ranked := rapid.Permutation(labels).Draw(t, "order")
	ranked = ranked[:rapid.IntRange(1, len(labels)).Draw(t, "ranked")]
	var places [][]council.Label
	for i, l := range ranked {
		if i > 0 && rapid.Bool().Draw(t, "tie") {
			places[len(places)-1] = append(places[len(places)-1], l)
		} else {
			places = append(places, []council.Label{l})
		}
	}
	scores := rapid.MapOf(rapid.SampledFrom(labels), rapid.Float64Range(1, 10)).Draw(t, "scores")
	return ballot(places, scores, council.SourceJSON)
}

func TestParseBallotReadsWhatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := slateOf(rapid.IntRange(1, 30).Draw(t, "labels"))
		want := drawBallot(t, labels)
		got, err := ParseBallot("Response A is fine, I think.\n\n"+render(want), labels)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// From a reply that is cut off at any place, the reviewer's ranking is read or none, never a
// part of it as if it were complete.
func TestParseBallotOfCutReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := slateOf(rapid.IntRange(2, 12).Draw(t, "labels"))
		whole := drawBallot(t, labels)
		reply := "**Response A** is [1] fine.\n\n" + render(whole)
		cut := rapid.IntRange(0, len(reply)).Draw(t, "cut")
		got, err := ParseBallot(reply[:cut], labels)
		if err != nil {
			return
		}
		if diff := cmp.Diff(whole.Groups(), got.Groups()); diff != "" {
			t.Fatalf("cut to %q (-whole +cut):\n%s", reply[:cut], diff)
		}
		for l, score := range got.Scores {
			if score != whole.Scores[l] {
				t.Fatalf("cut to %q: score %v of %s, want %v", reply[:cut], score, l, whole.Scores[l])
			}
		}
	})
}

// Text before the reviewer's own ballot, such as a ballot in an answer that it quotes, is
// never read in place of it. At worst the reply is invalid, for example after a reasoning
// tag that is not closed.
func TestParseBallotOwnBallotCountsLast(t *testing.T) {
	own := council.Ballot{Ranking: []council.Label{"Response C", "Response B", "Response A"}}
	valid := 0
	cases := readCorpus(t)
	for _, c := range cases {
		got, err := ParseBallot(c.reply+"\n\n"+render(own), slateOf(3))
		if err != nil {
			continue
		}
		valid++
		if diff := cmp.Diff(own.Ranking, got.Ranking); diff != "" {
			t.Errorf("behind %s (-want +got):\n%s", c.name, diff)
		}
	}
	if valid < len(cases)*9/10 {
		t.Errorf("the reviewer's own ballot was read behind %d of %d texts", valid, len(cases))
	}
}

// The work on any text is limited by its length.
func TestEachValueWorkIsLinear(t *testing.T) {
	for _, unit := range []string{
		"{", "[", `{"a":`, "[1,", `["`, "['", "[“", "[“\"'", "{a:[", "[/*", "[#", "[//", `{"ranking":["A",`, "[\\", "[a\n",
	} {
		text := strings.Repeat(unit, (32<<10)/len(unit))
		work := eachValue(text, func(value, int, int) bool { return false })
		if limit := (maxWork + 1) * len(text); work > limit {
			t.Errorf("%d bytes of %q cost %d steps, want at most %d", len(text), unit, work, limit)
		}
		checkBallot(t, text, slateOf(4))
	}
}
