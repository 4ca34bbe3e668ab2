package bias

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// generated returns the records of sessions of biassim's five members.
func generated(seed uint64, sessions int, order council.Order, showOwn bool, effects biassim.Effects) []council.BiasMetricRecord {
	return biassim.Generate(biassim.Options{
		Seed: seed, Sessions: sessions, Start: now.AddDate(0, -6, 0), Order: order, Effects: effects,
		Slates: func(session int) []council.Slate {
			return anonymize.Draw(anonymize.Options{
				Seed: int64(seed)<<20 + int64(session), Order: order, Authors: biassim.Members(), Reviewers: biassim.Members(),
				ShowOwn: showOwn,
			}).Reviewer
		},
	})
}

// verdicts returns the verdict of each headline, "" for none.
func verdicts(r Report) map[string]Verdict {
	found := map[string]Verdict{}
	for _, m := range r.Metrics {
		if m.Verdict != nil {
			found[m.Name] = *m.Verdict
		}
	}
	return found
}

func TestVerdictsOnVectors(t *testing.T) {
	planted := collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report(t.Context())
	want := map[string]Verdict{
		"length_points_per_doubling": VerdictInconclusive, "position": VerdictFavour, "length_slope_deviation": VerdictInconclusive,
		"self_preference": VerdictFavour, "family_affinity": VerdictInconclusive, "harshness": VerdictDiffers, "affinity": VerdictInconclusive,
		"anchoring": VerdictFavour, "drift": VerdictInconclusive, "ballot_similarity": VerdictInsufficient, // the records have no ranks
		reasoningName: VerdictNotIdentified, // nor reasoning
	}
	if diff := cmp.Diff(want, verdicts(planted)); diff != "" {
		t.Errorf("planted (-want +got):\n%s", diff)
	}
	const headline = "Favour found: answers at place 1 score 0.4 points higher than the others (0.3 to 0.6); " +
		"reviewers score their own answers 0.6 points higher than the others do (0.4 to 0.9); " +
		"for each point that the first answer is better, the answers after it score 0.3 points lower (0.2 to 0.3)"
	if planted.Headline != headline {
		t.Errorf("headline: %s", planted.Headline)
	}
	null := collect(unlimited, readRecords(t, "e2e_null.jsonl")).Report(t.Context())
	for name, verdict := range verdicts(null) {
		if verdict != VerdictInconclusive && verdict != VerdictNegligible && verdict != VerdictAlike && name != "ballot_similarity" &&
			name != reasoningName {
			t.Errorf("without a bias: %s is %q", name, verdict)
		}
	}
	text := "Nothing proven. With 40 sessions these would have been found with a probability of 80 %: an effect of " +
		"0.3 points (favour for own answers) to 0.6 points (favour for own family) that all reviewers share; " +
		"an effect of 0.9 points (effect of the place) to 1.4 points (favour for another model) that only one reviewer has"
	if null.Headline != text {
		t.Errorf("headline: %s", null.Headline)
	}
}

// TestMembersOfUnflaggedHeadlines holds that nothing below a headline has a verdict
// on bias unless the headline does, and that what is flagged names who it is.
func TestMembersOfUnflaggedHeadlines(t *testing.T) {
	flagged := map[string]Verdict{}
	for _, m := range collect(unlimited, readRecords(t, "e2e_planted.jsonl")).Report(t.Context()).Metrics {
		for _, member := range m.Members {
			if member.Verdict == nil {
				continue
			}
			if !m.Found() {
				t.Errorf("%s: %q below an unflagged headline", member.Name, *member.Verdict)
			}
			flagged[member.Name] = *member.Verdict
		}
	}
	for name, want := range map[string]Verdict{
		"harshness|openai/m0": VerdictDiffers, "harshness|google/m3": VerdictDiffers, "harshness|anthropic/m2": VerdictAlike,
		"self_preference_in_common": VerdictFavour,
	} {
		if flagged[name] != want {
			t.Errorf("%s: %q, want %q", name, flagged[name], want)
		}
	}
}

