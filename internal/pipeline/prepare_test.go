package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/google/go-cmp/cmp"
)

func TestPrepareDefaults(t *testing.T) {
	h := build(t, members(3), func(o *pipeline.Options) {
		o.Chairman, o.ChairmanFallbacks = "birch", []string{"cedar"}
		o.NewID = func() string { return "the id" }
		o.NewSeed = func() int64 { return 99 }
	})
	got, err := h.Prepare(council.Request{Query: " What? "})
	if err != nil {
		t.Fatal(err)
	}
	seats := []council.Member{{ID: "amber", Model: "amber"}, {ID: "birch", Model: "birch"}, {ID: "cedar", Model: "cedar"}}
	want := council.Plan{
		SessionID: "the id", Conversation: []council.Message{{Role: "user", Content: " What? "}},
		Stages: stages(seats, seats, seats[1:]), Mode: council.ModeCouncil, Seed: 99, Order: council.OrderBalanced, Limits: council.Limits{Timeout: time.Minute}, OnPartial: council.PartialAccept,
		Created: got.Created, Rules: got.Rules, // tested below
		Versions: council.Versions{Councild: "test", CouncilConfig: "review-1", Synthesis: "synthesis-1", RecordSchema: "1.5.0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// stages returns the stages of a council with the prompts of this build.
func stages(members, reviewers, chairmen []council.Member) []council.StagePlan {
	all := council.Stages(council.ModeCouncil, members, reviewers, chairmen)
	all[1].Prompt, all[2].Prompt = "review-1", "synthesis-1"
	return all
}

func TestPrepareOverrides(t *testing.T) {
	h := build(t, members(4), func(o *pipeline.Options) { o.MaxCostUSD, o.MaxTotalTokens = new(1.0), new(int64(100)) })
	got := h.plan(t, council.Request{
		Messages: []council.Message{
			{Role: "system", Content: "s"}, {Role: "user", Content: "u"},
		}, Models: []string{"dune", "amber", "dune"},
		Chairman: "cedar", Seed: new(int64(council.MaxSeed)), Order: council.OrderShared, TimeoutSeconds: new(1.5), MaxCostUSD: new(0.5),
		MaxTotalTokens: new(int64(1000)), OnPartial: council.PartialRefuse, Category: "math", Language: "de",
	})
	seats := []council.Member{{ID: "dune", Model: "dune"}, {ID: "amber", Model: "amber"}, {ID: "dune#2", Model: "dune"}}
	want := council.Plan{
		SessionID: got.SessionID, Conversation: []council.Message{
			{Role: "system", Content: "s"}, {Role: "user", Content: "u"},
		}, Stages: stages(seats, seats, []council.Member{{ID: "cedar", Model: "cedar"}}), Mode: council.ModeCouncil, Seed: council.MaxSeed, Order: council.OrderShared,
		Limits:    council.Limits{Timeout: 1500 * time.Millisecond, MaxCostUSD: new(0.5), MaxTotalTokens: new(int64(100))},
		OnPartial: council.PartialRefuse, Category: "math", Language: "de",
		Created: got.Created, Rules: got.Rules, Versions: got.Versions, // tested above and below
	}
	if len(got.Warnings) != 1 || got.Warnings[0].Code != council.WarnTwinsJudge {
		t.Errorf("warnings %v", got.Warnings)
	}
	want.Warnings = got.Warnings
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if long := h.plan(t, council.Request{TimeoutSeconds: new(1e18)}); long.Timeout != time.Minute {
		t.Errorf("the timeout %v is over the configured one", long.Timeout)
	}
}

// A plan holds every setting that shapes its run, and when it was made.
func TestPrepareRules(t *testing.T) {
	before := time.Now()
	plan := build(t, members(3), func(o *pipeline.Options) {
		o.Quorum, o.StragglerGrace, o.BallotRepair, o.SelfReviewRate = 2, new(time.Second), true, 0.25
		o.Sampling = council.Sampling{Temperature: new(0.5)}
		o.ReviewSampling = council.Sampling{MaxOutputTokens: new(100)}
		o.PartialBallots, o.Audit = council.PolicyTiedLast, &council.AuditThresholds{LengthCorrelation: 0.1, PositionVariance: 0.2}
		o.Sides = []council.Side{disagreement.Terms{Matcher: &disagreement.Matcher{}, Threshold: 0.75}}
		o.Consent, o.Providers = 3, []string{"other"}
		o.MaxSessionBytes, o.ConfigVersion = 1<<20, "mine"
	}).plan(t, council.Request{})
	want := council.Rules{
		Quorum: 2, StragglerGrace: new(time.Second), BallotRepair: true, SelfReviewRate: 0.25,
		Sampling: council.Sampling{Temperature: new(0.5)}, ReviewSampling: council.Sampling{MaxOutputTokens: new(100)},
		PartialBallots: council.PolicyTiedLast,
		Audit:          &council.AuditThresholds{LengthCorrelation: 0.1, PositionVariance: 0.2},
		Consent:        3, Providers: []string{"other"}, MaxSessionBytes: 1 << 20,
	}
	if diff := cmp.Diff(want, plan.Rules); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]council.SidePlan{{Name: "terms", Tally: true, Threshold: 0.75}}, plan.Sides); diff != "" {
		t.Error(diff)
	}
	if plan.Versions.CouncilConfig != "mine" {
		t.Errorf("the configuration is %q", plan.Versions.CouncilConfig)
	}
	if plan.Created.Before(before) || plan.Created.After(time.Now()) || plan.Created.Location() != time.UTC {
		t.Errorf("the plan was made at %v, between %v and now", plan.Created, before)
	}
}

func TestPrepareSeed(t *testing.T) {
	h := build(t, members(2), func(o *pipeline.Options) { o.RandomSeed = new(int64(7)) })
	seed := func(query string) int64 { return h.plan(t, council.Request{Query: query}).Seed }
	if one, again := seed("one"), seed("one"); one != again || one == seed("two") {
		t.Error("the configured seed does not give every question its own, reproducible one")
	}
	// printf '7\0one' | sha256sum ends in 2457a345fb165b55; these are its low 53 bits.
	if got, want := seed("one"), int64(0x17a345fb165b55); got != want {
		t.Errorf("seed %#x, want %#x", got, want)
	}
	drawn := build(t, members(2))
	seen := map[int64]bool{}
	for range 100 {
		s := drawn.plan(t, council.Request{}).Seed
		if s < 0 || s > council.MaxSeed || seen[s] {
			t.Errorf("drew %d", s)
		}
		seen[s] = true
	}
}

func TestPrepareRefuses(t *testing.T) {
	h := build(t, members(3), func(o *pipeline.Options) { o.MaxModels = 3 })
	user := council.Message{Role: "user", Content: "x"}
	tests := []struct {
		name   string
		mutate func(*council.Request)
		want   []string // fields
	}{
		{"no question", func(r *council.Request) { r.Query = "" }, []string{"query"}},
		{"a blank question", func(r *council.Request) { r.Query = " \n\t" }, []string{"query"}},
		{"two questions", func(r *council.Request) { r.Messages = []council.Message{user} }, []string{"messages"}},
		{"a long question", func(r *council.Request) { r.Query = strings.Repeat("x", 1<<16+1) }, []string{"query"}},
		{"a strange role", func(r *council.Request) {
			r.Query, r.Messages = "", []council.Message{{Role: "tool", Content: "x"}, user}
		}, []string{"messages[0].role"}},
		{"an empty message", func(r *council.Request) {
			r.Query, r.Messages = "", []council.Message{{Role: "system"}, user}
		}, []string{"messages[0].content"}},
		{"nothing asked", func(r *council.Request) {
			r.Query, r.Messages = "", []council.Message{user, {Role: "assistant", Content: "x"}}
		}, []string{"messages[1].role"}},
		{"one model", func(r *council.Request) { r.Models = []string{"amber"} }, []string{"models"}},
		{"no models", func(r *council.Request) { r.Models = []string{} }, []string{"models"}},
		{"too many models", func(r *council.Request) { r.Models = []string{"amber", "birch", "cedar", "amber"} }, []string{"models"}},
		{"an order", func(r *council.Request) { r.Order = "random" }, []string{"order"}},
		{"a choice", func(r *council.Request) { r.OnPartial = "maybe" }, []string{"on_partial"}},
		{"no time", func(r *council.Request) { r.TimeoutSeconds = new(0.0) }, []string{"timeout_seconds"}},
		{"no money", func(r *council.Request) { r.MaxCostUSD = new(0.0) }, []string{"max_cost_usd"}},
		{"no tokens", func(r *council.Request) { r.MaxTotalTokens = new(int64(-1)) }, []string{"max_total_tokens"}},
		{"a category", func(r *council.Request) { r.Category = "sports" }, []string{"category"}},
		{"a language", func(r *council.Request) { r.Language = "English" }, []string{"language"}},
		{"a negative seed", func(r *council.Request) { r.Seed = new(int64(-2)) }, []string{"seed"}},
		{"a large seed", func(r *council.Request) { r.Seed = new(int64(council.MaxSeed + 1)) }, []string{"seed"}},
		{"everything at once", func(r *council.Request) {
			r.Query, r.Seed, r.Order, r.Models = "", new(int64(-2)), "x", []string{"nobody"}
		}, []string{"models", "models[0]", "order", "query", "seed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := council.Request{Query: "x"}
			tt.mutate(&r)
			_, err := h.Prepare(r)
			e, ok := errors.AsType[*council.Error](err)
			if !ok || e.Code != council.CodeInvalid {
				t.Fatalf("got %v", err)
			}
			var fields []string
			for _, f := range e.Fields {
				fields = append(fields, f.Field)
				if f.Message == "" || f.Fix == "" {
					t.Errorf("%s does not say what is wrong and how to mend it: %+v", f.Field, f)
				}
			}
			slices.Sort(fields)
			if diff := cmp.Diff(tt.want, fields); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPrepareForbids(t *testing.T) {
	h := build(t, members(4), func(o *pipeline.Options) { o.Models, o.AllowedModels = []string{"amber", "birch"}, []string{"cedar"} })
	for _, r := range []council.Request{{Models: []string{"amber", "dune"}}, {Chairman: "dune"}, {Models: []string{"amber", ""}}} {
		r.Query = "x"
		_, err := h.Prepare(r)
		if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeForbidden || len(e.Fields) != 1 {
			t.Errorf("got %v", err)
		}
	}
	h.plan(t, council.Request{Models: []string{"amber", "cedar"}, Chairman: "cedar"})
}

func TestNewRefuses(t *testing.T) {
	valid := pipeline.Options{Lineup: pipeline.Lineup{Models: []string{"a", "b"}, MaxModels: 3}}
	if _, err := pipeline.New(valid); err != nil {
		t.Fatal(err)
	}
	for name, mutate := range map[string]func(*pipeline.Options){
		"one model":              func(o *pipeline.Options) { o.Models = o.Models[:1] },
		"no model":               func(o *pipeline.Options) { o.Models = nil },
		"two models alone":       func(o *pipeline.Options) { o.Mode = council.ModeSingle },
		"an unknown mode":        func(o *pipeline.Options) { o.Mode = "judge" },
		"a vote without a form":  func(o *pipeline.Options) { o.Mode = council.ModeVote },
		"all members are first":  func(o *pipeline.Options) { o.First = 2 },
		"a bad form":             func(o *pipeline.Options) { o.Form = &council.AnswerForm{Type: "regex"} },
		"too many models":        func(o *pipeline.Options) { o.MaxModels = 1 },
		"too many reviewers":     func(o *pipeline.Options) { o.Reviewers = []string{"a", "b", "c", "d"} },
		"a quorum out of reach":  func(o *pipeline.Options) { o.Quorum = 3 },
		"a name like a seat":     func(o *pipeline.Options) { o.AllowedModels = []string{"a#2"} },
		"consent without secret": func(o *pipeline.Options) { o.Consent = 4 },
	} {
		o := valid
		mutate(&o)
		if _, err := pipeline.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
