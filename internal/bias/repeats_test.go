package bias

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
)

// Of sessions without a key, those whose answers have the same lengths are probably repeats: the report says that it cannot tell.
func TestUnknownQuestions(t *testing.T) {
	for name, tt := range map[string]struct {
		length func(session, candidate int) int
		tell   func(session int, r *council.BiasMetricRecord)
		want   Repeats
		note   string
	}{
		"all differ": {
			func(s, c int) int { return 900 + 7*s + 100*c }, nil, Repeats{Unknown: 12}, "",
		},
		"four questions": {
			func(s, c int) int { return 900 + 7*(s%4) + 100*c }, nil, Repeats{Unknown: 12, Alike: 8}, "Some questions may have been asked again",
		},
		"one answer repeats": {
			func(s, c int) int { return 900 + 7*s*(c%2) }, nil, Repeats{Unknown: 12}, "",
		},
		"of other categories": {
			func(_, c int) int { return 900 + c },
			func(s int, r *council.BiasMetricRecord) { r.QueryMetadata.Category = new(strconv.Itoa(s)) },
			Repeats{Unknown: 12},
			"",
		},
		"with keys": {
			func(_, c int) int { return 900 + c },
			func(s int, r *council.BiasMetricRecord) { r.QuestionKey = new(strconv.Itoa(s % 5)) },
			Repeats{Questions: 5},
			"",
		},
		"some with keys": {
			func(_, c int) int { return 900 + c },
			func(s int, r *council.BiasMetricRecord) {
				if s > 3 {
					r.QueryHash = new(strconv.Itoa(s % 5))
				}
			},
			Repeats{Questions: 5, Unknown: 4, Alike: 3},
			"Of 4 sessions without a recorded question, 3 have",
		},
		"another secret": {
			func(_, c int) int { return 900 + c },
			func(s int, r *council.BiasMetricRecord) { r.QuestionKey = new(strconv.Itoa(s / 6)) },
			Repeats{Questions: 2, SecretMade: new(now.Add(-6 * time.Hour))},
			"was replaced on 31 March 2026",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := unlimited
			if tt.want.SecretMade != nil {
				o.SecretMade = *tt.want.SecretMade
			}
			c := NewCollector(o)
			for s := range 12 {
				for i := range 9 {
					r := record("s"+strconv.Itoa(s), now.Add(time.Duration(s-12)*time.Hour), string(rune('a'+i/3)), string(rune('a'+i%3)), 5)
					r.ResponseLengthChars = tt.length(s, i%3)
					if tt.tell != nil {
						tt.tell(s, &r)
					}
					c.Add(r)
				}
			}
			got := c.Report(t.Context()).Repeats
			if tt.note == "" != (got.Note == "") || !strings.Contains(got.Note, tt.note) {
				t.Errorf("note %q, want %q", got.Note, tt.note)
			}
			if (got.SecretMade == nil) != (tt.want.SecretMade == nil) || got.Questions != tt.want.Questions || got.Unknown != tt.want.Unknown ||
				got.Alike != tt.want.Alike {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
