package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
)

// all returns votes of several seats on all findings.
func all(vote, seats string) map[string]map[string]string {
	votes := map[string]map[string]string{}
	for seat := range strings.FieldsSeq(seats) {
		votes[seat] = map[string]string{"": vote}
	}
	return votes
}

// with returns votes and further votes.
func with(votes map[string]map[string]string, vote, seats string) map[string]map[string]string {
	maps.Copy(votes, all(vote, seats))
	return votes
}

func TestVerdict(t *testing.T) {
	one := map[string][]said{"a": {blocking(deletes, "an unknown id deletes a record")}}
	two := map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")}, "b": {blocking(deletes, "the wrong record vanishes")},
	}
	fail := func(code council.FailureCode, seats string) map[string]council.FailureCode {
		codes := map[string]council.FailureCode{}
		for seat := range strings.FieldsSeq(seats) {
			codes[seat] = code
		}
		return codes
	}
	for _, tt := range []struct {
		name string
		script
		want   Verdict
		reason string
		first  string // what the first finding is: blocks, shown, confirmed
	}{
		{"three makers call it blocking", script{seats: members("a b c"), finds: one, votes: all("confirm blocking", "b c")}, Blocked, "1 finding", "blocks shown confirmed"},
		{"two of four call it blocking", script{seats: members("a b c d"), finds: one, votes: with(all("confirm advisory", "c d"), "confirm blocking", "b")}, Pass, "No finding", "shown confirmed"},
		{"three of five call it blocking", script{seats: members("a b c d e"), finds: one, votes: with(all("confirm advisory", "d e"), "confirm blocking", "b c")}, Blocked, "1 finding", "blocks shown confirmed"},
		{"three of six call it blocking", script{seats: members("a b c d e f"), finds: one, votes: with(all("confirm advisory", "d e f"), "confirm blocking", "b c")}, Pass, "", "shown confirmed"},
		{"three behind it, two reject it", script{seats: members("a b c d e"), finds: one, votes: with(all("confirm blocking", "b c"), "reject", "d e")}, Pass, "", ""},
		{"three behind it, one rejects it", script{seats: members("a b c d"), finds: one, votes: with(all("confirm blocking", "b c"), "reject", "d")}, Blocked, "", "blocks shown confirmed"},
		{"the finder alone", script{seats: members("a b c"), finds: one, votes: all("unsure", "b c")}, Pass, "", ""},
		{"found by two, rejected by one", script{seats: members("a b c"), finds: two, votes: all("reject", "c")}, Pass, "", ""},
		{"found by two, the other is unsure", script{seats: members("a b c"), finds: two, votes: all("unsure", "c")}, Pass, "", "shown confirmed"},
		{"found by two of three, confirmed", script{seats: members("a b c"), finds: two, votes: all("confirm blocking", "c")}, Blocked, "", "blocks shown confirmed"},
		{"seats of one maker have one vote", script{seats: members("a b1 b2 b3 c"), finds: one, votes: with(all("confirm blocking", "b1 b2 b3"), "unsure", "c")}, Pass, "", "shown confirmed"},
		{"most seats of a maker decide", script{seats: members("a b1 b2 b3 c d"), finds: one, votes: with(all("confirm blocking", "b1 b2 c d"), "reject", "b3")}, Blocked, "", "blocks shown confirmed"},
		{"a maker that is divided has no vote", script{seats: members("a b1 b2 c"), finds: one, votes: with(all("confirm blocking", "b1 c"), "reject", "b2")}, Pass, "", "shown confirmed"},
		{"a maker that is divided about the severity", script{seats: members("a b1 b2 c"), finds: one, votes: with(all("confirm blocking", "b1 c"), "confirm advisory", "b2")}, Pass, "", "shown confirmed"},
		{"another model of the finder's maker rejects it", script{seats: members("a1 a2 b c"), finds: map[string][]said{"a1": one["a"]}, votes: with(all("confirm blocking", "b c"), "reject", "a2")}, Pass, "", "shown confirmed"},
		{"no finding", script{seats: members("a b c")}, Pass, "No finding blocks.", ""},
		{"no finding of one maker", script{seats: members("a1 a2")}, Undecided, "1 maker ", ""},
		{"two makers cannot block", script{seats: members("a b"), finds: one, votes: all("confirm blocking", "b")}, Undecided, "fewer than 3 makers", "shown confirmed"},
		{"two makers pass what is advisory", script{seats: members("a b"), finds: one, votes: all("confirm advisory", "b")}, Pass, "", "shown confirmed"},
		{"two makers reject", script{seats: members("a b"), finds: one, votes: all("reject", "b")}, Pass, "", ""},
		{"one of three fails in the second round", script{seats: members("a b c"), finds: one, votes: all("confirm blocking", "b"), fail2: fail(council.FailTimeout, "c")}, Undecided, "fewer than 3 makers", "shown confirmed"},
		{"all but one fail in the first round", script{seats: members("a b c"), finds: one, fail1: fail(council.FailTimeout, "b c"), votes: all("unsure", "b c")}, Undecided, "1 maker ", ""},
		{"all reviewers fail", script{seats: members("a b c"), finds: one, fail2: fail(council.FailTimeout, "b c")}, Undecided, "1 maker ", ""},
		{"all fail", script{seats: members("a b c"), fail1: fail(council.FailTimeout, "a b c")}, Undecided, "0 makers", ""},
		{"no room in the contexts", script{seats: members("a b c"), fail1: fail(council.FailTooLong, "a b c")}, Undecided, "too large for the members", ""},
		{"the cap, in the first round", script{seats: members("a b c"), fail1: fail(council.FailBudget, "c")}, Undecided, "cost or token limit", ""},
		{"the cap, in the second round", script{seats: members("a b c d"), finds: one, votes: all("reject", "b c"), fail2: fail(council.FailBudget, "d")}, Undecided, "cost or token limit", ""},
		{"the cap, but three makers call it blocking", script{seats: members("a b c d"), finds: one, votes: all("confirm blocking", "b c"), fail2: fail(council.FailBudget, "d")}, Blocked, "", "blocks shown confirmed"},
		{"nothing to review", script{request: Request{Diff: refund, Exclude: []string{"*.go"}}, seats: members("a b c")}, Pass, "nothing to review", ""},
		{"too large", script{request: Request{Diff: "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+" + strings.Repeat("x", MaxReviewedBytes)}, seats: members("a b c")}, Undecided, "too large", ""},
		{"votes on own findings only", script{seats: members("a b"), finds: map[string][]said{"a": one["a"], "b": {advisory("unlock(refunds)", "held too long")}}, votes: map[string]map[string]string{"a": {"": "reject"}, "b": {"held too": "confirm advisory"}}}, Undecided, "1 maker ", ""},
		{"votes that cannot be read", script{seats: members("a b c"), finds: one, votes: all("perhaps", "b c")}, Undecided, "1 maker ", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.play(t)
			first := ""
			if len(r.Findings) > 0 {
				first = describeFinding(r.Findings[0])
			}
			if r.Verdict != tt.want || !strings.Contains(r.Reason, tt.reason) || first != tt.first {
				t.Errorf("%s: %s The first finding: %q", r.Verdict, r.Reason, first)
			}
		})
	}
}

