package simllm

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"slices"
	"strings"
)

// These texts show which task a request is. Only the instructions of a review contain ballotWord, only those of a
// choice contain choiceWord, only those of a judgement contain ratingWord, and only those of a decision contain
// voteWord.
const (
	ballotWord = `"ranking"`
	choiceWord = "CHOICE:"
	ratingWord = `"rating"`
	voteWord   = `"vote"`
)

// TaskKind says what a request asks for.
type TaskKind string

// The kinds of task.
const (
	Question  TaskKind = "question"  // write an answer
	Review    TaskKind = "review"    // rank and score answers
	Synthesis TaskKind = "synthesis" // write one answer from several
	Choice    TaskKind = "choice"    // say which of two answers is better
	Embedding TaskKind = "embedding" // turn texts into vectors
	Judgement TaskKind = "judgement" // rate on each axis how much answers differ
	Decision  TaskKind = "decision"  // vote on questions about a text
	Finding   TaskKind = "finding"   // find defects in a diff
	// Confirmation asks for votes on the findings of others.
	Confirmation TaskKind = "confirmation"
)

// Task is the parsed task of a request.
type Task struct {
	Kind      TaskKind
	Model     string
	Question  string
	Answers   []Answer           // in the order shown; none for a question
	Again     bool               // a review that is asked for again; the reply is only the ballot
	Axes      []string           // the axes of a judgement
	Token     string             // the token of a judgement's markers
	Text      string             // the text of a decision, or a diff
	Questions []DecisionQuestion // the questions of a decision
	Map       string             // the line before the map that a synthesis is asked for, or ""

	findings     []shownFinding // of a confirmation
	instructions string         // the text after the last marker
	followUp     bool           // a question that follows other turns
}

// Answer is one of the answers that a task shows.
type Answer struct {
	Label string
	Text  string
}

// DecisionQuestion is one question of a decision.
type DecisionQuestion struct {
	Question string
	Labels   []string // the votes that can be cast, in the order shown
	Options  []string // what each label stands for
}

// turn is one message of a conversation. Its content is plain text.
type turn struct {
	role, text string
}

// readTask returns the task of a conversation.
func readTask(model string, conversation []turn) Task {
	var before, last string // the last two messages of the user
	for _, t := range conversation {
		if t.role == "user" {
			before = last
			last = t.text
		}
	}
	task, ok := readBrief(last)
	if !ok && strings.Contains(last, ballotWord) {
		task, ok = readBrief(before)
		ok = ok && task.Kind == Review
		task.Again = true
	}
	if !ok {
		answered := slices.ContainsFunc(conversation, func(t turn) bool { return t.role == "assistant" })
		task = Task{Kind: Question, Question: last, followUp: before != "" || answered}
	}
	task.Model = model
	return task
}

// readBrief reads a task about answers from a text in the form that the package comment describes. A marker with
// another token than the marker of the question is ordinary text.
func readBrief(text string) (Task, bool) {
	if token, ok := firstToken(text, "DIFF", "DESCRIPTION"); ok {
		return readChange(text, token)
	}
	token, ok := findToken(text, "QUESTION")
	if !ok {
		token, ok = findToken(text, "TEXT")
	}
	if !ok {
		return Task{}, false
	}
	var task Task
	if _, shown, rest, ok := cutBlock(text, "TEXT "+token); ok {
		_, task.Question, _, _ = cutBlock(text, "QUESTION "+token)
		task.Text = shown
		task.instructions = strings.TrimSpace(rest)
		task.Questions = readQuestions(rest)
		task.Kind = Decision
		return task, strings.Contains(rest, voteWord)
	}
	_, task.Question, text, ok = cutBlock(text, "QUESTION "+token)
	if !ok {
		return Task{}, false
	}
	for {
		name, answer, rest, ok := cutBlock(text, "ANSWER "+token)
		if !ok {
			break
		}
		task.Answers = append(task.Answers, Answer{Label: name, Text: answer})
		text = rest
	}
	if len(task.Answers) == 0 {
		return Task{}, false
	}
	if before, line, ok := cutMap(text, token); ok {
		task.Map = line
		text = before
	}
	// Skip the reviews that may follow the answers. The instructions may quote the token too, but not in the form of a
	// marker.
	if i := max(strings.LastIndex(text, token+": "), strings.LastIndex(text, token+" ===")); i >= 0 {
		_, text, _ = strings.Cut(text[i:], "\n")
	}
	task.instructions = strings.TrimSpace(text)
	switch {
	case strings.Contains(task.instructions, ballotWord):
		task.Kind = Review
	case strings.Contains(task.instructions, ratingWord):
		task.Kind = Judgement
		task.Token = token
		_, axes, _ := strings.Cut(task.instructions, "Rate each of these axes: ")
		axes, _, _ = strings.Cut(axes, ".\n")
		task.Axes = strings.Split(axes, ", ")
	case strings.Contains(task.instructions, choiceWord) && len(task.Answers) == 2:
		task.Kind = Choice
	default:
		task.Kind = Synthesis
	}
	return task, true
}

