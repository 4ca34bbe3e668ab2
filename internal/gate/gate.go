// Package gate has the seats of a council review a change. Members look for defects, findings of different members are
// merged, reviewers confirm or reject them without knowing who found them, and code computes the verdict. It makes no
// calls: the pipeline carries it out as a [council.Task].
package gate

import (
	"encoding/json"

	"github.com/councild/councild/internal/council"
)

// TaskName is the name of the gate as a task.
const TaskName = "gate"

// Request asks for a review of a change. The zero value of a field stands for its default. It is the body of
// POST /v1/gate, and the input of the task.
type Request struct {
	Diff string `json:"diff"` // a unified diff, as git writes it
	// Context describes the change to the members, in the author's words.
	Context string    `json:"context,omitempty"`
	Include []string  `json:"include,omitempty"` // globs of the files to review, by default all
	Exclude []string  `json:"exclude,omitempty"` // globs of files to leave out
	Ignore  []Ignored `json:"ignore,omitempty"`  // findings that are known and accepted
	// MaxFindings is how many findings are shown, 1 to 50. The default is 5. It limits no verdict.
	MaxFindings int `json:"max_findings,omitempty"`

	Council        string   `json:"council,omitempty"`
	Seed           *int64   `json:"seed,omitempty"`            // as in council.Request
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"` // as in council.Request
	MaxCostUSD     *float64 `json:"max_cost_usd,omitempty"`    // as in council.Request
	MaxTotalTokens *int64   `json:"max_total_tokens,omitempty"`
	DataClass      string   `json:"data_class,omitempty"` // as in council.Request

	Token string `json:"-"` // as in council.Request
	User  string `json:"-"` // as in council.Request
}

// Ignored is a finding that people have accepted.
type Ignored struct {
	Fingerprint string `json:"fingerprint"`
	Reason      string `json:"reason"` // never empty
}

// Verdict is what the gate says about a change.
type Verdict string

// The verdicts.
const (
	Pass      Verdict = "pass"      // nothing blocks
	Blocked   Verdict = "blocked"   // a finding blocks
	Undecided Verdict = "undecided" // too few makers replied, a limit was reached, or the diff is too large
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Blocking Severity = "blocking" // there is an input that gives a wrong result
	Advisory Severity = "advisory" // all else
)

// Report is the result of the gate.
type Report struct {
	SessionID string    `json:"session_id,omitempty"`
	Verdict   Verdict   `json:"verdict"`
	Reason    string    `json:"reason"` // the verdict in one sentence
	Findings  []Finding `json:"findings"`
	// Dropped counts findings that were not used, by reason: "quote" if the quote stands nowhere in the diff, "form" if
	// the finding could not be read, "limit" if it was beyond the allowed number.
	Dropped map[string]int `json:"dropped"`
	// LeftOut names the files that were not reviewed, with the reason: "lock file", "generated", "vendored", "binary",
	// "excluded".
	LeftOut []LeftOut      `json:"left_out"`
	Members []Member       `json:"members"`
	Makers  int            `json:"makers"`          // makers that replied in both rounds
	Usage   *council.Usage `json:"usage,omitempty"` // of the whole session
	Ignored []Ignored      `json:"ignored"`         // the ignored findings that were found again
}

// LeftOut is a file that was not reviewed.
type LeftOut struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// Member says what one seat did.
type Member struct {
	ID       string           `json:"id"`
	Maker    string           `json:"maker"`
	Found    int              `json:"found"` // findings whose quotes stand in the diff
	Dropped  int              `json:"dropped"`
	Reviewed bool             `json:"reviewed"` // it voted on the findings of others
	Error    *council.Failure `json:"error"`
}

// Finding is one defect, as one or several members found it.
type Finding struct {
	ID          string    `json:"id"`          // "F1", "F2" and so on
	Fingerprint string    `json:"fingerprint"` // 16 hex digits of file and folded quote, ":" and a number
	File        string    `json:"file"`
	Start       int       `json:"start"` // the first line of the quote, from 1: in the new file, or in the old one if Removed is true
	End         int       `json:"end"`
	Removed     bool      `json:"removed,omitempty"` // the quote has only removed lines
	Quote       string    `json:"quote"`
	Severity    Severity  `json:"severity"`
	Blocks      bool      `json:"blocks"`
	Shown       bool      `json:"shown"`
	FoundBy     []string  `json:"found_by"`     // seats
	ConfirmedBy []string  `json:"confirmed_by"` // seats
	RejectedBy  []string  `json:"rejected_by"`  // seats
	Wordings    []Wording `json:"wordings"`     // the first is shown
}

// Wording is how one member described a finding.
type Wording struct {
	Seat     string   `json:"seat"`
	What     string   `json:"what"`
	Scenario string   `json:"scenario,omitempty"`
	Severity Severity `json:"severity"`
}

// Gate is the task. It implements council.Task.
type Gate struct{}

var _ council.Task = Gate{}

// Prompts implements council.Task.
func (Gate) Prompts() []string { return nil }

// Calls implements council.Task.
func (Gate) Calls(council.Plan, []council.TaskRound) ([]council.Call, error) { return nil, nil }

// Result implements council.Task.
func (Gate) Result(council.Plan, []council.TaskRound) (json.RawMessage, error) { return nil, nil }
