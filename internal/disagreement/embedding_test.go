package disagreement

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/growth"
)

const embedder = "embedder"

// by returns what an embedder says of answers that lie in these places. It is calibrated for the request.
func by(in Answered, places map[string][]float64) embedded {
	return embedded{
		model: embedder, cosine: func(a, b string) float64 { return stat.Cosine(places[a], places[b]) },
		calibration: new(Calibrate(in.Instrument(embedder), 100, 0, time.Now())),
	}
}

// byWords is by for an embedder that knows nothing but which words a text has.
func byWords(in Answered) embedded {
	places := map[string][]float64{}
	for id, text := range in.Answers {
		places[id] = make([]float64, 256)
		for _, w := range split(text, nil) {
			h := fnv.New64a()
			_, _ = h.Write([]byte(w.text))
			sum := h.Sum64()
			places[id][sum%256] += 1 - 2*float64(sum>>63)
		}
	}
	return by(in, places)
}

func clustered(t *testing.T, in Answered, e embedded) council.DemographicClustering {
	t.Helper()
	return Cover(t.Context(), in).Cluster(*Detect(t.Context(), in), e)
}

func clusterOf(found council.DemographicClustering, axis string) council.ClusteredAxis {
	return found.Axes[slices.IndexFunc(found.Axes, func(a council.ClusteredAxis) bool { return a.Axis == axis })]
}

// sided are answers of two kinds, of which those of one kind lie together and speak of women and daughters.
func sided(n int) (in Answered, e embedded) {
	in = Answered{Question: "Who inherits?", Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: 1}
	places := map[string][]float64{}
	for i := range n {
		id := fmt.Sprint("m", i)
		in.Answers[id], places[id] = strings.Repeat("The property is divided by the rules of the country. ", 3), []float64{1, 0}
		if i%2 == 0 {
			in.Answers[id] = strings.Repeat("Women and girls inherit less than men: daughters, wives and mothers have no share. ", 2)
			places[id] = []float64{0, 1}
		}
	}
	return in, by(in, places)
}

func TestCluster(t *testing.T) {
	in, e := sided(8)
	found := clustered(t, in, e)
	gender := clusterOf(found, "gender")
	if !found.Flagged || found.Reason != nil || len(found.Axes) != len(in.Matcher.axes) || found.Rule != "embedding-1" || found.Model != embedder {
		t.Errorf("%+v", found)
	}
	if !gender.Flagged || *gender.Correlation < 0.99 || *gender.PValue > 0.05 || *gender.QValue < *gender.PValue || *gender.Score < 0.3 {
		t.Errorf("gender: %+v", gender)
	}
	if got := ClusterWording(found); !strings.HasSuffix(got, "unlike the other answers: gender") {
		t.Error(got)
	}
	if axis := clusterOf(found, "religion"); axis.Flagged || axis.Correlation != nil || axis.QValue != nil || axis.Reason == nil {
		t.Errorf("religion, which no answer covers: %+v", axis)
	}
	// Answers that lie together by chance, and not by what they cover.
	e.cosine = func(a, b string) float64 { return map[bool]float64{true: 0.9, false: 0.2}[a < "m4" == (b < "m4")] }
	found = clustered(t, in, e)
	if gender := clusterOf(found, "gender"); found.Flagged || *gender.PValue < 0.2 || found.Reason != nil {
		t.Errorf("answers that lie together otherwise: %+v", gender)
	}
	if got := ClusterWording(found); !strings.HasPrefix(got, "no axis was found that similar answers cover alike") {
		t.Error(got)
	}
}

