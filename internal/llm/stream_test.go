package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/testkit/race"
	"github.com/google/go-cmp/cmp"
)

// streamed performs a streamed call and returns the deltas too.
func streamed(ctx context.Context, c *Client) (completion council.Completion, deltas []string, f *council.Failure) {
	call := aCall()
	call.OnDelta = func(text string) { deltas = append(deltas, text) }
	completion, err := c.Complete(ctx, call)
	return completion, deltas, council.AsFailure(err)
}

func TestStream(t *testing.T) {
	const (
		a     = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
		stop  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
		usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"cost":0.5}}` + "\n\n"
		done  = "data: [DONE]\n\n"
	)
	delta := func(delta string) string { return `data: {"choices":[{"delta":` + delta + `}]}` + "\n\n" }
	tests := []struct {
		name    string
		body    string
		want    []string // deltas
		finish  string
		failure council.FailureCode
		message string
	}{
		{name: "a whole one", body: a + stop + usage + done, want: []string{"a"}, finish: "stop"},
		{
			name: "text in the last chunk", body: a + strings.Replace(stop, "{}", `{"content":"b"}`, 1) + done, want: []string{"a", "b"},
			finish: "stop",
		},
		{name: "no [DONE]", body: a + stop, want: []string{"a"}, finish: "stop"},
		{name: "no finish reason", body: a + done, want: []string{"a"}},
		{name: "what follows [DONE]", body: a + done + a, want: []string{"a"}},
		{name: "[DONE] without a newline", body: a + "data: [DONE]", want: []string{"a"}},
		{name: "the last chunk without a newline", body: a + strings.TrimSpace(stop), want: []string{"a"}, finish: "stop"},
		{
			name: "comments and other fields",
			body: ": hi\n\n:\n\nevent: x\nid: 1\nretry: 5\nunknown\n" + a + strings.Repeat(": still here\n\n", 10_000) + a + stop + done,
			want: []string{"a", "a"}, finish: "stop",
		},
		{name: "empty data", body: strings.Repeat("data:\n\n", 1000) + a + strings.Repeat("data: \n\n", 1000) + done, want: []string{"a"}},
		{name: "no blank between field and value", body: strings.ReplaceAll(a+done, "data: ", "data:"), want: []string{"a"}},
		{name: "no blank lines", body: strings.ReplaceAll(a+a+done, "\n\n", "\n"), want: []string{"a", "a"}},
		{name: "CRLF", body: strings.ReplaceAll(a+stop+done, "\n", "\r\n"), want: []string{"a"}, finish: "stop"},
		{name: "CR", body: strings.ReplaceAll(a+": hi\n"+stop+done, "\n", "\r"), want: []string{"a"}, finish: "stop"},
		{
			name: "all line ends", body: strings.Replace(a, "\n\n", "\r\r\n", 1) + strings.Replace(a, "\n\n", "\r\n\r", 1) + a + done,
			want: []string{"a", "a", "a"},
		},
		{name: "a byte order mark", body: "\ufeff" + a + stop + done, want: []string{"a"}, finish: "stop"},
		{
			name: "data on many lines", body: "event: x\n" + lines(a) + a + lines(usage) + lines(stop) + done, want: []string{"a", "a"},
			finish: "stop",
		},
		{name: "data on many lines with CR", body: strings.ReplaceAll(lines(a+stop)+done, "\n", "\r"), want: []string{"a"}, finish: "stop"},
		{
			name: "data on two lines of which the first seems whole",
			body: `data: {"choices":[{"index":0,"delta":{"content":"a"}}` + "\ndata: ]}\n\n" + done, want: []string{"a"},
		},
		{
			name: "other choices",
			body: strings.NewReplacer(`"index":0`, `"index":1`, `"a"`, `"b"`).Replace(a) + a +
				strings.NewReplacer(`"index":0`, `"index":1`).Replace(stop) +
				`data: {"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}` + "\n\n" + done,
			want: []string{"a", "a"},
		},
		{name: "escapes", body: delta(`{"content":"\"\\\n\u00e9\ud83d\ude00"}`) + done, want: []string{"\"\\\né😀"}},
		{
			name: "parts",
			body: delta(`{"content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"a"},{"type":"text","text":"b"}]}`) + done,
			want: []string{"ab"},
		},
		{
			name: "reasoning",
			body: delta(`{"reasoning_content":"x","content":null}`) + delta(`{"reasoning":"x","content":""}`) + a + done,
			want: []string{"a"},
		},
		{name: "the role first", body: delta(`{"role":"assistant","content":""}`) + a + done, want: []string{"a"}},
		{name: "null for all", body: "data: null\n\n" + a + done, want: []string{"a"}},
		{name: "the limit", body: a + strings.Replace(stop, "stop", "length", 1) + done, want: []string{"a"}, finish: "length"},

		{name: "nothing", body: "", failure: council.FailTruncated},
		{name: "comments alone", body: strings.Repeat(": hi\n\n", 400), failure: council.FailTruncated},
		{name: "other choices alone", body: strings.ReplaceAll(a+stop, `"index":0`, `"index":1`) + done, failure: council.FailEmpty},
		{name: "cut in data on many lines", body: a + lines(a)[:100], want: []string{"a"}, failure: council.FailTruncated},
		{
			name: "too much data on many lines", body: a + "data: {\n" + strings.Repeat("data: \"x\":1,\n", 200_000), want: []string{"a"},
			failure: council.FailTooLarge,
		},
		{name: "no width", body: delta(`{"content":"\u200b"}`) + done, want: []string{"\u200b"}, failure: council.FailEmpty},
		{name: "no end", body: a + a, want: []string{"a", "a"}, failure: council.FailTruncated},
		{name: "cut in a chunk", body: a + a[:40], want: []string{"a"}, failure: council.FailTruncated},
		{name: "cut in the end", body: a + "data: [DO", want: []string{"a"}, failure: council.FailTruncated},
		{name: "no JSON", body: a + "data: {nope}\n\n" + done, want: []string{"a"}, failure: council.FailBadResponse},
		{name: "another JSON", body: a + `data: {"choices":"x"}` + "\n\n" + done, want: []string{"a"}, failure: council.FailBadResponse},
		{name: "an error first", body: `data: {"error":{"message":"boom"}}` + "\n\n", failure: council.FailBadResponse, message: "boom"},
		{
			name: "an error after a comment", body: ": hi\n\n" + `data: {"error":{"message":"boom"}}` + "\n\n" + done,
			failure: council.FailBadResponse, message: "boom",
		},
		{
			name: "an error in the middle", body: a + `data: {"error":"boom"}` + "\n\n" + a + stop + done, want: []string{"a"},
			failure: council.FailBadResponse, message: "boom",
		},
		{
			name: "an error with choices",
			body: a + `data: {"id":"x","choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,` +
				`"message":"boom"}}` + "\n\n" + done,
			want: []string{"a"}, failure: council.FailUnavailable, message: "502 Bad Gateway behind HTTP 200: boom",
		},
		{
			name: "an error event", body: a + "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"boom\"}}\n\n",
			want: []string{"a"}, failure: council.FailBadResponse, message: "boom",
		},
		{
			name: "an error after the text", body: a + stop + `data: {"error":{"message":"boom"}}` + "\n\n", want: []string{"a"},
			failure: council.FailBadResponse, message: "boom",
		},
		{name: "an error without a message", body: `data: {"error":{}}` + "\n\n", failure: council.FailBadResponse},
		{
			name: "an error as the reason", body: a + strings.Replace(stop, "stop", "error", 1) + done, want: []string{"a"},
			failure: council.FailBadResponse,
		},
		{
			name: "the filter", body: a + strings.Replace(stop, "stop", "content_filter", 1) + done, want: []string{"a"},
			failure: council.FailContentFilter,
		},
		{
			name: "a refusal", body: delta(`{"refusal":"I "}`) + delta(`{"refusal":"won't"}`) + done, failure: council.FailRefused,
			message: "I won't",
		},
		{name: "no room", body: strings.Replace(stop, "stop", "length", 1) + done, failure: council.FailLength},
		{name: "no text", body: stop + done, failure: council.FailEmpty},
		{name: "blanks", body: delta(`{"content":" \n"}`) + done, want: []string{" \n"}, failure: council.FailEmpty},
		{
			name: "too much text", body: strings.Repeat(delta(`{"content":"`+strings.Repeat("x", 600<<10)+`"}`), 2),
			want: []string{strings.Repeat("x", 600<<10)}, failure: council.FailTooLarge,
		},
		{name: "too long a line", body: a + "data: " + strings.Repeat("x", 1<<20), want: []string{"a"}, failure: council.FailTooLarge},
		{name: "too long a comment", body: a + ":" + strings.Repeat("x", 1<<20), want: []string{"a"}, failure: council.FailTooLarge},
		{name: "a long line", body: delta(`{"x":"`+strings.Repeat("y", 900<<10)+`","content":"a"}`) + done, want: []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &sequence{plays: []roundTripper{eventStream(tt.body)}}
			got, deltas, f := streamed(t.Context(), fakeClient(t, once(), s.RoundTrip))
			if want := strings.Join(tt.want, ""); strings.Join(deltas, "") != want || len(deltas) > len(tt.want) {
				t.Errorf("deltas %.100q, want %.100q", deltas, want)
			}
			if tt.failure != "" {
				if f == nil || f.Code != tt.failure || !strings.Contains(f.Message, tt.message) {
					t.Errorf("got %v, want %s: %s", f, tt.failure, tt.message)
				}
				return
			}
			if f != nil || got.Text != strings.Join(tt.want, "") || got.FinishReason != tt.finish {
				t.Errorf("got %+v, %v", got, f)
			}
			if wantUsage := strings.Contains(tt.body, "cost"); wantUsage != cmp.Equal(
				got.Usage, council.Usage{InputTokens: new(int64(3)), OutputTokens: new(int64(2)), CostUSD: new(0.5)},
			) {
				t.Errorf("usage %+v", got.Usage)
			}
		})
	}
}

