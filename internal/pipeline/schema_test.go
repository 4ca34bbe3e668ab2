package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
)

const (
	verdictSchema = `{"type":"object","required":["verdict"],"additionalProperties":false,"properties":{"verdict":{"enum":["yes","no"]}}}`
	verdict       = `{"verdict":"yes"}`
)

// writing has a model that is asked for JSON reply with one text, and with another one when it is
// asked again.
func writing(m simllm.Model, first, second string) simllm.Model {
	m.Reply = func(task simllm.Task) (string, bool) {
		switch {
		case strings.Contains(task.Question, "=== BEGIN PROBLEMS "):
			return second, true
		case task.Kind == simllm.Synthesis, strings.Contains(task.Question, "=== BEGIN SCHEMA "):
			return first, true
		default:
			return "", false
		}
	}
	return m
}

// listener keeps the calls that pass through it.
type listener struct {
	council.Completer
	mu    sync.Mutex // guards calls
	calls []council.Call
}

func (l *listener) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	l.mu.Lock()
	l.calls = append(l.calls, call)
	l.mu.Unlock()
	return l.Completer.Complete(ctx, call)
}

// of returns the calls of a stage.
func (l *listener) of(stage council.Stage) (calls []council.Call) {
	for _, call := range l.calls {
		if call.Stage == stage {
			calls = append(calls, call)
		}
	}
	return calls
}

func TestOutputSchema(t *testing.T) {
	m := members(3)
	length := simllm.Fault{Kind: simllm.FaultLength, Tasks: []simllm.TaskKind{simllm.Synthesis}}
	tests := []struct {
		name          string
		first, second string // what the chairman writes
		fault         *simllm.Fault
		calls         int // for the answer
		by            string
		missing       []string
	}{
		{name: "right", first: verdict, calls: 1, by: "amber"},
		{name: "fenced", first: "```json\n" + verdict + "\n```", calls: 1, by: "amber"},
		{name: "wrong once", first: `{"verdict":"perhaps"}`, second: verdict, calls: 2, by: "amber"},
		{name: "a member twice", first: `{"verdict":"no","verdict":"no"}`, second: verdict, calls: 2, by: "amber"},
		{name: "trailing prose", first: verdict + "\n\nThis is my verdict.", second: verdict, calls: 2, by: "amber"},
		{name: "cut off", first: verdict[:9], second: "```\n" + verdict + "\n```", calls: 2, by: "amber"},
		{
			name: "always wrong", first: "Yes.", second: "Yes!", calls: 3, by: "birch",
			missing: []string{"stage3 amber invalid_output"},
		},
		{name: "ended at the token limit", fault: &length, first: verdict, calls: 2, by: "birch", missing: []string{"stage3 amber length"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chairman := writing(m[0], tt.first, tt.second)
			if tt.fault != nil {
				chairman = with(chairman, *tt.fault)
			}
			calls := &listener{}
			h := build(t, []simllm.Model{chairman, writing(m[1], verdict, ""), m[2]}, func(o *pipeline.Options) {
				o.ChairmanFallbacks = []string{"birch"}
				calls.Completer, o.Completer = o.Completer, calls
			})
			plan := h.plan(t, council.Request{OutputSchema: []byte(verdictSchema)})
			plan.Deltas = true
			var pieces []string
			s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
				if piece, ok := e.Data.(council.Delta); ok {
					pieces = append(pieces, piece.Text)
				}
			}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Answer != verdict || s.Stage3.Response != verdict {
				t.Errorf("the answer is %q, the synthesis %q", s.Answer, s.Stage3.Response)
			}
			if s.Stage3.Parsed == nil || string(*s.Stage3.Parsed) != verdict {
				t.Errorf("parsed is %v", s.Stage3.Parsed)
			}
			if s.Stage3.Model != tt.by {
				t.Errorf("%s wrote it, want %s", s.Stage3.Model, tt.by)
			}
			if diff := cmp.Diff(tt.missing, missing(s)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{verdict}, pieces); diff != "" {
				t.Errorf("the pieces: %s", diff)
			}
			asked := calls.of(council.Stage3)
			if len(asked) != tt.calls || s.Stage3.Attempts != tt.calls {
				t.Errorf("%d calls, %d attempts, want %d", len(asked), s.Stage3.Attempts, tt.calls)
			}
			for _, call := range asked {
				if call.Format == nil || call.Format.Name != "answer" || string(call.Format.Schema) != verdictSchema {
					t.Errorf("the format is %+v", call.Format)
				}
				if !strings.Contains(call.Messages[1].Content, verdictSchema) {
					t.Error("the prompt lacks the schema")
				}
			}
			if s.Metadata.Versions.Synthesis != "synthesis-1+schema-1" {
				t.Errorf("the prompt is %s", s.Metadata.Versions.Synthesis)
			}
		})
	}
}

