package anonymize

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// Relabel rewrites the labels in a reviewer's text from the reviewer's slate to
// another one that holds the same members, as the canonical slate of the session
// does. All labels are replaced at once, so that none is replaced twice. Letters
// keep their case, and everything around them stays as it is.
//
// Rewritten are "Response A" and "Answer A", also with letters that follow
// ("Responses A, B and C"), and letters alone where hardly anything else can be
// meant: as strings in a JSON ballot, in bold, before a colon at the start of a
// line, in a line such as "B > A > C", and in a list below "FINAL RANKING". A
// letter in running text stays, and so does everything in fenced or inline code
// that is not a ballot. Letters that are no label of from stay too.
func Relabel(text string, from, to council.Slate) string {
	rename := make(map[string]string, len(from))
	for _, a := range from {
		for _, b := range to {
			if a.Member == b.Member {
				rename[letters(a.Label)] = letters(b.Label)
			}
		}
	}
	masked := maskCode(text)
	r := &reader{text: masked, lists: ballotList.FindAllStringIndex(masked, -1), final: -1}
	var b strings.Builder
	done := 0
	for start := 0; start < len(text); start++ {
		end := start
		for end < len(text) && isASCIILetter(r.text[end]) {
			end++
		}
		if end-start == 1 || end-start == 2 {
			old := text[start:end]
			if name, ok := rename[strings.ToUpper(old)]; r.isLabel(start, end) && ok {
				if old == strings.ToLower(old) {
					name = strings.ToLower(name)
				}
				b.WriteString(text[done:start])
				b.WriteString(name)
				done = end
			}
		}
		start = end
	}
	b.WriteString(text[done:])
	return b.String()
}

func letters(l council.Label) string { return strings.TrimPrefix(string(l), labelPrefix) }

func isASCIILetter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }

// reader tells which short words of a text are labels. It is asked about each of
// them, in the order in which they stand.
type reader struct {
	text  string  // with code masked
	lists [][]int // the lists of labels in JSON that are still to come
	named int     // the end of the last label behind a name, or in a list behind one
	comma bool    // a comma may carry that list on

	line         int // the end of the last line looked at for a ranking
	ranked, over int // where in it letters are labels: from ranked to before over
	final        int // where the text below "FINAL RANKING" begins; its length if nowhere, -1 before it was looked for
}

// isLabel reports whether the word from start to end is a label on some slate.
func (r *reader) isLabel(start, end int) bool {
	before, after := r.text[:start], r.text[end:]
	previous, _ := utf8.DecodeLastRuneInString(strings.TrimRight(before, "_"))
	next, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, "_"))
	if isWord(previous) || isWord(next) || next == '+' || next == '#' { // as in C++ and C#
		return false
	}
	if r.isInBallot(start, end) {
		return true
	}
	capitals := strings.ToUpper(r.text[start:end]) == r.text[start:end]
	return capitals && (r.isNamed(start, end) || isBold(before, after) || r.isInRanking(start))
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Parts of the patterns below.
const (
	letter  = `[A-Z]{1,2}`
	markup  = `[*_]{0,3}`
	bullet  = `[ \t]*(?:[-*+•][ \t]+|#{1,6}[ \t]+|#?\d{1,2}[.):]?[ \t]+)`
	entry   = `[(\[]?` + markup + `(?:(?i:response|answer)[ \t]+)?` + letter + markup + `[)\]]?`
	lineEnd = `[ \t.*_]*$`
	quoted  = `["'](?:(?i:response|answer)[ \t]+)?[A-Za-z]{1,2}["']`
	tied    = `(?:` + quoted + `|\[\s*` + quoted + `(?:\s*,\s*` + quoted + `)*\s*,?\s*\])`
	list    = `\[\s*` + tied + `(?:\s*,\s*` + tied + `)*\s*,?\s*(?:\]|$)`
)

var (
	ballotList = regexp.MustCompile(list)
	// entryName stands before the label in a ballot that is a list of objects.
	entryName = regexp.MustCompile(`["'](?i:label|response|candidate)["']\s*:\s*$`)
)

// isInBallot reports whether the word is a string in JSON that can only be a label:
// in a list of labels, as a key, or naming the candidate of an entry.
func (r *reader) isInBallot(start, end int) bool {
	for len(r.lists) > 0 && r.lists[0][1] <= start {
		r.lists = r.lists[1:]
	}
	if len(r.lists) > 0 && r.lists[0][0] < start {
		return true
	}
	before, after := r.text[:start], r.text[end:]
	if name, ok := nameBefore(before); ok {
		before = before[:name.start]
	}
	if before == "" || after == "" || before[len(before)-1] != after[0] || after[0] != '"' && after[0] != '\'' {
		return false
	}
	before = strings.TrimRight(before[:len(before)-1], " \t\r\n")
	if strings.HasPrefix(strings.TrimLeft(after[1:], " \t"), ":") {
		return strings.HasSuffix(before, "{") || strings.HasSuffix(before, ",")
	}
	return entryName.MatchString(tail(before))
}

// tail returns the end of s, long enough for what is looked for there.
func tail(s string) string { return s[max(0, len(s)-32):] }

