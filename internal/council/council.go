// Package council is the vocabulary of councild: the words that every other
// package uses, and nothing that does anything.
//
// A question is a [Request]; once validated and completed it is a [Plan]. The
// [Member]s of a council write [Answer]s (stage 1), reviewers read them on a
// [Slate] and return a [Review] with a [Ballot] (stage 2), the ballots add up to
// [Standing]s, and a chairman writes the [Synthesis] (stage 3). All of it is one
// [Session]. What the reviews revealed is kept as [BiasMetricRecord]s.
//
// The structs of this package are the JSON of the HTTP interface: a field that
// may be missing is a pointer and null in JSON, never zero.
//
// # Decisions
//
// What a list shows of a question is a preview of 200 characters on one line. query of a session is the same text: the
// question may be 256 KiB, and whoever sent it has it.
//
// Figures of usage are believed within reason. council.Usage.Believable is the one place that says so. What is not
// believed is unknown; a sum is what is known, with partial beside it.
//
// Messages name a setting by its variable, and inner packages do not know variables. They hold a council.Setting; the
// names come from config and are handed in.
package council

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Stage names one step of a run in failures, events and usage figures.
type Stage string

// The stages of a run.
const (
	Stage1 Stage = "stage1" // the members answer
	Stage2 Stage = "stage2" // the reviewers rank
	Stage3 Stage = "stage3" // the chairman writes
)

// StageShadow is the stage of calls after the end of a session, which compare its synthesis with the
// top-ranked answer. Nothing of it is part of the session.
const StageShadow Stage = "shadow"

// ShadowSuffix stands behind the id of a session in the id of the account that StageShadow has.
const ShadowSuffix = "-shadow"

// SeatChairman is the Seat of all calls of stage 3: the chairman and those that write in
// its place take the seat one after the other.
const SeatChairman = "chairman"

// Call is one request for a completion, or for embeddings.
type Call struct {
	Session  string // the id of the session; "": its cost belongs to none
	Stage    Stage
	Seat     string   // the id of the member; in stage 3 SeatChairman; for a side, one of SidePlan.Seats
	Model    string   // as in Member.Model
	Profile  *Profile // as in Member.Profile
	Messages []Message
	// Texts, if set, are to be embedded: POST /embeddings in place of /chat/completions. Of the
	// other fields, those of a completion are then without effect. Completion.Text then holds how
	// alike the texts are: JSON with a row for each text, of the cosines of its embedding with those of
	// all texts, rounded to four places.
	Texts []string
	Sampling
	// Format asks for a reply of this form, where the provider supports that: the
	// prompt must ask for it too. Nil leaves the form open.
	Format *Format
	// Begin, if set, is called before each request of the call, retries included, and may wait until the request may be
	// sent. A failure that it returns ends the call. The Receipt, if there is one, is told what the request consumed.
	Begin func(ctx context.Context, a Attempt) (Receipt, *Failure)
	// OnDelta, if set, is called with each piece of the text as it arrives. The pieces
	// add up to Completion.Text, or to the beginning of a reply that failed. The
	// goroutine that called Complete calls it, one call at a time and never after
	// Complete has returned. The reply waits for it.
	OnDelta func(text string)
	// DeltaPause is the least time between two calls of OnDelta, where it is longer than the
	// Completer's own. With it the end of a reply may be noticed up to 100 ms late.
	DeltaPause time.Duration
	// OnRestart, if set, is called before the call is tried again although OnDelta was called:
	// the pieces so far are void. reason is why the reply that they are of failed. OnRestart is
	// called as OnDelta is. Without it, a reply that failed in the middle ends the call.
	OnRestart func(reason FailureCode)
	// OnVoid, if set, is called when all pieces so far turn out to be thinking, of which nothing had told the
	// beginning: they are void, and the whole text follows. It is called as OnDelta is. Without it such text stays a
	// part of Completion.Text.
	OnVoid func()
}

// Attempt is one request of a call, before it is sent.
type Attempt struct {
	Provider string // its name; "": the default provider
	Number   int    // of the attempts of the call, from 1
	Bytes    int64  // of the body
}

// Receipt is told when an attempt is over, at least once, of which the first time counts. It returns what the attempt cost in
// US dollars, which may be more than the provider says, or nil if that is not known.
type Receipt interface {
	Finish(ctx context.Context, c Consumed) (costUSD *float64)
}

// Consumed is what is known of an attempt afterwards.
type Consumed struct {
	Free  bool  // the provider was not reached, or refused the request with HTTP 4xx
	Usage Usage // as the provider reported it
	Kinds TokenKinds
}

// TokenKinds are the tokens of a request that have prices of their own, 0 where the provider does not
// tell. Those of the cache are among the input tokens, and those of reasoning among the output.
type TokenKinds struct{ CachedInput, CacheWrite, Reasoning int64 }

