package daemon

import (
	"errors"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/spend"
)

// defaultOutputTokens is the output limit of each reply under hard cost limits, in tokens, if none is configured.
// Without a limit, the daemon cannot know the most that a call can cost. Few answers are longer than
// defaultOutputTokens. Models with a reasoning effort in the roster think first, and get thinkingOutputTokens.
const (
	defaultOutputTokens  = 4096
	thinkingOutputTokens = 16384
)

// isLimited reports whether the settings limit the cost of sessions.
func isLimited(cfg config.Config) bool {
	return cfg.MaxCostUSD != nil || cfg.CouncilLimits || cfg.HasDayLimit()
}

// outputLimit returns the output limit of each reply in tokens, or nil for none.
func outputLimit(cfg config.Config) *int {
	if cfg.MaxOutputTokens == nil && cfg.HasHardLimits() {
		return new(defaultOutputTokens)
	}
	return cfg.MaxOutputTokens
}

// newBook returns the book that applies the cost limits. Without a ledger, no daily limits apply, because the cost of
// earlier sessions is not known. The argument ofToken returns the daily limit of a token, or nil if the token has no
// limit of its own.
func newBook(
	engine EngineOptions, tariff func(string) (spend.Tariff, bool), ofToken func(string) *spend.USD,
) *spend.Book {
	cfg := engine.Config
	l := engine.Ledger
	o := spend.Options{
		Hard: cfg.HasHardLimits(), Tariff: tariff, Ledger: l, Names: config.SettingNames(), Hold: engine.Hold,
	}
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

// handsOver reports whether a stored session continues in another process if its run ended with this cause.
func (e *Engine) handsOver(cause error) bool {
	return e.stopping.Load() && !errors.Is(cause, sessions.ErrDeleted)
}

// size returns a function that describes the first request of a call. It returns the provider of that request and the
// number of bytes in its body.
func size(client *llm.Client, providers []string) func(council.Call) council.Attempt {
	return func(call council.Call) council.Attempt {
		provider, _ := council.SplitModel(call.Model, providers)
		return council.Attempt{Provider: provider, Bytes: client.Bytes(call)}
	}
}
