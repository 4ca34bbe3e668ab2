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
	"sync"
	"time"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/llm/thinking"
	openai "github.com/sashabaranov/go-openai"
)

const (
	// deltaPause is the shortest time between two deltas, unless the call asks for a longer one. Text that arrives
	// sooner is passed on together with the text after it. Otherwise a provider that sends single characters would
	// cause one event for each character. The pause is too short to be noticed.
	deltaPause = 20 * time.Millisecond
	// drainTimeout is how long to wait for the end of the body after the stream in the body has ended. If the body ends
	// in this time, the connection can be used again. A new connection would take about as long.
	drainTimeout = 100 * time.Millisecond
	// maxDrainBytes is the most bytes that are read during drainTimeout.
	maxDrainBytes = 4 << 10
)

// stream performs a streamed request. It passes on the text as it arrives, and returns the whole reply.
func (p *provider) stream(ctx context.Context, x *exchange) (r received, err error) {
	stream, err := p.api.CreateChatCompletionStream(ctx, openai.ChatCompletionRequest{Model: x.model})
	if err != nil {
		return r, err
	}
	defer stream.Close()
	if x.events == nil { // The reply is no stream.
		return p.reply(ctx, x)
	}
	in := &inlet{arrived: make(chan struct{}, 1), ended: make(chan struct{})}
	var panicked any
	go func() {
		defer close(in.ended)
		defer func() { panicked = recover() }()
		r, err = p.read(ctx, x, in)
	}()
	defer func() {
		select {
		case <-in.ended:
		default: // onDelta has panicked.
			x.cut(nil)
			<-in.ended
		}
	}()
	in.passOn(x, keyFilter{keys: p.keys})
	if panicked != nil {
		panic(panicked) // in the caller's goroutine, which recovers panics
	}
	return r, err
}

// inlet holds text that was read and that is not passed on yet.
type inlet struct {
	arrived chan struct{} // holds one element if there is text
	ended   chan struct{} // closed when no more text comes

	mu   sync.Mutex // guards text
	text []byte
}

func (in *inlet) add(text string) {
	in.mu.Lock()
	in.text = append(in.text, text...)
	in.mu.Unlock()
	select {
	case in.arrived <- struct{}{}:
	default:
	}
}

func (in *inlet) take() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	text := string(in.text)
	in.text = in.text[:0]
	return text
}

// passOn calls onDelta with the text until the text ends. Text that arrives after a pause is passed on at once.
// Text that arrives sooner is passed on at the end of the pause.
func (in *inlet) passOn(x *exchange, keys keyFilter) {
	for over := false; !over; {
		select {
		case <-in.arrived:
		case <-in.ended:
			over = true
		}
		if text := keys.next(in.take(), over); text != "" {
			x.passedOn = true
			x.onDelta(text)
		}
		select {
		case <-time.After(x.pause):
		case <-in.ended:
		}
	}
}

// read reads a stream to its end.
func (p *provider) read(ctx context.Context, x *exchange, in *inlet) (received, error) {
	a := assembly{text: thinking.NewStream(x.unopened)}
	err := p.assemble(ctx, x, in, &a)
	if err == nil {
		a.finishText(x, in)
	}
	complete := err == nil && x.events.done
	if a.used != nil && !a.last && !complete {
		a.part = true
		a.usage = council.Usage{}
		a.kinds = council.TokenKinds{}
	}
	return a.received, err
}

// assembly puts a reply together from the chunks of a stream.
type assembly struct {
	received
	text    *thinking.Stream
	refused strings.Builder
	apart   strings.Builder // thinking that the provider sends apart from the text
	last    bool            // the usage came with the end of the reply, or after it
}

// assemble reads the chunks of a stream until the text is complete.
func (p *provider) assemble(ctx context.Context, x *exchange, in *inlet, a *assembly) error {
	for {
		data, err := x.events.next()
		if err != nil && (x.events.done || a.finish != "" || a.whole) {
			return nil // The text is complete, whatever the error.
		}
		if errors.Is(err, io.EOF) {
			return truncated()
		}
		if err == nil {
			err = ctx.Err() // If the call has ended, stop, even if more of the reply has arrived.
		}
		if err != nil {
			return err
		}
		c, err := x.chunk(ctx, data)
		a.note(&c, err != nil)
		if err != nil {
			return err
		}
		shown, err := a.add(&c, p.transport.maxBytes)
		if err != nil {
			return err
		}
		if shown != "" {
			in.add(shown)
		}
	}
}

