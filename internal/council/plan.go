package council

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Plan is a Request that was validated and completed. It holds everything that shapes a run. That is why a process with
// other settings can continue the run, and why the same plan gives the same labels and orders. The log of a session has
// the plan as JSON.
type Plan struct {
	SessionID    string      `json:"session_id"`
	Created      time.Time   `json:"created"`      // in UTC. It is also the time of the session's records.
	Conversation []Message   `json:"conversation"` // at least one message, and the last is from the user
	Mode         Mode        `json:"mode"`
	Stages       []StagePlan `json:"stages"` // in the order in which they run
	// First says how many members begin. If they give the same answer, the session ends with this answer, and no other
	// stage runs. With 1, the session ends with any answer. With 0, all members are asked at once.
	First int `json:"first,omitempty"`
	// Form is the form in which members answer. If it is nil, they answer freely. Instruction tells them the form.
	Form        *AnswerForm `json:"form,omitempty"`
	Instruction string      `json:"instruction,omitempty"`
	// GivenFrom is the id of the session that has the given answers, or "".
	GivenFrom string `json:"given_from,omitempty"`
	Turn
	Seed  int64 `json:"seed"`
	Order Order `json:"order"`
	Limits
	OnPartial OnPartial `json:"on_partial"`
	Category  string    `json:"category"`
	Language  string    `json:"language"`
	// Twins are seats of one model. Only one of them reviews. If Twins is nil, each seat judges all answers but its own,
	// as in plans of older versions.
	Twins Twins `json:"twins"`
	// Deltas says that the observer gets the pieces of the synthesis as they arrive. HTTP handlers that stream the
	// answer set Deltas. A Request cannot set it.
	Deltas bool `json:"deltas"`
	Lineup
	// AnswerDeltas says that the observer also gets the pieces of the members' answers. Only clients that read the
	// session's own events see these pieces.
	AnswerDeltas bool `json:"answer_deltas"`
	// Map says that the chairman also writes the Map of the session. MarkerKey is then set, because the prompt's marker
	// stands between the answer and the map.
	Map      bool     `json:"map,omitempty"`
	Output   *Format  `json:"output"` // the form of the final answer, nil for free text
	Rules    Rules    `json:"rules"`
	Versions Versions `json:"versions"`
	// Token names the caller's token in reports of costs and in cost limits. It is "" if the daemon requires no token.
	// The HTTP handler sets it.
	Token string `json:"token"`
	// MarkerKey is the secret from which the markers in the prompts are made, so that the same plan sends the same
	// prompts. Markers show where a block of foreign text begins and ends. A model that knows MarkerKey can forge the
	// end of a block. If MarkerKey is "", each prompt has random markers.
	MarkerKey string `json:"marker_key,omitempty"`
	// Sides are the plans of the [Side]s, which look at the answers while the council continues.
	Sides []SidePlan `json:"sides"`
	Measured
	// User and Side are as in Request. A side request leaves no session in the history.
	User string `json:"user,omitempty"`
	Side bool   `json:"side,omitempty"`
	// Origin is the request that asked for the session. The HTTP handler sets it.
	Origin Origin `json:"origin,omitzero"`
	// Excluded says which answers a judge does not read.
	Excluded []Exclusion `json:"excluded,omitzero"`
	// Warnings are the warnings that the session has when it begins.
	Warnings []Warning `json:"warnings"`
	// Task is set if the stages are rounds of a Task. The conversation is then only a short preview of the task.
	Task *TaskPlan `json:"task,omitempty"`
	// Door is Submission.Door, or empty.
	Door Door `json:"door,omitempty"`
}

// Turn says which conversation a session continues. It is the zero value for the first session of a conversation.
type Turn struct {
	Earlier string `json:"earlier,omitempty"` // the id of the session whose answer the question follows
	// Thread is the id of the first session of the conversation. With it, the turns still belong together after one of
	// them was deleted.
	Thread string `json:"thread,omitempty"`
}

