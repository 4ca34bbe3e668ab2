package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// saying has a model answer the question with one text.
func saying(m simllm.Model, text string) simllm.Model {
	m.Reply = func(task simllm.Task) (string, bool) { return text, task.Kind == simllm.Question }
	return m
}

// answering returns a member for each answer, which ends with the line that a form asks for.
func answering(answers ...string) []simllm.Model {
	models := members(len(answers))
	for i, answer := range answers {
		models[i] = saying(models[i], strings.Repeat("thinking ", i)+"\nANSWER: "+answer)
	}
	return models
}

var number = &council.AnswerForm{Type: council.FormNumber}

// Each mode runs its stages, takes its answer, and leaves what it has.
func TestModes(t *testing.T) {
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 500}
	noBallots := []simllm.Model{}
	for _, m := range members(3) {
		noBallots = append(noBallots, prose(m))
	}
	tests := []struct {
		name    string
		models  []simllm.Model
		request council.Request
		stages  []council.Stage
		calls   int
		from    council.AnswerFrom
		status  council.Status
		ballots int
		records int
		warning council.WarningCode
	}{
		{
			name: "council", models: members(3), stages: []council.Stage{"stage1", "stage2", "stage3"}, calls: 7,
			from: council.AnswerFrom{Rule: "written", Model: "amber"}, ballots: 3, records: 6,
		},
		{
			name: "ranked", models: members(3), request: council.Request{Mode: "ranked"}, stages: []council.Stage{"stage1", "stage2"},
			calls: 6, from: council.AnswerFrom{Rule: "top", Model: "birch"}, ballots: 3, records: 6,
		},
		{
			name: "ranked without ballots", models: noBallots, request: council.Request{Mode: "ranked"},
			stages: []council.Stage{"stage1", "stage2"}, calls: 6, from: council.AnswerFrom{Rule: "first", Model: "amber"},
			status: council.StatusDegraded, records: 6, warning: council.WarnNoRanking,
		},
		{
			name: "two that cannot rank each other", models: members(2), request: council.Request{Mode: "ranked"},
			stages: []council.Stage{"stage1", "stage2"}, calls: 4, from: council.AnswerFrom{Rule: "first", Model: "amber"},
			status: council.StatusDegraded, records: 2, warning: council.WarnOneCandidate,
		},
		{
			name: "synthesis", models: members(3), request: council.Request{Mode: "synthesis", Chairman: "cedar"},
			stages: []council.Stage{"stage1", "stage3"}, calls: 4, from: council.AnswerFrom{Rule: "written", Model: "cedar"},
		},
		{
			name: "ensemble", models: members(3), request: council.Request{Mode: "synthesis", Models: []string{"birch", "birch", "birch"}},
			stages: []council.Stage{"stage1", "stage3"}, calls: 4, from: council.AnswerFrom{Rule: "written", Model: "amber"},
		},
		{
			name: "vote", models: answering("7", "8", "8.0"), request: council.Request{Mode: "vote", AnswerForm: number},
			stages: []council.Stage{"stage1"}, calls: 3, from: council.AnswerFrom{Rule: "commonest", Model: "birch", Votes: 2},
		},
		{
			name: "a tied vote", models: answering("7", "8", "7", "8"), stages: []council.Stage{"stage1"}, calls: 4,
			request: council.Request{Mode: "vote", AnswerForm: number, Seed: new(int64(1))},
			from:    council.AnswerFrom{Rule: "commonest", Model: "amber", Tied: []string{"birch"}, Votes: 2}, warning: council.WarnVoteTied,
		},
		{
			name: "a vote with one member down", models: append(answering("7", "8", "8"), with(members(4)[3], down)),
			request: council.Request{Mode: "vote", AnswerForm: number}, stages: []council.Stage{"stage1"}, calls: 4,
			from: council.AnswerFrom{Rule: "commonest", Model: "birch", Votes: 2}, status: council.StatusDegraded,
		},
		{
			name: "single", models: members(3), request: council.Request{Mode: "single", Models: []string{"cedar"}},
			stages: []council.Stage{"stage1"}, calls: 1, from: council.AnswerFrom{Rule: "only", Model: "cedar"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := build(t, tt.models)
			s := h.run(t, tt.request)
			if tt.from.Tied == nil {
				tt.from.Tied = []string{}
			}
			if diff := cmp.Diff(tt.from, s.AnswerFrom); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(s.Metadata.Stages, tt.stages) {
				t.Errorf("stages %v", s.Metadata.Stages)
			}
			want := council.StatusComplete
			if tt.status != "" {
				want = tt.status
			}
			if s.Status != want {
				t.Errorf("status %s, missing %v", s.Status, missing(s))
			}
			if h.requests() != tt.calls {
				t.Errorf("%d calls", h.requests())
			}
			if s.Metadata.Agreement.Ballots != tt.ballots || len(slices.Concat(h.notes.batches...)) != tt.records {
				t.Errorf("%d ballots, %d records", s.Metadata.Agreement.Ballots, len(slices.Concat(h.notes.batches...)))
			}
			if reviews := tt.ballots > 0 || tt.records > 0; reviews != (s.Metadata.BiasAudit != nil) || reviews != (len(s.Stage2) > 0) {
				t.Errorf("audit %v, %d reviews", s.Metadata.BiasAudit, len(s.Stage2))
			}
			if wrote := s.AnswerFrom.Rule == council.RuleWritten; wrote != (s.Stage3 != nil) {
				t.Errorf("synthesis %v", s.Stage3)
			}
			if s.Stage3 == nil && s.Answer != textOf(s, s.AnswerFrom.Model) || s.Answer == "" {
				t.Errorf("the answer is %.40q", s.Answer)
			}
			if tt.warning != "" && !warned(s, tt.warning) {
				t.Errorf("warnings %v", s.Metadata.Warnings)
			}
		})
	}
}

