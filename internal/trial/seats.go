package trial

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/worth"
)

// Seats returns, for each graded question of a results file, which seats were wrong, and the scores of the vote and the
// ranking. For each seat, it also counts the vote and the ranking again without that seat. It also returns the ids of
// the seats.
func Seats(f ResultFile) ([]worth.SeatQuestion, []string, error) {
	if !f.Ended && len(f.Plan.Arms) > 0 {
		return nil, nil, errors.New("the comparison has not ended, and nothing is scored before its end: run the same " +
			"command again to continue, or with --finish to end it with the questions that were asked")
	}
	ids := make([]string, len(f.Plan.Members))
	for i, m := range f.Plan.Members {
		ids[i] = m.ID
	}
	var rows []worth.SeatQuestion
	for _, r := range f.Results {
		if r.endedAfterFirst() {
			return nil, nil, fmt.Errorf("the council asked only its first members at question %.64q, so it is not known what "+
				"the others would have said: use the results of councild compare, which asks all members", r.ID)
		}
		vote, graded := r.Arms[ArmVote]
		if !graded { // The question has no right answer.
			continue
		}
		row := worth.SeatQuestion{
			ID:      r.ID,
			Cluster: (&Question{ID: r.ID, Group: r.Group}).Cluster(),
			Wrong:   make([]bool, len(ids)),
			Vote:    vote.Score,
		}
		if ranked := r.Arms[ArmRanked]; ranked != nil && !ranked.Failed {
			row.Ranked = ranked.Score
		}
		row.Alike, row.AlikeRight = alike(r)
		for i, id := range ids {
			at := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == id })
			row.Wrong[i] = at < 0 || r.Members[at].Score == nil || *r.Members[at].Score < 0.5
			others := slices.DeleteFunc(slices.Clone(r.Members), func(m Member) bool { return m.ID == id })
			row.VoteWithout = append(row.VoteWithout, scoreWithout(Vote(others), row.Vote))
			row.RankedWithout = append(row.RankedWithout,
				scoreWithout(ranked(others, without(r.Ballots, id), f.Plan.Rules.PartialBallots), row.Ranked))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, nil, errors.New("no question in it has a right answer: give questions a reference and a grader")
	}
	return rows, ids, nil
}

// alike returns how many members gave the most frequent answer, and whether this answer is right. If several answers are
// equally frequent, it takes the one that a vote would serve. It returns 0 if no answer has a form.
func alike(r Result) (n int, right bool) {
	count := map[string]int{}
	for _, m := range r.Members {
		if m.Form != "" {
			count[m.Form]++
			n = max(n, count[m.Form])
		}
	}
	scores := map[string]float64{} // of the most frequent answers, by the member that gave the answer first
	seen := map[string]bool{}
	for _, m := range r.Members {
		if m.Form != "" && count[m.Form] == n && !seen[m.Form] {
			seen[m.Form] = true
			scores[m.ID] = *m.Score
		}
	}
	served := anonymize.One(r.Seed, slices.Collect(maps.Keys(scores)))
	return n, scores[served] >= 0.5
}

// ranked returns the score of the first answer by Borda count, or of the first answer if there is no ranking. If several
// answers share the first place, it returns the mean of their scores, as meanScore does.
func ranked(members []Member, votes []ranking.Vote, policy council.PartialPolicy) *float64 {
	o := ranking.Options{Votes: votes, Policy: policy}
	for _, m := range members {
		if m.Answer != nil {
			o.Candidates = append(o.Candidates, m.ID)
		}
	}
	var top []string
	for _, st := range ranking.Tally(o).Standings {
		if st.FinalRank != nil && *st.FinalRank == 1 {
			top = append(top, st.Model)
		}
	}
	if top == nil && o.Candidates != nil {
		top = o.Candidates[:1]
	}
	if top == nil {
		return nil
	}
	return meanScore(members, council.AnswerFrom{Model: top[0], Tied: top[1:]})
}

// SeatsOfRows returns the same as Seats from a file of graded rows, but without votes and rankings. The command
// councild store import writes such files. Each arm is a seat. It reports false if the file holds something else.
func SeatsOfRows(name string) (rows []worth.SeatQuestion, ids []string, ok bool, err error) {
	all, ids, err := readRows(name)
	for _, r := range all {
		q := worth.SeatQuestion{ID: r.ID, Cluster: r.Cluster, Wrong: make([]bool, len(ids))}
		for i, id := range ids {
			score := r.Scores[id]
			q.Wrong[i] = score == nil || *score < 0.5
		}
		rows = append(rows, q)
	}
	return rows, ids, len(rows) > 0, err
}

