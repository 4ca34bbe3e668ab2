package trial

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
	// emphasisMarks is what Markdown puts around words.
	emphasisMarks = "*_`~"
	// linePrefix is what Markdown puts before a line.
	linePrefix = emphasisMarks + "#>-+• \t"
	// outerMarks is what stands around an answer without belonging to it.
	outerMarks = emphasisMarks + "\"'“”„‘’«»"
)

// filledLines returns the lines of a text without the blanks around them, and without empty ones.
func filledLines(text string) []string {
	var all []string
	for line := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' }) {
		if line = strings.TrimFunc(line, unicode.IsSpace); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// answerLine returns what stands behind "ANSWER:" in the last line that begins so, in any case
// and markup and in some languages, or on the line below where nothing does.
func answerLine(text string) (answer string, ok bool) {
	all := filledLines(text)
	for i, line := range slices.Backward(all) {
		rest := strings.TrimLeft(line, linePrefix)
		opened := line[:len(line)-len(rest)]
		end := strings.IndexAny(rest[:min(len(rest), maxAnswerLabel)], ":：")
		if end >= 0 {
			end = strings.IndexAny(rest, ":：")
		} else if i+1 < len(all) && len(opened) > 0 && len(rest) <= maxAnswerLabel { // a title
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

// firstBelow returns the first of lines that holds more than the beginning of a formula or of a fenced block.
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

// onlyLine returns the line of a text that has one, else "".
func onlyLine(text string) string {
	if all := filledLines(text); len(all) == 1 {
		return all[0]
	}
	return ""
}

// normalForm returns a text without regard to case, blanks, outer quotes and markup, and full stops
// at its end. Case is that of single characters (Unicode's simple folding): ß is not ss.
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

// foldedCase returns one character for all that differ in case only.
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

// option returns the option with which an answer begins. An answer that begins with none is an
// answer all the same. One that joins two options, as in "A or B", is none.
func (g *Grader) option(answer string) (form string, ok bool) {
	answer = normalForm(answer)
	text := strings.TrimLeft(answer, outerMarks+"([{ ")
	first, rest := g.cutOption(text)
	if first == "" {
		if word := optionWord.FindString(text); word != "" {
			first, rest = g.cutOption(strings.TrimLeft(text[len(word):], outerMarks+"([{ "))
		}
	}
	if first == "" {
		return answer, answer != ""
	}
	// Behind a blank, another word makes a sentence of it: "A spider has eight legs", "No idea".
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
	second, tail := g.cutOption(strings.TrimLeft(bare, outerMarks+"([{/ "))
	if second != "" && (joined || !strings.ContainsFunc(tail, unicode.IsLetter)) {
		return "", false
	}
	return first, true
}

// cutOption returns the longest option that a normal text begins with as a word of its own, or "".
func (g *Grader) cutOption(text string) (option, rest string) {
	longest := 0
	for i, o := range g.options {
		behind, begins := strings.CutPrefix(text, o)
		if !begins || len(o) <= longest {
			continue
		}
		if next, _ := utf8.DecodeRuneInString(behind); behind == "" ||
			!unicode.IsLetter(next) && !unicode.IsDigit(next) {
			option = g.spec.Options[i]
			rest = behind
			longest = len(o)
		}
	}
	return option, rest
}

// numeral is a number, in groups of three or without groups, or a fraction of two whole ones.
var numeral = regexp.MustCompile(`^([+-]?)[$€£¥]?([+-]?)(\d+/\d+|(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,9})?)(.*)$`)

// behindNumber says what may stand behind a number.
type behindNumber int

const (
	anyProse behindNumber = iota // anything without a digit
	unitOnly                     // two words of it at most
)

// quotient returns a number, or the quotient of two with a slash between them, multiplied by a factor.
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

// readNumber reads the number with which an answer begins.
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

// numberText returns the canonical form of a number.
func numberText(value float64) string {
	return strconv.FormatFloat(value+0, 'g', -1, 64) // -0 + 0 is 0
}

// readJSON returns the last object or array that stands in a text, or the value that a text is,
// in canonical form: keys sorted, numbers by value. A value with a key twice is none.
func readJSON(text string) (form string, ok bool) {
	if value, end, err := decodeValue(text); err == nil && strings.TrimFunc(text[end:], unicode.IsSpace) == "" {
		return canonicalForm(value)
	}
	var last any
	found := false
	// What is read in vain is bounded, so that no text takes more than time in proportion to it.
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

// doubledKey stands for an object that has a key twice.
type doubledKey struct{}

// jsonOpening is how an object or an array begins.
var jsonOpening = regexp.MustCompile(`\{\s*["}]|\[\s*(?:[\[{"\]\d-]|true|false|null)`)

// decodeValue reads the JSON value that a text begins with, and returns how long it is. After an
// error that is how much was read.
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

// unexpectedEnd returns the error of a text that ends inside a value.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// canonicalForm returns the canonical form of a value, unless it has a key twice or a number that is
// not finite.
func canonicalForm(value any) (form string, ok bool) {
	if !canonicalise(&value) {
		return "", false
	}
	data, err := json.Marshal(value)
	return string(data), err == nil
}

// decimalForm returns the canonical form of a number of JSON, exactly. As a float64 it is finite and not 0, so that its exponent
// is small, or the text is long.
func decimalForm(text string) string {
	digits, negative := strings.CutPrefix(text, "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(digits), "e")
	whole, part, _ := strings.Cut(mantissa, ".")
	exponent, _ := strconv.Atoi(power) // without one it is 0
	exponent -= len(part)
	all := strings.TrimLeft(whole+part, "0")
	digits = strings.TrimRight(all, "0")
	exponent += len(all) - len(digits)
	const most, least = 21, -6 // places of the point between which there is no exponent, as in JavaScript
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

// canonicalise replaces each number by its canonical form.
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

// isJSON reports whether a text is one JSON value, with nothing behind it, in which no key stands twice.
func isJSON(text string) bool {
	value, end, err := decodeValue(text)
	if _, isTwice := value.(doubledKey); err != nil || isTwice {
		return false
	}
	return strings.TrimFunc(text[end:], unicode.IsSpace) == ""
}
