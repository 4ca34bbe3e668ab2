package stage2

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
)

// InvalidReason is the closed list of reasons why a reply holds no ballot.
type InvalidReason string

// The reasons.
const (
	InvalidEmpty         InvalidReason = "empty"
	InvalidReasoningOnly InvalidReason = "reasoning_only"
	InvalidNoBallot      InvalidReason = "no_ballot"
	InvalidNoKnownLabel  InvalidReason = "no_known_label"
	InvalidUnclear       InvalidReason = "unclear"
	InvalidCutOff        InvalidReason = "cut_off"
	InvalidTooLong       InvalidReason = "too_long"
)

// Invalid is the error of a reply that holds no ballot.
type Invalid struct{ Reason InvalidReason }

// Error returns the reason in words.
func (e Invalid) Error() string {
	return map[InvalidReason]string{
		InvalidEmpty:         "the reply is empty",
		InvalidReasoningOnly: "the reply holds nothing but reasoning",
		InvalidNoBallot:      "the reply holds no ballot",
		InvalidNoKnownLabel:  "the ballot ranks no label of the slate",
		InvalidUnclear:       "the ballot cannot be read without guessing",
		InvalidCutOff:        "the ballot is cut off",
		InvalidTooLong:       "the reply is longer than 1 MiB, more than is searched for a ballot",
	}[e.Reason]
}

// maxReply is the length in bytes of the longest reply that is read. Real reviews are shorter, and reading more
// could take longer than the deadline allows.
const maxReply = 1 << 20

// maxText is how many bytes at the end of a reply are searched for the ballot, after its reasoning was removed.
// Even a text designed to be slow to read takes less than a tenth of a second.
const maxText = 32 << 10

// ParseBallot reads a reviewer's reply into a ballot over the labels of its slate, which have the form of
// [council.Label]. It is a pure function, returns for every input, and works in time linear in the reply. A reply
// of more than 1 MiB is invalid.
//
// ParseBallot ignores the thinking at the start of a reply (see package thinking) and blocks of thinking elsewhere,
// because a ballot in them is a draft. It reads the last 32 KiB of the rest. If the rest is longer and holds one
// JSON object, ParseBallot first removes the critiques from that object.
//
// In JSON, a ballot is a value that ranks or scores a label of the slate, or that abstains. If there are several
// ballots, the reviewer's own last complete ballot counts. This ballot may be in JSON, or under a FINAL RANKING line
// after the JSON. A ballot that the reviewer quotes from an answer never counts. If JSON holds no ballot, ParseBallot
// reads the last FINAL RANKING line, then a table with a rank column, then a list that gives every label a score
// "n/10". Prose is never a ballot.
//
// A list ranks by its order, or by the places that stand next to its labels: numbers, ordinals and medals, in the
// languages of the list ordinals. If places and order may mean different things, the reply is invalid.
//
// A reviewer abstains with a reason and without a ranking, in JSON or in prose. Then Abstained is true, and Reason
// holds the reviewer's words. A ranking takes precedence over an abstention. For any other reply ParseBallot
// returns an [Invalid] error and a ballot that holds the reason. It never guesses: a reply with two possible
// readings is invalid.
//
// Labels that are not on the slate are dropped, a label named twice keeps its better place, and labels that are not
// named stay missing (see [council.Ballot.Partial]). If one score is outside 1 to 10, all scores are on another scale
// and are dropped. If a ranking contradicts its scores, the ranking counts and the ballot is marked (ADR-007). A
// ranking contradicts its scores only if it places a label strictly above another label with a higher score.
func ParseBallot(text string, labels []council.Label) (council.Ballot, error) {
	b, reason := newLabelSet(labels).parse(strings.ToValidUTF8(text, string(utf8.RuneError)))
	if reason == "" {
		return b, nil
	}
	err := Invalid{Reason: reason}
	b = emptyBallot()
	b.Reason = err.Error()
	return b, err
}

