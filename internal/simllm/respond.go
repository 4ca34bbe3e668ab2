package simllm

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
)

// request is a parsed request with its task.
type request struct {
	body  chatRequest // set for a request for a completion
	texts []string    // set for a request for embeddings
	task  Task
	key   string // all random draws for the request depend on it

	promptBytes int
}

// sample returns the seed of the request, or "" if the request has none. Requests with different seeds have different
// draws for closed questions.
func (q *request) sample() string {
	if seed := string(q.body.Seed); seed != "null" {
		return seed
	}
	return ""
}

// response is the response to a request.
type response struct {
	status      int
	contentType string
	retryAfter  string
	pieces      [][]byte // sent one by one
	filling     []byte   // a text that is sent many times after the first piece
	fillings    int64    // how many times the filling is sent
}

func jsonResponse(status int, v any) response {
	return response{status: status, contentType: "application/json", pieces: [][]byte{encode(v)}}
}

// text returns the text of the model's reply.
func (m *model) text(q *request, fault FaultKind) string {
	if fault == FaultRefusal {
		return "I'm sorry, but I can't help with that. (Simulated refusal.)"
	}
	if m.Reply != nil && !slices.Contains(BallotKinds(), fault) {
		if text, ok := m.Reply(q.task); ok {
			return text
		}
	}
	if text, ok := m.structured(q); ok && !slices.Contains([]TaskKind{Review, Judgement, Decision, Finding, Confirmation}, q.task.Kind) {
		return text
	}
	switch q.task.Kind {
	case Review:
		return m.review(q, fault)
	case Synthesis:
		return m.synthesis(q)
	case Choice:
		return m.choice(q)
	case Judgement:
		return judgement(q.task)
	case Decision:
		return m.decision(q.task)
	case Finding:
		return m.findings(q)
	case Confirmation:
		return m.votes(q)
	default:
		return m.answer(q)
	}
}

// respond returns the response to a request. The fault may change its content.
func (m *model) respond(q *request, fault *fault) response {
	switch fault.Kind {
	case FaultStatus:
		r := jsonResponse(fault.Status, newError(fault.Status, "simulated failure: "+http.StatusText(fault.Status)))
		r.retryAfter = fault.RetryAfter
		return r
	case FaultHugeError:
		return jsonResponse(fault.Status, newError(fault.Status, hugeText)).filled(fault.Size)
	case FaultHTML:
		page := []byte("<!doctype html><title>Simulated page</title><p>Please sign in.</p>\n")
		return response{status: 200, contentType: "text/html", pieces: [][]byte{page}}
	case FaultErrorIn200:
		return jsonResponse(200, namedError(fault.Status, "simulated failure behind HTTP 200"))
	case FaultEmptyObject:
		return jsonResponse(200, struct{}{})
	case FaultNull:
		return jsonResponse(200, nil)
	default:
		if q.task.Kind == Embedding {
			return m.embeddings(q, fault)
		}
		return m.complete(q, fault)
	}
}

// complete returns a completion, changed by the fault.
func (m *model) complete(q *request, fault *fault) response {
	switch fault.Kind {
	case FaultNoChoices:
		return jsonResponse(200, m.completion(q, "chat.completion"))
	case FaultHugeBody:
		huge := message{Role: "assistant", Content: new(hugeText)}
		return jsonResponse(200, m.whole(q, huge, "stop")).filled(fault.Size)
	case FaultHalfJSON:
		r := jsonResponse(200, m.whole(q, message{Role: "assistant", Content: new(m.text(q, fault.Kind))}, "stop"))
		r.pieces[0] = r.pieces[0][:len(r.pieces[0])/2]
		return r
	default:
		msg, finish := m.message(q, fault.Kind)
		if q.body.Stream {
			return m.stream(q, fault, msg, finish)
		}
		return jsonResponse(200, m.whole(q, msg, finish))
	}
}

// filled returns r with a text of n bytes in place of hugeText.
func (r response) filled(n int64) response {
	before, after, _ := bytes.Cut(r.pieces[0], []byte(hugeText))
	r.pieces = slices.Replace(r.pieces, 0, 1, before, after)
	r.filling = []byte("x")
	r.fillings = n
	return r
}

// message returns the model's message and its finish reason.
func (m *model) message(q *request, fault FaultKind) (msg message, finish string) {
	msg = message{Role: "assistant"}
	finish = "stop"
	switch fault {
	case FaultNullContent:
	case FaultEmptyContent:
		msg.Content = new("")
	case FaultReasoningOnly:
		msg.Content = new("")
		msg.ReasoningContent = "Simulated reasoning that comes to no answer."
	case FaultRefusalField:
		msg.Refusal = new("Simulated refusal.")
	default:
		text := m.text(q, fault)
		if limit := cmp.Or(q.body.MaxCompletionTokens, q.body.MaxTokens); limit != nil &&
			max(*limit, 0) < tokens(len(text)) {
			text = cut(text, bytesPerToken*max(*limit, 0))
			finish = "length"
		}
		if fault == FaultLength || fault == FaultContentFilter {
			text = cut(text, len(text)/2)
			finish = string(fault)
		}
		msg.Content = &text
	}
	return msg, finish
}

