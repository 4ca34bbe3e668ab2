package httpapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"

	consent "github.com/councild/councild/internal/consent"
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

// Board is one in which nothing is empty.
func (f *failingIntake) Board(days int) consent.Board {
	b := f.Intake.Board(days)
	figures := consent.Figures{Mean: .5, CILower: new(.4), CIUpper: new(.6), Organisations: 5, Sessions: 25, AsOf: "2026-11-20"}
	b.Models = []consent.ModelRow{{Model: "maker/x", Figures: figures}}
	b.Bias = []consent.MetricRow{{Metric: "position_variance", Figures: figures}}
	return b
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
