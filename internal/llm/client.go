// Package llm performs calls for completions and embeddings against OpenAI-compatible
// providers. It returns the result of each as text, usage and cost, or as a
// council.Failure.
//
// It is the only importer of go-openai, which sends the requests and opens the streams. A
// RoundTripper does what that library does not: it limits the size of bodies, finds errors
// inside HTTP 200, keeps headers, and notices streams that end early. The JSON of requests
// and replies is written and read in this package.
//
// # Streams
//
// Text that arrives after a pause is passed on at once, and all other text every 20 ms, or
// less often where the call asks for that. The stream is read less often then too.
// Of several choices the one of index 0 is read: no other was asked for.
//
// # Faults
//
// A call sends one request, and up to Options.MaxAttempts when a request fails in a
// way that may pass: HTTP 408, 409, 425, 429 and 5xx, no connection, a broken
// connection, a reply that was cut off. All other failures are final:
//
//   - a certificate that is not trusted;
//   - a complete reply without a usable text, and a reply of which a part was passed on,
//     unless the caller takes back what it was told (council.Call.OnRestart);
//   - a request that ran out of time, also while connecting: a slow model is usually
//     slow again, and its tokens cost money.
//
// A request that is repeated without an option, because the model refused that, does not
// count as a retry.
//
// The wait before retry n is drawn between 0 and 500 ms * 2^(n-1), 8 s at most
// (exponential backoff with full jitter: Brooker, "Exponential Backoff And
// Jitter", 2015). When the provider names a time, the wait is that time and up to
// 250 ms more. A wait that would not end before the caller's deadline, or that is longer
// than one attempt may take, is not begun: the call ends at once with the provider's own
// error.
//
// The retries of all calls to one provider share a budget: in any 10 s there are at most 10, or 10 % of the calls begun
// in that time if that is more. A retry that is due while the budget has no room waits in a queue, first in, first out.
// The call ends at once with the provider's own error when its turn would come after the caller's deadline, when the
// breaker of the model opens, and when at least half of ten or more requests to the model failed within 30 s, HTTP 429
// included. Every model of a provider has a circuit breaker (Nygard, "Release It!", 2007), which refuses calls while
// the model is out of order: see breaker.
//
// Both are written by hand, because failsafe-go (v0.9.8) cannot keep the promises F01 to
// F04 of docs/faults.md. Its retry budget is a share of the calls in flight: when every
// call was refused, it let all retries pass. It waits until the deadline for a retry that
// does not fit. Its breaker becomes half open only when a request asks; it takes a late
// result from before it opened for the result of the probe; and a probe that was cancelled
// closes the breaker, or blocks it for ever.
//
// The package leaves to others what is asked, what a reply means, and whether another
// model is asked instead.
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
	// Name is the prefix that sends a model here: "name:model". The provider with
	// the empty name takes every model that names no other provider.
	Name    string
	BaseURL string // such as https://api.openai.com/v1
	APIKey  string // "" sends no Authorization header
	// Headers and Query are sent with each request beside its own. Their values are secrets.
	Headers, Query map[string]string
	MaxCalls       int           // requests in flight; 0: Options.MaxCallsPerProvider
	IdleTimeout    time.Duration // 0: Options.IdleTimeout
}

// secrets returns what no message may hold.
func (p Provider) secrets() []string {
	return append(slices.Concat(slices.Collect(maps.Values(p.Headers)), slices.Collect(maps.Values(p.Query))), p.APIKey)
}

