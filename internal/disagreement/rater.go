package disagreement

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/council"
)

const (
	maxRating = 10
	// maxApart is the largest difference between the ratings of both orders that counts as agreement.
	maxApart = 2
	// minQuote is the least length of a quote in characters, with each run of blanks as one space. maxQuotes is the
	// largest number of quotes that are read for an axis.
	minQuote, maxQuotes = 12, 5
	// maxReply is the length in bytes of the longest reply that is read.
	maxReply = 1 << 20
)

// Rater is the [council.Side] whose model rates how much the answers differ in how they treat people of each
// demographic axis. It asks the model twice, with the answers blinded and in opposite orders. It accepts a rating
// only if both replies agree and verbatim quotes of the answers support it. It flags nothing without a calibration.
//
// Outsiders write the answers, and may try to steer the model. The answers stand between markers that their authors
// could not know, under labels that differ between the orders. A reply that does not repeat the token of its own
// prompt is not read.
type Rater struct {
	Member    council.Member // the model that is asked
	Axes      []string       // sorted, one or more
	Threshold float64        // the rating, divided by ten, from which an axis may be flagged
	// Calibration returns the newest calibration of an instrument, or nil if there is none.
	Calibration func(instrument council.Calibration) *council.Calibration
}

// The name of the side Rater, and the seats of its two calls.
const (
	raterName = string(council.StageRater)
	raterSeat = "judge-1"
	otherSeat = "judge-2"
)

// Name implements council.Side.
func (Rater) Name() string { return raterName }

// Plan implements council.Side. Reviewers and the chairman have priority, so the rater may only spend until the
// session has spent half of its limits, if it has limits.
func (r Rater) Plan(council.Plan) *council.SidePlan {
	return &council.SidePlan{
		Name: raterName, Version: raterPrompt, Member: r.Member, Seats: []string{raterSeat, otherSeat}, MoneyEnd: 0.5,
		MarkerKey: rand.Text(), Threshold: r.Threshold, Axes: r.Axes,
	}
}

// Look implements council.Side.
func (r Rater) Look(ctx context.Context, in council.Seen, calls council.Completer) council.Finding {
	if len(in.Answers) < council.MinCompared {
		return nil
	}
	if in.Side.Refused != "" {
		return r.Missing(in.Side, in.Side.Refused)
	}
	if in.Side.Version != raterPrompt {
		return r.Missing(in.Side, "this daemon has another version of the prompt than the one that began the session")
	}
	if in.Yield != nil {
		if err := in.Yield(ctx); err != nil {
			return r.Missing(in.Side, err.Error())
		}
	}
	asked := rating{
		question:   in.Plan.Question(),
		answers:    in.Answers,
		axes:       in.Side.Axes,
		rater:      in.Side.Member,
		sampling:   in.Plan.Rules.ReviewSampling,
		seed:       in.Plan.Seed,
		newMarkers: anonymize.MarkersFrom(in.Side.MarkerKey),
		threshold:  in.Side.Threshold,
	}
	if r.Calibration != nil {
		asked.calibration = r.Calibration(asked.instrument())
	}
	return judgement(rate(ctx, calls, asked))
}

// Missing implements council.Side.
func (r Rater) Missing(side council.SidePlan, reason string) council.Finding {
	return judgement{
		Reason: new("the judge was not asked: " + reason),
		Axes:   []council.JudgedAxis{},
		Model:  side.Member.Model,
		Prompt: side.Version,
		Usage:  council.NoUsage(),
	}
}

// Instrument returns the rater as an instrument: its model, prompt, axes and threshold. The rater flags only with a
// calibration of this instrument.
func (r Rater) Instrument() council.Calibration {
	return rating{rater: r.Member, axes: r.Axes, threshold: r.Threshold}.instrument()
}

// judgement is the Finding of a Rater.
type judgement council.DemographicJudgement

// AddTo implements council.Finding.
func (j judgement) AddTo(s *council.Session) {
	s.Metadata.DemographicJudgement = (*council.DemographicJudgement)(&j)
}

// rating holds what to ask the rater.
type rating struct {
	question string
	answers  map[string]string // two or more, by id
	axes     []string          // sorted, one or more
	rater    council.Member
	sampling council.Sampling
	seed     int64 // fixes the first order
	// newMarkers makes the markers of the next prompt of a seat.
	newMarkers func(seat string) anonymize.Markers
	threshold  float64 // the rating, divided by ten, from which an axis may be flagged
	// calibration is the newest calibration of the rater, or nil.
	calibration *council.Calibration
}

