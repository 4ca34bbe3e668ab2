package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
)

// hostile returns texts of about n bytes whose structure could make a reader slow.
func hostile(n int) map[string]string {
	many := func(text string) string { return strings.Repeat(text, n/len(text)+1) }
	const required = `{"schema_version":"1.2.0","session_id":"a","reviewer_id":"b","model_id":"c","response_length_chars":1`
	return map[string]string{
		"objects in objects":      many(`{"query_metadata":`),
		"lists in lists":          many("["),
		"one string of escapes":   `{"session_id":"` + many(`\u00e9`) + `"}`,
		"a string without end":    `{"session_id":"` + many(`\"`),
		"equal keys":              "{" + many(`"session_id":"a",`) + `"own":true}`,
		"keys in other cases":     "{" + many(`"Session_Id":"a","SESSION_ID":"b",`) + `"own":true}`,
		"unknown keys":            "{" + many(`"a":{"b":[1,2,3]},`) + `"own":true}`,
		"wrong types":             "{" + many(`"position":"a",`) + `"own":true}`,
		"a long integer":          `{"position":` + many("9") + "}",
		"a long fraction":         `{"score_value":0.` + many("3") + "}",
		"a long exponent":         `{"score_value":1e` + many("9") + "}",
		"a long scale":            `{"schema_version":1,"session_id":"a","score_value":1,"score_scale":"` + many("1-") + `"}`,
		"a long patch level":      `{"schema_version":"1.2.` + many("7") + `"}`,
		"a long timestamp":        required + `,"timestamp":"` + many("2") + `"}`,
		"our layout":              `{"schema_version":"` + many("1") + `","session_id":"` + many(`,"session_id":`) + `"}`,
		"spaces":                  many(" ") + "{}",
		"spaces everywhere":       "{" + many(`  "a"  :  1  ,  `) + `"own":true}`,
		"bytes that are no UTF-8": many("\xff"),
		"empty lines":             many("\n"),
		"sessions without end":    many("\t\n"),
		"short lines":             many("{}\n"),
		"lines that go on":        many("{}\t\n"),
		"two layouts in turn":     many(`{"own":true,"session_id":"a"}` + "\n" + `{"session_id":"a","own":true}` + "\n"),
		"lines of half the limit": many(strings.Repeat("x", maxLine/2) + "\n"),
		"one line":                many("x"),
	}
}

// The time for reading a line or a file is linear in its length, whatever its content.
func TestReadingIsLinear(t *testing.T) {
	testkit.Slow(t)
	readings := map[string]func(text string){
		"ParseRecord": func(text string) { _, _ = ParseRecord([]byte(text)) },
		"scanner": func(text string) {
			s := newScanner()
			for range 2 {
				_, _ = s.parse([]byte(text))
			}
		},
		"Read": func(text string) {
			for _, err := range Read(t.Context(), strings.NewReader(text)) {
				if err != nil && !isLine(err) {
					t.Error(err)
				}
			}
		},
		"the end": func(text string) {
			if _, err := afterLastSession(t.Context(), strings.NewReader(text), int64(len(text))); err != nil {
				t.Error(err)
			}
		},
	}
	texts := map[int]map[string]string{growth.Small: hostile(growth.Small), growth.Large: hostile(growth.Large)}
	for name, read := range readings {
		for shape := range texts[growth.Small] {
			t.Run(fmt.Sprintf("%s/%s", name, shape), func(t *testing.T) {
				growth.Linear(t, func(n int) func() {
					return func() { read(texts[n][shape]) }
				})
			})
		}
	}
}

// counting counts the bytes that are read from a text.
type counting struct {
	*strings.Reader
	bytes int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.Reader.ReadAt(p, off)
	c.bytes += n
	return n, err
}

// afterLastSession reads each block once, and finds the end that a search through all
// lines finds.
func TestAfterLastSessionReadsEachBlockOnce(t *testing.T) {
	texts := hostile(4 * maxLine)
	for n := maxLine - 2; n <= maxLine+2; n++ { // a newline or its mark at the border of a block
		end := strings.Repeat("\t\n", n/2)
		texts[fmt.Sprintf("end of %d", n)] = "{}\n" + end
		texts[fmt.Sprintf("odd end of %d", n)] = "{}\nx" + end
		texts[fmt.Sprintf("all of %d", n)] = end
		texts[fmt.Sprintf("line of %d", n)] = "{}\n" + strings.Repeat("x", n)
		texts[fmt.Sprintf("whole line of %d", n)] = "{}\n" + strings.Repeat("x", n) + "\n" + strings.Repeat("y", maxLine)
	}
	texts["nothing"], texts["a newline"], texts["two"] = "", "\n", "\n\t\n"
	for name, text := range texts {
		c := &counting{Reader: strings.NewReader(text)}
		got, err := afterLastSession(t.Context(), c, int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for at := 0; ; {
			i := strings.IndexByte(text[at:], '\n')
			if i < 0 {
				break
			}
			if at += i + 1; at < 2 || text[at-2] != moreFollow {
				want = at
			}
		}
		if got != int64(want) {
			t.Errorf("%s: got %d, want %d of %d", name, got, want, len(text))
		}
		if c.bytes > len(text)+len(text)/16+16 {
			t.Errorf("%s: %d bytes were read of %d", name, c.bytes, len(text))
		}
	}
}
