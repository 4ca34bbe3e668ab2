package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
)

// This file writes requests, and reads replies in their usual form. anyReply reads all other replies. This file does
// not use go-openai for this, because go-openai would take three times as long. It would also drop or refuse parts of a
// request, such as a temperature of 0 or the sampling parameters of models that it knows by name. And it would lose a
// whole reply if one figure in it is malformed.

// request returns the JSON of the request, for a completion or for embeddings.
func (x *exchange) request() []byte {
	call := x.call
	if call.Texts != nil {
		return x.embeddingRequest()
	}
	b := make([]byte, 0, x.requestSize())
	b = append(b, `{"model":`...)
	b = appendString(b, x.model)
	b = append(b, `,"messages":[`...)
	for i, m := range x.messages() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"role":`...)
		b = appendString(b, m.Role)
		b = append(b, `,"content":`...)
		b = appendString(b, m.Content)
		b = append(b, '}')
	}
	b = append(b, ']')
	if call.Temperature != nil && x.without&optTemperature == 0 {
		b = append(b, `,"temperature":`...)
		b = strconv.AppendFloat(b, *call.Temperature, 'g', -1, 64)
	}
	if call.MaxOutputTokens != nil {
		name := `,"max_tokens":`
		if x.dialect.newName != (x.without&optTokensName != 0) {
			name = `,"max_completion_tokens":`
		}
		b = append(b, name...)
		b = strconv.AppendInt(b, int64(*call.MaxOutputTokens), 10)
	}
	if format := x.format(); format != nil {
		b = append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":"`+format.Name+`","strict":`...)
		b = strconv.AppendBool(b, format.Strict)
		b = append(b, `,"schema":`...)
		b = append(b, format.Schema...)
		b = append(b, "}}"...)
	}
	b = x.appendOptions(b)
	switch {
	case !x.streams():
		return append(b, `,"stream":false}`...)
	case x.without&optStreamUsage != 0:
		return append(b, `,"stream":true}`...)
	default:
		return append(b, `,"stream":true,"stream_options":{"include_usage":true}}`...)
	}
}

// format returns the form of reply that the request asks for, or nil.
func (x *exchange) format() *council.Format {
	if x.without&optFormat != 0 {
		return nil
	}
	return x.call.Format
}

// streams reports whether the reply is wanted as a stream.
func (x *exchange) streams() bool { return x.call.OnDelta != nil && x.without&optStream == 0 }