// textOf returns the answer of a member.
func textOf(s *council.Session, member string) string {
	for _, a := range s.Stage1 {
		if a.Model == member && a.Response != nil {
			return *a.Response
		}
	}
	return ""
}

// A vote among answers that cannot be read has no answer.
func TestVoteThatCannotBeRead(t *testing.T) {
	h := build(t, members(3))
	s, failure := h.refused(t, council.Request{Query: "How many?", Mode: council.ModeVote, AnswerForm: number})
	if failure.Code != council.CodeNoValidOutput || len(s.Stage1) != 3 || s.AnswerFrom.Rule != council.RuleNone {
		t.Errorf("%v, %v", failure, s.AnswerFrom)
	}
}

// The same council version stands in records of both modes with reviews.
func TestModesOfRecords(t *testing.T) {
	h := build(t, members(3))
	h.run(t, council.Request{})
	h.run(t, council.Request{Mode: council.ModeRanked})
	whole, ranked := h.notes.batches[0][0], h.notes.batches[1][0]
	if whole.Mode != council.ModeCouncil || ranked.Mode != council.ModeRanked || whole.CouncilConfig != ranked.CouncilConfig {
		t.Errorf("modes %s and %s, versions %s and %s", whole.Mode, ranked.Mode, whole.CouncilConfig, ranked.CouncilConfig)
	}
}

// The members that begin decide a session if they give the same answer, and only then.
func TestFirst(t *testing.T) {
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 500}
	silent := saying(members(2)[1], "I do not know.")
	tests := []struct {
		name   string
		models []simllm.Model
		first  int
		form   *council.AnswerForm
		want   council.FirstAsked
		calls  int
	}{
		{
			name: "the same", models: answering("7", "7.0", "9", "9"), first: 2, form: number, calls: 2,
			want: council.FirstAsked{Asked: []string{"amber", "birch"}, Same: new(true), Why: "same_answer"},
		},
		{
			name: "different", models: answering("7", "8", "9", "9"), first: 2, form: number, calls: 9,
			want: council.FirstAsked{Asked: []string{"amber", "birch"}, Same: new(false), Convened: true, Why: "different"},
		},
		{
			name: "one of three differs", models: answering("7", "8", "7", "9"), first: 3, form: number, calls: 9,
			want: council.FirstAsked{Asked: []string{"amber", "birch", "cedar"}, Same: new(false), Convened: true, Why: "different"},
		},
		{
			name: "unreadable", models: answering("7", "7", "9", "9"), first: 2, form: number,
			want: council.FirstAsked{Asked: []string{"amber", "birch"}, Convened: true, Why: "unreadable"}, calls: 9,
		},
		{
			name: "failed", models: answering("7", "7", "9", "9"), first: 2, form: number, calls: 9,
			want: council.FirstAsked{Asked: []string{"amber", "birch"}, Convened: true, Why: "failed"},
		},
		{
			name: "no form", models: answering("7", "7", "9", "9"), first: 2, calls: 9,
			want: council.FirstAsked{Asked: []string{}, Convened: true, Why: "no_form"},
		},
		{
			name: "alone", models: answering("7", "7", "9", "9"), first: 1, calls: 1,
			want: council.FirstAsked{Asked: []string{"amber"}, Why: "asked_alone"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "unreadable" {
				tt.models[1] = silent
			}
			if tt.name == "failed" {
				tt.models[1] = with(tt.models[1], down)
			}
			h := build(t, tt.models)
			plan := h.plan(t, council.Request{First: &tt.first, AnswerForm: tt.form})
			plan.Deltas = true
			whole := &tape{}
			s, err := h.Run(t.Context(), plan, whole, whole.log(nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, s.Metadata.First); diff != "" {
				t.Error(diff)
			}
			if h.requests() != tt.calls {
				t.Errorf("%d calls", h.requests())
			}
			if written(whole.entries) != s.Answer {
				t.Errorf("the pieces add up to %.40q, the answer is %.40q", written(whole.entries), s.Answer)
			}
			rule, asked := council.RuleWritten, 4
			if !tt.want.Convened {
				rule = council.RuleFirst
				asked = len(tt.want.Asked)
			}
			if s.AnswerFrom.Rule != rule || len(s.Stage1) != asked {
				t.Errorf("the answer is %v, %d members were asked", s.AnswerFrom, len(s.Stage1))
			}
		})
	}
}

