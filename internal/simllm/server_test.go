package simllm

import (
	"bytes"
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/testkit/race"
)

func TestNewRefuses(t *testing.T) {
	valid := func() Options {
		return Options{Models: []Model{{Name: "m", Faults: []Fault{{Kind: FaultHang, Rate: 1}}}}}
	}
	if _, err := New(valid()); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no models", func(o *Options) { o.Models = nil }, "no models"},
		{"no name", func(o *Options) { o.Models[0].Name = "" }, "no name"},
		{"same name", func(o *Options) { o.Models = append(o.Models, o.Models[0]) }, "taken"},
		{"quality", func(o *Options) { o.Models[0].Quality = 5 }, "Quality"},
		{"not a number", func(o *Options) { o.Models[0].Noise = math.NaN() }, "Noise"},
		{"spread", func(o *Options) { o.Models[0].Spread = -1 }, "Spread"},
		{"length", func(o *Options) { o.Models[0].Length = 0.1 }, "Length"},
		{"length sigma", func(o *Options) { o.Models[0].LengthSigma = 3 }, "LengthSigma"},
		{"harshness", func(o *Options) { o.Models[0].Harshness = 11 }, "Harshness"},
		{"affinity", func(o *Options) { o.Models[0].Affinity = map[string]float64{"x": 11} }, `Affinity["x"]`},
		{"length bias", func(o *Options) { o.Models[0].LengthBias = 11 }, "LengthBias"},
		{"position", func(o *Options) { o.Models[0].Position = []float64{0, 11} }, "Position[1]"},
		{"last", func(o *Options) { o.Models[0].Last = 11 }, "Last"},
		{"latency", func(o *Options) { o.Models[0].Latency.Median = -1 }, "Latency.Median"},
		{"latency sigma", func(o *Options) { o.Models[0].Latency.Sigma = 3 }, "Latency.Sigma"},
		{"first chunk", func(o *Options) { o.Models[0].FirstChunk = -1 }, "FirstChunk"},
		{"chunk delay", func(o *Options) { o.Models[0].ChunkDelay = -1 }, "ChunkDelay"},
		{"price", func(o *Options) { o.Models[0].Price.Input = -1 }, "Price.Input"},
		{"price", func(o *Options) { o.Models[0].Price.Output = -1 }, "Price.Output"},
		{"response format", func(o *Options) { o.Models[0].ResponseFormat = "odd" }, `response_format "odd"`},
		{"fault kind", func(o *Options) { o.Models[0].Faults[0].Kind = "x" }, `unknown kind "x"`},
		{"fault rate 0", func(o *Options) { o.Models[0].Faults[0].Rate = 0 }, "rate"},
		{"fault rate above 1", func(o *Options) { o.Models[0].Faults[0].Rate = 1.1 }, "rate"},
		{"fault task", func(o *Options) { o.Models[0].Faults[0].Tasks = []TaskKind{"x"} }, `unknown task "x"`},
		{"fault status", func(o *Options) { o.Models[0].Faults[0].Status = 200 }, "status"},
		{"fault times", func(o *Options) { o.Models[0].Faults[0].Times = -1 }, "times"},
		{"fault size", func(o *Options) { o.Models[0].Faults[0].Size = -1 }, "size"},
		{"fault delay", func(o *Options) { o.Models[0].Faults[0].Delay = -1 }, "delay"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := valid()
			tt.change(&o)
			_, err := New(o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q and nothing else", err, tt.want)
			}
		})
	}
	_, err := New(Options{Models: []Model{{Quality: 5, Last: 11}}})
	for _, want := range []string{"no name", "Quality", "Last"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not tell of %s", err, want)
		}
	}
}

