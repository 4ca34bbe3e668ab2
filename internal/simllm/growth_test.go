package simllm

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Reading a prompt takes time in proportion to its length, however it is made up.
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
		"a long question and many answers": func(n int) any {
			question := strings.Repeat("why ", n/8)
			return "=== BEGIN QUESTION " + token + " ===\n" + question + "\n=== END QUESTION " + token + " ===\n" + strings.Repeat(answer, n/2/len(answer)) + ballotWord
		},
		"a long label": func(n int) any {
			label := strings.Repeat("A", n/2)
			return begin + "=== BEGIN ANSWER " + token + ": " + label + " ===\nx\n=== END ANSWER " + token + ": " + label + " ===\n" + ballotWord
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
	s := newServer(t, Model{Name: "m", Noise: 1, LengthBias: 1, Affinity: map[string]float64{"m": 1}})
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			fastest := func(n int) time.Duration {
				body := string(encode(object{"model": "m", "messages": []object{{"role": "user", "content": content(n)}}}))
				best := time.Hour
				for range 3 {
					start := time.Now()
					w := httptest.NewRecorder()
					s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body)))
					best = min(best, time.Since(start))
					if w.Code != 200 {
						t.Fatalf("%d: %.200s", w.Code, w.Body)
					}
				}
				return best
			}
			var small, large time.Duration
			for range 3 { // what disturbs a measurement is over at another one
				small, large = fastest(1<<20/8), fastest(1<<20)
				if large <= 3*8*small+250*time.Millisecond {
					return
				}
			}
			t.Errorf("8 times the bytes take %.1f times as long: %s and %s", float64(large)/float64(small), small, large)
		})
	}
}
