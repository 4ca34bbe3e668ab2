package stage3

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

const (
	token     = "0123456789abcdef"
	separator = "=== MAP " + token + " ==="
	emptyMap  = `{"agreed": [], "disputed": [], "only_one_said": [], "open": []}`
)

func TestSplit(t *testing.T) {
	for _, tt := range []struct{ name, reply, prose string }{
		{"no map", "Yes.\n\n", "Yes.\n\n"},
		{"a map", "Yes.\n\n" + separator + "\n" + emptyMap, "Yes."},
		{"blanks before it", "Yes. \t\r\n \n\n  " + separator + "\n{}", "Yes."},
		{"a fence before it", "Yes.\n\n```\n" + separator + "\n{}\n```", "Yes."},
		{"a fence behind it", "Yes.\n" + separator + "\n```json\n{}\n```", "Yes."},
		{"a fence with a language, and blanks", "Yes.\n\n~~~ json \n\n" + separator + "\n{}", "Yes."},
		{"a code block that ends before it", "Run:\n```sh\nls\n```\n" + separator + "\n{}", "Run:\n```sh\nls\n```"},
		{"an empty code block", "Run:\n```\n```\n" + separator + "\n{}", "Run:\n```\n```"},
		{"a code block that does not end", "Run:\n```sh\nls\n" + separator + "\n{}", "Run:\n```sh\nls"},
		{"a longer fence inside a code block", "````\n```\n````\n```\n" + separator, "````\n```\n````"},
		{"emphasis", "Yes.\n**" + separator + "**\n{}", "Yes."},
		{"a heading", "Yes.\n### " + separator + "\n{}", "Yes."},
		{"the map on the same line", "Yes.\n" + separator + " {}", "Yes."},
		{"the line twice", "Yes.\n" + separator + "\n{}\n" + separator, "Yes."},
		{"the line in a sentence", "Behind " + separator + " is nothing.", "Behind " + separator + " is nothing."},
		{"another token", "Yes.\n=== MAP 0000000000000000 ===\n{}", "Yes.\n=== MAP 0000000000000000 ===\n{}"},
		{"a line that looks like it", "Yes.\n===\n=== MAP\n", "Yes.\n===\n=== MAP\n"},
		{"cut off in the line", "Yes.\n=== MAP 012345", "Yes."},
		{"cut off before the token", "Yes.\n=== MAP 0", "Yes.\n=== MAP 0"},
		{"only a map", separator + "\n" + emptyMap, ""},
		{"only blanks before it", "\n \n" + separator + "\n" + emptyMap, ""},
		{"too many blanks before it", "Yes.\n" + strings.Repeat("\n", maxHeld) + separator, "Yes.\n" + strings.Repeat("\n", maxHeld)},
		{"the line is missing", "Yes.\n\n" + emptyMap + "\n", "Yes."},
		{"the line is missing, in a fence", "Yes.\n\n```json\n" + emptyMap + "\n```\n", "Yes."},
		{"the line is wrong", "Yes.\n=== MAP ffff ===\n```json\n" + emptyMap + "\n```\n", "Yes."},
		{"the line is missing, and half the map", "Yes.\n\n" + emptyMap[:20], "Yes.\n\n" + emptyMap[:20]},
		{"the answer is a map", emptyMap, emptyMap},
		{"text behind it", "Yes.\n" + emptyMap + "\nSo be it.", "Yes.\n" + emptyMap + "\nSo be it."},
		{"another object", "Yes.\n" + `{"open": []}`, "Yes.\n" + `{"open": []}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prose, tail := split(tt.reply, token)
			if prose != tt.prose || prose+tail != tt.reply {
				t.Errorf("the answer is %q, want %q; the tail is %q", prose, tt.prose, tail)
			}
			for _, size := range []int{1, 3, len(tt.reply) + 1} {
				if shown := shownInPieces(tt.reply, size); shown != tt.prose {
					t.Errorf("in pieces of %d bytes %q is shown, want %q", size, shown, tt.prose)
				}
			}
		})
	}
	if _, tail := split("Yes.\n"+separator+strings.Repeat("é", maxTail), token); len(tail) > maxTail || !utf8.ValidString(tail) {
		t.Errorf("a tail of %d bytes is kept", len(tail))
	}
}

// shownInPieces returns the text that a client has at the end, if a reply arrives in pieces of a size.
func shownInPieces(reply string, size int) string {
	shown := ""
	w := &writer{observe: func(_ council.EventType, data any) {
		switch data := data.(type) {
		case council.Delta:
			shown += data.Text
		case council.Restart:
			shown = ""
		}
	}}
	w.begin("x", true, token)
	for rest := reply; rest != ""; {
		n := min(size, len(rest))
		w.write(rest[:n])
		rest = rest[n:]
	}
	prose, _ := split(reply, token)
	w.end(prose)
	return shown
}

// Only bytes that may become the separator wait, with the blanks and the fence before them.
func TestWriterShowsAtOnce(t *testing.T) {
	for _, tt := range []struct{ reply, shown string }{
		{"Yes", "Yes"},
		{"Yes. \n", "Yes."},
		{"Yes.\n=", "Yes."},
		{"Yes.\n=== M", "Yes."},
		{"Yes.\n=== N", "Yes.\n=== N"},
		{"Yes.\n```js\n", "Yes."},
		{"Yes.\n```js\nx", "Yes.\n```js\nx"},
		{"Yes.\n`x", "Yes.\n`x"},
		{"Yes.\n- x", "Yes.\n- x"},
		{"Yes.\n**N", "Yes.\n**N"},
		{"Yes.\n```\nx\n```", "Yes.\n```\nx"},
		{"Yes.\n```\nx\n```\n", "Yes.\n```\nx\n```"},
		{"Yes.\n" + separator + "\n{\"agreed\": []", "Yes."},
	} {
		shown := ""
		w := &writer{observe: func(_ council.EventType, data any) { shown += data.(council.Delta).Text }}
		w.begin("x", true, token)
		for i := range len(tt.reply) {
			w.write(tt.reply[i : i+1])
		}
		if shown != tt.shown {
			t.Errorf("of %q %q is shown, want %q", tt.reply, shown, tt.shown)
		}
	}
}

// A hostile reply takes time in proportion to its length, and what waits stays small.
func TestSplitIsLinear(t *testing.T) {
	for _, part := range []string{"\n", " ", "`", "```\n", "~~~~~~ x\n", "=== MAP 0\n", "*", "*_#>` ", `{"open":`, "é"} {
		took := growth.Linear(t, func(n int) func() {
			reply := strings.Repeat(part, n/len(part))
			return func() { split(reply, token) }
		})
		t.Logf("%q: %v", part, took)
		w := &writer{observe: func(council.EventType, any) {}}
		w.begin("x", true, token)
		for range 1 << 12 {
			w.write(part)
			if len(w.waiting) > maxHeld+2*maxFence || len(w.split.line) > 2*maxFence {
				t.Fatalf("%q: %d bytes wait, the line has %d", part, len(w.waiting), len(w.split.line))
			}
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, reply := range []string{
		"Yes.\n\n```json\n" + separator + "\n" + emptyMap, "a\n```\nb\n```\n**" + separator, "Yes.\n" + emptyMap,
		strings.Repeat("\n", maxHeld) + "=== MAP 0123", "~~~\n```\n~~~~\n" + separator,
	} {
		f.Add(reply, uint8(1), "x")
	}
	f.Fuzz(func(t *testing.T, reply string, size uint8, behind string) {
		reply = strings.ReplaceAll(reply, "$", separator)
		prose, tail := split(reply, token)
		if !strings.HasPrefix(reply, prose) || !strings.HasPrefix(reply[len(prose):], tail) || len(tail) > maxTail {
			t.Fatalf("%q is split into %q and %q", reply, prose, tail)
		}
		if shown := shownInPieces(reply, 1+int(size)); shown != prose {
			t.Fatalf("in pieces of %d bytes %q is shown, at once %q", 1+int(size), shown, prose)
		}
		// Whatever stands behind a separator, the answer before it is the same.
		whole, _ := split(reply+"\n"+separator, token)
		if more, _ := split(reply+"\n"+separator+"\n"+behind, token); more != whole {
			t.Fatalf("with %q behind the separator the answer is %q, otherwise %q", behind, more, whole)
		}
	})
}
