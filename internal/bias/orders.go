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

// After fewDraws draws, the drawing stops if the least possible p is above fewOrders, because there are then too
// few different orders.
const fewDraws, fewOrders = 50, 1.0 / 7

// orders holds the positions in which reviewers saw candidates in one session, and the residuals of the scores
// without the effects of reviewers and answers.
type orders struct {
	design council.Order
	// at is the position of a candidate for a reviewer, or -1 if the candidate was not shown.
	at       [][]int
	residual [][]float64 // is NaN without a score
	// author holds, for each reviewer, its own answer or, if it wrote none, the first answer of a twin. It is -1 if
	// there is neither. If reviewers do not see their own answers, this answer decides which row of the balanced
	// design the reviewer takes.
	author     []int
	ownShown   bool
	candidates int

	// reviewing holds the candidates whose authors review and do not see their own answers. It groups them by the
	// number of twins' answers that the author does not see either.
	reviewing  []group
	twins      []group   // the answers of twins, by candidate of reviewing
	others     group     // the other candidates
	free       group     // reviewers whose row does not depend on an answer of their own
	reviewerOf []int     // by candidate of reviewing
	row        []int     // the reviewer whose row each reviewer takes
	column     []int     // the candidate whose column each candidate takes
	sum, n     []float64 // sums and counts of the residuals at each position
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

// shownIn returns, for each reviewer, the candidate at each position. A position without a score has "".
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

// setGroups sets which reviewers, and which candidates, could have exchanged their positions.
func (o *orders) setGroups(hidden []group) {
	o.reviewerOf = slices.Repeat([]int{-1}, o.candidates)
	o.twins = make([]group, o.candidates)
	o.reviewing = make([]group, o.candidates)
	var follow []int // candidates that move together with a twin
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

// test returns p of a randomisation test (Fisher 1935). p is the share of alternative orders under which the scores
// differ between positions at least as much as under the real orders. The test assumes nothing about the scores,
// because the daemon itself drew the orders. least is the smallest p that any of these orders could have.
func (o orders) test() (p, least float64) {
	random := rand.New(rand.NewPCG(15, 0)) // the seed is the same in every process
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

// draw draws alternative orders by the design of the session. Under a separate order for each reviewer it shuffles
// the positions of each reviewer. Under balanced orders reviewers exchange their rows of the design, and candidates
// their columns. If an author does not see its own answer, this answer takes the column of another author's answer,
// and the author takes the row of that other author. The answers of its twins take the columns of the other
// author's twins.
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

// group holds the indices of reviewers or of candidates. Any two of the same group could have exchanged their
// positions.
type group []int

// shuffle sets to[i], for each i in the group, to a random member of the group. Each member is used once.
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

// difference returns the sum of squares between positions. It says how much the mean residual depends on the position.
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
