// Package gate has the seats of a council review a change. Members look for defects. Findings of different members are
// merged. Reviewers confirm or reject them without knowing who found them, and code computes the verdict. It makes no
// calls: the pipeline carries it out as a [council.Task].
package gate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/councild/councild/internal/anonymize"
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
	// Dropped counts the findings that were not used, by reason. "quote": the quote stands nowhere in the diff. "form":
	// the finding could not be read. "limit": the member reported too many.
	Dropped map[string]int `json:"dropped"`
	// LeftOut names the files that were not reviewed, with the reason: "lock file", "generated", "vendored", "binary",
	// "excluded", "no changed lines".
	LeftOut []LeftOut      `json:"left_out"`
	Members []MemberReport `json:"members"`
	Makers  int            `json:"makers"`          // makers that replied in both rounds
	Usage   *council.Usage `json:"usage,omitempty"` // of the whole session
	Ignored []Ignored      `json:"ignored"`         // the ignored findings that were found again
}

// LeftOut is a file that was not reviewed.
type LeftOut struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// MemberReport says what one seat did.
type MemberReport struct {
	ID       string           `json:"id"`
	Maker    string           `json:"maker"`
	Found    int              `json:"found"` // findings whose quotes stand in the diff
	Dropped  int              `json:"dropped"`
	Reviewed bool             `json:"reviewed"` // it voted on the findings of others
	Error    *council.Failure `json:"error"`
}

// Finding is one defect, as one or several members found it.
type Finding struct {
	ID          string `json:"id"`          // "F1", "F2" and so on
	Fingerprint string `json:"fingerprint"` // 16 hex digits of file and folded quote, ":" and a number
	File        string `json:"file"`
	// Start and End are lines of the new file, from 1. If Removed is true, both are the line that follows the quote.
	Start       int       `json:"start"`
	End         int       `json:"end"`
	Removed     bool      `json:"removed,omitempty"` // the quote has only removed lines
	Quote       string    `json:"quote"`             // as it stands in the diff
	Severity    Severity  `json:"severity"`          // what most of the makers behind the finding say
	Confirmed   bool      `json:"confirmed"`         // more other makers stand behind it than reject it
	Blocks      bool      `json:"blocks"`
	Shown       bool      `json:"shown"`             // it is confirmed, not ignored, and within MaxFindings
	Ignored     string    `json:"ignored,omitempty"` // why people have accepted it
	FoundBy     []string  `json:"found_by"`          // seats
	ConfirmedBy []string  `json:"confirmed_by"`      // seats
	RejectedBy  []string  `json:"rejected_by"`       // seats
	Votes       []Vote    `json:"votes"`
	Wordings    []Wording `json:"wordings"` // the first is shown
}

// Wording is how one member described a finding.
type Wording struct {
	Seat     string   `json:"seat"`
	What     string   `json:"what"`
	Scenario string   `json:"scenario,omitempty"`
	Severity Severity `json:"severity"`
}

// Vote is the vote of one reviewer on a finding.
type Vote struct {
	Seat     string   `json:"seat"`
	Vote     Stance   `json:"vote"`
	Severity Severity `json:"severity"` // how bad the defect is, if it is real
	Why      string   `json:"why,omitempty"`
}

// Gate is the task. It implements council.Task.
type Gate struct{}

var _ council.Task = Gate{}

// Prompts implements council.Task.
func (Gate) Prompts() []string { return []string{PromptFind, PromptConfirm} }

// Calls implements council.Task.
func (Gate) Calls(plan council.Plan, earlier []council.TaskRound) ([]council.Call, error) {
	c, err := open(plan)
	if err != nil || c.text == "" || c.tooLarge() {
		return nil, err
	}
	switch len(earlier) {
	case 0:
		return c.findCalls(plan), nil
	case 1:
		return c.confirmCalls(plan, c.merge(c.readFound(earlier[0], newTally()))), nil
	}
	return nil, nil
}

// Result implements council.Task.
func (Gate) Result(plan council.Plan, rounds []council.TaskRound) (json.RawMessage, error) {
	c, err := open(plan)
	if err != nil {
		return nil, err
	}
	return json.Marshal(c.report(plan, rounds))
}

// Check returns what is wrong with the fields that only requests of the gate have.
func (r Request) Check() []council.FieldError {
	_, problems := r.read()
	add := func(field, message, fix string) {
		problems = append(problems, council.FieldError{Field: field, Message: message, Fix: fix})
	}
	if len(r.Context) > maxContext {
		add("context", fmt.Sprintf("it has %d bytes, %d are allowed", len(r.Context), maxContext), "shorten it")
	}
	if r.MaxFindings < 0 || r.MaxFindings > maxShown {
		add("max_findings", fmt.Sprintf("%d is not from 1 to %d", r.MaxFindings, maxShown), "leave it out for 5")
	}
	if len(r.Ignore) > maxIgnored {
		add("ignore", fmt.Sprintf("%d given, at most %d are allowed", len(r.Ignore), maxIgnored),
			"remove the findings that are repaired")
		return problems
	}
	for i, ignored := range r.Ignore {
		field := fmt.Sprintf("ignore[%d].", i)
		if !isFingerprint.MatchString(ignored.Fingerprint) {
			add(field+"fingerprint", fmt.Sprintf("%.64q is not a fingerprint", ignored.Fingerprint),
				"copy it from a report: 16 hex digits, a colon and a number")
		}
		if strings.TrimSpace(ignored.Reason) == "" || len(ignored.Reason) > maxReason {
			add(field+"reason", "it is empty or too long",
				fmt.Sprintf("say in 1 to %d bytes why this finding is accepted", maxReason))
		}
	}
	return problems
}

