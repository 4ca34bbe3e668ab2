package bias_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
)

var today = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// ballot is one reviewer's records: who was shown, and what it ranked.
func ballot(session, category string, start time.Time, v ranking.Vote) []council.BiasMetricRecord {
	ranks := ranking.RankValues(v)
	records := make([]council.BiasMetricRecord, 0, len(v.Shown))
	for position, candidate := range v.Shown {
		r := council.BiasMetricRecord{
			SchemaVersion: council.RecordSchema, SessionID: session, Timestamp: start, ReviewerID: v.Reviewer, ModelID: candidate,
			Position: &position, ScoreScale: council.ScoreScale, Own: candidate == v.Reviewer, NShown: len(v.Shown),
			Status: council.BallotOK,
		}
		if category != "" {
			r.QueryMetadata.Category = &category
		}
		if rank, ok := ranks[candidate]; ok {
			r.RankValue = &rank
		}
		records = append(records, r)
	}
	return records
}

func board(o bias.Options, policy council.PartialPolicy, records []council.BiasMetricRecord) bias.Leaderboard {
	o.Now = today
	c := bias.NewCollector(o)
	for _, r := range records {
		c.Add(r)
	}
	return c.Leaderboard(policy)
}

func TestLeaderboardByHand(t *testing.T) {
	at := func(hour int) time.Time { return today.Add(time.Duration(hour-24) * time.Hour) }
	var records []council.BiasMetricRecord
	add := func(session, category string, hour int, reviewer string, shown []string, places ...[]string) {
		records = append(records, ballot(session, category, at(hour), ranking.Vote{Reviewer: reviewer, Shown: shown, Places: places})...)
	}
	// Session 1: a gets 1 and 1/2, b 1 and 0, c 0 from a; its own answer is not counted on c's ballot.
	add("1", "math", 1, "a", []string{"c", "b"}, []string{"b"}, []string{"c"})
	add("1", "math", 1, "b", []string{"a", "c"}, []string{"a"}, []string{"c"})
	add("1", "math", 1, "c", []string{"a", "b", "c"}, []string{"c"}, []string{"a", "b"})
	// Session 2: one ballot, which leaves out c.
	add("2", "", 2, "x", []string{"a", "b", "c"}, []string{"b"}, []string{"a"})
	// Session 3: nothing that counts: an abstention, and a ballot over one answer.
	add("3", "math", 3, "a", []string{"b", "c"})
	add("3", "math", 3, "d", []string{"b"}, []string{"b"})

	math1 := []bias.LeaderboardEntry{
		{Rank: 1, PlaceLower: 1, PlaceUpper: 3, Model: "a", BordaNormalized: 0.75, Appearances: 1, VoteCount: 2, WinCount: 1.5, Confidence: "insufficient"},
		{Rank: 1, PlaceLower: 1, PlaceUpper: 3, Model: "b", BordaNormalized: 0.75, Appearances: 1, VoteCount: 2, WinCount: 1.5, Confidence: "insufficient"},
		{Rank: 3, PlaceLower: 1, PlaceUpper: 3, Model: "c", BordaNormalized: 0, Appearances: 1, VoteCount: 2, Confidence: "insufficient"},
	}
	// Over both: a (3/4 + 1/2) / 2, b (3/4 + 1) / 2, c 0.
	both := []bias.LeaderboardEntry{
		{Rank: 1, PlaceLower: 1, PlaceUpper: 3, Model: "b", BordaNormalized: 0.875, Appearances: 2, VoteCount: 3, WinCount: 2.5, Confidence: "insufficient"},
		{Rank: 2, PlaceLower: 1, PlaceUpper: 3, Model: "a", BordaNormalized: 0.625, Appearances: 2, VoteCount: 3, WinCount: 1.5, Confidence: "insufficient"},
		{Rank: 3, PlaceLower: 1, PlaceUpper: 3, Model: "c", BordaNormalized: 0, Appearances: 1, VoteCount: 2, Confidence: "insufficient"},
	}
	want := bias.Leaderboard{
		GeneratedAt: today, Window: bias.Window{Start: new(at(1)), End: new(at(3)), Sessions: 3, Records: 13}, PartialBallots: "available",
		Skipped: []bias.Skipped{}, Sessions: 2,
		Boards: []bias.Board{{
			Sessions: 2, Entries: both, Note: "No place is certain: the intervals leave more than one place open for every model.",
		}},
		Categories: []bias.Category{{Category: "math", Sessions: 1, Boards: []bias.Board{{
			Sessions: 1, Entries: math1, Note: "This is only one session: expect these places to change with the next one.",
		}}}},
	}
	if diff := cmp.Diff(want, board(bias.Options{}, council.PolicyAvailable, records)); diff != "" {
		t.Error(diff)
	}

	tied := slices.Clone(both)
	tied[2].Appearances, tied[2].VoteCount = 2, 3
	if diff := cmp.Diff(tied, board(bias.Options{}, council.PolicyTiedLast, records).Boards[0].Entries); diff != "" {
		t.Errorf("tied_last: %s", diff)
	}
	got := board(bias.Options{Query: bias.Query{Category: "math"}}, council.PolicyAvailable, records)
	if diff := cmp.Diff(math1, got.Boards[0].Entries); diff != "" || *got.Category != "math" || got.Window.Sessions != 2 {
		t.Errorf("math alone: %+v %s", got, diff)
	}
	if got = board(bias.Options{WindowSessions: 2}, council.PolicyAvailable, records); got.Window.Sessions != 2 || got.Sessions != 1 ||
		got.Boards[0].Entries[0].Model != "b" {
		t.Errorf("the last two sessions: %+v", got)
	}
	if got = board(bias.Options{}, council.PolicyAvailable, nil); got.Sessions != 0 || got.Boards == nil || got.Window.Start != nil {
		t.Errorf("no sessions: %+v", got)
	}
}

