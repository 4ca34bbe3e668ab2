package simllm

import (
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
)

// Every written question keeps the rules by which the demo is worth reading.
func TestWrittenFiles(t *testing.T) {
	all, err := readAllWritten()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 8 {
		t.Errorf("%d written questions, not 8", len(all))
	}
	for _, w := range all {
		t.Run(w.Question, func(t *testing.T) { w.audit(t) })
	}
}

// audit checks what ReadWritten does not.
func (w Written) audit(t *testing.T) {
	t.Helper()
	words := func(what, text string, least, most int) {
		if n := len(strings.Fields(text)); n < least || n > most {
			t.Errorf("%s has %d words, not %d to %d", what, n, least, most)
		}
	}
	words("the question", w.Question, 10, 60)
	words("the synthesis", w.synthesis, 280, 480)
	var rankings []string
	for _, member := range writtenMembers() {
		words("the answer of "+member, w.answers[member], 330, 580)
		review := w.reviews[member]
		words("the review of "+member, review.text, 80, 180)
		order := slices.SortedFunc(maps.Keys(review.scores), func(a, b string) int {
			return cmp.Compare(review.scores[b], review.scores[a])
		})
		rankings = append(rankings, strings.Join(order, " "))
		fenced := false
		for line := range strings.Lines(w.answers[member]) {
			fenced = fenced != strings.HasPrefix(strings.TrimSpace(line), "```")
			if !fenced && (strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "## ")) {
				t.Errorf("a heading of %s is above the third level: %s", member, line)
			}
		}
		if fenced {
			t.Errorf("a block of code of %s does not end", member)
		}
		for _, name := range writtenMembers() {
			if strings.Contains(strings.ToLower(w.answers[member]+w.synthesis), name) {
				t.Errorf("the answer of %s or the synthesis names %s", member, name)
			}
		}
	}
	t.Logf("rankings: %s", strings.Join(rankings, "; "))
	size := func(what string, n, least, most int) {
		if n < least || n > most {
			t.Errorf("the map has %d entries %s, not %d to %d", n, what, least, most)
		}
	}
	size("agreed", len(w.chart.Agreed), 2, 5)
	size("disputed", len(w.chart.Disputed), 1, 2)
	size("only one said", len(w.chart.OnlyOneSaid), 1, 3)
	size("open", len(w.chart.Open), 1, 3)
	quoted := func(claims ...mapClaim) []string {
		var members []string
		for _, claim := range claims {
			for _, quote := range claim.Quotes {
				if strings.ContainsAny(quote.Quote, "\n*`") {
					t.Errorf("the quote %q has a line break or a mark of Markdown", quote.Quote)
				}
				members = append(members, quote.Answer)
			}
		}
		slices.Sort(members)
		return slices.Compact(members)
	}
	for _, claim := range w.chart.Agreed {
		if len(quoted(claim)) < 2 {
			t.Errorf("fewer than two agree: %s", claim.Claim)
		}
	}
	for _, claim := range w.chart.OnlyOneSaid {
		if len(quoted(claim)) != 1 {
			t.Errorf("not one alone said: %s", claim.Claim)
		}
	}
	for _, dispute := range w.chart.Disputed {
		sides := 0
		for _, side := range dispute.Sides {
			sides += len(quoted(side))
		}
		unquoted := slices.ContainsFunc(dispute.Sides, func(c mapClaim) bool { return len(c.Quotes) == 0 })
		if len(dispute.Sides) < 2 || sides != len(quoted(dispute.Sides...)) || unquoted {
			t.Errorf("the sides are not of different members: %s", dispute.About)
		}
	}
}

// sample returns the written question in testdata, and a server that has it.
func sample(t *testing.T, change func(*Options)) (Written, *Server) {
	t.Helper()
	data, err := os.ReadFile("testdata/sample.txt")
	if err != nil {
		t.Fatal(err)
	}
	w, err := ReadWritten(data)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Models: Council(), Written: []Written{w}}
	for i := range o.Models {
		o.Models[i].Latency = Latency{}
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w, s
}

