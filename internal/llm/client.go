// Package llm performs calls for completions and embeddings against OpenAI-compatible providers. It returns each result
// as text, usage and cost, or as a council.Failure.
//
// It is the only importer of go-openai, which sends the requests and opens the streams. A RoundTripper does what
// that library does not do: it limits the size of bodies, finds errors inside HTTP 200, keeps headers, and notices
// streams that end early. This package writes and reads the JSON of requests and replies itself.
//
// # Streams
//
// Text that arrives after a pause is passed on at once. All other text is passed on every 20 ms, or less often if
// the call asks for that. The stream is then read less often too. If a reply has several choices, only the one with
// index 0 is read, because no other was asked for.
//
// # Faults
//
// A call sends one request. If a request fails in a way that may be temporary, the call sends another one, up to
// Options.MaxAttempts in all. Temporary failures are HTTP 408, 409, 425, 429 and 5xx, no connection, a broken
// connection, and a reply that was cut off. All other failures are final:
//
//   - a certificate that is not trusted;
//   - a complete reply without a usable text;
//   - a failure after a part of the text was passed on, unless the caller can take that part back
//     (council.Call.OnRestart);
//   - a request that timed out, even while it was connecting: a slow model is usually slow again, and its tokens cost
//     money.
//
// A model may refuse an option. The request is then repeated without it, which does not count as a retry.
//
// The wait before retry n is random between 0 and 500 ms * 2^(n-1), 8 s at most (exponential backoff with full
// jitter: Brooker, "Exponential Backoff And Jitter", 2015). If the provider names a time, the wait is that time and
// up to 250 ms more. The call does not wait if the wait would end after the caller's deadline, or if the time that
// the provider names is longer than one attempt may take. It then ends at once with the provider's own error.
//
// The retries of all calls to one provider share a budget. In any 10 s there are at most 10 retries, or 10 % of the
// calls begun in that time if that is more. A retry that is due while the budget has no room waits in a queue, first
// in, first out. The call ends at once with the provider's own error in three cases:
//
//   - The turn of the retry would come after the caller's deadline.
//   - The breaker of the model opens.
//   - Ten or more requests to the model ended within 30 s and at least half of them failed. HTTP 429 is a failure here.
//
// Every model of a provider has a circuit breaker (Nygard, "Release It!", 2007). It refuses calls while the model is
// out of order: see breaker.
//
// This package has its own retries and breakers, because the library failsafe-go (v0.9.8) cannot keep the promises F01
// to F04 of docs/faults.md:
//
//   - Its retry budget is a share of the calls in flight. When a provider refused every call, this budget let all
//     retries pass.
//   - A retry that does not fit into its budget waits until the deadline.
//   - Its breaker becomes half open only when a request asks to be sent. This request is the probe, which tries the
//     model. A request that was sent before the breaker opened may end late, and the breaker then takes its result as
//     the result of the probe.
//   - A probe that was cancelled closes the breaker, or blocks it for ever.
//
// The callers of this package decide what to ask, what a reply means, and whether to ask another model instead.
package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
	openai "github.com/sashabaranov/go-openai"
)

// Provider is one OpenAI-compatible endpoint.
type Provider struct {
	// Name is the prefix that sends a model to this provider, as in "name:model". The provider with the empty name
	// takes every model whose name does not begin with the name of another provider.
	Name    string
	BaseURL string // such as https://api.openai.com/v1
	APIKey  string // "" sends no Authorization header
	// Headers and Query are added to each request. Their values are secrets.
	Headers, Query map[string]string
	// MaxCalls is the most requests in flight. If it is 0, Options.MaxCallsPerProvider applies.
	MaxCalls int
	// If IdleTimeout is 0, Options.IdleTimeout applies.
	IdleTimeout time.Duration
}

// secrets returns the values that no message may contain.
func (p Provider) secrets() []string {
	return append(slices.Concat(slices.Collect(maps.Values(p.Headers)), slices.Collect(maps.Values(p.Query))), p.APIKey)
}

