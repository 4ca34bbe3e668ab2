package daemon

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/spend"
)

// defaultOutputTokens is the limit of each reply under hard limits of cost where none is configured:
// without one, nobody knows what a call can cost. Answers are seldom longer. Models that the roster has
// think first need the room of thinkingOutputTokens.
const (
	defaultOutputTokens  = 4096
	thinkingOutputTokens = 16384
)

// isHard reports whether no limit of cost may be passed.
func isHard(cfg config.Config) bool { return cfg.CostLimits == "hard" }

// isLimited reports whether the settings limit what sessions cost.
func isLimited(cfg config.Config) bool {
	return cfg.MaxCostUSD != nil || cfg.CouncilLimits || cfg.HasDayLimit()
}

func outputLimit(cfg config.Config) *int {
	if cfg.MaxOutputTokens == nil && isHard(cfg) {
		return new(defaultOutputTokens)
	}
	return cfg.MaxOutputTokens
}

// newAccounts returns the accounts that hold the limits of cost. Without a ledger there are none of
// a day: what earlier sessions cost is not known.
func newAccounts(
	engine EngineOptions, tariff func(string) (spend.Tariff, bool), ofToken func(string) *spend.USD,
) *spend.Accounts {
	cfg := engine.Config
	l := engine.Ledger
	o := spend.Options{Hard: isHard(cfg), Tariff: tariff, Ledger: l, Names: config.SettingNames()}
	if l != nil && cfg.MaxCostUSDPerDay != nil {
		o.Day = new(spend.FromFloat(*cfg.MaxCostUSDPerDay))
	}
	if l != nil && cfg.MaxCostUSDPerTokenDay != nil {
		o.TokenDay = new(spend.FromFloat(*cfg.MaxCostUSDPerTokenDay))
	}
	if l != nil && cfg.TokenDayLimits {
		o.TokenLimit = ofToken
	}
	return spend.NewAccounts(o)
}

// accounts are the accounts of sessions as the pipeline needs them.
type accounts struct {
	*spend.Accounts
	stopping *atomic.Bool // sessions that are kept and cancelled go on in another process
}

// Open implements pipeline.Accounts.
func (a accounts) Open(ctx context.Context, plan council.Plan) *council.Error {
	return a.Accounts.Open(ctx, a.Opening(plan))
}

// Add implements pipeline.Accounts.
func (a accounts) Add(sessionID string, landed []council.Landed, lost int) {
	charges := make([]spend.Charge, 0, len(landed))
	for _, l := range landed {
		// Attempts without a known cost are in the ledger, as uncertain.
		if usage := l.Completion.Usage; usage.CostUSD != nil && *usage.CostUSD > 0 {
			known := outcome(llm.Consumed{Usage: usage}, new(spend.Tokens))
			charges = append(charges, spend.Charge{
				Stage: l.Stage, Model: l.Model, Tokens: known.Tokens, USD: known.CostUSD, Source: spend.SourceProvider,
			})
		}
	}
	a.Accounts.Add(sessionID, lost, charges...)
}

// Close implements pipeline.Accounts.
func (a accounts) Close(ctx context.Context, sessionID string, cut error) []council.Warning {
	continues := cut != nil && a.stopping.Load() && !errors.Is(cut, sessions.ErrDeleted)
	return a.Accounts.Close(ctx, sessionID, continues)
}

// gate has each request pass the accounts, and then hold, which is as in EngineOptions.
func gate(a *spend.Accounts, hold func(string, spend.USD) (func(spend.USD), error)) llm.Gate {
	return func(ctx context.Context, r llm.Request) (llm.Receipt, *council.Failure) {
		call := r.Call
		at := spend.Attempt{
			Session: call.Session, Stage: call.Stage, Model: call.Model, Provider: r.Provider, Number: r.Number,
			Bytes: r.Bytes, OutputLimit: call.MaxOutputTokens,
		}
		if call.Texts != nil {
			at.OutputLimit = new(int) // embeddings are no tokens
		}
		if r.Lost {
			a.Lose(ctx, at)
			return nil, nil
		}
		reserved, failure := a.Reserve(ctx, at)
		if failure != nil {
			return nil, failure
		}
		s := &receipt{reserved: reserved}
		if hold != nil {
			var err error
			if s.held, err = hold(call.Session, reserved.Bound()); err != nil {
				s.Finish(ctx, llm.Consumed{Free: true})
				return nil, &council.Failure{Code: council.FailInterrupted, Message: err.Error()}
			}
		}
		return s, nil
	}
}

// settlement implements llm.Receipt.
type receipt struct {
	reserved spend.Reservation
	tokens   spend.Tokens
	held     func(cost spend.USD) // nil: nobody is told, or was told before
}

// Finish implements llm.Receipt.
func (s *receipt) Finish(ctx context.Context, c llm.Consumed) *float64 {
	charge := s.reserved.Finish(ctx, outcome(c, &s.tokens))
	if s.held != nil {
		s.held(*cmp.Or(charge.USD, new(spend.USD)))
		s.held = nil
	}
	if charge.USD == nil || charge.Source == spend.SourceBound {
		return nil
	}
	return new(charge.USD.Float64())
}

// outcome returns what is known of a request, with its tokens in the given place.
func outcome(c llm.Consumed, tokens *spend.Tokens) spend.Outcome {
	o := spend.Outcome{Free: c.Free}
	if c.Usage.CostUSD != nil {
		o.CostUSD = new(spend.FromFloat(*c.Usage.CostUSD))
	}
	if c.Usage.InputTokens != nil && c.Usage.OutputTokens != nil {
		*tokens = spend.Tokens{
			Input: *c.Usage.InputTokens, CachedInput: c.Kinds.CachedInput, CacheWrite: c.Kinds.CacheWrite,
			Output: *c.Usage.OutputTokens, Reasoning: c.Kinds.Reasoning,
		}
		o.Tokens = tokens
	}
	return o
}
