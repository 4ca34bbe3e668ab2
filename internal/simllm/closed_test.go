package simllm

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/councild/councild/internal/trial"
	"github.com/google/go-cmp/cmp"
)

// instruction is what a prompt asks for below a closed question.
const instruction = "\n\n" + `End your answer with a line of its own that begins with "ANSWER:" and holds the answer.`

func known(tb testing.TB) []Closed {
	tb.Helper()
	all, err := ReadClosed(councild.Questions())
	if err != nil || len(all) != 60 {
		tb.Fatalf("%d questions, %v", len(all), err)
	}
	return all
}

// reply returns the text that a running server replies to a request.
func (r remote) reply(tb testing.TB, body object) string {
	tb.Helper()
	got := r.post(tb.Context(), body)
	if !got.whole() {
		tb.Fatal(got)
	}
	return got.text()
}

// TestPlantedAccuracy asks models with planted accuracies over HTTP: they are right as often as planted,
// and their errors are correlated as planted. The wrong answers of two models are at times the same.
func TestPlantedAccuracy(t *testing.T) {
	accuracies := []float64{0.75, 0.7, 0.55}
	names := []string{"amber?accuracy=.75", "birch?accuracy=.7", "cedar?accuracy=.55&common=.6"}
	models := Council()
	for i := range models {
		models[i].Latency = Latency{}
	}
	const seeds = 25
	all := known(t)
	wrong := make([][]float64, len(names))
	bothWrong, sameWrong := 0, 0
	for seed := range uint64(seeds) {
		s := start(t, Options{Seed: seed, Models: models, Closed: all})
		for _, c := range all {
			claims := make([]string, len(names))
			for i, name := range names {
				claims[i] = c.claimed(s.reply(t, chat(name, c.Query+instruction)))
				if claims[i] == c.Right {
					wrong[i] = append(wrong[i], 0)
				} else {
					wrong[i] = append(wrong[i], 1)
				}
			}
			if claims[0] != c.Right && claims[1] != c.Right {
				bothWrong++
				if claims[0] == claims[1] {
					sameWrong++
				}
			}
		}
		s.Close()
	}
	n := float64(len(wrong[0]))
	for i, accuracy := range accuracies {
		if got, bound := 1-stat.Mean(wrong[i]), 3.5*math.Sqrt(accuracy*(1-accuracy)/n); math.Abs(got-accuracy) > bound {
			t.Errorf("%s is right at %.3f, want %v +- %.3f", names[i], got, accuracy, bound)
		}
		for j := range i {
			got, _ := stat.Pearson(wrong[i], wrong[j])
			want := biassim.Graded{Common: 0.6}.Phi(accuracy, accuracies[j])
			if bound := 3.5 / math.Sqrt(n); math.Abs(got-want) > bound || want < 0.3 {
				t.Errorf("errors of %s and %s correlate with %.3f, want %.3f +- %.3f", names[i], names[j], got, want, bound)
			}
		}
	}
	// Most questions have three wrong answers, or two.
	if share := float64(sameWrong) / float64(bothWrong); share < 0.25 || share > 0.6 {
		t.Errorf("of %d pairs of wrong answers %d are the same", bothWrong, sameWrong)
	}
}

// A question has the same outcome whenever it is asked. Another sample, which the seed of the request
// names, shares how hard the question is, and no more.
func TestSamples(t *testing.T) {
	s := start(t, Options{
		Models: []Model{{Name: "m", Ability: NewAbility(0.6)}, {Name: "n", Ability: &Ability{Accuracy: 0.6, Common: 1}}},
		Closed: known(t),
	})
	sampled := func(model, question string, seed any) string {
		body := chat(model, question)
		if seed != nil {
			body["seed"] = seed
		}
		return s.reply(t, body)
	}
	var first, second []float64
	for _, c := range known(t) {
		right := func(model string, seed any) float64 {
			if c.claimed(sampled(model, c.Query+instruction, seed)) == c.Right {
				return 1
			}
			return 0
		}
		if right("m", nil) != right("m", nil) {
			t.Fatalf("%q has two outcomes", c.Query)
		}
		if right("n", nil) != right("n", 1) {
			t.Errorf("%q has two outcomes, although all of the variance is common", c.Query)
		}
		for seed := range 20 {
			first, second = append(first, right("m", 2*seed)), append(second, right("m", 2*seed+1))
		}
	}
	// Of 60 questions, whose hardness stays the same.
	if got, _ := stat.Pearson(first, second); got < 0.2 || got > 0.65 {
		t.Errorf("samples correlate with %.3f, want about %.3f", got, biassim.Graded{Common: 0.6}.Phi(0.6, 0.6))
	}
}

// What a model with an ability writes is graded as the question's own grader reads it.
func TestRepliesAreGraded(t *testing.T) {
	options := Options{
		Models: []Model{{Name: "right", Ability: &Ability{Accuracy: 1}}, {Name: "wrong", Ability: &Ability{Accuracy: 0}}, {Name: "plain"}},
		Closed: known(t),
	}
	s := start(t, options)
	for n, line := range strings.Split(strings.TrimSpace(string(councild.Questions())), "\n") {
		q := decode[closedLine](t, []byte(line))
		g, err := trial.NewGrader(trial.GraderSpec{Type: q.Grader.Type, Options: q.Grader.Options}, q.Reference)
		if err != nil {
			t.Fatal(err)
		}
		prompt := q.Query
		if i := g.Instruction(); i != "" {
			prompt += "\n\n" + i
		}
		for model, want := range map[string]float64{"right": 1, "wrong": 0} {
			text := s.reply(t, chat(model, prompt))
			if got := g.Grade(text).Score; got == nil || *got != want || !strings.HasPrefix(text, "Simulated answer.\n") {
				t.Errorf("question %d: %s has the score %v in %q", n+1, model, got, text)
			}
		}
		if text := s.reply(t, chat("plain", prompt)); strings.Contains(text, answerLabel) {
			t.Errorf("question %d: a model without an ability answers %q", n+1, text)
		}
	}
	// A question that is not known is a question like any other.
	if text := s.reply(t, chat("right", "Why is the sky blue?"+instruction)); strings.Contains(text, answerLabel) {
		t.Errorf("it knows what it was not told: %q", text)
	}
}

// An ability changes nothing but the last line of answers and syntheses.
func TestAbilityAddsOneLine(t *testing.T) {
	plain, able := Council()[3], Council()[3]
	plain.Latency, able.Latency = Latency{}, Latency{}
	able.Ability = NewAbility(0.5)
	able.Ability.Discernment = 0
	c := known(t)[0]
	without, with := newServer(t, plain), start(t, Options{Models: []Model{able}, Closed: known(t)}).Server
	answers := labelled("one", "two", "three")
	for name, prompt := range map[string]string{
		"question": c.Query + instruction, "synthesis": brief(token, c.Query, answers, nil, "Write it."),
	} {
		text := ask(t, with, "dune", prompt)
		if diff := cmp.Diff(ask(t, without, "dune", prompt), text[:strings.LastIndex(text, "\n\n")]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, prompt := range map[string]string{
		"another question": "Why?", "another synthesis": brief(token, "Why?", answers, nil, "Write it."),
		"review": brief(token, c.Query, answers, nil, ranking),
	} {
		if diff := cmp.Diff(ask(t, without, "dune", prompt), ask(t, with, "dune", prompt)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// session returns what reviewers and a chairman make of the answers to a question: whether the right
// answer is ranked first, and whether the syntheses are right: with the ranking, with a ranking that
// belongs to other answers, and without one.
func session(t *testing.T, s remote, members []string, c Closed) (first, council, placebo, plain bool) {
	t.Helper()
	answers := make([]Answer, len(members))
	for i, member := range members {
		answers[i] = Answer{Label: fmt.Sprintf("Answer %d", i+1), Text: s.reply(t, chat(member, c.Query+instruction))}
	}
	points := map[string]int{}
	for _, reviewer := range members {
		b := ballotOf(t, s.reply(t, chat(reviewer, brief(token, c.Query+instruction, answers, nil, ranking))))
		for place, label := range b.Ranking {
			points[label.(string)] += len(b.Ranking) - 1 - place
		}
	}
	best := 0
	table := func(shift int) string {
		var lines strings.Builder
		lines.WriteString("Ranking by the reviewers, best first (share of the possible Borda points; votes):\n")
		for i, a := range answers {
			shown := answers[(i+shift)%len(answers)].Label
			fmt.Fprintf(&lines, "%d. %s: %d%%; 3\n", i+1, shown, 100*points[a.Label]/(len(members)*(len(answers)-1)))
			if points[a.Label] > points[answers[best].Label] {
				best = i
			}
		}
		return lines.String() + "\nWrite it."
	}
	synthesis := func(instructions string) bool {
		return c.claimed(s.reply(t, chat("chair", brief(token, c.Query+instruction, answers, nil, instructions)))) == c.Right
	}
	council, placebo, plain = synthesis(table(0)), synthesis(table(1)), synthesis("Write it.")
	return c.claimed(answers[best].Text) == c.Right, council, placebo, plain
}

// TestCouncilOfAbility holds that reviewers with discernment, and a chairman that reads the ranking,
// make a council better than its members; that a ranking of other answers makes it worse; and that
// nothing of this is so without discernment.
func TestCouncilOfAbility(t *testing.T) {
	names := []string{"amber", "birch", "cedar", "dune"}
	type shares struct{ member, first, council, placebo, plain float64 }
	run := func(discernment, insight float64) (out shares) {
		const seeds = 3
		n := 0.0
		for seed := range uint64(seeds) {
			models := []Model{{Name: "chair", Ability: &Ability{Accuracy: 0.5, Common: 0.6, Insight: insight}}}
			for _, name := range names {
				models = append(models, Model{
					Name: name, Spread: 0.8, Length: 0.4, Noise: 0.6, Ability: &Ability{Accuracy: 0.6, Common: 0.6, Discernment: discernment},
				})
			}
			s := start(t, Options{Seed: seed, Models: models, Closed: known(t)})
			for _, c := range known(t) {
				first, council, placebo, plain := session(t, s, names, c)
				for to, is := range map[*float64]bool{&out.first: first, &out.council: council, &out.placebo: placebo, &out.plain: plain} {
					if is {
						*to++
					}
				}
				if c.claimed(s.reply(t, chat(names[0], c.Query+instruction))) == c.Right {
					out.member++
				}
				n++
			}
			s.Close()
		}
		for _, share := range []*float64{&out.member, &out.first, &out.council, &out.placebo, &out.plain} {
			*share /= n
		}
		return out
	}
	keen, blind, knowing := run(2, 0), run(0, 0), run(0, 1)
	if keen.first < keen.member+0.08 || keen.council < keen.member+0.06 || keen.council < keen.plain+0.03 || keen.placebo > keen.council-0.08 {
		t.Errorf("with discernment: %+v", keen)
	}
	if math.Abs(blind.first-blind.member) > 0.06 || math.Abs(blind.council-blind.placebo) > 0.06 {
		t.Errorf("without discernment: %+v", blind)
	}
	if knowing.council < blind.council+0.1 || knowing.plain != knowing.council {
		t.Errorf("with insight: %+v, without: %+v", knowing, blind)
	}
}

func TestElect(t *testing.T) {
	c := Closed{Query: "How many?", Right: "7", Wrong: []string{"8", "9"}}
	s := start(t, Options{Closed: []Closed{c}, Models: []Model{
		{Name: "chair", Ability: &Ability{}}, {Name: "insight", Ability: &Ability{Insight: 1}}, {Name: "own", Ability: &Ability{Accuracy: 1}},
	}})
	table := "Ranking by the reviewers, best first (share of the possible Borda points; votes):\n"
	for _, tt := range []struct {
		name, chairman, question, instructions string
		answers                                []string
		want                                   string
	}{
		{"most frequent", "chair", "How many?", "Go.", []string{"x\n7", "x\n8", "x\n8"}, "\n\n8"},
		{"asked for a line", "chair", "How many?" + instruction, "Go.", []string{"ANSWER: 7", "ANSWER: 8", "ANSWER: 8"}, "\n\nANSWER: 8"},
		{"asked for a line at the end", "chair", "How many?", `End with "ANSWER:".`, []string{"x\n9"}, "\n\nANSWER: 9"},
		{
			"most points", "chair", "How many?", table + "1. Answer 1: 90%; 3\n2. Answer 2: 40%; 3\n2. Answer 3: 40%; 3\n\nGo.",
			[]string{"7", "8", "8"},
			"\n\n7",
		},
		{
			"most points together", "chair", "How many?", table + "1. Answer 1: 70%; 3\n2. Answer 2: 40%; 3\n2. Answer 3: 40%; 3\n\nGo.",
			[]string{"7", "8", "8"},
			"\n\n8",
		},
		{"an unknown answer", "chair", "How many?", "Go.", []string{"Answer: 1", "ANSWER: 70"}, "\n\n70"},
		{"insight", "insight", "How many?", "Go.", []string{"7", "8", "8"}, "\n\n7"},
		{"insight into nothing", "insight", "How many?", "Go.", []string{"9", "8", "8"}, "\n\n8"},
		{"no answer", "own", "How many?", "Go.", []string{"prose", ""}, "\n\n7"},
	} {
		answers := make([]Answer, len(tt.answers))
		for i, text := range tt.answers {
			answers[i] = Answer{Label: fmt.Sprintf("Answer %d", i+1), Text: text}
		}
		got := s.reply(t, chat(tt.chairman, brief(token, tt.question, answers, []string{"a review"}, tt.instructions)))
		if !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: want %q at the end of %q", tt.name, tt.want, got)
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"amber": "", "amber?accuracy=.7": "", "amber?accuracy=0.7&common=0&discernment=-1&insight=1": "",
		"ambr": "unknown", "ambr?accuracy=.7": "unknown", "": "unknown", "?accuracy=.7": "unknown",
		"amber?":                         "accuracy is not a number from 0 to 1",
		"amber?insight=.5":               "accuracy is not a number from 0 to 1",
		"amber?accuracy=x":               "accuracy is not a number from 0 to 1",
		"amber?accuracy=NaN":             "accuracy is not a number from 0 to 1",
		"amber?accuracy=1.1":             "accuracy is not a number from 0 to 1",
		"amber?accuracy=.7&common=-1":    "common is not a number from 0 to 1",
		"amber?accuracy=.7&accuracy=.7":  "accuracy is set twice",
		"amber?accuracy=.7&discernment=": "discernment is not a number from -10 to 10",
		"amber?accuracy=.7&quality=2":    "unknown setting",
		"amber?accuracy=.7;insight=1":    "cannot be read",
		"amber?accuracy=%zz":             "cannot be read",
	} {
		m, ok, err := Find(Council(), name)
		switch {
		case want == "unknown":
			if ok || err != nil {
				t.Errorf("%q: %v, %v", name, ok, err)
			}
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", name, err, want)
			}
		default:
			if !ok || err != nil || m.Name != name || (m.Ability != nil) != strings.Contains(name, "?") || m.validate() != nil {
				t.Errorf("%q: %+v, %v, %v", name, m, ok, err)
			}
		}
	}
	m, _, _ := Find(Council(), "amber?accuracy=.7&insight=.25")
	if want := (Ability{Accuracy: 0.7, Common: 0.6, Discernment: 1, Insight: 0.25}); *m.Ability != want || m.Quality != Council()[0].Quality {
		t.Errorf("%+v, want %+v", *m.Ability, want)
	}
	if Council()[0].Ability != nil {
		t.Error("the model without settings has an ability")
	}
}

// A model with settings is counted with the one without, and recognised as it.
func TestSettingsInName(t *testing.T) {
	s := start(t, Options{Models: []Model{{Name: "m", Affinity: map[string]float64{"m": 5}}, {Name: "n"}}, Closed: known(t)})
	question := known(t)[0].Query
	texts := []string{s.reply(t, chat("n", question)), s.reply(t, chat("m?accuracy=.5", question))}
	b := ballotOf(t, s.reply(t, chat("m", brief(token, question, labelled(texts...), nil, ranking))))
	if b.Ranking[0] != "Response B" {
		t.Errorf("it does not recognise itself: %v", b.Ranking)
	}
	if got := s.Stats().Models["m"].Requests; got != 2 {
		t.Errorf("%d requests, want 2", got)
	}
	if got := s.post(t.Context(), chat("m?accuracy=2", question)); got.status != 404 || got.failure().Code != "model_not_found" {
		t.Errorf("wrong settings: %v", got)
	}
}

func TestReadClosed(t *testing.T) {
	for line, want := range map[string][]Closed{
		`{"query": "a", "reference": 4, "grader": {"type": "number"}}`: {
			{"a", "4", []string{"5", "3", "6"}},
		},
		`{"query": "a", "reference": "-250.5", "grader": {"type": "number"}}`: {
			{"a", "-250.5", []string{"-225.45", "-275.55", "-200.4"}},
		},
		`{"query": "a", "reference": ["x", "y"], "grader": {"type": "choice", "options": ["X", "y", "z"]}}`: {
			{"a", "x", []string{"z"}},
		},
		`{"query": "a", "reference": {"b": 1}, "grader": {"type": "json"}, "labels": {"sim_wrong": "{}"}}`: {
			{"a", `{"b":1}`, []string{"{}"}},
		},
		`{"query": "a", "reference": "b+", "grader": {"type": "regex"}, "labels": {"sim_wrong": "c"}}`: nil,
		`{"query": "a", "reference": "b", "grader": {"type": "exact"}}`:                                nil,
		`{"query": "a"}`: nil,
		"\ufeff\r\n":     nil,
	} {
		got, err := ReadClosed([]byte(line))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", line, err, diff)
		}
	}
	if _, err := ReadClosed([]byte("{}\n[]\n")); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v", err)
	}
	if _, err := New(Options{Models: []Model{{Name: "m"}}, Closed: []Closed{{Query: "q", Right: "r"}}}); err == nil {
		t.Error("a question without wrong answers was accepted")
	}
	if _, err := New(Options{Models: []Model{{Name: "m", Ability: &Ability{Accuracy: 2}}}}); err == nil {
		t.Error("an accuracy of 2 was accepted")
	}
}

// TestRepliesStay holds that models without an ability write what they always wrote, byte for byte.
// Records of simulated sessions, and the pages that quote them, depend on it.
func TestRepliesStay(t *testing.T) {
	models := Council()
	for i := range models {
		models[i].Latency = Latency{}
	}
	s := newServer(t, models...)
	const question = "What is the capital of Australia?\n\nEnd with a line that begins with \"ANSWER:\"."
	answers := labelled("one\n\nANSWER: Canberra", "two\n\nANSWER: Sydney", "three")
	var texts []string
	for _, m := range models {
		for _, prompt := range []string{
			question, brief(token, question, answers, nil, ranking),
			brief(token, question, answers, []string{"a review"}, "1. Response A: 50%; 3\n\nWrite it."),
		} {
			texts = append(texts, ask(t, s, m.Name, prompt))
		}
	}
	sum := digest(texts...)
	if got := hex.EncodeToString(sum[:8]); got != "c90f521efb342af9" {
		t.Errorf("the digest of the replies is %s", got)
	}
}
