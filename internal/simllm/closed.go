package simllm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/stat"
)

// Ability says how well a model handles the questions of Options.Closed. The package comment has the formulas.
type Ability struct {
	Accuracy float64 // the probability, 0 to 1, that its answer is right
	// Common is the share, 0 to 1, that the difficulty of a question has in this model's errors. The difficulty is the
	// same for all models, so a larger share makes the errors of models depend more on each other. The rest is the
	// model's own luck.
	Common float64
	// Discernment is the number of points, -10 to 10, that the model as reviewer adds to the scores of right answers.
	Discernment float64
	// Insight is the probability, 0 to 1, that the model as chairman picks a right answer if one is shown, whatever
	// the ranking says.
	Insight float64
}

// NewAbility returns an ability with this accuracy and moderate other values. The difficulty of the question has a
// share of 0.6 in the model's errors. A reviewer adds one point to the scores of right answers. A chairman picks a
// right answer that is shown with a probability of 0.1, whatever the ranking says.
func NewAbility(accuracy float64) *Ability {
	return &Ability{Accuracy: accuracy, Common: 0.6, Discernment: 1, Insight: 0.1}
}

// bounds returns the fields of an ability, with their names in a model's settings and their ranges.
func (a *Ability) bounds() []abilityBound {
	return []abilityBound{
		{"accuracy", &a.Accuracy, 0, 1},
		{"common", &a.Common, 0, 1},
		{"discernment", &a.Discernment, -10, 10},
		{"insight", &a.Insight, 0, 1},
	}
}

type abilityBound struct {
	name      string
	value     *float64
	low, high float64
}

// Find returns the model with a name. Settings of the model's ability may follow the name, as in
// "amber?accuracy=.7&discernment=2". The setting accuracy is required for an ability. If common, discernment or insight
// is not set, its value is that of [NewAbility]. The settings fact, map, invent and miss set Facts and Maps, as in
// "amber?fact=port:8080" and "amber?map=none". The settings of [Reviewing] begin with "finds" and "tempted". Everything
// else is as in the model without settings. Find returns false if there is no such model, and an error if the settings
// are wrong.
func Find(models []Model, name string) (Model, bool, error) {
	base, settings, varied := strings.Cut(name, "?")
	at := slices.IndexFunc(models, func(m Model) bool { return m.Name == base })
	if whole := slices.IndexFunc(models, func(m Model) bool { return m.Name == name }); whole >= 0 {
		return models[whole], true, nil
	}
	if !varied || at < 0 {
		return Model{}, false, nil
	}
	m := models[at]
	m.Name = name
	values, err := url.ParseQuery(settings)
	if err != nil {
		return m, true, errors.New("its settings cannot be read: write them as in ?accuracy=.7&discernment=2")
	}
	mapped, err := m.readMaps(values)
	if err != nil {
		return m, true, err
	}
	reviewing, err := m.readReviewing(values)
	if err != nil || (mapped || reviewing) && len(values) == 0 {
		return m, true, err
	}
	m.Ability = NewAbility(math.NaN()) // replaced below
	for _, b := range m.Ability.bounds() {
		switch given := values[b.name]; len(given) {
		case 0:
		case 1:
			if *b.value, err = strconv.ParseFloat(given[0], 64); err != nil {
				*b.value = math.NaN()
			}
		default:
			return m, true, fmt.Errorf("%s is set twice: write it once", b.name)
		}
		if !(*b.value >= b.low && *b.value <= b.high) { // also refuses NaN
			return m, true, fmt.Errorf("%s is not a number from %v to %v: write one, as in ?%s=.7",
				b.name, b.low, b.high, b.name)
		}
		delete(values, b.name)
	}
	if len(values) > 0 {
		return m, true, errors.New("it has an unknown setting: use accuracy, common, discernment, insight, fact, map, " +
			"invent and miss, or, for changes, finds, tempted, confirms, false_confirms, shared, tempted_shared, " +
			"votes_shared, blocks, false_blocks, drift, badquote, same and obeys")
	}
	return m, true, nil
}

// Closed is a question for which models with an Ability know the right answer.
type Closed struct {
	Query string // the text with which the question begins
	Right string // the right answer, on one line
	// Wrong holds the wrong answers, each on one line, at least one. A model that is wrong gives one of them.
	Wrong []string
}

