package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/race"
)

// embedding makes the last of the models the one that embeds, and no member.
func embedding(o *pipeline.Options) {
	last := len(o.Models) - 1
	o.Sides = append(o.Sides, disagreement.Embeddings{Model: o.Models[last]})
	o.Models = o.Models[:last]
}

// withEmbedder returns n members and a model that embeds, with its faults.
func withEmbedder(n int, faults ...simllm.Fault) []simllm.Model {
	for i := range faults {
		faults[i].Rate = 1
	}
	return append(members(n), simllm.Model{Name: "embed", Price: simllm.Price{Input: 1}, Faults: faults})
}

// cosines returns the cosines of the answers of a session, by their authors, as the provider embeds them.
func (h harness) cosines(t *testing.T, s *council.Session) map[[2]string]float64 {
	t.Helper()
	vectors := map[string][]float64{}
	for _, a := range s.Stage1 {
		if a.Response == nil {
			continue
		}
		body, _ := json.Marshal(map[string]any{"model": "embed", "input": *a.Response})
		w := httptest.NewRecorder()
		h.sim.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/embeddings", bytes.NewReader(body)))
		var reply struct {
			Data []struct{ Embedding []float64 }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || len(reply.Data) != 1 {
			t.Fatalf("%v %s", err, w.Body)
		}
		vectors[a.Model] = reply.Data[0].Embedding
	}
	cosines := map[[2]string]float64{}
	for a, x := range vectors {
		for b, y := range vectors {
			cosines[[2]string{a, b}] = stat.Dot(x, y) / math.Sqrt(stat.Dot(x, x)*stat.Dot(y, y))
		}
	}
	return cosines
}

// measured returns how many records have a similarity.
func (h harness) measured() (with, without int) {
	for _, batch := range h.notes.batches {
		for _, r := range batch {
			if r.StyleSimilarity != nil {
				with++
			} else {
				without++
			}
		}
	}
	return with, without
}

func TestStyleSimilarity(t *testing.T) {
	h := build(t, withEmbedder(4), embedding, func(o *pipeline.Options) {
		o.SelfReviewRate, o.Reviewers = 1, []string{"amber", "birch", "cedar", "embed"}
	})
	s := h.run(t, council.Request{})
	if len(s.Metadata.Warnings) > 0 || !s.Persisted {
		t.Errorf("persisted %v, warnings %v", s.Persisted, s.Metadata.Warnings)
	}
	want := h.cosines(t, s)
	for _, r := range h.notes.batches[0] {
		who := r.ReviewerID + " on " + r.ModelID
		switch {
		case r.SchemaVersion != "1.5.0":
			t.Errorf("%s: schema %s", who, r.SchemaVersion)
		case r.ReviewerID == "embed": // it only reviews
			if r.StyleSimilarity != nil || r.EmbeddingModel != "" {
				t.Errorf("%s: %v of %q, and the reviewer has no answer", who, *r.StyleSimilarity, r.EmbeddingModel)
			}
		case r.StyleSimilarity == nil || r.EmbeddingModel != "embed":
			t.Errorf("%s: no similarity", who)
		case math.Abs(*r.StyleSimilarity-want[[2]string{r.ReviewerID, r.ModelID}]) > 5e-5:
			t.Errorf("%s: %v, want %v", who, *r.StyleSimilarity, want[[2]string{r.ReviewerID, r.ModelID}])
		case r.Own && *r.StyleSimilarity != 1:
			t.Errorf("%s: the own answer is %v like itself", who, *r.StyleSimilarity)
		}
	}
	if with, without := h.measured(); with != 12 || without != 4 {
		t.Errorf("%d records have a similarity and %d none, want 12 and 4", with, without)
	}
	cost := s.Metadata.Usage.ByStage["embedding"]
	if cost.CostUSD == nil || *cost.CostUSD <= 0 || *cost.OutputTokens != 0 {
		t.Errorf("the embeddings cost %+v", cost)
	}
	parts := 0.
	for _, u := range s.Metadata.Usage.ByStage {
		parts += *u.CostUSD
	}
	if total := s.Metadata.Usage.CostUSD; math.Abs(*total-parts) > 1e-12 {
		t.Errorf("the session cost %v, and its stages %v", *total, parts)
	}
}

// Nothing is embedded where no record would say it, and of an answer only the beginning.
func TestWhatIsEmbedded(t *testing.T) {
	const long = 20_000
	for name, tt := range map[string]struct {
		change func(*pipeline.Options)
		want   int // texts that are embedded
	}{
		"as a rule":                 {func(*pipeline.Options) {}, 3},
		"no consent":                {func(o *pipeline.Options) { o.Consent = 0 }, 0},
		"no records":                {func(o *pipeline.Options) { o.Recorder = nil }, 0},
		"nobody reviews that wrote": {func(o *pipeline.Options) { o.Reviewers = []string{"embed", "embed"} }, 0},
		"no model":                  {func(o *pipeline.Options) { o.Sides = nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				models := withEmbedder(3)
				for i := range models {
					models[i].Reply = func(task simllm.Task) (string, bool) {
						return strings.Repeat("é", long), task.Kind == simllm.Question
					}
				}
				var texts []string
				front := func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if strings.HasSuffix(r.URL.Path, "/embeddings") {
							body, _ := io.ReadAll(r.Body)
							var request struct{ Input []string }
							_ = json.Unmarshal(body, &request)
							texts = append(texts, request.Input...)
							r.Body = io.NopCloser(bytes.NewReader(body))
						}
						next.ServeHTTP(w, r)
					})
				}
				h := bubble(t, models, front, embedding, tt.change)
				s := h.run(t, council.Request{})
				if len(texts) != tt.want {
					t.Errorf("%d texts were embedded, want %d", len(texts), tt.want)
				}
				for _, text := range texts {
					if text != strings.Repeat("é", 6000) {
						t.Errorf("a text of %d bytes was embedded", len(text))
					}
				}
				if warned(s, council.WarnNoStyle) {
					t.Errorf("warnings %v", s.Metadata.Warnings)
				}
			})
		})
	}
}

