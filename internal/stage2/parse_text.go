package stage2

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// fold returns the ASCII form of full-width and typographic characters, so that the parsers handle only one
// spelling. It returns -1 for invisible characters.
func fold(r rune) rune {
	switch {
	case r == '\r':
		return -1
	case r < utf8.RuneSelf:
		return r
	case '！' <= r && r <= '～':
		return r - '！' + '!'
	}
	if i := strings.IndexRune(typographic, r); i >= 0 {
		return rune(asciiForms[utf8.RuneCountInString(typographic[:i])])
	}
	switch {
	case r == '\uFE0F', r == '\u20E3': // these turn a digit into an emoji
		return -1
	case unicode.IsSpace(r):
		return ' '
	case unicode.Is(unicode.Cf, r): // zero-width and directional marks
		return -1
	}
	return r
}

// The characters at the same place in typographic and asciiForms belong together.
const (
	typographic = `“”„«»` + `‘’‚` + `‐‑–—−` + `→⇒≻` + `≈、。` + `│┃` + `【「『】」』` + "\u2028\u2029"
	asciiForms  = `"""""` + `'''` + `-----` + `>>>` + `=,.` + `||` + `[[[]]]` + "\n\n"
)

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

var (
	htmlTag = regexp.MustCompile(`</?(?:[bipu]|strong|em|h[1-6]|br|li|ol|ul|code)\s*/?>`)
	angled  = regexp.MustCompile(`<([^<>]*)>`)
)

// clean returns a line in folded form without markup.
func clean(text string) string {
	if strings.ContainsFunc(text, isMedal) {
		text = medals.Replace(text)
	}
	text = strings.Map(func(r rune) rune {
		switch r = fold(r); r {
		case '*', '`', '"', '~', '\\':
			return -1
		case '_', '\t', '\n':
			return ' '
		}
		return r
	}, text)
	if strings.ContainsRune(text, '<') {
		text = angled.ReplaceAllString(htmlTag.ReplaceAllString(text, ""), "$1")
	}
	return strings.TrimRight(strings.TrimSpace(text), " .,;:!")
}

// unbullet removes everything before the first word of a clean line, except brackets.
func unbullet(text string) string {
	return strings.TrimLeftFunc(text, func(r rune) bool { return !isWord(r) && !strings.ContainsRune("([{", r) })
}

// fromText reads a ballot from a reply without JSON.
func (s labelSet) fromText(text string) (council.Ballot, InvalidReason) {
	lines := strings.Split(strings.Map(fold, text)+"\n", "\n") // the last one is empty
	scores := s.scoreList(lines)
	source := council.SourceFinalRanking
	places, reason := s.finalRanking(lines)
	if triesNext(reason) {
		source = council.SourceTable
		places, reason = s.table(lines)
	}
	switch {
	case triesNext(reason) && scores != nil:
		return s.scored(scores, council.SourceScoreList), ""
	case reason != "":
		return council.Ballot{}, reason
	}
	return ballot(places, scores, source), ""
}

// later reads a complete ballot under a FINAL RANKING line. The argument text is the part of a reply after a ballot in
// JSON.
func (s labelSet) later(text string) (council.Ballot, bool) {
	if !strings.Contains(strings.ToLower(text), "final") {
		return council.Ballot{}, false
	}
	places, reason := s.finalRanking(strings.Split(strings.Map(fold, text)+"\n", "\n"))
	b := ballot(places, nil, council.SourceFinalRanking)
	return b, reason == "" && !b.Partial(len(s.labels))
}

// known returns the places of entries if the entries rank at least one label of the slate.
func (s labelSet) known(entries []entry) ([][]council.Label, InvalidReason) {
	places, ok := s.places(entries)
	switch {
	case !ok:
		return nil, InvalidUnclear
	case len(rankedBy(entries)) == 0:
		return nil, InvalidNoKnownLabel
	}
	return places, ""
}

