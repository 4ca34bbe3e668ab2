package main

import (
	"slices"
	"strconv"

	"github.com/councild/councild/internal/testkit/biassim"
)

// used is a list that gives every reviewer of a council this habit.
func used(habit biassim.Habit) []biassim.Habit {
	return slices.Repeat([]biassim.Habit{habit}, len(biassim.Council(12)))
}

// highOnly is a world of reviewers that use only 7, 8 and 9.
func highOnly() biassim.World { return biassim.World{Base: 8, Habits: used(biassim.NearHighScores)} }

// gradedWorlds returns worlds without a favour. In some, reviewers use their scales in ways that no transformation of
// scores undoes. In others, the sessions are unlike each other.
func gradedWorlds() []Scenario {
	levels := highOnly()
	levels.Levels = 0.7
	habits := []biassim.Habit{biassim.EvenScores, biassim.HalfScores, biassim.OddScores, biassim.MiddleScores}
	all := make([]Scenario, 0, len(habits)+19)
	all = append(all, []Scenario{
		{what: "cut points", world: biassim.World{CutPoints: 0.5}},
		{what: "cut points, gaps, levels", world: biassim.World{CutPoints: 0.5, Gap: 1.5, Levels: 1}},
	}...)
	for _, habit := range habits {
		all = append(all, Scenario{what: "scores are " + string(habit), world: biassim.World{Habits: used(habit)}})
	}
	all = append(all, []Scenario{
		{what: "mixed habits", world: biassim.World{MixedHabits: true}},
		{what: "7 to 9", world: highOnly()},
		{what: "7 to 9, levels", world: levels},
		{what: "one reviewer uses 1 to 5", world: biassim.World{Habits: []biassim.Habit{planted: biassim.LowScores}}},
		{what: "generous when the own answer is good", world: biassim.World{OwnLevel: 0.3}},
		{what: "noisy when the own answer is good", world: biassim.World{OwnNoise: 0.3}},
		{what: "wide when the own answer is good", world: biassim.World{OwnSpread: 0.3}},
		{what: "topics", world: biassim.World{Topics: 1, TopicSD: 0.4}},
		{what: "a candidate is replaced", world: biassim.World{Replaced: one(1), Lengthened: one(1)}},
		{what: "a late member", joins: 25},
		{what: "worth bends with length", world: biassim.World{Hump: 0.5, LongerBetter: 0.6}},
		{what: "refusals on hard questions", world: biassim.World{Refusals: 0.08}},
		{what: "ballots lost on hard questions", world: biassim.World{Missing: 0.15, MissingHard: 1}},
		{what: "two share a taste", world: biassim.World{SharedTaste: []float64{0.6, 0, 0.6}}},
		{what: "a second merit", world: biassim.World{Second: 0.8}},
		{what: "cycles", world: biassim.World{Cycle: 0.5}},
		{what: "realistic mix", world: biassim.Realistic()},
	}...)
	for i := range all {
		all[i].favourOnly = true
	}
	return all
}

// power says how often a planted bias must be found at least. The fields plain and mix are for the plain world and the
// realistic mix, over 50 and over 100 sessions. The field high is for 100 sessions in which reviewers use only 7 to 9.
// 0 means that no power is promised.
type power struct {
	what, headline string
	effects        biassim.Effects
	plain, mix     [2]float64
	high           float64
}

func powers() []power {
	return []power{
		{"self +1.0 by one", "self_preference", biassim.Effects{SelfBy: one(1)}, [2]float64{0.90, 0.99}, [2]float64{0.70, 0.90}, 0.90},
		{"self +1.7 by one", "self_preference", biassim.Effects{SelfBy: one(1.7)}, [2]float64{0.99, 0.99}, [2]float64{0.85, 0.95}, 0},
		{"self +0.5 by all", "self_preference", biassim.Effects{Self: 0.5}, [2]float64{0.95, 0.99}, [2]float64{0.90, 0.95}, 0.95},
		{"first place +0.5 by one", "position", biassim.Effects{FirstBy: one(0.5)}, [2]float64{0.40, 0.70}, [2]float64{0.35, 0.65}, 0.40},
		{"first place +0.3 by all", "position", biassim.Effects{Position: []float64{0.3}}, [2]float64{0.90, 0.99}, [2]float64{0.70, 0.85}, 0},
		{"family +0.5", "family_affinity", biassim.Effects{Family: 0.5}, [2]float64{0.65, 0.90}, [2]float64{0.45, 0.80}, 0.85},
		{"length slope +0.4 by one", "length_slope_deviation", biassim.Effects{LengthSlope: one(0.4)}, [2]float64{0.50, 0.85}, [2]float64{0.30, 0.65}, 0.65},
		{"pair +1.0", "affinity", pair(1), [2]float64{0.70, 0.95}, [2]float64{0.45, 0.80}, 0.70},
	}
}

func powerScenarios() []Scenario {
	all := make([]Scenario, 0, 40)
	for _, p := range powers() {
		for _, world := range []struct {
			what  string
			world biassim.World
			power map[int]float64 // by sessions
		}{
			{"plain", biassim.World{}, map[int]float64{50: p.plain[0], 100: p.plain[1]}},
			{"realistic mix", biassim.Realistic(), map[int]float64{50: p.mix[0], 100: p.mix[1]}},
			{"7 to 9", highOnly(), map[int]float64{100: p.high}},
		} {
			for _, sessions := range []int{50, 100} {
				least, ok := world.power[sessions]
				if !ok {
					continue
				}
				s := Scenario{
					what:     p.what + ", " + world.what,
					sessions: sessions,
					members:  5,
					own:      true,
					percent:  20,
					effects:  p.effects,
					world:    world.world,
				}
				s.lines = []line{{
					table:  tablePower,
					row:    s.what,
					column: strconv.Itoa(sessions),
					low:    least,
					high:   1,
					errors: 2,
					count:  verdict(p.headline),
				}}
				all = append(all, s)
			}
		}
	}
	return all
}