func TestSignaturesAreUnique(t *testing.T) {
	p := newPhrases()
	names := map[string]string{}
	for i := 0; ; i++ {
		name := strconv.Itoa(i)
		other, taken := names[p.signature(name)]
		if !taken {
			names[p.signature(name)] = name
			continue
		}
		if _, err := New(Options{Models: []Model{{Name: name}, {Name: other}}}); err == nil || !strings.Contains(err.Error(), "signature") {
			t.Errorf("models %s and %s share a signature: error %v", name, other, err)
		}
		return
	}
}

func TestStartRefuses(t *testing.T) {
	if r, err := Start(t.Context(), Options{}); err == nil {
		r.Close()
		t.Error("it started without models")
	}
}

func TestPresets(t *testing.T) {
	s := newServer(t, slices.Concat(Council(), Troubled())...)
	want := []string{"amber", "birch", "cedar", "dune", "down", "limited", "silent", "abstainer", "garbler", "slow"}
	if diff := cmp.Diff(want, s.names()); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	s, err := New(Options{APIKey: "key", Models: []Model{{Name: "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	valid := `{"model": "m", "messages": [{"role": "user", "content": "hi"}]}`
	tests := []struct {
		name, method, path, key, body string
		status                        int
		code                          string
		param                         *string
	}{
		{"valid", "POST", "/v1/chat/completions", "key", valid, 200, "", nil},
		{"valid without /v1", "POST", "/chat/completions", "key", valid, 200, "", nil},
		{"no key", "POST", "/v1/chat/completions", "", valid, 401, "invalid_api_key", nil},
		{"wrong key", "GET", "/v1/models", "kez", "", 401, "invalid_api_key", nil},
		{"path", "POST", "/v2/chat/completions", "key", valid, 404, "invalid_request", nil},
		{"method", "GET", "/v1/chat/completions", "key", "", 405, "invalid_request", nil},
		{"method of models", "POST", "/models", "key", "", 405, "invalid_request", nil},
		{"no JSON", "POST", "/v1/chat/completions", "key", `{"model": `, 400, "invalid_request", nil},
		{"model", "POST", "/v1/chat/completions", "key", strings.Replace(valid, `"m"`, `"x"`, 1), 404, "model_not_found", new("model")},
		{"no messages", "POST", "/v1/chat/completions", "key", `{"model": "m", "messages": []}`, 400, "invalid_request", new("messages")},
		{"n", "POST", "/v1/chat/completions", "key", strings.Replace(valid, `{`, `{"n": 2, `, 1), 400, "invalid_request", new("n")},
		{"too large", "POST", "/v1/chat/completions", "key", strings.Repeat(" ", maxRequestBytes+1), 413, "invalid_request", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
			req.Header.Set("Authorization", "Bearer "+tt.key)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			if w.Code != tt.status || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Simulated") != "true" {
				t.Errorf("status %d, headers %v", w.Code, w.Header())
			}
			e := decode[errorBody](t, w.Body.Bytes()).Error
			if e.Code != tt.code || (e.Message == "") != (tt.code == "") || (e.Type == "") != (tt.code == "") {
				t.Errorf("error %+v, want code %q", e, tt.code)
			}
			if diff := cmp.Diff(tt.param, e.Param); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestModels(t *testing.T) {
	s := newServer(t, Model{Name: "b"}, Model{Name: "a"})
	for _, path := range []string{"/models", "/v1/models"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		want := `{"object":"list","data":[` +
			`{"id":"b","object":"model","created":0,"owned_by":"simulated"},` +
			`{"id":"a","object":"model","created":0,"owned_by":"simulated"}]}`
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: status %d, body %s", path, w.Code, w.Body)
		}
	}
}

func TestCompletion(t *testing.T) {
	r := start(t, Options{Models: []Model{{
		Name: "m", Price: Price{Input: 2, Output: 10},
		Reply: func(task Task) (string, bool) { return strings.ToUpper(task.Question), task.Question == "grüße" },
	}}})
	reply := r.post(t.Context(), chat("m", "grüße"))
	want := completion{
		Object: "chat.completion", Model: "m", SystemFingerprint: "simulated",
		Choices: []choice{{Message: &message{Role: "assistant", Content: new("GRÜßE")}, FinishReason: new("stop")}},
		Usage:   &usage{PromptTokens: 2, CompletionTokens: 2, TotalTokens: 4, Cost: new(24e-6)},
	}
	got := decode[completion](t, reply.body)
	if !strings.HasPrefix(got.ID, "simulated-") {
		t.Errorf("id %q", got.ID)
	}
	got.ID = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := strconv.Atoi(reply.header.Get("X-Simulated-Dwell-Us")); err != nil ||
		reply.header.Get("X-Simulated") != "true" || reply.length != int64(len(reply.body)) {
		t.Error(reply)
	}

	if own := ask(t, r.Server, "m", "other"); !strings.HasPrefix(own, "Simulated answer.\n") {
		t.Errorf("where Reply has no text: %q", own)
	}
}

func TestContentForms(t *testing.T) {
	s := newServer(t, Model{Name: "m", Reply: func(task Task) (string, bool) { return "[" + task.Question + "]", true }})
	for content, want := range map[string]string{
		`"text"`: "[text]",
		`null`:   "[]",
		`17`:     "[]",
		`[{"type": "text", "text": "two "}, {"type": "image_url"}, "x", {"type": "text", "text": "parts"}]`: "[two parts]",
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions",
			strings.NewReader(`{"model": "m", "messages": [{"role": "user", "content": `+content+`}]}`)))
		if got := textOf(t, w.Body.Bytes()); got != want {
			t.Errorf("content %s: the question is %s, want %s", content, got, want)
		}
	}
}

func TestTokenLimit(t *testing.T) {
	s := newServer(t, Model{Name: "m", Reply: func(Task) (string, bool) { return "1234567ä9", true }})
	for _, tt := range []struct {
		field        string
		limit        int
		text, finish string
	}{
		{"max_tokens", 2, "1234567", "length"},
		{"max_completion_tokens", 1, "1234", "length"},
		{"max_tokens", 0, "", "length"},
		{"max_tokens", 3, "1234567ä9", "stop"},
		{"max_tokens", math.MaxInt, "1234567ä9", "stop"},
	} {
		body := chat("m", "hi")
		body[tt.field] = tt.limit
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(body))))
		c := decode[completion](t, w.Body.Bytes())
		if text, finish := *c.Choices[0].Message.Content, *c.Choices[0].FinishReason; text != tt.text || finish != tt.finish {
			t.Errorf("%s %d: %q, %s", tt.field, tt.limit, text, finish)
		}
	}
}

