package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/councild/councild/internal/stat"
)

// Manifest says what is planted in a diff of a trial. An empty manifest belongs to a clean diff.
type Manifest struct {
	Defects []Place `json:"defects"`
	// Tempting are places where nothing is wrong. Only simulated models use them.
	Tempting []Place `json:"tempting,omitempty"`
}

// Place is a place in the new file of a diff.
type Place struct {
	File  string `json:"file"`
	Start int    `json:"start"`         // the first line, from 1
	End   int    `json:"end,omitempty"` // the last line; 0 stands for Start
	What  string `json:"what,omitempty"`

	// The other fields are for simulated models.
	Quote    string   `json:"quote,omitempty"`
	Wordings []string `json:"wordings,omitempty"`
	Scenario string   `json:"scenario,omitempty"`
}

// Case is a diff of a trial.
type Case struct {
	Name string
	Diff string
	Manifest
	Report Report
}

// ReadCases reads the diffs of a directory. NAME.diff is a diff, and NAME.json is its manifest. A diff without a
// manifest is clean.
func ReadCases(dir fs.FS) (cases []Case, err error) {
	names, err := fs.Glob(dir, "*.diff")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c := Case{Name: strings.TrimSuffix(name, ".diff")}
		diff, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		c.Diff = string(diff)
		manifest, err := fs.ReadFile(dir, c.Name+".json")
		if err == nil {
			err = json.Unmarshal(manifest, &c.Manifest)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s.json: %w", c.Name, err)
		}
		for i := range c.Defects {
			d := &c.Defects[i]
			d.File = path.Clean(d.File)
			d.End = max(d.End, d.Start)
			if d.Start < 1 || !strings.Contains(c.Diff, d.File) {
				return nil, fmt.Errorf("%s.json: defect %d needs a file of the diff, and the first line", c.Name, i+1)
			}
		}
		cases = append(cases, c)
	}
	manifests, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range manifests {
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name+".json" == name }) {
			return nil, fmt.Errorf("%s has no diff: there is no file %s.diff", name, strings.TrimSuffix(name, ".json"))
		}
	}
	return cases, nil
}

// About returns the index of the planted defect that a finding is about, or -1. It is the defect with which the finding
// shares most lines.
func (m Manifest) About(f Finding) int {
	best := -1
	most := 0
	for i, d := range m.Defects {
		shared := min(f.End, max(d.End, d.Start)) - max(f.Start, d.Start) + 1
		if f.File == d.File && !f.Removed && shared > most {
			best = i
			most = shared
		}
	}
	return best
}

// CaseOutcome counts what a council or one of its members did with one diff.
type CaseOutcome struct {
	Planted int  // planted defects
	Found   int  // planted defects that were reported
	Shown   int  // reported findings
	Blocked bool // The diff is blocked.
}

// Outcomes returns what the council did with a case, and what each member would have done alone. The member reports all
// its findings, and blocks a diff if it calls one of them blocking. The argument about says which planted defect a
// finding is about, as [Manifest.About]. If two reported findings are about one defect, the second does not count as
// right.
func (c Case) Outcomes(about func(Finding) int) (all CaseOutcome, members map[string]CaseOutcome) {
	all = c.outcome(about, func(f Finding) (bool, Severity) { return f.Shown, Advisory })
	all.Blocked = c.Report.Verdict == Blocked
	members = map[string]CaseOutcome{}
	for _, m := range c.Report.Members {
		members[m.ID] = c.outcome(about, func(f Finding) (bool, Severity) {
			for _, w := range f.Wordings {
				if w.Seat == m.ID {
					return true, w.Severity
				}
			}
			return false, Advisory
		})
	}
	return all, members
}

func (c Case) outcome(about func(Finding) int, reported func(Finding) (bool, Severity)) CaseOutcome {
	o := CaseOutcome{Planted: len(c.Defects)}
	found := map[int]bool{}
	for _, f := range c.Report.Findings {
		shown, severity := reported(f)
		if !shown {
			continue
		}
		o.Shown++
		o.Blocked = o.Blocked || severity == Blocking
		if d := about(f); d >= 0 {
			found[d] = true
		}
	}
	o.Found = len(found)
	return o
}

// Performance says how good a council or one of its members is. Each figure has its 95 % interval.
type Performance struct {
	Name      string        `json:"name"`
	Precision stat.Estimate `json:"precision"` // the share of right findings among those reported
	Recall    stat.Estimate `json:"recall"`    // the share of planted defects that were reported
	// FalseBlocks is the share of clean diffs that were blocked. Blocks is the share of diffs with defects.
	FalseBlocks stat.Estimate `json:"false_blocks"`
	Blocks      stat.Estimate `json:"blocks"`
}