// TestUnbiasedReportsStayQuiet counts reports with any flag on data without a bias.
// The bound is 5 %, which is promised from 50 sessions on, and 3.3 standard errors of
// 120 reports.
func TestUnbiasedReportsStayQuiet(t *testing.T) {
	testkit.Slow(t)
	reports := 120
	for _, showOwn := range []bool{false, true} {
		flagged := 0
		for seed := range uint64(reports) {
			found := verdicts(collect(unlimited, generated(seed, 20, council.OrderBalanced, showOwn, biassim.Effects{})).Report(t.Context()))
			for _, verdict := range found {
				if verdict == VerdictFavour {
					flagged++
					break
				}
			}
		}
		if flagged > unbiasedFlagged(reports) {
			t.Errorf("own answers shown %v: %d of %d reports flag something", showOwn, flagged, reports)
		}
	}
}

// unbiasedFlagged returns how many of n reports may flag something where nothing is planted:
// 5 %, and 3.4 standard errors.
func unbiasedFlagged(n int) int {
	return int(0.05*float64(n) + 3.4*math.Sqrt(0.05*0.95*float64(n)))
}

// TestPlantedBiasesAreFound plants one bias at a time, large enough to be found
// always, and holds that it is found and nothing unrelated is.
func TestPlantedBiasesAreFound(t *testing.T) {
	testkit.Slow(t)
	for _, tc := range []struct {
		name    string
		effects biassim.Effects
		want    string // headline and subject
		verdict Verdict
		said    string
	}{
		{"position", biassim.Effects{Position: []float64{0.5}}, "position 0", VerdictFavour, "answers at place 1 score 0."},
		{"length", biassim.Effects{Length: 0.9}, "length_points_per_doubling ", VerdictAssociation, "An answer of twice the length scores 1.1 points higher ("},
		{"slope", biassim.Effects{LengthSlope: []float64{0, 0, 0.9}}, "length_slope_deviation anthropic/m2", VerdictFavour, "anthropic/m2 scores an answer of twice the length 0.8 points higher than the others do ("},
		{"self", biassim.Effects{Self: 0.6}, "self_preference ", VerdictFavour, "eviewers score their own answers 0."},
		{"family", biassim.Effects{Family: 0.8}, "family_affinity ", VerdictFavour, "eviewers score other answers of their own family 0."},
		{"harshness", biassim.Effects{Harshness: []float64{0, 0, 0, -1}}, "harshness google/m3", VerdictDiffers, "google/m3 scores "},
		{"pair", biassim.Effects{Pair: map[[2]int]float64{{2, 4}: 1.5}}, "affinity anthropic/m2>meta/m4", VerdictFavour, "anthropic/m2 scores meta/m4 1."},
		{"anchoring", biassim.Effects{Anchoring: -0.4}, "anchoring ", VerdictFavour, "or each point that the first answer is better, the answers after it score 0."},
		{"drift", biassim.Effects{Drift: []float64{0, 2}}, "drift openai/m1", VerdictChanged, "openai/m1 became 1."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := collect(unlimited, generated(1, 100, council.OrderBalanced, true, tc.effects)).Report(t.Context())
			for _, m := range r.Metrics {
				switch {
				case m.Name+" "+m.Subject == tc.want:
					if m.Verdict == nil || *m.Verdict != tc.verdict {
						t.Errorf("%s: %+v", m.Name, m)
					}
				case strings.HasPrefix(tc.want, m.Name+" "):
					t.Errorf("%s is about %q", m.Name, m.Subject)
				}
			}
			favour := tc.verdict == VerdictFavour
			if !favour && !strings.HasPrefix(r.Headline, "Nothing proven. With 100 sessions ") || !strings.Contains(
				strings.Join(append(r.Apart, r.Headline), "\n"), tc.said) || favour != strings.HasPrefix(r.Headline, "Favour found: ") {
				t.Errorf("headline: %s\napart: %q", r.Headline, r.Apart)
			}
		})
	}
}

// oneReviewer returns records as a public data set has them: one reviewer scores
// pairs of answers to many questions, and one model always stands second.
func oneReviewer() []council.BiasMetricRecord {
	rng := rand.New(rand.NewPCG(80, 0))
	var records []council.BiasMetricRecord
	for question := range 60 {
		for other, quality := range []float64{5, 6, 7} {
			for p, model := range []string{fmt.Sprint("other/m", other), "second/best"} {
				r := record(fmt.Sprintf("q%02d-%d", question, other), now, "judge/one", model,
					math.Round(min(10, quality+float64(p)*1.2+rng.NormFloat64())))
				r.Position, r.QueryHash = new(p), new(strconv.Itoa(question))
				r.ResponseLengthChars = 200 + rng.IntN(2000)
				records = append(records, r)
			}
		}
	}
	return records
}