// Options configure a Client. All numbers and durations must be positive, unless the comment on a field says what 0
// means.
type Options struct {
	Providers      []Provider
	AttemptTimeout time.Duration // for one request, from the first byte sent to the last byte received
	MaxAttempts    int           // the most requests of one call, including the first one; 0 stands for 1
	// DialTimeout limits the time to connect, including the TLS handshake. Through a proxy, it limits connecting to
	// the proxy, and separately the TLS handshake.
	DialTimeout time.Duration
	// IdleTimeout limits the time between two reads of a reply after its headers. If it is 0, only AttemptTimeout
	// limits it.
	IdleTimeout         time.Duration
	MaxCallsPerProvider int // the most requests in flight to one provider; further requests wait
	// MaxReplyBytes limits the bytes of one reply. In a stream, it limits the text of the reply, and also each line.
	MaxReplyBytes int64
	// Version is our own version, for the User-Agent of requests. It may be "".
	Version string
	// Trace adds the headers that name the trace span of a request. The context of the request contains the span. Trace
	// may be nil.
	Trace func(*http.Request)
	// Dial connects to a provider, as http.Transport.DialContext does. If it is nil, a Client connects by TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) validate() error {
	var errs []error
	names := map[string]bool{}
	for _, p := range o.Providers {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("provider %q is listed twice", p.Name))
		}
		names[p.Name] = true
		if p.MaxCalls < 0 || p.IdleTimeout < 0 {
			errs = append(errs, fmt.Errorf("provider %q: limits must not be negative", p.Name))
		}
		if u, err := url.Parse(p.BaseURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			errs = append(errs, fmt.Errorf("provider %q: the base URL is not an absolute http or https URL", p.Name))
		}
	}
	if len(o.Providers) == 0 {
		errs = append(errs, errors.New("no providers"))
	}
	if o.AttemptTimeout <= 0 || o.DialTimeout <= 0 || o.MaxCallsPerProvider <= 0 || o.MaxReplyBytes <= 0 {
		errs = append(errs, errors.New("timeouts and limits must be positive"))
	}
	if o.MaxAttempts < 0 || o.IdleTimeout < 0 {
		errs = append(errs, errors.New("attempts and the idle timeout must not be negative"))
	}
	return errors.Join(errs...)
}

// finish reports to the receipt r what a request consumed, when the request has ended. It returns the cost of the
// request in US dollars, or nil if the cost is not known or r is nil.
func finish(ctx context.Context, r council.Receipt, c council.Consumed) (costUSD *float64) {
	if r == nil {
		return nil
	}
	return r.Finish(ctx, c)
}

// Client is a council.Completer over HTTP. Its connections are kept and reused.
type Client struct {
	providers      map[string]*provider
	names          []string // names of the providers
	attemptTimeout time.Duration
	maxAttempts    int
	closed         atomic.Bool // Close was called
}

type provider struct {
	Provider
	dialect   dialect
	keys      keys
	address   string // host and port as configured, for messages
	hint      string // possible cause of HTTP 404, or ""
	api       *openai.Client
	http      *http.Client // sends the requests of api
	transport *transport
	pool      *http.Transport
	queue     *queue
	start     time.Time // the budget and the breakers count time from here
	budget    *budget

	mu     sync.Mutex // guards models
	models map[string]*model
}

// model holds what the client remembers about a model from call to call.
type model struct {
	name     string
	breaker  *breaker
	attempts attempts
	refuses  refusals
	// unopened says that the last reply had thinking without an opening mark. In the next stream, no text is then
	// passed on before the thinking has ended.
	unopened atomic.Bool
}