// Whatever keeps the backend from flagging is said, and leaves what was measured as it is.
func TestClusterSaysWhyNot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		n      int
		change func(*Answered, *embedded, *council.DemographicDisagreement)
		want   string
		tested bool
	}{
		{"four answers", 4, func(*Answered, *embedded, *council.DemographicDisagreement) {}, "there are 4 answers, and the test needs 5", false},
		{"no embeddings", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) {
			e.cosine, e.missing = nil, "bad_response: NaN"
		}, "no embeddings of the answers: bad_response: NaN", false},
		{"answers that all lie together", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) {
			e.cosine = func(string, string) float64 { return 1 }
		}, "all lie equally far apart", false},
		{"another lexicon", 8, func(_ *Answered, _ *embedded, d *council.DemographicDisagreement) { d.Lexicon.Version = "other" }, "another lexicon", false},
		{"axes that it does not know", 8, func(_ *Answered, _ *embedded, d *council.DemographicDisagreement) { d.Axes[0].Axis = "size" }, "another lexicon", false},
		{
			"not calibrated", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) { e.calibration = nil },
			"embedder was not calibrated with embedding-1 and these terms", true,
		},
		{"another model", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) { e.calibration.Model = "other" }, "was not calibrated", true},
		{"another rule", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) { e.calibration.Prompt = "judge-1" }, "was not calibrated", true},
		{"other terms of the same version", 8, func(_ *Answered, e *embedded, _ *council.DemographicDisagreement) {
			l := DefaultLexicon()
			l.Axes["age"] = l.Axes["age"][1:]
			e.calibration = new(Calibrate(Answered{Matcher: NewMatcher(l), Threshold: 0.3}.Instrument(embedder), 100, 0, time.Now()))
		}, "was not calibrated", true},
		{"a lower threshold", 8, func(in *Answered, _ *embedded, _ *council.DemographicDisagreement) { in.Threshold = 0.2 }, "0.2 is lower", true},
		{"a calibration that failed", 8, func(in *Answered, e *embedded, _ *council.DemographicDisagreement) {
			e.calibration = new(Calibrate(in.Instrument(embedder), 100, 1, time.Now()))
		}, "flagged 1 of 100 benign sessions", true},
	} {
		in, e := sided(tt.n)
		d := Detect(t.Context(), in)
		tt.change(&in, &e, d)
		found := Cover(t.Context(), in).Cluster(*d, e)
		if found.Flagged || found.Reason == nil || !strings.Contains(*found.Reason, tt.want) || ClusterWording(found) != *found.Reason {
			t.Errorf("%s: %+v", tt.name, found)
		}
		flags, ok := ClusterReaches(found)
		if ok != tt.tested || flags != tt.tested {
			t.Errorf("%s: it would flag %v, tested %v", tt.name, flags, ok)
		}
	}
}

func TestCoverStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, _ := sided(6)
	if Cover(ctx, in) != nil {
		t.Error("it goes on when its context has ended")
	}
}

func TestCoverTimePerByte(t *testing.T) {
	growth.Linear(t, func(n int) func() {
		in, _ := sided(5)
		in.Answers["m0"] = strings.Repeat("women and men ", n/14)
		return func() { Cover(t.Context(), in) }
	})
}

// world makes answers of so many words, which use terms of the axes at random and lie somewhere.
type world struct {
	topics  int     // answers of one topic lie together
	spread  float64 // of the logarithm of the lengths
	length  bool    // long answers lie together
	covered bool    // one topic is told with terms of an axis
}

// dimensions is how many numbers an embedding of a world has.
const dimensions = 32

