// Package llm performs one completion call against an OpenAI-compatible provider
// and says in typed form what came of it: text, usage and cost, or a
// council.Failure. It is the only importer of go-openai, and cures in one
// RoundTripper what that library leaves open: unbounded bodies, errors inside
// HTTP 200, lost headers, parameters that its structs cannot carry.
//
// It leaves to others what is asked and what a reply means.
package llm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	openai "github.com/sashabaranov/go-openai"
)

// Provider is one OpenAI-compatible endpoint.
type Provider struct {
	// Name is the prefix that sends a model here: "name:model". The provider with
	// the empty name takes every model that names no other provider.
	Name    string
	BaseURL string // such as https://api.openai.com/v1
	APIKey  string // "" sends no Authorization header
}

// Options configure a Client. All fields but Providers must be positive.
type Options struct {
	Providers           []Provider
	AttemptTimeout      time.Duration // one call, from the first byte sent to the last received
	DialTimeout         time.Duration // connecting, and the TLS handshake
	MaxCallsPerProvider int           // calls in flight; further ones wait
	MaxReplyBytes       int64         // size limit of one reply
}

func (o Options) validate() error {
	var errs []error
	names := map[string]bool{}
	for _, p := range o.Providers {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("provider %q stands twice", p.Name))
		}
		names[p.Name] = true
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
	return errors.Join(errs...)
}

// Client is a council.Completer over HTTP. Its connections are kept and reused.
type Client struct {
	providers      map[string]*provider
	attemptTimeout time.Duration
}

type provider struct {
	api       *openai.Client
	key       string
	host      string
	slots     chan struct{}
	transport *http.Transport

	mu    sync.Mutex      // guards plain
	plain map[string]bool // models that refuse a reply format
}

// New returns a Client for the given providers. It opens no connection.
func New(o Options) (*Client, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Client{providers: make(map[string]*provider, len(o.Providers)), attemptTimeout: o.AttemptTimeout}
	for _, p := range o.Providers {
		u, err := url.Parse(p.BaseURL)
		if err != nil {
			return nil, err
		}
		pool := newPool(o)
		config := openai.DefaultConfig(p.APIKey)
		config.BaseURL = p.BaseURL
		config.HTTPClient = &http.Client{
			Transport: &transport{base: pool, maxBytes: o.MaxReplyBytes},
			// A redirected POST would lose its body, and its key could go to a stranger.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		c.providers[p.Name] = &provider{
			api: openai.NewClientWithConfig(config), key: p.APIKey, host: u.Hostname(),
			slots: make(chan struct{}, o.MaxCallsPerProvider), transport: pool, plain: map[string]bool{},
		}
	}
	return c, nil
}

// newPool returns a transport whose idle connections outlast the pauses between
// the stages of a session. The 16 KiB buffers let a review prompt leave in one
// write.
func newPool(o Options) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: o.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = o.DialTimeout
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = max(256, o.MaxCallsPerProvider)
	t.ReadBufferSize = 16 << 10
	t.WriteBufferSize = 16 << 10
	return t
}

// Close closes the idle connections. Calls in flight are not cut.
func (c *Client) Close() {
	for _, p := range c.providers {
		p.transport.CloseIdleConnections()
	}
}

var errAttemptTimeout = errors.New("the attempt timed out")

// Complete performs call with one HTTP request. A model that refuses the reply
// format is asked a second time without it, and never asked for one again. It
// implements council.Completer.
func (c *Client) Complete(ctx context.Context, call council.Call) (council.Completion, error) {
	start := time.Now()
	p, model := c.route(call.Model)
	if p == nil {
		return council.Completion{Spent: council.Spent{Usage: council.NoUsage()}}, &council.Failure{
			Code: council.FailUnknownProvider, Message: "the model's name points at no configured provider",
		}
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return council.Completion{Spent: council.Spent{LatencyMS: milliseconds(start), Usage: council.NoUsage()}}, ended(ctx)
	}

	format := call.Format
	if p.refuses(model) {
		format = nil
	}
	completion, failure := c.attempt(ctx, p, model, call, format)
	if failure != nil && format != nil && mayBeTheFormat(failure) {
		first := completion.Usage
		completion, failure = c.attempt(ctx, p, model, call, nil)
		completion.Attempts, completion.Usage = 2, completion.Usage.Plus(first)
		if failure == nil {
			p.refuse(model)
		}
	}
	completion.LatencyMS = milliseconds(start)
	if failure != nil {
		return completion, failure
	}
	return completion, nil
}

// attempt sends one request.
func (c *Client) attempt(ctx context.Context, p *provider, model string, call council.Call, format *council.Format) (council.Completion, *council.Failure) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.attemptTimeout, errAttemptTimeout)
	defer cancel()
	x := &exchange{extra: extraFields(p.host, call, format)}
	messages := make([]openai.ChatCompletionMessage, len(call.Messages))
	for i, m := range call.Messages {
		messages[i] = openai.ChatCompletionMessage{Role: m.Role, Content: m.Content}
	}
	resp, err := p.api.CreateChatCompletion(withExchange(ctx, x), openai.ChatCompletionRequest{Model: model, Messages: messages})

	completion := council.Completion{Spent: council.Spent{Attempts: 1, Usage: usage(x, resp)}}
	if failure := judge(ctx, x, resp, err); failure != nil {
		failure.Message = redact(failure.Message, p.key)
		return completion, failure
	}
	completion.Text = resp.Choices[0].Message.Content
	completion.FinishReason = string(resp.Choices[0].FinishReason)
	return completion, nil
}

// mayBeTheFormat reports whether a request may have failed for its reply format:
// providers use different statuses for that, and none of their own.
func mayBeTheFormat(f *council.Failure) bool {
	return f.HTTPStatus != nil && (*f.HTTPStatus == http.StatusBadRequest || *f.HTTPStatus == http.StatusNotFound || *f.HTTPStatus == http.StatusUnprocessableEntity)
}

func (p *provider) refuses(model string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plain[model]
}

func (p *provider) refuse(model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plain[model] = true
}

// route returns the provider that a model's name points at, and the name that
// the provider knows the model by. A colon that follows no provider's name
// belongs to the model ("llama3:8b").
func (c *Client) route(model string) (*provider, string) {
	if name, id, ok := strings.Cut(model, ":"); ok && name != "" {
		if p := c.providers[name]; p != nil {
			return p, id
		}
	}
	return c.providers[""], model
}

func milliseconds(start time.Time) float64 {
	return float64(time.Since(start)) / float64(time.Millisecond)
}

// usage reads what a call consumed. A provider that refused the request, or was
// never reached, consumed nothing; one that answered without figures, or broke
// off, leaves them unknown. A completion has at least one token on either side,
// so a zero is a figure that was not given.
func usage(x *exchange, resp openai.ChatCompletionResponse) council.Usage {
	if !x.sent || (x.status >= 400 && x.status < 500) {
		return council.NoUsage()
	}
	known := func(n int) *int64 {
		if n <= 0 {
			return nil
		}
		return new(int64(n))
	}
	return council.Usage{
		InputTokens:  known(resp.Usage.PromptTokens),
		OutputTokens: known(resp.Usage.CompletionTokens),
		CostUSD:      x.cost(),
	}
}
