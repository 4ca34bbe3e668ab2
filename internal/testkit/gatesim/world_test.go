package gatesim

import (
	"testing"

	"github.com/councild/councild/internal/gate"
)

// run returns the result of a world without a network, and its cases.
func run(t *testing.T, w World, seeded, clean int) (Result, []gate.Case) {
	t.Helper()
	ask, err := Direct(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := w.Cases(seeded, clean)
	if err := Fill(t.Context(), cases, ask); err != nil {
		t.Fatal(err)
	}
	return Evaluate(cases), cases
}

// In the base world the gate is better than the best member, and reports no invented quote. The command gate of the
// module lab has the whole evaluation.
func TestBaseWorld(t *testing.T) {
	t.Parallel()
	r, cases := run(t, Worlds()[0], 20, 120)
	t.Logf("\n%s\n%s\n%s", Heading, r.Row("base"), gate.NewTrial(cases).Text())
	if *r.Merged.Precision.Value < .9 || *r.Merged.Recall.Value < .9 {
		t.Errorf("merging has precision %s and recall %s", figure(r.Merged.Precision), figure(r.Merged.Recall))
	}
	if r.Invented > 0 || r.Dropped == 0 || r.Undecided > 0 {
		t.Errorf("%d invented quotes are reported, %d are dropped, %d diffs are undecided", r.Invented, r.Dropped, r.Undecided)
	}
	if *r.PrecisionAbove.Value <= 0 || *r.RecallAbove.Lower <= 0 {
		t.Errorf("above the best member: precision %s, recall %s", figure(r.PrecisionAbove), figure(r.RecallAbove))
	}
	if *r.Council.FalseBlocks.Value > .15 || *r.Council.Blocks.Value < .9 {
		t.Errorf("blocked: clean %s, seeded %s", figure(r.Council.FalseBlocks), figure(r.Council.Blocks))
	}
}

// One member of four that obeys the diffs costs recall, and nothing else.
func TestOneMemberObeys(t *testing.T) {
	t.Parallel()
	results := map[string]Result{}
	for _, w := range Worlds() {
		if w.Order == PassOrder {
			results[w.Name], _ = run(t, w, 20, 60)
		}
	}
	none := results["no member obeys an order to pass"]
	one := results["one member obeys it"]
	if *one.Council.Recall.Value >= *none.Council.Recall.Value || *one.Council.Recall.Value < .35 {
		t.Errorf("recall %s becomes %s", figure(none.Council.Recall), figure(one.Council.Recall))
	}
	if *one.Council.Precision.Value < *none.Council.Precision.Value ||
		*one.Council.FalseBlocks.Value > *none.Council.FalseBlocks.Value || one.Invented > 0 ||
		*one.Merged.Precision.Value < .9 || *one.Merged.Recall.Value < .9 {
		t.Errorf("one member changes %s to %s", none.Row(""), one.Row(""))
	}
}
