package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// taking is a handler before a provider that delays each request for as long as delay
// says, or until the client closes the connection.
func taking(delay func(model string, task simllm.TaskKind) time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var request struct{ Model string }
			if err != nil || json.Unmarshal(body, &request) != nil {
				return
			}
			task := simllm.Question
			switch {
			case bytes.Contains(body, []byte("You are the chairman")):
				task = simllm.Synthesis
			case bytes.Contains(body, []byte("You are a reviewer")):
				task = simllm.Review
			}
			select {
			case <-time.After(delay(request.Model, task)):
			case <-r.Context().Done():
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	}
}

// what is left of a session when its times and its id are taken away.
func timeless(t *testing.T, s *council.Session) string {
	t.Helper()
	c := *s
	c.ID, c.Metadata.Timing = "", council.Timing{}
	c.Stage1, c.Stage2 = slices.Clone(s.Stage1), slices.Clone(s.Stage2)
	for i := range c.Stage1 {
		c.Stage1[i].LatencyMS = 0
	}
	for i := range c.Stage2 {
		c.Stage2[i].LatencyMS = 0
	}
	synthesis := *s.Stage3
	synthesis.LatencyMS = 0
	c.Stage3 = &synthesis
	c.Metadata.Usage = council.TotalUsage{} // its sums are rounded in the order in which the calls end
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Apart from its times, a session is the same at the speed of real models as without
// delays: with answers of 20 to 300 s, a chairman of 12 to 120 s or one that streams for
// ten minutes, only the configured timers act.
func TestFaultF38(t *testing.T) {
	generous := func(o *pipeline.Options) { o.Timeout = time.Hour }
	patient := func(o *llm.Options) { o.AttemptTimeout = 20 * time.Minute }
	run := func(t *testing.T, h harness, stream bool) (s *council.Session, took time.Duration) {
		t.Helper()
		plan := h.plan(t, council.Request{Seed: new(int64(11))})
		plan.Deltas = stream
		start := time.Now()
		s, err := h.Run(t.Context(), plan, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s, time.Since(start)
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	sessions, longest := 0, time.Duration(0)
	var atOnce [2]string // without and with a stream
	for _, tt := range []struct {
		name     string
		answers  [4]int // all times are in seconds
		reviews  int
		chairman int
		chunks   int // between those of the chairman's stream
		least    int // that the session takes
	}{
		{name: "at once"},
		{name: "fast", answers: [4]int{20, 25, 22, 21}, reviews: 20, chairman: 12, least: 57},
		{name: "usual", answers: [4]int{20, 60, 90, 45}, reviews: 60, chairman: 30, least: 180},
		{name: "slow", answers: [4]int{20, 120, 200, 300}, reviews: 300, chairman: 120, least: 720},
		{name: "a stream of ten minutes", answers: [4]int{20, 30, 40, 300}, reviews: 120, chairman: 12, chunks: 8, least: 432 + 600},
	} {
		for i, stream := range []bool{false, true} {
			if tt.chunks > 0 && !stream {
				continue
			}
			t.Run(fmt.Sprintf("%s stream=%v", tt.name, stream), func(t *testing.T) {
				race.Bubble(t, func(t *testing.T) {
					models := members(4)
					for i := range models {
						models[i].FirstChunk, models[i].ChunkDelay = 0, seconds(tt.chunks)
					}
					place := map[string]int{"amber": 0, "birch": 1, "cedar": 2, "dune": 3}
					h := bubbleWith(t, models, taking(func(model string, task simllm.TaskKind) time.Duration {
						return seconds(map[simllm.TaskKind]int{
							simllm.Question: tt.answers[place[model]], simllm.Review: tt.reviews, simllm.Synthesis: tt.chairman,
						}[task])
					}), patient, generous)
					s, took := run(t, h, stream)
					sessions, longest = sessions+1, max(longest, took)
					if !s.Persisted {
						t.Error("persisted is false")
					}
					if len(s.Metadata.Warnings) > 0 {
						t.Errorf("warnings %v", s.Metadata.Warnings)
					}
					if own := took - seconds(tt.least); own < 0 || own > time.Second && tt.chunks == 0 {
						t.Errorf("the session took %v, the models %v", took, seconds(tt.least))
					}
					if text := timeless(t, s); atOnce[i] == "" {
						atOnce[i] = text
					} else if diff := cmp.Diff(atOnce[i], text); diff != "" {
						t.Errorf("the session is another one than at once: %s", diff)
					}
				})
			})
		}
	}
	noted(t, "F38", fmt.Sprintf("%d sessions of up to %v: persisted, no warning, each as at once", sessions, longest.Round(time.Second)),
		"as at once: persisted, no false warning, no timer but the configured ones")
}

// Every timer of a run acts at its time. A second before, nothing is cut off; a second
// after, the session names what was cut off. At the very second both are possible, but
// nothing in between.
func TestTimersAtTheirSecond(t *testing.T) {
	type outcome struct {
		name  string
		delta time.Duration
	}
	outcomes := []outcome{{"before", -time.Second}, {"at", 0}, {"after", time.Second}}
	// only holds back the requests of one kind, of one model or of all.
	only := func(task simllm.TaskKind, model string, d time.Duration) func(http.Handler) http.Handler {
		return taking(func(m string, k simllm.TaskKind) time.Duration {
			if k == task && (m == model || model == "") {
				return d
			}
			return 0
		})
	}
	busy := func(d time.Duration) simllm.Fault { // once
		return simllm.Fault{
			Kind: simllm.FaultStatus, Status: 429, Times: 1, RetryAfter: strconv.Itoa(int(d.Seconds())),
			Tasks: []simllm.TaskKind{simllm.Question},
		}
	}
	long := func(o *llm.Options) { o.AttemptTimeout = time.Hour }
	for _, tt := range []struct {
		name  string
		at    time.Duration // when the timer acts, since the session began
		calls func(*llm.Options)
		front func(d time.Duration) func(http.Handler) http.Handler
		fault func(d time.Duration) simllm.Fault // of dune
		grace *time.Duration
		after []string // what is missing then
		fast  bool     // then the session does not wait for the timer
	}{
		{
			name: "the end of stage 1", at: 4 * time.Minute, calls: long, after: []string{"stage1 dune timeout"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Question, "dune", d) },
		},
		{
			name: "the end of stage 2", at: 8 * time.Minute, calls: long, after: []string{"stage2 dune timeout"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Review, "dune", d) },
		},
		{
			name: "the end of stage 3", at: 10*time.Minute - time.Second, calls: long, after: []string{"stage3 amber timeout"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Synthesis, "amber", d) },
		},
		{
			name: "an attempt", at: 3 * time.Minute, after: []string{"stage1 dune timeout"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Question, "dune", d) },
		},
		{
			name: "silence in a reply", at: time.Minute, after: []string{"stage1 dune timeout"},
			fault: func(d time.Duration) simllm.Fault {
				return simllm.Fault{Kind: simllm.FaultStall, Delay: d, Tasks: []simllm.TaskKind{simllm.Question}}
			},
		},
		{
			name: "the grace of stragglers in stage 1", at: 30 * time.Second, grace: new(30 * time.Second),
			after: []string{"stage1 dune cut"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Question, "dune", d) },
		},
		{
			name: "the grace of stragglers in stage 2", at: 30 * time.Second, grace: new(30 * time.Second),
			after: []string{"stage2 dune cut"},
			front: func(d time.Duration) func(http.Handler) http.Handler { return only(simllm.Review, "dune", d) },
		},
		{
			name: "Retry-After, and the end of stage 1", at: 4 * time.Minute, calls: long, after: []string{"stage1 dune rate_limited"},
			fast:  true,
			fault: busy,
		},
		{
			name: "Retry-After, and an attempt", at: 3 * time.Minute, after: []string{"stage1 dune rate_limited"}, fast: true,
			fault: busy,
		},
	} {
		for _, o := range outcomes {
			t.Run(tt.name+", "+o.name, func(t *testing.T) {
				race.Bubble(t, func(t *testing.T) {
					models := members(4)
					var front func(http.Handler) http.Handler
					if tt.front != nil {
						front = tt.front(tt.at + o.delta)
					}
					if tt.fault != nil {
						models[3] = with(models[3], tt.fault(tt.at+o.delta))
					}
					calls := tt.calls
					if calls == nil {
						calls = func(*llm.Options) {}
					}
					h := bubbleWith(t, models, front, calls, func(p *pipeline.Options) { p.StragglerGrace = tt.grace })
					start := time.Now()
					s := h.run(t, council.Request{})
					took := time.Since(start)

					got := missing(s)
					whole, cut := len(got) == 0, slices.Equal(got, tt.after)
					switch {
					case o.delta < 0 && !whole:
						t.Errorf("missing %v, want nothing", got)
					case o.delta > 0 && !cut:
						t.Errorf("missing %v, want %v", got, tt.after)
					case !whole && !cut:
						t.Errorf("missing %v, want nothing or %v", got, tt.after)
					}
					if (s.Status == council.StatusComplete) != whole || s.Answer == "" || !s.Persisted {
						t.Errorf("status %s, persisted %v, an answer of %d bytes", s.Status, s.Persisted, len(s.Answer))
					}
					least, most := tt.at+min(o.delta, 0), tt.at+time.Second // jitter and the last writes
					if cut && tt.fast {
						least, most = 0, 0
					}
					if took < least || took > most {
						t.Errorf("the session took %v, want %v to %v", took, least, most)
					}
				})
			})
		}
	}
}

