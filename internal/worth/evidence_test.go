package worth_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/worth"
)

var monday = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

// world is what makes the choices of reviewers and people.
type world struct {
	synthesis float64 // probability that a reviewer at equal length chooses the synthesis
	first     float64 // probability that a reviewer takes the first text, whatever it is
	perLength float64 // what each doubling of the ratio of lengths adds to that probability
	length    float64 // mean of log2 of that ratio
	people    float64 // probability that a person prefers the synthesis
	agree     float64 // share of people who see what the first reviewer saw
	answer    float64 // share of people who answer
}

// shadows returns so many sessions, the first wanted ones with labels.
func (w world) sessions(n, wanted int, seed uint64) (shadows []council.ShadowRecord, labels []council.LabelRecord) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		at := monday.Add(time.Duration(i) * time.Minute)
		ratio := w.length + rng.NormFloat64()/2
		s := council.ShadowRecord{
			SessionID: strconv.Itoa(i), Timestamp: at, Chairman: "a", TopModel: "b", Wanted: i < wanted,
			Lengths: council.ShadowLengths{Synthesis: int(math.Round(1000 * math.Exp2(ratio))), Top: 1000},
		}
		coin := rng.IntN(2)
		for j, id := range []string{"c", "d", "e"} {
			first, choice := council.ChoiceTop, council.ChoiceTop
			if (j+coin)%2 == 0 {
				first = council.ChoiceSynthesis
			}
			if rng.Float64() < w.synthesis+w.perLength*ratio {
				choice = council.ChoiceSynthesis
			}
			if rng.Float64() < w.first {
				choice = first
			}
			s.Reviewers = append(s.Reviewers, council.ShadowReview{ID: id, First: first, Choice: &choice, Status: council.OutcomeOK})
		}
		shadows = append(shadows, s)
		if i < wanted && rng.Float64() < w.answer {
			preferred := "b"
			if rng.Float64() < w.people {
				preferred = "synthesis"
			}
			if rng.Float64() < w.agree {
				preferred = map[council.Choice]string{council.ChoiceSynthesis: "synthesis", council.ChoiceTop: "b"}[*s.Reviewers[0].Choice]
			}
			labels = append(labels, council.LabelRecord{
				Timestamp: at, Labelled: at, Wanted: true, Chairman: new("a"), TopModel: new("b"),
				Kept: council.Kept{SessionID: s.SessionID, Preferred: &preferred, Over: []string{"synthesis", "b"}, By: fmt.Sprint("person ", i%7)},
			})
		}
	}
	return shadows, labels
}

func TestShadowVerdicts(t *testing.T) {
	for _, c := range []struct {
		name     string
		world    world
		sessions int
		want     worth.Preference
	}{
		{"better", world{synthesis: 0.75}, 200, worth.SynthesisPreferred},
		{"worse", world{synthesis: 0.25}, 200, worth.TopPreferred},
		{"as good, of many", world{synthesis: 0.5}, 1000, worth.EqualPreference},
		{"as good, of few", world{synthesis: 0.5}, 60, worth.Inconclusive},
		{"hardly any", world{synthesis: 1}, 29, worth.TooFewSessions},
		{"none", world{}, 0, worth.TooFewSessions},
		// Reviewers like long texts, and the synthesis is twice as long: at equal length it is no better.
		{"longer, not better", world{synthesis: 0.5, perLength: 0.2, length: 1}, 400, worth.Inconclusive},
		// Whatever is shown first wins: the coin makes that nobody's advantage.
		{"the first wins", world{synthesis: 0.5, first: 0.8}, 1500, worth.EqualPreference},
	} {
		shadows, _ := c.world.sessions(c.sessions, 0, 5)
		if got := worth.Weigh(shadows, nil).Shadow; got.Verdict != c.want || got.Sessions != c.sessions || got.Choices != 3*c.sessions {
			t.Errorf("%s: %s of %d sessions, want %s: %+v, %+v", c.name, got.Verdict, got.Sessions, c.want, got.Synthesis, got.EqualLength)
		}
	}
}

