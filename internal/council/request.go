package council

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"
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

// Plan is a Request that was validated and completed. It holds everything that shapes a
// run, so that a process with other settings can go on with it, and the same plan gives
// the same labels and orders. Its JSON is what a log keeps of it.
type Plan struct {
	SessionID    string        `json:"session_id"`
	Created      time.Time     `json:"created"`      // UTC; the time of the session's records
	Conversation []Message     `json:"conversation"` // at least one, the last from the user
	Members      []Member      `json:"members"`
	Reviewers    []Member      `json:"reviewers"`
	Chairmen     []Member      `json:"chairmen"` // in the order in which they are tried; after a single one, the other members by rank
	Seed         int64         `json:"seed"`
	Order        Order         `json:"order"`
	Timeout      time.Duration `json:"timeout_ns"`
	MaxCostUSD   *float64      `json:"max_cost_usd"` // nil: no limit
	// MaxTotalTokens counts input and output tokens of all calls; nil is no limit.
	MaxTotalTokens *int64    `json:"max_total_tokens"`
	OnPartial      OnPartial `json:"on_partial"`
	Category       string    `json:"category"`
	Language       string    `json:"language"`
	// Twins are seats of one model, of which Reviewers has one. Without them each seat judges all answers but its own, as in
	// plans of older versions.
	Twins Twins `json:"twins"`
	// Deltas reports the synthesis to the observer as it arrives. A front door that
	// streams sets it; a Request cannot.
	Deltas bool `json:"deltas"`
	// CouncilName is the name of the council in the roster; "" where there is no roster.
	CouncilName string `json:"council_name,omitempty"`
	Roster      string `json:"roster,omitempty"`     // the hash of the roster; "" where there is none
	DataClass   string `json:"data_class,omitempty"` // as in Request; "" where there are no classes
	// Chosen says that the request named the members, in place of those of the council.
	Chosen bool `json:"chosen,omitempty"`
	// AnswerDeltas reports the answers of the members too as they arrive. Only somebody who
	// sees the session's own events can see them.
	AnswerDeltas bool     `json:"answer_deltas"`
	Direct       bool     `json:"direct"` // as in Request
	Output       *Format  `json:"output"` // the form of the final answer; nil: free text
	Rules        Rules    `json:"rules"`
	Versions     Versions `json:"versions"`
	// Token names the caller's token in what is said of costs; "": no token is asked for. A front
	// door sets it.
	Token string `json:"token"`
	// MarkerKey makes the markers of the prompts, so that the same plan sends the same prompts; "": each
	// prompt has markers that are drawn for it. Who knows it can write the end of a block.
	MarkerKey string `json:"marker_key,omitempty"`
	// Sides look at the answers while the council goes on, in this order.
	Sides []SidePlan `json:"sides"`
	// Shadow says that reviewers compare the synthesis with the top-ranked answer after the session, and
	// ShadowRate in which share of sessions they do. LabelWanted is that of Metadata.
	Shadow      bool    `json:"shadow,omitempty"`
	ShadowRate  float64 `json:"shadow_rate,omitempty"` // 0 to 1
	LabelWanted bool    `json:"label_wanted,omitempty"`
	// User and Side are as in Request. A side request leaves no session in the history.
	User string `json:"user,omitempty"`
	Side bool   `json:"side,omitempty"`
	// Warnings are those with which the session begins.
	Warnings []Warning `json:"warnings"`
}

// Rules are the settings, besides those that a Request can change, that shape a run.
type Rules struct {
	Quorum          int              `json:"quorum"`             // 0: more than half of the members
	StragglerGrace  *time.Duration   `json:"straggler_grace_ns"` // how long a stage waits after a quorum; nil: until its deadline
	Sampling        Sampling         `json:"sampling"`           // of answers and the synthesis
	ReviewSampling  Sampling         `json:"review_sampling"`
	ReviewPrompt    string           `json:"review_prompt"` // the version of the reviewers' prompt
	BallotRepair    bool             `json:"ballot_repair"` // one more call when a reply holds no ballot or a partial one
	SelfReviewRate  float64          `json:"self_review_rate"`
	PartialBallots  PartialPolicy    `json:"partial_ballots"`
	Audit           *AuditThresholds `json:"audit"`             // nil: no per-session audit
	Consent         int              `json:"consent"`           // ADR-018's levels; 0 keeps no records
	Providers       []string         `json:"providers"`         // names that send a model elsewhere: "name:model"
	MaxSessionBytes int64            `json:"max_session_bytes"` // for its texts, and its prompts on their way; 0: no limit
	// DegradedNote says that a degraded session has a Note.
	DegradedNote bool `json:"degraded_note,omitempty"`
}

// AuditThresholds holds ADR-015's limits, above which a figure raises its flag.
type AuditThresholds struct {
	LengthCorrelation float64 `json:"length_correlation"` // of |r|, 0 to 1
	PositionVariance  float64 `json:"position_variance"`  // in squared points, 0 or more
}

// Request returns what was asked, in the form in which it can be asked again. Without
// Direct, the one model of a plan is not named: a council needs more.
func (p Plan) Request() Request {
	r := Request{
		Messages: p.Conversation, Seed: &p.Seed, Order: p.Order, MaxCostUSD: p.MaxCostUSD, MaxTotalTokens: p.MaxTotalTokens,
		OnPartial: p.OnPartial, Category: p.Category, Language: p.Language, DataClass: p.DataClass,
	}
	if len(p.Conversation) == 1 {
		r.Query = p.Conversation[0].Content
		r.Messages = nil
	}
	if p.Output != nil {
		r.OutputSchema = p.Output.Schema
	}
	if p.Timeout > 0 {
		r.TimeoutSeconds = new(p.Timeout.Seconds())
	}
	if p.Direct {
		return r
	}
	if p.CouncilName != "" && !p.Chosen {
		r.Council = p.CouncilName
	} else {
		for _, m := range p.Members {
			r.Models = append(r.Models, ModelOf(m.ID))
		}
	}
	if len(p.Chairmen) > 0 {
		r.Chairman = p.Chairmen[0].ID
	}
	return r
}

// DefaultCouncil names the council of a daemon that has one only.
const DefaultCouncil = "default"

// CouncilLabel names the council in what is said of costs.
func (p Plan) CouncilLabel() string { return cmp.Or(p.CouncilName, DefaultCouncil) }

// Council names the members and the chairman: sessions with the same name are of the same
// council.
func (p Plan) Council() string {
	names := make([]string, len(p.Members))
	for i, m := range p.Members {
		names[i] = m.ID
	}
	chairman := ""
	if len(p.Chairmen) > 0 && !p.Direct {
		chairman = p.Chairmen[0].ID
	}
	return strings.Join(names, ",") + ";" + chairman
}

// ModelOf returns the model of a seat by its id.
func (p Plan) ModelOf(member string) string {
	for _, m := range slices.Concat(p.Members, p.Reviewers, p.Chairmen) {
		if m.ID == member {
			return m.Model
		}
	}
	return ModelOf(member)
}

// Question returns the conversation as one text: a single question alone, and several
// turns each under its role.
func (p Plan) Question() string {
	if len(p.Conversation) == 1 {
		return p.Conversation[0].Content
	}
	turns := make([]string, len(p.Conversation))
	for i, m := range p.Conversation {
		turns[i] = m.Role + ":\n" + m.Content
	}
	return strings.Join(turns, "\n\n")
}

// maxPreview is the most characters of a preview.
const maxPreview = 200

// Preview returns the beginning of the last question of the conversation on one line,
// of at most 200 characters: the last one is "…" where there is more.
func (p Plan) Preview() string {
	if len(p.Conversation) == 0 {
		return ""
	}
	question := p.Conversation[len(p.Conversation)-1].Content
	preview := make([]rune, 0, min(len(question), maxPreview+1))
	space := false
	for _, r := range question {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = len(preview) > 0
			continue
		}
		if space {
			preview = append(preview, ' ')
			space = false
		}
		if preview = append(preview, r); len(preview) > maxPreview {
			return strings.TrimRight(string(preview[:maxPreview-1]), " ") + "…"
		}
	}
	return string(preview)
}

// Session returns the session of a plan before anything has happened in it.
func (p Plan) Session() *Session {
	return &Session{
		ID: p.SessionID, Status: StatusRunning, Created: p.Created, Query: p.Preview(), Council: p.CouncilLabel(), User: p.User,
		Degradation: []Degradation{}, Stage1: make([]Answer, 0, len(p.Members)), Stage2: make([]Review, 0, len(p.Reviewers)),
		Metadata: Metadata{
			ReviewerPositionMapping: map[string]map[string]int{},
			Tally: Tally{AggregateRankings: []Standing{}, Agreement: Agreement{
				Level: AgreementUnknown, Sentence: AgreementUnknown.Sentence(),
				Copeland: map[string]float64{}, Pairwise: map[string]map[string]int{}, WinnerSupport: []Support{},
				LeaveOneOut: []Omission{},
			}},
			Seed: p.Seed, Order: p.Order, Warnings: append([]Warning{}, p.Warnings...), Versions: p.Versions, LabelWanted: p.LabelWanted,
			Usage: TotalUsage{ByStage: map[Stage]Usage{}, ByModel: map[string]Usage{}},
		},
	}
}