// TestOneOrderIdentifiesNoPosition holds that a model which always stands second,
// and is better, is not taken for an effect of standing second.
func TestOneOrderIdentifiesNoPosition(t *testing.T) {
	report := collect(unlimited, oneReviewer()).Report(t.Context())
	if !strings.HasPrefix(report.Headline, "Nothing proven: these records leave 8 of 9 figures untested. Not tested: effect of the place,") {
		t.Errorf("headline: %s", report.Headline)
	}
	metrics := byName(report.Metrics)
	for name, reason := range map[string]string{
		"position": sharedOrder, "anchoring": sharedOrder, "harshness": notReviewers, "length_slope_deviation": pairsOnly,
		"self_preference": fmt.Sprintf(noOwn, "LLM_COUNCIL_SELF_REVIEW_RATE"), "family_affinity": noFamily,
	} {
		m := metrics[name]
		if m.Verdict == nil || *m.Verdict != VerdictNotIdentified || m.Reason != reason || m.PointEstimate != nil || m.PValue != nil {
			t.Errorf("%s: verdict %v, %q, estimate %v", name, *m.Verdict, m.Reason, m.PointEstimate)
		}
	}
	described := metrics["position_under_shared_order"]
	if described.Verdict != nil || described.PValue != nil || described.SampleSize != 180 || described.Clusters != 60 {
		t.Errorf("positions under one order: %+v", described)
	}
	// The models' own dummies take up the place, which only they have.
	for _, m := range described.Members {
		if m.PointEstimate != nil || *m.Verdict != VerdictNotIdentified {
			t.Errorf("%s: %+v", m.Name, m)
		}
	}
}

// TestSharedOrderDescribes holds that shared orders which change between sessions
// describe positions, without a verdict.
func TestSharedOrderDescribes(t *testing.T) {
	records := generated(2, 60, council.OrderShared, false, biassim.Effects{Position: []float64{1}})
	metrics := byName(collect(unlimited, records).Report(t.Context()).Metrics)
	if m := metrics["position"]; *m.Verdict != VerdictNotIdentified || m.Reason != sharedOrder {
		t.Errorf("position: %q, %s", *m.Verdict, m.Reason)
	}
	m := metrics["position_under_shared_order"]
	if m.Verdict != nil || m.PValue != nil || m.Subject != "0" || *m.PointEstimate < 0.3 || *m.CILower >= *m.PointEstimate ||
		m.Reason != sharedOrder {
		t.Errorf("described: %+v", m)
	}
	if len(m.Members) != 4 || m.Members[0].PValue != nil || m.Members[0].Verdict != nil {
		t.Errorf("members: %+v", m.Members)
	}
}

// TestSlatesOfSeveralSizes holds that slates of four and of five answers tell one effect of the first place together.
func TestSlatesOfSeveralSizes(t *testing.T) {
	effects := biassim.Effects{Position: []float64{0.4}}
	four, five := generated(3, 60, council.OrderBalanced, false, effects), generated(4, 60, council.OrderBalanced, true, effects)
	for i := range five {
		five[i].SessionID = "t" + five[i].SessionID
	}
	both := byName(collect(unlimited, slices.Concat(four, five)).Report(t.Context()).Metrics)
	m := both["position"]
	if !m.Is(VerdictFavour) || m.Subject != "0" || *m.CILower > 0.4 || *m.CIUpper < 0.4 || m.SampleSize != 120 {
		t.Errorf("%+v", m)
	}
	if m := both["position_effect|4"]; m.PointEstimate == nil || math.Abs(*m.PointEstimate+0.1) > 0.15 {
		t.Errorf("the place that only slates of five have: %+v", m)
	}
}