// At the speed of real models, embeddings take the time that reviewers and chairman leave. Those that
// come too late, or not at all, are missing from the records, and nothing else changes.
func TestStyleIsInNobodysWay(t *testing.T) {
	const reviews, chairman = 60, 30 // seconds
	status := simllm.Fault{Kind: simllm.FaultStatus, Status: 503}
	for _, tt := range []struct {
		name     string
		takes    int // seconds that the embeddings take
		faults   []simllm.Fault
		change   func(*pipeline.Options)
		measured bool
		word     string // of the warning
		longer   time.Duration
	}{
		{name: "before the reviews", takes: 5, measured: true},
		{name: "after them", takes: 80, measured: true},
		{name: "just after the chairman", takes: 91, measured: true, longer: time.Second},
		{name: "too late", takes: 170, word: "the session was done", longer: 2 * time.Second},
		{name: "refused", faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 401}}, word: "unauthorized"},
		{name: "out of order", faults: []simllm.Fault{status}, word: "unavailable"},
		{name: "out of order for a while", faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 503, RetryAfter: "40", Times: 1}}, measured: true},
		{name: "silent", faults: []simllm.Fault{{Kind: simllm.FaultHang}}, word: "the session was done", longer: 2 * time.Second},
		{name: "too few", faults: []simllm.Fault{{Kind: simllm.EmbeddingMissing}}, word: "one embedding for each of 3 texts"},
		{name: "zero", faults: []simllm.Fault{{Kind: simllm.EmbeddingZero}}, word: "zero as a whole"},
		{name: "unknown", change: func(o *pipeline.Options) { o.Sides = []council.Side{disagreement.Embeddings{Model: "none"}} }, word: "unknown_model"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				front := func(next http.Handler) http.Handler {
					slow := taking(func(model string, task simllm.TaskKind) time.Duration {
						seconds := map[simllm.TaskKind]int{simllm.Question: 20, simllm.Review: reviews, simllm.Synthesis: chairman}[task]
						if model == "embed" {
							seconds = tt.takes
						}
						return time.Duration(seconds) * time.Second
					})
					return slow(next)
				}
				change := func(o *pipeline.Options) {
					embedding(o)
					if tt.change != nil {
						tt.change(o)
					}
				}
				h := bubble(t, withEmbedder(3, tt.faults...), front, change)
				begun := time.Now()
				s := h.run(t, council.Request{})
				if took := time.Since(begun) - (20+reviews+chairman)*time.Second; took < tt.longer || took > tt.longer+time.Second/2 {
					t.Errorf("the session took %v longer than its models, want %v", took, tt.longer)
				}
				if s.Status != council.StatusComplete || !s.Persisted {
					t.Errorf("the session is %s, persisted %v", s.Status, s.Persisted)
				}
				with, without := h.measured()
				if all := with + without; all != 6 || tt.measured != (with == 6) || tt.measured == (without == 6) {
					t.Errorf("%d records have a similarity, %d none", with, without)
				}
				var warnings []string
				for _, w := range s.Metadata.Warnings {
					warnings = append(warnings, fmt.Sprintf("%s: %s", w.Code, w.Message))
				}
				switch {
				case tt.word == "" && len(warnings) > 0:
					t.Errorf("warnings %q", warnings)
				case tt.word != "" && (len(warnings) != 1 || !warned(s, council.WarnNoStyle) || !strings.Contains(warnings[0], tt.word)):
					t.Errorf("warnings %q, want one that says %q", warnings, tt.word)
				}
			})
		})
	}
}

