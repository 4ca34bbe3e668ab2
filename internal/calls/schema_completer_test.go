package calls

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
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
	testkit.Prompt(t, *update, "prompt_"+SchemaPromptVersion, b.String())
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