// TestSizeThatTellsNothing holds that slates of a size which cannot tell positions,
// here because one reviewer alone answered, take nothing from the others.
func TestSizeThatTellsNothing(t *testing.T) {
	records := generated(3, 60, council.OrderBalanced, true, biassim.Effects{Position: []float64{0.6}})
	for _, r := range generated(4, 15, council.OrderBalanced, false, biassim.Effects{}) {
		if r.SessionID = "t" + r.SessionID; r.ReviewerID == "openai/m0" {
			records = append(records, r)
		}
	}
	if m := byName(collect(unlimited, records).Report(t.Context()).Metrics)["position"]; !m.Is(VerdictFavour) || m.Subject != "0" {
		t.Errorf("%+v", m)
	}
	alone := byName(collect(unlimited, records[60*25:]).Report(t.Context()).Metrics)["position"]
	if alone.PValue != nil || *alone.Verdict != VerdictNotIdentified || alone.Reason != "fewer than two reviewers give different scores" {
		t.Errorf("alone: %+v", alone)
	}
}

// TestGuests holds that a member met in few sessions is neither tested nor changes
// what is said of the others' number.
func TestGuests(t *testing.T) {
	records := generated(5, 40, council.OrderBalanced, true, biassim.Effects{})
	for s := range 9 {
		for i := s * 25; i < (s+1)*25; i++ {
			if records[i].ReviewerID == "meta/m4" {
				records[i].ReviewerID, records[i].Own = "guest/g", false
			}
		}
	}
	metrics := byName(collect(unlimited, records).Report(t.Context()).Metrics)
	for _, name := range []string{"harshness|guest/g", "length_slope_deviation|guest/g", "pair|guest/g>openai/m0"} {
		if m := metrics[name]; m.PointEstimate != nil || *m.Verdict != VerdictInsufficient || m.Clusters != 9 ||
			m.Reason != "a test needs 10 sessions, and there are 9" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := metrics["self_preference|meta/m4"]; m.Clusters != 31 || m.Test.DF[0] != 30 {
		t.Errorf("%+v", m)
	}
	if m := metrics["harshness|openai/m0"]; m.Clusters != 40 || m.Test.DF[0] != 39 {
		t.Errorf("%+v", m)
	}
}

// TestNewcomersStandBack holds that a member with too few sessions for a verdict
// does not hide what the others have enough for, however much it stands out.
func TestNewcomersStandBack(t *testing.T) {
	records := generated(8, 60, council.OrderBalanced, false, biassim.Effects{Harshness: []float64{-1, 0, 0, 0, 0}})
	for i := range records[:12*20] {
		if r := &records[i]; r.ReviewerID == "meta/m4" {
			r.ReviewerID, r.ScoreValue = "new/n", new(max(1, *r.ScoreValue-4))
		}
	}
	metrics := byName(collect(unlimited, records).Report(t.Context()).Metrics)
	if m := metrics["harshness"]; m.Subject == "new/n" || *m.Verdict != VerdictDiffers || m.Clusters != 60 {
		t.Errorf("about %s: %q, %d sessions", m.Subject, *m.Verdict, m.Clusters)
	}
	if m := metrics["harshness|new/n"]; m.Clusters != 12 || *m.PValue > 1e-6 || m.QValue != nil || m.Verdict != nil {
		t.Errorf("%+v", m)
	}
}

// TestStrangersAreNotCompared holds that reviewers who never score the same answer
// have no harshness beside each other.
func TestStrangersAreNotCompared(t *testing.T) {
	var records []council.BiasMetricRecord
	for _, r := range generated(6, 30, council.OrderBalanced, false, biassim.Effects{}) {
		low := func(id string) bool { return id < "m" } // anthropic and google
		if low(r.ReviewerID) == low(r.ModelID) {
			records = append(records, r)
		}
	}
	m := byName(collect(unlimited, records).Report(t.Context()).Metrics)["harshness"]
	if m.PointEstimate != nil || *m.Verdict != VerdictNotIdentified || m.Reason != notComparable || len(m.Members) != 5 {
		t.Errorf("%+v", m)
	}
}

// TestReportOfAnything holds that the report of whatever is in a window can be
// written, and that its figures are such as they must be.
func TestReportOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		sessions, members, levels := rapid.IntRange(10, 40).Draw(t, "sessions"), rapid.IntRange(1, 5).Draw(t, "members"),
			rapid.IntRange(1, 10).Draw(t, "levels")
		missing, places := rapid.Float64Range(0, 0.8).Draw(t, "missing"),
			rapid.SampledFrom([]string{"none", "one order", "cyclic", "any"}).Draw(t, "places")
		var records []council.BiasMetricRecord
		for s := range sessions {
			for i := range members {
				for j := range members {
					if rng.Float64() < missing {
						continue
					}
					r := record(strconv.Itoa(s), now.Add(time.Duration(s-sessions)*time.Hour), fmt.Sprint("x/", i), fmt.Sprint("x/", j),
						float64(1+rng.IntN(levels)))
					r.Own, r.ResponseLengthChars = i == j, rng.IntN(3*levels)
					r.Provider = council.ProviderPair{Reviewer: strconv.Itoa(i % 2), Candidate: strconv.Itoa(j % 2)}
					switch places {
					case "none":
						r.Position = nil
					case "one order":
						r.Position = &j
					case "cyclic":
						r.Position, r.NShown = new((j+i+s)%members), members
					case "any":
						r.Position, r.NShown = new(rng.IntN(7)), rng.IntN(7)
					}
					records = append(records, r)
				}
			}
		}
		report := collect(unlimited, records).Report(t.Context())
		if _, err := json.Marshal(report); err != nil {
			t.Fatal(err)
		}
		for name, m := range byName(report.Metrics) {
			if m.PointEstimate == nil {
				if m.PValue != nil || m.CILower != nil || m.Verdict == nil && m.Reason == "" {
					t.Fatalf("%s has no figure: %+v", name, m)
				}
				continue
			}
			if m.CILower != nil && (*m.CILower > *m.PointEstimate || *m.CIUpper < *m.PointEstimate) {
				t.Fatalf("%s = %v in [%v, %v]", name, *m.PointEstimate, *m.CILower, *m.CIUpper)
			}
			for _, p := range []*float64{m.PValue, m.QValue} {
				if p != nil && !(0 <= *p && *p <= 1) {
					t.Fatalf("%s: p = %v", name, *p)
				}
			}
		}
	})
}