// Sampling are the sampling options of a Call. They are sent only when set: nil
// leaves the provider's own default in force.
type Sampling struct {
	Temperature     *float64 `json:"temperature"`       // 0 to 2
	MaxOutputTokens *int     `json:"max_output_tokens"` // 1 or more
}

// Format is the form of a structured reply.
type Format struct {
	Name   string          `json:"name"`   // 1 to 64 letters, digits, underscores and hyphens
	Schema json.RawMessage `json:"schema"` // a JSON Schema
	// Strict has the provider hold the model to the schema. Some refuse that for schemas that
	// are beyond what they support.
	Strict bool `json:"strict"`
}

// Completion is a model's reply to a Call.
type Completion struct {
	Text         string `json:"text"`          // never empty
	FinishReason string `json:"finish_reason"` // why the model stopped, in OpenAI's word where it has one; "": the provider gave none
	// Reasoning is the thinking of the model, which is not part of Text: what the provider sent apart, and what stood in the
	// text. It has MaxReasoning bytes at most. "" if there is none.
	Reasoning   string `json:"reasoning,omitempty"`
	Implausible int    `json:"doubted"` // number of usage figures that were not believed, and are unknown in Usage
	Spent
}

// Finish returns the finish reason, or nil when the provider gave none.
func (c Completion) Finish() *string {
	if c.FinishReason == "" {
		return nil
	}
	return &c.FinishReason
}

// MaxReasoning is how many bytes of a model's thinking are kept: those at its beginning.
const MaxReasoning = 64 << 10

// Thought returns the thinking of the model, or nil when there is none.
func (c Completion) Thought() *string {
	if c.Reasoning == "" {
		return nil
	}
	return &c.Reasoning
}

// Completer performs one Call. A failure is always a *Failure, also when ctx
// ends; the Completion then still says what was spent. Implementations are safe
// for concurrent use.
type Completer interface {
	Complete(ctx context.Context, call Call) (Completion, error)
}

// EventType names what an Event reports.
type EventType string

// The events of a run, in the order in which they can occur. Data is the element
// as it stands in the finished Session, of the Go type named here.
const (
	EventStarted       EventType = "session.started" // Started
	EventAnswerDelta   EventType = "stage1.delta"    // AnswerDelta, when Plan.AnswerDeltas asks for it
	EventAnswerRestart EventType = "stage1.restart"  // AnswerRestart
	EventAnswer        EventType = "stage1.answer"   // Answer, one per member as it lands
	EventStage1        EventType = "stage1.done"     // []Answer
	EventBallot        EventType = "stage2.ballot"   // Review, one per reviewer as it lands
	EventStage2        EventType = "stage2.done"     // Tally
	EventDelta         EventType = "stage3.delta"    // Delta, when Plan.Deltas asks for it
	EventRestart       EventType = "stage3.restart"  // Restart
	EventStage3        EventType = "stage3.done"     // Synthesis
	EventDone          EventType = "session.done"    // *Session
	EventFailed        EventType = "session.failed"  // *Error
)

// Event is one step of a running session.
type Event struct {
	Type      EventType
	SessionID string
	Data      any
}

// Entry is an Event as it is kept and shown: its data is JSON. The data of
// EventFailed is a Problem there.
type Entry struct {
	Type EventType
	Data json.RawMessage
}

// Decode returns the event that the entry was made of, without its session id. Its data
// has the type that the constants of EventType name; nil where the type is unknown.
func (e Entry) Decode() (event Event, err error) {
	event.Type = e.Type
	decoders := map[EventType]func([]byte) (any, error){
		EventStarted:       decode[Started],
		EventAnswerDelta:   decode[AnswerDelta],
		EventAnswerRestart: decode[AnswerRestart],
		EventAnswer:        decode[Answer],
		EventStage1:        decode[[]Answer],
		EventBallot:        decode[Review],
		EventStage2:        decode[Tally],
		EventDelta:         decode[Delta],
		EventRestart:       decode[Restart],
		EventStage3:        decode[Synthesis],
		EventBegun:         decode[Begun],
		EventCall:          decode[Landed],
		EventDone:          decode[*Session],
		EventFailed: func(data []byte) (any, error) {
			var p Problem
			err := json.Unmarshal(data, &p)
			return p.Cause(), err
		},
	}
	if decoder := decoders[e.Type]; decoder != nil {
		event.Data, err = decoder(e.Data)
	}
	if err != nil {
		return event, fmt.Errorf("reading %s: %w", e.Type, err)
	}
	return event, nil
}

func decode[T any](data []byte) (any, error) {
	var v T
	err := json.Unmarshal(data, &v)
	return v, err
}

// Observer is told of every Event of a run. Calls for one session come one at a
// time, in order; calls for different sessions may be concurrent. It must not
// block: the run waits for it.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }
