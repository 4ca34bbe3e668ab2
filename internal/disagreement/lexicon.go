package disagreement

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// Lexicon lists the terms of demographic axes. Its JSON is the form of a lexicon file, which [ParseLexicon] reads.
//
// A term is one or more words. It matches itself in upper and lower case, and with an English possessive ending. In
// an English lexicon it also matches with its last word in a regular plural (also -men, "children" and "wives"). It
// never matches inside another word. Hyphens, dots and underscores make a compound, which is one word: "black-box"
// does not contain "black", and "child_process" does not contain "child". A term that is a compound matches with
// hyphens and with spaces. Unicode texts are compared without normalisation. Scripts that do not separate words
// (Chinese, Japanese, Thai) are not split into words.
type Lexicon struct {
	// Language is an ISO 639-1 code, or "" if the file names none. The rules of English apply to "" and "en". In
	// any other language a term matches only itself, no phrase means something else, and no word stands for a
	// particular person.
	Language string `json:"language,omitempty"`
	Version  string `json:"version,omitempty"`
	Axes     Axes   `json:"axes"`
}

// Axes lists the terms of each demographic axis, by the axis's name.
type Axes map[string][]string

// DefaultLexicon returns a new copy of CouncilEx's lexicon. It leaves out plurals that [Lexicon] covers. It adds some
// compounds that CouncilEx finds by searching inside words. "Is disabled" and "are disabled" do not count, because
// they are mostly about a switch. "Who is disabled" is a term of its own. Every change of a term raises the version.
func DefaultLexicon() Lexicon {
	return Lexicon{Language: "en", Version: "councild-1", Axes: Axes{
		"gender": strings.Fields(`woman female girl mother daughter wife sister feminine she her hers
			man male boy father son husband brother masculine he him his
			gender nonbinary non-binary transgender trans cisgender`),
		"ethnicity": strings.Fields(`black white asian hispanic latino latina latinx african european
			african-american asian-american indigenous native immigrant minority ethnic race racial`),
		"religion": strings.Fields(`christian christianity catholic protestant muslim islam islamic jew jewish
			hindu hinduism buddhist buddhism atheist agnostic religious secular`),
		"age": strings.Fields(`young old elderly senior teen teenager child kid adult aging youth`),
		"ability": append(strings.Fields(`disabled disability blind deaf wheelchair handicapped impaired
			able-bodied neurodiverse autistic`), "who are disabled", "who is disabled"),
	}}
}

// isEnglish reports whether the rules of English apply to the terms.
func (l Lexicon) isEnglish() bool { return l.Language == "" || l.Language == english }

const english = "en"

// otherMeanings lists phrases, of two or more words, in which terms of the default lexicon mean something else.
// They count on no axis unless a lexicon lists them as terms. Their last word may be in the plural.
//
//go:embed other_meanings.txt
var otherMeanings string

// ParseLexicon reads a lexicon from a JSON object:
//
//	{"language": "en", "version": "acme-3", "extend": true, "axes": {"age": ["pensioner"]}}
//
// Only "axes" is required. It holds the names of the axes, each with an array of terms. With "extend" these terms
// are added to those of [DefaultLexicon], so the lexicon must be in English. A JSON object without "axes" is itself
// read as the axes. A lexicon without a version gets one from a hash of its terms.
//
// ParseLexicon folds the terms to lower case, separates their words by single spaces or hyphens, sorts them and
// drops repetitions. The error lists every problem: an axis that occurs twice or has no name or no terms, and a
// term that is not a string or has no word.
func ParseLexicon(data []byte) (Lexicon, error) {
	file, err := members(data, "the lexicon is not a JSON object of axes and their terms")
	if err != nil {
		return Lexicon{}, err
	}
	var l Lexicon
	var extend bool
	var problems []error
	if i := slices.IndexFunc(file, func(m member) bool { return m.name == "axes" && m.value[0] == '{' }); i >= 0 {
		extend, problems = l.readHead(slices.Delete(slices.Clone(file), i, i+1))
		if file, err = members(file[i].value, ""); err != nil {
			return Lexicon{}, err
		}
	}
	l.Axes = Axes{}
	for _, m := range file {
		if m.name == "" {
			problems = append(problems, errors.New("an axis has no name"))
		} else if _, ok := l.Axes[m.name]; ok {
			problems = append(problems, fmt.Errorf("axis %q is listed twice", m.name))
		}
		terms, wrong := parseTerms(m.name, m.value)
		l.Axes[m.name] = terms
		problems = append(problems, wrong...)
	}
	if len(file) == 0 {
		problems = append(problems, errors.New("the lexicon has no axis"))
	}
	if len(problems) > 0 {
		return Lexicon{}, errors.Join(problems...)
	}
	if l.Version == "" {
		l.Version = l.Axes.hash()
	}
	if extend {
		l = l.extending(DefaultLexicon())
	}
	return l, nil
}

