package council

import (
	"encoding/json"
	"time"
)

// DisagreementBackend names a method to find demographic axes on which answers differ.
type DisagreementBackend string

// The backends.
const (
	// BackendLexicon compares how often the answers use the terms of each axis.
	BackendLexicon DisagreementBackend = "lexicon"
	// BackendJudge asks a model how far the answers differ in how they treat people.
	BackendJudge DisagreementBackend = "llm_judge"
	// BackendEmbedding tests whether answers with similar embeddings use similar terms of each axis.
	BackendEmbedding DisagreementBackend = "embedding"
)

// Asks reports whether the backend calls a model, and so costs money.
func (b DisagreementBackend) Asks() bool { return b == BackendJudge || b == BackendEmbedding }

// A DisagreementRequest holds MinCompared to MaxCompared answers.
const (
	MinCompared = 2
	MaxCompared = 32
)

// DisagreementRequest asks on which demographic axes some answers differ. It is the body of
// POST /v1/disagreement.
type DisagreementRequest struct {
	// Question is optional. Terms that stand in the question do not count in the answers.
	Question string           `json:"question,omitempty"`
	Answers  []ComparedAnswer `json:"answers"`
	// Backend is BackendLexicon by default.
	Backend DisagreementBackend `json:"backend,omitempty"`
	// Lexicon is the text of a lexicon file. It replaces the configured list of terms.
	Lexicon json.RawMessage `json:"lexicon,omitempty"`
	// Threshold is the score, 0 to 1, from which an axis may be flagged. Nil stands for the configured threshold.
	Threshold *float64 `json:"threshold,omitempty"`
	// Token names the caller's token, to which calls are charged. It is "" if the daemon requires no token. A front
	// door sets it.
	Token string `json:"-"`
}

// ComparedAnswer is one of the answers that are compared.
type ComparedAnswer struct {
	ID   string `json:"id"` // 1 to 200 bytes, unique in the request
	Text string `json:"text"`
}

// DisagreementReport says on which demographic axes answers differ. In the evidence, DemographicEvidence.Model has the
// id of an answer. A difference may be justified, and proves no bias.
type DisagreementReport struct {
	Backend   DisagreementBackend `json:"backend"`
	Threshold float64             `json:"threshold"` // the threshold of the request, or the configured one
	DemographicDisagreement
	// Judgement is null unless Backend is BackendJudge. Clustering is null unless Backend is BackendEmbedding. If one of
	// them is set, Flagged and Wording of the report come from it. The other figures always come from the lexicon.
	Judgement  *DemographicJudgement  `json:"judgement"`
	Clustering *DemographicClustering `json:"clustering"`
}

// DemographicClustering is the finding of BackendEmbedding.
type DemographicClustering struct {
	Flagged bool    `json:"flagged"` // true if an axis is flagged
	Reason  *string `json:"reason"`  // why nothing could be flagged, or null
	// Axes are sorted by falling score, then by name. There are none if no axis was tested.
	Axes        []ClusteredAxis `json:"axes"`
	Model       string          `json:"model"`       // the model that embeds
	Rule        string          `json:"rule"`        // the version of the rule by which axes are flagged
	Calibration *Calibration    `json:"calibration"` // the newest calibration of the model, or null
	// Usage is the usage of the call that made the embeddings. If the session's records needed the embeddings too, this
	// usage is part of the session's usage.
	Usage Usage `json:"usage"`
}

// ClusteredAxis is the finding of BackendEmbedding for one axis.
type ClusteredAxis struct {
	Axis    string `json:"axis"`
	Flagged bool   `json:"flagged"`
	// Score is the score of the lexicon, as in DemographicAxis.
	Score *float64 `json:"score"`
	// Correlation compares two distances between answers. The first distance is how many more distinct terms of the
	// axis one answer has than the other. The second is one minus the cosine of their embeddings. PValue is the
	// probability of such a correlation by chance, from permutations (Mantel 1967). Correlation and PValue are nil if
	// one of the distances does not vary.
	Correlation *float64 `json:"correlation"`
	PValue      *float64 `json:"p_value"`
	// QValue is PValue adjusted over the axes that the lexicon flags (Benjamini and Hochberg 1995). It is nil for all
	// other axes, which cannot be flagged.
	QValue *float64 `json:"q_value"`
	Reason *string  `json:"reason"` // why the axis was not tested, or null
}

// DemographicJudgement is the finding of BackendJudge. The model was asked twice, with the answers in opposite orders,
// and was not told who wrote which answer.
type DemographicJudgement struct {
	Flagged bool    `json:"flagged"` // true if an axis is flagged
	Reason  *string `json:"reason"`  // why nothing could be flagged, or null
	// Axes are sorted by falling rating, then by name. There are none if the judge gave no ratings.
	Axes        []JudgedAxis `json:"axes"`
	Model       string       `json:"model"`
	Prompt      string       `json:"prompt"`      // the version of the judge's prompt
	Calibration *Calibration `json:"calibration"` // the newest calibration of the model, or null
	Usage       Usage        `json:"usage"`       // the sum of both calls
}

// JudgedAxis is the finding of BackendJudge for one axis.
type JudgedAxis struct {
	Axis string `json:"axis"`
	// Rating is the mean of the ratings in both orders, 0 (no difference) to 10. It is null if these two ratings differ by
	// more than two points.
	Rating *float64 `json:"rating"`
	// Flagged is true if the rating is above 0 and reaches ten times the threshold, unless DemographicJudgement.Reason
	// is set.
	Flagged bool `json:"flagged"`
	// Ratings has the rating in each order. A rating counts as 0 if none of its quotes is in the answers.
	Ratings []float64 `json:"ratings"`
	// Quotes are the judge's quotes that are in the answers, from both orders.
	Quotes []JudgedQuote `json:"quotes"`
	Reason *string       `json:"reason"` // why a rating does not count, or null
}

// JudgedQuote is a passage of an answer. Each run of white space in it is one space.
type JudgedQuote struct {
	Model string `json:"model"` // the id of the answer
	Quote string `json:"quote"`
}

// Calibration says how often a backend flags a session wrongly. It was measured on the operator's own sessions in which
// nothing should be flagged.
type Calibration struct {
	Model string `json:"model"`
	// Prompt is the version of the judge's prompt, or of the rule of BackendEmbedding.
	Prompt string `json:"prompt"`
	// Lexicon identifies the list of terms. It differs between lists of the same version. It is "" if the backend uses no
	// list.
	Lexicon string   `json:"lexicon,omitempty"`
	Axes    []string `json:"axes"` // sorted
	// Threshold is the score from which an axis was flagged. The calibration is valid for higher thresholds too.
	Threshold float64   `json:"threshold"`
	Date      time.Time `json:"date"`
	Sessions  int       `json:"sessions"` // how many sessions had ratings or a tested axis
	Flagged   int       `json:"flagged"`  // how many of Sessions were flagged
	// Bound is a one-sided upper 95 % bound for the share of flagged sessions (Clopper and Pearson 1934).
	Bound  float64 `json:"upper_bound"`
	Passed bool    `json:"passed"` // true if Bound is below 3 %
}
