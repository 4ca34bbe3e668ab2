package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notebook is a Recorder in memory.
type notebook struct {
	mu      sync.Mutex // guards all below
	batches [][]council.BiasMetricRecord
	err     error
}

func (n *notebook) Append(_ context.Context, records []council.BiasMetricRecord) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.batches = append(n.batches, records)
	}
	return n.err
}

// harness is a pipeline over a simulated provider, reached over HTTP.
type harness struct {
	*pipeline.Pipeline
	sim   *simllm.Server
	notes *notebook
}

// build makes a harness whose council is all of the models.
func build(t *testing.T, models []simllm.Model, mutate ...func(*pipeline.Options)) harness {
	t.Helper()
	sim, err := simllm.Start(t.Context(), simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return open(t, models, sim.Server, llm.Options{
		Providers: []llm.Provider{{BaseURL: sim.URL()}}, AttemptTimeout: time.Minute, DialTimeout: time.Second,
		MaxCallsPerProvider: 64, MaxReplyBytes: 1 << 20,
	}, mutate...)
}

// open makes a harness whose provider is reached as calls says.
func open(t *testing.T, models []simllm.Model, sim *simllm.Server, calls llm.Options, mutate ...func(*pipeline.Options)) harness {
	t.Helper()
	client, err := llm.New(calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	notes := &notebook{}
	o := pipeline.Options{
		Completer: client, Recorder: notes, Log: slog.New(slog.DiscardHandler), Version: "test",
		Lineup: pipeline.Lineup{MaxModels: 12}, MaxQueryBytes: 1 << 16, Limits: council.Limits{Timeout: time.Minute},
		Draws: pipeline.Draws{Order: council.OrderBalanced},
		Rules: council.Rules{
			PartialBallots: council.PolicyAvailable, Audit: &council.AuditThresholds{LengthCorrelation: 0.3, PositionVariance: 0.5}, Consent: 1,
		},
	}
	for _, m := range models {
		o.Models = append(o.Models, m.Name)
	}
	for _, f := range mutate {
		f(&o)
	}
	p, err := pipeline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return harness{Pipeline: p, sim: sim, notes: notes}
}

// members returns n models without faults and delays.
func members(n int) []simllm.Model {
	models := simllm.Council()
	for len(models) < n {
		models = append(models, simllm.Model{Name: "extra" + string(rune('a'+len(models))), Noise: 0.5})
	}
	for i := range models {
		models[i].Latency = simllm.Latency{}
	}
	return models[:n]
}

// with adds a fault to a model.
func with(m simllm.Model, faults ...simllm.Fault) simllm.Model {
	for i := range faults {
		if faults[i].Rate == 0 {
			faults[i].Rate = 1
		}
	}
	m.Faults = faults
	return m
}

func (h harness) plan(t *testing.T, r council.Request) council.Plan {
	t.Helper()
	if r.Query == "" && r.Messages == nil {
		r.Query = "How do I split a monolith?"
	}
	plan, err := h.Prepare(r)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// run runs a session that must succeed.
func (h harness) run(t *testing.T, r council.Request) *council.Session {
	t.Helper()
	session, err := h.Run(t.Context(), h.plan(t, r), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// refused runs a session that must fail.
func (h harness) refused(t *testing.T, r council.Request) (*council.Session, *council.Error) {
	t.Helper()
	session, err := h.Run(t.Context(), h.plan(t, r), nil, nil)
	e, ok := errors.AsType[*council.Error](err)
	if !ok {
		t.Fatalf("got %v, want an error with a code", err)
	}
	if e.SessionID != session.ID || session.ID == "" {
		t.Errorf("the error names session %q, the session is %q", e.SessionID, session.ID)
	}
	return session, e
}

// requests returns how many calls the provider got.
func (h harness) requests() int {
	n := 0
	for _, m := range h.sim.Stats().Models {
		n += m.Requests
	}
	return n
}

func warned(s *council.Session, code council.WarningCode) bool {
	return slices.ContainsFunc(s.Metadata.Warnings, func(w council.Warning) bool { return w.Code == code })
}

func missing(s *council.Session) []string {
	var out []string
	for _, d := range s.Degradation {
		out = append(out, string(d.Stage)+" "+d.Model+" "+string(d.Code))
	}
	return out
}

func TestSession(t *testing.T) {
	h := build(t, members(4))
	s := h.run(t, council.Request{Category: "coding", Language: "en", Seed: new(int64(5))})
	if s.Status != council.StatusComplete || !s.Persisted || len(s.Degradation) != 0 || len(s.Metadata.Warnings) != 0 {
		t.Errorf("status %s, persisted %v, missing %v, warnings %v", s.Status, s.Persisted, s.Degradation, s.Metadata.Warnings)
	}
	if s.Answer == "" || s.Answer != s.Stage3.Response || s.Stage3.Status != council.OutcomeOK || s.Stage3.Model != "amber" {
		t.Errorf("answer %.40q by %s (%s)", s.Answer, s.Stage3.Model, s.Stage3.Status)
	}
	if h.requests() != 9 {
		t.Errorf("%d calls for 4 members, want 9", h.requests())
	}
	for i, name := range []string{"amber", "birch", "cedar", "dune"} {
		if s.Stage1[i].Model != name || s.Stage2[i].Model != name {
			t.Errorf("slot %d holds %s and %s, want %s", i, s.Stage1[i].Model, s.Stage2[i].Model, name)
		}
	}
	if m := s.Metadata; m.Agreement.Ballots != 4 || m.BiasAudit == nil || len(m.AggregateRankings) != 4 || m.Seed != 5 ||
		m.Order != council.OrderBalanced || m.Usage.Total.InputTokens == nil || *m.Usage.CostUSD <= 0 || len(m.Usage.ByModel) != 4 ||
		m.Timing.TotalMS <= 0 || m.Timing.OverheadMS < 0 || m.Timing.OverheadMS > m.Timing.TotalMS {
		t.Errorf("metadata %+v", m)
	}

	if len(h.notes.batches) != 1 || len(h.notes.batches[0]) != 12 {
		t.Fatalf("%d batches, want one of 12 records", len(h.notes.batches))
	}
	seats := map[string]bool{}
	for _, r := range h.notes.batches[0] {
		seats[r.ReviewerID+" "+r.ModelID] = true
		review := s.Stage2[slices.IndexFunc(s.Stage2, func(v council.Review) bool { return v.Model == r.ReviewerID })]
		label := council.Label("")
		for l, seat := range review.LabelToModel {
			if seat.Model == r.ModelID {
				label = l
				if seat.DisplayIndex != *r.Position {
					t.Errorf("%s saw %s at %d, the record says %d", r.ReviewerID, r.ModelID, seat.DisplayIndex, *r.Position)
				}
			}
		}
		if r.ScoreValue == nil || *r.ScoreValue != review.ParsedRanking.Scores[label] {
			t.Errorf("%s gave %s %v, the record says %v", r.ReviewerID, r.ModelID, review.ParsedRanking.Scores[label], r.ScoreValue)
		}
		if rank := slices.Index(review.ParsedRanking.Ranking, label); r.RankValue == nil || *r.RankValue != float64(rank) {
			t.Errorf("%s ranked %s at %d, the record says %v", r.ReviewerID, r.ModelID, rank, r.RankValue)
		}
		author := s.Stage1[slices.IndexFunc(s.Stage1, func(a council.Answer) bool { return a.Model == r.ModelID })]
		if r.ResponseLengthChars != len([]rune(*author.Response)) {
			t.Errorf("length %d", r.ResponseLengthChars)
		}
		if r.Timestamp.Location() != time.UTC {
			t.Errorf("the time is in %s", r.Timestamp.Location())
		}
		want := council.BiasMetricRecord{
			SchemaVersion: "1.5.0", Mode: council.ModeCouncil, SessionID: s.ID, ConsentLevel: 1, ScoreScale: "1-10", CouncilConfig: "review-1",
			QueryMetadata: council.QueryMetadata{Category: new("coding"), Language: new("en"), TokenCountBucket: new("0-100")},
			NShown:        3, OrderDesign: council.OrderBalanced, Status: council.BallotOK,
			ModelVersions: council.VersionPair{Reviewer: &r.ReviewerID, Candidate: &r.ModelID},
			Provider:      council.ProviderPair{Reviewer: r.ReviewerID, Candidate: r.ModelID},
			// Compared above.
			Timestamp: r.Timestamp, ReviewerID: r.ReviewerID, ModelID: r.ModelID, Position: r.Position,
			ScoreValue: r.ScoreValue, RankValue: r.RankValue, ResponseLengthChars: r.ResponseLengthChars,
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	}
	if len(seats) != 12 {
		t.Errorf("%d pairs of reviewer and candidate, want 12", len(seats))
	}
}

// The session and its records say which version of each model replied, and how many tokens it took to think.
func TestVersionsAndReasoning(t *testing.T) {
	testkit.Slow(t)
	models := members(3)
	models[0].Version, models[0].Reasoning = "amber-2025-08-07", new(120)
	models[1].Reasoning = new(0)
	for _, deltas := range []bool{false, true} {
		h := build(t, models)
		plan := h.plan(t, council.Request{})
		plan.Deltas, plan.AnswerDeltas = deltas, deltas
		s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(council.Event) {}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			version   string
			reasoning *int64
		}{{"amber-2025-08-07", new(int64(120))}, {"birch", new(int64(0))}, {"cedar", nil}} {
			for _, spent := range []council.Spent{s.Stage1[i].Spent, s.Stage2[i].Spent} {
				if *spent.ModelVersion != want.version || !reflect.DeepEqual(spent.Usage.ReasoningTokens, want.reasoning) {
					t.Errorf("%s replied as %v with %+v", s.Stage1[i].Model, *spent.ModelVersion, spent.Usage)
				}
			}
			for _, r := range h.notes.batches[0] {
				name := s.Stage1[i].Model
				if r.ReviewerID == name && *r.ModelVersions.Reviewer != want.version ||
					r.ModelID == name && (*r.ModelVersions.Candidate != want.version || !reflect.DeepEqual(r.ResponseReasoningTokens, want.reasoning)) {
					t.Errorf("a record of %s has %+v and %v", name, r.ModelVersions, r.ResponseReasoningTokens)
				}
			}
		}
		if *s.Stage3.ModelVersion != "amber-2025-08-07" || *s.Metadata.Usage.Total.ReasoningTokens != 360 || s.Metadata.Usage.Total.Partial {
			t.Errorf("the chairman is %v, and all used %+v", *s.Stage3.ModelVersion, s.Metadata.Usage.Total)
		}
		if s.Metadata.Versions.CouncilConfig != "review-1" {
			t.Errorf("a version of a model is no other council: %s", s.Metadata.Versions.CouncilConfig)
		}
	}
}

// The same seed and question give the same labels, orders and, with the simulated
// provider, the same ranking: always, and on every machine.
func TestGoldenSession(t *testing.T) {
	for _, order := range []council.Order{council.OrderBalanced, council.OrderPerReviewer, council.OrderShared} {
		for range 2 {
			s := build(t, members(5)).run(
				t, council.Request{Query: "What makes a good code review?", Seed: new(int64(20260501)), Order: order},
			)
			type review struct {
				Model   string
				Labels  map[council.Label]council.Seat
				Ranking []council.Label
				Scores  map[council.Label]float64
			}
			held := struct {
				Labels    map[council.Label]council.Seat
				Positions map[string]map[string]int
				Reviews   []review
				Rankings  []council.Standing
				Agreement council.Agreement
				Audit     *council.BiasAudit
			}{
				Labels: s.Metadata.LabelToModel, Positions: s.Metadata.ReviewerPositionMapping,
				Rankings: s.Metadata.AggregateRankings, Agreement: s.Metadata.Agreement, Audit: s.Metadata.BiasAudit,
			}
			for _, v := range s.Stage2 {
				held.Reviews = append(held.Reviews, review{v.Model, v.LabelToModel, v.ParsedRanking.Ranking, v.ParsedRanking.Scores})
			}
			got, err := json.MarshalIndent(held, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "session_"+string(order)+".golden")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("%s: %s", order, diff)
			}
		}
	}
}

func TestDegraded(t *testing.T) {
	m := members(4)
	h := build(t, []simllm.Model{
		m[0],
		with(m[1], simllm.Fault{Kind: simllm.FaultStatus, Status: 500}),
		with(m[2], simllm.Fault{Kind: simllm.BallotAbstain}),
		with(m[3], simllm.Fault{Kind: simllm.BallotTruncated}),
	})
	s := h.run(t, council.Request{})
	want := []string{"stage1 birch unavailable", "stage2 birch unavailable", "stage2 cedar abstained"}
	if s.Stage2[3].Status == council.OutcomeInvalid {
		want = append(want, "stage2 dune invalid_ballot")
	}
	if diff := cmp.Diff(want, missing(s)); diff != "" {
		t.Error(diff)
	}
	if s.Status != council.StatusDegraded || s.Stage1[1].Status != council.OutcomeError || s.Stage1[1].Response != nil ||
		*s.Stage1[1].Error.HTTPStatus != 500 ||
		s.Stage2[1].Status != council.OutcomeError || s.Stage2[1].Ranking != nil || s.Stage2[1].ParsedRanking != nil ||
		s.Stage2[2].Status != council.OutcomeAbstained || s.Stage2[2].ParsedRanking.Reason == "" || s.Stage2[2].Error != nil ||
		s.Stage2[3].Ranking == nil {
		t.Errorf("stage 1: %+v\nstage 2: %+v", s.Stage1, s.Stage2)
	}
	if len(s.Metadata.AggregateRankings) != 3 || s.Metadata.Usage.CostUSD == nil || !s.Metadata.Usage.Total.Partial {
		t.Errorf("rankings %+v, cost %v", s.Metadata.AggregateRankings, s.Metadata.Usage.CostUSD)
	}
	// There are records for every reviewer that was asked, whatever came back.
	statuses := map[council.BallotStatus]int{}
	for _, r := range h.notes.batches[0] {
		statuses[r.Status]++
		if r.Status != council.BallotOK && r.Status != council.BallotPartial && (r.ScoreValue != nil || r.RankValue != nil) {
			t.Errorf("a record of a missing ballot holds figures: %+v", r)
		}
	}
	if statuses[council.BallotError] != 3 || statuses[council.BallotAbstained] != 2 || statuses[council.BallotOK] != 2 {
		t.Errorf("records by status: %v", statuses)
	}
}

func TestNoQuorum(t *testing.T) {
	m := members(4)
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 503}
	h := build(t, []simllm.Model{m[0], m[1], with(m[2], down), with(m[3], down)})
	s, e := h.refused(t, council.Request{})
	if e.Code != council.CodeNoQuorum || len(e.Fields) != 2 || e.Fields[0].Field != "cedar" {
		t.Errorf("got %+v", e)
	}
	for _, part := range []string{"unavailable", "503", "127.0.0.1:", "simulated failure"} { // the provider's address and words
		if !strings.Contains(e.Fields[0].Message, part) {
			t.Errorf("the reason %q lacks %q", e.Fields[0].Message, part)
		}
	}
	// The words of a model that refuses are no part of the error.
	refusal := simllm.Fault{Kind: simllm.FaultRefusalField}
	if _, e := build(
		t, []simllm.Model{with(m[0], refusal), with(m[1], refusal)},
	).refused(t, council.Request{}); e.Fields[0].Message != "refused" {
		t.Errorf("got %+v", e.Fields)
	}
	if h.requests() != 4 || len(h.notes.batches) != 0 || s.Status != council.StatusFailed || len(s.Stage1) != 4 {
		t.Errorf("%d calls, %d batches, status %s", h.requests(), len(h.notes.batches), s.Status)
	}
	// With a lower quorum two answers are enough.
	if s := build(t, []simllm.Model{m[0], m[1], with(m[2], down), with(m[3], down)}, func(o *pipeline.Options) { o.Quorum = 2 }).
		run(t, council.Request{}); s.Status != council.StatusDegraded {
		t.Errorf("status %s", s.Status)
	}
}

// A caller is told when enough members may answer again, if that is known.
func TestNoQuorumRetryAfter(t *testing.T) {
	busy := func(after string) simllm.Fault {
		return simllm.Fault{Kind: simllm.FaultStatus, Status: 429, RetryAfter: after}
	}
	for _, tt := range []struct {
		name  string
		after [3]string // of birch, cedar and dune; one of them is needed
		want  time.Duration
	}{
		{"the first to be back", [3]string{"300", "200", "400"}, 200 * time.Second},
		{"one that says when", [3]string{"", "200", ""}, 200 * time.Second},
		{"nobody says", [3]string{"", "", ""}, 0},
		{"a far date", [3]string{"Fri, 31 Dec 9999 23:59:59 GMT", "", ""}, time.Hour},
		{"a date gone by", [3]string{"Fri, 31 Dec 1999 23:59:59 GMT", "", ""}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := members(4)
			for i, after := range tt.after {
				m[i+1] = with(m[i+1], busy(after))
			}
			if _, e := build(t, m, func(o *pipeline.Options) { o.Quorum = 2 }).refused(t, council.Request{}); e.RetryAfter != tt.want {
				t.Errorf("retry after %v, want %v", e.RetryAfter, tt.want)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	m := members(3)
	hang := simllm.Fault{Kind: simllm.FaultHang}
	h := build(
		t, []simllm.Model{m[0], with(m[1], hang), with(m[2], hang)}, func(o *pipeline.Options) { o.Timeout = 300 * time.Millisecond },
	)
	_, e := h.refused(t, council.Request{})
	if e.Code != council.CodeDeadline || !strings.Contains(e.Fields[0].Message, "timeout") {
		t.Errorf("got %+v", e)
	}
	// After a stage that ran out of time, a quorum is enough to go on.
	h = build(t, []simllm.Model{m[0], m[1], with(m[2], hang)}, func(o *pipeline.Options) { o.Timeout = time.Second })
	s := h.run(t, council.Request{})
	if diff := cmp.Diff([]string{"stage1 cedar timeout", "stage2 cedar timeout"}, missing(s)); diff != "" {
		t.Error(diff)
	}
	if !warned(s, council.WarnFastestOnly) {
		t.Errorf("warnings %v", s.Metadata.Warnings)
	}
	if s.Metadata.Timing.TotalMS > 1000 {
		t.Errorf("the run took %v ms of its 1000", s.Metadata.Timing.TotalMS)
	}
}

func TestChairman(t *testing.T) {
	synthesis := []simllm.TaskKind{simllm.Synthesis}
	broken := simllm.Fault{Kind: simllm.FaultStatus, Status: 500, Tasks: synthesis}
	prose := simllm.Fault{Kind: simllm.BallotProse}
	tests := []struct {
		name     string
		faults   [3][]simllm.Fault // of amber, birch, cedar
		options  func(*pipeline.Options)
		model    string
		fallback council.Fallback
		missing  []string
	}{
		{name: "the first model by default", model: "amber"},
		{name: "the configured one", options: func(o *pipeline.Options) { o.Chairman = "cedar" }, model: "cedar"},
		{
			name: "the next by rank", faults: [3][]simllm.Fault{{broken}}, model: "birch",
			fallback: council.FallbackSecondChairman, missing: []string{"stage3 amber unavailable"},
		},
		{
			name: "the configured fallback", faults: [3][]simllm.Fault{{broken}}, model: "cedar",
			options:  func(o *pipeline.Options) { o.ChairmanFallbacks = []string{"cedar"} },
			fallback: council.FallbackSecondChairman, missing: []string{"stage3 amber unavailable"},
		},
		{
			name: "an empty synthesis", faults: [3][]simllm.Fault{{{Kind: simllm.FaultEmptyContent, Tasks: synthesis}}}, model: "birch",
			fallback: council.FallbackSecondChairman, missing: []string{"stage3 amber empty"},
		},
		{
			name: "a synthesis cut short", faults: [3][]simllm.Fault{{{Kind: simllm.FaultLength, Tasks: synthesis}}}, model: "birch",
			fallback: council.FallbackSecondChairman, missing: []string{"stage3 amber length"},
		},
		{
			name: "the best answer", faults: [3][]simllm.Fault{{broken}, {broken}, {broken}}, model: "birch",
			fallback: council.FallbackTopRanked,
			missing:  []string{"stage3 amber unavailable", "stage3 birch unavailable", "stage3 cedar unavailable"},
		},
		{
			name: "the first answer", faults: [3][]simllm.Fault{
				{broken, prose}, {broken, prose}, {broken, prose},
			}, model: "amber", fallback: council.FallbackFirstAnswer,
			missing: []string{
				"stage2 amber invalid_ballot", "stage2 birch invalid_ballot", "stage2 cedar invalid_ballot",
				"stage3 amber unavailable", "stage3 birch unavailable", "stage3 cedar unavailable",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := members(3)
			// birch is clearly the best, so that "by rank" is known.
			m[1].Quality, m[1].Spread = 4, 0
			for i := range m {
				m[i] = with(m[i], tt.faults[i]...)
			}
			var mutate []func(*pipeline.Options)
			if tt.options != nil {
				mutate = append(mutate, tt.options)
			}
			s := build(t, m, mutate...).run(t, council.Request{})
			if s.Stage3.Model != tt.model || s.Answer != s.Stage3.Response {
				t.Errorf("by %s, want %s", s.Stage3.Model, tt.model)
			}
			if !strings.HasPrefix(s.Answer, "Simulated ") {
				t.Errorf("the answer is %.80q", s.Answer)
			}
			if diff := cmp.Diff(tt.missing, missing(s)); diff != "" {
				t.Error(diff)
			}
			if tt.fallback == "" {
				if s.Stage3.Fallback != nil || s.Stage3.Status != council.OutcomeOK || s.Stage3.Error != nil {
					t.Errorf("got %+v", s.Stage3)
				}
				return
			}
			if s.Stage3.Fallback == nil || *s.Stage3.Fallback != tt.fallback || s.Stage3.Status != council.OutcomeFallback ||
				s.Stage3.Error == nil || s.Status != council.StatusDegraded {
				t.Errorf("got %+v, status %s", s.Stage3, s.Status)
			}
			if (tt.fallback == council.FallbackFirstAnswer) != warned(s, council.WarnNoRanking) {
				t.Errorf("warnings %v", s.Metadata.Warnings)
			}
		})
	}
}

func TestOneAnswer(t *testing.T) {
	m := members(3)
	down := simllm.Fault{Kind: simllm.FaultStatus, Status: 503}
	h := build(t, []simllm.Model{with(m[0], down), m[1], with(m[2], down)}, func(o *pipeline.Options) { o.Quorum, o.Chairman = 1, "birch" })
	s := h.run(t, council.Request{})
	if !warned(s, council.WarnReviewSkipped) || len(s.Stage2) != 0 || s.Persisted || len(h.notes.batches) != 0 ||
		s.Stage3.Model != "birch" || h.requests() != 4 {
		t.Errorf("warnings %v, %d reviews, %d calls", s.Metadata.Warnings, len(s.Stage2), h.requests())
	}
}

func TestTwoMembersCannotRankEachOther(t *testing.T) {
	h := build(t, members(2))
	s := h.run(t, council.Request{})
	if !warned(s, council.WarnOneCandidate) || !warned(s, council.WarnNoRanking) || s.Metadata.Agreement.Ballots != 0 {
		t.Errorf("warnings %v, %d ballots", s.Metadata.Warnings, s.Metadata.Agreement.Ballots)
	}
	if len(h.notes.batches[0]) != 2 || h.notes.batches[0][0].ScoreValue == nil {
		t.Errorf("records %+v", h.notes.batches[0])
	}
}

func TestOneModelTwice(t *testing.T) {
	h := build(t, members(2))
	s := h.run(t, council.Request{Models: []string{"amber", "birch", "amber"}})
	if s.Stage1[2].Model != "amber#2" || len(h.notes.batches[0]) != 6 || len(s.Metadata.Usage.ByModel) != 2 {
		t.Errorf(
			"third member %s, %d records, usage of %d models", s.Stage1[2].Model, len(h.notes.batches[0]), len(s.Metadata.Usage.ByModel),
		)
	}
	for _, r := range h.notes.batches[0] {
		if strings.Contains(r.Provider.Candidate+r.Provider.Reviewer, "#") {
			t.Errorf("provider %+v", r.Provider)
		}
	}
}

func TestReviewersFromOutside(t *testing.T) {
	m := members(5)
	h := build(t, m, func(o *pipeline.Options) {
		o.Models, o.Reviewers = []string{"amber", "birch", "cedar"}, []string{"dune", m[4].Name, "amber"}
	})
	s := h.run(t, council.Request{})
	if got := []int{
		len(s.Stage2[0].LabelToModel), len(s.Stage2[1].LabelToModel), len(s.Stage2[2].LabelToModel),
	}; !slices.Equal(got, []int{3, 3, 2}) {
		t.Errorf("slates of %v answers", got)
	}
	if len(h.notes.batches[0]) != 8 || h.requests() != 7 {
		t.Errorf("%d records, %d calls", len(h.notes.batches[0]), h.requests())
	}
}

func TestOwnAnswersAreShownButNotCounted(t *testing.T) {
	m := members(4)
	for i := range m {
		m[i].Affinity = map[string]float64{m[i].Name: 10} // everybody puts itself first
	}
	h := build(t, m, func(o *pipeline.Options) { o.SelfReviewRate = 1 })
	s := h.run(t, council.Request{})
	own := 0
	for _, r := range h.notes.batches[0] {
		if r.Own {
			own++
			if r.ScoreValue == nil || r.RankValue != nil {
				t.Errorf("own record %+v", r)
			}
		}
	}
	if own != 4 || len(h.notes.batches[0]) != 16 {
		t.Errorf("%d own records of %d", own, len(h.notes.batches[0]))
	}
	for _, st := range s.Metadata.AggregateRankings {
		if st.VoteCount != 3 {
			t.Errorf("%s has %d votes", st.Model, st.VoteCount)
		}
	}
}

func TestBudget(t *testing.T) {
	// together returns members of which none answers before all three were asked.
	together := func() []simllm.Model {
		m := members(3)
		var asked sync.WaitGroup
		asked.Add(len(m))
		for i := range m {
			m[i].Reply = func(task simllm.Task) (string, bool) {
				if task.Kind == simllm.Question {
					asked.Done()
					asked.Wait()
				}
				return "", false
			}
		}
		return m
	}
	h := build(t, together())
	s := h.run(t, council.Request{MaxTotalTokens: new(int64(1))})
	// The answers were started together; then the budget is spent.
	if h.requests() != 3 || s.Status != council.StatusDegraded || *s.Stage3.Fallback != council.FallbackFirstAnswer ||
		s.Stage2[0].Error.Code != council.FailBudget || s.Stage2[0].Attempts != 0 {
		t.Errorf("%d calls, status %s, stage 3 %+v, review %+v", h.requests(), s.Status, s.Stage3, s.Stage2[0])
	}
	if s := build(t, together()).run(t, council.Request{MaxCostUSD: new(0.000001)}); s.Stage3.Error.Code != council.FailBudget {
		t.Errorf("stage 3 %+v", s.Stage3)
	}
	if s := build(t, members(3)).run(
		t, council.Request{MaxCostUSD: new(10.0), MaxTotalTokens: new(int64(1e9))},
	); s.Status != council.StatusComplete || len(s.Metadata.Warnings) > 0 {
		t.Errorf("status %s, warnings %v", s.Status, s.Metadata.Warnings)
	}
	free := members(3)
	for i := range free {
		free[i].Price = simllm.Price{}
	}
	if s := build(
		t, free, func(o *pipeline.Options) { o.MaxCostUSD = new(1.0) },
	).run(t, council.Request{}); !warned(s, council.WarnCostUnknown) || s.Metadata.Usage.CostUSD != nil {
		t.Errorf("warnings %v, cost %v", s.Metadata.Warnings, s.Metadata.Usage.CostUSD)
	}
}

func TestPartialBallot(t *testing.T) {
	m := members(4)
	m[2] = with(m[2], simllm.Fault{Kind: simllm.BallotPartial})
	h := build(t, m)
	s := h.run(t, council.Request{})
	if s.Status != council.StatusComplete || !warned(s, council.WarnPartialBallot) {
		t.Errorf("status %s, warnings %v", s.Status, s.Metadata.Warnings)
	}
	unranked := 0
	for _, r := range h.notes.batches[0] {
		if (r.Status == council.BallotPartial) != (r.ReviewerID == "cedar") {
			t.Errorf("%s: %s", r.ReviewerID, r.Status)
		}
		if r.RankValue == nil {
			unranked++
		}
	}
	if unranked != 1 {
		t.Errorf("%d records without a rank, want 1", unranked)
	}
}

func TestBallotRepair(t *testing.T) {
	once := func(kind simllm.FaultKind, times int) []simllm.Model {
		m := members(4)
		m[2] = with(m[2], simllm.Fault{Kind: kind, Times: times})
		return m
	}
	repairing := func(o *pipeline.Options) { o.BallotRepair = true }
	for _, kind := range []simllm.FaultKind{simllm.BallotProse, simllm.BallotTruncated, simllm.BallotPartial} {
		h := build(t, once(kind, 1), repairing)
		s := h.run(t, council.Request{})
		if v := s.Stage2[2]; v.Status != council.OutcomeOK || !v.Repaired || v.Repair == nil || v.Attempts != 2 ||
			len(v.ParsedRanking.Ranking) != 3 || *v.Ranking == *v.Repair {
			t.Errorf("%s: review %+v", kind, v)
		}
		if s.Status != council.StatusComplete || h.requests() != 10 || s.Stage2[0].Repair != nil || s.Stage2[0].Repaired {
			t.Errorf("%s: status %s after %d calls", kind, s.Status, h.requests())
		}
	}
	// There is one repair call: if it brings no better ballot, the first reply counts.
	h := build(t, once(simllm.BallotProse, 0), repairing)
	if v := h.run(t, council.Request{}).Stage2[2]; v.Status != council.OutcomeInvalid || v.Repaired || v.Repair == nil ||
		h.requests() != 10 {
		t.Errorf("review %+v after %d calls", v, h.requests())
	}
	h = build(t, once(simllm.BallotPartial, 0), repairing)
	if v := h.run(t, council.Request{}).Stage2[2]; v.Status != council.OutcomeOK || v.Repaired || len(v.ParsedRanking.Ranking) != 2 {
		t.Errorf("review %+v", v)
	}
	// An abstention is an answer, and needs no repair.
	h = build(t, once(simllm.BallotAbstain, 0), repairing)
	if v := h.run(t, council.Request{}).Stage2[2]; v.Status != council.OutcomeAbstained || v.Repair != nil || h.requests() != 9 {
		t.Errorf("review %+v after %d calls", v, h.requests())
	}
}

func TestAgreement(t *testing.T) {
	m := members(4)
	m[1].Quality, m[1].Spread = 4, 0 // birch wins
	a := build(t, m).run(t, council.Request{}).Metadata.Agreement
	if a.KendallW == nil {
		t.Error("there is no W")
	}
	if a.Ballots != 4 {
		t.Errorf("%d ballots are counted, want 4", a.Ballots)
	}
	if a.CondorcetWinner == nil || *a.CondorcetWinner != "birch" {
		t.Errorf("the Condorcet winner is %v, want birch", a.CondorcetWinner)
	}
	if a.Copeland["birch"] != 3 {
		t.Errorf("birch has the Copeland score %v, want 3", a.Copeland["birch"])
	}
	if a.Pairwise["birch"]["amber"] <= a.Pairwise["amber"]["birch"] {
		t.Errorf("birch is not preferred to amber: %v", a.Pairwise)
	}
	if first := a.WinnerSupport[0]; first.Model != "birch" || first.Support < 0.9 {
		t.Errorf("the support of the winner is %+v, want birch with 0.9 or more", first)
	}
	if len(a.LeaveOneOut) != 4 {
		t.Errorf("%d omissions, want 4", len(a.LeaveOneOut))
	}
	for _, o := range a.LeaveOneOut {
		if o.Changes || !slices.Equal(o.Winners, []string{"birch"}) {
			t.Errorf("got %+v", o)
		}
	}
}

func TestRefusePartial(t *testing.T) {
	m := members(4)
	h := build(
		t,
		[]simllm.Model{m[0], with(m[1], simllm.Fault{Kind: simllm.FaultStatus, Tasks: []simllm.TaskKind{simllm.Question}}), m[2], m[3]},
	)
	if _, e := h.refused(t, council.Request{OnPartial: council.PartialRefuse}); e.Code != council.CodePartialRefused ||
		len(e.Fields) != 1 || h.requests() != 4 {
		t.Errorf("got %+v after %d calls: nothing more should be paid for", e, h.requests())
	}
	h = build(t, []simllm.Model{m[0], with(m[1], simllm.Fault{Kind: simllm.BallotProse}), m[2], m[3]})
	s, e := h.refused(t, council.Request{OnPartial: council.PartialRefuse})
	if e.Code != council.CodePartialRefused || h.requests() != 8 || !s.Persisted || len(h.notes.batches) != 1 {
		t.Errorf("got %+v after %d calls, persisted %v: the reviews were paid for", e, h.requests(), s.Persisted)
	}
}

func TestRecords(t *testing.T) {
	h := build(t, members(3))
	h.notes.err = errors.New("the disk is full")
	if s := h.run(t, council.Request{}); s.Persisted || !warned(s, council.WarnNotPersisted) || s.Answer == "" ||
		s.Status != council.StatusComplete {
		t.Errorf("persisted %v, warnings %v, status %s", s.Persisted, s.Metadata.Warnings, s.Status)
	}
	h = build(t, members(3), func(o *pipeline.Options) { o.Consent = 0 })
	if s := h.run(t, council.Request{}); s.Persisted || len(s.Metadata.Warnings) > 0 || len(h.notes.batches) > 0 {
		t.Errorf("persisted %v, warnings %v, batches %v", s.Persisted, s.Metadata.Warnings, h.notes.batches)
	}
	h = build(t, members(3), func(o *pipeline.Options) { o.Recorder = nil })
	if s := h.run(t, council.Request{}); s.Persisted || len(s.Metadata.Warnings) > 0 {
		t.Errorf("persisted %v, warnings %v", s.Persisted, s.Metadata.Warnings)
	}
	h = build(t, members(3), func(o *pipeline.Options) { o.Consent, o.HashSecret, o.ConfigVersion = 4, "secret", "mine" })
	h.run(t, council.Request{Query: "abc"})
	// printf abc | openssl dgst -sha256 -hmac secret
	if r := h.notes.batches[0][0]; r.QueryHash == nil || *r.QueryHash != "9946dad4e00e913f" || r.ConsentLevel != 4 ||
		r.CouncilConfig != "mine" {
		t.Errorf("record %+v, hash %v", r, r.QueryHash)
	}
	// The key of the question is there at every level, and while its secret is known.
	secret := "secret"
	h = build(t, members(3), func(o *pipeline.Options) { o.Consent, o.QuestionSecret = 1, func() string { return secret } })
	h.run(t, council.Request{Query: "abc"})
	if r := h.notes.batches[0][0]; r.QuestionKey == nil || *r.QuestionKey != "9946dad4e00e913f" || r.QueryHash != nil {
		t.Errorf("record %+v, key %v", r, r.QuestionKey)
	}
	secret = ""
	h.run(t, council.Request{Query: "abc"})
	if r := h.notes.batches[1][0]; r.QuestionKey != nil {
		t.Errorf("without a secret the key is %s", *r.QuestionKey)
	}
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		task    simllm.TaskKind
		calls   int // most calls that may have been started
		records int // batches
	}{{simllm.Question, 3, 0}, {simllm.Review, 6, 0}, {simllm.Synthesis, 7, 1}} {
		t.Run(string(tt.task), func(t *testing.T) {
			m := members(3)
			arrived := make(chan struct{}, 3)
			for i := range m {
				m[i].Reply = func(task simllm.Task) (string, bool) {
					if task.Kind == tt.task {
						arrived <- struct{}{}
					}
					return "", false
				}
				m[i] = with(m[i], simllm.Fault{Kind: simllm.FaultHang, Tasks: []simllm.TaskKind{tt.task}})
			}
			h := build(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-arrived
				cancel()
			}()
			s, err := h.Run(ctx, h.plan(t, council.Request{}), nil, nil)
			if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeCancelled ||
				s.Status != council.StatusCancelled || s.Answer != "" {
				t.Errorf("got %v, status %s, answer %.20q", err, s.Status, s.Answer)
			}
			if h.requests() > tt.calls || len(h.notes.batches) != tt.records {
				t.Errorf("%d calls, %d batches", h.requests(), len(h.notes.batches))
			}
		})
	}
}

func TestObserver(t *testing.T) {
	m := members(3)
	m[2] = with(m[2], simllm.Fault{Kind: simllm.BallotProse})
	h := build(t, m)
	var types []council.EventType
	var events []council.Event
	s, err := h.Run(t.Context(), h.plan(t, council.Request{}), council.ObserverFunc(func(e council.Event) {
		types = append(types, e.Type)
		events = append(events, e)
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []council.EventType{
		council.EventStarted, council.EventAnswer, council.EventAnswer, council.EventAnswer, council.EventStage1,
		council.EventBallot, council.EventBallot, council.EventBallot, council.EventStage2, council.EventStage3, council.EventDone,
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Fatal(diff)
	}
	for _, e := range events {
		if e.SessionID != s.ID {
			t.Errorf("%s names session %q", e.Type, e.SessionID)
		}
		var same bool
		switch data := e.Data.(type) {
		case council.Started:
			same = data.SessionID == s.ID && data.Chairman == "amber" && len(data.Models) == 3
		case council.Answer:
			same = slices.ContainsFunc(s.Stage1, func(a council.Answer) bool { return cmp.Equal(a, data) })
		case []council.Answer:
			same = cmp.Equal(data, s.Stage1)
		case council.Review:
			same = slices.ContainsFunc(s.Stage2, func(v council.Review) bool { return cmp.Equal(v, data) })
		case council.Tally:
			same = cmp.Equal(data, s.Metadata.Tally)
		case council.Synthesis:
			same = cmp.Equal(data, *s.Stage3)
		case *council.Session:
			same = data == s
		}
		if !same {
			t.Errorf("the data of %s is not what stands in the session", e.Type)
		}
	}
	// A run that fails ends with exactly one session.failed.
	types = nil
	down := simllm.Fault{Kind: simllm.FaultStatus}
	h = build(t, []simllm.Model{with(m[0], down), with(m[1], down)})
	observer := council.ObserverFunc(func(e council.Event) { types = append(types, e.Type) })
	_, err = h.Run(t.Context(), h.plan(t, council.Request{}), observer, nil)
	if err == nil || types[len(types)-1] != council.EventFailed || slices.Contains(types, council.EventDone) {
		t.Errorf("events %v", types)
	}
}

// panicking is a Completer that panics.
type panicking struct{ council.Completer }

func (p panicking) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	if call.Model == "cedar" {
		panic("a defect")
	}
	return p.Completer.Complete(ctx, call)
}

func TestPanicStaysInItsSlot(t *testing.T) {
	h := build(t, members(3), func(o *pipeline.Options) { o.Completer = panicking{o.Completer} })
	s := h.run(t, council.Request{Chairman: "cedar"})
	want := []string{"stage1 cedar internal", "stage2 cedar internal", "stage3 cedar internal"}
	if diff := cmp.Diff(want, missing(s)); diff != "" {
		t.Error(diff)
	}
}

func TestConversation(t *testing.T) {
	m := members(3)
	var mu sync.Mutex
	var tasks []simllm.Task
	for i := range m {
		m[i].Reply = func(task simllm.Task) (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			tasks = append(tasks, task)
			return "", false
		}
	}
	build(t, m).run(t, council.Request{Messages: []council.Message{
		{Role: "system", Content: "Be brief."},
		{Role: "user", Content: "What is Go?"},
		{Role: "assistant", Content: "A language."},
		{Role: "user", Content: "Who made it?"},
	}})
	kinds := map[simllm.TaskKind]int{}
	for _, task := range tasks {
		kinds[task.Kind]++
		if task.Kind != simllm.Question && !strings.Contains(task.Question, "What is Go?") {
			t.Errorf("the %s was shown the question %q", task.Kind, task.Question)
		}
	}
	if kinds[simllm.Question] != 3 || kinds[simllm.Review] != 3 || kinds[simllm.Synthesis] != 1 {
		t.Errorf("tasks %v", kinds)
	}
}

// The deltas of the synthesis, without those that were voided, are the answer.
func TestDeltas(t *testing.T) {
	tests := []struct {
		name     string
		faults   []simllm.Fault // of every chairman
		restarts []council.Restart
		pieces   bool // the answer came in more than one
	}{
		{name: "as they arrive", pieces: true},
		{
			name: "the second chairman's", faults: []simllm.Fault{{Kind: simllm.StreamError, Times: 1}}, pieces: true,
			restarts: []council.Restart{{Model: "amber", Reason: council.FailBadResponse}},
		},
		{name: "nothing to void", faults: []simllm.Fault{{Kind: simllm.FaultStatus, Status: 400}}},
		{
			name: "the best answer", faults: []simllm.Fault{{Kind: simllm.FaultLength}},
			restarts: []council.Restart{
				{Model: "amber", Reason: council.FailLength},
				{Model: "birch", Reason: council.FailLength},
				{Model: "cedar", Reason: council.FailLength},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := members(3)
			m[1].Quality, m[1].Spread = 4, 0 // birch is the second to write
			for i := range m {
				m[i].FirstChunk, m[i].ChunkDelay = 0, time.Millisecond // deltas that come at once are one
				faults := slices.Clone(tt.faults)
				for j := range faults {
					faults[j].Tasks = []simllm.TaskKind{simllm.Synthesis}
				}
				if i == 0 || len(faults) == 0 || faults[0].Times == 0 {
					m[i] = with(m[i], faults...)
				}
			}
			h := build(t, m)
			plan := h.plan(t, council.Request{})
			plan.Deltas = true
			var pieces []string
			var restarts []council.Restart
			s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
				switch data := e.Data.(type) {
				case council.Delta:
					pieces = append(pieces, data.Text)
				case council.Restart:
					pieces, restarts = nil, append(restarts, data)
				case council.Synthesis:
					pieces = append(pieces, "") // nothing may follow
				}
			}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(pieces, "") != s.Answer || pieces[len(pieces)-1] != "" || (len(pieces) > 2) != tt.pieces {
				t.Errorf("%d pieces, %.60q is not %.60q", len(pieces), strings.Join(pieces, ""), s.Answer)
			}
			if diff := cmp.Diff(tt.restarts, restarts); diff != "" {
				t.Error(diff)
			}
		})
	}
	// There are no deltas, and nothing is streamed, unless the plan asks for it.
	m := members(3)
	m[0] = with(m[0], simllm.Fault{Kind: simllm.StreamError})
	h := build(t, m)
	s, err := h.Run(t.Context(), h.plan(t, council.Request{}), council.ObserverFunc(func(e council.Event) {
		if e.Type == council.EventDelta {
			t.Error("a delta that nobody asked for")
		}
	}), nil)
	if err != nil || s.Status != council.StatusComplete {
		t.Errorf("got %v, missing %v", err, missing(s))
	}
}

// The deltas of each member, without those that were voided, are its answer. A member whose
// reply breaks off is asked again as in a session without deltas, and costs the same.
func TestAnswerDeltas(t *testing.T) {
	question := []simllm.TaskKind{simllm.Question}
	restart := council.AnswerRestart{Model: "amber", Reason: council.FailTruncated}
	tests := []struct {
		name     string
		fault    simllm.Fault // of amber
		restarts []council.AnswerRestart
		failed   bool // amber
	}{
		{name: "as they arrive"},
		{name: "slow", fault: simllm.Fault{Kind: simllm.FaultStall, Delay: 50 * time.Second}},
		{name: "cut", fault: simllm.Fault{Kind: simllm.FaultEOFBody, Times: 1}, restarts: []council.AnswerRestart{restart}},
		{name: "no end", fault: simllm.Fault{Kind: simllm.StreamNoEnd, Times: 1}, restarts: []council.AnswerRestart{restart}},
		{name: "cut each time", fault: simllm.Fault{Kind: simllm.FaultEOFBody}, restarts: []council.AnswerRestart{restart, restart}, failed: true},
		{name: "an error in the middle", fault: simllm.Fault{Kind: simllm.StreamError}, failed: true},
		{name: "garbage in the middle", fault: simllm.Fault{Kind: simllm.StreamGarbage}, failed: true},
		{name: "a slow drip", fault: simllm.Fault{Kind: simllm.FaultSlowBody, Size: 4 << 10}},
		{name: "refused at first", fault: simllm.Fault{Kind: simllm.FaultStatus, Status: 503, Times: 1}},
		{name: "no stream", fault: simllm.Fault{Kind: simllm.FaultHTML}, failed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				m := members(3)
				for i := range m {
					m[i].FirstChunk, m[i].ChunkDelay = 0, 100*time.Millisecond
				}
				if tt.fault.Kind != "" {
					tt.fault.Tasks = question
					m[0] = with(m[0], tt.fault)
				}
				h := bubble(t, m, nil)
				plan := h.plan(t, council.Request{})
				plan.AnswerDeltas = true
				texts, pieces := map[string]string{}, map[string]int{}
				var restarts []council.AnswerRestart
				s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
					switch data := e.Data.(type) {
					case council.AnswerDelta:
						texts[data.Model] += data.Text
						pieces[data.Model]++
					case council.AnswerRestart:
						delete(texts, data.Model)
						restarts = append(restarts, data)
					case council.Answer:
						if data.Status == council.OutcomeOK && *data.Response != texts[data.Model] {
							t.Errorf("%s: %.60q is not %.60q", data.Model, texts[data.Model], *data.Response)
						}
					case council.Delta:
						t.Error("a delta of the synthesis that nobody asked for")
					}
				}), nil)
				if err != nil {
					t.Fatal(err)
				}
				if pieces["birch"] < 2 {
					t.Errorf("pieces came: %v", pieces)
				}
				if diff := cmp.Diff(tt.restarts, restarts); diff != "" {
					t.Error(diff)
				}
				if failed := s.Stage1[0].Status != council.OutcomeOK; failed != tt.failed {
					t.Errorf("amber: %+v", s.Stage1[0].Error)
				}
				if tt.fault.Kind == "" {
					plain := h.run(t, council.Request{})
					for i, a := range plain.Stage1 {
						if diff := cmp.Diff(a.Usage, s.Stage1[i].Usage); diff != "" {
							t.Errorf("the usage of %s (-plain +streamed): %s", a.Model, diff)
						}
					}
				}
			})
		})
	}
	// Nothing is streamed unless the plan asks for it: no other request has this fault.
	m := members(3)
	m[0] = with(m[0], simllm.Fault{Kind: simllm.StreamError})
	h := build(t, m)
	plan := h.plan(t, council.Request{})
	s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
		if e.Type == council.EventAnswerDelta {
			t.Error("a delta that nobody asked for")
		}
	}), nil)
	if err != nil || s.Status != council.StatusComplete {
		t.Errorf("got %v, missing %v", err, missing(s))
	}
}

