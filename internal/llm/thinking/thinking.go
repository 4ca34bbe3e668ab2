// Package thinking divides the reply of a model into its thinking and its answer. Servers should send the two
// separately, but many do not. Only this package knows the marks of thinking. It divides answers, reviews and
// syntheses alike.
//
// # Marks
//
// There are three kinds of marks. The first is a tag with one of the [names], in upper or lower case: <think> ...
// </think>. The second is a pair of [tokens], exactly as they are written there: [THINK] ... [/THINK]. The third are
// the channels of the harmony format of gpt-oss: <|channel|>analysis<|message|> ... <|end|> ...
// <|channel|>final<|message|>. A server that drops such tokens leaves only "analysisWe need ... assistantfinal".
//
// # The rule
//
// A text about such marks must stay whole. To lose an answer is worse than to show thinking, so text that is in doubt
// counts as answer. Only this is thinking:
//
//  1. A block at the very beginning of the reply, and blocks that follow it directly. A block ends at the first closing
//     mark of its form that is not quoted. If all such marks are quoted, it ends at the first one that begins or ends
//     its line. If there is none, all of the reply is thinking: the model was cut off while it was thinking.
//  2. Everything before a closing mark without an opening mark, because the template of the prompt opened the block.
//     The closing mark must be the first one that is not quoted, and no opening mark of its form may stand before it.
//     It must begin its line, or come directly after a word or after the end of a sentence.
//
// A mark is quoted inside a fenced code block, inside inline code, and between quotation marks or brackets that stand
// directly around it.
//
// A mark is part of a sentence in two cases: a comma, a colon, a semicolon, a full stop or a closing bracket follows
// it, or a blank and a letter that is not a capital follow it: "</think> closes it". A closing mark of rule 2 must not
// be part of a sentence, except in the harmony format. A block of rule 1 whose closing mark is part of a sentence is
// not thinking in two cases:
//
//   - The opening mark is part of the sentence too: "<think> and </think> are tags".
//   - The block holds only a word: "<think>...</think> is".
//
// If an opening mark is never closed, the reply is still an answer if the mark is part of a sentence and the reply ends
// as a sentence does. A reply that is cut off inside its thinking seldom ends like a sentence.
//
// Blanks after thinking are removed together with the thinking. The rest is the answer. A mark at the beginning of the
// answer is removed (<|START_RESPONSE|>). If thinking or such a mark was removed, the mark that ends the answer is
// removed too (<|return|>). Otherwise the answer is unchanged.
package thinking

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parts are the parts of a reply.
type Parts struct {
	Thought  string // without its marks; "" if there is none
	Answer   string // the whole reply if there is no thinking
	Unopened bool   // the thinking has no opening mark (rule 2)
}

// form is a pair of marks.
type form struct {
	open, close string
	tag         bool // a tag, whose letters may be in upper or lower case
}

// names returns the names of tags. ByteDance's Seed and LongCat use the last two.
func names() []string {
	return []string{"think", "thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad", "seed:think", "longcat_think"}
}

// tokens returns the pairs of marks of Kimi, Cohere, Magistral, Apertus, OpenThinker, Gemma and Pangu.
func tokens() []form {
	return []form{
		{open: "◁think▷", close: "◁/think▷"},
		{open: "<|START_THINKING|>", close: "<|END_THINKING|>"},
		{open: "[THINK]", close: "[/THINK]"},
		{open: "<|inner_prefix|>", close: "<|inner_suffix|>"},
		{open: "<|begin_of_thought|>", close: "<|end_of_thought|>"},
		{open: "<|channel>", close: "<channel|>"},
		{open: "[unused16]", close: "[unused17]"},
	}
}

var pairs = tokens() //nolint:gochecknoglobals // a table that every reply is read with

// forms holds all pairs of marks: first those of the table pairs, then the tags.
var forms = func() []form { //nolint:gochecknoglobals // a table
	all := slices.Clone(pairs)
	for _, name := range names() {
		all = append(all, form{"<" + name + ">", "</" + name + ">", true})
	}
	return all
}()

const (
	harmony = -1 // the index of the harmony format, which has more than two marks
	channel = "<|channel|>"
	message = "<|message|>"
	turn    = "<|start|>assistant"
	// maxHeader limits the length of the header of a channel, in bytes.
	maxHeader = 128
	// dropped and droppedEnd are the words that remain of harmony's marks if a server drops the tokens.
	dropped, droppedEnd = "analysis", "assistantfinal"
	// maxTag is the length of the longest tag.
	maxTag = len("</longcat_think>")
	// longest is an upper bound for the length of a mark together with the text after it that decides what the mark
	// means.
	longest = 64
)

