package pipeline_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
)

// vain returns members that put each answer of their model before all others.
func vain(n int) []simllm.Model {
	m := members(n)
	for i := range m {
		m[i].Affinity = map[string]float64{m[i].Name: 10}
	}
	return m
}

// seen returns whose answers each reviewer was shown, by name.
func seen(s *council.Session) map[string][]string {
	all := map[string][]string{}
	for _, v := range s.Stage2 {
		for _, seat := range v.LabelToModel {
			all[v.Model] = append(all[v.Model], seat.Model)
		}
		slices.Sort(all[v.Model])
	}
	return all
}

func sameSlates(t *testing.T, got, want map[string][]string) {
	t.Helper()
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the reviewers saw %v, want %v", got, want)
	}
}

// A model does not judge its own answers, whatever seat they are of, and reviews once.
func TestTwinsDoNotJudgeEachOther(t *testing.T) {
	h := build(t, vain(3))
	s := h.run(t, council.Request{Models: []string{"amber", "birch", "amber", "cedar"}})
	sameSlates(t, seen(s), map[string][]string{
		"amber": {"birch", "cedar"}, "birch": {"amber", "amber#2", "cedar"}, "cedar": {"amber", "amber#2", "birch"},
	})
	if warned(s, council.WarnTwinsJudge) || h.requests() != 4+3+1 {
		t.Errorf("warnings %v, %d calls", s.Metadata.Warnings, h.requests())
	}
	for _, st := range s.Metadata.AggregateRankings {
		if st.VoteCount != 2 || st.VoteCoverage != "high" {
			t.Errorf("%s has %d votes, coverage %s", st.Model, st.VoteCount, st.VoteCoverage)
		}
	}
	if records := h.notes.batches[0]; len(records) != 8 || slices.ContainsFunc(records, func(r council.BiasMetricRecord) bool { return r.Own }) {
		t.Errorf("records %+v", records)
	}
}

// Shown for LLM_COUNCIL_SELF_REVIEW_RATE, answers of twins are own ones too: they are in the records and do not count.
func TestTwinsAreShownButNotCounted(t *testing.T) {
	h := build(t, vain(3), func(o *pipeline.Options) { o.SelfReviewRate = 1 })
	s := h.run(t, council.Request{Models: []string{"amber", "birch", "amber", "cedar"}})
	own := map[string]int{}
	for _, r := range h.notes.batches[0] {
		if r.Own != (council.ModelOf(r.ReviewerID) == council.ModelOf(r.ModelID)) {
			t.Errorf("%s judges %s: own is %v", r.ReviewerID, r.ModelID, r.Own)
		}
		if r.Own {
			own[r.ReviewerID]++
		}
		if r.ScoreValue == nil || (r.RankValue == nil) != r.Own {
			t.Errorf("record %+v", r)
		}
	}
	if want := map[string]int{"amber": 2, "birch": 1, "cedar": 1}; !maps.Equal(own, want) || len(h.notes.batches[0]) != 12 {
		t.Errorf("own answers %v of %d, want %v", own, len(h.notes.batches[0]), want)
	}
	wins := 0.0
	for _, st := range s.Metadata.AggregateRankings {
		if wins += st.WinCount; st.VoteCount != 2 || st.VoteCoverage != "high" {
			t.Errorf("%s has %d votes, coverage %s", st.Model, st.VoteCount, st.VoteCoverage)
		}
	}
	if wins != 3 {
		t.Errorf("%v first places on 3 ballots: a ballot begins with an own answer", wins)
	}
	// The leaderboard of the records counts as the session does.
	c := bias.NewCollector(bias.Options{Now: s.Created})
	for _, r := range h.notes.batches[0] {
		c.Add(r)
	}
	for _, entry := range c.Leaderboard(council.PolicyAvailable).Boards[0].Entries {
		i := slices.IndexFunc(s.Metadata.AggregateRankings, func(st council.Standing) bool { return st.Model == entry.Model })
		st := s.Metadata.AggregateRankings[i]
		if entry.Rank != *st.FinalRank || entry.BordaNormalized != *st.BordaNormalized {
			t.Errorf("%s has place %d with %v in the leaderboard, in the session %d with %v", entry.Model, entry.Rank, entry.BordaNormalized,
				*st.FinalRank, *st.BordaNormalized)
		}
	}
}

