package render

import (
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/worth"
)

// Comparison is the outcome of councild compare.
type Comparison struct {
	worth.Report
	// Judged says that judges compared texts, in place of a grader: scores are differences from -1 to 1, and a
	// verdict is by the judgement of these judges.
	Judged   bool     `json:"judged"`
	Judges   []string `json:"judges"`
	PlanHash string   `json:"plan_hash"` // SHA-256 in hex of the plan, which was made before anything was asked
	Planned  int      `json:"planned"`   // questions of the plan
	// Stopped says that the run ended before all questions were asked. Those that were are a random sample.
	Stopped bool `json:"stopped"`
	// EnsembleCost is the mean cost of the ensemble over that of the council; null where one is unknown or there is none.
	EnsembleCost *float64       `json:"ensemble_cost_ratio"`
	Failed       map[string]int `json:"failed"`     // questions that an arm has no answer to, by arm
	Ungradable   map[string]int `json:"ungradable"` // answers that no grader could read, by arm
	Fallbacks    map[string]int `json:"fallbacks"`  // answers that stand in for those of a chairman that failed, by arm
	Usage        council.Usage  `json:"usage"`      // of all calls
	// Described are the settings of the plan that a reader wants to know, such as models and sampling, in order.
	Settings [][2]string `json:"settings"`
}