// readStream returns the data of a stream's events.
func readStream(tb testing.TB, body []byte) []string {
	tb.Helper()
	var data []string
	for event := range strings.SplitSeq(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		d, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			tb.Fatalf("no data in event %q", event)
		}
		data = append(data, d)
	}
	return data
}

func TestStream(t *testing.T) {
	r := start(t, Options{Models: []Model{{Name: "m", Price: Price{Output: 1}}}})
	whole := ask(t, r.Server, "m", "What is a stream?")
	for _, withUsage := range []bool{false, true} {
		body := chat("m", "What is a stream?")
		body["stream"] = true
		body["stream_options"] = object{"include_usage": withUsage}
		reply := r.post(t.Context(), body)
		if reply.err != nil || reply.header.Get("Content-Type") != "text/event-stream" || !reply.chunked {
			t.Error(reply)
		}
		data := readStream(t, reply.body)
		if last := data[len(data)-1]; last != "[DONE]" {
			t.Errorf("the last event is %q", last)
		}
		data = data[:len(data)-1]
		if withUsage {
			c := decode[completion](t, []byte(data[len(data)-1]))
			if c.Choices == nil || len(c.Choices) != 0 || c.Usage == nil || c.Usage.Cost == nil ||
				c.Usage.CompletionTokens != tokens(len(whole)) {
				t.Errorf("the usage chunk is %s", data[len(data)-1])
			}
			data = data[:len(data)-1]
		}
		var text strings.Builder
		for i, d := range data {
			c := decode[completion](t, []byte(d))
			if c.Object != "chat.completion.chunk" || c.SystemFingerprint != "simulated" || len(c.Choices) != 1 || c.Usage != nil {
				t.Fatalf("chunk %s", d)
			}
			finish := c.Choices[0].FinishReason
			if (i == len(data)-1) != (finish != nil) {
				t.Errorf("chunk %d of %d: %s", i, len(data), d)
			}
			if (i == 0) != (c.Choices[0].Delta.Role == "assistant") {
				t.Errorf("chunk %d: %s", i, d)
			}
			if piece := c.Choices[0].Delta.Content; piece != nil {
				text.WriteString(*piece)
			}
		}
		if text.String() != whole {
			t.Errorf("streamed %q, want %q", text.String(), whole)
		}
		if len(data) < 20 {
			t.Errorf("only %d chunks", len(data))
		}
	}
}