// note records what a chunk says, except its text. The argument failed says that the chunk ends the stream with an
// error.
func (a *assembly) note(c *received, failed bool) {
	a.whole = a.whole || c.whole
	a.finish = cmp.Or(c.finish, a.finish)
	if isNamed(c.model) && !bytes.Equal(c.model, a.model) {
		a.model = append(a.model[:0], c.model...)
	}
	if isNamed(c.id) && !bytes.Equal(c.id, a.id) {
		a.id = append(a.id[:0], c.id...)
	}
	if c.used != nil {
		if a.used != nil {
			c.used.merge(a.used)
		}
		a.count(c.used)
		a.last = a.finish != "" || a.whole || failed
	}
	a.chosen = a.chosen || c.chosen
}

// add appends the text of a chunk. It returns the text that can be passed on now.
func (a *assembly) add(c *received, maxBytes int64) (shown string, err error) {
	text := c.text
	if c.whole && a.text.Len() > 0 { // The chunk repeats the whole text.
		text = ""
	}
	a.refused.WriteString(c.refusal)
	if int64(a.text.Len()+a.refused.Len()+len(text)) > maxBytes {
		return "", tooLarge(maxBytes)
	}
	if a.apart.Len() < council.MaxReasoning && (!c.whole || a.apart.Len() == 0) {
		a.apart.WriteString(c.reasoning)
	}
	if text == "" {
		return "", nil
	}
	return a.text.Add(text), nil
}

// finishText divides the complete text into answer and thinking, and passes on the rest of the answer.
func (a *assembly) finishText(x *exchange, in *inlet) {
	parts, rest, void := a.text.End()
	if void && x.onDelta != nil && x.call.OnVoid == nil {
		parts.Answer, rest = a.text.Keep()
		parts.Thought = ""
		void = false
	}
	a.chosen = true
	a.void = void
	a.refusal = a.refused.String()
	a.reasoning = clip(a.apart.String())
	x.divide(&a.received, parts)
	if rest != "" && !void {
		in.add(rest)
	}
}

// chunk reads a chunk. The argument data is the first line of the chunk's event.
func (x *exchange) chunk(ctx context.Context, data []byte) (received, error) {
	c, err := readReply(ctx, data, true)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if data, err = x.events.rest(data); errors.Is(err, io.EOF) {
			return c, truncated()
		}
		if err != nil {
			return c, err
		}
		c, err = readReply(ctx, data, true)
	}
	if err != nil && readComplaint(data).message != "" { // The data is a list of errors.
		return c, reported(x, data)
	}
	if err != nil {
		const message = "the stream holds data that is not the JSON of a chunk"
		return c, &council.Failure{Code: council.FailBadResponse, Message: message, HTTPStatus: new(x.status)}
	}
	if x.events.failing && c.fault == nil && !c.chosen {
		c.fault = data
	}
	if x.events.failing = false; c.fault != nil {
		return c, reported(x, c.fault)
	}
	return c, nil
}

// events reads a stream of server-sent events (WHATWG HTML, section 9.2). It uses only the data of the events. It
// accepts three deviations from the standard:
//
//   - A line that is complete JSON counts as a whole event, because some providers forget the blank line after an
//     event. Most providers send one line of data for each event.
//   - A line that begins with a brace counts as data, because some providers leave out the name of the field.
//   - The stream may be one whole reply, because some providers do not stream.
type events struct {
	paced *paced // the reader under the bufio.Reader in the field in
	in    *bufio.Reader
	cut   context.CancelCauseFunc // ends the request
	max   int64                   // limits the bytes in a line, and in the data of an event
	cr    bool                    // the previous line ended with a CR, and an LF that follows belongs to it
	open  bool                    // at least one line was read
	long  []byte                  // a line that is longer than the buffer of the bufio.Reader
	data  []byte                  // the data of an event that has several lines of data
	done  bool                    // [DONE] has come
	bare  bool                    // the line of data has no field name
	// failing says that the event has the name error.
	failing bool
}

const byteOrderMark = "\uFEFF"

// endMark is the end of a stream.
const endMark = "[DONE]"

