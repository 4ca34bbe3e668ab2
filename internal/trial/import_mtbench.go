package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// mtBench reads the output of MT-bench's pairwise judges. A line becomes the records of two sessions in one block. Each
// session has one order in which the judge saw the two answers. The score of an answer is 1 for a win, 0 for a loss and
// 0.5 for a tie.
type mtBench struct {
	seen map[string]bool // the blocks so far, each with its judge
	key  QuestionKey
}

// mtBenchLine has the decisions of a judge between two models for one question.
type mtBenchLine struct {
	Question *int64   `json:"question_id"`
	Model1   string   `json:"model_1"` // shown first in game 1
	Model2   string   `json:"model_2"`
	Winner1  string   `json:"g1_winner"`
	Winner2  string   `json:"g2_winner"`
	Judge    []string `json:"judge"` // the judge's model, and the name of its prompt
	Prompt1  string   `json:"g1_user_prompt"`
	Prompt2  string   `json:"g2_user_prompt"`
	Turn     int      `json:"turn"`
	Time     float64  `json:"tstamp"` // seconds since 1970
}

// line implements judgementReader.
func (m *mtBench) line(text []byte, write func(any) error) error {
	l, err := decodeLine[mtBenchLine](text)
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	first, second, ok := shownAnswers(l.Prompt1)
	again, before, okToo := shownAnswers(l.Prompt2)
	switch {
	case !ok || !okToo:
		return reject(NoAnswers, "")
	case first != before || second != again:
		return reject(NotSwapped, "")
	}
	block := fmt.Sprintf("mt-%d-%d-%s|%s", *l.Question, l.Turn, l.Model1, l.Model2)
	if m.seen[block+"\x00"+l.Judge[0]] {
		return reject(Duplicate, "%.100q, judged by %.40q", block, l.Judge[0])
	}
	m.seen[block+"\x00"+l.Judge[0]] = true
	// Use the number of the question, because the line does not hold its text. All lines about a question have the same
	// number.
	question := sha256.Sum256([]byte(strconv.FormatInt(*l.Question, 10)))
	record := council.BiasMetricRecord{
		SchemaVersion: council.RecordSchema,
		Timestamp:     time.UnixMilli(int64(l.Time * 1000)).UTC(),
		ConsentLevel:  1,
		ReviewerID:    l.Judge[0],
		ScoreScale:    "0-1",
		CouncilConfig: string(FormatMTBenchPairs) + "/" + l.Judge[1],
		QueryHash:     new(hex.EncodeToString(question[:8])),
		QuestionKey:   m.key(fmt.Sprintf("MT-bench question %d", *l.Question)),
		NShown:        2,
		BlockID:       &block,
	}
	models := []string{l.Model1, l.Model2}
	lengths := []int{utf8.RuneCountInString(first), utf8.RuneCountInString(second)}
	for game, winner := range []string{l.Winner1, l.Winner2} {
		record.SessionID = fmt.Sprintf("%s-g%d", block, game+1)
		for i := range models {
			at := i ^ game // Game 2 shows model 2 first.
			record.ModelID = models[at]
			record.ResponseLengthChars = lengths[at]
			record.Position = new(i)
			record.Own = record.ModelID == record.ReviewerID
			record.ScoreValue, record.RankValue, record.Status = gameScore(winner, at)
			if err := write(record); err != nil {
				return err
			}
		}
	}
	return nil
}

// end implements judgementReader.
func (*mtBench) end(func(any) error) error { return nil }

func (l mtBenchLine) check() error {
	const latest = 253402300799 // the last second of the year 9999
	texts := []string{l.Model1, l.Model2, l.Winner1, l.Winner2, l.Prompt1, l.Prompt2}
	if l.Question == nil || slices.Contains(texts, "") {
		return reject(MissingField, "question_id, both models, both winners, both prompts, judge, turn and tstamp are needed")
	}
	for _, winner := range []string{l.Winner1, l.Winner2} {
		switch winner {
		case "model_1", "model_2", "tie", "error":
		default:
			return reject(BadField, "a winner is %.40q, not model_1, model_2, tie or error", winner)
		}
	}
	switch {
	case l.Model1 == l.Model2 || max(len(l.Model1), len(l.Model2)) > maxID:
		return reject(BadField, "model_1 and model_2 are the same, or have over %d bytes", maxID)
	case len(l.Judge) != 2 || l.Judge[0] == "" || l.Judge[1] == "" || len(l.Judge[0])+len(l.Judge[1]) > maxID:
		return reject(BadField, "judge is not a model and the name of a prompt, with %d bytes at most", maxID)
	case l.Turn != 1 && l.Turn != 2:
		return reject(BadField, "turn is %d, not 1 or 2", l.Turn)
	case !(l.Time > 0 && l.Time <= latest):
		return reject(BadField, "tstamp is %v, not seconds since 1970", l.Time)
	}
	return nil
}

// gameScore returns the score and the rank of a model in a game with the given winner. The argument model is 0 for
// model_1, and 1 for model_2.
func gameScore(winner string, model int) (score, rank *float64, status council.BallotStatus) {
	switch winner {
	case "error": // MT-bench could not read a decision.
		return nil, nil, council.BallotInvalid
	case "tie":
		return new(0.5), new(0.5), council.BallotOK
	case []string{"model_1", "model_2"}[model]:
		return new(1.0), new(0.0), council.BallotOK
	default:
		return new(0.0), new(1.0), council.BallotOK
	}
}

// shownAnswers returns the answers of assistants A and B in the prompt of a judge. If there are two turns, it joins
// both answers of an assistant. It reports false if a marker stands in the prompt too often or not at all. A marker
// that occurs too often may be part of an answer.
func shownAnswers(prompt string) (a, b string, ok bool) {
	texts := make([]string, 2)
	for i, name := range []string{"A", "B"} {
		single, found := betweenMarkers(prompt, "[The Start of Assistant "+name+"'s Answer]\n",
			"\n[The End of Assistant "+name+"'s Answer]")
		if found {
			texts[i] = single
			continue
		}
		talk, found := betweenMarkers(prompt, "<|The Start of Assistant "+name+"'s Conversation with User|>\n\n",
			"\n\n<|The End of Assistant "+name+"'s Conversation with User|>")
		turns := strings.Split(talk, "### Assistant "+name+":\n")
		if !found || len(turns) != 3 || strings.Count(talk, "### User:\n") != 2 {
			return "", "", false
		}
		answer, _, asked := strings.Cut(turns[1], "\n\n### User:\n")
		if !asked {
			return "", "", false
		}
		texts[i] = answer + turns[2]
	}
	return texts[0], texts[1], true
}

// betweenMarkers returns the text between two markers. It reports false unless each marker stands in the text once.
func betweenMarkers(text, begin, end string) (string, bool) {
	if strings.Count(text, begin) != 1 || strings.Count(text, end) != 1 {
		return "", false
	}
	_, rest, _ := strings.Cut(text, begin)
	content, _, found := strings.Cut(rest, end)
	return content, found
}
