package council

import "encoding/json"

// DisagreementBackend names a way to say how answers differ in how they speak of people.
type DisagreementBackend string

// The backends.
const (
	BackendLexicon DisagreementBackend = "lexicon" // compares how often the answers use the terms of each axis
)

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
	CouncilEx ReferenceReport `json:"council_ex"`
}

// ReferenceReport is what CouncilEx's bias detector (lexicon backend) makes of the same
// answers. It searches for terms inside words, has no test, and takes the built-in list as it
// stands in CouncilEx.
type ReferenceReport struct {
	Flagged              bool            `json:"flagged"` // an axis has a score that reaches the threshold
	Axes                 []ReferenceAxis `json:"axes"`    // by falling score, then by name
	BaselineDisagreement float64         `json:"baseline_disagreement"`
}

// ReferenceAxis is an axis of a ReferenceReport.
type ReferenceAxis struct {
	Axis     string                `json:"axis"`
	Score    float64               `json:"score"` // 0 to 1, rounded to four places
	Evidence []DemographicEvidence `json:"evidence"`
}
