package bias

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// earlyPositions says why positions from an early schema give no figure.
const earlyPositions = "the places in records of schema 1.1.0 and before are not trusted"

// maxPresent is the largest number of ids or values in Filter.Present.
const maxPresent = 50

// Filter describes a filter of a query. If the filter is the beginning of member ids, it says which members match.
// If too few sessions are left for figures, it says which records the filter left out.
type Filter struct {
	// Field is "reviewer", "model", "config_version", "model_version", "category" or "language".
	Field string `json:"field"`
	// Asked is the value in the query. For reviewer and model it may be the beginning of member ids.
	Asked   string   `json:"asked"`
	Matches []string `json:"matches"` // ids that begin with Asked, sorted
	// Present holds the first 50 ids of the window, sorted, if no id matches. For other filters it holds values of
	// records that were left out.
	Present []string `json:"present"`
	LeftOut int      `json:"left_out"` // counts records with another value, or none
}

// window is what a report is computed from.
type window struct {
	names    []string // member ids, sorted
	sessions []scores // oldest first
	clusters int      // the number of questions
	records  int      // counts records with or without a score
	// duplicates counts records that were dropped because an earlier one has the same session, reviewer and
	// candidate.
	duplicates int
	filters    []Filter // say which members the query stands for
	early      bool     // is true if some positions are of a schema that is not trusted
	repeats    Repeats
	// embedder is the model that measured the similarity of answers in the newest session that has this measurement,
	// or "".
	embedder string
}

// scores holds the scores of one session in the form that the estimators use. Reviewers and candidates are
// ascending indices into the window's names. Members without a record in the session do not occur.
type scores struct {
	id       string
	start    time.Time
	cluster  int    // from 0, the same for sessions of one question
	config   string // the council_config_version, or "" if unknown
	category string // the caller named it, or ""
	language string // the caller named it, or ""
	embedder string // measured how alike the answers are, or ""
	// shared says that the reviewers saw one order, so position cannot be told from quality.
	shared bool
	// block identifies frozen answers that are reviewed more than once, from a probe or an import. It is "" for
	// other answers.
	block      string
	reviewers  []int
	candidates []int
	shown      []int    // size of each reviewer's slate
	served     []served // versions that replied, candidates first

	// The matrices below are by reviewer and candidate, in the order of the slices reviewers and candidates.
	y      [][]float64 // 1 to 10, or NaN if no score was given
	length [][]float64 // of the answer, in code points; NaN without a record
	// reasoning is how many tokens the author reasoned with, or NaN if the record has no number.
	reasoning [][]float64
	// place is the place on the ballot, without own answers, or NaN if not ranked.
	place [][]float64
	// style is the similarity to the reviewer's own answer. It is NaN unless the window's embedder measured it.
	style    [][]float64
	position [][]int  // 0-based position shown, or -1 if unknown or not shown
	own      [][]bool // the reviewer wrote the candidate
	family   [][]bool // another model of the reviewer's provider wrote it
	correct  [][]int8 // 1 if the answer is right, 0 if it is wrong, -1 if unknown
}

// window returns the scores of the sessions in the window. They do not depend on the order in which the records
// were added, with two exceptions. If there are several records of the same session, reviewer and candidate, the
// first one counts. If records of a session differ in a fact about the session, the first one with that fact
// counts.
func (c *Collector) window() window {
	names, rank := c.sortRows()
	w := window{names: names}
	var reviewers, candidates span
	reviewers, w.filters = matching(w.filters, names, "reviewer", c.o.Reviewer)
	candidates, w.filters = matching(w.filters, names, "model", c.o.Model)
	clusters := map[string]int{}
	var in []*session
	for _, s := range c.order {
		w.duplicates += s.duplicates

		x := s.scores(rank)
		x.narrow(reviewers, candidates)
		x.served = c.served(s, rank, reviewers, candidates)
		kept := x.records()
		if kept == 0 {
			continue
		}
		w.records += kept
		in = append(in, s)
		w.early = w.early || s.early
		// Each session with an unknown question is a separate cluster.
		known, ok := clusters[s.query]
		if !ok || s.query == "" {
			known = w.clusters
			clusters[s.query] = known
			w.clusters++
		}
		x.cluster = known
		w.sessions = append(w.sessions, x)
		w.embedder = cmp.Or(x.embedder, w.embedder)
	}
	w.repeats = c.repeats(in)
	for _, x := range w.sessions {
		if x.embedder != w.embedder { // another model measured its similarities, on another scale
			for _, row := range x.style {
				for j := range row {
					row[j] = math.NaN()
				}
			}
		}
	}
	return w
}

