package stage2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/councild/councild/internal/council"
)

// This file finds the reviewer's own last ballot among others in its reply: drafts, ballots for one criterion, and
// ballots that it quotes from an answer.

var (
	// overAll matches the key or title of a ballot that stands for the whole review.
	overAll = regexp.MustCompile(`(?i)overall|final|total|ballot|ranking|result|verdict|summary|conclusion|gesamt|综合|总`)
	// inTime matches a title that says when a ballot was made, or that the ballot replaces another ballot.
	inTime = regexp.MustCompile(`(?i)first|initial|draft|impression|thought|after|before|now|new|then|` +
		`revis|correct|updat|instead|again|check|output|json|form|answer|vote`)
	// ownWords are words of a reviewer about its own ballot.
	ownWords = regexp.MustCompile(`(?i)\b(?:I|my|mine|ich|mein\pL*|je|mon|ma|yo|mi|eu|meu|minha)\b|я |мой|我|私`)
	// reports matches words that say that an author wrote something.
	reports = regexp.MustCompile(`(?i)\b(?:end(?:s|ed|ing)|wr(?:ites|ote|itten)|sa(?:ys|id)|contain(?:s|ed|ing)?|` +
		`include[sd]?|including|claim(?:s|ed)?|outputs?|` +
		`ask(?:s|ed)?|t(?:ells|old)|instruct\pL*|inject\pL*|quot\pL*|suggest(?:s|ed)?|states?|itself|tries|tried|demand(?:s|ed)?|` +
		`enthält|endet|schreibt|behauptet|sagt|verlangt|contient|écrit|contiene|escribe|dice|contém|escreve|diz)\b|содержит|пишет|包含|写道|声称`)
	// somebody matches words that name an answer or its author without a label, such as "the answer".
	somebody = regexp.MustCompile(`(?i)\b(?:the|an|this|that|one|last|first|of the) (?:answers?|responses?|candidates?|authors?|texts?)\b`)
	// quotedBehind matches words that stand after a ballot and say that the ballot is not the reviewer's own.
	quotedBehind = regexp.MustCompile(`(?i)^[^\pL]*(?:which|that) (?:I|is|was|must)[^.\n]{0,30}` +
		`(?:ignor|disregard|not follow|inject|not mine|not my|quot)|` +
		`^[^\pL]*I (?:ignore|disregard|do not follow|don't follow)[^.\n]{0,10} (?:that|this|it)\b`)
	// withdrawn matches words that stand after the last ballot and withdraw the ballot.
	withdrawn = regexp.MustCompile(`(?i)\b(?:on (?:second thoughts?|reflection)|scratch that|correction:|` +
		`swap (?:the|response|answer|[A-Z]\b)|should be swapped|` +
		`I (?:now |hereby |must |have to )*(?:change|withdraw|retract|revise|take back) (?:my|this|that|the|it))`)
	// orderWord matches words for a ranking.
	orderWord = regexp.MustCompile(`(?i)\b(?:rank\pL*|order\pL*|sort\pL*|list\pL*|ballot|reihenfolge|rangfolge|classement|` +
		`orden\pL*|ordem|clasificación)\b|рейтинг|排序|排名|順位`)
	// orderBehind matches the text after a label in brackets if the label belongs to an order such as "[B] > [A]".
	orderBehind = regexp.MustCompile(`^[ \t*]*(?:[-=]*[>≻→<＞＜]|=\s*[\[［])`)
)

// continuesAsOrder reports whether text begins with a sign that stands between the labels of an order, such as >.
func continuesAsOrder(text string) bool {
	return orderBehind.MatchString(text[:min(len(text), maxKey)])
}

// maxLead is how many bytes before a ballot are searched for words about it.
const maxLead = 400

// maxIntroduction is the length in bytes of the longest line that can introduce a quotation. Longer lines are
// critiques.
const maxIntroduction = 200