func TestLatency(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name        string
		model       Model
		stream      bool
		first, last time.Duration
	}{
		{"none", Model{}, false, 0, 0},
		{"fixed", Model{Latency: Latency{Median: 350 * ms}}, false, 350 * ms, 350 * ms},
		{"chunk times do not concern a plain reply", Model{FirstChunk: 5 * ms, ChunkDelay: 7 * ms}, false, 0, 0},
		// "Hi" streams as role, text, finish reason and [DONE]: three pauses.
		{"stream", Model{Latency: Latency{Median: 350 * ms}, ChunkDelay: 7 * ms}, true, 350 * ms, 371 * ms},
		{"stream with a first chunk of its own", Model{Latency: Latency{Median: 350 * ms}, FirstChunk: 5 * ms}, true, 5 * ms, 5 * ms},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				tt.model.Name, tt.model.Reply = "m", func(Task) (string, bool) { return "Hi", true }
				s := newServer(t, tt.model)
				body := chat("m", "?")
				body["stream"] = tt.stream
				began := time.Now()
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(body))))
				if took := time.Since(began); took != tt.last || s.Stats().Models["m"].Dwell != tt.last {
					t.Errorf("took %v, want %v, dwell %v", took, tt.last, s.Stats().Models["m"].Dwell)
				}
				if got := w.Header().Get("X-Simulated-Dwell-Us"); got != strconv.FormatInt(tt.first.Microseconds(), 10) {
					t.Errorf("%s us to the first byte, want %v", got, tt.first)
				}
			})
		})
	}
}

func TestLatencyDistribution(t *testing.T) {
	s := newServer(t, Model{Name: "m", Latency: Latency{Median: time.Second, Sigma: 0.5}})
	m := s.models["m"]
	logs := make([]float64, 1000)
	for i := range logs {
		q := &request{key: strconv.Itoa(i)}
		logs[i] = math.Log(m.latency(q).Seconds())
		if again := math.Log(m.latency(q).Seconds()); again != logs[i] {
			t.Fatal("one request has two latencies")
		}
	}
	mean, sd := meanSD(logs)
	if math.Abs(mean) > 0.06 || math.Abs(sd-0.5) > 0.05 {
		t.Errorf("the logarithms have mean %.3f and standard deviation %.3f, want 0 and 0.5", mean, sd)
	}
}

func meanSD(x []float64) (mean, sd float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		sd += (v - mean) * (v - mean) / float64(len(x)-1)
	}
	return mean, math.Sqrt(sd)
}

