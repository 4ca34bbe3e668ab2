package runlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
)

// The sides of plans that builds before 0.1.0 stored are those of today.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const members = `"members":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"},{"id":"e"}],`
	terms := council.SidePlan{Name: "terms", Tally: true, Threshold: 0.3}
	embedding := council.SidePlan{
		Name: "embedding", Member: council.Member{Model: "m"}, Seats: []string{"embedding"}, EmbedBytes: 120_000, MoneyEnd: 0.8, Records: true,
		Threshold: 0.3,
	}
	clusters := embedding
	clusters.Version = "embedding-1"
	clusters.Records = false
	refused := embedding
	refused.Refused = "no"
	refused.Seats = nil
	refused.EmbedBytes = 0
	judge := council.SidePlan{
		Name: "judge", Version: "judge-1", Member: council.Member{ID: "j", Model: "m"}, Seats: []string{"judge-1", "judge-2"}, MoneyEnd: 0.5,
		MarkerKey: "k", Threshold: 0.3, Axes: []string{"age"},
	}
	for _, tt := range []struct {
		name, data string
		want       []council.SidePlan
	}{
		{"nothing", `{"plan":{"rules":{"lexicon_limit":0.3}}}`, nil},
		{"terms", `{"plan":{"rules":{"demographics":true,"lexicon_limit":0.3}}}`, []council.SidePlan{terms}},
		{
			"for the records", `{"plan":{` + members + `"rules":{"lexicon_limit":0.3,"embedding_model":"m","consent":1}}}`,
			[]council.SidePlan{embedding},
		},
		{
			"clusters", `{"plan":{` + members + `"rules":{"lexicon_limit":0.3,"embedding_model":"m","cluster_rule":"embedding-1"}}}`,
			[]council.SidePlan{clusters},
		},
		{
			"refused", `{"plan":{` + members + `"rules":{"lexicon_limit":0.3,"embedding_model":"m","consent":1,"embedding_refused":"no"}}}`,
			[]council.SidePlan{refused},
		},
		{
			"a judge", `{"plan":{"judge_key":"k","rules":{"demographics":true,"lexicon_limit":0.3,"judge":{"id":"j","model":"m"},` +
				`"judge_axes":["age"],"judge_prompt":"judge-1"}}}`,
			[]council.SidePlan{terms, judge},
		},
		{"one model", `{"plan":{"direct":true,"rules":{"demographics":true}}}`, nil},
		{"a plan of today", `{"format":1,"session":{},"plan":{"rules":{"demographics":true}}}`, nil},
	} {
		got, err := readAccepted([]byte(tt.data))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Plan.Sides); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
}
