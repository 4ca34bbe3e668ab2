package gate

import (
	"encoding/json"
	"testing"

	"github.com/councild/councild/internal/council"
)

const refund = `diff --git a/pay/refund.go b/pay/refund.go
index 1111111..2222222 100644
--- a/pay/refund.go
+++ b/pay/refund.go
@@ -46,6 +46,9 @@ func remove(id string) {
 	i := slices.IndexFunc(refunds, func(r Refund) bool {
 		return r.ID == id
 	})
-	check(i)
+	i = max(i, 0)
+	refunds = append(refunds[:i], refunds[i+1:]...)
+	total -= refunds[i].Amount
+	log(id)
 	unlock()
 }
`

// planOf returns a plan in which each seat finds and judges. A seat is "id" or "id maker".
func planOf(t *testing.T, r Request, seats ...council.Member) council.Plan {
	t.Helper()
	input, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return council.Plan{
		Seed: 7, MarkerKey: "key", Task: &council.TaskPlan{Name: TaskName, Input: input},
		Stages: []council.StagePlan{{Kind: council.KindTask1, Seats: seats}, {Kind: council.KindTask2, Seats: seats}},
	}
}

func TestEndToEnd(t *testing.T) {
	var seats []council.Member
	for _, id := range []string{"a", "b", "c", "d"} {
		seats = append(seats, council.Member{ID: id, Model: id + "/model"})
	}
	plan := planOf(t, Request{Diff: refund}, seats...)
	calls, err := Gate{}.Calls(plan, nil)
	if err != nil || len(calls) != 4 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	found := `{"findings":[{"file":"pay/refund.go","line":50,"quote":"refunds = append(refunds[:i], refunds[i+1:]...)","severity":"blocking","what":"an unknown id deletes another record","scenario":"DELETE with an unknown id"}]}`
	round1 := council.TaskRound{}
	for _, c := range calls {
		text := `{"findings":[]}`
		if c.Seat == "a" {
			text = found
		}
		round1.Replies = append(round1.Replies, council.TaskReply{Seat: c.Seat, Text: text})
	}
	calls, err = Gate{}.Calls(plan, []council.TaskRound{round1})
	if err != nil || len(calls) != 3 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	round2 := council.TaskRound{}
	for _, c := range calls {
		round2.Replies = append(round2.Replies, council.TaskReply{Seat: c.Seat, Text: `{"votes":[{"finding":"F1","why":"x","vote":"confirm","severity":"blocking"}],"same":[]}`})
	}
	result, err := Gate{}.Result(plan, []council.TaskRound{round1, round2})
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Blocked || len(r.Findings) != 1 || r.Findings[0].Start != 50 {
		t.Errorf("%s", result)
	}
	t.Logf("%s", calls[0].Messages[1].Content)
	t.Logf("%s", result)
}