// If there is nothing to review, or too much, no seat is asked.
func TestNoCalls(t *testing.T) {
	for _, r := range []Request{
		{Diff: refund, Exclude: []string{"*.go"}},
		{Diff: "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+" + strings.Repeat("x", MaxReviewedBytes)},
	} {
		calls, err := Gate{}.Calls(script{request: r, seats: members("a b c")}.plan(t), nil)
		if calls != nil || err != nil {
			t.Errorf("%d calls, %v", len(calls), err)
		}
	}
}

// describeFinding says what a finding is: blocks, shown, confirmed.
func describeFinding(f Finding) string {
	var is []string
	if f.Blocks {
		is = append(is, "blocks")
	}
	if f.Shown {
		is = append(is, "shown")
	}
	if f.Confirmed {
		is = append(is, "confirmed")
	}
	return strings.Join(is, " ")
}

// A round that was not reached leaves the verdict open.
func TestRoundsThatAreMissing(t *testing.T) {
	s := script{seats: members("a b c"), finds: map[string][]said{"a": {blocking(deletes, "an unknown id deletes a record")}}}
	plan, rounds, _ := s.rounds(t)
	for n := range 2 {
		if r := reportOf(t, plan, rounds[:n]); r.Verdict != Undecided || len(r.Members) != 3 {
			t.Errorf("after %d rounds: %+v", n, r)
		}
	}
}

