package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/judge"
	"github.com/councild/councild/internal/roster"
)

// Comparer says how answers differ in how they speak of people, by terms alone.
type Comparer struct{ rules disagreement.Rules }

// NewComparer returns a Comparer as the settings say. Its error says what is wrong with the lexicon.
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

// Disagreement compares the answers of a request by terms.
func (c *Comparer) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	report, _, err := c.compare(ctx, r)
	return report, err
}

func (c *Comparer) compare(
	ctx context.Context, r council.DisagreementRequest,
) (report council.DisagreementReport, in disagreement.Input, err error) {
	if in, err = c.rules.Read(r); err != nil {
		return report, in, err
	}
	report, ok := disagreement.Report(ctx, in)
	if !ok {
		return report, in, cancelled(ctx)
	}
	return report, in, nil
}

// Disagreement implements httpapi.Comparer.
func (e *Engine) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	report, in, err := e.compare(ctx, r)
	if err != nil {
		return report, err
	}
	switch r.Backend {
	case council.BackendJudge:
		j, err := e.judge(ctx, r.Token, in)
		if err != nil {
			return report, err
		}
		report.Backend = r.Backend
		report.Flagged = j.Flagged
		report.Wording = judge.Wording(j)
		report.Judgement = &j
	case council.BackendEmbedding:
		found, err := e.cluster(ctx, r.Token, in, report.DemographicDisagreement)
		if err != nil {
			return report, err
		}
		report.Backend = r.Backend
		report.Flagged = found.Flagged
		report.Clustering = &found
		report.Wording = disagreement.ClusterWording(found)
	default: // the report is the lexicon's
	}
	return report, nil
}

// judge has the judge rate the answers.
func (e *Engine) judge(ctx context.Context, token string, in disagreement.Input) (j council.DemographicJudgement, err error) {
	h := e.setup.Load()
	p := h.pipelines[h.first]
	seat, ok := p.JudgeSeat()
	if !ok { // the request was checked
		return j, errors.New("there is no judge")
	}
	if err := h.maySeeAll(seat.ID, "LLM_COUNCIL_JUDGE_MODEL", func(m roster.Model) bool { return m.ID == seat.ID }); err != nil {
		return j, err
	}
	asked := judge.Input{
		Question: in.Question, Answers: in.Answers, Axes: in.Matcher.Axes(), Judge: seat, Threshold: in.Threshold,
		Seed: anonymize.SeedFor(0, in.Question),
	}
	if asked.Calibration, err = calibration(h.cfg, asked.Instrument()); err != nil {
		return j, err
	}
	j, failure := p.Judgement(ctx, token, asked)
	if failure != nil {
		return j, failure
	}
	return j, nil
}

// cluster has the answers embedded, and says whether those that lie together cover an axis alike.
func (e *Engine) cluster(
	ctx context.Context, token string, in disagreement.Input, lexical council.DemographicDisagreement,
) (found council.DemographicClustering, err error) {
	h := e.setup.Load()
	model := h.cfg.EmbeddingModel
	if err := h.maySeeAll(model, "LLM_COUNCIL_EMBEDDING_MODEL", func(m roster.Model) bool { return m.Member.Model == model }); err != nil {
		return found, err
	}
	newest, err := calibration(h.cfg, in.Instrument(model))
	if err != nil {
		return found, err
	}
	embedded, failure := h.pipelines[h.first].Embedded(ctx, token, in.Answers)
	if failure != nil {
		return found, failure
	}
	embedded.Calibration = newest
	coverage := disagreement.Cover(ctx, in)
	if coverage == nil {
		return found, cancelled(ctx)
	}
	return coverage.Cluster(lexical, embedded), nil
}

// cancelled is the error of a request whose caller has left.
func cancelled(ctx context.Context) *council.Error {
	return &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
}

// maySeeAll returns an error where no model of the roster of this kind may see data of every class: nobody says of
// what class the answers of a request are. The setting names the model.
func (h *setup) maySeeAll(name, setting string, is func(roster.Model) bool) error {
	if h.roster == nil || len(h.roster.Classes) == 0 {
		return nil
	}
	highest := h.roster.Classes[len(h.roster.Classes)-1]
	if slices.ContainsFunc(h.roster.Models, func(m roster.Model) bool { return is(m) && m.Clearance == highest }) {
		return nil
	}
	return &council.Error{Code: council.CodeForbidden, Detail: fmt.Sprintf(
		"%s may not see data of every class, and the class of these answers is not known: give it the clearance %s in the roster, "+
			"or name another model in %s", name, highest, setting,
	)}
}

// maxCalibrating is how many sessions are asked about at once.
const maxCalibrating = 4

// Calibrate has a backend compare the answers of benign sessions with the terms and the threshold of the settings,
// and keeps how many it would have flagged. Sessions of which it says nothing do not count: unread says how many they
// are. done is called after each session, one call at a time. Nothing is kept where ctx ends before, or where a
// limit of cost ends it.
func (e *Engine) Calibrate(
	ctx context.Context, backend council.DisagreementBackend, sessions []council.DisagreementRequest, done func(),
) (c council.Calibration, unread int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards what follows
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

// wouldFlag reports whether a backend would flag the answers of a request if it were calibrated. ok is false where
// it says nothing of them.
func (e *Engine) wouldFlag(ctx context.Context, r council.DisagreementRequest, threshold float64) (flags, ok bool, err error) {
	report, err := e.Disagreement(ctx, r)
	switch {
	case err != nil:
		return false, false, err
	case report.Judgement != nil:
		flags, ok = judge.Reaches(*report.Judgement, threshold)
	case report.Clustering != nil:
		flags, ok = disagreement.Reaches(*report.Clustering)
	}
	return flags, ok, nil
}

// instrument returns what a calibration of a backend with the terms and the threshold of the settings has to name.
func (e *Engine) instrument(backend council.DisagreementBackend) council.Calibration {
	h := e.setup.Load()
	if backend == council.BackendEmbedding {
		return disagreement.Input{Matcher: e.rules.Terms, Threshold: e.rules.Threshold}.Instrument(h.cfg.EmbeddingModel)
	}
	seat, _ := h.pipelines[h.first].JudgeSeat()
	return judge.Input{Judge: seat, Axes: e.rules.Terms.Axes(), Threshold: e.rules.Threshold}.Instrument()
}

// checkIDs returns an error where the settings name models that the roster does not have.
func (h *setup) checkIDs() error {
	if h.roster == nil {
		return nil
	}
	side := h.cfg.SideRequests
	if side == council.SideMember || side == council.SideCouncil {
		side = ""
	}
	var errs []error
	for _, named := range [][2]string{{"LLM_COUNCIL_JUDGE_MODEL", h.cfg.JudgeModel}, {"LLM_COUNCIL_SIDE_REQUESTS", side}} {
		setting := named[0]
		id := named[1]
		if _, ok := h.roster.Model(id); ok || id == "" {
			continue
		}
		var ids []string
		for _, m := range h.roster.Models {
			ids = append(ids, m.ID)
		}
		errs = append(errs, fmt.Errorf("%s: %q is no model of the roster: use %s", setting, id, strings.Join(ids, ", ")))
	}
	return errors.Join(errs...)
}