var (
	// joint is what may stand between two labels of a list: a conjunction (group 1),
	// a comma (group 2), or a sign.
	joint = regexp.MustCompile(`^` + markup + `(?:(,?[ \t]+(?:and|or|&|vs\.?|versus)[ \t]+)|(,[ \t]*)|[ \t]*[/>≻=][ \t]*)` + markup + `$`)

	// pronoun is what comes after "I" where that is the reviewer, but for labelVerb.
	pronoun   = regexp.MustCompile(`^(?:[ \t][a-z]|['’](?:d|m|ve|ll)\b)`)
	labelVerb = regexp.MustCompile(`^[ \t](?:and|or|is|are|has|vs)\b`)
)

// isNamed reports whether "Response" or "Answer" stands before the word, or a list
// of labels that begins so. A comma carries on a list only after a plural and
// before its "and".
func (r *reader) isNamed(start, end int) bool {
	after := r.text[end:]
	isPronoun := r.text[start:end] == "I" && pronoun.MatchString(after) && !labelVerb.MatchString(after)
	if name, ok := nameBefore(r.text[:start]); ok {
		if isPronoun && r.text[name.start] >= 'a' {
			return false
		}
		r.named, r.comma = end, name.plural
		return true
	}
	if r.named == 0 || isPronoun {
		return false
	}
	m := joint.FindStringSubmatchIndex(r.text[r.named:start])
	if m == nil || m[4] >= 0 && !r.comma {
		return false
	}
	r.named, r.comma = end, r.comma && m[2] < 0
	return true
}

// name is a "Response" or "Answer" in a text.
type name struct {
	start  int
	plural bool
}

// nameBefore finds a name at the end of a text, markup and at least one blank
// behind it.
func nameBefore(text string) (name, bool) {
	text = strings.TrimRight(text, "*_")
	trimmed := strings.TrimRight(text, " \t\u00a0")
	if len(trimmed) == len(text) {
		return name{}, false
	}
	trimmed = strings.TrimRight(trimmed, "*_")
	start := len(trimmed)
	for start > 0 && isASCIILetter(trimmed[start-1]) {
		start--
	}
	if previous, _ := utf8.DecodeLastRuneInString(trimmed[:start]); isWord(previous) {
		return name{}, false
	}
	word := trimmed[start:]
	if singular := word[:max(0, len(word)-1)]; strings.EqualFold(singular, "response") || strings.EqualFold(singular, "answer") {
		return name{start, true}, word[len(word)-1] == 's' || word[len(word)-1] == 'S'
	}
	return name{start, false}, strings.EqualFold(word, "response") || strings.EqualFold(word, "answer")
}

// graded is what comes before a letter that is a grade, or the name of something
// other than an answer.
var graded = regexp.MustCompile(`(?i)\b(?:grade|mark|score|rating|rated|overall|option|choice|plan|type|class|vitamin|language|section|part|step|case|point)[sd]?[^\w\n]{0,4}$`)

// isBold reports whether what stands around a word puts it in bold, alone or with a
// colon.
func isBold(before, after string) bool {
	after = strings.TrimLeft(after, ".:")
	return (strings.HasSuffix(before, "**") && strings.HasPrefix(after, "**") ||
		strings.HasSuffix(before, "__") && strings.HasPrefix(after, "__")) && !graded.MatchString(tail(before))
}

// The lines in which letters alone are labels, and in which part of them.
var (
	heading      = regexp.MustCompile(`^(?:` + bullet + `|[ \t]*)` + markup + `(` + letter + `)` + markup + `[ \t]*[:：]`)
	chain        = regexp.MustCompile(`^(?:` + bullet + `)?(?:[*_\pL \t]*[:：][*_ \t]*|[ \t]*)(` + entry + `(?:[ \t]*=[ \t]*` + entry + `)*[ \t]*[>≻][ \t]*` + entry + `(?:[ \t]*[>≻=][ \t]*` + entry + `)*)` + lineEnd)
	finalRanking = regexp.MustCompile(`(?im)^\W*final ranking\b`)
	finalLine    = regexp.MustCompile(`^\W*(?i:final ranking)[*_:： \t-]*(` + entry + `(?:[ \t]*[,>≻=][ \t]*` + entry + `)*)` + lineEnd)
	finalItem    = regexp.MustCompile(`^` + bullet + markup + `(` + letter + `)` + markup + `[ \t]*(?:[-–—(,].*)?$`)
)

// isInRanking reports whether the word stands in a line that ranks or heads an
// answer.
func (r *reader) isInRanking(start int) bool {
	if start >= r.line {
		begin := strings.LastIndexByte(r.text[:start], '\n') + 1
		line, _, _ := strings.Cut(r.text[begin:], "\n")
		r.line, r.ranked, r.over = begin+len(line), 0, 0
		patterns := []*regexp.Regexp{heading, chain, finalLine}
		if r.final < 0 {
			r.final = len(r.text)
			if m := finalRanking.FindStringIndex(r.text); m != nil {
				r.final = m[1]
			}
		}
		if begin > r.final {
			patterns = append(patterns, finalItem)
		}
		for _, pattern := range patterns {
			if m := pattern.FindStringSubmatchIndex(strings.TrimRight(line, "\r")); m != nil {
				r.ranked, r.over = begin+m[2], begin+m[3]
				break
			}
		}
	}
	return r.ranked <= start && start < r.over
}
