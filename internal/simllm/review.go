package simllm

import (
	"cmp"
	"crypto/sha256"
	"hash"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// baseScore is the score of an answer of quality 0 from a reviewer without bias.
const baseScore = 6

// verdict is a reviewer's opinion of one answer.
type verdict struct {
	Answer
	latent float64
	score  int // the latent score, rounded and limited to 1 to 10
}

// judge returns the verdicts on the answers, in the order in which the answers are shown. The package comment has the
// formula.
func (m *model) judge(t Task) []verdict {
	verdicts := make([]verdict, len(t.Answers))
	noise := m.noise(t.Question)
	c := m.closed(t.Question)
	written := m.writtenScores(t)
	for place, a := range t.Answers {
		v := baseScore + m.phrases.quality(a.Text) + m.Harshness
		for _, author := range m.liked {
			if strings.Contains(a.Text, author.signature) {
				v += author.points
			}
		}
		if m.LengthBias != 0 {
			characters := max(utf8.RuneCountInString(a.Text), 1)
			v += m.LengthBias * math.Log2(float64(characters)/typicalLength)
		}
		if place < len(m.Position) {
			v += m.Position[place]
		}
		if place > 0 && place == len(t.Answers)-1 {
			v += m.Last
		}
		if m.Noise != 0 {
			v += m.Noise * noise(a.Text, strconv.Itoa(place))
		}
		if c != nil && strings.EqualFold(c.claimed(a.Text), c.Right) {
			v += m.Ability.Discernment
		}
		if score, ok := written[a.Label]; ok {
			v = float64(score)
		}
		verdicts[place] = verdict{Answer: a, latent: v, score: min(max(int(math.Round(v)), 1), 10)}
	}
	return verdicts
}

// noise returns a function that draws a standard normal number for the question together with the function's arguments.
// The question is hashed only once.
func (m *model) noise(question string) func(parts ...string) float64 {
	questionHash := sha256.New()
	add(questionHash, m.seed, m.Name, "noise", question)
	return func(parts ...string) float64 {
		h, err := questionHash.(hash.Cloner).Clone()
		if err != nil {
			panic(err) // SHA-256 can be cloned
		}
		add(h, parts...)
		return rand.New(rand.NewChaCha8([32]byte(h.Sum(nil)))).NormFloat64()
	}
}

// ballot is the JSON object at the end of a review. A place of the ranking is a label, or a list of labels that
// share the place.
type ballot struct {
	Ranking []any          `json:"ranking"`
	Scores  map[string]int `json:"scores"`
}

// structuredReview is a review in the form that a response_format asks for.
type structuredReview struct {
	Critiques map[string]string `json:"critiques"`
	ballot
	Abstain *string `json:"abstain"`
}

// review writes the model's review. A ballot fault changes the ballot of the review.
func (m *model) review(q *request, fault FaultKind) string {
	verdicts := m.judge(q.task)
	critiques := m.critiques(q, verdicts)
	critique := "Simulated ballot.\n\n"
	if !q.task.Again {
		critique = prose(verdicts, critiques, m.remarks(q.task))
	}
	slices.SortStableFunc(verdicts, func(a, b verdict) int { return cmp.Compare(b.latent, a.latent) })
	best := verdicts[0].Label
	b := newBallot(verdicts)
	if fault == "" && q.body.ResponseFormat != nil && m.ResponseFormat == FormatHonoured {
		s := structuredReview{Critiques: map[string]string{}, ballot: b}
		for i, answer := range q.task.Answers {
			s.Critiques[answer.Label] = "Simulated: " + critiques[i]
		}
		for _, r := range m.remarks(q.task) {
			if r.label != "" {
				s.Critiques[r.label] = r.text
			}
		}
		return string(encode(s))
	}
	switch fault {
	case BallotAbstain:
		return critique + fence(`{"abstain": "the simulated reviewer declines to rank these answers"}`)
	case BallotProse:
		return critique + "All in all " + best + " reads best.\n"
	case BallotTruncated:
		return critique + "```json\n{\"ranking\": [" + string(encode(best)) + ", "
	case BallotTemplate:
		return q.task.instructions
	case BallotSingleQuotes:
		return critique + fence(strings.ReplaceAll(string(encode(b)), `"`, `'`))
	default: // other faults keep the form of the ballot
		b.spoil(fault, verdicts)
	}
	return critique + fence(string(encode(b)))
}

// spoil changes the contents of a ballot as a fault requires. The argument verdicts is sorted from best to worst.
func (b *ballot) spoil(fault FaultKind, verdicts []verdict) {
	switch fault {
	case BallotUnknownLabels:
		*b = ballot{Ranking: []any{"Model 1", "Model 2"}, Scores: map[string]int{"Model 1": 8, "Model 2": 5}}
	case BallotDuplicates:
		b.Ranking = slices.Concat(b.Ranking, b.Ranking)
	case BallotEmpty:
		*b = newBallot(nil)
	case BallotPartial:
		*b = newBallot(verdicts[:len(verdicts)-1])
	case BallotMismatch:
		b.Scores[verdicts[0].Label] = 1
		b.Scores[verdicts[len(verdicts)-1].Label] = 10
	case BallotBadScores:
		for label := range b.Scores {
			b.Scores[label] = 42
		}
	default: // no other fault changes the contents
	}
}

// choice says which of two answers the model prefers: the one with the higher score, or a tie if the scores are equal.
func (m *model) choice(q *request) string {
	verdicts := m.judge(q.task)
	chosen := "tie"
	switch cmp.Compare(verdicts[0].score, verdicts[1].score) {
	case 1:
		chosen = "A"
	case -1:
		chosen = "B"
	}
	return prose(verdicts, m.critiques(q, verdicts), m.remarks(q.task)) + choiceWord + " " + chosen + "\n"
}

// newBallot returns the ballot for verdicts that are sorted from best to worst.
func newBallot(verdicts []verdict) ballot {
	b := ballot{Ranking: []any{}, Scores: map[string]int{}}
	for len(verdicts) > 0 {
		n := 1
		for n < len(verdicts) && verdicts[n].latent == verdicts[0].latent {
			n++
		}
		place := make([]string, n)
		for i, v := range verdicts[:n] {
			place[i] = v.Label
			b.Scores[v.Label] = v.score
		}
		if n == 1 {
			b.Ranking = append(b.Ranking, place[0])
		} else {
			b.Ranking = append(b.Ranking, place)
		}
		verdicts = verdicts[n:]
	}
	return b
}

// prose returns the part of a review before its ballot. Critiques stand for the answers that no remark is about.
func prose(verdicts []verdict, critiques []string, remarks []remark) string {
	var b strings.Builder
	if len(remarks) == 0 {
		b.WriteString("Simulated review.\n\n")
	}
	for _, r := range remarks {
		b.WriteString(r.prose())
	}
	for i, v := range verdicts {
		if slices.ContainsFunc(remarks, func(r remark) bool { return r.label == v.Label }) {
			continue
		}
		b.WriteString("**" + v.Label + "** " + critiques[i] + "\n\n")
	}
	return b.String()
}

// critiques writes a few sentences about each answer, in the order in which the answers are shown.
func (m *model) critiques(q *request, verdicts []verdict) []string {
	rng := m.draws("critique", q.key)
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	critiques := make([]string, len(verdicts))
	for i, v := range verdicts {
		tier := min(max((v.score-1)/2-1, 0), 3) // The tiers are the scores 1-4, 5-6, 7-8 and 9-10.
		length := m.phrases.length[1]
		switch {
		case len(v.Text) < typicalLength*2/3:
			length = m.phrases.length[0]
		case len(v.Text) > typicalLength*3/2:
			length = m.phrases.length[2]
		}
		critiques[i] = pick(m.phrases.opinion[tier]) + " " + length + " " + pick(m.phrases.closing)
	}
	return critiques
}

func fence(object string) string { return "```json\n" + object + "\n```\n" }