// Limits of a Request.
const (
	maxContext   = 16 << 10
	maxShown     = 50
	defaultShown = 5
	maxIgnored   = 1000
	maxReason    = 500
)

var isFingerprint = regexp.MustCompile(`^[0-9a-f]{16}:[1-9][0-9]{0,6}$`)

// read reads the diff of a request, and divides its files into those to review and those to leave out.
func (r Request) read() (*change, []council.FieldError) {
	c := &change{Request: r, leftOut: []LeftOut{}, makers: map[string]string{}}
	problems := append(checkGlobs("include", r.Include), checkGlobs("exclude", r.Exclude)...)
	files, wrong := readDiff(r.Diff)
	if problems = append(wrong, problems...); problems != nil {
		return nil, problems
	}
	var text strings.Builder
	for _, f := range files {
		if why := r.leftOut(f); why != "" {
			c.leftOut = append(c.leftOut, LeftOut{File: f.name, Reason: why})
			continue
		}
		c.files = append(c.files, f)
		text.WriteString(f.text)
	}
	c.text = strings.TrimRight(text.String(), "\r\n")
	return c, nil
}

// change is a change that is reviewed.
type change struct {
	Request
	files   []*file // the files that are reviewed
	leftOut []LeftOut
	text    string            // the diff of these files
	most    int               // the most bytes that members are asked to review
	makers  map[string]string // by seat
	twins   council.Twins
}

// tooLarge reports whether the diff is longer than what members are asked to review.
func (c *change) tooLarge() bool { return len(c.text) > c.most }

// open reads the request of a plan.
func open(plan council.Plan) (*change, error) {
	var r Request
	if err := json.Unmarshal(plan.Task.Input, &r); err != nil {
		return nil, &council.Error{Code: council.CodeInternal, Detail: "the stored request cannot be read", Cause: err}
	}
	c, problems := r.read()
	if problems != nil {
		return nil, &council.Error{Code: council.CodeInvalid, Detail: "the request is not valid", Fields: problems}
	}
	c.most = MaxReviewedBytes
	if limit := plan.Task.MaxBytes; limit > 0 && limit < MaxReviewedBytes {
		c.most = int(limit)
	}
	for _, f := range c.files {
		f.foldSides()
	}
	c.twins = plan.Twins
	for _, m := range slices.Concat(plan.Seats(council.KindTask1), plan.Seats(council.KindTask2)) {
		c.makers[m.ID] = cmp.Or(m.Maker, council.Maker(m.Model, plan.Rules.Providers))
	}
	return c, nil
}

// markers returns a function that makes the markers of a seat's prompt. They are the same in each process.
func markers(plan council.Plan, stage council.Stage) func(seat string) anonymize.Markers {
	key := plan.MarkerKey
	if key != "" {
		key += " " + string(stage)
	}
	return anonymize.MarkersFrom(key)
}

// findCalls returns the calls of the first round.
func (c *change) findCalls(plan council.Plan) (calls []council.Call) {
	newMarkers := markers(plan, council.Stage1)
	for _, m := range plan.Seats(council.KindTask1) {
		calls = append(calls, council.Call{
			Stage: council.Stage1, Seat: m.ID, Model: m.Model, Profile: m.Profile,
			Messages: c.messages(FindSystem, findTask, nil, newMarkers(m.ID)),
			Sampling: m.Sampling(plan.Rules.Sampling), Format: findFormat(),
		})
	}
	return calls
}

// confirmCalls returns the calls of the second round. A reviewer with nothing to judge is not called.
func (c *change) confirmCalls(plan council.Plan, groups []*group) (calls []council.Call) {
	newMarkers := markers(plan, council.Stage2)
	shown := slates(plan, groups)
	for i, m := range plan.Seats(council.KindTask2) {
		if len(shown[i]) == 0 {
			continue
		}
		ids := make([]string, len(shown[i]))
		for k, g := range shown[i] {
			ids[k] = g.id
		}
		slices.Sort(ids)
		calls = append(calls, council.Call{
			Stage: council.Stage2, Seat: m.ID, Model: m.Model, Profile: m.Profile,
			Messages: c.messages(ConfirmSystem, confirmTask, shown[i], newMarkers(m.ID)),
			Sampling: m.Sampling(plan.Rules.ReviewSampling), Format: confirmFormat(ids),
		})
	}
	return calls
}

// slates returns the findings that each reviewer is shown, in its own order. They include those of its own model: its
// votes on these do not count, but it can say that others are the same. If no finding is of another model, the reviewer
// has nothing to judge, and is shown none.
func slates(plan council.Plan, groups []*group) [][]*group {
	reviewers := plan.Seats(council.KindTask2)
	o := anonymize.Options{Seed: anonymize.SeedFor(plan.Seed, "gate"), ShowOwn: true}
	for _, m := range reviewers {
		o.Reviewers = append(o.Reviewers, m.ID)
	}
	byID := map[string]*group{}
	for _, g := range groups {
		o.Authors = append(o.Authors, g.id)
		byID[g.id] = g
	}
	shown := make([][]*group, len(reviewers))
	if len(groups) == 0 {
		return shown
	}
	for i, slate := range anonymize.Draw(o).Reviewer {
		for _, s := range slate {
			shown[i] = append(shown[i], byID[s.Member])
		}
		own := func(g *group) bool { return g.by(plan.Twins, reviewers[i].ID) }
		if !slices.ContainsFunc(shown[i], func(g *group) bool { return !own(g) }) {
			shown[i] = nil
		}
	}
	return shown
}
