package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
)

// Comparer finds how answers differ when they speak of people. It compares only the terms that the answers use.
type Comparer struct{ rules disagreement.Rules }

// NewComparer returns a Comparer with the lexicon, the threshold and the size limits of the settings. Its error
// says what is wrong with the lexicon.
func NewComparer(cfg config.Config) (*Comparer, error) {
	lexicon, err := ReadLexicon(cfg.Lexicon)
	if err != nil {
		return nil, err
	}
	return &Comparer{disagreement.Rules{
		Terms: disagreement.NewMatcher(lexicon), Threshold: cfg.DemographicsThreshold,
		MaxQuestion: int64(cfg.MaxQueryBytes), MaxAnswer: int64(cfg.MaxUpstreamBytes), HasJudge: cfg.JudgeModel != "",
		HasEmbedding: cfg.EmbeddingModel != "", Settings: config.SettingNames(),
	}}, nil
}

// CheckDisagreement implements httpapi.Comparer.
func (c *Comparer) CheckDisagreement(r council.DisagreementRequest) error {
	_, err := c.rules.Read(r)
	return err
}

// Disagreement compares the answers of a request by terms. Its error is a *council.Error: the request is not valid,
// or ctx has ended.
func (c *Comparer) Disagreement(
	ctx context.Context, r council.DisagreementRequest,
) (council.DisagreementReport, error) {
	report, _, err := c.compare(ctx, r)
	return report, err
}

// compare does what Disagreement does, and also returns the parsed request.
func (c *Comparer) compare(
	ctx context.Context, r council.DisagreementRequest,
) (report council.DisagreementReport, in disagreement.Answered, err error) {
	if in, err = c.rules.Read(r); err != nil {
		return report, in, err
	}
	report, ok := disagreement.Report(ctx, in)
	if !ok {
		return report, in, cancelled(ctx)
	}
	return report, in, nil
}

// sides returns the analyses that the settings enable. They analyse the answers at the same time as the council works,
// and never change the result of the session (see council.Side). Terms comes first, because other analyses need its
// result.
func (e *Engine) sides(cfg config.Config, r *config.Roster) []council.Side {
	var sides []council.Side
	if cfg.SaysHowAnswersDiffer() {
		sides = append(sides, disagreement.Terms{Matcher: e.rules.Terms, Threshold: cfg.DemographicsThreshold})
	}
	if cfg.EmbeddingModel != "" {
		embeddings := disagreement.Embeddings{
			Model: cfg.EmbeddingModel, Threshold: cfg.DemographicsThreshold, Calibration: e.calibration,
			Clusters: cfg.Demographics == council.BackendEmbedding,
		}
		if cfg.SaysHowAnswersDiffer() {
			embeddings.Matcher = e.rules.Terms
		}
		sides = append(sides, embeddings)
	}
	if cfg.Demographics == council.BackendJudge {
		rater := e.rater(cfg, r, e.rules.Terms.Axes(), cfg.DemographicsThreshold)
		rater.Calibration = e.calibration
		sides = append(sides, rater)
	}
	return sides
}

// rater returns the side that asks the judge model of the settings. With a roster, the settings name that model by
// its id.
func (e *Engine) rater(cfg config.Config, r *config.Roster, axes []string, threshold float64) disagreement.Rater {
	member := council.Member{Model: cfg.JudgeModel}
	if r != nil {
		member = seats(cfg, r)[cfg.JudgeModel]
	}
	member.ID = cfg.JudgeModel
	return disagreement.Rater{Member: member, Axes: axes, Threshold: threshold}
}

// calibration returns the newest calibration of an instrument, or nil if there is none. It logs a file that it
// cannot read, and returns nil.
func (e *Engine) calibration(instrument council.Calibration) *council.Calibration {
	c, err := calibration(e.o.Config, instrument)
	if err != nil {
		e.o.Log.Warn("the calibrations cannot be read, so nothing is flagged", "error", err)
	}
	return c
}

// Disagreement implements httpapi.Comparer.
func (e *Engine) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	report, in, err := e.compare(ctx, r)
	if err != nil || !r.Backend.Asks() {
		return report, err
	}
	h := e.setup.Load()
	side, err := h.side(e, r.Backend, in)
	if err != nil {
		return report, err
	}
	finding, failure := h.pipelines[h.first].Look(ctx, r.Token, side, in.Question, in.Answers)
	if failure != nil {
		return report, failure
	}
	if finding == nil {
		return report, cancelled(ctx)
	}
	var said council.Session
	said.Metadata.DemographicDisagreement = &report.DemographicDisagreement
	finding.AddTo(&said)
	report.Backend = r.Backend
	if j := said.Metadata.DemographicJudgement; j != nil {
		report.Flagged = j.Flagged
		report.Wording = disagreement.RatingWording(*j)
		report.Judgement = j
	}
	if found := said.Metadata.DemographicClustering; found != nil {
		report.Flagged = found.Flagged
		report.Wording = disagreement.ClusterWording(*found)
		report.Clustering = found
	}
	return report, nil
}

