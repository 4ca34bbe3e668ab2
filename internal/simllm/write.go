package simllm

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	pointCount    = 6
	typicalLength = 2000 // characters
)

// answer writes the model's answer to a question.
func (m *model) answer(q *request) string {
	if w := m.writtenOf(q.task); w != nil && w.answers[m.Name] != "" {
		return m.state(w.answers[m.Name])
	}
	rng := m.draws("answer", q.key)
	quality := m.Quality + m.Spread*rng.NormFloat64()
	// The grades of the points are as equal as possible. Before the shuffle, the first points have the higher of two
	// neighbouring grades, and all other points have the lower grade.
	total := min(max(int(math.Round((quality/2+2)*pointCount)), 0), 4*pointCount)
	points := make([]string, pointCount)
	for grade, bank := range m.phrases.points {
		order := rng.Perm(len(bank))
		for i := range points {
			if (total+pointCount-1-i)/pointCount == grade {
				points[i] = bank[order[i]]
			}
		}
	}
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	text := m.state(m.compose("Simulated answer.", q.task.Question, points, rng))
	if c := m.closed(q.task.Question); c != nil {
		return conclude(text, m.claim(c, q.sample()), q)
	}
	return text
}

// synthesis writes one answer from the best points of the answers shown. It quotes only points, so no label gets
// into the text.
func (m *model) synthesis(q *request) string {
	if text, _, ok := m.writtenSynthesis(q.task); ok {
		return m.chart(text, q)
	}
	var points []string
	for _, a := range q.task.Answers {
		for line := range strings.Lines(a.Text) {
			if point, _, ok := m.phrases.point(line); ok && !slices.Contains(points, point) {
				points = append(points, point)
			}
		}
	}
	slices.SortStableFunc(points, func(a, b string) int { return m.phrases.grades[b] - m.phrases.grades[a] })
	points = points[:min(len(points), pointCount)]
	text := m.compose(m.filler, q.task.Question, points, m.draws("synthesis", q.key))
	if c := m.closed(q.task.Question); c != nil {
		text = conclude(text, m.elect(q, c), q)
	}
	return m.chart(text, q)
}

// point returns the point on a line of an answer, and its grade.
func (p *phrases) point(line string) (string, int, bool) {
	_, point, _ := strings.Cut(strings.TrimSpace(line), ": ")
	grade, ok := p.grades[point]
	return point, grade, ok
}

// quality returns the quality of an answer, in points. The quality comes from the grades of the points in the text. If
// the text has no such points, the quality is drawn from a hash of the text.
func (p *phrases) quality(text string) float64 {
	sum := 0
	n := 0
	for line := range strings.Lines(text) {
		if _, grade, ok := p.point(line); ok {
			sum += grade
			n++
		}
	}
	if n == 0 {
		return draws("quality", text).NormFloat64()
	}
	return (float64(sum)/float64(n) - 2) * 2
}

// compose writes a text around points, in the model's style and length.
func (m *model) compose(title, question string, points []string, rng *rand.Rand) string {
	words := m.phrases.keyWords(question)
	target := int(typicalLength * cmp.Or(m.Length, 1) * math.Exp(m.LengthSigma*rng.NormFloat64()))

	var b strings.Builder
	b.Grow(target + 200)
	fmt.Fprintf(&b, "%s\n\nThe question is about %s. %s\n\n", title, enumerate(words), m.signature)
	for i, point := range points {
		fmt.Fprintf(&b, m.layout, i+1, words[i%len(words)], point)
	}
	order := rng.Perm(len(m.phrases.filler))
	for i := 0; ; i++ {
		sentence := m.phrases.filler[order[i%len(order)]]
		if b.Len()+len(sentence)/2 >= target {
			break
		}
		if i%4 == 0 {
			b.WriteString("\n")
		} else {
			b.WriteString(" ")
		}
		b.WriteString(sentence)
		if i%4 == 3 {
			b.WriteString("\n")
		}
	}
	return strings.TrimSpace(b.String())
}

// layouts returns the formats in which models write their points. The arguments of a format are the number of the
// point, the key word and the point itself.
func layouts() []string {
	return []string{
		"- **%[2]s**: %[3]s\n",
		"%[1]d. %[2]s: %[3]s\n",
		"* On %[2]s: %[3]s\n",
		"Regarding %[2]s: %[3]s\n",
		"%[1]d) *%[2]s*: %[3]s\n",
	}
}

// keyWords returns one to six different words that represent the subject of a question.
func (p *phrases) keyWords(question string) []string {
	var words []string
	for word := range strings.FieldsFuncSeq(question, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		same := func(w string) bool { return strings.EqualFold(w, word) }
		if n := utf8.RuneCountInString(word); n < 3 || n > 24 || p.stop[strings.ToLower(word)] ||
			slices.ContainsFunc(words, same) {
			continue
		}
		words = append(words, word)
		if len(words) == pointCount {
			break
		}
	}
	if len(words) == 0 {
		return []string{"the subject"}
	}
	return words
}

func enumerate(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