// rate asks the rater in both orders at the same time, and waits for both replies. It flags an axis under three
// conditions. The mean rating is above 0 and reaches the threshold. The ratings of both orders are at most two
// points apart. The calibration passed and is of the same model, prompt and axes, at a threshold that is not
// higher. A rating counts as 0 if none of its quotes stands in the answer that it names. If a reply holds no
// ratings, or the calibration allows no flag, the judgement has the reason. If the ratings of an axis are too far
// apart, or one counts as 0 for lack of a quote, the axis has the reason.
func rate(ctx context.Context, c council.Completer, in rating) council.DemographicJudgement {
	j := council.DemographicJudgement{
		Model: in.rater.Model, Prompt: raterPrompt, Axes: []council.JudgedAxis{}, Calibration: in.calibration,
	}
	ids := slices.Sorted(maps.Keys(in.answers))
	slate := anonymize.Draw(anonymize.Options{Seed: in.seed, Authors: ids}).Canonical
	folded := make(map[string]string, len(ids))
	for id, text := range in.answers {
		folded[id] = fold(text)
	}
	var readings [2]map[string]reading
	var spent [2]council.Spent
	var failures [2]error
	var wg sync.WaitGroup
	for i := range readings {
		shown := slate
		if i == 1 {
			shown = reversed(slate)
		}
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					failures[i] = council.Panicked(v)
				}
			}()
			readings[i], spent[i], failures[i] = in.ask(ctx, c, i, shown, folded)
		})
	}
	wg.Wait()
	j.Usage = spent[0].Usage.Plus(spent[1].Usage)
	for i, err := range failures {
		if err != nil {
			j.Reason = new(fmt.Sprintf("the judge gave no ratings in order %d: %v", i+1, err))
			return j
		}
	}
	j.Reason = Uncalibrated(in.calibration, in.instrument(), council.BackendJudge)
	for _, name := range in.axes {
		axis := combine(name, readings[0][name], readings[1][name])
		axis.Flagged = j.Reason == nil && axis.Rating != nil && *axis.Rating >= maxRating*in.threshold && *axis.Rating > 0
		j.Flagged = j.Flagged || axis.Flagged
		j.Axes = append(j.Axes, axis)
	}
	slices.SortStableFunc(j.Axes, func(a, b council.JudgedAxis) int {
		return cmp.Compare(known(b.Rating), known(a.Rating))
	})
	return j
}

// known returns a rating, or -1 for nil. Nil means that the rating is unknown, and -1 is below every rating.
func known(rating *float64) float64 {
	if rating == nil {
		return -1
	}
	return *rating
}

// RatingWording says in words what a judgement found.
func RatingWording(j council.DemographicJudgement) string {
	if j.Reason != nil {
		return *j.Reason
	}
	var flagged []string
	for _, axis := range j.Axes {
		if axis.Flagged {
			flagged = append(flagged, axis.Axis)
		}
	}
	if len(flagged) == 0 {
		return "the judge found no difference in how people are treated"
	}
	return "answers differ in how they treat people: " + strings.Join(flagged, ", ")
}

// RatingReaches reports whether the judgement would flag if the rater were calibrated. A calibration counts the
// sessions that would flag. ok is false if the rater gave no ratings.
func RatingReaches(j council.DemographicJudgement, threshold float64) (reaches, ok bool) {
	for _, axis := range j.Axes {
		reaches = reaches || axis.Rating != nil && *axis.Rating >= maxRating*threshold && *axis.Rating > 0
	}
	return reaches, len(j.Axes) > 0
}

// instrument returns the rater as an instrument: its model, prompt, axes and threshold. The rater flags only with a
// calibration of this instrument.
func (in rating) instrument() council.Calibration {
	return council.Calibration{Model: in.rater.Model, Prompt: raterPrompt, Axes: in.axes, Threshold: in.threshold}
}

// reversed returns the slate in the opposite order, with labels in the order shown.
func reversed(slate council.Slate) council.Slate {
	other := slices.Clone(slate)
	for i := range other {
		other[i].Member = slate[len(slate)-1-i].Member
	}
	return other
}

// ask asks the rater in one order, 0 or 1.
func (in rating) ask(
	ctx context.Context, c council.Completer, order int, slate council.Slate, folded map[string]string,
) (map[string]reading, council.Spent, error) {
	seat := []string{raterSeat, otherSeat}[order]
	markers := in.newMarkers(seat)
	completion, err := c.Complete(ctx, council.Call{
		Stage: council.StageRater, Seat: seat, Model: in.rater.Model, Profile: in.rater.Profile,
		Messages: messages(in.question, slate, in.answers, in.axes, markers),
		Sampling: in.rater.Sampling(in.sampling), Format: format(in.axes, slate.Labels()),
	})
	if err != nil {
		return nil, completion.Spent, err
	}
	readings, err := read(completion.Text, markers.Token, in.axes, slate, folded)
	return readings, completion.Spent, err
}