// Where the rule leaves too little, the seats judge each other and the session says so.
func TestTwinsThatMustJudge(t *testing.T) {
	h := build(t, vain(3))
	for name, models := range map[string][]string{
		"two of three": {"amber", "amber", "birch"}, "two and two": {"amber", "amber", "birch", "birch"}, "one model": {"amber", "amber", "amber"},
	} {
		h.notes.batches = nil
		s := h.run(t, council.Request{Models: models})
		if n := len(models); !warned(s, council.WarnTwinsJudge) || len(s.Stage2) != n || len(h.notes.batches[0]) != n*(n-1) {
			t.Errorf("%s: warnings %v, %d reviews, %d records", name, s.Metadata.Warnings, len(s.Stage2), len(h.notes.batches[0]))
		}
	}
	if s := h.run(t, council.Request{}); warned(s, council.WarnTwinsJudge) {
		t.Errorf("without twins: %v", s.Metadata.Warnings)
	}
	if plan := h.plan(t, council.Request{Models: []string{"amber", "amber"}, Mode: council.ModeSynthesis}); len(plan.Warnings) != 0 {
		t.Errorf("without reviews: %v", plan.Warnings)
	}
}

// A member that fails can take away what the rule needs.
func TestTwinsOfWhomTooFewAnswer(t *testing.T) {
	m := members(3)
	m[2] = with(m[2], simllm.Fault{Kind: simllm.FaultStatus, Status: 500, Tasks: []simllm.TaskKind{simllm.Question}})
	h := build(t, m, func(o *pipeline.Options) { o.Quorum = 2 })
	s := h.run(t, council.Request{Models: []string{"amber", "birch", "amber", "cedar"}})
	sameSlates(t, seen(s), map[string][]string{
		"amber": {"amber#2", "birch"}, "birch": {"amber", "amber#2"}, "cedar": {"amber", "amber#2", "birch"},
	})
	if !warned(s, council.WarnTwinsJudge) {
		t.Errorf("warnings %v", s.Metadata.Warnings)
	}
	s = h.run(t, council.Request{Models: []string{"amber", "birch", "cedar", "cedar"}}) // both twins are missing
	sameSlates(t, seen(s), map[string][]string{"amber": {"birch"}, "birch": {"amber"}, "cedar": {"amber", "birch"}})
	if warned(s, council.WarnTwinsJudge) {
		t.Errorf("no twins: warnings %v", s.Metadata.Warnings)
	}
}

