package stage3

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

const (
	// maxHeld is how many bytes may wait for the separator: blanks, and the line of a code fence.
	maxHeld = 4096
	// maxMarks is how many blanks and marks of emphasis may stand before the separator on its line.
	maxMarks = 16
	// maxFence is the longest line that can open or close a code block.
	maxFence = 64
	// maxTail is how many bytes of a tail are kept. A map with the longest allowed quotes has fewer.
	maxTail = 64 << 10
	// enough is how many digits of the token are needed if the reply ends in the middle of the separator.
	enough = 4
)

// separatorWord begins the line between the answer and the map. The token of the prompt follows.
const separatorWord = "=== MAP "

// splitter finds the end of the answer in a reply that ends with a map, byte by byte. Its result depends only on the
// bytes, not on the pieces in which they arrive.
//
// The answer ends before the line of the separator. Blanks before this line do not belong to the answer, and neither
// does a code fence that opens there. A fence that closes a code block of the answer belongs to the answer.
type splitter struct {
	separator []byte
	read      int // how many bytes were added
	// prose is how many bytes certainly belong to the answer. The bytes from prose to read may be the end of the
	// answer, or stand before the separator.
	prose int
	found bool // the separator was found: all other bytes are the tail

	start int    // where the line begins
	line  []byte // the line so far, if it may still be a separator or a fence
	plain bool   // the line is certainly no separator and no fence
	fence []byte // the marks that opened the code block, or nil outside a code block
}

func newSplitter(token string) *splitter { return &splitter{separator: []byte(separatorWord + token)} }

// add adds the next byte of the reply.
func (s *splitter) add(c byte) {
	if s.found {
		return
	}
	s.read++
	if c == '\n' {
		s.endLine()
		return
	}
	if s.plain {
		if !isBlank(c) || s.read-s.prose > maxHeld {
			s.prose = s.read
		}
		return
	}
	s.line = append(s.line, c)
	rest, ok := s.unmarked()
	switch {
	case ok && bytes.HasPrefix(rest, s.separator):
		s.found = true
	case ok && bytes.HasPrefix(s.separator, rest), s.mayBeFence():
	default:
		s.plain = true
		s.keepLine()
	}
}

// endLine handles the end of a line.
func (s *splitter) endLine() {
	marks := s.fenceMarks()
	switch {
	case s.plain:
	case len(marks) < 3 || !s.mayBeFence():
		s.keepLine()
	case s.fence == nil:
		s.fence = bytes.Clone(marks) // It waits: the separator may follow.
	default:
		s.keepLine()
		if marks[0] == s.fence[0] && len(marks) >= len(s.fence) && s.isOnly(marks) {
			s.fence = nil
		}
	}
	s.start = s.read
	s.line = s.line[:0]
	s.plain = false
	if s.read-s.prose > maxHeld {
		s.prose = s.read
	}
}

// keepLine says that the line belongs to the answer up to its last byte that is not blank.
func (s *splitter) keepLine() {
	if n := len(bytes.TrimRight(s.line, blanks)); n > 0 {
		s.prose = s.start + n
	}
}

// unmarked returns the line without the blanks and marks at its beginning. It returns false if there are too many.
func (s *splitter) unmarked() ([]byte, bool) {
	rest := bytes.TrimLeft(s.line, blanks+"*_#>`")
	return rest, len(s.line)-len(rest) <= maxMarks
}

// fenceMarks returns the marks of a code fence at the beginning of the line.
func (s *splitter) fenceMarks() []byte {
	marks := bytes.TrimLeft(s.line, " ")
	if len(s.line)-len(marks) > 3 || len(marks) == 0 || marks[0] != '`' && marks[0] != '~' {
		return nil
	}
	return marks[:len(marks)-len(bytes.TrimLeft(marks, string(marks[:1])))]
}

// isOnly reports whether the line holds nothing but these marks.
func (s *splitter) isOnly(marks []byte) bool { return bytes.Equal(bytes.Trim(s.line, blanks), marks) }

// mayBeFence reports whether the line so far is a code fence, or can become one.
func (s *splitter) mayBeFence() bool {
	marks := s.fenceMarks()
	_, info, _ := bytes.Cut(s.line, marks)
	switch {
	case len(marks) == 0 || len(s.line) > maxFence:
		return false
	case len(marks) < 3:
		return len(info) == 0
	default:
		return marks[0] == '~' || bytes.IndexByte(info, '`') < 0
	}
}

