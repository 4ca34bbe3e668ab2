package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// closeGrace is how long one step of a teardown may take, and how long cancelled
// sessions have to answer after the drain time.
const closeGrace = 5 * time.Second

// teardown is a stack of what must be released: what was pushed last is released first.
type teardown []releaseStep

type releaseStep struct {
	name    string
	release func(context.Context) error
}

func (t *teardown) push(name string, release func(context.Context) error) {
	*t = append(*t, releaseStep{name, release})
}

// always makes a release out of a function that cannot fail.
func always(release func()) func(context.Context) error {
	return func(context.Context) error {
		release()
		return nil
	}
}

// run releases everything once, even when ctx has ended, and returns every error.
func (t *teardown) run(ctx context.Context) error {
	var errs []error
	for _, step := range slices.Backward(*t) {
		if err := within(ctx, closeGrace, step.release); err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", step.name, err))
		}
	}
	*t = nil
	return errors.Join(errs...)
}

// within calls f with a context that ends after the timeout, and not with ctx.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return f(ctx)
}