func TestSetVerdict(t *testing.T) {
	base := func() Metric {
		return Metric{
			Name: "x", Kind: KindFavour, Unit: points, PointEstimate: new(0.5), StandardError: new(0.1), Test: &Test{Name: "t", DF: []float64{59}},
			QValue:                  new(0.001),
			MinimumDetectableEffect: new(0.28), Delta: new(0.25), Clusters: 60, Members: []Metric{},
		}
	}
	for _, tc := range []struct {
		name   string
		mutate func(*Metric)
		want   Verdict
	}{
		{"large and significant", func(*Metric) {}, VerdictFavour},
		{"negative", func(m *Metric) { m.PointEstimate = new(-0.5) }, VerdictFavour},
		{"at delta", func(m *Metric) { m.PointEstimate = new(0.25) }, VerdictFavour},
		{"below delta", func(m *Metric) { m.PointEstimate = new(0.24) }, VerdictInconclusive},
		{"not significant", func(m *Metric) { m.QValue = new(0.05) }, VerdictInconclusive},
		{"q of .04 from 50 sessions", func(m *Metric) { m.QValue, m.Clusters = new(0.04), 50 }, VerdictFavour},
		{"q of .04 below", func(m *Metric) { m.QValue, m.Clusters = new(0.04), 49 }, VerdictInconclusive},
		{"q of .02 below", func(m *Metric) { m.QValue, m.Clusters = new(0.02), 20 }, VerdictFavour},
		{"under the minimum", func(m *Metric) { m.Clusters = 19 }, VerdictInsufficient},
		{"length", func(m *Metric) { m.Kind = KindAssociation }, VerdictAssociation},
		{"level", func(m *Metric) { m.Kind = KindLevel }, VerdictDiffers},
		{"change", func(m *Metric) { m.Kind = KindChange }, VerdictChanged},
		{"level inside delta", func(m *Metric) { m.Kind, m.PointEstimate, m.QValue = KindLevel, new(0.08), new(0.4) }, VerdictAlike},
		// 1.671 standard errors on either side: the 90 % interval on 59 degrees of freedom.
		{"inside delta", func(m *Metric) { m.PointEstimate, m.QValue = new(0.08), new(0.4) }, VerdictNegligible},
		{"anchoring is never negligible", func(m *Metric) {
			m.Name, m.PointEstimate, m.QValue = "anchoring", new(0.), new(0.9)
		}, VerdictInconclusive},
		{"just not inside", func(m *Metric) { m.PointEstimate, m.QValue = new(0.084), new(0.4) }, VerdictInconclusive},
		{"significant inside delta", func(m *Metric) { m.PointEstimate, m.StandardError = new(0.1), new(0.02) }, VerdictNegligible},
		{"a member outside", func(m *Metric) {
			m.Subject, m.PointEstimate, m.QValue = "a", new(0.01), new(0.4)
			outside := *m
			outside.PointEstimate = new(0.2)
			m.Members = []Metric{*m, outside}
		}, VerdictInconclusive},
		{"all members inside", func(m *Metric) {
			m.Subject, m.PointEstimate, m.QValue = "a", new(0.01), new(0.4)
			m.Members = []Metric{*m, *m}
		}, VerdictNegligible},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := base()
			tc.mutate(&m)
			NewCollector(unlimited).setVerdict(&m)
			if *m.Verdict != tc.want || m.Reason == "" {
				t.Errorf("verdict %q, %s", *m.Verdict, m.Reason)
			}
		})
	}
}

