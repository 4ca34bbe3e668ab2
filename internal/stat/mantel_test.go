package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// symmetric returns the matrix whose rows below the diagonal are these.
func symmetric(rows ...[]float64) [][]float64 {
	m := Matrix(len(rows)+1, len(rows)+1, 0.)
	for i, row := range rows {
		for j, v := range row {
			m[i+1][j], m[j][i+1] = v, v
		}
	}
	return m
}

// enumerated returns the share of the orders of y that reach the correlation, order by order.
func enumerated(x, y [][]float64) float64 {
	correlation := func(order []int) float64 {
		var a, b []float64
		for i := range x {
			for j := range x {
				if i != j {
					a, b = append(a, x[i][j]), append(b, y[order[i]][order[j]])
				}
			}
		}
		r, _ := Pearson(a, b)
		return r
	}
	var orders [][]int
	var extend func(order []int)
	extend = func(order []int) {
		if len(order) == len(x) {
			orders = append(orders, append([]int{}, order...))
			return
		}
	next:
		for k := range x {
			for _, used := range order {
				if used == k {
					continue next
				}
			}
			extend(append(order, k))
		}
	}
	extend(nil)
	least, reached := correlation(orders[0])-1e-9, 0
	for _, order := range orders {
		if correlation(order) >= least {
			reached++
		}
	}
	return float64(reached) / float64(len(orders))
}

// The examples in the documentation of scikit-bio's mantel, with the correlation 0.7559, and of the Python
// package mantel 2.1.0, with the correlation 0.9149 and the upper tail 0.0417 over all 24 orders.
func TestMantelByExample(t *testing.T) {
	first := symmetric([]float64{0.2}, []float64{0.4, 0.6}, []float64{0.3, 0.9, 0.4})
	second := symmetric([]float64{0.3}, []float64{0.3, 0.7}, []float64{0.2, 0.8, 0.3})
	if r, p, ok := Mantel(first, second, 1); !ok || math.Abs(r-0.9149) > 5e-5 || p != 1./24 {
		t.Errorf("r = %v, p = %v", r, p)
	}
	x, y := symmetric([]float64{1}, []float64{2, 3}), symmetric([]float64{2}, []float64{7, 6})
	r, p, ok := Mantel(x, y, 1)
	if !ok || math.Abs(r-0.7559289460184544) > 1e-12 || p != enumerated(x, y) {
		t.Errorf("r = %v, p = %v", r, p)
	}
}

func TestMantel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0))
	drawn := func(n int) [][]float64 {
		rows := make([][]float64, n-1)
		for i := range rows {
			for range i + 1 {
				rows[i] = append(rows[i], math.Round(random.Float64()*20)) // with ties
			}
		}
		return symmetric(rows...)
	}
	for n := 3; n <= 6; n++ {
		for range 10 {
			x, y := drawn(n), drawn(n)
			if _, p, ok := Mantel(x, y, 1); !ok || p != enumerated(x, y) {
				t.Fatalf("%d objects: p = %v, want %v", n, p, enumerated(x, y))
			}
		}
	}
	for range 5 { // seven objects are drawn: 5040 orders are few enough to count
		x, y := drawn(7), drawn(7)
		want := enumerated(x, y)
		if _, p, _ := Mantel(x, y, 1); math.Abs(p-want) > 4*math.Sqrt(want*(1-want)/permutations)+1./permutations {
			t.Errorf("seven objects: p = %v, by all orders %v", p, want)
		}
	}
	x := drawn(20)
	r, p, ok := Mantel(x, x, 1)
	if !ok || math.Abs(r-1) > 1e-12 || p != 1./(permutations+1) {
		t.Errorf("a matrix with itself: r = %v, p = %v", r, p)
	}
	for name, y := range map[string][][]float64{"two objects": symmetric([]float64{1}), "equal distances": symmetric([]float64{1}, []float64{1, 1})} {
		if _, _, ok := Mantel(y, y, 1); ok {
			t.Errorf("%s: there is a correlation", name)
		}
	}
}

// Matrices that have nothing in common are called alike at 5 % in 5 % of cases, up to 3.3 standard errors.
func TestMantelIsOfItsSize(t *testing.T) {
	const tables = 1500
	for _, n := range []int{5, 9} {
		random := rand.New(rand.NewPCG(3, uint64(n)))
		points := func() [][]float64 { // distances of points on a line, as coverage has
			at := make([]float64, n)
			for i := range at {
				at[i] = random.NormFloat64()
			}
			m := Matrix(n, n, 0.)
			for i := range m {
				for j := range m {
					m[i][j] = math.Abs(at[i] - at[j])
				}
			}
			return m
		}
		hits := 0
		for k := range tables {
			if _, p, _ := Mantel(points(), points(), uint64(k)); p <= 0.05 {
				hits++
			}
		}
		if share := float64(hits) / tables; math.Abs(share-0.05) > 3.3*math.Sqrt(0.05*0.95/tables) {
			t.Errorf("%d objects: %.3f of the tests reject", n, share)
		}
	}
}

func TestCosine(t *testing.T) {
	for _, tt := range []struct {
		x, y []float64
		want float64
	}{
		{[]float64{1, 0}, []float64{0, 2}, 0},
		{[]float64{3, 4}, []float64{6, 8}, 1},
		{[]float64{1}, []float64{-5}, -1},
		{[]float64{1, 1}, []float64{1, 0}, math.Sqrt2 / 2},
		{[]float64{1e150, 1e150}, []float64{1e150, 0}, math.Sqrt2 / 2},
		{[]float64{1e-150, 1e-150}, []float64{1e-150, 0}, math.Sqrt2 / 2},
	} {
		if got := Cosine(tt.x, tt.y); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("the cosine of %v and %v is %v, want %v", tt.x, tt.y, got, tt.want)
		}
	}
}