// A run that is cancelled while the synthesis arrives reports no further delta.
func TestCancelAmongDeltas(t *testing.T) {
	m := members(3)
	for i := range m {
		m[i].FirstChunk, m[i].ChunkDelay = 0, 0
		m[i] = with(m[i], simllm.Fault{Kind: simllm.FaultStall, Tasks: []simllm.TaskKind{simllm.Synthesis}})
	}
	h := build(t, m)
	plan := h.plan(t, council.Request{})
	plan.Deltas = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var types []council.EventType
	_, err := h.Run(ctx, plan, council.ObserverFunc(func(e council.Event) {
		if e.Type == council.EventDelta {
			cancel()
		}
		if ctx.Err() != nil {
			types = append(types, e.Type)
		}
	}), nil)
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeCancelled {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]council.EventType{council.EventDelta, council.EventFailed}, types); diff != "" {
		t.Error(diff)
	}
	if h.requests() != 7 {
		t.Errorf("%d calls, want 7", h.requests())
	}
}

func TestStragglers(t *testing.T) {
	testkit.Slow(t)
	question, review := []simllm.TaskKind{simllm.Question}, []simllm.TaskKind{simllm.Review}
	tests := []struct {
		name    string
		grace   *time.Duration
		fault   simllm.Fault // of dune
		latency time.Duration
		missing []string
		records map[council.BallotStatus]int
	}{
		{
			name: "a stage waits for all members", latency: 100 * time.Millisecond,
			records: map[council.BallotStatus]int{council.BallotOK: 12},
		},
		{
			name: "in time", grace: new(time.Minute), latency: 100 * time.Millisecond,
			records: map[council.BallotStatus]int{council.BallotOK: 12},
		},
		{
			name: "an answer is cut", grace: new(time.Second), fault: simllm.Fault{Kind: simllm.FaultHang, Tasks: question},
			missing: []string{"stage1 dune cut"}, records: map[council.BallotStatus]int{council.BallotOK: 9},
		},
		{
			name: "a review is cut", grace: new(time.Second), fault: simllm.Fault{Kind: simllm.FaultHang, Tasks: review},
			missing: []string{"stage2 dune cut"}, records: map[council.BallotStatus]int{council.BallotOK: 9, council.BallotCut: 3},
		},
		{
			name: "who failed was not cut", grace: new(time.Second), fault: simllm.Fault{
				Kind: simllm.FaultStatus, Status: 400, Tasks: review,
			},
			missing: []string{"stage2 dune rejected"}, records: map[council.BallotStatus]int{council.BallotOK: 9, council.BallotError: 3},
		},
		{
			name: "abstentions make no quorum", grace: new(time.Duration(0)), fault: simllm.Fault{Kind: simllm.BallotAbstain},
			latency: 100 * time.Millisecond,
			missing: []string{"stage2 dune abstained"}, records: map[council.BallotStatus]int{
				council.BallotOK: 9, council.BallotAbstained: 3,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := members(4)
			m[3].Latency.Median = tt.latency
			if tt.fault.Kind != "" {
				m[3] = with(m[3], tt.fault)
			}
			h := build(t, m, func(o *pipeline.Options) {
				o.StragglerGrace, o.Quorum = tt.grace, 3
				if tt.fault.Kind == simllm.BallotAbstain {
					o.Quorum = 4
				}
			})
			s := h.run(t, council.Request{})
			if diff := cmp.Diff(tt.missing, missing(s)); diff != "" {
				t.Error(diff)
			}
			records := map[council.BallotStatus]int{}
			for _, r := range h.notes.batches[0] {
				records[r.Status]++
			}
			if diff := cmp.Diff(tt.records, records); diff != "" {
				t.Error(diff)
			}
			cut := len(tt.missing) > 0 && strings.HasSuffix(tt.missing[0], "cut")
			if warned(s, council.WarnFastestOnly) != cut {
				t.Errorf("warnings %v", s.Metadata.Warnings)
			}
			if tt.grace != nil && s.Metadata.Timing.TotalMS > 20_000 {
				t.Errorf("the session took %v ms", s.Metadata.Timing.TotalMS)
			}
		})
	}
}

