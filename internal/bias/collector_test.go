package bias

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
)

var now = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// unlimited takes every session.
var unlimited = Options{Now: now, Settings: council.SettingNames{council.SettingSelfReviewRate: "LLM_COUNCIL_SELF_REVIEW_RATE"}}

// estimate is an Estimate for comparing.
func estimate(value, lower, upper float64) stat.Estimate {
	return stat.Estimate{Value: &value, Lower: &lower, Upper: &upper}
}

// record is a plain record: reviewer a gives candidate b a score in session s.
func record(session string, start time.Time, reviewer, candidate string, score float64) council.BiasMetricRecord {
	return council.BiasMetricRecord{
		SchemaVersion: council.RecordSchema, SessionID: session, Timestamp: start, ReviewerID: reviewer, ModelID: candidate,
		Position: new(0), ResponseLengthChars: 1000, ScoreValue: &score, ScoreScale: council.ScoreScale,
	}
}

// recordsOf returns the records of n sessions of four members, an hour apart and
// the last one an hour before now, with noise from a fixed seed.
func recordsOf(n int) []council.BiasMetricRecord {
	members := []string{"ann/one", "bob/two", "cyd/three", "dan/four"}
	rng := rand.New(rand.NewPCG(18, 0))
	records := make([]council.BiasMetricRecord, 0, n*len(members)*(len(members)-1))
	for s := range n {
		start := now.Add(time.Duration(s-n) * time.Hour)
		for i, reviewer := range members {
			var given []float64
			for p := range len(members) - 1 {
				j := (i + 1 + p) % len(members)
				r := record(fmt.Sprintf("s%06d", s), start, reviewer, members[j], float64(3+rng.IntN(5)+j/2))
				r.Position, r.ResponseLengthChars = &p, 500+rng.IntN(1500)
				records, given = append(records, r), append(given, *r.ScoreValue)
			}
			for k := range given {
				records[len(records)-len(given)+k].RankValue = new(stat.PlaceOf(given, k))
			}
		}
	}
	return records
}

func collect(o Options, records []council.BiasMetricRecord) *Collector {
	c := NewCollector(o)
	for _, r := range records {
		c.Add(r)
	}
	return c
}