// The limits of a session hold for embeddings too.
func TestStyleWithinLimits(t *testing.T) {
	h := build(t, withEmbedder(3), embedding)
	whole := h.run(t, council.Request{})
	answers := whole.Metadata.Usage.ByStage[council.Stage1].Tokens()
	s := h.run(t, council.Request{MaxTotalTokens: new(answers)})
	if !warned(s, council.WarnNoStyle) {
		t.Errorf("warnings %v", s.Metadata.Warnings)
	}
	if spent, ok := s.Metadata.Usage.ByStage["embedding"]; ok && spent.Tokens() > 0 {
		t.Errorf("embeddings took %d tokens of a spent budget", spent.Tokens())
	}
}

// A caller that leaves ends the embeddings too.
func TestStyleEndsWithItsSession(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		h := bubble(t, withEmbedder(3, simllm.Fault{Kind: simllm.FaultHang}), taking(func(string, simllm.TaskKind) time.Duration {
			return 20 * time.Second
		}), embedding)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := h.Run(ctx, h.plan(t, council.Request{}), nil, nil)
		if took := time.Since(begun); took != 30*time.Second || code(err) != council.CodeCancelled {
			t.Errorf("it ended after %v with %v", took, err)
		}
	})
}

// A session that is taken over has the similarities that its log holds, and asks again for those that it does not
// hold: nobody knows whether the earlier process had them, so they may have been paid twice.
func TestStyleAfterATakeover(t *testing.T) {
	for _, landed := range []bool{true, false} {
		r := newRelay(t, withEmbedder(3), embedding)
		plan, err := r.first.Prepare(council.Request{Query: "How alike?", Seed: new(int64(4))})
		if err != nil {
			t.Fatal(err)
		}
		whole := &tape{}
		if _, err := r.first.Run(t.Context(), plan, whole, whole.log(nil)); err != nil {
			t.Fatal(err)
		}
		isEmbedding := func(e runlog.Entry) bool {
			return e.Type == council.EventCall && bytes.Contains(e.Data, []byte(`"embedding"`))
		}
		at := slices.IndexFunc(whole.entries, isEmbedding)
		if at < 0 || bytes.Contains(whole.entries[at].Data, []byte("ectors")) {
			t.Fatalf("the log holds no similarities, or embeddings: %d", at)
		}
		call := whole.entries[at]
		past := slices.Delete(whole.entries, at, at+1)
		past = past[:slices.IndexFunc(past, func(e runlog.Entry) bool { return e.Type == council.EventStage3 })]
		if landed {
			call.At = past[len(past)-1].At
			past = append(past, call)
		}
		first := slices.Clone(r.notes.batches[0])
		r.notes.batches = nil
		s, err := r.second.Run(t.Context(), plan, &tape{}, (&tape{}).log(past))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for call, n := range r.calls.count {
			if strings.HasPrefix(call, "embedding") {
				asked += n
			}
		}
		again := slices.ContainsFunc(s.Metadata.Warnings, func(w council.Warning) bool {
			return w.Code == council.WarnTakenOver && strings.Contains(w.Message, "embedding")
		})
		if again == landed || asked != map[bool]int{true: 1, false: 2}[landed] {
			t.Errorf("landed %v: asked %d times, warnings %v", landed, asked, s.Metadata.Warnings)
		}
		for i, record := range r.notes.batches[0] {
			if record.StyleSimilarity == nil || *record.StyleSimilarity != *first[i].StyleSimilarity {
				t.Errorf("landed %v: the similarity of a record is %v", landed, record.StyleSimilarity)
			}
		}
	}
}
