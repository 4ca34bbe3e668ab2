// Package judge has a model say how far the answers of a session differ in how they treat
// people of each demographic axis. [Rate] asks it twice, with the answers blinded and in opposite
// orders, and believes a rating only where both agree and where verbatim quotes of the answers
// support it. It flags nothing without a calibration of package disagreement.
//
// The answers are written by outsiders, and may try to steer the judge. They stand between markers
// that nobody could know before, under labels that differ from order to order, and a reply that
// does not repeat the prompt's own token is not read.
//
// The package leaves to others which model is asked, what that may cost, and where calibrations
// are kept.
package judge

import (
	"cmp"
	"context"
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
	"github.com/councild/councild/internal/disagreement"
)

const (
	maxRating = 10
	// maxApart is how far the ratings of both orders may lie apart.
	maxApart = 2
	// minQuote is the least number of characters of a quote, blanks folded, and maxQuotes the most
	// quotes of an axis that are looked at.
	minQuote, maxQuotes = 12, 5
	// maxReply is the length in bytes of the longest reply that is read.
	maxReply = 1 << 20
)

// Input is what the judge is asked about.
type Input struct {
	Question   string
	Answers    map[string]string // by id, two or more
	Axes       []string          // sorted, one or more
	Judge      council.Member
	Sampling   council.Sampling
	Stage      council.Stage                       // of the calls
	Seed       int64                               // fixes the first order
	NewMarkers func(seat string) anonymize.Markers // of the next prompt of a seat
	// Threshold is the rating, divided by ten, from which an axis may be flagged.
	Threshold float64
	// Calibration is the newest one of the judge, nil where there is none.
	Calibration *council.Calibration
}

// Seats are those of the two calls.
func Seats() [2]string { return [2]string{"judge-1", "judge-2"} }

// Rate asks the judge in both orders at once, and waits for both replies. It flags an axis where the
// mean rating reaches the threshold, the ratings of both orders lie at most two points apart, and
// the calibration allows flags: it is of the same model, prompt and axes, of a threshold that is not
// higher, and passed. A rating without a quote that stands in the answer that it names counts as 0.
// Whatever keeps the judge from flagging is the reason of the judgement or of the axis.
func Rate(ctx context.Context, c council.Completer, in Input) council.DemographicJudgement {
	j := council.DemographicJudgement{
		Model: in.Judge.Model, Prompt: PromptVersion, Axes: []council.JudgedAxis{}, Calibration: in.Calibration,
	}
	ids := slices.Sorted(maps.Keys(in.Answers))
	slate := anonymize.Draw(anonymize.Options{Seed: in.Seed, Authors: ids}).Canonical
	folded := make(map[string]string, len(ids))
	for id, text := range in.Answers {
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
	j.Reason = disagreement.Uncalibrated(in.Calibration, in.Instrument(), council.BackendJudge)
	for _, name := range in.Axes {
		axis := combine(name, readings[0][name], readings[1][name])
		axis.Flagged = j.Reason == nil && axis.Rating != nil && *axis.Rating >= maxRating*in.Threshold && *axis.Rating > 0
		j.Flagged = j.Flagged || axis.Flagged
		j.Axes = append(j.Axes, axis)
	}
	slices.SortStableFunc(j.Axes, func(a, b council.JudgedAxis) int { return cmp.Compare(known(b.Rating), known(a.Rating)) })
	return j
}

// known returns a rating, and for one that is unknown a number below all ratings.
func known(rating *float64) float64 {
	if rating == nil {
		return -1
	}
	return *rating
}

// Wording returns a judgement in words.
func Wording(j council.DemographicJudgement) string {
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

// Reaches reports whether the judgement would flag if it were calibrated, which is what a calibration
// counts. ok is false where the judge gave no ratings.
func Reaches(j council.DemographicJudgement, threshold float64) (reaches, ok bool) {
	for _, axis := range j.Axes {
		reaches = reaches || axis.Rating != nil && *axis.Rating >= maxRating*threshold && *axis.Rating > 0
	}
	return reaches, len(j.Axes) > 0
}

// Instrument is what a calibration for the flags of the judge has to name.
func (in Input) Instrument() council.Calibration {
	return council.Calibration{Model: in.Judge.Model, Prompt: PromptVersion, Axes: in.Axes, Threshold: in.Threshold}
}

// reversed returns the slate in the opposite order, under labels in the order shown.
func reversed(slate council.Slate) council.Slate {
	other := slices.Clone(slate)
	for i := range other {
		other[i].Member = slate[len(slate)-1-i].Member
	}
	return other
}

// ask asks the judge in one order.
func (in Input) ask(
	ctx context.Context, c council.Completer, order int, slate council.Slate, folded map[string]string,
) (map[string]reading, council.Spent, error) {
	seat := Seats()[order]
	markers := in.NewMarkers(seat)
	completion, err := c.Complete(ctx, council.Call{
		Stage: in.Stage, Seat: seat, Model: in.Judge.Model, Profile: in.Judge.Profile,
		Messages: messages(in.Question, slate, in.Answers, in.Axes, markers),
		Sampling: in.Judge.Sampling(in.Sampling), Format: format(in.Axes, slate.Labels()),
	})
	if err != nil {
		return nil, completion.Spent, err
	}
	readings, err := read(completion.Text, markers.Token, in.Axes, slate, folded)
	return readings, completion.Spent, err
}

// reading is what the judge says of an axis in one order.
type reading struct {
	rating   float64 // 0 without a true quote
	said     float64 // what the judge wrote
	quotes   []council.JudgedQuote
	invented int // quotes that stand in no answer, or are too short
}

// reply is the form of the judge's reply.
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

// read reads the reply of the judge. The error says why it holds no ratings.
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
		said, ok := r.Axes[name]
		if !ok || said.Rating == nil || *said.Rating < 0 || *said.Rating > maxRating {
			return nil, fmt.Errorf("the reply has no rating from 0 to %d for %.50q", maxRating, name)
		}
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
		readings[name] = got
	}
	return readings, nil
}

// isEnd reports whether nothing but blanks follows what was decoded.
func isEnd(decoder *json.Decoder) bool {
	_, err := decoder.Token()
	return errors.Is(err, io.EOF)
}

// object returns the text of a reply that should be one JSON object: what follows its reasoning, and
// the last block of code where the reply ends with one.
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

// fold returns a text with each run of blanks as one space.
func fold(text string) string { return strings.Join(strings.Fields(text), " ") }

// combine returns what both orders say of an axis.
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
			reasons = append(reasons, fmt.Sprintf(
				"the rating %v of order %d has no quote of %d characters or more that stands in its answer, and counts as 0", r.said, i+1, minQuote,
			))
		}
	}
	if math.Abs(one.rating-two.rating) <= maxApart {
		axis.Rating = new((one.rating + two.rating) / 2)
	} else {
		reasons = append(reasons, fmt.Sprintf("the ratings of both orders, %v and %v, are more than %d apart", one.rating, two.rating, maxApart))
	}
	if len(reasons) > 0 {
		axis.Reason = new(strings.Join(reasons, "; "))
	}
	return axis
}