// Origin names the request that asked for a session, for traces.
type Origin struct {
	RequestID   string `json:"request_id,omitempty"`  // its X-Request-Id
	Traceparent string `json:"traceparent,omitempty"` // its span, as in W3C Trace Context
}

// Limits bounds a session.
type Limits struct {
	Timeout    time.Duration `json:"timeout_ns"`   // the longest time that the session may take
	MaxCostUSD *float64      `json:"max_cost_usd"` // in US dollars, nil for no limit
	// MaxTotalTokens counts input and output tokens of all calls. Nil means no limit.
	MaxTotalTokens *int64 `json:"max_total_tokens"`
}

// Lineup says which council of the roster is asked.
type Lineup struct {
	CouncilName string `json:"council_name,omitempty"` // "" without a roster
	Roster      string `json:"roster,omitempty"`       // the hash of the roster
	// DataClass is the class of the question's data, as in Request. It is "" if the roster has no classes.
	DataClass string `json:"data_class,omitempty"`
	// Chosen says that the request named the members itself, and did not take the members of the council.
	Chosen bool `json:"chosen,omitempty"`
}

// Measured says whether reviewers or people compare the answers of the session, to measure the quality of the council.
type Measured struct {
	// Shadow says that reviewers compare the synthesis with the top-ranked answer after the session.
	Shadow bool `json:"shadow,omitempty"`
	// ShadowRate is the share of sessions, 0 to 1, after which reviewers make this comparison.
	ShadowRate float64 `json:"shadow_rate,omitempty"`
	// LabelWanted is Metadata.LabelWanted.
	LabelWanted bool `json:"label_wanted,omitempty"`
}

// Kind says what a stage does.
type Kind string

// The kinds of stages.
const (
	KindAnswers    Kind = "answers"    // each seat answers the conversation
	KindGiven      Kind = "given"      // uses answers that exist already, and makes no call
	KindReviews    Kind = "reviews"    // each seat ranks the answers of the others
	KindComparison Kind = "comparison" // each seat says which of two given texts is better
	KindVotes      Kind = "votes"      // each seat votes on questions about a text
	KindSynthesis  Kind = "synthesis"  // the first seat that succeeds writes the final answer
	KindTask1      Kind = "task1"      // each seat does the first round of the plan's Task
	KindTask2      Kind = "task2"      // each seat does the second round of the plan's Task
)

// Stage returns the name of the stage in events, failures and usage. It returns "" for a kind that makes no calls.
func (k Kind) Stage() Stage {
	return map[Kind]Stage{
		KindAnswers: Stage1, KindReviews: Stage2, KindSynthesis: Stage3, KindComparison: StageShadow, KindVotes: StageVotes,
		KindTask1: Stage1, KindTask2: Stage2,
	}[k]
}

// StagePlan is one step of a plan.
type StagePlan struct {
	Kind Kind `json:"kind"`
	// Seats are the seats that are asked, or the authors of the given answers. The seats of a synthesis are tried in their
	// order. If a synthesis has only one seat, the other members are tried after it, by rank.
	Seats []Member `json:"seats"`
	// Given has the answers of KindGiven, by the id of their author, or the two texts of KindComparison.
	Given map[string]string `json:"given"`
	// Reviews holds earlier reviews of the given answers, or nil. No log keeps a plan with Reviews.
	Reviews *GivenReviews `json:"-"`
	// Twice says that each reviewer reads the answers twice, the second time in reversed order. The second half of Seats
	// then has the same reviewers once more.
	Twice bool `json:"twice,omitempty"`
	// Criteria says what reviewers look for. If it is "", they look for general quality.
	Criteria string `json:"criteria,omitempty"`
	// Questions has the questions of KindVotes. They are about the given answer, or about the conversation if no answer is
	// given.
	Questions []VoteQuestion `json:"questions"`
	// TimeEnd is the share of the time budget, 0 to 1, that is over when the stage has to end. MoneyEnd is the share of
	// the cost and token limits, 0 to 1, that may be spent by then. The next stages may use the time and money that a
	// stage leaves.
	TimeEnd  float64 `json:"time_end"`
	MoneyEnd float64 `json:"money_end"`
	Prompt   string  `json:"prompt"` // the version of the prompt, "" if the conversation is the prompt
}

