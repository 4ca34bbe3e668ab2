package trial

// judgeBench reads the output of judges of JudgeBench. A judge is a seat, named after its prompts and its
// model; the source of a pair is its group. Lines of several judges at one pair are one row.
type judgeBench struct {
	rows   map[string]*GradedRow // by pair
	order  []*GradedRow
	judges map[string]bool
}

// judgeBenchLine is a pair with the decisions of a judge.
type judgeBenchLine struct {
	PairID    string               `json:"pair_id"`
	Source    string               `json:"source"`
	Label     string               `json:"label"` // which answer is the right one
	JudgeName string               `json:"judge_name"`
	Judgments []*judgeBenchVerdict `json:"judgments"` // as shown, and in reversed order; null: the call failed
}

type judgeBenchVerdict struct {
	Judgment struct {
		Model string `json:"judge_model"`
	} `json:"judgment"`
	Decision *string `json:"decision"` // of the answers as they were shown; null: none could be read
}

// maxJudges bounds the rows, each of which has all judges.
const maxJudges = 100

const (
	firstBetter  = "A>B"
	secondBetter = "B>A"
	equallyGood  = "A=B"
)

// check says what is wrong with a line, but for its decisions.
func (l judgeBenchLine) check() error {
	switch {
	case l.PairID == "" || l.Source == "" || l.Label == "" || l.JudgeName == "" || l.Judgments == nil:
		return reject(MissingField, "pair_id, source, label, judge_name and judgments are needed")
	case len(l.PairID) > maxID || len(l.Source) > maxID || len(l.JudgeName) > maxID:
		return reject(BadField, "pair_id, source or judge_name has over %d bytes", maxID)
	case l.Label != firstBetter && l.Label != secondBetter:
		return reject(BadField, "label is %.40q, not %s or %s", l.Label, firstBetter, secondBetter)
	case len(l.Judgments) == 1:
		return reject(OneOrder, "")
	case len(l.Judgments) != 2:
		return reject(BadField, "there are %d judgments", len(l.Judgments))
	default:
		return nil
	}
}

// verdict returns the judge and its score. The judge is right, with score 1, where the net of both orders is above 0, as
// JudgeBench counts: the right answer counts 1, the other one -1, and a tie 0. A decision that is missing counts 0, and
// without both there is no score. The name of the judge is empty where no call succeeded.
func (l judgeBenchLine) verdict() (judge string, score *float64, err error) {
	net := 0
	missing := 0
	for order, v := range l.Judgments {
		if v == nil {
			missing++
			continue
		}
		model := v.Judgment.Model
		if model == "" || len(model) > maxID || judge != "" && judge != l.JudgeName+":"+model {
			return "", nil, reject(BadField, "judge_model is missing or too long, or two models are named")
		}
		judge = l.JudgeName + ":" + model
		if v.Decision == nil {
			missing++
			continue
		}
		switch *v.Decision {
		case firstBetter, secondBetter:
			if (*v.Decision == l.Label) == (order == 0) {
				net++
			} else {
				net--
			}
		case equallyGood:
		default:
			return "", nil, reject(BadField, "decision is %.40q, not %s, %s or %s",
				*v.Decision, firstBetter, secondBetter, equallyGood)
		}
	}
	switch {
	case missing == 2:
		return judge, nil, nil
	case net > 0:
		return judge, new(1.0), nil
	default:
		return judge, new(0.0), nil
	}
}

// line implements judgementReader.
func (j *judgeBench) line(text []byte, _ func(any) error) error {
	l, err := decodeLine[judgeBenchLine](text)
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	row := j.rows[l.PairID]
	if row != nil && row.Cluster != l.Source {
		return reject(BadField, "source is %.40q, and %.40q on an earlier line of the pair", l.Source, row.Cluster)
	}
	judge, score, err := l.verdict()
	if err != nil {
		return err
	}
	if judge != "" && !j.judges[judge] && len(j.judges) == maxJudges {
		return reject(BadField, "there are over %d judges", maxJudges)
	}
	if row != nil {
		if _, judged := row.Scores[judge]; judged || judge == "" {
			return reject(Duplicate, "the pair has a row already")
		}
	} else {
		row = &GradedRow{ID: l.PairID, Cluster: l.Source, Scores: map[string]*float64{}, CostUSD: map[string]*float64{}}
		j.rows[l.PairID] = row
		j.order = append(j.order, row)
	}
	if judge == "" { // end says that whoever was asked gave no judgement
		return nil
	}
	j.judges[judge] = true
	row.Scores[judge] = score
	return nil
}

// end implements judgementReader. A judge that said nothing of a pair has no score there.
func (j *judgeBench) end(write func(any) error) error {
	for _, row := range j.order {
		for judge := range j.judges {
			if _, ok := row.Scores[judge]; !ok {
				row.Scores[judge] = nil
			}
		}
		if err := write(row); err != nil {
			return err
		}
	}
	return nil
}
