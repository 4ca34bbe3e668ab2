package worth

import (
	"math"

	"github.com/councild/councild/internal/stat"
)

// SeatQuestion holds what a council's seats achieved at one graded question.
type SeatQuestion struct {
	ID      string
	Cluster string
	Wrong   []bool // by seat; answers that failed or cannot be graded count as wrong
	// Vote is the score of the commonest answer. VoteWithout holds, for each seat, that score without the seat's
	// answer. Ranked is the score of the first answer by Borda count. RankedWithout holds, for each seat, that score
	// without the seat's answer and ballot. A score is nil if it was not counted.
	Vote, Ranked               *float64
	VoteWithout, RankedWithout []*float64
	// Alike is how many seats gave the most frequent answer, and AlikeRight says whether this answer is right. Alike is 0
	// if no answer can be compared with another.
	Alike      int
	AlikeRight bool
}

// EqualAnswers says how often an answer is right if a certain number of seats gave it.
type EqualAnswers struct {
	Alike     int `json:"alike"` // how many seats gave the most frequent answer
	Seats     int `json:"seats"` // how many seats the council has
	Questions int `json:"questions"`
	Right     int `json:"right"`
	Clusters  int `json:"clusters"`
	// These questions tell at least as much as Effective questions of different clusters (see stat.ClusteredLower).
	Effective float64 `json:"effective_questions"`
	Lower     float64 `json:"lower_one_sided"` // the one-sided lower 95 % limit of the share that is right
}

// Grouped reports whether several of the questions are of one cluster.
func (a EqualAnswers) Grouped() bool { return a.Clusters < a.Questions }

// Shows reports whether there are enough questions to show that at most the share wrong of such answers is wrong. If
// all answers are right, this takes an Effective of 29 for a share of .10, and of 59 for .05.
func (a EqualAnswers) Shows(wrong float64) bool { return math.Pow(1-wrong, a.Effective) < Level }

// SeatsReport reports the errors that the seats of a council share, and what these errors cost.
type SeatsReport struct {
	Questions int          `json:"questions"`
	Clusters  int          `json:"clusters"`
	Seats     []SeatFigure `json:"seats"`
	// Phi holds the correlation of the errors for each pair of seats. It is null on the diagonal, and if one of the
	// two seats is always right or always wrong. MeanPhi is the mean over pairs of seats.
	Phi     [][]*float64 `json:"phi"`
	MeanPhi *float64     `json:"mean_phi"`
	// Varying counts the seats that were sometimes right and sometimes wrong. Effective is how many independent
	// seats these are worth: k/(1+(k-1) MeanPhi), where k is Varying (Kish 1965). It is null if the denominator is
	// 1e-9 or less. The interval needs 15 errors and 15 right answers of each seat.
	Varying   int           `json:"seats_that_vary"`
	Effective stat.Estimate `json:"effective_seats"`
	// AllWrong is the share of questions at which every seat is wrong. Ceiling is 1 minus AllWrong. It is the highest
	// score that a vote or a ranking can reach. A synthesis can do better.
	AllWrong *float64 `json:"all_wrong"`
	Ceiling  *float64 `json:"ceiling"`
	// Majority is the share of questions at which most seats are right. Ties count half. Independent is what this
	// share would be if the errors were independent. Gap is Independent minus Majority, which is what the common
	// errors cost.
	Majority    *float64 `json:"majority"`
	Independent *float64 `json:"majority_if_independent"`
	Gap         *float64 `json:"gap"`
	// Vote and Ranked are the mean scores of a vote and of a ranking. They are null if these were not counted.
	Vote   *float64 `json:"vote"`
	Ranked *float64 `json:"ranked"`
	// EqualAnswers has the highest number of equal answers first. It is null if the answers cannot be compared with
	// each other, for example because only their scores are known.
	EqualAnswers []EqualAnswers `json:"equal_answers"`
}

// SeatFigure holds the figures of one seat.
type SeatFigure struct {
	Accuracy *float64 `json:"accuracy"`
	// MajorityWithout says how often most of the other seats are right. Ties count half.
	MajorityWithout *float64 `json:"majority_without"`
	// Vote and Ranked are what the seat adds: the score with the seat minus the score without it. Their p values
	// have Holm's adjustment over all seats and both effects.
	Vote   *SeatEffect `json:"vote"`
	Ranked *SeatEffect `json:"ranked"`
}

// SeatEffect is what a seat adds.
type SeatEffect struct {
	*Interval
	PAdjusted float64 `json:"p_adjusted"`
}

