package council_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

func TestParseScale(t *testing.T) {
	tests := []struct {
		scale     string
		low, high float64
		ok        bool
	}{
		{"1-10", 1, 10, true},
		{"0-1", 0, 1, true},
		{"-5-5", -5, 5, true},
		{"-10--5", -10, -5, true},
		{"0.5-1e2", 0.5, 100, true},
		{"", 0, 0, false},
		{"10", 0, 0, false},
		{"10-1", 0, 0, false},
		{"1-1", 0, 0, false},
		{"a-b", 0, 0, false},
		{"0-Inf", 0, 0, false},
		{"NaN-1", 0, 0, false},
		{"1-10-100", 0, 0, false},
		{"-1e308-1e308", 0, 0, false},
	}
	for _, tt := range tests {
		low, high, ok := council.ParseScale(tt.scale)
		if ok != tt.ok || ok && (low != tt.low || high != tt.high) {
			t.Errorf("%q: got %v to %v, %v", tt.scale, low, high, ok)
		}
	}
}

func TestGroups(t *testing.T) {
	tests := []struct {
		name   string
		ballot council.Ballot
		want   [][]council.Label
	}{
		{"nothing ranked", council.Ballot{}, nil},
		{"a strict order", council.Ballot{Ranking: []council.Label{"A", "B"}}, [][]council.Label{{"A"}, {"B"}}},
		{
			"ties at both ends", council.Ballot{
				Ranking: []council.Label{"A", "B", "C", "D", "E"}, Tied: [][]council.Label{{"B", "A"}, {"D", "E"}},
			}, [][]council.Label{{"A", "B"}, {"C"}, {"D", "E"}},
		},
		{
			"one tie behind another", council.Ballot{
				Ranking: []council.Label{"A", "B", "C", "D"}, Tied: [][]council.Label{{"A", "B"}, {"C", "D"}},
			}, [][]council.Label{{"A", "B"}, {"C", "D"}},
		},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.ballot.Groups()); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// A field that may be missing is null in JSON, never absent and never zero.
func TestMissingIsNull(t *testing.T) {
	record, err := json.Marshal(council.BiasMetricRecord{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(record, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"position", "score_value", "query_hash", "rank_value", "block_id", "response_reasoning_tokens", "question_key"} {
		if v, ok := fields[name]; !ok || v != nil {
			t.Errorf("%s is %v", name, v)
		}
	}
	session, err := json.Marshal(council.Answer{})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"","status":"","response":null,"reasoning":null,"finish_reason":null,"latency_ms":0,"attempts":0,"usage":{"input_tokens":null,` +
		`"output_tokens":null,"reasoning_tokens":null,"cost_usd":null,"partial":false},"model_version":null,"error":null}`
	if string(session) != want {
		t.Errorf("got %s", session)
	}
}

func TestFinish(t *testing.T) {
	if got := (council.Completion{}).Finish(); got != nil {
		t.Errorf("a completion without a finish reason has %q", *got)
	}
	if got := (council.Completion{FinishReason: "stop"}).Finish(); got == nil || *got != "stop" {
		t.Errorf("got %v, want stop", got)
	}
}

// Messages name every order that there is, and no other.
func TestOrderChoices(t *testing.T) {
	names := strings.Fields(strings.NewReplacer(",", "", " or ", " ").Replace(council.OrderChoices))
	for _, name := range names {
		if !council.Order(name).Known() {
			t.Errorf("there is no order %q", name)
		}
	}
	for _, order := range []council.Order{council.OrderBalanced, council.OrderPerReviewer, council.OrderShared} {
		if !slices.Contains(names, string(order)) {
			t.Errorf("%q does not name %q", council.OrderChoices, order)
		}
	}
}

func TestAsFailure(t *testing.T) {
	f := &council.Failure{Code: council.FailTimeout, Message: "late"}
	if got := council.AsFailure(fmt.Errorf("asking: %w", f)); got != f {
		t.Errorf("got %v", got)
	}
	if got := council.AsFailure(nil); got != nil {
		t.Errorf("got %v", got)
	}
	if got := council.AsFailure(errors.New("x")); got.Code != council.FailInternal {
		t.Errorf("got %v", got)
	}
	if got := council.Panicked("x"); got.Code != council.FailInternal || got.Error() != "internal: internal error: x" {
		t.Errorf("got %v", got)
	}
}

func TestError(t *testing.T) {
	cause := errors.New("a secret cause")
	e := &council.Error{Code: council.CodeInternal, Detail: "sorry", Cause: cause}
	if e.Error() != "internal: sorry: a secret cause" || !errors.Is(e, cause) {
		t.Errorf("got %v", e)
	}
	if (&council.Error{Code: council.CodeInvalid, Detail: "no"}).Error() != "invalid: no" {
		t.Error("an error without cause reads badly")
	}
	e = &council.Error{Detail: "no", Fields: []council.FieldError{{Field: "seed", Message: "it is negative", Fix: "give another"}}}
	if got := e.Explain(); got != "no\n  seed: it is negative; give another" {
		t.Errorf("explained as %q", got)
	}
}

func TestTokenBucket(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0-100", 99: "0-100", 100: "100-500", 499: "100-500", 500: "500-2000", 1999: "500-2000", 2000: "2000+", 1 << 40: "2000+",
	} {
		if got := council.TokenBucket(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestQuestion(t *testing.T) {
	one := council.Plan{Conversation: []council.Message{{Role: "user", Content: "Why?"}}}
	if one.Question() != "Why?" {
		t.Errorf("got %q", one.Question())
	}
	two := council.Plan{Conversation: []council.Message{{Role: "assistant", Content: "Because."}, {Role: "user", Content: "Why?"}}}
	if want := "assistant:\nBecause.\n\nuser:\nWhy?"; two.Question() != want {
		t.Errorf("got %q", two.Question())
	}
}

func TestPreview(t *testing.T) {
	for _, tt := range []struct{ question, want string }{
		{"Why?", "Why?"},
		{" \n Why\r\n\tis\u2028the \x00sky blue? \n", "Why is the sky blue?"},
		{strings.Repeat("ü", 200) + " \n", strings.Repeat("ü", 200)},
		{strings.Repeat("ü", 201), strings.Repeat("ü", 199) + "…"},
		{strings.Repeat("a", 198) + " bc", strings.Repeat("a", 198) + "…"},
		{strings.Repeat("a", 198) + " b", strings.Repeat("a", 198) + " b"},
		{"", ""},
	} {
		p := council.Plan{Conversation: []council.Message{
			{Role: council.RoleSystem, Content: "Be brief."}, {Role: council.RoleUser, Content: tt.question},
		}}
		if got := p.Preview(); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.question, got, tt.want)
		}
	}
	if got := (council.Plan{}).Preview(); got != "" {
		t.Errorf("got %q of nothing", got)
	}
}

func TestSlate(t *testing.T) {
	s := council.Slate{{Label: "Response A", Member: "x"}, {Label: "Response B", Member: "y"}}
	if diff := cmp.Diff(
		map[council.Label]council.Seat{"Response A": {Model: "x"}, "Response B": {Model: "y", DisplayIndex: 1}}, s.LabelToModel(),
	); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"x": 0, "y": 1}, s.Positions()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]council.Label{"Response A", "Response B"}, s.Labels()); diff != "" {
		t.Error(diff)
	}
}

func TestPartial(t *testing.T) {
	for ranked, want := range []bool{false, true, true, false} {
		b := council.Ballot{Ranking: []council.Label{"A", "B", "C"}[:ranked]}
		if got := b.Partial(3); got != want {
			t.Errorf("with %d of 3 labels: %v, want %v", ranked, got, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20": "2026-11-20T00:00:00Z", "2026-11-20T10:00:00+02:00": "2026-11-20T08:00:00Z", "yesterday": "",
	} {
		got, err := council.ParseTime(text)
		if (err != nil) != (want == "") {
			t.Errorf("%s: error %v", text, err)
		}
		if formatted := got.Format(time.RFC3339); err == nil && formatted != want {
			t.Errorf("%s is read as %s, want %s", text, formatted, want)
		}
	}
}

// Every event is decoded as what it was encoded from.
func TestDecode(t *testing.T) {
	session := council.Plan{SessionID: "one"}.Session()
	for _, want := range []council.Event{
		{Type: council.EventStarted, Data: council.Started{SessionID: "one"}},
		{Type: council.EventAnswerDelta, Data: council.AnswerDelta{Model: "a", Text: "b"}},
		{Type: council.EventAnswerRestart, Data: council.AnswerRestart{Model: "a", Reason: council.FailReset}},
		{Type: council.EventAnswer, Data: council.Answer{Model: "a"}},
		{Type: council.EventStage1, Data: []council.Answer{{Model: "a"}}},
		{Type: council.EventBallot, Data: council.Review{Model: "a"}},
		{Type: council.EventStage2, Data: session.Metadata.Tally},
		{Type: council.EventDelta, Data: council.Delta{Text: "a"}},
		{Type: council.EventRestart, Data: council.Restart{Model: "a", Reason: council.FailTimeout}},
		{Type: council.EventStage3, Data: council.Synthesis{Model: "a"}},
		{Type: council.EventDone, Data: session},
	} {
		data, err := json.Marshal(want.Data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := council.Entry{Type: want.Type, Data: data}.Decode()
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", want.Type, diff)
		}
	}
	problem := council.Problem{Code: council.CodeDeadline, Detail: "late", Errors: []council.FieldError{{Field: "a"}}, SessionID: "one"}
	data, err := json.Marshal(problem)
	if err != nil {
		t.Fatal(err)
	}
	got, err := council.Entry{Type: council.EventFailed, Data: data}.Decode()
	if err != nil {
		t.Error(err)
	}
	want := &council.Error{Code: council.CodeDeadline, Detail: "late", Fields: problem.Errors, SessionID: "one"}
	if diff := cmp.Diff(council.Event{Type: council.EventFailed, Data: want}, got); diff != "" {
		t.Error(diff)
	}
}
