package pipeline

import (
	"context"
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

// style is how alike the answers of a session are. It is measured beside stages 2 and 3, and is for the
// records alone: no part of the session depends on it.
type style struct {
	cut  context.CancelCauseFunc
	done chan struct{} // closed when all below is set

	model   string
	cosines map[[2]string]float64 // by authors, in either order and of each with itself; nil: not measured
	missing string                // why it was not measured; "" where it was, and where nobody asked
}

// measureStyle begins to measure how alike the answers are, where the plan asks for it and a reviewer
// wrote one of them. Until names the stage by whose deadline it is done. The caller ends it.
func (r *run) measureStyle(ctx context.Context, until council.Stage) *style {
	rules := r.plan.Rules
	s := &style{cut: func(error) {}, done: make(chan struct{}), model: rules.EmbeddingModel, missing: rules.EmbeddingRefused}
	wrote := func(m council.Member) bool { return slices.Contains(r.authors, m.ID) }
	if !rules.Embeds() || len(r.authors) < 2 || !slices.ContainsFunc(r.plan.Reviewers, wrote) {
		close(s.done)
		return s
	}
	texts := make([]string, len(r.authors))
	for i, author := range r.authors {
		texts[i] = beginning(r.answers[author], council.EmbeddedChars)
	}
	ctx, release := r.until(ctx, until)
	ctx, s.cut = context.WithCancelCause(ctx)
	go func() { // ends when the call does, which the end of ctx ends
		defer close(s.done)
		defer release()
		var embedded council.Completion
		var err error
		panicked := protect(r.log, func() {
			embedded, err = r.meter.Complete(ctx, council.Call{
				Stage: council.StageEmbedding, Seat: council.SeatEmbedding, Model: s.model, Texts: texts,
			})
		})
		if panicked != nil {
			err = panicked
		}
		if err != nil {
			s.missing = err.Error()
			return
		}
		s.cosines = make(map[[2]string]float64, len(texts)*len(texts))
		for i, x := range embedded.Vectors {
			for j, y := range embedded.Vectors {
				const digits = 1e4
				s.cosines[[2]string{r.authors[i], r.authors[j]}] = math.Round(digits*stat.Cosine(x, y)) / digits
			}
		}
	}()
	return s
}

// stop ends the measurement at once, where it still goes on.
func (s *style) stop() {
	s.cut(context.Canceled)
	<-s.done
}

// endStyle ends the measurement, after styleGrace at the latest, and warns where it brought nothing.
func (r *run) endStyle(s *style) {
	timer := time.AfterFunc(styleGrace, func() {
		s.cut(fmt.Errorf("%w: the session was done, and the embeddings of its answers were not", council.ErrCut))
	})
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
			records[i].StyleSimilarity, records[i].EmbeddingModel = &cosine, s.model
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
