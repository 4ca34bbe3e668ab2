package stat

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestGroups(t *testing.T) {
	const names = 60
	rng := rand.New(rand.NewPCG(1, 1))
	g, number := Groups{}, [names]int{} // by name; those of one set have one number
	for i := range number {
		number[i] = i
	}
	for range names / 2 {
		a, b := rng.IntN(names), rng.IntN(names)
		g.Unite(strconv.Itoa(a), strconv.Itoa(b))
		for from, i := number[b], 0; i < names; i++ {
			if number[i] == from {
				number[i] = number[a]
			}
		}
		for i := range names {
			for j := range names {
				if (g.Of(strconv.Itoa(i)) == g.Of(strconv.Itoa(j))) != (number[i] == number[j]) {
					t.Fatalf("%d and %d: one set is %v", i, j, number[i] == number[j])
				}
			}
		}
	}
}
