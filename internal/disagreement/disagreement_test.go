package disagreement

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
)

// farmers is a session in which only b's answer speaks of women.
func farmers() Answered {
	return Answered{
		Question: "What does a farmer do?",
		Answers: map[string]string{
			"a": "A farmer sows and reaps and mills. What is left of the day goes to the fences and the ditches, " +
				"and the rest is up to rain.",
			"b": "Women sow, women reap, a woman mills. Their girls help, a girl each.",
			"c": "Sow.",
		},
		Matcher:   NewMatcher(Lexicon{Axes: Axes{"faith": {"monk"}, "gender": {"girl", "woman"}}}),
		Threshold: 0.3,
		Seed:      7,
	}
}

func TestByHand(t *testing.T) {
	got := Detect(t.Context(), farmers())
	// The answers hold 27, 13 and 1 words, so all five hits in b give X2 = 5*41/13 - 5.
	// Of their 19, 11 and 1 different words a and b share "a" and "mills", b and c
	// share "sow".
	p := got.Axes[0].PValue
	want := &council.DemographicDisagreement{
		Flagged: true,
		Axes: []council.DemographicAxis{
			{
				Axis: "gender", Score: new(8. / 9), Flagged: true, Hits: 5, X2: new(5*41./13 - 5), PValue: p, QValue: p,
				Evidence: []council.DemographicEvidence{{Model: "b", Terms: []string{"girl", "woman"}}},
			},
			{Axis: "faith", Score: new(0.0), Evidence: []council.DemographicEvidence{}},
		},
		BaselineDisagreement: new((26./28 + 10./11 + 1) / 3),
		Wording:              "answers differ in coverage",
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for range 5 { // maps are walked in another order each time
		if diff := cmp.Diff(got, Detect(t.Context(), farmers())); diff != "" {
			t.Fatalf("another result from the same input (-first +second)\n%s", diff)
		}
	}
}

func TestJSON(t *testing.T) {
	in := farmers()
	in.Seed = 1
	in.Answers = map[string]string{"a": "Nothing else.", "b": "A monk."}
	const want = `{"flagged":false,"axes":[` +
		`{"axis":"faith","score":1,"flagged":false,"hits":1,"x2":null,"p_value":null,"q_value":null,` +
		`"evidence":[{"model":"b","terms":["monk"]}]},` +
		`{"axis":"gender","score":0,"flagged":false,"hits":0,"x2":null,"p_value":null,"q_value":null,"evidence":[]}],` +
		`"baseline_disagreement":1,"wording":"not tested: too few terms of faith","lexicon":{"language":null,"version":""}}`
	got, err := json.Marshal(Detect(t.Context(), in))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFewOrEmptyAnswers(t *testing.T) {
	women := strings.Repeat("woman ", 10)
	tests := []struct {
		name     string
		answers  map[string]string
		score    *float64 // of gender
		hits     int
		compared bool
		baseline *float64
	}{
		{"none", nil, nil, 0, false, nil},
		{"one", map[string]string{"a": women}, nil, 10, false, nil},
		{"one with words", map[string]string{"a": women, "b": "..."}, new(1.0), 10, false, new(1.0)},
		{"none with words", map[string]string{"a": "?", "b": ""}, new(0.0), 0, false, new(0.0)},
		{"two and one without words", map[string]string{"a": women, "b": "Rain.", "c": ""}, new(8. / 9), 10, true, new(1.0)},
		{"equal", map[string]string{"a": women, "b": women}, new(0.0), 20, true, new(0.0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := farmers()
			in.Answers = tt.answers
			d := Detect(t.Context(), in)
			i := slices.IndexFunc(d.Axes, func(a council.DemographicAxis) bool { return a.Axis == "gender" })
			axis := d.Axes[i]
			if diff := cmp.Diff(tt.score, axis.Score); diff != "" {
				t.Errorf("score (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.baseline, d.BaselineDisagreement); diff != "" {
				t.Errorf("baseline (-want +got)\n%s", diff)
			}
			if axis.Hits != tt.hits {
				t.Errorf("%d hits, want %d", axis.Hits, tt.hits)
			}
			for _, x := range []*float64{axis.X2, axis.PValue, axis.QValue} {
				if (x != nil) != tt.compared {
					t.Errorf("compared: %v, want %v", x != nil, tt.compared)
				}
			}
			if d.Flagged || axis.Flagged {
				t.Error("flagged")
			}
		})
	}
}

// TestBothMustFlag tests each of the two conditions of a flag alone.
func TestBothMustFlag(t *testing.T) {
	filler := strings.Repeat(" rain", 40)
	many := strings.Repeat("woman ", 20)
	tests := []struct {
		name      string
		a, b, c   string
		threshold float64
		want      bool
	}{
		{"score and rate", "woman girl " + many, "rain", "rain", 0.3, true},
		{"score at the threshold", "woman girl " + many, "rain", "rain", 8. / 9, true},
		{"score under the threshold", "woman girl " + many, "rain", "rain", 0.9, false},
		{"rates differ, terms do not", many, "woman", "woman", 0.3, false},
		{"terms differ, four hits", "woman girl woman girl", "rain", "rain", 0.3, false},
		{"terms differ, rates do not", "woman girl woman girl", "woman woman woman woman", "woman woman woman woman", 0.2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := farmers()
			in.Threshold = tt.threshold
			in.Answers = map[string]string{"a": tt.a + filler, "b": tt.b + filler, "c": tt.c + filler}
			if d := Detect(t.Context(), in); d.Flagged != tt.want || d.Axes[0].Flagged != tt.want {
				t.Errorf("flagged %v, axis %+v", d.Flagged, d.Axes[0])
			}
		})
	}
}

func TestRateVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/rates.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Tol   float64
		Cases []struct {
			Counts, Tokens []float64
			Chi2           float64
			Score          float64 `json:"council_ex_score"`
		}
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Cases) == 0 {
		t.Fatal("no cases")
	}
	approx := cmpopts.EquateApprox(vectors.Tol, 0)
	for i, c := range vectors.Cases {
		counts, tokens := whole(c.Counts), whole(c.Tokens)
		x2, p := compareRates(counts, tokens, newUrn(tokens), rand.NewPCG(1, 0))
		if score := score(counts); !cmp.Equal(*score, c.Score, approx) || !cmp.Equal(*x2, c.Chi2, approx) {
			t.Errorf("case %d: score %v and X2 %v, want %v and %v", i, *score, *x2, c.Score, c.Chi2)
		}
		exact := exactRateP(counts, tokens)
		if math.Abs(*p-exact) > 4*deviation(exact)+1./draws {
			t.Errorf("case %d: simulated p %v, exact %v", i, *p, exact)
		}
	}
}

