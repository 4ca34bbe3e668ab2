package render

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/worth"
)

// costs are what each arm costs at a question, in US dollars.
func costs() map[string]float64 {
	return map[string]float64{
		"council": 0.036, "ranked": 0.021, "synthesis": 0.018, "placebo": 0.036, "ensemble": 0.0225, "vote": 0.012,
		"member:lab/small": 0.002, "member:lab/large-model-2026": 0.006, "member:other/one": 0.004,
	}
}

// questions returns questions at which arms are right with planted probabilities.
func questions(n, perGroup int, accuracy map[string]float64) []worth.Question {
	rng := rand.New(rand.NewPCG(7, 1))
	all := make([]worth.Question, n)
	for i := range all {
		q := worth.Question{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i / perGroup), Score: map[string]float64{}, CostUSD: map[string]float64{}}
		common := rng.Float64()
		for _, arm := range slices.Sorted(maps.Keys(accuracy)) {
			u := rng.Float64()
			if rng.Float64() < 0.5 { // half of the luck is that of the question
				u = common
			}
			q.Score[arm], q.CostUSD[arm] = 0, costs()[arm]
			if u < accuracy[arm] {
				q.Score[arm] = 1
			}
		}
		all[i] = q
	}
	return all
}

// judgements returns questions at which judges prefer the council with a planted probability.
func judgements(n int, prefer float64) []worth.JudgedQuestion {
	rng := rand.New(rand.NewPCG(7, 2))
	all := make([]worth.JudgedQuestion, n)
	for i := range all {
		all[i] = worth.JudgedQuestion{ID: strconv.Itoa(i), Cluster: strconv.Itoa(i), Against: map[string]worth.JudgedPair{}}
		for _, arm := range []string{"member:lab/small", "ranked", "synthesis"} {
			j := worth.JudgedPair{LogLength: rng.NormFloat64()}
			for range 2 {
				var orders [2]*float64
				for o := range orders {
					if v := 0.0; rng.Float64() > 0.02 {
						if rng.Float64() < prefer {
							v = 1
						}
						orders[o] = &v
					}
				}
				j.Verdicts = append(j.Verdicts, orders)
			}
			all[i].Against[arm] = j
		}
	}
	return all
}

