package gate

import (
	"encoding/json"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

// refund is a diff with a defect in line 50.
const refund = `diff --git a/pay/refund.go b/pay/refund.go
index 1111111..2222222 100644
--- a/pay/refund.go
+++ b/pay/refund.go
@@ -46,6 +46,9 @@ func remove(id string) {
 	i := slices.IndexFunc(refunds, func(r Refund) bool {
 		return r.ID == id
 	})
-	check(index, refunds)
+	i = max(i, 0)
+	refunds = append(refunds[:i], refunds[i+1:]...)
+	total -= refunds[i].Amount
+	log.Print("removed ", id)
 	unlock(refunds)
 }
`

const (
	deletes   = "refunds = append(refunds[:i], refunds[i+1:]...)"
	subtracts = "total -= refunds[i].Amount"
)

// said is a finding as a member writes it.
type said struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Quote    string   `json:"quote"`
	What     string   `json:"what"`
	Scenario string   `json:"scenario"`
	Severity Severity `json:"severity"`
}

// blocking returns a finding in refund that its member calls blocking.
func blocking(quote, what string) said {
	return said{File: "pay/refund.go", Line: 50, Quote: quote, What: what, Severity: Blocking}
}

func advisory(quote, what string) said {
	return said{File: "pay/refund.go", Line: 50, Quote: quote, What: what, Severity: Advisory}
}

// script says what the seats reply.
type script struct {
	request Request
	seats   []council.Member
	finds   map[string][]said
	// votes has the vote of each seat on the findings whose words have the key, such as "confirm blocking".
	votes map[string]map[string]string
	same  map[string][][]string // in the words of the findings
	fail1 map[string]council.FailureCode
	fail2 map[string]council.FailureCode
}

// members returns seats. The maker of a seat is its name up to a digit, so a1 and a2 have one maker.
func members(names string) (seats []council.Member) {
	for name := range strings.FieldsSeq(names) {
		seats = append(seats, council.Member{ID: name, Model: strings.TrimRight(name, "0123456789") + "/" + name})
	}
	return seats
}

// plan returns a plan in which each seat finds and judges.
func (s script) plan(t rapid.TB) council.Plan {
	t.Helper()
	if s.request.Diff == "" {
		s.request.Diff = refund
	}
	input, err := json.Marshal(s.request)
	if err != nil {
		t.Fatal(err)
	}
	return council.Plan{
		Seed: 7, MarkerKey: "key", Task: &council.TaskPlan{Name: TaskName, Input: input},
		Stages: []council.StagePlan{{Kind: council.KindTask1, Seats: s.seats}, {Kind: council.KindTask2, Seats: s.seats}},
	}
}

// blocks returns the findings that a call shows, by id.
func blocks(t rapid.TB, call council.Call) (ids []string, shown map[string]string) {
	t.Helper()
	shown = map[string]string{}
	text := call.Messages[1].Content
	for {
		_, rest, ok := strings.Cut(text, "=== BEGIN FINDING ")
		if !ok {
			return ids, shown
		}
		head, body, _ := strings.Cut(rest, " ===\n")
		_, id, _ := strings.Cut(head, ": ")
		shown[id], text, _ = strings.Cut(body, "\n=== END FINDING ")
		ids = append(ids, id)
	}
}

// reply returns the votes of a call's seat.
func (s script) reply(t rapid.TB, call council.Call) string {
	t.Helper()
	type vote struct{ Finding, Why, Vote, Severity string }
	var reply struct {
		Votes []vote     `json:"votes"`
		Same  [][]string `json:"same"`
	}
	ids, shown := blocks(t, call)
	for _, id := range ids {
		for words, v := range s.votes[call.Seat] {
			if stance, severity, _ := strings.Cut(v, " "); strings.Contains(shown[id], words) {
				reply.Votes = append(reply.Votes, vote{id, "because", stance, severity})
			}
		}
	}
	for _, set := range s.same[call.Seat] {
		var same []string
		for _, id := range ids {
			if slices.ContainsFunc(set, func(words string) bool { return strings.Contains(shown[id], words) }) {
				same = append(same, id)
			}
		}
		reply.Same = append(reply.Same, same)
	}
	text, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replies returns the replies to calls.
func replies(calls []council.Call, fail map[string]council.FailureCode, text func(council.Call) string) (round council.TaskRound) {
	for _, c := range calls {
		r := council.TaskReply{Seat: c.Seat}
		if code := fail[c.Seat]; code != "" {
			r.Error = &council.Failure{Code: code, Message: "it failed"}
		} else {
			r.Text = text(c)
		}
		round.Replies = append(round.Replies, r)
	}
	return round
}

// rounds plays both rounds. It returns the calls of the second one too.
func (s script) rounds(t rapid.TB) (plan council.Plan, rounds []council.TaskRound, second []council.Call) {
	t.Helper()
	plan = s.plan(t)
	calls, err := Gate{}.Calls(plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	rounds = append(rounds, replies(calls, s.fail1, func(c council.Call) string {
		text, _ := json.Marshal(map[string]any{"findings": append([]said{}, s.finds[c.Seat]...)})
		return string(text)
	}))
	second, err = Gate{}.Calls(plan, rounds)
	if err != nil {
		t.Fatal(err)
	}
	rounds = append(rounds, replies(second, s.fail2, func(c council.Call) string { return s.reply(t, c) }))
	return plan, rounds, second
}

// play returns the report.
func (s script) play(t rapid.TB) Report {
	t.Helper()
	plan, rounds, _ := s.rounds(t)
	return reportOf(t, plan, rounds)
}

func reportOf(t rapid.TB, plan council.Plan, rounds []council.TaskRound) (r Report) {
	t.Helper()
	text, err := Gate{}.Result(plan, rounds)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
