package disagreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/councild/councild/internal/council"
)

const (
	// embeddedChars is how many characters of an answer are embedded. Many models refuse longer texts.
	embeddedChars = 6000
	// minClustered is the least number of answers for which Cluster tests an axis. With four answers, p would be at
	// least 1/24.
	minClustered = 5
	// embeddingsName is the name of the side Embeddings, and the seat of its call.
	embeddingsName = string(council.StageEmbedding)
)

// Embeddings is the [council.Side] that asks a model for embeddings of the answers. It adds the similarity of the
// answers to the records. With Clusters it also says whether answers with similar embeddings cover a demographic axis
// alike.
type Embeddings struct {
	Model    string
	Clusters bool
	// Matcher finds the terms of the axes. It is nil in a process without a lexicon.
	Matcher   *Matcher
	Threshold float64 // the score, 0 to 1, from which an axis may be flagged
	// Calibration returns the newest calibration of an instrument, or nil if there is none.
	Calibration func(instrument council.Calibration) *council.Calibration
}

// Name implements council.Side.
func (Embeddings) Name() string { return embeddingsName }

// Plan implements council.Side.
func (e Embeddings) Plan(plan council.Plan) *council.SidePlan {
	side := &council.SidePlan{
		Name:      embeddingsName,
		Member:    council.Member{Model: e.Model},
		MoneyEnd:  0.8,
		Records:   plan.Rules.Consent > 0,
		Threshold: e.Threshold,
	}
	if e.Clusters {
		side.Version = clusterRule
	}
	if side.Records || e.Clusters && len(plan.Members()) >= minClustered {
		const longest = 4 // a character has at most this many bytes
		side.Seats = []string{embeddingsName}
		side.EmbedBytes = longest * embeddedChars * int64(len(plan.Members()))
	}
	if side.Seats == nil && !e.Clusters {
		return nil
	}
	return side
}

// Look implements council.Side.
func (e Embeddings) Look(ctx context.Context, in council.Seen, calls council.Completer) council.Finding {
	found := similarity{side: in.Side, usage: council.NoUsage(), missing: in.Side.Refused}
	if in.Side.Version == clusterRule && e.Matcher != nil {
		terms := Answered{
			Question:  in.Plan.Question(),
			Answers:   in.Answers,
			Matcher:   e.Matcher,
			Threshold: in.Side.Threshold,
			Seed:      in.Plan.Seed,
		}
		found.coverage = Cover(ctx, terms)
		if e.Calibration != nil {
			found.calibration = e.Calibration(terms.Instrument(in.Side.Member.Model))
		}
	}
	wrote := func(m council.Member) bool { return slices.Contains(in.Authors, m.ID) }
	records := in.Side.Records && slices.ContainsFunc(in.Plan.Reviewers(), wrote)
	clusters := in.Side.Version != "" && len(in.Authors) >= minClustered
	if len(in.Authors) < 2 || !records && !clusters {
		found.missing = ""
		return found
	}
	if found.missing == "" {
		found.ask(ctx, in, calls)
	}
	return found
}

// Missing implements council.Side.
func (Embeddings) Missing(side council.SidePlan, reason string) council.Finding {
	return similarity{side: side, usage: council.NoUsage(), missing: reason}
}

// similarity is the Finding of Embeddings.
type similarity struct {
	side council.SidePlan
	// cosines holds, for each pair of authors, the cosine of the embeddings of their answers. Both orders of a pair
	// are keys, and so is each author with itself. It is nil if nothing was measured.
	cosines map[[2]string]float64
	// missing says why nothing was measured. It is "" if the answers were measured, or if no figure needs the
	// measurement.
	missing     string
	usage       council.Usage
	coverage    *Coverage // is nil if the terms were not compared
	calibration *council.Calibration
}

// ask asks the model for embeddings of the answers, and sets their cosines.
func (f *similarity) ask(ctx context.Context, in council.Seen, calls council.Completer) {
	texts := make([]string, len(in.Authors))
	for i, author := range in.Authors {
		texts[i] = beginning(in.Answers[author], embeddedChars)
	}
	reply, err := calls.Complete(ctx, council.Call{
		Stage: council.StageEmbedding, Seat: in.Side.Seats[0], Model: in.Side.Member.Model, Texts: texts,
	})
	f.usage = reply.Usage
	if err == nil {
		f.cosines, err = readCosines(in.Authors, reply.Text)
	}
	if err != nil {
		f.missing = err.Error()
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

// readCosines reads the cosines of the answers of each two authors from the reply to a call for embeddings.
func readCosines(authors []string, text string) (map[[2]string]float64, error) {
	var rows [][]float64
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != len(authors) {
		return nil, errors.New("the similarities of the answers in the log cannot be read")
	}
	cosines := make(map[[2]string]float64, len(rows)*len(rows))
	for i, row := range rows {
		if len(row) != len(authors) {
			return nil, fmt.Errorf("the similarities in the log are of %d answers, and there are %d",
				len(row), len(authors))
		}
		for j, cosine := range row {
			cosines[[2]string{authors[i], authors[j]}] = cosine
		}
	}
	return cosines, nil
}

// Annotate implements council.Annotator.
func (f similarity) Annotate(r *council.BiasMetricRecord, reviewer, author string) {
	if cosine, ok := f.cosines[[2]string{reviewer, author}]; ok {
		r.StyleSimilarity = &cosine
		r.EmbeddingModel = f.side.Member.Model
	}
}

// AddTo implements council.Finding.
func (f similarity) AddTo(s *council.Session) {
	if f.side.Records && f.missing != "" {
		s.Metadata.Warnings = append(s.Metadata.Warnings, council.Warning{
			Code: council.WarnNoStyle,
			Message: "the similarity of the answers was not measured, so that the session's records lack " +
				"style_similarity: " +
				f.missing,
		})
	}
	if f.side.Version != "" {
		s.Metadata.DemographicClustering = new(f.clustering(s.Metadata.DemographicDisagreement))
	}
}

// clustering says whether answers with similar embeddings cover an axis alike. lexical is what Detect found, or nil
// if the terms were not compared.
func (f similarity) clustering(lexical *council.DemographicDisagreement) council.DemographicClustering {
	if f.coverage == nil || lexical == nil {
		return council.DemographicClustering{
			Reason: new("not tested: the session ended before the test, or this daemon has no lexicon or another version of the rule"),
			Axes:   []council.ClusteredAxis{},
			Model:  f.side.Member.Model,
			Rule:   f.side.Version,
			Usage:  f.usage,
		}
	}
	e := embedded{model: f.side.Member.Model, usage: f.usage, missing: f.missing, calibration: f.calibration}
	if f.cosines != nil {
		e.cosine = func(a, b string) float64 { return f.cosines[[2]string{a, b}] }
	}
	if len(f.coverage.ids) < minClustered { // the call was made for the records, not for clusters
		e.usage = council.NoUsage()
	}
	return f.coverage.Cluster(*lexical, e)
}
