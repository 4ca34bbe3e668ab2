package spend

import (
	"context"

	"github.com/councild/councild/internal/council"
)

// Begin opens an account that the test finds again by its session.
func (b *Book) Begin(ctx context.Context, o Opening) *council.Error {
	_, failure := b.Open(ctx, o)
	return failure
}

// Reserve reserves in the account of a session.
func (b *Book) Reserve(session string, at Attempt) (*Hold, *council.Failure) {
	if s := b.Account(session); s != nil {
		return s.Reserve(at)
	}
	return Nothing().Reserve(at)
}

// End closes the account of a session.
func (b *Book) End(ctx context.Context, session string, continues bool) []council.Warning {
	if s := b.Account(session); s != nil {
		return s.Close(ctx, continues)
	}
	return nil
}

// Runs reports whether the account of a session is open.
func (b *Book) Runs(session string) bool { return b.Account(session) != nil }
