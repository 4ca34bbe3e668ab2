package pipeline_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
)

// clustering has the last of the models embed the answers of a council of the others, to see which lie together.
func clustering(o *pipeline.Options) {
	last := len(o.Models) - 1
	terms := disagreement.NewMatcher(disagreement.DefaultLexicon())
	o.Sides = []council.Side{
		disagreement.Terms{Matcher: terms, Threshold: 0.3},
		disagreement.Embeddings{Model: o.Models[last], Clusters: true, Matcher: terms, Threshold: 0.3, Calibration: passed},
	}
	o.Models = o.Models[:last]
}

// uncalibrated makes clusters flag nothing.
func uncalibrated(o *pipeline.Options) {
	embeddings := o.Sides[1].(disagreement.Embeddings)
	embeddings.Calibration = nil
	o.Sides[1] = embeddings
}

// unclustered has the answers embedded for the records alone.
func unclustered(o *pipeline.Options) {
	embeddings := o.Sides[1].(disagreement.Embeddings)
	embeddings.Clusters = false
	o.Sides[1] = embeddings
}

// camps returns n members, of which every other one speaks of women and girls, and a model that embeds.
func camps(n int, faults ...simllm.Fault) []simllm.Model {
	models := withEmbedder(n, faults...)
	for i := range models[:n] {
		text := strings.Repeat("The property is divided by the rules of the country. ", 3)
		if i%2 == 0 {
			text = strings.Repeat("Women and girls inherit less than men: daughters, wives and mothers have no share. ", 2)
		}
		models[i].Reply = func(task simllm.Task) (string, bool) { return text, task.Kind == simllm.Question }
	}
	return models
}

// At real speed, embeddings that are there when the chairman is done are in the session, and those that are not are
// cut off. The session takes no longer than its models, but for the time that its records wait for similarities.
func TestClusterBesideReviewers(t *testing.T) {
	const reviews, chairman = 60, 30 // seconds
	for _, tt := range []struct {
		name    string
		members int
		takes   int // seconds that the embeddings take
		faults  []simllm.Fault
		change  func(*pipeline.Options)
		calls   int64 // for embeddings
		longer  time.Duration
		reason  string // "": an axis is flagged
	}{
		{name: "beside", members: 8, takes: 60, calls: 1},
		{name: "beside, without records", members: 8, takes: 60, calls: 1, change: func(o *pipeline.Options) { o.Consent = 0 }},
		{name: "nobody reviews that wrote", members: 8, takes: 60, calls: 1, change: func(o *pipeline.Options) { o.Reviewers = []string{"embed", "embed"} }},
		{name: "too late", members: 8, takes: 170, calls: 1, longer: 2 * time.Second, reason: "the session was done"},
		{
			name: "silent, without records", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.FaultHang}},
			change: func(o *pipeline.Options) { o.Consent = 0 }, reason: "the session was done",
		},
		{name: "silent", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.FaultHang}}, longer: 2 * time.Second, reason: "the session was done"},
		{name: "too few", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.EmbeddingMissing}}, reason: "one embedding for each of 8 texts"},
		{name: "unequal", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.EmbeddingUnequal}}, reason: "256 and 255 numbers"},
		{name: "no numbers", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.EmbeddingEmpty}}, reason: "is empty"},
		{name: "NaN", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.EmbeddingNaN}}, reason: "not the JSON of embeddings"},
		{name: "refused", members: 8, calls: 1, faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 401}}, reason: "unauthorized"},
		{name: "few answers", members: 4, calls: 1, reason: "there are 4 answers, and the test needs 5"}, // for the records
		{name: "few answers, no records", members: 4, change: func(o *pipeline.Options) { o.Consent = 0 }, reason: "there are 4 answers"},
		{name: "not calibrated", members: 8, calls: 1, change: uncalibrated, reason: "was not calibrated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				var calls atomic.Int64 // who is too late answers to nobody
				front := func(next http.Handler) http.Handler {
					slow := taking(func(model string, task simllm.TaskKind) time.Duration {
						seconds := map[simllm.TaskKind]int{simllm.Question: 20, simllm.Review: reviews, simllm.Synthesis: chairman}[task]
						if model == "embed" && task == simllm.Question {
							seconds = tt.takes
						}
						return time.Duration(seconds) * time.Second
					})(next)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if strings.HasSuffix(r.URL.Path, "/embeddings") {
							calls.Add(1)
						}
						slow.ServeHTTP(w, r)
					})
				}
				h := bubble(t, camps(tt.members, tt.faults...), front, clustering, func(o *pipeline.Options) {
					if tt.change != nil {
						tt.change(o)
					}
				})
				begun := time.Now()
				s := h.run(t, council.Request{Query: "Who inherits?"})
				if took := time.Since(begun) - (20+reviews+chairman)*time.Second; took < tt.longer || took > tt.longer+time.Second/2 {
					t.Errorf("the session took %v longer than its models, want %v", took, tt.longer)
				}
				found := s.Metadata.DemographicClustering
				if s.Status != council.StatusComplete || found == nil || calls.Load() != tt.calls {
					t.Fatalf("the session is %s, %d calls for embeddings, %+v", s.Status, calls.Load(), found)
				}
				if tt.reason != "" {
					if found.Flagged || found.Reason == nil || !strings.Contains(*found.Reason, tt.reason) {
						t.Errorf("%s", disagreement.ClusterWording(*found))
					}
					return
				}
				if !found.Flagged || found.Model != "embed" || found.Usage.CostUSD == nil || found.Calibration == nil {
					t.Errorf("%s: %+v", disagreement.ClusterWording(*found), found)
				}
				if diff := cmp.Diff(s.Metadata.Usage.ByStage["embedding"], found.Usage); diff != "" {
					t.Errorf("the usage of the embeddings: -session +clustering\n%s", diff)
				}
			})
		})
	}
}

