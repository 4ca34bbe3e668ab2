package gate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/councild/councild/internal/council"
)

// foundBy returns who found each finding of a report.
func foundBy(r Report) string {
	var groups []string
	for _, f := range r.Findings {
		groups = append(groups, strings.Join(f.FoundBy, "+"))
	}
	slices.Sort(groups)
	return strings.Join(groups, " ")
}

func TestMerge(t *testing.T) {
	const far = `--- a/x.go
+++ b/x.go
@@ -1,3 +1,3 @@
 first line of the file
-second line of the file
+changed line of the file
@@ -12,1 +12,1 @@
-old line number twelve
+new line number twelve
@@ -13,1 +14,1 @@
-old line number fourteen
+new line number fourteen
`
	diff := strings.Replace(far, "@@ -1,3 +1,3 @@", "@@ -1,2 +1,2 @@", 1)
	in := func(quote, what string) said {
		return said{File: "x.go", Line: 1, Quote: quote, What: what, Severity: Advisory}
	}
	for _, tt := range []struct {
		name  string
		diff  string
		finds map[string][]said
		want  string
	}{
		{"one line, other words", "", map[string][]said{"a": {blocking(deletes, "an unknown id deletes a record")}, "b": {advisory(deletes, "out of range")}}, "a+b"},
		{"overlapping runs", "", map[string][]said{"a": {blocking("i = max(i, 0)\n"+deletes, "x")}, "b": {advisory(deletes+"\n"+subtracts, "y")}}, "a+b"},
		{"close, half of the words", "", map[string][]said{"a": {blocking(deletes, "wrong record deleted silently")}, "b": {advisory(subtracts, "wrong record deleted always")}}, "a+b"},
		{"close, less than half of the words", "", map[string][]said{"a": {blocking(deletes, "wrong record deleted silently")}, "b": {advisory(subtracts, "wrong amount subtracted always")}}, "a b"},
		{"close, exactly half of the words", "", map[string][]said{"a": {blocking(deletes, "wrong record")}, "b": {advisory(subtracts, "wrong amount")}}, "a+b"},
		{"filling words do not count", "", map[string][]said{"a": {blocking(deletes, "it is the id that is not in there")}, "b": {advisory(subtracts, "it is the sum that is not in there")}}, "a b"},
		{"of one member", "", map[string][]said{"a": {blocking(deletes, "x"), blocking(deletes, "x")}}, "a a"},
		{"one of a member's two", "", map[string][]said{"a": {blocking(deletes, "x"), blocking(deletes, "y")}, "b": {blocking(deletes, "y")}}, "a a+b"},
		{"a chain does not merge", "", map[string][]said{"a": {blocking(deletes, "x")}, "b": {blocking(deletes+"\n"+subtracts, "y")}, "c": {blocking(subtracts, "z")}}, "a+b c"},
		{"ten lines apart", diff, map[string][]said{"a": {in("changed line of the file", "one two three")}, "b": {in("new line number twelve", "one two three")}}, "a+b"},
		{"eleven lines apart", strings.Replace(diff, "+12,1", "+13,1", 1), map[string][]said{"a": {in("changed line of the file", "one two three")}, "b": {in("new line number twelve", "one two three")}}, "a b"},
		{"in two files", diff + strings.ReplaceAll(diff, "x.go", "y.go"), map[string][]said{"a": {in("new line number twelve", "one two three")}, "b": {{File: "y.go", Quote: "new line number twelve", What: "one two three"}}}, "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := script{request: Request{Diff: tt.diff}, seats: members("a b c"), finds: tt.finds}
			if got := foundBy(s.play(t)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Nine findings of four members become six. One line has two different defects, and two members find both of them.
func TestNineFindingsBecomeSix(t *testing.T) {
	s := script{seats: members("a b c d"), finds: map[string][]said{
		"a": {
			blocking(deletes, "an unknown id deletes another record"),
			advisory(deletes, "the slice keeps a reference to the removed record"),
			advisory(`log.Print("removed ", id)`, "the log reveals the id of a customer"),
		},
		"b": {
			blocking("i = max(i, 0)\n"+deletes, "deletes another record if the id is unknown"),
			advisory(deletes, "a reference to the removed record stays in the slice"),
			blocking(subtracts, "the amount of the next record is subtracted"),
		},
		"c": {
			blocking(subtracts, "panics after the last record was removed"),
			advisory("check(index, refunds)", "the index is no longer checked"),
		},
		"d": {blocking("unlock(refunds)", "the lock stays held if the function panics")},
	}}
	r := s.play(t)
	if got, want := foundBy(r), "a a+b a+b b+c c d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, f := range r.Findings {
		if len(f.Wordings) != len(f.FoundBy) {
			t.Errorf("%d wordings of %v", len(f.Wordings), f.FoundBy)
		}
		for _, words := range []string{"reference", "another record"} {
			if n := len(slices.DeleteFunc(slices.Clone(f.Wordings), func(w Wording) bool { return !strings.Contains(w.What, words) })); n == 1 {
				t.Errorf("only one wording of %v has %q: %+v", f.FoundBy, words, f.Wordings)
			}
		}
	}
}

func TestSame(t *testing.T) {
	finds := map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")},
		"b": {blocking(subtracts, "sums are wrong")},
	}
	both := [][]string{{"unknown", "sums"}}
	for _, tt := range []struct {
		name  string
		seats string
		finds map[string][]said
		same  map[string][][]string
		want  string
	}{
		{"two of two", "a b c d", finds, map[string][][]string{"c": both, "d": both}, "a+b"},
		{"two of three", "a b c d e", finds, map[string][][]string{"c": both, "d": both}, "a+b"},
		{"two of four", "a b c d e f", finds, map[string][][]string{"c": both, "d": both}, "a b"},
		{"one of one", "a b c", finds, map[string][][]string{"c": both}, "a b"},
		{"two seats of one maker", "a b c1 c2", finds, map[string][][]string{"c1": both, "c2": both}, "a b"},
		{"both of one member", "a c d", map[string][]said{"a": {finds["a"][0], finds["b"][0]}}, map[string][][]string{"c": both, "d": both}, "a a"},
		{"nobody", "a b c d", finds, nil, "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := script{seats: members(tt.seats), finds: tt.finds, same: tt.same, votes: all("confirm blocking", "c c1 c2 d e f")}
			if got := foundBy(s.play(t)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// If a reviewer saw one defect as two findings, its confirmation of one of them counts.
func TestVotesOnTheSame(t *testing.T) {
	both := [][]string{{"unknown", "sums"}}
	s := script{seats: members("a b c d"), finds: map[string][]said{
		"a": {blocking(deletes, "an unknown id deletes a record")}, "b": {blocking(subtracts, "sums are wrong")},
	}, same: map[string][][]string{"c": both, "d": both}, votes: map[string]map[string]string{
		"a": {"sums": "reject"},
		"c": {"unknown": "reject", "sums": "confirm blocking"},
		"d": {"unknown": "reject", "sums": "unsure"},
	}}
	r := s.play(t)
	f := r.Findings[0]
	if len(r.Findings) != 1 || fmt.Sprint(f.FoundBy, f.ConfirmedBy, f.RejectedBy) != "[a b] [c] [d]" || !f.Blocks {
		t.Errorf("%+v", r.Findings)
	}
}

// The result does not depend on the order in which replies arrive, or in which a member lists its findings, or on the
// order of the seats.
func TestOrderOfArrivalChangesNothing(t *testing.T) {
	quotes := []string{deletes, subtracts, "i = max(i, 0)", deletes + "\n" + subtracts, "check(index, refunds)", "unlock(refunds)", "nowhere in the diff"}
	words := []string{"wrong", "record", "deleted", "sum", "panic", "lock", "log"}
	rapid.Check(t, func(t *rapid.T) {
		s := script{finds: map[string][]said{}, votes: map[string]map[string]string{}}
		s.seats = members("a1 a2 b c d")[:rapid.IntRange(2, 5).Draw(t, "seats")]
		for _, m := range s.seats {
			for range rapid.IntRange(0, 4).Draw(t, "findings") {
				s.finds[m.ID] = append(s.finds[m.ID], said{
					File: "pay/refund.go", Line: rapid.IntRange(40, 60).Draw(t, "line"), Quote: rapid.SampledFrom(quotes).Draw(t, "quote"),
					What:     strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 4).Draw(t, "words"), " "),
					Severity: rapid.SampledFrom([]Severity{Blocking, Advisory}).Draw(t, "severity"),
				})
			}
			vote := rapid.SampledFrom([]string{"confirm blocking", "confirm advisory", "reject", "unsure"}).Draw(t, "vote")
			s.votes[m.ID] = map[string]string{"": vote}
		}
		plan, rounds, _ := s.rounds(t)
		want := reportOf(t, plan, rounds)
		if a, b := asJSON(t, reportOf(t, plan, rounds)), asJSON(t, want); a != b {
			t.Fatalf("the same replies give\n%s\n%s", a, b)
		}
		check(t, want)

		other := s
		other.finds = maps.Clone(s.finds)
		for seat, finds := range s.finds {
			other.finds[seat] = rapid.Permutation(finds).Draw(t, "findings of "+seat)
		}
		other.seats = rapid.Permutation(s.seats).Draw(t, "seats")
		plan, rounds, _ = other.rounds(t)
		for i := range rounds {
			rounds[i].Replies = rapid.Permutation(rounds[i].Replies).Draw(t, "replies")
		}
		got := reportOf(t, plan, rounds)
		if a, b := asJSON(t, got), asJSON(t, want); a != b {
			t.Fatalf("in another order:\n%s\n%s", a, b)
		}
	})
}

// check fails if a report breaks a rule.
func check(t rapid.TB, r Report) {
	t.Helper()
	blocks := 0
	for _, f := range r.Findings {
		seen := map[string]bool{}
		for _, seat := range slices.Concat(f.FoundBy, f.ConfirmedBy, f.RejectedBy) {
			if seen[seat] {
				t.Errorf("%s stands at several places of %+v", seat, f)
			}
			seen[seat] = true
		}
		for l := range strings.SplitSeq(f.Quote, "\n") {
			if !strings.Contains(refund, l) {
				t.Errorf("%q is not in the diff", l)
			}
		}
		if (f.Blocks || f.Shown) && !f.Confirmed || len(f.Wordings) != len(f.FoundBy) || f.Start < 46 || f.End > 55 || f.End < f.Start {
			t.Errorf("%+v", f)
		}
		if f.Blocks {
			blocks++
		}
	}
	if (r.Verdict == Blocked) != (blocks > 0) || blocks > 0 && r.Makers < minMakers {
		t.Errorf("the verdict is %s of %d makers, and %d block", r.Verdict, r.Makers, blocks)
	}
}

func asJSON(t rapid.TB, r Report) string {
	t.Helper()
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The calls of both rounds are the same in each process.
func TestCallsAreReproducible(t *testing.T) {
	s := script{seats: members("a b c"), finds: map[string][]said{"a": {blocking(deletes, "x")}, "b": {blocking(subtracts, "y")}}}
	plan, rounds, second := s.rounds(t)
	again, err := Gate{}.Calls(plan, rounds[:1])
	if err != nil || fmt.Sprint(again) == "" {
		t.Fatal(err)
	}
	for i := range second {
		if second[i].Messages[1].Content != again[i].Messages[1].Content {
			t.Errorf("call %d differs", i)
		}
	}
	if third, err := (Gate{}).Calls(plan, rounds); third != nil || err != nil {
		t.Errorf("a third round has %d calls, %v", len(third), err)
	}
	_, err = Gate{}.Calls(council.Plan{Task: &council.TaskPlan{Input: []byte("{")}}, nil)
	if failure := (*council.Error)(nil); err == nil || !asError(err, &failure) {
		t.Errorf("a request that cannot be read: %v", err)
	}
}

func asError(err error, to **council.Error) bool {
	e, ok := err.(*council.Error) //nolint:errorlint // the interface asks for this type itself
	*to = e
	return ok
}