// New returns a Client for the given providers. It opens no connection.
func New(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		providers:      make(map[string]*provider, len(o.Providers)),
		attemptTimeout: o.AttemptTimeout,
		maxAttempts:    max(o.MaxAttempts, 1),
	}
	for _, p := range o.Providers {
		c.names = append(c.names, p.Name)
		u, _ := url.Parse(p.BaseURL) // It is valid.
		calls := cmp.Or(p.MaxCalls, o.MaxCallsPerProvider)
		pool := newPool(o, calls)
		t := &transport{
			base: pool, headers: p.Headers, query: p.Query, maxBytes: o.MaxReplyBytes, idle: cmp.Or(p.IdleTimeout, o.IdleTimeout),
			agent: userAgent(o.Version), trace: o.Trace,
		}
		config := openai.DefaultConfig(p.APIKey)
		config.BaseURL = p.BaseURL
		over := &http.Client{
			Transport: t,
			// Follow no redirect, because a redirected POST would lose its body, and its key could go to a stranger.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		config.HTTPClient = over
		made := &provider{
			Provider:  p,
			keys:      keysOf(p),
			dialect:   dialectOf(u.Hostname()),
			address:   u.Host,
			hint:      hint(u),
			api:       openai.NewClientWithConfig(config),
			http:      over,
			transport: t,
			pool:      pool,
			queue:     newQueue(calls),
			start:     time.Now(),
			models:    map[string]*model{},
		}
		made.budget = newBudget(made.now)
		c.providers[p.Name] = made
	}
	return c, nil
}

// userAgent returns the User-Agent of requests, which says who we are and where to read about us.
func userAgent(version string) string {
	if version != "" {
		version = "/" + version
	}
	return "councild" + version + " (+https://github.com/councild/councild)"
}

// hint returns a possible cause of HTTP 404 if the base URL has no version, and "" otherwise.
func hint(base *url.URL) string {
	if versioned.MatchString(base.Path) {
		return ""
	}
	return fmt.Sprintf(" (the base URL %s://%s%s names no version of the interface: "+
		"most providers have theirs under /v1)",
		base.Scheme, base.Host, base.Path)
}

// versioned matches paths such as /v1 and /v1beta/openai.
var versioned = regexp.MustCompile(`/v[0-9]`)

// pingAfter is how long an HTTP/2 connection may be silent before the client sends a ping, and also how long the reply
// to the ping may take. Without pings, the client would send later calls over a connection that no longer works, and
// these calls would fail.
const pingAfter = 15 * time.Second

// newPool returns a transport that keeps idle connections open between the stages of a session.
func newPool(o Options, calls int) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if t.DialContext = o.Dial; t.DialContext == nil {
		t.DialContext = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	t.TLSHandshakeTimeout = o.DialTimeout // used only through a proxy
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusProxyAuthRequired {
			return &proxyError{proxy: proxy, variable: "HTTPS_PROXY"}
		}
		if resp.StatusCode != http.StatusOK {
			return errors.New("the proxy answered " + resp.Status)
		}
		return nil
	}
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = calls
	limitOpening(t, o.DialTimeout)
	return t
}

// Close closes the idle connections. Calls in flight continue, and new calls may begin. The connections of these calls
// close soon after the last call.
func (c *Client) Close() {
	c.closed.Store(true)
	c.closeIdle()
}

func (c *Client) closeIdle() {
	for _, p := range c.providers {
		p.pool.CloseIdleConnections()
	}
}

// idleOnceClosed is how long a closed client keeps a connection for the next call.
const idleOnceClosed = time.Second

// ended must be called at the end of each call. If the client is closed, ended closes the idle connections after
// idleOnceClosed.
func (c *Client) ended() {
	if c.closed.Load() {
		time.AfterFunc(idleOnceClosed, c.closeIdle)
	}
}

// Bytes returns the size of the body of a call's first request, or 0 if no provider takes the model.
func (c *Client) Bytes(call council.Call) int64 {
	p, m := c.route(call.Model)
	if p == nil {
		return 0
	}
	without := p.dialect.known() | m.refuses.of(&call, p.dialect.asked(&call, m.name))
	x := exchange{call: &call, dialect: p.dialect, model: m.name, without: without}
	return int64(len(x.request()))
}

