package daemon

import (
	"errors"

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

// isLimited reports whether the settings limit what sessions cost.
func isLimited(cfg config.Config) bool {
	return cfg.MaxCostUSD != nil || cfg.CouncilLimits || cfg.HasDayLimit()
}

func outputLimit(cfg config.Config) *int {
	if cfg.MaxOutputTokens == nil && cfg.HasHardLimits() {
		return new(defaultOutputTokens)
	}
	return cfg.MaxOutputTokens
}

// newBook returns the book that holds the limits of cost. Without a ledger there are none of
// a day: what earlier sessions cost is not known.
func newBook(
	engine EngineOptions, tariff func(string) (spend.Tariff, bool), ofToken func(string) *spend.USD,
) *spend.Book {
	cfg := engine.Config
	l := engine.Ledger
	o := spend.Options{Hard: cfg.HasHardLimits(), Tariff: tariff, Ledger: l, Names: config.SettingNames(), Hold: engine.Hold}
	if l != nil && cfg.MaxCostUSDPerDay != nil {
		o.Day = new(spend.FromFloat(*cfg.MaxCostUSDPerDay))
	}
	if l != nil && cfg.MaxCostUSDPerTokenDay != nil {
		o.TokenDay = new(spend.FromFloat(*cfg.MaxCostUSDPerTokenDay))
	}
	if l != nil && cfg.TokenDayLimits {
		o.TokenLimit = ofToken
	}
	return spend.NewBook(o)
}

// handsOver reports whether a session that is kept, and whose run ended for that cause, goes on in another process.
func (e *Engine) handsOver(cause error) bool {
	return e.stopping.Load() && !errors.Is(cause, sessions.ErrDeleted)
}

// size returns the first request of a call as its provider would be sent it.
func size(client *llm.Client, providers []string) func(council.Call) council.Attempt {
	return func(call council.Call) council.Attempt {
		provider, _ := council.SplitModel(call.Model, providers)
		return council.Attempt{Provider: provider, Bytes: client.Bytes(call)}
	}
}