// A session whose operator does not ask for it has none.
func TestNoClusterUnasked(t *testing.T) {
	h := build(t, camps(8), clustering, unclustered)
	if s := h.run(t, council.Request{Query: "Who?"}); s.Metadata.DemographicClustering != nil {
		t.Errorf("%+v", s.Metadata.DemographicClustering)
	}
}

// The limits of a session hold: what is spent is not exceeded for embeddings.
func TestClusterWithinLimits(t *testing.T) {
	h := build(t, camps(8), clustering)
	whole := h.run(t, council.Request{Query: "Who inherits?"})
	answers := whole.Metadata.Usage.ByStage[council.Stage1].Tokens()
	s := h.run(t, council.Request{Query: "Who inherits?", MaxTotalTokens: new(answers)})
	found := s.Metadata.DemographicClustering
	if found == nil || found.Flagged || found.Reason == nil || !strings.Contains(*found.Reason, "budget") {
		t.Errorf("%+v", found)
	}
	if spent, ok := s.Metadata.Usage.ByStage["embedding"]; ok && spent.Tokens() > 0 {
		t.Errorf("embeddings took %d tokens of a spent budget", spent.Tokens())
	}
}

// What the embeddings said before a session was taken over is not asked again.
func TestClusterTakenOver(t *testing.T) {
	r := newRelay(t, camps(8), clustering)
	plan, err := r.first.Prepare(council.Request{Query: "Who inherits?"})
	if err != nil {
		t.Fatal(err)
	}
	whole := &tape{}
	want, err := r.first.Run(t.Context(), plan, whole, whole.log(nil))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.first.Run(t.Context(), plan, &tape{}, (&tape{}).log(whole.entries[:len(whole.entries)-1]))
	if err != nil {
		t.Fatal(err)
	}
	if !want.Metadata.DemographicClustering.Flagged {
		t.Errorf("nothing is flagged: %+v", want.Metadata.DemographicClustering)
	}
	if diff := cmp.Diff(want.Metadata.DemographicClustering, got.Metadata.DemographicClustering); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for call, n := range r.calls.count {
		if strings.HasPrefix(call, "embed") && n != 1 {
			t.Errorf("%s: %d calls", call, n)
		}
	}
	// A daemon with other terms, or with none, says why it does not test.
	got, err = r.second.Run(t.Context(), plan, &tape{}, (&tape{}).log(whole.entries[:len(whole.entries)-1]))
	if err != nil {
		t.Fatal(err)
	}
	if found := got.Metadata.DemographicClustering; found.Flagged || found.Reason == nil || !strings.Contains(*found.Reason, "another lexicon") {
		t.Errorf("with another lexicon: %+v", found)
	}
}
