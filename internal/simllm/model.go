package simllm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Model is one simulated model. The model's effects on scores are in points on the scale of 1 to 10. The zero value of
// every field except Name is valid.
type Model struct {
	Name string // the name in requests; not empty, unique in a server

	// Quality is the mean quality of the model's answers, -4 to 4, where 0 is mediocre. Spread is the standard
	// deviation of the quality over questions, 0 to 4. The quality of an answer is limited to -4 to 4.
	Quality, Spread float64
	// Length is the median length of the model's answers in units of 2000 characters, 0.4 to 100, where 0 stands for 1.
	// LengthSigma is the standard deviation of the natural logarithm of the length over questions, 0 to 2. No answer is
	// shorter than its six points, about 800 characters.
	Length, LengthSigma float64

	// Harshness is added to every score that the model gives, -10 to 10. A model with a value below 0 is harsh, as in
	// the reviewer profiles of ADR-018.
	Harshness float64
	// Affinity maps the name of a model to points, -10 to 10. If the reviewer recognises an answer as written by that
	// model, it adds these points to the answer's score. The entry under the reviewer's own name is its
	// self-preference.
	Affinity map[string]float64
	// LengthBias is added to the score of an answer for each doubling of the answer's length, -10 to 10.
	LengthBias float64
	// Position holds the points that the model adds to the score of the answer at each place, beginning with the first
	// place. It adds nothing at places beyond the list. Last is added at the last place, if there are several places.
	// Each value is -10 to 10.
	Position []float64
	Last     float64
	// Noise is the standard deviation of the model's scores for one answer, 0 to 10.
	Noise float64

	// Ability says how well the model handles the questions of Options.Closed. If Ability is nil, the model treats them
	// like any other questions.
	Ability *Ability

	// Facts are stated in the model's answers.
	Facts []Fact
	// Maps says how the model writes a map as chairman.
	Maps Maps

	// Reviewing says how the model reviews changes. If it is nil, [BaseReviewing] applies.
	Reviewing *Reviewing

	// Version is the name of the model in its replies. "" stands for Name.
	Version string
	// Reasoning is how many reasoning tokens each reply reports, in addition to the tokens of its text. If it is nil, a
	// reply reports no reasoning tokens.
	Reasoning *int

	// Latency is the time from the end of the request to the first byte of the reply.
	Latency Latency
	// FirstChunk replaces Latency in a stream, unless it is 0. ChunkDelay is the time between the chunks of a
	// stream.
	FirstChunk, ChunkDelay time.Duration

	API

	// Price is the price of the model's tokens. Each reply reports its cost at this price (OpenRouter's extension). A
	// model without a price reports no cost.
	Price Price

	// Faults are tried in order. A request has the first one that applies to it.
	Faults []Fault
	// Reply, if set, writes the text of a reply. If it returns false, the model writes its own text. Requests call
	// Reply concurrently. Faults also change the text of Reply.
	Reply func(Task) (text string, ok bool)
}

// API says which requests the API of a model accepts.
type API struct {
	// ResponseFormat says how the model treats a request's response_format.
	ResponseFormat ResponseFormat
	// Dialect says how the model treats the options of a request.
	Dialect Dialect
	// NoStream makes the model refuse requests for a stream.
	NoStream bool
}

// ResponseFormat says how a model treats a response_format.
type ResponseFormat string

// The ways to treat a response_format.
const (
	FormatIgnored ResponseFormat = "" // the reply ignores it
	// FormatHonoured says that a review is one JSON object that includes its critiques, and that other replies fit the
	// schema.
	FormatHonoured ResponseFormat = "honoured"
	FormatRefused  ResponseFormat = "refused" // HTTP 400
)

// Latency is a log-normal distribution of durations, drawn for each request from its content. Sigma is the standard
// deviation of the natural logarithm, 0 to 2. If Sigma is 0, every request takes the Median.
type Latency struct {
	Median time.Duration
	Sigma  float64
}

// Price is in US dollars per million tokens, not negative.
type Price struct {
	Input, Output float64
}