// A member that hangs leaves the other members half of the time for answers.
func TestFirstThatHangs(t *testing.T) {
	models := answering("7", "7", "9", "9")
	models[1] = with(models[1], simllm.Fault{Kind: simllm.FaultHang})
	race.Bubble(t, func(t *testing.T) {
		h := bubble(t, models, nil, func(o *pipeline.Options) { o.Timeout = time.Minute })
		s, err := h.Run(t.Context(), h.plan(t, council.Request{First: new(2), AnswerForm: number}), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Metadata.First.Why != council.FirstFailed || s.Status != council.StatusDegraded || len(s.Stage1) != 4 {
			t.Errorf("%v, %s, %d answers", s.Metadata.First, s.Status, len(s.Stage1))
		}
		if took := time.Duration(s.Metadata.Timing.Stage1MS) * time.Millisecond; took < 11*time.Second || took > 14*time.Second {
			t.Errorf("stage 1 took %s of a minute", took)
		}
	})
}

// The council is convened once, and with the answers that exist already.
func TestConvene(t *testing.T) {
	for _, first := range []int{1, 2} {
		h := build(t, answering("7", "7", "9", "9"))
		request := council.Request{First: &first, AnswerForm: number, Seed: new(int64(5))}
		plan := h.plan(t, request)
		before, err := h.Run(t.Context(), plan, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, err := h.Convene(plan, before)
		if err != nil {
			t.Fatal(err)
		}
		asked := h.requests()
		s, err := h.Run(t.Context(), next, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if calls := h.requests() - asked; calls != 4-first+4+1 {
			t.Errorf("first %d: %d more calls", first, calls)
		}
		whole := build(t, answering("7", "7", "9", "9")).run(t, council.Request{AnswerForm: number, Seed: new(int64(5))})
		if s.Answer != whole.Answer || s.Metadata.GivenFrom != before.ID || s.ID == before.ID ||
			s.Metadata.First.Why != council.FirstOnDemand {
			t.Errorf("first %d: %.40q from %q, %v", first, s.Answer, s.Metadata.GivenFrom, s.Metadata.First)
		}
		for i, a := range s.Stage1 {
			if a.Given != (i < first) || *a.Response != *whole.Stage1[i].Response || a.Given && a.Usage.Tokens() > 0 {
				t.Errorf("first %d: answer %d: %v", first, i, a)
			}
		}
		if _, err := h.Convene(next, s); code(err) != council.CodeConflict {
			t.Errorf("convened twice: %v", err)
		}
	}
}

// Sessions that cannot be convened say why.
func TestConveneRefused(t *testing.T) {
	h := build(t, answering("7", "7", "9", "9"))
	plan := h.plan(t, council.Request{First: new(1)})
	running := plan.Session()
	failed := plan.Session()
	failed.Status = council.StatusFailed
	for session, want := range map[*council.Session]string{
		running:                                  "still runs",
		failed:                                   "failed or was cancelled",
		h.run(t, council.Request{}):              "at once",
		h.run(t, council.Request{First: new(2)}): "the whole council already",
	} {
		if _, err := h.Convene(plan, session); code(err) != council.CodeConflict || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Requests that no mode can answer are refused with a fix, before anything is paid.
func TestModesRefused(t *testing.T) {
	schema := []byte(`{"type": "object"}`)
	tests := map[string]struct {
		request council.Request
		field   string
		text    string // a part of the message or the fix
	}{
		"an unknown mode":          {council.Request{Mode: "best"}, "mode", "use council, ranked"},
		"judge":                    {council.Request{Mode: "judge"}, "mode", "use council, ranked"},
		"a vote without a form":    {council.Request{Mode: "vote"}, "answer_form", "give one, such as"},
		"a form that is none":      {council.Request{AnswerForm: &council.AnswerForm{Type: "regex"}}, "answer_form", ""},
		"a choice without options": {council.Request{AnswerForm: &council.AnswerForm{Type: "choice"}}, "answer_form", ""},
		"a ranked schema":          {council.Request{Mode: "ranked", OutputSchema: schema}, "output_schema", "leave it out"},
		"a vote with a schema":     {council.Request{Mode: "vote", AnswerForm: number, OutputSchema: schema}, "output_schema", "leave"},
		"a form and a schema":      {council.Request{AnswerForm: number, OutputSchema: schema}, "answer_form", "leave one"},
		"a ranked chairman":        {council.Request{Mode: "ranked", Chairman: "amber"}, "chairman", "leave it out"},
		"single with four":         {council.Request{Mode: "single"}, "mode", "name one model"},
		"single with two":          {council.Request{Mode: "single", Models: []string{"amber", "birch"}}, "mode", "name one model"},
		"single with none":         {council.Request{Mode: "single", Models: []string{}}, "mode", "name one model"},
		"a vote in JSON":           {council.Request{Mode: "vote", OutputSchema: schema}, "output_schema", "leave it out"},
		"one model":                {council.Request{Models: []string{"amber"}}, "models", "name two or more"},
		"first 0":                  {council.Request{First: new(0)}, "first", "0 of 4 members"},
		"first 0, and how many":    {council.Request{First: new(0)}, "first", "from 1 to 3"},
		"first 4 of 4":             {council.Request{First: new(4)}, "first", "from 1 to 3"},
		"first -1":                 {council.Request{First: new(-1)}, "first", "from 1 to 3"},
		"first with single":        {council.Request{Mode: "single", Models: []string{"amber"}, First: new(1)}, "first", "leave it out"},
		"first with a vote":        {council.Request{Mode: "vote", AnswerForm: number, First: new(2)}, "first", "leave it out"},
		"first with a schema":      {council.Request{OutputSchema: schema, First: new(2)}, "first", "leave it out"},
	}
	h := build(t, members(4))
	for name, tt := range tests {
		tt.request.Query = "?"
		_, err := h.Prepare(tt.request)
		failure, ok := errors.AsType[*council.Error](err)
		if !ok || failure.Code != council.CodeInvalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(failure.Fields) == 0 || failure.Fields[0].Field != tt.field || !strings.Contains(failure.Fields[0].Message+failure.Fields[0].Fix, tt.text) {
			t.Errorf("%s: %v", name, failure.Fields)
		}
	}
	if h.requests() != 0 {
		t.Errorf("%d calls", h.requests())
	}
}

// The instruction of a form reaches the members, and not the history or the request that asks again.
func TestFormIsAskedOnce(t *testing.T) {
	h := build(t, answering("7", "8", "9"))
	plan := h.plan(t, council.Request{Query: "How many?", AnswerForm: number})
	again := h.plan(t, plan.Request())
	if plan.Question() != again.Question() || !strings.HasPrefix(plan.Question(), "How many?\n\nEnd your answer") {
		t.Errorf("first %q, then %q", plan.Question(), again.Question())
	}
	if plan.Preview() != "How many?" || plan.Request().Query != "How many?" {
		t.Errorf("preview %q, request %q", plan.Preview(), plan.Request().Query)
	}
}

// The configured mode, form and beginning hold for requests that name none, and Whole asks all members.
func TestConfiguredMode(t *testing.T) {
	h := build(t, answering("7", "7", "9"), func(o *pipeline.Options) {
		o.Mode, o.First, o.Form = council.ModeRanked, 2, number
	})
	if s := h.run(t, council.Request{}); s.Mode != council.ModeRanked || s.AnswerFrom.Rule != council.RuleFirst || len(s.Stage1) != 2 {
		t.Errorf("%s, %v, %d answers", s.Mode, s.AnswerFrom, len(s.Stage1))
	}
	for name, r := range map[string]council.Request{ // They cannot begin as the council does.
		"models":   {Models: []string{"amber", "birch"}},
		"a vote":   {Mode: council.ModeVote},
		"a schema": {Mode: council.ModeSynthesis, OutputSchema: []byte(`{"type": "object"}`)},
	} {
		if plan := h.plan(t, r); plan.First != 0 {
			t.Errorf("%s: %d begin", name, plan.First)
		}
	}
	if s := h.run(t, council.Request{Whole: true}); s.Mode != council.ModeCouncil || len(s.Stage1) != 3 || s.Metadata.First != nil {
		t.Errorf("%s, %d answers, %v", s.Mode, len(s.Stage1), s.Metadata.First)
	}
	if s := h.run(t, council.Request{Models: []string{"amber"}, Direct: true}); s.Mode != council.ModeSingle {
		t.Errorf("direct: %s", s.Mode)
	}
}