// hash returns a name for these lists of terms. Other lists have other names.
func (a Axes) hash() string {
	axes, _ := json.Marshal(a) // encoding texts cannot fail
	sum := sha256.Sum256(axes)
	return "sha256:" + hex.EncodeToString(sum[:6])
}

// readHead reads the members of a lexicon file other than the axes.
func (l *Lexicon) readHead(head []member) (extend bool, problems []error) {
	for i, m := range head {
		var err error
		switch m.name {
		case "language":
			if err = json.Unmarshal(m.value, &l.Language); err != nil || !council.IsLanguage(l.Language) {
				err = errors.New(`"language" is not a language code: write two lower-case letters, such as "en"`)
			}
		case "version":
			if err = json.Unmarshal(m.value, &l.Version); err != nil || !isVersion(l.Version) {
				err = errors.New(`"version" is not a version: write visible characters, such as "acme-3"`)
			}
		case "extend":
			if err = json.Unmarshal(m.value, &extend); err != nil {
				err = errors.New(`"extend" is neither true nor false`)
			}
		default:
			err = fmt.Errorf(`%q is next to "axes": move it into "axes" if it is an axis, or remove it`, m.name)
		}
		if slices.ContainsFunc(head[:i], func(before member) bool { return before.name == m.name }) {
			err = fmt.Errorf("%q is listed twice", m.name)
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	if extend && !l.isEnglish() {
		problems = append(problems, fmt.Errorf(`"extend" adds to the built-in terms, which are English, and "language" is %q: leave one of them out`,
			l.Language))
	}
	return extend, problems
}

func isVersion(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	})
}

// extending returns the terms of base and those of l, with a version made of both.
func (l Lexicon) extending(base Lexicon) Lexicon {
	for axis, terms := range l.Axes {
		base.Axes[axis] = append(base.Axes[axis], terms...)
	}
	for axis, terms := range base.Axes {
		slices.Sort(terms)
		base.Axes[axis] = slices.Compact(terms)
	}
	base.Version += "+" + l.Version
	return base
}

// member is a name of a JSON object with its value, which is not empty.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object in their order.
func members(data []byte, noObject string) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	start, err := dec.Token()
	if err != nil {
		return nil, syntaxError(err)
	}
	if start != json.Delim('{') {
		return nil, errors.New(noObject)
	}
	var all []member
	for dec.More() {
		key, err := dec.Token()
		var m member
		if err == nil {
			err = dec.Decode(&m.value)
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		m.name = strings.TrimSpace(key.(string))
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, syntaxError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the lexicon's JSON object")
	}
	return all, nil
}

func syntaxError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading the lexicon's JSON: %w", err)
}

func parseTerms(axis string, value json.RawMessage) (terms []string, problems []error) {
	var list []any
	if json.Unmarshal(value, &list) != nil || list == nil {
		return nil, []error{fmt.Errorf("axis %q: the value is not an array of terms", axis)}
	}
	if len(list) == 0 {
		return nil, []error{fmt.Errorf("axis %q has no terms", axis)}
	}
	for i, v := range list {
		text, ok := v.(string)
		term := normalTerm(text)
		if !ok {
			problems = append(problems, fmt.Errorf("axis %q: term %d is not a string", axis, i+1))
		} else if term == "" {
			problems = append(problems, fmt.Errorf("axis %q: term %d (%q) has no word", axis, i+1, text))
		}
		terms = append(terms, term)
	}
	slices.Sort(terms)
	return slices.Compact(terms), problems
}

// normalTerm returns a term in the form that a lexicon holds.
func normalTerm(text string) string {
	var term strings.Builder
	for i, w := range split(text, nil) {
		if w.joined {
			term.WriteByte('-')
		} else if i > 0 {
			term.WriteByte(' ')
		}
		term.WriteString(w.text)
	}
	return term.String()
}

// word is one word of a text, or one part of a compound.
type word struct {
	text string // in lower case
	// True if a hyphen joins this word to the word before it, as in "able-bodied".
	joined bool
}

