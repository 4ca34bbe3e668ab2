package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/runlog"
	"github.com/councild/councild/internal/simllm"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// calls counts the calls that pass through it and may begin, by stage, seat, model and turns: a
// repair has more turns than the call before it.
type calls struct {
	council.Completer
	mu    sync.Mutex // guards count
	count map[string]int
}

func (c *calls) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	count := sync.OnceFunc(func() {
		c.mu.Lock()
		c.count[fmt.Sprintf("%s %s %s %d", call.Stage, call.Seat, call.Model, len(call.Messages))]++
		c.mu.Unlock()
	})
	begin := call.Begin
	call.Begin = func(ctx context.Context, a council.Attempt) (council.Receipt, *council.Failure) {
		receipt, failure := begin(ctx, a)
		if failure == nil {
			count()
		}
		return receipt, failure
	}
	return c.Completer.Complete(ctx, call)
}

// made returns the calls since the last time.
func (c *calls) made() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.count
	c.count = map[string]int{}
	return made
}

// tape is the log of a run: its observer until a number of events. It then cancels the
// run, as a process that dies does, and takes nothing more.
type tape struct {
	start   time.Time // of the run's clock
	limit   int       // 0: none
	cancel  context.CancelFunc
	entries []runlog.Entry
	after   []council.EventType // what was observed after the end of the tape
}

func (l *tape) Observe(e council.Event) {
	last := e.Type == council.EventDone || e.Type == council.EventFailed
	switch {
	case l.limit > 0 && len(l.entries) == l.limit:
		if !last {
			l.after = append(l.after, e.Type)
		}
		return
	case !last:
		data, err := json.Marshal(e.Data)
		if err != nil {
			panic(err)
		}
		if n := len(l.entries); n > 0 && l.entries[n-1].Type == e.Type { // pieces of a text are stored together
			stored, _ := l.entries[n-1].Decode()
			joined := any(nil)
			switch piece := e.Data.(type) {
			case council.Delta:
				joined = council.Delta{Text: stored.Data.(council.Delta).Text + piece.Text}
			case council.AnswerDelta:
				if before := stored.Data.(council.AnswerDelta); before.Model == piece.Model {
					joined = council.AnswerDelta{Model: piece.Model, Text: before.Text + piece.Text}
				}
			}
			if joined != nil {
				if data, err = json.Marshal(joined); err != nil {
					panic(err)
				}
				l.entries = l.entries[:n-1]
			}
		}
		l.entries = append(l.entries, runlog.Entry{Entry: council.Entry{Type: e.Type, Data: data}, At: time.Since(l.start)})
	}
	if len(l.entries) == l.limit && l.cancel != nil {
		l.cancel()
	}
}

func free(context.Context) error { return nil }

func (l *tape) log(past []runlog.Entry) *runlog.Log {
	elapsed := time.Duration(0)
	if len(past) > 0 {
		elapsed = past[len(past)-1].At
	}
	l.start = time.Now().Add(-elapsed)
	return &runlog.Log{
		State: &runlog.State{Accepted: runlog.Accepted{Format: runlog.PlanFormat}, Entries: past, Elapsed: elapsed}, Stored: func(context.Context) {}, MayCall: free,
	}
}

// shared is a Recorder of which two processes have the records.
type shared struct{ *notebook }

func (s shared) holds(_ context.Context, id string, created time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range s.batches {
		if batch[0].SessionID == id && !batch[0].Timestamp.Before(created) {
			return true, nil
		}
	}
	return false, nil
}

// relay is two processes with different settings that carry out the same plans over the
// same provider.
type relay struct {
	first, second *pipeline.Pipeline
	calls         *calls
	notes         *notebook
	started       *[]council.EventType // what the second process itself was told of
}

