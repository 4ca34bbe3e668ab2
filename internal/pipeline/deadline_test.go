package pipeline

import (
	"testing"
	"testing/quick"
	"time"

	"github.com/councild/councild/internal/council"
)

// For every time budget, the stages end one after the other and before the budget.
func TestStagesEndBeforeTheRun(t *testing.T) {
	ends := func(ms uint32) bool {
		timeout := time.Millisecond + time.Duration(ms)*time.Millisecond
		plan := council.Plan{Limits: council.Limits{Timeout: timeout}, Stages: council.Stages(council.ModeCouncil, nil, nil, nil)}
		one, two, three := endOf(plan, council.Stage1), endOf(plan, council.Stage2), endOf(plan, council.Stage3)
		return 0 < one && one < two && two < three && three < timeout
	}
	if err := quick.Check(ends, nil); err != nil || !ends(0) {
		t.Error(err)
	}
}
