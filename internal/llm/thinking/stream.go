package thinking

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// maxScans bounds how often a stream looks for the end of thinking that holds closing marks which do not end it. After that the answer
// is shown when all of the reply is there.
const maxScans = 64

// Stream finds the answer in a reply that arrives in pieces. A reply that does not begin like thinking is shown as it arrives.
type Stream struct {
	raw      strings.Builder
	unopened bool // nothing is shown before a closing mark
	from     int  // raw before it is thinking, or a mark
	leading  int  // bytes of blanks from there on
	searched int  // bytes from there on that hold no end of the thinking
	scans    int
	marked   bool // something was left out
	shows    bool // raw is the answer from there on
	shown    int  // raw from there on is not shown yet
}

// NewStream returns the stream of a reply. unopened says that the model's thinking is known to have no opening mark (Parts.Unopened):
// then nothing is shown before the closing one.
func NewStream(unopened bool) *Stream { return &Stream{unopened: unopened} }

// Len returns the length of the reply so far.
func (s *Stream) Len() int { return s.raw.Len() }

// Add adds a piece of the reply, and returns what can be shown of the answer.
func (s *Stream) Add(piece string) string {
	s.raw.WriteString(piece)
	if !s.shows && !s.decide() {
		return ""
	}
	text := s.raw.String()[s.shown:]
	if s.marked { // a mark may end the answer
		if i := strings.LastIndexByte(text, '<'); i >= 0 && len(text)-i < longest && mayEnd(text[i:]) {
			text = text[:i]
		}
	}
	s.shown += len(text)
	return text
}

// decide reports whether the answer has begun.
func (s *Stream) decide() bool {
	for {
		text := s.raw.String()[s.from:]
		s.leading += blanks(text[s.leading:])
		text = text[s.leading:]
		if !utf8.FullRuneInString(text) {
			return false
		}
		if s.searched > 0 && (s.scans > maxScans || !hasClosing(text[s.searched:])) {
			s.searched = max(s.searched, len(text)-longest)
			return false
		}
		l, _, _, end := begin(text, true)
		if l == answer && s.unopened && !s.marked {
			if _, end = unopened(text); end > 0 && len(text) > end+8 {
				l = thought
			} else {
				l = undecided
				end = max(1, len(text)-longest)
			}
		}
		switch l {
		case answer:
			if s.marked {
				s.from += s.leading
			}
			s.shows = true
			s.shown = s.from
			return true
		case undecided:
			if s.searched > 0 {
				s.scans++
			}
			s.searched = end
			return false
		default:
			s.from += s.leading + end
			s.leading = 0
			s.searched = 0
			s.scans = 0
			s.marked = true
		}
	}
}

// End returns the parts of the whole reply, and what is still to be shown of the answer. If void is set, what was shown is not the
// beginning of the answer, and all of the answer is still to be shown.
func (s *Stream) End() (p Parts, rest string, void bool) {
	p = Split(s.raw.String())
	if !s.shows {
		return p, p.Answer, false
	}
	rest, ok := strings.CutPrefix(p.Answer, s.raw.String()[s.from:s.shown])
	if !ok {
		return p, p.Answer, s.shown > s.from
	}
	return p, rest, false
}

// Keep returns what End does for a caller that cannot take back what was shown: thinking that was shown is a part of the answer.
func (s *Stream) Keep() (answer, rest string) {
	whole := s.raw.String()
	return whole[s.from:], whole[s.shown:]
}

// mayEnd reports whether a text is the mark that ends an answer, or the beginning of one.
func mayEnd(text string) bool {
	text = strings.TrimRight(text, " \t\r\n")
	return slices.ContainsFunc(answerEnds, func(end string) bool { return strings.HasPrefix(end, text) })
}