// answerBegins holds the marks that begin an answer, and answerEnds those that end one. channelEnds holds the marks
// that end a channel of the harmony format.
//
//nolint:gochecknoglobals // a table
var (
	answerBegins = []string{"<|START_RESPONSE|>", "<|begin_of_solution|>", turn}
	answerEnds   = []string{"<|END_RESPONSE|>", "<|end_of_solution|>", "<|return|>", "<|end|>"}
	channelEnds  = []string{"<|end|>", "<|start|>", "<|return|>", channel}
)

// sentenceEnds are the characters at the end of a sentence.
const sentenceEnds = ".!?…。！？؟।:;)]}*`\"'”’»"

// hasPrefix reports whether text begins with a mark.
func hasPrefix(text, mark string, anyCase bool) bool {
	if len(text) < len(mark) {
		return false
	}
	return text[:len(mark)] == mark || anyCase && strings.EqualFold(text[:len(mark)], mark)
}

// mark is one occurrence of a mark in a text.
type mark struct {
	start, end int
	form       int // the index of its form in forms, or the constant harmony
	closing    bool
	quoted     bool
	left       string // the text before the mark on its line
}

// markAt reads the mark at the beginning of text.
func markAt(text string) (m mark, ok bool) {
	if len(text) < 2 {
		return mark{}, false
	}
	if end, form, closing := tagAt(text); end > 0 {
		return mark{end: end, form: form, closing: closing}, true
	}
	switch second := text[1]; {
	case text[0] == '<' && second != '|' && second != 'c',
		text[0] == '[' && second != 'T' && second != '/' && second != 'u':
		return mark{}, false // Most brackets in code are not marks.
	}
	for i, f := range pairs {
		if strings.HasPrefix(text, f.open) {
			return mark{end: len(f.open), form: i}, true
		}
		if strings.HasPrefix(text, f.close) {
			return mark{end: len(f.close), form: i, closing: true}, true
		}
	}
	if name, end := header(text); end > 0 {
		return mark{end: end, form: harmony, closing: name == "final"}, true
	}
	return mark{}, false
}

// tagAt returns the end and the form of the tag at the beginning of text, which has two bytes or more. The end is 0
// if there is no tag.
func tagAt(text string) (end, form int, closing bool) {
	if c := text[1] | 0x20; text[0] != '<' || c != '/' && (c < 'a' || c > 'z') {
		return 0, 0, false
	}
	inner, _, ok := strings.Cut(text[1:min(len(text), maxTag)], ">")
	if !ok {
		return 0, 0, false
	}
	name, closing := strings.CutPrefix(inner, "/")
	for i := len(pairs); i < len(forms); i++ { // In forms, the tags come after the pairs.
		open := forms[i].open
		if len(open) == len("<>")+len(name) && strings.EqualFold(open[1:len(name)+1], name) {
			return len("<>") + len(inner), i, closing
		}
	}
	return 0, 0, false
}

// header reads the header of a channel at the beginning of text. It returns the name of the channel, and where the
// header ends. The end is 0 if there is no header, and -1 if the text ends before the header does.
func header(text string) (name string, end int) {
	if !strings.HasPrefix(text, channel) {
		return "", 0
	}
	inner, _, ok := strings.Cut(text[len(channel):min(len(text), maxHeader)], message)
	if !ok {
		if len(text) < maxHeader {
			return "", -1
		}
		return "", 0
	}
	name = inner
	if i := strings.IndexFunc(inner, func(r rune) bool { return !unicode.IsLetter(r) }); i >= 0 {
		name = inner[:i]
	}
	return name, len(channel) + len(inner) + len(message)
}

// each finds the marks of a text after an offset. It calls the argument yield with each mark, until yield returns
// false.
func each(text string, from int, yield func(mark) bool) {
	if strings.IndexByte(text, '<') < 0 && strings.IndexByte(text, '[') < 0 && strings.IndexByte(text, "◁"[0]) < 0 {
		// Most texts are like this.
		return
	}
	line := from   // where the line begins
	ticks := false // says that the text is inside inline code
	fence := ""    // the mark that opened the code block
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '\n':
			fence = fenced(fence, text[line:i])
			line = i + 1
			ticks = false
		case '`':
			ticks = !ticks
		case '<', '[', "◁"[0]:
			m, ok := markAt(text[i:])
			if !ok {
				continue
			}
			m.start = i
			m.end = i + m.end
			m.left = text[line:i]
			m.quoted = fence != "" || ticks || enclosed(text[:i], text[m.end:])
			if !yield(m) {
				return
			}
			i = m.end - 1
		}
	}
}

