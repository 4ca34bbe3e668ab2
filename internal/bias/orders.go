package bias

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// orderDraws is how many alternative orders of a session are drawn.
const orderDraws = 399

// If the least possible p is above fewOrders after fewDraws of them, no more are drawn: there are too few different orders.
const fewDraws, fewOrders = 50, 1.0 / 7

// orders are the places at which reviewers saw candidates in one session, and what the scores say beyond reviewers and
// answers.
type orders struct {
	design     council.Order
	at         [][]int     // by reviewer and candidate: the position, -1 where it was not shown
	residual   [][]float64 // NaN without a score
	author     []int       // by reviewer: the candidate whose row of the design it takes, its own one; -1 for none
	ownShown   bool
	candidates int

	reviewing  []group   // candidates whose authors review and do not see them, by how many answers of twins these do not see
	twins      []group   // by candidate of reviewing: these answers of twins
	others     group     // the other candidates
	free       group     // reviewers whose row has nothing to do with an answer of their own
	reviewerOf []int     // by candidate of reviewing
	row        []int     // by reviewer: whose row it takes in a draw
	column     []int     // by candidate: whose column it takes
	sum, n     []float64 // by position, of the residuals there
}

func newOrders(in AuditInput, scores []Score) orders {
	shown := in.Shown
	if shown == nil {
		shown = shownIn(in.Scores)
	}
	reviewers, candidates := namesIn(shown)
	o := orders{
		design:     in.Order,
		at:         make([][]int, len(reviewers)),
		residual:   stat.Matrix(len(reviewers), len(candidates), math.NaN()),
		author:     make([]int, len(reviewers)),
		candidates: len(candidates),
		row:        make([]int, len(reviewers)),
		column:     make([]int, len(candidates)),
	}
	hidden := make([]group, len(reviewers)) // hidden[i] are the candidates of the model of reviewer i
	positions := 0
	for i, reviewer := range reviewers {
		for j, candidate := range candidates {
			if in.Twins.Own(reviewer, candidate) {
				hidden[i] = append(hidden[i], j)
			}
		}
		if o.author[i] = slices.Index(candidates, reviewer); o.author[i] < 0 && hidden[i] != nil {
			o.author[i] = hidden[i][0]
		}
		positions = max(positions, len(shown[reviewer]))
		o.at[i] = slices.Repeat([]int{-1}, len(candidates))
		for position, candidate := range shown[reviewer] {
			if j := slices.Index(candidates, candidate); j >= 0 {
				o.at[i][j] = position
				o.ownShown = o.ownShown || slices.Contains(hidden[i], j)
			}
		}
	}
	o.sum = make([]float64, positions)
	o.n = make([]float64, positions)
	for _, s := range scores {
		i, reviews := slices.BinarySearch(reviewers, s.Reviewer)
		j, seen := slices.BinarySearch(candidates, s.Candidate)
		if reviews && seen {
			o.residual[i][j] = s.Value
		}
	}
	stat.FitTwoWay(o.residual)
	o.setGroups(hidden)
	return o
}

// shownIn returns for each reviewer which candidate stood at which position. A position without a score has "".
func shownIn(scores []Score) map[string][]string {
	shown := map[string][]string{}
	for _, s := range scores {
		row := shown[s.Reviewer]
		for len(row) <= s.Position {
			row = append(row, "")
		}
		row[s.Position] = s.Candidate
		shown[s.Reviewer] = row
	}
	return shown
}

// namesIn returns the reviewers and the candidates of orders, sorted.
func namesIn(shown map[string][]string) (reviewers, candidates []string) {
	reviewers = slices.Sorted(maps.Keys(shown))
	for _, row := range shown {
		candidates = append(candidates, row...)
	}
	slices.Sort(candidates)
	candidates = slices.DeleteFunc(slices.Compact(candidates), func(c string) bool { return c == "" })
	return reviewers, candidates
}