// Models that never met, nor did others link them, are on boards of their own.
func TestLeaderboardOfTwoCouncils(t *testing.T) {
	at := func(hour int) time.Time { return today.Add(time.Duration(hour-24) * time.Hour) }
	vote := func(session, category string, hour int, shown ...string) []council.BiasMetricRecord {
		places := make([][]string, len(shown))
		for i, m := range shown {
			places[i] = []string{m}
		}
		return ballot(session, category, at(hour), ranking.Vote{Reviewer: "x", Shown: shown, Places: places})
	}
	apart := slices.Concat(vote("1", "", 1, "a", "b"), vote("2", "math", 2, "c", "d"), vote("3", "", 3, "d", "e"), vote("4", "", 4, "b", "a"),
		vote("5", "", 5, "d", "c"))
	names := func(boards []bias.Board) (all []string) {
		for _, b := range boards {
			line := []string{strconv.Itoa(b.Sessions)}
			for _, e := range b.Entries {
				line = append(line, fmt.Sprintf("%s %d-%d", e.Model, e.PlaceLower, e.PlaceUpper))
			}
			all = append(all, strings.Join(line, " "))
		}
		return all
	}
	got := board(bias.Options{}, council.PolicyAvailable, apart)
	if diff := cmp.Diff([]string{"3 d 1-3 c 1-3 e 1-3", "2 a 1-2 b 1-2"}, names(got.Boards)); diff != "" || got.Sessions != 5 {
		t.Error(got.Sessions, diff)
	}
	if diff := cmp.Diff([]string{"1 c 1-2 d 1-2"}, names(got.Categories[0].Boards)); diff != "" {
		t.Error("math", diff)
	}
	linked := board(bias.Options{}, council.PolicyAvailable, append(apart, vote("6", "", 6, "a", "e")...))
	if len(linked.Boards) != 1 || linked.Boards[0].Sessions != 6 || len(linked.Boards[0].Entries) != 5 {
		t.Errorf("linked: %+v", linked.Boards)
	}
	if few := board(bias.Options{Query: bias.Query{Model: "a"}}, council.PolicyAvailable, apart); len(few.Boards) != 1 || few.Boards[0].Sessions != 2 {
		t.Errorf("of one model: %+v", few.Boards)
	}
}

