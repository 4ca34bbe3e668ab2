package trial

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Copies counts near-copies. These are questions that have no group, and whose texts differ only in numbers and names.
type Copies struct {
	Questions int       // how many questions have a near-copy
	Example   [2]string // the ids of two near-copies
}

// leastShared is how many letters two near-copies must share outside of numbers and names, because short questions are
// alike by chance. A letter of Han, Kana or Hangul counts three times, because one such letter says more.
const leastShared = 20

// FindCopies finds near-copies, in time proportional to the length of the texts. It takes any language. A name is a
// word that begins with a capital letter. In languages without capital letters, it finds only copies that differ in
// numbers.
func FindCopies(questions []Question) Copies {
	var c Copies
	seen := map[string]string{} // by shape: the id of its first question, or "" after that question was counted
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

// text returns the texts of the query and all messages.
func (q *Question) text() string {
	texts := make([]string, 0, 1+len(q.Messages))
	texts = append(texts, q.Query)
	for _, m := range q.Messages {
		texts = append(texts, m.Content)
	}
	return strings.Join(texts, "\n")
}

// shapeOf returns a text in which a mark replaces each run of numbers and names. The result shared counts the remaining
// letters.
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

// withoutNumbers returns a word in which a mark replaces each run of digits.
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
