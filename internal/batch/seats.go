package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/councild/councild/internal/ranking"
	"github.com/councild/councild/internal/worth"
)

// Seats returns what the seats of a council made of the questions of a file, with the ids of the seats. Votes and
// rankings are counted again without each of them.
func Seats(f File) ([]worth.SeatQuestion, []string, error) {
	if !f.Ended && len(f.Plan.Arms) > 0 {
		return nil, nil, errors.New("the comparison has not ended, and nothing is scored before: the same command goes on, " +
			"and with --finish it ends with what was asked")
	}
	ids := make([]string, len(f.Plan.Members))
	for i, m := range f.Plan.Members {
		ids[i] = m.ID
	}
	var rows []worth.SeatQuestion
	for _, r := range f.Results {
		vote, graded := r.Arms[ArmVote]
		if !graded { // the question has no right answer
			continue
		}
		row := worth.SeatQuestion{
			ID: r.ID, Cluster: (&Question{ID: r.ID, Group: r.Group}).Cluster(), Wrong: make([]bool, len(ids)), Vote: vote.Score,
		}
		if ranked := r.Arms[ArmRanked]; !ranked.Failed {
			row.Ranked = ranked.Score
		}
		for i, id := range ids {
			at := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == id })
			row.Wrong[i] = at < 0 || r.Members[at].Score == nil || *r.Members[at].Score < 0.5
			others := slices.DeleteFunc(slices.Clone(r.Members), func(m Member) bool { return m.ID == id })
			row.VoteWithout = append(row.VoteWithout, scoreWithout(Vote(others), row.Vote))
			row.RankedWithout = append(row.RankedWithout, scoreWithout(first(others, without(r.Ballots, id), f.Plan.Rules.PartialBallots), row.Ranked))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, nil, errors.New("no question in it has a right answer: give questions a reference and a grader")
	}
	return rows, ids, nil
}

// SeatsOfRows returns the same of a file of graded rows, as councild import writes them: each arm is a seat. It reports
// false where the file holds something else.
func SeatsOfRows(name string) (rows []worth.SeatQuestion, ids []string, ok bool, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, false, err
	}
	type row struct {
		ID      string              `json:"id"`
		Cluster string              `json:"cluster"`
		Scores  map[string]*float64 `json:"scores"`
	}
	var all []row
	names := map[string]bool{}
	for line := range bytes.Lines(data) {
		var r row
		if json.Unmarshal(line, &r) != nil || r.ID == "" || r.Scores == nil {
			return nil, nil, false, nil
		}
		for name := range r.Scores {
			names[name] = true
		}
		all = append(all, r)
	}
	ids = slices.Sorted(maps.Keys(names))
	for _, r := range all {
		q := worth.SeatQuestion{ID: r.ID, Cluster: r.Cluster, Wrong: make([]bool, len(ids))}
		for i, id := range ids {
			score := r.Scores[id]
			q.Wrong[i] = score == nil || *score < 0.5
		}
		rows = append(rows, q)
	}
	return rows, ids, len(rows) > 0, nil
}

// scoreWithout returns the score that is left without a seat: 0 where there is no answer any more, and nil where the score
// with the seat is none.
func scoreWithout(score, with *float64) *float64 {
	if with != nil && score == nil {
		return new(float64)
	}
	if with == nil {
		return nil
	}
	return score
}

// without returns the ballots without that of a seat, and without its answer on the others.
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
