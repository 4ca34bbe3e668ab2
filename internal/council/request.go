package council

import (
	"encoding/json"
	"strings"
)

// MaxSeed is the largest session seed, 2^53 - 1. It is the largest integer that every JSON parser reads exactly.
const MaxSeed = 1<<53 - 1

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user" or "assistant"
	Content string `json:"content"`
}

// The roles of a Message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Order says how the orders of the reviewers' slates are drawn (ADR-017).
type Order string

// The values of Order.
const (
	OrderBalanced    Order = "balanced"     // Every answer is shown about equally often in every position.
	OrderPerReviewer Order = "per_reviewer" // an independent shuffle for each reviewer
	OrderShared      Order = "shared"       // one order for all
)

// OrderChoices names the orders in messages.
const OrderChoices = "balanced, per_reviewer or shared"

// Known reports whether o is one of the orders above.
func (o Order) Known() bool {
	return o == OrderBalanced || o == OrderPerReviewer || o == OrderShared
}

// PartialPolicy says how a ballot counts for the candidates that it leaves out.
type PartialPolicy string

// The policies for partial ballots.
const (
	// Candidates that the ballot leaves out get no points and no vote (ADR-007).
	PolicyAvailable PartialPolicy = "available"
	// Candidates that the ballot leaves out share the last places, and the ballot counts as a vote on them.
	PolicyTiedLast PartialPolicy = "tied_last"
)

// OnPartial says whether a degraded result may be returned.
type OnPartial string

// The values of OnPartial.
const (
	PartialAccept OnPartial = "accept"
	PartialRefuse OnPartial = "refuse"
)

// Categories returns the subjects that a caller can give for a question.
func Categories() []string {
	return []string{"coding", "math", "writing", "reasoning", "knowledge", "other"}
}

// IsLanguage reports whether a text has the form of an ISO 639-1 code.
func IsLanguage(code string) bool {
	return len(code) == 2 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz") == ""
}

// Request is the question of a caller. The question is Query or Messages. The zero value of any other field stands for
// the configured default.
type Request struct {
	Query    string    `json:"query,omitempty"`
	Messages []Message `json:"messages,omitempty"`
	Models   []string  `json:"models,omitempty"`
	Council  string    `json:"council,omitempty"` // the name of a configured council, in place of Models
	Chairman string    `json:"chairman,omitempty"`
	Mode     Mode      `json:"mode,omitempty"`
	// First is how many members begin (see Plan.First). It is at least 1, and less than the number of members.
	First *int `json:"first,omitempty"`
	// AnswerForm is the form in which members answer. ModeVote needs it, and First needs it to compare answers.
	AnswerForm     *AnswerForm `json:"answer_form,omitempty"`
	Seed           *int64      `json:"seed,omitempty"` // 0 to MaxSeed, or -1, which means the same as nil
	Order          Order       `json:"order,omitempty"`
	TimeoutSeconds *float64    `json:"timeout_seconds,omitempty"`
	MaxCostUSD     *float64    `json:"max_cost_usd,omitempty"`
	MaxTotalTokens *int64      `json:"max_total_tokens,omitempty"`
	OnPartial      OnPartial   `json:"on_partial,omitempty"` // PartialAccept by default
	Category       string      `json:"category,omitempty"`   // one of Categories
	Language       string      `json:"language,omitempty"`   // ISO 639-1
	// DataClass is one of the roster's classes. The default is the class of the council, or the highest class.
	DataClass string `json:"data_class,omitempty"`
	// OutputSchema is a JSON Schema that the final answer has to fit. {"type": "object"} asks for any JSON object. If it
	// is empty, the answer is free text.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`

	// HTTP handlers set all fields from here on. They are not in the JSON of a request.

	// OutputName and OutputStrict become Name and Strict of Plan.Output.
	OutputName   string `json:"-"`
	OutputStrict bool   `json:"-"`
	// Direct asks the one model of Models in ModeSingle, if the request names no Mode.
	Direct bool `json:"-"`
	// Whole says that all members are asked at once, whatever the configuration says. Without a Mode, the mode is
	// ModeCouncil.
	Whole bool `json:"-"`
	// Map asks for a map. It has no effect if the session cannot have one, or if the configuration turns maps off.
	Map bool `json:"-"`
	// Side says that a chat program asks for its own use, such as for a title. One member is enough to answer.
	Side bool `json:"-"`
	Caller
}

// Caller is what an HTTP handler knows of the caller of a request.
type Caller struct {
	// Token names the caller's token. It is "" if the daemon requires no token.
	Token string `json:"-"`
	// User names the person for whom the caller asks. It is "" if the caller names none.
	User string `json:"-"`
	// Tools is the name of the body field that offers tools, such as "tools" or "functions". It is "" if the body
	// offers none. Requests that require a tool call are refused earlier and do not set it.
	Tools string `json:"-"`
	// Questions are questions about the conversation. If Questions is not nil, seats vote on them, and no seat answers the
	// conversation itself.
	Questions []VoteQuestion `json:"-"`
	// Warnings are added to the warnings of the session.
	Warnings []Warning `json:"-"`
}

// ToolsPolicy says what a council does with a request that offers tools and does not require the model to call one.
type ToolsPolicy string

// The policies for tools.
const (
	ToolsRefuse ToolsPolicy = "refuse" // the request is refused
	ToolsIgnore ToolsPolicy = "ignore" // the council answers in text, with a warning
)

// The setting for side requests (see Request.Side) has one of these values, or the name of a model.
const (
	SideMember  = "member"  // the first member
	SideCouncil = "council" // the whole council
)
