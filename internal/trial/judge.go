package trial

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/worth"
)

// Judgement has the verdicts of a plan's judges, which compare the council's answer with the answer of another arm.
type Judgement struct {
	// Verdicts are as in worth.JudgedPair, by judge in the order of the plan.
	Verdicts [][2]*float64 `json:"verdicts"`
	// LogLength is log2 of a ratio: the length of the council's answer divided by the length of the arm's answer.
	// Lengths are in characters. LogLength is 0 if one of the answers failed.
	LogLength float64 `json:"log2_length_ratio"`
}

// judged returns the arms that judges compare with the council. It returns none if answers are graded.
func (p Plan) judged() []string {
	if len(p.Judges) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Arms), func(arm string) bool { return arm == ArmCouncil })
}

// JudgeCalls returns how many calls judges make for each question.
func (p Plan) JudgeCalls() int { return 2 * len(p.Judges) * len(p.judged()) }

// judge has the judges of the plan compare the council's answer with the answer of each arm. It adds their verdicts and
// their usage to done. It reports whether a cost limit prevented a call.
func (r *run) judge(ctx context.Context, plan council.Plan, done *Result, b pipeline.QuestionBudget) (short bool) {
	for _, arm := range r.Plan.judged() {
		if done.Judged == nil {
			done.Judged = map[string]Judgement{}
		}
		other := done.text(arm)
		j := Judgement{Verdicts: make([][2]*float64, len(r.Plan.Judges))}
		switch {
		case done.Answer == "" || other == "": // All verdicts are missing.
		case strings.TrimSpace(done.Answer) == strings.TrimSpace(other):
			for i := range j.Verdicts {
				j.Verdicts[i] = [2]*float64{new(0.5), new(0.5)}
			}
		default:
			j.LogLength = math.Log2(float64(utf8.RuneCountInString(done.Answer)) / float64(utf8.RuneCountInString(other)))
			for order := range 2 {
				id := pipeline.JudgeSession(plan.SessionID, arm, order)
				verdicts, cut := r.Council.Judge(ctx, plan, arm, order, r.Plan.Judges, done.Answer, other, b)
				short = short || cut
				for i, v := range verdicts {
					place := 1
					if v.First {
						place = 0
					}
					j.Verdicts[i][place] = v.Value
				}
				done.Usage = done.Usage.Plus(r.Calls.usage(id))
			}
		}
		done.Judged[arm] = j
	}
	return short
}

// usage returns the total usage of the calls of a session that have an outcome in the file.
func (c *Calls) usage(session string) council.Usage {
	landed := c.Landed(session)
	slices.SortFunc(landed, func(a, b council.Landed) int { // The order can change a sum of floats.
		return cmp.Or(cmp.Compare(a.Seat, b.Seat), cmp.Compare(a.Number, b.Number))
	})
	sum := council.NoUsage()
	for _, l := range landed {
		sum = sum.Plus(l.Completion.Usage)
	}
	return sum
}

// judgedQuestions returns the judgements of the results in the form that package worth takes.
func judgedQuestions(questions []Prepared, results []Result) []worth.JudgedQuestion {
	rows := make([]worth.JudgedQuestion, len(results))
	for i, r := range results {
		rows[i] = worth.JudgedQuestion{ID: r.ID, Cluster: questions[i].Cluster(), Against: map[string]worth.JudgedPair{}}
		for arm, j := range r.Judged {
			rows[i].Against[arm] = worth.JudgedPair{Verdicts: j.Verdicts, LogLength: j.LogLength}
		}
	}
	return rows
}
