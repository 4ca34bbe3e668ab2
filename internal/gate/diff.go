package gate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
)

// Limits of a diff, in bytes. A diff with more than MaxDiffBytes is refused. If the files to review have more than
// MaxReviewedBytes, no member is asked, and the verdict is Undecided.
const (
	MaxDiffBytes     = 8 << 20
	MaxReviewedBytes = 256 << 10
)

// maxPath is the most bytes of a path.
const maxPath = 4096

// file is one file of a diff.
type file struct {
	name   string
	old    string // the name before the change
	lines  []line
	text   string // the part of the diff about the file
	binary bool
	sides  [sides]side // see foldSides

	from, to int  // where text stands in the diff
	bare     bool // the names have no prefixes
	named    bool // the lines with the names were read
}

// line is one line of a hunk.
type line struct {
	sign byte // ' ', '+' or '-'
	at   int  // the number of the line in the new file, or for a removed line that of the line after it
	hunk int
	text string
}

// reader reads a diff. Its lines end with their line breaks.
type reader struct {
	lines []string
	next  int // the line that is read next
	at    int // where it begins in the diff
	files []*file
	file  *file // the file that is being read, or nil
}

// problem is the error of a diff that cannot be read.
func problem(format string, args ...any) []council.FieldError {
	return []council.FieldError{{
		Field: "diff", Message: fmt.Sprintf(format, args...),
		Fix: "send what git diff --no-color BASE...HEAD writes, whole and unchanged",
	}}
}

// readDiff reads the files of a unified diff. Its time is linear in the length of the diff. It ignores text between
// the files, such as the messages of commits.
func readDiff(text string) ([]*file, []council.FieldError) {
	switch {
	case len(text) > MaxDiffBytes:
		return nil, []council.FieldError{{
			Field: "diff", Message: fmt.Sprintf("it has %d bytes, %d are allowed", len(text), MaxDiffBytes),
			Fix: "review the change in parts, such as one directory each",
		}}
	case strings.TrimSpace(text) == "":
		return nil, problem("it is empty")
	case strings.Contains(text, "\x1b["):
		return nil, problem("it has the colours of a terminal")
	}
	r := &reader{lines: strings.SplitAfter(text, "\n")}
	for r.next < len(r.lines) {
		if problems := r.step(); problems != nil {
			return nil, problems
		}
	}
	if len(r.files) == 0 {
		return nil, problem("it is not a unified diff")
	}
	for _, f := range r.files {
		f.text = text[f.from:f.to]
		if f.name == "" || len(f.name) > maxPath {
			return nil, problem("the path of a file is missing or too long: %.80q", f.text)
		}
	}
	return r.files, nil
}

// peek returns line i after the next one, without its line break.
func (r *reader) peek(i int) string {
	if r.next+i >= len(r.lines) {
		return ""
	}
	return strings.TrimRight(r.lines[r.next+i], "\r\n")
}

// skip goes to the next line. If a file is being read, the line that is skipped belongs to it.
func (r *reader) skip() {
	r.at += len(r.lines[r.next])
	r.next++
	if r.file != nil {
		r.file.to = r.at
	}
}

// begin begins another file.
func (r *reader) begin() {
	r.file = &file{from: r.at}
	r.files = append(r.files, r.file)
}

// step reads the next line, or the next hunk.
func (r *reader) step() []council.FieldError {
	head := r.peek(0)
	f := r.file
	opened := f != nil && !f.named
	is := func(begin string) bool { return strings.HasPrefix(head, begin) }
	switch {
	case is("diff --cc "), is("diff --combined "), is("@@@ "):
		return problem("line %d: a combined diff of a merge cannot be read", r.next+1)
	case is("diff --git "):
		r.begin()
		r.file.header(strings.TrimPrefix(head, "diff --git "))
	case is("--- ") && strings.HasPrefix(r.peek(1), "+++ "):
		if !opened {
			r.begin()
		}
		r.file.rename(readPath(head[4:]), readPath(r.peek(1)[4:]))
		r.skip()
	case is("@@ -"):
		if f == nil || !f.named {
			return problem("line %d: a hunk stands before the name of its file", r.next+1)
		}
		return r.hunk()
	case opened && (is("rename from ") || is("copy from ")):
		_, from, _ := strings.Cut(head, " from ")
		f.old = readPath(from)
	case opened && (is("rename to ") || is("copy to ")):
		_, to, _ := strings.Cut(head, " to ")
		f.name = readPath(to)
	case opened && (is("Binary files ") || is("GIT binary patch")):
		f.binary = true
		f.named = true
	case !opened: // Text between files belongs to none of them.
		r.file = nil
	}
	r.skip()
	return nil
}