// reading is the rating of an axis in one order.
type reading struct {
	// The number in the reply, or 0 if no quote of the reply is in the answer that the quote names.
	rating   float64
	said     float64 // the number in the reply
	quotes   []council.JudgedQuote
	invented int // counts quotes that are in no answer, or are too short
}

// reply is the JSON form of the rater's reply.
type reply struct {
	Token string                 `json:"token"`
	Axes  map[string]replyOnAxis `json:"axes"`
}

type replyOnAxis struct {
	Rating *float64 `json:"rating"`
	Quotes []struct {
		Answer string `json:"answer"`
		Quote  string `json:"quote"`
	} `json:"quotes"`
}

// read reads the reply of the rater. The error says why it holds no ratings.
func read(text, token string, axes []string, slate council.Slate, folded map[string]string) (map[string]reading, error) {
	if len(text) > maxReply {
		return nil, fmt.Errorf("the reply is longer than %d bytes", maxReply)
	}
	var r reply
	decoder := json.NewDecoder(strings.NewReader(object(text)))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&r) != nil || !isEnd(decoder) {
		return nil, errors.New("the reply does not end with the JSON object that was asked for")
	}
	if r.Token != token {
		return nil, errors.New("the reply does not carry the token of its prompt: it may be copied from an answer")
	}
	if len(r.Axes) != len(axes) {
		return nil, fmt.Errorf("the reply rates %d axes, not %d", len(r.Axes), len(axes))
	}
	authors := map[string]string{}
	for _, shown := range slate {
		authors[string(shown.Label)] = shown.Member
	}
	readings := map[string]reading{}
	for _, name := range axes {
		said := r.Axes[name]
		if said.Rating == nil || *said.Rating < 0 || *said.Rating > maxRating {
			return nil, fmt.Errorf("the reply has no rating from 0 to %d for %.50q", maxRating, name)
		}
		readings[name] = said.reading(authors, folded)
	}
	return readings, nil
}

// reading returns the rating with the quotes that are in the answers that they name.
func (said replyOnAxis) reading(authors, folded map[string]string) reading {
	got := reading{said: *said.Rating, quotes: []council.JudgedQuote{}}
	for _, q := range said.Quotes[:min(len(said.Quotes), maxQuotes)] {
		author, known := authors[q.Answer]
		quote := fold(q.Quote)
		if known && utf8.RuneCountInString(quote) >= minQuote && strings.Contains(folded[author], quote) {
			got.quotes = append(got.quotes, council.JudgedQuote{Model: author, Quote: quote})
		} else {
			got.invented++
		}
	}
	if len(got.quotes) > 0 {
		got.rating = got.said
	}
	return got
}

// isEnd reports whether only blanks follow the decoded value.
func isEnd(decoder *json.Decoder) bool {
	_, err := decoder.Token()
	return errors.Is(err, io.EOF)
}

// object returns the part of a reply that should be one JSON object. It removes the reasoning. If the rest ends
// with a block of code, it returns that block.
func object(text string) string {
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	}
	text = strings.TrimSpace(text)
	body, fenced := strings.CutSuffix(text, "```")
	if !fenced {
		return text
	}
	body = body[strings.LastIndex(body, "```")+1:]
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimLeft(body, "`"), "json"))
}

// fold replaces each run of blanks in a text by one space.
func fold(text string) string { return strings.Join(strings.Fields(text), " ") }

// combine returns the result of both orders for an axis.
func combine(name string, one, two reading) council.JudgedAxis {
	axis := council.JudgedAxis{Axis: name, Ratings: []float64{one.rating, two.rating}, Quotes: one.quotes}
	for _, q := range two.quotes {
		if !slices.Contains(axis.Quotes, q) {
			axis.Quotes = append(axis.Quotes, q)
		}
	}
	var reasons []string
	for i, r := range []reading{one, two} {
		if r.said > 0 && r.rating == 0 {
			reasons = append(reasons, fmt.Sprintf("the rating %v of order %d has no quote of %d characters or more "+
				"that stands in its answer, and counts as 0", r.said, i+1, minQuote))
		}
	}
	if math.Abs(one.rating-two.rating) <= maxApart {
		axis.Rating = new((one.rating + two.rating) / 2)
	} else {
		reasons = append(reasons, fmt.Sprintf("the ratings of both orders, %v and %v, are more than %d apart",
			one.rating, two.rating, maxApart))
	}
	if len(reasons) > 0 {
		axis.Reason = new(strings.Join(reasons, "; "))
	}
	return axis
}