// sortRows drops the sessions and the records before the window. It sorts the rows of each session by reviewer and
// candidate. If several rows are for the same pair, only the one that was added first stays. It returns the member
// ids that occur, sorted, and the index of each member among them.
func (c *Collector) sortRows() (names []string, rank []int) {
	c.trim()
	c.trimRows()
	rank = slices.Repeat([]int{len(c.names)}, len(c.names)) // an index that no member has
	for _, s := range c.order {
		for _, r := range s.rows {
			rank[r.reviewer] = 0
			rank[r.candidate] = 0
		}
	}
	for member, id := range c.names {
		if rank[member] == 0 {
			names = append(names, id)
		}
	}
	slices.Sort(names)
	for i, id := range names {
		rank[c.members[id]] = i
	}
	for _, s := range c.order {
		slices.SortStableFunc(s.rows, func(a, b row) int {
			return cmp.Or(rank[a.reviewer]-rank[b.reviewer], rank[a.candidate]-rank[b.candidate])
		})
		n := len(s.rows)
		s.rows = slices.CompactFunc(s.rows, func(a, b row) bool {
			return a.reviewer == b.reviewer && a.candidate == b.candidate
		})
		s.duplicates += n - len(s.rows)
	}
	return names, rank
}

// trimRows drops the rows from before the oldest session of a full window. It sets the facts of the sessions from
// the records that are left.
func (c *Collector) trimRows() {
	for _, s := range c.order {
		outside := func(t mention) bool {
			return c.full() && compareSessions(&session{id: s.id, start: t.time}, c.order[0]) < 0
		}
		s.rows = slices.DeleteFunc(s.rows, func(r row) bool { return outside(s.mentions[r.mention]) })
		s.facts = facts{}
		for _, t := range s.mentions {
			if !outside(t) {
				s.add(t.facts)
			}
		}
	}
	c.uniteQuestions()
}

// uniteQuestions sets the query of the sessions to one value for each question. If a session has both a key and a
// hash, the two belong to the same question.
func (c *Collector) uniteQuestions() {
	asked := stat.Groups{}
	for _, s := range c.order {
		if s.key != "" && s.query != "" {
			asked.Unite(s.key, s.query)
		}
	}
	for _, s := range c.order {
		s.query = asked.Of(cmp.Or(s.query, s.key))
	}
}

// span is a half-open range of members in the order of their names.
type span struct{ from, to int }

// matching returns the sorted names that a filter stands for. This is the name equal to the filter or, if there is
// none, all names that begin with the filter. An empty filter stands for all names. If a filter is not empty and is
// not itself a name, matching appends it to the filters.
func matching(filters []Filter, names []string, field, asked string) (span, []Filter) {
	if asked == "" {
		return span{0, len(names)}, filters
	}
	from, exact := slices.BinarySearch(names, asked)
	if exact {
		return span{from, from + 1}, filters
	}
	to := from
	for to < len(names) && strings.HasPrefix(names[to], asked) {
		to++
	}
	f := Filter{Field: field, Asked: asked, Matches: append([]string{}, names[from:to]...), Present: []string{}}
	if from == to {
		f.Present = append(f.Present, names[:min(len(names), maxPresent)]...)
	}
	return span{from, to}, append(filters, f)
}

// byTime returns the indices of the sessions, oldest first.
func (w *window) byTime() []int {
	order := make([]int, len(w.sessions))
	for k := range order {
		order[k] = k
	}
	return order
}

// byCluster returns the indices of the sessions, grouped by cluster.
func (w *window) byCluster() []int {
	order := w.byTime()
	slices.SortStableFunc(order, func(a, b int) int { return w.sessions[a].cluster - w.sessions[b].cluster })
	return order
}