func newRelay(t *testing.T, models []simllm.Model, mutate ...func(*pipeline.Options)) relay {
	t.Helper()
	var options pipeline.Options
	r := relay{calls: &calls{count: map[string]int{}}, started: &[]council.EventType{}}
	h := build(t, models, append(mutate, func(o *pipeline.Options) {
		r.notes = o.Recorder.(*notebook)
		r.calls.Completer = o.Completer
		o.Completer, o.Holds = r.calls, shared{r.notes}.holds
		options = *o
	})...)
	r.first = h.Pipeline
	o := options
	o.Version, o.ConfigVersion, o.MaxSessionBytes, o.Timeout, o.MaxTotalTokens = "other", "other", 1, time.Nanosecond, new(int64(1))
	o.Sampling = council.Sampling{Temperature: new(1.5)}
	o.BallotRepair, o.SelfReviewRate, o.StragglerGrace, o.Quorum = !o.BallotRepair, 1, nil, 1
	o.PartialBallots, o.Order, o.Audit = council.PolicyTiedLast, council.OrderShared, nil
	if options.Audit == nil {
		o.Audit = &council.AuditThresholds{}
	}
	o.Map = !o.Map
	o.Models, o.Chairman, o.ChairmanFallbacks, o.Reviewers = []string{"x", "y"}, "y", []string{"x"}, []string{"x"}
	o.Sides = withOtherTerms(o.Sides)
	o.Consent, o.HashSecret, o.Providers = 4, "a secret", []string{"org"}
	o.Observer = council.ObserverFunc(func(e council.Event) { *r.started = append(*r.started, e.Type) })
	var err error
	if r.second, err = pipeline.New(o); err != nil {
		t.Fatal(err)
	}
	return r
}

// withOtherTerms returns sides as a process with another lexicon has them.
func withOtherTerms(sides []council.Side) []council.Side {
	terms := disagreement.NewMatcher(disagreement.Lexicon{Axes: disagreement.Axes{"size": {"small"}}})
	others := []council.Side{disagreement.Terms{Matcher: terms, Threshold: 0.1}}
	for _, s := range sides {
		switch s := s.(type) {
		case disagreement.Embeddings:
			if s.Matcher != nil {
				s.Matcher = terms
			}
			others = append(others, s)
		case disagreement.Rater:
			others = append(others, s)
		}
	}
	return others
}

// code returns the code of a run's error, "" for nil.
func code(err error) council.Code {
	if e, ok := errors.AsType[*council.Error](err); ok {
		return e.Code
	}
	return ""
}

// steady returns a session without what may differ after it was taken over: times,
// and, where calls were lost, the warnings of that and whether sums lack what nobody knows.
func steady(s *council.Session, lost bool) *council.Session {
	copied := *s
	m := &copied.Metadata
	m.Timing = council.Timing{}
	m.Warnings = slices.DeleteFunc(slices.Clone(m.Warnings), func(w council.Warning) bool {
		return lost && (w.Code == council.WarnTakenOver || w.Code == council.WarnTokensUnknown)
	})
	if lost {
		whole := func(u council.Usage) council.Usage {
			u = u.Plus(council.NoUsage())
			for _, n := range []**int64{&u.InputTokens, &u.OutputTokens} {
				if *n == nil {
					*n = new(int64)
				}
			}
			if u.CostUSD == nil {
				u.CostUSD = new(float64)
			}
			u.Partial = false
			return u
		}
		m.Usage.ByStage, m.Usage.ByModel = maps.Clone(m.Usage.ByStage), maps.Clone(m.Usage.ByModel)
		for stage, u := range m.Usage.ByStage {
			m.Usage.ByStage[stage] = whole(u)
		}
		for model, u := range m.Usage.ByModel {
			m.Usage.ByModel[model] = whole(u)
		}
		m.Usage.Total = whole(m.Usage.Total)
		m.Usage.CostUSD = m.Usage.Total.CostUSD
	}
	return &copied
}

