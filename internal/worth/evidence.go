package worth

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// The least numbers for a figure. ShadowFrom counts clusters of shadow sessions. The other two count sessions with a
// label: PeopleFrom for a sentence about people, and AgreementFrom for an interval of agreement.
const (
	ShadowFrom    = 30
	PeopleFrom    = 50
	AgreementFrom = 20
)

// EqualWithin says when people or reviewers prefer neither text: if the 90 % interval of the share that prefers the
// synthesis lies within EqualWithin of one half.
const EqualWithin = 0.05

// GainFrom is the least [PPI.Gain] at which the reviewers add something to the labels of people.
const GainFrom = 1.1

// Preference says which is preferred, the synthesis or the top-ranked answer. It is a matter of taste. It does not
// say what is right, and it is never [Pays].
type Preference string

// The preferences.
const (
	SynthesisPreferred Preference = "synthesis_preferred"
	TopPreferred       Preference = "top_preferred"
	EqualPreference    Preference = "equal"        // within .05 of one half
	Inconclusive       Preference = "inconclusive" // none of these
	TooFewSessions     Preference = "insufficient" // too few sessions
)

// Share is a mean over sessions, such as the mean share of reviewers that prefer the synthesis. Its interval comes
// from [Paired], and is limited to the range from 0 to 1.
type Share struct {
	Clusters int     `json:"clusters"` // counts sessions, where those of one question count once
	Estimate float64 `json:"estimate"` // 0 to 1
	// Lower and Upper are one-sided 95 % limits.
	Lower float64    `json:"lower_one_sided"`
	Upper float64    `json:"upper_one_sided"`
	CI95  [2]float64 `json:"ci95"`
}

// share returns the mean of values from 0 to 1 with its interval, or nil for fewer than two clusters.
func share(pairs []Pair) *Share {
	i := Paired(pairs)
	if i == nil {
		return nil
	}
	of := func(d float64) float64 { return min(max((d+1)/2, 0), 1) }
	return &Share{
		Clusters: i.Clusters,
		Estimate: of(i.Estimate),
		Lower:    of(i.Lower),
		Upper:    of(i.Upper),
		CI95:     [2]float64{of(i.CI95[0]), of(i.CI95[1])},
	}
}

// pair returns a Pair for a value from 0 to 1. It maps the value linearly to a difference from -1 to 1.
func pair(cluster string, value float64) Pair { return Pair{cluster, 2*value - 1} }

// Evidence says what reviewers and people prefer in the sessions of one council.
type Evidence struct {
	Shadow Shadow `json:"shadow"`
	People People `json:"people"`
}

// Shadow says how often reviewers preferred the synthesis to the top-ranked answer. These reviewers wrote neither text.
type Shadow struct {
	Verdict  Preference `json:"verdict"`
	Sessions int        `json:"sessions"` // counts sessions with a choice
	Choices  int        `json:"choices"`
	Missing  int        `json:"missing"` // counts reviewers without a choice
	// Synthesis is the share of a session's reviewers that prefer the synthesis, on average. Ties count half.
	Synthesis *Share `json:"synthesis"`
	// EqualLength is what Synthesis would be if both texts were equally long. It is null if the lengths allow no
	// estimate.
	EqualLength *EqualShare `json:"at_equal_length"`
	// First is the share of choices for the text that was shown first. Ties count half. It is .5 if the order does
	// not matter.
	First     *Share           `json:"first_shown"`
	Reviewers []ShadowReviewer `json:"reviewers"` // by id
}

// EqualShare estimates which share of the choices the synthesis would get if both texts were equally long.
type EqualShare struct {
	Estimate    float64    `json:"estimate"`
	PerDoubling float64    `json:"per_doubling"` // the change for each doubling of the ratio of lengths
	CI95        [2]float64 `json:"ci95"`
}

// ShadowReviewer holds the choices of one reviewer.
type ShadowReviewer struct {
	ID        string  `json:"id"`
	Choices   int     `json:"choices"`
	Synthesis float64 `json:"synthesis"` // the share for the synthesis; ties count half
	First     float64 `json:"first_shown"`
}

