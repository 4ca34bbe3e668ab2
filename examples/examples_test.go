package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/trial"
)

type question struct {
	ID        string            `json:"id"`
	Query     string            `json:"query"`
	Category  string            `json:"category"`
	Language  string            `json:"language"`
	Reference json.RawMessage   `json:"reference"`
	Grader    trial.GraderSpec  `json:"grader"`
	Labels    map[string]string `json:"labels"`
}

func questions(t *testing.T) []question {
	t.Helper()
	var all []question
	for line := range bytes.Lines(councild.Questions()) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var q question
		if err := d.Decode(&q); err != nil {
			t.Fatalf("question %d: %v", len(all)+1, err)
		}
		all = append(all, q)
	}
	return all
}

func TestQuestions(t *testing.T) {
	all := questions(t)
	known, err := simllm.ReadClosed(councild.Questions())
	if err != nil || len(all) != 60 || len(known) != len(all) {
		t.Fatalf("%d questions, %d of them known to simulated models, %v", len(all), len(known), err)
	}
	categories, ids, types := map[string]int{}, map[string]bool{}, map[string]bool{}
	for i, q := range all {
		categories[q.Category]++
		types[q.Grader.Type] = true
		if ids[q.ID] || q.Language != "en" || q.Query != known[i].Query {
			t.Errorf("%s: the id is not unique, the language is %q, or simulated models know another question", q.ID, q.Language)
		}
		ids[q.ID] = true
		g, err := trial.NewGrader(q.Grader, q.Reference)
		if err != nil {
			t.Errorf("%s: %v", q.ID, err)
			continue
		}
		grades := func(answer string, want float64) {
			text := "The question is: " + q.Query + "\n\n" + answer
			if g.Instruction() != "" {
				text = "Some words.\nANSWER: " + answer
			}
			if got := g.Grade(text).Score; got == nil || *got != want {
				t.Errorf("%s: the answer %q has another score than %v", q.ID, answer, want)
			}
		}
		grades(known[i].Right, 1)
		for _, wrong := range known[i].Wrong {
			grades(wrong, 0)
		}
		for j := range all {
			if i != j && strings.HasPrefix(all[j].Query, q.Query) {
				t.Errorf("%s begins with the text of %s", all[j].ID, q.ID)
			}
		}
	}
	for _, category := range council.Categories() {
		if categories[category] != 10 {
			t.Errorf("%d questions of category %s, want 10", categories[category], category)
		}
	}
	if len(types) != 6 {
		t.Errorf("the graders are %v, want all six", types)
	}
}

// TestComputed computes the answers that can be computed, and has them graded. Nine facts about places
// and words cannot be.
func TestComputed(t *testing.T) {
	computed := answers()
	var left []string
	for _, q := range questions(t) {
		answer, ok := computed[q.ID]
		if !ok {
			if q.Category != "coding" { // TestCode runs them
				left = append(left, q.ID)
			}
			continue
		}
		g, err := trial.NewGrader(q.Grader, q.Reference)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(answer)
		if g.Instruction() != "" {
			text = "ANSWER: " + text
		}
		if score := g.Grade(text).Score; score == nil || *score != 1 {
			t.Errorf("%s: computed is %v, but the reference is %s", q.ID, answer, q.Reference)
		}
	}
	facts := []string{
		"world-04", "world-05", "world-06", "world-07", "world-09", "language-01", "language-05", "language-06", "language-09",
	}
	if !slices.Equal(left, facts) {
		t.Errorf("not computed are %v, want %v", left, facts)
	}
}

// answers returns the computed answers by the id of the question.
func answers() map[string]any {
	a := map[string]any{}
	for name, list := range map[string][]any{"arithmetic": arithmetic(), "logic": logic(), "units": units()} {
		for i, answer := range list {
			a[fmt.Sprintf("%s-%02d", name, i+1)] = answer
		}
	}
	date := func(year, month, day int) time.Time {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	}
	a["world-01"] = date(2028, 3, 10).Sub(date(2028, 2, 10)).Hours() / 24
	a["world-02"] = date(2030, 5, 1).Weekday()
	leap := 0
	for year := 1896; year <= 1912; year++ {
		leap += date(year, 12, 31).YearDay() - 365
	}
	a["world-03"] = leap
	a["world-08"] = date(2027, 1, 100).Format("2 January")
	a["world-10"] = date(2026, 11, 23).Add(18*time.Hour + 30*time.Minute).In(time.FixedZone("UTC+9", 9*60*60)).Weekday() // a Monday
	a["language-02"] = len("strengthening")
	backwards := func(word string) string {
		letters := []byte(word)
		slices.Reverse(letters)
		return string(letters)
	}
	for _, word := range []string{"banner", "rotator", "pattern", "lantern"} {
		if word == backwards(word) {
			a["language-03"] = word
		}
	}
	a["language-04"] = backwards("stressed")
	a["language-07"] = slices.Sorted(slices.Values(strings.Fields("plum pear peach papaya pepper")))[2]
	a["language-08"] = len(strings.Map(func(c rune) rune {
		if strings.ContainsRune("aeiou", c) {
			return c
		}
		return -1
	}, "onomatopoeia"))
	words, _ := json.Marshal(slices.Sorted(slices.Values(strings.Fields("seven slow snails slept"))))
	a["language-10"] = string(words)
	return a
}