// end handles the end of the reply. A separator that is cut off is one too, if it has a part of its token.
func (s *splitter) end() {
	if s.found || s.plain {
		return
	}
	rest, ok := s.unmarked()
	s.found = ok && len(rest) >= len(separatorWord)+enough && bytes.HasPrefix(s.separator, rest)
}

const blanks = " \t\r"

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

// split returns the answer of a whole reply, and the tail behind it. The tail is "" if the reply has no map.
func split(reply, token string) (prose, tail string) {
	s := newSplitter(token)
	for i := 0; i < len(reply) && !s.found; i++ {
		s.add(reply[i])
	}
	s.end()
	end := s.prose
	if !s.found {
		end = withoutTail(reply)
	}
	return reply[:end], cutTail(reply[end:])
}

// cutTail returns at most maxTail bytes of a tail.
func cutTail(tail string) string {
	if len(tail) <= maxTail {
		return tail
	}
	end := maxTail
	for end > 0 && !utf8.RuneStart(tail[end]) {
		end--
	}
	return tail[:end]
}

// mapBegins matches the beginning of a map. No object inside a map begins like this.
var mapBegins = regexp.MustCompile(`\{\s*"(?:agreed|disputed|only_one_said|open)"\s*:`)

// withoutTail returns where the answer of a reply without a separator ends. That is before a whole map at the end of
// the reply, if there is one and an answer stands before it.
func withoutTail(reply string) int {
	last := max(0, len(reply)-maxTail)
	begins := mapBegins.FindAllStringIndex(reply[last:], -1)
	if len(begins) == 0 {
		return len(reply)
	}
	begin := last + begins[len(begins)-1][0]
	_, behind, reason := readTail(reply[begin:])
	if behind = strings.TrimSpace(behind); reason != "" || strings.Trim(behind, "`~") != "" {
		return len(reply)
	}
	before := trimEnd(reply[:begin])
	if behind != "" {
		before = withoutLine(before, func(line string) bool { return strings.HasPrefix(line, behind) })
	}
	before = withoutLine(before, func(line string) bool { return strings.Contains(line, strings.TrimSpace(separatorWord)) })
	if strings.TrimSpace(before) == "" {
		return len(reply)
	}
	return len(before)
}

// withoutLine removes the last line of a text and the blanks before it, if the function matches accepts that line.
func withoutLine(text string, matches func(line string) bool) string {
	begin := strings.LastIndexByte(text, '\n') + 1
	if matches(strings.TrimSpace(text[begin:])) {
		return trimEnd(text[:begin])
	}
	return text
}

func trimEnd(text string) string { return strings.TrimRight(text, blanks+"\n") }

// writer shows the answer while the reply of a chairman arrives.
type writer struct {
	observe func(council.EventType, any) // nil if the answer is not shown
	model   string                       // the id of the chairman
	shown   bool                         // observe has received text since the last EventRestart

	split   *splitter // nil if the reply has no map
	waiting []byte    // what was not shown yet, because a separator may follow
	sent    int       // how many bytes of the reply were shown
}

// begin prepares the writer for the reply of a chairman.
func (w *writer) begin(model string, withMap bool, token string) {
	w.model = model
	w.split = nil
	if withMap {
		w.split = newSplitter(token)
	}
	w.waiting = nil
	w.sent = 0
}

// write takes the next piece of the reply.
func (w *writer) write(piece string) {
	if w.split == nil {
		w.sent += len(piece)
		w.show(piece)
		return
	}
	for i := 0; i < len(piece) && !w.split.found; i++ {
		w.split.add(piece[i])
		w.waiting = append(w.waiting, piece[i])
	}
	n := w.split.prose - w.sent
	w.show(string(w.waiting[:n]))
	w.sent += n
	if w.waiting = w.waiting[n:]; w.split.found {
		w.waiting = nil
	}
}

// end shows what is left of an answer with a map. If more than the answer was shown, the answer is shown again.
func (w *writer) end(prose string) {
	if w.observe == nil || w.split == nil {
		return
	}
	if w.sent > len(prose) {
		w.restart(council.FailMap)
		w.sent = 0
	}
	w.show(prose[w.sent:])
	w.sent = len(prose)
}

func (w *writer) show(text string) {
	if w.observe == nil || text == "" {
		return
	}
	w.shown = true
	w.observe(council.EventDelta, council.Delta{Text: text})
}

func (w *writer) restart(reason council.FailureCode) {
	w.observe(council.EventRestart, council.Restart{Model: w.model, Reason: reason})
	w.shown = false
}