// headline matches FINAL RANKING at the beginning of a line, with words that qualify it. Its group is the sign that
// separates the headline from a ranking on the same line.
var headline = regexp.MustCompile(`(?i)^[^\pL]*final\s+rankings?\b` +
	`(?:\s*\([^()]*\)|[\s,-]*\b(?:of|the|all|these|responses|answers|candidates|from|best|to|worst|first)\b)*\s*([:=-]*)`)

// finalRanking reads the list on or under the last line that begins with FINAL RANKING.
func (s labelSet) finalRanking(lines []string) ([][]council.Label, InvalidReason) {
	blocks := quoting(strings.Join(lines, "\n"))
	for i, raw := range slices.Backward(lines) {
		line := clean(raw)
		head := headline.FindStringSubmatch(line)
		if head == nil || s.quoted(strings.Join(lines[max(0, i-2):i], "\n")+"\n"+raw[:strings.IndexFunc(raw, isWord)], blocks) {
			continue
		}
		behind := line[len(head[0]):]
		_, list := s.first(behind)
		switch {
		case head[1] == "" && unbullet(behind) != "" && (!list || colon(raw)):
			continue // "Final ranking is hard here" or "Final ranking rationale:"
		case worstFirst.MatchString(line):
			return nil, InvalidUnclear
		}
		return s.list(behind, lines[i+1:])
	}
	return nil, InvalidNoBallot
}

// worstFirst matches words that say that a list begins with the worst.
var worstFirst = regexp.MustCompile(`(?i)\b(?:worst|weakest|lowest)[\s_]*(?:to|first|through|-|>)|\b(?:ascending|reverse)|` +
	`schlechteste\pL* (?:zu[mr]?|zuerst|bis)|(?:du|de la) pires? (?:au|à la|aux)|de l[ao]s? peor\pL* a|d[oa] pior (?:ao|para)|` +
	`от худш\pL* к|从(?:最?差|劣|低)到|由(?:最?差|劣|低)[到至]|悪い順|最悪から|최악부터|낮은 순`)

// first reads the first line of a ranking. The line is the whole ranking, with signs between the labels, or its
// first entry.
func (s labelSet) first(line string) ([]entry, bool) {
	text := unbullet(clean(line))
	if strings.Contains(text, "|") {
		return nil, false
	}
	if entries, ok := s.order(text); ok {
		return entries, true
	}
	e, ok := s.entry(text)
	return []entry{e}, ok
}

// list reads the ranking that begins after a headline on the same line, or in the lines under it.
func (s labelSet) list(behind string, under []string) ([][]council.Label, InvalidReason) {
	for i, line := range append([]string{behind}, under...) {
		text := clean(line)
		entries, ok := s.first(line)
		switch {
		case ok:
			under = under[i:]
			// If there is a single label after the headline, the lines under it are about that label.
			if len(entries) == 1 && (i > 0 || entries[0].rank >= 0) {
				entries, ok = s.column(entries[0], line, under)
			}
			if !ok || s.leavesOut(entries, under) {
				return nil, InvalidUnclear
			}
			return s.known(entries)
		case worstFirst.MatchString(text):
			return nil, InvalidUnclear
		case unbullet(text) == "", fence(line), title(line): // the ranking begins further down
		case s.mentions(text):
			return nil, InvalidUnclear
		case i > 0:
			return nil, InvalidNoBallot
		}
	}
	return nil, InvalidNoBallot
}

// column reads the entries under the first one, which is on the line above. There may be text between numbered entries.
// Entries without numbers end at the first line that is not an entry. Entries without numbers and bullets also end at
// an empty line. column returns false if it cannot read an entry.
func (s labelSet) column(first entry, above string, under []string) ([]entry, bool) {
	entries := []entry{first}
	numbered := first.rank >= 0
	plain := !numbered && unbullet(clean(above)) == clean(above)
	direction := 0
	for _, line := range under {
		text := unbullet(clean(line))
		e, ok := s.entry(text)
		switch {
		case text == "" && plain:
			return entries, true
		case text == "", indent(line) > indent(above)+1: // The line is empty, or a note on the entry above.
		case ok && numbered == (e.rank >= 0):
			turn := cmp.Compare(e.rank, entries[len(entries)-1].rank)
			if turn*direction < 0 && repeats(entries, e) { // a second list begins here, with numbers that start again
				return entries, true
			}
			direction = cmp.Or(turn, direction)
			entries = append(entries, e)
		case !ok && s.mentions(text) && looksListed(line, numbered):
			return nil, false
		case !numbered, fence(line), title(line):
			return entries, true
		}
	}
	return entries, true
}