// The deadline of a run is kept in every stage, whatever the providers do.
func TestDeadlineIsKept(t *testing.T) {
	t.Parallel()
	const timeout, busy = time.Second, time.Second // a machine may let the process wait
	for _, task := range []simllm.TaskKind{simllm.Question, simllm.Review, simllm.Synthesis} {
		for _, fault := range []simllm.Fault{
			{Kind: simllm.FaultHang},
			{Kind: simllm.FaultSlowBody},
			{Kind: simllm.FaultStall},
			{Kind: simllm.FaultLateEnd},
			{Kind: simllm.FaultStatus, Status: 429, RetryAfter: "1"},
			{Kind: simllm.FaultStatus, Status: 503},
		} {
			t.Run(string(task)+" "+string(fault.Kind), func(t *testing.T) {
				t.Parallel()
				fault.Tasks = []simllm.TaskKind{task}
				m := members(4)
				for i := range m {
					m[i] = with(m[i], fault)
				}
				h := build(t, m)
				start := time.Now()
				s, err := h.Run(t.Context(), h.plan(t, council.Request{TimeoutSeconds: new(timeout.Seconds())}), nil, nil)
				if took := time.Since(start); took > timeout+busy {
					t.Errorf("the run took %v of its %v", took, timeout)
				}
				if (err == nil) != (task != simllm.Question) || (s.Answer == "") != (err != nil) {
					t.Errorf("answer %.20q, %v", s.Answer, err)
				}
			})
		}
	}
}

