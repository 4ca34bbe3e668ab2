package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/testkit/race"
)

func TestTeardown(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var released []string
		var steps teardown
		steps.push("the first", always(func() { released = append(released, "the first") }))
		broken := errors.New("broken")
		steps.push("the second", func(context.Context) error {
			released = append(released, "the second")
			return broken
		})
		steps.push("the third", func(ctx context.Context) error {
			released = append(released, "the third")
			<-ctx.Done()
			return nil
		})
		ended, end := context.WithCancel(t.Context())
		end()
		err := steps.run(ended)
		if diff := cmp.Diff([]string{"the third", "the second", "the first"}, released); diff != "" {
			t.Errorf("released in this order (-want +got):\n%s", diff)
		}
		if !errors.Is(err, broken) {
			t.Errorf("the error is %v", err)
		}
		if err == nil || err.Error() != "closing the second: broken" {
			t.Errorf("the error does not name the step alone: %v", err)
		}
		if err := steps.run(ended); err != nil || len(released) != 3 {
			t.Errorf("released again: %v, %v", released, err)
		}
	})
}

// fails makes a daemon twice, which must fail both times with an error that begins so:
// the first one releases everything.
func fails(t *testing.T, begin string, env map[string]string) {
	t.Helper()
	for name, value := range env {
		t.Setenv("LLM_COUNCIL_"+name, value)
	}
	cfg, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := New(t.Context(), Options{Config: cfg}); err == nil || !strings.HasPrefix(err.Error(), begin) {
			t.Fatalf("got %v", err)
		}
	}
}

// A daemon that cannot listen has touched no records and no sessions: another one may
// have them.
func TestNewListensFirst(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	fails(t, "listening: ", map[string]string{
		"ADDR": taken.Addr().String(), "MODELS": "sim:amber,sim:birch",
		"BIAS_STORE": filepath.Join(dir, "records", "bias.jsonl"), "DATA_DIR": filepath.Join(dir, "data"),
	})
	if found, err := os.ReadDir(dir); err != nil || len(found) > 0 {
		t.Errorf("made %v, %v", found, err)
	}
}

// A daemon that cannot keep sessions releases its address and its records.
func TestNewReleasesWhatItTook(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sessions")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, "the sessions in LLM_COUNCIL_DATA_DIR ", map[string]string{
		"ADDR": free.Addr().String(), "MODELS": "sim:amber,sim:birch",
		"DATA_DIR": dir,
	})
}

// New checks its options before it touches the store.
func TestNewValidatesFirst(t *testing.T) {
	records := config.Records{BiasPersistence: true, BiasConsent: 1, BiasStore: "/nowhere/records.jsonl"}
	_, err := New(t.Context(), Options{Config: config.Config{Records: records}})
	if err == nil || err.Error() != (config.Config{}).RequireCouncil().Error() {
		t.Errorf("got %v", err)
	}
}