// Complete performs a call, with retries as described in the package comment. If a model refuses an option, Complete
// sends the request again without that option, and later calls leave the option out too. If the option is a temperature
// or an effort, later calls leave it out only if it has the refused value. If a model refuses to stream, its text comes
// in one piece. The result counts all requests and adds up their usage. If a request was sent and has no reply, its
// usage is unknown. Complete implements council.Completer. An error is a *council.Failure.
func (c *Client) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	defer c.ended()
	start := time.Now()
	var completion council.Completion
	failure := c.complete(ctx, call, &completion)
	if completion.Attempts == 0 {
		completion.Usage = council.NoUsage()
	}
	completion.LatencyMS = float64(time.Since(start)) / float64(time.Millisecond)
	if failure != nil {
		return completion, failure
	}
	return completion, nil
}

// complete sends the requests of a call, and adds what they consumed to the argument total.
func (c *Client) complete(ctx context.Context, call council.Call, total *council.Completion) *council.Failure {
	p, m := c.route(call.Model)
	if p == nil {
		return &council.Failure{
			Code:    council.FailUnknownProvider,
			Message: "no configured provider takes a model with this name",
		}
	}
	p.queue.begun(call.Session)
	asked := p.dialect.asked(&call, m.name)
	without := p.dialect.known() | m.refuses.of(&call, asked)
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if failure := tooLong(&call); failure != nil {
		return failure
	}
	learned := options(0) // options that the model may have refused in this call
	shown := false        // the caller has received pieces of an incomplete reply
	if onDelta := call.OnDelta; onDelta != nil {
		call.OnDelta = func(text string) {
			shown = true
			onDelta(text)
		}
	}
	next := firstRequest
	var last *council.Failure
	var place *claim // the queue entry of the next retry
	defer func() { p.budget.drop(place) }()
	for retries := 0; ; {
		ticket, failure := p.admit(ctx, m, next, place, last)
		if failure != nil {
			return failure
		}
		x := &exchange{
			call: &call, dialect: p.dialect, model: m.name, without: without, onDelta: call.OnDelta,
			pause: max(deltaPause, call.DeltaPause), address: p.address, hint: p.hint, unopened: m.unopened.Load(),
		}
		receipt, failure := p.begin(ctx, m, x, total.Attempts+1, ticket)
		if failure != nil {
			return failure
		}
		reply, again, failure := c.attempt(ctx, p, m, x, receipt, ticket)
		addUsage(total, reply)
		m.attempts.add(p.now(), again)
		if failure == nil {
			m.refuses.learn(&call, learned)
			deliver(total, reply)
			total.LeftOut = leftOut(asked, without)
			return nil
		}
		last = failure
		p.budget.refuse(m)
		if o := refusal(x, failure, asked&^without); o != 0 {
			without |= o
			learned |= o
			next = sameAgain
			continue
		}
		retries++
		if !again || retries == c.maxAttempts {
			return failure
		}
		if place = c.claimRetry(ctx, p, m, retries, failure); place == nil {
			return failure
		}
		if !p.budget.await(ctx, place) {
			return gaveUp(ctx, failure)
		}
		if shown {
			shown = false
			call.OnRestart(failure.Code)
		}
		next = retry
	}
}

// addUsage adds one more request and its usage to the completion of the call.
func addUsage(total *council.Completion, reply council.Completion) {
	if total.Attempts++; total.Attempts == 1 {
		total.Usage = reply.Usage
	} else {
		total.Usage = total.Usage.Plus(reply.Usage)
	}
	total.Implausible += reply.Implausible
}

// deliver copies the text of the last reply into the completion of the call, together with the facts about this text.
func deliver(total *council.Completion, reply council.Completion) {
	total.Text = reply.Text
	total.FinishReason = reply.FinishReason
	total.Reasoning = reply.Reasoning
	total.PromptCut = reply.PromptCut
	total.ModelVersion = reply.ModelVersion
}