// fenced returns the mark that opened the code block around the text after a line, or "" if there is no block
// (CommonMark). The argument open is the mark that opened the code block around the line itself, or "".
func fenced(open, line string) string {
	line = strings.TrimRight(line, " \t\r")
	indent := len(line) - len(strings.TrimLeft(line, " "))
	line = line[indent:]
	if indent > 3 || line == "" || line[0] != '`' && line[0] != '~' {
		return open
	}
	rest := strings.TrimLeft(line, line[:1])
	run := line[:len(line)-len(rest)]
	switch {
	case len(run) < 3:
		return open
	case open == "":
		if run[0] == '`' && strings.Contains(rest, "`") {
			return ""
		}
		return run
	case rest == "" && strings.HasPrefix(run, open):
		return ""
	default:
		return open
	}
}

// enclosed reports whether quotation marks or brackets stand directly around a mark.
func enclosed(before, after string) bool {
	const opening, closing = "\"'“„‘‚«»‹›「『(", "\"'”“’‘»«›‹」』)"
	first, _ := utf8.DecodeLastRuneInString(before)
	last, _ := utf8.DecodeRuneInString(after)
	return before != "" && after != "" && strings.ContainsRune(opening, first) && strings.ContainsRune(closing, last)
}

// begins reports whether a mark is the first thing on its line, after at most three blanks. A line with more blanks is
// code.
func (m mark) begins() bool { return len(m.left) <= 3 && strings.Trim(m.left, " ") == "" }

// ends reports whether a mark is the last thing on its line. The argument after is the text after the mark.
func ends(after string) bool {
	after = strings.TrimLeft(after, " \t\r")
	return after == "" || after[0] == '\n'
}

// lower reports whether a text begins with a blank and then a letter that is not a capital.
func lower(text string) bool {
	if text == "" || text[0] != ' ' {
		return false
	}
	r, _ := utf8.DecodeRuneInString(text[1:])
	return unicode.IsLetter(r) && !unicode.IsUpper(r)
}

// inSentence reports whether the text after a mark continues the sentence that holds the mark.
func inSentence(after string) bool {
	return lower(after) || after != "" && strings.IndexByte(",.:;)", after[0]) >= 0
}

// endsSentence reports whether a text ends as a sentence does.
func endsSentence(text string) bool {
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, " \t\r\n"))
	return strings.ContainsRune(sentenceEnds, last)
}

// standsAfterThought reports whether a closing mark without an opening one has thinking before it (rule 2).
func (m mark) standsAfterThought(text string) bool {
	if m.form != harmony && inSentence(text[m.end:]) {
		return false
	}
	left := strings.TrimRight(m.left, " \t")
	r, _ := utf8.DecodeLastRuneInString(left)
	return m.begins() || left != "" && (len(left) == len(m.left) || strings.ContainsRune(sentenceEnds, r))
}

// unopened returns where the thinking of rule 2 ends, and where its closing mark ends. Both are 0 if there is no such
// thinking.
func unopened(text string) (thought, end int) {
	if !hasClosing(text) { // Most texts have no closing mark.
		return 0, 0
	}
	var opened []int // the forms of the opening marks so far
	each(text, 0, func(m mark) bool {
		switch {
		case m.quoted || slices.Contains(opened, m.form):
			return true
		case !m.closing:
			opened = append(opened, m.form)
			return true
		case m.standsAfterThought(text):
			thought = m.start
			end = m.end
		}
		return false
	})
	return thought, end
}

// hasClosing reports whether a text holds a mark that may end thinking, quoted or not.
func hasClosing(text string) bool {
	for rest := text; ; rest = rest[1:] {
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			break
		}
		if rest = rest[i:]; len(rest) < 2 || rest[1] != '/' && rest[1] != '|' && rest[1] != 'c' {
			continue
		}
		if m, ok := markAt(rest); ok && m.closing ||
			slices.ContainsFunc(channelEnds, func(end string) bool { return strings.HasPrefix(rest, end) }) {
			return true
		}
	}
	return strings.Contains(text, droppedEnd) || slices.ContainsFunc(pairs, func(f form) bool {
		return f.close[0] != '<' && strings.Contains(text, f.close)
	})
}