// A reviewer sees all findings without names, in an order of its own. It has no vote on what its model found. It is not
// asked if nothing else was found.
func TestReviewersDoNotJudgeTheirOwn(t *testing.T) {
	s := script{seats: members("a b c d"), finds: map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")},
		"b": {blocking(deletes, "the wrong record vanishes"), blocking("check(index, refunds)", "nothing is checked any more")},
		"c": {advisory(`log.Print("removed ", id)`, "the log reveals an id")},
	}}
	plan := s.plan(t)
	plan.Twins = council.Twins{"d": "c"}
	_, rounds, _ := s.rounds(t)
	calls, err := Gate{}.Calls(plan, rounds[:1])
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, call := range calls {
		ids, shown := blocks(t, call)
		slices.Sort(ids)
		for _, id := range ids {
			for _, words := range []string{"unknown", "checked", "log"} {
				if strings.Contains(shown[id], words) {
					got[call.Seat] += words + " "
				}
			}
		}
		if text := call.Messages[1].Content; strings.Contains(text, `"seat"`) || strings.Contains(text, "d/d") {
			t.Errorf("%s sees names: %s", call.Seat, text)
		}
	}
	for _, seat := range []string{"a", "b", "c", "d"} {
		if len(strings.Fields(got[seat])) != 3 {
			t.Errorf("reviewer %s sees %q", seat, got[seat])
		}
	}
	s.votes = all("reject advisory", "a b c d")
	second := replies(calls, nil, func(c council.Call) string { return s.reply(t, c) })
	rejected := map[string]string{}
	for _, f := range reportOf(t, plan, []council.TaskRound{rounds[0], second}).Findings {
		rejected[strings.Join(f.FoundBy, "")] = strings.Join(f.RejectedBy, "")
	}
	if want := map[string]string{"ab": "cd", "b": "acd", "c": "ab"}; fmt.Sprint(rejected) != fmt.Sprint(want) {
		t.Errorf("the votes that count are %v, want %v", rejected, want)
	}
	alone := script{seats: members("a b"), finds: map[string][]said{"a": s.finds["a"]}}
	if _, _, second := alone.rounds(t); len(second) != 1 || second[0].Seat != "b" {
		t.Errorf("%d reviewers are asked, not b alone", len(second))
	}
}

// Reviewers see the findings in different orders.
func TestOrdersDiffer(t *testing.T) {
	s := script{seats: members("a b c d e"), finds: map[string][]said{"a": {
		blocking(deletes, "one"), blocking("i = max(i, 0)", "two"), blocking("check(index, refunds)", "three"), blocking("unlock(refunds)", "four"),
	}}}
	_, _, second := s.rounds(t)
	first := map[string]bool{}
	for _, call := range second {
		ids, _ := blocks(t, call)
		first[ids[0]] = true
	}
	if len(first) < 3 {
		t.Errorf("the first findings of four reviewers are %v", first)
	}
}

func TestMaxFindings(t *testing.T) {
	s := script{request: Request{MaxFindings: 1}, seats: members("a b c d"), finds: map[string][]said{"a": {
		advisory("i = max(i, 0)", "one"), blocking(deletes, "two"), blocking("unlock(refunds)", "three"),
	}}, votes: all("confirm blocking", "b c d")}
	s.votes["b"] = map[string]string{"two": "reject", "three": "confirm blocking", "one": "confirm blocking"}
	r := s.play(t)
	if r.Verdict != Blocked || len(r.Findings) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, f := range r.Findings {
		if !f.Blocks || f.Shown != (i == 0) {
			t.Errorf("finding %d is %+v", i, f)
		}
	}
	if last := r.Findings[2]; last.Wordings[0].What != "two" {
		t.Errorf("the finding with the fewest makers is %+v", last)
	}
}

func TestIgnored(t *testing.T) {
	s := script{seats: members("a b c"), finds: map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")},
		"b": {blocking(deletes+"\n"+subtracts, "the wrong record vanishes")},
	}, votes: all("confirm blocking", "a b c")}
	plain := s.play(t)
	s.request.Ignore = []Ignored{{Fingerprint: plain.Findings[0].Fingerprint, Reason: "known\nfor long"}, {Fingerprint: "0123456789abcdef:1", Reason: "x"}}
	r := s.play(t)
	f := r.Findings[0]
	if plain.Verdict != Blocked || r.Verdict != Pass || f.Shown || f.Blocks || !f.Confirmed || f.Ignored != "known for long" {
		t.Errorf("%s, then %s: %+v", plain.Verdict, r.Verdict, f)
	}
	s.seats = members("a b")
	if r := s.play(t); r.Verdict != Pass {
		t.Errorf("two makers: %s %s", r.Verdict, r.Reason)
	}
	if len(r.Ignored) != 1 || r.Ignored[0].Fingerprint != plain.Findings[0].Fingerprint {
		t.Errorf("ignored: %+v", r.Ignored)
	}
}