// looksListed reports whether a line begins as an entry of a list does, with a number or a bullet.
func looksListed(line string, numbered bool) bool {
	if !numbered {
		return bullet.MatchString(line)
	}
	rank, _ := number(unbullet(clean(line)))
	return rank >= 0
}

// repeats reports whether e has the rank or the labels of one of entries.
func repeats(entries []entry, e entry) bool {
	return slices.ContainsFunc(entries, func(o entry) bool {
		return o.rank == e.rank || slices.Equal(o.labels, e.labels)
	})
}

// leavesOut reports whether a line begins with a label that entries do not rank. Such a line may be an entry that
// was not recognised.
func (s labelSet) leavesOut(entries []entry, lines []string) bool {
	ranked := rankedBy(entries)
	return slices.ContainsFunc(lines, func(line string) bool {
		_, text := number(unbullet(clean(line)))
		letters, _, _, ok := label(text)
		one, known := s.byName[strings.ToLower(letters)]
		return ok && known && !ranked[one[0]]
	})
}

var bullet = regexp.MustCompile(`^\s*[-+*•·]\s`)

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

func fence(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~")
}

func title(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") || colon(line) }

// colon reports whether line ends in a colon.
func colon(line string) bool { return strings.HasSuffix(strings.TrimRight(line, " \t*_"), ":") }

// table reads the last table with a rank column.
func (s labelSet) table(lines []string) ([][]council.Label, InvalidReason) {
	var found [][]council.Label
	reason := InvalidNoBallot
	var rows [][]string
	for _, line := range lines {
		switch {
		case unbullet(line) == "" && strings.TrimSpace(line) != "": // a line of the table's frame
		case strings.Contains(line, "|"):
			rows = append(rows, cells(line))
		default:
			if places, r := s.ranked(rows); r != InvalidNoBallot {
				found = places
				reason = r
			}
			rows = nil
		}
	}
	return found, reason
}

func cells(line string) []string {
	line = strings.TrimSpace(line)
	row := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i, cell := range row {
		row[i] = clean(cell)
	}
	return row
}

// ranked reads a table whose first row is the header.
func (s labelSet) ranked(rows [][]string) ([][]council.Label, InvalidReason) {
	if len(rows) == 0 {
		return nil, InvalidNoBallot
	}
	ranks := slices.IndexFunc(rows[0], func(cell string) bool {
		return slices.Contains([]string{"rank", "ranking", "finalrank", "finalranking", "place"}, plainKey(cell))
	})
	if ranks < 0 {
		return nil, InvalidNoBallot
	}
	if slices.ContainsFunc(rows, func(row []string) bool { return len(row) != len(rows[0]) }) {
		if slices.ContainsFunc(rows, func(row []string) bool { return s.mentions(strings.Join(row, "|")) }) {
			return nil, InvalidUnclear // It is unknown which cell is missing.
		}
		return nil, InvalidNoKnownLabel
	}
	var entries []entry
	for column := range rows[0] {
		named := s.labelled(rows[1:], column)
		if entries != nil && named != nil { // one of the columns may hold grades, A to F
			return nil, InvalidUnclear
		}
		entries = append(entries, named...)
	}
	for i := range entries {
		var ok bool
		rank := value{kind: scalar, text: rows[i+1][ranks]}
		if entries[i].rank, ok = rank.rank(); !ok && !rank.nothing() {
			return nil, InvalidUnclear
		}
	}
	return s.known(slices.DeleteFunc(entries, unranked))
}

// labelled returns an entry for each row if all cells of the column are labels and at least one is on the slate.
// Otherwise it returns nil.
func (s labelSet) labelled(rows [][]string, column int) []entry {
	var entries []entry
	for _, row := range rows {
		e, ok := s.entry(row[column])
		if !ok || e.rank >= 0 {
			return nil
		}
		entries = append(entries, e)
	}
	if len(rankedBy(entries)) == 0 {
		return nil
	}
	return entries
}

// directScore matches a score that follows directly after its label. It does not match
// "Response A: covers 3/10 of the cases".
var directScore = regexp.MustCompile(`^(?i:(?:overall|final)\s+)?(?i:(?:score|rating|grade)\s*[:=]?\s*)?` + outOfTen.String())

// scoreList reads the lines and table rows that give a label a score "n/10". It returns nil unless every label of
// the slate has exactly one score.
func (s labelSet) scoreList(lines []string) map[council.Label]float64 {
	scores := make(map[council.Label]float64)
	for _, line := range lines {
		if !strings.Contains(line, "10") {
			continue
		}
		l, text := s.scoreLine(line)
		if l == "" {
			continue
		}
		score, ok := value{kind: scalar, text: strings.ReplaceAll(text, ",", ".")}.score()
		if given, again := scores[l]; !ok || score < 1 || score > 10 || again && given != score {
			return nil
		}
		scores[l] = score
	}
	if len(scores) == 0 || len(scores) < len(s.labels) {
		return nil
	}
	return scores
}

// scoreLine returns the label that a line or table row scores, and the score as written. It joins several scores into a
// text that no parser takes for a number. The label is empty for a line of another form.
func (s labelSet) scoreLine(line string) (council.Label, string) {
	var named council.Label
	var scores []string
	if row := cells(line); len(row) > 1 {
		for _, cell := range row {
			if labels, note, ok := s.place(cell); ok && note == "" && len(labels) == 1 && named == "" {
				named = labels[0]
			}
			if directScore.MatchString(cell) {
				scores = append(scores, scored(cell)...)
			}
		}
	} else if e, ok := s.entry(unbullet(clean(line))); ok && len(e.labels) == 1 && directScore.MatchString(e.note) {
		named = e.labels[0]
		scores = scored(e.note)
	}
	if len(scores) == 0 {
		return "", ""
	}
	return named, strings.Join(scores, "|")
}

// scored returns the n of every "n/10" in text.
func scored(text string) []string {
	matches := outOfTen.FindAllStringSubmatch(text, -1)
	scores := make([]string, len(matches))
	for i, m := range matches {
		scores[i] = m[1]
	}
	return scores
}

// englishRefusal matches the words with which a reviewer declines in English. These words begin with "I", and contain a
// refusal and the task that the reviewer refuses.
var englishRefusal = regexp.MustCompile(`(?i)^(?:` + strings.Join([]string{
	`I(?:['’]m|['’]d| am)?(?: (?:really|simply|respectfully|unfortunately|also|must|will|would|have to|choose to|have chosen to))* ` +
		`(?:cannot|can not|can['’]t|won['’]t(?: be able to)?|will not(?: be able to)?|(?:not|un)(?: ?able| ?willing) to|` +
		`not (?:comfortable|going to|in a position to)|` +
		`do(?: not|n['’]t) (?:feel comfortable|think I can)|rather not|declin(?:e|ing) to|refus(?:e|ing) to)` +
		`(?: (?:in good conscience|fairly|reliably|meaningfully|responsibly|` +
		`provide|give|offer|produce|take part in|participate in|a|an|any|the|these|this|with))* ` +
		`(?:rank|judg|evaluat|assess|review|compar|scor|rat(?:e|ing)|ballot|vote|assist|help (?:you|with)|comply|participate|continue)`,
	`I (?:must |have to |choose to |will |would rather |have chosen to )*abstain\b`,
}, "|") + `)`)

// foreignRefusal matches refusals in other languages.
var foreignRefusal = regexp.MustCompile(`(?i)` + strings.Join([]string{
	// German.
	`\b(?:ich (?:kann|möchte|werde|darf)|(?:kann|möchte|werde|darf) ich)\b[^.!?]{0,60}` +
		`\bnicht (?:\pL+ )?(?:bewerten|beurteilen|einstufen|vergleichen|einordnen|helfen)`,
	`\b(?:ich enthalte mich|enthalte ich mich)\b`,
	// French.
	`\bje ne (?:peux|souhaite|veux)(?: malheureusement)? pas (?:classer|évaluer|juger|comparer|noter|vous aider)`,
	`\bje (?:m['’]abstiens|dois m['’]abstenir|préfère m['’]abstenir)`,
	// Spanish.
	`\bno puedo (?:clasificar|evaluar|juzgar|comparar|puntuar|ayudar)|\bme abstengo\b`,
	// Portuguese.
	`\bnão (?:posso|consigo) (?:classificar|avaliar|julgar|comparar|ajudar)|\b(?:abstenho-me|me abstenho)\b`,
	// Russian.
	`я не (?:могу|буду) (?:\pL+ )?(?:оцени|ранжиров|сравни|помо)|я воздержи`,
	// Chinese.
	`我(?:无法|不能|不便)[^，。！？]{0,20}(?:评价|评估|排名|排序|评判|比较|协助)|我(?:选择)?弃权`,
	// Japanese.
	`(?:評価|順位付け|判断|比較)(?:を?する)?(?:こと)?[はが]?でき(?:ません|かねます)|棄権(?:し|いた)`,
}, "|"))

// mayRefuse searches a sentence for fixed words, and reports whether foreignRefusal can match the sentence. To match
// foreignRefusal takes a hundred times as long as this search.
func mayRefuse(sentence string) bool {
	lower := strings.ToLower(strings.ToUpper(sentence)) // both, because the long s has only an upper case
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(lower, word) })
	}
	return has("nicht") && has("ich kann", "ich möchte", "ich werde", "ich darf", "kann ich", "möchte ich", "werde ich", "darf ich") ||
		has("enthalte", "abst", "je ne peux", "je ne souhaite", "je ne veux", "no puedo", "não posso", "não consigo") ||
		has("я не ", "я воздерж", "できません", "できかね", "棄権") || has("我") && has("无法", "不能", "不便", "弃权")
}

