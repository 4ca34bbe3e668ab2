package llm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	openai "github.com/sashabaranov/go-openai"
)

const (
	// drainTimeout is how long the end of a body is waited for once the stream in
	// it has ended: about what a new connection would take.
	drainTimeout = 100 * time.Millisecond
	// maxDrainBytes bounds what is read meanwhile.
	maxDrainBytes = 4 << 10
)

// stream performs a streamed request. It passes on each delta and returns all of
// them as one response.
func (p *provider) stream(ctx context.Context, x *exchange, request openai.ChatCompletionRequest) (resp openai.ChatCompletionResponse, err error) {
	request.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := p.api.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return resp, err
	}
	defer stream.Close()
	if x.events == nil { // the reply is no stream
		return x.readAgain(resp, json.Unmarshal(x.body, &resp))
	}
	var choice openai.ChatCompletionChoice
	var text, refusal strings.Builder
	for {
		line, err := stream.RecvRaw()
		if err != nil && (x.events.done || choice.FinishReason != "") {
			break // whatever it is, the text is whole
		}
		if errors.Is(err, io.EOF) {
			return resp, truncated()
		}
		if err != nil {
			return resp, err
		}
		delta, ok := quickDelta(line)
		if !ok {
			var c chunk
			if json.Unmarshal(line, &c) != nil && json.Unmarshal(quoteNaN(line), &c) != nil {
				return resp, &council.Failure{Code: council.FailBadResponse, Message: "a chunk of the stream is not the JSON of one", HTTPStatus: new(x.status)}
			}
			if c.Error != nil {
				return resp, reported(x, line)
			}
			if c.Usage != nil {
				x.body = slices.Concat([]byte(`{"usage":`), *c.Usage, []byte("}"))
			}
			if len(c.Choices) > 0 {
				delta = string(c.Choices[0].Delta.Content)
				refusal.WriteString(c.Choices[0].Delta.Refusal)
				choice.FinishReason = cmp.Or(c.Choices[0].FinishReason, choice.FinishReason)
			}
		}
		if int64(text.Len()+refusal.Len()+len(delta)) > p.transport.maxBytes {
			return resp, tooLarge(p.transport.maxBytes)
		}
		if delta != "" {
			text.WriteString(delta)
			x.passedOn = true
			x.onDelta(delta)
		}
	}
	choice.Message.Content, choice.Message.Refusal = text.String(), refusal.String()
	resp.Choices = []openai.ChatCompletionChoice{choice}
	return resp, nil
}

// chunk is the part of a stream's chunk that is read.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content content `json:"content"`
			Refusal string  `json:"refusal"`
		} `json:"delta"`
		FinishReason openai.FinishReason `json:"finish_reason"`
	} `json:"choices"`
	Usage *json.RawMessage `json:"usage"`
	Error *json.RawMessage `json:"error"`
}

// content is a text, given as a string or as a list of parts.
type content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, (*string)(c))
	}
	var parts []openai.ChatMessagePart
	err := json.Unmarshal(b, &parts)
	*c = content(joined(parts))
	return err
}

// events is a stream's body as go-openai can read it: one line with data per
// chunk. Comments, blank lines and empty data count against a limit in that
// library; here they are left out, as are the other fields of server-sent events.
type events struct {
	io.Closer
	in      *bufio.Reader
	cut     context.CancelCauseFunc // ends the request
	max     int64                   // bytes in a line
	long    []byte                  // a line that is longer than the buffer of in
	out     []byte                  // the line that is being handed on
	pending []byte                  // what of it is still to go
	done    bool                    // [DONE] was seen
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.pending) == 0 {
		if err := e.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.pending)
	e.pending = e.pending[n:]
	return n, nil
}

// next reads one line. There is something to hand on when it holds data.
func (e *events) next() error {
	line, err := e.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	data = bytes.TrimSpace(data)
	done := string(data) == "[DONE]"
	if !ok || len(data) == 0 || (err != nil && !done && !json.Valid(data)) { // a line that was cut off is none
		return err
	}
	e.out = append(e.out[:0], "data: "...)
	if bytes.HasPrefix(data, []byte(`{"error":`)) {
		// The library would take this for itself, and lose it unless it is the end.
		e.out, data = append(e.out, "{ "...), data[1:]
	}
	e.out = append(append(e.out, data...), '\n')
	e.pending = e.out
	if done {
		e.done = true
		e.drain()
	}
	return nil
}