// lines spreads the data of each event over several lines.
func lines(body string) string {
	return strings.NewReplacer(`,`, ",\ndata: ", `[`, "[\ndata:", `}`, "\ndata: }").Replace(body)
}

// The case of a media type does not matter, and its parameters may be anything.
func TestStreamMediaTypes(t *testing.T) {
	for _, mediaType := range []string{
		"TEXT/EVENT-STREAM", "Text/Event-Stream; Charset=UTF-8", "text/event-stream;charset", "text/event-stream ; x",
	} {
		s := &sequence{plays: []roundTripper{reply(200, chunks("a", "b"), "Content-Type", mediaType)}}
		if got, _, f := streamed(t.Context(), fakeClient(t, once(), s.RoundTrip)); f != nil || got.Text != "ab" {
			t.Errorf("%s: got %+v, %v", mediaType, got, f)
		}
	}
}

// Deltas that arrive in quick succession are passed on together. None is kept for longer
// than the pause, and the last one is passed on at once.
func TestDeltasCoalesce(t *testing.T) {
	const n, every = 2000, time.Millisecond
	race.Bubble(t, func(t *testing.T) {
		var pieces []string
		for range n {
			pieces = append(pieces, `data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n")
		}
		call := aCall()
		start := time.Now()
		last := start
		told, deltas := 0, 0
		call.OnDelta = func(text string) {
			told, deltas = told+len(text), deltas+1
			if arrived := min(int(time.Since(start)/every), n); arrived-told > 1 || time.Since(last) > deltaPause+every {
				t.Errorf(
					"after %s, %s after the delta before, %d characters of %d were passed on", time.Since(start), time.Since(last), told,
					arrived,
				)
			}
			last = time.Now()
		}
		got, err := fakeClient(
			t, once(), slowly("text/event-stream", every, append(pieces, "data: [DONE]\n\n")...),
		).Complete(t.Context(), call)
		if err != nil || len(got.Text) != n || told != n {
			t.Errorf("%d characters, %d passed on, %v", len(got.Text), told, err)
		}
		if most := int(n*every/deltaPause) + 2; deltas > most || deltas < most/2 {
			t.Errorf("%d deltas, want about %d", deltas, most)
		}
		if took := time.Since(start); took > (n+1)*every+drainTimeout {
			t.Errorf("the end came after %s", took)
		}
	})
	race.Bubble(t, func(t *testing.T) { // slow ones are not kept at all
		var late time.Duration
		call := aCall()
		start := time.Now()
		call.OnDelta = func(string) { late += time.Since(start) % time.Second }
		play := slowly("text/event-stream", time.Second, strings.SplitAfter(chunks("a", "b", "c", "d"), "\n\n")...)
		if _, err := fakeClient(t, once(), play).Complete(t.Context(), call); err != nil || late != 0 {
			t.Errorf("%s late, %v", late, err)
		}
	})
}

// trickle is a body to which a piece is added after each pause. A read returns all there is.
type trickle struct {
	every       time.Duration
	start       time.Time
	pieces      []string
	read, reads int // pieces that were read, and in how many reads
}

func (b *trickle) Read(p []byte) (n int, err error) {
	if b.read == len(b.pieces) {
		return 0, io.EOF
	}
	time.Sleep(time.Until(b.start.Add(b.every * time.Duration(b.read+1))))
	for ; b.read < min(len(b.pieces), int(time.Since(b.start)/b.every)); b.read++ {
		n += copy(p[n:], b.pieces[b.read])
	}
	b.reads++
	return n, nil
}

// Where text is wanted some ten times a second, a stream of many pieces is read no more
// often, but for its begin. Its end is not awaited longer than that.
func TestStreamIsReadInPeace(t *testing.T) {
	const n, every = 100, 20 * time.Millisecond
	race.Bubble(t, func(t *testing.T) {
		body := &trickle{every: every, start: time.Now()}
		for range n {
			body.pieces = append(body.pieces, `data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n")
		}
		body.pieces[n-1] += "data: [DONE]\n\n"
		call := aCall()
		call.DeltaPause = 100 * time.Millisecond
		var text string
		var last time.Time
		call.OnDelta = func(piece string) {
			if text == "" && time.Since(body.start) != every {
				t.Errorf("the first text came after %s", time.Since(body.start))
			}
			if text += piece; time.Since(last) > call.DeltaPause+every && !last.IsZero() {
				t.Errorf("after %s: %s between two deltas", time.Since(body.start), time.Since(last))
			}
			last = time.Now()
		}
		play := func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Type": {"text/event-stream"}}
			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(body)}, nil
		}
		got, err := fakeClient(t, once(), play).Complete(t.Context(), call)
		if err != nil || len(got.Text) != n || text != got.Text {
			t.Errorf("%d characters, %d passed on, %v", len(got.Text), len(text), err)
		}
		if body.reads > 40 {
			t.Errorf("%d pieces were read in %d reads", n, body.reads)
		}
		if late := time.Since(body.start) - n*every; late > maxReadPause {
			t.Errorf("the end came %s late", late)
		}
	})
}