// comparisons returns one comparison of each kind that a reader can meet, by name.
func comparisons() map[string]Comparison {
	plan := worth.Design{
		Treatment: "council", Comparators: []string{"ranked", "synthesis", "vote", "ensemble"},
		Members:   []string{"member:lab/large-model-2026", "member:lab/small", "member:other/one"},
		Described: []string{"placebo"}, Margin: 0.05, Seed: 3,
	}
	truth := func(council, others float64) map[string]float64 {
		all := map[string]float64{}
		for arm := range costs() {
			all[arm] = others
		}
		all["council"], all["placebo"], all["member:lab/small"], all["vote"] = council, council-0.02, others-0.15, others+0.03
		return all
	}
	whole := func(r worth.Report) Comparison {
		return Comparison{
			Report: r, Judges: []string{}, PlanHash: strings.Repeat("0123456789abcdef", 4), Planned: r.Questions,
			EnsembleCost: new(0.625), Failed: map[string]int{}, Ungradable: map[string]int{}, Fallbacks: map[string]int{},
			Usage: council.Usage{CostUSD: new(12.345)},
			Settings: [][2]string{
				{"council", "default"},
				{"members", "lab/large-model-2026, lab/small, other/one"},
				{"ensemble", "6 times lab/large-model-2026"},
				{"seed", "3"},
			},
		}
	}
	compare := func(rows []worth.Question, plan worth.Design) Comparison { return whole(worth.Compare(rows, plan)) }
	judged := func(rows []worth.JudgedQuestion) Comparison {
		plan := worth.Design{Treatment: "council", Comparators: []string{"member:lab/small", "ranked", "synthesis"}, Margin: worth.JudgedMargin}
		c := whole(worth.CompareJudged(rows, plan))
		c.Judged, c.Judges, c.EnsembleCost = true, []string{"third/judge", "fourth/judge"}, nil
		return c
	}
	valued := plan
	valued.ValueUSD = new(0.5)
	cheap := valued
	cheap.ValueUSD = new(0.02)
	near := plan
	near.Margin = 0.12
	alone := worth.Design{Treatment: "council", Described: []string{"placebo"}, Margin: 0.05}
	simple := worth.Design{Treatment: "council", Comparators: []string{"ranked"}, Margin: 0.05}

	unknown := questions(200, 1, truth(0.9, 0.6))
	delete(unknown[5].CostUSD, "ranked")
	missing := questions(60, 1, map[string]float64{"council": 0.98, "ranked": 0.9})
	for i := range 12 {
		missing[i].Score["council"] = 1
		delete(missing[i].Score, "ranked")
	}
	split := judgements(200, 0.62)
	for i := range split {
		for arm, j := range split[i].Against {
			if i%4 == 0 {
				split[i].Against[arm] = worth.JudgedPair{Verdicts: make([][2]*float64, len(j.Verdicts)), LogLength: j.LogLength}
			}
			if i%4 == 1 {
				j.Verdicts[0] = [2]*float64{}
			}
		}
	}

	all := map[string]Comparison{
		"pays":                      compare(questions(200, 1, truth(0.92, 0.6)), plan),
		"does_not_pay":              compare(questions(400, 1, truth(0.62, 0.62)), plan),
		"too_few":                   compare(questions(36, 1, truth(0.75, 0.65)), plan),
		"too_few_same":              compare(questions(40, 1, map[string]float64{"council": 1, "ranked": 1}), simple),
		"insufficient":              compare(questions(60, 3, truth(0.75, 0.65)), plan),
		"insufficient_no_arm":       compare(questions(60, 1, truth(0.75, 0.65)), alone),
		"short_of_margin":           compare(questions(900, 1, truth(0.74, 0.66)), near),
		"depends_on_missing":        compare(missing, simple),
		"cost_unknown":              compare(unknown, valued),
		"value_pays":                compare(questions(200, 1, truth(0.9, 0.6)), valued),
		"value_does_not_pay":        compare(questions(200, 1, truth(0.7, 0.6)), cheap),
		"empty":                     compare(nil, plan),
		"judged_pays":               judged(judgements(200, 0.7)),
		"judged_does_not_pay":       judged(judgements(200, 0.45)),
		"judged_too_few":            judged(judgements(40, 0.58)),
		"judged_depends_on_missing": judged(split),
	}
	stopped := all["too_few"]
	stopped.Planned, stopped.Stopped, stopped.Usage.Partial = 100, true, true
	stopped.Failed, stopped.Fallbacks = map[string]int{"council": 1}, map[string]int{"council": 2}
	stopped.Ungradable = map[string]int{"member:lab/small": 1234, "nobody": 3}
	stopped.EnsembleCost = new(1.1)
	all["too_few"] = stopped
	lines := map[string]Roster{
		"pays":                {new("mode: council"), new("council"), new(1.0)},
		"does_not_pay":        {new("mode: vote, answer_form: {type: number}"), new("vote"), new(0.3333333)},
		"value_does_not_pay":  {new("members: [lab/small], mode: single"), new("member:lab/small"), new(0.0555555)},
		"judged_does_not_pay": {new("members: [" + strings.Repeat(`"lab:large", `, 7) + `"lab:large"], mode: synthesis`), new("ensemble"), nil},
	}
	for name, line := range lines {
		c := all[name]
		c.Roster = line
		all[name] = c
	}
	return all
}

func TestComparison(t *testing.T) {
	for name, c := range comparisons() {
		t.Run(name, func(t *testing.T) {
			text := ComparisonText(c)
			narrow(t, text)
			golden(t, "compare_"+name+".txt", text)
			if name == "pays" || name == "too_few" || name == "judged_pays" {
				golden(t, "compare_"+name+".csv", shortened(t, ComparisonCSV(c)))
				golden(t, "compare_"+name+".html", ComparisonHTML(c))
			}
			wholePage(t, ComparisonHTML(c))
			wholeTable(t, ComparisonCSV(c))
		})
	}
}

