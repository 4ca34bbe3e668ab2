package council

import "time"

// The schemas of the records in an evidence file.
const (
	ShadowSchema = "shadow/1"
	LabelSchema  = "label/1"
)

// Choice is which of two texts somebody prefers, or that neither is better.
type Choice string

// The choices. A member's id names its answer where a person chooses.
const (
	ChoiceSynthesis Choice = "synthesis" // the final answer
	ChoiceTop       Choice = "top"       // the answer that the council ranked first
	ChoiceTie       Choice = "tie"
)

// Value returns how much of a choice goes to the synthesis: 1, 0, or .5 for a tie. It is nil
// for anything else.
func (c Choice) Value() *float64 {
	switch c {
	case ChoiceSynthesis:
		return new(1.0)
	case ChoiceTop:
		return new(0.0)
	case ChoiceTie:
		return new(0.5)
	default:
		return nil
	}
}

// ShadowRecord is what reviewers that wrote neither text made of the synthesis of a session and of
// its top-ranked answer. It holds no text.
type ShadowRecord struct {
	SchemaVersion string         `json:"schema_version"` // ShadowSchema
	SessionID     string         `json:"session_id"`
	Timestamp     time.Time      `json:"timestamp"`    // start of the session, UTC
	Rate          float64        `json:"rate"`         // the share of sessions that was drawn, 0 to 1
	Wanted        bool           `json:"label_wanted"` // as in Metadata; such a session is always in
	CouncilConfig string         `json:"council_config_version"`
	Prompt        string         `json:"prompt_version"`
	Chairman      string         `json:"chairman"`  // the member that wrote the synthesis
	TopModel      string         `json:"top_model"` // the member that wrote the top-ranked answer
	Lengths       ShadowLengths  `json:"lengths"`
	QueryMetadata QueryMetadata  `json:"query_metadata"`
	QueryHash     *string        `json:"query_hash"`   // as in BiasMetricRecord
	QuestionKey   *string        `json:"question_key"` // likewise; null in records from before there were any
	Reviewers     []ShadowReview `json:"reviewers"`    // in the order of the session's reviewers
}

// ShadowLengths are the lengths of two texts, in Unicode code points.
type ShadowLengths struct {
	Synthesis int `json:"synthesis"`
	Top       int `json:"top"`
}

// ShadowReview is what one reviewer said of the two texts.
type ShadowReview struct {
	ID     string  `json:"id"`     // of the reviewer's seat
	First  Choice  `json:"first"`  // the text that it was shown first: ChoiceSynthesis or ChoiceTop
	Choice *Choice `json:"choice"` // null where it made none
	Status Outcome `json:"status"` // OutcomeOK, OutcomeInvalid for a reply without a choice, or OutcomeError
}

// Feedback is what a person says of a session that has ended: the body of POST
// /v1/council/{id}/feedback. It holds Preferred, Rating, or both.
type Feedback struct {
	// Preferred is the id of a member whose answer the person prefers to all others in Over, or
	// "synthesis", or "tie".
	Preferred string `json:"preferred,omitempty"`
	// Over names everything that the person saw, in the same words.
	Over   []string `json:"over,omitempty"`
	Rating *int     `json:"rating,omitempty"` // of the final answer, 1 to 5
	// By tells persons of one token apart; "": the token's name.
	By string `json:"by,omitempty"`
}

// Kept is the answer to a Feedback: what is kept of it.
type Kept struct {
	SessionID string   `json:"session_id"`
	Preferred *string  `json:"preferred"`
	Over      []string `json:"over"` // sorted, each once, without Preferred
	Rating    *int     `json:"rating"`
	By        string   `json:"by"` // 16 hexadecimal digits of a keyed hash
}

// LabelRecord is what a person said of a session, with what the council had made of the answers that
// the person saw. Of records of one session and person, the last counts. It holds no text.
type LabelRecord struct {
	SchemaVersion string    `json:"schema_version"` // LabelSchema
	Timestamp     time.Time `json:"timestamp"`      // start of the session, UTC
	Labelled      time.Time `json:"labelled_at"`    // UTC
	Wanted        bool      `json:"label_wanted"`   // as in Metadata: the session was drawn, and did not choose itself
	CouncilConfig string    `json:"council_config_version"`
	Chairman      *string   `json:"chairman"`  // the member that wrote the synthesis; null where something took its place
	TopModel      *string   `json:"top_model"` // null where there is no ranking
	// QueryMetadata has what the caller said of the question; the size of the question is not told.
	QueryMetadata QueryMetadata `json:"query_metadata"`
	Kept
	Borda   map[string]float64 `json:"borda"`   // Borda scores of the members that the person saw, by id
	Ballots []LabelBallot      `json:"ballots"` // of reviewers that ranked some of them
}

// LabelBallot is the order in which a reviewer ranked answers that a person saw.
type LabelBallot struct {
	ID     string         `json:"id"`     // of the reviewer's seat
	Places map[string]int `json:"places"` // by member; 0 is the best, and members that tie share a place
}
