package trial

// judgeBench reads the output of JudgeBench's judges. Each judge is an arm, named after its prompts and its model. The
// group of a pair is its source. The lines of several judges for one pair become one row.
type judgeBench struct {
	rows   map[string]*GradedRow // by pair
	order  []*GradedRow          // the same rows in the order of the input
	judges map[string]bool
}

// judgeBenchLine is a pair of answers with the decisions of a judge.
type judgeBenchLine struct {
	PairID    string `json:"pair_id"`
	Source    string `json:"source"`
	Label     string `json:"label"` // which answer is the right one
	JudgeName string `json:"judge_name"`
	// Judgments has the judge's verdicts for the pair in its own order and in reversed order. An element is null if the
	// call failed.
	Judgments []*judgeBenchVerdict `json:"judgments"`
}

type judgeBenchVerdict struct {
	Judgment struct {
		Model string `json:"judge_model"`
	} `json:"judgment"`
	// Decision compares the answers in the order in which they were shown. Null means that no decision could be read.
	Decision *string `json:"decision"`
}

// maxJudges bounds the number of judges, because each row has a score for every judge.
const maxJudges = 100

const (
	firstBetter  = "A>B"
	secondBetter = "B>A"
	equallyGood  = "A=B"
)

// check returns what is wrong with a line. It does not check the decisions.
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

// verdict returns the name of the judge and the judge's score for the pair. It counts as JudgeBench does. In each
// order, the right answer counts 1, the wrong one counts -1, and a tie or a missing decision counts 0. The score is 1
// if the sum is above 0, and otherwise 0. It is nil if both decisions are missing. The name is empty if no call
// succeeded.
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
	if judge == "" { // The judge is not known. The method end adds nil scores for all judges to the row.
		return nil
	}
	j.judges[judge] = true
	row.Scores[judge] = score
	return nil
}

// end implements judgementReader. A judge without a verdict on a pair gets a nil score in the row of that pair.
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
