package trial_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/growth"
	"github.com/councild/councild/internal/trial"
)

func TestFindCopies(t *testing.T) {
	for name, tc := range map[string]struct {
		texts []string
		want  int // questions
	}{
		"numbers":            {[]string{"A train leaves at 9:15 and takes 40 minutes. When does it arrive?", "A train leaves at 10 and takes 3.5 minutes. When does it arrive?"}, 2},
		"names":              {[]string{"Tom has 3 apples and gives some to Ann. How many are left?", "Mary Jane has 12 apples and gives some to Bob. How many are left?"}, 2},
		"marks and blanks":   {[]string{"what is the capital of  that country?", "What is the capital of that country"}, 0}, // a capital letter makes a name of "what"
		"blanks":             {[]string{"what is the capital of  that country?", "what is the capital of that country"}, 2},
		"German":             {[]string{"Ein Zug fährt um 9 Uhr ab und braucht genau 40 Minuten.", "Ein Bus fährt um 10 Uhr ab und braucht genau 3 Stunden."}, 2},
		"Russian":            {[]string{"Сколько яблок осталось, если Иван съел 3 и ещё одно?", "Сколько яблок осталось, если Мария съела 3 и ещё одно?"}, 0}, // another word
		"Russian, numbers":   {[]string{"Сколько яблок осталось, если Иван съел 3 и ещё одно?", "Сколько яблок осталось, если Пётр съел 15 и ещё одно?"}, 2},
		"Chinese":            {[]string{"一列火车以每小时60公里的速度行驶", "一列火车以每小时120公里的速度行驶"}, 2},
		"Arabic digits":      {[]string{"كم عدد التفاحات المتبقية بعد أكل ٣ منها؟", "كم عدد التفاحات المتبقية بعد أكل ٤ منها؟"}, 2},
		"three of one":       {[]string{"add the numbers 1 and 2, then halve the sum", "add the numbers 3 and 4, then halve the sum", "add the numbers 5 and 6, then halve the sum"}, 3},
		"short":              {[]string{"What is 2 + 2?", "What is 3 + 4?"}, 0},
		"only names":         {[]string{"Paris or London?", "Rome or Madrid?"}, 0},
		"unlike":             {[]string{"explain how a hash table works in detail", "explain how a binary heap works in detail"}, 0},
		"a word more":        {[]string{"a train takes 40 minutes for its way", "a train takes 40 long minutes for its way"}, 0},
		"other fields alike": {[]string{"", ""}, 0},
	} {
		questions := make([]trial.Question, len(tc.texts))
		for i, text := range tc.texts {
			questions[i] = trial.Question{ID: strconv.Itoa(i), Query: text}
		}
		if got := trial.FindCopies(questions); got.Questions != tc.want {
			t.Errorf("%s: %+v, want %d questions", name, got, tc.want)
		}
	}
	// Groups say already what is alike, and messages are texts too.
	text := "a train takes 40 minutes for the whole of its way"
	grouped := []trial.Question{
		{ID: "a", Query: text, Group: "trains"},
		{ID: "b", Messages: []council.Message{{Role: "user", Content: strings.Replace(text, "40", "41", 1)}}},
		{ID: "c", Query: text},
	}
	if got, want := trial.FindCopies(grouped), (trial.Copies{Questions: 2, Example: [2]string{"b", "c"}}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFindCopiesLinear(t *testing.T) {
	growth.Linear(t, func(n int) func() {
		questions := []trial.Question{{ID: "a", Query: strings.Repeat("word 12 Name ", n/13)}, {ID: "b", Query: strings.Repeat("9", n)}}
		return func() { trial.FindCopies(questions) }
	})
}
