package simllm

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/growth"
)

// TestTimePerByte holds that reading a prompt takes time in proportion to its length,
// whatever is in it.
func TestTimePerByte(t *testing.T) {
	const token = "0123456789abcdef"
	const begin = "=== BEGIN QUESTION " + token + " ===\nWhy?\n=== END QUESTION " + token + " ===\n"
	repeated := func(before, unit, after string) func(n int) any {
		return func(n int) any { return before + strings.Repeat(unit, n/len(unit)) + after }
	}
	answer := "=== BEGIN ANSWER " + token + ": A ===\nx\n=== END ANSWER " + token + ": A ===\n"
	tests := map[string]func(n int) any{
		"markers that begin":    repeated("", "=== BEGIN QUESTION \n", ""),
		"markers without end":   repeated(begin, "=== BEGIN ANSWER "+token+": A ===\n", ballotWord),
		"many answers":          repeated(begin, answer, ballotWord),
		"many answers to merge": repeated(begin, answer, ""),
		"a long ranking":        repeated(begin+answer, "1. A: 50%; 3\n", ""),
		"many claims": func(n int) any {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				b.WriteString(strings.Replace(answer, "\nx\n", "\nANSWER: "+strconv.Itoa(i)+"\n", 1))
			}
			return begin + b.String()
		},
		"a long question and many answers": func(n int) any {
			question := strings.Repeat("why ", n/8)
			return "=== BEGIN QUESTION " + token + " ===\n" + question + "\n=== END QUESTION " + token + " ===\n" +
				strings.Repeat(answer, n/2/len(answer)) + ballotWord
		},
		"a long label": func(n int) any {
			label := strings.Repeat("A", n/2)
			return begin + "=== BEGIN ANSWER " + token + ": " + label + " ===\nx\n" +
				"=== END ANSWER " + token + ": " + label + " ===\n" + ballotWord
		},
		"blanks":       repeated("", " ", ""),
		"short words":  repeated("", "a ", ""),
		"stop words":   repeated("", "the ", ""),
		"empty lines":  repeated(begin, "\n", answer+ballotWord),
		"one long one": repeated("", "x", ""),
		"parts": func(n int) any {
			parts := make([]object, n/20)
			for i := range parts {
				parts[i] = object{"type": "text", "text": "why"}
			}
			return parts
		},
	}
	s, err := New(Options{
		Models: []Model{{Name: "m", Noise: 1, LengthBias: 1, Affinity: map[string]float64{"m": 1}, Ability: NewAbility(0.5)}},
		Closed: []Closed{{Query: "Why?", Right: "so", Wrong: []string{"thus"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, func(n int) func() {
				body := string(encode(object{"model": "m", "messages": []object{{"role": "user", "content": content(n)}}}))
				return func() {
					w := httptest.NewRecorder()
					s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body)))
					if w.Code != 200 {
						t.Fatalf("%d: %.200s", w.Code, w.Body)
					}
				}
			})
		})
	}
}
