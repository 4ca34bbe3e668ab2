// Package client calls councild's HTTP interface. It starts, watches and cancels sessions of a daemon, and reads
// the events that the interface sends. Its callers decide what they show of a session. Package httpapi serves the
// interface.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/councild/councild/internal/council"
)

const (
	// startTimeout is how long Ask waits for the start of a session. cancelTimeout is how long Ask waits for the
	// cancellation of a session.
	startTimeout  = 30 * time.Second
	cancelTimeout = 5 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before the client sends a ping. The reply to the ping
	// may take as long again. Together the two times are shorter than maxSilence.
	pingAfter = 15 * time.Second
	// maxProblem is the most bytes of a problem document that are read. maxDocument is the most bytes of any other
	// document, and of one line in a stream of events. The longest such line holds a whole session.
	maxProblem  = 1 << 20
	maxDocument = 256 << 20
)

// Options are the settings of a Client. URL is required.
type Options struct {
	URL   string // address of the daemon; a slash at its end makes no difference
	Token string // bearer token; if "", none is sent
	// HTTP sends the requests. If it is nil, the Client uses its own connections and follows no redirects. HTTP
	// must not have a Timeout.
	HTTP *http.Client
}

// Client calls one daemon. It is safe for concurrent use.
type Client struct{ o Options }

// New returns a Client. The error says that the URL is not valid.
func New(o Options) (*Client, error) {
	if _, err := url.Parse(o.URL); err != nil {
		return nil, err
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
		o.HTTP = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // A redirected POST would become a GET.
		}}
	}
	return &Client{o}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.o.HTTP.CloseIdleConnections() }

// Error says that a response was not the expected one, or that a session failed.
type Error struct {
	What string // "the daemon answered 404 Not Found" or "the session failed"
	// Status is the HTTP status, or 0 for the failure of a session.
	Status int
	// Redirect is the scheme and the host to which a response redirects, or "".
	Redirect string
	// Cause is the error in the problem document. If the response has no problem document, Cause is nil: then the
	// program that answered is not a daemon.
	Cause *council.Error
}

// Error returns the error in words for a person, with each field on its own line.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.What
	}
	return e.What + ": " + e.Cause.Explain()
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error {
	if e.Cause == nil {
		return nil
	}
	return e.Cause
}

// CancelledError says that Ask cancelled the session because the context of Ask ended.
type CancelledError struct{ SessionID string }

// Error implements error.
func (e CancelledError) Error() string { return "session " + e.SessionID + " was cancelled" }

// Ask starts a session in the background and watches it to its end. If ctx ends first, Ask cancels the session and
// returns a CancelledError. If the session has ended meanwhile, Ask cancels nothing.
func (c *Client) Ask(ctx context.Context, s council.Submission, o council.Observer) (*council.Session, error) {
	return c.run(ctx, func(ctx context.Context) (council.Summary, error) { return c.Start(ctx, s) }, o)
}

// Convene is Ask for a session in which the whole council answers the question of an earlier session. The argument id
// is the id of the earlier session.
func (c *Client) Convene(ctx context.Context, id string, o council.Observer) (*council.Session, error) {
	return c.run(ctx, func(ctx context.Context) (council.Summary, error) { return c.ConveneOnce(ctx, "", id) }, o)
}

// Judge is Ask for a session in which a council judges answers that exist already.
func (c *Client) Judge(ctx context.Context, s council.JudgeSubmission, o council.Observer) (*council.Session, error) {
	return c.run(ctx, func(ctx context.Context) (council.Summary, error) {
		s.Background = true
		return c.JudgeOnce(ctx, "", s)
	}, o)
}

// Task is Ask for a session that carries out a task. It posts the submission to the path of the task, such as
// "/v1/gate". The submission must ask for a session in the background.
func (c *Client) Task(ctx context.Context, path string, submission any, o council.Observer) (*council.Session, error) {
	return c.run(ctx, func(ctx context.Context) (council.Summary, error) {
		return c.startOnce(ctx, "", path, submission)
	}, o)
}