// narrow fails the test where a line has more than 80 columns, or a figure is not one.
func narrow(t *testing.T, text []byte) {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "members: [") { // A line that readers copy is not wrapped.
			continue
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
		if strings.Contains(line, "NaN") || strings.Contains(line, "Inf") || strings.Contains(line, "%!") || strings.Contains(line, "-0.0 ") {
			t.Errorf("no figure: %s", line)
		}
	}
}

// wholePage fails the test where a page loads something, or is not well-formed.
func wholePage(t *testing.T, body []byte) {
	t.Helper()
	page := string(body)
	for _, wrong := range []string{"<script", "http:", "https:", "ZgotmplZ", "%!", "NaN", "style=", "Inf"} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page holds %q", wrong)
		}
	}
	elements(t, page)
}

// wholeTable fails the test unless a CSV has rows of the same length.
func wholeTable(t *testing.T, body []byte) [][]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// shortened returns a CSV with six digits of each figure: the last ones differ between processors.
func shortened(t *testing.T, body []byte) []byte {
	t.Helper()
	rows := wholeTable(t, body)
	for _, row := range rows {
		for i, text := range row {
			if x, err := strconv.ParseFloat(text, 64); err == nil {
				row[i] = fmt.Sprintf("%.6g", x)
			}
		}
	}
	return table(rows)
}

// TestVerdictSentences holds that every verdict, and every reason, has a sentence of its own.
func TestVerdictSentences(t *testing.T) {
	all := comparisons()
	for _, tt := range []struct {
		name    string
		verdict worth.Verdict
		reason  worth.UndecidedReason
		want    []string
	}{
		{"pays", worth.Pays, "", []string{
			"Pays: the council beats every simpler way in the plan. The nearest is vote", "lower limit +", "at 3 times its cost",
		}},
		{"does_not_pay", worth.DoesNotPay, "", []string{
			"Does not pay: the council is less than 5 points better than vote", "upper limit",
			"It serves vote, the cheapest way that the council is shown not to beat by 5 points.",
			"The bill is then 33.3 % of", "mode: vote, answer_form: {type: number}",
		}},
		{"too_few", worth.Undecided, worth.TooFew, []string{
			"36 questions can detect a true difference of", " To detect 10 points you need ",
			"The council is not shown to beat these (points, 90 % intervals): ranked +",
		}},
		{"too_few_same", worth.Undecided, worth.TooFew, []string{"the same scores at all 40 questions"}},
		{"insufficient", worth.Undecided, worth.Insufficient, []string{
			"a verdict needs 30 clusters, and there are 20", "60 questions in 20 clusters can detect",
		}},
		{"insufficient_no_arm", worth.Undecided, worth.Insufficient, []string{"nothing to compare"}},
		{"empty", worth.Undecided, worth.Insufficient, []string{"a verdict needs 30 clusters, and there are 0."}},
		{"short_of_margin", worth.Undecided, worth.ShortOfMargin, []string{"but not each by 12 points: ", "the best member by"}},
		{"depends_on_missing", worth.Undecided, worth.DependsOnMissing, []string{"without the questions at which an answer is missing"}},
		{"cost_unknown", worth.Undecided, worth.CostUnknown, []string{"the verdict is in money, and the cost of these is unknown: ranked."}},
		{"value_pays", worth.Pays, "", []string{"Pays: ", "points net of costs"}},
		{"value_does_not_pay", worth.DoesNotPay, "", []string{
			"where a right answer is worth $0.02, the council costs more than it adds, in points net of costs, compared with",
		}},
		{"judged_pays", worth.Pays, "", []string{"Pays, by the judgement of third/judge and fourth/judge: ", "at equal length +"}},
		{"judged_does_not_pay", worth.DoesNotPay, "", []string{"Does not pay, by the judgement of ", "less than 10 points better than"}},
		{"judged_too_few", worth.Undecided, worth.TooFew, []string{"Undecided, by the judgement of ", " To detect 20 points you need 60."}},
		{"judged_depends_on_missing", worth.Undecided, worth.DependsOnMissing, []string{
			"if all replies that are no judgement were for one side",
		}},
	} {
		c, ok := all[tt.name]
		if !ok {
			t.Fatalf("there is no comparison %q", tt.name)
		}
		if c.Verdict != tt.verdict || c.Reason != tt.reason {
			t.Errorf("%s: the verdict is %s %s, want %s %s", tt.name, c.Verdict, c.Reason, tt.verdict, tt.reason)
		}
		for form, body := range map[string]string{
			"text": strings.Join(strings.Fields(string(ComparisonText(c))), " "),
			"HTML": strings.ReplaceAll(string(ComparisonHTML(c)), "&#43;", "+"),
		} {
			for _, want := range tt.want {
				if !strings.Contains(body, want) {
					t.Errorf("%s: the %s lacks %q: %s", tt.name, form, want, c.headline())
				}
			}
			said, _, _ := strings.Cut(body, "What is not claimed")
			if i := strings.Index(said, "</style>"); i > 0 {
				said = said[i:]
			}
			if c.Judged && strings.Contains(said, "right") {
				t.Errorf("%s: the %s of a judged comparison says what is right", tt.name, form)
			}
		}
	}
}