// People says what people preferred. Its figures are about wanted sessions: those that were drawn to be asked
// about. Unasked describes labels of other sessions.
type People struct {
	Verdict  Preference `json:"verdict"`
	Labels   int        `json:"labels"`   // counts the last label of each person and session
	Persons  int        `json:"persons"`  // counts persons by their hashes
	Dominant *string    `json:"dominant"` // the person with more than half of the labels, or null
	Rating   *float64   `json:"rating"`   // the mean, 1 to 5, over wanted sessions
	Ratings  int        `json:"ratings"`
	Wanted   int        `json:"wanted"` // counts wanted sessions
	// Labelled counts the wanted sessions in which a person compared the synthesis with the top-ranked answer.
	Labelled int `json:"labelled"`
	// Synthesis is the share of people that prefer the synthesis to the top-ranked answer. Ties count half.
	Synthesis *Share `json:"synthesis"`
	// Lowest is what Synthesis would be if people preferred the top-ranked answer in all wanted sessions without a
	// label. Highest is what it would be if they preferred the synthesis in these sessions.
	Lowest  *Share `json:"if_the_others_prefer_the_top"`
	Highest *Share `json:"if_the_others_prefer_the_synthesis"`
	// Powered combines Synthesis with the choices of reviewers in other sessions. It is null if fewer than 50
	// sessions have both a label and choices of reviewers, or if no other session has such choices.
	Powered *PPI `json:"with_reviewers"`
	// JudgeAdds says that the reviewers are worth at least 10 % more labels. It is null without Powered.
	JudgeAdds *bool      `json:"reviewers_add"`
	Agreement Agreements `json:"agreement"`
	Unasked   Unasked    `json:"unasked"`
}

// Unasked describes labels that were given without being asked for. They say nothing about other people.
type Unasked struct {
	Labels    int        `json:"labels"`
	Synthesis *float64   `json:"synthesis"` // the share for the synthesis over the top-ranked answer
	Agreement Agreements `json:"agreement"`
}

// Agreements say how often the council orders answers as people do.
type Agreements struct {
	Borda     *Agreement            `json:"borda"`     // the order of the council, or null without a pair
	Reviewers []AgreementOfReviewer `json:"reviewers"` // by id
}

// AgreementOfReviewer is the agreement of one reviewer with people.
type AgreementOfReviewer struct {
	ID string `json:"id"`
	Agreement
}

// Agreement is the share of pairs of answers that the council, or one reviewer, orders as a person does. A pair
// counts only if the person prefers one of its answers. Chance is .5.
type Agreement struct {
	Pairs    int `json:"pairs"`
	Sessions int `json:"sessions"`
	// Share counts ties half, and leaves out pairs with the reviewer's own answer.
	Share float64 `json:"share"`
	// Interval is over sessions. It is null below 20 sessions, and for labels that were not asked for.
	Interval *Share `json:"interval"`
}

// Weigh returns the evidence in records. If a person labelled a session several times, the last label counts.
// Shadow records of one session count once.
func Weigh(shadows []council.ShadowRecord, labels []council.LabelRecord) Evidence {
	last := map[[2]string]council.LabelRecord{}
	for _, l := range labels {
		key := [2]string{l.SessionID, l.By}
		if before, ok := last[key]; !ok || !l.Labelled.Before(before.Labelled) {
			last[key] = l
		}
	}
	labels = slices.SortedFunc(maps.Values(last), func(a, b council.LabelRecord) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.SessionID, b.SessionID), cmp.Compare(a.By, b.By))
	})
	shadows = distinct(shadows)
	return Evidence{Shadow: ofShadows(shadows), People: ofPeople(shadows, labels)}
}

// Preferences returns, for each shadow session in the order in which they began, the share of its reviewers, 0 to 1,
// that preferred the synthesis. Ties count half. It leaves out sessions without a choice. Of the sessions of one
// question, by question_key or query_hash, it takes only the first. It leaves out later sessions of the question for
// two reasons. They are no further evidence. A mean over all sessions of the question would change a share that the
// monitor may already have used.
func Preferences(records []council.ShadowRecord) []float64 {
	var shares []float64
	asked := map[string]bool{}
	questionOf := questions(records)
	for _, r := range distinct(records) {
		share, ok := judgeOf(r)
		if question := questionOf(r); !ok || asked[question] {
			continue
		} else if question != "" {
			asked[question] = true
		}
		shares = append(shares, share)
	}
	return shares
}