// GivenReviews are earlier reviews, with the standings from these reviews.
type GivenReviews struct {
	Reviews   []Review
	Standings []Standing
	Agreement Agreement
}

// Seats returns the seats of the first stage of a kind.
func (p Plan) Seats(kind Kind) []Member { return p.Stage(kind).Seats }

// Stage returns the first stage of a kind. It returns the zero value if there is none.
func (p Plan) Stage(kind Kind) StagePlan {
	for _, s := range p.Stages {
		if s.Kind == kind {
			return s
		}
	}
	return StagePlan{}
}

// Members returns the seats that answer, or whose answers are given. For a Task, it returns the seats of round 1.
func (p Plan) Members() []Member {
	if p.Task != nil {
		return p.Seats(KindTask1)
	}
	given := p.Seats(KindGiven)
	if given == nil {
		return p.Seats(KindAnswers)
	}
	return slices.Concat(given, p.Seats(KindAnswers))
}

// Begin returns how many members are asked before the others, or 0 if all members are asked at once. Without a form,
// the answers of several members cannot be compared, so all members are asked at once.
func (p Plan) Begin() int {
	if p.First > 1 && p.Form == nil {
		return 0
	}
	return p.First
}

// FirstStage returns the first stage that makes calls.
func (p Plan) FirstStage() StagePlan {
	for _, s := range p.Stages {
		if s.Kind.Stage() != "" {
			return s
		}
	}
	return StagePlan{}
}

// Reviewers returns the seats that judge: they rank the answers, or vote on questions about a text. For a Task, it
// returns the seats of round 2.
func (p Plan) Reviewers() []Member {
	if p.Task != nil {
		return p.Seats(KindTask2)
	}
	if votes := p.Seats(KindVotes); votes != nil {
		return votes
	}
	return p.Seats(KindReviews)
}

// Chairmen returns the seats that may write the final answer, in the order in which they are tried. It returns nil if
// the mode takes the answer of a member.
func (p Plan) Chairmen() []Member { return p.Seats(KindSynthesis) }

// Chairman returns the id of the first chairman, or "" if no chairman writes.
func (p Plan) Chairman() string {
	if chairmen := p.Chairmen(); len(chairmen) > 0 {
		return chairmen[0].ID
	}
	return ""
}

// The parts in which the stages share the time and the money of a session. Answers get two parts of the time and five
// parts of the money.
const (
	answersTime, answersMoney     = 2.0, 5.0
	reviewsTime, reviewsMoney     = 2.0, 3.0
	synthesisTime, synthesisMoney = 1.0, 2.0
)

// Stages returns the stages of a mode. The members answer, the reviewers rank, and the chairmen are tried in their
// order until one of them writes the final answer. A mode that leaves out a stage gives its time and money to the
// others.
func Stages(mode Mode, members, reviewers, chairmen []Member) []StagePlan {
	stages := []StagePlan{{Kind: KindAnswers, Seats: members, TimeEnd: answersTime, MoneyEnd: answersMoney}}
	add := func(kind Kind, seats []Member, time, money float64) {
		last := stages[len(stages)-1]
		stages = append(stages, StagePlan{Kind: kind, Seats: seats, TimeEnd: last.TimeEnd + time, MoneyEnd: last.MoneyEnd + money})
	}
	if mode.Reviews() {
		add(KindReviews, reviewers, reviewsTime, reviewsMoney)
	}
	if mode.Writes() {
		add(KindSynthesis, chairmen, synthesisTime, synthesisMoney)
	}
	all := stages[len(stages)-1]
	for i := range stages {
		stages[i].TimeEnd /= all.TimeEnd
		stages[i].MoneyEnd /= all.MoneyEnd
	}
	return stages
}