// A panic of OnDelta reaches the caller, and no goroutine is left running.
func TestListenerThatPanics(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		call := aCall()
		call.OnDelta = func(string) { panic("listener") }
		c := fakeClient(t, once(), slowly("text/event-stream", time.Second, chunks("a")[:90], "x", "x"))
		defer func() {
			if v := recover(); v != "listener" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = c.Complete(t.Context(), call)
	})
}

// A request for a stream may be repeated only if nothing of the stream was passed on.
func TestStreamIsRetriedBeforeTheFirstDelta(t *testing.T) {
	const start = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	for _, first := range []roundTripper{status(503), refuses(), eventStream(start), eventStream("")} {
		race.Bubble(t, func(t *testing.T) {
			s := &sequence{plays: []roundTripper{first, eventStream(chunks("a", "b"))}}
			got, deltas, f := streamed(t.Context(), fakeClient(t, fakeOptions(), s.RoundTrip))
			if f != nil || got.Attempts != 2 || got.Text != "ab" || strings.Join(deltas, "") != "ab" {
				t.Errorf("got %+v, %q, %v", got, deltas, f)
			}
		})
	}
	cut, _, _ := strings.Cut(chunks("a", "b"), `data: {"choices":[{"index":0,"delta":{},`)
	s := &sequence{plays: []roundTripper{eventStream(cut), eventStream(chunks("a", "b"))}}
	got, deltas, f := streamed(t.Context(), fakeClient(t, fakeOptions(), s.RoundTrip))
	if f == nil || f.Code != council.FailTruncated || got.Attempts != 1 || strings.Join(deltas, "") != "ab" {
		t.Errorf("got %+v, %q, %v", got, deltas, f)
	}
}

