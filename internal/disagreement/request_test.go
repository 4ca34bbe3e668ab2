package disagreement

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
)

func rules() Rules {
	return Rules{Terms: NewMatcher(DefaultLexicon()), Threshold: 0.3, MaxQuestion: 100, MaxAnswer: 1000}
}

func answers(n int) []council.ComparedAnswer {
	all := make([]council.ComparedAnswer, n)
	for i := range all {
		all[i] = council.ComparedAnswer{ID: fmt.Sprint("m", i), Text: "Rain."}
	}
	return all
}

func TestRead(t *testing.T) {
	r := rules()
	in, err := r.Read(council.DisagreementRequest{Question: "Why?", Answers: answers(2)})
	want := map[string]string{"m0": "Rain.", "m1": "Rain."}
	if err != nil || in.Matcher != r.Terms || in.Threshold != 0.3 || in.Question != "Why?" || !cmp.Equal(in.Answers, want) {
		t.Errorf("%+v, error %v", in, err)
	}
	in, err = r.Read(council.DisagreementRequest{
		Answers: answers(32), Backend: council.BackendLexicon, Threshold: new(0.0), Lexicon: []byte(`{"weather": ["rain"]}`),
	})
	if err != nil || in.Threshold != 0 || !slices.Equal(in.Matcher.axes, []string{"weather"}) {
		t.Errorf("%+v, error %v", in, err)
	}
}

func TestReadErrors(t *testing.T) {
	lexicon := func(axes Axes) json.RawMessage {
		data, err := json.Marshal(Lexicon{Axes: axes})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	numbered := func(format string, n int) (terms []string) {
		for i := range n {
			terms = append(terms, fmt.Sprintf(format, i))
		}
		return terms
	}
	many := Axes{}
	for i := range maxAxes + 1 {
		many[fmt.Sprint("axis", i)] = []string{"rain"}
	}
	for _, tt := range []struct {
		name   string
		change func(*council.DisagreementRequest)
		want   string // field and message
	}{
		{"one answer", func(r *council.DisagreementRequest) { r.Answers = answers(1) }, "answers: there are 1 answers"},
		{"33 answers", func(r *council.DisagreementRequest) { r.Answers = answers(33) }, "answers: there are 33 answers"},
		{"no id", func(r *council.DisagreementRequest) { r.Answers[1].ID = "" }, "answers[1].id: the id has 0 bytes"},
		{
			"a long id", func(r *council.DisagreementRequest) { r.Answers[1].ID = strings.Repeat("x", 201) },
			"answers[1].id: the id has 201 bytes",
		},
		{
			"an id twice", func(r *council.DisagreementRequest) { r.Answers[1].ID = "m0" },
			`answers[1].id: "m0" is the id of another answer too`,
		},
		{"no text", func(r *council.DisagreementRequest) { r.Answers[0].Text = " \n" }, "answers[0].text: the answer has no text"},
		{
			"a long answer", func(r *council.DisagreementRequest) { r.Answers[0].Text = strings.Repeat("x", 1001) },
			"answers[0].text: the answer has 1001 bytes, 1000 are allowed",
		},
		{
			"a long question", func(r *council.DisagreementRequest) { r.Question = strings.Repeat("x", 101) },
			"question: the question has 101 bytes, 100 are allowed",
		},
		{"no backend", func(r *council.DisagreementRequest) { r.Backend = "oracle" }, `backend: "oracle" is not a backend`},
		{"a threshold", func(r *council.DisagreementRequest) { r.Threshold = new(1.1) }, "threshold: the threshold is out of range"},
		{"no lexicon", func(r *council.DisagreementRequest) { r.Lexicon = []byte(`{"a": []}`) }, `lexicon: axis "a" has no terms`},
		{
			"too many axes", func(r *council.DisagreementRequest) { r.Lexicon = lexicon(many) },
			"lexicon: the lexicon has 33 terms on 33 axes, 1000 on 32 are allowed",
		},
		{
			"too many terms", func(r *council.DisagreementRequest) { r.Lexicon = lexicon(Axes{"a": numbered("x%d", 1001)}) },
			"lexicon: the lexicon has 1001 terms on 1 axes, 1000 on 32 are allowed",
		},
		{
			"terms that begin alike", func(r *council.DisagreementRequest) { r.Lexicon = lexicon(Axes{"a": numbered("old x%d", 101)}) },
			`lexicon: more than 100 terms begin with "old"`,
		},
		{
			"a long term", func(r *council.DisagreementRequest) { r.Lexicon = lexicon(Axes{"a": {"a b c d e f g h i"}}) },
			`lexicon: axis "a": a term has 9 words, 8 are allowed`,
		},
	} {
		request := council.DisagreementRequest{Answers: answers(2)}
		tt.change(&request)
		_, err := rules().Read(request)
		e, ok := errors.AsType[*council.Error](err)
		if !ok || e.Code != council.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Fix == "" {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := e.Fields[0].Field + ": " + e.Fields[0].Message; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	everything := council.DisagreementRequest{Answers: make([]council.ComparedAnswer, 40), Backend: "x", Threshold: new(math.Inf(1))}
	_, err := rules().Read(everything)
	if e, ok := errors.AsType[*council.Error](err); !ok || len(e.Fields) != maxNamed {
		t.Errorf("every problem: %v", err)
	}
}

// A lexicon within the limits of requests keeps the time in proportion to the text, also when it is
// made to be slow: as many terms as may begin with one word, each of the most words, on all axes.
func TestBoundedLexiconIsLinear(t *testing.T) {
	testkit.Slow(t)
	axes := Axes{}
	for i := range maxSameFirst {
		name := fmt.Sprint("axis", i%maxAxes)
		axes[name] = append(axes[name], "a a a a a a a "+strings.Repeat("b", i+1))
	}
	l := Lexicon{Axes: axes}
	if err := l.bounded(); err != nil {
		t.Fatal(err)
	}
	m := NewMatcher(l)
	growth.Linear(t, func(n int) func() {
		in := Answered{Answers: map[string]string{"a": strings.Repeat("a ", n/2), "b": "b"}, Matcher: m}
		return func() { Report(t.Context(), in) }
	})
}
