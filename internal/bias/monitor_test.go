package bias

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/biassim"
)

// alarms returns the headlines of a monitor that are an alarm, with their subjects.
func alarms(m Monitor) map[string]string {
	all := map[string]string{}
	for _, w := range m.Watched {
		if w.Alarm {
			all[w.Name] = w.Subject
		}
	}
	return all
}

// watched returns a headline of a monitor.
func watched(t *testing.T, m Monitor, name string) Watched {
	t.Helper()
	for _, w := range m.Watched {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("the monitor has no headline %s", name)
	return Watched{}
}

func TestMonitorRaisesAnAlarm(t *testing.T) {
	testkit.Slow(t)
	second := func(points float64) []float64 { return []float64{0, points} }
	for _, tt := range []struct {
		headline, subject string
		effects           biassim.Effects
	}{
		{"position", "place 1", biassim.Effects{Position: []float64{0.4}}},
		{"length_slope_deviation", "openai/m1", biassim.Effects{LengthSlope: second(0.8)}},
		{"self_preference", "", biassim.Effects{Self: 0.5}},
		{"family_affinity", "", biassim.Effects{Family: 0.8}},
		{"affinity", "anthropic/m2>google/m3", biassim.Effects{Pair: map[[2]int]float64{{2, 3}: 1.2}}},
		{"anchoring", "", biassim.Effects{Anchoring: -0.5}},
	} {
		t.Run(tt.headline, func(t *testing.T) {
			m := collect(unlimited, generated(5, 300, council.OrderBalanced, true, tt.effects)).Monitor(t.Context(), nil)
			got := alarms(m)
			if tt.headline == "length_slope_deviation" || tt.headline == "family_affinity" {
				delete(got, "affinity") // who rewards length, or its maker, favours some members
			}
			if diff := cmp.Diff(map[string]string{tt.headline: tt.subject}, got); diff != "" {
				t.Errorf("alarms (-want +got):\n%s", diff)
			}
			w := watched(t, m, tt.headline)
			if w.LogE == nil || *w.LogE < math.Log(140) {
				t.Errorf("an alarm at log e = %v", w.LogE)
			}
			if *w.CILower <= 0 && *w.CIUpper >= 0 {
				t.Errorf("an alarm whose interval holds 0: %v to %v", *w.CILower, *w.CIUpper)
			}
			if want := "Alarm after 300 sessions: "; !strings.HasPrefix(m.Headline, want) || !strings.Contains(m.Headline, tt.subject) {
				t.Errorf("headline %q", m.Headline)
			}
		})
	}
}

// Ranks do not depend on how high a reviewer scores everybody: the monitor finds it, and raises no alarm.
func TestLevelIsNoAlarm(t *testing.T) {
	m := collect(unlimited, generated(5, 300, council.OrderBalanced, true, biassim.Effects{Harshness: []float64{0, -0.8}})).Monitor(t.Context(), nil)
	w := watched(t, m, "harshness")
	if len(alarms(m)) > 0 || !w.Found || w.Kind != KindLevel || w.Subject != "openai/m1" || *w.LogE < math.Log(20) {
		t.Errorf("%s: %+v", m.Headline, w)
	}
	if m.Headline != "No alarm after 300 sessions" {
		t.Errorf("headline %q", m.Headline)
	}
}

// The e value of a headline is the mean of those of its members, each from the z that has the
// p of its t: of the reviewers in common and of single ones apart.
func TestMonitorFollowsTheReport(t *testing.T) {
	c := collect(unlimited, generated(7, 240, council.OrderBalanced, true, biassim.Effects{Harshness: []float64{0.1}}))
	m, metrics := c.Monitor(t.Context(), []float64{1, 0, 0.5, 0.5}), byName(c.Report(t.Context()).Metrics)
	if len(alarms(m)) > 0 || m.Headline != "No alarm after 240 sessions" {
		t.Errorf("%s: %v", m.Headline, alarms(m))
	}
	r := float64(stat.TunedMixture(0.05, 500))
	logE := func(p float64) float64 {
		z := stat.NormalQuantile(1 - p/2)
		return -math.Log(1+240*r)/2 + 240*r*z*z/(2*(1+240*r))
	}
	expect := func(headline string, kinds ...[]float64) {
		t.Helper()
		sum, n := 0., 0
		for _, ps := range kinds {
			for _, p := range ps {
				sum += math.Exp(logE(p)) / float64(len(ps)*len(kinds))
			}
			n += len(ps)
		}
		w := watched(t, m, headline)
		if math.Abs(*w.LogE-math.Log(sum)) > 1e-6 || w.Members != n || w.Clusters != 240 {
			t.Errorf("%s: log e = %v of %d members after %d, want %v of %d after 240", headline, *w.LogE, w.Members, w.Clusters, math.Log(sum), n)
		}
	}
	figures := func(name string, subjects ...string) (ps []float64) {
		for _, subject := range subjects {
			ps = append(ps, *metrics[name+"|"+subject].PValue)
		}
		return ps
	}
	members := biassim.Members()
	expect("position", figures("position_effect", "0", "1", "2", "3", "4"), figures("position", members...))
	expect("self_preference", []float64{*metrics["self_preference_in_common"].PValue}, figures("self_preference", members...))
	expect("harshness", figures("harshness", members...))
	expect("length_slope_deviation", figures("length_slope_deviation", members...))
	expect("anchoring", []float64{*metrics["anchoring"].PValue})

	shadow, b := watched(t, m, shadowPreference), stat.NewBetting([]float64{1, 0, 0.5, 0.5}, 0.05)
	if *shadow.LogE != b.LogE(0.5) || *shadow.PointEstimate != 0.5 || shadow.Clusters != 4 {
		t.Errorf("shadow preference %v after %d, log e = %v", *shadow.PointEstimate, shadow.Clusters, *shadow.LogE)
	}
}

// An effect that is certain, but too small to count, is no alarm. A preference in shadow
// sessions has no least size.
func TestMonitorAsksForAnEffectThatCounts(t *testing.T) {
	shadow := make([]float64, 400)
	for i := range shadow {
		shadow[i] = float64(min(1, i%3)) // two of three for the synthesis
	}
	c := collect(unlimited, generated(3, 600, council.OrderBalanced, true, biassim.Effects{Harshness: []float64{0, -0.2}}))
	m := c.Monitor(t.Context(), shadow)
	if diff := cmp.Diff(map[string]string{shadowPreference: ""}, alarms(m)); diff != "" {
		t.Errorf("alarms (-want +got):\n%s", diff)
	}
	w := watched(t, m, "harshness")
	if *w.LogE < math.Log(160) || !strings.Contains(w.Reason, "smaller than the 0.25 points that count") {
		t.Errorf("harshness: log e = %v, %s", *w.LogE, w.Reason)
	}
	if want := "Alarm after 600 sessions: shadow preference 0.67 share for the synthesis"; m.Headline != want {
		t.Errorf("headline %q, want %q", m.Headline, want)
	}
}

// Only the council of the newest session counts, whatever others held sessions between its own.
func TestMonitorBeginsWithTheCouncil(t *testing.T) {
	records := generated(5, 420, council.OrderBalanced, true, biassim.Effects{Self: 0.6})
	perSession := len(records) / 420
	version := func(from, to, every int, version string) {
		for s := from; s < to; s += every {
			for i := range perSession {
				records[s*perSession+i].CouncilConfig = version
			}
		}
	}
	version(200, 420, 1, "new")
	version(201, 419, 2, "other")
	m := collect(unlimited, records).Monitor(t.Context(), nil)
	if m.ConfigVersion != "new" || m.Window.Sessions != 111 || m.OtherCouncils != 309 || m.Window.Records != 111*perSession {
		t.Errorf("%d sessions of %q with %d records, %d left out", m.Window.Sessions, m.ConfigVersion, m.Window.Records, m.OtherCouncils)
	}
	if w := watched(t, m, "anchoring"); w.Clusters != 111 {
		t.Errorf("anchoring from %d sessions", w.Clusters)
	}
	alone := collect(Options{Now: now, Query: Query{ConfigVersion: "new"}}, records).Monitor(t.Context(), nil)
	alone.OtherCouncils = m.OtherCouncils
	if diff := cmp.Diff(alone, m); diff != "" {
		t.Errorf("beside other councils (-alone +got):\n%s", diff)
	}
	// Records that tell no version come before one that does.
	version(0, 200, 1, "")
	if m := collect(unlimited, records[:200*perSession]).Monitor(t.Context(), nil); m.ConfigVersion != "" || m.Window.Sessions != 200 {
		t.Errorf("%d sessions of %q", m.Window.Sessions, m.ConfigVersion)
	}
}

func TestMonitorNeedsSessions(t *testing.T) {
	records := generated(5, 100, council.OrderBalanced, false, biassim.Effects{Position: []float64{3}})
	o := unlimited
	o.RetentionDays = new(90)
	m := collect(o, records[:99*len(records)/100]).Monitor(t.Context(), []float64{1, 1, 1})
	if m.Status != StatusCollecting || m.SessionsNeeded != 1 || len(m.Watched) != 0 || m.Headline != "Collecting data (99 of 100 sessions)" {
		t.Errorf("%s, %d needed, %d headlines: %s", m.Status, m.SessionsNeeded, len(m.Watched), m.Headline)
	}
	if m.RetentionDays == nil || *m.RetentionDays != 90 {
		t.Errorf("retention %v", m.RetentionDays)
	}
	m = collect(o, records).Monitor(t.Context(), nil)
	if _, ok := alarms(m)["position"]; !ok || m.Status != StatusOK {
		t.Errorf("%s after 100 sessions: %v", m.Status, alarms(m))
	}
	for headline, reason := range map[string]string{
		"self_preference": "own answers were reviewed in too few sessions", shadowPreference: "there are no shadow sessions",
	} {
		if w := watched(t, m, headline); w.LogE != nil || w.PointEstimate != nil || !strings.HasPrefix(w.Reason, reason) {
			t.Errorf("%s: log e = %v: %s", headline, w.LogE, w.Reason)
		}
	}
	if len(m.Watched) != 8 {
		t.Errorf("%d headlines", len(m.Watched))
	}
	// A hundred sessions that asked fifty questions are too few for any figure.
	for i := range records {
		hash := "q" + records[i].SessionID[:5] // without the last digit
		records[i].QueryHash = &hash
	}
	m = collect(o, records).Monitor(t.Context(), nil)
	if w := watched(t, m, "position"); w.LogE != nil || !strings.Contains(w.Reason, "needs 100") {
		t.Errorf("position: log e = %v: %s", w.LogE, w.Reason)
	}
	if m := NewCollector(unlimited).Monitor(t.Context(), nil); m.Window.Start != nil || m.SessionsNeeded != 100 {
		t.Errorf("without a record: %+v", m)
	}
}

// However certain a bias is, JSON has a number for it.
func TestMonitorOfGreatCertainty(t *testing.T) {
	testkit.Slow(t)
	m := collect(unlimited, generated(5, 700, council.OrderBalanced, true, biassim.Effects{Position: []float64{4}})).Monitor(t.Context(), nil)
	if w := watched(t, m, "position"); !(*w.LogE > 300) || math.IsInf(*w.LogE, 0) {
		t.Errorf("log e = %v", *w.LogE)
	}
	if _, err := json.Marshal(m); err != nil {
		t.Error(err)
	}
}
