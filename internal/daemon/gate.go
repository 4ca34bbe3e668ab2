package daemon

import (
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/gate"
)

// tasks returns the tasks that this version of councild can carry out, by their names.
func tasks() map[string]council.Task {
	return map[string]council.Task{gate.TaskName: gate.Gate{}}
}
