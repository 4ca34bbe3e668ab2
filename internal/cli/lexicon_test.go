package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/disagreement"
)

func TestLexiconCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	code, printed, errs := command(t, "config", "lexicon", "print")
	builtIn, err := disagreement.ParseLexicon([]byte(printed))
	if code != 0 || err != nil || builtIn.Version != "councild-1" || builtIn.Language != "en" || len(builtIn.Axes) != 5 {
		t.Errorf("printed: %d %v %s%s", code, err, printed, errs)
	}
	code, out, errs := command(t, "config", "lexicon", "check", write("same.json", printed))
	if code != 0 || !strings.Contains(out, "on 5 axes, language en, version councild-1.") {
		t.Errorf("what was printed: %d %s%s", code, out, errs)
	}
	more := write("more.json", `{"extend": true, "version": "acme-3", "axes": {"age": ["pensioner"]}}`)
	code, out, errs = command(t, "config", "lexicon", "print", more)
	if code != 0 || !strings.Contains(out, `"councild-1+acme-3"`) || !strings.Contains(out, `"pensioner"`) || !strings.Contains(out, `"elderly"`) {
		t.Errorf("extended: %d %s%s", code, out, errs)
	}
	t.Setenv("LLM_COUNCIL_LEXICON", more)
	if code, out, errs = command(t, "config", "lexicon", "check"); code != 0 || !strings.Contains(out, "councild-1+acme-3") {
		t.Errorf("that of the settings: %d %s%s", code, out, errs)
	}
	bad := write("bad.json", `{"extend": 1, "axes": {"age": [], "": ["x"]}}`)
	code, out, errs = command(t, "config", "lexicon", "check", bad)
	for _, want := range []string{`bad.json" is no lexicon`, `"extend" is neither`, `axis "age" has no terms`, "an axis has no name"} {
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("a bad lexicon: %d, want 2 and %q:\n%s%s", code, want, out, errs)
		}
	}
}
