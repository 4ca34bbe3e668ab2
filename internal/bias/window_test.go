package bias

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/council"
)

func TestScoresOfASession(t *testing.T) {
	ab := record("s", now, "b", "a", 7)
	ab.Position, ab.Provider = new(1), council.ProviderPair{Reviewer: "x", Candidate: "x"}
	own := record("s", now, "b", "b", 9)
	ab.RankValue, own.RankValue = new(0.), new(1.)
	own.Own, own.NShown, own.Provider = true, 3, council.ProviderPair{Reviewer: "x", Candidate: "x"}
	silent := record("s", now, "a", "b", 0)
	silent.ScoreValue, silent.Position = nil, nil
	again := record("s", now, "b", "a", 2)
	got := collect(unlimited, []council.BiasMetricRecord{ab, own, silent, again}).window()
	nan := math.NaN()
	want := window{
		names: []string{"a", "b"}, clusters: 1, records: 3, duplicates: 1, repeats: Repeats{Unknown: 1},
		sessions: []scores{{
			id: "s", start: now, shared: true, reviewers: []int{0, 1}, candidates: []int{0, 1}, shown: []int{1, 3},
			y: [][]float64{{nan, nan}, {7, 9}}, length: [][]float64{{nan, 1000}, {1000, 1000}}, position: [][]int{{-1, -1}, {1, 0}},
			own: [][]bool{{false, false}, {false, true}}, family: [][]bool{{false, false}, {true, false}},
			place: [][]float64{{nan, nan}, {0, nan}},
			style: [][]float64{{nan, nan}, {nan, nan}}, reasoning: [][]float64{{nan, nan}, {nan, nan}},
			correct: [][]int8{{-1, -1}, {-1, -1}},
		}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(window{}, scores{}), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
}

// TestOrderDesign holds what a session whose records do not tell the design is
// taken for, and that records which tell it are believed.
func TestOrderDesign(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		name   string
		order  council.Order
		places [][]int // by reviewer, of the candidates a, b and c
		shared bool
	}{
		{"one reviewer", "", [][]int{{0, 1, 2}}, true},
		{"one order", "", [][]int{{0, 1, 2}, {0, 1, 2}}, true},
		{"one order with gaps", "", [][]int{{0, none, 1}, {0, 1, 2}, {none, 0, 1}}, true},
		{"two orders", "", [][]int{{0, 1, 2}, {0, 1, 2}, {1, 0, 2}}, false},
		{"nothing in common", "", [][]int{{0, none, none}, {none, 0, 1}}, true},
		{"one order by chance", council.OrderPerReviewer, [][]int{{0, 1, 2}, {0, 1, 2}}, false},
		{"shared", council.OrderShared, [][]int{{0, 1, 2}, {1, 0, 2}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewCollector(unlimited)
			for i, places := range tc.places {
				for j, place := range places {
					if place == none {
						continue
					}
					r := record("s", now, string(rune('r'+i)), string(rune('a'+j)), 5)
					r.Position, r.OrderDesign = &place, tc.order
					c.Add(r)
				}
			}
			if got := c.window().sessions[0].shared; got != tc.shared {
				t.Errorf("shared = %v, want %v", got, tc.shared)
			}
		})
	}
}

func TestClusters(t *testing.T) {
	ask := func(session string, hash, block *string) council.BiasMetricRecord {
		r := record(session, now, "a", "b", 5)
		r.QueryHash, r.BlockID = hash, block
		return r
	}
	records := []council.BiasMetricRecord{
		ask("1", new("x"), nil), ask("2", nil, nil), ask("3", new("y"), new("z")), ask("4", nil, nil), ask("5", new("x"), nil),
		ask("6", nil, new("z")), ask("7", nil, new("z")),
	}
	var got []int
	w := collect(unlimited, records).window()
	for _, s := range w.sessions {
		got = append(got, s.cluster)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 0, 4, 4}, got); diff != "" || w.clusters != 5 {
		t.Errorf("%d clusters (-want +got):\n%s", w.clusters, diff)
	}
}