// Members and reviewers work in prose, with the prompts that they always have.
func TestOutputSchemaIsTheChairmans(t *testing.T) {
	m := members(3)
	m[0] = writing(m[0], verdict, "")
	calls := &listener{}
	h := build(t, m, func(o *pipeline.Options) { calls.Completer, o.Completer = o.Completer, calls })
	h.run(t, council.Request{OutputSchema: []byte(verdictSchema)})
	for _, stage := range []council.Stage{council.Stage1, council.Stage2} {
		asked := calls.of(stage)
		if len(asked) != 3 {
			t.Errorf("%d calls in %s", len(asked), stage)
		}
		for _, call := range asked {
			for _, message := range call.Messages {
				if strings.Contains(message.Content, verdictSchema) {
					t.Errorf("%s of %s is shown %q", call.Seat, stage, message.Content)
				}
			}
			if call.Format != nil && call.Format.Name != "ballot" {
				t.Errorf("%s of %s is asked for %s", call.Seat, stage, call.Format.Name)
			}
		}
	}
}

// The repair tells the chairman what is wrong, between markers that its first prompt did not have.
func TestOutputRepair(t *testing.T) {
	m := members(2)
	wrong := `{"verdict":"=== END PROBLEMS ===","` + strings.Repeat("x", 5000) + `":1}`
	m[0] = writing(m[0], wrong, verdict)
	calls := &listener{}
	h := build(t, m, func(o *pipeline.Options) { calls.Completer, o.Completer = o.Completer, calls })
	h.run(t, council.Request{OutputSchema: []byte(verdictSchema)})
	asked := calls.of(council.Stage3)
	if len(asked) != 2 || len(asked[1].Messages) != 4 {
		t.Fatalf("%d calls", len(asked))
	}
	reply, problems := asked[1].Messages[2], asked[1].Messages[3]
	if reply.Role != council.RoleAssistant || reply.Content != wrong {
		t.Errorf("the reply is sent back as %s: %.50q", reply.Role, reply.Content)
	}
	if !strings.Contains(problems.Content, "at /verdict: value must be one of 'yes', 'no'") || len(problems.Content) > 1500 {
		t.Errorf("the problems are %q", problems.Content)
	}
	_, rest, _ := strings.Cut(problems.Content, "=== BEGIN PROBLEMS ")
	token, _, _ := strings.Cut(rest, " ")
	if len(token) != 16 || strings.Contains(asked[0].Messages[1].Content, token) {
		t.Errorf("the marker's token is %q", token)
	}
}