// scores returns the scores of one session. Its rows must be sorted and without duplicates. rank holds the index of
// each member among the window's names.
func (s *session) scores(rank []int) scores {
	x := scores{
		id: s.id, start: s.start, config: s.config, category: s.category, language: s.language,
		shared: s.order == council.OrderShared, block: s.block, embedder: s.embedder,
	}
	x.candidates = make([]int, 0, len(s.rows))
	for k, r := range s.rows {
		if k == 0 || r.reviewer != s.rows[k-1].reviewer {
			x.reviewers = append(x.reviewers, rank[r.reviewer])
			x.shown = append(x.shown, 0)
		}
		x.shown[len(x.shown)-1]++
		x.candidates = append(x.candidates, rank[r.candidate])
	}
	slices.Sort(x.candidates)
	x.candidates = slices.Compact(x.candidates)
	m := len(x.reviewers)
	n := len(x.candidates)
	x.y = stat.Matrix(m, n, math.NaN())
	x.length = stat.Matrix(m, n, math.NaN())
	x.position = stat.Matrix(m, n, -1)
	x.own = stat.Matrix(m, n, false)
	x.family = stat.Matrix(m, n, false)
	x.place = stat.Matrix(m, n, math.NaN())
	x.style = stat.Matrix(m, n, math.NaN())
	x.reasoning = stat.Matrix(m, n, math.NaN())
	x.correct = stat.Matrix(m, n, int8(-1))
	i := 0
	for ballot := range ballots(s.rows) {
		for _, r := range ballot {
			j, _ := slices.BinarySearch(x.candidates, rank[r.candidate])
			x.y[i][j] = r.score
			x.length[i][j] = float64(r.length)
			x.position[i][j] = int(r.position)
			x.own[i][j] = r.own
			x.family[i][j] = r.family
			x.style[i][j] = float64(r.style)
			if r.reasoning >= 0 {
				x.reasoning[i][j] = float64(r.reasoning)
			}
			x.correct[i][j] = r.correct
			if !r.own {
				x.place[i][j] = r.rank
			}
			if r.shown > 0 {
				x.shown[i] = int(r.shown)
			}
		}
		i++
	}
	if s.order == "" {
		x.shared = oneOrder(x.position)
	}
	return x
}

// narrow keeps only the reviewers and candidates in these spans.
func (x *scores) narrow(reviewers, candidates span) {
	i, j := reviewers.among(x.reviewers)
	x.reviewers = x.reviewers[i:j]
	x.shown = x.shown[i:j]
	x.y = x.y[i:j]
	x.length = x.length[i:j]
	x.position = x.position[i:j]
	x.own = x.own[i:j]
	x.family = x.family[i:j]
	x.place = x.place[i:j]
	x.style = x.style[i:j]
	x.reasoning = x.reasoning[i:j]
	x.correct = x.correct[i:j]
	j, k := candidates.among(x.candidates)
	x.candidates = x.candidates[j:k]
	for i := range x.y {
		x.y[i] = x.y[i][j:k]
		x.length[i] = x.length[i][j:k]
		x.position[i] = x.position[i][j:k]
		x.own[i] = x.own[i][j:k]
		x.family[i] = x.family[i][j:k]
		x.style[i] = x.style[i][j:k]
		x.place[i] = x.place[i][j:k]
		x.reasoning[i] = x.reasoning[i][j:k]
		x.correct[i] = x.correct[i][j:k]
	}
}

// among returns the range of indices in levels whose members are in the span. The argument levels is a sorted list
// of members. The range is empty if no member is in the span.
func (s span) among(levels []int) (from, to int) {
	from, _ = slices.BinarySearch(levels, s.from)
	to, _ = slices.BinarySearch(levels, s.to)
	return from, to
}

// records returns the number of records that the scores come from.
func (x *scores) records() int {
	n := 0
	for _, row := range x.length {
		for _, length := range row {
			if !math.IsNaN(length) {
				n++
			}
		}
	}
	return n
}

// oneOrder reports whether all reviewers saw the answers in one order. This is true if no two reviewers saw two
// answers in opposite orders.
func oneOrder(position [][]int) bool {
	for i, a := range position {
		for _, b := range position[:i] {
			for j := range a {
				for k := range j {
					if a[j] >= 0 && a[k] >= 0 && b[j] >= 0 && b[k] >= 0 && (a[j] < a[k]) != (b[j] < b[k]) {
						return false
					}
				}
			}
		}
	}
	return true
}