// deviation returns the standard deviation of a simulated p: above level its draws have
// ended when enough of them had reached X2.
func deviation(exact float64) float64 {
	if exact > level {
		return exact * math.Sqrt((1-exact)/enough)
	}
	return math.Sqrt(exact * (1 - exact) / draws)
}

// The early end of the draws moves no p across level, and changes none below. Where the
// answers do not differ, p is at most x in at most the share x of all cases.
func TestEarlyEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	const cases = 4000
	below := map[float64]int{0.01: 0, 0.05: 0, 0.2: 0, 0.5: 0}
	ended := 0
	for i := range cases {
		lengths := []int{100 + random.IntN(300), 100 + random.IntN(300), 50, 100 + random.IntN(300)}
		u := newUrn(lengths)
		total := minHits + random.IntN(12)
		hits := slices.Clone(u.draw(total, rand.NewPCG(random.Uint64(), 0)))
		_, p := compareRates(hits, lengths, u, rand.NewPCG(uint64(i), 0))
		for x := range below {
			if *p <= x {
				below[x]++
			}
		}
		if i >= 400 { // all draws take long
			continue
		}
		x2 := func(counts []int) (sum float64) {
			for j, c := range counts {
				e := float64(total) * float64(lengths[j]) / float64(u.words)
				sum += (float64(c) - e) * (float64(c) - e) / e
			}
			return sum
		}
		all, stream := 1, rand.NewPCG(uint64(i), 0)
		for range draws {
			if x2(u.draw(total, stream)) >= x2(hits)*(1-1e-9) {
				all++
			}
		}
		full := float64(all) / (draws + 1)
		if full > level != (*p > level) || *p <= level && *p != full {
			t.Errorf("case %d: p %v, and %v of all draws", i, *p, full)
		}
		if *p != full {
			ended++
		}
	}
	for x, n := range below {
		share, sd := float64(n)/cases, math.Sqrt(x*(1-x)/cases)
		if share > x+4*sd {
			t.Errorf("p is at most %v in %v of cases", x, share)
		}
		t.Logf("p is at most %v in %.4f of cases without a difference", x, share)
	}
	if ended < 100 {
		t.Errorf("only %d of 400 ended early", ended)
	}
}

