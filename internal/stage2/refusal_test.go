package stage2

import (
	"testing"

	"pgregory.net/rapid"
)

// No sentence that an expression for refusals matches is passed over.
func TestFindRefusal(t *testing.T) {
	for _, form := range []string{englishRefusal.String(), foreignRefusal.String()} {
		rapid.Check(t, func(t *rapid.T) {
			refusal := rapid.StringMatching(form).Filter(func(text string) bool { // the generator knows no \b
				return englishRefusal.MatchString(text) || foreignRefusal.MatchString(text)
			}).Draw(t, "refusal")
			if findRefusal(refusal) == nil || findRefusal("Sorry, "+refusal) == nil {
				t.Fatalf("%q is passed over", refusal)
			}
		})
	}
	for sentence, want := range map[string]bool{
		"I am not able to rank these":                                true,
		"(I'd rather not judge them)":                                true,
		"I would say that it is better, but I can’t compare":         true,
		"Leider kann ich diese Antworten nicht bewerten":             true,
		"我无法评价":                                                      true,
		"I would say that it does not compare the two":               false,
		"API cannot rank these":                                      false,
		"Response A is not able to say what happens when it ends":    false,
		"Antwort A sagt nicht, was ich bewerten kann, weil es fehlt": false,
	} {
		if got := findRefusal(sentence) != nil; got != want {
			t.Errorf("%q: %v", sentence, got)
		}
	}
}
