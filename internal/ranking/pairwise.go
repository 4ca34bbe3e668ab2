package ranking

import "cmp"

// Pairwise compares each two candidates by the counted votes. It is for reading
// and never changes the standings.
type Pairwise struct {
	Candidates []string // in code-point order; the other fields follow it
	// Preferred[i][j] is the number of votes that place candidate i before j.
	Preferred [][]int
	// Copeland has each candidate's number of others that more votes place behind it
	// than before it, a draw counting one half (Copeland 1951): 0 to N-1. A pair that
	// no vote compares is a draw.
	Copeland []float64
	// Condorcet is the candidate that wins against each other one in this sense, or
	// "" where there is none.
	Condorcet string
}

// Pairs returns the pairwise comparison of the candidates. Under PolicyTiedLast a vote
// places those that it leaves out behind the others, under PolicyAvailable it does not
// compare them with anybody.
func Pairs(o Options) Pairwise {
	c := newCount(o, o.Policy)
	n := len(c.candidates)
	p := Pairwise{Candidates: c.candidates, Preferred: make([][]int, n), Copeland: make([]float64, n)}
	for i := range n {
		p.Preferred[i] = make([]int, n)
		for j := range n {
			for _, b := range c.ballots {
				if 0 <= b.twice[i] && b.twice[i] < b.twice[j] {
					p.Preferred[i][j]++
				}
			}
		}
	}
	for i := range n {
		wins := 0
		for j := range n {
			switch cmp.Compare(p.Preferred[i][j], p.Preferred[j][i]) {
			case 1:
				wins++
				p.Copeland[i]++
			case 0:
				if i != j {
					p.Copeland[i] += 0.5
				}
			}
		}
		if n > 1 && wins == n-1 {
			p.Condorcet = c.candidates[i]
		}
	}
	return p
}
