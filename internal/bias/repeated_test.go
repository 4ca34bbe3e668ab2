package bias

import (
	"slices"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// Where nobody favours anybody and ten or thirty questions are asked again over 100 sessions, keys of questions keep
// verdicts from counting each session. Without them, most reports over ten questions have a false one.
func TestRepeatedQuestions(t *testing.T) {
	testkit.Slow(t)
	reports := 30
	for _, tt := range []struct {
		questions int
		tell      func(*council.BiasMetricRecord)
		least     int
		most      int
	}{
		{10, func(*council.BiasMetricRecord) {}, 0, reports / 10},
		{30, func(*council.BiasMetricRecord) {}, 0, reports / 10},
		{10, func(r *council.BiasMetricRecord) { r.QuestionKey = nil }, reports / 2, reports},
	} {
		found := 0
		for seed := range uint64(reports) {
			c := NewCollector(unlimited)
			for _, r := range inWorld(seed, 100, 5, false, biassim.World{Questions: tt.questions}, biassim.Effects{}) {
				tt.tell(&r)
				c.Add(r)
			}
			if slices.ContainsFunc(c.Report(t.Context()).Metrics, func(m Metric) bool {
				return m.Is(VerdictFavour)
			}) {
				found++
			}
		}
		if found < tt.least || found > tt.most {
			t.Errorf("%d questions: %d of %d reports have a false verdict, want %d to %d", tt.questions, found, reports, tt.least, tt.most)
		}
	}
}

// Records say which sessions asked the same by a key, a hash, or both. Where some have both, the others are joined by them: no
// question is lost when keys begin, when the level of consent changes, or when a secret is replaced.
func TestKeysAndHashesNameOneQuestion(t *testing.T) {
	told := []struct{ key, hash, block string }{
		{hash: "h1"}, {key: "1", hash: "h1"}, {key: "1"}, {key: "1", block: "b"}, // one question
		{key: "2"}, {key: "2", hash: "h2"}, {hash: "h2"}, {key: "3", hash: "h2"}, {key: "3"}, // another one, with two secrets
		{hash: "1"}, {block: "2"}, {}, {}, // each its own
	}
	c := NewCollector(unlimited)
	for i, of := range told {
		r := record(string(rune('a'+i)), now, "x", "y", 5)
		for value, to := range map[*string]**string{&of.key: &r.QuestionKey, &of.hash: &r.QueryHash, &of.block: &r.BlockID} {
			if *value != "" {
				*to = value
			}
		}
		c.Add(r)
	}
	w := c.window()
	var got []int
	for _, s := range w.sessions {
		got = append(got, s.cluster)
	}
	if want := []int{0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4, 5}; !slices.Equal(got, want) || w.clusters != 6 {
		t.Errorf("questions %v, want %v; %d in all", got, want, w.clusters)
	}
}