// validate returns an error that lists all problems of the model.
func (m Model) validate() error {
	var errs []error
	if m.Name == "" {
		errs = append(errs, errors.New("a model has no name"))
	}
	type bound struct {
		field            string
		value, low, high float64
	}
	check := func(b bound) {
		if !(b.value >= b.low && b.value <= b.high) { // also refuses NaN
			errs = append(errs, fmt.Errorf("model %q: %s is %v, not %v to %v", m.Name, b.field, b.value, b.low, b.high))
		}
	}
	for _, b := range []bound{
		{"Quality", m.Quality, -4, 4},
		{"Spread", m.Spread, 0, 4},
		{"Length", cmp.Or(m.Length, 1), 0.4, 100},
		{"LengthSigma", m.LengthSigma, 0, 2},
		{"Harshness", m.Harshness, -10, 10},
		{"LengthBias", m.LengthBias, -10, 10},
		{"Last", m.Last, -10, 10},
		{"Noise", m.Noise, 0, 10},
		{"Latency.Median", m.Latency.Median.Seconds(), 0, math.Inf(1)},
		{"Latency.Sigma", m.Latency.Sigma, 0, 2},
		{"FirstChunk", m.FirstChunk.Seconds(), 0, math.Inf(1)},
		{"ChunkDelay", m.ChunkDelay.Seconds(), 0, math.Inf(1)},
		{"Price.Input", m.Price.Input, 0, 1e6},
		{"Price.Output", m.Price.Output, 0, 1e6},
		{"Maps.Invent", m.Maps.Invent, 0, 1},
		{"Maps.Miss", m.Maps.Miss, 0, 1},
	} {
		check(b)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Affinity)) {
		check(bound{fmt.Sprintf("Affinity[%q]", name), m.Affinity[name], -10, 10})
	}
	if m.Reviewing != nil {
		for _, r := range m.Reviewing.rates() {
			check(bound{"Reviewing: " + r.name, *r.value, 0, 1})
		}
	}
	if m.Ability != nil {
		for _, b := range m.Ability.bounds() {
			check(bound{"Ability: " + b.name, *b.value, b.low, b.high})
		}
	}
	for place, effect := range m.Position {
		check(bound{fmt.Sprintf("Position[%d]", place), effect, -10, 10})
	}
	if !slices.Contains([]ResponseFormat{FormatIgnored, FormatHonoured, FormatRefused}, m.ResponseFormat) {
		errs = append(errs, fmt.Errorf("model %q: unknown treatment of response_format %q", m.Name, m.ResponseFormat))
	}
	if !m.Maps.known() {
		errs = append(errs, fmt.Errorf("model %q: unknown form of maps %q", m.Name, m.Maps.Form))
	}
	for i, f := range m.Faults {
		if err := f.validate(); err != nil {
			errs = append(errs, fmt.Errorf("model %q: fault %d: %w", m.Name, i, err))
		}
	}
	return errors.Join(errs...)
}

// Council returns four models of different character for demonstrations. amber is good and likes its own answers. birch
// is long-winded and likes long answers. cedar is terse and harsh, and favours the answer that it reads first. dune is
// weak and erratic, and favours the answer that it reads last. All four answer within about a second.
func Council() []Model {
	return []Model{
		{
			Name: "amber", Quality: 1.2, Spread: 0.8, Length: 1, LengthSigma: 0.25,
			Harshness: 0.2, Affinity: map[string]float64{"amber": 0.5}, Noise: 0.6, API: API{ResponseFormat: FormatHonoured},
			Latency:    Latency{Median: 350 * time.Millisecond, Sigma: 0.25},
			FirstChunk: 120 * time.Millisecond, ChunkDelay: 8 * time.Millisecond,
			Price: Price{Input: 2.5, Output: 10},
		},
		{
			Name: "birch", Quality: 0.8, Spread: 0.8, Length: 1.6, LengthSigma: 0.3,
			Harshness: 0.4, Affinity: map[string]float64{"birch": 0.2}, LengthBias: 0.4, Noise: 0.7,
			Latency:    Latency{Median: 500 * time.Millisecond, Sigma: 0.25},
			FirstChunk: 180 * time.Millisecond, ChunkDelay: 6 * time.Millisecond,
			Price: Price{Input: 3, Output: 15},
		},
		{
			Name: "cedar", Quality: 0.5, Spread: 0.9, Length: 0.6, LengthSigma: 0.2,
			Harshness: -0.9, Affinity: map[string]float64{"cedar": 0.2}, Position: []float64{0.4}, Noise: 0.6,
			Latency:    Latency{Median: 200 * time.Millisecond, Sigma: 0.2},
			FirstChunk: 80 * time.Millisecond, ChunkDelay: 10 * time.Millisecond,
			Price: Price{Input: 0.8, Output: 4},
		},
		{
			Name: "dune", Quality: -0.5, Spread: 1, Length: 1.1, LengthSigma: 0.35,
			Affinity: map[string]float64{"dune": 0.3}, Last: 0.3, Noise: 1.1,
			Latency:    Latency{Median: 280 * time.Millisecond, Sigma: 0.35},
			FirstChunk: 60 * time.Millisecond, ChunkDelay: 5 * time.Millisecond,
			Price: Price{Input: 0.15, Output: 0.6},
		},
	}
}

// Troubled returns models that each have one fault. down always fails with HTTP 500. limited fails with 429 and
// Retry-After. silent sends empty texts. abstainer writes answers but declines to rank. garbler writes answers, but its
// ballots are cut off. slow takes 3 seconds.
func Troubled() []Model {
	return []Model{
		{Name: "down", Faults: []Fault{{Kind: FaultStatus, Rate: 1, Status: 500}}},
		{Name: "limited", Faults: []Fault{{Kind: FaultStatus, Rate: 1, Status: 429, RetryAfter: "2"}}},
		{Name: "silent", Faults: []Fault{{Kind: FaultEmptyContent, Rate: 1}}},
		{Name: "abstainer", Noise: 0.6, Faults: []Fault{{Kind: BallotAbstain, Rate: 1}}},
		{Name: "garbler", Noise: 0.6, Faults: []Fault{{Kind: BallotTruncated, Rate: 1}}},
		{Name: "slow", Noise: 0.6, Latency: Latency{Median: 3 * time.Second}},
	}
}