func TestReportByHand(t *testing.T) {
	// Ten sessions of the same four records. Lengths 1, 2, 3, 4 (thousand) and
	// scores 4, 8, 6, 8: deviations -1.5 -.5 .5 1.5 and -2.5 1.5 -.5 1.5, so
	// r = 5 / sqrt(5 * 11). Positions 0 1 0 1: r = 6 / sqrt(4 * 11).
	records := make([]council.BiasMetricRecord, 0, 50)
	for s := range 10 {
		for i, score := range []float64{4, 8, 6, 8} {
			r := record(strconv.Itoa(s), now.Add(time.Duration(s-10)*time.Hour), []string{"x", "y"}[i/2], []string{"a", "b"}[i%2], score)
			r.Position, r.ResponseLengthChars = new(i%2), 1000*(i+1)
			records = append(records, r)
		}
		// Without a score, or without a position, a record counts where it can.
		r := record(strconv.Itoa(s), now.Add(time.Duration(s-10)*time.Hour), "z", "a", 0)
		r.ScoreValue = nil
		records = append(records, r)
	}
	start, end := now.Add(-10*time.Hour), now.Add(-time.Hour)
	lengthR, positionR := 5/math.Sqrt(55), 6/math.Sqrt(44)
	described := func(name, unit, method string, figure, low, high *float64) Metric {
		return Metric{
			Name: name, Unit: unit, Method: method, PointEstimate: figure, CILower: low, CIUpper: high,
			SampleSize: 10, Records: 40, Clusters: 10, WindowStart: &start, WindowEnd: &end,
			Confidence: ConfidencePreliminary, Kind: KindDescription, Verdict: new(VerdictInsufficient), Reason: "a verdict needs 20 sessions, and there are 10",
			Members: []Metric{},
		}
	}
	// Student's t with 12 degrees of freedom; shape 6, scale 1 + 10/11/8, weight 11.
	half := 2.178812829667229 * math.Sqrt((1+10./88)/6/11)
	want := Report{
		SchemaVersion: "2.0.0", GeneratedAt: now, Status: StatusOK,
		Apart: []string{}, Versions: []VersionChange{},
		Headline: "Nothing proven: these records leave 9 of 9 figures untested. Not tested: effect of length, effect of the place, reward for length, " +
			"favour for own answers, favour for own family, difference in level, favour for another model, pull of the first answer, change of level",

		Window:  Window{Start: &start, End: &end, Sessions: 10, Records: 50},
		Levels:  Levels{BelowHigh: 0.03, High: 0.05},
		Skipped: []Skipped{},
		Metrics: []Metric{
			described("pooled_length_score_correlation", "correlation", pearsonMethod, &lengthR, nil, nil),
			described("position_score_correlation", "correlation", pearsonMethod, &positionR, nil, nil),
			described("agreement", "Kendall's W",
				"mean over sessions of Kendall's W of the scores, own answers left out, "+
					"BCa interval over questions from 20 on, descriptive",
				new(1.), nil, nil),
		},
		// Means 6 and 7: one half either side of 6.5, over sqrt(1/2). Each
		// reviewer's 20 scores lie 2, or 1, from their mean. In each session x is half a
		// point below both, y above.
		Reviewers: []Profile{
			{
				ReviewerID: "x", Mean: 6, MeanLower: new(6.), MeanUpper: new(6.), Confidence: "preliminary", Std: new(2 * math.Sqrt(20./19)), HarshnessZ: new(-math.Sqrt(0.5)), Reviews: 20,
				RelativeHarshness: estimate(-5./11, -5./11-half, -5./11+half), DriftSD: new(0.),
			},
			{
				ReviewerID: "y", Mean: 7, MeanLower: new(7.), MeanUpper: new(7.), Confidence: "preliminary", Std: new(math.Sqrt(20. / 19)), HarshnessZ: new(math.Sqrt(0.5)), Reviews: 20,
				RelativeHarshness: estimate(5./11, 5./11-half, 5./11+half), DriftSD: new(0.),
			},
		},
		Prior: Prior{Mean: 0, Sessions: 1, Shape: 1, Scale: 1},
		Calibrated: []Calibrated{
			{ReviewerID: "x", ModelID: "a", Z: new(-math.Sqrt(19. / 20)), Mean: 4, Reviews: 10},
			{ReviewerID: "x", ModelID: "b", Z: new(math.Sqrt(19. / 20)), Mean: 8, Reviews: 10},
			{ReviewerID: "y", ModelID: "a", Z: new(-math.Sqrt(19. / 20)), Mean: 6, Reviews: 10},
			{ReviewerID: "y", ModelID: "b", Z: new(math.Sqrt(19. / 20)), Mean: 8, Reviews: 10},
		},
		ChangePoints: []ChangePoint{}, Anomalies: Anomalies{Found: []Anomaly{}, Limits: anomalyLimits},
		Positions: []Position{
			{Position: 0, Mean: 5, CILower: new(5.), CIUpper: new(5.), Count: 20},
			{Position: 1, Mean: 8, CILower: new(8.), CIUpper: new(8.), Count: 20},
		},
		ModelPositions: []ModelPosition{
			{ModelID: "a", Position: 0, Mean: 5, CILower: new(5.), CIUpper: new(5.), Count: 20},
			{ModelID: "b", Position: 1, Mean: 8, CILower: new(8.), CIUpper: new(8.), Count: 20},
		},
		Series: []SeriesPoint{},
	}
	got := collect(unlimited, records).Report(t.Context())
	// The scores of a session do not vary beside its answers, so nothing can be fitted.
	speak(want.Metrics) // what they read like is TestSentences' matter
	for _, m := range got.Metrics[4:] {
		if m.PointEstimate != nil || m.Verdict != nil && *m.Verdict != VerdictNotIdentified {
			t.Errorf("%s = %v, verdict %v", m.Name, m.PointEstimate, *m.Verdict)
		}
	}
	got.Metrics, got.NotMeasured, got.Repeats.Note = got.Metrics[:3], nil, ""
	got.Summary, got.Questions = Summary{}, nil   // TestQuestions looks at them
	want.Repeats = Repeats{Unknown: 10, Alike: 9} // all answers are as long as each other
	if diff := cmp.Diff(want, got, approx); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestWindow(t *testing.T) {
	day := 24 * time.Hour
	at := func(id string, before time.Duration) council.BiasMetricRecord {
		return record(id, now.Add(-before), "a", "b", 5)
	}
	old, week, fresh := at("old", 40*day), at("week", 7*day), at("fresh", time.Hour)
	for _, tc := range []struct {
		name           string
		sessions, days int
		records        []council.BiasMetricRecord
		want           []string // sessions kept, oldest first
		future         int
	}{
		{"no limits", 0, 0, []council.BiasMetricRecord{week, old, fresh}, []string{"old", "week", "fresh"}, 0},
		{"last sessions", 2, 0, []council.BiasMetricRecord{week, old, fresh}, []string{"week", "fresh"}, 0},
		{"last days", 0, 30, []council.BiasMetricRecord{week, old, fresh}, []string{"week", "fresh"}, 0},
		{"sessions are the smaller limit", 1, 30, []council.BiasMetricRecord{week, old, fresh}, []string{"fresh"}, 0},
		{"days are the smaller limit", 3, 1, []council.BiasMetricRecord{week, old, fresh}, []string{"fresh"}, 0},
		{"nothing in the window", 3, 1, []council.BiasMetricRecord{old}, []string{}, 0},
		{"on the first instant of the window", 0, 30, []council.BiasMetricRecord{at("edge", 30*day)}, []string{"edge"}, 0},
		{"just before it", 0, 30, []council.BiasMetricRecord{at("edge", 30*day+1)}, []string{}, 0},
		{"a clock five minutes ahead", 0, 0, []council.BiasMetricRecord{at("ahead", -5*time.Minute)}, []string{"ahead"}, 0},
		{"a clock further ahead", 1, 0, []council.BiasMetricRecord{fresh, at("ahead", -5*time.Minute-1)}, []string{"fresh"}, 1},
		{
			"the same instant, the greater id is newer", 2, 0,
			[]council.BiasMetricRecord{at("c", day), at("a", day), at("b", day)},
			[]string{"b", "c"},
			0,
		},
		{"a session that was dropped does not return", 1, 0, []council.BiasMetricRecord{old, week, fresh, old, week}, []string{"fresh"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := collect(Options{Now: now, WindowSessions: tc.sessions, WindowDays: tc.days}, tc.records)
			report := c.Report(t.Context())
			got := make([]string, len(c.order))
			for i, s := range c.order {
				got[i] = s.id
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sessions (-want +got):\n%s", diff)
			}
			wantSkipped := []Skipped{}
			if tc.future > 0 {
				wantSkipped = append(wantSkipped, Skipped{Reason: "future_timestamp", Count: tc.future})
			}
			if diff := cmp.Diff(wantSkipped, report.Skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if report.Window.Sessions != len(tc.want) || report.Window.Records != len(tc.want) {
				t.Errorf("window = %d sessions, %d records, want %d of each", report.Window.Sessions, report.Window.Records, len(tc.want))
			}
			if empty := len(tc.want) == 0; (report.Window.Start == nil) != empty || (report.Window.End == nil) != empty {
				t.Errorf("window from %v to %v", report.Window.Start, report.Window.End)
			}
		})
	}
}

// TestReportAnyOrder holds that neither interleaving nor any other order of the
// records changes a bit of the report.
func TestReportAnyOrder(t *testing.T) {
	testkit.Slow(t)
	records := recordsOf(30)
	for i := range records {
		*records[i].ScoreValue += float64(i%7) / 10                         // sums that are not exact
		records[i].Timestamp = records[i].Timestamp.Truncate(5 * time.Hour) // sessions that start together
	}
	for _, o := range []Options{unlimited, {Now: now, WindowSessions: 12}, {Now: now, WindowDays: 1}} {
		want := collect(o, records).Report(t.Context())
		for seed := range uint64(20) {
			shuffled := slices.Clone(records)
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, j int) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			})
			if diff := cmp.Diff(want, collect(o, shuffled).Report(t.Context())); diff != "" {
				t.Fatalf("another order, another report:\n%s", diff)
			}
		}
	}
}

