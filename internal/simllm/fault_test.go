package simllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/councild/councild/internal/testkit/race"
)

const someText = "A text of words that is long enough for a few chunks of a stream."

// replying returns a running model that replies with someText and always has the
// fault.
func replying(t *testing.T, fault Fault) remote {
	t.Helper()
	fault.Rate = 1
	return start(t, Options{Models: []Model{{
		Name: "m", Faults: []Fault{fault},
		Reply: func(Task) (string, bool) { return someText, true },
	}}})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	half := someText[:len(someText)/2]
	tests := []struct {
		fault Fault
		is    func(received) bool
	}{
		{Fault{Kind: FaultStatus, Status: 429, RetryAfter: "2"}, func(r received) bool {
			return r.status == 429 && r.failure().Code == "rate_limit_exceeded" && r.header.Get("Retry-After") == "2"
		}},
		{Fault{Kind: FaultStatus}, func(r received) bool {
			return r.status == 500 && r.failure().Type == "server_error" && r.header.Values("Retry-After") == nil
		}},
		{Fault{Kind: FaultHugeError, Status: 503}, func(r received) bool {
			return r.status == 503 && len(r.failure().Message) == 8<<20
		}},
		{Fault{Kind: FaultHTML}, func(r received) bool {
			return r.status == 200 && r.header.Get("Content-Type") == "text/html" && bytes.HasPrefix(r.body, []byte("<!doctype html>"))
		}},
		{Fault{Kind: FaultHalfJSON}, func(r received) bool {
			return r.err == nil && bytes.HasPrefix(r.body, []byte(`{"id":`)) && !json.Valid(r.body)
		}},
		{Fault{Kind: FaultErrorIn200}, func(r received) bool { return r.whole() && r.failure().Type == "" }},
		{Fault{Kind: FaultErrorIn200, Status: 429}, func(r received) bool {
			return r.whole() && r.failure().Code == "429"
		}},
		{Fault{Kind: FaultEmptyObject}, func(r received) bool { return r.whole() && string(r.body) == "{}" }},
		{Fault{Kind: FaultNull}, func(r received) bool { return r.whole() && string(r.body) == "null" }},
		{Fault{Kind: FaultNoChoices}, func(r received) bool { return r.whole() && bytes.Contains(r.body, []byte(`"choices":[]`)) }},
		{Fault{Kind: FaultHugeBody, Size: 1 << 20}, func(r received) bool { return r.whole() && len(r.text()) == 1<<20 && r.chunked }},
		{Fault{Kind: FaultNullContent}, func(r received) bool { return r.whole() && bytes.Contains(r.body, []byte(`"content":null`)) }},
		{Fault{Kind: FaultEmptyContent}, func(r received) bool { return r.whole() && r.text() == "" }},
		{Fault{Kind: FaultReasoningOnly}, func(r received) bool {
			return r.whole() && r.text() == "" && r.choice().Message.ReasoningContent != ""
		}},
		{Fault{Kind: FaultRefusalField}, func(r received) bool {
			refusal := r.choice().Message.Refusal
			return r.whole() && r.text() == "(none)" && refusal != nil && *refusal != ""
		}},
		{Fault{Kind: FaultRefusal}, func(r received) bool { return r.whole() && strings.Contains(r.text(), "can't help") }},
		{Fault{Kind: FaultLength}, func(r received) bool { return r.whole() && r.text() == half && *r.choice().FinishReason == "length" }},
		{Fault{Kind: FaultContentFilter}, func(r received) bool {
			return r.whole() && r.text() == half && *r.choice().FinishReason == "content_filter"
		}},
		{Fault{Kind: FaultReset}, func(r received) bool { return r.status == 0 && errors.Is(r.err, syscall.ECONNRESET) }},
		{Fault{Kind: FaultResetBody}, func(r received) bool { return r.status == 200 && errors.Is(r.err, syscall.ECONNRESET) }},
		{Fault{Kind: FaultEOFBody}, func(r received) bool {
			return r.status == 200 && errors.Is(r.err, io.ErrUnexpectedEOF) && int64(len(r.body)) == r.length/2
		}},
		{Fault{Kind: FaultSlowBody, Size: 1 << 20}, func(r received) bool { return r.whole() && r.text() == someText }},
		{Fault{Kind: FaultStall, Delay: time.Millisecond}, func(r received) bool { return r.whole() && r.text() == someText }},
		{Fault{Kind: FaultLateEnd, Delay: time.Millisecond}, func(r received) bool {
			return r.whole() && r.text() == someText && r.chunked
		}},
	}
	covered := map[FaultKind]bool{FaultHang: true} // see TestClientGoes
	for _, tt := range tests {
		covered[tt.fault.Kind] = true
		t.Run(fmt.Sprint(tt.fault.Kind, tt.fault.Status), func(t *testing.T) {
			t.Parallel()
			r := replying(t, tt.fault)
			if got := r.post(t.Context(), chat("m", "hi")); !tt.is(got) {
				t.Error(got)
			}
			r.Close()
			if got := r.Stats().Models["m"]; got.Faults != 1 || got.Cancelled != 0 || got.InFlight != 0 {
				t.Errorf("stats %+v", got)
			}
		})
	}
	for _, kind := range ResponseKinds() {
		if !covered[kind] {
			t.Errorf("no case for %s", kind)
		}
	}
}

