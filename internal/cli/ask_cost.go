package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/render"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/spend"
	"github.com/councild/councild/internal/store"
)

// estimate prints what a question would cost. It returns a findingError if a cost limit would refuse the question.
func (c askCmd) estimate(ctx context.Context, std IO, cfg config.Config, request council.Request) error {
	var e spend.Estimate
	var err error
	if c.Server != "" {
		e, err = estimateAt(ctx, cfg, c.Server, request)
	} else {
		e, err = estimateHere(ctx, std, cfg, func(engine *daemon.Engine) (council.Plan, error) { return engine.Prepare(request) },
			func(engine *daemon.Engine) map[council.Mode]spend.Figure {
				return spend.EstimateModes(request, engine.Prepare, engine.Estimate)
			})
	}
	if err != nil {
		return c.explain(ctx, err, "")
	}
	return printEstimate(std.Stdout, e, c.JSON)
}

// estimateAt asks a daemon what a request would cost.
func estimateAt(ctx context.Context, cfg config.Config, address string, request any) (e spend.Estimate, err error) {
	return e, asking(ctx, cfg, address, func(d *client.Client) error {
		bounded, cancel := context.WithTimeout(ctx, sessionsTimeout)
		defer cancel()
		return d.Post(bounded, "/v1/council/estimate", request, &e)
	})
}

// printEstimate prints an estimate, as JSON or as text. It returns a findingError if a cost limit would refuse the
// question.
func printEstimate(w io.Writer, e spend.Estimate, asJSON bool) (err error) {
	if asJSON {
		err = writeIndented(w, e)
	} else {
		_, err = terminal{w}.Write(render.Estimate(e))
	}
	if err == nil && !e.Fits {
		err = findingError{errors.New("the question would be refused")}
	}
	return err
}

// openLedger opens the ledger for a question that this process asks. The result l is nil if the cost of the question
// will not be counted. The result why is then the reason, or "" if the log has the reason. With hard daily limits,
// openLedger returns an error instead.
func openLedger(
	ctx context.Context, cfg config.Config, log *slog.Logger,
) (l daemon.CommandLedger, why string, err error) {
	l, err = daemon.OpenLedger(ctx, cfg, log)
	path, _ := cfg.SpendFile()
	held, isHeld := errors.AsType[*store.HeldError](err)
	if isHeld {
		err = fmt.Errorf("%s has %s open; with --server, a daemon answers and counts", holderOf(held), path)
	}
	switch {
	case err != nil && cfg.HasHardLimits() && cfg.HasDayLimit():
		return nil, "", fmt.Errorf("hard daily limits need the ledger of costs: %w", err)
	case err != nil:
		return nil, err.Error(), nil //nolint:nilerr // the caller says why the question is not counted
	case path == "":
		return nil, "LLM_COUNCIL_DATA_DIR is off", nil
	default:
		return l, "", nil
	}
}

// estimateHere estimates in this process the cost of the plan that the function prepare makes. It knows only the earlier
// sessions that are in the ledger and count against the daily limits. The function modes returns the costs of the same
// question in other modes. It may be nil.
func estimateHere(
	ctx context.Context, std IO, cfg config.Config, prepare func(*daemon.Engine) (council.Plan, error),
	modes func(*daemon.Engine) map[council.Mode]spend.Figure,
) (spend.Estimate, error) {
	if err := cfg.RequireCouncil(); err != nil {
		return spend.Estimate{}, usageError{err}
	}
	e, err := daemon.NewEngine(ctx, daemon.EngineOptions{
		Config:    cfg,
		Simulated: simllm.Default(),
		Ledger:    daemon.ReadLedger(cfg),
		Log:       slog.New(slog.DiscardHandler),
		Version:   std.Version,
	})
	if err != nil {
		return spend.Estimate{}, err
	}
	defer e.Close(ctx)
	plan, err := prepare(e)
	if err != nil {
		return spend.Estimate{}, err
	}
	estimated := e.Estimate(plan)
	if modes != nil {
		estimated.ByMode = modes(e)
	}
	return estimated, nil
}

// billAt returns the bill of a session. It asks the daemon. If the daemon does not answer, the bill has only the cost.
func billAt(ctx context.Context, d *client.Client, s *council.Session) (b spend.SessionCost) {
	bounded, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	if s == nil {
		return b
	}
	if err := d.Get(bounded, client.Path(s.ID)+"/cost", &b); err != nil {
		return spend.CostOf(s, nil, nil)
	}
	return b
}