// TestEqualCost holds that an ensemble is a comparison at equal cost only within 10 % of the council's.
func TestEqualCost(t *testing.T) {
	for ratio, want := range map[float64]string{
		0.62: "ensemble, cost x 0.62", 0.89: "ensemble, cost x 0.89",
		0.9: "ensemble, equal cost", 1.1: "ensemble, equal cost", 1.11: "ensemble, cost x 1.1",
	} {
		c := Comparison{EnsembleCost: &ratio}
		if got := c.armName(armEnsemble); got != want {
			t.Errorf("%v: %q, want %q", ratio, got, want)
		}
		if equal := strings.Contains(c.ensembleNote(), "is a comparison at equal cost"); equal != strings.Contains(want, "equal") {
			t.Errorf("%v: %s", ratio, c.ensembleNote())
		}
	}
	if note := (Comparison{}).ensembleNote(); !strings.HasPrefix(note, "The cost of the ensemble relative") {
		t.Error(note)
	}
}

// TestReviewsMatter holds each of the outcomes of a comparison with the placebo.
func TestReviewsMatter(t *testing.T) {
	for _, tt := range []struct {
		n                int
		council, placebo float64
		want             string
	}{
		{400, 0.9, 0.5, "make it better"},
		{400, 0.5, 0.9, "make it worse"},
		{4000, 0.7, 0.7, "within 5 points of each other"},
		{50, 0.7, 0.65, "neither a difference nor equality is shown"},
	} {
		plan := worth.Design{Treatment: "council", Comparators: []string{"ranked"}, Described: []string{"placebo"}, Margin: 0.05}
		r := worth.Compare(questions(tt.n, 1, map[string]float64{"council": tt.council, "placebo": tt.placebo, "ranked": 0.5}), plan)
		notes := Comparison{Report: r}.reviewNotes(r.Described)
		if len(notes) != 1 || !strings.Contains(notes[0], tt.want) {
			t.Errorf("%q, want %q", notes, tt.want)
		}
	}
}

// A difference in money of which a cost is unknown is not printed, and the reason is the cost, not the number of clusters.
func TestUnknownCostSentences(t *testing.T) {
	rows := questions(60, 1, map[string]float64{"council": 0.9, "ranked": 0.5, "member:lab/small": 0.5, "placebo": 0.5})
	for i := range rows[:30] {
		delete(rows[i].CostUSD, "council")
	}
	plan := worth.Design{
		Treatment: "council", Comparators: []string{"ranked"}, Members: []string{"member:lab/small"}, Described: []string{"placebo"},
		ValueUSD: new(0.05),
	}
	text := strings.Join(strings.Fields(string(ComparisonText(Comparison{Report: worth.Compare(rows, plan), Usage: council.NoUsage()}))), " ")
	for _, want := range []string{
		"the verdict is in money, and the cost of these is unknown: council.", "The size of the advantage is not defined: not every cost is known.",
		"(the same reviews and standings under wrong labels): not defined, not every cost is known.", "ranked - - -",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q: %s", want, text)
		}
	}
	few := worth.Compare(rows[30:31], plan)
	if notes := (Comparison{Report: few}).bestNotes(); !strings.Contains(notes[1], "there are fewer than two clusters") {
		t.Errorf("of one question: %q", notes)
	}
}

