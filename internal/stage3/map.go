package stage3

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// These numbers limit what a map can hold, and so the work of checking a hostile map.
const (
	maxEntries  = 5 // in each list
	maxSides    = 6 // in a dispute
	maxQuotes   = 6 // in a claim
	minQuote    = 12
	maxQuote    = 300 // characters, like minQuote
	maxSentence = 300 // characters of a claim, or of another text of the chairman
	// maxSpan is how many bytes a quote may have in the answer. Blanks and marks there do not count as characters.
	maxSpan = 4 * maxQuote
)

// These types have the JSON that the chairman writes. A field is nil if it is missing.
type (
	rawMap struct {
		Agreed      *[]rawClaim   `json:"agreed"`
		Disputed    *[]rawDispute `json:"disputed"`
		OnlyOneSaid *[]rawClaim   `json:"only_one_said"`
		Open        *[]string     `json:"open"`
	}
	rawDispute struct {
		About *string     `json:"about"`
		Sides *[]rawClaim `json:"sides"`
	}
	rawClaim struct {
		Claim  *string     `json:"claim"`
		Quotes *[]rawQuote `json:"quotes"`
	}
	rawQuote struct {
		Answer *string `json:"answer"`
		Quote  *string `json:"quote"`
	}
)

func (m rawMap) whole() bool {
	return m.Agreed != nil && m.Disputed != nil && m.OnlyOneSaid != nil && m.Open != nil &&
		all(*m.Agreed, rawClaim.whole) && all(*m.OnlyOneSaid, rawClaim.whole) && all(*m.Disputed, rawDispute.whole)
}

func (d rawDispute) whole() bool {
	return d.About != nil && d.Sides != nil && all(*d.Sides, rawClaim.whole)
}

func (c rawClaim) whole() bool {
	return c.Claim != nil && c.Quotes != nil && all(*c.Quotes, rawQuote.whole)
}

func (q rawQuote) whole() bool { return q.Answer != nil && q.Quote != nil }

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !is(v) })
}

// readTail reads the first JSON object of a tail, and returns the text behind it. The reason is "" if the object has
// the form of a map.
func readTail(tail string) (m rawMap, behind string, reason council.MapReason) {
	begin := strings.IndexByte(tail, '{')
	if begin < 0 {
		if _, text, _ := strings.Cut(tail, "\n"); strings.Trim(text, blanks+"\n`~") == "" {
			return m, "", council.MapNone
		}
		return m, "", council.MapNotJSON
	}
	from := json.NewDecoder(strings.NewReader(tail[begin:]))
	var object json.RawMessage
	switch err := from.Decode(&object); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return m, "", council.MapCutOff
	case err != nil:
		return m, "", council.MapNotJSON
	}
	strict := json.NewDecoder(strings.NewReader(string(object)))
	strict.DisallowUnknownFields()
	if strict.Decode(&m) != nil || !m.whole() {
		return m, "", council.MapSchema
	}
	return m, tail[begin:][from.InputOffset():], ""
}

// Quoted has the answers that a map may quote.
type Quoted struct {
	Slate   council.Slate // the answers in the order of the prompt
	Answers map[string]string
	// Same reports whether two members are one model.
	Same func(member, other string) bool
}

// ReadMap reads the map from the tail of a synthesis, and checks it. The argument cut says that the reply ended at the
// token limit.
func ReadMap(tail string, cut bool, in Quoted) council.Map {
	raw, _, reason := readTail(tail)
	if cut && (reason == council.MapNone && tail != "" || reason == council.MapNotJSON) {
		reason = council.MapCutOff
	}
	if reason != "" {
		return council.Map{Reason: &reason}
	}
	c := &checker{in: in, folded: map[string]folded{}}
	m := council.Map{
		Agreed: []council.Claim{}, Disputed: []council.Dispute{}, OnlyOneSaid: []council.Claim{}, Open: []string{},
	}
	for _, claim := range first(*raw.Agreed) {
		if claim := c.claim(claim); c.models(claim) > 1 {
			m.Agreed = append(m.Agreed, c.printed(claim))
		}
	}
	for _, dispute := range first(*raw.Disputed) {
		about := c.sentence(*dispute.About)
		sides := c.sides(*dispute.Sides)
		if about == "" || len(sides) < 2 {
			continue
		}
		m.Disputed = append(m.Disputed, council.Dispute{About: about})
		for _, side := range sides {
			last := &m.Disputed[len(m.Disputed)-1]
			last.Sides = append(last.Sides, c.printed(side))
		}
	}
	for _, claim := range first(*raw.OnlyOneSaid) {
		claim := c.claim(claim)
		claim.quotes = slices.DeleteFunc(claim.quotes, func(q found) bool { return c.elsewhere(q) })
		if c.models(claim) == 1 {
			m.OnlyOneSaid = append(m.OnlyOneSaid, c.printed(claim))
		}
	}
	for _, open := range first(*raw.Open) {
		if open := c.sentence(open); open != "" {
			m.Open = append(m.Open, open)
		}
	}
	m.Dropped = raw.quotes() - c.kept
	if 2*c.invented > c.checked {
		return council.Map{Dropped: raw.quotes(), Reason: new(council.MapQuotesInvented)}
	}
	return m
}

// first returns the entries of a list up to maxEntries. Further entries do not count.
func first[T any](list []T) []T { return list[:min(len(list), maxEntries)] }

