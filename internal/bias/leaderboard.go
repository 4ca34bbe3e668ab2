package bias

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// reasonRank is the reason for skipping a record if its rank_value is not a place on its ballot.
const reasonRank = "bad_rank"

// Leaderboard ranks models over the sessions of a window (ADR-007). Every session counts equally, however many
// reviewers it had.
type Leaderboard struct {
	GeneratedAt time.Time `json:"generated_at"`
	Window      Window    `json:"window"`
	Category    *string   `json:"category"`          // the category of the query, or null for all sessions
	Filters     []Filter  `json:"filters,omitempty"` // has the same meaning as in a Report
	// PartialBallots says how a ballot counts for a candidate that it leaves out.
	PartialBallots council.PartialPolicy `json:"partial_ballots"`
	Skipped        []Skipped             `json:"skipped"`
	Sessions       int                   `json:"sessions"` // counts sessions with a ballot that counts
	Boards         []Board               `json:"boards"`
	Categories     []Category            `json:"categories"` // by name; a session without a category is in none
}

// Board ranks the models of one council. Two models are on one board if a session ranked both, or if a chain of
// such sessions links them. Otherwise the records cannot compare the two models. The board with the most sessions
// comes first.
type Board struct {
	Sessions int `json:"sessions"`
	// Note says how much these places may change with other sessions.
	Note    string             `json:"note"`
	Entries []LeaderboardEntry `json:"entries"`
}

// Category is the leaderboard of the sessions of one category.
type Category struct {
	Category string  `json:"category"`
	Sessions int     `json:"sessions"`
	Boards   []Board `json:"boards"`
}

// LeaderboardEntry is one model's place on a Leaderboard.
type LeaderboardEntry struct {
	// Rank starts at 1 and follows the score, then the wins. Models that are equal in both share a rank, as in 1,
	// 2, 2, 4.
	Rank int `json:"rank"`
	// PlaceLower and PlaceUpper are the first and the last place, from 1, that the model may have according to the
	// intervals. Another model is certainly above this one only if its whole interval is above the interval of this
	// one. A model without an interval may have any place.
	PlaceLower int    `json:"place_lower"`
	PlaceUpper int    `json:"place_upper"`
	Model      string `json:"model"`
	// BordaNormalized is a mean over sessions. The value of a session is the mean over its ballots. A ballot gives
	// (m-1-p)/(m-1), where m is the number of models that it could rank and p the model's place from 0. So 1 is
	// always first, and 0 is always last.
	BordaNormalized float64 `json:"borda_normalized"`
	// CILower and CIUpper are the 95 % bootstrap interval (BCa) over the questions that the model was voted on.
	// Sessions of the same question are resampled together. CILower and CIUpper are null below 20 questions, and if
	// the model's score never varies.
	CILower     *float64 `json:"ci_lower"`
	CIUpper     *float64 `json:"ci_upper"`
	Appearances int      `json:"appearances"` // counts sessions that voted on it
	VoteCount   int      `json:"vote_count"`  // counts ballots that ranked it
	WinCount    float64  `json:"win_count"`   // counts first places, and a shared first place only in part
	// Confidence is ADR-018's tier for the number of questions that the model was voted on.
	Confidence Confidence `json:"statistical_confidence"`
}

// standing is the result of one model in one session.
type standing struct{ points, wins, votes float64 }

// standings are the results of one session.
type standings struct {
	query  string // is the same for the sessions of one question, and "" if unknown
	models map[int32]standing
}

