package bias

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/councild/councild/internal/biassim"
	"github.com/councild/councild/internal/council"
)

// denseFit solves least squares with a column for each effect, by Gaussian elimination. It returns the
// first coefficient.
func denseFit(t *testing.T, rows [][]float64, y []float64) float64 {
	t.Helper()
	n := len(rows[0])
	a := make([][]float64, n)
	for p := range a {
		a[p] = make([]float64, n+1)
		for k, row := range rows {
			for q, x := range row {
				a[p][q] += row[p] * x
			}
			a[p][n] += row[p] * y[k]
		}
	}
	for p := range a {
		pivot := p
		for q := p; q < n; q++ {
			if math.Abs(a[q][p]) > math.Abs(a[pivot][p]) {
				pivot = q
			}
		}
		a[p], a[pivot] = a[pivot], a[p]
		if math.Abs(a[p][p]) < 1e-9 {
			t.Fatal("the columns depend on each other")
		}
		for q := range a {
			if q == p {
				continue
			}
			f := a[q][p] / a[p][p]
			for c := p; c <= n; c++ {
				a[q][c] -= f * a[p][c]
			}
		}
	}
	return a[0][n] / a[0][0]
}

// styleRows returns the rows of M7 with a dummy for each answer and, but for the first, for each reviewer of a
// session; without the sessions of one id.
func styleRows(records []council.BiasMetricRecord, without string) (rows [][]float64, y []float64) {
	members := biassim.Members()
	var sessions []string
	for _, r := range records {
		if r.SessionID != without && !slices.Contains(sessions, r.SessionID) {
			sessions = append(sessions, r.SessionID)
		}
	}
	const n = 5
	sumToZero := func(x []float64, level int, value float64) {
		for k := range x {
			if k == level {
				x[k] = value
			} else if level == len(x) {
				x[k] = -value
			}
		}
	}
	for _, r := range records {
		at := slices.Index(sessions, r.SessionID)
		if at < 0 || r.Own || r.StyleSimilarity == nil {
			continue
		}
		x := make([]float64, 2+(n-1)+(n-2)+(2*n-1)*len(sessions))
		x[0] = 10 * float64(float32(*r.StyleSimilarity))
		if r.Provider.Reviewer == r.Provider.Candidate {
			x[1] = 1
		}
		i, j := slices.Index(members, r.ReviewerID), slices.Index(members, r.ModelID)
		sumToZero(x[2:2+n-1], i, math.Log2(float64(r.ResponseLengthChars)))
		sumToZero(x[2+n-1:2+2*n-3], *r.Position, 1)
		session := x[2+2*n-3+(2*n-1)*at:]
		session[j] = 1
		if i > 0 {
			session[n+i-1] = 1
		}
		rows, y = append(rows, x), append(y, *r.ScoreValue)
	}
	return rows, y
}

// The estimate and its error are those of least squares with a column for each effect, and of leaving out
// one session at a time.
func TestStyleByDenseLeastSquares(t *testing.T) {
	records := inWorld(5, 14, 5, false, biassim.World{Embedded: true, AlikeMaker: 0.5}, biassim.Effects{Style: 0.3, Family: 0.4})
	m := byName(collect(unlimited, records).Report().Metrics)[styleName]
	rows, y := styleRows(records, "")
	want := denseFit(t, rows, y)
	if math.Abs(*m.PointEstimate-want) > 1e-7 {
		t.Errorf("the estimate is %v, want %v", *m.PointEstimate, want)
	}
	squares := 0.
	for s := 0; s < len(records); s += 20 {
		rows, y := styleRows(records, records[s].SessionID)
		d := denseFit(t, rows, y) - want
		squares += d * d
	}
	if se := math.Sqrt(squares * 13 / 14); math.Abs(*m.StandardError-se) > 1e-7 {
		t.Errorf("its error is %v, want %v", *m.StandardError, se)
	}
	if m.Records != 14*20 || m.SampleSize != 14 || m.SecondFit == nil {
		t.Errorf("%d records of %d sessions, second fit %v", m.Records, m.SampleSize, m.SecondFit)
	}
}

func TestStyleMimicry(t *testing.T) {
	embedded := biassim.World{Embedded: true}
	named := func(r Report) bool {
		return slices.ContainsFunc(r.NotMeasured, func(n NotMeasured) bool { return n.Name == styleName })
	}
	planted := inWorld(2, 150, 5, false, embedded, biassim.Effects{Style: 0.4})
	r := collect(unlimited, planted).Report()
	if m := byName(r.Metrics)[styleName]; *m.Verdict != VerdictFavour || *m.CILower > 0.4 || *m.CIUpper < 0.4 || named(r) ||
		!strings.Contains(m.Method, "biassim") || !strings.Contains(r.Headline, "favour answers that are like their own by ") {
		t.Errorf("planted: %s, %v, not measured %v", *m.Verdict, *m.PointEstimate, named(r))
	}
	r = collect(unlimited, inWorld(2, 150, 5, false, biassim.World{}, biassim.Effects{})).Report()
	if _, ok := byName(r.Metrics)[styleName]; ok || !named(r) {
		t.Errorf("without similarities: a metric %v, not measured %v", ok, named(r))
	}
	r = collect(unlimited, inWorld(2, 60, 3, false, embedded, biassim.Effects{})).Report()
	if m := byName(r.Metrics)[styleName]; *m.Verdict != VerdictNotIdentified || m.PointEstimate != nil {
		t.Errorf("three members with own answers hidden: %s", *m.Verdict)
	}
	few := slices.Clone(planted)
	for k := range few[9*20:] {
		few[9*20+k].StyleSimilarity, few[9*20+k].EmbeddingModel = nil, ""
	}
	r = collect(unlimited, few).Report()
	if m := byName(r.Metrics)[styleName]; *m.Verdict != VerdictInsufficient || m.SampleSize != 9 || named(r) {
		t.Errorf("nine sessions with similarities: %s of %d, not measured %v", *m.Verdict, m.SampleSize, named(r))
	}
}

// Cosines of two models are on two scales: those of the latest session's model count.
func TestStyleOfTheLatestModel(t *testing.T) {
	records := inWorld(3, 60, 5, true, biassim.World{Embedded: true}, biassim.Effects{Style: 0.2})
	half := len(records) / 2
	for k := range records[:half] {
		records[k].EmbeddingModel = "older"
		records[k].StyleSimilarity = new(-*records[k].StyleSimilarity)
	}
	mixed := byName(collect(unlimited, records).Report().Metrics)[styleName]
	for k := range records[:half] {
		records[k].EmbeddingModel, records[k].StyleSimilarity = "", nil
	}
	alone := byName(collect(unlimited, records).Report().Metrics)[styleName]
	if *mixed.PointEstimate != *alone.PointEstimate || mixed.SampleSize != 30 || alone.SampleSize != 30 {
		t.Errorf("%v of %d sessions, and without the older model %v of %d", *mixed.PointEstimate, mixed.SampleSize, *alone.PointEstimate,
			alone.SampleSize)
	}
}