// parse returns the ballot, or the reason why there is none. The methods that read a part of a reply return the same
// two values for that part.
func (s labelSet) parse(text string) (council.Ballot, InvalidReason) {
	if len(text) > maxReply {
		return council.Ballot{}, InvalidTooLong
	}
	if blank(text) {
		return council.Ballot{}, InvalidEmpty
	}
	text = thinking.Outside(thinking.Split(text).Answer)
	if len(text) > maxText {
		text = tail(withoutCritiques(text), maxText)
	}
	if blank(text) {
		return council.Ballot{}, InvalidReasoningOnly
	}
	b, end, reason := s.fromJSON(text)
	if !triesNext(reason) {
		if later, ok := s.later(text[end:]); ok && reason == "" && !sameOrder(b, later) {
			return later, ""
		} else if !ok && withdrawn.MatchString(text[end:]) {
			return council.Ballot{}, InvalidUnclear
		}
		return b, reason
	}
	b, inText := s.fromText(text)
	if !triesNext(inText) {
		return b, inText
	}
	if words, ok := refusal(text); ok {
		return abstention(words, council.SourceProse), ""
	}
	if reason == InvalidNoBallot {
		reason = inText
	}
	return council.Ballot{}, reason
}

// withoutCritiques returns text without the critiques of its JSON object. A reply that is one object, as [format] asks
// for, is long because of its critiques. ParseBallot reads only the last bytes of a long text. With the critiques,
// these bytes could hold the ranking without its key, or without the scores and the abstention that belong to it.
func withoutCritiques(text string) string {
	begin := strings.IndexByte(text, '{')
	end := strings.LastIndexByte(text, '}') + 1
	if begin < 0 || begin >= end {
		return text
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(text[begin:end]), &object) != nil {
		return text
	}
	maps.DeleteFunc(object, func(key string, _ json.RawMessage) bool { return plainKey(key) == "critiques" })
	short, err := json.Marshal(object)
	if err != nil {
		return text
	}
	return text[:begin] + string(short) + text[end:]
}

// tail returns the whole lines among the last n bytes of text. If the last line is longer than n bytes, tail returns
// the last n bytes of that line.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	if _, lines, ok := strings.Cut(text, "\n"); ok {
		return lines
	}
	return strings.ToValidUTF8(text, "") // the cut may have gone through a character
}

// triesNext reports whether the parser continues with the next part of a reply, after one part gave this reason.
func triesNext(reason InvalidReason) bool {
	return reason == InvalidNoBallot || reason == InvalidNoKnownLabel
}

// blank reports whether text has no visible character.
func blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		r = fold(r)
		return r >= 0 && !unicode.IsSpace(r)
	})
}

// labelSet finds the labels of a slate in what a reviewer wrote.
type labelSet struct {
	labels []council.Label
	// byName maps a label, and its letters in lower case, to a list that holds only this label.
	byName map[string][]council.Label
}

func newLabelSet(labels []council.Label) labelSet {
	s := labelSet{labels: labels, byName: make(map[string][]council.Label, 2*len(labels))}
	for i, l := range labels {
		one := labels[i : i+1 : i+1]
		s.byName[string(l)] = one
		s.byName[strings.ToLower(strings.TrimPrefix(string(l), "Response "))] = one
	}
	return s
}

// entry is one line or element of a ranking.
type entry struct {
	rank   int             // -1 if the entry has no number
	labels []council.Label // the labels of the slate that share the place
	note   string          // the text after the label
}

var (
	numberBefore = regexp.MustCompile(
		`^(?:(?i:rank|place|no)\b\.?\s*)?[(\[]?(\d{1,3})(?i:st|nd|rd|th)?\b[)\]]?(?:\s+(?i:place)\b)?(?:\s*[.):=-]+)*\s*`,
	)
	numberAlone = regexp.MustCompile(`^#?(\d{1,3})(?:st|nd|rd|th)?$`)
	outOfTen    = regexp.MustCompile(`(\d{1,2}(?:[.,]\d{1,2})?)\s*/\s*10(?:[^\d/]|$)`)
)

// number reads the number at the beginning of text, and returns it with the rest of the text. If there is none, it
// returns -1 and all of text. A word ("first") is a number only before a label, because sentences also begin with
// such words.
func number(text string) (rank int, rest string) {
	if m := numberBefore.FindStringSubmatch(text); m != nil {
		rank, _ = strconv.Atoi(m[1]) // at most three digits
		return rank, text[len(m[0]):]
	}
	if place, behind, ok := saidPlace(text); ok {
		behind = strings.TrimLeft(behind, " .):=-")
		if _, _, _, ok := label(behind); ok {
			return place, behind
		}
	}
	return -1, text
}

// entry reads a clean text as an optional number, one label or several that tie, and an optional note. It returns
// false if text has another form.
func (s labelSet) entry(text string) (entry, bool) {
	if l, ok := s.byName[text]; ok { // most elements are a plain label
		return entry{rank: -1, labels: l}, true
	}
	rank, text := number(text)
	labels, note, ok := s.place(text)
	// "Response A: 2" may be a rank or a score.
	if n := strings.TrimLeft(note, "#>= "); rank < 0 && n != "" && '0' <= n[0] && n[0] <= '9' && !outOfTen.MatchString(n) {
		if _, said := notePlace(note); !said {
			return entry{}, false
		}
	}
	return entry{rank, labels, note}, ok
}