// completion returns a completion without a choice.
func (m *model) completion(q *request, object string) completion {
	id := digest(m.Name, q.key)
	return completion{
		ID:                "simulated-" + hex.EncodeToString(id[:12]),
		Object:            object,
		Model:             cmp.Or(m.Version, m.Name),
		SystemFingerprint: fingerprint,
		Choices:           []choice{},
	}
}

// whole returns a completion in one piece.
func (m *model) whole(q *request, msg message, finish string) completion {
	c := m.completion(q, "chat.completion")
	c.Choices = []choice{{Message: &msg, FinishReason: &finish}}
	c.Usage = m.usage(q, msg)
	return c
}

// usage estimates the tokens of a call, and its cost if the model has a price.
func (m *model) usage(q *request, msg message) *usage {
	written := len(msg.ReasoningContent)
	for _, text := range []*string{msg.Content, msg.Refusal} {
		if text != nil {
			written += len(*text)
		}
	}
	u := usage{PromptTokens: tokens(q.promptBytes), CompletionTokens: tokens(written)}
	if m.Reasoning != nil {
		u.CompletionTokens += *m.Reasoning
		u.Details = &details{*m.Reasoning}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if m.Price != (Price{}) && !q.body.unpriced {
		u.Cost = new((float64(u.PromptTokens)*m.Price.Input + float64(u.CompletionTokens)*m.Price.Output) / 1e6)
	}
	return &u
}

// stream returns a completion as a stream of events: the role, the text in pieces, the finish reason, the usage if
// the request asks for it, and [DONE].
func (m *model) stream(q *request, fault *fault, msg message, finish string) response {
	r := response{status: 200, contentType: "text/event-stream"}
	chunk := m.completion(q, "chat.completion.chunk")
	send := func(d delta, finish *string) {
		chunk.Choices = []choice{{Delta: &d, FinishReason: finish}}
		r.pieces = append(r.pieces, event(chunk))
	}

	send(delta{Role: msg.Role, Content: new("")}, nil)
	if msg.ReasoningContent != "" {
		send(delta{ReasoningContent: msg.ReasoningContent}, nil)
	}
	if msg.Refusal != nil {
		send(delta{Refusal: msg.Refusal}, nil)
	}
	if msg.Content != nil {
		for _, shard := range shards(*msg.Content) {
			send(delta{Content: &shard}, nil)
		}
	}
	if fault.Kind == StreamNoEnd {
		return r
	}
	if fault.Kind == StreamError {
		r.pieces = append(r.pieces[:(len(r.pieces)+1)/2],
			event(namedError(fault.Status, "simulated failure in the middle of the stream")))
		return r
	}
	if fault.Kind == StreamGarbage {
		r.pieces = slices.Insert(r.pieces, (len(r.pieces)+1)/2, []byte("data: <html>Simulated garbage\n\n"))
	}
	send(delta{}, &finish)
	if q.body.StreamOptions.IncludeUsage {
		chunk.Choices = []choice{}
		chunk.Usage = m.usage(q, msg)
		r.pieces = append(r.pieces, event(chunk))
	}
	r.pieces = append(r.pieces, []byte("data: [DONE]\n\n"))

	switch fault.Kind {
	case StreamHugeLine:
		chunk.Choices = []choice{{Delta: &delta{Content: new(hugeText)}}}
		chunk.Usage = nil
		r.pieces = slices.Insert(r.pieces, 0, event(chunk))
		return r.filled(fault.Size)
	case StreamComments, StreamEmptyData, StreamTiny:
		r.pieces = slices.Insert(r.pieces, 0, nil)
		r.filling = []byte(streamFillings()[fault.Kind])
		r.fillings = fault.Size
	case StreamRare:
		r.contentType = "TEXT/EVENT-STREAM; Charset=UTF-8"
		r.pieces = rarely(r.pieces)
	default: // no other fault sends anything before the first chunk
	}
	return r
}

// streamFillings returns, for each fault that has one, the text that is sent many times before the first chunk.
func streamFillings() map[FaultKind]string {
	return map[FaultKind]string{
		StreamComments:  ": simulated keep-alive\n\n",
		StreamEmptyData: "data:\n\n",
		StreamTiny:      `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n",
	}
}

// rarely returns the events of a stream in the form of StreamRare.
func rarely(pieces [][]byte) [][]byte {
	var rare [][]byte
	for _, piece := range pieces {
		var b bytes.Buffer
		if json.Indent(&b, bytes.TrimPrefix(piece, []byte("data: ")), "data: ", " ") != nil {
			rare = append(rare, piece) // This piece is [DONE].
			continue
		}
		event := slices.Concat([]byte("data: "), bytes.TrimRight(b.Bytes(), "\n"), []byte("\n\n"))
		event = bytes.ReplaceAll(event, []byte("\n"), []byte("\r"))
		other := bytes.Replace(event, []byte(`"index": 0`), []byte(`"index": 1`), 1)
		if !bytes.Equal(event, other) {
			rare = append(rare, other)
		}
		rare = append(rare, event)
	}
	return rare
}
