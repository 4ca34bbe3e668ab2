// Package council has the types that all other packages of councild share. It makes no calls, opens no files, and
// leaves the work to the other packages.
//
// A question is a [Request]. A Request that was validated and completed is a [Plan]. In stage 1, the [Member]s of a
// council write [Answer]s. In stage 2, reviewers read the answers on a [Slate], and each returns a [Review] with a
// [Ballot]. The ballots are counted to [Standing]s. In stage 3, a chairman writes the [Synthesis]. One run of all
// stages is a [Session]. The scores of the reviews are kept as [BiasMetricRecord]s.
//
// Most structs of this package are JSON of the HTTP interface. A field that may be missing is a pointer. If the field
// is missing, its JSON is null and never zero.
//
// # Decisions
//
// Lists of sessions show a preview of the question, 200 characters on one line. Session.Query is the same preview,
// because the whole question may have 256 KiB and the caller has it already.
//
// Providers report usage figures that can be impossible. Only [Usage.Believable] decides which figures count. A figure
// that does not count is unknown. A sum adds the known figures, and its partial field says that some are unknown.
//
// Messages name a setting by its environment variable. Inner packages do not know these variables. They use a
// [Setting], and package config supplies the name of its variable.
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

// StageShadow is the stage of calls that compare the synthesis of a session with the top-ranked answer. These calls are
// made after the end of the session, and are not part of the session.
const StageShadow Stage = "shadow"

// StageVotes is the stage of calls in which seats vote on questions about a text.
const StageVotes Stage = "votes"

// ShadowSuffix is appended to the id of a session to name the account of its StageShadow calls.
const ShadowSuffix = "-shadow"

// SeatChairman is the Seat of all calls of stage 3. If the chairman fails, the members that write in its place have the
// same Seat.
const SeatChairman = "chairman"

// Call is one request for a completion, or for embeddings.
type Call struct {
	// Session is the id of the session that pays for the call. It is "" if no session pays.
	Session string
	Stage   Stage
	// Seat is the id of the member, SeatChairman in stage 3, or, for a call of a [Side], one of SidePlan.Seats.
	Seat     string
	Model    string   // as in Member.Model
	Profile  *Profile // as in Member.Profile
	Messages []Message
	// Texts, if set, makes the call a request for embeddings of these texts (POST /embeddings). The fields for
	// completions then have no effect, and Completion.Text is a JSON matrix of similarities. Row i, column j of the
	// matrix is the cosine of the embeddings of text i and text j, rounded to four places.
	Texts []string
	Sampling
	// Format asks for a reply of this form, if the provider supports that. The prompt must ask for the form too. Nil
	// leaves the form open.
	Format *Format
	// Begin, if set, is called before each request of the call, including retries. It may wait until the request may be
	// sent. A Failure from Begin ends the call. If the Receipt is not nil, the Completer tells the Receipt what the
	// request consumed.
	Begin func(ctx context.Context, a Attempt) (Receipt, *Failure)
	// OnDelta, if set, is called with each piece of the text as it arrives. The pieces add up to Completion.Text, or to
	// the beginning of a reply that failed. The goroutine that called Complete calls OnDelta, one call at a time and
	// never after Complete has returned. While OnDelta runs, the reply is not read.
	OnDelta func(text string)
	// DeltaPause is the shortest time between two calls of OnDelta. It has an effect only if it is longer than the
	// Completer's own pause. If DeltaPause is set, the Completer may notice the end of a reply up to 100 ms late.
	DeltaPause time.Duration
	// OnRestart, if set, is called before a retry if OnDelta has already got pieces of the reply. These pieces are
	// void. The argument reason says why the reply failed. OnRestart is called by the same goroutine as OnDelta.
	// Without OnRestart, a reply that fails in the middle ends the call.
	OnRestart func(reason FailureCode)
	// OnVoid, if set, is called if all pieces so far turn out to be thinking, because the beginning of the thinking was
	// not marked. These pieces are void, and the whole text follows. OnVoid is called by the same goroutine as OnDelta.
	// Without OnVoid, such thinking stays a part of Completion.Text.
	OnVoid func()
}

// Attempt is one request of a call, before it is sent.
type Attempt struct {
	Provider string // the provider's name, "" for the default provider
	Number   int    // counts the attempts of the call, from 1
	Bytes    int64  // the size of the body
}

// Receipt takes the result of one attempt.
type Receipt interface {
	// Finish is called at least once when the attempt is over, and only the first call counts. It returns the cost of the
	// attempt in US dollars, or nil if the cost is not known. The cost may be higher than the provider reports.
	Finish(ctx context.Context, c Consumed) (costUSD *float64)
}

// Consumed holds the usage and the outcome of one attempt.
type Consumed struct {
	Status     int      // HTTP status of the response, 0 if there was none
	ResponseID string   // the provider's id of the reply, "" if there is none
	Failure    *Failure // nil if the attempt succeeded
	Free       bool     // set if the provider was not reached, or refused the request with HTTP 4xx
	Usage      Usage    // the usage that the provider reported
	Kinds      TokenKinds
}

