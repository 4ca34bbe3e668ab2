package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

var crashRounds = flag.Int("crash", 10, "how often TestFaultF22KillNine kills the daemon")

// The daemon is killed under load at random times, many times on one store that rotates
// and compresses meanwhile. kill -9 does not lose what was written to the operating
// system, so the promise also holds with BIAS_FSYNC=off.
func TestFaultF22KillNine(t *testing.T) {
	testkit.Slow(t)
	sim := daemontest.Provider(t, daemontest.Members()...)
	path := filepath.Join(t.TempDir(), "records.jsonl")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	kept := map[string]bool{} // the sessions that were answered with persisted: true
	torn := 0
	for round := range *crashRounds {
		p := start(t, []string{
			"LLM_COUNCIL_ADDR=127.0.0.1:0", "LLM_COUNCIL_BASE_URL=" + sim.URL(), "LLM_COUNCIL_MODELS=a,b,c,d",
			"LLM_COUNCIL_BIAS_STORE=" + path,
			"LLM_COUNCIL_BIAS_FSYNC=" + []string{"session", "off"}[round%2], constants(map[string]any{"BiasRotateBytes": 200 << 10}),
		}, "serve")
		url, _, _ := strings.Cut(line(t, p.stderr, `"msg":"listening","url":"`), `"`) // or the round does not restart
		everySession(t, path, kept)
		logged := make(chan struct{})
		go func() {
			defer close(logged)
			_, _ = io.Copy(io.Discard, p.stderr)
		}()
		killed := load(t, url, kept)
		<-time.After(time.Duration(rng.Int64N(int64(400 * time.Millisecond))))
		killed(func() {
			if err := p.Process.Kill(); err != nil {
				t.Error(err)
			}
		})
		<-logged
		_ = p.Wait() // that it was killed
		torn += everySession(t, path, kept)
		if t.Failed() {
			t.Fatalf("in round %d", round+1)
		}
	}
	segments, err := filepath.Glob(path + ".0*")
	if err != nil {
		t.Fatal(err)
	}
	found, err := store.Verify(t.Context(), path)
	for _, p := range found {
		if err = errors.Join(err, p.SummaryErr); err != nil {
			t.Error(err)
		}
	}
	daemontest.Fault(t, "F22", "0 lost, 0 read in part, every round restarts",
		"%d times kill -9 under load, half with BIAS_FSYNC=off: %d sessions acknowledged, 0 lost, 0 read in part, %d files torn, %d "+
			"closed segments, every round restarted",
		*crashRounds, len(kept), torn, len(segments))
}

// load has eight callers ask the daemon. The function that it returns calls kill, ends the
// load, and notes in kept the sessions that were answered before.
func load(t *testing.T, url string, kept map[string]bool) (killed func(kill func())) {
	t.Helper()
	var over atomic.Bool
	var mu sync.Mutex // guards kept
	var callers sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	for range 8 {
		callers.Go(func() {
			for {
				session, err := answer(t, client, url)
				if err != nil {
					if !over.Load() {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				kept[session.ID] = kept[session.ID] || session.Persisted
				mu.Unlock()
				if !session.Persisted {
					t.Errorf("session %s is not persisted: %v", session.ID, session.Metadata.Warnings)
				}
			}
		})
	}
	return func(kill func()) {
		over.Store(true)
		kill()
		callers.Wait()
		client.CloseIdleConnections()
	}
}

// answer asks once and returns the session, which must arrive as a whole.
func answer(t *testing.T, client *http.Client, url string) (s council.Session, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/council", strings.NewReader(question))
	if err != nil {
		return s, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

// everySession reads the store and returns how many torn lines there are. Every
// session must be there once and as a whole, and none of kept may be missing.
func everySession(t *testing.T, path string, kept map[string]bool) (torn int) {
	t.Helper()
	type pair struct{ session, reviewer, candidate string }
	records := map[string]int{}
	seen := map[pair]bool{}
	for r, err := range store.ReadFile(t.Context(), path) {
		if line, ok := errors.AsType[*store.LineError](err); ok && line.Reason == store.ReasonUnterminated {
			torn++
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		p := pair{r.SessionID, r.ReviewerID, r.ModelID}
		if seen[p] {
			t.Errorf("%v is there twice", p)
		}
		seen[p] = true
		records[r.SessionID]++
	}
	for id, n := range records {
		if n != 12 {
			t.Errorf("session %s has %d records of 12", id, n)
		}
	}
	for id := range kept {
		if records[id] == 0 {
			t.Errorf("session %s is missing", id)
		}
	}
	return torn
}
