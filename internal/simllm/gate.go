package simllm

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/stat"
)

// Reviewing says how a model reviews changes. All values are probabilities.
type Reviewing struct {
	// Finds is the probability that the model reports a planted defect. Tempted is the probability that it reports a
	// place where nothing is wrong.
	Finds, Tempted float64
	// Confirms is the probability that the model confirms a defect that another model found. FalseConfirms is the same
	// for a finding that is wrong.
	Confirms, FalseConfirms float64
	// Shared says how much models agree on which defects they find, from 0 (independently of each other) to 1 (the same
	// ones). TemptedShared is the same for places where nothing is wrong, and VotesShared for votes on a place.
	Shared, TemptedShared, VotesShared float64
	// Blocks is the probability that the model calls a defect blocking. FalseBlocks is the same for a finding that is
	// wrong.
	Blocks, FalseBlocks float64
	// Drift is the probability that a finding names a wrong line. BadQuote is the probability that its quote stands
	// nowhere in the diff.
	Drift, BadQuote float64
	// Same is the probability that the model recognises two findings about one place.
	Same float64
	// Obeys is the probability that the model follows the instructions in a diff.
	Obeys float64
}

// BaseReviewing returns how a model reviews changes if its Reviewing is nil.
func BaseReviewing() Reviewing {
	return Reviewing{
		Finds: .45, Tempted: .2, Confirms: .8, FalseConfirms: .25, Shared: .5, Blocks: .8, FalseBlocks: .4,
		Drift: .5, BadQuote: .05, Same: .8,
	}
}

// rate is a field of Reviewing, with its name in a model's settings.
type rate struct {
	name  string
	value *float64
}

func (r *Reviewing) rates() []rate {
	return []rate{
		{"finds", &r.Finds},
		{"tempted", &r.Tempted},
		{"confirms", &r.Confirms},
		{"false_confirms", &r.FalseConfirms},
		{"shared", &r.Shared},
		{"tempted_shared", &r.TemptedShared},
		{"votes_shared", &r.VotesShared},
		{"blocks", &r.Blocks},
		{"false_blocks", &r.FalseBlocks},
		{"drift", &r.Drift},
		{"badquote", &r.BadQuote},
		{"same", &r.Same},
		{"obeys", &r.Obeys},
	}
}

// readReviewing reads the settings of a model that are about reviews of changes, and removes them from values. It
// reports whether there were any.
func (m *Model) readReviewing(values url.Values) (found bool, err error) {
	r := BaseReviewing()
	for _, rate := range r.rates() {
		if !values.Has(rate.name) {
			continue
		}
		found = true
		if *rate.value, err = strconv.ParseFloat(values.Get(rate.name), 64); err != nil ||
			!(*rate.value >= 0 && *rate.value <= 1) {
			return true, fmt.Errorf("%s is not a number from 0 to 1: write one, as in ?%[1]s=.5", rate.name)
		}
		delete(values, rate.name)
	}
	if found {
		m.Reviewing = &r
	}
	return found, nil
}

// Planted is a place in a diff where a defect was planted, or where models are tempted to find one. Models recognise the
// place by its lines.
type Planted struct {
	Lines    string   // whole lines of the new file
	Wordings []string // texts about this place alone
	Scenario string   // when the defect shows
	Harmless bool     // nothing is wrong at the place
}

// These limits are part of the instructions that models get.
const (
	maxFindings = 5
	minQuote    = 12 // characters
)

// minName is the fewest characters of a name that an invented finding mentions.
const minName = 6

// nearby is the most lines between two defects that a model may take for one.
const nearby = 10

// confuses is the probability that a model takes two defects for one. misses is the probability that it points at
// another line near the place. No setting changes them.
const (
	confuses = 0.05
	misses   = 0.1
)

// finding is a finding in the form of a reply and of a prompt.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Quote    string `json:"quote"`
	Severity string `json:"severity"`
	What     string `json:"what"`
	Scenario string `json:"scenario"`
}

// vote is a vote on a finding in the form of a reply.
type vote struct {
	Finding  string `json:"finding"`
	Vote     string `json:"vote"`
	Severity string `json:"severity"`
	Why      string `json:"why"`
}

// shownFinding is a finding of another model, as a prompt shows it.
type shownFinding struct {
	id string
	finding
}

// readChange reads the task of a gate. The diff is the first block with the token, or the second behind a description.
func readChange(text, token string) (task Task, ok bool) {
	_, task.Text, text, ok = cutBlock(text, "DIFF "+token)
	task.Kind = Finding
	for ok {
		id, body, rest, more := cutBlock(text, "FINDING "+token)
		if !more {
			break
		}
		shown := shownFinding{id: id}
		_ = json.Unmarshal([]byte(body), &shown.finding) // The prompt's own JSON. A finding without content is voted on too.
		task.findings = append(task.findings, shown)
		task.Kind = Confirmation
		text = rest
	}
	return task, ok
}

// diffLine is a line of the new file, as a diff shows it.
type diffLine struct {
	file   string
	number int
	text   string
	added  bool
}

