package council

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Plan is a Request that was validated and completed. It holds everything that shapes a
// run, so that a process with other settings can go on with it, and the same plan gives
// the same labels and orders. Its JSON is what a log keeps of it.
type Plan struct {
	SessionID    string      `json:"session_id"`
	Created      time.Time   `json:"created"`      // UTC; the time of the session's records
	Conversation []Message   `json:"conversation"` // at least one, the last from the user
	Stages       []StagePlan `json:"stages"`       // in the order in which they are performed
	Answer       Source      `json:"answer"`       // the result that is the answer
	Seed         int64       `json:"seed"`
	Order        Order       `json:"order"`
	Limits
	OnPartial OnPartial `json:"on_partial"`
	Category  string    `json:"category"`
	Language  string    `json:"language"`
	// Twins are seats of one model, of which the reviewers have one. Without them each seat judges all answers but its own, as in
	// plans of older versions.
	Twins Twins `json:"twins"`
	// Deltas reports the synthesis to the observer as it arrives. A front door that
	// streams sets it; a Request cannot.
	Deltas bool `json:"deltas"`
	Lineup
	// AnswerDeltas reports the answers of the members too as they arrive. Only somebody who
	// sees the session's own events can see them.
	AnswerDeltas bool     `json:"answer_deltas"`
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
	Measured
	// User and Side are as in Request. A side request leaves no session in the history.
	User string `json:"user,omitempty"`
	Side bool   `json:"side,omitempty"`
	// Warnings are those with which the session begins.
	Warnings []Warning `json:"warnings"`
}

// Limits bounds a session.
type Limits struct {
	Timeout    time.Duration `json:"timeout_ns"`   // the most that it may take
	MaxCostUSD *float64      `json:"max_cost_usd"` // nil: no limit
	// MaxTotalTokens counts input and output tokens of all calls; nil is no limit.
	MaxTotalTokens *int64 `json:"max_total_tokens"`
}

// Lineup says which council of the roster is asked.
type Lineup struct {
	CouncilName string `json:"council_name,omitempty"` // "" where there is no roster
	Roster      string `json:"roster,omitempty"`       // the hash of the roster
	DataClass   string `json:"data_class,omitempty"`   // as in Request; "" where there are no classes
	// Chosen says that the request named the members, in place of those of the council.
	Chosen bool `json:"chosen,omitempty"`
}

// Measured says what a session measures of councils beside its answer.
type Measured struct {
	// Shadow says that reviewers compare the synthesis with the top-ranked answer after the session, and
	// ShadowRate in which share of sessions they do. LabelWanted is that of Metadata.
	Shadow      bool    `json:"shadow,omitempty"`
	ShadowRate  float64 `json:"shadow_rate,omitempty"` // 0 to 1
	LabelWanted bool    `json:"label_wanted,omitempty"`
}

// Source is the result of a session that is its answer.
type Source string

// The sources of an answer.
const (
	SourceSynthesis Source = "synthesis" // what the chairman writes
	SourceOnly      Source = "only"      // the answer of the only member
)

// Kind is what a stage does.
type Kind string

// The kinds of stages.
const (
	KindAnswers    Kind = "answers"    // each seat answers the conversation
	KindGiven      Kind = "given"      // takes answers that exist already; nobody is asked
	KindReviews    Kind = "reviews"    // each seat ranks the answers of the others
	KindComparison Kind = "comparison" // each seat says which of two given texts is better
	KindSynthesis  Kind = "synthesis"  // the first seat that succeeds writes the final answer
)

// Stage returns the name of the stage in events, failures and usage; "" for a kind that makes no calls.
func (k Kind) Stage() Stage {
	return map[Kind]Stage{
		KindAnswers: Stage1, KindReviews: Stage2, KindSynthesis: Stage3, KindComparison: StageShadow,
	}[k]
}

