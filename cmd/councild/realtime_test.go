package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/client"
	"github.com/councild/councild/internal/sessions"
	"github.com/councild/councild/internal/sessions/journal"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/store"
	"github.com/councild/councild/internal/testkit"
	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/councild/councild/internal/testkit/pipenet"
)

const (
	realLength = 15 * time.Minute // the time that models take below fits into it
	proxyIdle  = 60 * time.Second // the silence after which a proxy closes a connection
	longAnswer = "long"           // the question whose final answer streams for ten minutes
)

var realTime = flag.Duration("realtime", 6*time.Second,
	"how long TestRealTime lasts at most: with 15m models take as long as real ones, with less proportionally less; "+
		"from 1m on it also judges speed and memory")

// scaled shortens a real time in proportion to the length of the trial.
func scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(*realTime) / float64(realLength))
}

// dwell returns how long a model takes for a task: 20 to 300 s, a chairman 12 to 120 s.
// Both ends of the range are common.
func dwell(task simllm.Task) time.Duration {
	least, most := 20*time.Second, 300*time.Second
	switch {
	case task.Question == longAnswer:
		most = time.Minute // what follows needs the time
	case task.Kind == simllm.Synthesis:
		least, most = 12*time.Second, 120*time.Second
	}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, task.Kind, task.Model, task.Question)
	share := float64(h.Sum64()>>11) / (1 << 53)
	share = min(1, max(0, 1.4*share-0.2))
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), share))
}

// realModels are four members and a chairman that writes a word a second.
func realModels(ctx context.Context) []simllm.Model {
	reply := func(task simllm.Task) (string, bool) {
		select {
		case <-time.After(scaled(dwell(task))):
		case <-ctx.Done():
		}
		if task.Kind == simllm.Synthesis && task.Question == longAnswer {
			return strings.Repeat("a-word-of-sixteen ", 600), true
		}
		return "", false
	}
	var models []simllm.Model
	for _, name := range []string{"amber", "birch", "cedar", "dune"} {
		models = append(models, simllm.Model{Name: name, Spread: 1, Noise: 0.5, ChunkDelay: scaled(50 * time.Millisecond), Reply: reply})
	}
	return append(models, simllm.Model{Name: "scribe", ChunkDelay: scaled(time.Second), Reply: reply})
}

// usedDirectory returns a directory with a session of an earlier daemon: the engine that
// keeps sessions then starts with the daemon, and what it takes counts from then on.
func usedDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(t.Context(), journal.Options{
		Dir: filepath.Join(dir, "sessions"), MaxBytes: 256 << 20, Prefix: "council", Node: "earlier", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Append(t.Context(), journal.ID{Session: "earlier"}, 0, journal.Message{
		Head: journal.Head{Status: council.StatusComplete, Created: time.Now()}, First: 1,
		Entries: []council.Entry{{Type: council.EventDone, Data: []byte("{}")}},
	})
	if err := errors.Join(err, j.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return dir
}

// behindProxy returns a client that reaches the daemon through such a proxy.
func behindProxy() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return pipenet.Proxied{Conn: conn, Idle: proxyIdle}, err
	}}}
}

// watched is what a client saw of one stream.
type watched struct {
	events  []council.EventType
	last    string // the id of the last event
	texts   daemontest.Texts
	done    []byte        // the data of the last event
	silence time.Duration // the longest
	resumed int
	wrong   []string
}

// follows reports whether an id is the one behind the last. The entry of a text whose
// pieces were all sent is not sent again.
func follows(last, id string) bool {
	before, _ := sessions.ParsePosition(cmp.Or(last, "0"))
	now, ok := sessions.ParsePosition(id)
	read := now.Number - before.Number // at most so many entries
	return ok && (read == 1 || read == 0 && slices.Compare(now.Characters, before.Characters) > 0 || 1 < read && read <= 1+len(before.Characters))
}