// TestReadingFromTheNewestPart holds that a store which is read part by part, from the
// newest one back, gives the window that a reading from its begin gives, though parts
// that the window excludes are not read. The parts hold records of any time in any
// order, some from the future; sessions lie in several parts, and their records differ
// in what they tell.
func TestReadingFromTheNewestPart(t *testing.T) {
	testkit.Slow(t)
	unread := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		o := Options{Now: now, WindowSessions: rng.IntN(8)}
		switch rng.IntN(4) {
		case 0:
			o.WindowDays = 1 + rng.IntN(3)
		case 1:
			o.Since, o.Until = now.Add(-40*time.Hour), now.Add(-20*time.Hour)
		case 2:
			o.ConfigVersion = "v1"
		}
		parts := make([][]council.BiasMetricRecord, 1+rng.IntN(6))
		for part := range parts {
			for range rng.IntN(12) {
				age := time.Duration(10*(len(parts)-part)+rng.IntN(20)-10) * time.Hour
				if rng.IntN(10) == 0 {
					age = time.Duration(rng.IntN(80)-1) * time.Hour
				}
				// Some sessions have one time, some another with each record.
				id := "s" + strconv.Itoa(int(age.Hours()))
				if rng.IntN(3) == 0 {
					id = "t" + strconv.Itoa(rng.IntN(10))
				}
				r := record(id, now.Add(-age), string(rune('a'+rng.IntN(4))), string(rune('a'+rng.IntN(4))), float64(1+rng.IntN(10)))
				r.CouncilConfig = "v" + strconv.Itoa(1+rng.IntN(2))
				r.QueryHash = [2]*string{nil, new("q" + strconv.Itoa(rng.IntN(3)))}[rng.IntN(2)]
				r.BlockID = [2]*string{nil, new("b")}[rng.IntN(2)]
				r.QueryMetadata.Category = new([]string{"", "coding", "math"}[rng.IntN(3)])
				r.OrderDesign = []council.Order{"", council.OrderShared, council.OrderBalanced}[rng.IntN(3)]
				parts[part] = append(parts[part], r)
			}
		}
		whole := collect(o, slices.Concat(parts...))
		back := NewCollector(o)
		for _, records := range slices.Backward(parts) {
			c := NewCollector(o)
			if byTime := func(a, b council.BiasMetricRecord) int { return a.Timestamp.Compare(b.Timestamp) }; len(records) > 0 &&
				back.Excludes(slices.MinFunc(records, byTime).Timestamp, slices.MaxFunc(records, byTime).Timestamp) {
				unread++
			} else {
				c = collect(o, records)
			}
			back.AddBefore(c)
		}
		compare := cmp.Options{cmp.AllowUnexported(window{}, scores{}), cmpopts.EquateNaNs()}
		if diff := cmp.Diff(whole.window(), back.window(), compare); diff != "" {
			t.Fatalf("seed %d: window (-whole +back):\n%s", seed, diff)
		}
		if diff := cmp.Diff(whole.Leaderboard(council.PolicyAvailable), back.Leaderboard(council.PolicyAvailable)); diff != "" {
			t.Fatalf("seed %d: leaderboard (-whole +back):\n%s", seed, diff)
		}
		if diff := cmp.Diff(whole.skipped, back.skipped); diff != "" {
			t.Fatalf("seed %d: skipped (-whole +back):\n%s", seed, diff)
		}
	}
	if unread < 1000 {
		t.Errorf("%d parts were not read, want more", unread)
	}
}