// Options configure a Client. All fields must be positive but for Providers and
// those whose zero is explained.
type Options struct {
	Providers           []Provider
	AttemptTimeout      time.Duration // of one request, from the first byte sent to the last received
	MaxAttempts         int           // requests of one call, the first included; 0 stands for 1
	DialTimeout         time.Duration // for connecting, with the TLS handshake; through a proxy, that has as long again
	IdleTimeout         time.Duration // between two reads of a reply after its headers; 0: only AttemptTimeout limits it
	MaxCallsPerProvider int           // requests in flight; others wait
	MaxReplyBytes       int64         // of one reply; in a stream: of its text, and of each line
	// Version is our own, for the User-Agent of requests; "": there is none.
	Version string
	// Trace adds to the headers of a request what names its span, which is in the context; nil: nothing does.
	Trace func(context.Context, http.Header)
	// Dial connects to a provider, as http.Transport.DialContext does. Nil connects by TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) validate() error {
	var errs []error
	names := map[string]bool{}
	for _, p := range o.Providers {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("provider %q stands twice", p.Name))
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

// finish tells a receipt what a request consumed.
func finish(ctx context.Context, r council.Receipt, c council.Consumed) (costUSD *float64) {
	if r == nil {
		return nil
	}
	return r.Finish(ctx, c)
}

// Client is a council.Completer over HTTP. Its connections are kept and reused.
type Client struct {
	providers      map[string]*provider
	names          []string // of the providers
	attemptTimeout time.Duration
	maxAttempts    int
	closed         atomic.Bool // Close was called
}

type provider struct {
	Provider
	dialect   dialect
	keys      keys
	address   string // host and port as configured, for messages
	hint      string // as in exchange
	api       *openai.Client
	http      *http.Client // under api
	transport *transport
	pool      *http.Transport
	queue     *queue
	start     time.Time // the zero of the clock of budget and breakers
	budget    *budget

	mu     sync.Mutex // guards models
	models map[string]*model
}

// model is what is kept of a model from call to call.
type model struct {
	name     string
	breaker  *breaker
	attempts attempts
	refuses  refusals
	// unopened says that the last reply had thinking without a mark of its beginning. Of the next stream nothing is
	// passed on before the end of the thinking.
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
		u, _ := url.Parse(p.BaseURL) // it is valid
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
			// A redirected POST would lose its body, and its key could go to a stranger.
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

// userAgent returns the User-Agent of requests: who we are, and where to read about us.
func userAgent(version string) string {
	if version != "" {
		version = "/" + version
	}
	return "councild" + version + " (+https://github.com/councild/councild)"
}

// hint returns a possible cause of HTTP 404 from a base URL without a version.
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

// pingAfter is how long a connection over HTTP/2 may bring nothing before it is asked for a sign of life, and how
// long that may take. Without it a connection whose path is dead would fail every later call.
const pingAfter = 15 * time.Second

// newPool returns a transport that keeps idle connections open during the pauses
// between the stages of a session.
func newPool(o Options, calls int) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if t.DialContext = o.Dial; t.DialContext == nil {
		t.DialContext = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	t.TLSHandshakeTimeout = o.DialTimeout // through a proxy
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

// Close closes the idle connections. Calls in flight go on, and more may come: their connections close soon after
// the last one.
func (c *Client) Close() {
	c.closed.Store(true)
	c.closeIdle()
}

func (c *Client) closeIdle() {
	for _, p := range c.providers {
		p.pool.CloseIdleConnections()
	}
}

// idleOnceClosed is how long a client that was closed keeps a connection for the next call.
const idleOnceClosed = time.Second

// ended is called at the end of a call.
func (c *Client) ended() {
	if c.closed.Load() {
		time.AfterFunc(idleOnceClosed, c.closeIdle)
	}
}

// Bytes returns how long the body of the first request of a call is. It is 0 if the model goes to no provider.
func (c *Client) Bytes(call council.Call) int64 {
	p, m := c.route(call.Model)
	if p == nil {
		return 0
	}
	without := p.dialect.known() | m.refuses.of(&call, p.dialect.asked(&call, m.name))
	x := exchange{call: &call, dialect: p.dialect, model: m.name, without: without}
	return int64(len(x.request()))
}

// Complete performs call, with retries as described in the package comment. A model that
// refuses an option is asked again without it, and is never asked for it after that (of
// temperature and effort: for this value): see options. The text of one that refuses to stream comes in one piece. Attempts and
// usage are those of all requests; the usage of a request of which no reply arrived is
// unknown. It implements council.Completer.
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

// complete sends the requests of a call, and adds up in total what they took.
func (c *Client) complete(ctx context.Context, call council.Call, total *council.Completion) *council.Failure {
	p, m := c.route(call.Model)
	if p == nil {
		return &council.Failure{
			Code:    council.FailUnknownProvider,
			Message: "the model's name points at no configured provider",
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
	learned := options(0) // what the model may have refused in this call
	shown := false        // the caller has pieces of a reply that is not complete
	if onDelta := call.OnDelta; onDelta != nil {
		call.OnDelta = func(text string) {
			shown = true
			onDelta(text)
		}
	}
	next := firstRequest
	var last *council.Failure
	var place *claim // of the next retry
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

// addUsage counts one more request, and what it used.
func addUsage(total *council.Completion, reply council.Completion) {
	if total.Attempts++; total.Attempts == 1 {
		total.Usage = reply.Usage
	} else {
		total.Usage = total.Usage.Plus(reply.Usage)
	}
	total.Implausible += reply.Implausible
}

// deliver makes the reply of the last request that of the call.
func deliver(total *council.Completion, reply council.Completion) {
	total.Text = reply.Text
	total.FinishReason = reply.FinishReason
	total.Reasoning = reply.Reasoning
	total.PromptCut = reply.PromptCut
	total.ModelVersion = reply.ModelVersion
}

// claimRetry takes a place in the queue for retry n of a call. It returns nil where another request is pointless.
func (c *Client) claimRetry(ctx context.Context, p *provider, m *model, n int, failure *council.Failure) *claim {
	wait, ok := c.backoff(ctx, n, failure)
	if !ok || !m.breaker.admits(p.now()+wait) {
		return nil
	}
	return p.budget.claim(ctx, m, wait)
}

// request is the kind of a request for the retry budget.
type request int

const (
	firstRequest request = iota
	retry                // it has a claim that was granted
	sameAgain            // repeated without an option, which the budget does not count
)

// admit waits for a place in the provider's queue and asks breaker and budget. Method leave
// gives back the place and the ticket. When the request may not be sent, admit returns the
// failure of the request before it, unless the call was cancelled.
func (p *provider) admit(
	ctx context.Context, m *model, r request, place *claim, last *council.Failure,
) (ticket, *council.Failure) {
	if r == firstRequest && !m.breaker.admits(p.now()) {
		return 0, m.breaker.failure(p.now()) // without waiting for a place
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

// gaveUp returns why a call ends that waited: the failure of its last request, unless there is none or the call was cancelled.
func gaveUp(ctx context.Context, last *council.Failure) *council.Failure {
	if last == nil || errors.Is(ctx.Err(), context.Canceled) {
		return ended(ctx)
	}
	return last
}

// leave gives back what admit took.
func (p *provider) leave(m *model, t ticket, v verdict) {
	m.breaker.leave(p.now(), t, v)
	p.queue.leave()
}

// now returns the time of the clock of budget and breakers. It is monotonic: it does
// not depend on the machine's wall clock.
func (p *provider) now() time.Duration { return time.Since(p.start) }

// begin waits until a request that was admitted may be sent. If it may not, it gives back what admit took.
func (p *provider) begin(
	ctx context.Context, m *model, x *exchange, number int, t ticket,
) (receipt council.Receipt, failure *council.Failure) {
	if x.call.Begin == nil {
		return nil, nil
	}
	judged := false
	defer func() {
		if !judged || failure != nil { // also when Begin panics
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

// send performs a request.
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

// attempt sends one request. It reports whether another one may succeed.
func (c *Client) attempt(
	caller context.Context, p *provider, m *model, x *exchange, receipt council.Receipt, t ticket,
) (completion council.Completion, again bool, failure *council.Failure) {
	judgement := unclear
	call := x.call
	begun := time.Now()
	defer finish(caller, receipt, council.Consumed{}) // when OnDelta panics
	defer func() {                                    // also when OnDelta panics
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
	if cost := finish(caller, receipt, council.Consumed{Free: x.free(r), Usage: r.usage, Kinds: r.kinds}); cost != nil {
		completion.Usage.CostUSD = cost
	}
	judgement = diagnose(caller, failure)
	if failure != nil {
		failure.Message = redact(failure.Message, p.secrets()...)
		return completion, retryable(x, failure) && (!x.passedOn || call.OnRestart != nil), failure
	}
	r.text = p.keys.removed(r.text)
	r.reasoning = p.keys.removed(r.reasoning) // in case the provider repeated one
	completion.Text = r.text
	completion.FinishReason = r.finish
	completion.Reasoning = r.reasoning
	completion.PromptCut = cutsPrompt(call, r)
	completion.ModelVersion = r.version(p.keys)
	if r.void && x.passedOn {
		call.OnVoid()
	}
	if call.OnDelta != nil && (!x.passedOn || r.void) {
		call.OnDelta(r.text) // the provider does not stream
	}
	return completion, false, nil
}

// route returns the provider that a model's name points at, and the model as the
// provider knows it.
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

// consumed returns what a request consumed: nothing if the provider refused it or was not
// reached. It is unknown if the reply has no figures or was cut off.
func consumed(x *exchange, r received) council.Usage {
	if x.free(r) {
		return council.NoUsage()
	}
	return r.usage
}

// free reports whether a request cost nothing: the provider was not reached, or refused it. A refusal behind HTTP 200 is one
// where nothing came before it, and it names no usage.
func (x *exchange) free(r received) bool {
	refused := func(status int) bool { return status >= 400 && status < 500 }
	return !x.sent || refused(x.status) || refused(x.named) && !r.chosen && !r.part && r.usage == (council.Usage{})
}
