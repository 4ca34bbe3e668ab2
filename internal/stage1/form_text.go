package stage1

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// answerLabels matches the labels with which an answer line may begin, in lower case.
var answerLabels = regexp.MustCompile(`^(?:(?:final |correct )?answer|(?:endgültige |finale |richtige )?antwort|réponse(?: finale)?|` +
	`respuesta(?: final)?|resposta(?: final)?|risposta(?: finale)?|(?:окончательный )?ответ|(?:最终|最後の|最終)?(?:答案|回答|答え)|(?:최종 )?정답)$`)

// maxAnswerLabel is the number of bytes of the longest answer label.
const maxAnswerLabel = 48

// narrowForm returns the ASCII character for a full-width one, and any other character unchanged.
func narrowForm(c rune) rune {
	if '！' <= c && c <= '～' {
		return c - '！' + '!'
	}
	if c == '\u3000' {
		return ' '
	}
	return c
}

// latexCommand matches LaTeX commands that only set a text and have no meaning of their own.
var latexCommand = regexp.MustCompile(`^\\(?:boxed|fbox|framebox|text|textbf|textit|textrm|textsf|texttt|` +
	`mathrm|mathbf|mathit|mathsf|mathtt|operatorname|mbox|bm)\s*\{`)

// latexCommandIn matches such commands anywhere, with their text, if the text holds no brace.
var latexCommandIn = regexp.MustCompile(`\\(?:boxed|text|textbf|textit|textrm|` +
	`mathrm|mathbf|mathit|mathsf|operatorname|mbox)\s*\{([^{}]*)\}`)

// latexReplacer replaces LaTeX with the plain text that it stands for.
var latexReplacer = strings.NewReplacer( //nolint:gochecknoglobals // made once
	`\left`, "", `\right`, "", `\displaystyle`, "", `{,}`, ",", `\%`, "%", `\&`, "&", `\_`, "_", `\#`, "#",
	`\,`, " ", `\;`, " ", `\:`, " ", `\!`, "", `\ `, " ", `\quad`, " ",
	`\times`, "×", `\cdot`, "·", `^{\circ}`, "°", `^\circ`, "°", `\circ`, "°",
	`\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`, `\approx`, "≈",
)

// withoutLatex returns an answer without full-width characters and without the LaTeX around it. It repeats its work
// until nothing changes, so that a second call would not change the result. Each round takes time proportional to the
// length of the answer. To bound the time, withoutLatex ends after maxWrapped rounds, and then removes every sign of
// LaTeX.
func withoutLatex(answer string) string {
	answer = strings.Map(narrowForm, answer)
	for range maxWrapped {
		before := answer
		if answer = withoutLatexOnce(answer); answer == before {
			return answer
		}
	}
	return latexSigns.Replace(answer)
}