// lead says what a text begins with.
type lead int

const (
	answer    lead = iota
	thought        // thinking
	note           // a mark that begins an answer
	undecided      // more text is needed to decide
)

// begin says what a text begins with. The argument more says that more text may arrive. If the text begins with
// thinking, text[from:to] is the thinking, and text[end:] is the text after it. If the result l is undecided, the end
// of the thinking is not in text[:end], so this part need not be searched again.
func begin(text string, more bool) (l lead, from, to, end int) {
	if text == "" && more {
		return undecided, 0, 0, 0
	}
	for i, f := range forms {
		if hasPrefix(text, f.open, f.tag) {
			return block(text, i, more)
		}
		if more && isPartOf(text, f.open, f.tag) {
			return undecided, 0, 0, 0
		}
	}
	for _, mark := range answerBegins {
		if strings.HasPrefix(text, mark) {
			return note, 0, 0, len(mark)
		}
		if more && isPartOf(text, mark, false) {
			return undecided, 0, 0, 0
		}
	}
	if l, from, to, end = channelOf(text, more); l != answer {
		return l, from, to, end
	}
	return droppedOf(text, more)
}

// droppedOf does what begin does, for a text that begins with the constant dropped: the word that is left of the
// harmony format's first marks if a server drops its tokens. Any other text counts as an answer.
func droppedOf(text string, more bool) (l lead, from, to, end int) {
	rest, ok := strings.CutPrefix(text, dropped)
	switch { // Only a mark that arrives in one piece counts, because other words begin like this, too.
	case !ok:
		return answer, 0, 0, 0
	case rest == "" && more:
		return undecided, 0, 0, max(0, len(text)-longest)
	case rest == "" || rest[0] < 'A' || rest[0] > 'Z':
		return answer, 0, 0, 0
	}
	if inner, _, ok := strings.Cut(rest, droppedEnd); ok {
		to := len(dropped) + len(inner)
		return thought, len(dropped), to, to + len(droppedEnd)
	}
	if more {
		return undecided, 0, 0, max(0, len(text)-longest)
	}
	return answer, 0, 0, 0
}

// isPartOf reports whether a text is only the beginning of a mark.
func isPartOf(text, mark string, anyCase bool) bool {
	return len(text) < len(mark) && hasPrefix(mark, text, anyCase)
}

// channelOf does what begin does, for a text that begins with a channel of the harmony format. Any other text counts
// as an answer.
func channelOf(text string, more bool) (l lead, from, to, end int) {
	switch name, end := header(text); {
	case name == "final":
		return note, 0, 0, end
	case end > 0:
		if to, next, ok := channelEnd(text, end); ok {
			return thought, end, to, next
		}
		if more {
			return undecided, 0, 0, max(end, len(text)-longest)
		}
		return thought, end, len(text), len(text)
	case more && (end < 0 || isPartOf(text, channel, false)):
		return undecided, 0, 0, 0
	case end < 0:
		return thought, len(channel), len(text), len(text)
	default:
		return answer, 0, 0, 0
	}
}

// channelEnd returns where a channel ends, and where the text after the channel begins. The argument from is the
// offset at which the text of the channel begins.
func channelEnd(text string, from int) (end, next int, ok bool) {
	for i := from; i < len(text); i++ {
		if text[i] != '<' {
			continue
		}
		for _, mark := range channelEnds {
			if !strings.HasPrefix(text[i:], mark) {
				continue
			}
			if mark == channelEnds[0] { // all other marks belong to the text after the channel
				return i, i + len(mark), true
			}
			return i, i, true
		}
	}
	return 0, 0, false
}