// The members answer, review and summarise a written question with the written texts.
func TestWrittenTexts(t *testing.T) {
	w, s := sample(t, nil)
	for _, member := range writtenMembers() {
		if got := ask(t, s, member, "  "+strings.ToUpper(w.Question)+"\n"); got != w.answers[member] {
			t.Errorf("%s answers %q", member, got)
		}
	}
	slate := labelled(w.answers["dune"], w.answers["amber"], w.answers["birch"])
	review := ask(t, s, "cedar", brief(token, w.Question, slate, nil, ranking))
	if !strings.HasPrefix(review, "**Response B** is fine.\n\n**Response C** says in forty words what takes ten.\n\n"+
		"**Response A** is wrong: ") {
		t.Errorf("cedar's review reads %q", review)
	}
	b := ballotOf(t, review)
	if !slices.Equal(b.Ranking, []any{"Response B", "Response C", "Response A"}) ||
		!maps.Equal(b.Scores, map[string]int{"Response B": 7, "Response C": 6, "Response A": 2}) {
		t.Errorf("cedar's ballot is %v", b)
	}

	// The preface of a review belongs to no answer. An answer that is not shown is not named.
	review = ask(t, s, "birch", brief(token, w.Question, labelled(w.answers["cedar"], w.answers["dune"]), nil, ranking))
	if !strings.HasPrefix(review, "All three leave out costs.\n\n**Response A** repeats it.\n\n**Response B** is wrong") {
		t.Errorf("birch's review of two reads %q", review)
	}
	// Answers that are not written get a simulated verdict.
	review = ask(t, s, "dune", brief(token, w.Question, labelled("Buy two.", w.answers["birch"]), nil, ranking))
	if !strings.HasPrefix(review, "**Response B** is thorough.\n\n**Response A** ") || len(ballotOf(t, review).Ranking) != 2 {
		t.Errorf("dune's review reads %q", review)
	}

	structured := chat("amber", brief(token, w.Question, labelled(w.answers["dune"], w.answers["cedar"]), nil, ranking))
	structured["response_format"] = object{"type": "json_object"}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(structured))))
	got := decode[structuredReview](t, []byte(textOf(t, rec.Body.Bytes())))
	if got.Critiques["Response A"] != "Response A claims that replicas are always in step, which is wrong. "+
		"Unlike another answer, it has never seen lag." || got.Scores["Response B"] != 6 {
		t.Errorf("amber's review is %+v", got)
	}
}

// The chairman gives the written synthesis, which says what it is, and a map of the answers shown.
func TestWrittenSynthesis(t *testing.T) {
	w, s := sample(t, func(o *Options) { o.Filler = "No model was asked." })
	answers := []Answer{
		{"Answer 1", w.answers["cedar"]},
		{"Answer 2", w.answers["dune"]},
		{"Answer 3", w.answers["amber"]},
	}
	separator := "=== MAP " + token + " ==="
	whole := ask(t, s, "amber", brief(token, w.Question, answers, nil, "Write.\n"+separator+"\n{}"))
	text, tail, ok := strings.Cut(whole, "\n\n"+separator+"\n")
	if !ok || !strings.HasPrefix(text, "Keep one server") || !strings.HasSuffix(text, "\n\n"+writtenMark) {
		t.Errorf("the synthesis reads %q", text)
	}
	m := decode[mapTail](t, []byte(tail))
	if len(m.Agreed) != 1 || m.Agreed[0].Quotes[0].Answer != "Answer 3" ||
		len(m.Disputed) != 0 || len(m.OnlyOneSaid) != 1 || len(m.Open) != 1 {
		t.Errorf("the map without birch is %+v", m)
	}
	answers[0].Text = "Another answer."
	text = ask(t, s, "amber", brief(token, w.Question, answers, nil, "Write."))
	if !strings.HasPrefix(text, "No model was asked.\n") {
		t.Errorf("the synthesis of another answer reads %q", text)
	}
}

// Another question, a question after other turns, and another model get simulated texts. Faults stay possible.
func TestWrittenOnlyForItsQuestion(t *testing.T) {
	w, s := sample(t, func(o *Options) {
		o.Models = append(o.Models, Model{Name: "elm"})
		o.Models[3].Faults = []Fault{{Kind: BallotAbstain, Rate: 1}}
	})
	if text := ask(t, s, "elm", w.Question); !strings.HasPrefix(text, "Simulated answer.") {
		t.Errorf("elm answers %q", text)
	}
	if text := ask(t, s, "amber", w.Question+" Why?"); !strings.HasPrefix(text, "Simulated answer.") {
		t.Errorf("another question gets %q", text)
	}
	later := chat("amber", w.Question)
	later["messages"] = []object{
		{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": w.Question},
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(later))))
	if text := textOf(t, rec.Body.Bytes()); !strings.HasPrefix(text, "Simulated answer.") {
		t.Errorf("a follow-up gets %q", text)
	}
	slate := labelled(w.answers["amber"], w.answers["birch"])
	if text := ask(t, s, "dune", brief(token, w.Question, slate, nil, ranking)); !strings.Contains(text, `"abstain"`) {
		t.Errorf("dune's fault is gone: %q", text)
	}
}

func TestReadWrittenRefuses(t *testing.T) {
	data, err := os.ReadFile("testdata/sample.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, now, want string }{
		{"# Question\n", "# Questions\n", "does not begin"},
		{"# Answer of cedar\n", "# Answer\n", `no section "Answer of cedar"`},
		{"Scores: birch 8, cedar 6, dune 3", "Scores: birch 8, cedar 8, dune 3", "another answer has"},
		{"Scores: birch 8, cedar 6, dune 3", "Scores: birch 8, cedar 6, amber 3", "its own answer"},
		{"Scores: birch 8, cedar 6, dune 3", "", "does not end"},
		{"{birch} knows", "{elm} and {birch} know", "{elm} names no member"},
		{"{birch} is thorough", "It is thorough", "names itself: {birch}"},
		{`"quote": "Measure first."`, `"quote": "Measure last of all."`, "Measure last of all"},
		{`"open": [`, `"opened": [`, "unknown field"},
		{`bear?"]}`, `bear?"]} and more`, "text follows"},
	} {
		_, err := ReadWritten(bytes.Replace(data, []byte(tt.old), []byte(tt.now), 1))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %q: %v, want %q", tt.now, err, tt.want)
		}
	}
}