// readPath reads a path. Git quotes unusual paths. Behind a path with blanks, git writes a tab. The program diff writes
// a tab and a time.
func readPath(text string) string {
	if quoted, err := strconv.QuotedPrefix(text); err == nil && text[0] == '"' {
		text, _ = strconv.Unquote(quoted) // a quoted prefix can be unquoted
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	text, _, _ = strings.Cut(text, "\t")
	return text
}

// header reads the two names in the first line about a file. If they have blanks and differ, the line is ambiguous, and
// later lines tell the names.
func (f *file) header(names string) {
	if quoted, err := strconv.QuotedPrefix(names); err == nil && names[0] == '"' {
		f.bare = strings.TrimPrefix(names, quoted+" ") == quoted
		f.strip(readPath(quoted), readPath(strings.TrimPrefix(names, quoted+" ")))
		return
	}
	half := len(names) / 2
	if len(names)%2 == 0 || names[half] != ' ' {
		return
	}
	from, to := names[:half], names[half+1:]
	f.bare = from == to
	if f.bare || len(from) > 1 && from[1:] == to[1:] {
		f.strip(from, to)
	}
}

// rename sets the names from the two lines before the first hunk, unless the names are known from a renaming.
func (f *file) rename(from, to string) {
	f.named = true
	if f.old == "" || f.name == "" || f.old == f.name {
		f.strip(from, to)
	}
}

const noFile = "/dev/null"

// strip sets the names of a file, without git's prefixes. A prefix is a letter and a slash. The two letters differ.
func (f *file) strip(from, to string) {
	prefixed := func(name string) bool { return len(name) > 2 && name[1] == '/' }
	same := prefixed(from) && prefixed(to) && from[0] == to[0]
	cut := func(name string) string {
		if !f.bare && !same && prefixed(name) && strings.IndexByte("abciow", name[0]) >= 0 {
			return name[2:]
		}
		return name
	}
	f.old = cut(from)
	f.name = cut(to)
	if from == noFile {
		f.old = f.name
	}
	if to == noFile {
		f.name = f.old
	}
}

var hunkHead = regexp.MustCompile(`^@@ -\d{1,9}(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@`)

// hunk reads a hunk.
func (r *reader) hunk() []council.FieldError {
	begin := r.next + 1
	parts := hunkHead.FindStringSubmatch(r.peek(0))
	if parts == nil {
		return problem("line %d: the head of the hunk cannot be read", begin)
	}
	count := func(text string) int {
		if text == "" {
			return 1
		}
		n, _ := strconv.Atoi(text) // at most nine digits
		return n
	}
	from, to, at := count(parts[1]), count(parts[3]), count(parts[2])
	number := 0
	if n := len(r.file.lines); n > 0 {
		number = r.file.lines[n-1].hunk + 1
	}
	r.skip()
	for from > 0 || to > 0 {
		if r.next >= len(r.lines) || r.lines[r.next] == "" {
			return problem("the hunk at line %d is cut off", begin)
		}
		text := r.peek(0)
		sign := byte(' ') // Some programs remove the blank of an empty line.
		if text != "" {
			sign, text = text[0], text[1:]
		}
		add := line{sign: sign, at: max(at, 1), hunk: number, text: text}
		switch sign {
		case '\\':
			r.skip()
			continue
		case ' ':
			from--
			to--
			at++
		case '-':
			from--
		case '+':
			to--
			at++
		default:
			return problem("line %d: it belongs to a hunk, but does not begin with a blank, + or -", r.next+1)
		}
		if from < 0 || to < 0 {
			return problem("the hunk at line %d has more lines than its head says", begin)
		}
		r.file.lines = append(r.file.lines, add)
		r.skip()
	}
	if strings.HasPrefix(r.peek(0), `\`) { // "\ No newline at end of file"
		r.skip()
	}
	return nil
}
