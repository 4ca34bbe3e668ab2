package stage2

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// ownBallot is the last complete ballot found so far that is the reviewer's own.
type ownBallot struct {
	council.Ballot
	// end is the offset after the text that was read, or 0 before a ballot was found.
	end    int
	reason InvalidReason // says why there is no ballot
	// criterion is what the title of the ballot names, or "".
	criterion string
}

// fromJSON reads the last JSON value in text that is a complete ballot of the reviewer's own. It skips ballots that the
// reviewer quotes. It also returns the offset after the value that it read.
func (s labelSet) fromJSON(text string) (council.Ballot, int, InvalidReason) {
	found := ownBallot{reason: InvalidNoBallot}
	blocks := quoting(text)
	work := eachValue(text, func(v value, from, to int) bool {
		before := text[:from]
		b, r := s.read(v)
		if v.kind == list && r == InvalidNoBallot && !continuesAsOrder(text[to:]) {
			b, r = s.bareList(v, before)
		}
		own := !triesNext(r)
		switch {
		case !own:
			if found.reason == InvalidNoBallot {
				found.reason = r
			}
		case r == "" && (s.quoted(before, blocks) || found.staysBefore(s, b, text[to:])):
		default:
			found.replace(b, r, to, titleOf(before))
		}
		// A ballot may follow a bracket that prose left open.
		return !v.cut || own
	})
	if work > maxWork*len(text) {
		return council.Ballot{}, 0, InvalidUnclear
	}
	if found.reason == "" && s.fromWorst(text[:found.end]) {
		found.reason = InvalidUnclear
	}
	return found.Ballot, found.end, found.reason
}

// staysBefore reports whether this ballot counts instead of a later ballot. This is so in two cases: the text after the
// later ballot says that the later ballot is not the reviewer's own, or only the later ballot leaves out labels.
func (o *ownBallot) staysBefore(s labelSet, later council.Ballot, behind string) bool {
	return o.end > 0 && o.reason == "" && (quotedBehind.MatchString(behind) || s.shorter(later, o.Ballot))
}

// replace replaces the last result by a later one.
func (o *ownBallot) replace(b council.Ballot, reason InvalidReason, end int, criterion string) {
	both := reason == "" && o.reason == ""
	if both && criterion != "" && o.criterion != "" && !sameOrder(b, o.Ballot) {
		reason = InvalidUnclear // There is a ballot for each criterion, but no ballot over all criteria.
	}
	*o = ownBallot{Ballot: b, end: end, reason: reason, criterion: criterion}
}

// eachValue calls the function visit for each JSON value in text, in order, with the begin and end of the value. If
// visit returns false, or if a bracket begins no value, eachValue continues inside the brackets. It returns the number
// of bytes that it has read. It stops when this number is more than maxWork times the length of text.
func eachValue(text string, visit func(v value, from, to int) bool) (work int) {
	for start := 0; start < len(text) && work <= maxWork*len(text); {
		if !opens(text[start:]) {
			start++
			continue
		}
		p := scanner{text: text, pos: start}
		v, ok := p.value(0)
		work += p.pos - start
		if ok && visit(v, start, p.pos) {
			start = p.pos
		} else {
			start++
		}
	}
	return work
}

// read reads a value as a ballot object, or reads the ballot object inside it. If the object has a ranking and an
// abstention, the ranking counts. If the object has scores and an abstention, the abstention counts, because the form
// that was asked for requires scores even with an abstention.
func (s labelSet) read(v value) (council.Ballot, InvalidReason) {
	reason := InvalidNoBallot
	if ranking := v.get(rankingKeys()...); ranking.kind != missing {
		b, r := s.vote(ranking, v.get("scores"))
		if r == "" && b.Source == council.SourceJSON && v.fromWorst() {
			r = InvalidUnclear
		}
		if !triesNext(r) && b.Source != council.SourceScores {
			return b, r
		}
		reason = r
	}
	if b, r := s.inside(v); r != InvalidNoBallot {
		if !triesNext(r) {
			return b, r
		}
		reason = r
	}
	abstain := v.get("abstain", "abstained", "abstention")
	if abstain.cut {
		return council.Ballot{}, InvalidCutOff
	}
	if words := abstain.abstains(v.get("reason", "why", "explanation")); words != "" {
		return abstention(words, council.SourceJSON), ""
	}
	// A ranking anywhere in the value counts before its scores (ADR-007).
	if scores := v.get("scores"); scores.kind != missing {
		return s.vote(value{}, scores)
	}
	return council.Ballot{}, reason
}