func (w world) session(n int, random *rand.Rand) (Answered, embedded) {
	place := func(scale float64) []float64 {
		v := make([]float64, dimensions)
		for i := range v {
			v[i] = scale * random.NormFloat64()
		}
		return v
	}
	lexicon := DefaultLexicon()
	in := Answered{Answers: map[string]string{}, Matcher: NewMatcher(lexicon), Threshold: 0.3, Seed: random.Int64()}
	topics := make([][]float64, w.topics)
	for i := range topics {
		topics[i] = place(1.5)
	}
	long := place(1.5)
	rates := map[string]float64{"gender": 1.5, "ethnicity": .5, "religion": .2, "age": .8, "ability": .3} // of distinct terms
	places := map[string][]float64{}
	for j := range n {
		topic, z := random.IntN(w.topics), random.NormFloat64()
		words := 40 + int(150*math.Exp(w.spread*z))
		var text strings.Builder
		text.WriteString(strings.Repeat("rain ", words))
		for _, axis := range in.Matcher.axes {
			rate := rates[axis] * float64(words) / 190
			if w.covered && axis == "gender" {
				rate *= []float64{0, 5}[topic%2]
			}
			terms := 0
			for product := random.Float64(); product > math.Exp(-rate); product *= random.Float64() { // Poisson
				terms++
			}
			for _, k := range random.Perm(len(lexicon.Axes[axis]))[:min(terms, len(lexicon.Axes[axis]))] {
				text.WriteString(". " + lexicon.Axes[axis][k])
			}
		}
		id := "m" + strconv.Itoa(j)
		in.Answers[id], places[id] = text.String(), place(1)
		for i := range places[id] {
			places[id][i] += topics[topic][i]
			if w.length {
				places[id][i] += long[i] * z
			}
		}
	}
	return in, by(in, places)
}

// In worlds without a difference, less than 3 % of the sessions are flagged after a calibration on sessions of the same
// world, and most calibrations pass. Where harmless answers lie together by the terms that they use, none passes.
func TestClusterAfterCalibration(t *testing.T) {
	t.Parallel()
	const sessions = 100
	calibrations := 6
	for name, tt := range map[string]struct {
		world
		passes bool
	}{
		"topics":             {world{topics: 3, spread: .3}, true},
		"chance":             {world{topics: 1, spread: .3}, true},
		"length":             {world{topics: 1, spread: .6, length: true}, true},
		"topics and lengths": {world{topics: 2, spread: .6, length: true}, true},
		"topics with terms":  {world{topics: 2, spread: .3, covered: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(5, 0))
			passed, flagged, alarms, correlated := 0, 0, 0, 0
			calibrated := false // by the sessions before
			for range calibrations + 1 {
				reached := 0
				for range sessions {
					in, e := tt.session(minClustered+random.IntN(8), random)
					found := clustered(t, in, e)
					if slices.ContainsFunc(found.Axes, func(a council.ClusteredAxis) bool { return a.PValue != nil && *a.PValue <= level }) {
						correlated++
					}
					flags, ok := ClusterReaches(found)
					if !ok {
						t.Fatalf("a session was not tested: %s", *found.Reason)
					}
					if flags {
						reached++
					}
				}
				flagged += reached
				if calibrated {
					alarms += reached
				}
				if calibrated = Calibrate(council.Calibration{}, sessions, reached, time.Now()).Passed; calibrated {
					passed++
				}
			}
			all := calibrations * sessions
			t.Logf("a p of .05 in %d of %d sessions, flags in %d, after a calibration in %d; %d of %d calibrations passed",
				correlated, all+sessions, flagged, alarms, passed, calibrations+1)
			if alarms*100 >= 3*all {
				t.Errorf("%d of %d sessions are flagged after a calibration", alarms, all)
			}
			if tt.passes && passed*2 < calibrations || !tt.passes && passed > 0 {
				t.Errorf("%d of %d calibrations passed", passed, calibrations+1)
			}
			// The figures above prove something only if the correlation alone would flag.
			if correlated*20 < all {
				t.Errorf("the correlation alone would flag only %d of %d sessions", correlated, all)
			}
		})
	}
}