// observed returns the events of a tape that every run of a plan has, in some order.
func observed(past []runlog.Entry) []string {
	var all []string
	for _, e := range past {
		var seat struct {
			Model string `json:"model"`
		}
		switch e.Type {
		case council.EventAnswerDelta, council.EventAnswerRestart, council.EventDelta, council.EventRestart, council.EventCall:
			continue
		case council.EventAnswer, council.EventBallot:
			_ = json.Unmarshal(e.Data, &seat)
		default: // an event of the whole run
		}
		all = append(all, string(e.Type)+" "+seat.Model)
	}
	slices.Sort(all)
	return all
}

// written returns the text that a tape leaves.
func written(past []runlog.Entry) string {
	var text strings.Builder
	for _, e := range past {
		switch event, _ := e.Decode(); data := event.Data.(type) {
		case council.Delta:
			text.WriteString(data.Text)
		case council.Restart:
			text.Reset()
		}
	}
	return text.String()
}

// answers returns the text of each member that a tape leaves.
func answers(past []runlog.Entry) map[string]string {
	texts := map[string]string{}
	for _, e := range past {
		switch event, _ := e.Decode(); data := event.Data.(type) {
		case council.AnswerDelta:
			texts[data.Model] += data.Text
		case council.AnswerRestart:
			delete(texts, data.Model)
		}
	}
	return texts
}

// landed reports whether the outcome of a call stands in a tape. The call is as in calls.
func landed(past []runlog.Entry, call string) bool {
	parts := strings.Fields(call) // stage, seat, model, turns
	before := false               // the first call of the model in the seat landed
	return slices.ContainsFunc(past, func(e runlog.Entry) bool {
		switch event, _ := e.Decode(); data := event.Data.(type) {
		case council.Answer:
			return parts[0] == "stage1" && data.Model == parts[1]
		case council.Review:
			return parts[0] == "stage2" && data.Model == parts[1]
		case council.Synthesis:
			return parts[0] == "stage3"
		case council.Landed:
			if string(data.Stage) != parts[0] || data.Seat != parts[1] || data.Model != parts[2] {
				return false
			}
			again := before
			before = true
			return again == (parts[3] > "2") // a repair has three turns at least
		default:
			return false
		}
	})
}

// waiting returns the stage of the calls that were begun on a tape and have no outcome there, and their seats.
func waiting(past []runlog.Entry) (stage council.Stage, seats []string) {
	begun := map[[2]string]int{} // the number of the last call
	var over []string
	for _, e := range past {
		event, _ := e.Decode()
		switch data := event.Data.(type) {
		case council.Begun:
			for _, c := range data.Calls {
				begun[[2]string{string(c.Stage), c.Seat}] = c.Number
			}
		case council.Landed:
			if key := [2]string{string(data.Stage), data.Seat}; begun[key] == data.Number {
				delete(begun, key)
			}
		case council.Answer:
			over = append(over, "stage1 "+data.Model)
		case council.Review:
			over = append(over, "stage2 "+data.Model)
		case council.Synthesis:
			over = append(over, "stage3 "+council.SeatChairman)
		}
	}
	for key := range begun {
		if !slices.Contains(over, key[0]+" "+key[1]) {
			stage = council.Stage(key[0])
			seats = append(seats, key[1])
		}
	}
	slices.Sort(seats)
	return stage, seats
}

// stating returns models that contradict each other on a fact. As chairmen they write maps.
func stating(models []simllm.Model, maps simllm.Maps) []simllm.Model {
	models = slices.Clone(models)
	for i := range models {
		models[i].Facts = []simllm.Fact{{Name: "the port", Value: []string{"80", "8080"}[i%2]}}
		models[i].Maps = maps
	}
	return models
}

// prose has a reviewer write a reply without a ballot until it is asked for it again.
func prose(m simllm.Model) simllm.Model {
	m.Reply = func(task simllm.Task) (string, bool) {
		return "I like them all.", task.Kind == simllm.Review && !task.Again
	}
	return m
}

