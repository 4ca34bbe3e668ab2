package council

import (
	"encoding/json"
	"time"
)

// DisagreementBackend names a way to say how answers differ in how they speak of people.
type DisagreementBackend string

// The backends.
const (
	BackendLexicon DisagreementBackend = "lexicon"   // compares how often the answers use the terms of each axis
	BackendJudge   DisagreementBackend = "llm_judge" // a model rates how far the answers differ in how they treat people
	// BackendEmbedding says whether the answers whose embeddings lie together cover an axis alike.
	BackendEmbedding DisagreementBackend = "embedding"
)

// Asks reports whether the backend calls a model, which costs.
func (b DisagreementBackend) Asks() bool { return b == BackendJudge || b == BackendEmbedding }

// The numbers of answers that a DisagreementRequest may hold.
const (
	MinCompared = 2
	MaxCompared = 32
)

// DisagreementRequest asks on which demographic axes some answers differ. It is the body of
// POST /v1/disagreement.
type DisagreementRequest struct {
	Question string           `json:"question,omitempty"` // its terms do not count in the answers
	Answers  []ComparedAnswer `json:"answers"`            // MinCompared to MaxCompared
	// Backend is by default BackendLexicon.
	Backend DisagreementBackend `json:"backend,omitempty"`
	// Lexicon is a lexicon file, in place of the configured list of terms.
	Lexicon json.RawMessage `json:"lexicon,omitempty"`
	// Threshold is the score, 0 to 1, from which an axis may be flagged; nil: the configured one.
	Threshold *float64 `json:"threshold,omitempty"`
	// Token names the caller's token, to which calls are charged; "": no token is asked for. A front
	// door sets it.
	Token string `json:"-"`
}

// ComparedAnswer is one of the answers that are compared.
type ComparedAnswer struct {
	ID   string `json:"id"` // 1 to 200 bytes, of one answer alone
	Text string `json:"text"`
}

// DisagreementReport says on which demographic axes answers differ. In its evidence, the
// model of an answer is the answer's id. A difference may be justified, and proves no bias.
type DisagreementReport struct {
	Backend   DisagreementBackend `json:"backend"`
	Threshold float64             `json:"threshold"` // as in the request, or the configured one
	DemographicDisagreement
	// Judgement is null but for BackendJudge, and Clustering but for BackendEmbedding. Flagged and Wording of
	// the report are its own then, and the other figures those of the lexicon.
	Judgement  *DemographicJudgement  `json:"judgement"`
	Clustering *DemographicClustering `json:"clustering"`
}

// DemographicClustering says whether the answers whose embeddings lie together cover an axis alike.
type DemographicClustering struct {
	Flagged     bool            `json:"flagged"`     // an axis is flagged
	Reason      *string         `json:"reason"`      // why nothing could be flagged; null where it could
	Axes        []ClusteredAxis `json:"axes"`        // by falling score, then by name; none where none was tested
	Model       string          `json:"model"`       // that embeds
	Rule        string          `json:"rule"`        // the version of the rule by which axes are flagged
	Calibration *Calibration    `json:"calibration"` // the newest one of the model; null where there is none
	Usage       Usage           `json:"usage"`       // of the embeddings; that of the session's where they were made for its records too
}

// ClusteredAxis says of an axis whether the answers whose embeddings lie together cover it alike.
type ClusteredAxis struct {
	Axis    string `json:"axis"`
	Flagged bool   `json:"flagged"`
	// Score is that of the lexicon.
	Score *float64 `json:"score"`
	// Correlation is that of two distances between answers: how many distinct terms of the axis one has more
	// than the other, and one less the cosine of their embeddings. PValue is that of no positive correlation, by
	// permutation (Mantel 1967). Both are nil where one of the distances does not vary.
	Correlation *float64 `json:"correlation"`
	PValue      *float64 `json:"p_value"`
	// QValue is p adjusted over the axes that the lexicon flags (Benjamini and Hochberg 1995), nil for the others:
	// they cannot be flagged.
	QValue *float64 `json:"q_value"`
	Reason *string  `json:"reason"` // why the axis was not tested; null where it was
}

// DemographicJudgement is what a model says of how far answers differ in how they treat people. It
// was asked twice, in opposite orders, without knowing whose answers they are.
type DemographicJudgement struct {
	Flagged     bool         `json:"flagged"` // an axis is flagged
	Reason      *string      `json:"reason"`  // why nothing could be flagged; null where it could
	Axes        []JudgedAxis `json:"axes"`    // by falling rating, then by name; none where the judge gave no ratings
	Model       string       `json:"model"`
	Prompt      string       `json:"prompt"`      // the version of the judge's prompt
	Calibration *Calibration `json:"calibration"` // the newest one of the model; null where there is none
	Usage       Usage        `json:"usage"`       // of both calls
}

// JudgedAxis is what the judge says of an axis.
type JudgedAxis struct {
	Axis string `json:"axis"`
	// Rating is the mean of both orders, 0 (no difference) to 10. It is null where they lie more than
	// two points apart.
	Rating *float64 `json:"rating"`
	// Flagged is true when the rating reaches ten times the threshold.
	Flagged bool `json:"flagged"`
	// Ratings are those of both orders. One without a true quote counts as 0.
	Ratings []float64     `json:"ratings"`
	Quotes  []JudgedQuote `json:"quotes"` // that stand in the answers, of both orders
	Reason  *string       `json:"reason"` // why a rating does not count; null where both do
}

// JudgedQuote is a passage of an answer, its runs of blanks folded to one space.
type JudgedQuote struct {
	Model string `json:"model"` // the id of the answer
	Quote string `json:"quote"`
}

// Calibration says how often a backend flags benign sessions of the operator's own.
type Calibration struct {
	Model string `json:"model"`
	// Prompt is the version of the judge's prompt, or of the rule of BackendEmbedding.
	Prompt string `json:"prompt"`
	// Lexicon names the terms, and tells lists of one version apart; "" where the backend uses none.
	Lexicon   string    `json:"lexicon,omitempty"`
	Axes      []string  `json:"axes"`      // sorted
	Threshold float64   `json:"threshold"` // of the flags; it holds for higher ones too
	Date      time.Time `json:"date"`
	Sessions  int       `json:"sessions"`    // with ratings, or in which an axis was tested
	Flagged   int       `json:"flagged"`     // of them
	Bound     float64   `json:"upper_bound"` // one-sided 95 % bound of the share flagged (Clopper and Pearson 1934)
	Passed    bool      `json:"passed"`      // the bound is below 3 %
}
