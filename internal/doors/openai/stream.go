package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/sessions"
)

// textStream is the form in which a door of OpenAI's sends a session: the chairman's text as
// it arrives, and what comes before it as comments.
type textStream struct {
	s       *sessions.Session
	out     bytes.Buffer // what is to be sent
	encoder *json.Encoder
	event   func(e council.Event) // adds an event to out
	sent    bool                  // some of the answer
	void    bool                  // an error has ended the stream before the session
}

func newTextStream(s *sessions.Session) *textStream {
	t := &textStream{s: s}
	t.encoder = json.NewEncoder(&t.out)
	t.encoder.SetEscapeHTML(false)
	return t
}

// send adds data, as JSON, to out.
func (t *textStream) send(data any) {
	t.out.WriteString("data: ")
	_ = t.encoder.Encode(data) // The session it comes from was encoded before.
	t.out.WriteByte('\n')
}

// comment reports progress, which no client shows.
func (t *textStream) comment(e council.Event) {
	model := ""
	switch data := e.Data.(type) {
	case council.Answer:
		model = data.Model
	case council.Review:
		model = data.Model
	case council.Synthesis:
		model = data.Model
	}
	fmt.Fprintf(&t.out, ": %s %s\n\n", e.Type, model)
}

// lost is the error of a stream whose text so far is void: what was sent cannot be taken back.
func (t *textStream) lost(r council.Restart) *council.Error {
	t.void = true
	why := "the chairman failed in the middle of the answer; the whole one, by somebody else, "
	if r.Reason == council.FailThinking {
		why = "the text so far was the thinking of the chairman, which did not say so before its end; the answer "
	}
	return &council.Error{
		Code:      council.CodePartialRefused,
		SessionID: t.s.ID,
		Detail:    why + "will be at GET /v1/council/" + t.s.ID,
	}
}

// streamText sends a session in the form of t.
func (d door) streamText(w http.ResponseWriter, r *http.Request, t *textStream) {
	s := t.s
	defer func() {
		if !t.void { // Otherwise the session keeps running: its owner may fetch it later.
			s.Leave(context.Cause(r.Context()))
		}
	}()
	behind := sessions.Position{}
	again := r.Header.Get("Idempotency-Key") != "" // The session may have run, for a client that comes back.
	d.api.Stream(w, r, func(out *bufio.Writer) (more <-chan struct{}) {
		events, next, more := s.Events(behind)
		behind = next
		_, _ = t.out.WriteTo(out) // what the stream begins with; an error comes with the next flush
		void := 0                 // in such a session: the last restart; the text before it need not be sent
		for i, e := range events {
			if again && e.Type == council.EventRestart {
				void = i
			}
		}
		for i, e := range events {
			restart := e.Type == council.EventRestart
			if i < void && (restart || e.Type == council.EventDelta) || i == void && restart && !t.sent {
				continue
			}
			t.event(e)
			_, _ = t.out.WriteTo(out) // now, because a client that comes late is sent all events at once
			if t.void {
				return nil
			}
		}
		return more
	})
}

// chatStream turns the events of a session into chunks of a completion.
type chatStream struct {
	*textStream
	request ChatRequest
	delta   Chat   // the chunk of a piece of the answer
	text    string // the piece in it
}

// newChatStream returns a stream that begins with the chunk for the role.
func newChatStream(s *sessions.Session, request ChatRequest) *textStream {
	t := &chatStream{textStream: newTextStream(s), request: request}
	t.textStream.event = t.event
	t.delta = t.chunk(ChatChoice{Delta: &ChatDelta{Content: &t.text}})
	t.send(t.chunk(ChatChoice{Delta: &ChatDelta{Role: council.RoleAssistant, Content: new("")}}))
	return t.textStream
}

func (t *chatStream) event(e council.Event) {
	switch data := e.Data.(type) {
	case council.Delta:
		t.text = data.Text
		t.sent = true
		t.send(&t.delta)
	case council.Restart:
		t.send(httpapi.OpenAIError(t.lost(data)))
	case *council.Session:
		if t.text = noteLine(data); t.text != "" {
			t.send(&t.delta)
		}
		last := t.chunk(ChatChoice{Delta: &ChatDelta{}, FinishReason: chatFinish(data)})
		last.Council = chatCouncil(data)
		t.send(last)
		if o := t.request.StreamOptions; o != nil && o.IncludeUsage {
			usage := t.chunk()
			usage.Usage = chatUsage(data)
			t.send(usage)
		}
		t.out.WriteString("data: [DONE]\n\n")
	case *council.Error:
		t.send(httpapi.OpenAIError(data))
	default:
		t.comment(e)
	}
}

func (t *chatStream) chunk(choices ...ChatChoice) Chat {
	return t.request.completion(t.s, "chat.completion.chunk", choices...)
}