// Leaderboard computes the leaderboard from the ranks in all records added so far. A ballot in records of a schema
// before 1.2.0 has no ranks, so its scores rank it (ADR-007). Any other ballot without ranks does not enter. policy
// says how a ballot counts for candidates that it leaves out.
func (c *Collector) Leaderboard(policy council.PartialPolicy) Leaderboard {
	names, rank := c.sortRows()
	l := Leaderboard{
		GeneratedAt: c.o.Now.UTC(), PartialBallots: policy,
		Window:     Window{Sessions: len(c.order), Days: c.o.WindowDays, Newest: c.o.WindowSessions},
		Categories: []Category{},
	}
	if c.o.Category != "" {
		l.Category = &c.o.Category
	}
	if n := len(c.order); n > 0 {
		l.Window.Start = new(c.order[0].start)
		l.Window.End = new(c.order[n-1].start)
	}
	var reviewers, models span
	reviewers, l.Filters = matching(l.Filters, names, "reviewer", c.o.Reviewer)
	models, l.Filters = matching(l.Filters, names, "model", c.o.Model)
	if len(c.order) < preliminaryFrom {
		l.Filters = append(l.Filters, c.leftOut()...)
	}
	var all []standings
	byCategory := map[string][]standings{}
	duplicates := 0
	bad := 0
	for _, s := range c.order {
		duplicates += s.duplicates
		l.Window.Records += len(s.rows)
		of := standings{query: s.query, models: map[int32]standing{}}
		for rows := range ballots(s.rows) {
			if place := rank[rows[0].reviewer]; place < reviewers.from || place >= reviewers.to {
				continue
			}
			if !count(rows, policy, of.models) {
				bad += len(rows)
			}
		}
		if len(of.models) == 0 {
			continue
		}
		all = append(all, of)
		if s.category != "" {
			byCategory[s.category] = append(byCategory[s.category], of)
		}
	}
	shown := names[models.from:models.to]
	l.Sessions = len(all)
	l.Boards = c.boards(all, shown)
	for _, name := range slices.Sorted(maps.Keys(byCategory)) {
		sessions := byCategory[name]
		of := Category{Category: name, Sessions: len(sessions), Boards: c.boards(sessions, shown)}
		l.Categories = append(l.Categories, of)
	}
	l.Skipped = c.skips(Skipped{Reason: reasonDuplicate, Count: duplicates}, Skipped{Reason: reasonRank, Count: bad})
	return l
}

// ballots yields the ballot of each reviewer from rows that are sorted by reviewer.
func ballots(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for len(rows) > 0 {
			n := slices.IndexFunc(rows, func(r row) bool { return r.reviewer != rows[0].reviewer })
			if n < 0 {
				n = len(rows)
			}
			if !yield(ranked(rows[:n])) {
				return
			}
			rows = rows[n:]
		}
	}
}

// ranked returns one reviewer's ballot. If its schema has no ranks, its scores rank it. Candidates of equal scores
// then share the mean of their places.
func ranked(rows []row) []row {
	if slices.ContainsFunc(rows, func(r row) bool { return !r.early || !math.IsNaN(r.rank) }) {
		return rows
	}
	rows = slices.Clone(rows)
	scores := make([]float64, len(rows)) // is NaN for a candidate that does not count
	for k, r := range rows {
		if scores[k] = r.score; r.own {
			scores[k] = math.NaN()
		}
	}
	for k := range rows {
		if !math.IsNaN(scores[k]) {
			rows[k].rank = stat.PlaceOf(scores, k)
		}
	}
	return rows
}

// count adds one reviewer's ballot to the standings of a session. If a rank is not a place of the ballot, it adds
// nothing and returns false.
func count(rows []row, policy council.PartialPolicy, models map[int32]standing) bool {
	m := rankable(rows)
	last := float64(m - 1)
	ranked := 0
	best := math.Inf(1)
	for _, r := range rows {
		switch {
		case r.own || math.IsNaN(r.rank):
			continue
		case r.rank < 0 || r.rank > last:
			return false
		}
		ranked++
		best = min(best, r.rank)
	}
	if m < 2 || ranked == 0 {
		return true
	}
	// firsts is the number of candidates that share the first place. These candidates cover the ranks from 0 to
	// firsts-1, and best is the mean of these ranks.
	firsts := 2*best + 1
	for _, r := range rows {
		rank := r.rank
		switch {
		case r.own, math.IsNaN(rank) && policy != council.PolicyTiedLast:
			continue
		case math.IsNaN(rank):
			rank = (float64(ranked) + last) / 2
		}
		t := models[r.candidate]
		t.points += (last - rank) / last
		t.votes++
		if rank == best {
			t.wins += 1 / firsts
		}
		models[r.candidate] = t
	}
	return true
}

// rankable returns how many answers a ballot could rank. The slate may have shown more answers than there are
// records, because some records could not be read.
func rankable(rows []row) int {
	own := 0 // the reviewer's own answer, and those of its twins
	for _, r := range rows {
		if r.own {
			own++
		}
	}
	return max(len(rows), int(rows[0].shown)) - own
}