func TestStreamFaults(t *testing.T) {
	t.Parallel()
	body := chat("m", "hi")
	body["stream"] = true
	sound := replying(t, Fault{Kind: StreamNoEnd, Tasks: []TaskKind{Review}}).post(t.Context(), body)
	if sound.err != nil {
		t.Fatal(sound)
	}
	clean := string(sound.body)
	chunks := strings.SplitAfter(clean, "\n\n") // the role, the text, the finish reason, [DONE] and ""

	tests := map[FaultKind]func(received) bool{
		StreamComments: func(r received) bool {
			return r.err == nil && string(r.body) == strings.Repeat(": simulated keep-alive\n\n", 10_000)+clean
		},
		StreamEmptyData: func(r received) bool {
			return r.err == nil && string(r.body) == strings.Repeat("data:\n\n", 100)+clean
		},
		StreamError: func(r received) bool {
			rest, ok := strings.CutPrefix(string(r.body), chunks[0]+chunks[1])
			failed := strings.Contains(rest, `data: {"error":{"message":"simulated failure`)
			return r.err == nil && ok && failed && !strings.Contains(rest, "[DONE]")
		},
		StreamNoEnd: func(r received) bool {
			return r.err == nil && string(r.body) == strings.Join(chunks[:len(chunks)-3], "")
		},
		StreamGarbage: func(r received) bool {
			return r.err == nil && strings.Replace(string(r.body), "data: <html>Simulated garbage\n\n", "", 1) == clean && string(r.body) != clean
		},
		StreamHugeLine: func(r received) bool {
			line, ok := strings.CutSuffix(string(r.body), clean)
			return r.err == nil && ok && strings.Contains(line, `"delta":{"content":"`+strings.Repeat("x", 10<<20)+`"}`)
		},
		StreamTiny: func(r received) bool {
			return r.err == nil && string(r.body) == strings.Repeat(`data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n", 1_000_000)+clean
		},
		StreamRare: func(r received) bool {
			body := string(r.body)
			mine, other := strings.Count(body, `"index": 0,`+"\r"), strings.Count(body, `"index": 1,`+"\r")
			return r.err == nil && r.header.Get("Content-Type") == "TEXT/EVENT-STREAM; Charset=UTF-8" &&
				mine == len(chunks)-2 && other == mine && strings.Count(body, "\n") == 2
		},
		// The faults of messages and connections concern streams as well.
		FaultLength: func(r received) bool {
			return r.err == nil && strings.Contains(string(r.body), `"finish_reason":"length"`)
		},
		FaultRefusalField: func(r received) bool {
			return r.err == nil && strings.Contains(string(r.body), `"delta":{"refusal":`)
		},
		FaultReasoningOnly: func(r received) bool {
			return r.err == nil && strings.Contains(string(r.body), `"delta":{"reasoning_content":`)
		},
		FaultEOFBody: func(r received) bool {
			return r.status == 200 && errors.Is(r.err, io.ErrUnexpectedEOF) && string(r.body) == clean[:len(clean)/2]
		},
		FaultStatus: func(r received) bool {
			return r.status == 500 && r.failure().Type == "server_error" && r.header.Get("Content-Type") == "application/json"
		},
	}
	for kind, is := range tests {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			if got := replying(t, Fault{Kind: kind}).post(t.Context(), body); !is(got) {
				t.Error(got)
			}
		})
	}
	for _, kind := range streamKinds() {
		if tests[kind] == nil {
			t.Errorf("no case for %s", kind)
		}
	}
}

func TestBallotFaults(t *testing.T) {
	answers := labelled("first", "second", "third")
	prompt := brief(token, "q", answers, nil, ranking)
	clean := ask(t, newServer(t, Model{Name: "m"}), "m", prompt)
	ranked := ballotOf(t, clean).Ranking
	critique, _, _ := strings.Cut(clean, "```")
	best, middle, worst := ranked[0].(string), ranked[1].(string), ranked[2].(string)
	ballot := func(places string, scores string) string {
		return critique + "```json\n{\"ranking\":[" + places + "],\"scores\":{" + scores + "}}\n```\n"
	}
	quoted := func(labels ...string) string { return `"` + strings.Join(labels, `","`) + `"` }
	_, scores, _ := strings.Cut(clean, `"scores":{`)
	scores, _, _ = strings.Cut(scores, "}")
	rescored := func(as map[string]int) string { return strings.Trim(string(encode(as)), "{}") }
	kept := ballotOf(t, clean).Scores
	delete(kept, worst)
	turned := ballotOf(t, clean).Scores
	turned[best], turned[worst] = 1, 10

	if want := ballot(quoted(best, middle, worst), scores); clean != want {
		t.Fatalf("without a fault the review is %q, want %q", clean, want)
	}
	tests := map[FaultKind]string{
		BallotAbstain:       critique + "```json\n{\"abstain\": \"the simulated reviewer declines to rank these answers\"}\n```\n",
		BallotProse:         critique + "All in all " + best + " reads best.\n",
		BallotTruncated:     critique + "```json\n{\"ranking\": [\"" + best + "\", ",
		BallotUnknownLabels: ballot(`"Model 1","Model 2"`, `"Model 1":8,"Model 2":5`),
		BallotTemplate:      ranking,
		BallotDuplicates:    ballot(quoted(best, middle, worst, best, middle, worst), scores),
		BallotSingleQuotes:  critique + strings.ReplaceAll(strings.TrimPrefix(clean, critique), `"`, `'`),
		BallotEmpty:         ballot("", ""),
		BallotPartial:       ballot(quoted(best, middle), rescored(kept)),
		BallotMismatch:      ballot(quoted(best, middle, worst), rescored(turned)),
		BallotBadScores:     ballot(quoted(best, middle, worst), rescored(map[string]int{best: 42, middle: 42, worst: 42})),
	}
	for kind, want := range tests {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t, Model{Name: "m", Faults: []Fault{{Kind: kind, Rate: 1}}})
			if diff := cmp.Diff(want, ask(t, s, "m", prompt)); diff != "" {
				t.Error(diff)
			}
			if answer := ask(t, s, "m", "hi"); !strings.HasPrefix(answer, "Simulated answer.") {
				t.Errorf("the fault concerns a question, too: %q", answer)
			}
			if answer := ask(t, s, "m", brief(token, "q", answers, nil, "Write.")); !strings.HasPrefix(answer, "Simulated synthesis.") {
				t.Errorf("the fault concerns a synthesis, too: %q", answer)
			}
			if review := ask(t, s, "m", brief(token, "q", labelled("only"), nil, ranking)); strings.Contains(review, "null") {
				t.Errorf("of one answer: %q", review)
			}
		})
	}
	for _, kind := range BallotKinds() {
		if tests[kind] == "" {
			t.Errorf("no case for %s", kind)
		}
	}
}

// failed returns which of n questions a model fails on.
func failed(t *testing.T, s *Server, n int) []bool {
	t.Helper()
	all := make([]bool, n)
	for i := range all {
		w := httptest.NewRecorder()
		body := encode(chat("m", "Question "+strconv.Itoa(i)))
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(body)))
		all[i] = w.Code != 200
	}
	return all
}