func whole(x []float64) []int {
	n := make([]int, len(x))
	for i, v := range x {
		n[i] = int(v)
	}
	return n
}

// exactRateP adds up the multinomial probabilities of all ways to spread the hits
// whose X2 is that of counts or more.
func exactRateP(counts, tokens []int) float64 {
	hits, n := 0, 0
	for j := range counts {
		hits += counts[j]
		n += tokens[j]
	}
	logFactorial := func(k int) float64 { v, _ := math.Lgamma(float64(k + 1)); return v }
	x2 := func(counts []int) float64 {
		sum := 0.0
		for j, c := range counts {
			sum += float64(c*c) * float64(n) / float64(hits*tokens[j])
		}
		return sum
	}
	observed, p := x2(counts), 0.0
	spread := make([]int, len(counts))
	var walk func(j, left int)
	walk = func(j, left int) {
		if j < len(spread)-1 {
			for spread[j] = range left + 1 {
				walk(j+1, left-spread[j])
			}
			return
		}
		spread[j] = left
		if x2(spread) > observed*(1-1e-9) {
			lp := logFactorial(hits)
			for i, c := range spread {
				lp += float64(c)*math.Log(float64(tokens[i])/float64(n)) - logFactorial(c)
			}
			p += math.Exp(lp)
		}
	}
	walk(0, hits)
	return p
}

func TestManyHits(t *testing.T) {
	// A short answer keeps an expected count below five however many hits there are.
	tests := []struct {
		name         string
		hits, tokens []int
	}{
		{"few", []int{30, 33, 1}, []int{400, 400, 8}},
		{"many", []int{45, 55, 4}, []int{400, 400, 8}},
	}
	for _, tt := range tests {
		_, p := compareRates(tt.hits, tt.tokens, newUrn(tt.tokens), rand.NewPCG(1, 0))
		exact := exactRateP(tt.hits, tt.tokens)
		if math.Abs(*p-exact) > 4*deviation(exact)+1./draws {
			t.Errorf("%s: simulated p %v, exact %v", tt.name, *p, exact)
		}
	}
}

func TestLargeCountsUseChiSquare(t *testing.T) {
	// X2 = 2 on two degrees of freedom has p = exp(-1).
	tokens := []int{100, 100, 100}
	x2, p := compareRates([]int{30, 20, 25}, tokens, newUrn(tokens), nil)
	if math.Abs(*x2-2) > 1e-12 || math.Abs(*p-math.Exp(-1)) > 1e-12 {
		t.Errorf("X2 = %v, p = %v", *x2, *p)
	}
}

func TestAdjust(t *testing.T) {
	missing := math.NaN()
	tests := []struct{ p, q []float64 }{ // by statsmodels 0.14, but for the missing one
		{[]float64{0.01, 0.02, 0.03, 0.04, 0.05}, []float64{0.05, 0.05, 0.05, 0.05, 0.05}},
		{
			[]float64{0.212, 0.001, 0.06, 0.039, 0.042, 0.041, 0.074, 0.205, 0.008, 0.216},
			[]float64{0.216, 0.01, 0.1, 0.084, 0.084, 0.084, 0.74 / 7, 0.216, 0.04, 0.216},
		},
		{[]float64{0, 1, 0.2}, []float64{0, 1, 0.3}},
		{[]float64{0.04, missing, 0.01}, []float64{0.04, missing, 0.02}},
		{[]float64{missing}, []float64{missing}},
	}
	for _, tt := range tests {
		axes := make([]council.DemographicAxis, len(tt.p))
		for i, p := range tt.p {
			if !math.IsNaN(p) {
				axes[i].PValue = &p
			}
		}
		adjust(axes)
		got := make([]float64, len(axes))
		for i, axis := range axes {
			got[i] = missing
			if axis.QValue != nil {
				got[i] = *axis.QValue
			}
		}
		if diff := cmp.Diff(tt.q, got, cmpopts.EquateApprox(1e-12, 0), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%v (-want +got)\n%s", tt.p, diff)
		}
	}
}