// side returns the side (see council.Side) with which a backend analyses the answers in a request. The axes and the
// threshold come from the request. The model must be allowed to see every class of data, because a request has no data
// class. Unlike Engine.calibration, side returns an error if it cannot read the calibrations.
func (h *setup) side(e *Engine, backend council.DisagreementBackend, in disagreement.Answered) (council.Side, error) {
	name := h.cfg.JudgeModel
	setting := "LLM_COUNCIL_JUDGE_MODEL"
	is := func(m config.Model) bool { return m.ID == name }
	rater := e.rater(h.cfg, h.roster, in.Matcher.Axes(), in.Threshold)
	instrument := rater.Instrument()
	if backend == council.BackendEmbedding {
		name = h.cfg.EmbeddingModel
		setting = "LLM_COUNCIL_EMBEDDING_MODEL"
		is = func(m config.Model) bool { return m.Member.Model == name }
		instrument = in.Instrument(name)
	}
	if err := h.maySeeAll(name, setting, is); err != nil {
		return nil, err
	}
	newest, err := calibration(h.cfg, instrument)
	if err != nil {
		return nil, err
	}
	known := func(council.Calibration) *council.Calibration { return newest }
	if backend == council.BackendEmbedding {
		return disagreement.Embeddings{
			Model: name, Clusters: true, Matcher: in.Matcher, Threshold: in.Threshold, Calibration: known,
		}, nil
	}
	rater.Calibration = known
	return rater, nil
}

// cancelled is the error of a request whose caller has left.
func cancelled(ctx context.Context) *council.Error {
	return &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
}

// maySeeAll returns an error if the model may not see every class of data, because a request does not say which class
// its answers have. The last argument reports whether an entry of the roster is this model. The error names the model
// and its setting.
func (h *setup) maySeeAll(name, setting string, is func(config.Model) bool) error {
	if h.roster == nil || len(h.roster.Classes) == 0 {
		return nil
	}
	highest := h.roster.Classes[len(h.roster.Classes)-1]
	if slices.ContainsFunc(h.roster.Models, func(m config.Model) bool { return is(m) && m.Clearance == highest }) {
		return nil
	}
	return &council.Error{Code: council.CodeForbidden, Detail: fmt.Sprintf(
		"%s may not see data of every class, and the class of these answers is not known: give it the clearance %s in the roster, "+
			"or name another model in %s", name, highest, setting,
	)}
}

// maxCalibrating is how many sessions Calibrate asks about at the same time.
const maxCalibrating = 4

// Calibrate asks a backend to compare the answers of benign sessions, with the terms and the threshold of the settings.
// It stores how many sessions the backend would have flagged. A session does not count if the backend says nothing
// about it. The result unread is the number of these sessions. Calibrate calls its last argument after each session,
// one call at a time. It stores nothing if ctx ends or if a session fails, for example at a cost limit.
func (e *Engine) Calibrate(
	ctx context.Context, backend council.DisagreementBackend, sessions []council.DisagreementRequest, done func(),
) (c council.Calibration, unread int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards unread, flagged and read, and the calls of done
	var flagged, read int
	var group sync.WaitGroup
	places := make(chan struct{}, maxCalibrating)
	for i, r := range sessions {
		r.Lexicon = nil
		r.Threshold = nil
		r.Backend = backend
		in, err := e.rules.Read(r)
		if err != nil {
			cancel(fmt.Errorf("session %d: %w", i+1, err))
		}
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		group.Go(func() {
			defer func() { <-places }()
			flags, ok, err := e.wouldFlag(ctx, r, in.Threshold)
			if err != nil {
				cancel(fmt.Errorf("session %d: %w", i+1, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !ok {
				unread++
			} else if read++; flags {
				flagged++
			}
			done()
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return c, unread, context.Cause(ctx)
	}
	c = disagreement.Calibrate(e.instrument(backend), read, flagged, time.Now())
	return c, unread, keepCalibration(e.o.Config, c)
}

// wouldFlag reports whether a backend would flag the answers of a request if it were calibrated. ok is false if the
// backend says nothing about these answers.
func (e *Engine) wouldFlag(
	ctx context.Context, r council.DisagreementRequest, threshold float64,
) (flags, ok bool, err error) {
	report, err := e.Disagreement(ctx, r)
	switch {
	case err != nil:
		return false, false, err
	case report.Judgement != nil:
		flags, ok = disagreement.RatingReaches(*report.Judgement, threshold)
	case report.Clustering != nil:
		flags, ok = disagreement.ClusterReaches(*report.Clustering)
	}
	return flags, ok, nil
}

// instrument returns a calibration in which only the instrument is set: the backend, with the terms and the threshold
// of the settings.
func (e *Engine) instrument(backend council.DisagreementBackend) council.Calibration {
	h := e.setup.Load()
	in := disagreement.Answered{Matcher: e.rules.Terms, Threshold: e.rules.Threshold}
	if backend == council.BackendEmbedding {
		return in.Instrument(h.cfg.EmbeddingModel)
	}
	return e.rater(h.cfg, h.roster, in.Matcher.Axes(), in.Threshold).Instrument()
}

// checkID returns an error if the settings name a judge that the roster lacks.
func (h *setup) checkID() error {
	if h.roster == nil {
		return nil
	}
	id := h.cfg.JudgeModel
	if _, ok := h.roster.Model(id); ok || id == "" {
		return nil
	}
	var ids []string
	for _, m := range h.roster.Models {
		ids = append(ids, m.ID)
	}
	return fmt.Errorf("LLM_COUNCIL_JUDGE_MODEL: %q is not a model of the roster: use %s", id, strings.Join(ids, ", "))
}