// In a direct run one model answers: nothing is reviewed or recorded, and its text is
// reported as it arrives.
func TestDirect(t *testing.T) {
	testkit.Slow(t)
	m := members(3)
	h := build(t, m)
	plan, err := h.Prepare(council.Request{Query: "Why?", Models: []string{"birch"}, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	plan.Deltas = true
	var types []council.EventType
	var pieces strings.Builder
	s, err := h.Run(t.Context(), plan, council.ObserverFunc(func(e council.Event) {
		if data, ok := e.Data.(council.Delta); ok {
			pieces.WriteString(data.Text)
		}
		types = append(types, e.Type)
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != council.StatusComplete || s.Answer == "" || s.Answer != *s.Stage1[0].Response || pieces.String() != s.Answer ||
		s.Stage3 != nil || s.Persisted {
		t.Errorf("got %+v, pieces %q", s, pieces.String())
	}
	want := []council.EventType{council.EventStarted, council.EventDelta, council.EventAnswer, council.EventStage1, council.EventDone}
	if diff := cmp.Diff(want, slices.Compact(types)); diff != "" {
		t.Error(diff)
	}
	if h.requests() != 1 {
		t.Errorf("%d calls, want 1", h.requests())
	}
	for _, models := range [][]string{{"nobody"}, {""}} {
		if _, err := h.Prepare(council.Request{Query: "Why?", Models: models, Direct: true}); err == nil {
			t.Errorf("%q is asked", models)
		}
	}
	failing := build(t, []simllm.Model{with(m[0], simllm.Fault{Kind: simllm.FaultStatus, Status: 400}), m[1]})
	plan, err = failing.Prepare(council.Request{Query: "Why?", Models: []string{m[0].Name}, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = failing.Run(t.Context(), plan, nil, nil)
	if e, ok := errors.AsType[*council.Error](err); !ok || e.Code != council.CodeNoQuorum {
		t.Errorf("got %v", err)
	}
}