// NewPerformance returns the performance over some diffs. Findings of one diff depend on each other, and
// the intervals allow for this.
func NewPerformance(name string, outcomes []CaseOutcome) Performance {
	found := make([]float64, 0, len(outcomes))
	shown := make([]int, 0, len(outcomes))
	planted := make([]int, 0, len(outcomes))
	var diffs, blocked [2]int // clean, and with defects
	for _, o := range outcomes {
		found = append(found, float64(o.Found))
		shown = append(shown, o.Shown)
		planted = append(planted, o.Planted)
		seeded := min(o.Planted, 1)
		diffs[seeded]++
		if o.Blocked {
			blocked[seeded]++
		}
	}
	share := func(i int) stat.Estimate {
		if diffs[i] == 0 {
			return stat.Estimate{}
		}
		return stat.Wilson(blocked[i], diffs[i])
	}
	return Performance{
		Name: name, Precision: stat.ClusteredShare(found, shown), Recall: stat.ClusteredShare(found, planted),
		FalseBlocks: share(0), Blocks: share(1),
	}
}

// Trial is the result of a trial.
type Trial struct {
	Seeded    int           `json:"seeded"`  // diffs with planted defects
	Planted   int           `json:"planted"` // defects
	Clean     int           `json:"clean"`   // diffs without a defect
	Undecided int           `json:"undecided"`
	Council   Performance   `json:"council"`
	Members   []Performance `json:"members"`
}

// NewTrial returns the result of a trial whose cases have their reports. Undecided cases are only counted.
func NewTrial(cases []Case) Trial {
	var t Trial
	var council []CaseOutcome
	var ids []string
	members := map[string][]CaseOutcome{}
	for _, c := range cases {
		if c.Report.Verdict == Undecided {
			t.Undecided++
			continue
		}
		all, each := c.Outcomes(c.About)
		council = append(council, all)
		for _, m := range c.Report.Members {
			if members[m.ID] == nil {
				ids = append(ids, m.ID)
			}
			members[m.ID] = append(members[m.ID], each[m.ID])
		}
		t.Planted += len(c.Defects)
		if len(c.Defects) > 0 {
			t.Seeded++
		} else {
			t.Clean++
		}
	}
	t.Council = NewPerformance("council", council)
	for _, id := range ids {
		t.Members = append(t.Members, NewPerformance(id, members[id]))
	}
	return t
}

// These sizes let a trial answer its two questions. With enoughDefects, a test at the level of 5 % finds a difference
// of 10 points of recall with a probability of 80 %. This assumes that the council and a member differ in about 30 % of
// the defects. If one of enoughClean clean diffs is blocked, the upper limit of that share is below 10 %.
const (
	enoughDefects = 233
	enoughClean   = 60
	maxFalse      = 0.1
)

// Text returns the result as a table with its conclusions.
func (t Trial) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d diffs with %d planted defects, %d clean diffs", t.Seeded, t.Planted, t.Clean)
	if t.Undecided > 0 {
		fmt.Fprintf(&b, "; %d undecided diffs are left out", t.Undecided)
	}
	b.WriteString(".\n\n")
	width := len("council")
	for _, m := range t.Members {
		width = max(width, len(m.Name))
	}
	row := func(cells ...string) {
		fmt.Fprintf(&b, "%-*s  %-17s  %-17s  %-17s  %s\n", width, cells[0], cells[1], cells[2], cells[3], cells[4])
	}
	row("", "precision", "recall", "clean blocked", "defective blocked")
	for _, s := range append([]Performance{t.Council}, t.Members...) {
		row(s.Name, percent(s.Precision), percent(s.Recall), percent(s.FalseBlocks), percent(s.Blocks))
	}
	b.WriteString("\nThe ranges are 95 % intervals. A member alone reports all its findings. The more clean diffs a trial has, the " +
		"lower is the precision.\n")
	if t.Planted < enoughDefects {
		fmt.Fprintf(&b, "To show a difference of 10 points of recall you need about %d planted defects.\n", enoughDefects)
	}
	switch limit := t.Council.FalseBlocks.Upper; {
	case limit != nil && *limit <= maxFalse:
		fmt.Fprintf(&b, "At most %.0f %% of clean diffs are blocked.\n", 100**limit)
	case t.Clean < enoughClean:
		fmt.Fprintf(&b, "Do not block yet. To show that less than 10 %% of clean diffs are blocked, you need %d clean diffs "+
			"with at most one blocked.\n", enoughClean)
	default:
		b.WriteString("Do not block: more than 10 % of clean diffs may be blocked.\n")
	}
	return b.String()
}

// percent writes an estimate, such as "62 % (51 to 72)".
func percent(e stat.Estimate) string {
	if e.Value == nil {
		return "-"
	}
	text := fmt.Sprintf("%.0f %%", 100**e.Value)
	if e.Lower == nil || e.Upper == nil {
		return text
	}
	return fmt.Sprintf("%s (%.0f to %.0f)", text, math.Floor(100**e.Lower), math.Ceil(100**e.Upper))
}