func TestProperties(t *testing.T) {
	vocabulary := []string{"woman", "men", "black", "box", "young", "Muslims", "rain", "sun", "and", "-", "."}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 40), func(w []string) string { return strings.Join(w, " ") })
		in := Answered{
			Question:  text.Draw(t, "question"),
			Answers:   rapid.MapOfN(rapid.StringN(1, 3, -1), text, 0, 6).Draw(t, "answers"),
			Matcher:   NewMatcher(DefaultLexicon()),
			Threshold: rapid.Float64Range(0, 1).Draw(t, "threshold"),
			Seed:      rapid.Int64().Draw(t, "seed"),
		}
		d := Detect(t.Context(), in)
		checkResult(t, in, d)

		in.Seed++
		for i, axis := range Detect(t.Context(), in).Axes {
			if axis.Axis != d.Axes[i].Axis || axis.Hits != d.Axes[i].Hits || !cmp.Equal(axis.X2, d.Axes[i].X2) {
				t.Fatalf("the seed changes more than p: %+v, %+v", d.Axes[i], axis)
			}
		}
		for model := range in.Answers {
			in.Answers[model] = "woman, black and young"
		}
		if same := Detect(t.Context(), in); same.Flagged || same.BaselineDisagreement != nil && *same.BaselineDisagreement != 0 {
			t.Fatalf("equal answers disagree: %+v", same)
		}
	})
}

// checkResult fails when a result breaks a rule that holds for any input.
func checkResult(t rapid.TB, in Answered, d *council.DemographicDisagreement) {
	t.Helper()
	if _, err := json.Marshal(d); err != nil {
		t.Fatal(err)
	}
	if len(d.Axes) != len(in.Matcher.axes) {
		t.Fatalf("%d axes", len(d.Axes))
	}
	between := func(x *float64) bool { return x == nil || *x >= 0 && *x <= 1 }
	flagged := false
	for i, axis := range d.Axes {
		flagged = flagged || axis.Flagged
		if (axis.Score != nil) != (len(in.Answers) > 1) || !between(axis.Score) || !between(axis.PValue) || !between(axis.QValue) {
			t.Fatalf("out of range: %+v", axis)
		}
		if axis.X2 != nil && (*axis.X2 < 0 || *axis.QValue < *axis.PValue) {
			t.Fatalf("X2 or q too small: %+v", axis)
		}
		if i > 0 && axis.Score != nil && *axis.Score > *d.Axes[i-1].Score {
			t.Fatalf("scores rise: %+v", d.Axes)
		}
		if (axis.Hits > 0) != (len(axis.Evidence) > 0) {
			t.Fatalf("%d hits with evidence %v", axis.Hits, axis.Evidence)
		}
		for _, e := range axis.Evidence {
			if _, ok := in.Answers[e.Model]; !ok || len(e.Terms) == 0 || !slices.IsSorted(e.Terms) {
				t.Fatalf("evidence %+v", e)
			}
		}
	}
	if flagged != d.Flagged || !between(d.BaselineDisagreement) {
		t.Fatalf("flagged %v, baseline %v", d.Flagged, d.BaselineDisagreement)
	}
}

// hostile are texts that are repeated to make the detector slow: beginnings of many
// phrases and of none, words for persons, compounds, and words without end.
var hostile = []string{
	"black ", "white whites ", "the old man ", "his her my she ", "race race-", "a-", "'", "x's' ", "women’s men’s ", "s", "boss's ",
	"é\u0301", "\xff", "who are ",
}

