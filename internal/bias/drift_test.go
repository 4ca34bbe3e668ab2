package bias

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit/biassim"
)

// TestDriftVectors compares the change over the window. The reference has the
// ordinary standard errors of least squares; those of leaving out one question at a
// time are compared with the definition in TestTrendByCluster.
func TestDriftVectors(t *testing.T) {
	var want struct {
		Tol       float64
		Estimates struct{ Drift map[string]change }
	}
	readVectors(t, "e2e_planted.expected.json", &want)
	if len(want.Estimates.Drift) != 5 {
		t.Fatalf("%d reviewers in the file", len(want.Estimates.Drift))
	}
	w := windowOf(t, "e2e_planted.jsonl")
	got := map[string]change{}
	for _, d := range drifts(&w, severities(w), stretches(w.sessions)) {
		got[w.names[d.reviewer]] = change{Change: d.Estimate}
		// Errors of either kind estimate the same where sessions are independent.
		if se := want.Estimates.Drift[w.names[d.reviewer]].SE; d.SE < 0.8*se || d.SE > 1.25*se || d.questions != 40 {
			t.Errorf("%s: standard error %v of %d questions, by ordinary least squares %v", w.names[d.reviewer], d.SE, d.questions, se)
		}
	}
	if diff := cmp.Diff(want.Estimates.Drift, got, cmpopts.EquateApprox(want.Tol, 0),
		cmpopts.IgnoreFields(change{}, "SE", "P")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// run returns a stretch of sessions without any others between them.
func run(from, to int) stretch {
	var s stretch
	for k := from; k < to; k++ {
		s = append(s, k)
	}
	return s
}

func everyOther(from, to int) stretch {
	return slices.DeleteFunc(run(from, to), func(s int) bool { return s%2 != from })
}

func TestStretches(t *testing.T) {
	const n = 40
	whole := []stretch{run(0, n)}
	for _, tc := range []struct {
		name    string
		config  func(s int) string
		members func(s int) []int // beside 0 and 1
		want    []stretch
	}{
		{"nothing changes", nil, nil, whole},
		{"version", func(s int) string { return strconv.Itoa(s / 25) }, nil, []stretch{run(0, 25), run(25, n)}},
		{"version unknown at times", func(s int) string { return []string{"", "a"}[s%2] }, nil, whole},
		{"version after unknown ones", func(s int) string { return map[int]string{3: "a", 20: "b"}[s] }, nil, []stretch{run(0, 20), run(20, n)}},
		{"two councils in turn", func(s int) string { return []string{"a", "b"}[s%2] }, nil, []stretch{everyOther(0, n), everyOther(1, n)}},
		{
			"a version comes back", func(s int) string { return map[int]string{0: "a", 10: "b", 20: "a"}[s] }, nil,
			[]stretch{append(run(0, 10), run(20, n)...), run(10, 20)},
		},
		{"one comes", nil, func(s int) []int { return []int{2}[:s/30] }, []stretch{run(0, 30), run(30, n)}},
		{"one goes", nil, func(s int) []int { return []int{2}[:1-s/30] }, []stretch{run(0, 30), run(30, n)}},
		{"one for another", nil, func(s int) []int { return []int{2 + s/20} }, []stretch{run(0, 20), run(20, n)}},
		{"one is missing at times", nil, func(s int) []int { return []int{2}[:(s+1)%2] }, []stretch{run(0, n-1), run(n-1, n)}},
		{"a guest", nil, func(s int) []int { return map[int][]int{12: {2}, 20: {2}}[s] }, whole},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sessions := make([]scores, n)
			for s := range sessions {
				sessions[s].reviewers, sessions[s].candidates = []int{0}, []int{1}
				if tc.config != nil {
					sessions[s].config = tc.config(s)
				}
				if tc.members != nil {
					sessions[s].candidates = append(sessions[s].candidates, tc.members(s)...)
				}
			}
			if diff := cmp.Diff(tc.want, stretches(sessions)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := stretches(nil); len(got) != 0 {
		t.Errorf("of no session: %v", got)
	}
}

// fitsOf returns fits with the given relative harshness of two reviewers, on as many
// questions as sessions.
func fitsOf(h ...[2]float64) (*window, []stat.TwoWay) {
	w, fits := window{names: []string{"a", "b"}}, make([]stat.TwoWay, len(h))
	for s, v := range h {
		fits[s].Effect = v[:]
		w.sessions = append(w.sessions, scores{id: strconv.Itoa(s), cluster: s})
	}
	return &w, fits
}

func TestDriftNeedsTenSessions(t *testing.T) {
	var h [][2]float64
	for s := range 20 {
		v := [2]float64{float64(s%3) - 1, float64(s % 2)}
		if s > 8 {
			v[1] = math.NaN()
		}
		h = append(h, v)
	}
	// The second reviewer has nine sessions, and so has the second stretch.
	w, fits := fitsOf(h...)
	for _, tc := range []struct {
		split []stretch
		want  int
	}{{[]stretch{run(0, 20)}, 1}, {[]stretch{run(0, 11), run(11, 20)}, 1}, {[]stretch{run(0, 10), run(10, 20)}, 2}, {[]stretch{run(0, 9)}, 0}} {
		if got := drifts(w, fits, tc.split); len(got) != tc.want {
			t.Errorf("%v: drifts %+v", tc.split, got)
		}
		if got := w.changePoints(fits, tc.split); len(got) != tc.want {
			t.Errorf("%v: change points %+v", tc.split, got)
		}
	}
}

// TestDriftMetrics holds what the report says of drift: sessions and records, and
// the beginning of each stretch only where there are several.
func TestDriftMetrics(t *testing.T) {
	records := recordsOf(40)
	// One member is missing in the last session: a stretch too short to be tested.
	records = slices.DeleteFunc(records, func(r council.BiasMetricRecord) bool {
		return r.SessionID == "s000039" && (r.ReviewerID == "dan/four" || r.ModelID == "dan/four")
	})
	for i := range records {
		records[i].CouncilConfig = "a"
	}
	m := byName(collect(unlimited, records).Report(t.Context()).Metrics)
	if d := m["drift|ann/one"]; d.SampleSize != 39 || d.Records != 117 || d.PValue == nil {
		t.Errorf("one council: %+v", d)
	}
	for i := range records[:20*12] {
		records[i].CouncilConfig = "b"
	}
	m = byName(collect(unlimited, records).Report(t.Context()).Metrics)
	later := "drift|ann/one from " + now.Add(-20*time.Hour).Format(time.RFC3339)
	if d := m[later]; d.SampleSize != 19 || d.Records != 57 || !d.WindowStart.Equal(now.Add(-20*time.Hour)) {
		t.Errorf("%s: %+v", later, d)
	}
	if len(m["drift"].Members) != 8 {
		t.Errorf("%d members", len(m["drift"].Members))
	}
}

// Two councils that are asked in turn are each looked at as they would be alone.
func TestTwoCouncilsInTurn(t *testing.T) {
	records := generated(3, 200, council.OrderBalanced, false, biassim.Effects{Drift: []float64{-3}})
	session, last := -1, ""
	for i := range records {
		if records[i].SessionID != last {
			session, last = session+1, records[i].SessionID
		}
		records[i].CouncilConfig = []string{"a", "b"}[session%2]
	}
	r := collect(unlimited, records).Report(t.Context())
	drift := byName(r.Metrics)["drift"]
	if *drift.Verdict != VerdictChanged || !strings.HasPrefix(drift.Subject, biassim.Members()[0]+" from ") {
		t.Errorf("the planted drift is %s of %q: %s", *drift.Verdict, drift.Subject, drift.Reason)
	}
	if len(drift.Members) != 10 || drift.SampleSize != 100 {
		t.Errorf("%d members, the first of %d sessions", len(drift.Members), drift.SampleSize)
	}
	if len(r.ChangePoints) != 10 || r.Anomalies.Cells != 1000 {
		t.Errorf("%d change points, %d cells", len(r.ChangePoints), r.Anomalies.Cells)
	}
}
