package llm

import (
	"strings"
	"testing"
)

// However a text is divided into parts, no key of it is shown, and everything else is.
func TestKeysAreRemoved(t *testing.T) {
	k := keysOf(Provider{
		APIKey: "sk-sk-sk-1234", Headers: map[string]string{"Authorization": "Bearer other-secret", "X-Title": "an application"},
		Query: map[string]string{"api_key": "short"},
	})
	text := "a sk-sk-sk-sk-1234 b other-secret c an application, sk-sk-sk-123, short: other-secre"
	want := "a sk-[key] b [key] c an application, sk-sk-sk-123, short: other-secre"
	if got := k.removed(text); got != want {
		t.Errorf("whole: %q", got)
	}
	for size := 1; size <= len(text); size++ {
		f, got := keyFilter{keys: k}, strings.Builder{}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			got.WriteString(f.next(rest[:n], false))
			rest = rest[n:]
		}
		got.WriteString(f.next("", true))
		if got.String() != want {
			t.Errorf("in parts of %d: %q", size, got.String())
		}
	}
}