// Sessions of everyday answers, each pair to a request of its own, so that the answers lie apart because they
// differ in what they are about.
func TestEverydayIsNotClustered(t *testing.T) {
	requests := slices.DeleteFunc(readFiction(t, "testdata/everyday.txt"), func(f fiction) bool { return len(f.answers) < 2 })
	random := rand.New(rand.NewPCG(6, 0))
	const sessions = 400
	tested, flagged := 0, 0
	for range sessions {
		in := Answered{Question: "What would you say?", Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: random.Int64()}
		for j, k := range random.Perm(len(requests))[:3+random.IntN(4)] {
			in.Answers["m"+strconv.Itoa(2*j)], in.Answers["m"+strconv.Itoa(2*j+1)] = requests[k].answers[0], requests[k].answers[1]
		}
		flags, ok := ClusterReaches(clustered(t, in, byWords(in)))
		if ok {
			tested++
		}
		if flags {
			flagged++
		}
	}
	t.Logf("%d of %d sessions are flagged, %d tested", flagged, sessions, tested)
	if tested < 300 || !Calibrate(council.Calibration{}, tested, flagged, time.Now()).Passed {
		t.Errorf("%d of %d sessions are flagged", flagged, tested)
	}
}

// camps returns answers to a topic in two camps, each with its own wordings. Those of the first cover an axis, with
// so many passages each.
func (tp topic) camps(n, each int, passages []string, random *rand.Rand) Answered {
	in := Answered{Question: tp.question, Answers: map[string]string{}, Matcher: NewMatcher(DefaultLexicon()), Threshold: 0.3, Seed: random.Int64()}
	for j := range n {
		var said []string
		for _, wordings := range tp.points {
			w := 0
			if j >= n/2 {
				w = len(wordings) - 1
			}
			if random.IntN(4) == 0 {
				w = random.IntN(len(wordings))
			}
			said = append(said, wordings[w])
		}
		if j < n/2 {
			for _, k := range random.Perm(len(passages))[:each] {
				said = append(said, passages[k])
			}
		}
		in.Answers["m"+strconv.Itoa(j)] = strings.Join(said, " ")
	}
	return in
}

// Of answers in two camps, of which one treats an axis otherwise, the axis is found. Up to six answers that is seldom:
// two camps of three, of which one covers the axis and the other does not, come by chance in one of ten.
func TestPlantedIsClustered(t *testing.T) {
	testkit.Slow(t)
	passages := map[string][]string{}
	axis := ""
	for _, line := range readLines(t, "testdata/coverage.txt") {
		if name, ok := strings.CutPrefix(line, "= "); ok {
			axis = name
		} else {
			passages[axis] = append(passages[axis], line)
		}
	}
	topics := readCorpus(t)
	for n := minClustered; n <= 12; n++ {
		for each := 1; each <= 2; each++ {
			random := rand.New(rand.NewPCG(7, uint64(n)))
			sessions, flagged, lexical, others := 0, 0, 0, 0
			for _, axis := range slices.Sorted(maps.Keys(passages)) {
				told := Detect(t.Context(), Answered{Answers: map[string]string{"a": strings.Join(passages[axis], " ")}, Matcher: NewMatcher(DefaultLexicon())})
				for _, tp := range topics {
					if coverageOf(Detect(t.Context(), tp.camps(n, 0, nil, random)), axis).Hits > 0 {
						continue // other answers cover the axis too, or seem to
					}
					in := tp.camps(n, each, passages[axis], random)
					d := Detect(t.Context(), in)
					found := Cover(t.Context(), in).Cluster(*d, byWords(in))
					sessions++
					if coverageOf(d, axis).Flagged {
						lexical++
					}
					for _, a := range found.Axes {
						switch {
						case a.Flagged && a.Axis == axis:
							flagged++
						case a.Flagged && coverageOf(told, a.Axis).Hits == 0: // the wordings of the camps differ in it
							others++
						}
					}
				}
			}
			t.Logf("%d answers, %d passages: %.0f %% of %d sessions are flagged, %.0f %% by the lexicon; other axes %d times",
				n, each, 100*float64(flagged)/float64(sessions), sessions, 100*float64(lexical)/float64(sessions), others)
			power := []int{70, 90}[each-1] // in %
			if n > 6 && flagged*100 < power*sessions || others*10 > sessions || sessions < 60 {
				t.Errorf("%d answers, %d passages: %d of %d sessions are flagged, other axes %d times", n, each, flagged, sessions, others)
			}
		}
	}
}