// Seats returns the report on the errors that seats share. The argument seats is the number of seats.
func Seats(questions []SeatQuestion, seats int) SeatsReport {
	r := SeatsReport{
		Questions: len(questions),
		Seats:     make([]SeatFigure, seats),
		Phi:       stat.Matrix(seats, seats, (*float64)(nil)),
	}
	clusters := map[string][]SeatQuestion{}
	var names []string
	for _, q := range questions {
		if clusters[q.Cluster] == nil {
			names = append(names, q.Cluster)
		}
		clusters[q.Cluster] = append(clusters[q.Cluster], q)
	}
	r.Clusters = len(names)
	if len(questions) == 0 {
		return r
	}
	all := newErrors(seats)
	parts := make([]*errorCounts, len(names))
	for i, name := range names {
		parts[i] = newErrors(seats)
		for _, q := range clusters[name] {
			parts[i].add(q.Wrong)
		}
		all.plus(parts[i], 1)
	}
	for i := range seats {
		for j := range seats {
			if phi, ok := all.phi(i, j); ok && i != j {
				r.Phi[i][j] = &phi
			}
		}
	}
	if mean, varying := all.meanPhi(); varying > 0 {
		r.Varying = varying
		if !math.IsNaN(mean) {
			r.MeanPhi = &mean
			r.Effective = effective(all, parts, mean, varying)
		}
	}
	r.majorities(questions, all)
	r.without(questions)
	for alike := seats; alike > 0 && seats > 1; alike-- {
		r.agree(alike, seats, clusters, names)
	}
	return r
}

// agree adds the EqualAnswers for one value of Alike. It adds nothing if no question has this value.
func (r *SeatsReport) agree(alike, seats int, clusters map[string][]SeatQuestion, names []string) {
	a := EqualAnswers{Alike: alike, Seats: seats}
	var right, trials []int
	for _, name := range names {
		hits := 0
		of := 0
		for _, q := range clusters[name] {
			if q.Alike != alike {
				continue
			}
			of++
			if q.AlikeRight {
				hits++
			}
		}
		if of > 0 {
			a.Clusters++
			a.Questions += of
			a.Right += hits
			right = append(right, hits)
			trials = append(trials, of)
		}
	}
	if a.Questions > 0 {
		a.Lower, a.Effective = stat.ClusteredLower(right, trials, 1-Level)
		r.EqualAnswers = append(r.EqualAnswers, a)
	}
}

// majorities sets the figures that depend on how many seats are right at the same question.
func (r *SeatsReport) majorities(questions []SeatQuestion, all *errorCounts) {
	n := float64(len(questions))
	accuracies := make([]float64, len(r.Seats))
	for i := range r.Seats {
		accuracies[i] = 1 - all.wrong[i]/n
		r.Seats[i].Accuracy = &accuracies[i]
	}
	allWrong := 0.0
	majority := 0.0
	without := make([]float64, len(r.Seats))
	for _, q := range questions {
		right := 0
		for _, wrong := range q.Wrong {
			if !wrong {
				right++
			}
		}
		if right == 0 {
			allWrong++
		}
		majority += most(right, len(q.Wrong))
		for i, wrong := range q.Wrong {
			others := right
			if !wrong {
				others--
			}
			without[i] += most(others, len(q.Wrong)-1)
		}
	}
	if len(r.Seats) > 1 {
		for i := range r.Seats {
			r.Seats[i].MajorityWithout = new(without[i] / n)
		}
	}
	independent := 0.0
	for right, p := range stat.PoissonBinomial(accuracies) {
		independent += p * most(right, len(r.Seats))
	}
	r.AllWrong = new(allWrong / n)
	r.Ceiling = new(1 - allWrong/n)
	r.Majority = new(majority / n)
	r.Independent = &independent
	r.Gap = new(independent - majority/n)
}

// most returns the score of a majority vote: 1 if more than half of the seats are right, .5 if exactly half of them
// are, and 0 otherwise.
func most(right, seats int) float64 {
	switch {
	case 2*right > seats:
		return 1
	case 2*right == seats:
		return 0.5
	default:
		return 0
	}
}