// lead returns the line that introduces a text. The argument before is all text in front of that text. If words stand
// before the text on its own line, lead returns these words. Otherwise it returns the last line above that is neither
// empty nor a fence.
func lead(before string) string {
	before = strings.ToValidUTF8(before[max(0, len(before)-maxLead):], "")
	lines := strings.Split(before, "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && !fence(line) {
			return line
		}
	}
	return ""
}

// quoting reports whether block quotes in text are quotations. Block quotes are quotations if text also has lines
// outside of block quotes.
func quoting(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ">") {
			return true
		}
	}
	return false
}

// quoted reports whether the reviewer quotes a text from an answer. The argument before is all text in front of that
// text. If blocks is true, block quotes are quotations. The reviewer quotes the text if it is in a block quote that is
// a quotation, or if the words before it name an answer or its author.
func (s labelSet) quoted(before string, blocks bool) bool {
	onLine := strings.TrimSpace(before[strings.LastIndexByte(before, '\n')+1:])
	if blocks && strings.HasPrefix(onLine, ">") {
		return true
	}
	line := strings.Map(fold, lead(before))
	switch {
	case len(line) > maxIntroduction:
		return false
	case onLine == "" && !colon(line), ownWords.MatchString(line), !s.mentions(clean(line)) && !somebody.MatchString(line):
		return false
	}
	return reports.MatchString(line) || colon(line) && !overAll.MatchString(line) && !inTime.MatchString(line)
}

// shorter reports whether a ballot leaves out labels although an earlier ballot ranks all labels.
func (s labelSet) shorter(b, earlier council.Ballot) bool {
	return !b.Abstained && !earlier.Abstained && b.Partial(len(s.labels)) && !earlier.Partial(len(s.labels))
}

// sameOrder reports whether two ballots rank the same, or both abstain.
func sameOrder(a, b council.Ballot) bool {
	return a.Abstained == b.Abstained && slices.EqualFunc(a.Groups(), b.Groups(), slices.Equal[[]council.Label])
}

// maxTitle is the length in bytes of the longest line that can be a title.
const maxTitle = 40

// titleOf returns the title before a ballot if the title names a criterion. A title is a short line that ends in a
// colon or is a heading.
func titleOf(before string) string {
	line := lead(before)
	if len(line) > maxTitle || !title(line) && !strings.HasSuffix(line, "**") || overAll.MatchString(line) || inTime.MatchString(line) {
		return ""
	}
	return line
}

// worstStems returns parts of words. Every text that worstFirst matches contains one of these parts.
func worstStems() []string {
	return []string{
		"worst", "weakest", "lowest", "ascending", "reverse", "schlechteste", "pire", "peor", "pior",
		"худш", "差", "劣", "低", "悪", "최악", "낮은",
	}
}

// fromWorst reports whether a line before a ballot says that the ballot begins with the worst.
func (s labelSet) fromWorst(before string) bool {
	for line := range strings.Lines(before) {
		if len(line) > 2*maxTitle {
			continue
		}
		if beginsWorst(line) && orderWord.MatchString(line) && !s.mentions(clean(line)) {
			return true
		}
	}
	return false
}

// beginsWorst reports whether a text says that something begins with the worst. It looks for the stems first. That is
// faster than the regular expression, and most texts contain none.
func beginsWorst(text string) bool {
	lower := strings.ToLower(text)
	hasStem := slices.ContainsFunc(worstStems(), func(stem string) bool { return strings.Contains(lower, stem) })
	return hasStem && worstFirst.MatchString(text)
}

// fromWorst reports whether a member of an object says that its ranking begins with the worst.
func (v value) fromWorst() bool {
	for i, item := range v.items {
		says := item.kind == scalar && len(item.text) <= 2*maxTitle && beginsWorst(item.text)
		if says || beginsWorst(strings.ReplaceAll(v.keys[i], "_", " ")) {
			return true
		}
	}
	return false
}