// ModeOf returns the mode of a plan whose log does not name one, because an earlier build stored it.
func (p Plan) ModeOf() Mode {
	switch {
	case p.Mode != "":
		return p.Mode
	case p.Chairmen() == nil:
		return ModeSingle
	default:
		return ModeCouncil
	}
}

// Rules are the settings that shape a run and that a Request cannot change.
type Rules struct {
	Quorum int `json:"quorum"` // 0 stands for more than half of the members
	// StragglerGrace is how long a stage waits after a quorum. With nil, it waits until its deadline.
	StragglerGrace *time.Duration `json:"straggler_grace_ns"`
	Sampling       Sampling       `json:"sampling"` // for answers and the synthesis
	ReviewSampling Sampling       `json:"review_sampling"`
	// BallotRepair allows one more call if a review holds no ballot or a partial one.
	BallotRepair bool `json:"ballot_repair"`
	// SelfReviewRate is the share of sessions, 0 to 1, in which reviewers read their own answer too.
	SelfReviewRate float64          `json:"self_review_rate"`
	PartialBallots PartialPolicy    `json:"partial_ballots"`
	Audit          *AuditThresholds `json:"audit"`   // nil for no audit of the session
	Consent        int              `json:"consent"` // a level of ADR-018. 0 keeps no records.
	// Providers are names of providers. "name:model" is a model of the provider with that name.
	Providers []string `json:"providers"`
	// MaxSessionBytes bounds how many bytes the texts of the session and its prompts in flight have together. 0 means
	// no limit.
	MaxSessionBytes int64 `json:"max_session_bytes"`
	// DegradedNote says that a degraded session gets a Note.
	DegradedNote bool `json:"degraded_note,omitempty"`
}

// AuditThresholds holds the limits of ADR-015. A figure above its limit raises its flag.
type AuditThresholds struct {
	LengthCorrelation float64 `json:"length_correlation"` // for |r|, 0 to 1. ADR-015 suggests 0.3.
	PositionVariance  float64 `json:"position_variance"`  // in squared points, 0 or more. ADR-015 suggests 0.5.
}