func TestShadowFigures(t *testing.T) {
	shadows, _ := world{synthesis: 0.6, perLength: 0.1, length: 0.5, first: 0.3}.sessions(2000, 0, 9)
	s := worth.Weigh(shadows, nil).Shadow
	// .3 of the choices are the first text, half of which is the synthesis.
	for _, c := range []struct {
		name            string
		got, want, most float64
	}{
		{"the share", s.Synthesis.Estimate, 0.7*0.65 + 0.15, 0.03},
		{"at equal length", s.EqualLength.Estimate, 0.7*0.6 + 0.15, 0.03},
		{"per doubling", s.EqualLength.PerDoubling, 0.07, 0.03},
		{"the first shown", s.First.Estimate, 0.5 + 0.15, 0.03},
		{"that of reviewer c", s.Reviewers[0].Synthesis, 0.7*0.65 + 0.15, 0.04},
		{"first of reviewer c", s.Reviewers[0].First, 0.65, 0.04},
	} {
		if math.Abs(c.got-c.want) > c.most {
			t.Errorf("%s is %.3f, planted was %.3f", c.name, c.got, c.want)
		}
	}
	if s.Synthesis.CI95[0] > s.Synthesis.Estimate || s.Synthesis.CI95[1] < s.Synthesis.Estimate || s.Missing != 0 {
		t.Errorf("%+v", s.Synthesis)
	}
	// A reply without a choice is missing, not a tie, and a record that was read twice counts once.
	silent := shadows[0]
	silent.SessionID, silent.Reviewers = "silent", []council.ShadowReview{{ID: "c", First: council.ChoiceTop, Status: council.OutcomeInvalid}}
	more := worth.Weigh(append(shadows, silent, shadows[1]), nil).Shadow
	if more.Missing != 1 || more.Sessions != 2000 || *more.Synthesis != *s.Synthesis {
		t.Errorf("%d missing of %d sessions, %+v", more.Missing, more.Sessions, more.Synthesis)
	}
}

// Sessions that answered one question are one cluster.
func TestShadowClusters(t *testing.T) {
	shadows, _ := world{synthesis: 0.9}.sessions(60, 0, 2)
	for i := range shadows {
		shadows[i].QueryHash = new(strconv.Itoa(i % 20))
	}
	if s := worth.Weigh(shadows, nil).Shadow; s.Verdict != worth.TooFewSessions || s.Synthesis.Clusters != 20 {
		t.Errorf("%s with %d clusters", s.Verdict, s.Synthesis.Clusters)
	}
}

// A question that is asked again and again, as by a check of health, is no further evidence for the
// monitor: its first session with a choice counts.
func TestPreferencesCountAQuestionOnce(t *testing.T) {
	shadows, _ := world{synthesis: 0.9}.sessions(120, 0, 2)
	shadows[0].Reviewers = nil // the first session of question 0 has no choice: the one after 20 others has
	for i := range shadows {
		shadows[i].QueryHash = new(strconv.Itoa(i % 20))
	}
	want := worth.Preferences(shadows[1:21])
	if got := worth.Preferences(shadows); len(want) != 20 || !slices.Equal(got, want) {
		t.Errorf("%d figures of 20 questions: %v, want %v", len(got), got, want)
	}
	for i := range shadows {
		shadows[i].QueryHash = nil // nobody knows what they asked
	}
	if got := worth.Preferences(shadows); len(got) != 119 {
		t.Errorf("%d figures of 119 sessions of unknown questions", len(got))
	}
}

// In worlds where neither text is better a verdict is rare: 5 % to both sides, and three standard errors.
func TestShadowNull(t *testing.T) {
	const worlds = 400
	wrong := 0
	for seed := range uint64(worlds) {
		shadows, _ := world{synthesis: 0.5, first: 0.3}.sessions(60, 0, seed)
		if v := worth.Weigh(shadows, nil).Shadow.Verdict; v == worth.SynthesisPreferred || v == worth.TopPreferred {
			wrong++
		}
	}
	if wrong > 33 {
		t.Errorf("%d of %d worlds have a preference", wrong, worlds)
	}
}

func TestPeopleVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		world   world
		wanted  int
		want    worth.Preference
		powered bool
	}{
		{"all prefer it", world{synthesis: 0.6, people: 0.9, answer: 1}, 120, worth.SynthesisPreferred, true},
		{"all prefer the other", world{synthesis: 0.6, people: 0.1, answer: 1}, 120, worth.TopPreferred, true},
		{"nobody knows what the silent ones think", world{synthesis: 0.6, people: 0.9, answer: 0.5}, 240, worth.Inconclusive, true},
		{"too few", world{synthesis: 0.6, people: 1, answer: 1}, 49, worth.TooFewSessions, false},
		{"they are of two minds", world{synthesis: 0.6, people: 0.5, answer: 1}, 120, worth.Inconclusive, true},
	} {
		shadows, labels := c.world.sessions(c.wanted+400, c.wanted, 3)
		p := worth.Weigh(shadows, labels).People
		if p.Verdict != c.want || p.Wanted != c.wanted || p.Labelled != len(labels) || (p.Powered != nil) != c.powered {
			t.Errorf("%s: %s of %d labelled, %d wanted, powered %v: %+v", c.name, p.Verdict, p.Labelled, p.Wanted, p.Powered, p.Synthesis)
		}
		if p.Lowest.Estimate > p.Synthesis.Estimate || p.Highest.Estimate < p.Synthesis.Estimate {
			t.Errorf("%s: %+v is not between %+v and %+v", c.name, p.Synthesis, p.Lowest, p.Highest)
		}
	}
}

