package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/sessions"
)

// streamChat sends a session as chunks of a completion: the chairman's text as it
// arrives, and what comes before it as comments.
func (a *API) streamChat(w http.ResponseWriter, r *http.Request, s *sessions.Session, c ChatRequest) {
	t := newChatStream(s, c)
	defer func() {
		if !t.void { // otherwise the session keeps running: its owner may fetch it later
			s.Leave(context.Cause(r.Context()))
		}
	}()
	a.stream(w, r, s, 0, func(events []byte) ([]byte, bool) {
		for name, data := range split(events) {
			if t.event(name, data); t.void {
				break
			}
		}
		defer t.out.Reset() // it is sent before the next are written
		return t.out.Bytes(), t.void
	})
}

// chatStream turns the events of a session into chunks.
type chatStream struct {
	s             *sessions.Session
	request       ChatRequest
	out           *bytes.Buffer // what is to be sent
	before, after []byte        // what stands around the text in a chunk
	void          bool          // an error has ended the stream before the session
}

func newChatStream(s *sessions.Session, request ChatRequest) *chatStream {
	t := &chatStream{s: s, request: request, out: new(bytes.Buffer)}
	t.chunk(Chat{Choices: []ChatChoice{{Delta: &ChatDelta{Content: new("")}}}})
	before, after, _ := bytes.Cut(t.out.Bytes(), []byte(`""},`))
	t.before, t.after = bytes.Clone(before), append([]byte("},"), after...)
	t.out.Reset()
	t.chunk(Chat{Choices: []ChatChoice{{Delta: &ChatDelta{Role: council.RoleAssistant, Content: new("")}}}})
	return t
}

func (t *chatStream) event(name council.EventType, data []byte) {
	switch name {
	case council.EventDelta:
		// Most of a stream is this: the text is taken over as the JSON that it is.
		t.out.Write(t.before)
		t.out.Write(bytes.TrimSuffix(bytes.TrimPrefix(data, []byte(`{"text":`)), []byte("}")))
		t.out.Write(t.after)
	case council.EventRestart:
		// What was sent cannot be taken back.
		t.void = true
		t.data(chatError(&council.Error{
			Code: council.CodePartialRefused, SessionID: t.s.ID,
			Detail: "the chairman failed in the middle of the answer; the whole one, by somebody else, will be at GET /v1/council/" + t.s.ID,
		}))
	case council.EventDone:
		session, err := readSession(data)
		if err != nil {
			t.data(chatError(coded(err)))
			return
		}
		t.chunk(Chat{Choices: []ChatChoice{{Delta: &ChatDelta{}, FinishReason: session.finish()}}, Council: &session.ChatCouncil})
		if o := t.request.StreamOptions; o != nil && o.IncludeUsage {
			t.chunk(Chat{Choices: []ChatChoice{}, Usage: session.usage()})
		}
		t.out.WriteString("data: [DONE]\n\n")
	case council.EventFailed:
		t.data(chatError(t.s.Failure()))
	default:
		var who struct{ Model string }
		_ = json.Unmarshal(data, &who) // not every event is about one
		fmt.Fprintf(t.out, ": %s %s\n\n", name, who.Model)
	}
}

func (t *chatStream) chunk(c Chat) {
	c.ID, c.Object, c.Created, c.Model = "chatcmpl-"+t.s.ID, "chat.completion.chunk", t.s.Created.Unix(), t.request.Model
	t.data(c)
}

func (t *chatStream) data(v any) {
	t.out.WriteString("data: ")
	encoder := json.NewEncoder(t.out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // it comes from JSON
	t.out.WriteByte('\n')
}

// split returns the events of a log.
func split(events []byte) iter.Seq2[council.EventType, []byte] {
	return func(yield func(council.EventType, []byte) bool) {
		for len(events) > 0 {
			var block []byte
			block, events, _ = bytes.Cut(events, []byte("\n\n"))
			_, block, _ = bytes.Cut(block, []byte("\nevent: "))
			name, data, _ := bytes.Cut(block, []byte("\ndata: "))
			if !yield(council.EventType(name), data) {
				return
			}
		}
	}
}