func TestStreamThatIsNone(t *testing.T) {
	const parts = `{"choices":[{"message":{"content":[{"type":"text","text":"te"},{"type":"text","text":"xt"}]},"finish_reason":"stop"}` +
		`],"usage":{"prompt_tokens":3,"completion_tokens":2,"cost":0.5}}`
	for _, body := range []string{goodBody, parts} {
		got, deltas, f := streamed(t.Context(), fakeClient(t, once(), reply(200, body, "Content-Type", "application/json")))
		if f != nil || got.Text != "text" || got.FinishReason != "stop" || *got.Usage.CostUSD != 0.5 ||
			!cmp.Equal(deltas, []string{"text"}) {
			t.Errorf("got %+v, %q, %v", got, deltas, f)
		}
	}
}

func TestStreamRequest(t *testing.T) {
	var body map[string]any
	c := fakeClient(t, once(), func(r *http.Request) (*http.Response, error) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		return eventStream(chunks("a"))(r)
	})
	if _, _, f := streamed(t.Context(), c); f != nil {
		t.Error(f)
	}
	want := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
		"messages": []any{map[string]any{"role": "user", "content": "Why?"}},
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
}

// A complete text is not lost when its connection fails afterwards.
func TestStreamThatBreaksAfterItsEnd(t *testing.T) {
	whole, _, _ := strings.Cut(chunks("a"), "data: [DONE]")
	c := fakeClient(t, once(), func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(whole), failing{syscall.ECONNRESET})
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
	})
	if got, _, f := streamed(t.Context(), c); f != nil || got.Text != "a" || got.Usage.InputTokens != nil {
		t.Errorf("got %+v, %v", got, f)
	}
}