// TestTimeIsLinear holds that the time for a text grows as its length.
func TestTimeIsLinear(t *testing.T) {
	for _, text := range hostile {
		t.Run(text, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				in := Answered{
					Question: text, Answers: map[string]string{"a": strings.Repeat(text, n/len(text)), "b": "he " + text, "c": ""},
					Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3,
				}
				return func() { Detect(t.Context(), in) }
			})
		})
	}
}

// ending is a context that ends after its error was read a number of times.
type ending struct {
	context.Context
	looks, last int
}

func (e *ending) Err() error {
	if e.looks++; e.looks > e.last {
		return context.Canceled
	}
	return nil
}

// TestStopsAnywhere cancels in each part of the work. Little may be done after that.
func TestStopsAnywhere(t *testing.T) {
	var long strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&long, "she%d girl ", i)
	}
	in := Answered{Answers: map[string]string{"a": long.String(), "b": long.String()}, Matcher: NewMatcher(DefaultLexicon())}
	whole := &ending{Context: t.Context(), last: math.MaxInt}
	if Detect(whole, in) == nil || whole.looks < 500 {
		t.Fatalf("the context was read only %d times", whole.looks)
	}
	for last := 0; last < whole.looks; last += whole.looks / 40 {
		ctx := &ending{Context: t.Context(), last: last}
		if d := Detect(ctx, in); d != nil || ctx.looks > last+20 {
			t.Errorf("ended after read %d of %d: %d reads followed, result %v", last, whole.looks, ctx.looks-last, d != nil)
		}
	}
}

// TestStops cancels before and within a text.
func TestStops(t *testing.T) {
	in := farmers()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d := Detect(ctx, in); d != nil {
		t.Errorf("after the end: %+v", d)
	}
	m := in.Matcher
	found := m.hits(ctx, split(strings.Repeat("girl ", 5000), nil), nil)
	if n := found[slices.Index(m.axes, "gender")].hits; n != 0 {
		t.Errorf("%d hits were counted after the end", n)
	}
}

// TestTooFewTermsAreNotTested holds that the wording names a difference that could not
// be tested.
func TestTooFewTermsAreNotTested(t *testing.T) {
	in := farmers()
	in.Answers = map[string]string{"a": "A monk and a girl.", "b": "Rain.", "c": "Sun."}
	if d := Detect(t.Context(), in); d.Flagged || d.Wording != "not tested: too few terms of faith, gender" {
		t.Errorf("flagged %v: %s", d.Flagged, d.Wording)
	}
	in.Answers["a"] = "Rain, rain."
	if d := Detect(t.Context(), in); d.Flagged || d.Wording != "no difference in coverage was found" {
		t.Errorf("without any term: flagged %v: %s", d.Flagged, d.Wording)
	}
}

func FuzzDetect(f *testing.F) {
	f.Add(
		"Is this a race condition?", "The race is lost, women's hours too.", "Able-bodied men’s black box",
		"ΓΥΝΑΙΚΟΣ é \xff child_process", int64(1),
	)
	f.Add("", strings.Repeat("she ", 30), strings.Repeat("he ", 9), "'s' 's", int64(-1))
	for _, text := range hostile {
		f.Add("", strings.Repeat(text, 50), text, "", int64(2))
	}
	f.Fuzz(func(t *testing.T, question, a, b, c string, seed int64) {
		in := Answered{
			Question: question, Answers: map[string]string{"a": a, "b": b, "c": c},
			Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: seed,
		}
		// Far beyond what a text of this length takes, even on a busy machine.
		const second, perByte = time.Second, 100 * time.Microsecond
		ctx, cancel := context.WithTimeout(t.Context(), second+perByte*time.Duration(len(question)+len(a)+len(b)+len(c)))
		defer cancel()
		d := Detect(ctx, in)
		if d == nil {
			t.Fatal("too slow")
		}
		checkResult(t, in, d)
	})
}

// topic is one question of the corpus with the points that answer it, each in
// several wordings.
type topic struct {
	question string
	points   [][]string
}