// TokenKinds counts the tokens of a request that can have prices of their own. A number is 0 if the provider does not
// report it. Cache tokens also count as input tokens, and reasoning tokens also count as output tokens.
type TokenKinds struct{ CachedInput, CacheWrite, Reasoning int64 }

// Sampling are the sampling options of a Call. An option that is nil is not sent, and the provider uses its own
// default.
type Sampling struct {
	Temperature     *float64 `json:"temperature"`       // 0 to 2
	MaxOutputTokens *int     `json:"max_output_tokens"` // 1 or more
}

// Format is the form of a structured reply.
type Format struct {
	Name   string          `json:"name"`   // 1 to 64 letters, digits, underscores and hyphens
	Schema json.RawMessage `json:"schema"` // a JSON Schema
	// Strict asks the provider to force the model to follow the schema. Some providers then refuse schemas with keywords
	// that they do not support.
	Strict bool `json:"strict"`
}

// Completion is a model's reply to a Call.
type Completion struct {
	Text string `json:"text"` // never empty if the call succeeded
	// FinishReason says why the model stopped. It is OpenAI's word if OpenAI has one for the reason, and "" if the
	// provider gave no reason.
	FinishReason string `json:"finish_reason"`
	// Reasoning is the thinking of the model, at most MaxReasoning bytes. It has the thinking that the provider sent in a
	// field of its own, and the thinking that was cut out of the text. It is "" if there is none.
	Reasoning string `json:"reasoning,omitempty"`
	// Implausible counts the usage figures that Usage.Believable refused. They are unknown in Usage.
	Implausible int `json:"doubted"`
	Spent
}

// Finish returns the finish reason, or nil if the provider gave none.
func (c Completion) Finish() *string {
	if c.FinishReason == "" {
		return nil
	}
	return &c.FinishReason
}

// MaxReasoning is how many bytes of a model's thinking are kept. Longer thinking is cut at its end.
const MaxReasoning = 64 << 10

// Thought returns the thinking of the model, or nil if there is none.
func (c Completion) Thought() *string {
	if c.Reasoning == "" {
		return nil
	}
	return &c.Reasoning
}

// Completer performs one Call. An error is always a *Failure, also when ctx ends. With an error, the Completion still
// says what was spent. Implementations are safe for concurrent use.
type Completer interface {
	Complete(ctx context.Context, call Call) (Completion, error)
}

// EventType names what an Event reports.
type EventType string

// The events of a run, in the order in which they can occur. The comment of each names the Go type of its Data. Data
// that is a part of the Session is the same as in the finished Session.
const (
	EventStarted       EventType = "session.started" // Started
	EventAnswerDelta   EventType = "stage1.delta"    // AnswerDelta, if Plan.AnswerDeltas is set
	EventAnswerRestart EventType = "stage1.restart"  // AnswerRestart
	EventAnswer        EventType = "stage1.answer"   // Answer, when the member has finished
	EventFirst         EventType = "first.done"      // FirstAsked, if Plan.First is set
	EventStage1        EventType = "stage1.done"     // []Answer
	EventBallot        EventType = "stage2.ballot"   // Review, when the reviewer has finished
	EventStage2        EventType = "stage2.done"     // Tally
	EventDelta         EventType = "stage3.delta"    // Delta, if Plan.Deltas is set
	EventRestart       EventType = "stage3.restart"  // Restart
	EventStage3        EventType = "stage3.done"     // Synthesis
	EventMap           EventType = "stage3.map"      // Map, if Plan.Map is set
	EventDone          EventType = "session.done"    // *Session
	EventFailed        EventType = "session.failed"  // *Error
)

// Event is one step of a running session.
type Event struct {
	Type      EventType
	SessionID string
	Data      any
	// Takeovers is how many times another process had continued the session before this event. Only the method Events
	// of a session sets it.
	Takeovers int
}

// Entry is an Event in the form that is kept and shown. Its data is JSON. For EventFailed, its data is a Problem.
type Entry struct {
	Type EventType
	Data json.RawMessage
}

// Decode returns the event from which the entry was made, without its session id. Its data has the type that the
// comment of its EventType names. If this version does not know the type, the data is nil.
func (e Entry) Decode() (event Event, err error) {
	event.Type = e.Type
	decoders := map[EventType]func([]byte) (any, error){
		EventStarted:       decode[Started],
		EventAnswerDelta:   decode[AnswerDelta],
		EventAnswerRestart: decode[AnswerRestart],
		EventAnswer:        decode[Answer],
		EventFirst:         decode[FirstAsked],
		EventStage1:        decode[[]Answer],
		EventBallot:        decode[Review],
		EventStage2:        decode[Tally],
		EventDelta:         decode[Delta],
		EventRestart:       decode[Restart],
		EventStage3:        decode[Synthesis],
		EventMap:           decode[Map],
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

// Observer is told of every Event of a run. Calls for one session come one at a time and in order. Calls for different
// sessions may be concurrent. Observe must not block, because the run waits for it.
type Observer interface {
	Observe(Event)
}

// ObserverFunc is a function that is an Observer.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }
