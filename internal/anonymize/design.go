package anonymize

import "slices"

// searchLimit is the largest odd number of answers for which hiddenSteps searches. That search takes about 65 ms.
// The search for the next odd number takes seconds.
const searchLimit = 27

// balanced returns the balanced order of each reviewer. It leaves out the reviewer's own answer if that is hidden.
func balanced(o Options) [][]string {
	n := len(o.Authors)
	orders := make([][]string, len(o.Reviewers))
	if n == 0 {
		return orders
	}
	random := newStream(o.Seed, "balanced", "")
	columns := pick(o.Authors, random.permutation(n))
	var hidden []int
	if !o.ShowOwn {
		hidden = hiddenSteps(n)
	}
	if random.below(2) == 1 {
		slices.Reverse(hidden)
	}
	shown := zigzag(n)
	if n%2 == 1 && random.below(2) == 1 {
		slices.Reverse(shown)
	}
	next := random.below(n)
	for _, i := range random.permutation(len(o.Reviewers)) {
		own := slices.Index(columns, o.own(o.Reviewers[i]))
		if own >= 0 && !o.ShowOwn {
			orders[i] = row(columns, own, hidden)
			continue
		}
		orders[i] = row(columns, next, shown)
		next++
	}
	return orders
}

// own returns the author whose row of the design a reviewer takes, or "" if there is none.
func (o Options) own(reviewer string) (own string) {
	for _, author := range o.Authors {
		switch {
		case author == reviewer:
			return author
		case o.Twins.Own(reviewer, author) && (own == "" || author < own):
			own = author
		}
	}
	return own
}

// row returns the row of a cyclic design that starts in column start.
func row(columns []string, start int, steps []int) []string {
	order := make([]string, len(steps))
	for k, step := range steps {
		order[k] = columns[(start+step)%len(columns)]
	}
	return order
}

// zigzag returns 0, 1, n-1, 2, n-2, ...: the first row of the cyclic design of Williams (1949). For even n its
// successive differences mod n are all distinct. So over the n rows, each answer comes directly after each other
// answer exactly once. For odd n only the n rows and their reverses together are balanced in this way.
func zigzag(n int) []int {
	steps := make([]int, n)
	for k := range steps {
		steps[k] = (k + 1) / 2
		if k%2 == 0 {
			steps[k] = (n - k/2) % n
		}
	}
	return steps
}

// hiddenSteps returns an arrangement of 1 to n-1. Except for odd n above searchLimit, its successive differences mod n
// are distinct. An author whose answer is in column e is shown the columns e + steps mod n, so it never sees its own
// answer. Over all authors every answer takes every position once. If the differences are distinct, no ordered pair of
// neighbours occurs twice.
//
// For even n the arrangement is the zigzag without its 0. For odd n it is the first such arrangement in
// lexicographic order. For odd n above searchLimit it is the zigzag again, which keeps the positions balanced but
// repeats neighbours.
func hiddenSteps(n int) []int {
	if n%2 == 0 || n == 1 || n > searchLimit {
		return zigzag(n)[1:]
	}
	steps := make([]int, 0, n-1)
	used := make([]bool, n)
	differences := make([]bool, n)
	var extend func() bool
	extend = func() bool {
		if len(steps) == n-1 {
			return true
		}
		for c := 1; c < n; c++ {
			d := 0 // before the first step there is no difference, and 0 is never marked
			if len(steps) > 0 {
				d = (c - steps[len(steps)-1] + n) % n
			}
			if used[c] || differences[d] {
				continue
			}
			used[c] = true
			differences[d] = d != 0
			steps = append(steps, c)
			if extend() {
				return true
			}
			steps = steps[:len(steps)-1]
			used[c] = false
			differences[d] = false
		}
		return false
	}
	extend()
	return steps
}
