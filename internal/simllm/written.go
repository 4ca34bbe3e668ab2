package simllm

import (
	"cmp"
	files "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Written is a question of the demo. Its answers, reviews and synthesis are not generated: they were written for it.
type Written struct {
	Question  string
	answers   map[string]string        // the keys are names of models
	reviews   map[string]writtenReview // the keys are names of reviewers
	synthesis string
	chart     mapTail // names models where a map names answers
}

// writtenReview is what one model says about the other models' answers.
type writtenReview struct {
	text   string         // names a model as in {birch}
	scores map[string]int // the keys are names of models; no two scores are equal
}

// writtenMark is the last line of a written synthesis. It tells readers that no model wrote the text.
const writtenMark = "*Written for the demo.*"

//go:embed written
var writtenFiles files.FS

// writtenQuestions returns the written questions of the program.
//
//nolint:gochecknoglobals // they are read once
var writtenQuestions = sync.OnceValue(func() []Written {
	all, err := readAllWritten()
	if err != nil {
		panic(err) // a test reads the same files
	}
	return all
})

// readAllWritten reads the files in the directory written. Each file is one question.
func readAllWritten() (all []Written, err error) {
	list, err := writtenFiles.ReadDir("written")
	if err != nil {
		return nil, err
	}
	for _, file := range list {
		data, err := writtenFiles.ReadFile("written/" + file.Name())
		if err != nil {
			return nil, err
		}
		w, err := ReadWritten(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		all = append(all, w)
	}
	return all, nil
}

// writtenMembers returns the models that answer written questions: those of [Council].
func writtenMembers() []string { return []string{"amber", "birch", "cedar", "dune"} }

// ReadWritten reads a written question from Markdown. Each section has a heading of the first level. The sections are
// "Question", "Answer of NAME" for each model of [Council], "Review of NAME" for each model, "Synthesis" and "Map", in
// this order. A review names another model as in {birch}. It ends with a line such as "Scores: birch 8, cedar 6, dune 4".
// The map is the JSON that a chairman writes, but it names models where a chairman names answers.
func ReadWritten(markdown []byte) (w Written, err error) {
	w.answers = map[string]string{}
	w.reviews = map[string]writtenReview{}
	rest := "\n" + strings.ReplaceAll(string(markdown), "\r\n", "\n")
	titles := append(make([]string, 0, 11), "Question")
	for _, part := range []string{"Answer of ", "Review of "} {
		for _, member := range writtenMembers() {
			titles = append(titles, part+member)
		}
	}
	titles = append(titles, "Synthesis", "Map")
	before, rest, ok := strings.Cut(rest, "\n# "+titles[0]+"\n")
	if !ok || strings.TrimSpace(before) != "" {
		return w, errors.New(`the file does not begin with "# Question"`)
	}
	sections := map[string]string{}
	for i, title := range titles {
		text := rest
		if i+1 < len(titles) {
			if text, rest, ok = strings.Cut(rest, "\n# "+titles[i+1]+"\n"); !ok {
				return w, fmt.Errorf("there is no section %q behind %q", titles[i+1], title)
			}
		}
		if sections[title] = strings.TrimSpace(text); sections[title] == "" {
			return w, fmt.Errorf("the section %q is empty", title)
		}
	}
	w.Question = sections["Question"]
	w.synthesis = sections["Synthesis"]
	if !strings.HasSuffix(w.synthesis, writtenMark) {
		w.synthesis += "\n\n" + writtenMark
	}
	for _, member := range writtenMembers() {
		w.answers[member] = sections["Answer of "+member]
		if w.reviews[member], err = readWrittenReview(member, sections["Review of "+member]); err != nil {
			return w, fmt.Errorf("the review of %s: %w", member, err)
		}
	}
	from := json.NewDecoder(strings.NewReader(sections["Map"]))
	from.DisallowUnknownFields()
	if err := from.Decode(&w.chart); err != nil {
		return w, fmt.Errorf("the map: %w", err)
	}
	if _, err := from.Token(); !errors.Is(err, io.EOF) {
		return w, errors.New("the map: text follows the JSON object")
	}
	return w, w.check()
}

// placeholder matches the name of a member in a review.
var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// emphasised matches a placeholder in bold type. Only the first label of a paragraph is in bold type.
var emphasised = regexp.MustCompile(`\*\*(\{[a-z]+\})\*\*`)

// readWrittenReview reads the review of a member.
func readWrittenReview(reviewer, text string) (r writtenReview, err error) {
	text, scores, ok := cutLast(text, "\nScores: ")
	if !ok || strings.Contains(scores, "\n") {
		return r, errors.New(`it does not end with a line "Scores: "`)
	}
	r.text = strings.TrimSpace(emphasised.ReplaceAllString(text, "$1"))
	r.scores = map[string]int{}
	given := map[int]bool{}
	for pair := range strings.SplitSeq(scores, ",") {
		name, figure, _ := strings.Cut(strings.TrimSpace(pair), " ")
		score, err := strconv.Atoi(figure)
		if err != nil || score < 1 || score > 10 || given[score] {
			return r, fmt.Errorf("%q is not a name and a score from 1 to 10, or another answer has this score", pair)
		}
		given[score] = true
		r.scores[name] = score
	}
	for _, member := range writtenMembers() {
		if _, scored := r.scores[member]; scored == (member == reviewer) {
			return r, errors.New("it scores its own answer, or not all others")
		}
		if strings.Contains(text, "{"+member+"}") == (member == reviewer) {
			return r, fmt.Errorf("it does not name every other member, or it names itself: {%s}", member)
		}
	}
	for _, named := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(writtenMembers(), named[1]) {
			return r, fmt.Errorf("%s names no member", named[0])
		}
	}
	if len(r.scores) != len(writtenMembers())-1 {
		return r, errors.New("it scores an answer that does not exist")
	}
	return r, nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// check returns an error if the map quotes what no answer says, or if two answers are the same.
func (w *Written) check() error {
	seen := map[string]bool{}
	for _, answer := range w.answers {
		if seen[answer] {
			return errors.New("two answers are the same")
		}
		seen[answer] = true
	}
	claims := slices.Concat(w.chart.Agreed, w.chart.OnlyOneSaid)
	for _, dispute := range w.chart.Disputed {
		claims = append(claims, dispute.Sides...)
	}
	for _, claim := range claims {
		for _, quote := range claim.Quotes {
			n := utf8.RuneCountInString(quote.Quote)
			if n < 12 || n > 300 || !strings.Contains(w.answers[quote.Answer], quote.Quote) {
				return fmt.Errorf("the map quotes %q: it has not 12 to 300 characters, or the answer of %q does not have it",
					quote.Quote, quote.Answer)
			}
		}
	}
	return nil
}

// author returns the name of the model whose written answer a text is, or "".
func (w *Written) author(text string) string {
	for _, member := range writtenMembers() {
		if w.answers[member] == strings.TrimSpace(text) {
			return member
		}
	}
	return ""
}

// findWritten returns the written question that a text asks, or nil. Case and blanks do not matter.
func findWritten(all []Written, question string) *Written {
	folded := func(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }
	question = folded(question)
	for i := range all {
		if folded(all[i].Question) == question {
			return &all[i]
		}
	}
	return nil
}

// writtenOf returns the written question of a task, or nil. A question that follows other turns is another question.
func (m *model) writtenOf(t Task) *Written {
	if t.followUp {
		return nil
	}
	return findWritten(m.written, t.Question)
}

// writtenScores returns the written scores of a reviewer by label. Answers that are not written have none.
func (m *model) writtenScores(t Task) map[string]int {
	w := m.writtenOf(t)
	if w == nil {
		return nil
	}
	scores := map[string]int{}
	for _, a := range t.Answers {
		if score, ok := w.reviews[m.Name].scores[w.author(a.Text)]; ok {
			scores[a.Label] = score
		}
	}
	return scores
}

// remark is the part of a written review that is about one answer.
type remark struct {
	label string // "" if the text is about no answer; only the first remark can have it
	text  string
}

// remarks returns the written review of a slate, with labels in place of names. The result is empty if the slate has no
// written answer that the model reviews.
func (m *model) remarks(t Task) []remark {
	if len(m.writtenScores(t)) == 0 {
		return nil
	}
	w := m.writtenOf(t)
	labels := map[string]string{}
	for _, a := range t.Answers {
		if author := w.author(a.Text); author != "" {
			labels["{"+author+"}"] = a.Label
		}
	}
	var all []remark
	about := "" // a placeholder
	for _, part := range parts(w.reviews[m.Name].text) {
		about = cmp.Or(placeholder.FindString(part), about)
		label := labels[about]
		if label == "" && about != "" {
			continue // this answer is not on the slate
		}
		text := placeholder.ReplaceAllStringFunc(part, func(name string) string {
			return cmp.Or(labels[name], "another answer")
		})
		if i := slices.IndexFunc(all, func(r remark) bool { return r.label == label }); i >= 0 {
			all[i].text += " " + text
		} else {
			all = append(all, remark{label, text})
		}
	}
	return all
}

// prose returns the remarks as the prose of a review. Each paragraph begins with the label of its answer.
func (r remark) prose() string {
	if rest, begins := strings.CutPrefix(r.text, r.label); begins && r.label != "" {
		return "**" + r.label + "**" + rest + "\n\n"
	}
	if r.label != "" {
		return "**" + r.label + "**: " + r.text + "\n\n"
	}
	return r.text + "\n\n"
}

// sentence matches the end of a sentence and the placeholder with which the next one begins.
var sentence = regexp.MustCompile(`[.!?]["')]*\s+(\{[a-z]+\})`)

// parts splits a review at its paragraphs, and before each sentence that begins with a placeholder.
func parts(review string) []string {
	var all []string
	for paragraph := range strings.SplitSeq(review, "\n\n") {
		from := 0
		for _, at := range sentence.FindAllStringSubmatchIndex(paragraph, -1) {
			all = append(all, strings.TrimSpace(paragraph[from:at[2]]))
			from = at[2]
		}
		all = append(all, strings.TrimSpace(paragraph[from:]))
	}
	return all
}

// writtenSynthesis returns the written synthesis of a task. ok is false if there is none, or if an answer is not a
// written one.
func (m *model) writtenSynthesis(t Task) (text string, chart mapTail, ok bool) {
	w := m.writtenOf(t)
	if w == nil {
		return "", mapTail{}, false
	}
	labels := map[string]string{}
	for _, a := range t.Answers {
		author := w.author(a.Text)
		if author == "" {
			return "", mapTail{}, false
		}
		labels[author] = a.Label
	}
	return w.synthesis, w.chart.among(labels), true
}

// among returns the part of a map whose answers have a label. It names the answers by their labels.
func (t mapTail) among(labels map[string]string) mapTail {
	claims := func(all []mapClaim, quotes int) []mapClaim {
		left := []mapClaim{}
		for _, claim := range all {
			shown := []mapQuote{}
			for _, quote := range claim.Quotes {
				if label, ok := labels[quote.Answer]; ok {
					shown = append(shown, mapQuote{label, quote.Quote})
				}
			}
			if len(shown) >= quotes {
				left = append(left, mapClaim{claim.Claim, shown})
			}
		}
		return left
	}
	part := mapTail{
		Agreed: claims(t.Agreed, 2), OnlyOneSaid: claims(t.OnlyOneSaid, 1),
		Disputed: []mapDispute{}, Open: append([]string{}, t.Open...),
	}
	for _, dispute := range t.Disputed {
		if sides := claims(dispute.Sides, 1); len(sides) > 1 {
			part.Disputed = append(part.Disputed, mapDispute{dispute.About, sides})
		}
	}
	return part
}
