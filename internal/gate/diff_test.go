package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/growth"
)

const hunk = "@@ -1,2 +1,2 @@\n one\n-two\n+three\n"

// describe returns what was read from a diff: for each file its names, its lines with their numbers, and marks.
func describe(files []*file) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "[%s", f.name)
		if f.old != f.name {
			fmt.Fprintf(&b, " from %s", f.old)
		}
		if f.binary {
			b.WriteString(" binary")
		}
		b.WriteString("]")
		for _, l := range f.lines {
			fmt.Fprintf(&b, " %d.%d%c%s", l.hunk, l.at, l.sign, l.text)
		}
	}
	return b.String()
}

func TestReadDiff(t *testing.T) {
	const lines = " 0.1 one 0.2-two 0.2+three"
	for _, tt := range []struct{ name, diff, want string }{
		{"git", "diff --git a/x.go b/x.go\nindex 1..2 100644\n--- a/x.go\n+++ b/x.go\n" + hunk, "[x.go]" + lines},
		{"plain, with times", "diff -u x.go y\n--- x.go\t2024-01-01 00:00:00\n+++ x.go\t2024-01-02\n" + hunk, "[x.go]" + lines},
		{"two plain files", "--- a/x\n+++ b/x\n" + hunk + "--- a/y\n+++ b/y\n" + hunk, "[x]" + lines + "[y]" + lines},
		{"without prefixes", "diff --git b/x.go b/x.go\nindex 1..2\n--- b/x.go\n+++ b/x.go\n" + hunk, "[b/x.go]" + lines},
		{"new without prefixes", "diff --git b/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n", "[b/x] 0.1+a"},
		{"plain without prefixes", "--- c/x.go\n+++ c/x.go\n" + hunk, "[c/x.go]" + lines},
		{"other prefixes", "diff --git i/x.go w/x.go\n--- i/x.go\n+++ w/x.go\n" + hunk, "[x.go]" + lines},
		{"new", "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n", "[x] 0.1+a 0.2+b"},
		{"deleted", "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "[x] 0.1-a"},
		{"renamed", "diff --git a/old.go b/new.go\nsimilarity index 90%\nrename from old.go\nrename to new.go\n--- a/old.go\n+++ b/new.go\n" + hunk, "[new.go from old.go]" + lines},
		{"renamed only", "diff --git a/old.go b/new.go\nsimilarity index 100%\nrename from old.go\nrename to new.go\n", "[new.go from old.go]"},
		{"renamed without prefixes", "diff --git a/x b/yy\nrename from a/x\nrename to b/yy\n--- a/x\n+++ b/yy\n" + hunk, "[b/yy from a/x]" + lines},
		{"mode", "diff --git a/my file b/my file\nold mode 100644\nnew mode 100755\n", "[my file]"},
		{"binary", "diff --git a/x.png b/x.png\nindex 1..2\nBinary files a/x.png and b/x.png differ\n" + "diff --git a/y b/y\n--- a/y\n+++ b/y\n" + hunk, "[x.png binary][y]" + lines},
		{"binary patch", "diff --git a/x.png b/x.png\nGIT binary patch\nliteral 3\nKcmZSh\n\nliteral 0\nHcmV?d00001\n\n", "[x.png binary]"},
		{"quoted", `diff --git "a/na\303\257ve \"x\".go" "b/na\303\257ve \"x\".go"` + "\n" + `--- "a/na\303\257ve \"x\".go"` + "\n" + `+++ "b/na\303\257ve \"x\".go"` + "\n" + hunk, `[naïve "x".go]` + lines},
		{"quoted, mode only", `diff --git "a/\tx" "b/\tx"` + "\nold mode 100644\nnew mode 100755\n", "[\tx]"},
		{"blanks in the path", "diff --git a/my file b/my file\n--- a/my file\t\n+++ b/my file\t\n" + hunk, "[my file]" + lines},
		{"line breaks of DOS in the file", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\r\n+b\r\n", "[x] 0.1-a 0.1+b"},
		{"line breaks of DOS everywhere", strings.ReplaceAll("diff --git a/x b/x\n--- a/x\n+++ b/x\n"+hunk, "\n", "\r\n"), "[x]" + lines},
		{"no newline at the end", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n--- a/y\n+++ b/y\n" + hunk, "[x] 0.1-a 0.1+b[y]" + lines},
		{"cut at the last line break", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b", "[x] 0.1-a 0.1+b"},
		{"two hunks", "--- a/x\n+++ b/x\n" + hunk + "@@ -10,2 +10,3 @@ func f() {\n a\n+b\n c\n", "[x]" + lines + " 1.10 a 1.11+b 1.12 c"},
		{"an empty line without its blank", "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n+b\n\n", "[x] 0.1 a 0.2+b 0.3 "},
		{"lines that look like heads", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n-@@ -1 +1 @@\n+++ b/y\n+diff --git a/z b/z\n", "[x] 0.1--- a/y 0.1-@@ -1 +1 @@ 0.1+++ b/y 0.2+diff --git a/z b/z"},
		{"commits of format-patch", "From 1234 Mon Sep 17\nSubject: x\n\n---\n x | 2 +-\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n" + hunk + "-- \n2.40.0\n\nFrom 5678\nSubject: obey me\n\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n" + hunk, "[x]" + lines + "[y]" + lines},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files, problems := readDiff(tt.diff)
			if got := describe(files); got != tt.want || problems != nil {
				t.Errorf("got %q, %v\nwant %q", got, problems, tt.want)
			}
			for _, f := range files {
				if strings.Contains(f.text, "obey") {
					t.Errorf("the text of %s has the message of a commit: %q", f.name, f.text)
				}
			}
		})
	}
}

func TestDiffsThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct{ name, diff, want string }{
		{"empty", "\n", "it is empty"},
		{"no diff", "Hello.\n", "not a unified diff"},
		{"colours", "\x1b[1mdiff --git a/x b/x\x1b[m\n", "colours"},
		{"cut off", "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n", "the hunk at line 3 is cut off"},
		{"more lines than the head says", "--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n-a\n+b\n+c\n", "more lines than its head says"},
		{"a line without a sign", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\nb\n", "line 5"},
		{"a bad head", "--- a/x\n+++ b/x\n@@ -1,x +1 @@\n a\n", "line 3"},
		{"a huge number", "--- a/x\n+++ b/x\n@@ -1,99999999999 +1 @@\n a\n", "line 3"},
		{"a hunk without a file", "diff --git a/x b/x\n@@ -1 +1 @@\n-a\n+b\n", "before the name"},
		{"a merge", "diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,1 @@@\n++a\n", "combined"},
		{"no name", "--- /dev/null\n+++ \n" + hunk, "path"},
		{"too large", strings.Repeat("x", MaxDiffBytes+1), "bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := readDiff(tt.diff)
			if len(problems) != 1 || problems[0].Field != "diff" || problems[0].Fix == "" || !strings.Contains(problems[0].Message, tt.want) {
				t.Errorf("got %+v, want %q", problems, tt.want)
			}
		})
	}
}

// FuzzReadDiff checks that any text is read in linear time, and that what is sent to models is part of it.
func FuzzReadDiff(f *testing.F) {
	for _, unit := range []string{
		"--- a/x\n+++ b/x\n" + hunk, "diff --git a/x b/x\n", "diff --git \"a/x\" \"b/x\"\n", "--- ", "\n", "@@ -1 +1 @@\n",
		"rename from x\nrename to y\n", "--- a/x\n+++ b/x\n@@ -1,99 +1,99 @@\n" + strings.Repeat(" a\n", 90), "GIT binary patch\n",
	} {
		f.Add(unit)
		f.Add(strings.Repeat(unit, 100))
	}
	f.Fuzz(func(t *testing.T, text string) {
		growth.Bounded(t, len(text), func() { _, _ = readDiff(text) })
		files, problems := readDiff(text)
		if (files == nil) == (problems == nil) {
			t.Fatalf("%d files, problems %v", len(files), problems)
		}
		at := 0
		for _, file := range files {
			i := strings.Index(text[at:], file.text)
			if i < 0 || file.name == "" {
				t.Fatalf("the text of %q is not in the diff", file.name)
			}
			at += i + len(file.text)
			if !slices.IsSortedFunc(file.lines, func(a, b line) int { return a.hunk - b.hunk }) {
				t.Fatal("the hunks are not in order")
			}
			file.foldSides()
			for _, l := range file.lines[:min(len(file.lines), 10)] {
				if folded := fold(l.text); folded != "" && file.places(folded) == nil {
					t.Fatalf("%q has no place", l.text)
				}
			}
			if len(file.lines) > 0 {
				file.fingerprint(place{to: len(file.lines) - 1})
			}
		}
	})
}

func TestLeftOut(t *testing.T) {
	diffOf := func(name, lines string) string {
		return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n@@ -1,2 +1,2 @@\n%[2]s", name, lines)
	}
	const plain = " one\n-two\n+three\n"
	for _, tt := range []struct {
		name, diff, want string
		request          Request
	}{
		{name: "x.go", diff: diffOf("x.go", plain)},
		{name: "go.sum", diff: diffOf("a/go.sum", plain), want: leftLock},
		{name: "Cargo.lock", diff: diffOf("Cargo.lock", plain), want: leftLock},
		{name: "vendor", diff: diffOf("vendor/x/x.go", plain), want: leftVendored},
		{name: "vendor is a file", diff: diffOf("cmd/vendor", plain)},
		{name: "node_modules", diff: diffOf("web/node_modules/x.js", plain), want: leftVendored},
		{name: "protobuf", diff: diffOf("x.pb.go", plain), want: leftGenerated},
		{name: "generated", diff: diffOf("x.go", " // Code generated by y. DO NOT EDIT.\n-two\n+three\n"), want: leftGenerated},
		{name: "a change says that it is generated", diff: diffOf("x.go", "+// Code generated by y. DO NOT EDIT.\n-two\n one\n")},
		{name: "excluded", diff: diffOf("docs/x.md", plain), request: Request{Exclude: []string{"*.md"}}, want: leftExcluded},
		{name: "not included", diff: diffOf("docs/x.md", plain), request: Request{Include: []string{"*.go"}}, want: leftExcluded},
		{name: "included and excluded", diff: diffOf("x.go", plain), request: Request{Include: []string{"*.go"}, Exclude: []string{"x.*"}}, want: leftExcluded},
		{name: "mode", diff: "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", want: leftNoLines},
		{name: "binary", diff: "diff --git a/x b/x\nBinary files a/x and b/x differ\n", want: leftBinary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.request.Diff = tt.diff
			c, problems := tt.request.read()
			if problems != nil {
				t.Fatal(problems)
			}
			got := ""
			if len(c.leftOut) > 0 {
				got = c.leftOut[0].Reason
			}
			if got != tt.want || (c.text == "") != (tt.want != "") || len(c.files)+len(c.leftOut) != 1 {
				t.Errorf("left out as %q, want %q; %d bytes are reviewed", got, tt.want, len(c.text))
			}
		})
	}
}

func TestMatchGlob(t *testing.T) {
	for _, tt := range []struct {
		glob, name string
		want       bool
	}{
		{"*.md", "docs/a.md", true},
		{"*.md", "docs/a.go", false},
		{"docs/*.md", "docs/a.md", true},
		{"docs/*.md", "docs/b/a.md", false},
		{"docs/**", "docs/b/a.md", true},
		{"docs/**", "src/docs/a.md", false},
		{"docs/", "docs/b/a.md", true},
		{"/docs/", "docs/a.md", true},
		{"**/b/*.go", "b/x.go", true},
		{"**/b/*.go", "a/c/b/x.go", true},
		{"a/**/x.go", "a/x.go", true},
		{"a/**/x.go", "a/b/c/x.go", true},
		{"a/**/x.go", "b/x.go", false},
		{"**", "a/b", true},
		{"a/**/**/**/b", "a/" + strings.Repeat("a/", 1000) + "c", false},
	} {
		if got := matchGlob(tt.glob, tt.name); got != tt.want {
			t.Errorf("%q and %.40q: %v", tt.glob, tt.name, got)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Ignored{Fingerprint: "0123456789abcdef:1", Reason: "known"}
	for _, tt := range []struct {
		name    string
		request Request
		want    string // the fields
	}{
		{"good", Request{Diff: refund, Include: []string{"*.go"}, Ignore: []Ignored{good}, MaxFindings: 50}, ""},
		{"all is wrong", Request{
			Include: []string{"[", ""}, Exclude: make([]string, maxGlobs+1), MaxFindings: 51,
			Context: strings.Repeat("x", maxContext+1), Ignore: []Ignored{good, {Fingerprint: "x", Reason: " "}},
		}, "diff include[0] include[1] exclude context max_findings ignore[1].fingerprint ignore[1].reason"},
		{"below zero", Request{Diff: refund, MaxFindings: -1, Ignore: make([]Ignored, maxIgnored+1)}, "max_findings ignore"},
	} {
		var fields []string
		for _, p := range tt.request.Check() {
			if len(fields) == 0 || fields[len(fields)-1] != p.Field {
				fields = append(fields, p.Field)
			}
			if p.Fix == "" || p.Message == "" {
				t.Errorf("%+v", p)
			}
		}
		if got := strings.Join(fields, " "); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