func readCorpus(tb testing.TB) []topic {
	tb.Helper()
	var topics []topic
	for _, line := range readLines(tb, "testdata/corpus.txt") {
		if question, ok := strings.CutPrefix(line, "? "); ok {
			topics = append(topics, topic{question: question})
		} else {
			last := &topics[len(topics)-1]
			last.points = append(last.points, strings.Split(line, " | "))
		}
	}
	if len(topics) < 30 {
		tb.Fatalf("%d topics", len(topics))
	}
	return topics
}

// readLines returns the lines of a file that are neither empty nor comments.
func readLines(tb testing.TB, name string) []string {
	tb.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(data), "\n"), func(l string) bool { return l == "" || l[0] == '#' })
}

// session draws three to five answers to the topic. Each makes most of the
// points, some of them in two wordings.
func (tp topic) session(random *rand.Rand) Answered {
	in := Answered{
		Question: tp.question, Answers: map[string]string{},
		Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: random.Int64(),
	}
	for j := range 3 + random.IntN(3) {
		var said []string
		for _, wordings := range tp.points {
			if random.IntN(7) > 0 {
				for _, w := range random.Perm(len(wordings))[:1+random.IntN(2)] {
					said = append(said, wordings[w])
				}
			}
		}
		in.Answers["model-"+strconv.Itoa(j)] = strings.Join(said, " ")
	}
	return in
}

func TestProseIsNotFlagged(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	sessions, flagged, scored := 0, 0, 0
	for _, tp := range readCorpus(t) {
		for range 14 {
			d := Detect(t.Context(), tp.session(random))
			sessions++
			if d.Flagged {
				flagged++
			}
			if *d.Axes[0].Score >= 0.3 {
				scored++
			}
		}
	}
	if sessions < 400 || flagged*100 >= sessions*3 {
		t.Errorf("%d of %d sessions are flagged", flagged, sessions)
	}
	// The figure above proves something only if the corpus holds what could be mistaken.
	if scored*3 < sessions {
		t.Errorf("the score alone would flag only %d of %d sessions", scored, sessions)
	}
}

// TestFictionIsNotFlagged takes every choice of three or more answers to each request
// for a story, a letter or a biography. Each answer is about other persons.
func TestFictionIsNotFlagged(t *testing.T) {
	sessions, flagged := 0, 0
	for _, request := range readFiction(t, "testdata/fiction.txt") {
		for chosen := range 1 << len(request.answers) {
			in := Answered{Question: request.question, Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: 1}
			for j, answer := range request.answers {
				if chosen>>j&1 == 1 {
					in.Answers["model-"+strconv.Itoa(j)] = answer
				}
			}
			if len(in.Answers) < 3 {
				continue
			}
			sessions++
			if d := Detect(t.Context(), in); d.Flagged {
				flagged++
				t.Logf("%s %v", request.question, slices.Sorted(maps.Keys(in.Answers)))
			}
		}
	}
	t.Logf("%d of %d sessions are flagged", flagged, sessions)
	if sessions < 160 || flagged*100 >= sessions*3 {
		t.Errorf("%d of %d sessions are flagged", flagged, sessions)
	}
}

// fiction is a request with whole answers to it.
type fiction struct {
	question string
	answers  []string
}

func readFiction(tb testing.TB, name string) []fiction {
	tb.Helper()
	var all []fiction
	for _, line := range readLines(tb, name) {
		if question, ok := strings.CutPrefix(line, "? "); ok {
			all = append(all, fiction{question: question})
		} else {
			last := &all[len(all)-1]
			last.answers = append(last.answers, line)
		}
	}
	return all
}

// TestEverydayIsNotFlagged takes everyday requests of all kinds with their answers.
func TestEverydayIsNotFlagged(t *testing.T) {
	requests := readFiction(t, "testdata/everyday.txt")
	answers, flagged, theirs := 0, 0, 0
	for _, request := range requests {
		answers += len(request.answers)
		report, _ := Report(t.Context(), request.input())
		if report.Flagged {
			flagged++
			t.Logf("%s: %+v", request.question, report.Axes[0])
		}
		if councilEx(request.input()).Flagged {
			theirs++
		}
	}
	t.Logf("%d of %d sessions are flagged, by CouncilEx %d; %d answers", flagged, len(requests), theirs, answers)
	if len(requests) < 100 || answers < 200 || flagged*100 >= len(requests)*3 {
		t.Errorf("%d of %d sessions with %d answers are flagged", flagged, len(requests), answers)
	}
	// The figure above proves something only if the texts hold what could be mistaken.
	if theirs*3 < len(requests) {
		t.Errorf("CouncilEx flags only %d of %d sessions", theirs, len(requests))
	}
}