var (
	labelForm = regexp.MustCompile(
		`^[\s'(\[{#]*(?:(?i:response|answer)[\s:#.'(\[{-]+([A-Za-z]{1,2})|(?:[Rr]esponse|[Aa]nswer)([A-Z]{1,2})|([A-Za-z]{1,2}))\b[')\]}]*`,
	)
	// A bare letter is a label only where a word of a sentence could not stand.
	afterLabel = regexp.MustCompile(`^\s*(?:$|[:(\[|,;=&]|-\s|(?:and|tie[ds])\b)`)
	noteStart  = regexp.MustCompile(`^\s*(?:$|[:(\[|]|-\s)`)
	tieSign    = regexp.MustCompile(`^\s*(?:=+|&|and\b|tie[ds] with\b)\s*`)
	orderSign  = regexp.MustCompile(`[-=]*>+`)
	tieWord    = regexp.MustCompile(`(?i)\b(?:tie|tied|ties|equal to|joint)\b`)
	mention    = regexp.MustCompile(`\b(?:(?i:response|answer)[\s:#.-]*([A-Za-z]{1,2})|([A-Z]{1,2}))\b`)
)

// label reads the label at the beginning of text. The label need not be on the slate. strong says that its letters
// can only be a label.
func label(text string) (letters, rest string, strong, ok bool) {
	m := labelForm.FindStringSubmatch(text)
	if m == nil {
		return "", "", false, false
	}
	letters = m[1] + m[2] + m[3]
	rest = text[len(m[0]):]
	strong = m[3] == "" && letters == strings.ToUpper(letters)
	if r, _ := utf8.DecodeRuneInString(rest); isWord(r) || !strong && !afterLabel.MatchString(rest) {
		return "", "", false, false
	}
	return letters, rest, strong, true
}

// place reads text as one place of a ranking: one label or several that tie, and an optional note. It returns false
// if text has another form, or if the note may be part of the ranking.
func (s labelSet) place(text string) (labels []council.Label, note string, ok bool) {
	if l, ok := s.byName[text]; ok {
		return l, "", true
	}
	strong := true
	for first := true; ; first = false {
		sign := tieSign.FindString(text)
		letters, rest, sure, ok := label(text[len(sign):])
		if !ok || first != (sign == "") {
			if first {
				return nil, "", false
			}
			break
		}
		labels = append(labels, s.byName[strings.ToLower(letters)]...)
		text = rest
		strong = strong && sure
	}
	note = strings.TrimLeft(text, " ,;:.!-([|")
	if _, _, _, again := label(note); again {
		return nil, "", false
	}
	if noteStart.MatchString(text) {
		return labels, note, true
	}
	next, _ := utf8.DecodeRuneInString(strings.TrimLeft(text, " "))
	if !strong || isWord(next) || tieSign.MatchString(text) || s.mentions(text) {
		return nil, "", false
	}
	return labels, note, true
}

// mentioned returns the labels of the slate that occur in text, in any form.
func (s labelSet) mentioned(text string) []council.Label {
	mentions := mention.FindAllStringSubmatch(text, -1)
	labels := make([]council.Label, 0, len(mentions))
	for _, m := range mentions {
		labels = append(labels, s.byName[strings.ToLower(m[1]+m[2])]...)
	}
	return labels
}

func (s labelSet) mentions(text string) bool { return len(s.mentioned(text)) > 0 }

// order reads a ranking on one line: "B > A = C", or "B, A, C". A line with both signs is unclear.
func (s labelSet) order(text string) ([]entry, bool) {
	parts := orderSign.Split(text, -1)
	commas := len(parts) == 1 && strings.Contains(text, ",")
	if commas {
		parts = strings.Split(text, ",")
	}
	entries := make([]entry, len(parts))
	for i, part := range parts {
		part = clean(part)
		// "and third Response C" ends an enumeration; without a number it may be a tie.
		if rest, found := strings.CutPrefix(part, "and "); found && commas {
			if rank, _ := number(rest); rank >= 0 {
				part = rest
			}
		}
		var ok bool
		entries[i], ok = s.entry(part)
		if !ok || commas && len(entries[i].labels) > 1 { // "B, A and C"
			return nil, false
		}
	}
	return entries, true
}

