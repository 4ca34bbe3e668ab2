package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/stat"
)

// styleGrace is the longest time that a session waits for the embeddings of its answers after
// everything else is done.
const styleGrace = 2 * time.Second

// errSlowStyle ends a measurement that nobody waits for any longer.
var errSlowStyle = fmt.Errorf("%w: the session was done, and the embeddings of its answers were not", council.ErrCut)

// style is how alike the answers of a session are. It is measured beside stages 2 and 3, and is for the
// records and for what [run.clusterSide] says: nothing else of the session depends on it.
type style struct {
	cut  context.CancelCauseFunc
	done chan struct{} // closed when all below is set

	model   string
	cosines map[[2]string]float64 // by authors, in either order and of each with itself; nil: not measured
	missing string                // why it was not measured; "" where it was, and where nobody asked
	usage   council.Usage         // of the call
}

// measureStyle begins to measure how alike the answers are, where the plan asks for it and a reviewer
// wrote one of them or the answers are clustered. Until names the stage by whose deadline it is done. The
// caller ends it.
func (r *run) measureStyle(ctx context.Context, until council.Stage) *style {
	rules := r.plan.Rules
	s := &style{
		cut: func(error) {}, done: make(chan struct{}), model: rules.EmbeddingModel, missing: rules.EmbeddingRefused, usage: council.NoUsage(),
	}
	wrote := func(m council.Member) bool { return slices.Contains(r.authors, m.ID) }
	if !r.plan.Embeds() || len(r.authors) < 2 || !r.clusters() && !slices.ContainsFunc(r.plan.Reviewers, wrote) {
		close(s.done)
		return s
	}
	texts := embedded(r.authors, r.answers)
	ctx, release := r.until(ctx, until)
	ctx, s.cut = context.WithCancelCause(ctx)
	go func() { // ends when the call does, which the end of ctx ends
		defer close(s.done)
		defer release()
		var err error
		panicked := protect(r.log, func() {
			var reply council.Completion
			reply, err = r.calls.Complete(ctx, council.Call{
				Stage: council.StageEmbedding, Seat: council.SeatEmbedding, Model: s.model, Texts: texts,
			})
			s.usage = reply.Usage
			if err == nil {
				s.cosines, err = readCosines(r.authors, reply.Text)
			}
		})
		if panicked != nil {
			err = panicked
		}
		if err != nil {
			s.missing = err.Error()
		}
	}()
	return s
}

// embedded returns what is embedded of the answers of these authors.
func embedded(authors []string, answers map[string]string) []string {
	texts := make([]string, len(authors))
	for i, author := range authors {
		texts[i] = beginning(answers[author], council.EmbeddedChars)
	}
	return texts
}

// similarities is a Completer whose replies have the cosines of embeddings in place of them: JSON of a row for each
// text, rounded to four places. So the log of a run holds no embedding, and what was paid for is not asked for again.
type similarities struct{ council.Completer }

// Complete implements council.Completer.
func (s similarities) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	completion, err := s.Completer.Complete(ctx, call)
	if err != nil || call.Texts == nil {
		return completion, err
	}
	const digits = 1e4
	rows := stat.Matrix(len(completion.Vectors), len(completion.Vectors), 0.)
	for i, x := range completion.Vectors {
		for j, y := range completion.Vectors {
			rows[i][j] = math.Round(digits*stat.Cosine(x, y)) / digits
		}
	}
	text, _ := json.Marshal(rows) // no embedding is zero as a whole, so that all are numbers
	completion.Text = string(text)
	completion.Vectors = nil
	return completion, nil
}

// readCosines returns the cosines of similarities by authors.
func readCosines(authors []string, text string) (map[[2]string]float64, error) {
	var rows [][]float64
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != len(authors) {
		return nil, errors.New("the similarities of the answers in the log cannot be read")
	}
	cosines := make(map[[2]string]float64, len(rows)*len(rows))
	for i, row := range rows {
		for j, cosine := range row {
			cosines[[2]string{authors[i], authors[j]}] = cosine
		}
	}
	return cosines, nil
}

// stop ends the measurement at once, where it still goes on.
func (s *style) stop() {
	s.cut(errSlowStyle)
	<-s.done
}

// endStyle ends the measurement, after styleGrace at the latest, and warns where it brought nothing.
func (r *run) endStyle(s *style) {
	timer := time.AfterFunc(styleGrace, func() { s.cut(errSlowStyle) })
	<-s.done
	timer.Stop()
	r.warnOfNoStyle(s)
}

// warnOfNoStyle warns where it was to be measured how alike the answers are, and was not.
func (r *run) warnOfNoStyle(s *style) {
	if s.missing != "" {
		r.warn(council.WarnNoStyle, "how alike the answers are was not measured, so that the session's records lack style_similarity: "+s.missing)
	}
}

// fill sets what was measured in records, whose reviewers and candidates have these member ids.
func (s *style) fill(records []council.BiasMetricRecord, members [][2]string) {
	for i, pair := range members {
		if cosine, ok := s.cosines[pair]; ok {
			records[i].StyleSimilarity = &cosine
			records[i].EmbeddingModel = s.model
		}
	}
}

// beginning returns the first n characters of a text.
func beginning(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