// firstToken returns the token of the first marker of a text, if the marker begins a block of one of these kinds. Later
// markers do not count, because a diff may have them.
func firstToken(text string, kinds ...string) (string, bool) {
	_, after, _ := strings.Cut("\n"+text, "\n=== BEGIN ")
	for _, kind := range kinds {
		if strings.HasPrefix(after, kind+" ") {
			return findToken("=== BEGIN "+after, kind)
		}
	}
	return "", false
}

// findToken returns the token of the first marker that begins a block of a kind.
func findToken(text, kind string) (string, bool) {
	begin := "=== BEGIN " + kind + " "
	for line := range strings.Lines(text) {
		rest, begins := strings.CutPrefix(line, begin)
		token, ends := strings.CutSuffix(rest, " ===\n")
		if begins && ends && len(token) == 16 && strings.Trim(token, "0123456789abcdef") == "" {
			return token, true
		}
	}
	return "", false
}

// cutBlock finds the first block whose markers have the tag. It returns the name and the content of this block, and the
// text after it.
func cutBlock(text, tag string) (name, content, rest string, ok bool) {
	_, rest, _ = strings.Cut(text, "=== BEGIN "+tag)
	head, rest, ok := strings.Cut(rest, " ===\n")
	if !ok || strings.Contains(head, "\n") {
		return "", "", "", false
	}
	content, rest, ok = strings.Cut(rest, "\n=== END "+tag+head+" ===")
	return strings.TrimPrefix(head, ": "), content, rest, ok
}

// cutMap returns the text before the line with which a map begins, and this line.
func cutMap(text, token string) (before, line string, ok bool) {
	line = "=== MAP " + token + " ==="
	i := strings.LastIndex(text, "\n"+line+"\n")
	return text[:max(i, 0)], line, i >= 0
}

// key returns a hash of everything that the reply to a request may depend on, except the seed and the model.
func (t Task) key(conversation []turn) string {
	parts := []string{string(t.Kind)}
	if t.Kind == Question {
		for _, turn := range conversation {
			parts = append(parts, turn.role, turn.text)
		}
	} else {
		parts = append(parts, t.Question)
		for _, a := range t.Answers {
			parts = append(parts, a.Text)
		}
		if t.Kind == Decision {
			parts = append(parts, t.Text, t.instructions)
		}
		if t.Kind == Finding || t.Kind == Confirmation {
			parts = append(parts, t.Text)
		}
		for _, f := range t.findings {
			parts = append(parts, f.What)
		}
	}
	sum := digest(parts...)
	return string(sum[:])
}

// digest returns the SHA-256 of the parts.
func digest(parts ...string) [32]byte {
	h := sha256.New()
	add(h, parts...)
	return [32]byte(h.Sum(nil))
}

// add adds the parts to a hash, each after its length.
func add(h hash.Hash, parts ...string) {
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
}

// draws returns a source of randomness that is a function of the parts.
func draws(parts ...string) *rand.Rand {
	return rand.New(rand.NewChaCha8(digest(parts...)))
}