// What a record file from elsewhere may hold: ranks that are no places, a slate of
// unknown size, a record twice, no ranks at all.
func TestLeaderboardOddRecords(t *testing.T) {
	good := ballot("s", "", today, ranking.Vote{Reviewer: "x", Shown: []string{"a", "b"}, Places: [][]string{{"a"}, {"b"}}})
	for i := range good {
		good[i].NShown = 0
	}
	bad := ballot("s", "", today, ranking.Vote{Reviewer: "y", Shown: []string{"a", "b"}, Places: [][]string{{"b"}, {"a"}}})
	bad[0].RankValue = new(2.0)
	old := ballot("t", "", today, ranking.Vote{Reviewer: "x", Shown: []string{"a", "b"}})
	got := board(bias.Options{}, council.PolicyAvailable, slices.Concat(good, good[:1], bad, old))
	want := []bias.LeaderboardEntry{
		{Rank: 1, PlaceLower: 1, PlaceUpper: 2, Model: "a", BordaNormalized: 1, Appearances: 1, VoteCount: 1, WinCount: 1, Confidence: "insufficient"},
		{Rank: 2, PlaceLower: 1, PlaceUpper: 2, Model: "b", Appearances: 1, VoteCount: 1, Confidence: "insufficient"},
	}
	if diff := cmp.Diff(want, got.Boards[0].Entries); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]bias.Skipped{{Reason: "bad_rank", Count: 2}, {Reason: "duplicate", Count: 1}}, got.Skipped); diff != "" {
		t.Error(diff)
	}
}

// One session's leaderboard, from its records, is that session's ranking.
func TestLeaderboardIsTheRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(2, 5).Draw(t, "members")]
		var votes []ranking.Vote
		var records []council.BiasMetricRecord
		for _, reviewer := range members {
			shown := rapid.Permutation(members).Draw(t, "slate")
			if rapid.Bool().Draw(t, "own hidden") {
				shown = slices.DeleteFunc(slices.Clone(shown), func(m string) bool { return m == reviewer })
			}
			v := ranking.Vote{Reviewer: reviewer, Shown: shown}
			for _, candidate := range rapid.Permutation(members).Draw(t, "ballot")[:rapid.IntRange(0, len(members)).Draw(t, "ranked")] {
				if len(v.Places) == 0 || rapid.Bool().Draw(t, "next place") {
					v.Places = append(v.Places, nil)
				}
				last := len(v.Places) - 1
				v.Places[last] = append(v.Places[last], candidate)
			}
			votes = append(votes, v)
			records = append(records, ballot("s", "", today, v)...)
		}
		for _, policy := range []council.PartialPolicy{council.PolicyAvailable, council.PolicyTiedLast} {
			want := map[string]bias.LeaderboardEntry{}
			for _, s := range ranking.Tally(ranking.Options{Candidates: members, Votes: votes, Policy: policy}).Standings {
				if s.VoteCount > 0 {
					want[s.Model] = bias.LeaderboardEntry{
						Model: s.Model, BordaNormalized: *s.BordaNormalized, Appearances: 1, VoteCount: s.VoteCount,
						WinCount: s.WinCount,
					}
				}
			}
			got := map[string]bias.LeaderboardEntry{}
			for _, b := range board(bias.Options{}, policy, records).Boards { // one, or none without a vote
				for _, e := range b.Entries {
					got[e.Model] = e
				}
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-11),
				cmpopts.IgnoreFields(bias.LeaderboardEntry{}, "Rank", "PlaceLower", "PlaceUpper", "Confidence")); diff != "" {
				t.Fatalf("%s: %s", policy, diff)
			}
		}
	})
}