// inside reads the ballot among the members of a value. If several members hold different ballots, the ballot over all
// criteria counts. If none is over all criteria, the result is unclear.
func (s labelSet) inside(v value) (found council.Ballot, reason InvalidReason) {
	reason = InvalidNoBallot
	overall := false
	differ := false
	for i, item := range v.items {
		b, r := s.read(item)
		switch over := v.kind == object && overAll.MatchString(v.keys[i]); {
		case triesNext(r):
			if reason == InvalidNoBallot {
				reason = r
			}
		case triesNext(reason), over && !overall:
			found = b
			reason = r
			overall = over
		case over == overall:
			differ = differ || r != reason || !sameOrder(b, found)
		}
	}
	if differ && !overall {
		return council.Ballot{}, InvalidUnclear
	}
	return found, reason
}

// vote reads a ballot from the values of "ranking" and "scores". Either may be missing.
func (s labelSet) vote(ranking, scores value) (council.Ballot, InvalidReason) {
	if ranking.cut {
		return council.Ballot{}, InvalidCutOff
	}
	given := s.scores(scores)
	entries, ok := s.entries(ranking, given)
	if !ok {
		return council.Ballot{}, InvalidUnclear
	}
	if !onScale(given) {
		clear(given)
	}
	places, ok := s.places(entries)
	if !ok {
		return council.Ballot{}, InvalidUnclear
	}
	if b := ballot(places, given, council.SourceJSON); len(b.Ranking) > 0 {
		return b, ""
	}
	switch {
	case scores.cut:
		return council.Ballot{}, InvalidCutOff
	case len(given) == 0:
		return council.Ballot{}, InvalidNoKnownLabel
	}
	return s.scored(given, council.SourceScores), ""
}

// onScale reports whether all numbers are scores from 1 to 10. If one is not, the others are on another scale too.
func onScale(scores map[council.Label]float64) bool {
	for _, score := range scores {
		if score < 1 || score > 10 {
			return false
		}
	}
	return true
}

// bareList reads a list as a ballot. The argument before is the text in front of the list. A list without a ranking key
// must look like a complete ballot, because lists also occur in critiques. Such a list has at least two labels in
// quotes, or objects with ranks.
func (s labelSet) bareList(v value, before string) (council.Ballot, InvalidReason) {
	keyed, part := keyBefore(before)
	if part || !keyed && !v.looksRanked() {
		return council.Ballot{}, InvalidNoBallot
	}
	b, r := s.vote(v, value{})
	if !keyed && (r != "" || len(b.Ranking) < min(2, len(s.labels))) {
		return council.Ballot{}, InvalidNoBallot
	}
	return b, r
}

// maxKey is how far keyBefore looks back, in bytes.
const maxKey = 64

// keyBefore reads the key of a list from the text before the list. The result keyed says that the list is the value of
// a ranking key, without braces or in a broken object. The result part says that the list belongs to some other broken
// object, or to code.
func keyBefore(before string) (keyed, part bool) {
	before = strings.ToValidUTF8(before[max(0, len(before)-maxKey):], "")
	before = strings.TrimSpace(strings.Map(fold, before))
	if before == "" {
		return false, false
	}
	if worstFirst.MatchString(before) {
		return false, true
	}
	sign := before[len(before)-1]
	if sign != ':' && sign != '=' {
		return false, strings.IndexByte("[({,", sign) >= 0
	}
	before = strings.TrimSpace(before[:len(before)-1])
	key := strings.TrimRight(before, `"'`)
	quoted := key != before
	key = key[strings.LastIndexAny(key, "\"'{,\n")+1:]
	if !quoted {
		key = key[strings.LastIndexAny(key, " \t")+1:]
	}
	if slices.Contains(rankingKeys(), plainKey(key)) {
		return true, false
	}
	return false, quoted || sign == '='
}

