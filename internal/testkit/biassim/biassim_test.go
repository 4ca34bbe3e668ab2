package biassim_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/biassim"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// options are those of sessions of five members without a bias, own answers shown or hidden, and outside reviewers.
func options(sessions int, showOwn bool, outside ...string) biassim.Options {
	members := biassim.Members()
	return biassim.Options{
		Seed: 1, Sessions: sessions, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Order: council.OrderBalanced, Outside: outside,
		Slates: func(session int) []council.Slate {
			return anonymize.Draw(anonymize.Options{
				Seed: int64(session), Order: council.OrderBalanced, Authors: members, Reviewers: slices.Concat(members, outside),
				ShowOwn: showOwn,
			}).Reviewer
		},
	}
}

func TestGolden(t *testing.T) {
	o := options(3, true)
	o.Effects = biassim.Effects{
		Length: 0.3, LengthSlope: []float64{0, 0.4}, Position: []float64{0.3}, Self: 0.5, Family: 0.3, Harshness: []float64{-0.6},
		Drift: []float64{0, 0, 0, 0.8}, Jump: []float64{0, 0, 0, 0, 1}, Anchoring: -0.2, Pair: map[[2]int]float64{{2, 3}: 1},
	}
	golden(t, "records.golden", biassim.Generate(o))
}

// All that a world may differ in, at once: the model is to be found in the package
// comment, and these are its records.
func TestWorldsGolden(t *testing.T) {
	o := council3(6)
	o.Outside = []string{"other/x"}
	o.World = biassim.World{
		Spread: 0.3, Constant: []float64{0, 0, 7}, LongerBetter: 0.6, Base: 7, Step: 0.5, Missing: 0.2,
		HeavyTails: true, NoiseSpread: 0.5, Runs: 2,
	}
	golden(t, "worlds.golden", biassim.Generate(o))
}