// run starts a session with the function start and watches it to its end, as Ask describes.
func (c *Client) run(
	ctx context.Context, start func(context.Context) (council.Summary, error), o council.Observer,
) (*council.Session, error) {
	// If ctx could cut off the start, the session could continue without an observer.
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	started, err := start(starting)
	if err != nil {
		return nil, err
	}
	session, err := c.Watch(ctx, started.ID, o)
	if ctx.Err() == nil || session != nil {
		return session, err
	}
	cancelling, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	state, err := c.Session(cancelling, started.ID)
	if err == nil && state.Status != council.StatusRunning {
		return nil, fmt.Errorf("session %s had ended, with status %s: the daemon keeps it", state.ID, state.Status)
	}
	if err == nil {
		_, err = c.Delete(cancelling, started.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("could not cancel session %s, which may still run: %w", started.ID, err)
	}
	return nil, CancelledError{started.ID}
}

// Start starts a session in the background. If the daemon answers with an error, the error of Start matches *Error.
func (c *Client) Start(ctx context.Context, s council.Submission) (started council.Summary, err error) {
	s.Background = true
	if started, err = c.StartOnce(ctx, "", s); err != nil {
		return started, fmt.Errorf("starting a session: %w", err)
	}
	return started, nil
}

// StartOnce starts a session in the background. The argument submission is the body of POST /v1/council. The argument
// key is an Idempotency-Key, or "". If the key has begun a session before, StartOnce returns that session, running or
// ended.
func (c *Client) StartOnce(ctx context.Context, key string, submission any) (started council.Summary, err error) {
	return c.startOnce(ctx, key, "/v1/council", submission)
}

// ConveneOnce is StartOnce for a session in which the whole council answers the question of the session with an id.
func (c *Client) ConveneOnce(ctx context.Context, key, id string) (council.Summary, error) {
	return c.startOnce(ctx, key, Path(id)+"/convene", map[string]bool{"background": true})
}

// JudgeOnce is StartOnce for a session in which a council judges answers. The argument submission is the body of POST
// /v1/judge.
func (c *Client) JudgeOnce(ctx context.Context, key string, submission any) (council.Summary, error) {
	return c.startOnce(ctx, key, "/v1/judge", submission)
}

// startOnce sends a request that starts a session in the background.
func (c *Client) startOnce(ctx context.Context, key, path string, request any) (started council.Summary, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return started, err
	}
	var headers []string
	if key != "" {
		headers = []string{"Idempotency-Key", key}
	}
	return started, c.call(ctx, http.MethodPost, path, body, http.StatusAccepted, &started, headers...)
}

// Get reads a path of the daemon, which may have a query, and decodes the JSON into a value.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, http.StatusOK, into)
}

// Post sends a body as JSON, and decodes the JSON of a response with status 200.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, path, encoded, http.StatusOK, into)
}

// List returns the sessions of the client's token that match a query of GET /v1/council, the newest first. If older
// sessions match too, or the search is not complete, next is the parameter "before" of the next query.
func (c *Client) List(ctx context.Context, query url.Values) (sessions []council.Summary, next string, err error) {
	var list struct {
		Sessions []council.Summary `json:"sessions"`
		More     bool              `json:"more"`
		Next     string            `json:"next"`
	}
	err = c.call(ctx, http.MethodGet, "/v1/council?"+query.Encode(), nil, http.StatusOK, &list)
	if n := len(list.Sessions); n > 0 && list.More && list.Next == "" { // The daemon has an older version.
		list.Next = list.Sessions[n-1].ID
	}
	return list.Sessions, list.Next, err
}

// Session returns a session. If the session still runs, the parts that are not known yet are missing.
func (c *Client) Session(ctx context.Context, id string) (*council.Session, error) {
	var s council.Session
	if err := c.call(ctx, http.MethodGet, Path(id), nil, http.StatusOK, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// Delete cancels a session that runs, or deletes one that has ended. The result deleted says that the session was
// deleted.
func (c *Client) Delete(ctx context.Context, id string) (deleted bool, err error) {
	resp, err := c.send(ctx, http.MethodDelete, Path(id), nil, []int{http.StatusAccepted, http.StatusNoContent})
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusNoContent, resp.Body.Close()
}

// Feedback sends what a person says about a session that has ended, and returns what the daemon stored.
func (c *Client) Feedback(ctx context.Context, id string, f council.Feedback) (kept council.Kept, err error) {
	body, err := json.Marshal(f)
	if err != nil {
		return kept, err
	}
	return kept, c.call(ctx, http.MethodPost, Path(id)+"/feedback", body, http.StatusCreated, &kept)
}

// Healthy returns nil if the daemon answers that it is alive.
func (c *Client) Healthy(ctx context.Context) error {
	var health struct{ Status string }
	if err := c.call(ctx, http.MethodGet, "/healthz", nil, http.StatusOK, &health); err != nil {
		return err
	}
	if health.Status != "ok" {
		return fmt.Errorf("the daemon is %q, not ok", health.Status)
	}
	return nil
}

// Path returns the URL path of a session.
func Path(id string) string { return "/v1/council/" + url.PathEscape(id) }

// call sends a request and decodes the response, which must have the status in the argument want. The argument headers
// has pairs of a name and a value.
func (c *Client) call(
	ctx context.Context, method, path string, body []byte, want int, into any, headers ...string,
) error {
	resp, err := c.send(ctx, method, path, body, []int{want}, headers...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("reading the daemon's answer: %w", err)
	}
	return nil
}

// send sends a request and returns the response with its body open. The argument headers has pairs of a name and a
// value. The error is an *Error if the status is not in the argument want.
func (c *Client) send(
	ctx context.Context, method, path string, body []byte, want []int, headers ...string,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.o.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil || slices.Contains(want, resp.StatusCode) {
		return resp, err
	}
	defer resp.Body.Close()
	failed := &Error{What: "the daemon answered " + resp.Status, Status: resp.StatusCode}
	if elsewhere, err := resp.Location(); err == nil {
		failed.Redirect = elsewhere.Scheme + "://" + elsewhere.Host
	}
	var p council.Problem
	if json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&p) == nil && p.Detail != "" {
		failed.Cause = p.Cause()
	}
	return nil, failed
}