// line reads one line of any length up to the limit.
func (e *events) line() ([]byte, error) {
	line, err := e.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		e.long = append(e.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) && int64(len(e.long)) <= e.max {
			line, err = e.in.ReadSlice('\n')
			e.long = append(e.long, line...)
		}
		line = e.long
	}
	if int64(len(line)) > e.max {
		return nil, tooLarge(e.max)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, broken(err)
	}
	return line, err
}

// drain reads up to the end of the body, which is what keeps its connection, but
// does not wait long for it: the answer is complete.
func (e *events) drain() {
	timer := time.AfterFunc(drainTimeout, func() { e.cut(errDrained) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, e.in, maxDrainBytes)
}

// quickDelta returns the text of a chunk that holds text and nothing else that is
// read, as nearly all chunks of a stream do; ok is false for any other. It steps
// over the JSON without decoding it, in a tenth of the time. What it says of valid
// JSON is what chunk says.
func quickDelta(line []byte) (delta string, ok bool) {
	w := walker{rest: line}
	var text []byte
	choices := 0
	w.members(func(key []byte) {
		switch string(key) {
		case `"choices"`:
			choices++
			w.must('[')
			w.members(func(key []byte) {
				switch string(key) {
				case `"delta"`:
					w.members(func(key []byte) {
						switch string(key) {
						case `"content"`:
							text = w.token()
						case `"refusal"`:
							w.mustNull()
						default:
							w.skip()
						}
					})
				case `"finish_reason"`:
					w.mustNull()
				default:
					w.skip()
				}
			})
			w.must(']')
		case `"usage"`, `"error"`:
			w.mustNull()
		default:
			w.skip()
		}
	})
	if w.lost || len(w.rest) > 0 || choices != 1 || len(text) < 2 || text[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return string(text[1 : len(text)-1]), true
	}
	return delta, json.Unmarshal(text, &delta) == nil
}

// walker steps over JSON. It is lost when the JSON is not as expected.
type walker struct {
	rest []byte
	lost bool
}

// next returns the byte that comes next, blanks left aside, 0 at the end.
func (w *walker) next() byte {
	for len(w.rest) > 0 && w.rest[0] == ' ' {
		w.rest = w.rest[1:]
	}
	if len(w.rest) == 0 {
		return 0
	}
	return w.rest[0]
}

// take steps over c, if that is what comes next.
func (w *walker) take(c byte) bool {
	if w.next() != c {
		return false
	}
	w.rest = w.rest[1:]
	return true
}

func (w *walker) must(c byte) { w.lost = !w.take(c) || w.lost }

func (w *walker) mustNull() { w.lost = string(w.token()) != "null" || w.lost }

// token steps over a string, which it returns with its quotes, or over a number,
// true, false or null.
func (w *walker) token() []byte {
	end := 0
	if w.next() == '"' {
		for end = 1; end < len(w.rest) && w.rest[end] != '"'; end++ {
			if w.rest[end] == '\\' {
				end++
			}
		}
		end++ // the closing quote
	} else {
		for end < len(w.rest) && strings.IndexByte(",}] ", w.rest[end]) < 0 {
			end++
		}
	}
	if end == 0 || end > len(w.rest) {
		w.lost = true
		return nil
	}
	token := w.rest[:end]
	w.rest = w.rest[end:]
	return token
}

// skip steps over a value.
func (w *walker) skip() {
	for depth := 0; !w.lost; {
		switch w.next() {
		case '{', '[':
			depth++
			w.rest = w.rest[1:]
		case '}', ']':
			depth--
			w.rest = w.rest[1:]
		case ',', ':':
			w.rest = w.rest[1:]
		default:
			w.token()
		}
		if depth == 0 {
			return
		}
	}
}

// members steps over an object. It calls member with each key, in its quotes, to
// step over the value. It is lost at a key that is escaped or needs case folding.
func (w *walker) members(member func(key []byte)) {
	w.must('{')
	for more := !w.take('}'); more && !w.lost; {
		key := w.token()
		w.lost = w.lost || key[0] != '"'
		for _, c := range key {
			w.lost = w.lost || c == '\\' || c > 'z' || (c >= 'A' && c <= 'Z')
		}
		w.must(':')
		member(key)
		if more = w.take(','); !more {
			w.must('}')
		}
	}
}
