package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// A reply is in the log soon after its last byte has left the provider: until then, a crash
// has it paid for again. docs/sessions.md says how soon: on a busy machine later.
func TestLanding(t *testing.T) {
	testkit.Slow(t)
	type reply struct{ question, model string }
	for _, sessions := range []int{1, 16} {
		var mu sync.Mutex
		ended := map[reply]time.Time{}
		models := daemontest.Members()
		for i := range models {
			models[i].ChunkDelay = 2 * time.Millisecond // an answer streams for a while
		}
		sim, err := url.Parse(daemontest.Provider(t, models...).URL())
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: sim.Scheme, Host: sim.Host})
		proxy.FlushInterval = -1
		provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			proxy.ServeHTTP(w, r)
			var asked struct{ Model string }
			_ = json.Unmarshal(body, &asked)
			key := reply{regexp.MustCompile(`Question \d+ of \d+\?`).FindString(string(body)), asked.Model}
			mu.Lock()
			defer mu.Unlock()
			if ended[key].IsZero() { // its answer, and no review
				ended[key] = time.Now()
			}
		}))
		t.Cleanup(provider.Close)
		d := daemontest.Start(t, map[string]string{
			"BASE_URL": provider.URL + sim.Path, "MODELS": "a,b,c", "BIAS_STORE": filepath.Join(t.TempDir(), "records.jsonl"), "MAX_SESSIONS": "64",
		})
		var took []time.Duration
		var wg sync.WaitGroup
		for n := range sessions {
			wg.Go(func() {
				question := fmt.Sprintf("Question %d of %d?", n, sessions)
				id := keep(t, d, question)
				c, err := client.New(client.Options{URL: d.Base})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, err = c.Watch(t.Context(), id, council.ObserverFunc(func(e council.Event) {
					if a, ok := e.Data.(council.Answer); ok { // which is shown when it is stored
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(ended[reply{question, a.Model}]))
					}
				}))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		if len(took) != 3*sessions {
			t.Fatalf("%d answers of %d sessions", len(took), sessions)
		}
		t.Logf("%d sessions at once: from the last byte of a reply to its entry in the log %v in the middle, %v at the 99th percentile, %v at most",
			sessions, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
}
