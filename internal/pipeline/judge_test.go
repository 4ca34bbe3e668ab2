package pipeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
)

// judging makes the model "judge" the judge of a council of the others.
func judging(o *pipeline.Options) {
	o.Models = o.Models[:len(o.Models)-1]
	terms := disagreement.NewMatcher(disagreement.DefaultLexicon())
	o.Sides = []council.Side{
		disagreement.Terms{Matcher: terms, Threshold: 0.3},
		disagreement.Rater{
			Member: council.Member{ID: "judge", Model: "judge"}, Axes: terms.Axes(), Threshold: 0.3, Calibration: passed,
		},
	}
}

// passed returns a calibration that lets an instrument flag.
func passed(instrument council.Calibration) *council.Calibration {
	return new(disagreement.Calibrate(instrument, 100, 0, time.Time{}))
}

// judgedBy returns three members that take a minute a call, and a judge that takes as long as it is told to.
func judgedBy(latency time.Duration) []simllm.Model {
	models := append(members(3), simllm.Model{Name: "judge", Latency: simllm.Latency{Median: latency}})
	for i := range models[:3] {
		models[i].Latency.Median = time.Minute
	}
	return models
}

// At real speed a judge that is done before the chairman is in the session, and one that is not is cut off: the
// session takes no longer than without it.
func TestJudgeBesideReviewers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		latency time.Duration
		begun   bool
	}{
		{"done before the chairman", 50 * time.Second, true},
		{"slower than the chairman", 170 * time.Second, false},
	} {
		race.Bubble(t, func(t *testing.T) {
			h := bubble(t, judgedBy(tt.latency), nil, judging)
			start := time.Now()
			s := h.run(t, council.Request{Query: "Who gets a key?"})
			took := time.Since(start)
			if s.Status != council.StatusComplete || took > 3*time.Minute+time.Second {
				t.Fatalf("%s: %v after %v", tt.name, s.Status, took)
			}
			j := s.Metadata.DemographicJudgement
			if s.Metadata.DemographicDisagreement == nil || j == nil || j.Model != "judge" || j.Prompt != "judge-1" || j.Flagged {
				t.Fatalf("%s: %+v", tt.name, j)
			}
			if tt.begun && (j.Reason != nil || len(j.Axes) != 5 || j.Calibration == nil || j.Usage.InputTokens == nil) {
				t.Errorf("%s: %+v", tt.name, j)
			}
			if !tt.begun && (j.Reason == nil || len(j.Axes) != 0) {
				t.Errorf("%s: %+v", tt.name, j)
			}
			if _, ok := s.Metadata.Usage.ByStage["judge"]; !ok {
				t.Errorf("%s: the usage of the session has no stage judge", tt.name)
			}
		})
	}
}

// A judge that fails is no reason for a degraded session, and one that is not wanted is not asked.
func TestJudgeInNobodysWay(t *testing.T) {
	broken := append(members(3), with(simllm.Model{Name: "judge"}, simllm.Fault{Kind: simllm.FaultStatus, Status: 400, Rate: 1}))
	h := build(t, broken, judging)
	s := h.run(t, council.Request{Query: "Who gets a key?"})
	if j := s.Metadata.DemographicJudgement; s.Status != council.StatusComplete || j == nil || j.Reason == nil {
		t.Errorf("%v: %+v", s.Status, j)
	}
	h = build(t, append(members(3), simllm.Model{Name: "judge"}), judging, func(o *pipeline.Options) { o.Sides = o.Sides[:1] })
	if s = h.run(t, council.Request{Query: "Who?"}); s.Metadata.DemographicJudgement != nil {
		t.Errorf("%+v", s.Metadata.DemographicJudgement)
	}
}

// Where half of a limit is spent, the rest is for reviewers and the chairman.
func TestJudgeLeavesTheBudget(t *testing.T) {
	models := append(members(3), simllm.Model{Name: "judge"})
	free := build(t, models, judging)
	s := free.run(t, council.Request{Query: "Who gets a key?"})
	tokens := s.Metadata.Usage.Total.Tokens()
	used := s.Metadata.Usage.ByStage["judge"]
	limit := tokens - used.Tokens() + 1 // enough without the judge
	h := build(t, models, judging)
	s = h.run(t, council.Request{Query: "Who gets a key?", MaxTotalTokens: &limit})
	if s.Status != council.StatusComplete {
		t.Fatalf("%v: %+v", s.Status, s.Degradation)
	}
	if j := s.Metadata.DemographicJudgement; j.Reason == nil || !strings.Contains(*j.Reason, "at least half") {
		t.Errorf("%+v", j)
	}
}

// What the judge said before a session was taken over is not asked again, and has its token still.
func TestJudgeTakenOver(t *testing.T) {
	judged := make(chan struct{})
	models := append(members(3), simllm.Model{Name: "judge"})
	for i := range models[:3] {
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Synthesis { // the chairman waits for the judge
				<-judged
			}
			return "", false
		}
	}
	r := newRelay(t, models, judging)
	plan, err := r.first.Prepare(council.Request{Query: "Who gets a key?"})
	if err != nil {
		t.Fatal(err)
	}
	whole, landed, until := &tape{}, 0, 0
	want, err := r.first.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
		whole.Observe(e)
		if call, ok := e.Data.(council.Landed); ok && call.Stage == "judge" {
			if landed++; landed == 2 {
				until = len(whole.entries)
				close(judged)
			}
		}
	}), whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	whole.entries = whole.entries[:until]
	asked := func() (n int) {
		for call, count := range r.calls.count {
			if strings.HasPrefix(call, "judge judge-") {
				n += count
			}
		}
		return n
	}
	if n := asked(); n != 2 {
		t.Fatalf("the judge was asked %d times", n)
	}
	got, err := r.second.Run(t.Context(), plan, &tape{}, (&tape{}).log(whole.entries))
	if err != nil {
		t.Fatal(err)
	}
	if n := asked(); n != 2 {
		t.Errorf("the judge was asked %d times in all", n)
	}
	if diff := cmp.Diff(want.Metadata.DemographicJudgement.Axes, got.Metadata.DemographicJudgement.Axes); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
