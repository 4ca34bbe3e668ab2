package spend

import (
	"context"

	"github.com/councild/councild/internal/council"
)

// Begin opens an account that the test finds again by its session.
func (a *Book) Begin(ctx context.Context, o Opening) *council.Error {
	_, failure := a.Open(ctx, o)
	return failure
}

// Reserve reserves in the account of a session.
func (a *Book) Reserve(session string, at Attempt) (*Hold, *council.Failure) {
	if s := a.Account(session); s != nil {
		return s.Reserve(at)
	}
	return Nothing().Reserve(at)
}

// End closes the account of a session.
func (a *Book) End(ctx context.Context, session string, continues bool) []council.Warning {
	if s := a.Account(session); s != nil {
		return s.Close(ctx, continues)
	}
	return nil
}

// Runs reports whether the account of a session is open.
func (a *Book) Runs(session string) bool { return a.Account(session) != nil }
