package gate

import (
	"fmt"
	"strings"
	"testing"
)

// twoFiles is a diff in which some lines stand at several places.
const twoFiles = `--- a/store/index.go
+++ b/store/index.go
@@ -10,4 +10,5 @@
 	for _, e := range entries {
-		total += e.size
+		total += int32(e.size)
+		entries = entries[1:]
 		defer e.close()
 	}
@@ -80,2 +82,3 @@
 	for _, e := range entries {
+		total += int32(e.size)
 	}
--- a/store/list.md
+++ b/store/list.md
@@ -1,2 +1,3 @@
 - the first thing
+- the second thing
-- the third thing
+	only here,   once
`

func TestLocate(t *testing.T) {
	c := changeOf(t, twoFiles+"--- a/long.txt\n+++ b/long.txt\n@@ -0,0 +1 @@\n+"+strings.Repeat("word ", maxQuote/5)+"word\n")
	const index, list = "store/index.go", "store/list.md"
	for _, tt := range []struct {
		name, file, quote string
		line              int
		want              string // the file, the lines and the quote; "" if there is no place
	}{
		{"a line", index, "entries = entries[1:]", 12, "index.go 12-12 entries = entries[1:]"},
		{"with a sign", index, "+\t\tentries = entries[1:]", 12, "index.go 12-12 entries = entries[1:]"},
		{"part of a line", index, "entries = entries[1", 12, "index.go 12-12 entries = entries[1:]"},
		{"other blanks", index, "entries   =\tentries[1:]  ", 12, "index.go 12-12 entries = entries[1:]"},
		{"the line has drifted", index, "entries = entries[1:]", 99, "index.go 12-12 entries = entries[1:]"},
		{"a run", index, "entries = entries[1:]\n\t\tdefer e.close()", 12, "index.go 12-13 entries = entries[1:]|defer e.close()"},
		{"a run that skips the removed line", index, "for _, e := range entries {\ntotal += int32(e.size)", 10, "index.go 10-11 for _, e := range entries {|total += int32(e.size)"},
		{"a run with the removed line", index, "-\t\ttotal += e.size\n+\t\ttotal += int32(e.size)", 10, "index.go 11-11 total += e.size|total += int32(e.size)"},
		{"a run of the old file", index, "total += e.size\ndefer e.close()", 10, "index.go 13-13 total += e.size|defer e.close()"},
		{"a removed line", index, "total += e.size", 11, "index.go 11-11 total += e.size removed"},
		{"the line chooses the first place", index, "total += int32(e.size)", 20, "index.go 11-11 total += int32(e.size)"},
		{"the line chooses the second place", index, "total += int32(e.size)", 70, "index.go 83-83 total += int32(e.size)"},
		{"a run of two hunks", index, "defer e.close()\n}\nfor _, e := range entries {", 12, ""},
		{"lines left out between", index, "for _, e := range entries {\nentries = entries[1:]", 12, ""},
		{"invented", index, "entries = entries[2:]", 12, ""},
		{"too short", index, "e.close()", 12, ""},
		{"too short without blanks", index, "}          }", 12, ""},
		{"empty", index, "", 12, ""},
		{"too long", "long.txt", strings.Repeat("word ", maxQuote/5) + "word", 1, ""},
		{"as long as allowed", "long.txt", strings.Repeat("word ", maxQuote/5), 1, "long.txt 1-1 " + strings.TrimSpace(strings.Repeat("word ", maxQuote/5))},
		{"a list of Markdown", list, "- the second thing", 2, "list.md 2-2 - the second thing"},
		{"a list of Markdown with a sign", list, "+- the second thing", 2, "list.md 2-2 - the second thing"},
		{"a removed item", list, "-- the third thing", 3, "list.md 3-3 - the third thing removed"},
		{"once in another file", index, "only here, once", 1, "list.md 3-3 only here,   once"},
		{"no such file", "nowhere.go", "only here, once", 1, "list.md 3-3 only here,   once"},
		{"twice in another file", list, "total += int32(e.size)", 11, ""},
		{"a name with a prefix", "b/store/list.md", "only here, once", 1, "list.md 3-3 only here,   once"},
		{"a control character", index, "entries =\x00 entries[1:]", 1, "index.go 12-12 entries = entries[1:]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, at, ok := c.locate(tt.file, tt.quote, tt.line)
			got := ""
			if ok {
				lines := strings.Split(f.quote(at), "\n")
				for i := range lines {
					lines[i] = strings.TrimSpace(lines[i])
				}
				got = fmt.Sprintf("%s %d-%d %s", strings.TrimPrefix(f.name, "store/"), f.start(at), f.end(at), strings.Join(lines, "|"))
				if f.removed(at) {
					got += " removed"
				}
			}
			if got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// The fingerprint stays the same when the lines move, and when other lines change. It differs for another file and
// another line, and counts equal lines.
func TestFingerprint(t *testing.T) {
	of := func(diff, quote string, line int) string {
		c := changeOf(t, diff)
		f, at, ok := c.locate(c.files[0].name, quote, line)
		if !ok {
			t.Fatalf("%q has no place", quote)
		}
		return f.fingerprint(at)
	}
	const quote = "total += int32(e.size)"
	first, second := of(twoFiles, quote, 11), of(twoFiles, quote, 83)
	if first[:16] != second[:16] || first[16:] != ":1" || second[16:] != ":2" || !isFingerprint.MatchString(first) {
		t.Errorf("equal lines have the fingerprints %s and %s", first, second)
	}
	moved := strings.NewReplacer("@@ -10,4 +10,5 @@", "@@ -310,4 +410,5 @@", "@@ -80,2 +82,3 @@", "@@ -580,2 +682,3 @@",
		"entries[1:]", "entries[2:]", "\t\ttotal += int32", "    total  += int32").Replace(twoFiles)
	if got := of(moved, quote, 411); got != first {
		t.Errorf("after the lines moved: %s, before: %s", got, first)
	}
	if got := of(twoFiles, "+= int32(e.size)", 11); got != first {
		t.Errorf("of a part of the line: %s, of the line: %s", got, first)
	}
	for name, other := range map[string]string{
		"another line": of(twoFiles, "entries = entries[1:]", 12),
		"another file": of(strings.ReplaceAll(twoFiles, "index.go", "other.go"), quote, 11),
	} {
		if other == first {
			t.Errorf("%s has the same fingerprint", name)
		}
	}
}
