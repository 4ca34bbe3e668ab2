package stage2

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/getkin/kin-openapi/openapi3"
)

// Every reply in the form that providers are asked for can be read as a ballot.
func TestFormat(t *testing.T) {
	labels := slateOf(3)
	f := format(labels)
	var schema openapi3.Schema
	if err := json.Unmarshal(f.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	const rest = `"scores": {"Response A": 7, "Response B": 7, "Response C": 9}, "critiques": {"Response A": "a", "Response B": "b",` +
		` "Response C": "c"}`
	tests := map[string]bool{
		`{"ranking": ["Response C", ["Response A", "Response B"]], "abstain": null, ` + rest + `}`:                true,
		`{"ranking": [], "abstain": "I cannot tell", ` + rest + `}`:                                               true,
		`{"ranking": ["Response D"], "abstain": null, ` + rest + `}`:                                              false,
		`{"ranking": ["Response C"], ` + rest + `}`:                                                               false,
		`{"ranking": ["Response C"], "abstain": null, "note": "x", ` + rest + `}`:                                 false,
		`{"ranking": ["Response C"], "abstain": null, ` + strings.Replace(rest, "9", "11", 1) + `}`:               false,
		`{"ranking": ["Response C"], "abstain": null, ` + strings.Replace(rest, `"Response B": 7, `, "", 1) + `}`: false,
	}
	for text, want := range tests {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.VisitJSON(value); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
		if !want {
			continue
		}
		b, err := ParseBallot(text, labels)
		if err != nil || b.Abstained == (len(b.Ranking) > 0) || !b.Abstained && len(b.Groups()) != 2 {
			t.Errorf("%s: %+v, %v", text, b, err)
		}
	}
	// Models write in the order of the schema: the critiques come first.
	if i, j := strings.Index(string(f.Schema), `"critiques":{`), strings.Index(string(f.Schema), `"ranking":{`); i < 0 || i > j {
		t.Errorf("schema %s", f.Schema)
	}
}

func TestRepairPrompt(t *testing.T) {
	asked := examplePrompt()
	labels := slateOf(2)
	reply := strings.Repeat("ä", maxRepaired)
	b, err := ParseBallot(reply, labels)
	if err == nil {
		t.Fatal("prose was read as a ballot")
	}
	got := repairPrompt(asked, reply, b, labels)
	if len(got) != len(asked)+2 || got[2].Role != council.RoleAssistant || len(got[2].Content) > maxRepaired ||
		!strings.HasPrefix(got[2].Content, "ä") {
		t.Errorf("%d messages, a reply of %d bytes", len(got), len(got[2].Content))
	}
	if !strings.Contains(got[3].Content, "the reply holds no ballot") {
		t.Errorf("got %q", got[3].Content)
	}
	partial := council.Ballot{Ranking: labels[:1]}
	if got := repairPrompt(asked, "x", partial, labels)[3].Content; !strings.Contains(got, "leaves out Response B.") {
		t.Errorf("got %q", got)
	}
}
