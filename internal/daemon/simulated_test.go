package daemon_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// TestCouncilOfAbilities has simulated models of planted abilities answer a question of the examples:
// those whose accuracy is 1 are right, reviewers rank as their discernment says, and the chairman follows
// the ranking. What such models cost is known.
func TestCouncilOfAbilities(t *testing.T) {
	testkit.Slow(t)
	const question = `{"query": "What is the capital of Australia?\n\nEnd with a line that begins with \"ANSWER:\"."}`
	for discernment, right := range map[string]bool{"10": true, "-10": false} {
		able := func(name, accuracy string) string {
			return "sim:" + name + "?accuracy=" + accuracy + "&discernment=" + discernment
		}
		members := []string{able("amber", "1"), able("birch", "0"), able("cedar", "1"), able("dune", "0")}
		d := daemontest.Start(t, map[string]string{
			"MODELS": strings.Join(members, ","), "CHAIRMAN": "sim:amber?accuracy=0&insight=0", "MAX_OUTPUT_TOKENS": "4096",
		})
		s := d.Ask(t, question)
		for i, answer := range s.Stage1 {
			if is := strings.HasSuffix(*answer.Response, "\nANSWER: Canberra"); is != (i%2 == 0) {
				t.Errorf("%s answers right: %v", answer.Model, is)
			}
		}
		for place, standing := range s.Metadata.AggregateRankings {
			if first := place < 2; first != (strings.Contains(standing.Model, "accuracy=1") == right) {
				t.Errorf("with discernment %s, %s has place %d", discernment, standing.Model, place+1)
			}
		}
		if is := strings.HasSuffix(s.Stage3.Response, "\nANSWER: Canberra"); is != right {
			t.Errorf("with discernment %s, the council answers right: %v", discernment, is)
		}
		_, data := d.Call(t, "POST", "/v1/council/estimate", question)
		var e spend.Estimate
		if err := json.Unmarshal(data, &e); err != nil || e.Upper == nil || len(e.Unpriced) > 0 {
			t.Errorf("estimate %s, %v", data, err)
		}
	}
}