// worth returns a sentence that says how certain the places of a leaderboard are.
func worth(sessions int, entries []LeaderboardEntry) string {
	if sessions == 1 {
		return "This is only one session: expect these places to change with the next one."
	}
	open := 0
	for _, e := range entries {
		if e.PlaceLower < e.PlaceUpper {
			open++
		}
	}
	switch {
	case len(entries) == 0:
		return ""
	case open == len(entries):
		return "No place is certain: the intervals leave more than one place open for every model."
	case open > 0:
		return fmt.Sprintf("%d of %d places are not settled: the intervals leave more than one place open.",
			open, len(entries))
	default:
		return "Every place is settled: no interval overlaps another."
	}
}

// places sets PlaceLower and PlaceUpper of each entry from the intervals of all entries. A model without an interval
// may have any place.
func places(entries []LeaderboardEntry) {
	for i := range entries {
		e := &entries[i]
		e.PlaceLower = 1
		e.PlaceUpper = len(entries)
		for k := range entries {
			o := &entries[k]
			if e.CILower == nil || o.CILower == nil {
				continue
			}
			if *o.CILower > *e.CIUpper {
				e.PlaceLower++
			}
			if *o.CIUpper < *e.CILower {
				e.PlaceUpper--
			}
		}
	}
}

// boards returns the boards of some sessions. The boards list only the models in the argument shown, which is
// sorted.
func (c *Collector) boards(sessions []standings, shown []string) []Board {
	councils := stat.Groups{}
	of := func(s standings) string { // any model of a session stands for its council
		for model := range s.models {
			return councils.Of(c.names[model])
		}
		return ""
	}
	for _, s := range sessions {
		first := of(s)
		for model := range s.models {
			councils.Unite(first, c.names[model])
		}
	}
	var order []string
	held := map[string][]standings{}
	for _, s := range sessions {
		council := of(s)
		if held[council] == nil {
			order = append(order, council)
		}
		held[council] = append(held[council], s)
	}
	boards := []Board{}
	for _, council := range order {
		if entries := c.entries(held[council], shown); len(entries) > 0 {
			n := len(held[council])
			boards = append(boards, Board{Sessions: n, Note: worth(n, entries), Entries: entries})
		}
	}
	slices.SortStableFunc(boards, func(a, b Board) int {
		return cmp.Or(cmp.Compare(b.Sessions, a.Sessions), strings.Compare(a.Entries[0].Model, b.Entries[0].Model))
	})
	return boards
}

// entries returns the entries of one board. It ranks all models of the board, and then keeps those in the argument
// shown, which is sorted.
func (c *Collector) entries(sessions []standings, shown []string) []LeaderboardEntry {
	entries := []LeaderboardEntry{}
	for member, name := range c.names {
		if council.ModelOf(name) == council.Unnamed {
			continue
		}
		e := LeaderboardEntry{Model: name}
		// Each element of means belongs to one question. It holds the sum of the session means and the number of
		// sessions.
		var means [][]float64
		questions := map[string]int{} // the index of each question in means
		sum := 0.0
		for _, s := range sessions {
			t, ok := s.models[int32(member)]
			if !ok {
				continue
			}
			k, ok := questions[s.query]
			if !ok || s.query == "" { // unknown questions count as distinct
				k = len(means)
				questions[s.query] = k
				means = append(means, make([]float64, 2))
			}
			means[k][0] += t.points / t.votes
			means[k][1]++
			sum += t.points / t.votes
			e.Appearances++
			e.VoteCount += int(t.votes)
			e.WinCount += t.wins
		}
		if len(means) == 0 {
			continue
		}
		e.Confidence = c.confidence(len(means))
		e.BordaNormalized = stat.Round(sum / float64(e.Appearances))
		e.WinCount = stat.Round(e.WinCount)
		e.CILower, e.CIUpper = resample(means, ratio)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b LeaderboardEntry) int {
		return cmp.Or(cmp.Compare(b.BordaNormalized, a.BordaNormalized), cmp.Compare(b.WinCount, a.WinCount),
			strings.Compare(a.Model, b.Model))
	})
	for i := range entries {
		e := &entries[i]
		e.Rank = i + 1
		if i == 0 {
			continue
		}
		if above := &entries[i-1]; e.BordaNormalized == above.BordaNormalized && e.WinCount == above.WinCount {
			e.Rank = above.Rank
		}
	}
	places(entries)
	return slices.DeleteFunc(entries, func(e LeaderboardEntry) bool {
		_, ok := slices.BinarySearch(shown, e.Model)
		return !ok
	})
}
