package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/daemon"
)

// pastSessions runs the sessions that a demo begins with. The models answer these sessions at once.
type pastSessions struct {
	question atomic.Pointer[string] // the question of the running session, or nil
}

// asks reports whether the running session asks a question.
func (p *pastSessions) asks(question string) bool {
	running := p.question.Load()
	return running != nil && *running == question
}

// run asks a daemon the questions, one at a time. It rests after each session for as long as the session took, so that
// the first visitor finds a machine that answers.
func (p *pastSessions) run(ctx context.Context, d *daemon.Daemon, requests []council.Request) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	defer p.question.Store(nil)
	for _, r := range requests {
		begin := time.Now()
		p.question.Store(&r.Query)
		if err := ask(ctx, transport, d, r); err != nil {
			return err
		}
		select {
		case <-time.After(time.Since(begin)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask asks a daemon one question, and waits for the end of the session.
func ask(ctx context.Context, transport http.RoundTripper, d *daemon.Daemon, r council.Request) error {
	body, err := json.Marshal(council.Submission{Request: r})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL()+"/v1/council", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", pastRequestID)
	if tokens := d.Tokens(); len(tokens) > 0 {
		req.Header.Set("Authorization", "Bearer "+tokens[0].Secret)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.New("the daemon answered " + resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// pastRequestID is the request id of every session that a demo begins with.
const pastRequestID = "demo-begins"

// demoHandler leaves the lines on those sessions out of a log, unless they are warnings. The address of the demo would
// scroll away.
type demoHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h demoHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn && council.RequestID(ctx) == pastRequestID {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h demoHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h demoHandler) WithGroup(name string) slog.Handler {
	return demoHandler{h.Handler.WithGroup(name)}
}

// examplesOf returns n requests. The last ones ask the written questions, because history shows the last ones first. The
// others ask the example questions of package councild, and further questions once these are used up. The same n gives
// the same requests.
func examplesOf(written []string, n int) []council.Request {
	var pool []council.Request
	for line := range bytes.Lines(councild.Questions()) {
		var r council.Request
		var example struct{ Query, Category, Language string }
		if json.Unmarshal(line, &example) == nil {
			r.Query = example.Query
			r.Category = example.Category
			r.Language = example.Language
			pool = append(pool, r)
		}
	}
	for _, ask := range []string{
		"How would you go about %s?", "What goes wrong most often when %s?", "What is worth measuring when %s?",
		"What would you do first when %s?",
	} {
		for _, topic := range topics() {
			pool = append(pool, council.Request{Query: fmt.Sprintf(ask, topic)})
		}
	}
	// With this seed, the bias report finds the favour that cedar really has: for the answer that it reads first.
	draws := rand.New(rand.NewPCG(2, 0))
	draws.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	requests := make([]council.Request, n)
	for i := range requests {
		requests[i] = pool[i%len(pool)]
		if left := n - i; left <= len(written) {
			requests[i] = council.Request{Query: written[len(written)-left]}
		}
		requests[i].Seed = new(draws.Int64N(council.MaxSeed + 1))
	}
	return requests
}

// forShell returns the first question that can stand between single quotes in a shell, and between double quotes in JSON.
func forShell(questions []string) string {
	for _, question := range questions {
		if !strings.ContainsAny(question, "'\"\\\n") {
			return question
		}
	}
	return "Why is the sky blue?"
}