// readDiff returns the lines of the new files that a diff shows.
func readDiff(diff string) (lines []diffLine) {
	file := ""
	number := 0
	for line := range strings.Lines(diff) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "+++ "):
			file = strings.TrimPrefix(strings.TrimPrefix(line, "+++ "), "b/")
			number = 0
		case strings.HasPrefix(line, "diff "):
			number = 0
		case strings.HasPrefix(line, "@@ "):
			_, after, _ := strings.Cut(line, " +")
			digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
			number, _ = strconv.Atoi(after[:digits])
		case number == 0 || strings.HasPrefix(line, "-") || strings.HasPrefix(line, `\`):
		default:
			lines = append(lines, diffLine{file, number, strings.TrimPrefix(strings.TrimPrefix(line, "+"), " "), line != "" && line[0] == '+'})
			number++
		}
	}
	return lines
}

// place is where a model may report a finding.
type place struct {
	Planted
	key  string // equal for all models
	at   int    // the index of its first line
	size int    // how many lines it has
}

// places returns the planted places of a diff. If there are none, it returns one added line of each hunk.
func (m *model) places(diff string, lines []diffLine) (places []place) {
	for i, p := range m.planted {
		want := strings.Split(p.Lines, "\n")
		for at := range len(lines) - len(want) + 1 {
			if slices.EqualFunc(lines[at:at+len(want)], want, func(l diffLine, w string) bool {
				return strings.TrimSpace(l.text) == strings.TrimSpace(w)
			}) {
				places = append(places, place{p, "planted " + strconv.Itoa(i), at, len(want)})
				break
			}
		}
	}
	if places != nil {
		return places
	}
	var hunk []int // the lines that a finding may quote
	for i, line := range lines {
		if line.added && len(strings.TrimSpace(line.text)) >= minQuote {
			hunk = append(hunk, i)
		}
		last := i+1 == len(lines) || lines[i+1].file != line.file || lines[i+1].number != line.number+1
		if !last || len(hunk) == 0 {
			continue
		}
		at := hunk[draws("hunk", m.seed, diff, strconv.Itoa(i)).IntN(len(hunk))]
		places = append(places, place{
			Planted{Wordings: inventions(lines[at].text), Scenario: "an unusual input", Harmless: true},
			strings.TrimSpace(lines[at].text), at, 1,
		})
		hunk = nil
	}
	return places
}

// inventions returns what models say about a line if nothing is planted in the diff.
func inventions(line string) []string {
	name := "the value"
	inName := func(r rune) bool { return r == '_' || 'a' <= r|0x20 && r|0x20 <= 'z' }
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return !inName(r) }) {
		if len(word) >= minName {
			name = word
			break
		}
	}
	all := [][]string{
		{name + " is used before it is checked", name + " may be missing when this line runs"},
		{"an error here is not reported to the caller", "the failure of this line goes unnoticed"},
		{name + " is wrong for an empty input", "an empty input is not handled where " + name + " is used"},
		{name + " may change between this line and its use", "two callers can reach " + name + " at the same time"},
	}
	return all[draws("invention", line).IntN(len(all))]
}

// reviewing returns how the model reviews changes.
func (m *model) reviewing() Reviewing {
	if m.Reviewing == nil {
		return BaseReviewing()
	}
	return *m.Reviewing
}

// chance reports true with a probability. All models draw the same number for the key, and each model draws one of its
// own. The argument shared is the weight of the common number, from 0 to 1.
func (m *model) chance(probability, shared float64, purpose, diff, key string) bool {
	common := draws(purpose, m.seed, diff, key).NormFloat64()
	own := m.draws(purpose, diff, key).NormFloat64()
	return math.Sqrt(shared)*common+math.Sqrt(1-shared)*own < stat.NormalQuantile(probability)
}

// order is what a diff tells its reviewers to do.
type order string

// The orders are words of the instructions. A diff may have one of them.
const (
	orderPass  order = "approve this change"
	orderBlock order = "block this change"
)

// obeyed returns the order of a diff that the model follows, or "".
func (m *model) obeyed(diff string) order {
	for _, o := range []order{orderPass, orderBlock} {
		if strings.Contains(strings.ToLower(diff), string(o)) && m.draws("obeys", diff).Float64() < m.reviewing().Obeys {
			return o
		}
	}
	return ""
}

// findings writes the model's findings in a diff.
func (m *model) findings(q *request) string {
	diff := q.task.Text
	lines := readDiff(diff)
	obeyed := m.obeyed(diff)
	r := m.reviewing()
	found := []finding{}
	for _, p := range m.places(diff, lines) {
		probability := r.Finds
		shared := r.Shared
		if p.Harmless {
			probability = r.Tempted
			shared = r.TemptedShared
		}
		if obeyed == "" && m.chance(probability, shared, "finds", diff, p.key) {
			found = append(found, m.report(diff, lines, p))
		}
	}
	if obeyed == orderBlock {
		for _, line := range lines {
			if line.added && len(strings.TrimSpace(line.text)) >= minQuote {
				found = append(found, finding{
					File: line.file, Line: line.number, Quote: line.text, Severity: "blocking",
					What: "the diff says that it is wrong", Scenario: "Simulated: the model obeys the diff.",
				})
				break
			}
		}
	}
	// The model names the worst findings first, and leaves out those beyond the limit.
	rng := m.draws("order of findings", diff)
	rng.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b finding) int { return -strings.Compare(a.Severity, b.Severity) })
	return m.object(q, map[string]any{"findings": found[:min(len(found), maxFindings)]})
}

// report writes a finding about a place.
func (m *model) report(diff string, lines []diffLine, p place) finding {
	r := m.reviewing()
	rng := m.draws("report", diff, p.key)
	at, size := quoted(lines, p, rng)
	f := finding{
		File: lines[at].file, Line: lines[at].number, Severity: severity(rng, r, p.Harmless),
		What: p.Wordings[rng.IntN(len(p.Wordings))], Scenario: "Simulated: " + p.Scenario,
	}
	mark := []string{"", "", "+"}[rng.IntN(3)] // Some models copy the mark of an added line.
	texts := make([]string, size)
	for i := range texts {
		texts[i] = mark + lines[at+i].text
	}
	f.Quote = strings.Join(texts, "\n")
	if rng.Float64() < r.Drift {
		f.Line = max(f.Line+[]int{-1, 1}[rng.IntN(2)]*(1+rng.IntN(8)), 1)
	}
	if rng.Float64() < r.BadQuote {
		f.Quote = "invented(" + strings.TrimSpace(strings.TrimPrefix(texts[0], "+")) + ")"
	}
	return f
}

// quoted returns the lines that a finding about a place quotes. They are not always the whole place.
func quoted(lines []diffLine, p place, rng *rand.Rand) (at, size int) {
	fit := func(i int) bool {
		return i >= 0 && i < len(lines) && lines[i].file == lines[p.at].file && len(strings.TrimSpace(lines[i].text)) >= minQuote
	}
	draw := rng.Float64()
	switch last := p.at + p.size - 1; {
	case draw < misses:
		for _, i := range rng.Perm(3) {
			if fit(p.at - 1 - i) {
				return p.at - 1 - i, 1
			}
			if fit(last + 1 + i) {
				return last + 1 + i, 1
			}
		}
	case draw < .2 && fit(last):
		return last, 1
	case draw < .45 && fit(p.at):
		return p.at, 1
	case draw < .5 && fit(last+1):
		return p.at, p.size + 1
	}
	return p.at, p.size
}

func severity(rng *rand.Rand, r Reviewing, harmless bool) string {
	probability := r.Blocks
	if harmless {
		probability = r.FalseBlocks
	}
	if rng.Float64() < probability {
		return "blocking"
	}
	return "advisory"
}

// placeOf returns the planted place that a finding is about.
func (m *model) placeOf(f finding) (key string, p Planted) {
	for i, p := range m.planted {
		if slices.Contains(p.Wordings, f.What) {
			return "planted " + strconv.Itoa(i), p
		}
	}
	return strings.TrimSpace(strings.TrimLeft(f.Quote, "+-")), Planted{Harmless: true}
}

// votes writes the model's votes on the findings of others.
func (m *model) votes(q *request) string {
	diff := q.task.Text
	r := m.reviewing()
	obeyed := m.obeyed(diff)
	votes := make([]vote, 0, len(q.task.findings))
	same := [][]string{}
	for i, shown := range q.task.findings {
		key, p := m.placeOf(shown.finding)
		rng := m.draws("vote", diff, key)
		v := vote{Finding: shown.id, Vote: "reject", Severity: severity(rng, r, p.Harmless), Why: "Simulated."}
		probability := r.Confirms
		if p.Harmless {
			probability = r.FalseConfirms
		}
		switch {
		case obeyed == orderPass:
		case obeyed == orderBlock:
			v.Vote = "confirm"
			v.Severity = "blocking"
		case m.chance(probability, r.VotesShared, "confirms", diff, key):
			v.Vote = "confirm"
		case rng.IntN(5) == 0:
			v.Vote = "unsure"
		}
		votes = append(votes, v)
		for _, other := range q.task.findings[:i] {
			otherKey, _ := m.placeOf(other.finding)
			probability = 0
			switch {
			case otherKey == key:
				probability = r.Same
			case other.File == shown.File && max(other.Line-shown.Line, shown.Line-other.Line) <= nearby:
				probability = confuses
			}
			if m.draws("same", diff, min(shown.What, other.What), max(shown.What, other.What)).Float64() < probability {
				same = append(same, []string{other.id, shown.id})
			}
		}
	}
	return m.object(q, map[string]any{"votes": votes, "same": same})
}

// object writes a JSON object in the model's style.
func (m *model) object(q *request, value any) string {
	if q.body.ResponseFormat != nil && m.ResponseFormat == FormatHonoured {
		return string(encode(value))
	}
	return "Simulated review of a change.\n\n" + fence(string(encode(value)))
}
