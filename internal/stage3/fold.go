package stage3

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// folded is a text without the differences that typography makes. Successive blanks are one space, and typographic
// marks are ASCII. Marks of emphasis and invisible characters are left out.
type folded struct {
	text string
	// places has a place in every placeStep bytes of the original. Between two places, span folds the original again.
	places []place
}

// place is a character. It has the offset of the character in the folded text, and its offset in the original.
type place struct{ folded, original int }

const placeStep = 1024

// fold folds a text.
func fold(text string) folded {
	var f folded
	var b strings.Builder
	b.Grow(len(text))
	last := byte(' ')
	for i := 0; i < len(text); {
		if n := len(f.places); i >= n*placeStep {
			f.places = append(f.places, place{b.Len(), i})
		}
		out, size := foldRune(text[i:], last)
		b.WriteString(out)
		if out != "" {
			last = out[len(out)-1]
		}
		i += size
	}
	f.text = b.String()
	return f
}

// span returns the part of the original that was folded to the bytes from begin to end. Marks of emphasis at its edges
// belong to it. It returns false if the part has more bytes than the argument most.
func (f folded) span(original string, begin, end, most int) (string, bool) {
	after := sort.Search(len(f.places), func(i int) bool { return f.places[i].folded > begin })
	at := f.places[after-1]
	from := -1
	to := at.original
	last := byte(' ')
	if at.folded > 0 {
		last = f.text[at.folded-1]
	}
	for at.folded < end {
		if from >= 0 && to-from > most {
			return "", false
		}
		out, size := foldRune(original[to:], last)
		if out != "" {
			if from < 0 && at.folded+len(out) > begin {
				from = to
			}
			last = out[len(out)-1]
		}
		at.folded += len(out)
		to += size
	}
	for from > 0 && to-from <= most && isEmphasis(rune(original[from-1])) {
		from--
	}
	for to < len(original) && to-from <= most && isEmphasis(rune(original[to])) {
		to++
	}
	return original[from:to], to-from <= most
}

// foldRune folds the first character of a text. The argument last is the last byte of the folded text before it.
func foldRune(text string, last byte) (out string, size int) {
	if c := text[0]; c > ' ' && c < utf8.RuneSelf && !isEmphasis(rune(c)) {
		return text[:1], 1
	}
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case unicode.IsSpace(r):
		if last == ' ' {
			return "", size
		}
		return " ", size
	case isEmphasis(r):
		return "", size
	}
	switch r {
	case '\u00ad', '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff': // invisible
		return "", size
	case '‘', '’', '‚', '‛', '′', 'ʼ':
		return "'", size
	case '“', '”', '„', '‟', '″', '«', '»':
		return `"`, size
	case '‐', '‑', '‒', '–', '—', '―', '−':
		return "-", size
	case '…':
		return "...", size
	}
	return text[:size], size
}

func isEmphasis(r rune) bool { return r == '*' || r == '_' || r == '`' || r == '~' }
