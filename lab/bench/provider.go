package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The tasks of a session. The beginning of a prompt tells which task it has.
const (
	answer = iota
	review
	synthesis
)

const (
	reviewerPrompt = "You are a reviewer on a council of language models."
	chairmanPrompt = "You are the chairman of a council of language models."
)

func taskOf(body []byte) int {
	switch {
	case bytes.Contains(body, []byte(reviewerPrompt)):
		return review
	case bytes.Contains(body, []byte(chairmanPrompt)):
		return synthesis
	default:
		return answer
	}
}

// prose returns a text of n bytes in paragraphs.
func prose(n int) string {
	const paragraph = "A plan needs an owner, a date and a way back. Most of the risk hides in the step that " +
		"nobody wants to take, and the \"obvious\" step is seldom it.\n\n"
	return strings.Repeat(paragraph, n/len(paragraph)+1)[:n]
}

// ballotOf returns a review of about n bytes with a ballot over the labels of the prompt.
func ballotOf(n, labels int) string {
	names, scores := make([]string, labels), make([]string, labels)
	for i := range labels {
		names[i] = fmt.Sprintf(`"Response %c"`, 'A'+i)
		scores[i] = fmt.Sprintf(`"Response %c": %d`, 'A'+i, 9-i%9)
	}
	ballot := "\n\n```json\n{\"ranking\": [" + strings.Join(names, ", ") + "], \"scores\": {" + strings.Join(scores, ", ") + "}}\n```\n"
	return prose(max(0, n-len(ballot))) + ballot
}

// reply is what the provider sends for a task.
type reply struct {
	body   []byte   // in one piece
	chunks [][]byte // as a stream, without its last line
}

// done is the last line of a stream.
const done = "data: [DONE]\n\n"

func newReply(text string, chunks int) reply {
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err) // impossible: it is a string
		}
		return string(b)
	}
	// The provider reports more input tokens than the longest prompt has. Fewer tokens would mean that it had cut the
	// prompt.
	const use = `"usage":{"prompt_tokens":1000000,"completion_tokens":400,"total_tokens":1000400}`
	r := reply{body: []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1770000000,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":` + quoted(text) + `,"refusal":null},"logprobs":null,"finish_reason":"stop"}],` + use + `}`)}
	const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1770000000,"model":"m","choices":[`
	for part := range slices.Chunk([]byte(text), max(1, (len(text)+chunks-1)/chunks)) {
		const tail = `},"logprobs":null,"finish_reason":null}]}` + "\n\n"
		r.chunks = append(r.chunks, []byte(head+`{"index":0,"delta":{"content":`+quoted(string(part))+tail))
	}
	end := head + `{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + head + "]," + use + "}\n\n"
	r.chunks = append(r.chunks, []byte(end))
	return r
}

// pacer lets calls continue exactly one dwell after they arrived. All calls wait equally long, so they continue in the
// order in which they came. One thread sleeps for all of them, because the timers of Go may fire a millisecond late.
type pacer struct {
	dwell time.Duration
	queue chan waiting

	mu    sync.Mutex // guards times
	times []time.Duration
}

type waiting struct {
	arrived time.Time
	done    chan struct{}
}

func newPacer(dwell time.Duration) *pacer {
	p := &pacer{dwell: dwell, queue: make(chan waiting, 1<<17)}
	go func() {
		runtime.LockOSThread()
		for w := range p.queue {
			sleepExactly(w.arrived.Add(p.dwell))
			close(w.done)
		}
	}()
	return p
}

// sleepExactly sleeps until t. The goroutine must be locked to its thread.
func sleepExactly(t time.Time) {
	if left := time.Until(t); left > 0 {
		span := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&span, nil) // a signal may cut it short, which shows in what is measured
	}
}

// wait waits until one dwell after arrived. It returns earlier if ctx ends.
func (p *pacer) wait(ctx context.Context, arrived time.Time) {
	done := make(chan struct{})
	p.queue <- waiting{arrived, done}
	select {
	case <-done:
	case <-ctx.Done():
		return
	}
	p.mu.Lock()
	p.times = append(p.times, time.Since(arrived))
	p.mu.Unlock()
}

// stats says what the provider has seen. The dwells are those since the last request for stats.
type stats struct {
	Connections int64   // since the start
	Calls       int64   // since the start
	Bytes       []int64 // the size of the last request of each task
	DwellP50    float64 // the median dwell, in ms
	DwellP99    float64
}

func provider(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	dwell := flags.Duration("dwell", 20*time.Millisecond, "time of each call")
	size := flags.Int("answer", 2000, "bytes of an answer")
	reviewed := flags.Int("review", 1200, "bytes of a review")
	members := flags.Int("members", 4, "members of the council")
	chunks := flags.Int("chunks", 40, "chunks of a streamed reply, spread over the dwell")
	burst := flags.Bool("burst", false, "send all chunks of a streamed reply together, after the dwell")
	late := flags.Duration("late", 0, "delay between the last byte and the end of a body, "+
		"and between the last chunk and [DONE]")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pace := newPacer(*dwell)
	replies := []reply{
		answer: newReply(prose(*size), *chunks), review: newReply(ballotOf(*reviewed, *members-1), *chunks),
		synthesis: newReply(prose(*size), *chunks),
	}
	var connections, calls atomic.Int64
	var lengths [3]atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		pace.mu.Lock()
		times := pace.times
		pace.times = nil
		pace.mu.Unlock()
		s := stats{
			Connections: connections.Load(), Calls: calls.Load(),
			Bytes:    []int64{lengths[answer].Load(), lengths[review].Load(), lengths[synthesis].Load()},
			DwellP50: quantile(times, 0.5), DwellP99: quantile(times, 0.99),
		}
		_ = json.NewEncoder(w).Encode(s) // The harness notices an error.
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		calls.Add(1)
		task := taskOf(body)
		lengths[task].Store(int64(len(body)))
		out := replies[task]
		if bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "text/event-stream")
			if *burst {
				pace.wait(r.Context(), arrived)
			}
			for i, chunk := range out.chunks {
				if !*burst {
					sleepUntil(r.Context(), arrived.Add(*dwell*time.Duration(i+1)/time.Duration(len(out.chunks))))
				}
				_, _ = w.Write(chunk)
				if !*burst {
					w.(http.Flusher).Flush()
				}
			}
			pause(w, r, *late)
			_, _ = io.WriteString(w, done)
			pause(w, r, *late)
			return
		}
		pace.wait(r.Context(), arrived)
		w.Header().Set("Content-Type", "application/json")
		if *late == 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(out.body)))
		}
		_, _ = w.Write(out.body)
		pause(w, r, *late)
	})
	server := &http.Server{Handler: mux, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}}
	return serve(ctx, server)
}

// serve serves on a free port, and prints its address.
func serve(ctx context.Context, server *http.Server) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr())
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pause sends what was written, and waits, so that what follows comes in another packet.
func pause(w http.ResponseWriter, r *http.Request, d time.Duration) {
	if d > 0 {
		w.(http.Flusher).Flush()
		sleepUntil(r.Context(), time.Now().Add(d))
	}
}

func sleepUntil(ctx context.Context, t time.Time) {
	select {
	case <-time.After(time.Until(t)):
	case <-ctx.Done():
	}
}

// quantile returns a quantile of times in ms, 0 without times. It sorts them.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1))]) / float64(time.Millisecond)
}