// Two names of one model at one provider are twins where Same says so, also in the list of reviewers.
func TestTwinsUnderOtherNames(t *testing.T) {
	h := build(t, members(5), func(o *pipeline.Options) {
		o.Models, o.Reviewers, o.ShadowRate = []string{"amber", "birch", "cedar"}, []string{"dune", "birch", "cedar", "amber"}, 1
		o.Same = func(model string) string {
			if model == "dune" {
				return "amber"
			}
			return model
		}
	})
	plan := h.plan(t, council.Request{})
	s, err := h.Run(t.Context(), plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	shadow := h.Shadow(t.Context(), plan, s) // amber is the chairman
	if shadow == nil || len(shadow.Reviewers) == 0 || slices.ContainsFunc(shadow.Reviewers, func(r council.ShadowReview) bool { return r.ID == "dune" }) {
		t.Errorf("the synthesis of amber was compared by %+v", shadow)
	}
	sameSlates(t, seen(s), map[string][]string{"dune": {"birch", "cedar"}, "birch": {"amber", "cedar"}, "cedar": {"amber", "birch"}})
	if warned(s, council.WarnTwinsJudge) {
		t.Errorf("warnings %v", s.Metadata.Warnings)
	}
}

// A plan of a version that knew no twins is carried out as it was made.
func TestTwinsOfAnOlderPlan(t *testing.T) {
	h := build(t, members(3))
	plan := h.plan(t, council.Request{Models: []string{"amber", "birch", "amber", "cedar"}})
	plan.Stages[1].Seats = plan.Members()
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["twins"] == nil {
		t.Error("a log that another process reads does not hold the twins of the plan")
	}
	delete(fields, "twins")
	text, _ = json.Marshal(fields)
	var older council.Plan
	if err := json.Unmarshal(text, &older); err != nil {
		t.Fatal(err)
	}
	s, err := h.Run(t.Context(), older, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameSlates(t, seen(s), map[string][]string{
		"amber": {"amber#2", "birch", "cedar"}, "amber#2": {"amber", "birch", "cedar"},
		"birch": {"amber", "amber#2", "cedar"}, "cedar": {"amber", "amber#2", "birch"},
	})
	if warned(s, council.WarnTwinsJudge) || slices.ContainsFunc(h.notes.batches[0], func(r council.BiasMetricRecord) bool { return r.Own }) {
		t.Errorf("warnings %v, records %+v", s.Metadata.Warnings, h.notes.batches[0])
	}
}

var auditSessions = flag.Int("audit", 300, "sessions for each figure of TestAuditOfInnocentSessions; 2000 make a trial")

// Of innocent sessions in orders as the daemon draws them, the audit flags 6 % at most, with twins or without. The log has all figures.
func TestAuditOfInnocentSessions(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	sessions := *auditSessions
	for _, models := range []string{"baaacdef", "abc", "abcd", "abcde", "abcdef", "abcdefghi", "aabcde", "aabbcdef", "baaacdef"} {
		var seats []council.Member
		count := map[rune]int{}
		for _, model := range models {
			id := string(model)
			if count[model]++; count[model] > 1 {
				id = fmt.Sprintf("%c#%d", model, count[model])
			}
			seats = append(seats, council.Member{ID: id, Model: string(model)})
		}
		twins := council.TwinsOf(seats, nil)
		for _, noise := range []float64{0.7, 1, 1.5} {
			draws := rand.New(rand.NewPCG(44, uint64(len(models))))
			length, position, judged := 0, 0, 0
			for seed := range int64(sessions) {
				a := bias.Audit(innocent(draws, seed, seats, twins, noise))
				if a.LengthAssociation != nil && *a.LengthAssociation {
					length++
				}
				if a.PositionBiasDetected != nil {
					judged++
					if *a.PositionBiasDetected {
						position++
					}
				}
			}
			percent := func(n int) float64 { return 100 * float64(n) / float64(sessions) }
			t.Logf("%-9s noise %.1f: length flagged in %.1f %%, position in %.1f %% (judged in %.1f %%)", models, noise, percent(length),
				percent(position), percent(judged))
			limit := 6 + 300*math.Sqrt(.05*.95/float64(sessions)) // three standard errors
			if sessions >= 2000 {
				limit = 6
			}
			if percent(length) > limit || percent(position) > limit {
				t.Errorf("%s, noise %.1f: of %d sessions, %d have the flag of length and %d that of positions", models, noise, sessions, length, position)
			}
		}
	}
}

// innocent is what the audit reads of a session of these seats without any bias. Answers differ by a point, and scores of an
// answer by the noise and the reviewer's mood.
func innocent(draws *rand.Rand, seed int64, seats []council.Member, twins council.Twins, noise float64) bias.AuditInput {
	o := anonymize.Options{Seed: seed, Twins: twins}
	in := bias.AuditInput{
		Order: council.OrderBalanced, Twins: twins, Shown: map[string][]string{}, Chars: map[string]int{},
		Thresholds: council.AuditThresholds{LengthCorrelation: 0.3, PositionVariance: 0.5},
	}
	worth := map[string]float64{}
	for _, seat := range seats {
		o.Authors = append(o.Authors, seat.ID)
		worth[seat.ID] = 6.5 + draws.NormFloat64()
		in.Chars[seat.ID] = int(math.Exp(6 + 0.4*draws.NormFloat64()))
	}
	for _, seat := range twins.Once(seats) {
		o.Reviewers = append(o.Reviewers, seat.ID)
	}
	for i, slate := range anonymize.Draw(o).Reviewer {
		mood := 0.3 * draws.NormFloat64()
		for position, shown := range slate {
			in.Shown[o.Reviewers[i]] = append(in.Shown[o.Reviewers[i]], shown.Member)
			in.Scores = append(in.Scores, bias.Score{
				Reviewer: o.Reviewers[i], Candidate: shown.Member, Position: position,
				Value: max(1, min(10, math.Round(worth[shown.Member]+mood+noise*draws.NormFloat64()))),
			})
		}
	}
	return in
}
