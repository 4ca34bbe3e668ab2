package worth_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/worth"
)

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

// near reports whether a value is a reference value, within 1e-9 of it.
func near(got, want float64) bool {
	return math.Abs(got-want) <= 1e-9*math.Abs(want) || math.Abs(got-want) <= 1e-12
}

// wantInterval is an interval in the reference values.
type wantInterval struct {
	N, Clusters      int
	Estimate, Centre float64
	SE, Lower, Upper float64
	CI95             [2]float64
	P                float64 `json:"p_two_sided"`
	Greater          float64 `json:"p_greater"`
}

func (w *wantInterval) UnmarshalJSON(data []byte) error {
	type plain wantInterval
	limits := struct {
		*plain
		Lower float64 `json:"lower_one_sided"`
		Upper float64 `json:"upper_one_sided"`
	}{plain: (*plain)(w)}
	err := json.Unmarshal(data, &limits)
	w.Lower, w.Upper = limits.Lower, limits.Upper
	return err
}

func checkInterval(t *testing.T, name string, want wantInterval, got *worth.Interval) {
	t.Helper()
	if got == nil {
		t.Fatalf("%s: there is no interval", name)
	}
	if got.N != want.N || got.Clusters != want.Clusters {
		t.Errorf("%s: %d in %d clusters, want %d in %d", name, got.N, got.Clusters, want.N, want.Clusters)
	}
	for what, pair := range map[string][2]float64{
		"estimate": {got.Estimate, want.Estimate}, "centre": {got.Centre, want.Centre}, "se": {got.SE, want.SE},
		"p": {got.P, want.P}, "p greater": {got.Above(0), want.Greater},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("%s: %s is %v, want %v", name, what, pair[0], pair[1])
		}
	}
	// The quantiles of t in the reference values are off by up to 5e-9: the tails there say so.
	for what, pair := range map[string][3]float64{
		"lower": {got.Lower, want.Lower, worth.Level}, "upper": {got.Upper, want.Upper, worth.Level},
		"ci95": {got.CI95[0], want.CI95[0], worth.Level / 2}, "ci95 above": {got.CI95[1], want.CI95[1], worth.Level / 2},
	} {
		width := math.Abs(pair[0] - got.Centre)
		if math.Abs(pair[0]-pair[1]) > 5e-9*width {
			t.Errorf("%s: %s is %v, want %v", name, what, pair[0], pair[1])
		}
		if tail := stat.StudentAbove(width/got.SE, float64(got.Clusters-1)); math.Abs(tail-pair[2]) > 1e-10 {
			t.Errorf("%s: %s leaves %v, want %v", name, what, tail, pair[2])
		}
	}
}

// pairs returns differences in clusters, each a cluster of its own where there are none.
func pairs(differences []float64, clusters []int) []worth.Pair {
	all := make([]worth.Pair, len(differences))
	for i, d := range differences {
		all[i] = worth.Pair{Cluster: strconv.Itoa(i), D: d}
		if clusters != nil {
			all[i].Cluster = strconv.Itoa(clusters[i])
		}
	}
	return all
}

func TestPairedVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Name        string
			Differences []float64
			Cluster     []int
			Expected    wantInterval
			TOST        []struct {
				Delta, P   float64
				Above      float64 `json:"p_above_minus_delta"`
				Below      float64 `json:"p_below_delta"`
				Equivalent bool
			}
		}
	}
	readVectors(t, "paired.json", &vectors)
	if len(vectors.Cases) != 7 {
		t.Fatalf("%d cases", len(vectors.Cases))
	}
	for _, c := range vectors.Cases {
		got := worth.Paired(pairs(c.Differences, c.Cluster))
		checkInterval(t, c.Name, c.Expected, got)
		for _, test := range c.TOST {
			if !near(got.Above(-test.Delta), test.Above) || !near(got.Below(test.Delta), test.Below) ||
				!near(got.Equivalent(test.Delta), test.P) || (got.Equivalent(test.Delta) < worth.Level) != test.Equivalent {
				t.Errorf("%s within %v: %v, want %+v", c.Name, test.Delta, got.Equivalent(test.Delta), test)
			}
		}
	}
	if worth.Paired(nil) != nil || worth.Paired([]worth.Pair{{"a", 1}, {"a", 0}}) != nil {
		t.Error("one cluster has an interval")
	}
}

func TestPowerVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Discordant, MDE80, HalfWidth90 float64
			Questions                      int
		}
	}
	readVectors(t, "power.json", &vectors)
	if len(vectors.Cases) != 28 {
		t.Fatalf("%d cases", len(vectors.Cases))
	}
	const one = 1
	for _, c := range vectors.Cases {
		got := worth.MDE80(c.Discordant, c.Questions, 0, one)
		if !near(got, c.MDE80) {
			t.Errorf("%v of %d: %v, want %v", c.Discordant, c.Questions, got, c.MDE80)
		}
		if n := worth.Needed(c.Discordant, got, 0, one); n < c.Questions-1 || n > c.Questions+1 {
			t.Errorf("%v of %d show %v, which takes %d", c.Discordant, c.Questions, got, n)
		}
	}
}

// The estimate must reach the margin too. Against one rival the gain that can be shown has a closed form, and more rivals take
// a larger one.
func TestPowerOfTheRule(t *testing.T) {
	for _, questions := range []int{50, 400, 5000} {
		const psi, margin, z95, z80 = 0.2, 0.05, 1.6448536269514722, 0.8416212335729143
		se := math.Sqrt(psi / float64(questions))
		want := max((z95+z80)*se, margin+z80*se)
		got := worth.PowerAt(psi, questions, margin, 1)
		if !near(got.MDE80, want) || got.Gain != 2*margin {
			t.Errorf("%d questions: %+v, want a gain of %v", questions, got, want)
		}
		if several := worth.MDE80(psi, questions, margin, 5); several <= got.MDE80 {
			t.Errorf("%d questions: %v against five, %v against one", questions, several, got.MDE80)
		}
	}
	needed := worth.Needed(0.2, 0.1, 0.05, 1)
	if at, before := worth.MDE80(0.2, needed, 0.05, 1), worth.MDE80(0.2, needed-1, 0.05, 1); at > 0.1 || before <= 0.1 {
		t.Errorf("%d questions show %v, and one fewer %v", needed, at, before)
	}
}
