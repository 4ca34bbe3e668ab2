package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// closeGrace is how long one step of a teardown may take. Cancelled sessions have the same time to end after the
// drain time.
const closeGrace = 5 * time.Second

// teardown is a stack of steps that release what was opened. The step that was pushed last runs first.
type teardown []releaseStep

type releaseStep struct {
	name    string
	release func(context.Context) error
}

func (t *teardown) push(name string, release func(context.Context) error) {
	*t = append(*t, releaseStep{name, release})
}

// always turns a function that cannot fail into the release function of a step.
func always(release func()) func(context.Context) error {
	return func(context.Context) error {
		release()
		return nil
	}
}

// run runs every step once, even if ctx has ended. It returns the errors of all steps.
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

// within calls f with a context that ends after the timeout. That context does not end when ctx ends.
func within(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return f(ctx)
}
