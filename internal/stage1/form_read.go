package stage1

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// emphasisMarks are the characters that Markdown puts around words.
	emphasisMarks = "*_`~"
	// linePrefix has the characters that Markdown puts before a line.
	linePrefix = emphasisMarks + "#>-+• \t"
	// outerMarks are the characters that may stand around an answer without being part of it.
	outerMarks = emphasisMarks + "\"'“”„‘’«»"
)

// filledLines returns the lines of a text that are not empty, without the white space around them.
func filledLines(text string) []string {
	var all []string
	for line := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' }) {
		if line = strings.TrimFunc(line, unicode.IsSpace); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// answerLine finds the last line that begins with "ANSWER:", or with this word in another known language. The word may
// be in upper or lower case, and in any markup. answerLine returns the text after the colon, or the next line if no
// text follows the colon. It reports false if there is no such line.
func answerLine(text string) (answer string, ok bool) {
	all := filledLines(text)
	for i, line := range slices.Backward(all) {
		rest := strings.TrimLeft(line, linePrefix)
		opened := line[:len(line)-len(rest)]
		end := strings.IndexAny(rest[:min(len(rest), maxAnswerLabel)], ":：")
		if end >= 0 {
			end = strings.IndexAny(rest, ":：")
		} else if i+1 < len(all) && len(opened) > 0 && len(rest) <= maxAnswerLabel { // It may be a title without a colon.
			end = len(rest)
		} else {
			continue
		}
		label := strings.TrimRight(rest[:end], emphasisMarks+"# \t")
		if !answerLabels.MatchString(strings.ToLower(label)) {
			continue
		}
		closed := strings.ContainsAny(rest[len(label):end], emphasisMarks) // the emphasis ends before the colon
		_, size := utf8.DecodeRuneInString(rest[end:])
		answer = rest[end+size:]
		mark := strings.TrimFunc(opened, func(c rune) bool { return !strings.ContainsRune(emphasisMarks, c) })
		if mark != "" && !closed {
			mark = reversed(mark)
			if trimmed, ok := strings.CutPrefix(answer, mark); ok {
				answer = trimmed
			} else {
				answer = strings.TrimSuffix(answer, mark)
			}
		}
		if answer = strings.TrimFunc(answer, unicode.IsSpace); strings.Trim(answer, emphasisMarks) == "" {
			answer = cmp.Or(firstBelow(all[i+1:]), answer)
		}
		return answer, true
	}
	return "", false
}

// firstBelow returns the first line with text. It skips lines that begin a code fence, and lines that only begin a
// formula, such as $$. It returns the line without the marks of a quote, a heading or a list.
func firstBelow(lines []string) string {
	for _, line := range lines {
		if fence := strings.TrimLeft(line, "`~"); len(line)-len(fence) >= 3 || strings.Trim(line, "$[\\") == "" {
			continue
		}
		line = strings.TrimLeft(line, ">#+• \t")
		return strings.TrimFunc(strings.TrimPrefix(line, "- "), unicode.IsSpace)
	}
	return ""
}

func reversed(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

// onlyLine returns the line of a text that has exactly one filled line, and otherwise "".
func onlyLine(text string) string {
	if all := filledLines(text); len(all) == 1 {
		return all[0]
	}
	return ""
}

// normalForm returns the same text for texts that differ only in case, white space, outer quotes and markup, and full
// stops at the end. It folds the case of single characters (Unicode's simple folding), so that ß does not become ss.
func normalForm(text string) string {
	text = withoutLatex(strings.Join(strings.Fields(text), " "))
	for {
		trimmed := strings.TrimFunc(strings.Trim(strings.TrimFunc(text, unicode.IsSpace), outerMarks), unicode.IsSpace)
		trimmed = strings.TrimRight(trimmed, ".。")
		if trimmed == text {
			break
		}
		text = trimmed
	}
	return strings.Map(foldedCase, strings.Join(strings.Fields(text), " "))
}

// foldedCase returns the same character for all characters that differ only in case.
func foldedCase(c rune) rune {
	least := c
	for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	lower := unicode.ToLower(least)
	for next := unicode.SimpleFold(least); next != least; next = unicode.SimpleFold(next) {
		if next == lower {
			return lower
		}
	}
	return least
}

// option returns the option with which an answer begins. If it begins with no option, option returns the normal form of
// the answer. It reports false if the answer joins two options, as in "A or B", or is a sentence.
func (f *Form) option(answer string) (form string, ok bool) {
	answer = normalForm(answer)
	text := strings.TrimLeft(answer, outerMarks+"([{ ")
	first, rest := f.cutOption(text)
	if first == "" {
		if word := optionWord.FindString(text); word != "" {
			first, rest = f.cutOption(strings.TrimLeft(text[len(word):], outerMarks+"([{ "))
		}
	}
	if first == "" {
		return answer, answer != ""
	}
	// If another word follows after a space, the answer may be a sentence: "A spider has eight legs", "No idea".
	if sentence := strings.TrimLeft(rest, " "); len(sentence) < len(rest) && !strings.Contains(first, " ") {
		if next, _ := utf8.DecodeRuneInString(sentence); unicode.IsLetter(next) && !becauseWord.MatchString(sentence) {
			return "", false
		}
	}
	rest = strings.TrimLeft(rest, outerMarks+")]}.: ")
	bare := strings.TrimLeft(rest, ",;/&+|- ")
	joined := len(bare) < len(rest)
	word := strings.IndexFunc(bare, func(c rune) bool { return !unicode.IsLetter(c) })
	if word > 0 && !joined {
		switch bare[:word] {
		case "or", "and":
			joined = true
		}
		bare = bare[word:]
	}
	second, tail := f.cutOption(strings.TrimLeft(bare, outerMarks+"([{/ "))
	if second != "" && (joined || !strings.ContainsFunc(tail, unicode.IsLetter)) {
		return "", false
	}
	return first, true
}

// cutOption returns the longest option with which a text in normal form begins, and the rest of the text. The option
// must end at the end of a word. If there is no such option, cutOption returns "".
func (f *Form) cutOption(text string) (option, rest string) {
	longest := 0
	for i, o := range f.options {
		behind, begins := strings.CutPrefix(text, o)
		if !begins || len(o) <= longest {
			continue
		}
		if next, _ := utf8.DecodeRuneInString(behind); behind == "" ||
			!unicode.IsLetter(next) && !unicode.IsDigit(next) {
			option = f.spec.Options[i]
			rest = behind
			longest = len(o)
		}
	}
	return option, rest
}

// numeral matches a number at the beginning of a text. The number may have groups of three digits, or may be a fraction
// of two whole numbers.
var numeral = regexp.MustCompile(
	`^([+-]?)[$€£¥]?([+-]?)(\d+/\d+|(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,9})?)(.*)$`,
)

// behindNumber says which text may follow a number.
type behindNumber int

const (
	anyProse behindNumber = iota // any text without a digit
	unitOnly                     // at most two words without a digit
)

// quotient returns the value of a number or of a fraction such as 1/2, multiplied by a factor.
func quotient(digits string, factor float64) (value float64, ok bool) {
	over, under, isFraction := strings.Cut(digits, "/")
	value, err := multiplied(over, factor)
	if err == nil && isFraction {
		var divisor float64
		divisor, err = strconv.ParseFloat(under, 64)
		value /= divisor
	}
	return value, err == nil && !math.IsInf(value, 0) && !math.IsNaN(value)
}

// readNumber reads the number with which an answer begins. The argument b says which text may follow the number. It
// reports false if the answer does not begin with a number, or if the text after the number may change the value.
func readNumber(answer string, b behindNumber) (value float64, ok bool) {
	answer = strings.TrimFunc(strings.Trim(withoutLatex(answer), outerMarks+" \t"), unicode.IsSpace)
	parts := numeral.FindStringSubmatch(numberForm(answer))
	if parts == nil || parts[1] != "" && parts[2] != "" || !strings.ContainsAny(parts[3], "0123456789") {
		return 0, false
	}
	rest := parts[4]
	if strings.ContainsFunc(rest, unicode.IsDigit) || b == unitOnly && len(strings.Fields(rest)) > 2 {
		return 0, false
	}
	if next, _ := utf8.DecodeRuneInString(rest); next == '/' || next == '^' {
		return 0, false
	}
	signs := answer[:len(answer)-len(strings.TrimLeft(answer, "+-$€£¥"))]
	factor, rest, ok := scaleBehind(rest, strings.ContainsAny(signs, "$€£¥"))
	if !ok || doubtfulWord.MatchString(rest) {
		return 0, false
	}
	if value, ok = quotient(strings.ReplaceAll(parts[3], ",", ""), factor); !ok {
		return 0, false
	}
	if parts[1]+parts[2] == "-" {
		value = -value
	}
	return value, true
}

// numberIn returns the canonical form of the number that readNumber reads.
func numberIn(answer string, b behindNumber) (form string, ok bool) {
	value, ok := readNumber(answer, b)
	if !ok {
		return "", false
	}
	return strconv.FormatFloat(value+0, 'g', -1, 64), true // The addition makes 0 of -0.
}

// readJSON returns a JSON value in canonical form, in which keys are sorted and equal numbers have one form. It takes
// the whole text if that is one JSON value, and otherwise the last object or array in the text. It reports false if
// there is no value, or if an object in it has a key twice.
func readJSON(text string) (form string, ok bool) {
	if value, end, err := decodeValue(text); err == nil && strings.TrimFunc(text[end:], unicode.IsSpace) == "" {
		return canonicalForm(value)
	}
	var last any
	found := false
	// The budget bounds how many bytes are read without finding a value, so that the time stays proportional to the length
	// of the text.
	for at, budget := 0, 8*len(text)+64<<10; budget > 0; {
		start := jsonOpening.FindStringIndex(text[at:])
		if start == nil {
			break
		}
		at += start[0]
		value, length, err := decodeValue(text[at:])
		if err != nil {
			budget -= length
			at++
			continue
		}
		last = value
		found = true
		at += length
	}
	if !found {
		return "", false
	}
	return canonicalForm(last)
}

// doubledKey stands for an object that has a key twice, or for a value that holds such an object.
type doubledKey struct{}

// jsonOpening matches the beginning of an object or an array.
var jsonOpening = regexp.MustCompile(`\{\s*["}]|\[\s*(?:[\[{"\]\d-]|true|false|null)`)

// decodeValue reads the JSON value with which a text begins, and returns its length in bytes. After an error, the
// length is how many bytes it has read.
func decodeValue(text string) (value any, length int, err error) {
	r := strings.NewReader(text)
	d := json.NewDecoder(r)
	d.UseNumber()
	if value, err = decodeNext(d, 0); err != nil {
		return nil, len(text) - r.Len(), err
	}
	return value, int(d.InputOffset()), nil
}

func decodeNext(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, opens := token.(json.Delim)
	if !opens {
		return token, nil
	}
	const deepest = 1000
	if depth == deepest {
		return nil, errors.New("the value is nested too deep")
	}
	members := map[string]any{}
	elements := []any{}
	doubled := false
	for d.More() {
		var key string
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ = name.(string)
			_, again := members[key]
			doubled = doubled || again
		}
		element, err := decodeNext(d, depth+1)
		if err != nil {
			return nil, err
		}
		if _, isTwice := element.(doubledKey); isTwice {
			doubled = true
		}
		if delim == '{' {
			members[key] = element
		} else {
			elements = append(elements, element)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, unexpectedEnd(err)
	}
	switch {
	case doubled:
		return doubledKey{}, nil
	case delim == '{':
		return members, nil
	default:
		return elements, nil
	}
}

// unexpectedEnd replaces io.EOF with the error for a text that ends inside a value.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// canonicalForm returns the canonical form of a value. It reports false if the value has a key twice, or a number that
// is too large for a float64.
func canonicalForm(value any) (form string, ok bool) {
	if !canonicalise(&value) {
		return "", false
	}
	data, err := json.Marshal(value)
	return string(data), err == nil
}

// decimalForm returns the exact canonical form of a JSON number. The caller has checked that the number is finite and
// not 0 as a float64. That is why its exponent is small, unless the text is long.
func decimalForm(text string) string {
	digits, negative := strings.CutPrefix(text, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(digits), "e")
	whole, part, _ := strings.Cut(mantissa, ".")
	exponent, _ := strconv.Atoi(power) // It is 0 for "".
	exponent -= len(part)
	all := strings.TrimLeft(whole+part, "0")
	digits = strings.TrimRight(all, "0")
	exponent += len(all) - len(digits)
	const most, least = 21, -6 // The number has no exponent if the point is between these positions, as in JavaScript.
	switch point := len(digits) + exponent; {
	case exponent >= 0 && point <= most:
		digits += strings.Repeat("0", exponent)
	case exponent < 0 && point > 0:
		digits = digits[:point] + "." + digits[point:]
	case exponent < 0 && point > least:
		digits = "0." + strings.Repeat("0", -point) + digits
	default:
		digits += "e" + strconv.Itoa(exponent)
	}
	if negative {
		return "-" + digits
	}
	return digits
}

// canonicalise replaces each number in a value by its canonical form. It reports false as canonicalForm does.
func canonicalise(value *any) bool {
	switch v := (*value).(type) {
	case doubledKey:
		return false
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return false
		}
		*value = json.Number("0")
		if f != 0 {
			*value = json.Number(decimalForm(v.String()))
		}
	case map[string]any:
		for key, member := range v {
			if !canonicalise(&member) {
				return false
			}
			v[key] = member
		}
	case []any:
		for i := range v {
			if !canonicalise(&v[i]) {
				return false
			}
		}
	}
	return true
}

// IsJSON reports whether a text is exactly one JSON value in which no object has a key twice.
func IsJSON(text string) bool {
	value, end, err := decodeValue(text)
	if _, isTwice := value.(doubledKey); err != nil || isTwice {
		return false
	}
	return strings.TrimFunc(text[end:], unicode.IsSpace) == ""
}