// questions returns a function that returns the question of a record, or "" if the record has none. If a record has
// both a key and a hash, the two belong to the same question.
func questions(records []council.ShadowRecord) func(council.ShadowRecord) string {
	asked := stat.Groups{}
	names := func(r council.ShadowRecord) (hash, key string) {
		if r.QueryHash != nil {
			hash = "hash " + *r.QueryHash
		}
		if r.QuestionKey != nil {
			key = "key " + *r.QuestionKey
		}
		return hash, key
	}
	for _, r := range records {
		if hash, key := names(r); hash != "" && key != "" {
			asked.Unite(hash, key)
		}
	}
	return func(r council.ShadowRecord) string { return asked.Of(cmp.Or(names(r))) }
}

// distinct returns one record of each session, in the order in which the sessions began.
func distinct(records []council.ShadowRecord) []council.ShadowRecord {
	records = slices.SortedStableFunc(slices.Values(records), func(a, b council.ShadowRecord) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.SessionID, b.SessionID))
	})
	return slices.CompactFunc(records, func(a, b council.ShadowRecord) bool { return a.SessionID == b.SessionID })
}

// judgeOf returns the share of the synthesis among the choices of a record. It returns false if there are no
// choices.
func judgeOf(s council.ShadowRecord) (share float64, ok bool) {
	n := 0
	for _, r := range s.Reviewers {
		if r.Choice != nil {
			share += *r.Choice.Value()
			n++
		}
	}
	return share / float64(n), n > 0
}

func ofShadows(records []council.ShadowRecord) Shadow {
	s := Shadow{Reviewers: []ShadowReviewer{}}
	var synthesis, first []Pair
	var ratios []float64
	byID := map[string]*ShadowReviewer{}
	questionOf := questions(records)
	for _, r := range records {
		cluster := cmp.Or(questionOf(r), r.SessionID) // sessions of one question are one cluster
		share, ok := judgeOf(r)
		shown := 0.0
		n := 0
		for _, v := range r.Reviewers {
			if v.Choice == nil {
				s.Missing++
				continue
			}
			value := *v.Choice.Value()
			forFirst := value
			if v.First == council.ChoiceTop {
				forFirst = 1 - value
			}
			if byID[v.ID] == nil {
				byID[v.ID] = &ShadowReviewer{ID: v.ID}
			}
			byID[v.ID].Choices++
			byID[v.ID].Synthesis += value
			byID[v.ID].First += forFirst
			shown += forFirst
			n++
		}
		if !ok {
			continue
		}
		s.Sessions++
		s.Choices += n
		synthesis = append(synthesis, pair(cluster, share))
		first = append(first, pair(cluster, shown/float64(n)))
		ratios = append(ratios, math.Log2(float64(max(r.Lengths.Synthesis, 1))/float64(max(r.Lengths.Top, 1))))
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		v := *byID[id]
		v.Synthesis /= float64(v.Choices)
		v.First /= float64(v.Choices)
		s.Reviewers = append(s.Reviewers, v)
	}
	s.Synthesis = share(synthesis)
	s.First = share(first)
	raw := Paired(synthesis)
	if raw == nil {
		s.Verdict = TooFewSessions
		return s
	}
	if equal := AtEqualLength(synthesis, ratios); equal != nil {
		limit := stat.StudentQuantile(1-Level/2, raw.df()) * equal.SE
		s.EqualLength = &EqualShare{
			Estimate: (equal.Estimate + 1) / 2, PerDoubling: equal.PerDoubling / 2,
			CI95: [2]float64{(equal.Estimate - limit + 1) / 2, (equal.Estimate + limit + 1) / 2},
		}
	} else if !slices.ContainsFunc(ratios, func(r float64) bool { return math.Abs(r) > 1e-9 }) {
		s.EqualLength = &EqualShare{Estimate: s.Synthesis.Estimate, CI95: s.Synthesis.CI95}
	}
	switch {
	case raw.Clusters < ShadowFrom:
		s.Verdict = TooFewSessions
	case s.EqualLength == nil:
		s.Verdict = Inconclusive
	default:
		low := min(s.Synthesis.CI95[0], s.EqualLength.CI95[0])
		high := max(s.Synthesis.CI95[1], s.EqualLength.CI95[1])
		s.Verdict = preference(low, high, s.Synthesis.Lower, s.Synthesis.Upper)
	}
	return s
}

