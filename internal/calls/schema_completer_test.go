package calls

import (
	"context"
	"errors"
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

// The golden file has the version in its name, so a changed prompt needs a new version.
func TestPrompts(t *testing.T) {
	c := &SchemaCompleter{
		Format:     &council.Format{Schema: []byte(`{"type":"object"}`)},
		NewMarkers: func() anonymize.Markers { return anonymize.Markers{Token: "0123456789abcdef"} },
	}
	asked := []council.Message{{Role: council.RoleSystem, Content: "Be brief."}, {Role: council.RoleUser, Content: "Why?"}}
	var b strings.Builder
	for _, m := range c.repair(c.prompt(asked), "Because.", &invalidReply{[]string{"it is not JSON", "at /a: wrong"}}) {
		b.WriteString("--- " + m.Role + "\n" + m.Content + "\n")
	}
	golden := filepath.Join("testdata", "prompt_"+SchemaPromptVersion+".golden")
	if _, err := os.Stat(golden); *update && os.IsNotExist(err) {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the prompt is not that of %s: raise SchemaPromptVersion, then run the test with -update\n%s", SchemaPromptVersion, diff)
	}
	if asked[1].Content != "Why?" {
		t.Errorf("the caller's conversation became %q", asked[1].Content)
	}
}

// A reply waits for its place as long as its context allows.
func TestPlaces(t *testing.T) {
	c := &SchemaCompleter{Format: &council.Format{Schema: []byte(`{}`)}, Places: make(chan struct{}, 1)}
	reply := council.Completion{Text: "{}"}
	for range 2 { // the place is given back
		if text, err := c.read(t.Context(), reply); text != "{}" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
	}
	c.Places <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.read(ctx, reply); !errors.Is(err, context.Canceled) {
		t.Errorf("without a place: %v", err)
	}
}
