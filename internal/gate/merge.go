package gate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/councild/councild/internal/council"
)

// maxGap is how many lines two findings may be apart if they share half of their words.
const maxGap = 10

// group is one defect, as one or several members found it.
type group struct {
	id    string
	ids   []string // the ids of all groups that reviewers called the same as this one, and its own
	found []*finding
}

// by reports whether the model of a seat found the defect.
func (g *group) by(twins council.Twins, seat string) bool {
	return slices.ContainsFunc(g.found, func(f *finding) bool { return twins.Own(seat, f.seat) })
}

// compare orders findings by what they say, so that the order of arrival has no effect.
func (c *change) compare(a, b *finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(c.files, a.file), slices.Index(c.files, b.file)),
		cmp.Compare(a.place.from, b.place.from), cmp.Compare(a.place.to, b.place.to),
		cmp.Compare(b.severity, a.severity), // blocking first
		cmp.Compare(a.what, b.what), cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.seat, b.seat),
	)
}

// merge groups findings of different members whose texts show that they describe the same defect.
func (c *change) merge(found []*finding) []*group {
	found = slices.Clone(found)
	slices.SortFunc(found, c.compare)
	linked := link(len(found), func(i, j int) float64 { return alike(found[i], found[j]) })
	groups := make([]*group, 0, len(linked))
	for _, members := range linked {
		g := &group{id: "F" + strconv.Itoa(len(groups)+1)}
		g.ids = []string{g.id}
		for _, i := range members {
			g.found = append(g.found, found[i])
		}
		g.sort(c)
		groups = append(groups, g)
	}
	return groups
}

// sort puts the wording first that stands for the group: one that calls the defect blocking.
func (g *group) sort(c *change) {
	slices.SortFunc(g.found, func(a, b *finding) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), c.compare(a, b))
	})
}

// alike returns how much two findings are alike. It returns 0 if they must not merge.
func alike(a, b *finding) float64 {
	if a.seat == b.seat || a.file != b.file {
		return 0
	}
	words := shared(a.words, b.words)
	common := min(a.place.to, b.place.to) - max(a.place.from, b.place.from) + 1
	if common > 0 {
		all := max(a.place.to, b.place.to) - min(a.place.from, b.place.from) + 1
		return 2 + words + float64(common)/float64(all)
	}
	gap := max(a.file.start(a.place), b.file.start(b.place)) - min(a.file.end(a.place), b.file.end(b.place))
	if gap <= maxGap && words >= 0.5 {
		return words
	}
	return 0
}

// wordsOf returns the words of a text that have some meaning.
func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	split := func(r rune) bool { return !unicode.In(r, unicode.L, unicode.Nd) }
	for _, w := range strings.FieldsFunc(strings.ToLower(text), split) {
		if !slices.Contains(fillers(), w) {
			words[w] = true
		}
	}
	return words
}

// fillers are words that do not tell what a sentence is about.
func fillers() []string {
	return strings.Fields("a an and are as at be but by can for from has have if in into is it its no not of on or so " +
		"than that the then there this to was when which will with without")
}

// shared returns the share of words that two sets have in common, from 0 to 1.
func shared(a, b map[string]bool) float64 {
	common := 0
	for w := range a {
		if b[w] {
			common++
		}
	}
	return 2 * float64(common) / float64(max(len(a)+len(b), 1))
}

// link divides n things into groups by complete linkage: in a group, each pair is alike. Pairs that are more alike are
// joined first. Each group is in ascending order, and so are the groups by their first things.
func link(n int, alike func(i, j int) float64) [][]int {
	type pair struct {
		i, j  int
		score float64
	}
	scores := make([][]float64, n)
	var pairs []pair
	for i := range n {
		scores[i] = make([]float64, n)
		for j := range i {
			score := alike(j, i)
			scores[i][j] = score
			scores[j][i] = score
			if score > 0 {
				pairs = append(pairs, pair{j, i, score})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.i, b.i), cmp.Compare(a.j, b.j))
	})
	in := make([]int, n) // the group of each thing
	groups := make([][]int, n)
	for i := range n {
		in[i] = i
		groups[i] = []int{i}
	}
	for _, p := range pairs {
		a, b := min(in[p.i], in[p.j]), max(in[p.i], in[p.j])
		if a == b || !allLinked(groups[a], groups[b], scores) {
			continue
		}
		for _, i := range groups[b] {
			in[i] = a
		}
		groups[a] = append(groups[a], groups[b]...)
		groups[b] = nil
	}
	groups = slices.DeleteFunc(groups, func(g []int) bool { return g == nil })
	for _, g := range groups {
		slices.Sort(g)
	}
	slices.SortFunc(groups, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	return groups
}

func allLinked(a, b []int, scores [][]float64) bool {
	for _, i := range a {
		for _, j := range b {
			if scores[i][j] == 0 {
				return false
			}
		}
	}
	return true
}

// join merges groups that reviewers call the same. At least two makers must say so, and more than half of those that
// saw both.
func (c *change) join(groups []*group, ballots []ballot) []*group {
	agreed := func(i, j int) float64 {
		a, b := groups[i], groups[j]
		if slices.ContainsFunc(a.found, func(f *finding) bool { return b.by(nil, f.seat) }) {
			return 0 // The findings of one member never merge.
		}
		says := map[string]bool{} // by maker, of the reviewers that saw both
		for _, ballot := range ballots {
			if ballot.shown[a.id] && ballot.shown[b.id] {
				maker := c.makers[ballot.seat]
				says[maker] = says[maker] || ballot.callsSame(a.id, b.id)
			}
		}
		same := 0
		for _, yes := range says {
			if yes {
				same++
			}
		}
		if same < minMakers || 2*same <= len(says) {
			return 0
		}
		return float64(same) / float64(len(says))
	}
	linked := link(len(groups), agreed)
	joined := make([]*group, 0, len(linked))
	for _, members := range linked {
		g := &group{id: groups[members[0]].id}
		for _, i := range members {
			g.ids = append(g.ids, groups[i].id)
			g.found = append(g.found, groups[i].found...)
		}
		g.sort(c)
		joined = append(joined, g)
	}
	return joined
}

// callsSame reports whether a reviewer calls two findings the same.
func (b ballot) callsSame(first, second string) bool {
	return slices.ContainsFunc(b.same, func(set []string) bool {
		return slices.Contains(set, first) && slices.Contains(set, second)
	})
}
