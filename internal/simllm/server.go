package simllm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxRequestBytes limits a request's body.
const maxRequestBytes = 16 << 20

// Options configure a Server. They must not change while a server uses them.
type Options struct {
	Seed uint64
	// APIKey is required in every request, as the bearer token or in a header api-key. If it is empty, no key is
	// required.
	APIKey string
	Models []Model // at least one
	// Closed holds the questions for which models with an Ability know the right answer.
	Closed []Closed
	// Written holds the questions for which the models of Council have written texts.
	Written []Written
	// Planted holds the defects that models find in diffs.
	Planted []Planted
	// Filler is the first line of every synthesis that is not written. "" stands for "Simulated synthesis."
	Filler string
	// Instant, if set, says for which questions the models reply at once, without their latency and delays. Requests
	// call it concurrently.
	Instant func(question string) bool
}

// Server is a simulated provider. It is an http.Handler for
//
//	POST /chat/completions
//	POST /embeddings
//	GET  /models
//
// and the same paths below /v1. Every error has OpenAI's form, {"error": {message, type, param, code}}. [Find] says how
// a request may name a model.
type Server struct {
	apiKey      string
	configured  []Model
	models      map[string]*model // the configured models, by name
	connections atomic.Int64
}

// model is a Model of a running server.
type model struct {
	Model
	seed      string
	phrases   *phrases
	signature string
	layout    string
	liked     []author
	faults    []fault
	known     []Closed
	written   []Written
	planted   []Planted
	filler    string
	instant   func(question string) bool
	*counters
}

// counters hold the statistics of a model.
type counters struct {
	mu    sync.Mutex // guards stats
	stats ModelStats
}

// author is a model whose answers a reviewer scores higher or lower than other answers.
type author struct {
	signature string
	points    float64 // added to the scores
}

// New returns a server. The error lists all problems of the options.
func New(o Options) (*Server, error) {
	s := &Server{apiKey: o.APIKey, configured: o.Models, models: make(map[string]*model, len(o.Models))}
	p := newPhrases()
	var errs []error
	for _, c := range o.Closed {
		if c.Query == "" || c.Right == "" || len(c.Wrong) == 0 {
			errs = append(errs, fmt.Errorf("the closed question %.40q lacks its text, its right answer or wrong ones",
				c.Query))
		}
	}
	if len(o.Models) == 0 {
		errs = append(errs, errors.New("no models"))
	}
	signatures := map[string]string{}
	for _, configured := range o.Models {
		errs = append(errs, configured.validate())
		m := newModel(configured, o, p)
		if other, taken := signatures[m.signature]; s.models[m.Name] != nil {
			errs = append(errs, fmt.Errorf("model %q: the name is taken", m.Name))
		} else if taken {
			errs = append(errs, fmt.Errorf("model %q: the name gives it the signature of %q: choose another",
				m.Name, other))
		}
		signatures[m.signature] = m.Name
		s.models[m.Name] = m
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// model returns the model with a name, or nil. If the name holds settings, the model has the style and the statistics
// of the same model without settings.
func (s *Server) model(name string) *model {
	if m := s.models[name]; m != nil {
		return m
	}
	found, ok, err := Find(s.configured, name)
	if !ok || err != nil {
		return nil
	}
	base, _, _ := strings.Cut(name, "?")
	m := *s.models[base]
	m.Model = found
	return &m
}

func newModel(configured Model, o Options, p *phrases) *model {
	m := &model{
		Model: configured, seed: strconv.FormatUint(o.Seed, 10), phrases: p,
		signature: p.signature(configured.Name),
		faults:    make([]fault, len(configured.Faults)), known: o.Closed, counters: &counters{},
		written: o.Written, planted: o.Planted, filler: cmp.Or(o.Filler, "Simulated synthesis."), instant: o.Instant,
	}
	if m.instant == nil {
		m.instant = func(string) bool { return false }
	}
	h := digest("layout", m.Name)
	m.layout = layouts()[int(h[0])%len(layouts())]
	for _, name := range slices.Sorted(maps.Keys(m.Affinity)) { // sorted, because sums of floats depend on the order
		m.liked = append(m.liked, author{p.signature(name), m.Affinity[name]})
	}
	for i, f := range configured.Faults {
		m.faults[i].Fault = f.withDefaults()
	}
	return m
}

// draws returns a source of random numbers for one purpose of the model. Equal arguments give equal numbers.
func (m *model) draws(purpose string, content ...string) *rand.Rand {
	return draws(append([]string{m.seed, m.Name, purpose}, content...)...)
}

// Stats holds the statistics of a server since it began.
type Stats struct {
	// Connections is the number of opened connections, counted by ConnState.
	Connections int64
	Models      map[string]ModelStats
}

// ModelStats holds the statistics of one model.
type ModelStats struct {
	Requests  int // requests for completions and embeddings, including those in flight
	InFlight  int
	Faults    int // requests that had a fault
	Cancelled int // requests whose client disconnected before the whole reply was sent
	// Dwell is the total duration of finished requests. The duration of a request is the time from the end of reading
	// its body until the last byte of the reply is handed to the network.
	Dwell time.Duration
}

// Stats returns what the server has seen so far.
func (s *Server) Stats() Stats {
	stats := Stats{Connections: s.connections.Load(), Models: make(map[string]ModelStats, len(s.models))}
	for name, m := range s.models {
		m.mu.Lock()
		stats.Models[name] = m.stats
		m.mu.Unlock()
	}
	return stats
}

// ConnState counts connections. Set it as the field ConnState of the http.Server that serves s. Start sets this field.
func (s *Server) ConnState(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.connections.Add(1)
	}
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Simulated", "true")
	method := http.MethodPost
	handle := s.chat
	switch strings.TrimPrefix(r.URL.Path, "/v1") {
	case "/chat/completions":
	case "/embeddings":
		handle = s.embed
	case "/models":
		method = http.MethodGet
		handle = s.list
	default:
		refuse(w, newError(404, "no such path: "+r.URL.Path))
		return
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		refuse(w, newError(405, "use "+method))
		return
	}
	if !authorized(r, s.apiKey) {
		refuse(w, newError(401, "the API key is missing or wrong"))
		return
	}
	handle(w, r)
}

// refuse writes an error.
func refuse(w http.ResponseWriter, e errorBody) { write(w, e.status, e) }

// write writes a value as JSON.
func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // an error means that the client has disconnected
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	models := modelList{Object: "list"}
	for _, m := range s.configured {
		models.Data = append(models.Data, modelCard{ID: m.Name, Object: "model", OwnedBy: fingerprint})
	}
	write(w, http.StatusOK, models)
}

