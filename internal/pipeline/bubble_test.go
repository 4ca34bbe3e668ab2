package pipeline_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/councild/councild/internal/llm"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/pipenet"
)

// bubble makes a harness for a bubble of testing/synctest: its provider is reached
// over HTTP in memory, and its timers are the daemon's defaults. If front is set, it
// returns the handler that answers in place of the provider's.
func bubble(t *testing.T, models []simllm.Model, front func(http.Handler) http.Handler, mutate ...func(*pipeline.Options)) harness {
	t.Helper()
	return bubbleWith(t, models, front, func(*llm.Options) {}, mutate...)
}

func bubbleWith(
	t *testing.T, models []simllm.Model, front func(http.Handler) http.Handler, calls func(*llm.Options), mutate ...func(*pipeline.Options),
) harness {
	t.Helper()
	sim, err := simllm.New(simllm.Options{Models: models})
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = sim
	if front != nil {
		handler = front(sim)
	}
	network := pipenet.Listen()
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(network) }()
	t.Cleanup(func() {
		_ = server.Close()
		time.Sleep(time.Second) // a connection that the server ends lingers for half a second
	})
	o := llm.Options{
		Providers:      []llm.Provider{{BaseURL: "http://provider.test/v1"}},
		AttemptTimeout: 3 * time.Minute, MaxAttempts: 3, DialTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxCallsPerProvider: 64, MaxReplyBytes: 8 << 20, Dial: network.DialContext,
	}
	calls(&o)
	mutate = append([]func(*pipeline.Options){func(o *pipeline.Options) { o.Timeout = 10 * time.Minute }}, mutate...)
	return open(t, models, sim, o, mutate...)
}