// quotes returns how many quotes a map has.
func (m rawMap) quotes() (n int) {
	for _, claim := range slices.Concat(*m.Agreed, *m.OnlyOneSaid) {
		n += len(*claim.Quotes)
	}
	for _, dispute := range *m.Disputed {
		for _, side := range *dispute.Sides {
			n += len(*side.Quotes)
		}
	}
	return n
}

// checker checks the quotes of one map.
type checker struct {
	in       Quoted
	folded   map[string]folded // the answers by member, each folded when a quote first names it
	checked  int               // quotes of an allowed length
	invented int               // checked quotes that the named answer does not hold
	kept     int               // quotes that were printed
}

// found is a quote that stands in an answer.
type found struct {
	member string
	text   string // folded
	at     int    // where text begins in the folded answer
}

// claim is a claim of the chairman. Its quotes stand in the answers that they name.
type claim struct {
	text   string // "" if the claim cannot be printed
	quotes []found
}

// claim looks for the quotes of a claim in the answers.
func (c *checker) claim(raw rawClaim) claim {
	checked := claim{text: c.sentence(*raw.Claim)}
	quotes := *raw.Quotes
	for _, raw := range quotes[:min(len(quotes), maxQuotes)] {
		if q, ok := c.find(raw); ok && !slices.Contains(checked.quotes, q) {
			checked.quotes = append(checked.quotes, q)
		}
	}
	return checked
}

// find looks for a quote in the answer that it names.
func (c *checker) find(raw rawQuote) (q found, ok bool) {
	q.text = strings.TrimSpace(fold(*raw.Quote).text)
	if n := utf8.RuneCountInString(q.text); n < minQuote || n > maxQuote {
		return q, false
	}
	c.checked++
	if q.member = c.member(*raw.Answer); q.member != "" {
		q.at = strings.Index(c.answer(q.member).text, q.text)
	}
	if q.member == "" || q.at < 0 {
		c.invented++
		return q, false
	}
	_, ok = c.span(q)
	return q, ok
}

// member returns the author of the answer that a label such as "Answer 2" names, or "".
func (c *checker) member(label string) string {
	label = strings.TrimSpace(label)
	if word := "answer"; len(label) > len(word) && strings.EqualFold(label[:len(word)], word) {
		label = strings.TrimSpace(label[len(word):])
	}
	n, err := strconv.Atoi(label)
	if err != nil || n < 1 || n > len(c.in.Slate) {
		return ""
	}
	return c.in.Slate[n-1].Member
}

// answer returns the folded answer of a member.
func (c *checker) answer(member string) folded {
	f, ok := c.folded[member]
	if !ok {
		f = fold(c.in.Answers[member])
		c.folded[member] = f
	}
	return f
}

// span returns the part of the answer that a quote was found in. It returns false if that part is too long to print.
func (c *checker) span(q found) (string, bool) {
	return c.answer(q.member).span(c.in.Answers[q.member], q.at, q.at+len(q.text), maxSpan)
}

// models returns how many models a claim quotes. The result is 0 for a claim that cannot be printed.
func (c *checker) models(checked claim) int {
	var models []string
	for _, q := range checked.quotes {
		if checked.text != "" && !slices.ContainsFunc(models, func(m string) bool { return m == q.member || c.in.Same(m, q.member) }) {
			models = append(models, q.member)
		}
	}
	return len(models)
}

// sides returns the sides of a dispute that have quotes. A quote that also stands in a quoted answer of another side
// counts for neither side.
func (c *checker) sides(raw []rawClaim) (sides []claim) {
	raw = raw[:min(len(raw), maxSides)]
	claims := make([]claim, 0, len(raw))
	for _, side := range raw {
		claims = append(claims, c.claim(side))
	}
	for i, side := range claims {
		var quotes []found
		for _, q := range side.quotes {
			if !c.hold(claims[:i], q) && !c.hold(claims[i+1:], q) {
				quotes = append(quotes, q)
			}
		}
		if side.text != "" && len(quotes) > 0 {
			sides = append(sides, claim{side.text, quotes})
		}
	}
	return sides
}

// hold reports whether a quote stands in any of the answers that the claims quote.
func (c *checker) hold(claims []claim, q found) bool {
	return slices.ContainsFunc(claims, func(other claim) bool {
		return slices.ContainsFunc(other.quotes, func(o found) bool {
			return strings.Contains(c.answer(o.member).text, q.text)
		})
	})
}

// elsewhere reports whether a quote also stands in the answer of another member.
func (c *checker) elsewhere(q found) bool {
	return slices.ContainsFunc(c.in.Slate, func(shown council.Shown) bool {
		return shown.Member != q.member && strings.Contains(c.answer(shown.Member).text, q.text)
	})
}

// printed returns a claim for the map. Its quotes are parts of the answers, byte for byte.
func (c *checker) printed(checked claim) council.Claim {
	out := council.Claim{Claim: checked.text}
	for _, q := range checked.quotes {
		text, _ := c.span(q)
		out.Quotes = append(out.Quotes, council.Quote{Model: q.member, Quote: text})
	}
	c.kept += len(out.Quotes)
	return out
}

var labels = regexp.MustCompile(`\bAnswer [1-9][0-9]?\b`)

// sentence returns a text of the chairman on one line, with the ids of members in place of their labels. It returns ""
// if the text is empty or too long.
func (c *checker) sentence(text string) string {
	if len(text) > 4*maxSentence {
		return ""
	}
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxSentence {
		return ""
	}
	return labels.ReplaceAllStringFunc(text, func(label string) string {
		if member := c.member(label); member != "" {
			return member
		}
		return label
	})
}
