package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/councild/councild/internal/bias"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

func TestFaultF66(t *testing.T) {
	testkit.Slow(t)
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "HASH_SECRET": "a-secret-of-sixteen"})
	id := d.Ask(t, anyQuestion).ID
	kept, status := 0, http.StatusCreated
	for ; status == http.StatusCreated && kept < 200; kept++ {
		status, _ = d.Call(t, "POST", "/v1/council/"+id+"/feedback", fmt.Sprintf(`{"rating":5,"by":"person %d"}`, kept))
	}
	if kept--; kept < 100 || kept > 105 || status != http.StatusTooManyRequests {
		t.Errorf("%d labels were kept, then status %d", kept, status)
	}

	const lines, most = 50_000, 10_000
	path := filepath.Join(t.TempDir(), "evidence.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	write := func(n int, session, by string) {
		line, err := store.EncodeEvidence(store.Evidence{Label: &council.LabelRecord{
			SchemaVersion: council.LabelSchema, Timestamp: begun, Labelled: begun.Add(time.Duration(n) * time.Second), CouncilConfig: "c",
			Kept: council.Kept{SessionID: session, By: by, Rating: new(5)}, Borda: map[string]float64{}, Ballots: []council.LabelBallot{},
		}})
		if err == nil {
			_, err = f.Write(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	report := func() (labels, leftOut int) {
		t.Helper()
		e, err := daemon.Evidence(t.Context(), []string{path}, bias.Query{})
		if err != nil || e == nil {
			t.Fatalf("%+v, %v", e, err)
		}
		return e.People.Labels, e.LeftOut
	}
	for n := range lines / 2 {
		write(n, "one session", "one person")
	}
	if labels, old := report(); labels != 1 || old != 0 {
		t.Errorf("of one person and session, %d labels count, %d are left out", labels, old)
	}
	for n := range lines / 2 {
		write(lines+n, fmt.Sprint("session ", n), fmt.Sprint("person ", n))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	labels, old := report()
	if labels != most || old != lines/2+1-most {
		t.Errorf("of %d persons, %d labels count, and %d are left out", lines/2+1, labels, old)
	}
	daemontest.Fault(t, "F66", "100 at once; the newest 10,000 of a file", "%d kept, then 429; %d labels of %d lines are held", kept, labels, lines)
}