// block does what begin does, for a text that begins with the opening mark of a form. The argument of is the index of
// that form.
func block(text string, of int, more bool) (l lead, from, to, end int) {
	from = len(forms[of].open)
	closing, atEdge := closingMarks(text, of, from)
	if more && (closing.end == 0 || len(text) < closing.end+1+utf8.UTFMax) {
		// The text after the mark decides whether the mark is quoted, or part of a sentence.
		if closing.end == 0 {
			return undecided, 0, 0, max(from, len(text)-longest)
		}
		return undecided, 0, 0, closing.start
	}
	if closing.end == 0 {
		closing = atEdge
	}
	if closing.end == 0 {
		if lower(text[from:]) && endsSentence(text) {
			return answer, 0, 0, 0
		}
		return thought, from, len(text), len(text)
	}
	inner := text[from:closing.start]
	word := strings.TrimSpace(inner)
	short := word != "" && (!strings.ContainsAny(word, " \t\r\n") || !strings.ContainsFunc(word, unicode.IsLetter))
	if inSentence(text[closing.end:]) && (lower(inner) || short && !strings.Contains(inner, "\n")) {
		return answer, 0, 0, 0
	}
	return thought, from, closing.start, closing.end
}

// closingMarks looks for closing marks of one form after an offset. The argument of is the index of the form. The
// result unquoted is the first mark that is not quoted. The result atEdge is the first quoted mark before unquoted that
// begins or ends its line. A mark that is not found is zero.
func closingMarks(text string, of, from int) (unquoted, atEdge mark) {
	each(text, from, func(m mark) bool {
		if m.form != of || !m.closing {
			return true
		}
		switch {
		case !m.quoted:
			unquoted = m
		case atEdge.end == 0 && (m.begins() || ends(text[m.end:])):
			atEdge = m
		}
		return m.quoted
	})
	return unquoted, atEdge
}

// blanks returns how many bytes of blanks and invisible marks a text begins with.
func blanks(text string) int {
	return len(text) - len(strings.TrimLeftFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || r == '\uFEFF' || r == '\u200B'
	}))
}

// Split returns the parts of a reply. The time that Split takes grows in proportion to the length of the reply.
func Split(reply string) Parts {
	var thoughts []string
	rest := reply
	marked := false
	nested := 0 // how many opening marks the thinking holds
	for {
		text := rest[blanks(rest):]
		l, from, to, end := begin(text, false)
		// This block of thinking is not closed, so only a closing mark of another form can end it.
		if l == thought && end == len(text) && to == end {
			if to, end := unopened(text); end > 0 {
				thoughts = append(thoughts, text[from:to])
				rest = text[end:]
				marked = true
				break
			}
		}
		if l == answer {
			break
		}
		if l == thought {
			thoughts = append(thoughts, text[from:to])
			nested += inner(text[from:to])
		}
		rest = text[end:]
		marked = true
	}
	p := Parts{Answer: rest}
	if !marked || nested > 0 {
		if to, end := unopened(rest); end > 0 {
			p.Unopened = !marked
			thoughts = append(thoughts, rest[:to])
			p.Answer = rest[end:]
			marked = true
		}
	}
	if marked {
		p.Answer = withoutEnd(p.Answer[blanks(p.Answer):])
	}
	for i := range thoughts {
		thoughts[i] = strings.TrimSpace(thoughts[i])
	}
	p.Thought = strings.TrimSpace(strings.Join(thoughts, "\n\n"))
	return p
}

// inner counts the opening marks in thinking that are not quoted.
func inner(text string) (n int) {
	each(text, 0, func(m mark) bool {
		if !m.closing && !m.quoted {
			n++
		}
		return true
	})
	return n
}

// withoutEnd returns an answer without the mark that ends it.
func withoutEnd(text string) string {
	for _, end := range answerEnds {
		if short, ok := strings.CutSuffix(strings.TrimRight(text, " \t\r\n"), end); ok {
			return short
		}
	}
	return text
}

// Outside returns a text without its blocks of thinking, wherever they stand. A block that is not closed and begins
// its line extends to the end of the text. Use Outside only for texts that are searched and not shown, because a
// block may be an example that belongs to the answer.
func Outside(text string) string {
	last := map[int]int{} // for each form, where its last closing mark begins
	marked := false
	each(text, 0, func(m mark) bool {
		marked = true
		if m.closing && !m.quoted {
			last[m.form] = m.start
		}
		return true
	})
	if !marked {
		return text
	}
	var kept strings.Builder
	from := 0
	open := 0
	hides := false
	each(text, 0, func(m mark) bool {
		switch {
		case m.quoted:
		case hides:
			if m.closing && m.form == open {
				from = m.end
				hides = false
			}
		case !m.closing && (m.start < last[m.form] || m.begins()):
			kept.WriteString(text[from:m.start])
			from = len(text)
			open = m.form
			hides = true
		}
		return true
	})
	kept.WriteString(text[from:])
	return kept.String()
}
