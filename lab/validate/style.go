package main

import (
	"fmt"

	"github.com/councild/councild/internal/testkit/biassim"
)

const tableStyle = "Style mimicry, %, where nobody favours what is like its own: tests at 5 %, and verdicts. " +
	"Columns: sessions x members."

const styleMimicry = "style_mimicry"

// styleScenarios returns the scenarios in which records have the similarity of answers.
func styleScenarios() []Scenario {
	slopes := biassim.Effects{LengthSlope: []float64{0.4, -0.4, 0.3, -0.3, 0.2, -0.2, 0.4}}
	const percent = 20 // of the usual number of data sets: there are many worlds
	var all []Scenario //nolint:prealloc // most of them are made in a loop of loops
	for _, world := range []Scenario{
		{what: "plain"},
		{what: "self +0.5", own: true, effects: biassim.Effects{Self: 0.5}},
		{what: "family +0.5, alike", world: biassim.World{AlikeMaker: 0.8}, effects: biassim.Effects{Family: 0.5}},
		{what: "slopes of length, alike by length", world: biassim.World{AlikeLength: 1}, effects: slopes},
		{what: "alike by merit", world: biassim.World{AlikeMerit: 0.8}},
		{what: "heavy tails", world: biassim.World{HeavyTails: true}},
		{what: "varying noise", world: biassim.World{NoiseSpread: 0.5}},
		{what: "ceiling", world: biassim.World{Base: 9}},
		{what: "missing ballots", world: biassim.World{Missing: 0.2}},
		{what: "questions in runs", world: biassim.World{Runs: 5}},
		{what: "scale +-20 %", world: biassim.World{Spread: 0.2}},
		{what: "scale +-30 %", world: biassim.World{Spread: 0.3}},
		{what: "scale +-30 %, alike by merit", world: biassim.World{Spread: 0.3, AlikeMerit: 0.8}},
		{
			what: "scale +-30 %, longer better, alike by both",
			world: biassim.World{
				Spread: 0.3, LongerBetter: 0.6, AlikeMerit: 0.8, AlikeLength: 1,
			},
		},
	} {
		for _, size := range [][2]int{{50, 4}, {50, 5}, {50, 7}, {100, 5}} {
			s := world
			s.what = "style, " + world.what
			s.sessions = size[0]
			s.members = size[1]
			s.percent = percent
			s.world.Embedded = true
			s.lines = []line{
				{row: s.row() + ": test", low: 0.03, high: 0.07, count: rejected(styleMimicry)},
				{row: s.row() + ": verdict", high: 0.05, count: verdict(styleMimicry)},
			}
			for i := range s.lines {
				s.lines[i].table = tableStyle
				s.lines[i].column = fmt.Sprintf("%dx%d", size[0], size[1])
				s.lines[i].errors = 2
			}
			all = append(all, s)
		}
	}
	const points = 0.3 // per tenth of similarity
	for _, spread := range []float64{0, 0.2} {
		for _, sessions := range []int{20, 50, 100, 200} {
			s := Scenario{
				what:     fmt.Sprintf("style %+.1f", points),
				sessions: sessions,
				members:  5,
				effects:  biassim.Effects{Style: points},
			}
			s.world.Embedded = true
			s.world.Spread = spread
			s.percent = percent
			if spread > 0 {
				s.what += differentScales
			} else {
				s.add(tablePlanted, "test", 0, 1, rejected(styleMimicry))
				s.add(tablePlanted, "coverage", 0.92, 0.98, covered(styleMimicry, always(points)))
			}
			s.add(tablePlanted, "verdict", 0, 1, verdict(styleMimicry))
			all = append(all, s)
		}
	}
	return all
}