// entries reads the value of "ranking". If a score stands next to a label, entries adds it to the map scores.
func (s labelSet) entries(v value, scores map[council.Label]float64) ([]entry, bool) {
	var entries []entry
	switch v.kind {
	case list:
		position := -1
		entries = make([]entry, 0, len(v.items))
		for _, item := range v.items {
			e, ok := s.element(item, scores)
			// A position may be the place in the ranking or on the slate.
			next, has := item.get("position").rank()
			if !ok || has && next < position {
				return nil, false
			}
			if has {
				position = next
			}
			entries = append(entries, e)
		}
	case object:
		for i, item := range v.items {
			e, ok := s.pair(v.keys[i], item, scores)
			if !ok {
				return nil, false
			}
			if e.rank >= 0 { // entries without a rank are not ranked
				entries = append(entries, e)
			}
		}
	default:
		if v.nothing() {
			return nil, true
		}
		text := clean(v.text)
		entries, ok := s.order(text)
		return entries, ok || !s.mentions(text)
	}
	return entries, true
}

// element reads one element of a list. This is a label, a list of labels that tie, or an object that names a label.
func (s labelSet) element(v value, scores map[council.Label]float64) (entry, bool) {
	group := entry{rank: -1}
	switch v.kind {
	case list:
		for _, item := range v.items {
			e, ok := s.element(item, scores)
			// A number next to a label may be its rank or its score.
			if _, number := item.score(); !ok || e.rank >= 0 || number && item.kind == scalar {
				return group, false
			}
			group.labels = append(group.labels, e.labels...)
			group.note += " " + e.note
		}
		return group, true
	case object:
		return s.named(v, scores)
	default:
		text := clean(v.text)
		if e, ok := s.entry(text); ok {
			return e, true
		}
		return group, !s.mentions(text)
	}
}

// named reads an object that names a label, and may give it a rank and a score.
func (s labelSet) named(v value, scores map[council.Label]float64) (e entry, ok bool) {
	for _, key := range []string{"label", "id", "response", "answer"} {
		if e, ok = s.element(value{kind: scalar, text: v.get(key).text}, scores); !ok {
			return e, false
		}
		if len(e.labels) > 0 {
			break
		}
	}
	if len(e.labels) == 0 && s.mentionedIn(v) { // the label may be under some other key
		return e, false
	}
	if rank := v.get(rankKeys()...); !rank.nothing() {
		if e.rank, ok = rank.rank(); !ok {
			return e, false
		}
	}
	if score, ok := v.get("score").score(); ok && len(e.labels) == 1 {
		scores[e.labels[0]] = score
	}
	return e, true
}

// mentionedIn reports whether a key or text in v names a label of the slate.
func (s labelSet) mentionedIn(v value) bool {
	return s.mentions(clean(v.text)) || slices.ContainsFunc(v.items, s.mentionedIn) ||
		slices.ContainsFunc(v.keys, func(key string) bool { return s.mentions(clean(key)) })
}

// pair reads one member of an object. Either the key is a label and the value is its rank, or the key is a rank and the
// value is its label.
func (s labelSet) pair(key string, v value, scores map[council.Label]float64) (entry, bool) {
	e, ok := s.entry(clean(key))
	if ok && e.rank < 0 {
		if v.nothing() {
			return entry{rank: -1}, true
		}
		rank, ranked := v.rank()
		e.rank = rank
		return e, ranked || len(e.labels) == 0
	}
	rank, ok := value{kind: scalar, text: key}.rank()
	if !ok {
		return entry{rank: -1}, !s.mentions(clean(key))
	}
	e, ok = s.element(v, scores)
	e.rank = rank
	return e, ok
}

