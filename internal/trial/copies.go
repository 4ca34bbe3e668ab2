package trial

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Copies are questions without a group that are the same text as another one up to numbers and names.
type Copies struct {
	Questions int       // that have a copy
	Example   [2]string // ids of two copies
}

// leastShared is how many letters copies have in common beside numbers and names: short questions are alike by chance. Han,
// Kana and Hangul count thrice, for they say more.
const leastShared = 20

// FindCopies finds near-copies. Its work is linear in the texts, which may be of any language. Names are words that begin with a capital
// letter, so languages without capital letters show copies with other numbers alone.
func FindCopies(questions []Question) Copies {
	var c Copies
	seen := map[string]string{} // the first id by shape; "" once it was counted
	for _, q := range questions {
		shape, shared := shapeOf(q.text())
		if q.Group != "" || shared < leastShared {
			continue
		}
		switch first, ok := seen[shape]; {
		case !ok:
			seen[shape] = q.ID
		case first != "":
			if c.Questions == 0 {
				c.Example = [2]string{first, q.ID}
			}
			seen[shape] = ""
			c.Questions += 2
		default:
			c.Questions++
		}
	}
	return c
}

// text returns all that is asked.
func (q *Question) text() string {
	texts := make([]string, 0, 1+len(q.Messages))
	texts = append(texts, q.Query)
	for _, m := range q.Messages {
		texts = append(texts, m.Content)
	}
	return strings.Join(texts, "\n")
}

// shapeOf returns a text with a mark for each run of numbers and names, and how much else there is.
func shapeOf(text string) (shape string, shared int) {
	const mark = "#"
	var b strings.Builder
	last := ""
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsNumber(r)
	})
	for _, word := range words {
		first, _ := utf8.DecodeRuneInString(word)
		if unicode.IsUpper(first) || unicode.IsTitle(first) {
			word = mark
		} else {
			word = withoutNumbers(word, mark)
		}
		if word == mark && last == mark {
			continue
		}
		for _, r := range word {
			switch {
			case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
				shared += 3
			case unicode.IsLetter(r):
				shared++
			}
		}
		b.WriteString(word + " ")
		last = word
	}
	return b.String(), shared
}

// withoutNumbers returns a word with a mark for each run of digits.
func withoutNumbers(word, mark string) string {
	if !strings.ContainsFunc(word, unicode.IsNumber) {
		return word
	}
	var b strings.Builder
	isNumber := false
	for _, r := range word {
		if !unicode.IsNumber(r) {
			b.WriteRune(r)
		} else if !isNumber {
			b.WriteString(mark)
		}
		isNumber = unicode.IsNumber(r)
	}
	return b.String()
}