// everything returns requests of every kind for all models of Council.
func everything(t *testing.T, s *Server) []object {
	t.Helper()
	var requests []object
	for i := range 4 {
		question := "What is the use of number " + strconv.Itoa(i) + "?"
		texts := make([]string, 0, len(s.names()))
		for _, name := range s.names() {
			requests = append(requests, chat(name, question))
			texts = append(texts, ask(t, s, name, question))
		}
		for _, name := range s.names() {
			requests = append(requests,
				chat(name, brief(token, question, labelled(texts...), nil, ranking)),
				chat(name, brief(token, question, labelled(texts...), []string{"good"}, "Write.")))
		}
	}
	stream := chat("amber", "What is the use of streams?")
	stream["stream"] = true
	return append(requests, stream)
}

// fast returns Council without latency and with a fault of some requests.
func fast() []Model {
	models := Council()
	for i := range models {
		models[i].Latency, models[i].FirstChunk, models[i].ChunkDelay = Latency{}, 0, 0
		models[i].Faults = []Fault{{Kind: FaultStatus, Rate: 0.3}}
	}
	return models
}

func TestEqualRequestsHaveEqualReplies(t *testing.T) {
	clean := Council()
	for i := range clean {
		clean[i].Latency = Latency{}
	}
	requests := everything(t, newServer(t, clean...))
	replies := func(order []int, together int) []string {
		r := start(t, Options{Seed: 7, Models: fast()})
		got := make([]string, len(requests))
		var wg sync.WaitGroup
		work := make(chan int)
		for range together {
			wg.Go(func() {
				for i := range work {
					reply := r.post(t.Context(), requests[i])
					if reply.err != nil {
						t.Error(reply)
					}
					got[i] = strconv.Itoa(reply.status) + "\n" + string(reply.body)
				}
			})
		}
		for _, i := range order {
			work <- i
		}
		close(work)
		wg.Wait()
		return got
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(requests))
	one := replies(order, 1)
	slices.Reverse(order)
	if diff := cmp.Diff(one, replies(order, 8)); diff != "" {
		t.Error(diff)
	}
	failed := 0
	for _, reply := range one {
		if strings.HasPrefix(reply, "500") {
			failed++
		}
	}
	if failed == 0 || failed == len(one) {
		t.Errorf("at a rate of 0.3, %d of %d requests had the fault", failed, len(one))
	}
}

func TestSeedAndModelMatter(t *testing.T) {
	models := []Model{{Name: "a", Spread: 1}, {Name: "b", Spread: 1}}
	one := newServer(t, models...)
	two, err := New(Options{Seed: 1, Models: models})
	if err != nil {
		t.Fatal(err)
	}
	question := "What differs?"
	texts := map[string]bool{
		ask(t, one, "a", question): true, ask(t, one, "b", question): true,
		ask(t, two, "a", question): true, ask(t, one, "a", "What else?"): true,
	}
	if len(texts) != 4 {
		t.Errorf("%d different answers of 4", len(texts))
	}
}