// preference returns the preference that two intervals of one share show. The 95 % interval is from low to high, and
// the 90 % interval from lower to upper. If the share certainly differs from one half by too little to count, the
// preference is [EqualPreference].
func preference(low, high, lower, upper float64) Preference {
	switch {
	case lower >= 0.5-EqualWithin && upper <= 0.5+EqualWithin:
		return EqualPreference
	case low > 0.5:
		return SynthesisPreferred
	case high < 0.5:
		return TopPreferred
	default:
		return Inconclusive
	}
}

// compared returns the value of a person's choice for the synthesis: 1, 0, or .5 for a tie. It returns nil if the
// person did not compare the synthesis with the top-ranked answer, or prefers a third answer.
func compared(l council.LabelRecord) *float64 {
	if l.Preferred == nil || l.Chairman == nil || l.TopModel == nil {
		return nil
	}
	saw := func(word string) bool { return *l.Preferred == word || slices.Contains(l.Over, word) }
	if !saw(string(council.ChoiceSynthesis)) || !saw(*l.TopModel) {
		return nil
	}
	switch *l.Preferred {
	case string(council.ChoiceSynthesis):
		return new(1.0)
	case *l.TopModel:
		return new(0.0)
	case string(council.ChoiceTie):
		return new(0.5)
	default: // another answer is better than both
		return nil
	}
}

func ofPeople(shadows []council.ShadowRecord, labels []council.LabelRecord) People {
	sessions := newAskedAbout(shadows)
	p := People{Labels: len(labels)}
	p.addLabels(labels, sessions)
	p.Wanted = len(sessions.wanted)
	p.Labelled = len(sessions.votes)
	people, low, high := sessions.pairs()
	p.Synthesis = share(people)
	p.Lowest = share(low)
	p.Highest = share(high)
	p.Verdict = TooFewSessions
	if p.Labelled < PeopleFrom {
		return p
	}
	main := *p.Synthesis
	said, judged := sessions.judgedToo()
	if len(said) >= PeopleFrom && len(sessions.others) > 0 {
		if p.Powered = PredictionPowered(said, judged, sessions.others); p.Powered != nil {
			p.JudgeAdds = new(p.Powered.Gain >= GainFrom)
			main = Share{Lower: p.Powered.Lower, Upper: p.Powered.Upper, CI95: p.Powered.CI95}
		}
	}
	// The verdict must be true for every preference that people could have in the sessions without a label.
	p.Verdict = preference(min(main.CI95[0], p.Lowest.CI95[0]), max(main.CI95[1], p.Highest.CI95[1]),
		min(main.Lower, p.Lowest.Lower), max(main.Upper, p.Highest.Upper))
	return p
}

// askedAbout holds the sessions that people were asked about, and the choices of reviewers in other sessions.
type askedAbout struct {
	wanted map[string]bool
	judges map[string]float64 // the share of the synthesis among the reviewers of a wanted session
	// The share of the synthesis among the reviewers of each session that is not wanted.
	others []float64
	votes  map[string][]float64 // the choices of people in a wanted session
}

func newAskedAbout(shadows []council.ShadowRecord) *askedAbout {
	a := &askedAbout{wanted: map[string]bool{}, judges: map[string]float64{}, votes: map[string][]float64{}}
	for _, s := range shadows {
		judge, ok := judgeOf(s)
		switch {
		case s.Wanted && ok:
			a.judges[s.SessionID] = judge
		case !s.Wanted && ok:
			a.others = append(a.others, judge)
		}
		if s.Wanted {
			a.wanted[s.SessionID] = true
		}
	}
	return a
}

