package gate

import (
	"encoding/json"
	"fmt"

	"github.com/councild/councild/internal/council"
)

// Submission is the body of POST /v1/gate.
type Submission struct {
	Request
	// Background has the same meaning as in council.Submission.
	Background bool `json:"background,omitempty"`
}

// Task returns the request as a request to carry out a task. The error is a *council.Error that lists what is wrong
// with the change.
func (r Request) Task() (council.TaskRequest, error) {
	if problems := r.Check(); len(problems) > 0 {
		return council.TaskRequest{}, &council.Error{
			Code: council.CodeInvalid, Detail: "the request is not valid", Fields: problems,
		}
	}
	input, err := json.Marshal(r)
	if err != nil {
		return council.TaskRequest{}, fmt.Errorf("encoding the request: %w", err)
	}
	return council.TaskRequest{
		Name: TaskName, Input: input, Preview: r.preview(), Council: r.Council, Seed: r.Seed, DataClass: r.DataClass,
		TimeoutSeconds: r.TimeoutSeconds, MaxCostUSD: r.MaxCostUSD, MaxTotalTokens: r.MaxTotalTokens,
		Caller: council.Caller{Token: r.Token, User: r.User},
	}, nil
}

// ReportOf returns the report of a session, with the usage of the whole session. It returns an error if the session is
// not one of the gate, or has no result.
func ReportOf(s *council.Session) (r Report, err error) {
	if s.Task == nil || s.Task.Name != TaskName {
		return r, fmt.Errorf("session %s has no report of the gate", s.ID)
	}
	if err := json.Unmarshal(s.Task.Result, &r); err != nil {
		return r, fmt.Errorf("reading the report of the gate: %w", err)
	}
	r.SessionID = s.ID
	r.Usage = &s.Metadata.Usage.Total
	return r, nil
}

// preview returns the change on one line: how many files are reviewed, and how many lines are added and removed.
func (r Request) preview() string {
	files, _ := readDiff(r.Diff)
	added, removed := 0, 0
	for _, f := range files {
		for _, l := range f.lines {
			switch l.sign {
			case '+':
				added++
			case '-':
				removed++
			}
		}
	}
	return fmt.Sprintf("gate: %s, +%d -%d", counted(len(files), "file"), added, removed)
}