func TestFilters(t *testing.T) {
	records := recordsOf(20)
	for i := range records {
		records[i].CouncilConfig = "v" + string(rune('1'+i/120))
	}
	for _, tc := range []struct {
		name              string
		o                 Options
		sessions, records int
	}{
		{"none", Options{}, 20, 240},
		{"since", Options{Query: Query{Since: now.Add(-3 * time.Hour)}}, 3, 36},
		{"since, and more days", Options{Query: Query{Since: now.Add(-3 * time.Hour)}, WindowDays: 30}, 3, 36},
		{"since, and fewer days", Options{Query: Query{Since: now.AddDate(0, 0, -3)}, WindowDays: 1}, 20, 240},
		{"until", Options{Query: Query{Until: now.Add(-3 * time.Hour)}}, 17, 204},
		{"the newest until", Options{Query: Query{Until: now.Add(-3 * time.Hour)}, WindowSessions: 5}, 5, 60},
		{"config version", Options{Query: Query{ConfigVersion: "v1"}}, 10, 120},
		{"the newest of a config version", Options{Query: Query{ConfigVersion: "v1"}, WindowSessions: 4}, 4, 48},
		{"reviewer", Options{Query: Query{Reviewer: "bob/two"}}, 20, 60},
		{"model", Options{Query: Query{Model: "bob/two"}}, 20, 60},
		{"reviewer and model", Options{Query: Query{Reviewer: "bob/two", Model: "dan/four"}}, 20, 20},
		{"reviewer of own answers that are hidden", Options{Query: Query{Reviewer: "bob/two", Model: "bob/two"}}, 0, 0},
		{"reviewer by the beginning", Options{Query: Query{Reviewer: "bob/"}}, 20, 60},
		{"language that nobody named", Options{Query: Query{Language: "fr"}}, 0, 0},
		{"stranger", Options{Query: Query{Reviewer: "eve/five"}}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Now = now
			if w := collect(tc.o, records).Report(t.Context()).Window; w.Sessions != tc.sessions || w.Records != tc.records {
				t.Errorf("%d sessions, %d records, want %d and %d", w.Sessions, w.Records, tc.sessions, tc.records)
			}
		})
	}
}

// TestNarrowingKeepsTheSlate holds that a filter does not make slates smaller or
// several reviewers' orders one.
func TestNarrowingKeepsTheSlate(t *testing.T) {
	s := collect(Options{Now: now, Query: Query{Reviewer: "bob/two", Model: "dan/four"}}, recordsOf(1)).window().sessions[0]
	if s.shared || len(s.reviewers) != 1 || len(s.candidates) != 1 || s.shown[0] != 3 {
		t.Errorf("scores = %+v, want one of a slate of three in orders of their own", s)
	}
}

// The beginning of ids stands for all of them, and the report says which; what is no
// beginning of an id is reported with the ids that there are.
func TestMatching(t *testing.T) {
	names := []string{"ann/one", "bob/one", "bob/two", "bobby/one"}
	for _, tt := range []struct {
		asked string
		want  span
		note  []Filter
	}{
		{"", span{0, 4}, nil},
		{"bob/one", span{1, 2}, nil},
		{"bob/", span{1, 3}, []Filter{{"model", "bob/", []string{"bob/one", "bob/two"}, []string{}, 0}}},
		{"bob", span{1, 4}, []Filter{{"model", "bob", names[1:], []string{}, 0}}},
		{"cat", span{4, 4}, []Filter{{"model", "cat", []string{}, names, 0}}},
	} {
		got, note := matching(nil, names, "model", tt.asked)
		if diff := cmp.Diff(tt.note, note); got != tt.want || diff != "" {
			t.Errorf("%q: %v: %s", tt.asked, got, diff)
		}
	}
}

// The places that intervals leave open are those of the models that are not wholly above
// or below.
func TestPlaces(t *testing.T) {
	e := []LeaderboardEntry{
		{CILower: new(0.8), CIUpper: new(0.9)},
		{CILower: new(0.5), CIUpper: new(0.6)},
		{CILower: new(0.4), CIUpper: new(0.55)},
		{},
	}
	places(e)
	for i, want := range []span{{1, 2}, {2, 4}, {2, 4}, {1, 4}} {
		if got := (span{e[i].PlaceLower, e[i].PlaceUpper}); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}