// Reviewers that see what people see are worth labels, and those that toss a coin are not.
func TestReviewersAdd(t *testing.T) {
	for agree, want := range map[float64]bool{0.95: true, 0: false} {
		shadows, labels := world{synthesis: 0.5, people: 0.6, answer: 1, agree: agree}.sessions(1200, 200, 8)
		for i := range shadows {
			shadows[i].Reviewers = shadows[i].Reviewers[:1]
		}
		if p := worth.Weigh(shadows, labels).People; p.JudgeAdds == nil || *p.JudgeAdds != want {
			t.Errorf("with an agreement of %v the reviewers add: %v, %+v", agree, p.JudgeAdds, p.Powered)
		}
	}
}

func TestLabels(t *testing.T) {
	at := func(minute int) time.Time { return monday.Add(time.Duration(minute) * time.Minute) }
	label := func(session, by string, minute int, wanted bool, preferred string, over ...string) council.LabelRecord {
		return council.LabelRecord{
			Timestamp: monday, Labelled: at(minute), Wanted: wanted, Chairman: new("a"), TopModel: new("b"),
			Kept:  council.Kept{SessionID: session, Preferred: &preferred, Over: over, By: by},
			Borda: map[string]float64{"b": 2, "c": 1, "d": 1},
			Ballots: []council.LabelBallot{
				{ID: "c", Places: map[string]int{"b": 0, "c": 1, "d": 2}}, {ID: "e", Places: map[string]int{"b": 1, "d": 0}},
			},
		}
	}
	rated := label("4", "ada", 9, true, "synthesis", "c")
	rated.Rating = new(4)
	fallback := label("5", "bob", 9, true, "synthesis", "b")
	fallback.Chairman = nil
	p := worth.Weigh(nil, []council.LabelRecord{
		label("1", "ada", 2, true, "synthesis", "b"), // which ada takes back
		label("1", "ada", 1, true, "b", "synthesis"), // earlier, and later in the file
		label("1", "bob", 1, true, "b", "synthesis", "c"),
		label("2", "ada", 1, true, "tie", "b", "synthesis"),
		label("3", "ada", 1, true, "c", "b", "d"), // neither the synthesis nor the first is the best
		rated, fallback,
		label("6", "cy", 1, false, "synthesis", "b"),
		label("7", "cy", 1, false, "c", "d"),
	}).People
	if p.Labels != 8 || p.Persons != 3 || p.Dominant != nil || p.Wanted != 5 || p.Labelled != 2 {
		t.Errorf("%d labels of %d persons, %v dominates, %d of %d wanted sessions", p.Labels, p.Persons, p.Dominant, p.Labelled, p.Wanted)
	}
	if p.Synthesis.Estimate != 0.5 || *p.Rating != 4 || p.Ratings != 1 { // .5 in session 1, and a tie in 2
		t.Errorf("%+v, rated %v", p.Synthesis, p.Rating)
	}
	// b over c, by bob; c over b and d, by ada. The council has b before c, and c as high as d.
	if diff := cmp.Diff(&worth.Agreement{Pairs: 3, Sessions: 2, Share: 0.5}, p.Agreement.Borda); diff != "" {
		t.Errorf("the council: -want +got:\n%s", diff)
	}
	// c wrote one of each pair, and e ranked b and d alone.
	if len(p.Agreement.Reviewers) != 0 {
		t.Errorf("reviewers: %+v", p.Agreement.Reviewers)
	}
	if p.Unasked.Labels != 2 || *p.Unasked.Synthesis != 1 || p.Unasked.Agreement.Borda.Pairs != 1 {
		t.Errorf("unasked: %+v", p.Unasked)
	}
	one := worth.Weigh(nil, []council.LabelRecord{
		label("1", "ada", 1, true, "b", "d"), label("2", "ada", 1, true, "d", "b"), label("3", "bob", 1, true, "b", "d"),
	}).People
	if one.Dominant == nil || *one.Dominant != "ada" {
		t.Errorf("%v dominates", one.Dominant)
	}
	want := []worth.AgreementOfReviewer{
		{ID: "c", Agreement: worth.Agreement{Pairs: 3, Sessions: 3, Share: 2.0 / 3}},
		{ID: "e", Agreement: worth.Agreement{Pairs: 3, Sessions: 3, Share: 1.0 / 3}},
	}
	if diff := cmp.Diff(want, one.Agreement.Reviewers); diff != "" {
		t.Errorf("reviewers: -want +got:\n%s", diff)
	}
	var many []council.LabelRecord
	for i := range worth.AgreementFrom {
		many = append(many, label(strconv.Itoa(i), "ada", 1, true, "b", "d"), label("x"+strconv.Itoa(i), "ada", 1, false, "b", "d"))
	}
	all := worth.Weigh(nil, many).People
	if i := all.Agreement.Borda.Interval; i == nil || i.Estimate != 1 || i.Clusters != worth.AgreementFrom || i.CI95[0] < 0.5 {
		t.Errorf("from 20 sessions on: %+v", i)
	}
	if i := all.Unasked.Agreement.Borda.Interval; i != nil {
		t.Errorf("labels that nobody asked for have an interval: %+v", i)
	}
}