// places brings entries into order, best place first. Entries without numbers are already in order, and equal numbers
// tie. It returns false in three cases: only some entries have a number; the numbers are not ranks, which begin with
// 0 or 1 and do not exceed the number of candidates; or a note adds to the ranking.
func (s labelSet) places(entries []entry) ([][]council.Label, bool) {
	entries = slices.Clone(entries)
	if !slices.ContainsFunc(entries, func(e entry) bool { return e.rank >= 0 }) && !s.said(entries) {
		return nil, false
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.rank, b.rank) })
	places := make([][]council.Label, 0, len(entries))
	for i, e := range entries {
		if i > 0 && e.rank >= 0 && e.rank == entries[i-1].rank {
			places[len(places)-1] = append(places[len(places)-1], e.labels...)
		} else {
			// Clip the labels, so that appending a label that shares the place copies them.
			places = append(places, slices.Clip(e.labels))
		}
	}
	if s.notesAdd(entries) {
		return nil, false
	}
	if len(entries) == 0 || entries[len(entries)-1].rank < 0 {
		return places, true
	}
	lowest := entries[0].rank
	highest := entries[len(entries)-1].rank
	return places, 0 <= lowest && lowest <= 1 && highest <= max(len(s.labels), len(entries))
}

// notesAdd reports whether the note of an entry adds something to the ranking: a place other than the entry's own, a
// tie although no other label shares the entry's place, or a label that no entry ranks. The entries are sorted by rank.
func (s labelSet) notesAdd(entries []entry) bool {
	ranked := rankedBy(entries)
	sharing := make(map[int]int) // for each rank, how many entries have it
	for _, e := range entries {
		sharing[e.rank]++
	}
	for _, e := range entries {
		if place, said := notePlace(e.note); said && e.rank > 0 && entries[0].rank > 0 && place != e.rank {
			return true
		}
		alone := len(e.labels) < 2 && (e.rank < 0 || sharing[e.rank] == 1)
		if alone && tieWord.MatchString(e.note) {
			return true
		}
		if slices.ContainsFunc(s.mentioned(e.note), func(l council.Label) bool { return !ranked[l] }) {
			return true
		}
	}
	return false
}

// rankedBy returns the labels that entries rank.
func rankedBy(entries []entry) map[council.Label]bool {
	ranked := make(map[council.Label]bool)
	for _, e := range entries {
		for _, l := range e.labels {
			ranked[l] = true
		}
	}
	return ranked
}

func unranked(e entry) bool { return e.rank < 0 }

func emptyBallot() council.Ballot {
	return council.Ballot{Ranking: []council.Label{}, Tied: [][]council.Label{}, Scores: map[council.Label]float64{}}
}

func abstention(words string, source council.BallotSource) council.Ballot {
	b := emptyBallot()
	b.Abstained = true
	b.Reason = words
	b.Source = source
	return b
}

// ballot makes a ballot from places and scores, which hold only labels of the slate. A label that occurs twice
// keeps its best place.
func ballot(places [][]council.Label, scores map[council.Label]float64, source council.BallotSource) council.Ballot {
	b := emptyBallot()
	b.Source = source
	b.Ranking = make([]council.Label, 0, len(places))
	maps.Copy(b.Scores, scores)
	lowest := math.Inf(1) // the lowest score in all places before this one
	for _, place := range places {
		before := len(b.Ranking)
		for _, l := range place {
			if !slices.Contains(b.Ranking, l) {
				b.Ranking = append(b.Ranking, l)
			}
		}
		group := b.Ranking[before:]
		if len(group) > 1 {
			b.Tied = append(b.Tied, slices.Clone(group))
		}
		worst := lowest
		for _, l := range group {
			if score, ok := scores[l]; ok {
				b.ScoreRankMismatch = b.ScoreRankMismatch || score > lowest
				worst = min(worst, score)
			}
		}
		lowest = worst
	}
	return b
}

// scored makes a ballot whose ranking follows from the scores. Equal scores tie (ADR-007).
func (s labelSet) scored(scores map[council.Label]float64, source council.BallotSource) council.Ballot {
	var places [][]council.Label
	for _, score := range slices.Backward(slices.Compact(slices.Sorted(maps.Values(scores)))) {
		var place []council.Label // the labels with this score, in the order of the slate
		for _, l := range s.labels {
			if given, ok := scores[l]; ok && given == score {
				place = append(place, l)
			}
		}
		places = append(places, place)
	}
	return ballot(places, scores, source)
}