// ReadClosed reads questions from JSON. Each line is one object with a query, a reference and a grader, as in a file of
// questions. For a choice, the wrong answers are the options that are not right. For a number, the wrong answers are
// numbers near the right number. The label sim_right replaces the right answer, and the label sim_wrong replaces the
// wrong answers. In sim_wrong, vertical bars separate the answers. ReadClosed leaves out a question that has no query,
// no certainly right answer, or no certainly wrong answer.
func ReadClosed(lines []byte) ([]Closed, error) {
	var all []Closed
	number := 0
	for line := range bytes.Lines(lines) {
		number++
		if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff"))); len(line) == 0 {
			continue
		}
		var q closedLine
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if c := q.closed(); c.Query != "" && c.Right != "" && len(c.Wrong) > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// closedLine holds the parts of a question that are read.
type closedLine struct {
	Query     string          `json:"query"`
	Reference json.RawMessage `json:"reference"`
	Grader    struct {
		Type    string   `json:"type"`
		Options []string `json:"options"`
	} `json:"grader"`
	Labels map[string]string `json:"labels"`
}

// closed returns the question with its right and wrong answers. A regular expression has no certainly right answer,
// so it needs the labels.
func (q closedLine) closed() Closed {
	c := Closed{Query: q.Query, Right: q.Labels["sim_right"]}
	if wrong := q.Labels["sim_wrong"]; wrong != "" {
		c.Wrong = strings.Split(wrong, "|")
	}
	var references []string
	switch {
	case q.Reference == nil || q.Grader.Type == "regex":
	case q.Grader.Type == "json":
		var compact bytes.Buffer
		if json.Compact(&compact, q.Reference) == nil {
			references = []string{compact.String()}
		}
	default:
		references = texts(q.Reference)
	}
	if len(references) > 0 {
		c.Right = cmp.Or(c.Right, references[0])
	}
	if c.Wrong == nil {
		wrong := q.Grader.Options
		if q.Grader.Type == "number" {
			wrong = off(c.Right)
		}
		for _, w := range wrong {
			if !slices.ContainsFunc(references, func(r string) bool { return strings.EqualFold(r, w) }) {
				c.Wrong = append(c.Wrong, w)
			}
		}
	}
	return c
}

// texts returns the strings and numbers of a reference: one value, or a list.
func texts(reference json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(reference, &list) != nil {
		list = []json.RawMessage{reference}
	}
	all := make([]string, len(list))
	for i, element := range list {
		if json.Unmarshal(element, &all[i]) != nil {
			all[i] = string(element)
		}
	}
	return all
}

// off returns three numbers near a number: about a tenth above it, a tenth below it and a fifth above it. They are
// whole if the number is whole. off returns nil if the text is not a number.
func off(text string) []string {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	step := max(math.Abs(value)/10, 0.1)
	if value == math.Trunc(value) {
		step = max(math.Round(step), 1)
	}
	var all []string
	for _, far := range []float64{1, -1, 2} {
		all = append(all, strconv.FormatFloat(value+far*step, 'g', 9, 64))
	}
	return all
}

// answerLabel begins the line in which a prompt may ask for the answer.
const answerLabel = "ANSWER:"

// closed returns the known question whose Query is the beginning of a question. If there are several, it returns the
// one with the longest Query. It returns nil for a model without an ability, or if there is no such question.
func (m *model) closed(question string) *Closed {
	if m.Ability == nil {
		return nil
	}
	var found *Closed
	for i, c := range m.known {
		if strings.HasPrefix(question, c.Query) && (found == nil || len(c.Query) > len(found.Query)) {
			found = &m.known[i]
		}
	}
	return found
}

// succeeds draws whether the model gets a closed question right, with the probability p. The argument purpose is "own"
// for the model's own answer, and "insight" for the choice of the chairman. A hard question is hard for all models, to
// the degree that Common says.
func (m *model) succeeds(c *Closed, p float64, purpose string, content ...string) bool {
	hard := draws(m.seed, "common", c.Query).NormFloat64()
	own := m.draws(purpose, append(content, c.Query)...).NormFloat64()
	return math.Sqrt(m.Ability.Common)*hard+math.Sqrt(1-m.Ability.Common)*own < stat.NormalQuantile(p)
}

// claim returns the model's own answer to a closed question. With another value of the argument sample, the answer is
// drawn again.
func (m *model) claim(c *Closed, sample string) string {
	if m.succeeds(c, m.Ability.Accuracy, "own", sample) {
		return c.Right
	}
	return c.Wrong[m.draws("wrong", c.Query, sample).IntN(len(c.Wrong))]
}

// conclude returns a text with an answer on its last line, in the form that the prompt asks for.
func conclude(text, answer string, q *request) string {
	if strings.Contains(q.task.Question, answerLabel) || strings.Contains(q.task.instructions, answerLabel) {
		answer = answerLabel + " " + answer
	}
	return text + "\n\n" + answer
}

// claimed returns the answer on the last line of a text. That line must begin with "ANSWER:" or be a known answer.
// Otherwise claimed returns "".
func (c *Closed) claimed(text string) string {
	text = strings.TrimSpace(text)
	last := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if answer, labelled := strings.CutPrefix(last, answerLabel); labelled {
		return strings.TrimSpace(answer)
	}
	if last == c.Right || slices.Contains(c.Wrong, last) {
		return last
	}
	return ""
}

// elect returns the answer that the model gives as chairman to a closed question:
//
//   - If any author gave the right answer and the model has insight, it is the right answer.
//   - Otherwise it is the answer with the most support. With a ranking, the support of an answer is the sum of its
//     authors' shares of the Borda points. Without a ranking, it is the number of authors. Between equals, a random
//     draw decides.
//   - If no author gave an answer, it is the chairman's own answer.
func (m *model) elect(q *request, c *Closed) string {
	shares := standings(q.task.instructions)
	support := map[string]float64{}
	for _, a := range q.task.Answers {
		if claim := c.claimed(a.Text); claim != "" && len(shares) > 0 {
			support[claim] += shares[a.Label]
		} else if claim != "" {
			support[claim]++
		}
	}
	if len(support) == 0 {
		return m.claim(c, q.sample())
	}
	if _, shown := support[c.Right]; shown && m.succeeds(c, m.Ability.Insight, "insight") {
		return c.Right
	}
	var best string
	var most [2]float64 // of the best claim: its support, and a random number that decides between equals
	for claim, s := range support {
		lot := m.draws("tie", c.Query, claim).Float64()
		if at := [2]float64{math.Round(s * 1e6), lot}; best == "" || slices.Compare(at[:], most[:]) > 0 {
			best = claim
			most = at
		}
	}
	return best
}

// standings reads the shares of Borda points, by label, from a ranking with lines of the form "1. Answer 2: 83%; 3".
// The result is empty if the text has no ranking.
func standings(text string) map[string]float64 {
	shares := map[string]float64{}
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(line, ". ")
		label, figures, _ := strings.Cut(rest, ": ")
		percent, _, isShare := strings.Cut(figures, "%; ")
		value, err := strconv.ParseFloat(percent, 64)
		if isShare && err == nil {
			shares[label] = value / 100
		}
	}
	return shares
}