// addLabels sets the figures of persons, ratings and agreement from the labels. It adds the choices of people to
// their sessions.
func (p *People) addLabels(labels []council.LabelRecord, sessions *askedAbout) {
	persons := map[string]int{}
	var unasked, asked []council.LabelRecord
	var volunteers []float64
	ratings := 0
	for _, l := range labels {
		if persons[l.By]++; 2*persons[l.By] > len(labels) {
			p.Dominant = &l.By
		}
		value := compared(l)
		if !l.Wanted {
			unasked = append(unasked, l)
			if value != nil {
				volunteers = append(volunteers, *value)
			}
			continue
		}
		asked = append(asked, l)
		sessions.wanted[l.SessionID] = true
		if value != nil {
			sessions.votes[l.SessionID] = append(sessions.votes[l.SessionID], *value)
		}
		if l.Rating != nil {
			ratings += *l.Rating
			p.Ratings++
		}
	}
	p.Persons = len(persons)
	if p.Ratings > 0 {
		p.Rating = new(float64(ratings) / float64(p.Ratings))
	}
	p.Agreement = agreement(asked, AgreementFrom)
	p.Unasked = Unasked{Labels: len(unasked), Agreement: agreement(unasked, math.MaxInt)}
	if len(volunteers) > 0 {
		p.Unasked.Synthesis = new(stat.Mean(volunteers))
	}
}

// pairs returns the choice of people in each session that has one. low and high also hold the other wanted
// sessions. In low, people are taken to prefer the top-ranked answer in those sessions, and in high the synthesis.
func (a *askedAbout) pairs() (people, low, high []Pair) {
	for _, id := range slices.Sorted(maps.Keys(a.wanted)) {
		if a.votes[id] == nil {
			low = append(low, pair(id, 0))
			high = append(high, pair(id, 1))
			continue
		}
		vote := pair(id, stat.Mean(a.votes[id]))
		people = append(people, vote)
		low = append(low, vote)
		high = append(high, vote)
	}
	return people, low, high
}

// judgedToo returns the shares of people and of reviewers in the sessions that have both.
func (a *askedAbout) judgedToo() (said, judged []float64) {
	for _, id := range slices.Sorted(maps.Keys(a.votes)) {
		if judge, ok := a.judges[id]; ok {
			said = append(said, stat.Mean(a.votes[id]))
			judged = append(judged, judge)
		}
	}
	return said, judged
}

// agreement returns how often the council and each reviewer order two answers as people do. The argument from is the
// least number of sessions for an interval.
func agreement(labels []council.LabelRecord, from int) Agreements {
	var borda []Pair
	reviewers := map[string][]Pair{}
	for _, l := range labels {
		if l.Preferred == nil {
			continue
		}
		better := *l.Preferred
		for _, worse := range l.Over {
			a, hasA := l.Borda[better]
			b, hasB := l.Borda[worse]
			if hasA && hasB {
				borda = append(borda, pair(l.SessionID, order(cmp.Compare(a, b))))
			}
			for _, ballot := range l.Ballots {
				a, hasA := ballot.Places[better]
				b, hasB := ballot.Places[worse]
				if hasA && hasB && ballot.ID != better && ballot.ID != worse {
					reviewers[ballot.ID] = append(reviewers[ballot.ID], pair(l.SessionID, order(cmp.Compare(b, a))))
				}
			}
		}
	}
	of := func(pairs []Pair) Agreement {
		sum := 0.0
		sessions := map[string]bool{}
		for _, p := range pairs {
			sum += (p.D + 1) / 2
			sessions[p.Cluster] = true
		}
		a := Agreement{Pairs: len(pairs), Sessions: len(sessions), Share: sum / float64(len(pairs))}
		if a.Sessions >= from {
			a.Interval = share(pairs)
		}
		return a
	}
	all := Agreements{Reviewers: []AgreementOfReviewer{}}
	if len(borda) > 0 {
		all.Borda = new(of(borda))
	}
	for _, id := range slices.Sorted(maps.Keys(reviewers)) {
		all.Reviewers = append(all.Reviewers, AgreementOfReviewer{id, of(reviewers[id])})
	}
	return all
}

// order returns 1 if the council or a reviewer orders two answers as the person does, 0 if it reverses their order,
// and .5 if it ties them.
func order(compared int) float64 { return float64(compared+1) / 2 }
