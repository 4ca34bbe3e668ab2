package daemon_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// connections counts the open connections of a server.
type connections struct {
	mu      sync.Mutex // guards what follows
	open    int
	changed chan struct{} // closed when one more has ended
}

// note is for the field ConnState of a server.
func (c *connections) note(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state { //nolint:exhaustive // the others change nothing
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// atMost waits until so many connections are open, and returns how many are.
func (c *connections) atMost(n int, within time.Duration) int {
	for timeout := time.After(within); ; {
		c.mu.Lock()
		open, changed := c.open, c.changed
		c.mu.Unlock()
		if open <= n {
			return open
		}
		select {
		case <-changed:
		case <-timeout:
			return open
		}
	}
}

// Each reload changes the provider while sessions run, whose later calls still go to the provider as it was.
func TestFaultF68(t *testing.T) {
	testkit.Slow(t)
	const reloads, seats = 30, 2
	arrived, release := make(chan struct{}, seats*reloads), make(chan struct{})
	var models []simllm.Model
	for _, name := range []string{"a", "b"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Reply: func(task simllm.Task) (string, bool) {
			if task.Kind == simllm.Question {
				arrived <- struct{}{}
				<-release
			}
			return "", false
		}})
	}
	sim, err := simllm.New(simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	count := &connections{changed: make(chan struct{})}
	provider := httptest.NewUnstartedServer(sim)
	provider.Config.ConnState = count.note
	provider.Start()
	t.Cleanup(provider.Close)
	var let sync.Once
	t.Cleanup(func() { let.Do(func() { close(release) }) })
	roster := func(n int, more string) string {
		return fmt.Sprintf("version: 1\nmodels:\n  one: {provider: box, model: a}\n  two: {provider: box, model: b}\n"+
			"councils: {main: {members: [one, two]}}\nproviders: {box: {base_url: %s/v1, headers: {X-Reload: %q}}}\n%s", provider.URL, strconv.Itoa(n), more)
	}
	path := writeRoster(t, roster(0, ""))
	d := daemontest.Start(t, map[string]string{"MODELS": "", "ROSTER": path})
	var sessions sync.WaitGroup
	before := runtime.NumGoroutine()
	for n := range reloads {
		sessions.Go(func() {
			if code, data := d.Call(t, "POST", "/v1/council", anyQuestion); code != http.StatusOK {
				t.Errorf("%d %s", code, data)
			}
		})
		for range seats {
			<-arrived
		}
		for _, text := range []string{roster(n+1, "nonsense: 1\n"), roster(n+1, "")} { // one that is refused, too
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d.Reload(t.Context())
		}
	}
	let.Do(func() { close(release) })
	sessions.Wait()
	open := count.atMost(seats, 10*time.Second)
	if open > seats {
		t.Errorf("%d connections are open after %d reloads", open, reloads)
	}
	if n := runtime.NumGoroutine(); n > before+100 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	daemontest.Fault(t, "F68", "no connection of a provider as it was, 10 s after its last call",
		"%d sessions under %d reloads ended well; %d connections are open", reloads, reloads, open)
}