func TestRate(t *testing.T) {
	s := newServer(t, Model{Name: "m", Faults: []Fault{{Kind: FaultStatus, Rate: 0.3}}})
	one, two := failed(t, s, 500), failed(t, s, 500)
	if !slices.Equal(one, two) {
		t.Error("a repeated request did not have the fault again")
	}
	n := 0
	for _, bad := range one {
		if bad {
			n++
		}
	}
	if n < 120 || n > 180 {
		t.Errorf("at a rate of 0.3, %d of 500 requests had the fault", n)
	}
}

func TestTimesAndTasks(t *testing.T) {
	s := newServer(t, Model{Name: "m", Faults: []Fault{
		{Kind: FaultStatus, Rate: 1, Tasks: []TaskKind{Question}, Times: 2},
		{Kind: BallotAbstain, Rate: 1, Times: 1},
	}})
	review := brief(token, "q", labelled("one", "two"), nil, ranking)
	if got := ask(t, s, "m", review); !strings.Contains(got, "abstain") {
		t.Errorf("the first review is %q", got)
	}
	if got := ask(t, s, "m", review); strings.Contains(got, "abstain") {
		t.Errorf("the second review is %q", got)
	}
	if got, want := failed(t, s, 4), []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("failed %v, want %v", got, want)
	}
}

