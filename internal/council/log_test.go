package council_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A plan that went through a log is the plan that was made.
func TestPlanSurvivesJSON(t *testing.T) {
	plans := rapid.MakeCustom[council.Plan](rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
		reflect.TypeFor[*council.GivenReviews](): rapid.Just[any]((*council.GivenReviews)(nil)), // no log has them
		reflect.TypeFor[time.Time](): rapid.Custom(func(t *rapid.T) any {
			return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		}),
		reflect.TypeFor[json.RawMessage](): rapid.Custom(func(t *rapid.T) any {
			return rapid.SampledFrom([]json.RawMessage{[]byte("{}"), []byte(`{"type":"object"}`)}).Draw(t, "schema")
		}),
		reflect.TypeFor[map[string]json.RawMessage](): rapid.Custom(func(t *rapid.T) any {
			return rapid.SampledFrom([]map[string]json.RawMessage{nil, {"top_k": []byte("40")}}).Draw(t, "body")
		}),
	}})
	rapid.Check(t, func(t *rapid.T) {
		plan := plans.Draw(t, "plan")
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		var got council.Plan
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// What a log holds is named as in the HTTP interface.
func TestLogNames(t *testing.T) {
	plan := council.Plan{
		Conversation: []council.Message{{}}, Stages: []council.StagePlan{{Seats: []council.Member{{}}}}, Rules: council.Rules{Audit: &council.AuditThresholds{}},
	}
	for _, v := range []any{plan, council.Landed{Failure: &council.Failure{}}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`"([^"]+)":`).FindAllSubmatch(text, -1) {
			if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).Match(name[1]) {
				t.Errorf("%T has a field %q", v, name[1])
			}
		}
	}
}

func TestDecodeLanded(t *testing.T) {
	want := council.Landed{
		Stage: council.Stage2, Seat: "a#2", Number: 2, Model: "a", Failure: &council.Failure{Code: council.FailEmpty},
		Completion: council.Completion{
			Text: "x", FinishReason: "stop", Implausible: 1, Spent: council.Spent{LatencyMS: 0.1, Attempts: 2, Usage: council.NoUsage()},
		},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	event, err := council.Entry{Type: council.EventCall, Data: text}.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(want), event.Data); diff != "" {
		t.Error(diff)
	}
}
