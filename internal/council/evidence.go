package council

import "time"

// The schema versions of the records in an evidence file, which holds [ShadowRecord]s and [LabelRecord]s.
const (
	ShadowSchema = "shadow/1"
	LabelSchema  = "label/1"
)

// Choice says which of two texts a reviewer or a person prefers, or that neither is better.
type Choice string

// The choices. A person may also choose the answer of a member, by the member's id.
const (
	ChoiceSynthesis Choice = "synthesis" // the final answer
	ChoiceTop       Choice = "top"       // the answer that the council ranked first
	ChoiceTie       Choice = "tie"
)

// Value returns how much a choice counts for the synthesis: 1 for the synthesis, 0 for the top-ranked answer, and 0.5
// for a tie. It returns nil for any other choice.
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

// ShadowRecord says whether reviewers prefer the synthesis of a session or its top-ranked answer. The reviewers wrote
// neither text. The record does not contain the texts.
type ShadowRecord struct {
	SchemaVersion string    `json:"schema_version"` // ShadowSchema
	SessionID     string    `json:"session_id"`
	Timestamp     time.Time `json:"timestamp"` // start of the session, UTC
	Rate          float64   `json:"rate"`      // the share of sessions drawn for a comparison, 0 to 1
	// Wanted says that people are asked about the session, as Metadata.LabelWanted does. Reviewers then compare the two
	// texts even if the session was not drawn for a comparison. The record may then have no reviews.
	Wanted        bool          `json:"label_wanted"`
	CouncilConfig string        `json:"council_config_version"`
	Prompt        string        `json:"prompt_version"`
	Chairman      string        `json:"chairman"`  // the member that wrote the synthesis
	TopModel      string        `json:"top_model"` // the member that wrote the top-ranked answer
	Lengths       ShadowLengths `json:"lengths"`
	QueryMetadata QueryMetadata `json:"query_metadata"`
	// QueryHash and QuestionKey are as in BiasMetricRecord. Old records have no QuestionKey.
	QueryHash   *string        `json:"query_hash"`
	QuestionKey *string        `json:"question_key"`
	Reviewers   []ShadowReview `json:"reviewers"` // in the order of the session's reviewers
}

// ShadowLengths are the lengths of two texts, in Unicode code points.
type ShadowLengths struct {
	Synthesis int `json:"synthesis"`
	Top       int `json:"top"`
}

// ShadowReview is the choice of one reviewer between the two texts.
type ShadowReview struct {
	ID     string  `json:"id"`     // the id of the reviewer's seat
	First  Choice  `json:"first"`  // the text that the reviewer read first: ChoiceSynthesis or ChoiceTop
	Choice *Choice `json:"choice"` // null if the reviewer made no choice
	Status Outcome `json:"status"` // OutcomeOK, OutcomeInvalid for a reply without a choice, or OutcomeError
}

// Feedback is a person's opinion about a session that has ended. It is the body of
// POST /v1/council/{id}/feedback, and holds Preferred, Rating, or both.
type Feedback struct {
	// Preferred is the id of the member whose answer the person prefers to all others in Over. It may also be
	// "synthesis" or "tie".
	Preferred string `json:"preferred,omitempty"`
	// Over names all texts that the person saw, by member id or "synthesis".
	Over   []string `json:"over,omitempty"`
	Rating *int     `json:"rating,omitempty"` // of the final answer, 1 to 5
	// By distinguishes persons who share a token. If it is "", the token's name takes its place.
	By string `json:"by,omitempty"`
}

// Kept is the answer to a Feedback. It has the parts of the Feedback that are kept.
type Kept struct {
	SessionID string   `json:"session_id"`
	Preferred *string  `json:"preferred"`
	Over      []string `json:"over"` // sorted, each once, without Preferred
	Rating    *int     `json:"rating"`
	By        string   `json:"by"` // 16 hexadecimal digits of a keyed hash
}

// LabelRecord is a person's opinion about a session, together with the council's ranking of the answers that the person
// saw. If a person sends several opinions on one session, the last one counts. The record contains no text.
type LabelRecord struct {
	SchemaVersion string    `json:"schema_version"` // LabelSchema
	Timestamp     time.Time `json:"timestamp"`      // start of the session, UTC
	Labelled      time.Time `json:"labelled_at"`    // when the person sent the feedback, UTC
	// Wanted is Metadata.LabelWanted. It says that the session was drawn at random, and not chosen by the person.
	Wanted        bool   `json:"label_wanted"`
	CouncilConfig string `json:"council_config_version"`
	// Chairman is the member that wrote the synthesis. It is null if a fallback took the place of the synthesis.
	Chairman *string `json:"chairman"`
	TopModel *string `json:"top_model"` // null without a ranking
	// QueryMetadata has what the caller said about the question, but not the question's size.
	QueryMetadata QueryMetadata `json:"query_metadata"`
	Kept
	Borda   map[string]float64 `json:"borda"`   // the Borda scores of the members that the person saw, by id
	Ballots []LabelBallot      `json:"ballots"` // the ballots that rank some of these members
}

// LabelBallot is the order in which a reviewer ranked the answers that a person saw.
type LabelBallot struct {
	ID string `json:"id"` // the id of the reviewer's seat
	// Places has the rank of each member by id. The best rank is 0, and tied members share a rank.
	Places map[string]int `json:"places"`
}