func TestPace(t *testing.T) {
	tests := []struct {
		fault Fault
		want  func(size int) time.Duration
	}{
		{Fault{Kind: FaultSlowBody}, func(size int) time.Duration { return time.Duration(size-1) * time.Second }},
		{Fault{Kind: FaultSlowBody, Size: 40}, func(size int) time.Duration { return time.Duration((size-1)/2) * 50 * time.Millisecond }},
		{Fault{Kind: FaultStall, Delay: time.Minute}, func(int) time.Duration { return time.Minute }},
		{Fault{Kind: FaultLateEnd, Delay: time.Minute}, func(int) time.Duration { return time.Minute }},
	}
	for _, tt := range tests {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				tt.fault.Rate = 1
				s := newServer(t, Model{Name: "m", Faults: []Fault{tt.fault}, Reply: func(Task) (string, bool) { return "Hi", true }})
				began := time.Now()
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(chat("m", "?")))))
				if got, want := time.Since(began), tt.want(w.Body.Len()); got != want {
					t.Errorf("%d bytes took %v, want %v", w.Body.Len(), got, want)
				}
				if textOf(t, w.Body.Bytes()) != "Hi" {
					t.Errorf("body %s", w.Body)
				}
			})
		})
	}
}

func TestHugeBodyEndsWithItsClient(t *testing.T) {
	s := newServer(t, Model{Name: "m", Faults: []Fault{{Kind: FaultHugeBody, Rate: 1}}})
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		s.ServeHTTP(w, r)
	}))
	defer server.Close()
	resp, err := server.Client().Post(server.URL+"/chat/completions", "application/json", bytes.NewReader(encode(chat("m", "hi"))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	<-done
	if got := s.Stats().Models["m"]; got.Cancelled != 1 || got.InFlight != 0 {
		t.Errorf("stats %+v", got)
	}
}

// TestResetWithoutAConnection covers responses that cannot be hijacked, such as
// those of HTTP/2.
func TestResetWithoutAConnection(t *testing.T) {
	s := newServer(t, Model{Name: "m", Faults: []Fault{{Kind: FaultReset, Rate: 1}}})
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("panicked with %v", err)
		}
	}()
	s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/chat/completions", bytes.NewReader(encode(chat("m", "hi")))))
}
