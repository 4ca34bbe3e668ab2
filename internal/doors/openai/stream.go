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

// textStream sends a session as server-sent events in OpenAI's form. It sends the chairman's text as it arrives. If the
// answer is that of a member, the text arrives in one piece at the end. Before the text, it sends the progress as
// comments.
type textStream struct {
	s       *sessions.Session
	out     bytes.Buffer // bytes that wait to be sent
	encoder *json.Encoder
	event   func(e council.Event) // adds an event of the session to out
	sent    bool                  // some of the answer was sent
	void    bool                  // an error has ended the stream before the session ended
	// watches says that the client did not begin the session with this request, so the session continues without it.
	watches bool
	// restarts counts the council.EventRestarts that were not passed to event.
	restarts int
}

func newTextStream(s *sessions.Session) *textStream {
	t := &textStream{s: s}
	t.encoder = json.NewEncoder(&t.out)
	t.encoder.SetEscapeHTML(false)
	return t
}

// send adds data to out as JSON.
func (t *textStream) send(data any) {
	t.out.WriteString("data: ")
	_ = t.encoder.Encode(data) // This cannot fail, because the session was encoded before.
	t.out.WriteByte('\n')
}

// comment adds an event of the session to out as a comment. The comment shows proxies that the connection is in use.
// Clients do not show comments.
func (t *textStream) comment(e council.Event) {
	model := ""
	switch data := e.Data.(type) {
	case council.AnswerDelta:
		return
	case council.Answer:
		model = data.Model
	case council.Review:
		model = data.Model
	case council.Synthesis:
		model = data.Model
	}
	fmt.Fprintf(&t.out, ": %s %s\n\n", e.Type, model)
}

// lost marks the stream as void and returns the error of the stream. It is called when the answer starts again: another
// chairman writes it, or the text so far was only thinking. The stream must end, because text that was sent cannot be
// taken back.
func (t *textStream) lost(r council.Restart) *council.Error {
	t.void = true
	why := "the chairman failed in the middle of the answer; the whole answer, by another model, "
	if r.Reason == council.FailThinking {
		why = "the text so far was the thinking of " + r.Model + ", which was marked as thinking only at its end; the answer "
	}
	return &council.Error{
		Code:      council.CodePartialRefused,
		SessionID: t.s.ID,
		Detail:    why + "will be at GET /v1/council/" + t.s.ID,
	}
}

// streamText sends the events of t's session in the form that t gives them. It ends when the session or the stream
// ends.
func (d door) streamText(w http.ResponseWriter, r *http.Request, t *textStream) {
	s := t.s
	defer func() {
		if !t.void && !t.watches { // The session of a void stream keeps running, because its owner may fetch it later.
			s.Leave(context.Cause(r.Context()))
		}
	}()
	behind := sessions.Position{}
	// If the request has an Idempotency-Key, its client may have come back to a session that already has events.
	again := t.watches || r.Header.Get("Idempotency-Key") != ""
	d.api.Stream(w, r, func(out *bufio.Writer) (more <-chan struct{}) {
		events, next, more := s.Events(behind)
		behind = next
		_, _ = t.out.WriteTo(out) // Send the beginning of the stream. Stream sees an error when it flushes.
		// void is the index of the last restart. A client that comes back does not need the text before that restart.
		void := 0
		for i, e := range events {
			if again && e.Type == council.EventRestart {
				void = i
			}
		}
		for i, e := range events {
			restart := e.Type == council.EventRestart
			if i < void && (restart || e.Type == council.EventDelta) || restart && !t.sent { // no text to take back
				if restart {
					t.restarts++
				}
				continue
			}
			t.event(e)
			_, _ = t.out.WriteTo(out) // A late client gets all events at once, and t.out must not hold them all.
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
	delta   Chat   // the chunk that is sent for each piece of the answer
	text    string // the piece that delta points to
}

// newChatStream returns a stream that begins with the chunk that names the role.
func newChatStream(s *sessions.Session, request ChatRequest) *textStream {
	t := &chatStream{textStream: newTextStream(s), request: request}
	t.textStream.event = t.event
	t.delta = t.chunk(ChatChoice{Delta: &ChatDelta{Content: &t.text}})
	t.send(t.chunk(ChatChoice{Delta: &ChatDelta{Role: council.RoleAssistant, Content: new("")}}))
	return t.textStream
}

// event adds the chunks for one event of the session.
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
