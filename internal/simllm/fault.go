package simllm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Fault is one thing that goes wrong with a model. Like any reply, it comes after the model's latency.
type Fault struct {
	Kind FaultKind
	// Rate is the share of requests that have the fault, above 0 and at most 1. The content of a request decides
	// whether it has the fault, so a repeated request has the fault again.
	Rate float64
	// Tasks limits the fault to requests of these kinds. If it is empty, the fault has no such limit.
	Tasks []TaskKind
	// Times is how many requests have the fault before it ends. 0 is no limit.
	Times int

	// Status is the HTTP status of FaultStatus and FaultHugeError, from 400 to 599. 0 stands for 500. FaultErrorIn200
	// and StreamError name this status in their error. With 0, their error names no status.
	Status int
	// RetryAfter is the header Retry-After of FaultStatus: seconds, a date, or "" to send no header.
	RetryAfter string
	// Size is an amount, such as a number of bytes. The comment on the FaultKind says which amount, and in brackets the
	// amount for which 0 stands.
	Size int64
	// Delay is a duration. The comment on the FaultKind says which. If Delay is 0, the fault lasts until the client
	// disconnects.
	Delay time.Duration
}

// FaultKind says what goes wrong.
type FaultKind string

// Faults of the whole response. If such a fault sends a body, a request for a stream gets that body too.
const (
	FaultStatus      FaultKind = "status"       // an HTTP error with an OpenAI error body
	FaultHugeError   FaultKind = "huge_error"   // like status, with a message of Size bytes (8 MiB)
	FaultHTML        FaultKind = "html"         // HTTP 200 with a page of HTML
	FaultHalfJSON    FaultKind = "half_json"    // HTTP 200 with the first half of a reply
	FaultErrorIn200  FaultKind = "error_in_200" // HTTP 200 with an error object
	FaultEmptyObject FaultKind = "empty_object" // HTTP 200 with {}
	FaultNull        FaultKind = "null"         // HTTP 200 with null
	FaultNoChoices   FaultKind = "no_choices"   // a reply with an empty list of choices, or of embeddings
	FaultHugeBody    FaultKind = "huge_body"    // a reply with a text of Size bytes (1 GiB)
)

// Faults of the completion's message.
const (
	FaultNullContent   FaultKind = "null_content"
	FaultEmptyContent  FaultKind = "empty_content"
	FaultReasoningOnly FaultKind = "reasoning_only" // reasoning_content and an empty text
	FaultRefusalField  FaultKind = "refusal_field"  // refusal and no text
	FaultRefusal       FaultKind = "refusal"        // the text declines the task
	FaultLength        FaultKind = "length"         // half the text, finish_reason "length"
	FaultContentFilter FaultKind = "content_filter" // half the text, finish_reason "content_filter"
)

// Faults of the connection.
const (
	FaultReset     FaultKind = "reset"      // a reset before the headers
	FaultResetBody FaultKind = "reset_body" // a reset after half the body
	FaultEOFBody   FaultKind = "eof_body"   // the connection is closed after half the body
	FaultHang      FaultKind = "hang"       // the headers never come
	FaultSlowBody  FaultKind = "slow_body"  // the body comes at Size bytes per second (1)
	FaultStall     FaultKind = "stall"      // a pause of Delay after half the body
	FaultLateEnd   FaultKind = "late_end"   // the whole body, and Delay later its end
)

// Faults of streams. Only requests for a stream have them.
const (
	StreamComments  FaultKind = "stream_comments"   // Size comments (10,000) before the first chunk
	StreamEmptyData FaultKind = "stream_empty_data" // Size empty data lines (100) before the first chunk
	StreamError     FaultKind = "stream_error"      // an error object after half the chunks, and nothing more
	StreamNoEnd     FaultKind = "stream_no_end"     // no finish_reason and no [DONE]
	StreamGarbage   FaultKind = "stream_garbage"    // data that is no JSON after half the chunks
	StreamHugeLine  FaultKind = "stream_huge_line"  // a first chunk with a text of Size bytes (10 MiB)
	StreamTiny      FaultKind = "stream_tiny"       // Size chunks (1,000,000) of one letter each before the first chunk
	// StreamRare is legal but rare: events whose data has many lines that end with CR, a media type in capitals,
	// and for each chunk another one for a choice with index 1.
	StreamRare FaultKind = "stream_rare"
)

// Faults of ballots. Only requests for a review have them.
const (
	BallotAbstain       FaultKind = "ballot_abstain"        // {"abstain": reason}
	BallotProse         FaultKind = "ballot_prose"          // the critique without a ballot
	BallotTruncated     FaultKind = "ballot_truncated"      // ends after the first label of the ranking
	BallotUnknownLabels FaultKind = "ballot_unknown_labels" // ranks labels that are not on the slate
	BallotTemplate      FaultKind = "ballot_template"       // repeats the instructions
	BallotDuplicates    FaultKind = "ballot_duplicates"     // ranks every label twice
	BallotSingleQuotes  FaultKind = "ballot_single_quotes"  // JSON except for its quotes
	BallotEmpty         FaultKind = "ballot_empty"          // an empty ranking
	BallotPartial       FaultKind = "ballot_partial"        // leaves out the worst answer
	BallotMismatch      FaultKind = "ballot_mismatch"       // scores the best answer 1 and the worst 10
	BallotBadScores     FaultKind = "ballot_bad_scores"     // every score is 42
)