// StagePlan is one step of a plan.
type StagePlan struct {
	Kind Kind `json:"kind"`
	// Seats are those that are asked, or whose answers are given. Those of a synthesis are tried in their order; after a
	// single one, the other members by rank.
	Seats []Member `json:"seats"`
	// Given is the answers, by the id of their author, of KindGiven and KindComparison.
	Given map[string]string `json:"given"`
	// Reviews are reviews of the given answers that exist already; nil: there are none. A plan that has them is kept in no log.
	Reviews *GivenReviews `json:"-"`
	// TimeEnd is the share of the time budget by which the stage ends, and MoneyEnd that of the limits of cost and tokens
	// which may be spent by then, 0 to 1. What a stage leaves passes on to the next ones.
	TimeEnd  float64 `json:"time_end"`
	MoneyEnd float64 `json:"money_end"`
	Prompt   string  `json:"prompt"` // the version of its prompt; "": the conversation is the prompt
}

// GivenReviews are reviews that exist already, and what they add up to.
type GivenReviews struct {
	Reviews   []Review
	Standings []Standing
	Agreement Agreement
}

// Seats returns the seats of the first stage of a kind.
func (p Plan) Seats(kind Kind) []Member { return p.Stage(kind).Seats }

// Stage returns the first stage of a kind; the zero value if there is none.
func (p Plan) Stage(kind Kind) StagePlan {
	for _, s := range p.Stages {
		if s.Kind == kind {
			return s
		}
	}
	return StagePlan{}
}

// Members returns the seats that answer, or whose answers are given.
func (p Plan) Members() []Member {
	if given := p.Seats(KindGiven); given != nil {
		return given
	}
	return p.Seats(KindAnswers)
}

// Reviewers returns the seats that rank the answers.
func (p Plan) Reviewers() []Member { return p.Seats(KindReviews) }

// Chairmen returns the seats that may write the final answer, in the order in which they are tried.
func (p Plan) Chairmen() []Member {
	if p.Direct() {
		return p.Members()
	}
	return p.Seats(KindSynthesis)
}

// Direct reports whether the answer of the only member is the final one.
func (p Plan) Direct() bool { return p.Answer == SourceOnly }

// The shares of time and money by which the stages of a council end.
const (
	answersTime, answersMoney = 0.4, 0.5
	reviewsTime, reviewsMoney = 0.8, 0.8
)

// Stages returns the stages of a council: the members answer, the reviewers rank, and the first of the chairmen that
// succeeds writes.
func Stages(members, reviewers, chairmen []Member) []StagePlan {
	return []StagePlan{
		{Kind: KindAnswers, Seats: members, TimeEnd: answersTime, MoneyEnd: answersMoney},
		{Kind: KindReviews, Seats: reviewers, TimeEnd: reviewsTime, MoneyEnd: reviewsMoney},
		{Kind: KindSynthesis, Seats: chairmen, TimeEnd: 1, MoneyEnd: 1},
	}
}

// Rules are the settings, besides those that a Request can change, that shape a run.
type Rules struct {
	Quorum          int              `json:"quorum"`             // 0: more than half of the members
	StragglerGrace  *time.Duration   `json:"straggler_grace_ns"` // how long a stage waits after a quorum; nil: until its deadline
	Sampling        Sampling         `json:"sampling"`           // of answers and the synthesis
	ReviewSampling  Sampling         `json:"review_sampling"`
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
	LengthCorrelation float64 `json:"length_correlation"` // of |r|, 0 to 1; ADR-015 suggests 0.3
	PositionVariance  float64 `json:"position_variance"`  // in squared points, 0 or more; ADR-015 suggests 0.5
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
	if p.Direct() {
		return r
	}
	if p.CouncilName != "" && !p.Chosen {
		r.Council = p.CouncilName
	} else {
		for _, m := range p.Members() {
			r.Models = append(r.Models, ModelOf(m.ID))
		}
	}
	if len(p.Chairmen()) > 0 {
		r.Chairman = p.Chairmen()[0].ID
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
	names := make([]string, len(p.Members()))
	for i, m := range p.Members() {
		names[i] = m.ID
	}
	chairman := ""
	if len(p.Chairmen()) > 0 && !p.Direct() {
		chairman = p.Chairmen()[0].ID
	}
	return strings.Join(names, ",") + ";" + chairman
}

// ModelOf returns the model of a seat by its id.
func (p Plan) ModelOf(member string) string {
	for _, m := range slices.Concat(p.Members(), p.Reviewers(), p.Chairmen()) {
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
		Degradation: []Degradation{}, Stage1: make([]Answer, 0, len(p.Members())), Stage2: make([]Review, 0, len(p.Reviewers())),
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