// split returns the words of a text. A word is a run of letters, marks and digits with single apostrophes inside.
// Words are in lower case and without an English possessive ending. ended is the Err method of a context, or nil.
// If that context ends first, split returns nil.
func split(text string, ended func() error) []word {
	text = strings.Map(foldRune, text)
	words := make([]word, 0, len(text)/5)
	start := -1 // the start of the current word, or -1 outside a word
	end := 0    // the end of the last word
	finish := func(i int) {
		words = append(words, word{
			text:   strings.TrimSuffix(text[start:i], "'s"),
			joined: len(words) > 0 && joins(text[end:start]),
		})
		start = -1
		end = i
	}
	var n steps
	var size int // the size of a character
	for i := 0; i < len(text); i += size {
		if n.look(ended) {
			return nil
		}
		var inside bool
		if c := text[i]; c < utf8.RuneSelf { // most characters, without decoding
			size = 1
			inside = 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
			if c == '\'' && start >= 0 {
				next, _ := utf8.DecodeRuneInString(text[i+1:])
				inside = isWordRune(next)
			}
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(text[i:])
			inside = isWordRune(r)
		}
		if inside && start < 0 {
			start = i
		} else if !inside && start >= 0 {
			finish(i)
		}
	}
	if start >= 0 {
		finish(len(text))
	}
	return words
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || '0' <= r && r <= '9'
	}
	return unicode.In(r, unicode.Letter, unicode.Mark, unicode.Digit)
}

// joins reports whether the text between two words makes them a compound. It does if it is a hyphen, or the dot or
// underscore of a file name or an identifier.
func joins(gap string) bool {
	switch gap {
	case "-", "\u2010", "\u2011", ".", "_":
		return true
	default:
		return false
	}
}

// foldRune returns the lower case of a letter, and one form for both apostrophes.
func foldRune(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r < utf8.RuneSelf:
		return r
	case r == '’':
		return '\''
	}
	return unicode.ToLower(unicode.ToUpper(r)) // both forms of sigma have one upper case
}

// plurals returns the regular English plurals of a word, and some irregular ones.
func plurals(singular string) []string {
	var forms []string
	if stem, ok := strings.CutSuffix(singular, "man"); ok {
		forms = append(forms, stem+"men")
	}
	switch singular {
	case "child":
		forms = append(forms, "children")
	case "wife":
		forms = append(forms, "wives")
	}
	for _, form := range []string{singular + "s", singular + "es"} {
		// "wives" comes only from "wife", which the switch above handles.
		if form != "wives" {
			forms = append(forms, form)
		}
	}
	if stem, ok := strings.CutSuffix(singular, "y"); ok {
		forms = append(forms, stem+"ies")
	}
	return forms
}

// phrase is a sequence of words. The last one may be in the plural.
type phrase struct {
	words []word
	last  []string // the forms that the last word may have
	term  string   // the term in the lexicon
	axis  int      // the index in Matcher.axes
}

// newPhrase returns the phrase of a text. In English its last word may be in the plural.
func newPhrase(text, term string, axis int, isEnglish bool) phrase {
	p := phrase{words: split(text, nil), term: term, axis: axis}
	if n := len(p.words); n > 0 {
		p.last = []string{p.words[n-1].text}
		if isEnglish {
			p.last = append(p.last, plurals(p.words[n-1].text)...)
		}
	}
	return p
}

// matches reports whether the argument words begins with the phrase. The caller has compared the first word.
func (p phrase) matches(words []word) bool {
	last := len(p.words) - 1
	if last == 0 {
		return true
	}
	if last >= len(words) {
		return false
	}
	for i := 1; i < last; i++ {
		if words[i].text != p.words[i].text {
			return false
		}
	}
	return slices.Contains(p.last, words[last].text)
}

// entry holds the phrases that begin with a word, the longest first.
type entry struct {
	terms  []phrase
	others []phrase // the phrases that mean something else
}

// Matcher finds the terms of a lexicon in texts. It never changes, so all sessions can share one.
type Matcher struct {
	lexicon council.DemographicLexicon
	terms   Axes     // the terms of the lexicon
	english bool     // set if the rules for particular persons apply
	axes    []string // sorted
	index   map[string]entry
}

// NewMatcher returns a Matcher for the terms of a lexicon.
func NewMatcher(lexicon Lexicon) *Matcher {
	m := &Matcher{english: lexicon.isEnglish(), axes: slices.Sorted(maps.Keys(lexicon.Axes)), index: map[string]entry{}}
	m.lexicon.Version = lexicon.Version
	m.terms = lexicon.Axes
	if lexicon.Language != "" {
		m.lexicon.Language = &lexicon.Language
	}
	var terms, others []phrase
	for i, axis := range m.axes {
		for _, term := range lexicon.Axes[axis] {
			terms = append(terms, newPhrase(term, term, i, m.english))
		}
	}
	if m.english {
		for text := range strings.SplitSeq(otherMeanings, ",") {
			others = append(others, newPhrase(text, "", 0, true))
		}
	}
	longestFirst := func(phrases []phrase) []phrase {
		slices.SortStableFunc(phrases, func(a, b phrase) int { return len(b.words) - len(a.words) })
		return slices.DeleteFunc(phrases, func(p phrase) bool { return len(p.words) == 0 })
	}
	terms = longestFirst(terms)
	others = longestFirst(others)
	add := func(word string, p phrase) {
		e := m.index[word]
		e.terms = append(e.terms, p)
		m.index[word] = e
	}
	for _, p := range terms {
		add(p.words[0].text, p)
	}
	// A term may be equal to the plural of another one. Terms are therefore added before plurals.
	for _, p := range terms {
		if len(p.words) == 1 {
			for _, plural := range p.last[1:] {
				add(plural, p)
			}
		}
	}
	for _, p := range others {
		e := m.index[p.words[0].text]
		e.others = append(e.others, p)
		m.index[p.words[0].text] = e
	}
	return m
}

