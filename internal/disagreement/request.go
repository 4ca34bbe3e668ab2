package disagreement

import (
	"context"
	"fmt"
	"strings"

	"github.com/councild/councild/internal/council"
)

// The limits of a lexicon in a request. They keep the time for a text proportional to its length.
const (
	maxAxes      = 32
	maxTerms     = 1000
	maxTermWords = 8
	maxSameFirst = 100 // terms that begin with the same word
)

const (
	maxID    = 200 // the most bytes in the id of an answer
	maxNamed = 20  // the most problems that an error names
)

// Rules are the settings for requests that compare answers.
type Rules struct {
	Terms     *Matcher // applies to a request without a lexicon
	Threshold float64  // applies to a request without a threshold
	// MaxQuestion and MaxAnswer are the largest sizes of a question and of an answer in bytes.
	MaxQuestion, MaxAnswer int64
	// HasJudge and HasEmbedding say whether a request may use council.BackendJudge and council.BackendEmbedding.
	HasJudge, HasEmbedding bool
	Settings               council.SettingNames // for messages
}

// Read returns what a request asks to compare. The error is a *council.Error of council.CodeInvalid that lists the
// problems of the request, at most the first twenty.
func (r Rules) Read(request council.DisagreementRequest) (Answered, error) {
	in := Answered{
		Question:  request.Question,
		Answers:   map[string]string{},
		Matcher:   r.Terms,
		Threshold: r.Threshold,
	}
	var p problems
	longer := "shorten it, or raise " + r.Settings.Of(council.SettingMaxQueryBytes)
	checkLength(&p, "question", "the question", request.Question, r.MaxQuestion, longer)
	if n := len(request.Answers); n < council.MinCompared || n > council.MaxCompared {
		fix := fmt.Sprintf("give %d to %d", council.MinCompared, council.MaxCompared)
		p.add("answers", fmt.Sprintf("there are %d answers", n), fix)
	}
	for i, a := range request.Answers {
		at := fmt.Sprintf("answers[%d]", i)
		if _, ok := in.Answers[a.ID]; ok {
			p.add(at+".id", fmt.Sprintf("%.50q is the id of another answer too", a.ID), "give each answer an id of its own")
		}
		r.checkAnswer(&p, at, a)
		in.Answers[a.ID] = a.Text
	}
	r.checkBackend(&p, request.Backend)
	if request.Threshold != nil {
		if in.Threshold = *request.Threshold; in.Threshold < 0 || in.Threshold > 1 {
			p.add("threshold", "the threshold is out of range", "give a number from 0 to 1")
		}
	}
	if request.Lexicon != nil {
		in.Matcher = readLexicon(&p, request.Lexicon)
	}
	if len(p) > 0 {
		return Answered{}, &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: p}
	}
	return in, nil
}

// problems are the problems that the error of a request names.
type problems []council.FieldError

func (p *problems) add(field, message, fix string) {
	if len(*p) < maxNamed {
		*p = append(*p, council.FieldError{Field: field, Message: message, Fix: fix})
	}
}

func checkLength(p *problems, field, what, text string, limit int64, fix string) {
	if int64(len(text)) > limit {
		p.add(field, fmt.Sprintf("%s has %d bytes, %d are allowed", what, len(text), limit), fix)
	}
}

func (r Rules) checkAnswer(p *problems, at string, a council.ComparedAnswer) {
	if a.ID == "" || len(a.ID) > maxID {
		p.add(at+".id", fmt.Sprintf("the id has %d bytes", len(a.ID)), fmt.Sprintf("give one of 1 to %d bytes", maxID))
	}
	if strings.TrimSpace(a.Text) == "" {
		p.add(at+".text", "the answer has no text", "give its text, or leave the answer out")
	}
	checkLength(p, at+".text", "the answer", a.Text, r.MaxAnswer, "shorten it")
}

func (r Rules) checkBackend(p *problems, backend council.DisagreementBackend) {
	lexicon := string(council.BackendLexicon)
	switch backend {
	case "", council.BackendLexicon:
	case council.BackendJudge:
		if !r.HasJudge {
			fix := "name a model in " + r.Settings.Of(council.SettingJudgeModel) + ", or use " + lexicon
			p.add("backend", "there is no judge here", fix)
		}
	case council.BackendEmbedding:
		if !r.HasEmbedding {
			fix := "name one in " + r.Settings.Of(council.SettingEmbeddingModel) + ", or use " + lexicon
			p.add("backend", "there is no embedding model here", fix)
		}
	default:
		p.add("backend", fmt.Sprintf("%.50q is not a backend", backend),
			fmt.Sprintf("use %s, %s or %s", council.BackendLexicon, council.BackendJudge, council.BackendEmbedding))
	}
}

// readLexicon returns the matcher for a lexicon in a request, or nil if the lexicon has a problem.
func readLexicon(p *problems, text []byte) *Matcher {
	l, err := ParseLexicon(text)
	if err == nil {
		err = l.bounded()
	}
	if err == nil {
		return NewMatcher(l)
	}
	for problem := range strings.Lines(err.Error()) {
		p.add("lexicon", strings.TrimSpace(problem),
			"see councild config lexicon print for the form, and councild config lexicon check for a file")
	}
	return nil
}

// bounded returns an error for a lexicon that exceeds the limits above.
func (l Lexicon) bounded() error {
	terms := 0
	first := map[string]int{}
	for axis, list := range l.Axes {
		terms += len(list)
		for _, term := range list {
			words := strings.FieldsFunc(term, func(r rune) bool { return r == ' ' || r == '-' })
			if len(words) > maxTermWords {
				return fmt.Errorf("axis %.50q: a term has %d words, %d are allowed", axis, len(words), maxTermWords)
			}
			if first[words[0]]++; first[words[0]] > maxSameFirst {
				return fmt.Errorf("more than %d terms begin with %.50q", maxSameFirst, words[0])
			}
		}
	}
	if terms > maxTerms || len(l.Axes) > maxAxes {
		return fmt.Errorf("the lexicon has %d terms on %d axes, %d on %d are allowed",
			terms, len(l.Axes), maxTerms, maxAxes)
	}
	return nil
}

// Report compares the answers by the terms of the lexicon. It returns false if ctx ends first.
func Report(ctx context.Context, in Answered) (council.DisagreementReport, bool) {
	d := Detect(ctx, in)
	if d == nil {
		return council.DisagreementReport{}, false
	}
	return council.DisagreementReport{
		Backend:                 council.BackendLexicon,
		Threshold:               in.Threshold,
		DemographicDisagreement: *d,
	}, true
}