func TestReportAgain(t *testing.T) {
	records := recordsOf(25)
	records = append(records, records[17])
	o := Options{Now: now, WindowSessions: 15}
	c := NewCollector(o)
	for i, r := range records {
		c.Add(r)
		if i%10 == 0 {
			c.Report(t.Context())
		}
	}
	if diff := cmp.Diff(collect(o, records).Report(t.Context()), c.Report(t.Context())); diff != "" {
		t.Errorf("reports in between changed the last one:\n%s", diff)
	}
}

func TestDuplicatesCountOnce(t *testing.T) {
	records := recordsOf(10)
	again := records[5]
	again.ScoreValue = new(1.)
	got := collect(unlimited, append(slices.Clone(records), again, again)).Report(t.Context())
	want := collect(unlimited, records).Report(t.Context())
	want.Skipped = []Skipped{{Reason: "duplicate", Count: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestSkip(t *testing.T) {
	c := NewCollector(unlimited)
	c.Skip("records.jsonl", 3, "too_long", 1)
	c.Skip("records.jsonl.000001.zst", 4, "not_json", 1)
	c.Skip("records.jsonl", 9, "too_long", 1)
	bad := record("s", now, "a", "b", 5)
	bad.ScoreScale = "good-better"
	c.Add(bad)
	c.Skip("records.jsonl", 12, "bad_score", 1)
	want := []Skipped{
		{Reason: "bad_score", Count: 2, FirstFile: new("records.jsonl"), FirstLine: new(int64(12))},
		{Reason: "not_json", Count: 1, FirstFile: new("records.jsonl.000001.zst"), FirstLine: new(int64(4))},
		{Reason: "too_long", Count: 2, FirstFile: new("records.jsonl"), FirstLine: new(int64(3))},
	}
	report := c.Report(t.Context())
	if diff := cmp.Diff(want, report.Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if report.Window.Sessions != 0 {
		t.Errorf("%d sessions, want none: a skipped record opens none", report.Window.Sessions)
	}
}

// TestMemoryIsBounded streams many sessions through a small window.
func TestMemoryIsBounded(t *testing.T) {
	const sessions, window = 100_000, 100
	c := NewCollector(Options{Now: now, WindowSessions: window})
	most := 0
	for s := range sessions {
		c.Add(record(fmt.Sprintf("s%06d", s), now.Add(time.Duration(s-sessions)*time.Second), "a", "b", 5))
		most = max(most, len(c.sessions), len(c.order))
	}
	if most > 2*window {
		t.Errorf("%d sessions held at once, want at most %d", most, 2*window)
	}
	if got := c.Report(t.Context()).Window; got.Sessions != window || got.Records != window || len(c.sessions) != window {
		t.Errorf("window = %+v, %d sessions held", got, len(c.sessions))
	}
}

func TestRescale(t *testing.T) {
	for _, tc := range []struct {
		score float64
		scale string
		want  *float64
	}{
		{7.3, "1-10", new(7.3)},
		{1, "1-10", new(1.)},
		{10, "1-10", new(10.)},
		{0, "0-100", new(1.)},
		{50, "0-100", new(5.5)},
		{100, "0-100", new(10.)},
		{0.25, "0-1", new(3.25)},
		{3, "1.0-5.0", new(5.5)},
		{0, "-1-1", new(5.5)},
		{-2, "-3--1", new(5.5)},
		{0.9, "1-10", nil},
		{10.1, "1-10", nil},
		{101, "0-100", nil},
		{math.NaN(), "1-10", nil},
		{math.NaN(), "0-100", nil},
		{5, "", nil},
		{5, "-", nil},
		{5, "10", nil},
		{5, "10-1", nil},
		{5, "5-5", nil},
		{5, "one-ten", nil},
		{5, "1-10-100", nil},
		{5, "-Inf-10", nil},
		{5, "0-Inf", nil},
		{5, "NaN-10", nil},
	} {
		var got *float64
		if score, ok := rescale(tc.score, tc.scale); ok {
			got = &score
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("rescale(%v, %q) (-want +got):\n%s", tc.score, tc.scale, diff)
		}
	}
}

func FuzzRescale(f *testing.F) {
	f.Add(7.0, "1-10")
	f.Add(-2.5, "-3--1")
	f.Add(1e308, "-1e308-1e308")
	f.Add(5.0, "0x1p-2-10")
	f.Fuzz(func(t *testing.T, score float64, scale string) {
		if got, ok := rescale(score, scale); ok && !(1 <= got && got <= 10) {
			t.Errorf("rescale(%v, %q) = %v, outside 1 to 10", score, scale, got)
		}
	})
}

func TestTiers(t *testing.T) {
	for _, tc := range []struct {
		sessions, minSessions int
		want                  Confidence
		verdict               *Verdict
	}{
		{10, 0, ConfidencePreliminary, new(VerdictInsufficient)},
		{19, 0, ConfidencePreliminary, new(VerdictInsufficient)},
		{20, 0, ConfidenceModerate, nil},
		{49, 0, ConfidenceModerate, nil},
		{50, 0, ConfidenceHigh, nil},
		{12, 11, ConfidencePreliminary, nil},
		{12, 5, ConfidencePreliminary, nil},
		{25, 30, ConfidencePreliminary, new(VerdictInsufficient)},
		{60, 70, ConfidencePreliminary, new(VerdictInsufficient)},
		{60, 60, ConfidenceHigh, nil},
	} {
		report := collect(Options{Now: now, MinSessions: tc.minSessions}, recordsOf(tc.sessions)).Report(t.Context())
		if report.Status != StatusOK || report.SessionsNeeded != 0 || len(report.Metrics) < 3 {
			t.Fatalf("%d sessions: status %q, %d needed, %d metrics", tc.sessions, report.Status, report.SessionsNeeded,
				len(report.Metrics))
		}
		for _, m := range report.Metrics[:3] {
			interval := tc.sessions >= IntervalsFrom
			if m.PointEstimate == nil || (m.CILower != nil) != interval || (m.CIUpper != nil) != interval {
				t.Errorf("%d sessions: %s is %v in [%v, %v]", tc.sessions, m.Name, m.PointEstimate, m.CILower, m.CIUpper)
			}
			if m.Confidence != tc.want {
				t.Errorf("%d sessions, minimum %d: confidence %q, want %q", tc.sessions, tc.minSessions, m.Confidence, tc.want)
			}
			if diff := cmp.Diff(tc.verdict, m.Verdict); diff != "" {
				t.Errorf("%d sessions, minimum %d: verdict (-want +got):\n%s", tc.sessions, tc.minSessions, diff)
			}
		}
	}
}

func TestCollecting(t *testing.T) {
	for _, sessions := range []int{0, 1, 9} {
		report := collect(unlimited, recordsOf(sessions)).Report(t.Context())
		if report.Status != StatusCollecting || report.SessionsNeeded != 10-sessions || report.Window.Sessions != sessions {
			t.Errorf("%d sessions: status %q, %d needed, window of %d", sessions, report.Status, report.SessionsNeeded,
				report.Window.Sessions)
		}
		if n := len(report.Metrics) + len(report.Reviewers) + len(report.Positions); n > 0 {
			t.Errorf("%d sessions: %d figures, want none", sessions, n)
		}
	}
}

// TestUndefinedFigures holds that what cannot be computed is nil and says why.
func TestUndefinedFigures(t *testing.T) {
	for _, tc := range []struct {
		name             string
		mutate           func(i int, r *council.BiasMetricRecord)
		length, position string // the reason; "" for a figure
	}{
		{"equal scores", func(_ int, r *council.BiasMetricRecord) {
			r.ScoreValue = new(7.1)
		}, "undefined: the scores do not vary, or the lengths do not", "undefined: the scores do not vary, or the places do not"},
		{"equal lengths", func(_ int, r *council.BiasMetricRecord) {
			r.ResponseLengthChars = 800
		}, "undefined: the scores do not vary, or the lengths do not", ""},
		{"no positions", func(_ int, r *council.BiasMetricRecord) {
			r.Position = nil
		}, "", "0 sessions have a score and a place, and 10 are needed"},
		{"positions in nine sessions", func(i int, r *council.BiasMetricRecord) {
			if i >= 9*12 {
				r.Position = nil
			}
		}, "", "9 sessions have a score and a place, and 10 are needed"},
		{"no scores", func(_ int, r *council.BiasMetricRecord) {
			r.ScoreValue = nil
		}, "0 sessions have a score and a length, and 10 are needed", "0 sessions have a score and a place, and 10 are needed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := recordsOf(25)
			for i := range records {
				tc.mutate(i, &records[i])
			}
			report := collect(unlimited, records).Report(t.Context())
			for i, reason := range []string{tc.length, tc.position} {
				m := report.Metrics[i]
				if (m.PointEstimate == nil) != (reason != "") || (m.CILower == nil) != (reason != "") {
					t.Errorf("%s = %v, want a figure: %v", m.Name, m.PointEstimate, reason == "")
				}
				if reason != "" && m.Reason != reason {
					t.Errorf("%s: reason %q, want %q", m.Name, m.Reason, reason)
				}
			}
		})
	}
}

func TestPerfectCorrelationHasNoInterval(t *testing.T) {
	records := recordsOf(20)
	for i := range records {
		records[i].ResponseLengthChars = int(100 * *records[i].ScoreValue)
	}
	m := collect(unlimited, records).Report(t.Context()).Metrics[0]
	if m.PointEstimate == nil || *m.PointEstimate < 1-1e-12 || m.CILower != nil || m.CIUpper != nil {
		t.Errorf("metric = %+v, want r = 1 without an interval", m)
	}
}

func TestProfiles(t *testing.T) {
	for _, tc := range []struct {
		name   string
		scores map[string][]float64
		want   []Profile
	}{
		{"one reviewer", map[string][]float64{"a": {4, 6}}, []Profile{{ReviewerID: "a", Mean: 5, Std: new(math.Sqrt2), Reviews: 2}}},
		{"one score", map[string][]float64{"a": {4}}, []Profile{{ReviewerID: "a", Mean: 4, Reviews: 1}}},
		{"equal means", map[string][]float64{"a": {4, 6}, "b": {5, 5}}, []Profile{
			{ReviewerID: "a", Mean: 5, Std: new(math.Sqrt2), Reviews: 2}, {ReviewerID: "b", Mean: 5, Std: new(0.), Reviews: 2},
		}},
		// The mean of means does not weigh by reviews: 3, 6, 9 about 6.
		{"unequal numbers", map[string][]float64{"c": {9}, "a": {3, 3, 3}, "b": {6, 6}}, []Profile{
			{ReviewerID: "a", Mean: 3, Std: new(0.), HarshnessZ: new(-1.), Reviews: 3},
			{ReviewerID: "b", Mean: 6, Std: new(0.), HarshnessZ: new(0.), Reviews: 2},
			{ReviewerID: "c", Mean: 9, HarshnessZ: new(1.), Reviews: 1},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewCollector(unlimited)
			for s := range 10 {
				silent := record(strconv.Itoa(s), now, "silent", "x", 0)
				silent.ScoreValue = nil
				c.Add(silent)
			}
			for reviewer, scores := range tc.scores {
				for s, score := range scores {
					c.Add(record(strconv.Itoa(s), now, reviewer, "x", score))
				}
			}
			others := cmpopts.IgnoreFields(Profile{}, "RelativeHarshness", "DriftSD", "MeanLower", "MeanUpper", "Confidence")
			if diff := cmp.Diff(tc.want, c.Report(t.Context()).Reviewers, approx, others); diff != "" {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkReport(b *testing.B) {
	for _, sessions := range []int{1_000, 83_334} {
		records := recordsOf(sessions)
		for _, window := range []int{0, 100} {
			b.Run(fmt.Sprintf("records=%d/window=%d", len(records), window), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					collect(Options{Now: now, WindowSessions: window}, records).Report(b.Context())
				}
			})
		}
	}
}

// poolOf returns the records of n sessions, in each of which some of a pool of members answer, and review each
// other's answers. Their scores follow the answers.
func poolOf(n, pool, some int) []council.BiasMetricRecord {
	rng := rand.New(rand.NewPCG(20, 0))
	var records []council.BiasMetricRecord
	for s := range n {
		members := rng.Perm(pool)[:some]
		worth, length := make([]float64, some), make([]int, some)
		for j := range members {
			worth[j], length[j] = rng.NormFloat64(), 500+rng.IntN(1500)
		}
		for i, reviewer := range members {
			others := slices.DeleteFunc(rng.Perm(some), func(j int) bool { return j == i })
			for p, j := range others {
				score := math.Round(min(max(6+worth[j]+rng.NormFloat64(), 1), 10))
				start := now.Add(time.Duration(s-n) * time.Minute)
				r := record(fmt.Sprintf("s%06d", s), start, fmt.Sprintf("m%03d", reviewer), fmt.Sprintf("m%03d", members[j]), score)
				r.Position, r.ResponseLengthChars = new(p), length[j]
				records = append(records, r)
			}
		}
	}
	return records
}

func BenchmarkReportOfManyMembers(b *testing.B) {
	for _, size := range []struct{ sessions, pool, some int }{{1_000, 4, 4}, {1_000, 20, 4}, {1_000, 8, 8}, {1_000, 16, 16}, {100, 400, 4}} {
		records := poolOf(size.sessions, size.pool, size.some)
		b.Run(fmt.Sprintf("sessions=%d/members=%d of %d", size.sessions, size.some, size.pool), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				collect(unlimited, records).Report(b.Context())
			}
		})
	}
}
