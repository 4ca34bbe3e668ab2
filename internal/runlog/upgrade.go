package runlog

import (
	"encoding/json"

	"github.com/councild/councild/internal/council"
)

// PlanFormat is the version of the logs that this build stores. Builds before 0.1.0 stored no version.
const PlanFormat = 1

// Prompt is a prompt version that no build before 0.1.0 has. New logs say that their session needs this version, so
// that a build before 0.1.0 leaves the session to a node that announces the version.
const Prompt = "log-1"

// oldPlan is the plan that builds before 0.1.0 read.
type oldPlan struct {
	SessionID    string            `json:"session_id"`
	Conversation []council.Message `json:"conversation"`
	Chairmen     []council.Member  `json:"chairmen"`
	Rules        struct {
		ReviewPrompt string `json:"review_prompt"`
	} `json:"rules"`
	Versions struct {
		Synthesis string `json:"synthesis"`
	} `json:"versions"`
}

// unreadable returns an oldPlan that no old build resumes.
func unreadable(plan council.Plan) (o oldPlan) {
	o.SessionID = plan.SessionID
	o.Conversation = []council.Message{{Role: council.RoleUser, Content: plan.Preview()}}
	o.Chairmen = []council.Member{{}}
	o.Rules.ReviewPrompt = Prompt
	o.Versions.Synthesis = Prompt
	return o
}

// readAccepted reads the head of a log.
func readAccepted(data []byte) (a Accepted, err error) {
	if err = json.Unmarshal(data, &a); err != nil || a.Format >= PlanFormat {
		a.Plan.Mode = a.Plan.ModeOf()
		return a, err
	}
	var old struct {
		Plan council.Plan `json:"plan"`
	}
	if err = json.Unmarshal(data, &old); err == nil {
		a.Plan = old.Plan
		err = a.upgrade(data)
	}
	return a, err
}

// upgrade completes the head of a log that a build before 0.1.0 has stored. The rules of such a build had separate
// fields for three sides. The function can be removed after 0.1.0.
func (a *Accepted) upgrade(data []byte) error {
	var old struct {
		Plan struct {
			Members   []council.Member `json:"members"`
			Reviewers []council.Member `json:"reviewers"`
			Chairmen  []council.Member `json:"chairmen"`
			Direct    bool             `json:"direct"`
			JudgeKey  string           `json:"judge_key"`
			Rules     struct {
				ReviewPrompt     string          `json:"review_prompt"`
				Demographics     bool            `json:"demographics"`
				LexiconLimit     float64         `json:"lexicon_limit"`
				Judge            *council.Member `json:"judge"`
				JudgeAxes        []string        `json:"judge_axes"`
				JudgePrompt      string          `json:"judge_prompt"`
				EmbeddingModel   string          `json:"embedding_model"`
				EmbeddingRefused string          `json:"embedding_refused"`
				ClusterRule      string          `json:"cluster_rule"`
			} `json:"rules"`
		} `json:"plan"`
	}
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	rules := old.Plan.Rules
	plan := &a.Plan
	if old.Plan.Direct {
		plan.Mode = council.ModeSingle
		plan.Stages = []council.StagePlan{{Kind: council.KindAnswers, Seats: old.Plan.Members, TimeEnd: 1, MoneyEnd: 1}}
		return nil
	}
	plan.Mode = council.ModeCouncil
	plan.Stages = council.Stages(plan.Mode, old.Plan.Members, old.Plan.Reviewers, old.Plan.Chairmen)
	plan.Stages[1].Prompt = rules.ReviewPrompt
	plan.Stages[2].Prompt = plan.Versions.Synthesis
	if rules.Demographics {
		plan.Sides = append(plan.Sides, council.SidePlan{Name: "terms", Tally: true, Threshold: rules.LexiconLimit})
	}
	if rules.EmbeddingModel != "" {
		const (
			fewest = 5        // the least number of answers for clustering
			bytes  = 4 * 6000 // the most bytes of an answer that are embedded
			share  = 0.8
		)
		side := council.SidePlan{
			Name: "embedding", Version: rules.ClusterRule, Member: council.Member{Model: rules.EmbeddingModel}, MoneyEnd: share,
			Refused: rules.EmbeddingRefused, Records: plan.Rules.Consent > 0, Threshold: rules.LexiconLimit,
		}
		asked := side.Records || side.Version != "" && len(plan.Members()) >= fewest
		if asked && side.Refused == "" {
			side.Seats = []string{"embedding"}
			side.EmbedBytes = bytes * int64(len(plan.Members()))
		}
		plan.Sides = append(plan.Sides, side)
	}
	if rules.Judge != nil {
		const share = 0.5
		plan.Sides = append(plan.Sides, council.SidePlan{
			Name: "judge", Version: rules.JudgePrompt, Member: *rules.Judge, Seats: []string{"judge-1", "judge-2"}, MoneyEnd: share,
			MarkerKey: old.Plan.JudgeKey, Threshold: rules.LexiconLimit, Axes: rules.JudgeAxes,
		})
	}
	return nil
}