// Faults of embeddings. Only requests for embeddings have them.
const (
	EmbeddingMissing FaultKind = "embedding_missing" // the last embedding is missing
	EmbeddingUnequal FaultKind = "embedding_unequal" // the last embedding has one number less than the others
	EmbeddingZero    FaultKind = "embedding_zero"    // the last embedding is zero
	EmbeddingEmpty   FaultKind = "embedding_empty"   // the last embedding has no numbers
	EmbeddingNaN     FaultKind = "embedding_nan"     // the first embedding holds NaN, which is not JSON
)

// EmbeddingKinds returns the faults of embeddings.
func EmbeddingKinds() []FaultKind {
	return []FaultKind{EmbeddingMissing, EmbeddingUnequal, EmbeddingZero, EmbeddingEmpty, EmbeddingNaN}
}

// messageKinds returns the faults of a completion's message. Embeddings do not have these faults.
func messageKinds() []FaultKind {
	return []FaultKind{
		FaultNullContent, FaultEmptyContent, FaultReasoningOnly, FaultRefusalField, FaultRefusal, FaultLength,
		FaultContentFilter,
	}
}

// ResponseKinds returns the faults that any request for a completion may have.
func ResponseKinds() []FaultKind {
	return []FaultKind{
		FaultStatus, FaultHugeError, FaultHTML, FaultHalfJSON, FaultErrorIn200, FaultEmptyObject, FaultNull,
		FaultNoChoices, FaultHugeBody, FaultNullContent, FaultEmptyContent, FaultReasoningOnly, FaultRefusalField,
		FaultRefusal, FaultLength, FaultContentFilter, FaultReset, FaultResetBody, FaultEOFBody, FaultHang,
		FaultSlowBody, FaultStall, FaultLateEnd,
	}
}

func streamKinds() []FaultKind {
	return []FaultKind{StreamComments, StreamEmptyData, StreamError, StreamNoEnd, StreamGarbage, StreamHugeLine, StreamTiny, StreamRare}
}

// BallotKinds returns the faults of ballots.
func BallotKinds() []FaultKind {
	return []FaultKind{
		BallotAbstain, BallotProse, BallotTruncated, BallotUnknownLabels, BallotTemplate, BallotDuplicates,
		BallotSingleQuotes, BallotEmpty, BallotPartial, BallotMismatch, BallotBadScores,
	}
}

func (f Fault) validate() error {
	var errs []error
	if !slices.Contains(slices.Concat(ResponseKinds(), streamKinds(), BallotKinds(), EmbeddingKinds()), f.Kind) {
		errs = append(errs, fmt.Errorf("unknown kind %q", f.Kind))
	}
	if !(f.Rate > 0 && f.Rate <= 1) { // also refuses NaN
		errs = append(errs, fmt.Errorf("the rate is %v, not above 0 and up to 1", f.Rate))
	}
	tasks := []TaskKind{Question, Review, Synthesis, Choice, Embedding}
	for _, kind := range f.Tasks {
		if !slices.Contains(tasks, kind) {
			errs = append(errs, fmt.Errorf("unknown task %q", kind))
		}
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		errs = append(errs, fmt.Errorf("the status is %d, not 400 to 599", f.Status))
	}
	if f.Times < 0 || f.Size < 0 || f.Delay < 0 {
		errs = append(errs, errors.New("times, size and delay must not be negative"))
	}
	return errors.Join(errs...)
}

// concerns reports whether the request is of a kind that may have the fault.
func (f Fault) concerns(q *request) bool {
	embeds := q.task.Kind == Embedding
	return (len(f.Tasks) == 0 || slices.Contains(f.Tasks, q.task.Kind)) &&
		(embeds || !slices.Contains(EmbeddingKinds(), f.Kind)) &&
		(!embeds || !slices.Contains(messageKinds(), f.Kind)) &&
		(q.body.Stream || !slices.Contains(streamKinds(), f.Kind)) &&
		(q.task.Kind == Review || !slices.Contains(BallotKinds(), f.Kind))
}

// forever is longer than any client waits.
const forever = time.Duration(math.MaxInt64)

// withDefaults returns f with the default amounts in place of zero values.
func (f Fault) withDefaults() Fault {
	sizes := map[FaultKind]int64{
		FaultHugeError: 8 << 20, FaultHugeBody: 1 << 30,
		StreamComments: 10_000, StreamEmptyData: 100, StreamHugeLine: 10 << 20, StreamTiny: 1_000_000,
	}
	if f.Kind != FaultErrorIn200 && f.Kind != StreamError {
		f.Status = cmp.Or(f.Status, http.StatusInternalServerError)
	}
	f.Delay = cmp.Or(f.Delay, forever)
	f.Size = cmp.Or(f.Size, sizes[f.Kind], 1)
	return f
}

// fault is a Fault together with the number of requests that had the fault. This number is counted only if Times limits
// it.
type fault struct {
	Fault
	count atomic.Int64
}

// faultOf returns the fault of a request. If the request has no fault, the Kind of the result is empty.
func (m *model) faultOf(q *request) *fault {
	for i := range m.faults {
		f := &m.faults[i]
		if f.concerns(q) &&
			(f.Rate >= 1 || m.draws("fault", q.key, strconv.Itoa(i)).Float64() < f.Rate) &&
			(f.Times == 0 || f.count.Add(1) <= int64(f.Times)) {
			return f
		}
	}
	return &fault{}
}
