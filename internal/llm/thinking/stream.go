package thinking

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// maxScans limits how often a stream searches for the end of the thinking. The thinking may hold closing marks that do
// not end it, and each of these marks may cause a search. After maxScans searches, the answer is shown only when the
// whole reply has arrived.
const maxScans = 64

// Stream finds the answer in a reply that arrives in pieces. A reply that does not begin like thinking can be shown
// as it arrives.
type Stream struct {
	raw      strings.Builder
	unopened bool // nothing is shown before a closing mark: see NewStream
	from     int  // an offset in raw: all text before this offset is thinking and marks
	leading  int  // how many bytes of blanks follow in raw after the offset above
	searched int  // how many bytes after these blanks were searched and hold no end of the thinking
	scans    int  // how often the end of the thinking was searched for so far
	marked   bool // thinking or marks were left out
	shows    bool // the answer has begun, at the offset that the field from holds
	shown    int  // an offset in raw: no text after this offset is shown yet
}

// NewStream returns the stream of a reply. The argument unopened says that the model's thinking is known to have no
// opening mark (Parts.Unopened). The stream then shows nothing before the closing mark.
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
	if s.marked { // A mark may end the answer, and is not shown.
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

// End returns the parts of the whole reply. The result rest is the part of the answer that is not shown yet. If void is
// true, the text that was shown is not the beginning of the answer, and rest is the whole answer.
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

// Keep is for a caller that cannot take back what was shown. Its results replace those of End. Thinking that was shown
// is then a part of the answer.
func (s *Stream) Keep() (answer, rest string) {
	whole := s.raw.String()
	return whole[s.from:], whole[s.shown:]
}

// mayEnd reports whether a text is an end mark of an answer, or the first characters of such a mark.
func mayEnd(text string) bool {
	text = strings.TrimRight(text, " \t\r\n")
	return slices.ContainsFunc(answerEnds, func(end string) bool { return strings.HasPrefix(end, text) })
}