// Request returns a request that asks the same question of the same council again. After a side request, it asks the
// whole council. After answers were judged, it asks the question of the council that judged. After a Task, its question
// is only the preview of the task.
func (p Plan) Request() Request {
	r := Request{
		Messages: p.Conversation, Seed: &p.Seed, Order: p.Order,
		MaxCostUSD: p.MaxCostUSD, MaxTotalTokens: p.MaxTotalTokens,
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
	if p.Side {
		return r
	}
	if p.Mode == ModeJudge || p.Task != nil {
		r.Council = p.CouncilName
		return r
	}
	r.Mode = p.Mode
	r.AnswerForm = p.Form
	if p.First > 0 {
		r.First = &p.First
	}
	if p.CouncilName != "" && !p.Chosen {
		r.Council = p.CouncilName
	} else {
		for _, m := range p.Members() {
			r.Models = append(r.Models, ModelOf(m.ID))
		}
	}
	r.Chairman = p.Chairman()
	return r
}

// DefaultCouncil names the council of a daemon without a roster.
const DefaultCouncil = "default"

// CouncilLabel returns the name of the council in sessions and in reports of costs.
func (p Plan) CouncilLabel() string { return cmp.Or(p.CouncilName, DefaultCouncil) }

// Council returns a text with the members, the chairman, and everything else that decides which calls a session makes.
// Sessions with the same text take about the same time and money.
func (p Plan) Council() string {
	names := make([]string, len(p.Members()))
	for i, m := range p.Members() {
		names[i] = m.ID
	}
	text := strings.Join(names, ",") + ";" + p.Chairman()
	switch p.Mode {
	case "", ModeCouncil, ModeSingle: // For these modes the text is as in older versions.
	default:
		text += ";" + string(p.Mode)
	}
	if p.Task != nil {
		text += " " + p.Task.Name
	}
	if n := p.Begin(); n > 0 {
		text += fmt.Sprintf(";first %d", n)
	}
	if p.GivenFrom != "" {
		text += ";convened"
	}
	return text
}

// ModelOf returns the model of the seat whose id is the argument member.
func (p Plan) ModelOf(member string) string {
	for _, m := range slices.Concat(p.Members(), p.Reviewers(), p.Chairmen()) {
		if m.ID == member {
			return m.Model
		}
	}
	return ModelOf(member)
}

// Asked returns the messages that the members get: the conversation, with the instruction below its last question.
func (p Plan) Asked() []Message {
	if p.Instruction == "" || len(p.Conversation) == 0 {
		return p.Conversation
	}
	asked := slices.Clone(p.Conversation)
	asked[len(asked)-1].Content += "\n\n" + p.Instruction
	return asked
}

// Question returns what the members are asked as one text. If it has several turns, each stands under its role.
func (p Plan) Question() string {
	asked := p.Asked()
	if len(asked) == 1 {
		return asked[0].Content
	}
	turns := make([]string, len(asked))
	for i, m := range asked {
		turns[i] = m.Role + ":\n" + m.Content
	}
	return strings.Join(turns, "\n\n")
}

// maxPreview is how many characters a preview has at most.
const maxPreview = 200

// Preview returns the beginning of the conversation's last question on one line. It has at most 200 characters, and
// ends with "…" if the question is longer.
func (p Plan) Preview() string {
	if len(p.Conversation) == 0 {
		return ""
	}
	return preview(p.Conversation[len(p.Conversation)-1].Content)
}

// FirstLine returns the first line of a text that is not blank, cut like a preview.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return preview(line)
}

// preview returns the beginning of a text, as Plan.Preview does.
func preview(text string) string {
	preview := make([]rune, 0, min(len(text), maxPreview+1))
	space := false
	for _, r := range text {
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

// Session returns the session of a plan as it is before the run begins.
func (p Plan) Session() *Session {
	var first *FirstAsked
	if p.GivenFrom != "" {
		first = &FirstAsked{Convened: true, Why: FirstOnDemand}
		for _, m := range p.Seats(KindGiven) {
			first.Asked = append(first.Asked, m.ID)
		}
	}
	var rubric []string
	if p.Mode == ModeJudge {
		for _, q := range p.Stage(KindVotes).Questions {
			rubric = append(rubric, q.Instructions)
		}
	}
	return &Session{
		Rubric: rubric,
		ID:     p.SessionID, Status: StatusRunning, Created: p.Created, Query: p.Preview(), Council: p.CouncilLabel(),
		User: p.User, Turn: p.Turn, Mode: p.Mode, AnswerFrom: AnswerFrom{Rule: RuleNone, Tied: []string{}}, Degradation: []Degradation{},
		Stage1: make([]Answer, 0, len(p.Members())), Stage2: make([]Review, 0, len(p.Reviewers())),
		Metadata: Metadata{
			ReviewerPositionMapping: map[string]map[string]int{},
			Tally: Tally{AggregateRankings: []Standing{}, Agreement: Agreement{
				Level: AgreementUnknown, Sentence: AgreementUnknown.Sentence(),
				Copeland: map[string]float64{}, Pairwise: map[string]map[string]int{}, WinnerSupport: []Support{},
				LeaveOneOut: []Omission{},
			}},
			Seed: p.Seed, Order: p.Order, Warnings: append([]Warning{}, p.Warnings...), Versions: p.Versions,
			LabelWanted: p.LabelWanted, Stages: []Stage{}, First: first, Excluded: p.Excluded, GivenFrom: p.GivenFrom,
			Usage: TotalUsage{ByStage: map[Stage]Usage{}, ByModel: map[string]Usage{}},
		},
	}
}