// readBody reads the body of a request. If it fails, it answers with an error and returns false.
func readBody(w http.ResponseWriter, r *http.Request) (raw []byte, ok bool) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		status := 400
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = 413
		}
		refuse(w, newError(status, "reading the request: "+err.Error()))
	}
	return raw, err == nil
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	raw, ok := readBody(w, r)
	if !ok {
		return
	}
	start := time.Now()
	var body chatRequest
	if err := json.Unmarshal(raw, &body); err != nil {
		refuse(w, newError(400, "the request is not the JSON of a chat completion: "+err.Error()))
		return
	}
	m := s.model(body.Model)
	if m != nil && m.Dialect != DialectOwn {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // the body is a JSON object
		switch e := m.Dialect.refuse(r, members).(type) {
		case nil:
		case errorBody:
			refuse(w, e)
			return
		default:
			write(w, http.StatusBadRequest, e)
			return
		}
		m.Dialect.adapt(&body)
		body.unpriced = !m.Dialect.tellsCosts(members)
	}
	switch {
	case m == nil:
		refuse(w, noModel(body.Model))
	case len(body.Messages) == 0:
		refuse(w, newError(400, "there must be at least one message").about("messages"))
	case body.ResponseFormat != nil && m.ResponseFormat == FormatRefused:
		refuse(w, newError(400, "this model does not support it").about("response_format"))
	case body.Stream && m.NoStream:
		refuse(w, newError(400, "this model does not support streaming").about("stream"))
	case body.N != nil && *body.N != 1:
		refuse(w, newError(400, "n must be 1").about("n"))
	default:
		m.serve(r.Context(), w, m.request(body), start)
	}
}

// request returns the request with its task and its key.
func (m *model) request(body chatRequest) *request {
	conversation := body.conversation()
	q := &request{body: body, task: readTask(m.Name, conversation)}
	q.key = q.task.key(conversation)
	for _, t := range conversation {
		q.promptBytes += len(t.text)
	}
	return q
}

// serve replies to a request and counts it.
func (m *model) serve(ctx context.Context, w http.ResponseWriter, q *request, start time.Time) {
	f := m.faultOf(q)

	m.mu.Lock()
	m.stats.Requests++
	m.stats.InFlight++
	if f.Kind != "" {
		m.stats.Faults++
	}
	m.mu.Unlock()
	var err error
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stats.InFlight--
		m.stats.Dwell += time.Since(start)
		if err != nil && !errors.Is(err, http.ErrAbortHandler) {
			m.stats.Cancelled++
		}
	}()

	response := m.respond(q, f)
	if err = sleep(ctx, m.latency(q)-time.Since(start)); err != nil {
		return
	}
	pause := m.ChunkDelay
	if m.instant(q.task.Question) {
		pause = 0
	}
	err = m.send(ctx, w, response, f, pause, start)
	if errors.Is(err, http.ErrAbortHandler) {
		panic(err)
	}
}

// latency returns the time until the first byte of the reply.
func (m *model) latency(q *request) time.Duration {
	switch {
	case m.instant(q.task.Question):
		return 0
	case q.body.Stream && m.FirstChunk > 0:
		return m.FirstChunk
	case m.Latency.Sigma == 0:
		return m.Latency.Median
	default:
		factor := math.Exp(m.Latency.Sigma * m.draws("latency", q.key).NormFloat64())
		return time.Duration(float64(m.Latency.Median) * factor)
	}
}

// Running is a server that listens.
type Running struct {
	*Server
	url  string
	http *http.Server
	wg   sync.WaitGroup // counts the accepting goroutine, the connections and the requests
}

// Start returns a server that listens on a free port of 127.0.0.1. The context limits only the start. The server
// runs until Close.
func Start(ctx context.Context, o Options) (*Running, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the simulated provider: %w", err)
	}
	r := &Running{Server: s, url: "http://" + listener.Addr().String() + "/v1"}
	r.http = &http.Server{
		ReadHeaderTimeout: time.Minute,
		// Close waits until each connection is closed, or was taken over by a request. Close also waits for each
		// request.
		ConnState: func(c net.Conn, state http.ConnState) {
			s.ConnState(c, state)
			switch state {
			case http.StateNew:
				r.wg.Add(1)
			case http.StateClosed, http.StateHijacked:
				r.wg.Done()
			default: // the connection stays open
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.wg.Add(1)
			defer r.wg.Done()
			s.ServeHTTP(w, req)
		}),
	}
	r.wg.Go(func() { _ = r.http.Serve(listener) }) // only Close ends it
	return r, nil
}

// URL returns the base URL, which ends in /v1.
func (r *Running) URL() string { return r.url }

// Close closes all connections and waits for the goroutines of the server. A caller may call it more than once.
func (r *Running) Close() {
	_ = r.http.Close() // this closes the listener even if there is an error
	r.wg.Wait()
}