// claimRetry takes a place for retry n of a call, in the queue of the retry budget. It returns nil if another request
// is pointless.
func (c *Client) claimRetry(ctx context.Context, p *provider, m *model, n int, failure *council.Failure) *claim {
	wait, ok := c.backoff(ctx, n, failure)
	if !ok || !m.breaker.admits(p.now()+wait) {
		return nil
	}
	return p.budget.claim(ctx, m, wait)
}

// request says how the retry budget counts a request.
type request int

const (
	firstRequest request = iota
	retry                // a retry that the budget has granted
	sameAgain            // the same request without an option; the budget does not count it
)

// admit waits until the request r of a call may be sent. The request needs a place in the provider's queue and a ticket
// of the model's breaker. A retry also needs room in the retry budget. The method leave gives back the place and the
// ticket. If the request may not be sent, admit returns a failure:
//
//   - If the call was cancelled while it waited, the failure says so.
//   - Otherwise it is the failure of the call's previous request, which is the argument last.
//   - If there is no previous request, it is the failure of the breaker or of the context.
func (p *provider) admit(
	ctx context.Context, m *model, r request, place *claim, last *council.Failure,
) (ticket, *council.Failure) {
	if r == firstRequest && !m.breaker.admits(p.now()) {
		return 0, m.breaker.failure(p.now()) // A refusal needs no place in the queue.
	}
	for {
		if !p.queue.enter(ctx) {
			return 0, gaveUp(ctx, last)
		}
		t, ok := m.breaker.enter(p.now())
		if !ok {
			p.queue.leave()
			return 0, cmp.Or(last, m.breaker.failure(p.now()))
		}
		if p.budget.spend(r, place) {
			return t, nil
		}
		p.leave(m, t, unclear)
		if !p.budget.await(ctx, place) {
			return 0, gaveUp(ctx, last)
		}
	}
}

// gaveUp returns the failure of a call that ended while it waited. This is the failure of the call's last request. If
// the call has sent no request, or was cancelled, the failure says instead how ctx ended.
func gaveUp(ctx context.Context, last *council.Failure) *council.Failure {
	if last == nil || errors.Is(ctx.Err(), context.Canceled) {
		return ended(ctx)
	}
	return last
}

// leave gives back the place and the ticket that admit took. v is the verdict on the request.
func (p *provider) leave(m *model, t ticket, v verdict) {
	m.breaker.leave(p.now(), t, v)
	p.queue.leave()
}

// now returns the time for the budget and the breakers. It is monotonic, so it does not depend on the wall clock.
func (p *provider) now() time.Duration { return time.Since(p.start) }

// begin asks call.Begin whether an admitted request may be sent, and waits for its answer. If the request may not be
// sent, begin gives back the place and the ticket that admit took.
func (p *provider) begin(
	ctx context.Context, m *model, x *exchange, number int, t ticket,
) (receipt council.Receipt, failure *council.Failure) {
	if x.call.Begin == nil {
		return nil, nil
	}
	judged := false
	defer func() {
		if !judged || failure != nil { // This is also true if Begin panics.
			p.leave(m, t, unclear)
		}
	}()
	x.prepared = x.request()
	receipt, failure = x.call.Begin(ctx, council.Attempt{
		Provider: p.Name,
		Number:   number,
		Bytes:    int64(len(x.prepared)),
	})
	judged = true
	if ctx.Err() != nil {
		finish(ctx, receipt, council.Consumed{Free: true})
		return nil, ended(ctx)
	}
	return receipt, failure
}

// send performs a request: for embeddings, for a stream, or for a completion in one piece.
func (p *provider) send(ctx context.Context, m *model, x *exchange) (received, error) {
	switch {
	case x.call.Texts != nil:
		return p.embed(ctx, x)
	case x.streams():
		return p.stream(ctx, x)
	}
	if _, err := p.api.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: m.name}); err != nil {
		return received{}, err
	}
	return p.reply(ctx, x)
}