// A run that ends with its process, after any of its events, is gone on with by another
// process: the session is the one that it would have been, no call that landed is made
// again, no event is observed again, and the records are appended once.
func TestResume(t *testing.T) {
	t.Parallel()
	synthesis, review := []simllm.TaskKind{simllm.Synthesis}, []simllm.TaskKind{simllm.Review}
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 400, Tasks: []simllm.TaskKind{simllm.Question}}
	broken := simllm.Fault{Kind: simllm.FaultStatus, Status: 500, Tasks: synthesis}
	m := members(4)
	for i := range m {
		m[i].FirstChunk, m[i].ChunkDelay = 0, 0
	}
	repairing := func(o *pipeline.Options) { o.BallotRepair = true }
	mapping := func(o *pipeline.Options) { o.Map = true }
	tests := []struct {
		name    string
		models  []simllm.Model
		options func(*pipeline.Options)
		request council.Request
		deltas  bool
		convene bool // the session is convened after another one
		judge   *council.JudgeRequest
		task    bool // the session carries out a wordTask
		want    council.Status
	}{
		{name: "ranked", models: m, deltas: true, request: council.Request{Mode: council.ModeRanked}, want: council.StatusComplete},
		{
			name: "ranked without ballots", models: []simllm.Model{prose(m[0]), prose(m[1]), prose(m[2])}, deltas: true,
			request: council.Request{Mode: council.ModeRanked}, want: council.StatusDegraded,
		},
		{name: "synthesis", models: m, deltas: true, request: council.Request{Mode: council.ModeSynthesis}, want: council.StatusComplete},
		{
			name: "ensemble", models: m, deltas: true, want: council.StatusComplete,
			request: council.Request{Mode: council.ModeSynthesis, Models: []string{"birch", "birch", "birch"}},
		},
		{
			name: "vote", models: answering("7", "8", "8", "7"), deltas: true, want: council.StatusComplete,
			request: council.Request{Mode: council.ModeVote, AnswerForm: number},
		},
		{
			name: "a vote that cannot be read", models: m, deltas: true, want: council.StatusFailed,
			request: council.Request{Mode: council.ModeVote, AnswerForm: number},
		},
		{
			name: "first two alike", models: answering("7", "7", "8", "9"), deltas: true, want: council.StatusComplete,
			request: council.Request{First: new(2), AnswerForm: number},
		},
		{
			name: "first two different", models: answering("7", "8", "8", "9"), deltas: true, want: council.StatusComplete,
			request: council.Request{First: new(2), AnswerForm: number},
		},
		{
			name: "first two fail", models: []simllm.Model{with(m[0], down), with(m[1], down), m[2], m[3], members(5)[4]},
			want: council.StatusDegraded, request: council.Request{First: new(2), AnswerForm: number},
		},
		{name: "first alone", models: m, deltas: true, want: council.StatusComplete, request: council.Request{First: new(1)}},
		{
			name: "convened", models: answering("7", "7", "8", "9"), deltas: true, convene: true, want: council.StatusComplete,
			request: council.Request{First: new(2), AnswerForm: number},
		},
		{name: "judged pair", models: m, want: council.StatusComplete, judge: &council.JudgeRequest{Answers: pair()}},
		{
			name: "judged many", want: council.StatusDegraded, options: repairing,
			models: []simllm.Model{m[0], prose(m[1]), with(m[2], simllm.Fault{Kind: simllm.FaultEmptyContent, Tasks: review})},
			judge:  &council.JudgeRequest{Answers: append(pair(), council.JudgeAnswer{ID: "c", Text: "three", Author: "amber"})},
		},
		{name: "a task", models: namers(), options: withWords, task: true, want: council.StatusComplete},
		{
			name: "a task without two seats", options: withWords, task: true, want: council.StatusDegraded,
			models: append([]simllm.Model{with(m[0], down), with(m[1], simllm.Fault{Kind: simllm.FaultEmptyContent})}, namers()[2:]...),
		},
		{name: "four members", models: m, want: council.StatusComplete},
		{
			name: "a model whose name begins like a provider's", models: []simllm.Model{m[0], {Name: "org:birch"}, m[2]},
			want: council.StatusComplete,
		},
		{name: "own answers shown", models: m, options: func(o *pipeline.Options) { o.SelfReviewRate = 0.5 }, want: council.StatusComplete},
		{
			name: "repairs", models: []simllm.Model{prose(m[0]), m[1], with(m[2], simllm.Fault{Kind: simllm.BallotProse}), prose(m[3])},
			options: repairing, want: council.StatusDegraded,
		},
		{
			name: "a repair fails", options: repairing, want: council.StatusDegraded,
			models: []simllm.Model{m[0], m[1], m[2], with(m[3], simllm.Fault{Kind: simllm.FaultEmptyContent, Tasks: review})},
		},
		{
			name: "empty ballots", want: council.StatusDegraded,
			models: []simllm.Model{m[0], m[1], m[2], with(m[3], simllm.Fault{Kind: simllm.FaultEmptyContent, Tasks: review})},
		},
		{
			name: "a member that fails", want: council.StatusDegraded,
			models: []simllm.Model{m[0], with(m[1], simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "1"}), m[2], m[3]},
		},
		{
			name: "a second chairman", want: council.StatusDegraded,
			models: []simllm.Model{with(m[0], broken), with(m[1], broken), m[2], m[3]},
		},
		{
			name: "a chairman that is lost in the middle", want: council.StatusDegraded, deltas: true,
			models: []simllm.Model{
				with(m[0], simllm.Fault{Kind: simllm.StreamError, Tasks: synthesis}),
				with(m[1], simllm.Fault{Kind: simllm.FaultLength, Tasks: synthesis}), m[2],
			},
		},
		{
			name: "no chairman", want: council.StatusDegraded, deltas: true,
			models: []simllm.Model{with(m[0], broken), with(m[1], broken), with(m[2], broken)},
		},
		{name: "streamed", models: m, deltas: true, want: council.StatusComplete},
		{
			name: "two seats of a model", models: m, request: council.Request{Models: []string{"birch", "amber", "birch"}},
			want: council.StatusComplete,
		},
		{
			name: "two seats of a model among four", models: m, options: func(o *pipeline.Options) { o.SelfReviewRate = 0.5 },
			request: council.Request{Models: []string{"birch", "amber", "birch", "cedar"}}, want: council.StatusComplete,
		},
		{
			name: "direct", models: m, deltas: true, request: council.Request{Models: []string{"birch"}, Direct: true},
			want: council.StatusComplete,
		},
		{
			name: "no quorum", want: council.StatusFailed, models: []simllm.Model{
				m[0], with(m[1], simllm.Fault{Kind: simllm.FaultRefusalField}), with(m[2], simllm.Fault{Kind: simllm.FaultHTML}),
			},
		},
		{
			name: "degraded results refused", models: []simllm.Model{m[0], with(m[1], broken), m[2], prose(m[3])},
			want: council.StatusFailed, request: council.Request{OnPartial: council.PartialRefuse},
		},
		{
			name: "a schema", models: []simllm.Model{writing(m[0], verdict, ""), m[1], m[2]},
			want: council.StatusComplete, deltas: true, request: council.Request{OutputSchema: []byte(verdictSchema)},
		},
		{
			name: "a schema, and a chairman that is wrong once", models: []simllm.Model{writing(m[0], "Yes.", verdict), m[1], m[2]},
			want: council.StatusComplete, deltas: true, request: council.Request{OutputSchema: []byte(verdictSchema)},
		},
		{
			name: "a schema, and a chairman that is always wrong", want: council.StatusDegraded,
			models:  []simllm.Model{writing(m[0], "Yes.", "No."), writing(m[1], "Perhaps.", verdict), writing(m[2], "Perhaps.", verdict)},
			request: council.Request{OutputSchema: []byte(verdictSchema)},
		},
		{
			name: "a schema that nobody fits", want: council.StatusFailed, deltas: true,
			models:  []simllm.Model{writing(m[0], "Yes.", "No."), writing(m[1], "Yes.", "No.")},
			request: council.Request{OutputSchema: []byte(verdictSchema)},
		},
		{
			name: "a schema for one model", want: council.StatusComplete, deltas: true,
			models:  []simllm.Model{writing(m[0], "Yes.", verdict), m[1]},
			request: council.Request{Models: []string{"amber"}, Direct: true, OutputSchema: []byte(verdictSchema)},
		},
		{
			name: "a map", models: stating(m, simllm.Maps{}), deltas: true, options: mapping, want: council.StatusComplete,
			request: council.Request{Map: true},
		},
		{
			name: "a map that is not streamed", models: stating(m, simllm.Maps{}), options: mapping, want: council.StatusComplete,
			request: council.Request{Map: true, Mode: council.ModeSynthesis},
		},
		{
			name: "a map without its line", models: stating(m, simllm.Maps{Form: simllm.MapUnmarked}), deltas: true, options: mapping,
			want: council.StatusComplete, request: council.Request{Map: true},
		},
		{
			name: "a map that is cut off", models: stating(m, simllm.Maps{Form: simllm.MapCut}), deltas: true, options: mapping,
			want: council.StatusComplete, request: council.Request{Map: true},
		},
		{
			name: "no map", models: stating(m, simllm.Maps{Form: simllm.MapNone}), deltas: true, options: mapping,
			want: council.StatusComplete, request: council.Request{Map: true},
		},
		{
			name: "a map of the second chairman", deltas: true, options: mapping, want: council.StatusDegraded,
			models:  append([]simllm.Model{with(m[0], simllm.Fault{Kind: simllm.StreamError, Tasks: synthesis})}, stating(m, simllm.Maps{})[1:]...),
			request: council.Request{Map: true},
		},
		{
			name: "no chairman, and a map", want: council.StatusDegraded, deltas: true, options: mapping,
			models: []simllm.Model{with(m[0], broken), with(m[1], broken), with(m[2], broken)}, request: council.Request{Map: true},
		},
		{
			name: "the budget does not reach the synthesis", models: m, want: council.StatusDegraded,
			options: func(o *pipeline.Options) { o.MaxTotalTokens = new(int64(13_000)) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var options []func(*pipeline.Options)
			if tt.options != nil {
				options = append(options, tt.options)
			}
			r := newRelay(t, tt.models, options...)
			tt.request.Query, tt.request.Seed = "How do I split a monolith?", new(int64(7))
			plan, err := r.first.Prepare(tt.request)
			if tt.judge != nil {
				tt.judge.Question, tt.judge.Seed = tt.request.Query, tt.request.Seed
				plan, err = r.first.PrepareJudge(*tt.judge)
			}
			if tt.task {
				plan, err = r.first.PrepareTask(aWord())
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.convene {
				before, err := r.first.Run(t.Context(), plan, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if plan, err = r.first.Convene(plan, before); err != nil {
					t.Fatal(err)
				}
				r.calls.made()
				r.notes.batches = nil
			}
			plan.Deltas, plan.AnswerDeltas = tt.deltas, tt.deltas && plan.Mode != council.ModeSingle
			whole := &tape{}
			want, wantErr := r.first.Run(t.Context(), plan, whole, whole.log(nil))
			if want.Status != tt.want {
				t.Fatalf("the undisturbed session is %s: %v, missing %v", want.Status, wantErr, missing(want))
			}
			wantCalls, wantRecords := r.calls.made(), slices.Clone(r.notes.batches)
			for limit := 1; limit <= len(whole.entries)+1; limit++ { // the order of the events differs from run to run
				r.notes.batches = nil
				text, err := json.Marshal(plan)
				if err != nil {
					t.Fatal(err)
				}
				before := &tape{limit: limit}
				var ctx context.Context
				ctx, before.cancel = context.WithCancel(t.Context())
				_, _ = r.first.Run(ctx, plan, before, before.log(nil))
				before.cancel()
				made := r.calls.made()
				if len(before.after) > 0 {
					t.Fatalf("after %d events: behind the end of its process the run observed %v", limit, before.after)
				}

				var again council.Plan
				if err := json.Unmarshal(text, &again); err != nil {
					t.Fatal(err)
				}
				past := before.entries
				after := &tape{}
				got, gotErr := r.second.Run(t.Context(), again, after, after.log(past))
				lost := warned(got, council.WarnTakenOver)
				if diff := cmp.Diff(steady(want, lost), steady(got, lost),
					cmpopts.IgnoreFields(council.Spent{}, "LatencyMS"), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
					t.Errorf("after %d events (-undisturbed +taken over):\n%s", limit, diff)
				}
				if code(gotErr) != code(wantErr) {
					t.Errorf("after %d events: the error is %v, undisturbed %v", limit, gotErr, wantErr)
				}
				entries := slices.Concat(past, after.entries)
				if diff := cmp.Diff(observed(whole.entries), observed(entries)); diff != "" {
					t.Errorf("after %d events: the events (-undisturbed +both):\n%s", limit, diff)
				}
				if tt.deltas && written(entries) != got.Answer {
					t.Errorf("after %d events: the pieces add up to %.50q, the answer is %.50q", limit, written(entries), got.Answer)
				}
				if wrote := answers(entries); plan.AnswerDeltas {
					for _, a := range got.Stage1 {
						if !a.Given && wrote[a.Model] != *a.Response {
							t.Errorf("after %d events: the pieces of %s add up to %.50q, its answer is %.50q", limit, a.Model, wrote[a.Model], *a.Response)
						}
					}
				}
				ballots := func(past []runlog.Entry) (n int) {
					for _, e := range past {
						if e.Type == council.EventBallot {
							n++
						}
					}
					return n
				}
				counted := map[council.EventType]int{}
				for _, event := range *r.started {
					counted[event]++
				}
				*r.started = nil
				if counted[council.EventStarted] != 1 || counted[council.EventBallot] != ballots(after.entries) {
					t.Errorf("after %d events: the second process counted %v, the run observed %v", limit, counted, observed(after.entries))
				}

				second := r.calls.made()
				stage, seats := waiting(past)
				for call, n := range second {
					if landed(past, call) {
						t.Errorf("after %d events: %q is made again", limit, call)
					}
					if wantCalls[call] != n {
						t.Errorf("after %d events: %q is made %d times, undisturbed %d", limit, call, n, wantCalls[call])
					}
				}
				for call, n := range wantCalls {
					if made[call]+second[call] < n {
						t.Errorf("after %d events: %q is not made", limit, call)
					}
					if made[call] > 0 && second[call] > 0 && !strings.HasPrefix(call, string(stage)+" ") {
						t.Errorf("after %d events: %q is made twice, and only calls of %q were in flight", limit, call, stage)
					}
				}
				var warning string
				for _, w := range got.Metadata.Warnings {
					if w.Code == council.WarnTakenOver {
						warning = w.Message
					}
				}
				names := strings.Join(seats, ", ")
				if stage == council.Stage3 && warning != "" {
					names = warning[strings.LastIndex(warning, ": "):]
					if strings.Contains(names, ",") {
						t.Errorf("after %d events: one call was in flight at most, the warning is %q", limit, warning)
					}
				}
				if len(seats) == 0 != (warning == "") || !strings.HasSuffix(warning, names) {
					t.Errorf("after %d events: in flight were %v, the warning is %q", limit, seats, warning)
				}
				if diff := cmp.Diff(wantRecords, r.notes.batches); diff != "" {
					t.Errorf("after %d events: the records:\n%s", limit, diff)
				}
			}
		})
	}
}