func TestComparisonCSV(t *testing.T) {
	c := comparisons()["pays"]
	rows := wholeTable(t, ComparisonCSV(c))
	kinds := map[string]int{}
	for _, row := range rows[1:] {
		kinds[row[0]]++
	}
	want := map[string]int{"report": 15, "comparison": 4, "member": 3, "best_size": 1, "described": 1, "arm": 9, "power": 4, "setting": 4}
	if !maps.Equal(kinds, want) {
		t.Errorf("rows %v, want %v", kinds, want)
	}
	first := rows[slices.IndexFunc(rows, func(row []string) bool { return row[0] == "comparison" })]
	if got := first[slices.Index(rows[0], "ci95_upper")]; got != strconv.FormatFloat(c.Comparisons[0].Interval.CI95[1], 'g', -1, 64) {
		t.Errorf("the upper end is %s", got)
	}
	if got := first[slices.Index(rows[0], "at_equal_length")]; got != "" {
		t.Errorf("an undefined figure is %q", got)
	}
}

func TestPlanText(t *testing.T) {
	plan := func(questions int) []byte {
		return PlanText(questions, worth.Powers(questions, 0.05, 2), [][2]string{{"arms", "council, best"}, {"seed", "7"}}, strings.Repeat("0f", 32))
	}
	text := plan(100)
	narrow(t, text)
	golden(t, "plan.txt", text)
	few := string(plan(20))
	if !strings.Contains(few, fmt.Sprintf("A verdict needs %d questions.", worth.LeastClusters)) {
		t.Error(few)
	}
}

// TestHostileComparison holds that no name in a file of results can steer a terminal, be markup or run in a spreadsheet.
func TestHostileComparison(t *testing.T) {
	const name = "=1+1\x1b[31m\xff\x00<script>\t\r\n" + `" onload="x`
	rows := questions(60, 1, map[string]float64{"council": 0.8, name: 0.5})
	for i := range rows {
		rows[i].CostUSD[name] = 0.01
	}
	c := comparisons()["judged_pays"]
	c.Report = worth.Compare(rows, worth.Design{
		Treatment: "council", Comparators: []string{name}, Members: []string{name}, Described: []string{name}, Margin: 0.05,
	})
	c.Roster = Roster{new("members: [" + name + "]"), new(name), nil}
	c.Judges, c.PlanHash, c.Settings, c.Failed = []string{name}, name, [][2]string{{name, name}}, map[string]int{name: 1}
	s := Seats{seats()["seats"].SeatsReport, []string{name, name, name, name}, name}
	for form, body := range map[string][]byte{
		"text": ComparisonText(c), "CSV": ComparisonCSV(c), "HTML": ComparisonHTML(c),
		"text of seats": SeatsText(s), "CSV of seats": SeatsCSV(s), "HTML of seats": SeatsHTML(s),
	} {
		if !bytes.Contains(body, []byte("1+1")) && !bytes.Contains(body, []byte("1&#43;1")) {
			t.Errorf("%s lacks the name", form)
		}
		hostile := []string{"\x1b", "\x00", "\r", "\t", "\xff"}
		switch form[0] {
		case 'C':
			hostile = append(hostile, ",=", "\n=")
		case 'H':
			hostile = append(hostile, "<script>", `" onload`)
		}
		for _, part := range hostile {
			if bytes.Contains(body, []byte(part)) {
				t.Errorf("%s holds %q", form, part)
			}
		}
	}
}