// withoutLatexOnce is one round of withoutLatex.
func withoutLatexOnce(answer string) string {
	if !strings.ContainsAny(answer, `$\`) {
		return answer
	}
	answer = strings.ReplaceAll(answer, `\$`, escapedDollar)
	for range maxWrapped {
		bare := unwrapLatex(strings.TrimFunc(strings.Trim(answer, outerMarks+" \t"), unicode.IsSpace))
		if bare == answer {
			break
		}
		answer = bare
	}
	return strings.ReplaceAll(latexCommandIn.ReplaceAllString(latexReplacer.Replace(answer), "$1"), escapedDollar, "$")
}

// latexSigns removes the characters with which LaTeX marks commands and formulas.
var latexSigns = strings.NewReplacer(`\`, "", "$", "") //nolint:gochecknoglobals // made once

// escapedDollar stands for a dollar sign that does not mark a formula.
const escapedDollar = "\uE000"

// maxWrapped is how many wrappers of LaTeX may be nested.
const maxWrapped = 8

// unwrapLatex removes the wrapper with which an answer begins, and keeps the text inside and after the wrapper.
func unwrapLatex(answer string) string {
	for _, pair := range [][2]string{{`\(`, `\)`}, {`\[`, `\]`}, {"$$", "$$"}, {"$", "$"}} {
		inside, found := strings.CutPrefix(answer, pair[0])
		if !found {
			continue
		}
		inside, rest, closed := strings.Cut(inside, pair[1])
		next, _ := utf8.DecodeRuneInString(rest)
		// A dollar may also be a currency: "$5 or $6", "$5/$10".
		if !closed || pair[0] == "$" &&
			(inside == "" || strings.ContainsRune(inside, ' ') && !strings.Contains(inside, `\`) || isWord(next)) {
			return answer
		}
		return inside + rest
	}
	begin := latexCommand.FindString(answer)
	if begin == "" {
		return answer
	}
	depth := 1
	for i, c := range answer[len(begin):] {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				i += len(begin)
				return answer[len(begin):i] + answer[i+1:]
			}
		}
	}
	return answer
}

func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

var (
	latexFraction = regexp.MustCompile(`^([+-]?)\\frac\s*\{\s*([+-]?\d+)\s*\}\s*\{\s*(\d+)\s*\}`)
	// powerOfTen matches a number that is multiplied by a power of ten.
	powerOfTen = regexp.MustCompile(`^([+-]?[\d.,]+)\s*[×x·*]\s*10\s*\^\s*\{?\s*([+-]?\d{1,9})\s*\}?`)
	// groupedDigits matches a number in groups of three digits with spaces or apostrophes between them.
	groupedDigits = regexp.MustCompile(`^([+-]?[$€£¥]?[+-]?\d{1,3})((?:[ \x{a0}\x{2009}\x{202f}'’]\d{3})+)([^\d].*)?$`)
	// commaDecimals matches a number with a comma that can only be a decimal comma.
	commaDecimals   = regexp.MustCompile(`^([+-]?[$€£¥]?[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)),(\d+)([^\d.,/^].*|[.]?)$`)
	digitSeparators = strings.NewReplacer(" ", "", "\u00a0", "", "\u2009", "", "\u202f", "", "'", "", "’", "") //nolint:gochecknoglobals // made once
)

// numberForm returns an answer with the number at its beginning in the form that numeral matches.
func numberForm(answer string) string {
	answer = strings.Replace(answer, "−", "-", 1)
	if m := latexFraction.FindStringSubmatch(answer); m != nil {
		return m[1] + m[2] + "/" + m[3] + answer[len(m[0]):]
	}
	if m := groupedDigits.FindStringSubmatch(answer); m != nil {
		answer = m[1] + digitSeparators.Replace(m[2]) + m[3]
	}
	if m := commaDecimals.FindStringSubmatch(answer); m != nil && (len(m[2]) != 3 || strings.Contains(m[1], ".")) {
		answer = strings.ReplaceAll(m[1], ".", "") + "." + m[2] + m[3]
	}
	if m := powerOfTen.FindStringSubmatch(answer); m != nil {
		return m[1] + "e" + m[2] + answer[len(m[0]):]
	}
	return answer
}

// scaleWords holds the words that multiply the number before them, with their factors. "billion" has its English
// meaning. scaleBehind refuses "Billion", because it may be the German word for 1e12.
var scaleWords = map[string]float64{ //nolint:gochecknoglobals // a table
	"hundred": 1e2, "hundert": 1e2, "dozen": 12, "dutzend": 12, "k": 1e3,
	"thousand": 1e3, "thousands": 1e3, "tausend": 1e3, "mille": 1e3, "mil": 1e3,
	"тысяча": 1e3, "тысячи": 1e3, "тысяч": 1e3, "千": 1e3,
	"万": 1e4, "萬": 1e4, "lakh": 1e5, "lakhs": 1e5, "crore": 1e7, "crores": 1e7, "亿": 1e8, "億": 1e8, "百万": 1e6,
	"million": 1e6, "millions": 1e6, "millionen": 1e6, "mio": 1e6, "mln": 1e6, "mn": 1e6,
	"millón": 1e6, "millones": 1e6, "milhão": 1e6, "milhões": 1e6,
	"миллион": 1e6, "миллиона": 1e6, "миллионов": 1e6, "млн": 1e6,
	"billion": 1e9, "billions": 1e9, "bn": 1e9,
	"milliarde": 1e9, "milliarden": 1e9, "milliard": 1e9, "milliards": 1e9, "mrd": 1e9,
	"миллиард": 1e9, "миллиарда": 1e9, "миллиардов": 1e9, "млрд": 1e9, "bilhão": 1e9, "bilhões": 1e9, "十亿": 1e9,
	"trillion": 1e12, "trillions": 1e12, "billionen": 1e12, "billones": 1e12, "万亿": 1e12,
}

// doubtfulWord matches words after a number that show that the number is not the whole answer.
var doubtfulWord = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:or|oder|ou|или|half|halb|quarter|to|bis)(?:[^\pL]|$)|或|半|[¼-¾⅐-⅞]`)

// attachedScales has the scale words for letters that stand directly after an amount of money.
var attachedScales = map[string]string{"K": "k", "M": "mio", "B": "bn"} //nolint:gochecknoglobals // a table

// unspacedScale returns the factor of the scale word with which a text begins, and where the scale word ends. It is for
// Chinese and Japanese, which write no space after such a word.
func unspacedScale(word string) (factor float64, end int, known bool) {
	for size := min(len(word), maxScale); size > 0; size-- {
		if utf8.ValidString(word[:size]) && word[0] >= utf8.RuneSelf {
			if factor, known = scaleWords[word[:size]]; known {
				return factor, size, true
			}
		}
	}
	return 0, 0, false
}

// leadingLetters returns the letters that a text begins with.
func leadingLetters(text string) string {
	return text[:len(text)-len(strings.TrimLeftFunc(text, unicode.IsLetter))]
}

// scaleBehind returns the factor of the scale word after a number, such as 1e6 for "million", and the text after that
// word. The factor is 1 if there is no scale word. The result ok is false if the word may be a factor or a unit. The
// argument money says whether a currency sign stands before the number.
func scaleBehind(rest string, money bool) (factor float64, behind string, ok bool) {
	trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
	attached := trimmed == rest
	word := leadingLetters(trimmed)
	end := len(word)
	switch {
	case word == "Billion" || word == "兆", attached && !money && (word == "M" || word == "B"):
		return 0, "", false
	case attached && money && attachedScales[word] != "":
		word = attachedScales[word]
	case word == "K" || word == "k" && !attached: // It is a unit.
		return 1, rest, true
	}
	factor, known := scaleWords[strings.ToLower(word)]
	if !known {
		factor, end, known = unspacedScale(trimmed[:end])
	}
	if !known {
		return 1, rest, true
	}
	behind = trimmed[end:]
	next := strings.TrimLeftFunc(behind, unicode.IsSpace)
	if word := strings.ToLower(leadingLetters(next)); scaleWords[word] != 0 {
		factor *= scaleWords[word]
		behind = next[len(word):] // Two words may follow each other: "mil millones", "hundred thousand".
	}
	return factor, behind, true
}

// maxScale is the length in bytes of the longest scale word that unspacedScale finds.
const maxScale = 6

// multiplied returns the product of a factor and the number in a text. If the factor is a power of ten, it appends an
// exponent to the text and does not multiply, so that 2.3 million is exactly 2300000.
func multiplied(digits string, factor float64) (float64, error) {
	for power, at := 1e12, 12; at > 0; power, at = power/10, at-1 {
		if factor == power && !strings.ContainsAny(digits, "eE/") {
			return strconv.ParseFloat(digits+"e"+strconv.Itoa(at), 64)
		}
	}
	value, err := strconv.ParseFloat(digits, 64)
	return value * factor, err
}

var (
	// optionWord matches words that may stand before an option, such as "the correct option is".
	optionWord = regexp.MustCompile(`^(?:(?:the )?(?:correct |right |final )?(?:options?|choice|answer|letter|opción|opcion|respuesta|réponse|choix|antwort|auswahl|opção|resposta|` +
		`вариант|ответ)(?: is| ist| est| es| é)?\s*[:：]?\s+|(?:选项|选择|答案|選択肢|選項|보기)(?:是|は)?\s*[:：]?\s*)`)
	// becauseWord matches words that may stand directly after an option.
	becauseWord = regexp.MustCompile(`^(?:because|since|as|is|it['’]s|for|weil|denn|da|ist|car|parce|puisque|est|porque|pues|ya|es|é|pois|потому|так)(?:[^\pL]|$)`)
)
