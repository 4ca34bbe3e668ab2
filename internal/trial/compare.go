package trial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disk"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/worth"
)

// Arms returns the arms of a comparison in the order of a report. The argument closed says whether the questions have
// right answers. The arms are council, ranked, the arms in names and, if closed is true, best. The error says which
// name is wrong.
func Arms(names []string, members []council.Member, closed bool) ([]string, error) {
	known := []string{
		ArmCouncil, ArmBest, ArmVote, ArmRanked,
		string(pipeline.ArmSynthesis), string(pipeline.ArmPlacebo), string(pipeline.ArmEnsemble),
	}
	all := []string{ArmCouncil, ArmRanked}
	if closed {
		all = append(all, ArmBest)
	}
	for _, name := range names {
		if err := checkArm(name, known, members, closed); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	rank := func(name string) int {
		if at := slices.Index(known, name); at >= 0 {
			return at
		}
		return len(known)
	}
	slices.SortFunc(all, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(all), nil
}

// checkArm returns what is wrong with the name of an arm. The argument known has the arms whose names have no colon.
func checkArm(name string, known []string, members []council.Member, closed bool) error {
	id, member := strings.CutPrefix(name, armMember)
	isSeat := slices.ContainsFunc(members, func(m council.Member) bool { return m.ID == id })
	n, begins := firstOf(name)
	switch {
	case member && !isSeat:
		return fmt.Errorf("%s: the council has no seat %.64q", name, id)
	case begins && (n < 2 || n >= len(members)):
		return fmt.Errorf("%s: of %d members, two or more can begin, but not all: write their number", name, len(members))
	case !member && !begins && !slices.Contains(known, name):
		return fmt.Errorf("%.64q is not an arm: use %s, first:N or member:ID", name, strings.Join(known, ", "))
	case !closed && (name == ArmBest || name == ArmVote || begins):
		return fmt.Errorf("%s needs right answers: without them name members, as member:ID", name)
	default:
		return nil
	}
}

// worthPlan returns the design by which the arms of a plan are compared. All arms except the placebo are comparators,
// because a council is worth its cost only if it beats every simpler way to answer.
func (p Plan) worthPlan() worth.Design {
	w := worth.Design{Treatment: ArmCouncil, Margin: p.Margin, ValueUSD: p.ValueUSD, Seed: uint64(p.Seed)} //nolint:gosec // it is not negative
	for _, arm := range p.Arms {
		switch arm {
		case ArmCouncil:
		case ArmBest:
			for _, m := range p.Members {
				w.Members = append(w.Members, armMember+m.ID)
			}
		case string(pipeline.ArmPlacebo):
			w.Described = append(w.Described, arm)
		default:
			w.Comparators = append(w.Comparators, arm)
		}
	}
	return w
}

// Rivals returns how many arms the council has to beat by the margin.
func (p Plan) Rivals() int { return p.worthPlan().Rivals() }

// Compare sets the scores in the results, and compares the arms of the plan. The argument questions has the question of
// each result, in the same order.
func Compare(p Plan, questions []Prepared, results []Result) render.Comparison {
	rows := make([]worth.Question, len(results))
	out := render.Comparison{
		PlanHash:   p.Hash(),
		Planned:    p.Questions,
		Stopped:    len(results) < p.Questions,
		Judges:     []string{},
		Failed:     map[string]int{},
		Ungradable: map[string]int{},
		Fallbacks:  map[string]int{},
		Usage:      council.NoUsage(),
		Settings:   p.Settings(),
	}
	for i := range results {
		r := &results[i]
		q := &questions[i].Question
		r.grade(*q)
		rows[i] = worth.Question{
			ID:      q.ID,
			Cluster: q.Cluster(),
			Score:   map[string]float64{},
			CostUSD: map[string]float64{},
		}
		for name, arm := range r.Arms {
			if arm.Score != nil {
				rows[i].Score[name] = *arm.Score
			}
			if arm.CostUSD != nil {
				rows[i].CostUSD[name] = *arm.CostUSD
			}
			count(out.Failed, name, arm.Failed)
			count(out.Ungradable, name, arm.Ungradable)
			count(out.Fallbacks, name, arm.Fallback)
		}
		out.Usage = out.Usage.Plus(r.Usage)
	}
	asked := make([]Question, len(results))
	for i := range asked {
		asked[i] = questions[i].Question
	}
	out.NearCopies = FindCopies(asked).Questions
	out.EnsembleCost = costRatio(results, string(pipeline.ArmEnsemble))
	if len(p.Judges) == 0 {
		out.Report = worth.Compare(rows, p.worthPlan())
	} else {
		out.Judged = true
		for _, m := range p.Judges {
			out.Judges = append(out.Judges, m.ID)
		}
		out.Report = worth.CompareJudged(judgedQuestions(questions, results), p.worthPlan())
	}
	out.Roster = p.roster(out.Report, formOf(questions[:len(results)]), results)
	return out
}

func count(counts map[string]int, name string, yes bool) {
	if yes {
		counts[name]++
	}
}

// Settings returns what a report shows of the plan: the name and the value of each setting, in the order of the report.
func (p Plan) Settings() [][2]string {
	ids := func(members []council.Member) string {
		names := make([]string, len(members))
		for i, m := range members {
			names[i] = m.ID
			if m.Model != council.ModelOf(m.ID) {
				names[i] += " (" + m.Model + ")"
			}
		}
		return strings.Join(names, ", ")
	}
	s := [][2]string{
		{"council", p.Council},
		{"members", ids(p.Members)},
		{"reviewers", ids(p.Reviewers)},
		{"chairman", ids(p.Chairmen[:min(1, len(p.Chairmen))])},
		{"arms", strings.Join(p.Arms, ", ")},
	}
	if p.Samples > 0 {
		s = append(s, [2]string{"ensemble", fmt.Sprintf("%d times %s", p.Samples, p.Ensemble.Model)})
	}
	if len(p.Judges) > 0 {
		s = append(s, [2]string{"judges", ids(p.Judges)})
	}
	if p.ValueUSD != nil {
		s = append(s, [2]string{"value of a right answer", fmt.Sprintf("$%v", *p.ValueUSD)})
	} else {
		s = append(s, [2]string{"margin", fmt.Sprint(p.Margin)})
	}
	if t := p.Rules.Sampling.Temperature; t != nil {
		s = append(s, [2]string{"temperature", fmt.Sprint(*t)})
	}
	return append(s, [][2]string{
		{"order", string(p.Order)},
		{"seed", strconv.FormatInt(p.Seed, 10)},
		{"questions file", p.File},
		{"prompts", p.Review + ", " + p.Versions.Synthesis + ", " + p.Grades},
		{"councild", p.Versions.Councild},
	}...)
}

// Finish writes the results file of a run that is over: first the plan, then the graded results, then the end record.
// It replaces the whole file.
func Finish(name string, p Plan, results []Result) error {
	t := tail{Record: "end", Hash: p.Hash(), Questions: len(results), Usage: council.NoUsage()}
	for _, r := range results {
		t.Usage = t.Usage.Plus(r.Usage)
		if r.Status == council.StatusFailed {
			t.Failed++
		}
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b) // It returns no error for plain data and a buffer.
	_ = lines.Encode(head{"plan", p.Hash(), p})
	for _, r := range results {
		_ = lines.Encode(r)
	}
	_ = lines.Encode(t)
	return disk.Replace(disk.OS{}, name, b.Bytes())
}