// setGroups sets which reviewers and which candidates could have taken each other's places.
func (o *orders) setGroups(hidden []group) {
	o.reviewerOf = slices.Repeat([]int{-1}, o.candidates)
	o.twins = make([]group, o.candidates)
	o.reviewing = make([]group, o.candidates)
	var follow []int // candidates that take the place of a twin of the one whose place their own twin takes
	for i, author := range o.author {
		if author < 0 || o.ownShown {
			o.free = append(o.free, i)
			continue
		}
		o.reviewerOf[author] = i
		o.twins[author] = slices.DeleteFunc(hidden[i], func(j int) bool { return j == author })
		follow = append(follow, o.twins[author]...)
	}
	for j, i := range o.reviewerOf {
		switch n := len(o.twins[j]); {
		case i >= 0:
			o.reviewing[n] = append(o.reviewing[n], j)
		case !slices.Contains(follow, j):
			o.others = append(o.others, j)
		}
	}
}

// test returns p of a randomisation test (Fisher 1935): the share of alternative orders that make the positions differ at
// least as much. The test assumes nothing of the scores, because the daemon itself drew who saw which answer where. least is
// the smallest p that any order could have had.
func (o orders) test() (p, least float64) {
	random := rand.New(rand.NewPCG(15, 0)) // the same in every process
	observed := o.difference(o.at)
	draws := make([]float64, 0, orderDraws)
	drawn := make([][]int, len(o.at))
	for i := range drawn {
		drawn[i] = make([]int, o.candidates)
	}
	share := func(value float64) float64 {
		n := 1
		for _, d := range draws {
			if d >= value-1e-9 {
				n++
			}
		}
		return float64(n) / float64(len(draws)+1)
	}
	for len(draws) < orderDraws {
		o.draw(random, drawn)
		draws = append(draws, o.difference(drawn))
		if len(draws) == fewDraws && share(max(observed, slices.Max(draws))) > fewOrders {
			break
		}
	}
	return share(observed), share(max(observed, slices.Max(draws)))
}

// draw draws orders as they could have been, by the design of the session. Under balanced orders reviewers and candidates
// take others' places in the design: an author that does not see its own answer takes its row along, and its twins follow it.
func (o orders) draw(random *rand.Rand, into [][]int) {
	if o.design == council.OrderPerReviewer {
		for i, row := range o.at {
			var places []int
			for _, p := range row {
				if p >= 0 {
					places = append(places, p)
				}
			}
			random.Shuffle(len(places), func(a, b int) { places[a], places[b] = places[b], places[a] })
			for j, p := range row {
				if into[i][j] = p; p >= 0 {
					into[i][j] = places[0]
					places = places[1:]
				}
			}
		}
		return
	}
	for _, alike := range o.reviewing {
		alike.shuffle(random, o.column)
	}
	o.others.shuffle(random, o.column)
	o.free.shuffle(random, o.row)
	for j, i := range o.reviewerOf {
		if i < 0 {
			continue
		}
		o.row[i] = o.reviewerOf[o.column[j]]
		places := o.twins[o.column[j]]
		order := random.Perm(len(places))
		for k, twin := range o.twins[j] {
			o.column[twin] = places[order[k]]
		}
	}
	for i, taken := range o.row {
		for j, column := range o.column {
			into[i][j] = o.at[taken][column]
		}
	}
}

// group is a list of indexes, of reviewers or candidates, that could have taken each other's places.
type group []int

// shuffle gives each of the group the place of one of them in to.
func (g group) shuffle(random *rand.Rand, to []int) {
	for _, i := range g {
		to[i] = i
	}
	for k := len(g) - 1; k > 0; k-- {
		i := g[k]
		j := g[random.IntN(k+1)]
		to[i], to[j] = to[j], to[i]
	}
}

// difference returns how far the residuals differ between positions: the sum of squares between them.
func (o orders) difference(at [][]int) float64 {
	sum := o.sum
	n := o.n
	clear(sum)
	clear(n)
	for i, row := range at {
		for j, position := range row {
			if r := o.residual[i][j]; position >= 0 && !math.IsNaN(r) {
				sum[position] += r
				n[position]++
			}
		}
	}
	total := 0.0
	for position, s := range sum {
		if n[position] > 0 {
			total += s * s / n[position]
		}
	}
	return total
}