// readRows returns the rows of a file of graded rows, and the sorted names of their arms. It returns no rows if the
// file holds something else.
func readRows(name string) (all []GradedRow, arms []string, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	names := map[string]bool{}
	for line := range bytes.Lines(data) {
		var r GradedRow
		if json.Unmarshal(line, &r) != nil || r.ID == "" || r.Scores == nil {
			return nil, nil, nil
		}
		for name := range r.Scores {
			names[name] = true
		}
		all = append(all, r)
	}
	return all, slices.Sorted(maps.Keys(names)), nil
}

// CompareRows compares the treatment of a plan with other arms in a file of graded rows. The other arms are the
// comparators of the plan. If the plan names no comparators, they are all arms besides the treatment. A missing score
// counts as wrong, and a missing cost is unknown. The error says what is wrong with the file or with the names of the
// arms.
func CompareRows(name string, plan worth.Design) (out render.Comparison, err error) {
	all, arms, err := readRows(name)
	if err != nil {
		return out, err
	}
	if len(all) == 0 {
		return out, errors.New("it holds no graded rows: councild store import writes them")
	}
	if plan.Comparators, err = comparators(plan, arms); err != nil {
		return out, err
	}
	out = render.Comparison{
		Planned:    len(all),
		Judges:     []string{},
		Failed:     map[string]int{},
		Ungradable: map[string]int{},
		Fallbacks:  map[string]int{},
		Usage:      council.NoUsage(),
		Settings:   [][2]string{{"rows", filepath.Base(name)}, {"treatment", plan.Treatment}},
	}
	questions := make([]worth.Question, len(all))
	seen := map[string]bool{}
	for i, r := range all {
		if seen[r.ID] {
			return out, fmt.Errorf("the id %.64q is used twice: give each row its own id", r.ID)
		}
		seen[r.ID] = true
		q, err := r.question(arms, out.Ungradable)
		if err != nil {
			return out, err
		}
		questions[i] = q
	}
	out.Report = worth.Compare(questions, plan)
	return out, nil
}

// comparators returns the arms with which the treatment of a plan is compared. The argument arms has all arms in the
// file.
func comparators(plan worth.Design, arms []string) ([]string, error) {
	others := plan.Comparators
	if len(others) == 0 {
		others = slices.DeleteFunc(slices.Clone(arms), func(arm string) bool { return arm == plan.Treatment })
	}
	for _, arm := range append([]string{plan.Treatment}, others...) {
		if !slices.Contains(arms, arm) {
			return nil, fmt.Errorf("the rows have no arm %.64q: name one of %s, with --treatment or --arms",
				arm, strings.Join(arms, ", "))
		}
	}
	if len(others) == 0 || slices.Contains(others, plan.Treatment) {
		return nil, fmt.Errorf("%.64q is the treatment, which is compared with other arms: name another arm", plan.Treatment)
	}
	return others, nil
}

// question returns the scores and costs of a row. It adds the number of missing scores of each arm to the argument
// missing.
func (r GradedRow) question(arms []string, missing map[string]int) (worth.Question, error) {
	q := worth.Question{
		ID:      r.ID,
		Cluster: cmp.Or(r.Cluster, r.ID),
		Score:   map[string]float64{},
		CostUSD: map[string]float64{},
	}
	for _, arm := range arms {
		switch score := r.Scores[arm]; {
		case score == nil:
			missing[arm]++
		case !(*score >= 0 && *score <= 1):
			return q, fmt.Errorf("%.64q: the score of %.64q is not from 0 to 1", r.ID, arm)
		default:
			q.Score[arm] = *score
		}
		switch cost := r.CostUSD[arm]; {
		case cost == nil:
		case !(*cost >= 0):
			return q, fmt.Errorf("%.64q: the cost of %.64q is below 0", r.ID, arm)
		default:
			q.CostUSD[arm] = *cost
		}
	}
	return q, nil
}

// scoreWithout returns the score of a vote or a ranking without a seat. It returns nil if there is no score with the
// seat. It returns 0 if only the score without the seat is missing.
func scoreWithout(score, with *float64) *float64 {
	if with != nil && score == nil {
		return new(float64)
	}
	if with == nil {
		return nil
	}
	return score
}

// without returns the votes without the ballot of a seat, and without the answer of that seat on all other ballots.
func without(votes []ranking.Vote, seat string) []ranking.Vote {
	is := func(id string) bool { return id == seat }
	var rest []ranking.Vote
	for _, v := range votes {
		if v.Reviewer == seat {
			continue
		}
		v.Shown = slices.DeleteFunc(slices.Clone(v.Shown), is)
		places := make([][]string, 0, len(v.Places))
		for _, place := range v.Places {
			if place = slices.DeleteFunc(slices.Clone(place), is); len(place) > 0 {
				places = append(places, place)
			}
		}
		v.Places = places
		rest = append(rest, v)
	}
	return rest
}