// without compares the score with each seat and the score without it. It does so for a vote and for a ranking, and
// stores the differences in the fields Vote and Ranked.
func (r *SeatsReport) without(questions []SeatQuestion) {
	counted := func(whole func(SeatQuestion) (*float64, []*float64), to **float64, effect func(*SeatFigure) **SeatEffect) []*SeatEffect {
		sum := 0.0
		effects := []*SeatEffect(nil)
		pairs := make([][]Pair, len(r.Seats))
		for _, q := range questions {
			with, others := whole(q)
			if with == nil || len(others) != len(r.Seats) {
				return nil
			}
			sum += *with
			for i, other := range others {
				if other != nil {
					pairs[i] = append(pairs[i], Pair{q.Cluster, *with - *other})
				}
			}
		}
		*to = new(sum / float64(len(questions)))
		for i := range r.Seats {
			if interval := Paired(pairs[i]); interval != nil {
				one := &SeatEffect{Interval: interval}
				*effect(&r.Seats[i]) = one
				effects = append(effects, one)
			}
		}
		return effects
	}
	effects := counted(func(q SeatQuestion) (*float64, []*float64) { return q.Vote, q.VoteWithout },
		&r.Vote, func(s *SeatFigure) **SeatEffect { return &s.Vote })
	effects = append(effects, counted(func(q SeatQuestion) (*float64, []*float64) { return q.Ranked, q.RankedWithout },
		&r.Ranked, func(s *SeatFigure) **SeatEffect { return &s.Ranked })...)
	ps := make([]float64, len(effects))
	for i, e := range effects {
		ps[i] = e.P
	}
	for i, p := range stat.Holm(ps) {
		effects[i].PAdjusted = p
	}
}

// errorCounts counts the errors of each seat, and the errors that two seats share.
type errorCounts struct {
	n     float64
	wrong []float64
	both  [][]float64
}

func newErrors(seats int) *errorCounts {
	return &errorCounts{wrong: make([]float64, seats), both: stat.Matrix(seats, seats, 0.0)}
}

func (e *errorCounts) add(wrong []bool) {
	e.n++
	for i, is := range wrong {
		if !is {
			continue
		}
		e.wrong[i]++
		for j, too := range wrong {
			if too {
				e.both[i][j]++
			}
		}
	}
}

// plus multiplies the counts in other by times, and adds the products to the counts in e.
func (e *errorCounts) plus(other *errorCounts, times float64) {
	e.n += times * other.n
	for i := range e.wrong {
		e.wrong[i] += times * other.wrong[i]
		for j := range e.both[i] {
			e.both[i][j] += times * other.both[i][j]
		}
	}
}

func (e *errorCounts) varies(i int) bool { return e.wrong[i] > 0 && e.wrong[i] < e.n }

// phi returns the correlation of the errors of two seats. It returns false if one of them is always right or always
// wrong.
func (e *errorCounts) phi(i, j int) (float64, bool) {
	if !e.varies(i) || !e.varies(j) {
		return 0, false
	}
	variance := func(k int) float64 { return e.wrong[k] * (e.n - e.wrong[k]) }
	return (e.n*e.both[i][j] - e.wrong[i]*e.wrong[j]) / math.Sqrt(variance(i)*variance(j)), true
}

// meanPhi returns the mean correlation over pairs of seats that vary, and the number of these seats. The mean is
// NaN with fewer than two of them.
func (e *errorCounts) meanPhi() (mean float64, varying int) {
	sum := 0.0
	pairs := 0.0
	for i := range e.wrong {
		if e.varies(i) {
			varying++
		}
		for j := range i {
			if phi, ok := e.phi(i, j); ok {
				sum += phi
				pairs++
			}
		}
	}
	return sum / pairs, varying
}

// kish returns how many independent seats k seats are worth if the mean correlation of their errors is mean. It is
// NaN if that is undefined.
func kish(k int, mean float64) float64 {
	if over := 1 + float64(k-1)*mean; over > 1e-9 {
		return float64(k) / over
	}
	return math.NaN()
}

// effective returns how many independent seats the seats are worth. The interval is computed for atanh(mean phi) and
// then transformed. The interval uses the error from leaving out one cluster at a time, and Student's t on one degree
// of freedom less than there are clusters.
func effective(all *errorCounts, parts []*errorCounts, mean float64, varying int) (e stat.Estimate) {
	if value := kish(varying, mean); !math.IsNaN(value) {
		e.Value = &value
	}
	const enough = 15
	for _, wrong := range all.wrong {
		if wrong < enough || all.n-wrong < enough {
			return e
		}
	}
	without := make([]float64, len(parts))
	for i, part := range parts {
		all.plus(part, -1)
		left, _ := all.meanPhi()
		all.plus(part, 1)
		without[i] = math.Atanh(left)
	}
	g := float64(len(parts))
	centre := math.Atanh(mean)
	half := stat.StudentQuantile(1-Level/2, g-1) * math.Sqrt((g-1)*stat.PopVariance(without))
	low := kish(varying, math.Tanh(centre+half))
	high := kish(varying, math.Tanh(centre-half))
	if g > 1 && !math.IsNaN(low) && !math.IsNaN(high) {
		e.Lower = &low
		e.Upper = &high
	}
	return e
}