// TestMembersWithUnlikeNumbersOfSessions holds that a headline is a bias when some
// member passes both rules at the level for its own sessions, also where the member of
// the least p, or the largest one, has fewer and a stricter level.
func TestMembersWithUnlikeNumbersOfSessions(t *testing.T) {
	metric := func(name string, sessions int, estimate float64) Metric {
		return Metric{
			Name: "x|" + name, Kind: KindFavour, Subject: name, Unit: points, PointEstimate: new(estimate), StandardError: new(0.1), Clusters: sessions,
			Test: &Test{Name: "t", DF: []float64{float64(sessions - 1)}}, PValue: new(0.01), Delta: new(0.25),
		}
	}
	few, many := metric("few", 30, 0.6), metric("many", 60, 0.3)
	few.QValue, many.QValue, few.Among, many.Among = new(0.02), new(0.02), 2, 2
	for _, shown := range []Metric{few, many} { // the one of the least p
		headline, other := shown, metric("", 60, 0)
		headline.Name, headline.PValue, headline.QValue, headline.Members = "x", new(0.02), nil, []Metric{few, many}
		other.Subject, other.PValue = "", new(0.9)
		family := []Metric{headline, other}
		(&findings{c: NewCollector(unlimited)}).judge(family)
		// q is .04: below the level of 60 sessions, above that of 30.
		if got := family[0]; *got.Verdict != VerdictFavour || got.Subject != "many" {
			t.Errorf("least p of %s: %q about %s, q %.3g", shown.Subject, *got.Verdict, got.Subject, *got.QValue)
		}
	}
}

// TestNothingIsFoundWithoutVerdict holds that where there are too few sessions for a
// verdict, no effect is said to be found by it.
func TestNothingIsFoundWithoutVerdict(t *testing.T) {
	records := generated(8, 19, council.OrderBalanced, true, biassim.Effects{})
	for name, m := range byName(collect(unlimited, records).Report(t.Context()).Metrics) {
		if m.MinimumDetectableEffect != nil {
			t.Errorf("%s, %d sessions: the verdict would find %.2f", name, m.Clusters, *m.MinimumDetectableEffect)
		}
	}
}