// scores reads the value of "scores".
func (s labelSet) scores(v value) map[council.Label]float64 {
	scores := make(map[council.Label]float64)
	for i, key := range v.keys {
		labels, note, ok := s.place(clean(key))
		if !ok || note != "" || len(labels) != 1 {
			continue
		}
		if score, ok := v.items[i].score(); ok {
			scores[labels[0]] = score
		} else {
			delete(scores, labels[0]) // the last of two equal keys counts
		}
	}
	return scores
}

// A value is a JSON value that a scanner has read.
type value struct {
	kind   kind
	text   string   // set for a scalar
	quoted bool     // the scalar is in quotes
	keys   []string // set for an object; key i belongs to item i
	items  []value
	// cut says that the text ended before the value did. Then the last item may be cut too.
	cut bool
}

type kind int

const (
	missing kind = iota
	scalar
	list
	object
)

// get returns the last member with one of the keys. Like encoding/json, it ignores case.
func (v value) get(keys ...string) value {
	for i, key := range slices.Backward(v.keys) {
		if slices.Contains(keys, plainKey(key)) {
			return v.items[i]
		}
	}
	return value{}
}

// rankingKeys returns the keys of a ranking, in the form that plainKey returns.
func rankingKeys() []string { return []string{"ranking", "rankings", "finalranking"} }

// rankKeys returns the keys of a place, in the form that plainKey returns.
func rankKeys() []string { return []string{"rank", "place"} }

