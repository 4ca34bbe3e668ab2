package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// plan says how much load a run has. In a closed loop, each client begins a session when its last one ends. In an open
// loop, sessions begin at random, however many run.
type plan struct {
	Clients  int           // closed loop: how many sessions run at a time
	Sessions int           // closed loop: how many sessions run in all
	Rate     float64       // open loop: how many sessions begin each second on average. 0 means a closed loop.
	During   time.Duration // open loop
	Seed     int           // open loop: the seed of the times at which sessions begin
}

// perform carries out the plans that it reads from in, and prints the outcome of each. One process measures all rounds
// of a part, so that it is warm, has its connections, and is not started again.
func perform(ctx context.Context, in io.Reader, session func(context.Context) error) error {
	plans, outcomes := json.NewDecoder(in), json.NewEncoder(os.Stdout)
	for {
		var p plan
		if err := plans.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := outcomes.Encode(p.perform(ctx, session)); err != nil {
			return err
		}
	}
}

// outcome has the figures of a run of sessions.
type outcome struct {
	Sessions int     // how many sessions succeeded
	Refused  int     // how many sessions were refused with status 503
	Failed   int     // how many sessions failed in any other way
	Why      string  // the error of the first session that failed
	Seconds  float64 // from the start until the last session ended
	P50, P99 float64 // quantiles of the sessions that succeeded, in ms
	CPU      float64 // us of this process for each session that succeeded
	PeakKB   int64   // the most memory of this process
	IdleKB   int64   // memory before the first session
}

var errRefused = errors.New("refused")

// perform runs sessions as planned.
func (p *plan) perform(ctx context.Context, session func(context.Context) error) outcome {
	var o outcome
	var mu sync.Mutex // guards o and times
	var times []time.Duration
	one := func(due time.Time) {
		err := session(ctx)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			times = append(times, time.Since(due))
		case errors.Is(err, errRefused):
			o.Refused++
		default:
			if o.Failed++; o.Why == "" {
				o.Why = err.Error()
			}
		}
	}
	o.IdleKB = memory(os.Getpid(), "VmRSS")
	begin, cpu := time.Now(), ownCPU()
	var all sync.WaitGroup
	if p.Rate > 0 {
		runtime.LockOSThread()
		// Sessions begin independently of each other, as those of users do: a Poisson process. At even distances, the
		// stages of all sessions would coincide if a stage took a multiple of the distance. Otherwise they would never
		// coincide.
		arrivals := rand.New(rand.NewPCG(uint64(p.Seed), 0))
		next := func(t time.Time) time.Time {
			return t.Add(time.Duration(arrivals.ExpFloat64() / p.Rate * float64(time.Second)))
		}
		for due := next(begin); due.Sub(begin) <= p.During && ctx.Err() == nil; due = next(due) {
			sleepExactly(due)
			all.Go(func() { one(due) })
		}
		runtime.UnlockOSThread()
	} else {
		var begun atomic.Int64
		for range p.Clients {
			all.Go(func() {
				for begun.Add(1) <= int64(p.Sessions) && ctx.Err() == nil {
					one(time.Now())
				}
			})
		}
	}
	all.Wait()
	o.Seconds = time.Since(begin).Seconds()
	o.Sessions = len(times)
	o.P50, o.P99 = quantile(times, 0.5), quantile(times, 0.99)
	o.CPU = float64((ownCPU() - cpu).Microseconds()) / float64(max(len(times), 1))
	o.PeakKB = memory(os.Getpid(), "VmHWM")
	return o
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pool returns a client that keeps the connections of many sessions. It calls from four addresses, because the daemon
// shares its connections between callers. A single caller may have half of them.
func pool() *http.Client {
	const callers = 4
	t := http.DefaultTransport.(*http.Transport).Clone()
	var dialed atomic.Uint32
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		from := net.IPv4(127, 0, 0, byte(1+dialed.Add(1)%callers))
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(ctx, network, address)
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1<<16
	return &http.Client{Transport: t}
}

// reference plays R0 or R1 against a provider.
func reference(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("reference", flag.ContinueOnError)
	url := flags.String("url", "", "of the provider")
	raw := flags.Bool("raw", false, "run R0: use net/http and bodies made before, in place of go-openai")
	stream := flags.Bool("stream", false, "R1 reads every reply as a stream")
	members := flags.Int("members", 4, "members of the council")
	reviewed := flags.Int("review", 9500, "bytes of a review's request")
	read := flags.Int("synthesis", 14000, "bytes of a synthesis's request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	prompts := []string{
		answer: prose(400), review: reviewerPrompt + prose(*reviewed-len(reviewerPrompt)),
		synthesis: chairmanPrompt + prose(*read-len(chairmanPrompt)),
	}
	client := pool()
	var call func(ctx context.Context, task int) error
	if *raw {
		bodies := make([][]byte, len(prompts))
		for task, prompt := range prompts {
			content, err := json.Marshal(prompt)
			if err != nil {
				return err
			}
			bodies[task] = fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%s}]}`, content)
		}
		call = func(ctx context.Context, task int) error {
			return post(ctx, client, *url+"/v1/chat/completions", bodies[task])
		}
	} else {
		config := openai.DefaultConfig("key")
		config.BaseURL, config.HTTPClient = *url+"/v1", client
		api := openai.NewClientWithConfig(config)
		call = func(ctx context.Context, task int) error {
			request := openai.ChatCompletionRequest{
				Model: "m", Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: prompts[task]}},
			}
			if *stream {
				return receive(ctx, api, request)
			}
			reply, err := api.CreateChatCompletion(ctx, request)
			if err == nil && len(reply.Choices) != 1 {
				err = errors.New("no answer")
			}
			return err
		}
	}
	return perform(ctx, os.Stdin, func(ctx context.Context) error {
		for _, task := range []int{answer, review} {
			errs := make([]error, *members)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = call(ctx, task) })
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
		return call(ctx, synthesis)
	})
}

// receive reads a streamed reply to its end.
func receive(ctx context.Context, api *openai.Client, request openai.ChatCompletionRequest) error {
	s, err := api.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// load sends questions to a daemon.
func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	url := flags.String("url", "", "of the daemon")
	mode := flags.String("mode", "plain", "plain, stream or kept")
	if err := flags.Parse(args); err != nil {
		return err
	}
	extra := map[string]string{"plain": "", "stream": `,"stream":true`, "kept": `,"background":true`}[*mode]
	question, err := json.Marshal(prose(400))
	if err != nil {
		return err
	}
	body := `{"query":` + string(question) + extra + `}`
	client := pool()
	return perform(ctx, os.Stdin, func(ctx context.Context) error {
		text, err := ask(ctx, client, http.MethodPost, *url+"/v1/council", body)
		if err == nil && *mode == "kept" {
			_, id, _ := strings.Cut(text, `"session_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			text, err = ask(ctx, client, http.MethodGet, *url+"/v1/council/"+id+"/events", "")
		}
		if err != nil {
			return err
		}
		// Only the session itself can be "complete": a member that failed makes it "degraded".
		if !strings.Contains(text, `"status":"complete"`) || !strings.Contains(text, `"degradation":[]`) ||
			!strings.Contains(text, `"persisted":true`) {
			return fmt.Errorf("the session is not complete, or has no records: %.300s", text)
		}
		return nil
	})
}

func ask(ctx context.Context, client *http.Client, method, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusServiceUnavailable:
		return "", errRefused
	case resp.StatusCode >= 300:
		return "", fmt.Errorf("%s: %.300s", resp.Status, text)
	}
	return string(text), nil
}