func TestStats(t *testing.T) {
	r := start(t, Options{Models: []Model{
		{Name: "m", Faults: []Fault{{Kind: FaultStatus, Rate: 1, Times: 1}}},
		{Name: "idle"},
	}})
	for range 5 {
		if reply := r.post(t.Context(), chat("m", "hi")); reply.err != nil {
			t.Fatal(reply)
		}
	}
	if reply := r.post(t.Context(), chat("unknown", "hi")); reply.status != 404 {
		t.Fatal(reply)
	}
	r.client.CloseIdleConnections()
	r.Close() // the last request may be counted after its reply arrived
	got := r.Stats()
	if got.Models["m"].Dwell <= 0 {
		t.Errorf("dwell %v", got.Models["m"].Dwell)
	}
	want := Stats{Connections: 1, Models: map[string]ModelStats{
		"m":    {Requests: 5, Faults: 1, Dwell: got.Models["m"].Dwell},
		"idle": {},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestClientGoes has clients leave in each state in which the server waits.
func TestClientGoes(t *testing.T) {
	t.Parallel()
	long := Latency{Median: time.Hour}
	tests := map[string]struct {
		model  Model
		stream bool
	}{
		"latency":   {model: Model{Latency: long}},
		"chunk":     {model: Model{ChunkDelay: time.Hour}, stream: true},
		"hang":      {model: Model{Faults: []Fault{{Kind: FaultHang, Rate: 1}}}},
		"stall":     {model: Model{Faults: []Fault{{Kind: FaultStall, Rate: 1}}}},
		"late end":  {model: Model{Faults: []Fault{{Kind: FaultLateEnd, Rate: 1}}}},
		"slow body": {model: Model{Faults: []Fault{{Kind: FaultSlowBody, Rate: 1}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached, done := make(chan struct{}), make(chan struct{})
			tt.model.Name = "m"
			tt.model.Reply = func(Task) (string, bool) { close(reached); return "Hi", true }
			s := newServer(t, tt.model)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				s.ServeHTTP(w, r)
			}))
			defer server.Close()

			ctx, cancel := context.WithCancel(t.Context())
			body := chat("m", "hi")
			body["stream"] = tt.stream
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/chat/completions", bytes.NewReader(encode(body)))
			if err != nil {
				t.Fatal(err)
			}
			gone := make(chan error)
			go func() {
				resp, err := server.Client().Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				gone <- err
			}()
			<-reached
			cancel()
			if err := <-gone; err == nil {
				t.Error("the client was not cut off")
			}
			<-done
			if got := s.Stats().Models["m"]; got.Cancelled != 1 || got.InFlight != 0 {
				t.Errorf("stats %+v", got)
			}
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	reached := make(chan struct{})
	r := start(t, Options{Models: []Model{{
		Name: "m", Latency: Latency{Median: time.Hour},
		Reply: func(Task) (string, bool) { close(reached); return "", false },
	}}})
	replies := make(chan received)
	go func() { replies <- r.post(t.Context(), chat("m", "hi")) }()
	<-reached
	r.Close()
	if got := r.Stats().Models["m"]; got.InFlight != 0 {
		t.Errorf("after Close: %+v", got)
	}
	if reply := <-replies; reply.err == nil {
		t.Error(reply)
	}
	r.Close() // and once more, which must not hang
}

func TestConnStateWithOtherServers(t *testing.T) {
	s := newServer(t, Model{Name: "m"})
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = s.ConnState
	server.Start()
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := s.Stats().Connections; got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

// FuzzChat checks that every body has a reply in JSON.
func FuzzChat(f *testing.F) {
	f.Add(encode(chat("m", "hi")))
	f.Add(encode(chat("m", brief(token, "q", labelled("a"), nil, ranking))))
	f.Add([]byte(`{"model": "m", "messages": [{"role": 3}]}`))
	f.Add([]byte(`null`))
	s := newServer(f, Model{Name: "m", LengthBias: 1, Noise: 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		start := time.Now()
		defer func() {
			if most := 5*time.Second + time.Duration(len(body))*10*time.Microsecond; time.Since(start) > most {
				t.Errorf("%d bytes took %s", len(body), time.Since(start))
			}
		}()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(body)))
		if w.Code != 200 && w.Code != 400 && w.Code != 404 {
			t.Errorf("status %d", w.Code)
		}
		if w.Header().Get("Content-Type") == "application/json" {
			decode[object](t, w.Body.Bytes())
		}
	})
}

// BenchmarkReview measures reviews of four answers over the loopback interface,
// client included.
func BenchmarkReview(b *testing.B) {
	models := fast()
	for i := range models {
		models[i].Faults = nil
	}
	r := start(b, Options{Models: models})
	texts := make([]string, len(models))
	for i, name := range r.names() {
		texts[i] = ask(b, r.Server, name, "What is the use of benchmarks?")
	}
	body := encode(chat("amber", brief(token, "What is the use of benchmarks?", labelled(texts...), nil, ranking)))
	b.SetBytes(int64(len(body)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, r.URL()+"/chat/completions", bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			resp, err := r.client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("status %d, error %v", resp.StatusCode, err)
			}
		}
	})
}