// The bootstrap's interval is, for many sessions, the normal one; few have none;
// and neither it nor anything else depends on the order of the records.
func TestLeaderboardInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var records []council.BiasMetricRecord
	const n = 250
	first := 0.0 // how often a stands first
	for s := range n {
		order := [][]string{{"a"}, {"b"}}
		if rng.Float64() < 0.7 {
			first++
		} else {
			slices.Reverse(order)
		}
		records = append(records, ballot(fmt.Sprintf("%03d", s), "", today.Add(time.Duration(s-n)*time.Minute),
			ranking.Vote{Reviewer: "x", Shown: []string{"a", "b"}, Places: order})...)
	}
	got := board(bias.Options{}, council.PolicyAvailable, records)
	p := first / n
	se := math.Sqrt(p * (1 - p) / n)
	a := got.Boards[0].Entries[0]
	if a.Model != "a" || a.BordaNormalized != p || math.Abs(*a.CILower-(p-1.96*se)) > se/5 || math.Abs(*a.CIUpper-(p+1.96*se)) > se/5 {
		t.Errorf("%+v with interval %v to %v, want %v and %v to %v", a, *a.CILower, *a.CIUpper, p, p-1.96*se, p+1.96*se)
	}
	rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	if diff := cmp.Diff(got, board(bias.Options{}, council.PolicyAvailable, records)); diff != "" {
		t.Errorf("another order of records: %s", diff)
	}
	if few := board(bias.Options{WindowSessions: 19}, council.PolicyAvailable, records); few.Boards[0].Entries[0].CILower != nil ||
		few.Boards[0].Entries[0].Confidence != bias.ConfidencePreliminary {
		t.Errorf("19 sessions: %+v", few.Boards[0].Entries[0])
	}
}

// Records of a schema without ranks are ranked by their scores (ADR-007), equal ones
// sharing the mean of their places. Own answers do not count, ranks that are there do.
func TestLeaderboardRanksOldBallotsByScore(t *testing.T) {
	var records []council.BiasMetricRecord
	add := func(schema, session, reviewer, candidate string, score *float64, rank *float64) {
		records = append(records, council.BiasMetricRecord{
			SchemaVersion: schema, SessionID: session, Timestamp: today, ReviewerID: reviewer, ModelID: candidate,
			ScoreValue: score, ScoreScale: council.ScoreScale, RankValue: rank, Own: reviewer == candidate,
		})
	}
	add("1.0.0", "1", "a", "a", new(10.0), nil)
	add("1.0.0", "1", "a", "b", new(7.0), nil)
	add("1.0.0", "1", "a", "c", new(9.0), nil)
	add("1.0.0", "1", "a", "d", new(7.0), nil)
	add("1.0.0", "1", "a", "e", nil, nil)
	add("1.1.0", "2", "x", "b", new(9.0), new(1.0)) // its rank counts, not its score
	add("1.1.0", "2", "x", "c", new(2.0), new(0.0))
	add(council.RecordSchema, "3", "x", "b", new(9.0), nil) // what has no rank there was not ranked
	add(council.RecordSchema, "3", "x", "c", new(2.0), nil)
	want := map[string]float64{"b": (0.5 + 0) / 2, "c": 1, "d": 0.5}
	// Of the four that a could rank, b and d share the places 1 and 2 of 0 to 3.
	got := map[string]float64{}
	for _, e := range board(bias.Options{}, council.PolicyAvailable, records).Boards[0].Entries {
		got[e.Model] = e.BordaNormalized
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Where records know no positions because their schema is too old, the report says
// that, and not that there are none.
func TestReportOfAnEarlySchemaSaysWhyItHasNoPositions(t *testing.T) {
	for schema, want := range map[string]string{
		"1.0.0": "are not trusted", "1.1.0": "are not trusted", council.RecordSchema: "no session records the place",
	} {
		c := bias.NewCollector(bias.Options{Now: today})
		for s := range 30 {
			for i, reviewer := range []string{"a", "b", "c"} {
				for j, candidate := range []string{"x", "y", "z"} {
					c.Add(council.BiasMetricRecord{
						SchemaVersion: schema, SessionID: strconv.Itoa(s), Timestamp: today, ReviewerID: reviewer, ModelID: candidate,
						ScoreValue: new(float64(1 + (s+i*j)%9)), ScoreScale: council.ScoreScale,
					})
				}
			}
		}
		for _, m := range c.Report(t.Context()).Metrics {
			isPosition := m.Name == "position" || m.Name == "anchoring"
			if isPosition && !strings.Contains(m.Reason, want) {
				t.Errorf("schema %s: %s says %q", schema, m.Name, m.Reason)
			}
			if m.Name == "position_score_correlation" && schema != council.RecordSchema && !strings.Contains(m.Reason, want) {
				t.Errorf("schema %s: %s says %q", schema, m.Name, m.Reason)
			}
		}
	}
}
