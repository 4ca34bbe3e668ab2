package anonymize

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// fence begins or ends a fenced block, also in a list or a quotation; its groups
	// are the fence and what follows it on the line.
	fence = regexp.MustCompile("^[> \t]*(?:[-*+][ \t]+|\\d{1,2}[.)][ \t]+)?(`{3,}|~{3,})(.*)$")
	ticks = regexp.MustCompile("`+")
	// blankLine ends a paragraph.
	blankLine = regexp.MustCompile(`\n[ \t\r]*\n`)

	// isBallot is what a ballot in code holds.
	isBallot = regexp.MustCompile(`["'](?i:ranking|scores)["']\s*:|(?im:^\W*final ranking\b)|^\s*` + list + `\s*$`)
)

// maskCode returns text with all code that is not a ballot replaced by as many zero
// bytes. A fence that nothing closes lasts to the end.
func maskCode(text string) string {
	masked := []byte(text)
	mask := func(start, end int) {
		if !isBallot.MatchString(text[start:end]) {
			clear(masked[start:end])
		}
	}
	open, start, position := "", 0, 0 // the fence that is open, where the present part began, where the line begins
	for line := range strings.Lines(text) {
		m := fence.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case m == nil:
		case open == "" && !strings.Contains(m[2], "`"):
			maskInline(text, start, position, mask)
			open, start = m[1], position+len(line)
		case open != "" && strings.HasPrefix(m[1], open) && strings.TrimSpace(m[2]) == "":
			mask(start, position)
			open, start = "", position+len(line)
		}
		position += len(line)
	}
	if open != "" {
		mask(start, position)
	} else {
		maskInline(text, start, position, mask)
	}
	return string(masked)
}

// maskInline masks the inline code from start to end: what stands between two runs
// of as many backticks in one paragraph.
func maskInline(text string, start, end int, mask func(start, end int)) {
	runs := ticks.FindAllStringIndex(text[start:end], -1)
	for i := 0; i < len(runs); i++ {
		length := runs[i][1] - runs[i][0]
		closing := slices.IndexFunc(runs[i+1:], func(r []int) bool { return r[1]-r[0] == length })
		if closing < 0 {
			continue
		}
		from, to := start+runs[i][1], start+runs[i+1+closing][0]
		if !blankLine.MatchString(text[from:to]) {
			mask(from, to)
			i += 1 + closing
		}
	}
}
