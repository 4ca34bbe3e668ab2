package cli

import (
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

func TestPrintMap(t *testing.T) {
	claim := func(text string, quotes ...string) council.Claim {
		c := council.Claim{Claim: text}
		for i := 0; i < len(quotes); i += 2 {
			c.Quotes = append(c.Quotes, council.Quote{Model: quotes[i], Quote: quotes[i+1]})
		}
		return c
	}
	const readers, blocks = "With WAL, readers do\n not block the writer.", "A long report blocks every write until it ends."
	var b strings.Builder
	printMap(&b, &council.Map{
		Disputed: []council.Dispute{{About: "does a long read hold up the writer?", Sides: []council.Claim{
			claim("no", "gpt", readers, "claude", readers, "gpt", readers), claim("yes", "gemini", blocks),
		}}},
		Agreed:      []council.Claim{claim("one writer at a time.", "gpt", "one writer", "claude", "one writer", "mistral", "one writer")},
		OnlyOneSaid: []council.Claim{claim("copies", "mistral", "Litestream copies the file to S3 each second.")},
		Open:        []string{"how many writes a second do you expect?"},
	})
	const want = `Disputed   does a long read hold up the writer?
   no   gpt, claude  "With WAL, readers do not block the writer."
   yes  gemini       "A long report blocks every write until it ends."
Agreed     one writer at a time: gpt, claude, mistral
Only mistral   "Litestream copies the file to S3 each second."
Open       how many writes a second do you expect? (not checked)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	printMap(&b, nil)
	printMap(&b, &council.Map{Agreed: []council.Claim{}})
	if b.Len() > 0 {
		t.Errorf("an empty map prints %q", b.String())
	}
	for reason, want := range map[council.MapReason]string{
		council.MapNone: "wrote none", council.MapCutOff: "cut off", council.MapQuotesInvented: "invented",
		council.MapNotJSON: "another form", council.MapSchema: "another form",
	} {
		b.Reset()
		if printMap(&b, &council.Map{Reason: &reason}); !strings.Contains(b.String(), want) {
			t.Errorf("%s prints %q", reason, b.String())
		}
	}
}

// A simulated council prints its map. With --quiet it prints only the answer.
func TestAskPrintsTheMap(t *testing.T) {
	t.Setenv("LLM_COUNCIL_MODELS", "sim:amber?fact=the port:80,sim:birch?fact=the port:8080,sim:cedar?fact=the port:80")
	t.Setenv("LLM_COUNCIL_DATA_DIR", "off")
	t.Setenv("LLM_COUNCIL_BIAS_PERSISTENCE", "false")
	code, out, log := command(t, "ask", "Which port?", "--chairman", "sim:birch?fact=the port:8080")
	for _, want := range []string{
		"Disputed   What is the value of the port?\n", `:80  "The value of the port is 80."`,
		`   8080  sim:birch?fact=the port:8080`, "Open       Which part of ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%d %s: %q is missing in %s", code, log, want, out)
		}
	}
	if code, out, log = command(t, "ask", "-q", "Which port?"); code != 0 || strings.Contains(out, "Disputed") || strings.Contains(out, "=== MAP") {
		t.Errorf("%d %s: --quiet prints %s", code, log, out)
	}
	t.Setenv("LLM_COUNCIL_MAP", "false")
	if code, out, log = command(t, "ask", "Which port?"); code != 0 || strings.Contains(out, "Disputed") {
		t.Errorf("%d %s: without maps it prints %s", code, log, out)
	}
}
