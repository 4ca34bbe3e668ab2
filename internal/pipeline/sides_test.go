package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/testkit/race"
)

// onlooker is a side that looks as a test says. Its finding warns of what it saw.
type onlooker struct {
	plan council.SidePlan
	look func(ctx context.Context, in council.Seen) string
}

func (o onlooker) Name() string                        { return "onlooker" }
func (o onlooker) Plan(council.Plan) *council.SidePlan { return &o.plan }

func (o onlooker) Look(ctx context.Context, in council.Seen, _ council.Completer) council.Finding {
	return saw(o.look(ctx, in))
}

func (o onlooker) Missing(_ council.SidePlan, reason string) council.Finding { return saw(reason) }

// saw is the Finding of an onlooker.
type saw string

func (s saw) AddTo(session *council.Session) {
	session.Metadata.Warnings = append(session.Metadata.Warnings, council.Warning{Code: "saw", Message: string(s)})
}

func (s saw) Annotate(r *council.BiasMetricRecord, reviewer, author string) {
	r.EmbeddingModel = reviewer + " on " + author
}

// A side changes nothing but its finding: not when it fails, nor when it takes for ever. The session waits for a finding
// of its tally until the end of stage 2, for one of its records for two seconds, and for no other.
func TestFaultF40Sides(t *testing.T) {
	forever := func(ctx context.Context, _ council.Seen) string {
		<-ctx.Done()
		return context.Cause(ctx).Error()
	}
	for _, tt := range []struct {
		name string
		plan council.SidePlan
		look func(ctx context.Context, in council.Seen) string
		want string // of the warning
		took time.Duration
	}{
		{
			"quick", council.SidePlan{}, func(_ context.Context, in council.Seen) string {
				return in.Answers[in.Authors[0]][:0] + in.Side.Name + in.Plan.Question()
			}, "onlookerWhy?", 0,
		},
		{"a defect", council.SidePlan{}, func(context.Context, council.Seen) string { panic("a defect") }, "a defect; the log says more", 0},
		{"for ever", council.SidePlan{}, forever, "the stage went on without this call: the session was done before", 0},
		{"for ever, for the records", council.SidePlan{Records: true}, forever, "the stage went on without this call: the session was done before", 2 * time.Second},
		{"for ever, for the tally", council.SidePlan{Tally: true}, forever, "the time for stage2 ran out", 8 * time.Minute},
		{
			"yielding", council.SidePlan{}, func(ctx context.Context, in council.Seen) string {
				begun := time.Now()
				if err := in.Yield(ctx); err != nil {
					return err.Error()
				}
				return time.Since(begun).String()
			}, "0s", 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				tt.plan.Name = "onlooker"
				h := bubble(t, members(3), nil, func(o *pipeline.Options) { o.Sides = []council.Side{onlooker{tt.plan, tt.look}} })
				begun := time.Now()
				s := h.run(t, council.Request{Query: "Why?"})
				if took := time.Since(begun); took < tt.took || took > tt.took+time.Second {
					t.Errorf("the session took %v, want %v", took, tt.took)
				}
				if s.Status != council.StatusComplete || !s.Persisted || len(s.Metadata.Warnings) != 1 {
					t.Fatalf("%s, persisted %v, %v", s.Status, s.Persisted, s.Metadata.Warnings)
				}
				if got := s.Metadata.Warnings[0].Message; got != tt.want {
					t.Errorf("the side says %q, want %q", got, tt.want)
				}
				for _, r := range h.notes.batches[0] {
					if noted := r.EmbeddingModel == r.ReviewerID+" on "+r.ModelID; noted != tt.plan.Records {
						t.Errorf("a record has the note %q", r.EmbeddingModel)
					}
				}
			})
		})
	}
	t.Log("fault F40: a panic in a side: the session is complete, and says that the side failed")
}

// What a side says outside of a session has an account of its own, and ends with the request.
func TestLookOutside(t *testing.T) {
	h := build(t, members(3))
	answers := map[string]string{"b": "No.", "a": "Yes."}
	seen := func(_ context.Context, in council.Seen) string {
		return in.Plan.Question() + in.Authors[0] + in.Answers["b"] + in.Side.Name
	}
	finding, failure := h.Look(t.Context(), "team", onlooker{council.SidePlan{Name: "onlooker"}, seen}, "Why?", answers)
	if failure != nil || finding != saw("Why?aNo.onlooker") {
		t.Errorf("%v %v", finding, failure)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaves := func(context.Context, council.Seen) string {
		cancel()
		return ""
	}
	if _, failure = h.Look(ctx, "team", onlooker{council.SidePlan{}, leaves}, "Why?", answers); failure == nil || failure.Code != council.CodeCancelled {
		t.Errorf("the caller has left: %v", failure)
	}
}
