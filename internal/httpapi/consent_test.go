package httpapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"

	consent "github.com/councild/councild/internal/events"
)

// failingIntake is an intake that fails when told to.
type failingIntake struct {
	*consent.Intake
	err error
}

func (f *failingIntake) Take(ctx context.Context, organisation string, texts []json.RawMessage) (consent.Taken, error) {
	if f.err != nil {
		return consent.Taken{}, f.err
	}
	return f.Intake.Take(ctx, organisation, texts)
}

func openIntake(t *testing.T) *failingIntake {
	t.Helper()
	i, err := consent.OpenIntake(t.Context(), consent.IntakeOptions{
		Path: filepath.Join(t.TempDir(), "intake.jsonl"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return &failingIntake{Intake: i}
}