// read reads a stream to its end, or until stop says so of an event.
func (w *watched) read(body io.Reader, stop func(council.EventType) bool) error {
	for e, err := range client.ReadEvents(&listener{body, w, time.Now()}) {
		if err != nil {
			return err
		}
		w.events = append(w.events, e.Type)
		if !follows(w.last, e.ID) {
			w.wrong = append(w.wrong, fmt.Sprintf("event %s comes behind %q", e.ID, w.last))
		}
		w.last = e.ID
		event, err := e.Decode()
		if err != nil {
			return err
		}
		if err := w.texts.Take(event); err != nil {
			w.wrong = append(w.wrong, err.Error())
		}
		w.done = fmt.Appendln(nil, string(e.Data))
		if stop(e.Type) {
			return nil
		}
	}
	return nil
}

// listener is a stream whose silences are measured.
type listener struct {
	io.Reader
	*watched
	heard time.Time // when the last bytes came
}

// Read implements io.Reader.
func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.silence = max(l.silence, time.Since(l.heard))
	l.heard = time.Now()
	return n, err
}

// order notes what is wrong with the order of the events of a whole session.
func (w *watched) order(members int) {
	var got []council.EventType
	for _, e := range w.events {
		// How many deltas there are is the provider's choice.
		if e != council.EventAnswerDelta && (e != council.EventDelta || len(got) == 0 || got[len(got)-1] != e) {
			got = append(got, e)
		}
	}
	want := []council.EventType{council.EventStarted}
	want = append(want, slices.Repeat([]council.EventType{council.EventAnswer}, members)...)
	want = append(want, council.EventStage1)
	want = append(want, slices.Repeat([]council.EventType{council.EventBallot}, members)...)
	want = append(want, council.EventStage2, council.EventDelta, council.EventStage3, council.EventMap, council.EventDone)
	if !slices.Equal(got, want) {
		w.wrong = append(w.wrong, fmt.Sprintf("the events are %v", got))
	}
}

// outcome is the outcome of one session of the trial.
type outcome struct {
	how     string // it was asked for
	id      string
	err     error
	body    []byte   // the session as its client got it; nil where it gets something else
	answer  string   // as its client got it
	watched *watched // of a stream
}

// asker asks the trial's questions.
type asker struct {
	d     *daemon
	proxy *http.Client
}

// request sends a request through the proxy and returns the response, which is to be read.
func (a asker) request(ctx context.Context, method, path, body, last string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.d.Base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := a.proxy.Do(req)
	if err == nil && resp.StatusCode >= 300 {
		err = errors.New(resp.Status)
		_ = resp.Body.Close()
	}
	return resp, err
}

// plain waits for the session, directly.
func (a asker) plain(ctx context.Context, body string) (o outcome) {
	_, o.body, o.err = a.d.Send(ctx, "POST", "/v1/council", body)
	return o
}

// streamed has the session's events as the response.
func (a asker) streamed(ctx context.Context, body string) (o outcome) {
	o.watched = &watched{}
	resp, err := a.request(ctx, "POST", "/v1/council", strings.TrimSuffix(body, "}")+`,"stream":true}`, "")
	if err != nil {
		o.err = err
		return o
	}
	defer resp.Body.Close()
	o.err = o.watched.read(resp.Body, func(council.EventType) bool { return false })
	o.body, o.answer = o.watched.done, o.watched.texts.Final
	return o
}

// later has the session go on in the background and watches it. Where cut is set,
// each event before the final answer ends the connection, and the next one goes on from there.
func (a asker) later(ctx context.Context, body string, cut bool) (o outcome) {
	o.watched = &watched{}
	if o.id, o.err = a.begin(ctx, body); o.err != nil {
		return o
	}
	for over := false; !over && o.err == nil; {
		o.err = func() error {
			resp, err := a.request(ctx, "GET", "/v1/council/"+o.id+"/events", "", o.watched.last)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return o.watched.read(resp.Body, func(e council.EventType) bool {
				over = e == council.EventDone || e == council.EventFailed
				return over || cut && e != council.EventDelta && e != council.EventAnswerDelta
			})
		}()
		o.watched.resumed++
	}
	o.watched.resumed--
	o.body, o.answer = o.watched.done, o.watched.texts.Final
	return o
}