// Axes returns the names of the axes, sorted.
func (m *Matcher) Axes() []string { return slices.Clone(m.axes) }

// fingerprint identifies the version of the lexicon, its language and its exact terms.
func (m *Matcher) fingerprint() string {
	language := "en"
	if !m.english {
		language = *m.lexicon.Language
	}
	return m.lexicon.Version + " " + language + " " + m.terms.hash()
}

// mentioned returns the terms that occur anywhere in a text, also in compounds and in phrases that mean something
// else. For example, an answer to a question about race conditions uses the word "race".
func (m *Matcher) mentioned(words []word) map[string]bool {
	terms := map[string]bool{}
	for i := range words {
		for _, p := range m.index[words[i].text].terms {
			if p.matches(words[i:]) {
				terms[p.term] = true
			}
		}
	}
	return terms
}

// coverage says which terms of one axis a text has.
type coverage struct {
	terms map[string]int // how often each term occurs
	// hits counts the occurrences that are compared between texts. All words for particular persons (see person) of
	// one gender count once.
	hits    int
	persons [2]bool // by gender: the text has a word for a particular person
}

// add counts one occurrence of a term. person is the gender of the particular person that the term stands for, or
// -1 if there is none.
func (c *coverage) add(term string, person int) {
	if c.terms == nil { // most texts have no term of most axes
		c.terms = map[string]int{}
	}
	c.terms[term]++
	if person < 0 {
		c.hits++
	} else if !c.persons[person] {
		c.persons[person] = true
		c.hits++
	}
}

// hits returns, for each axis, the occurrences of its terms in a text, without the terms to ignore. If phrases
// overlap, the first counts. If they start at the same word, the longest counts. If ctx ends, hits returns what it
// has found so far.
func (m *Matcher) hits(ctx context.Context, words []word, ignore map[string]bool) []coverage {
	found := make([]coverage, len(m.axes))
	taken := make([]int, len(m.axes)) // the end of the last phrase, by axis
	var n steps
	for i := range words {
		if n.look(ctx.Err) {
			return found
		}
		at, ok := m.index[words[i].text]
		if !ok || words[i].joined {
			continue
		}
		whole := func(p phrase) bool {
			end := i + len(p.words)
			return p.matches(words[i:]) && (end == len(words) || !words[end].joined)
		}
		other := 0 // the number of words here that mean something else
		if k := slices.IndexFunc(at.others, whole); k >= 0 {
			other = len(at.others[k].words)
		}
		for _, p := range at.terms {
			if whole(p) && len(p.words) >= other && taken[p.axis] <= i {
				taken[p.axis] = i + len(p.words)
				if ignore[p.term] {
					continue
				}
				who := -1
				if m.english {
					who = person(words, i)
				}
				found[p.axis].add(p.term, who)
			}
		}
		for axis := range taken {
			taken[axis] = max(taken[axis], i+other)
		}
	}
	return found
}

// person returns 0 if a word stands for a particular woman or girl, 1 for a man or boy or a person of no gender, and
// -1 otherwise. Such words are pronouns, and nouns for one person after a word that selects one: "my mother", "the
// old man". They do not show that the text covers an axis, because every text about a particular person has such
// words. "Women", "a woman" and "the elderly" are coverage.
func person(words []word, i int) int {
	gender := 1
	switch words[i].text {
	case "she", "her", "hers":
		return 0
	case "he", "him", "his":
		return 1
	case "woman", "girl", "mother", "daughter", "wife", "sister":
		gender = 0
	case "man", "boy", "father", "son", "husband", "brother", "child", "kid", "teenager":
	case "old", "young":
		if i+1 == len(words) || !slices.Contains([]string{"woman", "girl", "man", "boy", "child"}, words[i+1].text) {
			return -1
		}
	default:
		return -1
	}
	for k := i - 1; k >= max(0, i-2); k-- {
		switch words[k].text {
		case "my", "your", "his", "her", "its", "our", "their", "the", "this", "that":
			return gender
		case "a", "an":
			return -1
		}
	}
	return -1
}