// attempt sends one request. The result again says whether another request may succeed.
func (c *Client) attempt(
	caller context.Context, p *provider, m *model, x *exchange, receipt council.Receipt, t ticket,
) (completion council.Completion, again bool, failure *council.Failure) {
	judgement := unclear
	call := x.call
	begun := time.Now()
	defer finish(caller, receipt, council.Consumed{}) // has an effect only if OnDelta panics
	defer func() {                                    // This also runs if OnDelta panics.
		p.queue.held(time.Since(begun))
		p.leave(m, t, judgement)
	}()
	ctx, cut := context.WithCancelCause(caller)
	defer cut(nil)
	timer := time.AfterFunc(c.attemptTimeout, func() { cut(errAttemptTimeout) })
	defer timer.Stop()

	x.cut = cut
	x.trace.GotConn = x.connected
	x.trace.WroteRequest = x.wrote
	ctx = context.WithValue(httptrace.WithClientTrace(ctx, &x.trace), exchangeKey{}, x)
	r, err := p.send(ctx, m, x)
	if err == nil && call.Texts == nil {
		if !r.divided {
			x.divide(&r, thinking.Split(r.text))
		}
		m.unopened.Store(x.unopened)
	}
	failure = judge(ctx, x, r, err)
	completion.Usage = consumed(x, r)
	completion.Implausible = r.implausible
	if cost := finish(caller, receipt, council.Consumed{
		Free: x.free(r), Usage: r.usage, Kinds: r.kinds,
		Status: x.status, ResponseID: printable(r.id, p.keys), Failure: failure,
	}); cost != nil {
		completion.Usage.CostUSD = cost
	}
	judgement = diagnose(caller, failure)
	if failure != nil {
		failure.Message = redact(failure.Message, p.secrets()...)
		return completion, retryable(x, failure) && (!x.passedOn || call.OnRestart != nil), failure
	}
	r.text = p.keys.removed(r.text)
	r.reasoning = p.keys.removed(r.reasoning) // The provider may have repeated a key.
	completion.Text = r.text
	completion.FinishReason = r.finish
	completion.Reasoning = r.reasoning
	completion.PromptCut = cutsPrompt(call, r)
	completion.ModelVersion = r.version(p.keys)
	if r.void && x.passedOn {
		call.OnVoid()
	}
	if call.OnDelta != nil && (!x.passedOn || r.void) {
		call.OnDelta(r.text) // The caller has no valid text yet.
	}
	return completion, false, nil
}

// route returns the provider that takes a model with this name, and what the client remembers about the model. Both are
// nil if no provider takes the model.
func (c *Client) route(name string) (*provider, *model) {
	prefix, id := council.SplitModel(name, c.names)
	p := c.providers[prefix]
	if p == nil {
		return nil, nil
	}
	return p, p.model(id)
}

func (p *provider) model(name string) *model {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.models[name]
	if m == nil {
		m = &model{name: name, breaker: newBreaker(), attempts: attempts{ended: window{span: breakerSpan}}}
		p.models[name] = m
	}
	return m
}

// consumed returns what a request consumed. It consumed nothing if the provider refused it or was not reached. The
// usage is unknown if the reply has no figures or was cut off.
func consumed(x *exchange, r received) council.Usage {
	if x.free(r) {
		return council.NoUsage()
	}
	return r.usage
}

// free reports whether a request cost nothing, because the provider was not reached or refused it. An error inside a
// reply with HTTP 200 is a refusal if it names a status from 400 to 499, no part of an answer came before it, and no
// usage is reported.
func (x *exchange) free(r received) bool {
	refused := func(status int) bool { return status >= 400 && status < 500 }
	return !x.sent || refused(x.status) || refused(x.named) && !r.chosen && !r.part && r.usage == (council.Usage{})
}
