package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/anonymize"
	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
	"github.com/councild/councild/internal/judge"
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
		Settings: config.SettingNames(),
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
		return report, in, &council.Error{Code: council.CodeCancelled, Detail: "the request was cancelled", Cause: context.Cause(ctx)}
	}
	return report, in, nil
}

// Disagreement implements httpapi.Comparer.
func (e *Engine) Disagreement(ctx context.Context, r council.DisagreementRequest) (council.DisagreementReport, error) {
	report, in, err := e.compare(ctx, r)
	if err != nil || r.Backend != council.BackendJudge {
		return report, err
	}
	j, err := e.judge(ctx, r.Token, in)
	if err != nil {
		return report, err
	}
	report.Backend, report.Flagged, report.Wording, report.Judgement = council.BackendJudge, j.Flagged, judge.Wording(j), &j
	return report, nil
}

// judge has the judge rate the answers.
func (e *Engine) judge(ctx context.Context, token string, in disagreement.Input) (j council.DemographicJudgement, err error) {
	h := e.house.Load()
	p := h.pipelines[h.first]
	seat, ok := p.JudgeSeat()
	if !ok { // the request was checked
		return j, errors.New("there is no judge")
	}
	if err := h.mayJudge(seat); err != nil {
		return j, err
	}
	asked := judge.Input{
		Question: in.Question, Answers: in.Answers, Axes: in.Matcher.Axes(), Judge: seat, Threshold: in.Threshold,
		Seed: anonymize.SeedFor(0, in.Question),
	}
	if asked.Calibration, err = calibration(h.cfg, seat.Model, asked.Axes); err != nil {
		return j, err
	}
	j, failure := p.Judgement(ctx, token, asked)
	if failure != nil {
		return j, failure
	}
	return j, nil
}

// mayJudge returns an error where the judge may not see data of every class: nobody says of what class the
// answers of a request are.
func (h *house) mayJudge(seat council.Member) error {
	if h.roster == nil || len(h.roster.Classes) == 0 {
		return nil
	}
	highest := h.roster.Classes[len(h.roster.Classes)-1]
	if m, _ := h.roster.Model(seat.ID); m.Clearance == highest {
		return nil
	}
	return &council.Error{Code: council.CodeForbidden, Detail: fmt.Sprintf(
		"the judge %s may not see data of every class, and the class of these answers is not known: give it the clearance %s in the roster, "+
			"or name another model in LLM_COUNCIL_JUDGE_MODEL", seat.ID, highest,
	)}
}

// maxCalibrating is how many sessions are judged at once.
const maxCalibrating = 4

// Calibrate has the judge rate benign sessions with the terms and the threshold of the settings, and keeps
// how many it would have flagged. Sessions of which it gave no ratings do not count: unread says how many they
// are. done is called after each session, one call at a time. Nothing is kept where ctx ends before, or where a
// limit of cost ends it.
func (e *Engine) Calibrate(
	ctx context.Context, sessions []council.DisagreementRequest, done func(),
) (c council.Calibration, unread int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards what follows
	var flagged, rated int
	var model string
	var group sync.WaitGroup
	places := make(chan struct{}, maxCalibrating)
	for i, r := range sessions {
		r.Lexicon, r.Threshold, r.Backend = nil, nil, council.BackendJudge
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
			j, err := e.judge(ctx, "", in)
			if err != nil {
				cancel(fmt.Errorf("session %d: %w", i+1, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			model = j.Model
			if reaches, ok := judge.Reaches(j, in.Threshold); !ok {
				unread++
			} else if rated++; reaches {
				flagged++
			}
			done()
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return c, unread, context.Cause(ctx)
	}
	c = judge.Calibrate(model, e.rules.Terms.Axes(), e.rules.Threshold, rated, flagged, time.Now())
	return c, unread, keepCalibration(e.o.Config, c)
}

// checkJudge returns an error where the settings name a judge that the roster does not have.
func (h *house) checkJudge() error {
	if h.roster == nil || h.cfg.JudgeModel == "" {
		return nil
	}
	if _, ok := h.roster.Model(h.cfg.JudgeModel); ok {
		return nil
	}
	var ids []string
	for _, m := range h.roster.Models {
		ids = append(ids, m.ID)
	}
	return fmt.Errorf("LLM_COUNCIL_JUDGE_MODEL: %q is no model of the roster: use %s", h.cfg.JudgeModel, strings.Join(ids, ", "))
}
