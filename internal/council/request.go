package council

import (
	"encoding/json"
	"strings"
)

// MaxSeed is the largest session seed: the largest integer that every JSON parser reads
// exactly (2^53 - 1).
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

// Order is how the reviewers' presentation orders are drawn (ADR-017).
type Order string

// The orders.
const (
	OrderBalanced    Order = "balanced"     // every answer stands in every place as evenly as possible
	OrderPerReviewer Order = "per_reviewer" // an independent shuffle for each reviewer
	OrderShared      Order = "shared"       // one order for all
)

// OrderChoices names the orders in messages.
const OrderChoices = "balanced, per_reviewer or shared"

// Known reports whether there is such an order.
func (o Order) Known() bool {
	return o == OrderBalanced || o == OrderPerReviewer || o == OrderShared
}

// PartialPolicy says what a ballot that leaves out candidates means for them.
type PartialPolicy string

// The policies for partial ballots.
const (
	PolicyAvailable PartialPolicy = "available" // nothing: they get no points and no vote (ADR-007)
	PolicyTiedLast  PartialPolicy = "tied_last" // they share the last places, which counts as a vote on them
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

// Request is the question of a caller. The zero value of every field but the question
// stands for the configured default.
type Request struct {
	Query          string    `json:"query,omitempty"`
	Messages       []Message `json:"messages,omitempty"`
	Models         []string  `json:"models,omitempty"`
	Council        string    `json:"council,omitempty"` // name of a configured council, in place of Models
	Chairman       string    `json:"chairman,omitempty"`
	Seed           *int64    `json:"seed,omitempty"`  // 0 to MaxSeed; -1: as without one
	Order          Order     `json:"order,omitempty"` // default balanced
	TimeoutSeconds *float64  `json:"timeout_seconds,omitempty"`
	MaxCostUSD     *float64  `json:"max_cost_usd,omitempty"`
	MaxTotalTokens *int64    `json:"max_total_tokens,omitempty"`
	OnPartial      OnPartial `json:"on_partial,omitempty"` // default accept
	Category       string    `json:"category,omitempty"`
	Language       string    `json:"language,omitempty"`   // ISO 639-1
	DataClass      string    `json:"data_class,omitempty"` // of the roster's classes; default the council's, else the highest
	// OutputSchema is a JSON Schema that the final answer has to fit; {"type": "object"} asks for
	// any JSON object. Without it the answer is free text.
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// OutputName and OutputStrict are those of the Format. A front door sets them.
	OutputName   string `json:"-"`
	OutputStrict bool   `json:"-"`
	// Direct asks only the one model of Models: no review, no ranking, no records. A
	// front door sets it.
	Direct bool `json:"-"`
	// Token names the caller's token; "": no token is asked for. A front door sets it.
	Token string `json:"-"`
	// User names the person for whom the caller asks. It is "" where the caller names none. A front door sets this and the next fields.
	User string `json:"-"`
	// Tools is the name of the body's field that offers tools without requiring a call. It is "" where there are no such tools.
	Tools string `json:"-"`
	// Side says that a chat program asks for itself, such as for a title, so that one member is enough.
	Side bool `json:"-"`
	// Warnings are added to those of the session.
	Warnings []Warning `json:"-"`
}

// ToolsPolicy says what the council does with a request that offers tools and does not require a call.
type ToolsPolicy string

// The policies for tools.
const (
	ToolsRefuse ToolsPolicy = "refuse" // the request is refused
	ToolsIgnore ToolsPolicy = "ignore" // the council answers in text, with a warning
)

// What may stand in place of a model that answers side requests.
const (
	SideMember  = "member"  // the first member
	SideCouncil = "council" // the whole council
)