func TestTimeLimits(t *testing.T) {
	const json, sse = "application/json", "text/event-stream"
	pieces := func(body string, n int) []string {
		var all []string
		for len(body) > n {
			all, body = append(all, body[:n]), body[n:]
		}
		return append(all, body)
	}
	late := func(f roundTripper, d time.Duration) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			time.Sleep(d)
			return f(r)
		}
	}
	tests := []struct {
		name    string
		stream  bool
		play    roundTripper
		failure string // the message, "" for a text
		after   time.Duration
	}{
		{"late headers", false, late(good(), 179*time.Second), "", 179 * time.Second},
		{"late headers of a stream", true, late(eventStream(chunks("a")), 179*time.Second), "", 179 * time.Second},
		{"no headers", false, hangs, "the attempt timed out", 180 * time.Second},
		{"pauses", false, slowly(json, 59*time.Second, pieces(goodBody, 70)...), "", 2 * 59 * time.Second},
		{
			"a pause too long", false, slowly(json, 61*time.Second, goodBody), "the provider fell silent in the middle of its reply",
			time.Minute,
		},
		{"byte by byte", false, slowly(json, 10*time.Second, pieces(goodBody, 1)...), "the attempt timed out", 180 * time.Second},
		{"a stream byte by byte", true, slowly(sse, 10*time.Second, pieces(chunks("a"), 1)...), "the attempt timed out", 180 * time.Second},
		{
			"a stream with a pause too long", true, slowly(sse, 61*time.Second, chunks("a")),
			"the provider fell silent in the middle of its reply", time.Minute,
		},
		{"comments are activity", true, slowly(sse, 50*time.Second, ": hi\n", ": hi\n", chunks("a")), "", 150 * time.Second},
		{"silence after [DONE]", true, slowly(sse, 50*time.Second, chunks("a"), "late"), "", 50*time.Second + drainTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				call := aCall()
				if tt.stream {
					call.OnDelta = func(string) {}
				}
				s := &sequence{plays: []roundTripper{tt.play}}
				start := time.Now()
				_, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call)
				f := council.AsFailure(err)
				if (f == nil) != (tt.failure == "") || f != nil && (f.Code != council.FailTimeout || f.Message != tt.failure) {
					t.Errorf("got %v, want %q", err, tt.failure)
				}
				if got := time.Since(start); got != tt.after || len(s.times) != 1 {
					t.Errorf("after %s and %d requests, want %s", got, len(s.times), tt.after)
				}
			})
		})
	}
}

// A reply that breaks off in the middle ends the call, unless the caller can take back what it
// was told. It is told so once before each request that follows, and only if it has something.
func TestRestart(t *testing.T) {
	const part = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	const end = "data: [DONE]\n\n"
	stream := func(body string) roundTripper { return reply(http.StatusOK, body, "Content-Type", "text/event-stream") }
	for _, restart := range []bool{false, true} {
		race.Bubble(t, func(t *testing.T) {
			s := &sequence{plays: []roundTripper{status(503), stream(part), stream(part + part + end)}}
			c := fakeClient(t, fakeOptions(), s.RoundTrip)
			var told strings.Builder // in how many pieces a text arrives is a matter of time
			call := aCall()
			call.OnDelta = func(text string) { told.WriteString(text) }
			if restart {
				call.OnRestart = func(reason council.FailureCode) { fmt.Fprintf(&told, " %s ", reason) }
			}
			completion, err := c.Complete(t.Context(), call)
			want, requests := "a", 2
			if restart {
				want, requests = "a truncated aa", 3
			}
			if diff := cmp.Diff(want, told.String()); diff != "" || len(s.times) != requests {
				t.Errorf("%d requests, %s", len(s.times), diff)
			}
			if (err == nil) != restart || restart && completion.Text != "aa" {
				t.Errorf("%q, %v", completion.Text, err)
			}
		})
	}
}