// polled has the session go on in the background and asks for it now and then.
func (a asker) polled(ctx context.Context, body string) (o outcome) {
	if o.id, o.err = a.begin(ctx, body); o.err != nil {
		return o
	}
	for {
		resp, err := a.request(ctx, "GET", "/v1/council/"+o.id, "", "")
		if err != nil {
			o.err = err
			return o
		}
		o.body, o.err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if o.err != nil || !bytes.Contains(o.body[:min(len(o.body), 200)], []byte(`"status":"running"`)) {
			return o
		}
		<-time.After(scaled(30 * time.Second))
	}
}

// begin starts a session in the background.
func (a asker) begin(ctx context.Context, body string) (id string, err error) {
	resp, err := a.request(ctx, "POST", "/v1/council", strings.TrimSuffix(body, "}")+`,"background":true}`, "")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return strings.TrimPrefix(resp.Header.Get("Location"), "/v1/council/"), nil
}

// chat asks through OpenAI's interface.
func (a asker) chat(ctx context.Context, query string, stream bool) (o outcome) {
	body := fmt.Sprintf(`{"model":"council","messages":[{"role":"user","content":%q}],"stream":%t}`, query, stream)
	type chunk struct {
		ID      string
		Choices []struct{ Message, Delta struct{ Content string } }
	}
	if !stream {
		_, reply, err := a.d.Send(ctx, "POST", "/v1/chat/completions", body)
		var c chunk
		if o.err = err; err == nil {
			o.err = json.Unmarshal(reply, &c)
		}
		if len(c.Choices) == 1 {
			o.id, o.answer = strings.TrimPrefix(c.ID, "chatcmpl-"), c.Choices[0].Message.Content
		}
		return o
	}
	resp, err := a.request(ctx, "POST", "/v1/chat/completions", body, "")
	if err != nil {
		o.err = err
		return o
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	o.err = err
	for line := range strings.Lines(string(data)) {
		var c chunk
		if text, ok := strings.CutPrefix(line, "data: {"); ok {
			o.err = errors.Join(o.err, json.Unmarshal([]byte("{"+text), &c))
		}
		if len(c.Choices) == 1 {
			o.id, o.answer = strings.TrimPrefix(c.ID, "chatcmpl-"), o.answer+c.Choices[0].Delta.Content
		}
	}
	if !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
		o.err = errors.Join(o.err, errors.New("the stream ends without [DONE]"))
	}
	return o
}

// ask asks the 20 questions of the trial at once, in every way that there is, and waits
// for the outcomes.
func (a asker) ask(ctx context.Context) []outcome {
	outcomes := make([]outcome, 20)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() {
			query := fmt.Sprintf("%s question %d", marker, i)
			body := fmt.Sprintf(`{"query":%q}`, query)
			var how string
			switch {
			case i < 5:
				how, outcomes[i] = "POST", a.plain(ctx, body)
			case i < 9:
				how, outcomes[i] = "POST, streamed", a.streamed(ctx, body)
			case i == 9:
				how, outcomes[i] = "POST, streamed for ten minutes",
					a.streamed(ctx, fmt.Sprintf(`{"query":%q,"chairman":"scribe"}`, longAnswer))
			case i < 12:
				how, outcomes[i] = "in the background, watched", a.later(ctx, body, false)
			case i < 14:
				how, outcomes[i] = "in the background, watched over a line that is cut", a.later(ctx, body, true)
			case i < 16:
				how, outcomes[i] = "in the background, polled", a.polled(ctx, body)
			case i < 18:
				how, outcomes[i] = "chat completion", a.chat(ctx, query, false)
			default:
				how, outcomes[i] = "chat completion, streamed", a.chat(ctx, query, true)
			}
			outcomes[i].how = how
		})
	}
	wg.Wait()
	return outcomes
}

