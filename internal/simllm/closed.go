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

// Ability is what a model makes of the questions of Options.Closed. The package comment has the
// formulas.
type Ability struct {
	Accuracy    float64 // probability that its answer is right, 0 to 1
	Common      float64 // share of the variance behind its errors that all models share, 0 to 1
	Discernment float64 // added to the scores of right answers when it reviews, -10 to 10 points
	// Insight is the probability, 0 to 1, that as chairman it picks a right answer out of those it
	// is shown whatever the ranking says.
	Insight float64
}

// NewAbility returns an ability of that accuracy. The rest is modest: errors share .6 of their
// variance, right answers get a point more, and one in ten is recognised by the chairman.
func NewAbility(accuracy float64) *Ability {
	return &Ability{Accuracy: accuracy, Common: 0.6, Discernment: 1, Insight: 0.1}
}

// bounds returns the fields of an ability with their names in a model's settings and their ranges.
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

// Find returns the model of a name. A name may be that of one of the models and settings of its
// ability behind it, as in "amber?accuracy=.7&discernment=2": accuracy, and where they differ from
// [NewAbility] common, discernment and insight. Such a model is like the other one otherwise.
// Find reports false where there is no such model, and an error where the settings are wrong.
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
	m.Ability = NewAbility(math.NaN()) // until it is set
	values, err := url.ParseQuery(settings)
	if err != nil {
		return m, true, errors.New("its settings cannot be read: write them as in ?accuracy=.7&discernment=2")
	}
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
		return m, true, errors.New("it has a setting that is not known: use accuracy, common, discernment and insight")
	}
	return m, true, nil
}

// Closed is a question to which models with an Ability know the right answer.
type Closed struct {
	Query string   // what a question begins with to be this one
	Right string   // the right answer, on one line
	Wrong []string // wrong answers of which those who are wrong give one, each on one line; one at least
}

// ReadClosed reads questions from JSON, one object a line, with their query, their reference and
// their grader as in a file of questions. Wrong answers are the other options of a choice, or
// numbers some way off. The labels sim_right and sim_wrong give others; in sim_wrong, they stand
// between vertical bars. A question without a query, a reference or a grader is left out, and so is
// one to which no answer is known for certain to be right, or none to be wrong.
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

// closedLine is what is read of a question.
type closedLine struct {
	Query     string          `json:"query"`
	Reference json.RawMessage `json:"reference"`
	Grader    struct {
		Type    string   `json:"type"`
		Options []string `json:"options"`
	} `json:"grader"`
	Labels map[string]string `json:"labels"`
}

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

// off returns numbers that are a tenth above, a tenth below and a fifth above a number, whole ones
// where it is whole, and nil where the text is no number.
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

// answerLabel is how the line begins in which a prompt may ask for the answer.
const answerLabel = "ANSWER:"

// closed returns the question among the known ones that the text of a question begins with, the
// longest where there are several, for a model with an ability.
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

// succeeds reports whether the model succeeds, with a probability p, at what a closed question asks of
// it. What is hard is so for all models as far as their abilities say.
func (m *model) succeeds(c *Closed, p float64, purpose string, content ...string) bool {
	hard := draws(m.seed, "common", c.Query).NormFloat64()
	own := m.draws(purpose, append(content, c.Query)...).NormFloat64()
	return math.Sqrt(m.Ability.Common)*hard+math.Sqrt(1-m.Ability.Common)*own < stat.NormalQuantile(p)
}

// claim returns the model's own answer to a closed question, in one sample of several.
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

// claimed returns the answer on the last line of a text, "" where it is neither labelled as one nor
// known.
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

// elect returns the answer of the model as chairman to a closed question: with insight, the right
// one if anybody gave it, else that with the most support. The support of an answer is the sum of
// the shares of Borda points of those who gave it, or their number without a ranking. Ties are
// broken by a draw. Where nobody gave an answer, it is the chairman's own.
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
	var most [2]float64 // the support, and a draw
	for claim, s := range support {
		lot := m.draws("tie", c.Query, claim).Float64()
		if at := [2]float64{math.Round(s * 1e6), lot}; best == "" || slices.Compare(at[:], most[:]) > 0 {
			best = claim
			most = at
		}
	}
	return best
}

// standings reads the shares of Borda points by label from a ranking in the form
// "1. Answer 2: 83%; 3", a line for each. It is empty where there is none.
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