// text returns what is simulated in records, a line for each.
func text(records []council.BiasMetricRecord) string {
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%s %s %s %s", r.SessionID, r.Timestamp.Format(time.RFC3339), r.ReviewerID, r.ModelID)
		fmt.Fprintf(&b, " %d/%d %d", *r.Position, r.NShown, r.ResponseLengthChars)
		for _, number := range []struct {
			name  string
			value *float64
		}{{"", r.ScoreValue}, {"rank ", r.RankValue}, {"similarity ", r.StyleSimilarity}} {
			if number.value != nil {
				fmt.Fprintf(&b, " %s%g", number.name, *number.value)
			}
		}
		for _, word := range []struct {
			name  string
			value *string
		}{{"question", r.QueryHash}, {"block", r.BlockID}, {"key", r.QuestionKey}, {"category", r.QueryMetadata.Category}} {
			if word.value != nil {
				fmt.Fprintf(&b, " %s %s", word.name, *word.value)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// golden compares records with those of a file.
func golden(t *testing.T, name string, records []council.BiasMetricRecord) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text(records)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text(records)); diff != "" {
		t.Error(diff)
	}
}

// The random parts do not depend on what is planted, so that an effect of a whole
// point shifts exactly the scores that it concerns by one.
func TestEffects(t *testing.T) {
	const sessions = 40
	index := func(member string) int { return slices.Index(biassim.Members(), member) }
	tests := []struct {
		name    string
		effects biassim.Effects
		applies func(r council.BiasMetricRecord, session int) bool
	}{
		{"none", biassim.Effects{}, func(council.BiasMetricRecord, int) bool { return false }},
		{"position", biassim.Effects{Position: []float64{0, 1}}, func(r council.BiasMetricRecord, _ int) bool { return *r.Position == 1 }},
		{"self", biassim.Effects{Self: 1}, func(r council.BiasMetricRecord, _ int) bool { return r.Own }},
		{"self of one", biassim.Effects{SelfBy: []float64{0, 0, 1}}, func(r council.BiasMetricRecord, _ int) bool {
			return r.Own && index(r.ReviewerID) == 2
		}},
		{"first place of one", biassim.Effects{FirstBy: []float64{0, 1}}, func(r council.BiasMetricRecord, _ int) bool {
			return *r.Position == 0 && index(r.ReviewerID) == 1
		}},
		{"family", biassim.Effects{Family: 1}, func(r council.BiasMetricRecord, _ int) bool {
			return !r.Own && r.Provider.Reviewer == "openai" && r.Provider.Candidate == "openai"
		}},
		{
			"harshness",
			biassim.Effects{Harshness: []float64{0, 1}},
			func(r council.BiasMetricRecord, _ int) bool { return index(r.ReviewerID) == 1 },
		},
		{
			"jump",
			biassim.Effects{Jump: []float64{1}},
			func(r council.BiasMetricRecord, s int) bool { return index(r.ReviewerID) == 0 && s >= sessions/2 },
		},
		{"pair", biassim.Effects{Pair: map[[2]int]float64{{2, 4}: 1}}, func(r council.BiasMetricRecord, _ int) bool {
			return index(r.ReviewerID) == 2 && index(r.ModelID) == 4
		}},
	}
	for _, showOwn := range []bool{true, false} {
		o := options(sessions, showOwn)
		null := biassim.Generate(o)
		perSession := len(null) / sessions
		if want := map[bool]int{true: 25, false: 20}[showOwn]; perSession != want {
			t.Fatalf("%d records a session, want %d", perSession, want)
		}
		for _, tt := range tests {
			o.Effects = tt.effects
			for n, r := range biassim.Generate(o) {
				want := *null[n].ScoreValue
				if tt.applies(r, n/perSession) {
					want = min(want+1, 10)
				}
				if *r.ScoreValue != want {
					t.Errorf("%s, own answers shown %v: record %d has %g, want %g", tt.name, showOwn, n, *r.ScoreValue, want)
				}
			}
		}
	}
}

// Effects that are no whole points shift the mean of the scores they concern.
func TestEffectsOnTheMean(t *testing.T) {
	o := options(2000, true)
	null := biassim.Generate(o)
	last := float64(o.Sessions - 1)
	doublings := func(r council.BiasMetricRecord) float64 { return math.Log2(float64(r.ResponseLengthChars) / 1100) }
	tests := []struct {
		name    string
		effects biassim.Effects
		weight  func(r council.BiasMetricRecord, session float64) float64 // of the planted half point
	}{
		{"length", biassim.Effects{Length: 0.5}, func(r council.BiasMetricRecord, _ float64) float64 { return doublings(r) }},
		{"length slope", biassim.Effects{LengthSlope: []float64{0, 0, 0.5}}, func(r council.BiasMetricRecord, _ float64) float64 {
			if r.ReviewerID != biassim.Members()[2] {
				return 0
			}
			return doublings(r)
		}},
		{"drift", biassim.Effects{Drift: []float64{0.5}}, func(r council.BiasMetricRecord, s float64) float64 {
			if r.ReviewerID != biassim.Members()[0] {
				return 0
			}
			return s/last - 0.5
		}},
	}
	for _, tt := range tests {
		o.Effects = tt.effects
		var wd, ww float64 // the slope of the shift over the weight
		for n, r := range biassim.Generate(o) {
			w := tt.weight(r, float64(n/25))
			if w == 0 && *r.ScoreValue != *null[n].ScoreValue {
				t.Fatalf("%s: record %d changed", tt.name, n)
			}
			wd += w * (*r.ScoreValue - *null[n].ScoreValue)
			ww += w * w
		}
		if got := wd / ww; math.Abs(got-0.5) > 0.02 {
			t.Errorf("%s: the planted half point shows as %.3f", tt.name, got)
		}
	}
}

// Anchoring leaves the first answer alone and shifts the others all one way:
// where the first is the best, with the effect's sign.
func TestAnchoring(t *testing.T) {
	o := options(500, false)
	null := biassim.Generate(o)
	o.Effects.Anchoring = -0.5
	anchored := biassim.Generate(o)
	product := 0.0
	for n := 0; n < len(null); n += 4 { // a slate
		up, down, first, sum := 0, 0, 0.0, 0.0
		for k := range 4 {
			a, b := null[n+k], anchored[n+k]
			shift := *b.ScoreValue - *a.ScoreValue
			sum += *a.ScoreValue
			switch {
			case *a.Position == 0:
				first = *a.ScoreValue
				if shift != 0 {
					t.Fatalf("record %d: the first answer's score changed", n+k)
				}
			case shift > 0:
				up++
			case shift < 0:
				down++
			}
		}
		if up > 0 && down > 0 {
			t.Fatalf("slate from record %d: %d scores rose and %d fell", n, up, down)
		}
		product += (first - sum/4) * float64(up-down)
	}
	if product >= 0 {
		t.Errorf("a first answer above the others raised them (%g)", product)
	}
}