// plainKey returns the letters and digits of a key in lower case.
func plainKey(key string) string {
	return strings.Map(func(r rune) rune {
		if isWord(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, strings.Map(fold, key))
}

// nothing reports whether the value is missing, or is a word for "none".
func (v value) nothing() bool {
	if v.kind != scalar {
		return v.kind == missing
	}
	none := []string{"", "-", "false", "no", "none", "null", "undefined", "n/a", "na", "not applicable"}
	return slices.Contains(none, strings.ToLower(clean(v.text)))
}

// abstains returns the reason of an abstention from the value of "abstain". This value is the reason itself, or a
// yes with the reason in another member. abstains returns "" if there is no abstention: the value is not a yes or
// has no reason, its words say that the reviewer does not abstain, or it is the template of the prompt, sent back.
func (v value) abstains(reason value) string {
	if v.kind == object {
		v = v.get("reason", "why", "explanation")
	}
	words := strings.TrimSpace(v.text)
	switch {
	case v.nothing(), v.kind != scalar:
		return ""
	case strings.EqualFold(words, "true"), strings.EqualFold(words, "yes"):
		return strings.TrimSpace(reason.text)
	case strings.HasPrefix(words, "<") && strings.HasSuffix(words, ">"):
		return ""
	case !v.quoted && strings.Trim(words, "0123456789.+-") == "":
		return ""
	case noAbstention.MatchString(clean(words)):
		return ""
	}
	return words
}

// noAbstention matches words which say that the reviewer does not abstain.
var noAbstention = regexp.MustCompile(`(?i)^(?:n/?a\b|` +
	`no(?:ne|pe)?\b(?:[^\pL]*$|.*\babst|.*\bneed|.*\bnecess|[,;:. -]+(?:all|i|every|the)\b)|` +
	`not (?:applicable|abstaining|needed|necessary)|` +
	`i (?:do not|don'?t|did not|didn'?t|will not|won'?t|am not|have not) abst|` +
	`(?:keine?\b|nein\b|nicht)(?:[^\pL]*$|.*enthalt|.*nötig)|` +
	`ich enthalte mich nicht|` +
	`aucune?\b.*|non\b(?:[^\pL]*$|.*abst)|ningun[oa]?\b.*|no me abst|` +
	`nenhuma?\b.*|não\b(?:[^\pL]*$|.*abst)|` +
	`нет\b.*|не воздерж|` +
	`無し?$|无$|没有$|否$|不弃权|不棄權|なし$|いいえ$|棄権しません|없음$|아니[오요]?$|기권하지|لا$|नहीं$)`)

// rank returns the value as a place, 0 or more.
func (v value) rank() (int, bool) {
	text := clean(v.text)
	if place, said := notePlace(text); said && !v.cut {
		return place, true
	}
	m := numberAlone.FindStringSubmatch(text)
	if m == nil || v.cut {
		return -1, false
	}
	rank, _ := strconv.Atoi(m[1]) // at most three digits
	return rank, true
}

// score returns the value as a number, which may be on another scale than council.ScoreScale. "8" and "8/10" are 8. A
// score with another number after the slash, such as "4/5", becomes 0, which is on no scale.
func (v value) score() (float64, bool) {
	text := strings.ReplaceAll(clean(v.text), " ", "")
	text, of, out := strings.Cut(strings.Replace(text, "%", "/100", 1), "/")
	if v.cut || strings.Trim(text+of, "0123456789.eE+-") != "" {
		return 0, false
	}
	score, err := strconv.ParseFloat(text, 64)
	if out && of != "10" {
		score = 0
	}
	return score, err == nil
}

// looksRanked reports whether the list can be a ranking although it has no ranking key. Words without quotes may be
// a citation, and objects without ranks may be critiques in the order of the slate.
func (v value) looksRanked() bool {
	return !slices.ContainsFunc(v.items, func(item value) bool {
		switch item.kind {
		case scalar:
			return !item.quoted
		case object:
			return item.get(rankKeys()...).kind == missing
		default:
			return !item.looksRanked()
		}
	})
}

// These are the limits of the scanner. If a value is broken, the scanner reads again from each bracket inside the
// value. Nested brackets make it read a text at most maxDepth times. Quotes can add to that, up to maxWork times.
const (
	maxDepth = 12
	// maxValues is the most values inside one value. A ballot over any slate has far fewer.
	maxValues = 4096
	maxWork   = 2 * maxDepth

	// usualValues is how many values a new list has room for. A ballot has about as many members.
	usualValues = 4
)

// A scanner reads one value of JSON as language models write it. It accepts comments, single and typographic
// quotes, full-width punctuation, trailing commas, a missing comma at the end of a line, and words without quotes.
// The end of the text or of a fenced block closes all open brackets.
type scanner struct {
	text    string
	pos     int
	width   int  // the width of the character that peek returned
	newline bool // peek skipped the end of a line
	values  int
}

// opens reports whether text begins with an opening bracket.
func opens(text string) bool {
	switch text[0] {
	case '{', '[':
		return true
	case "｛"[0]: // the first byte of both full-width brackets
		return strings.HasPrefix(text, "｛") || strings.HasPrefix(text, "［")
	}
	return false
}

// peek skips space and comments and returns the next character in its ASCII form. It returns 0 at the end of the
// text or of a fenced block.
func (p *scanner) peek() rune {
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		r, width := utf8.DecodeRuneInString(rest)
		r = fold(r)
		switch {
		case r < 0, unicode.IsSpace(r):
			p.newline = p.newline || r == '\n'
			p.pos += width
		case r == '#', strings.HasPrefix(rest, "//"):
			p.skipPast("\n")
			p.newline = true
		case strings.HasPrefix(rest, "/*"):
			p.skipPast("*/")
		case strings.HasPrefix(rest, "```"), strings.HasPrefix(rest, "~~~"):
			return 0
		default:
			p.width = width
			return r
		}
	}
	return 0
}

func (p *scanner) skipPast(end string) {
	_, rest, _ := strings.Cut(p.text[p.pos:], end)
	p.pos = len(p.text) - len(rest)
}

// value reads the value that begins at pos. It returns false if there is no JSON value.
func (p *scanner) value(depth int) (value, bool) {
	p.values++
	if depth > maxDepth || p.values > maxValues {
		return value{}, false
	}
	switch p.peek() {
	case '{':
		return p.container(object, '}', depth)
	case '[':
		return p.container(list, ']', depth)
	case 0:
		return value{kind: scalar, cut: true}, true
	}
	return p.scalar()
}

// container reads the elements of a list or the members of an object, after its opening bracket. It accepts extra
// commas, and a line break in place of a comma.
func (p *scanner) container(k kind, closing rune, depth int) (value, bool) {
	v := value{kind: k}
	p.pos += p.width
	for separated := true; ; {
		p.newline = false
		switch c := p.peek(); {
		case c == 0:
			v.cut = true
			return v, true
		case c == closing:
			p.pos += p.width
			return v, true
		case c == ',':
			p.pos += p.width
			separated = true
			continue
		case !separated && !p.newline:
			return value{}, false
		}
		separated = false
		if k == object {
			key, ok := p.key()
			if !ok {
				return value{}, false
			}
			if key.cut {
				v.cut = true
				return v, true
			}
			if v.keys == nil {
				v.keys = make([]string, 0, usualValues)
			}
			v.keys = append(v.keys, key.text)
		}
		item, ok := p.value(depth + 1)
		if v.items == nil {
			v.items = make([]value, 0, usualValues)
		}
		v.items = append(v.items, item)
		v.cut = item.cut
		if !ok || item.cut {
			return v, ok
		}
	}
}

// key reads a key and the colon after it. The key is cut if the text ends before the colon.
func (p *scanner) key() (value, bool) {
	key, ok := p.scalar()
	colon := p.peek()
	if ok && colon == ':' {
		p.pos += p.width
		return key, true
	}
	key.cut = key.cut || colon == 0
	return key, ok && key.cut
}

// scalar reads a string, or a word or number without quotes. The caller must have called peek.
func (p *scanner) scalar() (value, bool) {
	r, width := utf8.DecodeRuneInString(p.text[p.pos:])
	var closing string
	switch r {
	case '"', '＂', '\'':
		closing = string(r)
	case '“', '„', '”':
		closing = "“”"
	case '‘', '‚', '’':
		closing = "‘’"
	default:
		return p.word()
	}
	p.pos += width
	return p.quoted(closing), true
}

// quoted reads the rest of a string, which ends at one of the closing quotes. A single quote between two letters is
// an apostrophe and does not end the string.
func (p *scanner) quoted(closing string) value {
	start := p.pos
	escaped := false
	for previous := rune(0); p.pos < len(p.text); {
		r, width := utf8.DecodeRuneInString(p.text[p.pos:])
		end := p.pos
		p.pos += width
		switch {
		case r == '\\':
			_, width = utf8.DecodeRuneInString(p.text[p.pos:])
			p.pos += width
			escaped = true
		case strings.ContainsRune(closing, r):
			next, _ := utf8.DecodeRuneInString(p.text[p.pos:])
			if !strings.ContainsRune("'‘’", r) || !unicode.IsLetter(previous) || !unicode.IsLetter(next) {
				text := p.text[start:end]
				if escaped {
					text = unescape(text)
				}
				return value{kind: scalar, text: text, quoted: true}
			}
		}
		previous = r
	}
	return value{kind: scalar, text: p.text[start:], quoted: true, cut: true}
}

// unescape decodes the escapes of a string. A text with escapes that JSON does not have stays as it is.
func unescape(text string) string {
	quoted := strings.NewReplacer(`\\`, `\\`, `\"`, `\"`, `\'`, `'`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(text)
	var s string
	if json.Unmarshal([]byte(`"`+quoted+`"`), &s) != nil {
		return text
	}
	return s
}

// word reads letters, digits and the characters between them in numbers and labels. A word that ends with the text
// may be cut off, such as "1" of "10".
func (p *scanner) word() (value, bool) {
	start := p.pos
	for p.pos < len(p.text) {
		rest := p.text[p.pos:]
		r, width := utf8.DecodeRuneInString(rest)
		if !isWord(r) && !strings.ContainsRune(" \t_-.+/", r) {
			break
		}
		if strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
			break
		}
		p.pos += width
	}
	text := strings.TrimSpace(p.text[start:p.pos])
	return value{kind: scalar, text: text, cut: p.pos == len(p.text)}, text != ""
}