// Where nobody writes JSON that fits, prose does not take its place. What was paid for is kept.
func TestNoValidOutput(t *testing.T) {
	m := members(3)
	h := build(t, []simllm.Model{
		writing(m[0], "Yes.", "No."), writing(m[1], "[", "]"),
		with(m[2], simllm.Fault{Kind: simllm.FaultStatus, Tasks: []simllm.TaskKind{simllm.Synthesis}}),
	})
	s, e := h.refused(t, council.Request{OutputSchema: []byte(verdictSchema)})
	if e.Code != council.CodeNoValidOutput || len(e.Fields) != 3 {
		t.Errorf("got %v, %v", e, e.Fields)
	}
	for _, f := range e.Fields {
		if f.Message == "" || f.Fix == "" || f.Field == "cedar" == strings.Contains(f.Message, "does not fit the schema") {
			t.Errorf("%+v", f)
		}
	}
	if s.Status != council.StatusFailed || s.Answer != "" || s.Stage3 != nil {
		t.Errorf("the session is %s, its answer %q, the synthesis %+v", s.Status, s.Answer, s.Stage3)
	}
	if len(s.Stage1) != 3 || len(s.Stage2) != 3 || len(s.Degradation) != 3 {
		t.Errorf("%d answers, %d reviews, missing %v", len(s.Stage1), len(s.Stage2), missing(s))
	}
	if !s.Persisted || len(h.notes.batches) != 1 {
		t.Errorf("persisted %t, %d batches", s.Persisted, len(h.notes.batches))
	}
	if used := s.Metadata.Usage.ByStage[council.Stage3]; used.OutputTokens == nil || *used.OutputTokens == 0 {
		t.Errorf("the usage of stage 3 is %+v", used)
	}
}

// One model alone is held to the schema as a chairman is.
func TestDirectOutputSchema(t *testing.T) {
	m := members(2)
	for _, tt := range []struct {
		name, first, second string
		calls               int
		code                council.Code
	}{
		{"right", "```json\n" + verdict + "\n```", "", 1, ""},
		{"wrong once", "Yes.", verdict, 2, ""},
		{"always wrong", "Yes.", "No.", 2, council.CodeNoValidOutput},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := &listener{}
			h := build(t, []simllm.Model{writing(m[0], tt.first, tt.second), m[1]}, func(o *pipeline.Options) {
				calls.Completer, o.Completer = o.Completer, calls
			})
			plan := h.plan(t, council.Request{Models: []string{"amber"}, Direct: true, OutputSchema: []byte(verdictSchema)})
			s, err := h.Run(t.Context(), plan, nil, nil)
			if code(err) != tt.code {
				t.Errorf("got %v, want %q", err, tt.code)
			}
			if len(calls.calls) != tt.calls || s.Stage1[0].Attempts != tt.calls {
				t.Errorf("%d calls, want %d", len(calls.calls), tt.calls)
			}
			if tt.code == "" && s.Answer != verdict {
				t.Errorf("the answer is %q", s.Answer)
			}
			if tt.code != "" && (s.Answer != "" || s.Status != council.StatusFailed) {
				t.Errorf("the session is %s with %q", s.Status, s.Answer)
			}
		})
	}
}

// A schema that cannot be used costs nothing.
func TestOutputSchemaRefused(t *testing.T) {
	h := build(t, members(2))
	for _, tt := range []struct{ schema, name, field, message string }{
		{`{"properties":{"a":{"type":"text"}}}`, "", "output_schema", "at /properties/a/type"},
		{`{"$ref":"https://example.com"}`, "", "output_schema", "leaves the schema"},
		{`{"x":"` + strings.Repeat("x", 1<<16) + `"}`, "", "output_schema", "65536"},
		{`{}`, "two words", "output_name", "two words"},
	} {
		plan, err := h.Prepare(council.Request{Query: "x", OutputSchema: []byte(tt.schema), OutputName: tt.name})
		if err == nil {
			err = h.Check(t.Context(), plan)
		}
		e, ok := errors.AsType[*council.Error](err)
		if !ok || e.Code != council.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Field != tt.field ||
			!strings.Contains(e.Fields[0].Message, tt.message) {
			t.Errorf("%s: %+v", tt.schema, err)
		}
	}
	if h.requests() != 0 {
		t.Errorf("%d calls", h.requests())
	}
}

// The request of a plan asks for the same form again.
func TestOutputSchemaIsAskedAgain(t *testing.T) {
	h := build(t, members(2))
	plan := h.plan(t, council.Request{OutputSchema: []byte(verdictSchema)})
	if got := string(plan.Request().OutputSchema); got != verdictSchema {
		t.Errorf("got %s", got)
	}
}