// next returns the next line that holds data. The line is valid until the next call.
func (e *events) next() ([]byte, error) {
	for !e.done {
		line, err := e.line()
		data, ok := e.dataOf(line)
		if ok && string(data) == endMark {
			e.done = true
			e.paced.pause = 0 // Do not delay the end.
			e.drain()
		} else if ok && len(data) > 0 && (err == nil || json.Valid(data)) { // The last line may be cut off.
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// rest reads an event to its end, and returns all of the event's data. The argument first is the first line of the
// data.
func (e *events) rest(first []byte) ([]byte, error) {
	e.data = append(e.data[:0], first...)
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			return e.data, nil
		}
		data, ok := dataOf(line)
		if e.bare {
			data = line
			ok = true
		}
		if ok {
			e.data = append(append(e.data, '\n'), data...)
		}
		if e.bare && line[0] == '}' { // This brace ends an indented object.
			return e.data, nil
		}
		if int64(len(e.data)) > e.max {
			return nil, tooLarge(e.max)
		}
	}
}

func dataOf(line []byte) (data []byte, ok bool) {
	data, ok = bytes.CutPrefix(line, []byte("data:"))
	data = bytes.TrimSpace(data)
	if again, framed := bytes.CutPrefix(data, []byte("data:")); framed { // Some gateways write the name twice.
		data = bytes.TrimSpace(again)
	}
	return data, ok
}

// dataOf returns the data in a line, with or without a field name before it. It also notes the name of an event, and
// the end of the stream.
func (e *events) dataOf(line []byte) (data []byte, ok bool) {
	if data, ok = dataOf(line); ok {
		e.bare = false
		return data, true
	}
	if name, isName := bytes.CutPrefix(line, []byte("event:")); isName {
		e.failing = string(bytes.TrimSpace(name)) == "error"
		return nil, false
	}
	line = bytes.TrimSpace(line)
	e.bare = bytes.HasPrefix(line, []byte("{")) || string(line) == endMark
	if whole, ends := beforeEnd(line); e.bare && ends && len(whole) > 0 {
		e.done = true
		line = whole
	}
	return line, e.bare
}

// beforeEnd returns the text before the mark that ends a stream, if both are in the same line. Otherwise ok is false.
func beforeEnd(line []byte) (before []byte, ok bool) {
	if before, ok = bytes.CutSuffix(line, []byte(endMark)); !ok {
		return line, false
	}
	return bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(before), []byte("data:"))), true
}

// isFramed reports whether a text begins like a stream of events.
func isFramed(text []byte) bool {
	return slices.ContainsFunc([]string{"data:", "event:", "id:", "retry:", ":"}, func(field string) bool {
		return bytes.HasPrefix(text, []byte(field))
	})
}

const (
	// maxReadPause is the longest time for which a stream is not read. The end of a reply may be noticed this much
	// later.
	maxReadPause = 100 * time.Millisecond
	// fewBytes is a number of bytes. A read that returns fewer bytes has returned all bytes that have arrived.
	fewBytes = 1 << 10
)

// paced reads a stream of small pieces about ten times a second, and not once for each piece, because waking up is most
// of the cost of a piece. After a read that returned little, it pauses. The pause is at most a quarter of the time that
// the stream has taken so far, so a short reply is hardly delayed.
type paced struct {
	io.Reader
	ctx    context.Context //nolint:containedctx // the context of the request that gets this reply
	pause  time.Duration   // the longest pause; if 0, each piece is read as it comes
	begun  time.Time
	little bool // the last read returned less than fewBytes
}

// Read implements io.Reader.
func (c *paced) Read(p []byte) (n int, err error) {
	if c.little && c.pause > 0 {
		select {
		case <-time.After(min(c.pause, time.Since(c.begun)/4)):
		case <-c.ctx.Done():
		}
	}
	n, err = c.Reader.Read(p)
	c.little = n < fewBytes
	return n, err
}

// line reads one line of any length up to the limit. A line ends with LF, CR, or both. At the end of the stream,
// line returns the incomplete last line, and io.EOF.
func (e *events) line() ([]byte, error) {
	e.long = e.long[:0]
	for {
		if _, err := e.in.Peek(1); errors.Is(err, io.EOF) {
			return e.long, io.EOF
		} else if err != nil {
			return nil, broken(err)
		}
		read, _ := e.in.Peek(e.in.Buffered())
		skip := 0
		if e.cr && read[0] == '\n' {
			skip = 1
		}
		if !e.open && bytes.HasPrefix(read, []byte(byteOrderMark)) { // A stream may begin with a byte order mark.
			skip = len(byteOrderMark)
		}
		e.cr = false
		e.open = true
		read = read[skip:]
		size := len(read)
		ends := 0
		if i := bytes.IndexByte(read, '\n'); i >= 0 {
			size = i
			ends = 1
		}
		if i := bytes.IndexByte(read[:size], '\r'); i >= 0 {
			size = i
			ends = 1
			e.cr = true
		}
		_, _ = e.in.Discard(skip + size + ends) // It is buffered.
		if int64(len(e.long)+size) > e.max {
			return nil, tooLarge(e.max)
		}
		if ends > 0 && len(e.long) == 0 {
			return read[:size], nil
		}
		if e.long = append(e.long, read[:size]...); ends > 0 {
			return e.long, nil
		}
	}
}

// drain reads to the end of the body, so that the connection can be used again. It waits only for drainTimeout, because
// the answer is already complete.
func (e *events) drain() {
	if e.cut == nil { // The whole body is here.
		return
	}
	timer := time.AfterFunc(drainTimeout, func() { e.cut(errDrained) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, e.in, maxDrainBytes)
}