// The text of members that write for two minutes comes as they write it, in at most four
// events a second each.
func TestMembersWriteForMinutes(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		const first, chunk = 5 * time.Second, 120 * time.Millisecond
		models := members(4)
		for i := range models {
			models[i].FirstChunk, models[i].ChunkDelay = first, chunk
			models[i].Length = 12
		}
		h := bubbleWith(t, models, nil, func(o *llm.Options) { o.AttemptTimeout = 10 * time.Minute },
			func(o *pipeline.Options) { o.Timeout = time.Hour })
		plan := h.plan(t, council.Request{})
		plan.AnswerDeltas = true
		start := time.Now()
		last, pieces, texts := map[string]time.Time{}, map[string]int{}, map[string]string{}
		_, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
			switch data := e.Data.(type) {
			case council.AnswerDelta:
				pause := time.Since(last[data.Model])
				if pieces[data.Model] == 0 {
					pause = time.Since(start) - first
				}
				if pause > 250*time.Millisecond+2*chunk {
					t.Errorf("%s: no piece for %v", data.Model, pause)
				}
				last[data.Model] = time.Now()
				pieces[data.Model]++
				texts[data.Model] += data.Text
			case council.Answer:
				took := time.Since(start)
				if *data.Response != texts[data.Model] || took < 2*time.Minute || pieces[data.Model] > 1+int(took.Seconds()*4) {
					t.Errorf("%s: %d pieces of %d bytes after %v, the answer has %d bytes",
						data.Model, pieces[data.Model], len(texts[data.Model]), took, len(*data.Response))
				}
				t.Logf("%s: %d pieces in %v", data.Model, pieces[data.Model], took)
			}
		}), nil)
		if err != nil {
			t.Error(err)
		}
	})
}

// A stream without data is ended by the idle timeout. A stream with some data now and then
// is not, however long it takes.
func TestSilenceInAStream(t *testing.T) {
	for _, pause := range []time.Duration{59 * time.Second, 61 * time.Second} {
		race.Bubble(t, func(t *testing.T) {
			models := members(3)
			models[0].Length, models[0].FirstChunk, models[0].ChunkDelay = 0.4, 0, pause
			h := bubbleWith(t, models, nil, func(o *llm.Options) { o.AttemptTimeout = 24 * time.Hour },
				func(o *pipeline.Options) { o.Timeout = 24 * time.Hour })
			plan := h.plan(t, council.Request{})
			plan.Deltas = true
			s, err := h.Run(t.Context(), plan, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []string(nil)
			if pause > time.Minute {
				want = []string{"stage3 amber timeout"}
			}
			if diff := cmp.Diff(want, missing(s)); diff != "" {
				t.Errorf("with %v between chunks: %s", pause, diff)
			}
			if !s.Persisted {
				t.Errorf("with %v between chunks persisted is false", pause)
			}
		})
	}
}