// findRefusal returns the begin and end of the words in a sentence with which the reviewer declines, or nil.
func findRefusal(sentence string) []int {
	for at := range max(len(sentence)-1, 0) {
		if i := sentence[at]; (i == 'I' || i == 'i') && (at == 0 || !asciiWord(sentence[at-1])) && !asciiWord(sentence[at+1]) {
			if found := englishRefusal.FindStringIndex(sentence[at:]); found != nil {
				return []int{at, at + found[1]}
			}
		}
	}
	if !mayRefuse(sentence) {
		return nil
	}
	return foreignRefusal.FindStringIndex(sentence)
}

// asciiWord reports whether a byte belongs to a word as regexp defines it.
func asciiWord(b byte) bool { return b == '_' || b < utf8.RuneSelf && isWord(rune(b)) }

var (
	strongLabel = regexp.MustCompile(`\b(?i:response|answer) [A-Z]{1,2}\b`)
	comparative = regexp.MustCompile(`(?i)\b(?:above|below|higher|lower|better|worse|over|than|enough)\b`)
)

// maxRefusal is the length in bytes of the longest reply that is searched for a refusal. A longer reply is a
// review.
const maxRefusal = 16 << 10

func endsSentence(r rune) bool { return strings.ContainsRune(".!?。！？", r) }

// refusal returns the line in which the reviewer declines to rank. A refusal that is quoted, or that is about one
// of the answers, is not the reviewer's own.
func refusal(text string) (string, bool) {
	if len(text) > maxRefusal {
		return "", false
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ">") {
			continue
		}
		for sentence := range strings.FieldsFuncSeq(line, endsSentence) {
			at := findRefusal(sentence)
			if at != nil && !strings.ContainsAny(sentence[:at[0]], `"“”„«「`) &&
				!strongLabel.MatchString(sentence) && !comparative.MatchString(sentence[at[1]:]) {
				return line, true
			}
		}
	}
	return "", false
}