// promises is the table that the trial prints.
type promises struct {
	t    *testing.T
	text strings.Builder
	rows *tabwriter.Writer
}

func newPromises(t *testing.T) *promises {
	t.Helper()
	p := &promises{t: t}
	p.rows = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	return p
}

// keep adds a row. Where the promise is not kept, the test fails and says why.
func (p *promises) keep(promise string, wrong []string, measured string, args ...any) {
	p.t.Helper()
	mark := "ok"
	if len(wrong) > 0 {
		mark = "FAILED"
		p.t.Errorf("%s: %d times not, such as %s", promise, len(wrong), strings.Join(wrong[:min(len(wrong), 3)], "; "))
	}
	_, _ = fmt.Fprintf(p.rows, "%s\t%s\t%s\n", mark, promise, fmt.Sprintf(measured, args...))
}

// unless returns nothing where a promise is kept, and otherwise the reason why it is not.
func unless(kept bool, format string, args ...any) []string {
	if kept {
		return nil
	}
	return []string{fmt.Sprintf(format, args...)}
}

// TestRealTime holds 20 sessions at once at the speed of real models, most of them
// behind a proxy that closes silent connections, and prints what is promised for
// them beside what was measured. make realtime takes 15 minutes for it.
func TestRealTime(t *testing.T) {
	testkit.Slow(t)
	const members = 4
	d := startDaemon(t, realModels(t.Context()), "LLM_COUNCIL_DATA_DIR="+usedDirectory(t),
		"LLM_COUNCIL_MODELS=amber,birch,cedar,dune", "LLM_COUNCIL_ALLOWED_MODELS=scribe", "LLM_COUNCIL_LOG_LEVEL=info",
		"LLM_COUNCIL_TIMEOUT=15m", "LLM_COUNCIL_ATTEMPT_TIMEOUT=12m")
	d.before.descriptors++ // the file that the engine writes to, once it has written
	a := asker{d, behindProxy()}
	begun := time.Now()
	done := make(chan []outcome, 1)
	go func() { done <- a.ask(t.Context()) }()
	var most usage
	var outcomes []outcome
	for outcomes == nil {
		select {
		case outcomes = <-done:
		case <-time.After(*realTime / 100):
			most = most.most(d.usage(t))
		}
	}
	took := time.Since(begun)
	p := newPromises(t)
	short := *realTime < time.Minute // a loaded machine is slower than models that take no time

	var lost, incomplete, unkept, warned, differ, disorder, cut, restored []string
	var silence time.Duration
	var overhead float64
	streams, resumed, events := 0, 0, 0
	sessions := map[string]bool{}
	for i, o := range outcomes {
		name := fmt.Sprintf("session %d (%s)", i, o.how)
		var s council.Session
		if o.body != nil {
			if err := json.Unmarshal(o.body, &s); err != nil && o.err == nil {
				o.err = err
			}
			o.id = s.ID
		}
		if o.err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", name, o.err))
		}
		_, text := d.call(t, "GET", "/v1/council/"+o.id, "")
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			lost = append(lost, fmt.Sprintf("%s: %v", name, err))
		}
		sessions[s.ID] = true
		overhead = max(overhead, s.Metadata.Timing.OverheadMS)
		complete := s.Status == council.StatusComplete && len(s.Degradation) == 0
		incomplete = append(incomplete, unless(complete, "%s: %s, %v", name, s.Status, s.Degradation)...)
		unkept = append(unkept, unless(s.Persisted, "%s", name)...)
		warned = append(warned, unless(len(s.Metadata.Warnings) == 0, "%s: %v", name, s.Metadata.Warnings)...)
		same := (o.body == nil || string(o.body) == text) && (o.answer == "" || o.answer == s.Answer) && (o.body != nil || o.answer != "")
		differ = append(differ, unless(same, "%s", name)...)
		if w := o.watched; w != nil {
			w.order(members)
			for _, wrong := range w.wrong {
				disorder = append(disorder, name+": "+wrong)
			}
			silence = max(silence, w.silence)
			streams++
			resumed += w.resumed
			events += len(w.events)
			cut = append(cut, unless(o.err == nil, "%s: %v", name, o.err)...)
		} else if strings.HasSuffix(o.how, "streamed") {
			streams++
			cut = append(cut, unless(o.err == nil, "%s: %v", name, o.err)...)
		}
	}
	a.proxy.CloseIdleConnections()
	after, settled := d.waitUntilReleased(t)
	d.terminate(t)
	stopping := time.Now()
	d.ended(t, 0)
	stopped := time.Since(stopping)

	type pair struct{ session, reviewer, candidate string }
	records := map[pair]int{}
	for r, err := range store.ReadFile(t.Context(), d.records) {
		restored = append(restored, unless(err == nil, "%v", err)...)
		records[pair{r.SessionID, r.ReviewerID, r.ModelID}]++
	}
	for pair, n := range records {
		restored = append(restored, unless(n == 1 && sessions[pair.session], "%v is there %d times", pair, n)...)
	}
	want := len(outcomes) * members * (members - 1)
	restored = append(restored, unless(len(records) == want, "%d records of %d", len(records), want)...)
	var said []string
	for line := range strings.Lines(d.log.String()) {
		said = append(said, unless(strings.Contains(line, `"level":"INFO"`), "%s", strings.TrimSpace(line))...)
	}

	p.keep("every request has its answer", lost, "%d of %d, in %s", len(outcomes)-len(lost), len(outcomes), took.Round(time.Second))
	p.keep("every session is complete", incomplete, "%d of %d", len(outcomes)-len(incomplete), len(outcomes))
	p.keep("persisted: true", unkept, "%d of %d", len(outcomes)-len(unkept), len(outcomes))
	p.keep("no warning in a session", warned, "%d", len(warned))
	p.keep("no warning or error in the log", said, "%d", len(said))
	p.keep("every record is in the store, once", restored, "%d of %d", len(records), want)
	p.keep("what a client gets is what the daemon has", differ, "%d of %d", len(outcomes)-len(differ), len(outcomes))
	p.keep("events are in order, none is missing or repeated", disorder,
		"%d events, %d times a line was cut and taken up again", events, resumed)
	p.keep("no stream is cut by a proxy of 60 s idle time", cut, "%d streams, %d cut", streams, len(cut))
	p.keep("a comment comes after 15 s of silence", unless(short || silence < 30*time.Second, "silent for %s", silence),
		"silent for at most %.1f s", silence.Seconds())
	p.keep("councild adds less than a second to a session", unless(short || overhead < 5000, "%.0f ms", overhead), "at most %.0f ms",
		overhead)
	p.keep("goroutines are back within 2 s", unless(after.goroutines <= d.before.goroutines, "%+v", after),
		"%.0f before, at most %.0f, %.0f after %.1f s", d.before.goroutines, most.goroutines, after.goroutines, settled.Seconds())
	p.keep("descriptors are back within 2 s", unless(after.descriptors <= d.before.descriptors, "%+v", after),
		"%.0f before, at most %.0f, %.0f after", d.before.descriptors, most.descriptors, after.descriptors)
	grown := most.memory - d.before.memory
	p.keep("memory grows by less than 64 MiB", unless(short || grown < 64<<20, "%.0f bytes", grown),
		"%.0f MiB before, at most %.0f, %.0f after", d.before.memory/(1<<20), most.memory/(1<<20), after.memory/(1<<20))
	p.keep("the daemon stops within 2 s when nothing runs", unless(short || stopped < 10*time.Second, "%s", stopped),
		"%.1f s", stopped.Seconds())
	_ = p.rows.Flush()
	t.Logf("20 sessions, models take 1/%.3g of the time of real ones\n%s", float64(realLength)/float64(*realTime), &p.text)
}