// TestBadLinesChangeNothing holds that one line of any kind that is no record, at
// any place, is counted and leaves every figure as it was.
func TestBadLinesChangeNothing(t *testing.T) {
	var good [][]byte
	for _, r := range generated(7, 12, council.OrderBalanced, true, biassim.Effects{}) {
		line := fmt.Appendf(nil,
			`{"schema_version":"1.2.0","session_id":%q,"timestamp":%q,"reviewer_id":%q,"model_id":%q,`+
				`"position":%d,"response_length_chars":%d,"score_value":%g,"score_scale":"1-10"}`+"\n",
			r.SessionID, r.Timestamp.Format("2006-01-02T15:04:05Z"), r.ReviewerID, r.ModelID, *r.Position, r.ResponseLengthChars,
			*r.ScoreValue)
		good = append(good, line)
	}
	read := func(lines [][]byte) Report {
		c := NewCollector(unlimited)
		for r, err := range store.Read(t.Context(), bytes.NewReader(bytes.Join(lines, nil))) {
			if bad, ok := errors.AsType[*store.LineError](err); ok {
				c.Skip(bad.File, bad.Line, string(bad.Reason), 1)
			} else if err != nil {
				t.Fatal(err)
			} else {
				c.Add(r)
			}
		}
		return c.Report(t.Context())
	}
	want := read(good)
	if want.Status != StatusOK || len(want.Skipped) != 0 {
		t.Fatalf("the good lines: %s, skipped %v", want.Status, want.Skipped)
	}
	mend := func(old, with string) string { return strings.Replace(string(good[40]), old, with, 1) }
	written := func(key string) string { // the key and its value, as the line has it
		_, value, _ := strings.Cut(string(good[40]), key)
		value, _, _ = strings.Cut(value, ",")
		return key + value
	}
	score, stamp := written(`"score_value":`), written(`"timestamp":`)
	for name, tc := range map[string]struct{ line, reason string }{
		"not JSON":           {"{\"torn\n", "not_json"},
		"array":              {"[]\n", "not_an_object"},
		"null":               {"null\n", "not_an_object"},
		"invalid UTF-8":      {"\xff\xfe\n", "invalid_utf8"},
		"null timestamp":     {mend(stamp, `"timestamp":null`), "bad_timestamp"},
		"numeric timestamp":  {mend(stamp, `"timestamp":1767225600`), "bad_timestamp"},
		"naive time":         {mend(stamp, `"timestamp":"2026-01-01T00:00:00"`), "bad_timestamp"},
		"string score":       {mend(score, `"score_value":"7"`), "bad_score"},
		"NaN":                {mend(score, `"score_value":NaN`), "not_json"},
		"score off scale":    {mend(score, `"score_value":70`), "bad_score"},
		"unknown schema":     {mend(`"1.2.0"`, `"9.0.0"`), "unknown_schema"},
		"no reviewer":        {mend(`"reviewer_id"`, `"reviewer"`), "missing_field"},
		"position of string": {mend(`"position":`, `"position":"first","was":`), "bad_field"},
		"from the future":    {mend(stamp, `"timestamp":"2036-01-01T00:00:00Z"`), "future_timestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{0, 41, len(good)} {
				got := read(slices.Insert(slices.Clone(good), at, []byte(tc.line)))
				if len(got.Skipped) != 1 || got.Skipped[0].Reason != tc.reason || got.Skipped[0].Count != 1 {
					t.Errorf("skipped %+v, want one %s", got.Skipped, tc.reason)
				}
				got.Skipped = want.Skipped
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("a bad line before line %d changes the report:\n%s", at, diff)
				}
			}
		})
	}
}

// Answers of a model that answered a single question tell nothing of length beside the model, and do not enter: the
// length association is the same with them, and each of them would make every fit dearer.
func TestRareModelsDoNotEnter(t *testing.T) {
	records := recordsOf(40)
	with := slices.Clone(records)
	for s := range 30 {
		member := func(k int) string { return fmt.Sprintf("new/%d", 3*s+k) }
		for i := range 3 {
			for p, j := range []int{(i + 1) % 3, (i + 2) % 3} {
				r := record(fmt.Sprintf("rare%d", s), now.Add(time.Duration(s-40)*time.Hour), member(i), member(j), float64(3+(s+2*i+j)%5))
				r.Position, r.ResponseLengthChars = &p, 500+100*j
				with = append(with, r)
			}
		}
	}
	length := func(records []council.BiasMetricRecord) Metric {
		metrics := collect(unlimited, records).Report(t.Context()).Metrics
		return metrics[slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == lengthAssociation })]
	}
	want, got := length(records), length(with)
	if want.PointEstimate == nil || got.PointEstimate == nil {
		t.Fatalf("no figure: %+v, %+v", want, got)
	}
	figures := func(m Metric) []float64 { return []float64{*m.PointEstimate, *m.StandardError, m.Test.DF[0]} }
	if diff := cmp.Diff(figures(want), figures(got), approx); diff != "" {
		t.Errorf("(-without +with rare models):\n%s", diff)
	}
}