// requestSize returns the approximate size of the request. With a buffer of this size, a prompt is copied only once.
func (x *exchange) requestSize() int {
	n := 512
	for _, m := range x.call.Messages {
		n += len(m.Content) + strings.Count(m.Content, "\n") + strings.Count(m.Content, `"`) + strings.Count(m.Content, `\`)
	}
	if format := x.format(); format != nil {
		n += len(format.Schema)
	}
	return n
}

// appendString appends s as JSON. Each byte that is not UTF-8 becomes U+FFFD, as in encoding/json.
func appendString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	b = append(b, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[done:i]...)
		if e := strings.IndexByte(escaped, c); e >= 0 {
			b = append(b, '\\', escapes[e])
		} else {
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		done = i + 1
	}
	return append(append(b, s[done:]...), '"')
}

// In a JSON string, a backslash and the character escapes[i] stand for the character escaped[i].
const (
	escapes = `"\nrtbf/`
	escaped = "\"\\\n\r\t\b\f/"
)

// fill sets the body of req. To send the request again on another connection, net/http makes a new body with GetBody.
// The body is a bytes.Reader, because net/http sends a bytes.Reader together with the headers if its buffer has room.
// It sends the headers before a body of any other type.
func (x *exchange) fill(req *http.Request) {
	b := x.prepared
	if x.prepared = nil; b == nil {
		b = x.request()
	}
	x.first.Reset(b)
	x.sending = &x.first
	req.ContentLength = int64(len(b))
	req.Body = io.NopCloser(x.sending)
	req.GetBody = func() (io.ReadCloser, error) {
		x.sending = bytes.NewReader(x.request())
		return io.NopCloser(x.sending), nil
	}
}

// wrote releases the memory of the body when the whole body is sent, because the reply may take minutes. The goroutine
// that sends the request calls wrote.
func (x *exchange) wrote(httptrace.WroteRequestInfo) {
	if x.sending != nil && x.sending.Len() == 0 {
		x.sending.Reset(nil)
	}
}

// quickReply reads a completion, or a chunk of a stream, in one pass. It returns the same as anyReply. If the reply is
// not in the usual form, ok is false.
func quickReply(data []byte, chunk bool) (r received, ok bool) {
	s := scanner{data: data}
	var used *figures
	s.object(func(key []byte) {
		switch string(key) {
		case `"choices"`:
			s.once(1)
			s.choices(&r, chunk)
		case `"usage"`:
			s.once(2)
			if !s.null() {
				used = new(figures)
				s.usage(used)
			}
		case `"model"`:
			s.next()
			begin := s.at
			s.skip(1)
			r.model = data[begin:s.at]
		case `"id"`:
			s.next()
			begin := s.at
			s.skip(1)
			r.id = data[begin:s.at]
		case `"error"`:
			s.bad = !s.null() || s.bad
		default:
			s.skip(1)
		}
	})
	mayBeError := chunk && !r.chosen && (used == nil || !used.Input.given)
	s.bad = s.bad || s.next() != 0 || s.at < len(data) || mayBeError
	r.count(used)
	return r, !s.bad
}

func (s *scanner) choices(r *received, chunk bool) {
	if s.null() {
		s.bad = s.bad || chunk // An error may come with the null.
		return
	}
	content := `"message"`
	if chunk {
		content = `"delta"`
	}
	s.must('[')
	s.list(']', func() {
		s.bad = s.bad || r.chosen // There is more than one choice.
		r.chosen = true
		s.choice(r, content)
	})
}

func (s *scanner) choice(r *received, content string) {
	s.object(func(key []byte) {
		switch string(key) {
		case content:
			s.once(4)
			r.whole = content == `"message"`
			s.message(r)
		case `"index"`:
			s.once(32)
			s.bad = string(s.number()) != "0" || s.bad
		case `"finish_reason"`:
			s.once(64)
			r.finish = finishReason(s.text())
		case `"error"`:
			s.bad = !s.null() || s.bad
		case `"message"`, `"delta"`: // a message in a chunk, or a delta in a completion
			s.bad = true
		default:
			s.skip(2)
		}
	})
}

func (s *scanner) message(r *received) {
	s.object(func(key []byte) {
		switch string(key) {
		case `"content"`:
			s.once(8)
			r.text = s.text()
		case `"refusal"`:
			s.once(16)
			r.refusal = s.text()
		case `"reasoning_content"`, `"reasoning"`, `"thinking"`:
			text := clip(s.text())
			// Some providers send the same thinking twice, under two names.
			s.bad = s.bad || r.reasoning != "" && text != "" && text != r.reasoning
			r.reasoning = cmp.Or(r.reasoning, text)
		case `"reasoning_details"`:
			if !s.null() {
				s.bad = s.bad || r.reasoning == "" // The details may hold the thinking.
				s.skip(3)
			}
		default:
			s.skip(3)
		}
	})
}

func (s *scanner) usage(f *figures) {
	s.object(func(key []byte) {
		switch string(key) {
		case `"prompt_tokens"`:
			s.once(128)
			s.figure(&f.Input)
		case `"completion_tokens"`:
			s.once(256)
			s.figure(&f.Output)
		case `"cost"`:
			s.once(512)
			s.figure(&f.Cost)
		case `"cache_read_input_tokens"`:
			s.once(1 << 21)
			s.figure(&f.CacheRead)
		case `"cache_creation_input_tokens"`:
			s.once(1 << 22)
			s.figure(&f.CacheMade)
		case `"prompt_cache_hit_tokens"`:
			s.once(1 << 23)
			s.figure(&f.CacheHit)
		case `"prompt_tokens_details"`:
			s.once(1024)
			s.parts(&f.InputParts)
		case `"completion_tokens_details"`:
			s.once(2048)
			s.parts(&f.OutputParts)
		case `"total_tokens"`:
			s.once(4096)
			s.figure(&f.Total)
		case `"reasoning_tokens"`:
			s.once(8192)
			s.figure(&f.Reasoning)
		case `"cost_details"`:
			s.once(16384)
			s.parts(&f.CostParts)
		case `"is_byok"`:
			s.once(32768)
			s.next()
			begin := s.at
			s.skip(2)
			_ = f.OwnKey.UnmarshalJSON(s.data[begin:s.at]) // It never fails.
		default:
			s.skip(2)
		}
	})
}

func (s *scanner) parts(p *parts) {
	if s.null() {
		return
	}
	s.object(func(key []byte) {
		var place *figure
		switch string(key) {
		case `"cached_tokens"`:
			place = &p.Cached
		case `"cache_write_tokens"`:
			place = &p.Written
		case `"reasoning_tokens"`:
			place = &p.Reasoning
		case `"upstream_inference_cost"`:
			place = &p.Upstream
		default:
			s.skip(3)
			return
		}
		s.bad = s.bad || place.given // The member occurs twice.
		s.figure(place)
	})
}

// scanner steps over JSON. It sets bad if something is not JSON, or not in the usual form.
type scanner struct {
	data []byte
	at   int
	bad  bool
	seen int // the members that were read, as bits
}

// once sets bad if a member occurs twice.
func (s *scanner) once(member int) {
	s.bad = s.bad || s.seen&member != 0
	s.seen |= member
}

// next returns the next byte that is not a blank, or 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take steps over the byte c if it comes next, and reports whether it did.
func (s *scanner) take(c byte) bool {
	if s.next() != c || s.at == len(s.data) {
		return false
	}
	s.at++
	return true
}

func (s *scanner) must(c byte) { s.bad = !s.take(c) || s.bad }

// object steps over an object. It calls the argument member with each key, which is still in quotes. This function must
// step over the value. A key with an escape or a capital letter sets bad.
func (s *scanner) object(member func(key []byte)) {
	s.must('{')
	s.list('}', func() {
		key := s.quoted()
		for _, c := range key {
			s.bad = s.bad || c == '\\' || c > 'z' || (c >= 'A' && c <= 'Z')
		}
		s.must(':')
		member(key)
	})
}

// list steps over elements with commas between them, and over the closing bracket.
func (s *scanner) list(end byte, element func()) {
	if s.take(end) {
		return
	}
	for !s.bad {
		element()
		if !s.take(',') {
			s.must(end)
			return
		}
	}
}

// maxDepth limits how many objects and lists may contain each other in a value that skip steps over.
const maxDepth = 64

// skip steps over a value. The argument depth says how many objects and lists the value is in.
func (s *scanner) skip(depth int) {
	switch c := s.next(); {
	case depth > maxDepth:
		s.bad = true
	case c == '{':
		s.at++
		s.list('}', func() {
			s.quoted()
			s.must(':')
			s.skip(depth + 1)
		})
	case c == '[':
		s.at++
		s.list(']', func() { s.skip(depth + 1) })
	case c == '"':
		s.quoted()
	case !s.word("null") && !s.word("true") && !s.word("false"):
		s.number()
	}
}

// word steps over the word w if it comes next, and reports whether it did.
func (s *scanner) word(w string) bool {
	s.next()
	if !bytes.HasPrefix(s.data[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) null() bool { return s.word("null") }

// number steps over a number and returns it.
func (s *scanner) number() []byte {
	s.next()
	rest := s.data[s.at:]
	n := 0
	for n < len(rest) && strings.IndexByte("0123456789+-.eE", rest[n]) >= 0 {
		n++
	}
	s.at += n
	s.bad = s.bad || !json.Valid(rest[:n])
	return rest[:n]
}

func (s *scanner) figure(f *figure) {
	if !s.null() {
		_ = f.UnmarshalJSON(s.number()) // It never fails.
	}
}

// quoted steps over a string and returns it in its quotes.
func (s *scanner) quoted() []byte {
	if s.next() != '"' {
		s.bad = true
		return nil
	}
	rest := s.data[s.at:]
	for n := 1; n < len(rest); n++ {
		switch c := rest[n]; {
		case c == '"':
			s.at += n + 1
			return rest[:n+1]
		case c == '\\':
			if n++; n < len(rest) && rest[n] == 'u' {
				_, err := strconv.ParseUint(string(rest[n+1:min(n+5, len(rest))]), 16, 64)
				s.bad = s.bad || err != nil || n+5 > len(rest)
				n += 4
			} else {
				s.bad = s.bad || n == len(rest) || strings.IndexByte(escapes, rest[n]) < 0
			}
		case c < ' ':
			s.bad = true
			return nil
		}
	}
	s.bad = true
	return nil
}

// text steps over a string and returns it decoded. For null it returns "".
func (s *scanner) text() string {
	if s.null() {
		return ""
	}
	quoted := s.quoted()
	if s.bad {
		return ""
	}
	rest := quoted[1 : len(quoted)-1]
	if bytes.Contains(rest, []byte(`\u`)) || !utf8.Valid(rest) {
		var text string
		s.bad = json.Unmarshal(quoted, &text) != nil
		return text
	}
	if string(rest) == finishStop { // Nearly every reply has this word.
		return finishStop
	}
	if bytes.IndexByte(rest, '\\') < 0 {
		return string(rest)
	}
	var b strings.Builder
	b.Grow(len(rest))
	for i := bytes.IndexByte(rest, '\\'); i >= 0; i = bytes.IndexByte(rest, '\\') {
		b.Write(rest[:i])
		b.WriteByte(escaped[strings.IndexByte(escapes, rest[i+1])])
		rest = rest[i+2:]
	}
	b.Write(rest)
	return b.String()
}