// input returns the request with all of its answers.
func (f fiction) input() Answered {
	in := Answered{Question: f.question, Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: 1}
	for j, answer := range f.answers {
		in.Answers["model-"+strconv.Itoa(j)] = answer
	}
	return in
}

// TestPlantedIsFlagged takes sessions in which one answer treats people otherwise than the others.
func TestPlantedIsFlagged(t *testing.T) {
	axes := map[string]int{}
	for _, request := range readFiction(t, "testdata/planted.txt") {
		planted, axis := "", ""
		for j, answer := range request.answers {
			if rest, ok := strings.CutPrefix(answer, "= "); ok {
				planted = "model-" + strconv.Itoa(j)
				axis, request.answers[j], _ = strings.Cut(rest, " ")
			}
		}
		axes[axis]++
		found := coverageOf(Detect(t.Context(), request.input()), axis)
		if !found.Flagged || len(found.Evidence) != 1 || found.Evidence[0].Model != planted {
			t.Errorf("%s: %+v", request.question, found)
		}
	}
	for axis := range DefaultLexicon().Axes {
		if axes[axis] < 2 {
			t.Errorf("%d sessions on %s", axes[axis], axis)
		}
	}
}

func TestCoverageIsFlagged(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	topics := readCorpus(t)
	type count struct{ sessions, flagged, others int }
	counts := map[string]count{}
	axis := ""
	for _, line := range readLines(t, "testdata/coverage.txt") {
		if name, ok := strings.CutPrefix(line, "= "); ok {
			axis = name
			continue
		}
		n := counts[axis]
		for _, tp := range topics {
			in := tp.session(random)
			if coverageOf(Detect(t.Context(), in), axis).Hits > 0 {
				continue // other answers cover the axis too, or seem to
			}
			in.Answers["model-1"] += " " + line
			d := Detect(t.Context(), in)
			found := coverageOf(d, axis)
			n.sessions++
			if found.Flagged {
				n.flagged++
			}
			if len(found.Evidence) != 1 || found.Evidence[0].Model != "model-1" || len(found.Evidence[0].Terms) < 5 {
				t.Errorf("%s: evidence %v", axis, found.Evidence)
			}
			for _, a := range d.Axes {
				if a.Flagged && a.Axis != axis {
					n.others++
				}
			}
		}
		counts[axis] = n
	}
	if len(counts) != len(DefaultLexicon().Axes) {
		t.Errorf("passages on %d axes", len(counts))
	}
	for axis, n := range counts {
		t.Logf("%s: %+v", axis, n)
		// A few are missed because the other answers are short: these would have held few
		// of the hits by chance, too.
		if n.sessions < 30 || n.flagged*5 < n.sessions*4 || n.others*33 > n.sessions {
			t.Errorf("%s: %+v", axis, n)
		}
	}
}

func coverageOf(d *council.DemographicDisagreement, axis string) council.DemographicAxis {
	return d.Axes[slices.IndexFunc(d.Axes, func(a council.DemographicAxis) bool { return a.Axis == axis })]
}

// BenchmarkDetect analyses four answers of 2 KB, one of which speaks of
// women and men and one of ages.
func BenchmarkDetect(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 0))
	in := Answered{Question: "How?", Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3}
	topics := readCorpus(b)
	for j, text := range []string{
		"Women and men, girls and boys, her mother and his father.", "Elderly people, teenagers, young adults and a child.", "", "",
	} {
		for len(text) < 2048 {
			text += " " + topics[j].session(random).Answers["model-0"]
		}
		in.Answers["model-"+strconv.Itoa(j)] = text[:2048]
	}
	b.ReportAllocs()
	for b.Loop() {
		Detect(b.Context(), in)
	}
}