// The time that OnDelta takes does not count as silence of the provider.
func TestSlowListener(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		call := aCall()
		call.OnDelta = func(string) { time.Sleep(70 * time.Second) }
		s := &sequence{plays: []roundTripper{slowly("text/event-stream", time.Second, chunks("a"), chunks("b"))}}
		if got, err := fakeClient(t, fakeOptions(), s.RoundTrip).Complete(t.Context(), call); err != nil || got.Text != "a" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// The caller's deadline and cancellation end a stream with their own causes.
func TestStreamEndsWithItsCaller(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		c := fakeClient(t, fakeOptions(), slowly("text/event-stream", 10*time.Second, chunks("a")[:90], "x", "x", "x"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 15*time.Second, errors.New("the stage is over"))
		defer cancel()
		if _, deltas, f := streamed(ctx, c); f == nil || f.Code != council.FailTimeout || f.Message != "the stage is over" ||
			len(deltas) != 1 {
			t.Errorf("got %v after %q", f, deltas)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(15*time.Second, func() { stop(errors.New("the client is gone")) })
		if _, deltas, f := streamed(ctx, c); f == nil || f.Code != council.FailCancelled || len(deltas) != 1 {
			t.Errorf("got %v after %q", f, deltas)
		}
	})
}

// inTime fails a test that takes longer for its input than a busy machine can explain.
func inTime(t *testing.T, bytes int) (ended func()) {
	t.Helper()
	start := time.Now()
	return func() {
		if most := 5*time.Second + time.Duration(bytes)*10*time.Microsecond; time.Since(start) > most {
			t.Errorf("%d bytes took %s", bytes, time.Since(start))
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(chunks("a", "b")))
	f.Add([]byte(": hi\r\n\r\ndata:\ndata: {\"error\":{\"message\":\"x\"}}\n\n"))
	f.Add(
		[]byte(
			`data: {"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}` + "\n" +
				`data: {"usage":{"prompt_tokens":1}}` + "\ndata: [DONE]",
		),
	)
	f.Add(
		[]byte(
			`data: {"id":"x\"","choices":[{"index":0,"delta":{"content":"\u00e9\\"},"logprobs":{"a":[1,{}]},"finish_reason":null}],` +
				`"usage":null,"p":"ab"}` + "\n",
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		defer inTime(t, len(body))()
		o := once()
		o.MaxReplyBytes = 1 << 10
		got, deltas, failure := streamed(t.Context(), fakeClient(t, o, eventStream(string(body))))
		text := strings.Join(deltas, "")
		if failure == nil && (got.Text != text || text == "") {
			t.Errorf("deltas %q, text %q", deltas, got.Text)
		}
		if failure != nil && (failure.Code == "" || failure.Message == "" || len(failure.Message) > maxMessageBytes) {
			t.Errorf("failure %+v", failure)
		}
		if len(text) > 1<<10 {
			t.Errorf("%d bytes of text", len(text))
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(goodBody), false)
	f.Add([]byte(`{"choices":[{"message":{"content":[{"text":"a"}]},"finish_reason":"length"}]}`), true)
	f.Add([]byte(`{"error":{"message":"x"}}`), true)
	f.Fuzz(func(t *testing.T, body []byte, stream bool) {
		defer inTime(t, len(body))()
		o := once()
		o.MaxReplyBytes = 1 << 10
		call := aCall()
		var deltas strings.Builder
		if stream {
			call.OnDelta = func(text string) { deltas.WriteString(text) }
		}
		got, err := fakeClient(t, o, reply(200, string(body), "Content-Type", "application/json")).Complete(t.Context(), call)
		failure, typed := errors.AsType[*council.Failure](err)
		switch {
		case err == nil && (strings.TrimSpace(got.Text) == "" || stream && deltas.String() != got.Text):
			t.Errorf("text %q, deltas %q", got.Text, deltas.String())
		case err != nil &&
			(!typed || failure.Message == "" || len(failure.Message) > maxMessageBytes || got.Text != "" || deltas.Len() > 0):
			t.Errorf("%+v with %v", got, err)
		}
	})
}