func arithmetic() []any {
	sum, divisors := 0, 0
	for i := 40; i <= 60; i++ {
		sum += i
	}
	for i := 1; i <= 360; i++ {
		if 360%i == 0 {
			divisors++
		}
	}
	fractions := []string{"5/8", "7/11", "9/14", "12/19"}
	rat := func(text string) *big.Rat { r, _ := new(big.Rat).SetString(text); return r }
	return []any{
		17*23 + 9, 456/8*3 - 47, 80 * 1.15 * 0.85, sum,
		new(big.Int).Exp(big.NewInt(7), big.NewInt(13), big.NewInt(11)), 60 / (1/6. + 1/3.), divisors,
		new(big.Int).GCD(nil, nil, big.NewInt(462), big.NewInt(1071)), fmt.Sprintf("%b", 201),
		slices.MaxFunc(fractions, func(a, b string) int { return rat(a).Cmp(rat(b)) }),
	}
}

func logic() []any {
	// A park with one heron that flies and another bird that does not has all that the text says.
	follows := "no"
	heights := map[string]int{"Dag": 4, "Ana": 3, "Ben": 2, "Cleo": 1} // the only order
	second := slices.SortedFunc(func(yield func(string) bool) {
		for name := range heights {
			if !yield(name) {
				return
			}
		}
	}, func(a, b string) int { return heights[b] - heights[a] })[1]
	socks := 0 // the most without three of a colour, and one
	for _, n := range []int{10, 8, 6} {
		socks += min(n, 2)
	}
	handshakes := 5*4/2 - 1
	box := 0
	for coin := 1; coin <= 3; coin++ {
		said := map[bool]int{}
		for _, sentence := range []bool{coin == 1, coin != 2, coin != 1} {
			said[sentence]++
		}
		if said[true] == 1 {
			box = coin
		}
	}
	day, height := 1, 3
	for height < 10 {
		day, height = day+1, height-2+3
	}
	sequence := 2
	for range 6 {
		sequence = 2*sequence - 1
	}
	var owners []byte
	for _, p := range [][3]string{{"cat", "parrot", "dog"}, {"parrot", "cat", "dog"}} { // the dog is Kim's
		if p[0] != "parrot" {
			owners, _ = json.Marshal(map[string]string{"Ida": p[0], "Jon": p[1], "Kim": p[2]})
		}
	}
	divisible := 0
	for i := 1; i <= 100; i++ {
		if i%4 == 0 || i%6 == 0 {
			divisible++
		}
	}
	return []any{
		follows, second, socks + 1, handshakes, box, day, sequence,
		"it is not Thursday", // by contraposition
		string(owners), divisible,
	}
}

func units() []any {
	lengths := map[string]float64{"2 yards": 2 * 36 * 0.0254, "5 feet": 5 * 12 * 0.0254, "70 inches": 70 * 0.0254, "1.8 metres": 1.8}
	longest := "5 feet"
	for name, metres := range lengths {
		if metres > lengths[longest] {
			longest = name
		}
	}
	arrival := time.Date(2026, 1, 1, 22, 47, 0, 0, time.UTC).Add(9*time.Hour + 35*time.Minute)
	return []any{
		90 * 1000 / 3600., 2*3600 + 13*60 + 20, math.Round((350 - 32) * 5 / 9.), 25 * 1.609344, 80 * 35 * 40 / 1000.,
		(3 << 20) >> 10, 6.5 * 2.6, 0.35 * 100 * 100, longest, arrival.Format("15:04"),
	}
}

// TestCode runs the code of the questions about code.
func TestCode(t *testing.T) {
	var program strings.Builder
	program.WriteString("package main\n\nimport (\n\"encoding/json\"\n\"fmt\"\n\"strings\"\n)\n\n" +
		"var _, _ = json.Marshal, strings.Map\n\nfunc main() {\n")
	var asked []question
	for _, q := range questions(t) {
		if q.Category != "coding" {
			continue
		}
		_, code, _ := strings.Cut(q.Query, "```go\n")
		code, _, ok := strings.Cut(code, "\n```")
		if !ok {
			t.Fatalf("%s holds no code", q.ID)
		}
		asked = append(asked, q)
		program.WriteString("func() {\n" + code + "\n}()\nfmt.Print(\"\\x00\")\n")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program.String()+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.Split(string(out), "\x00")
	for i, q := range asked {
		g, err := trial.NewGrader(q.Grader, q.Reference)
		if err != nil {
			t.Fatal(err)
		}
		if score := g.Grade(printed[i]).Score; score == nil || *score != 1 {
			t.Errorf("%s prints %q, but the reference is %s", q.ID, printed[i], q.Reference)
		}
	}
}
